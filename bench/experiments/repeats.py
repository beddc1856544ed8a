"""The frontier again on other folds of the small datasets: which of its comparisons were luck."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.curves import (
    Points,
    behind,
    matched,
    most_accurate,
    printed_points,
    rerun_points,
    since_before,
    summarise,
)
from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, MEASURES, measure, with_recipes
from bench.experiments.frontier import BEFORE, METHOD, NOT_PRIVATE, curves_of, measure_curve, spread
from bench.experiments.paper import DATASETS, NOTIONS
from bench.experiments.runner import Cell
from bench.experiments.summaries import mean_and_sd

SMALL = tuple(name for name in DATASETS if name != "income")
#: Seeds of the shuffles that make the folds; the frontier's is 0.
SHUFFLES = (1, 2, 3)
#: Methods and their budgets.
COMPARED = ((METHOD, 1.0), ("M", 1.0), ("A", math.inf))
RIVALS = ("M", "A")
#: Where equalized odds are hard, the same rule without privacy is held beside, and one with a model of the attribute.
HARD = ("bank", "m_bank3", "m_bank5")
BESIDE = ((METHOD, math.inf), (NOT_PRIVATE, math.inf))
BESIDE_ODDS = (
    ("epsilon 1", METHOD, 1.0),
    ("no privacy", METHOD, math.inf),
    (NOT_PRIVATE, NOT_PRIVATE, math.inf),
    ("moments engine, epsilon 1", BEFORE, 1.0),
)
#: On Bank: accuracy that a point of the curve is to reach at most at this violation.
ODDS = (0.76, 0.11)


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of every shuffle, the hard cells first; quick: one fold of Compas with accuracy parity."""
    wanted = with_recipes(
        [
            Cell("repeats", dataset, notion, method, fold, seed, epsilon)
            for seed in (SHUFFLES[:1] if quick else SHUFFLES)
            for dataset in (("compas",) if quick else SMALL)
            for notion in (("accuracy_parity",) if quick else NOTIONS)
            for fold in range(1 if quick else FOLDS)
            for method, epsilon in (*COMPARED, *(BESIDE if _hard(dataset, notion) else ()))
        ]
    )
    return sorted(wanted, key=lambda cell: HARD.index(cell.dataset) if _hard(cell.dataset, cell.notion) else len(HARD))


def _hard(dataset: str, notion: str) -> bool:
    return dataset in HARD and notion == "equalized_odds"


def measure_again(cell: Cell) -> dict[str, Any]:
    """The curve, or a rival's point, which has none."""
    curve = cell.method not in RIVALS
    return measure_curve(cell) if curve else {**measure(cell), "floor": math.nan, "curve": "[]"}


def curves(results: pd.DataFrame, method: str = METHOD, epsilon: float = 1.0) -> pd.DataFrame:
    """Points of the mean curves over all folds of all shuffles."""
    return summarise(curves_of(results, method, epsilon))


def reruns(results: pd.DataFrame) -> pd.DataFrame:
    """Means of the rivals over the same folds."""
    theirs = results[results["method"].isin(RIVALS)]
    return mean_and_sd(theirs, ["dataset", "notion", "method"], ["accuracy", "violation"])


def points(means: pd.DataFrame, dataset: str, notion: str) -> Points:
    """Printed points and those rerun on the same folds."""
    return printed_points(dataset, notion) | rerun_points(means, dataset, notion, RIVALS)


def claims(results: pd.DataFrame) -> list[Claim]:
    """In how many cells the private curve has a point that is at least as good as each rival: in the mean, and by luck.

    The mean is over all folds; luck shows in the same count from the five folds of each shuffle alone.
    """
    together = curves(results), partial(points, reruns(results))
    alone = [behind(curves(part), partial(points, reruns(part))) for _, part in results.groupby("seed")]
    found = []
    for claim, label in zip(matched(*together), behind(*together), strict=True):
        counts = [str(sum(by == 0 for by in one.get(label, {}).values())) for one in alone]
        found.append(replace(claim, numbers=f"{claim.numbers}; shuffle by shuffle {', '.join(counts)}"))
    return [*found, *since_before(curves_of(results, METHOD, 1.0), curves_of(results, BEFORE, 1.0)), *odds(results)]


def odds(results: pd.DataFrame) -> list[Claim]:
    """Equalized odds on Bank and its variants: the most accurate point up to a violation, with and without privacy."""
    accuracy, violated = ODDS
    found, met = [], False
    for one in HARD:
        here = results[(results["dataset"] == one) & (results["notion"] == "equalized_odds")]
        for label, *whose in BESIDE_ODDS:
            curve = curves(here, *whose)
            if curve.empty:
                continue
            best = most_accurate(curve, violated)
            if (one, label) == ("bank", "epsilon 1"):
                met = best is not None and bool(best["accuracy_mean"] >= accuracy)
            found.append(f"{name_of(one)}, {label}: {_with_errors(best, curve)}")
    sentence = f"Equalized odds on Bank: a point with accuracy at least {accuracy} and violation at most {violated}."
    return [Claim(sentence, met, "; ".join(found))] if found else []


def _with_errors(best: pd.Series | None, curve: pd.DataFrame) -> str:
    """Accuracy / violation of a point with standard errors; if there is none, of the point that violates least."""
    row = curve.loc[curve["violation_mean"].idxmin()] if best is None else best
    errors = [row[f"{name}_sd"] / math.sqrt(row["fits"]) for name in ("accuracy", "violation")]
    text = f"{row['accuracy_mean']:.3f} ± {errors[0]:.3f} / {row['violation_mean']:.3f} ± {errors[1]:.3f}"
    return text if best is not None else f"none, its least violation is at {text}"


def markdown(results: pd.DataFrame) -> str:
    """The default point of every cell beside its rivals: accuracy / violation, means over all folds."""
    if results.empty:
        return "No results are committed."
    lines = [
        "| data, notion | Justitia, ε = 1 | M, ε = 1 | A, no privacy | chance | folds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    table, means = curves(results), reruns(results)
    default = table[table["tolerance"].isna()]
    for (one, notion), row in default.groupby(["dataset", "notion"], sort=False):
        same = means[(means["dataset"] == one) & (means["notion"] == notion)]
        entries = [spread(row), *(spread(same[same["method"] == name]) for name in RIVALS)]
        name = f"{name_of(str(one))}, {name_of(str(notion))}"
        lines.append(f"| {name} | {' | '.join(entries)} | {row['floor_mean'].mean():.3f} | {row['fits'].sum()} |")
    return "\n".join(lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write ``repeats.md``; return the mean curves for the terminal."""
    (folder / "repeats.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return curves(results).round(3).to_string(index=False)


REPEATS = Experiment(
    "repeats",
    cells,
    publish,
    claims=claims,
    work=measure_again,
    table=markdown,
    measures=(*MEASURES, "floor", "curve"),
)
