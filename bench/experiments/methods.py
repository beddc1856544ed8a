"""The methods that are compared: how each is made fresh for one fit, its trade-off knob, and its column in Table 2."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from bench.experiments.memory import SharedBase
from bench.experiments.readings import READ_AS
from bench.experiments.runner import Cell
from bench.rivals import PlainClassifier
from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan, PFLDPlan
from justitia.notions import FairnessNotion
from justitia.postprocessing.plan import PostProcessingPlan


@dataclass(frozen=True)
class Request:
    """What an estimator is made for.

    Parameters
    ----------
    groups : tuple of str
        Public group names.
    notion : str or FairnessNotion
    seed : int
        Of public randomness.
    epsilon : float
        Privacy budget; methods without privacy do not look at it.
    noise_seed : int
        Of the noise, so that a table on public data can be made again.
    rows : hashable
        Tells training rows and public seed from others; cells that share them share a base.
    dataset : str
    """

    groups: tuple[str, ...]
    notion: str | FairnessNotion
    seed: int
    epsilon: float = 1.0
    noise_seed: int = 0
    rows: Hashable = None
    dataset: str = ""


def _plain(request: Request, **settings: Any) -> Any:
    return PlainClassifier(random_state=request.seed, **settings)


def _baseline(module: str, name: str) -> Any:
    # Imported when needed: each brings a solver or library of its own.
    return getattr(import_module(f"bench.rivals.{module}"), name)


def _zafar(request: Request, **settings: Any) -> Any:
    return _baseline("zafar", "ZafarClassifier")(request.notion, groups=request.groups, **settings)


def _agarwal(request: Request, **settings: Any) -> Any:
    kind = _baseline("agarwal", "AgarwalClassifier")
    return kind(request.notion, groups=request.groups, random_state=request.seed, **settings)


def _private_baseline(module: str, name: str, request: Request, settings: Mapping[str, Any]) -> Any:
    return _baseline(module, name)(
        request.notion,
        epsilon=request.epsilon,
        groups=request.groups,
        random_state=request.seed,
        noise_seed=request.noise_seed,
        **settings,
    )


def _linear_post(request: Request, **settings: Any) -> Any:
    kind = _baseline("linear_post", "LinearPostClassifier")
    return kind(request.notion, groups=request.groups, random_state=request.seed, **settings)


def _local(request: Request, **settings: Any) -> Any:
    return _private_baseline("local", "LocalClassifier", request, settings)


def _local_of_two(request: Request, **settings: Any) -> Any:
    smaller = SMALLER.get(request.dataset)  # of more groups there is no such mechanism, and no such cell
    return _private_baseline("local", "LocalClassifier", request, {"minority": smaller} | settings)


def _fairgbm(request: Request, **settings: Any) -> Any:
    kind = _baseline("fairgbm", "FairGBMClassifier")
    return kind(request.notion, groups=request.groups, random_state=request.seed, **settings)


def _mozannar(request: Request, **settings: Any) -> Any:
    return _private_baseline("mozannar", "MozannarClassifier", request, settings)


def _fermi(request: Request, **settings: Any) -> Any:
    return _private_baseline("fermi", "FermiClassifier", request, _with_plan("fermi", "FermiPlan", settings))


def _histogram(request: Request, **settings: Any) -> Any:
    return _private_baseline(
        "histogram", "HistogramClassifier", request, _with_plan("histogram", "HistogramPlan", settings)
    )


def _with_plan(module: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a descent method: its network, and a plan of all others."""
    plan = {key: value for key, value in settings.items() if key != "module"}
    return {"module": settings.get("module"), "plan": _baseline(module, name)(**plan)}


def _dual(
    request: Request,
    engine: str,
    plan: Any,
    *,
    epsilon: float,
    tolerance: float | None = 0.0,
    module: Any = None,
    base: Any = None,
    at: str = "decision",
) -> Any:
    return LagrangianDualClassifier(
        request.notion,
        epsilon=epsilon,
        tolerance=tolerance,
        groups=request.groups,
        engine=engine,
        module=module,
        base=base,
        at=at,
        plan=plan,
        random_state=request.seed,
        noise_seed=request.noise_seed,
        progress=False,
    )


