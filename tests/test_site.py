"""The checks of the site find what is wrong; `make site-check` runs them on the site that was built."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from bench.site_check import DISPLAYS, FORMS, broken_links, missing_displays, served, terms_not_found, wide_pages

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; run `make browser`.")
HEAD = "<!doctype html><meta name='viewport' content='width=device-width'><article>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def test_links_to_absent_files_and_places_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<h1 id='top'></h1><a href='b.html#no'></a><a href='c.html'></a><a href='#top'></a>"
    )
    (tmp_path / "b.html").write_text("<a href='a.html#top'></a><a href='https://x.y/z'></a><img src='gone.png'>")
    assert broken_links(tmp_path) == ["a.html: b.html#no", "a.html: c.html", "b.html: gone.png"]


@needs_chromium
def test_pages_that_are_wider_than_a_phone_are_found_and_those_that_scroll_within_are_not(
    tmp_path: Path, browser: Browser
) -> None:
    wide = "<div style='width: 600px'>wide</div>"
    (tmp_path / "cut.html").write_text(f"<style>html {{ overflow-x: hidden }}</style>{HEAD}{wide}")
    (tmp_path / "fine.html").write_text(f"{HEAD}<div style='overflow-x: auto'>{wide}</div>")
    (tmp_path / "wide.html").write_text(f"{HEAD}{wide}")
    with served(tmp_path) as address:
        found = wide_pages(browser, tmp_path, address)
    assert [one.split(":")[0] for one in found] == ["cut.html", "wide.html"]


@needs_chromium
def test_terms_for_which_the_search_lists_another_page_are_found(tmp_path: Path, browser: Browser) -> None:
    script = "document.getElementById('search-results').innerHTML = location.search.includes('proxy')"
    listed = "'<ul class=search><li><a href=faq.html></a></ul>' : '<ul class=search><li><a href=a.html></a></ul>'"
    (tmp_path / "search.html").write_text(f"<div id='search-results'></div><script>{script} ? {listed}</script>")
    with served(tmp_path) as address:
        found = terms_not_found(browser, address, ("proxy", "nothing"), seconds=1)
    assert found == ["nothing (TimeoutError)"]


def test_displays_that_the_tutorial_does_not_show_are_found(tmp_path: Path) -> None:
    assert missing_displays(tmp_path) == list(FORMS)
    (tmp_path / DISPLAYS).parent.mkdir()
    shown = [f'<div class="output_subarea">{words} <svg></svg></div>' for words in FORMS[:-2]]
    shown += [f'<div class="output_subarea">{FORMS[-2]}</div><div class="highlight-py">{FORMS[-1]} <svg></svg></div>']
    (tmp_path / DISPLAYS).write_text("".join(shown))
    assert missing_displays(tmp_path) == list(FORMS[-2:])
