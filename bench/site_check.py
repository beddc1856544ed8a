"""Checks of the built site: ``make docs site-check``, or ``python -m bench.site_check out/docs``.

* Every internal link leads to a file and, if it names one, to a place in it.
* No page is wider than a phone (390 pixels): whatever is wider has to scroll within itself.
* The tutorial of displays shows every one of them, as the build of the site executed it.
* The site's own search finds every term of the FAQ that people look for, and the FAQ is among what it finds.

The first and the third are read from the HTML; the others run in Chromium, which `make browser` installs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote, urlsplit

#: Width of a common phone in pixels.
PHONE = 390
#: Pixels by which the page is wider than the screen, and parts of it that are cut off and cannot be scrolled to.
MEASURE = """
() => {
  const scrolls = part => /auto|scroll/.test(getComputedStyle(part).overflowX);
  const reachable = part => { while (part && !scrolls(part)) part = part.parentElement; return part !== null; };
  const root = document.documentElement;
  const parts = [...document.querySelectorAll("article *")];
  const beyond = part => part.getBoundingClientRect().right > innerWidth + 1 && !reachable(part);
  const cut = parts.find(beyond);
  return [Math.max(root.scrollWidth, document.body.scrollWidth) - innerWidth, cut ? cut.outerHTML.slice(0, 60) : ""];
}
"""
#: Page of displays, and words of each form: estimator, price list, certificate, measurement, ratios, ledger, curve.
DISPLAYS = "tutorials/displays.html"
FORMS = (
    *("sk-top-container", "rows are in price_", "What the guarantee rests on", "before the correction"),
    *("Smallest impact ratio", "is spent", "models along a curve"),
)
#: What readers search for. The FAQ has to be among the results of each.
TERMS = (
    "disparate impact",
    "adverse impact",
    "adverse impact ratio",
    "four-fifths rule",
    "statistical parity",
    "equal opportunity",
    "equalized odds",
    "protected characteristic",
    "proxy",
    "BISG",
    "differential privacy",
    "epsilon board",
    "gender prediction",
    "not protected",
    "anonymous",
    "accuracy cost",
    "AUC",
    "intersectionality",
    "XGBoost",
    "audit",
    "compliance",
    "regression",
    "Spark",
    "fairlearn",
)


class _Page(HTMLParser):
    """Targets of links and names of places of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect ``href`` and ``src``, ``id`` and ``name``."""
        for name, value in attrs:
            if name in {"href", "src"} and value and tag != "base":
                self.links.append(value)
            elif (name == "id" or (name == "name" and tag == "a")) and value:
                self.places.add(value)


def read_pages(site: Path) -> dict[Path, _Page]:
    """Every page of the site, parsed."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" not in path.relative_to(site).parts:
            found[path.resolve()] = page = _Page()
            page.feed(path.read_text(encoding="utf-8"))
    return found


def broken_links(site: Path) -> list[str]:
    """Internal links that lead to no file, or to no place in one."""
    pages, broken = read_pages(site), []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            known = target.exists() and (not fragment or target not in pages or fragment in pages[target].places)
            if not known:
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    return broken


def missing_displays(site: Path) -> list[str]:
    """Forms that the executed tutorial of displays does not show, or shows without a chart."""
    path = site / DISPLAYS
    parts = path.read_text(encoding="utf-8").split('class="output_subarea') if path.is_file() else []
    return [
        words
        for words in FORMS
        if not any(words in part and "<svg" in part.partition("highlight-")[0] for part in parts[1:])
    ]


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site on a local port: search does not work from files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def wide_pages(browser: Any, site: Path, address: str) -> list[str]:
    """Pages that a phone would have to scroll sideways, and by how much."""
    context = browser.new_context(viewport={"width": PHONE, "height": 800}, device_scale_factor=1)
    page, wide = context.new_page(), []
    for path in read_pages(site):
        name = path.relative_to(site.resolve()).as_posix()
        page.goto(f"{address}/{name}", wait_until="load")
        beyond, cut = page.evaluate(MEASURE)
        if beyond > 0 or cut:
            wide.append(f"{name}: {beyond} pixels {cut}".rstrip())
    context.close()
    return wide


def terms_not_found(browser: Any, address: str, terms: Sequence[str] = TERMS, *, seconds: float = 30) -> list[str]:
    """Terms for which the site's search does not list the FAQ."""
    page, missing = browser.new_page(), []
    for term in terms:
        page.goto(f"{address}/search.html?q={quote_plus(term)}", wait_until="load")
        listed = "#search-results ul.search li a[href*='faq.html']"
        try:
            page.wait_for_selector(listed, state="attached", timeout=1000 * seconds)
        except Exception as error:  # noqa: BLE001 - a page that fails in any way is one that does not find it
            missing.append(f"{term} ({type(error).__name__})")
    page.close()
    return missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m bench.site_check", description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", default=Path("out/docs"), help="folder of the built site")
    site: Path = parser.parse_args(arguments).site
    if not (site / "index.html").exists():
        parser.error(f"{site} has no index.html; run `make docs` first.")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        parser.error("Chromium is not installed; run `make browser`.")

    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only the checks in a browser need it

    wrong = {"links that lead nowhere": broken_links(site), "displays that are not shown": missing_displays(site)}
    with served(site) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        wrong[f"pages wider than {PHONE} pixels"] = wide_pages(browser, site, address)
        wrong["terms that the search does not find in the FAQ"] = terms_not_found(browser, address)
        browser.close()
    for what, found in wrong.items():
        print(f"{what}: {len(found)}")
        for one in found:
            print(f"  {one}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
