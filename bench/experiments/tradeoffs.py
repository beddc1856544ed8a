"""Figure "tradeoffs": accuracy and violation against epsilon for PF-LD and Mozannar on five datasets."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bench.experiments.draw import grid, name_of, save
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, with_recipes
from bench.experiments.paper import DATASETS
from bench.experiments.runner import Cell
from bench.experiments.summaries import clearly_less, lookup, mean_and_sd

METHODS = ("PF-LD repaired", "PF-LD printed", "M")
EPSILONS = {"PF-LD repaired": (0.25, 0.5, 1.0, 4.0), "PF-LD printed": (0.25, 1.0, 4.0), "M": (0.25, 0.5, 1.0, 4.0)}
#: Ten runs: two shuffles of five folds, each with fresh weights and noise; the printed method has the first five
#: and three of four budgets.
SHUFFLES = {"PF-LD repaired": 2, "PF-LD printed": 1, "M": 2}
#: Two folds of the printed method on Income, whose fits are the longest.
FEWER = {("income", "PF-LD printed"): 2}


def cells(*, quick: bool) -> list[Cell]:
    """Ten runs at each epsilon, fewer of the slow printed method; quick: two on two datasets, without it."""
    datasets = ("bank", "compas") if quick else DATASETS
    methods = ("PF-LD repaired", "M") if quick else METHODS
    return with_recipes(
        [
            Cell("tradeoffs", dataset, "demographic_parity", method, fold, seed, epsilon)
            for dataset in datasets
            for method in methods
            for epsilon in ((0.5, 4.0) if quick else EPSILONS[method])
            for seed in range(1 if quick else SHUFFLES[method])
            for fold in range(2 if quick else FEWER.get((dataset, method), FOLDS))
        ]
    )


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the runs."""
    table = mean_and_sd(results, ["dataset", "method", "epsilon"], ["accuracy", "violation"])
    order = table["dataset"].map(DATASETS.index)
    return table.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw the figure; return its data."""
    table = summarise(results)
    figure = grid(
        table,
        columns="dataset",
        rows=("accuracy", "violation"),
        x="epsilon",
        by="method",
        order=METHODS,
        legend_title="mean of the runs, bars: one standard deviation",
    )
    save(figure, table, folder / "figures", "tradeoffs")
    return table.round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """Violation and accuracy at the smallest and the largest epsilon; spread beside Mozannar's."""
    table = summarise(results)
    found = []
    for method in METHODS:
        found += _fall(table, method, "violation", f"The violation of {name_of(method)} falls as epsilon grows.")
        found += _fall(table, method, "accuracy", f"The accuracy of {name_of(method)} falls slightly as epsilon grows.")
    for method in METHODS[:2]:
        found += _steadier(table, method)
    return found


def _fall(table: pd.DataFrame, method: str, measure: str, sentence: str) -> list[Claim]:
    """Whether the measure is clearly lower at the largest epsilon than at the smallest, on every dataset."""
    low, high = table["epsilon"].min(), table["epsilon"].max()
    falls, numbers = [], []
    for dataset in dict.fromkeys(table["dataset"]):
        ends = [lookup(table, f"{measure}_mean", dataset=dataset, method=method, epsilon=e) for e in (low, high)]
        if ends[0] is not None and ends[1] is not None:
            at = [{"dataset": dataset, "method": method, "epsilon": epsilon} for epsilon in (high, low)]
            falls.append(clearly_less(table, measure, *at))
            but = "" if falls[-1] else " (not clearly)"
            numbers.append(f"{name_of(str(dataset))} {ends[0]:.3f} to {ends[1]:.3f}{but}")
    text = f"from epsilon {low:g} to {high:g}: {'; '.join(numbers)}"
    return [Claim(sentence, all(falls), text)] if falls else []


def _steadier(table: pd.DataFrame, method: str) -> list[Claim]:
    """Whether the runs spread less than Mozannar's, averaged over datasets and budgets."""
    names = ["accuracy_sd", "violation_sd"]
    means = table.groupby("method")[names].mean().reset_index()
    if not {method, "M"} <= set(means["method"]):
        return []
    ours, rival = ([lookup(means, name, method=one) or 0.0 for name in names] for one in (method, "M"))
    numbers = f"mean standard deviation of accuracy {ours[0]:.3f} against {rival[0]:.3f}"
    numbers += f", of violation {ours[1]:.3f} against {rival[1]:.3f}"
    return [
        Claim(f"{name_of(method)} varies less between runs than M.", ours[0] < rival[0] and ours[1] < rival[1], numbers)
    ]


TRADEOFFS = Experiment("tradeoffs", cells, publish, ("tradeoffs",), claims)
