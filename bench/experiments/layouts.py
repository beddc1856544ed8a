"""Evidence for defaults of the correction: layout of the public rows, spared accuracy, checks, multipliers, the dual.

Each is put back to what it was before, alone and together, on inner splits of training rows and on synthetic people.
The base model of a split is learned once, and all candidates are tried with the same noise: differences are paired.
Decisions are those of the exact correction; for the default at a small budget also those of the deployed one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import dataset, paper_features, rows_of
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell
from bench.experiments.stress_data import Healthy
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger
from justitia.learners.base import Inputs
from justitia.metrics.exact import violation
from justitia.postprocessing import dual, solver
from justitia.postprocessing.features import Layout
from justitia.postprocessing.plan import SMALL_EPSILON
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy.attribute import Attribute
from justitia.rows.source import Block
from justitia.training.method import progress_bar

#: Shuffle that makes the inner folds, and noise draws of a cell.
SEED, DRAWS = 7, 1
FOLDS = 2
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")
EPSILONS = (0.1, 0.25, 1.0)
DELTA = 1e-5
TEST_ROWS = 8_000
#: Changed when candidates or places change, so that no old row is taken for a new one.
RECIPE = "third edition"


@dataclass(frozen=True)
class Place:
    """Training rows of an inner split, at most ``rows`` of them, or synthetic people.

    ``paper`` gives every feature as one number, as in the tables of the paper; ``quick`` leaves out small budgets.
    """

    name: str
    dataset: str
    rows: int | None = None
    people: Healthy | None = None
    paper: bool = False
    quick: bool = False


PLACES = {
    place.name: place
    for place in (
        Place("Income", "income"),
        Place("Compas", "compas"),
        Place("Compas, 1,500 rows", "compas", 1_500),
        Place("Bank", "bank"),
        Place("Crime", "communities"),
        Place("synthetic, 300 columns", SIMULATED, people=Healthy(2_000, features=300)),
        Place("Income, 6,000 rows", "income", 6_000),
        Place("synthetic, 40 columns", SIMULATED, people=Healthy(3_000, features=40, shares=(0.8, 0.2))),
        Place("M-Bank, 5 groups", "m_bank5"),
        Place("Census, 6,000 rows", "census", 6_000),
        Place("Census, race", "census_race", paper=True, quick=True),
    )
}
#: What is as it was before; the first is the default.
CANDIDATES = ("now", "layout", "spared", "sampling", "smoothing", "worth", "all")
MEASURES = (
    *(f"{name} {what}" for name in CANDIDATES for what in ("accuracy", "violation")),
    *("deployed accuracy", "deployed violation", "base accuracy", "base violation", "constant accuracy", "seconds"),
)


def cells(*, quick: bool) -> list[Cell]:
    """Every place, notion, fold and epsilon; quick: Compas, one fold, one notion."""
    places = [PLACES["Compas"]] if quick else list(PLACES.values())
    return [
        Cell(
            "layouts",
            place.dataset,
            notion,
            "PF-LD plug-in",
            fold,
            SEED,
            epsilon,
            "inner",
            {"place": place.name},
            RECIPE,
        )
        for place in places
        for notion in NOTIONS[: 1 if quick else None]
        for fold in range(1 if quick else FOLDS)
        for epsilon in EPSILONS[-1 if place.quick else 0 :]
    ]


@dataclass(frozen=True, eq=False)
class Opened:
    """A session whose base has learned, and other rows of the same kind as numbers with the base's probabilities."""

    session: Any
    attribute: Attribute
    groups: tuple[str, ...]
    numbers: Any
    eta: Any
    y: Any
    sensitive: Any


@lru_cache(maxsize=1)
def opened(name: str, notion: str, fold: int) -> Opened:
    """Learn the base of a place once."""
    place = PLACES[name]
    (X, y, sensitive), test, groups = _synthetic(place, fold) if place.people else _split(place, notion, fold)
    model = LagrangianDualClassifier(notion, groups=groups, delta=DELTA, random_state=0, progress=False)
    attribute = Attribute.from_container(sensitive)
    session = model._open(X, y, attribute)
    method: Any = session.method
    numbers = np.asarray(model._features(test[0], reset=False), dtype=np.float32).reshape(len(test[1]), -1)
    eta = method.calibration(method.base.predict(Inputs(test[0], numbers)))
    return Opened(session, attribute, groups, numbers, eta, np.asarray(test[1]), test[2])


