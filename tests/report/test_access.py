"""Accessibility of report, monitor page and notebook forms: their source, their colours, and axe-core in Chromium.

The custodian's page has the same tests in tests/custodian/test_custodian_page.py; ``make access-check`` runs all.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import FACTS, Case, price_list, signed

from access import CHROMIUM, FLAGS, axe_faults, contrast, faults, palettes, weak_colours
from justitia import Monitor, PrivacyLedger, measure
from justitia.metrics.displays import PriceDisplay
from justitia.report import build_report, notebook
from justitia.report.monitor_page import monitor_page

STYLE = (resources.files("justitia.report") / "templates" / "style.css").read_text(encoding="utf-8")
WIDTHS = (1280, 390)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; run `make browser`.")


@pytest.fixture(scope="module")
def pages(two: Case, five: Case, open_book: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    two.model.price_ = price_list()
    reports = {
        "full": build_report(two.model, measurement=signed(two), facts=FACTS, limit=0.05, about={"owner": "Ann"}),
        "five": build_report(five.model, measurement=five.measurement, facts=FACTS),
        "open": build_report(open_book.model),
    }
    found = {name: report.html() for name, report in reports.items()}
    found["forms"] = _forms(two)
    del two.model.price_
    found["monitor"] = _monitored(tmp_path_factory.mktemp("monitor"))
    return found


def _forms(two: Case) -> str:
    """A page of all notebook forms."""
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    draw = np.random.default_rng(0)
    y, sex = draw.integers(0, 2, 400), draw.choice(["f", "m"], 400)
    measured = measure(y, y, before=1 - y, sensitive_features=sex, groups=["f", "m"], epsilon=1.0, ledger=ledger)
    parts: list[Any] = [PriceDisplay.from_estimator(two.model), two.measurement, measured, measured.impact()]
    parts += [ledger, two.model.certificate_, *([two.curve] if two.curve is not None else [])]
    body = "".join(f"<h2>Form {k}</h2>{one._repr_html_()}" for k, one in enumerate(parts))
    body += f"<h2>Model</h2>{notebook.model_form(two.model)}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Forms</title>'
    head += "<style>:root { color-scheme: light dark }</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main><h1>Forms</h1>{body}</main></body></html>'


def _monitored(folder: Path) -> str:
    made = Monitor.create(folder / "monitor", limit=0.1, groups=["f", "m"], planned=4, people="new")
    draw = np.random.default_rng(1)
    for night in range(3):
        sex = draw.choice(["f", "m"], 2000)
        decided = (draw.uniform(size=2000) < np.where(sex == "f", 0.5, 0.5 - 0.1 * night)).astype(int)
        made.add(decided, sensitive_features=sex, when=f"night {night}", noise_seed=night)
    return monitor_page(made.to_dict())


NAMES = ("full", "five", "open", "forms", "monitor")


@pytest.mark.parametrize("name", NAMES)
def test_source_of_a_page_names_its_parts_and_its_pictures(pages: dict[str, str], name: str) -> None:
    assert faults(pages[name]) == []


def test_faults_that_are_planted_are_found() -> None:
    wrong = "<html><body><h1>a</h1><h3>b</h3><svg></svg><input id='x'><i id='x'></i><a href='#y'>c</a><th>d</th></html>"
    assert len(faults(wrong)) == 10
    assert weak_colours(":root {--a: #777; --b: #888;} x :root {--a: #000;}", ("a",), (), ("b",)) == [
        "light: a on b is 1.26"
    ]
    assert contrast("#000", "#ffffff") == pytest.approx(21)


def test_colours_of_the_report_have_contrast_in_light_and_dark() -> None:
    texts = ("ink", "quiet", "accent", "met", "not-met", "open")
    assert weak_colours(STYLE, texts, ("accent",), ("paper", "panel")) == []


def test_colours_of_the_monitors_page_have_contrast_in_light_and_dark(pages: dict[str, str]) -> None:
    texts = ("ink", "quiet", "accent", "met", "not-met", "open")
    assert weak_colours(pages["monitor"], texts, ("accent",), ("paper", "panel")) == []


def test_colour_of_notebook_charts_has_contrast_against_white_and_dark_pages() -> None:
    accent = notebook.STYLE.partition("--jf-accent:")[2].split(";")[0].strip()
    for ground in ("#ffffff", "#111111", "#1e1e1e", "#14171c"):  # JupyterLab, VS Code, this site
        assert contrast(accent, ground) >= 3
    assert len(palettes(STYLE)) == 2


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["forms", "monitor"])  # reports: tests/report/test_browser.py
def test_axe_finds_nothing_and_no_page_scrolls_sideways(
    pages: dict[str, str], browser: Any, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(pages[name], encoding="utf-8")
    assert axe_faults(browser, file, width, scheme) == []
