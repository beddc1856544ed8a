"""Reports on rules of the default engine: what they are made of, the tolerance in force, no exact number by group."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from cases import found
from pages import page_of, sections
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, tradeoff
from justitia.datasets import make_synthetic
from justitia.report import build_report
from justitia.report.formatting import number, percent, tolerance_sentence
from justitia.report.svg import Scale, bottom_axis

DATA = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)


def unfitted(**options: Any) -> LagrangianDualClassifier:
    settings: dict[str, Any] = {"epsilon": 2.0, "groups": ["women", "men"], "random_state": 0, "noise_seed": 987654321}
    return LagrangianDualClassifier(**settings | options)


def fit(**options: Any) -> LagrangianDualClassifier:
    return unfitted(**options).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fit()


def test_page_and_card_say_what_the_rule_is_made_of(model: LagrangianDualClassifier) -> None:
    report = build_report(model)
    page, card = page_of(report), report.markdown()
    told = [
        ("Engine", "post-processing: a handful of noised sums, and the dual in closed form on top of a base model"),
        ("Base", "LGBMClassifier, average of 5 cross-fitted models"),
        ("Calibration of the base", model.rule_.calibration.describe()),
        ("Correction", "a network with 12 hidden units on features and base"),
        ("Decides above", "0.5"),
    ]
    for name, value in told:
        assert page.says(f"{name} {value}")
        assert f"| {name} | {value} |" in card
    assert not page.says("Network")
    assert "987654321" not in report.html() + card


def test_columns_of_the_file_are_told_once_in_the_annex(model: LagrangianDualClassifier) -> None:
    seen = [
        {"name": "x0", "kind": "date", "says": "2024-01-31 to 2024-03-01, in days"},
        {"name": "id", "kind": "identifier", "says": "300 different entries: no feature"},
    ]
    page = page_of(build_report(model, facts={"read_as": seen, "written": {"decimal": ","}}))
    assert page.says("x0 date, 2024-01-31 to 2024-03-01, in days x1 number")
    assert page.says("id identifier, 300 different entries: no feature")
    assert not page.says("Read as")
    assert not page.says("Written decimal")


def test_accuracy_and_auc_are_those_of_the_last_round_by_models_that_have_not_seen_the_row(
    model: LagrangianDualClassifier,
) -> None:
    last = model.history_.iloc[-1]
    report = build_report(model)
    sentence = (
        f"{percent(last['accuracy'])} of the decisions are right on the training rows, each scored by a model that"
    )
    assert page_of(report).says(sentence)
    assert page_of(report).says(f"in {number(last['auc'])} of the pairs (AUC)")
    assert f"AUC: {number(last['auc'])}." in sections(report.markdown())["Accuracy"]
    known = build_report(model, facts={"training_accuracy": float(last["accuracy"])})  # as the command line keeps it
    assert page_of(known).says(sentence)
    given = build_report(model, facts={"training_accuracy": 0.5125, "training_auc": 0.625, "base": "x", "tolerance": 3})
    assert page_of(given).says("51.2% of the decisions are right on the training rows.")
    assert page_of(given).says("in 0.625 of the pairs (AUC)")
    assert given.contents.about == report.contents.about  # the model tells base and tolerance itself


def test_tolerance_in_force_is_told_where_none_was_given(model: LagrangianDualClassifier) -> None:
    report = build_report(model)
    page = page_of(report)
    assert page.says(f"by as much as sampling error and noise can explain, {model.tolerance_:.4g}.")
    assert "tolerance=None" in report.contents.snippet


def test_tolerance_that_was_given_is_told_with_a_verdict_on_the_violation() -> None:
    model = fit(tolerance=0.4)
    report = build_report(model, measurement=found(model, DATA, "demographic_parity"))
    page = page_of(report)
    assert page.says("The rates of two groups were allowed to differ by 0.4.")
    (violation,) = report.contents.measured.violations if report.contents.measured else ()
    assert violation.at_most is not None
    assert violation.at_most <= violation.upper <= 0.4
    most = f"is at most {number(violation.at_most)} (one-sided bound at 0.95 confidence)"
    assert page.says(f"The largest difference between two groups {most}: within the tolerance of 0.4.")


def test_tolerance_sentence_says_no_number_that_would_be_exact() -> None:
    assert tolerance_sentence(None, None, "post-processing").endswith(
        "by as much as sampling error and noise can explain."
    )
    assert tolerance_sentence(None, 0.0, "pf-ld").endswith("training aimed at no difference at all.")


def test_report_of_a_rule_without_privacy_has_no_number_by_group_and_no_tolerance_made_of_sizes() -> None:
    model = fit(epsilon=math.inf)
    report = build_report(model)
    exact = [one.name for one in model.history_columns_ if one.status == "exact"]
    assert len(exact) == 6
    numbers = [*model.dual_.to_numpy().ravel(), *model.history_[exact].to_numpy().ravel(), model.tolerance_]
    shown = {cell for table in page_of(report).tables.values() for row in table for cell in row}
    shown |= set(re.findall(r"(?<![\d.])[−-]?\d+\.\d+", report.markdown().split("```")[0]))
    for value in numbers:
        if abs(value) > 1e-3:
            assert not {number(value, 3), number(value, 4), f"{value:.4g}"} & shown
    assert report.contents.tolerance is None
    told = build_report(fit(epsilon=math.inf, tolerance=0.07))
    assert told.contents.tolerance == 0.07


@pytest.mark.parametrize("options", [{}, {"base": LogisticRegression(), "threshold": 0.4}], ids=["default", "own"])
def test_report_of_a_loaded_rule_is_the_same_to_the_letter(options: dict[str, Any], tmp_path: Path) -> None:
    model = fit(**options)
    report, again = (build_report(one) for one in (model, LagrangianDualClassifier.load(model.save(tmp_path / "m"))))
    assert again.html() == report.html()
    assert again.markdown() == report.markdown()
    assert ("base=...,\n    threshold=0.4," in report.contents.snippet) == bool(options)


def test_report_of_a_sibling_has_its_one_round_as_a_table_and_its_curve() -> None:
    curve = tradeoff(unfitted(), DATA.X, DATA.y, sensitive_features=DATA.sensitive, tolerances=(0.02, 0.2))
    report = build_report(curve.models[1], curve=curve)
    page = page_of(report)
    assert len(page.tables["One line per round"]) == 2
    assert not [name for name in page.ids if name.startswith("history-")]
    assert report.contents.tolerance == 0.2
    assert page.tables["Points of the curve"][2][4] == "chosen"


def test_history_of_few_rounds_is_drawn_with_whole_rounds(model: LagrangianDualClassifier) -> None:
    titles = {name for name in page_of(build_report(model)).ids if name.startswith("history-")}
    assert {"history-auc-title", "history-noisy-gap-0-title", "history-multiplier-0-title"} <= titles
    assert len(model.history_) == 5
    drawn = re.findall(r">([^<>]+)</text>", bottom_axis(Scale(0, 1, 0, 100), 0, 0, whole=True))
    assert drawn == ["0", "1"]