def _synthetic(place: Place, fold: int) -> tuple[Any, Any, tuple[str, ...]]:
    assert place.people is not None
    generator = np.random.default_rng([fold, SEED])
    train, test = place.people.draw(place.people.rows, generator), place.people.draw(TEST_ROWS, generator)
    return (train.X, train.y, train.group), (test.X, test.y, test.group), train.groups


def _split(place: Place, notion: str, fold: int) -> tuple[Any, Any, tuple[str, ...]]:
    data = dataset(place.dataset)
    if data.task == "number":
        data = replace(data, y=(data.y > data.y.median()).astype(int), task="binary")
    cell = Cell("layouts", place.dataset, notion, "", fold, SEED, split="inner")
    inner = rows_of(cell, data)
    data = paper_features(data, inner[0]) if place.paper else data
    train, test = (np.random.default_rng([fold, SEED]).permutation(part) for part in inner)
    parts = [
        (data.X.iloc[some].reset_index(drop=True), data.y.iloc[some].to_numpy(), data.sensitive.iloc[some])
        for some in (train[: place.rows], test[:TEST_ROWS])
    ]
    return parts[0], parts[1], data.groups


@contextmanager
def as_before(candidate: str) -> Iterator[PostProcessingPlan]:
    """The plan of a candidate, while the rest is as it was before."""
    spared = candidate in {"spared", "all"}
    with ExitStack() as stack:
        if candidate in {"layout", "all"}:
            stack.enter_context(patch.object(Layout, "for_noise", lambda *_, **__: Layout()))
        if candidate in {"sampling", "all"}:
            stack.enter_context(
                patch.object(PostProcessingRun, "_sampling_variance", lambda run: np.zeros_like(run._sizes))
            )
        if candidate in {"worth", "all"}:
            stack.enter_context(patch.object(solver, "DEFAULT_WORTH_PER_SHARE", math.inf))
        if candidate in {"smoothing", "all"}:
            stack.enter_context(patch.object(dual, "SMOOTHING", dual.SMOOTHING[:6]))
        yield PostProcessingPlan(most_lost=1.0) if spared else PostProcessingPlan()


