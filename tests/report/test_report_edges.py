"""Sections without data, few and many groups, writing, and wrong input."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import PLAN, Case, fit, found
from pages import cells, full, page_of, sections
from sklearn.exceptions import NotFittedError

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic
from justitia.report import build_report
from justitia.report.contents import MOST_ROUNDS
from justitia.report.formatting import gap_points, number
from justitia.report.verdict import verdict_of

# --- sections without data, and edges


@pytest.mark.parametrize("empty", [{}, {"measurement": None, "curve": {"points": [], "chosen": None}, "facts": {}}])
def test_sections_without_data_say_what_gives_them(two: Case, empty: Mapping[str, Any]) -> None:
    report = build_report(two.model, **empty)
    page, card = page_of(report), report.markdown()
    for command in ("justitia evaluate model/ data.csv", "justitia tradeoff data.csv"):
        assert page.says(command)
        assert command in card
    assert page.says("on the rows of the last training round")
    gaps = page.tables["Noised gaps on the training rows, without bounds; in percentage points"][1:]
    names = [one.name for one in two.model.history_columns_ if one.kind == "noisy_gap"]
    last = two.model.history_[names].dropna().iloc[-1]
    assert [row[1] for row in gaps] == [gap_points(value) for value in last]


def test_group_without_enough_evidence_is_said_not_drawn_as_zero(two: Case) -> None:
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    facts = found(two.model, data, "demographic_parity", groups=["women", "men", "nobody"]).to_dict()
    page = page_of(full(two, measurement=facts))
    table = page.tables["Noised rates with bounds; rates of all rows are exact"]
    assert cells(table, "nobody")[1:] == ["not enough evidence"]
    assert page.says("There is not enough evidence on nobody")
    labels = [str(given.get("aria-label")) for _, given in page.elements if given.get("role") == "img"]
    assert not [label for label in labels if label.startswith("nobody")]


def test_violation_of_four_groups_of_five_is_never_said_to_be_of_all() -> None:
    case = fit(("a", "b", "c", "d", "e"), n=1500, tolerance=0.4)
    data = make_synthetic(1500, groups=("a", "b", "c", "d", "e"), n_features=3, random_state=3)
    without_e = data.sensitive.where(data.sensitive != "e", "a")
    measured = measure(
        data.y,
        case.model.predict(data.X),
        sensitive_features=without_e,
        groups=list(data.groups),
        epsilon=4.0,
        noise_seed=1,
    )
    assert measured.not_compared() == ("e",)
    log = [{"name": "training", "certificate": case.model.certificate_.to_dict()}, measured.to_dict()]
    report = build_report(case.model, measurement=measured, measurement_log=log)
    page, card, facts = page_of(report), report.markdown(), report.facts()
    verdict = verdict_of(report.contents)
    assert verdict.sentence.startswith("The largest difference between two groups among 4 of 5 groups in demographic")
    assert next(one.value for one in verdict.checks if one.name == "Groups measured") == "4 of 5"
    for text in (" ".join(" ".join(page.text).split()), card):
        assert verdict.sentence in text
        assert "there is not enough evidence on e." in text
        assert "too few rows for this noise: e" in text
        assert "The largest difference between two groups in" not in text
        assert "The largest difference between two groups is at most" not in text
    (table,) = [rows for caption, rows in page.tables.items() if caption.startswith("Largest differences")]
    assert [row[0] for row in table[1:]] == ["demographic parity, among 4 of 5 groups"]
    violation = facts["measurement"]["violations"][0]
    assert (violation["groups"], violation["not_compared"]) == (5, ["e"])
    assert facts["looks"][1]["found"].endswith(" among 4 of 5 groups")
    # Files of earlier versions name the groups without evidence once for all notions.
    old = measured.to_dict()
    del old["violations"]["demographic_parity"]["not_compared"]
    assert "among 4 of 5 groups is at most" in build_report(case.model, measurement=old).markdown()


def test_five_groups_and_two_events_have_all_their_multipliers_and_lines(five: Case) -> None:
    page = page_of(full(five))
    assert len(page.tables["Final multipliers, computed from noised releases"]) == 6
    titles = [name for name in page.ids if name.endswith("-title")]
    assert {"history-noisy-gap-0-title", "history-noisy-gap-1-title", "history-multiplier-1-title"} <= set(titles)


def test_groups_read_off_the_data_and_missing_labels_are_reported() -> None:
    data = make_synthetic(600, groups=("a", "b"), n_features=3, random_state=2)
    labels = [None if k % 5 == 0 else label for k, label in enumerate(data.sensitive)]
    model = LagrangianDualClassifier(epsilon=2.0, groups="infer", plan=PLAN, module=(4,), random_state=0, noise_seed=0)
    model.fit(data.X, data.y, sensitive_features=labels)
    page = page_of(build_report(model))
    assert page.says("The list of groups was read off the data, the list is not protected.")
    assert page.says(f"two groups were allowed to differ by as much as noise can explain, {model.tolerance_:.4g}.")


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
    assert json.loads((tmp_path / "new" / "report.json").read_text("utf-8")) == report.facts()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.json", "report.md"]


def test_write_to_a_file_puts_the_card_beside_it(two: Case, tmp_path: Path) -> None:
    assert full(two).write(tmp_path / "loans.html").name == "loans.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loans.html", "loans.json", "loans.md"]


def test_write_over_a_file_of_others_is_refused_and_over_a_report_is_not(two: Case, tmp_path: Path) -> None:
    report = full(two)
    page = report.write(tmp_path / "loans.html")
    assert report.write(page, overwrite=True) == page
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        report.write(page)
    page.with_suffix(".md").write_text("# My notes")
    with pytest.raises(FileExistsError, match="exists and is no report of this package; choose another name"):
        report.write(page, overwrite=True)
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
