"""Cases with classes, numbers, several notions, ratios and quotas; our estimators for them and rivals beside.

The names of our estimators' arguments are here and nowhere else in the experiments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from bench.experiments.memory import SharedTrees
from bench.experiments.runner import Cell

OURS = "Justitia"
#: Raised when the default engine changes by more than its parameters say, so that no old row is taken for a new one.
EDITION = 2
PLAIN = "trees"
LINEAR_POST = "LinearPost, classes"
QUOTA, RATIO = 0.2, 0.8
DELTA = 1e-5


@dataclass(frozen=True)
class Case:
    """What is asked on a dataset, and what has to come out.

    Parameters
    ----------
    dataset : str
    notion : str
        Name of the case; what our estimators are asked is in `asked`.
    tolerance : float
        Largest difference that is allowed.
    task : {"classes", "number"}
    asked : mapping
        Arguments of our estimator besides tolerance, budget, groups and seeds.
    compared : tuple of str
        Notions whose differences are measured.
    beside : tuple of str
        Rivals.
    at_least, at_most : float, optional
        Accuracy or R squared, and violation, that the issue asks for.
    """

    dataset: str
    notion: str
    tolerance: float
    task: str
    asked: Mapping[str, Any]
    compared: tuple[str, ...] = ("demographic_parity",)
    beside: tuple[str, ...] = (PLAIN, LINEAR_POST)
    at_least: float | None = None
    at_most: float | None = None


REGRESSION = (
    PLAIN,
    "bounded loss, exponentiated gradient",
    "bounded loss, grid search",
    "CorrelationRemover",
    "Chzhen 2020",
    "Xian 2024",
)
PARITY: dict[str, Any] = {"notion": "demographic_parity"}
ODDS: dict[str, Any] = {"notion": "equalized_odds"}
BOTH: dict[str, Any] = {"notion": ["demographic_parity", "equal_opportunity"]}
FOUR_FIFTHS: dict[str, Any] = {"notion": "demographic_parity", "ratio": RATIO}
PRECISION: dict[str, Any] = {"notion": "predictive_parity"}
SHARE: dict[str, Any] = {"notion": "demographic_parity", "quota": QUOTA}

CASES = (
    Case("occupation", "demographic_parity", 0.02, "classes", PARITY, at_least=0.500, at_most=0.032),
    Case("occupation", "equalized_odds", 0.02, "classes", ODDS, ("equalized_odds",), at_least=0.485, at_most=0.075),
    Case("compas_score", "demographic_parity", 0.05, "classes", PARITY, at_least=0.555, at_most=0.075),
    Case("communities", "demographic_parity", 0.05, "number", PARITY, beside=REGRESSION, at_least=0.22, at_most=0.13),
    Case("hours", "demographic_parity", 0.05, "number", PARITY, beside=REGRESSION),
    Case("income", "two notions", 0.02, "classes", BOTH, ("demographic_parity", "equal_opportunity")),
    Case("income", "four_fifths", 0.0, "classes", FOUR_FIFTHS, beside=(PLAIN,)),
    Case("bank", "four_fifths", 0.0, "classes", FOUR_FIFTHS, beside=(PLAIN,)),
    Case("income", "predictive_parity", 0.05, "classes", PRECISION, ("predictive_parity",), beside=(PLAIN,)),
    Case("compas", "predictive_parity", 0.05, "classes", PRECISION, ("predictive_parity",), beside=(PLAIN,)),
    Case("income", "quota", 0.02, "classes", SHARE, beside=(PLAIN,)),
)


def case_of(cell: Cell) -> Case:
    """The case of a cell."""
    return next(case for case in CASES if (case.dataset, case.notion) == (cell.dataset, cell.notion))


def our_arguments(case: Case) -> dict[str, Any]:
    """What our estimator is asked, by the names of its arguments; a ratio takes the place of a tolerance."""
    allowed = {} if "ratio" in case.asked else {"tolerance": case.tolerance}
    return {**case.asked, **allowed}


def our_estimator(cell: Cell, groups: tuple[str, ...]) -> Any:
    """Our estimator for a cell with default settings."""
    case = case_of(cell)
    kind = "LagrangianDualRegressor" if case.task == "number" else "LagrangianDualClassifier"
    return getattr(import_module("justitia"), kind)(
        epsilon=cell.epsilon,
        delta=DELTA,
        groups=groups,
        random_state=_seed(cell),
        noise_seed=cell.noise_seed,
        progress=False,
        **our_arguments(case),
    )


@dataclass(frozen=True)
class TargetMethod:
    """One row beside ours.

    Parameters
    ----------
    module, name : str
        Of the estimator in `bench.rivals`; for classes and numbers apart where a method serves both.
    settings : mapping
    private, reads_attribute : bool
        Whether training protects the attribute, and whether prediction reads it.
    seconds : (float, float)
        Roughly, one fit on 36,000 rows and one on a smaller dataset.
    allows : bool
        Whether the method takes a tolerance.
    """

    module: str
    name: str | Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    private: bool = False
    reads_attribute: bool = False
    seconds: tuple[float, float] = (10, 2)
    allows: bool = False


TARGET_METHODS: dict[str, TargetMethod] = {
    OURS: TargetMethod("", "", private=True, seconds=(60, 5)),
    PLAIN: TargetMethod("trees", {"classes": "TreesClassifier", "number": "TreesRegressor"}, private=True),
    LINEAR_POST: TargetMethod("linear_post_classes", "LinearPostClassesClassifier", seconds=(90, 3), allows=True),
    "bounded loss, exponentiated gradient": TargetMethod("bounded_loss", "BoundedLossRegressor", seconds=(90, 4)),
    "bounded loss, grid search": TargetMethod(
        "bounded_loss", "BoundedLossRegressor", {"search": "grid search"}, seconds=(40, 3)
    ),
    "CorrelationRemover": TargetMethod("correlation", "CorrelationRemoverRegressor", reads_attribute=True),
    "Chzhen 2020": TargetMethod("barycentre", "BarycentreRegressor", reads_attribute=True),
    "Xian 2024": TargetMethod(
        "private_barycentre", "PrivateBarycentreRegressor", private=True, reads_attribute=True, allows=True
    ),
}


def make(cell: Cell, groups: tuple[str, ...]) -> Any:
    """A fresh estimator for one cell."""
    if cell.method == OURS:
        return our_estimator(cell, groups)
    case, method = case_of(cell), TARGET_METHODS[cell.method]
    name = method.name if isinstance(method.name, str) else method.name[case.task]
    kind: Callable[..., Any] = getattr(import_module(f"bench.rivals.{method.module}"), name)
    settings = dict(method.settings)
    if method.allows:
        settings["tolerance"] = case.tolerance
    if cell.method == LINEAR_POST:
        settings["notion"] = case.compared if len(case.compared) > 1 else case.compared[0]
    if method.private and method.reads_attribute:
        settings |= {"epsilon": cell.epsilon, "noise_seed": cell.noise_seed}
    rows = (cell.dataset, cell.split, cell.seed, cell.fold)
    base = SharedTrees("number" if case.task == "number" else "classes", rows)
    return kind(groups=groups, base=base, random_state=_seed(cell), **settings)


def recipe(cell: Cell) -> str:
    """What is fitted as text; of ours what is asked, since everything else is a default of a version."""
    if cell.method == OURS:
        return f"{OURS}({sorted(our_arguments(case_of(cell)).items())}), edition {EDITION}"
    model = make(cell, ())
    params = sorted((name, repr(value)) for name, value in model.get_params(deep=False).items())
    return f"{type(model).__name__}({', '.join(f'{name}={value}' for name, value in params)})"


def budget(method: str) -> float:
    """Epsilon of a rival's cell; trees ask nothing."""
    one = TARGET_METHODS[method]
    return 1.0 if one.private and one.reads_attribute else math.inf


def estimated_seconds(cell: Cell) -> float:
    """Rough time of one fit."""
    large, small = TARGET_METHODS[cell.method].seconds
    return large if cell.dataset in {"occupation", "hours", "income"} else small


def _seed(cell: Cell) -> int:
    return 5 * cell.seed + cell.fold