def work(cell: Cell) -> dict[str, float]:
    """All candidates on one split, each with the same draws of the noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        start = time.perf_counter()
        some = opened(cell.settings["place"], cell.notion, cell.fold)
        found = [one for draw in range(DRAWS) for one in _tried(some, cell, draw)]
    means = pd.DataFrame(found).mean()
    plain = (some.eta > 0.5).astype(int)
    rate = float(some.y.mean())
    return {
        **{str(name): float(value) for name, value in means.items()},
        "base accuracy": float((plain == some.y).mean()),
        "base violation": _violation(some, cell, plain),
        "constant accuracy": max(rate, 1 - rate),
        "seconds": round(time.perf_counter() - start, 2),
    }


def _tried(some: Opened, cell: Cell, draw: int) -> Iterator[dict[str, float]]:
    row: dict[str, float] = {}
    block = Block(0, some.numbers, some.y.astype(np.int64), np.ones(len(some.y), dtype=np.float32), some.eta)
    for candidate in CANDIDATES:
        with as_before(candidate) as plan:
            run = _run(some, cell, plan, cell.noise_seed + draw)
            decided = run._rule().decide(replace(block, memo={}))[0][0]
            row[f"{candidate} accuracy"] = float((decided == some.y).mean())
            row[f"{candidate} violation"] = _violation(some, cell, decided)
            if candidate == "now" and cell.epsilon < SMALL_EPSILON:
                rule = run.fitted()
                decided = (2 * (some.eta - 0.5) > rule.correction(some.numbers, some.eta)).astype(int)
                row["deployed accuracy"] = float((decided == some.y).mean())
                row["deployed violation"] = _violation(some, cell, decided)
    yield row


def _run(some: Opened, cell: Cell, plan: PostProcessingPlan, noise_seed: int) -> Any:
    """A trained run with this budget and noise, on the base that has learned."""
    session = some.session
    calibrated = plan.calibrate(cell.epsilon, DELTA, n=session.method.problem.rows)
    settings = replace(session.settings, epsilon=cell.epsilon, plan=plan)
    ledger = PrivacyLedger(epsilon=cell.epsilon, delta=DELTA)
    session = replace(session, settings=settings, plan=calibrated, ledger=ledger)
    again = session.repeated(some.attribute, person=None, ledger=ledger, noise_seed=noise_seed)
    again.run.train(partial(progress_bar, settings.progress))
    return again.run


def _violation(some: Opened, cell: Cell, decided: Any) -> float:
    return violation(some.y, decided, sensitive_features=some.sensitive, notion=cell.notion, groups=some.groups)


def differences(results: pd.DataFrame, candidate: str, by: list[str]) -> pd.DataFrame:
    """Paired: now less as before, mean and standard error over cells, of accuracy and violation."""
    parts = results.assign(
        accuracy=results["now accuracy"] - results[f"{candidate} accuracy"],
        violation=results["now violation"] - results[f"{candidate} violation"],
    ).groupby(by, sort=False)[["accuracy", "violation"]]
    table = parts.mean().join((parts.std(ddof=1) / np.sqrt(parts.count())).add_suffix(" error"))
    return table.reset_index()


def markdown(results: pd.DataFrame) -> str:
    """What each change is worth, by epsilon; then before and now, by place."""
    rows = results.assign(place=setting(results, "place"))
    named = {
        "layout": "layout by the noise",
        "spared": "accuracy is spared",
        "sampling": "sampling error of checks",
        "smoothing": "sharper dual",
        "worth": "multipliers of small groups held back",
        "all": "all five",
    }
    epsilons = sorted(rows["epsilon"].unique())
    lines = [f"| changed | {' | '.join(f'ε = {one:g}' for one in epsilons)} |", "|---|" + "---:|" * len(epsilons)]
    for candidate, name in named.items():
        table = differences(rows, candidate, ["epsilon"]).set_index("epsilon")
        lines.append(f"| {name} | {' | '.join(_signed(table.loc[one]) for one in epsilons)} |")
    lines += ["", f"| accuracy / violation, before → now | {' | '.join(f'ε = {one:g}' for one in epsilons)} |"]
    lines.append("|---|" + "---:|" * len(epsilons))
    means = rows.groupby(["place", "epsilon"], sort=False).mean(numeric_only=True)
    for place in (name for name in PLACES if name in set(rows["place"])):
        entries = []
        for one in epsilons:
            if (place, one) not in means.index:
                entries.append("-")
                continue
            here = means.loc[(place, one)]
            before = f"{here['all accuracy']:.3f} / {here['all violation']:.3f}"
            entries.append(f"{before} → {here['now accuracy']:.3f} / {here['now violation']:.3f}")
        lines.append(f"| {place} | {' | '.join(entries)} |")
    return "\n".join(lines)


def _signed(row: Any) -> str:
    accuracy = f"{row['accuracy']:+.3f} ({row['accuracy error']:.3f})"
    return f"{accuracy} / {row['violation']:+.3f} ({row['violation error']:.3f})"


def claims(results: pd.DataFrame) -> list[Claim]:
    """The promise about accuracy where the budget is small."""
    small = results[results["epsilon"] < SMALL_EPSILON].assign(place=setting(results, "place"))
    if small.empty:
        return []
    means = small.groupby(["place", "notion", "epsilon"]).mean(numeric_only=True)
    lost = means["base accuracy"] - means["deployed accuracy"]
    over = means["deployed accuracy"] - np.minimum(means["constant accuracy"], means["base accuracy"])
    return [
        Claim(
            "Below epsilon 0.3 the deployed rule is at most 3 points less accurate than the base on other rows.",
            bool(lost.max() <= 0.03),
            f"at most {100 * lost.max():.1f} points in {len(means)} cells, {100 * lost.mean():.1f} on average",
        ),
        Claim(
            "There it is at least as accurate as the base or one decision for all rows.",
            bool(over.min() >= 0),
            f"at least {100 * over.min():+.1f} points",
        ),
    ]


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the tables as Markdown; return them for the terminal."""
    text = markdown(results)
    (folder / "layouts.md").write_text(text + "\n", encoding="utf-8")
    return text


LAYOUTS = Experiment("layouts", cells, publish, claims=claims, work=work, measures=MEASURES, table=markdown)
