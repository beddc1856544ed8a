"""The page of the custodian's own people: read only, no script, nothing from elsewhere, and it opens in a browser."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from holding import IDS, Caller, make_folder, opened

from justitia.custodian.page import page_app, page_text


def asked_page(folder: Path) -> str:
    with opened(make_folder(folder)) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, np.ones((len(IDS), 2)), purpose="<script>alert(1)</script>")
        ask.sums(cohort, np.ones((3, 2)), request="short")
        ask("GET", "/v1/populations/people", client="a wrong key")
        assert page_app(service).routes
        return page_text(service)


def test_page_shows_debits_receipts_and_refusals_and_runs_nothing(tmp_path: Path) -> None:
    text = asked_page(tmp_path / "holder")
    for part in (
        "trainer/r1",
        "&lt;script&gt;alert(1)",
        "input (422)",
        "key (401)",
        "no valid key",
        "1 debits, 1 receipts",
    ):
        assert part in text
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=", text)
    assert "a wrong key" not in text


def test_page_of_a_custodian_without_people_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as service:
        assert "No population is registered yet" in page_text(service)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_page_opens_in_a_browser_without_errors_and_is_accessible(tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    file = tmp_path / "page.html"
    file.write_text(asked_page(tmp_path / "holder"), encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 400, "height": 800})
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            page.goto(file.as_uri())
            found = Axe().run(page)
            wide = page.evaluate("document.documentElement.scrollWidth")
        finally:
            browser.close()
    assert said == []
    assert [one["id"] for one in found.response["violations"]] == []
    assert wide <= 400