#: Test folds say how good a model is, so that no training row has to be held out for it.
NOBODY_HELD: dict[str, Any] = {"held_out": 0.0}


def _repaired(request: Request, *, tolerance: float = 0.0, h: str = "", **settings: Any) -> Any:
    if h:
        request = replace(request, notion=READ_AS[h][str(request.notion)]())
    plan = PFLDPlan(**NOBODY_HELD | settings)
    return _dual(request, "gradients", plan, epsilon=request.epsilon, tolerance=tolerance)


def _moments(request: Request, *, tolerance: float | None = None, module: Any = None, **settings: Any) -> Any:
    plan = MomentsPlan(**NOBODY_HELD | settings)
    return _dual(request, "moments", plan, epsilon=request.epsilon, tolerance=tolerance, module=module)


def _plugin(request: Request, *, tolerance: float | None = None, at: str = "decision", **settings: Any) -> Any:
    plan, base = PostProcessingPlan(**settings), None if request.rows is None else SharedBase(request.rows)
    return _dual(request, "plugin", plan, epsilon=request.epsilon, tolerance=tolerance, base=base, at=at)


def _printed(request: Request, **settings: Any) -> Any:
    return _dual(request, "printed", PFLDAsPublishedPlan(**settings), epsilon=request.epsilon)


def _not_private(request: Request, **settings: Any) -> Any:
    return _dual(request, "printed", PFLDAsPublishedPlan(**settings), epsilon=math.inf)


@dataclass(frozen=True)
class Method:
    """One row of the comparison.

    Parameters
    ----------
    make : callable
        ``make(request, **settings)`` gives a fresh, unfitted estimator.
    seconds : (float, float)
        Roughly, one fit on Income and one on a smaller dataset: long cells are started first.
    settings : mapping
        Chosen on inner splits of training rows (``python -m bench.experiments choose``), the same for every dataset.
    knob, sweep : str, tuple
        The setting that trades accuracy against violation, and the values the Pareto view sweeps.
    private : bool
        Whether the method asks for a privacy budget at all.
    two_groups : bool
        Whether the method is defined for two groups only.
    notions : tuple of str
        Notions that the method is defined for; empty for all.
    column : str
        The paper's name in Table 2; empty if the paper prints no such method.
    edition : int
        Raised when the method changes by more than its parameters say, so that no old row is taken for a new one.
    """

    make: Callable[..., Any]
    seconds: tuple[float, float]
    settings: Mapping[str, Any] = field(default_factory=dict)
    knob: str = ""
    sweep: tuple[float, ...] = ()
    private: bool = False
    two_groups: bool = False
    notions: tuple[str, ...] = ()
    column: str = ""
    edition: int = 0


#: The smaller of two groups of public data.
SMALLER = {"bank": "other", "income": "Female", "compas": "Female"}
#: Bounds on a reduction's constraint that the Pareto view sweeps.
SLACKS = (0.005, 0.02, 0.05, 0.1, 0.2)
#: Dual step sizes of Algorithm 1, which decide how far the multipliers get.
STEPS = (0.001, 0.003, 0.01, 0.1)
#: Differences between two groups that are allowed.
ALLOWED = (0.0, 0.02, 0.05, 0.1, 0.2)
#: Weights of DP-FERMI's penalty, whose slope is small where the groups are nearly alike.
STRENGTHS = (3.0, 10.0, 30.0, 60.0, 100.0)

