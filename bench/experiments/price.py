"""The price of privacy: the default model from a very small epsilon to none at all; the moments engine beside it."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from bench.experiments.draw import grid, name_of, save
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, with_recipes
from bench.experiments.runner import Cell
from bench.experiments.summaries import lookup, mean_and_sd

METHOD = "PF-LD plug-in"
#: Lines of the picture; results of the moments engine are kept from when it was the default.
ENGINES = {method: name_of(method) for method in (METHOD, "PF-LD moments")}
DATASETS = ("income", "bank")
NOTIONS = ("demographic_parity", "equalized_odds")
EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
#: Where the picture shows training without privacy.
NONE_AT = 100.0


def cells(*, quick: bool) -> list[Cell]:
    """Five folds at every epsilon; quick: two folds of Bank at three of them."""
    return with_recipes(
        [
            Cell("price", dataset, notion, METHOD, fold, epsilon=epsilon)
            for dataset in (("bank",) if quick else DATASETS)
            for notion in NOTIONS
            for epsilon in ((0.05, 1.0, math.inf) if quick else (*EPSILONS, math.inf))
            for fold in range(2 if quick else FOLDS)
        ]
    )


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the folds."""
    return mean_and_sd(results, ["method", "dataset", "notion", "epsilon"], ["accuracy", "violation"])


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw accuracy and violation over epsilon; return the data."""
    table = summarise(results)
    table["panel"] = [f"{name_of(row.dataset)},\n{name_of(row.notion)}" for row in table.itertuples()]
    table["engine"] = table["method"].map(ENGINES)
    drawn = table.assign(epsilon=table["epsilon"].replace(math.inf, NONE_AT))
    figure = grid(
        drawn,
        columns="panel",
        rows=("accuracy", "violation"),
        x="epsilon",
        by="engine",
        order=tuple(ENGINES.values()),
        legend_title=f"mean of five folds, bars: one standard deviation; at {NONE_AT:g}: no privacy",
    )
    save(figure, table.drop(columns=["panel", "engine"]), folder / "figures", "price")
    return summarise(results).round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """From which epsilon on accuracy and violation are those without privacy, up to one standard deviation."""
    table = summarise(results[results["method"] == METHOD])
    numbers, at_one = [], []
    for (dataset, notion), part in table.groupby(["dataset", "notion"], sort=False):
        free = {name: lookup(part, name, epsilon=math.inf) for name in part if name.endswith(("_mean", "_sd"))}
        if free["accuracy_mean"] is None:
            continue
        near = [e for e in sorted(part["epsilon"]) if not math.isinf(e) and _near(part, e, free)]
        first = next((e for e in near if all(f in near for f in part["epsilon"] if e <= f < math.inf)), None)
        numbers.append(f"{name_of(str(dataset))} {name_of(str(notion))} {'none' if first is None else f'{first:g}'}")
        at_one.append(first is not None and first <= 1.0)
    sentence = "From epsilon 1 on, accuracy and violation are within one standard deviation of those without privacy."
    return [Claim(sentence, all(at_one), f"smallest such epsilon: {'; '.join(numbers)}")] if numbers else []


def _near(part: pd.DataFrame, epsilon: float, free: dict[str, float | None]) -> bool:
    here = {name: lookup(part, name, epsilon=epsilon) or 0.0 for name in free}
    return all(
        abs(here[f"{name}_mean"] - (free[f"{name}_mean"] or 0.0)) <= max(here[f"{name}_sd"], free[f"{name}_sd"] or 0.0)
        for name in ("accuracy", "violation")
    )


PRICE = Experiment("price", cells, publish, ("price",), claims)
