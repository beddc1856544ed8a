"""Words of a report that depend on the kind of target: two classes, several classes, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from justitia.estimator import LagrangianDualClassifier
from justitia.notions import notion_name
from justitia.regressor import LagrangianDualRegressor
from justitia.report.formatting import NOTIONS, RATES, listed, plain_name, tolerance_sentence
from justitia.tasks import NUMBER, Task

Model = LagrangianDualClassifier | LagrangianDualRegressor
OWN_NOTION = "a notion of the user's own"

#: Definition of each notion of several classes; those that are not here are defined as for two.
CLASS_NOTIONS = {
    "demographic_parity": "every group receives each decision at the same rate",
    "equalized_odds": "among people with the same label, every group receives each decision at the same rate",
    "equal_opportunity": "among people with the same label, decisions are right equally often in every group",
    "conditional_demographic_parity": "within each public stratum, every group receives each decision at the same rate",
}
NUMBER_NOTIONS = {
    "demographic_parity": "predictions are distributed alike in every group",
    "mean_parity": "the mean prediction is the same in every group",
    "equal_error": "the mean squared error is the same in every group",
}
#: What two groups are compared by, of numbers.
NUMBER_QUANTITIES = {
    "demographic_parity": "shares of predictions above any level",
    "mean_parity": "mean predictions",
    "equal_error": "mean squared errors",
}
#: Name under which a measurement has a notion, if it is another one; None if it is not measured.
MEASURED_AS: dict[str, str | None] = {"predictive_parity": "precision_score", "conditional_demographic_parity": None}
#: Rates of several classes and means of numbers in words; {} is the class.
_RATES = {
    "selection_rate": "decisions for {}",
    "recall_score": "right decisions among the label {}",
    "precision_score": "right decisions among decisions for {}",
    "mean_prediction": "mean of the predictions",
    "mean_squared_error": "mean of the squared errors",
    "mean_absolute_error": "mean of the absolute errors",
}


def task_of(model: Model) -> Task:
    """What kind of target a model predicts."""
    return NUMBER if isinstance(model, LagrangianDualRegressor) else Task.of_classes(model.classes_.tolist())


def notions_of(model: Model) -> tuple[str, ...]:
    """Names of the notions that a model was trained for."""
    given = model.notion if isinstance(model.notion, list | tuple) else [model.notion]
    return tuple(notion_name(one) for one in given)


def notion_words(names: Sequence[str], task: Task) -> str:
    """Definition of one or several notions."""
    own = {"binary": {}, "classes": CLASS_NOTIONS, "number": NUMBER_NOTIONS}[task.kind]
    return "; and ".join(own.get(name, NOTIONS.get(name, OWN_NOTION)) for name in names)


def rate_words(metric: str) -> str:
    """A rate of a measurement in words; empty if there is nothing to say beyond its name."""
    name, bracket, rest = metric.partition("[")
    if not bracket:
        return RATES.get(metric, _RATES.get(metric, ""))
    label, among, given = rest.removesuffix("]").partition(" | y=")
    words = _RATES.get(name, "").format(label)
    return f"{words} among the label {given}" if among else words


def quantities(names: Sequence[str], task: Task) -> str:
    """What two groups are compared by."""
    return NUMBER_QUANTITIES.get(names[0], "numbers") if task.kind == "number" else "rates"


def violation_words(names: Sequence[str], task: Task) -> str:
    """Definition of the violation."""
    if task.kind != "number":
        return "The gap is the largest difference between the rates of two groups."
    distance = ": the Kolmogorov-Smirnov distance" if names[0] == "demographic_parity" else ""
    return f"The gap is the largest difference between two groups in their {quantities(names, task)}{distance}."


def tolerance_words(model: Model, in_force: float | None, engine: str) -> str:
    """The tolerance or ratio, and whether it was given or is the default."""
    names, task = notions_of(model), task_of(model)
    of_whom = "The rates of two groups" if task.kind != "number" else f"In their {quantities(names, task)}, two groups"
    what = f"{of_whom} were allowed to differ by"
    ratio = getattr(model, "ratio", None)
    if ratio is not None:
        return f"In every rate, the smallest of a group had to be at least {ratio:.4g} of the largest."
    asked = model.tolerance
    if isinstance(asked, list | tuple):
        each = listed(f"{float(one):.4g} in {plain_name(name)}" for name, one in zip(names, asked, strict=True))
        return f"{what} {each}."
    if isinstance(asked, dict):
        each = listed(f"{float(one):.4g} in {name}" for name, one in asked.items())
        return f"{what} {each}."
    if asked is not None:
        return f"{what} {float(asked):.4g}."
    return tolerance_sentence(None, in_force, engine)


def tolerances_of(model: Model, in_force: float | None) -> dict[str, float | None]:
    """Each notion by the name that a measurement has for it, with its tolerance; None with a ratio."""
    names, asked = notions_of(model), model.tolerance
    several = asked if isinstance(asked, list | tuple) else [in_force] * len(names)
    found: dict[str, float | None] = {}
    for name, tolerance in zip(names, several, strict=True):
        measured = MEASURED_AS.get(name, name)
        if measured is not None:
            ratio = getattr(model, "ratio", None)
            found[measured] = None if tolerance is None or ratio is not None else float(tolerance)
    return found


def decision_words(model: Model, positive_means: str | None) -> str:
    """What the model decides or predicts."""
    if isinstance(model, LagrangianDualRegressor):
        low, high = model.bounds_
        return f"a number between {low:.6g} and {high:.6g}"
    if len(model.classes_) > 2:
        return f"one of {listed(model.classes_)}"
    meaning = "" if positive_means is None else f": {positive_means}"
    return f"{model.classes_[1]} (positive{meaning}) or {model.classes_[0]}"


def goal_rows(model: Model) -> dict[str, str]:
    """Further conditions of the decisions, if there are any."""
    rows = {}
    quota, costs = getattr(model, "quota", None), getattr(model, "costs", None)
    if quota is not None:
        given: Any = quota.items() if isinstance(quota, dict) else [("positive decisions", quota)]
        rows["Quota"] = listed(f"{float(share):.4g} of the rows: {name}" for name, share in given)
    if costs is not None:
        rows["Costs"] = "by label and decision: " + "; ".join(
            f"{label}: {', '.join(f'{float(one):.4g}' for one in row)}"
            for label, row in zip(model.classes_, costs, strict=True)
        )
    return rows
