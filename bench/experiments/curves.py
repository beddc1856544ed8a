"""Mean curves of accuracy against violation, held against single points and against other curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim
from bench.experiments.paper import DATASETS, NOTIONS, printed
from bench.experiments.runner import read_results
from bench.experiments.summaries import dominated, lookup, mean_and_sd
from bench.experiments.table2 import summarise as summarise_table2
from justitia.notions import get_notion

#: Accuracy and violation of rivals by name.
Points = dict[str, tuple[float, float]]
Array = NDArray[np.float64]

#: Cells of 15 in which a rival is to be matched, where not in all.
MATCHED = {"A, rerun": 10}
#: Cells of 15 in which curves are to be better than before.
BETTER = 10
TABLE2 = Path(__file__).parents[2] / "results" / "table2.csv"
#: Permutations of the groups of a test fold: the violation a perfectly fair model would show by chance.
PERMUTATIONS = 200
BY = ["method", "dataset", "notion", "epsilon", "tolerance"]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row per method, dataset, notion, epsilon and tolerance: means and standard deviations over the folds."""
    rows = [
        {name: row[name] for name in ("method", "dataset", "notion", "epsilon", "floor")}
        | {"tolerance": point[0], "accuracy": point[1], "violation": point[2]}
        | {"auc": point[3] if len(point) > 3 else math.nan}  # older rows have none
        for _, row in results.iterrows()
        for point in json.loads(row["curve"])
    ]
    table = mean_and_sd(pd.DataFrame(rows, columns=[*BY, "floor", "accuracy", "violation", "auc"]), BY, MEASURED)
    table["tolerance"] = table["tolerance"].astype(float)  # NaN is the default
    order = [table["dataset"].map(DATASETS.index), table["notion"].map(NOTIONS.index), -table["epsilon"]]
    ordered = table.iloc[np.lexsort([table["tolerance"].fillna(-1), *reversed(order)])]
    methods = {name: i for i, name in enumerate(dict.fromkeys(results["method"]))}
    return ordered.sort_values("method", key=lambda names: names.map(methods), kind="stable").reset_index(drop=True)


MEASURED = ["accuracy", "violation", "auc", "floor"]


def cell_name(dataset: object, notion: object) -> str:
    """Dataset and notion in words."""
    return f"{name_of(str(dataset))} {name_of(str(notion))}"


def by_chance(notion: str, scores: Any, truth: Any, codes: Any, *, seed: int) -> float:
    """Mean violation of these decisions if groups are dealt out anew to the rows."""
    kind, y = get_notion(notion), np.asarray(truth, dtype=np.float64)
    h, events = kind.h_exact(scores, y).astype(np.float64), kind.events(y)
    shuffled, found = np.random.default_rng(seed), []
    for _ in range(PERMUTATIONS):
        dealt = shuffled.permutation(codes)
        sums, sizes = ([np.bincount(dealt, one) for one in rows.T] for rows in (events * h[:, None], events))
        found.append(max(np.ptp(one / size) for one, size in zip(sums, sizes, strict=True)))
    return float(np.mean(found))


# ------------------------------------------------------------------ points beside a curve


def printed_points(dataset: str, notion: str) -> Points:
    """Accuracy and violation of rivals as published in the paper."""
    found = {column: printed(dataset, notion, column) for column in ("PF-LD", "M", "A")}
    return {f"{name}, printed": (one.accuracy, one.violation) for name, one in found.items() if one is not None}


def rerun_points(means: pd.DataFrame, dataset: str, notion: str, methods: Sequence[str]) -> Points:
    """Accuracy and violation of rivals from means over the same folds."""
    found = {}
    for method in methods:
        where = {"dataset": dataset, "notion": notion, "method": method}
        accuracy, violated = (lookup(means, f"{name}_mean", **where) for name in ("accuracy", "violation"))
        if accuracy is not None and violated is not None:
            found[f"{method}, rerun"] = (accuracy, violated)
    return found


def rivals(dataset: str, notion: str) -> Points:
    """Published points, and our reruns on the same folds where their results are at hand."""
    found = printed_points(dataset, notion)
    if TABLE2.exists():
        means = summarise_table2(read_results(TABLE2))
        found |= rerun_points(means, dataset, notion, ("PF-LD printed", "M", "A", "DP-FERMI", "RaCO-DP"))
    return found


def shortfall(curve: pd.DataFrame, accuracy: float, violated: float) -> float:
    """How many of its standard errors the nearest point of the curve is behind a rival, in accuracy or violation.

    It is 0 where a point is no less accurate and violates no more; at the floor of chance counts as none.
    """
    allowed = np.maximum(violated, curve["floor_mean"])
    lacking = np.maximum(0.0, [accuracy - curve["accuracy_mean"], curve["violation_mean"] - allowed])
    errors = [curve[f"{name}_sd"] / np.sqrt(curve["fits"]) for name in ("accuracy", "violation")]
    ratio = np.divide(lacking, errors, out=np.full_like(lacking, math.inf), where=np.asarray(errors) > 0)
    return float(np.where(lacking > 0, ratio, 0.0).max(0).min())


