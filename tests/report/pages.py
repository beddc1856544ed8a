"""A page as a test reads it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from cases import FACTS, Case

from justitia.report import Report, build_report

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Reads a page: every element closed in its order, tables as text, ids, headings and links."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.headings: list[int] = []
        self._table: list[list[str]] = []
        self._caption = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), f"<{tag}> has an attribute twice"
        self.elements.append((tag, given))
        self.ids += [given["id"]] if given.get("id") else []
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self._table, self._caption = [], ""
        elif tag == "tr":
            self._table.append([])
        elif tag in {"td", "th"}:
            self._table[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._table

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "caption" in self.open:
            self._caption += data
        elif {"td", "th"} & set(self.open):
            self._table[-1][-1] += data

    def says(self, sentence: str) -> bool:
        return sentence in " ".join(" ".join(self.text).split())


def page_of(report: Report) -> Page:
    return Page(report.html())


def full(case: Case, **changes: Any) -> Report:
    options = {"measurement": case.measurement.to_dict(), "curve": case.curve, "facts": FACTS}
    return build_report(case.model, **options | changes)


def sections(markdown: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", markdown, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# --- the numbers


def cells(table: list[list[str]], name: str) -> list[str]:
    (row,) = [row for row in table if row[0] == name]
    return row[1:]
