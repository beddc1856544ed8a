"""The page in a real browser: drawn, quiet, usable by pointer and keyboard, and accessible."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from cases import FACTS, Case, price_list, signed
from playwright.sync_api import Browser, Page, sync_playwright

from justitia.report import build_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
#: Three points that no other beats, the second of them chosen, and one that is beaten.
CURVE = {
    "points": [
        {"tolerance": tolerance, "accuracy": accuracy, "noisy_violation": violation}
        for tolerance, accuracy, violation in (
            (None, 0.8, 0.01),
            (0.05, 0.82, 0.05),
            (0.2, 0.83, 0.12),
            (0.3, 0.81, 0.13),
        )
    ],
    "chosen": 1,
}
WIDTHS = {"desktop": 1280, "phone": 390}


def test_chromium_is_there_where_it_has_to_be() -> None:
    if CHROMIUM is None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is not installed, and CI=true asks for it; run `make browser`.")


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; run `make browser`.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(two: Case, five: Case, open_book: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    reports = {
        "full": build_report(two.model, measurement=signed(two), curve=CURVE, facts=FACTS, about={"owner": "Ann"}),
        "five": build_report(five.model, measurement=five.measurement, facts=FACTS | {"title": "<b>" + "x" * 200}),
        "bare": build_report(two.model),
        "open": build_report(open_book.model),
    }
    two.model.price_ = price_list()
    reports["priced"] = build_report(two.model, measurement=signed(two), facts=FACTS, limit=0.05, limit_ratio=0.8)
    del two.model.price_
    return {name: report.write(folder / f"{name}.html") for name, report in reports.items()}


@dataclass
class Opened:
    """A page, and everything it complained of or asked for."""

    page: Page
    complaints: list[str]
    requests: list[str]


def visit(browser: Browser, file: Path, width: int, *, annex: bool = True, **options: Any) -> Opened:
    """Open a page; its annex is folded until it is opened."""
    page = browser.new_page(viewport={"width": width, "height": 800}, reduced_motion="reduce", **options)
    opened = Opened(page, [], [])
    page.on("console", lambda message: opened.complaints.append(message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (opened.complaints.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(file.as_uri())
    if annex:
        page.evaluate("document.querySelectorAll('details.annex').forEach(one => { one.open = true; })")
    return opened


@pytest.fixture(params=list(WIDTHS))
def width(request: pytest.FixtureRequest) -> int:
    return WIDTHS[request.param]


@needs_chromium
@pytest.mark.parametrize("name", ["full", "five", "bare", "open", "priced"])
def test_page_opens_without_complaint_or_request_and_never_scrolls_sideways(
    browser: Browser, files: dict[str, Path], name: str, width: int
) -> None:
    opened = visit(browser, files[name], width)
    assert opened.complaints == []
    assert opened.requests == [files[name].as_uri()]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.close()


@needs_chromium
def test_browser_refuses_a_script_that_is_not_ours(browser: Browser, files: dict[str, Path], tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(files["full"].read_text("utf-8").replace("</main>", "<script>alert(1)</script></main>"), "utf-8")
    opened = visit(browser, changed, 800)
    assert len(opened.complaints) == 1
    assert "Content Security Policy" in opened.complaints[0]
    opened.page.close()


@needs_chromium
@pytest.mark.parametrize(("name", "charts"), [("full", 13), ("five", 11), ("bare", 7), ("open", 3)])
def test_every_chart_is_drawn_and_legible(
    browser: Browser, files: dict[str, Path], name: str, charts: int, width: int
) -> None:
    page = visit(browser, files[name], width).page
    drawings = page.evaluate("""() => [...document.querySelectorAll("svg.drawing")].filter(
        svg => svg.checkVisibility()).map(svg => ({
        width: svg.getBoundingClientRect().width,
        height: svg.getBoundingClientRect().height,
        letters: [...svg.querySelectorAll("text")].map(
            text => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a),
        shapes: [...svg.querySelectorAll("polyline, rect, .whisker")].map(shape => {
            const box = shape.getBoundingClientRect();
            return box.width + box.height;
        }),
    }))""")
    assert len(drawings) == charts
    for drawing in drawings:
        assert drawing["width"] > 250
        assert drawing["height"] > 60
        assert len(drawing["letters"]) > 3
        assert min(drawing["letters"]) > 9
        assert drawing["shapes"]
        assert min(drawing["shapes"]) > 0
    page.close()


@needs_chromium
def test_text_of_a_chart_stays_within_it(browser: Browser, files: dict[str, Path], width: int) -> None:
    page = visit(browser, files["five"], width).page
    outside = page.evaluate("""() => [...document.querySelectorAll("svg.drawing text")].filter(
        text => text.checkVisibility()).filter(text => {
        const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
        return box.left < svg.left - 4 || box.right > svg.right + 8;
    }).map(text => text.textContent)""")
    assert outside == []
    page.close()


@needs_chromium
def test_hover_shows_the_numbers_of_a_point_and_leaving_hides_them(
    browser: Browser, files: dict[str, Path], width: int
) -> None:
    page = visit(browser, files["full"], width).page
    tip, mark = page.locator("#tip"), page.locator("#curve .mark.chosen")
    assert tip.is_hidden()
    mark.hover()
    tip.wait_for(state="visible")
    assert tip.text_content() == mark.get_attribute("aria-label")
    assert "the chosen model" in (tip.text_content() or "")
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.mouse.move(1, 1)
    tip.wait_for(state="hidden")
    page.close()


@needs_chromium
def test_tab_and_arrow_keys_reach_every_point_of_a_chart(browser: Browser, files: dict[str, Path], width: int) -> None:
    page = visit(browser, files["full"], width).page
    tip, marks = page.locator("#tip"), page.locator("#curve .mark")
    page.locator("#tradeoff").evaluate("one => { one.tabIndex = -1; one.focus(); }")
    page.keyboard.press("Tab")
    seen = []
    for _ in range(marks.count()):
        assert tip.is_visible()
        seen.append(tip.text_content())
        page.keyboard.press("ArrowRight")
    assert sorted(map(str, seen)) == sorted(str(mark.get_attribute("aria-label")) for mark in marks.all())
    page.keyboard.press("Home")
    assert tip.text_content() == seen[0]
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#curve')") is None
    page.close()


@needs_chromium
def test_arrow_keys_move_between_the_lines_of_a_chart(browser: Browser, files: dict[str, Path]) -> None:
    page = visit(browser, files["full"], 1280).page
    page.locator("#history-noisy-gap-0 .mark").first.focus()
    here = page.locator("#tip").text_content()
    page.keyboard.press("ArrowDown")
    there = page.locator("#tip").text_content()
    assert here is not None
    assert there is not None
    assert (here.split(",")[0], there.split(",")[0]) == ("women", "men")
    assert here.split(",")[1].split(":")[0] == there.split(",")[1].split(":")[0]
    page.close()


@needs_chromium
def test_annex_is_folded_until_it_is_opened_or_a_link_leads_into_it_or_the_page_is_printed(
    browser: Browser, files: dict[str, Path], width: int
) -> None:
    page = visit(browser, files["full"], width, annex=False).page
    inside = page.locator("#trained")
    assert inside.is_hidden()
    page.emulate_media(media="print")
    assert inside.evaluate("one => one.checkVisibility({contentVisibilityAuto: true})")
    printed = page.pdf(prefer_css_page_size=True, format="A4").count(b"/Type /Page\n")
    page.emulate_media(media="null")
    assert inside.is_hidden()
    page.get_by_role("link", name="Technical annex").click()
    inside.wait_for(state="visible")  # the event of the link comes after the click
    assert page.pdf(prefer_css_page_size=True, format="A4").count(b"/Type /Page\n") == printed
    page.close()


@needs_chromium
def test_certificate_is_copied(browser: Browser, files: dict[str, Path], two: Case) -> None:
    page = visit(browser, files["full"], 1280, permissions=["clipboard-read", "clipboard-write"]).page
    page.get_by_text("The certificate as JSON").click()
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == two.model.certificate_.to_json()
    page.close()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["full", "five", "bare", "open", "priced"])
def test_axe_finds_nothing(browser: Browser, files: dict[str, Path], name: str, scheme: str, width: int) -> None:
    page = visit(browser, files[name], width, color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    found = Axe().run(page).response
    assert len(found["passes"]) > 20
    assert [(one["impact"], one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    page.close()


@needs_chromium
def test_axe_sees_a_fault_that_is_planted(browser: Browser, files: dict[str, Path]) -> None:
    page = visit(browser, files["bare"], 1280).page
    page.evaluate("document.querySelector('svg.drawing').removeAttribute('aria-labelledby')")
    page.evaluate("document.querySelector('svg.drawing').querySelectorAll('title, desc').forEach(one => one.remove())")
    page.evaluate("document.querySelector('.by').style.color = '#cccccc'")
    found = {one["id"] for one in Axe().run(page).response["violations"]}
    assert {"svg-img-alt", "color-contrast"} <= found
    page.close()


@needs_chromium
def test_point_of_the_price_list_that_is_chosen_by_keyboard_fills_the_panel(
    browser: Browser, files: dict[str, Path], width: int
) -> None:
    page = visit(browser, files["priced"], width).page
    shown = page.locator("#price-panel [data-price]:visible")
    assert shown.count() == 1
    assert "tolerance 0.03 (deployed)" in (shown.text_content() or "")
    page.locator("#price-list .mark").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    page.keyboard.press("End")
    chosen = page.evaluate("document.activeElement.getAttribute('aria-label')")
    if "new people" in chosen:  # measured, not on the price list
        page.keyboard.press("ArrowLeft")
        chosen = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert shown.count() == 1
    assert chosen.split(":")[0] in (shown.text_content() or "")
    assert "deployed" not in (shown.text_content() or "")
    page.close()


@needs_chromium
def test_landmarks_and_the_verdict_are_named(browser: Browser, files: dict[str, Path]) -> None:
    page = visit(browser, files["priced"], 1280).page
    for name in ("header", "main", "nav", "footer"):
        assert page.locator(f"body > {name}, main > {name}").count() == 1, name
    assert page.get_by_role("navigation", name="Contents").is_visible()
    verdict = page.get_by_role("heading", level=2).first
    assert (verdict.text_content() or "").strip() in {"Met", "Not met", "Inconclusive"}
    assert verdict.locator("svg[aria-hidden=true]").count() == 1
    unnamed = page.evaluate("""() => [...document.querySelectorAll("section")].filter(
        one => !document.getElementById(one.getAttribute("aria-labelledby") || "")).length""")
    assert unnamed == 0
    page.close()


@needs_chromium
def test_print_has_no_json_and_keeps_the_page_light(browser: Browser, files: dict[str, Path]) -> None:
    page = visit(browser, files["full"], 1280, color_scheme="dark").page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.emulate_media(media="print")
    for hidden in ("#json", "#record", "nav", "#hero-narrow", "#features"):
        assert page.locator(hidden).is_hidden(), hidden
    assert page.locator("#hero").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()


@needs_chromium
@pytest.mark.parametrize("name", ["full", "five", "priced"])
def test_print_has_eight_pages_at_most(browser: Browser, files: dict[str, Path], name: str) -> None:
    page = visit(browser, files[name], 1280).page
    assert page.pdf(prefer_css_page_size=True, format="A4").count(b"/Type /Page\n") <= 8
    page.close()
