"""The frontier again on other folds of the small datasets: which of its comparisons were luck."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.draw import name_of
from experiments.experiment import Claim, Experiment
from experiments.folds import FOLDS, MEASURES, measure, with_recipes
from experiments.frontier import METHOD, Points, matched, measure_curve, printed_points, rerun_points, summarise
from experiments.paper import DATASETS, NOTIONS
from experiments.runner import Cell
from experiments.summaries import mean_and_sd

SMALL = tuple(name for name in DATASETS if name != "income")
#: Seeds of the shuffles that make the folds; the frontier's is 0.
SHUFFLES = (1,)
#: Methods and their budgets.
COMPARED = {METHOD: 1.0, "M": 1.0, "A": math.inf}
RIVALS = ("M", "A")


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of every shuffle; quick: one fold of Compas with accuracy parity."""
    return with_recipes(
        [
            Cell("repeats", dataset, notion, method, fold, seed, epsilon)
            for seed in (SHUFFLES[:1] if quick else SHUFFLES)
            for dataset in (("compas",) if quick else SMALL)
            for notion in (("accuracy_parity",) if quick else NOTIONS)
            for fold in range(1 if quick else FOLDS)
            for method, epsilon in COMPARED.items()
        ]
    )


def measure_again(cell: Cell) -> dict[str, Any]:
    """The curve, or a rival's point, which has none."""
    return measure_curve(cell) if cell.method == METHOD else {**measure(cell), "floor": math.nan, "curve": "[]"}


def curves(results: pd.DataFrame) -> pd.DataFrame:
    """Points of the mean curves over all folds of all shuffles."""
    return summarise(results[results["method"] == METHOD])


def reruns(results: pd.DataFrame) -> pd.DataFrame:
    """Means of the rivals over the same folds."""
    theirs = results[results["method"].isin(RIVALS)]
    return mean_and_sd(theirs, ["dataset", "notion", "method"], ["accuracy", "violation"])


def points(means: pd.DataFrame, dataset: str, notion: str) -> Points:
    """Printed points and those rerun on the same folds."""
    return printed_points(dataset, notion) | rerun_points(means, dataset, notion, RIVALS)


def claims(results: pd.DataFrame) -> list[Claim]:
    """In how many cells the private curve has a point that is at least as good as each rival."""
    return matched(curves(results), partial(points, reruns(results)))


def markdown(results: pd.DataFrame) -> str:
    """The default point of every cell beside its rivals: accuracy / violation, means over all folds."""
    if results.empty:
        return "No results are committed."
    lines = [
        "| data, notion | Justitia, ε = 1 | M, ε = 1 | A, no privacy | chance | folds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    table, means = curves(results), reruns(results)
    for row in table[table["tolerance"].isna()].itertuples():
        where = str(row.dataset), str(row.notion)
        theirs = rerun_points(means, *where, RIVALS)
        pairs = [(row.accuracy_mean, row.violation_mean), *(theirs.get(f"{name}, rerun") for name in RIVALS)]
        entries = [f"{pair[0]:.3f} / {pair[1]:.3f}" if pair else "-" for pair in pairs]
        name = f"{name_of(where[0])}, {name_of(where[1])}"
        lines.append(f"| {name} | {' | '.join(entries)} | {row.floor_mean:.3f} | {row.fits} |")
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
