"""Pareto view: every method swept over its own trade-off knob at epsilon 1, dominated points greyed."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from bench.experiments.draw import STYLE, legend, name_of, panels, save, styles
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, with_recipes
from bench.experiments.methods import METHODS, applies
from bench.experiments.runner import Cell
from bench.experiments.summaries import dominated, mean_and_sd

SWEPT = ("CLF", "Z", "A", "A-net", "M", "F-LD", "PF-LD printed", "PF-LD repaired")
#: A reduction over networks fits dozens of them: on one small dataset only.
TOO_SLOW = {("A-net", "income"), ("A-net", "compas")}
DATASETS = ("bank", "income", "compas")
FOLDS_OF = {"bank": FOLDS, "income": 3, "compas": FOLDS}
#: Two folds of the methods with the longest fits.
SLOW, SLOW_FOLDS = ("F-LD", "PF-LD printed"), 2
NOTIONS = ("demographic_parity",)


def cells(*, quick: bool) -> list[Cell]:
    """Five folds per value of each knob, or fewer (above); quick: two of three values on Bank, fast methods only."""
    methods = ("CLF", "A", "M", "PF-LD repaired") if quick else SWEPT
    return with_recipes(
        [
            Cell(
                "pareto",
                dataset,
                notion,
                method,
                fold,
                epsilon=1.0 if METHODS[method].private else math.inf,
                settings=settings,
            )
            for dataset in (DATASETS[:1] if quick else DATASETS)
            for notion in NOTIONS
            for method in methods
            if applies(method, dataset, notion) and (method, dataset) not in TOO_SLOW
            for settings in knob_settings(method, quick)
            for fold in range(2 if quick else SLOW_FOLDS if method in SLOW else FOLDS_OF[dataset])
        ]
    )


def knob_settings(method: str, quick: bool) -> list[dict[str, float]]:
    """The values of the method's own knob; one empty setting for a method without one."""
    values = METHODS[method].sweep[:: 2 if quick else 1]
    return [{METHODS[method].knob: value} for value in values] or [{}]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation per point, and whether another point is at least as good in both and better in one.

    Private methods are compared with private ones, methods that read the attribute among themselves.
    """
    table = mean_and_sd(results, ["dataset", "notion", "method", "settings"], ["accuracy", "violation"])
    table["private"] = [METHODS[method].private for method in table["method"]]
    table["dominated"] = False
    for _, part in table.groupby(["dataset", "notion", "private"]):
        shaded = dominated(part["accuracy_mean"].tolist(), part["violation_mean"].tolist())
        table.loc[part.index, "dominated"] = shaded
    return table


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw the figure; return its data."""
    table = summarise(results)
    datasets = [dataset for dataset in DATASETS if dataset in set(table["dataset"])]
    figure, axes = panels(1, len(datasets), width=3.2, height=2.8)
    style = styles(SWEPT)
    with mpl.rc_context(STYLE):
        for j, dataset in enumerate(datasets):
            ax = axes[0, j]
            for method, look in style.items():
                part = table[(table["dataset"] == dataset) & (table["method"] == method)]
                for shaded, points in part.groupby("dominated"):
                    ax.errorbar(
                        points["violation_mean"],
                        points["accuracy_mean"],
                        points["accuracy_sd"],
                        points["violation_sd"],
                        marker=look["marker"],
                        color="#c4c4c4" if shaded else look["color"],
                        linestyle="none",
                        elinewidth=0.5,
                        zorder=2 if shaded else 3,
                    )
                # For the legend alone, so that a method whose points are all dominated has an entry as well.
                ax.plot([], [], linestyle="none", marker=look["marker"], color=look["color"], label=name_of(method))
            ax.set_title(name_of(dataset))
            ax.set_xlabel("violation")
            ax.locator_params(axis="x", nbins=5)
        axes[0, 0].set_ylabel("accuracy")
        legend(figure, axes[0, 0], title="grey: dominated among private, or among non-private, methods")
    save(figure, table, folder / "figures", "pareto")
    return table.round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """The paper: PF-LD has the better trade-off of the private methods."""
    table = summarise(results)
    found = []
    for method in ("PF-LD printed", "PF-LD repaired"):
        part = table[table["method"] == method]
        if len(part) and (table["method"] == "M").any():
            rivals = table[(table["method"] == "M")]
            numbers = f"on the front: {_on_front(part)} of {name_of(method)}, {_on_front(rivals)} of M"
            better = (~part["dominated"]).mean() > (~rivals["dominated"]).mean()
            found.append(
                Claim(f"{name_of(method)} trades accuracy for violation better than M.", bool(better), numbers)
            )
    return found


def _on_front(part: pd.DataFrame) -> str:
    return f"{int((~part['dominated']).sum())} of {len(part)} points"


PARETO = Experiment("pareto", cells, publish, ("pareto",), claims)
