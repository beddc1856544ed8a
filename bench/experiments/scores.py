"""Scores that agree and decisions that do not: what PF-LD as printed makes equal, on inner splits of training rows.

With h read as the score, the constraint holds the means of scores together. A violation is counted on decisions, which
are made where the score is 0. Both are measured on held-out rows, at several epsilons and without noise.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import MEASURES, fitted, measures, prepared, with_recipes
from bench.experiments.runner import Cell
from bench.experiments.summaries import lookup, mean_and_sd

#: Inner folds.
FITS = {"bank": 2, "compas": 2, "income": 1}
NOTION, SHUFFLE = "demographic_parity", 7
PRINTED, WITHOUT_NOISE = "PF-LD printed", "F-LD"
EPSILONS = (0.25, 1.0, 4.0)
#: Multipliers that stay 0: the same network and schedule without a constraint.
FREE = {"lambda_max": 0.0}
NO_CONSTRAINT = "no constraint"


def cells(*, quick: bool) -> list[Cell]:
    """Three budgets, no noise, and no constraint; quick: one budget on one inner fold of Bank."""
    kinds = [(PRINTED, epsilon, {}) for epsilon in EPSILONS]
    kinds += [(WITHOUT_NOISE, math.inf, settings) for settings in ({}, FREE)]
    return with_recipes(
        [
            Cell("scores", dataset, NOTION, method, fold, SHUFFLE, epsilon, "inner", settings)
            for dataset, folds in ({"bank": 1} if quick else FITS).items()
            for method, epsilon, settings in (kinds[1:2] if quick else kinds)
            for fold in range(folds)
        ]
    )


def work(cell: Cell) -> dict[str, float]:
    """Accuracy and violation; the largest difference between mean scores of two groups, and the spread of scores."""
    data, _, found = fitted(cell)
    _, _, test = prepared(cell)
    scores = pd.Series(found["model"].decision_function(data.X.iloc[test]))
    means = scores.groupby(data.sensitive.iloc[test].to_numpy()).mean()
    return measures(found) | {"score_gap": float(means.max() - means.min()), "score_sd": float(scores.std())}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Means by dataset, whether there is a constraint, and epsilon."""
    labelled = results.assign(kind=[_kind(row) for _, row in results.iterrows()])
    columns = ["accuracy", "violation", "score_gap", "score_sd"]
    table = mean_and_sd(labelled, ["dataset", "kind", "epsilon"], columns)
    return table.sort_values(["dataset", "kind"]).reset_index(drop=True)


def _kind(row: Any) -> str:
    if row["method"] == PRINTED:
        return f"PF-LD as published, ε = {row['epsilon']:g}"
    return NO_CONSTRAINT if json.loads(row["settings"]) else WITHOUT_NOISE


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The means."""
    del folder
    return summarise(results).round(3).to_string(index=False)


def markdown(results: pd.DataFrame) -> str:
    """One line per dataset and method."""
    lines = [
        "| data | method | accuracy | violation | difference of mean scores | standard deviation of scores |",
        "|---|---|" + "---:|" * 4,
    ]
    for _, row in summarise(results).iterrows():
        numbers = [f"{row[f'{name}_mean']:.3f}" for name in ("accuracy", "violation")]
        numbers += [f"{row[f'{name}_mean']:.2f}" for name in ("score_gap", "score_sd")]
        lines.append(f"| {name_of(row['dataset'])} | {row['kind']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def claims(results: pd.DataFrame) -> list[Claim]:
    """Whether decisions come together as much as scores do."""
    table, found = summarise(results), []
    for dataset in FITS:
        ends = [{"dataset": dataset, "kind": kind} for kind in (NO_CONSTRAINT, WITHOUT_NOISE)]
        scores, rates = ([lookup(table, f"{name}_mean", **end) for end in ends] for name in ("score_gap", "violation"))
        if None in (*scores, *rates):
            continue
        shares = [1 - float(pair[1] or 0) / float(pair[0] or 1) for pair in (scores, rates)]
        numbers = (
            f"without noise, mean scores differ by {shares[0]:.0%} less and decision rates by {shares[1]:.0%} less"
        )
        sentence = f"The difference of decision rates falls as much as that of mean scores ({name_of(dataset)})."
        found.append(Claim(sentence, shares[1] > shares[0] - 0.2, numbers))
    return found


SCORES = Experiment(
    "scores", cells, publish, (), claims, work=work, table=markdown, measures=(*MEASURES, "score_gap", "score_sd")
)