METHODS: dict[str, Method] = {
    "CLF": Method(_plain, (1, 1), {"steps": 150}, column="CLF"),
    "Z": Method(
        _zafar,
        (3, 1),
        {"bound": 0.0, "l2": 0.1},
        knob="bound",
        sweep=(0.0, 0.01, 0.03, 0.1, 0.3),
        two_groups=True,
        column="Z",
    ),
    "A": Method(_agarwal, (5, 1), {"difference_bound": 0.002}, knob="difference_bound", sweep=SLACKS, column="A"),
    "A-net": Method(
        _agarwal, (40, 12), {"base": "network", "difference_bound": 0.002}, "difference_bound", SLACKS, column="A"
    ),
    "M": Method(
        _mozannar,
        (5, 1),
        {"difference_bound": 0.01, "halves": False, "noise_slack": 0.0, "not_given": False},
        "difference_bound",
        SLACKS,
        private=True,
        column="M",
    ),
    "DP-FERMI": Method(_fermi, (9, 5), {"strength": 20.0}, "strength", STRENGTHS, private=True),
    "RaCO-DP": Method(_histogram, (9, 5), {"slack": 0.03}, "slack", (0.0, 0.02, 0.05, 0.1, 0.2), private=True),
    "LinearPost": Method(_linear_post, (20, 5), {}, "tolerance", ALLOWED, edition=1),
    "LDP": Method(_local, (12, 3), {"not_given": False}, "tolerance", ALLOWED, private=True, edition=1),
    "LDP optimal": Method(
        _local_of_two, (12, 3), {"not_given": False}, "tolerance", ALLOWED, private=True, two_groups=True
    ),
    "FairGBM": Method(_fairgbm, (8, 2), {"multiplier_step": 0.03}, "tolerance", ALLOWED, notions=("equalized_odds",)),
    "F-LD": Method(_not_private, (10, 3), {}, knob="dual_step", sweep=STEPS),
    "PF-LD printed": Method(_printed, (11, 3), {}, "dual_step", STEPS, private=True, column="PF-LD"),
    "PF-LD moments": Method(_moments, (15, 6), {}, "tolerance", ALLOWED, private=True),
    "PF-LD repaired": Method(_repaired, (9, 5), {}, "tolerance", ALLOWED, private=True, column="PF-LD"),
    "PF-LD plug-in": Method(_plugin, (6, 2), {}, "tolerance", ALLOWED, private=True, edition=8),
}

#: Data sets with more than two groups.
MANY_GROUPS = frozenset({"m_bank3", "m_bank5"})


def applies(method: str, dataset: str, notion: str) -> bool:
    """Whether the method is defined for the dataset's number of groups and for the notion."""
    one = METHODS[method]
    return not (one.two_groups and dataset in MANY_GROUPS) and (not one.notions or notion in one.notions)


def make(cell: Cell, groups: tuple[str, ...]) -> Any:
    """A fresh estimator for one cell; candidates for settings (inner splits) start from the library's defaults."""
    method, changed = METHODS[cell.method], {k: v for k, v in cell.settings.items() if k not in DATA_SETTINGS}
    settled = {} if cell.split == "inner" else dict(method.settings)
    rows = (cell.dataset, cell.split, cell.seed, cell.fold)
    request = Request(groups, cell.notion, 5 * cell.seed + cell.fold, cell.epsilon, cell.noise_seed, rows, cell.dataset)
    return method.make(request, **(settled | changed))


#: Settings of a cell that change its rows, not its estimator.
DATA_SETTINGS = frozenset({"missing", "shuffled"})


#: Parameters that are younger than committed results, with the values that change nothing.
LATER = (("n_jobs", None), ("missing", "allowed"))


def recipe(cell: Cell) -> str:
    """The estimator of a cell with all of its parameters, as text that is the same in every process."""
    model = make(cell, ())
    given = [(name, value) for name, value in model.get_params(deep=False).items() if (name, value) not in LATER]
    params = sorted((name, repr(value)) for name, value in given)
    edition = f", edition {METHODS[cell.method].edition}" if METHODS[cell.method].edition else ""
    return f"{type(model).__name__}({', '.join(f'{name}={value}' for name, value in params)}){edition}"


def estimated_seconds(cell: Cell) -> float:
    """Rough time of one fit, for the order of the cells and for a forecast."""
    income, smaller = METHODS[cell.method].seconds
    return income if cell.dataset == "income" else smaller
