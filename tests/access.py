"""Accessibility of a page: what its source says by itself, contrast of its colours, and what axe-core finds."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
)
#: Elements without an end.
VOID = {"meta", "link", "br", "img", "input", "hr", "col", "source", "wbr"}
#: Contrast of text, and of what is drawn, by WCAG 2.2 at level AA.
OF_TEXT, OF_DRAWING = 4.5, 3.0


class Source(HTMLParser):
    """Elements of a page in their order, each with its attributes, its text and the elements that hold it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = {"tag": tag, "text": "", "within": [one["tag"] for one in self._open], **dict(attrs)}
        self.elements.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one["text"] += data

    def named(self, *tags: str) -> list[dict[str, Any]]:
        return [one for one in self.elements if one["tag"] in tags]


def faults(html: str, *, whole: bool = True) -> list[str]:
    """What is wrong with the source of a page, or of a part of one that another page shows."""
    page, found = Source(html), []
    if whole:
        (root,) = page.named("html")
        found += [] if root.get("lang") else ["the page names no language"]
        found += [] if any(one["text"].strip() for one in page.named("title")) else ["the page has no title"]
        found += [] if page.named("main") else ["the page has no main part"]
        found += [] if len(page.named("h1")) == 1 else ["the page has not one heading of level 1"]
        found += [] if any(one.get("name") == "viewport" for one in page.named("meta")) else ["no viewport"]
    levels = [int(one["tag"][1]) for one in page.named("h1", "h2", "h3", "h4", "h5", "h6")]
    found += [f"heading of level {b} after {a}" for a, b in itertools.pairwise(levels) if b > a + 1]
    found += [f"empty {one['tag']}" for one in page.named("h1", "h2", "h3", "h4", "a", "button") if not _name(one)]
    ids = Counter(one["id"] for one in page.elements if "id" in one)
    found += [f"id {name!r} is given {count} times" for name, count in ids.items() if count > 1]
    for one in page.elements:
        for attribute in ("aria-labelledby", "aria-describedby", "for", "aria-controls"):
            lacking = set((one.get(attribute) or "").split()) - ids.keys()
            found += [f"{one['tag']} refers to {name!r}, which is not there" for name in sorted(lacking)]
        href = one.get("href") or ""
        found += [f"link to {href}, which is not there"] if href.startswith("#") and href[1:] not in ids else []
    for one in page.named("svg", "img"):
        hidden = one.get("aria-hidden") == "true"
        said = one.get("role") in ("img", "group") and (one.get("aria-label") or one.get("aria-labelledby"))
        found += [] if hidden or said or one.get("alt") is not None else [f"{one['tag']} without a description"]
    labelled = {one.get("for") for one in page.named("label")}
    for one in page.named("input", "select", "textarea"):
        found += [] if one.get("aria-label") or one.get("id") in labelled else [f"{one['tag']} without a label"]
    found += [f"th without a scope: {one['text'].strip()!r}" for one in page.named("th") if not one.get("scope")]
    return found


def _name(one: dict[str, Any]) -> str:
    return str(one["text"].strip() or one.get("aria-label") or "")


def palettes(css: str) -> list[dict[str, str]]:
    """Colours by their names: light, then dark, where what dark leaves out is as in light."""
    found: list[dict[str, str]] = []
    for block in re.findall(r":root\s*\{([^}]*)\}", css.partition("@media print")[0]):
        own = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,6})\b", block))
        found += [{**(found[0] if found else {}), **own}] if own else []
    return found[:2]


def contrast(one: str, other: str) -> float:
    """Ratio of the luminances of two colours, from 1 to 21."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def weak_colours(css: str, texts: tuple[str, ...], drawn: tuple[str, ...], grounds: tuple[str, ...]) -> list[str]:
    """Pairs of colours whose contrast is too small, in light and in dark."""
    found = []
    for scheme, colours in zip(("light", "dark"), palettes(css), strict=True):
        for names, least in ((texts, OF_TEXT), (drawn, OF_DRAWING)):
            for name, ground in itertools.product(names, grounds):
                ratio = contrast(colours[name], colours[ground])
                found += [f"{scheme}: {name} on {ground} is {ratio:.2f}"] if ratio < least else []
    return found


def axe_faults(browser: Any, file: Path, width: int, scheme: str) -> list[Any]:
    """What axe-core finds with everything unfolded, and whether the page scrolls sideways."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    found = [(one["id"], one["nodes"][0]["html"]) for one in Axe().run(page).response["violations"]]
    found += [("wider than the window", width)] if page.evaluate("document.documentElement.scrollWidth") > width else []
    page.close()
    return found
