"""Figure "missing values": 0, 20, 40 and 60 per cent of the training rows' attributes not given, on Bank."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd

from bench.experiments.draw import grid, name_of, save
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, with_recipes
from bench.experiments.runner import Cell
from bench.experiments.summaries import clearly_less, listed, lookup, mean_and_sd, setting

METHODS = ("PF-LD repaired", "PF-LD printed")
SHARES = (0.0, 0.2, 0.4, 0.6)
EPSILONS = {"PF-LD repaired": (0.5, 1.0, 4.0), "PF-LD printed": (1.0, 4.0)}
#: Shuffles of five folds.
SHUFFLES = {"PF-LD repaired": 2, "PF-LD printed": 1}


def cells(*, quick: bool) -> list[Cell]:
    """Ten runs per share and epsilon, five of the printed method; quick: two runs with nothing and most missing."""
    return with_recipes(
        [
            Cell("missing", "bank", "demographic_parity", method, fold, seed, epsilon, settings={"missing": share})
            for method in (METHODS[:1] if quick else METHODS)
            for share in ((0.0, 0.6) if quick else SHARES)
            for epsilon in ((1.0, 4.0) if quick else EPSILONS[method])
            for seed in range(1 if quick else SHUFFLES[method])
            for fold in range(2 if quick else FOLDS)
        ]
    )


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the runs, by share of missing attributes."""
    labelled = results.assign(missing=[f"{100 * share:.0f}%" for share in setting(results, "missing")])
    return mean_and_sd(labelled, ["method", "missing", "epsilon"], ["accuracy", "violation"])


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw the figure; return its data."""
    table = summarise(results)
    figure = grid(
        table,
        columns="method",
        rows=("accuracy", "violation"),
        x="epsilon",
        by="missing",
        order=[f"{100 * share:.0f}%" for share in SHARES],
        legend_title="attributes not given in training",
    )
    save(figure, table, folder / "figures", "missing")
    return table.round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """The paper: the fewer values are missing, the smaller the violation."""
    table = summarise(results)
    found = []
    for method in METHODS:
        for epsilon in (1.0, 4.0):
            shares = [f"{100 * share:.0f}%" for share in SHARES]
            at = {one: lookup(table, "violation_mean", method=method, missing=one, epsilon=epsilon) for one in shares}
            known = {one: value for one, value in at.items() if value is not None}
            if len(known) > 1:
                values = list(known.values())
                ends = [{"method": method, "missing": one, "epsilon": epsilon} for one in (shares[0], shares[-1])]
                rising = all(a <= b for a, b in pairwise(values)) and clearly_less(table, "violation", *ends)
                sentence = f"Fewer missing values, smaller violation ({name_of(method)}, epsilon {epsilon:g})."
                found.append(Claim(sentence, rising, f"with {', '.join(known)} missing: {listed(values)}"))
    return found


MISSING = Experiment("missing", cells, publish, ("missing",), claims)
