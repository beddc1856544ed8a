"""The status page: read only, no script, nothing from elsewhere, and it opens in a browser."""

import base64
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from service_fixtures import IDS, KEYS, Caller, make_folder, opened

from justitia.custodian.page import page_app, page_text
from justitia.custodian.records import Client

READER = Client("reader", ("read",), None, "", ("people",))


def asked_page(folder: Path) -> str:
    with opened(make_folder(folder)) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, np.ones((len(IDS), 2)), purpose="<script>alert(1)</script>")
        ask.sums(cohort, np.ones((3, 2)), request="short")
        ask("GET", "/v1/populations/people", client="a wrong key")
        return page_text(service, READER)


def test_page_shows_debits_receipts_and_refusals_and_runs_nothing(tmp_path: Path) -> None:
    text = asked_page(tmp_path / "holder")
    for part in (
        "<td>trainer</td>",
        '<code title="r1">r1</code>',
        "&lt;script&gt;alert(1)",
        "input (422)",
        "key (401)",
        "no valid key",
        "<dt>receipts</dt><dd>1</dd>",
        "(dashed): 1 debits from",
    ):
        assert part in text
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=", text)
    assert "a wrong key" not in text


def basic(key: str) -> dict[str, str]:
    """As a browser sends what was typed as a password."""
    return {"authorization": "Basic " + base64.b64encode(f"anybody:{key}".encode()).decode()}


def test_page_needs_a_key_that_may_read_and_a_name_of_this_machine(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        ask.asgi = page_app(ask.app)
        replies = [ask("GET", "/", client=one) for one in (None, "a wrong key", "trainer", "reader")]
        assert [one.status for one in replies] == [401, 401, 403, 200]
        assert "trainer" not in b"".join(one.body for one in replies[:3]).decode()
        assert replies[0].headers["www-authenticate"].startswith("Basic")
        assert ask("GET", "/", client=None, headers=basic(KEYS["reader"])).status == 200
        for wrong in (
            basic(KEYS["trainer"]),
            basic("x"),
            {"authorization": "Basic \xff"},
            {"authorization": "Basic eA"},
        ):
            assert ask("GET", "/", client=None, headers=wrong).status in {401, 403}
        hosts = {"localhost:8788": 200, "127.0.0.1:9": 200, "evil.example:8788": 400}
        assert {host: ask("GET", "/", client="reader", headers={"host": host}).status for host in hosts} == hosts


def test_page_of_a_custodian_without_populations_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as service:
        assert "No population is registered yet" in page_text(service, READER)


def test_page_shows_the_populations_that_a_key_is_for_and_no_others(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        assert "<h2>people" in page_text(service, READER)
        assert "<h2>people" not in page_text(service, replace(READER, populations=("others",)))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_page_opens_in_a_browser_without_errors_and_is_accessible(tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    file = tmp_path / "page.html"
    file.write_text(asked_page(tmp_path / "holder"), encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            for width, scheme in ((390, "dark"), (1280, "light")):
                page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
                said: list[str] = []
                page.on("console", lambda message, said=said: said.append(message.text))
                page.goto(file.as_uri())
                assert [one["id"] for one in Axe().run(page).response["violations"]] == []
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert said == []
                page.close()
        finally:
            browser.close()
