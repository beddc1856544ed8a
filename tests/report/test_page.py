"""The page as a document: well formed, nothing loaded from elsewhere, names from users stay text; small parts."""

from __future__ import annotations

import math
import re

import pytest
from cases import Case
from pages import full, page_of

from justitia.report import build_report
from justitia.report.formatting import escaped, fenced, number
from justitia.report.svg import Scale, element, separate, shortened, ticks

# --- the page as a document


def test_page_is_well_formed_with_unique_ids_and_headings_in_order(case: Case) -> None:
    for report in (full(case), build_report(case.model)):
        page = page_of(report)
        assert len(page.ids) == len(set(page.ids))
        assert page.headings[0] == 1
        assert page.headings.count(1) == 1
        assert all(deeper - above <= 1 for above, deeper in zip(page.headings, page.headings[1:], strict=False))
        anchors = {str(given["href"]) for tag, given in page.elements if tag == "a"}
        assert anchors <= {f"#{name}" for name in page.ids}


def test_page_has_no_address_to_load_from_and_no_handler_in_an_attribute(case: Case) -> None:
    page = page_of(full(case))
    for tag, given in page.elements:
        assert not [name for name in given if name.startswith("on") or name == "style"], tag
        assert not given.keys() & {"src", "srcset", "action", "data", "poster", "background"}, tag
    assert [given for tag, given in page.elements if tag in {"link", "base", "iframe", "object", "embed", "image"}] == [
        {"rel": "icon", "href": "data:,"}
    ]
    assert not re.search(r"https?:|@import|url\(", full(case).html())


def test_page_allows_its_own_style_and_script_only(two: Case) -> None:
    page = page_of(full(two))
    (policy,) = [given["content"] for _, given in page.elements if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert [tag for tag, _ in page.elements].count("script") == 1


def test_every_chart_has_a_name_a_description_and_marks_that_say_their_numbers(two: Case) -> None:
    page = page_of(full(two))
    drawings = [given for tag, given in page.elements if tag == "svg" and given["class"] == "drawing"]
    # By group (for wide and narrow screens), gap, impact, curve, loss, accuracy, AUC, gaps, multipliers twice, budget.
    assert len(drawings) == 12
    for given in drawings:
        assert given["role"] == "img"
        assert set(str(given["aria-labelledby"]).split()) <= set(page.ids)
    marks = [given for _, given in page.elements if (given.get("class") or "").split()[:1] == ["mark"]]
    assert len(marks) > 30
    assert all(re.search(r"\d", str(given["aria-label"])) for given in marks)
    assert [given["tabindex"] for given in marks].count("0") == len(drawings)


# --- names from users


def test_names_from_users_stay_text_on_the_page(five: Case) -> None:
    facts = {
        "title": "<img src=x onerror=alert(1)>",
        "command": "</script><script>alert(2)</script>",
        "<b>": "<i>&amp;",
    }
    page = page_of(full(five, facts=facts))
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not {"img", "b", "i"} & {tag for tag, _ in page.elements}
    assert page.says("<script>alert(1)</script>")
    assert page.says("<i>&amp;")
    assert page.says("</script><script>alert(2)</script>")


def test_names_from_users_stay_within_their_cell_of_the_card(five: Case) -> None:
    card = full(five, facts={"a|b": "c\n\n# d", "title": "x\n# y"}).markdown()
    prose = re.sub(r"^```.*?^```", "", card, flags=re.MULTILINE | re.DOTALL)
    assert "<script>" not in prose
    assert re.findall(r"^# .*$", prose, re.MULTILINE) == ["# x \\# y"]
    for block in re.findall(r"(?:^\|.*\n)+", card, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block
    assert "| A\\|b | c \\# d |" in card
    assert r"\`f\` \*g\* \[h\](i)" in card


def test_escaping_of_markdown_leaves_plain_words_alone() -> None:
    assert escaped("plain words, 0.5 (x)") == "plain words, 0.5 (x)"
    assert escaped("a|b_c\\d\n<e>&") == r"a\|b\_c\\d &lt;e&gt;&amp;"
    assert escaped(3) == 3


def test_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("a\n```\nb") == "````\na\n```\nb\n````"


def test_very_long_names_are_shortened_in_charts_and_whole_in_tables(five: Case) -> None:
    html = full(five).html()
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", html)
    assert max(len(text) for text in drawn) < 60
    assert any(text.startswith("xxxx") and text.endswith("…") for text in drawn)
    assert any(
        "x" * 90 in row[0] for row in page_of(full(five)).tables["Final multipliers, computed from noised releases"]
    )


# --- small parts


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-0.013, 0.021) == pytest.approx([-0.01, 0, 0.01, 0.02])
    assert ticks(98, 103, 3) == pytest.approx([98, 100, 102])


def test_scale_maps_its_ends_to_the_ends() -> None:
    scale = Scale(1.0, 3.0, 10.0, 110.0)
    assert [scale(1.0), scale(2.0), scale(3.0)] == [10.0, 60.0, 110.0]


def test_separate_keeps_order_gap_and_range() -> None:
    assert separate([10.0, 11.0, 40.0], 15, 0, 100) == [10.0, 25.0, 40.0]
    assert separate([98.0, 99.0], 15, 0, 100) == [85.0, 100.0]


def test_element_escapes_text_and_attributes() -> None:
    assert element("text", "<a>", title_='"x"', x=1.23456) == '<text title="&#34;x&#34;" x="1.23">&lt;a&gt;</text>'


def test_text_is_shortened_to_its_room() -> None:
    assert shortened("short", 200) == "short"
    assert shortened("a name that is long", 70) == "a name…"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (-0.5, "−0.500"), (-0.0001, "0.000"), (None, "–"), (math.nan, "–"), (math.inf, "–")],
)
def test_numbers_have_three_decimals_a_real_minus_and_no_negative_zero(value: float | None, text: str) -> None:
    assert number(value) == text
