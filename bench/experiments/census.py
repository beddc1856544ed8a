"""Beyond the paper: Census-Income, by sex and by five race groups, with the settings that were fixed before."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.folds import FOLDS, with_recipes
from bench.experiments.paper import NOTIONS
from bench.experiments.runner import Cell
from bench.experiments.summaries import mean_and_sd

DATASETS = ("census", "census_race")
#: Steps of the plain network: as many as ours takes.
STEPS = 2600
#: Method, epsilon, settings and name of each row.
ROWS: tuple[tuple[str, float, dict[str, Any], str], ...] = (
    ("CLF", math.inf, {"steps": STEPS}, "CLF"),
    ("A", math.inf, {}, "A"),
    ("M", 1.0, {}, "M, epsilon 1"),
    ("PF-LD plug-in", 1.0, {}, "Justitia, epsilon 1"),
    ("PF-LD plug-in", math.inf, {}, "Justitia, no privacy"),
    ("LinearPost", math.inf, {}, "LinearPost"),
)
#: Made when the moments engine was the default, and kept.
BEFORE = {
    ("PF-LD moments", 1.0): "moments engine, epsilon 1",
    ("PF-LD moments", math.inf): "moments engine, no privacy",
}


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of everything; quick: one fold by sex, demographic parity, without the slow reductions."""
    return with_recipes(
        [
            Cell("census", dataset, notion, method, fold, epsilon=epsilon, settings=settings)
            for fold in range(1 if quick else FOLDS)
            for dataset in (DATASETS[:1] if quick else DATASETS)
            for notion in (("demographic_parity",) if quick else NOTIONS)
            for method, epsilon, settings, _ in ROWS
            if not (quick and method in {"A", "M"})
        ]
    )


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row per dataset, notion and method, in the order of :data:`ROWS`."""
    names = {(method, epsilon): name for method, epsilon, _, name in ROWS} | BEFORE
    named = results.assign(row=[names[row.method, row.epsilon] for row in results.itertuples()])
    table = mean_and_sd(named, ["dataset", "notion", "row"], ["accuracy", "violation"])
    order = list(names.values())
    keys = [table["dataset"].map(DATASETS.index), table["notion"].map(NOTIONS.index), table["row"].map(order.index)]
    return table.iloc[pd.concat(keys, axis=1).apply(tuple, axis=1).argsort()].reset_index(drop=True)


def markdown(results: pd.DataFrame) -> str:
    """The table for the page."""
    lines = ["| dataset, notion | method | accuracy | violation | folds |", "|---|---|---:|---:|---:|"]
    before = ""
    for row in summarise(results).itertuples():
        where = f"{name_of(str(row.dataset))}, {name_of(str(row.notion))}"
        accuracy, violated = (
            f"{getattr(row, f'{name}_mean'):.3f} ({getattr(row, f'{name}_sd'):.3f})"
            for name in ("accuracy", "violation")
        )
        lines.append(f"| {'' if where == before else where} | {row.row} | {accuracy} | {violated} | {row.fits} |")
        before = where
    return "\n".join(lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write ``census.md`` and return the table for the terminal."""
    (folder / "census.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return summarise(results).round(3).to_string(index=False)


CENSUS = Experiment("census", cells, publish, table=markdown)
