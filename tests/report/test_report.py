"""The report and the card: what they say, what they must not say, and that nothing in them is markup of others."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import FACTS, PLAN, Case, found
from sklearn.exceptions import NotFittedError

from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.privacy.costs import RandomizedResponseCost
from justitia.privacy.ledger import Release
from justitia.report import Report, build_report
from justitia.report.contents import MOST_ROUNDS, spending
from justitia.report.formatting import number, odds_sentence, verdict
from justitia.report.markdown import escaped, fenced
from justitia.report.svg import Scale, element, shortened, spread, ticks

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


@pytest.fixture(params=["two", "five", "open_book"])
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.getfixturevalue(request.param)
    return chosen


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
    assert len(drawings) == 10  # rates, violation, curve, loss, accuracy, AUC, gaps, multipliers twice, budget
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
    assert any("x" * 90 in row[0] for row in page_of(full(five)).tables["Final multipliers, made from noised answers"])


# --- the numbers


def cells(table: list[list[str]], name: str) -> list[str]:
    (row,) = [row for row in table if row[0] == name]
    return row[1:]


def test_rates_on_the_page_and_on_the_card_are_those_of_the_measurement(two: Case) -> None:
    measured, report = two.measurement, full(two)
    table = page_of(report).tables["Noised rates with bounds, everybody’s exact; 0.25 means 25 in 100"]
    card = sections(report.markdown())["Rates by group"]
    for group, row in measured.table.loc["selection_rate"].iterrows():
        expected = [
            number(row["count"], 0),
            number(row["rate"]),
            f"{number(row['lower'])} to {number(row['upper'])}",
            number(row["gap"]),
        ]
        assert cells(table, str(group)) == expected
        assert f"| {group} | {' | '.join(expected)} |" in card
    assert cells(table, "everybody")[1] == number(measured.overall["selection_rate"])


def test_violations_on_the_page_are_those_of_the_measurement(two: Case) -> None:
    table = page_of(full(two)).tables["Largest differences with bounds at 0.95 confidence"]
    violation, gap = two.measurement.violation, two.measurement.largest_gaps["demographic_parity"]
    assert table[1:] == [
        ["demographic parity", kind, number(one.estimate), f"{number(one.lower)} to {number(one.upper)}"]
        for kind, one in (("between two groups", violation), ("of a group to everybody", gap))
    ]


def test_curve_multipliers_and_history_on_the_page_are_those_of_the_model(two: Case) -> None:
    page = page_of(full(two))
    assert two.curve is not None
    rows = two.curve.table.to_dict("records")
    assert page.tables["Points of the curve"][1:] == [
        [
            f"{row['tolerance']:g}",
            *(number(row[name]) for name in ("accuracy", "auc", "noisy_violation")),
            "chosen" if k == 1 else "",
        ]
        for k, row in enumerate(rows)
    ]
    dual = two.model.dual_["all"]
    assert page.tables["Final multipliers, made from noised answers"][1:] == [
        [group, number(value)] for group, value in dual.items()
    ]
    history = page.tables["One line per round"]
    assert len(history) == 1 + len(two.model.history_)
    assert history[-1] == [number(value, 0 if k == 0 else 4) for k, value in enumerate(two.model.history_.iloc[-1])]


def test_chosen_point_of_a_plain_curve_is_told_by_its_place(two: Case) -> None:
    points = [
        {"tolerance": None, "accuracy": 0.8, "noisy_violation": 0.01},
        {"tolerance": 0.1, "accuracy": 0.82, "noisy_violation": 0.08, "auc": 0.9},
        {"tolerance": 0.3, "accuracy": 0.81, "noisy_violation": None},
    ]
    page = page_of(full(two, curve={"points": points, "chosen": 0}))
    assert page.tables["Points of the curve"][1:] == [
        ["by the noise", "0.800", "–", "0.010", "chosen"],
        ["0.1", "0.820", "0.900", "0.080", ""],
        ["0.3", "0.810", "–", "–", ""],
    ]
    labels = [str(given.get("aria-label")) for _, given in page.elements if given.get("class") == "mark chosen"]
    assert labels == ["tolerance by the noise: accuracy 0.800, noised violation 0.010, the chosen model"]


def test_shares_of_the_budget_are_those_of_the_exact_composition(two: Case) -> None:
    table = page_of(full(two)).tables["What was asked of the attribute"]
    plan = two.model.plan_
    squares = [1 / plan.noise_moments.noise_multiplier**2, plan.checks / plan.noise_checks.noise_multiplier**2]
    assert [row[3] for row in table[1:]] == [f"{one / sum(squares):.1%}" for one in squares]


def test_shares_are_left_out_where_costs_do_not_add_up() -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    ledger.debit(Release("labels", RandomizedResponseCost(epsilon=0.5, categories=2), 1.0))
    (one,) = spending(ledger.certificate())
    assert (one.share, one.alone) == (None, 0.5)


def test_certificate_on_the_page_is_the_one_of_the_model(two: Case) -> None:
    html = full(two).html()
    page = Page(html)
    written = re.search(r'<code id="json">(.*?)</code>', html, re.DOTALL)
    assert written is not None
    text = written[1].replace("&#34;", '"').replace("&#39;", "'").replace("&lt;", "<").replace("&amp;", "&")
    assert json.loads(text) == json.loads(two.model.certificate_.to_json())
    assert page.says(two.model.certificate_.statement)
    assert all(page.says(one) for one in two.model.certificate_.not_covered)
    assert json.loads(re.findall(r"```json\n(.*?)\n```", full(two).markdown(), re.DOTALL)[0]) == json.loads(text)


def test_joint_privacy_that_the_measurement_states_is_not_said_to_be_missing(two: Case) -> None:
    silent = two.measurement.to_dict()
    told = silent | {"certificate": silent["certificate"] | {"remarks": ["Together with the other certificate: all."]}}
    for measurement, sentence in ((silent, "unless one ledger paid for both"), (told, "but for what the remarks")):
        page = page_of(full(two, measurement=measurement))
        assert page.says(f"Joint privacy of training and measurement, {sentence}")
    assert page.says("Together with the other certificate: all.")


def test_best_guess_is_the_closed_form_rounded_up(two: Case) -> None:
    certificate = replace(two.model.certificate_, reproduction=False)
    best = (math.exp(certificate.epsilon) + certificate.delta) / (1 + math.exp(certificate.epsilon))
    stated = float(re.findall(r"at most ([\d.]+) of 100", odds_sentence(certificate))[0])
    assert best * 100 <= stated < best * 100 + 0.1


def test_facts_have_their_places_and_unknown_ones_are_printed(two: Case) -> None:
    page = page_of(full(two, facts=FACTS | {"reviewed_by": ["Ann", "Bo"], "key": None, "noisy_violation": 0.25}))
    assert page.says("Loans of a small bank")
    assert page.says("0.812 of the decisions are right on the training rows")
    assert page.says(str(FACTS["command"]))
    assert page.says("Reviewed by Ann, Bo")
    assert page.says("Noisy violation 0.25")
    assert not page.says("Key")
    assert page.says("Rows 1,200")


def test_accuracy_on_evaluation_people_is_told_where_the_file_holds_it(two: Case) -> None:
    facts = two.measurement.to_dict() | {"accuracy": 0.7654, "data": "<new>.csv"}
    page = page_of(full(two, measurement=facts))
    assert page.says("On 1,200 rows of evaluation people (<new>.csv) it is 0.765")
    assert page.says("Accuracy 0.765 on 1,200 rows of evaluation people")
    assert "On 1,200 rows of evaluation people (&lt;new&gt;.csv) it is 0.765" in full(two, measurement=facts).markdown()


def test_verdict_compares_the_violation_with_the_tolerance() -> None:
    assert verdict(0.0, 0.04, 0.05, ()).endswith("within the tolerance of 0.05.")
    assert verdict(0.06, 0.1, 0.05, ()).endswith("above the tolerance of 0.05.")
    assert "does not tell" in verdict(0.0, 0.06, 0.05, ())
    assert "not enough evidence on c" in verdict(0.0, 0.04, 0.05, ("c",))
    assert "not enough evidence" in verdict(0.0, None, 0.05, ())


# --- what must not be there


def test_report_of_a_loaded_model_is_the_same_to_the_letter(case: Case, tmp_path: Path) -> None:
    loaded = LagrangianDualClassifier.load(case.model.save(tmp_path / "model"))
    options = {"measurement": json.loads(case.measurement.to_json()), "facts": FACTS}
    again = build_report(loaded, **options)
    assert again.html() == build_report(case.model, **options).html()
    assert again.markdown() == build_report(case.model, **options).markdown()


def test_report_of_a_model_without_privacy_has_no_number_by_group(open_book: Case) -> None:
    model = open_book.model
    by_group = [one.name for one in model.history_columns_ if one.status == "exact"]
    assert len(by_group) == 4
    exact = [*model.dual_.to_numpy().ravel(), *model.history_[by_group].to_numpy().ravel()]
    curve = {"points": [{"tolerance": 0.1, "accuracy": 0.5, "noisy_violation": 0.123456}], "chosen": 0}
    report = build_report(model, curve=curve, facts={"noisy_violation": 0.123456, "rows": 1200})
    page = page_of(report)
    assert page.says("Rows 1,200")
    assert page.says("No privacy guarantee: epsilon is infinite.")
    assert page.says("Nothing is promised about what can be learned of a row's group")
    shown = {cell for table in page.tables.values() for row in table for cell in row}
    shown |= set(re.findall(r"(?<![\d.])[−-]?\d+\.\d+", report.markdown().split("```")[0]))
    for value in exact:
        if math.isfinite(value) and abs(value) > 1e-3:
            assert not {number(value, 3), number(value, 4)} & shown
    assert "0.123" not in report.html()
    assert "[a]" not in report.html()


def test_history_is_shown_by_the_status_of_its_columns_and_not_by_their_names(two: Case) -> None:
    model = copy.copy(two.model)
    kept = [replace(one, status="exact") if one.kind == "noisy_gap" else one for one in model.history_columns_]
    renamed = [replace(one, name=f"{one.kind} of {one.group}") if one.group else one for one in kept]
    model.history_ = model.history_.set_axis([one.name for one in renamed], axis=1).assign(mine=0.123456)
    model.history_columns_ = tuple(renamed)
    page = page_of(build_report(model))
    shown = ["round", "loss", "accuracy", "auc", "multiplier of women", "multiplier of men"]
    assert page.tables["One line per round"][0] == shown
    assert "Noised gaps on the training rows, without bounds" not in page.tables
    titles = {name for name in page.ids if name.startswith("history-") and name.endswith("-title")}
    assert titles == {f"history-{name}-title" for name in ("loss", "accuracy", "auc", "multiplier-0")}


def test_curve_without_privacy_is_left_out_of_the_report_of_a_private_model(two: Case) -> None:
    assert two.curve is not None
    exact = replace(two.curve, certificate=replace(two.curve.certificate, epsilon=math.inf))
    assert build_report(two.model, curve=exact).contents.curve is None
    assert build_report(two.model, curve=two.curve).contents.curve is not None


def test_remarks_about_groups_are_left_out_without_privacy(open_book: Case) -> None:
    model = open_book.model
    kept = model.certificate_
    try:
        object.__setattr__(model, "certificate_", type(kept)(**(vars(kept) | {"remarks": ("group 'a': 0.4321",)})))
        assert "0.4321" not in build_report(model).html() + build_report(model).markdown()
    finally:
        model.certificate_ = kept


def test_exact_measurement_is_not_printed(two: Case) -> None:
    facts = two.measurement.to_dict()
    facts["certificate"]["epsilon"] = "infinity"
    page = page_of(full(two, measurement=facts))
    assert page.says("has no finite epsilon, so its numbers are exact and are not printed")
    assert not [caption for caption in page.tables if caption.startswith("Noised rates")]


# --- sections without data, and edges


@pytest.mark.parametrize("empty", [{}, {"measurement": None, "curve": {"points": [], "chosen": None}, "facts": {}}])
def test_sections_without_data_say_what_gives_them(two: Case, empty: Mapping[str, Any]) -> None:
    report = build_report(two.model, **empty)
    page, card = page_of(report), report.markdown()
    for command in ("justitia evaluate model/ data.csv", "justitia tradeoff data.csv"):
        assert page.says(command)
        assert command in card
    assert page.says("on the rows of the last training round")
    gaps = page.tables["Noised gaps on the training rows, without bounds"][1:]
    names = [one.name for one in two.model.history_columns_ if one.kind == "noisy_gap"]
    last = two.model.history_[names].dropna().iloc[-1]
    assert [row[1] for row in gaps] == [number(value) for value in last]


def test_group_without_enough_evidence_is_said_not_drawn_as_zero(two: Case) -> None:
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    facts = found(two.model, data, "demographic_parity", groups=["women", "men", "nobody"]).to_dict()
    page = page_of(full(two, measurement=facts))
    table = page.tables["Noised rates with bounds, everybody’s exact; 0.25 means 25 in 100"]
    assert cells(table, "nobody")[1:] == ["not enough evidence"]
    assert page.says("Not enough evidence on nobody")
    labels = [str(given.get("aria-label")) for _, given in page.elements if given.get("role") == "img"]
    assert not [label for label in labels if label.startswith("nobody")]


def test_five_groups_and_two_events_have_all_their_multipliers_and_lines(five: Case) -> None:
    page = page_of(full(five))
    assert len(page.tables["Final multipliers, made from noised answers"]) == 6
    titles = [name for name in page.ids if name.endswith("-title")]
    assert {"history-noisy-gap-0-title", "history-noisy-gap-1-title", "history-multiplier-1-title"} <= set(titles)


def test_groups_read_off_the_data_and_missing_labels_are_reported() -> None:
    data = make_synthetic(600, groups=("a", "b"), n_features=3, random_state=2)
    labels = [None if k % 5 == 0 else label for k, label in enumerate(data.sensitive)]
    model = LagrangianDualClassifier(epsilon=2.0, groups="infer", plan=PLAN, module=(4,), random_state=0, noise_seed=0)
    model.fit(data.X, data.y, sensitive_features=labels)
    page = page_of(build_report(model))
    assert page.says("The list of groups was read off the data, the list is not protected.")
    assert page.says(f"two groups were allowed to differ by what the known noise could show, {model.tolerance_:.4g}.")


def test_long_history_is_thinned_with_its_first_and_last_round(two: Case) -> None:
    model = copy.copy(two.model)
    longer = pd.concat([two.model.history_] * 30, ignore_index=True)
    model.history_ = longer.assign(round=range(len(longer)))
    page = page_of(build_report(model))
    rounds = [int(row[0]) for row in page.tables["One line per round"][1:]]
    assert len(rounds) == len(set(rounds)) == MOST_ROUNDS < len(longer)
    assert (rounds[0], rounds[-1]) == (0, len(longer) - 1)
    assert page.says(f"{MOST_ROUNDS} of {len(longer)} rounds are shown")


def test_class_labels_of_the_user_are_named() -> None:
    data = make_synthetic(300, groups=("a", "b"), n_features=3, random_state=2)
    case_labels = np.where(data.y == 1, "<granted>", "refused")
    model = LagrangianDualClassifier(
        epsilon=2.0, groups=["a", "b"], plan=PLAN, module=(4,), random_state=0, noise_seed=0, notion="equalized_odds"
    )
    model.fit(data.X, case_labels, sensitive_features=data.sensitive)
    page = page_of(build_report(model))
    assert page.says("refused (positive) or <granted>")
    assert page.says("y=0 is <granted>, y=1 is refused")


# --- writing, and wrong input


def test_history_of_the_card_is_the_last_round_with_its_number(two: Case) -> None:
    text = sections(full(two).markdown())["Training history"]
    last = two.model.history_.iloc[-1]
    assert f"| round | {last['round']:.0f} |" in text
    assert f"| accuracy | {number(last['accuracy'], 4)} |" in text


def test_write_to_a_folder_makes_page_and_card(two: Case, tmp_path: Path) -> None:
    report = full(two)
    assert report.write(tmp_path / "new") == tmp_path / "new" / "report.html"
    assert (tmp_path / "new" / "report.html").read_text("utf-8") == report.html()
    assert (tmp_path / "new" / "report.md").read_text("utf-8") == report.markdown()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.md"]


def test_write_to_a_file_puts_the_card_beside_it(two: Case, tmp_path: Path) -> None:
    assert full(two).write(tmp_path / "loans.html").name == "loans.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loans.html", "loans.md"]


def test_write_over_a_file_of_others_is_refused_and_over_a_report_is_not(two: Case, tmp_path: Path) -> None:
    report = full(two)
    page = report.write(tmp_path / "loans.html")
    assert report.write(page) == page
    page.with_suffix(".md").write_text("# My notes")
    with pytest.raises(FileExistsError, match="exists and is no report of this package; choose another name"):
        report.write(page)
    assert page.with_suffix(".md").read_text() == "# My notes"


def test_write_does_not_follow_a_link_in_the_place_of_a_temporary_file(two: Case, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    for name in (f".loans.html.{os.getpid()}", f".loans.md.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    full(two).write(tmp_path / "loans.html")
    assert victim.read_text() == "mine"


def test_write_to_another_kind_of_file_is_refused(two: Case, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a name that ends in \.html"):
        full(two).write(tmp_path / "report.pdf")
    (tmp_path / "a.html").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        full(two).write(tmp_path / "a.html")


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"measurement": 3}, TypeError, "expected measurement to be what Measurement"),
        ({"measurement": {}}, ValueError, "no 'people'"),
        ({"measurement": {"people": "many"}}, ValueError, "measure again"),
        ({"curve": 3}, TypeError, "expected curve to be a mapping"),
        ({"curve": {"chosen": 0}}, ValueError, "no 'points'"),
        ({"curve": {"points": [{"tolerance": 0.1}]}}, ValueError, "no 'accuracy'"),
        ({"curve": {"points": [{"tolerance": "<b>", "accuracy": 1, "noisy_violation": 0}]}}, ValueError, "a number"),
        (
            {"curve": {"points": [{"tolerance": 0, "accuracy": 1, "noisy_violation": 0}], "chosen": 4}},
            ValueError,
            "one of 1 points, got 4",
        ),
        ({"facts": [1]}, TypeError, "expected facts to be a mapping"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(two: Case, changes: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        build_report(two.model, **changes)


def test_other_models_and_unfitted_ones_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a LagrangianDualClassifier"):
        build_report(pd.DataFrame())  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        build_report(LagrangianDualClassifier())


# --- small parts


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-0.013, 0.021) == pytest.approx([-0.01, 0, 0.01, 0.02])
    assert ticks(98, 103, 3) == pytest.approx([98, 100, 102])


def test_scale_maps_its_ends_to_the_ends() -> None:
    scale = Scale(1.0, 3.0, 10.0, 110.0)
    assert [scale(1.0), scale(2.0), scale(3.0)] == [10.0, 60.0, 110.0]


def test_spread_keeps_order_gap_and_range() -> None:
    assert spread([10.0, 11.0, 40.0], 15, 0, 100) == [10.0, 25.0, 40.0]
    assert spread([98.0, 99.0], 15, 0, 100) == [85.0, 100.0]


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
