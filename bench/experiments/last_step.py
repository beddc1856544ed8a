"""Evidence for the default tolerance, on inner splits of training rows: whether to stop before the last step.

A step from the default tolerance to a multiple of it is chosen by what users can see: the price list says that accuracy
out of fold rises by more than some points. What the step gives on held-out rows is measured with paired noise. A rule
replaces the default if accuracy rises by more than one standard error and the violation does not, as means over places.

The same fits hold the violations of the price list against the exact ones of the training rows. These are numbers for
research, not private.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.folds import FOLDS, dataset
from bench.experiments.memory import SharedBase
from bench.experiments.runner import Cell
from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.datasets import Dataset, make_synthetic
from justitia.datasets.dataset import Index
from justitia.metrics.exact import violation
from justitia.privacy.attribute import Attribute
from justitia.training.diagnostics import decided

#: Places; the last is drawn rows, and a number becomes the label of being above its median.
PLACES = ("bank", "compas", "income", "communities", "narrow")
NOTIONS = ("demographic_parity", "equalized_odds")
EPSILONS = (1.0, 0.25)
MOST_ROWS, INNER_FOLDS, FOLDS_USED, SEED = 10_000, 3, 2, 7
#: Draws of the noise for each fit, the same for all tolerances.
DRAWS = 3
#: Tolerances beside the default, as multiples of it: the default is one standard error of a violation.
MULTIPLES = (1.0, 1.5, 2.0, 3.0)
#: Points of accuracy that a step has to cost before it is left out.
POINTS = (0.0, 0.2, 0.5, 1.0, 2.0)
DELTA = 1e-5
MEASURES = ("fits", "seconds")


def cells(*, quick: bool) -> list[Cell]:
    """Every place, notion and budget; quick: one of Compas."""
    found = [
        Cell("last_step", place, notion, "PF-LD plug-in", fold, SEED, epsilon, "inner", recipe="first edition")
        for place in PLACES
        for notion in NOTIONS
        for epsilon in EPSILONS
        for fold in range(FOLDS_USED)
    ]
    return [one for one in found if one.dataset == "compas"][:1] if quick else found


@cache
def rows_at(place: str) -> Dataset:
    """Training rows of the first fold, at most so many, or drawn rows."""
    if place == "narrow":
        return make_synthetic(4_000, shares=(0.35, 0.65), disparity=0.3, n_features=10, random_state=0)
    data = dataset(place)
    outer, _ = next(iter(data.folds(FOLDS)))
    kept = np.sort(np.random.default_rng(0).permutation(outer)[:MOST_ROWS])
    X, y, group = (part.iloc[kept].reset_index(drop=True) for part in (data.X, data.y, data.sensitive))
    if place == "communities":
        y = (y > y.median()).astype(int)
    return replace(data, X=X, y=y, sensitive=group, task="binary")


def work(cell: Cell) -> dict[str, Any]:
    """All draws of the noise, each with every multiple of the default tolerance, on inner rows."""
    data = rows_at(cell.dataset)
    train, test = list(data.folds(INNER_FOLDS, seed=cell.seed))[cell.fold]
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fits = list(_fits(cell, data, train, test))
    return {"fits": json.dumps(fits), "seconds": round(time.perf_counter() - start, 2)}


def _fits(cell: Cell, data: Dataset, train: Index, test: Index) -> Iterator[dict[str, Any]]:
    base: Any = SharedBase((cell.dataset, cell.seed, cell.fold))
    model = LagrangianDualClassifier(
        cell.notion,
        epsilon=cell.epsilon,
        delta=DELTA,
        groups=data.groups,
        base=base,
        random_state=cell.seed,
        noise_seed=0,
        progress=False,
    )
    groups = data.sensitive.iloc[train]
    session = model._open(data.X.iloc[train], data.y.iloc[train], Attribute.from_container(groups))
    new = model._inputs(data.X.iloc[test])

    def exact(decisions: NDArray[Any], rows: Index) -> float:
        truth, whose = data.y.iloc[rows].to_numpy(), data.sensitive.iloc[rows]
        given = data.y.unique()[0].dtype.type
        return violation(
            truth, decisions.astype(given), sensitive_features=whose, notion=cell.notion, groups=data.groups
        )

    for draw in range(DRAWS):
        ledger = PrivacyLedger(epsilon=cell.epsilon, delta=DELTA)
        here = session.repeated(Attribute.from_container(groups), person=None, ledger=ledger, noise_seed=draw)
        lam = here.train().lam
        run: Any = here.run
        listed = run.price()
        found: dict[str, Any] = {"tolerance": run.tolerance, "points": []}
        found["base"] = [
            listed["accuracy"][0],
            listed["violation"][0],
            listed["violation_stderr"][0],
            exact(decided(run.base_scores()), train),
        ]
        for multiple in MULTIPLES:
            point = session.follow(here, multiple * run.tolerance)
            point.train(start=lam)
            row = point.run.priced_row(run._points, point.run.scores(), multiple * run.tolerance, corrected=True)
            predicted = decided(point.run.fitted().margin(new))
            found["points"].append(
                [
                    row["accuracy"],
                    row["violation"],
                    row["violation_stderr"],
                    exact(decided(point.run.scores()), train),
                    float(np.mean(predicted == data.y.iloc[test].to_numpy())),
                    exact(predicted, test),
                ]
            )
        yield found


def steps(results: pd.DataFrame) -> pd.DataFrame:
    """A row per fit and rule: what stopping earlier changes on held-out rows, 0 where it does not stop earlier."""
    rows = []
    for one in results.itertuples():
        for draw, fit in enumerate(json.loads(str(one.fits))):
            points = np.array(fit["points"])
            for most in MULTIPLES[1:]:
                for least in POINTS:
                    worth = (np.array(MULTIPLES) <= most) & (100 * (points[:, 0] - points[0, 0]) > least)
                    chosen = int(np.flatnonzero(worth).max(initial=0))
                    change = points[chosen] - points[0]
                    rows.append(
                        {
                            "dataset": one.dataset,
                            "notion": one.notion,
                            "epsilon": one.epsilon,
                            "fold": one.fold,
                            "draw": draw,
                            "most": most,
                            "least": least,
                            "used": chosen > 0,
                            "accuracy": change[4],
                            "violation": change[5],
                        }
                    )
    return pd.DataFrame(rows)


def rules(results: pd.DataFrame) -> pd.DataFrame:
    """A row per rule: mean change over places, with its standard error over places."""
    table = steps(results)
    each = table.groupby(["most", "least", "dataset", "notion", "epsilon"])[["used", "accuracy", "violation"]].mean()
    groups = each.groupby(["most", "least"])
    means, errors = groups.mean(), groups[["accuracy", "violation"]].sem(ddof=1)
    return means.join(errors.add_suffix("_error")).reset_index()


def truth(results: pd.DataFrame) -> pd.DataFrame:
    """Error of listed violations against the exact one of the training rows: of the base, and at each multiple."""
    rows = []
    for one in results.itertuples():
        for fit in json.loads(str(one.fits)):
            named = [("uncorrected", fit["base"]), *zip(map(str, MULTIPLES), fit["points"], strict=True)]
            for name, (_, listed, error, exact, *_rest) in named:
                rows.append({"row": name, "epsilon": one.epsilon, "off": abs(listed - exact), "error": error})
    table = pd.DataFrame(rows).assign(within=lambda t: t["off"] <= 2 * t["error"])
    return table.groupby(["row", "epsilon"], sort=False)[["off", "error", "within"]].mean().reset_index()


def markdown(results: pd.DataFrame) -> str:
    """The rules; then the places, for the rule that uses most; then the price list beside the truth."""
    lines = ["| tolerance at most | if the step costs more than | applied in | accuracy | violation |"]
    lines.append("|---|---:|---:|---:|---:|")
    lines += [
        f"| {row.most:g} x the default | {row.least:g} points | {row.used:.0%} | "
        f"{row.accuracy:+.4f} ± {row.accuracy_error:.4f} | {row.violation:+.4f} ± {row.violation_error:.4f} |"
        for row in rules(results).itertuples()
    ]
    part = steps(results)
    part = part[(part["most"] == 2.0) & (part["least"] == POINTS[2])]
    lines += ["", f"By dataset, at most 2 x and more than {POINTS[2]:g} points:", ""]
    lines += ["| data | ε | applied in | accuracy | violation |", "|---|---:|---:|---:|---:|"]
    for (name, notion, epsilon), rows in part.groupby(["dataset", "notion", "epsilon"], sort=False):
        means = rows[["used", "accuracy", "violation"]].astype(float).mean()
        place = "Synthetic" if name == "narrow" else name_of(str(name))
        lines.append(
            f"| {place}, {name_of(str(notion))} | {epsilon:g} | {means['used']:.0%} | {means['accuracy']:+.4f} | "
            f"{means['violation']:+.4f} |"
        )
    lines += ["", "Violations in the price list compared with the exact ones of the training rows:", ""]
    lines += [
        "| row | ε | mean error | mean standard error in the list | within two of them |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.row if row.row == 'uncorrected' else row.row + ' x the default'} | {row.epsilon:g} | {row.off:.4f} | "
        f"{row.error:.4f} | {row.within:.0%} |"
        for row in truth(results).itertuples()
    ]
    return "\n".join(lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write ``last_step.md``; return the rules for the terminal."""
    (folder / "last_step.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return f"{rules(results).round(4).to_string(index=False)}\n\n{truth(results).round(4).to_string(index=False)}"


LAST_STEP = Experiment("last_step", cells, publish, work=work, table=markdown, measures=MEASURES)
