"""Reports on models of several classes and of numbers: complete, in their own words, and without an exact number."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from pages import Page, sections

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, measure, tradeoff
from justitia.datasets import make_synthetic
from justitia.metrics.exact import rates_by_group
from justitia.metrics.quality import class_quality, number_quality
from justitia.report import Report, build_report

DATA = make_synthetic(900, groups=("women", "men"), n_features=3, random_state=1)
SCORE = DATA.X["x0"].to_numpy() + 0.5 * np.sin(np.arange(900.0))
JOBS = np.array(["clerk_1", "craft", "exec"])
CODES = np.digitize(SCORE, [-0.5, 0.5])
WAGE = 20 + 4 * SCORE
SETTINGS: dict[str, Any] = {"groups": ["women", "men"], "random_state": 0, "epsilon": 2.0, "tolerance": 0.3}

pytestmark = pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")


@dataclass(frozen=True)
class Reported:
    model: Any
    report: Report

    @property
    def page(self) -> Page:
        return Page(self.report.html())

    @property
    def texts(self) -> str:
        return self.report.html() + self.report.markdown() + self.report.json()


def reported(kind: str, **options: Any) -> Reported:
    """A fitted model, its measurement with public numbers as the command line keeps it, and the report."""
    models: Any = {"classes": LagrangianDualClassifier, "number": LagrangianDualRegressor}
    target = JOBS[CODES] if kind == "classes" else WAGE
    model = models[kind](**SETTINGS | options).fit(DATA.X, target, sensitive_features=DATA.sensitive)
    decided = model.predict(DATA.X)
    given: dict[str, Any] = {"sensitive_features": DATA.sensitive, "groups": ["women", "men"], "task": kind}
    before = {"before": JOBS[model.base_proba(DATA.X).argmax(1)]} if kind == "classes" else {}
    found = measure(target, decided, notion=model.notion, epsilon=4.0, **given, **before)
    if kind == "classes":
        public = class_quality(CODES, np.searchsorted(JOBS, decided), JOBS) | {"before": {"name": "b", "accuracy": 0.9}}
        facts = found.to_dict() | {"accuracy": public["accuracy"], "public": public}
    else:
        base = {"name": "b"} | number_quality(WAGE, model.base_predict(DATA.X))
        facts = found.to_dict() | {"public": number_quality(WAGE, decided) | {"before": base}}
    return Reported(model, build_report(model, measurement=facts, facts={"target": "y", "rows": 900}))


@pytest.fixture(scope="module")
def classes() -> Reported:
    return reported("classes")


@pytest.fixture(scope="module")
def number() -> Reported:
    return reported("number")


@pytest.fixture(params=["classes", "number"])
def either(request: pytest.FixtureRequest) -> Reported:
    chosen: Reported = request.getfixturevalue(request.param)
    return chosen


def test_page_is_well_formed_and_has_every_section(either: Reported) -> None:
    page = either.page
    assert len(page.ids) == len(set(page.ids))
    wanted = {
        "about",
        "trained",
        "accuracy",
        "groups",
        "gap",
        "impact",
        "prices",
        "correction",
        "scores",
        "log",
        "privacy",
        "limits",
        "sign",
    }
    wanted |= {"features", "tradeoff", "history", "dual", "budget", "certificate", "reproduce", "registry"}
    assert wanted <= set(page.ids)
    assert "nan" not in either.report.html().lower().replace("tenant", "")


def test_no_wording_is_about_two_classes(either: Reported) -> None:
    words = " ".join(" ".join(either.page.text).split()) + either.report.markdown()
    for part in ("ositive decision", "ositive label", "AUC", "four fifths", "Decides above"):
        assert part not in words, part


def test_page_of_classes_has_rates_confusion_and_charts_by_class(classes: Reported) -> None:
    page = classes.page
    assert page.says("Decision one of clerk_1, craft and exec")
    assert page.says("every group receives each decision at the same rate")
    assert page.says("selection rate of clerk_1: decisions for clerk_1")
    confusion = page.tables["Decisions and labels of the evaluation data, public"]
    assert confusion[0] == ["label", "decided clerk_1", "decided craft", "decided exec", "right"]
    assert sum(int(cell.replace(",", "")) for row in confusion[1:] for cell in row[1:-1]) == 900
    rates = page.tables["Noised rates with bounds; rates of all rows are exact"]
    assert [row[0] for row in rates].count("women") == 3
    assert {"hero", "violation", "multipliers"} <= set(page.ids)
    card = sections(classes.report.markdown())
    assert "| clerk\\_1 |" in card["Accuracy"]
    assert "decides among 3 classes" in card["Impact on groups"]


def test_page_of_a_number_has_r2_means_distances_and_their_band(number: Reported) -> None:
    page, model = number.page, number.model
    low, high = model.bounds_
    assert page.says(f"Prediction a number between {low:.6g} and {high:.6g}")
    assert page.says("predictions are distributed alike in every group")
    assert page.says("the Kolmogorov-Smirnov distance")
    distances = page.tables["Noised; the bounds hold for all groups at once at 0.95 confidence"]
    assert [row[0] for row in distances[1:]] == ["women", "men"]
    assert {"hero", "violation", "gap-curve", "history-violation"} <= set(page.ids)
    facts = json.loads(number.report.json())
    assert facts["task"] == "number"
    assert facts["training"]["r2"] == pytest.approx(model.history_["r2"].iloc[-1])
    assert facts["measurement"]["distribution"]["by_group"][0]["group"] == "women"
    assert facts["registry"]["deployment"]["product"]["description"].startswith("A regressor that")
    assert "| R2" in sections(number.report.markdown())["Accuracy"]


def test_snippet_fits_such_a_model_again(either: Reported) -> None:
    code = either.report.contents.snippet
    assert code.startswith(f"model = {type(either.model).__name__}(\n    'demographic_parity',")
    made: Any = eval(
        code.partition("\nmodel.fit")[0].removeprefix("model = "),
        {"LagrangianDualClassifier": LagrangianDualClassifier, "LagrangianDualRegressor": LagrangianDualRegressor},
    )
    assert made.tolerance == 0.3
    assert made.groups == ["women", "men"]


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_report_holds_no_exact_number_by_group(kind: str) -> None:
    found = reported(kind)
    target = JOBS[CODES] if kind == "classes" else WAGE
    # Shares above levels may coincide with public ones of all rows; means do not.
    notion = "demographic_parity" if kind == "classes" else "mean_parity"
    given: dict[str, Any] = {"sensitive_features": DATA.sensitive, "notion": notion, "task": kind}
    exact = rates_by_group(target, found.model.predict(DATA.X), **given)
    texts = found.texts
    for rate in exact["rate"]:
        assert f"{rate:.6f}"[:8] not in texts
    open_book = reported(kind, epsilon=math.inf)
    contents = open_book.report.contents
    assert contents.multipliers is None
    assert contents.last_gaps == ()
    assert not [column for column in contents.columns if column.group is not None]
    for group in open_book.model.dual_.index:
        for value in open_book.model.dual_.loc[group]:
            assert value == 0 or f"{value:.6f}"[:8] not in open_book.texts


def test_several_notions_have_a_verdict_and_a_line_each() -> None:
    notions = ["demographic_parity", "accuracy_parity"]
    found = reported("classes", notion=notions, tolerance=[0.3, 0.9])
    contents = found.report.contents
    assert dict(contents.tolerances) == {"demographic_parity": 0.3, "accuracy_parity": 0.9}
    page = found.page
    assert page.says("Accuracy parity: ")
    assert page.says("Demographic parity: ")
    assert page.says("were allowed to differ by 0.3 in demographic parity and 0.9 in accuracy parity")


def test_ratio_stands_in_the_place_of_the_tolerance() -> None:
    model = LagrangianDualClassifier(**SETTINGS | {"tolerance": None}, ratio=0.8)
    model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    page = Page(build_report(model).html())
    assert page.says("In every rate, the smallest of a group had to be at least 0.8 of the largest.")


@pytest.mark.parametrize(
    ("notion", "words"), [("mean_parity", "In their mean predictions"), ("equal_error", "In their mean squared errors")]
)
def test_notions_in_units_of_the_target_have_an_axis_of_their_own(notion: str, words: str) -> None:
    found = reported("number", notion=notion, tolerance=2.0)
    assert found.page.says(f"{words}, two groups were allowed to differ by 2")
    assert "difference of mean" in found.report.html()


def test_curve_of_numbers_shows_r2() -> None:
    model = LagrangianDualRegressor(**SETTINGS)
    curve = tradeoff(model, DATA.X, WAGE, sensitive_features=DATA.sensitive, tolerances=(0.1, 0.4))
    page = Page(build_report(curve.models[0], curve=curve).html())
    assert page.tables["Points of the curve"][0] == ["tolerance", "R2", "noised gap, in points", "chosen"]
    assert page.says("R2 against the noised gap")