def behind(curves: pd.DataFrame, rivals_of: Callable[[str, str], Points]) -> dict[str, dict[str, float]]:
    """For each rival and cell, how far the curve is behind: 0 where it has a point that is at least as good."""
    found: dict[str, dict[str, float]] = {}
    for (one, notion), curve in curves.groupby(["dataset", "notion"], sort=False):
        for label, rival in rivals_of(str(one), str(notion)).items():
            found.setdefault(label, {})[cell_name(one, notion)] = shortfall(curve, *rival)
    return found


def matched(curves: pd.DataFrame, rivals_of: Callable[[str, str], Points], whose: str = "private curve") -> list[Claim]:
    """For each rival, in how many cells a point of the curve is at least as good, and how far it is in the others."""
    found = []
    for label, missing in behind(curves, rivals_of).items():
        losses = [f"{name} by {by:.1f} SE" if by < math.inf else name for name, by in missing.items() if by > 0]
        asked = min(MATCHED.get(label, len(missing)), len(missing))
        where = "" if asked == len(missing) else f", in at least {asked} cells"
        sentence = f"A point of the {whose} is at least as good as {name_of(label)}{where}."
        found.append(Claim(sentence, len(missing) - len(losses) >= asked, counted(len(missing), losses)))
    return found


def counted(total: int, far: Sequence[str]) -> str:
    """How many cells are not among those that are far, and which are."""
    return f"{total - len(far)} of {total} cells" + (f", not {'; '.join(far)}" if far else "")


def pareto(curve: pd.DataFrame) -> pd.DataFrame:
    """Points that no other point of the curve beats, in the order of their violations and of their accuracies."""
    beaten = dominated(curve["accuracy_mean"].tolist(), curve["violation_mean"].tolist())
    return curve[~np.asarray(beaten)].sort_values("violation_mean")


def most_accurate(curve: pd.DataFrame, violation: float) -> pd.Series | None:
    """The most accurate point of a mean curve that violates no more."""
    allowed = curve[curve["violation_mean"] <= violation]
    return None if allowed.empty else allowed.loc[allowed["accuracy_mean"].idxmax()]


# ------------------------------------------------------------------ curve beside curve


@dataclass(frozen=True)
class Advantage:
    """How much more accurate one curve is than another at the same violation, with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:+.4f} ± {self.error:.4f}"


def advantages(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, Advantage]:
    """For each cell that both have, on the folds that both have; results, not summaries."""
    mine, other = _curves(ours), _curves(theirs)
    found = {}
    for where in mine:
        shared = sorted(set(mine[where]) & set(other.get(where, {})))
        if shared:
            found[cell_name(*where)] = advantage(*(np.stack([one[where][f] for f in shared]) for one in (mine, other)))
    return found


def _curves(results: pd.DataFrame) -> dict[tuple[str, str], dict[tuple[int, int], Array]]:
    """By cell and fold, (points, 2): accuracy and violation along the tolerance."""
    found: dict[Any, dict[tuple[int, int], Array]] = {}
    for row in results.to_dict("records"):
        points = np.array([point[1:3] for point in json.loads(row["curve"])], dtype=np.float64)
        found.setdefault((row["dataset"], row["notion"]), {})[int(row["seed"]), int(row["fold"])] = points
    order = {where: (DATASETS.index(where[0]), NOTIONS.index(where[1])) for where in found}
    return {where: found[where] for where in sorted(found, key=lambda one: order[one])}


def advantage(ours: Array, theirs: Array) -> Advantage:
    """Of (folds, points, 2) over (folds, points', 2): the mean over both Pareto curves where both go.

    The standard error is the jackknife's over the folds, which share their rows with both curves.
    """
    value, n = _apart(ours.mean(0), theirs.mean(0)), len(ours)
    if n == 1:
        return Advantage(value, math.nan)
    without = [_apart(*(np.delete(one, fold, axis=0).mean(0) for one in (ours, theirs))) for fold in range(n)]
    return Advantage(value, float(math.sqrt((n - 1) * np.var(without))))


def _apart(ours: Array, theirs: Array) -> float:
    a, b = (_best(points) for points in (ours, theirs))
    start = max(a[0, 1], b[0, 1])
    at = np.union1d(a[:, 1], b[:, 1])
    at = at[at >= start]
    return float(np.mean(np.interp(at, a[:, 1], a[:, 0]) - np.interp(at, b[:, 1], b[:, 0])))


def _best(points: Array) -> Array:
    """Points that no other beats, by violation; between two of them one may draw, so the curve is straight there."""
    kept = points[~np.asarray(dominated(points[:, 0].tolist(), points[:, 1].tolist()))]
    return kept[np.argsort(kept[:, 1], kind="stable")]


def since_before(now: pd.DataFrame, before: pd.DataFrame) -> list[Claim]:
    """Whole curves at the same violation, cell by cell, beyond one standard error."""
    gained = advantages(now, before)
    if not gained:
        return []
    worse = [f"{name} {by}" for name, by in gained.items() if by.value < -by.error]
    better = [name for name, by in gained.items() if by.value > by.error]
    sentence = "At the same violation no curve is less accurate than the moments engine's beyond one standard error."
    more = f"At least {BETTER} curves are more accurate than the moments engine's beyond one standard error."
    listed = "; ".join(f"{name} {by}" for name, by in gained.items())
    return [
        Claim(sentence, not worse, counted(len(gained), worse)),
        Claim(more, len(better) >= BETTER, f"{len(better)} of {len(gained)} cells; {listed}"),
    ]
