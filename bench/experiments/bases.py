"""Evidence for the default base: how many models are deployed, and the learning rate, on inner splits of training rows.

On every inner fold the base is learned with each learning rate, and deployed as the mean of the five cross-fitted
models and as one model of all rows. Both are measured alone, and below the default engine at epsilon 1 with the same
noise, for two notions. Differences are paired: they are taken fold by fold.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.folds import dataset, rows_of
from bench.experiments.methods import recipe
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier
from justitia.datasets import make_synthetic
from justitia.learners.base import Base, Inputs
from justitia.learners.lightgbm_base import BaseSize, LightGBMBase
from justitia.metrics.exact import violation
from justitia.preprocessing.encoding import TabularEncoder

Array = NDArray[np.float64]
SYNTHETIC = "synthetic"
#: Dataset, training rows (None: all of them), inner folds.
PLACES: tuple[tuple[str, int | None, int], ...] = (
    ("communities", None, 4),
    ("compas", None, 4),
    (SYNTHETIC, 4_000, 4),
    ("bank", None, 4),
    ("income", None, 2),
    (SYNTHETIC, 40_000, 2),
    (SYNTHETIC, 110_000, 2),
    ("census", 40_000, 2),
)
#: Learning rate and trees at most.
RATES = ((0.06, 300), (0.12, 150))
NOTIONS = {"demographic_parity": "dp", "equalized_odds": "eo"}
DEPLOYED = ("mean", "one")
#: Of each deployed form of the base.
NUMBERS = (
    "accuracy",
    "auc",
    "loss",
    *(f"{short}_{what}" for short in NOTIONS.values() for what in ("accuracy", "violation")),
)
MEASURES = ("rows", "trees", "seconds", *(f"{form}_{name}" for form in DEPLOYED for name in NUMBERS))
#: Shuffle that makes the inner folds, and test rows of the drawn people.
SEED, DRAWN_TEST = 7, 20_000


def cells(*, quick: bool) -> list[Cell]:
    """Every rate on every inner fold; quick: two folds of Compas."""
    places = (("compas", None, 2),) if quick else PLACES
    found = []
    for name, rows, folds in places:
        for rate, _ in RATES:
            for fold in range(folds):
                cell = Cell("bases", name, "two notions", "PF-LD plug-in", fold, SEED, 1.0, "inner")
                settings = {"learning_rate": rate, "rows": rows}
                found.append(replace(cell, settings=settings, recipe=recipe(cell)))
    return found


@dataclass(frozen=True, eq=False)
class Rows:
    """Features, labels and groups of some rows."""

    X: Any
    y: Any
    groups: Any

    @classmethod
    def of(cls, data: Any, index: Any) -> Rows:
        """Rows of a dataset."""
        return cls(data.X.iloc[index], data.y.iloc[index], data.sensitive.iloc[index])


def rows_at(cell: Cell) -> tuple[Rows, Rows, Any]:
    """Training rows and inner test rows of a cell, and the names of the groups."""
    most = cell.settings["rows"]
    if cell.dataset == SYNTHETIC:
        data = make_synthetic(most + DRAWN_TEST, n_features=10, random_state=cell.fold)
        order = np.random.default_rng(cell.fold).permutation(len(data.y))  # people are drawn group by group
        return Rows.of(data, order[:most]), Rows.of(data, order[most:]), data.groups
    known = dataset(cell.dataset)
    if cell.dataset == "communities":  # its target is a number
        known = replace(known, y=(known.y > known.y.median()).astype(int))
    train, test = rows_of(cell, known)
    if most is not None:
        train = np.random.default_rng(cell.fold).permutation(train)[:most]
    return Rows.of(known, train), Rows.of(known, test), known.groups


class Learned(Base):
    """A base that has learned already; its out-of-fold predictions are kept for further fits of the same rows."""

    def __init__(self, base: LightGBMBase, out_of_fold: Array) -> None:
        self.base, self.out_of_fold = base, out_of_fold

    def learn(self, inputs: Inputs, y: Array, weight: Array, **_: Any) -> Array:  # noqa: ARG002 - learned before
        """Out-of-fold predictions, as they were."""
        return self.out_of_fold.copy()

    def predict(self, inputs: Inputs) -> Array:
        """By the deployed models."""
        return self.base.predict(inputs)

    def describe(self) -> str:
        """As the base."""
        return self.base.describe()


def measure_base(cell: Cell) -> dict[str, Any]:
    """Learn once; measure both deployed forms alone and corrected."""
    train, test, groups = rows_at(cell)
    rate = float(cell.settings["learning_rate"])
    encoder = TabularEncoder().fit(train.X)
    inputs, new = (Inputs(rows.X, encoder.transform(rows.X)) for rows in (train, test))
    _, labels = np.unique(np.asarray(train.y), return_inverse=True)
    y, weight = labels.astype(np.float64), np.ones(len(labels))
    truth = (np.asarray(test.y) == np.unique(np.asarray(train.y))[1]).astype(int)
    size = replace(BaseSize.for_rows(len(y)), learning_rate=rate, most_trees=dict(RATES)[rate], one_model=False)
    mean, begun = LightGBMBase(len(y), size=size), time.process_time()
    out_of_fold = mean.learn(inputs, y, weight, seed=cell.fold, progress=lambda _: None)
    seconds = time.process_time() - begun
    one, trees = copy.copy(mean), len(mean.models[0].trees.trees)
    one.models = (one.refitted(one.binned(inputs, y, weight), trees),)
    found: dict[str, Any] = {"rows": len(y), "trees": trees, "seconds": round(seconds, 2)}
    for form, base in zip(DEPLOYED, (mean, one), strict=True):
        score = base.predict(new)
        found[f"{form}_accuracy"] = float(np.mean((score > 0.5) == truth))
        found[f"{form}_auc"] = float(roc_auc_score(truth, score))
        found[f"{form}_loss"] = float(log_loss(truth, score))
        for notion, short in NOTIONS.items():
            accuracy, violated = _corrected(notion, Learned(base, out_of_fold), train, test, groups, cell.fold)
            found[f"{form}_{short}_accuracy"], found[f"{form}_{short}_violation"] = accuracy, violated
    return found


def _corrected(notion: str, base: Base, train: Rows, test: Rows, groups: Any, seed: int) -> tuple[float, float]:
    """Accuracy and exact violation on the inner test rows."""
    model = LagrangianDualClassifier(notion, epsilon=1.0, groups=groups, base=base, random_state=seed, noise_seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(train.X, train.y, sensitive_features=train.groups)
    predicted, truth = model.predict(test.X), np.asarray(test.y)
    violated = violation(truth, predicted, sensitive_features=test.groups, notion=notion, groups=groups)
    return float(np.mean(predicted == truth)), float(violated)


def compared(results: pd.DataFrame) -> pd.DataFrame:
    """One row per place and change: mean and standard error, over folds, of the paired difference of every number.

    The changes are one model instead of the mean, with the smaller learning rate, and the larger learning rate instead
    of the smaller, each with the form that is deployed by default at that many rows.
    """
    slow, fast = (rate for rate, _ in RATES)
    named = results.assign(rate=setting(results, "learning_rate"), most=setting(results, "rows"))
    rows = []
    for (name, _), part in named.groupby(["dataset", "most"], sort=False, dropna=False):
        at = {rate: part[part["rate"] == rate].set_index("fold").sort_index() for rate in (slow, fast)}
        n = int(part["rows"].iloc[0])
        form = "one" if BaseSize.for_rows(n).one_model else "mean"
        changes = {"one model": (at[slow], "one", at[slow], "mean")}
        if len(at[fast]) == len(at[slow]):
            changes[f"learning rate {fast}"] = (at[fast], form, at[slow], form)
        for change, (new, new_form, old, old_form) in changes.items():
            row: dict[str, Any] = {"dataset": name, "rows": n, "folds": len(new), "change": change}
            for number in NUMBERS:
                difference = new[f"{new_form}_{number}"].to_numpy() - old[f"{old_form}_{number}"].to_numpy()
                row[number] = difference.mean()
                row[f"{number}_se"] = (
                    difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
                )
            rows.append(row | {"seconds": new["seconds"].mean() / old["seconds"].mean()})
    return pd.DataFrame(rows).sort_values(["change", "rows"], kind="stable").reset_index(drop=True)


HEADS = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "dp_accuracy": "accuracy, parity",
    "dp_violation": "violation, parity",
    "eo_accuracy": "accuracy, odds",
    "eo_violation": "violation, odds",
}


def markdown(results: pd.DataFrame) -> str:
    """The table for the page: paired differences with their standard errors."""
    lines = [
        f"| change | dataset, training rows | folds | {' | '.join(HEADS.values())} | time to learn |",
        "|---|---|---:|" + "---:|" * (len(HEADS) + 1),
    ]
    for row in compared(results).to_dict("records"):
        entries = [_with_error(row[name], row[f"{name}_se"]) for name in HEADS]
        place = f"{name_of(str(row['dataset']))}, {row['rows']:,}"
        taken = "" if row["change"] == "one model" else f"x {row['seconds']:.2f}"
        lines.append(f"| {row['change']} | {place} | {row['folds']} | {' | '.join(entries)} | {taken} |")
    return "\n".join(lines)


def _with_error(value: float, error: float) -> str:
    return f"{value:+.4f}" if math.isnan(error) else f"{value:+.4f} ({error:.4f})"


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the table as Markdown; return the means for the terminal."""
    text = markdown(results)
    (folder / "bases.md").write_text(text + "\n", encoding="utf-8")
    return text


BASES = Experiment("bases", cells, publish, work=measure_base, measures=MEASURES, table=markdown)
