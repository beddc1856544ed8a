"""How settings were chosen: eight (or six) candidates per method on inner splits of training rows, never on test rows.

The training rows of the first fold of Bank and Income are split into four inner folds; each candidate is fitted at
epsilon 1 on three of them and measured on the fourth (all four on Bank, two on Income). The candidate with the largest
mean of accuracy minus violation, averaged over both datasets, is used for every dataset and notion. CLF is no rival but
the yardstick: the paper does not say how long it was trained, so of eight lengths the one whose accuracy is nearest to
the printed ones is used, on inner folds of Bank, Income and Compas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import INNER_FOLDS, with_recipes
from bench.experiments.methods import METHODS, recipe
from bench.experiments.paper import printed
from bench.experiments.runner import Cell
from bench.experiments.summaries import mean_and_sd

SLACKS = [{"difference_bound": bound} for bound in (0.01, 0.002, 0.005, 0.02, 0.03, 0.05, 0.08, 0.12)]

#: Eight candidates each, six of methods the paper does not print, the library's default first. PF-LD as printed is a
#: reproduction: ``steps`` has its choice.
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "CLF": [{"epochs": 30}, *({"steps": steps} for steps in (50, 100, 150, 200, 300, 500, 1000))],
    "Z": [{"bound": bound, "l2": l2} for l2 in (1e-5, 1e-3, 1e-2, 1e-1) for bound in (0.0, 0.02)],
    "A": SLACKS,
    "M": [
        *({"difference_bound": bound, "halves": True, "not_given": False} for bound in (0.02, 0.05)),
        *(
            {"difference_bound": bound, "halves": False, "noise_slack": slack, "not_given": False}
            for bound in (0.01, 0.02, 0.05)
            for slack in (0.0, 1.0)
        ),
    ],
    "DP-FERMI": [{}, *({"strength": strength} for strength in (5.0, 10.0, 20.0, 50.0, 100.0))],
    "RaCO-DP": [
        {},
        {"slack": 0.0},
        {"slack": 0.03},
        {"dual_step": 0.3},
        {"decisions": "hard"},
        {"temperature": 3.0},
    ],
    "PF-LD repaired": [
        {},
        {"averaging": 0.01},
        {"memory": 0.9},
        {"share_violations": 0.30, "share_gradients": 0.66},
        {"public_steps": 20},
        {"dual_step": 0.4},
        {"warmup_steps": 400},
        {"batch_size": 256},
    ],
}
NOTION = "demographic_parity"


#: Inner folds that are used; Compas serves the yardstick alone.
FITS = {"bank": INNER_FOLDS, "income": 2, "compas": INNER_FOLDS}
SHUFFLE = 7


def cells(*, quick: bool) -> list[Cell]:
    """Every candidate on the inner folds; quick: two candidates each, one inner fold of Bank."""
    return with_recipes(
        [
            Cell(
                "choose",
                dataset,
                NOTION,
                method,
                fold,
                SHUFFLE,
                1.0 if METHODS[method].private else math.inf,
                "inner",
                candidate,
            )
            for dataset, folds in ({"bank": 1} if quick else FITS).items()
            for method, candidates in CANDIDATES.items()
            if dataset != "compas" or method == "CLF"
            for candidate in candidates[: 2 if quick else None]
            for fold in range(folds)
        ]
    )


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row per candidate: means over both datasets, the rule's value, and whether the rule picks it."""
    known = results[results["method"].isin(CANDIDATES)]
    each = mean_and_sd(known, ["method", "notion", "settings", "dataset"], ["accuracy", "violation"])
    each["value"] = [_value(row) for _, row in each.iterrows()]
    table = mean_and_sd(each, ["method", "notion", "settings"], ["accuracy_mean", "violation_mean", "value"])
    names = {"accuracy_mean_mean": "accuracy", "violation_mean_mean": "violation", "value_mean": "value"}
    table = table.rename(columns=names)
    table["chosen"] = table["value"] == table.groupby(["method", "notion"])["value"].transform("max")
    return table[["method", "notion", "settings", "accuracy", "violation", "value", "chosen"]]


def _value(row: Any) -> float:
    """What the rule maximises: accuracy minus violation; for CLF, nearness to the printed accuracy."""
    paper = printed(row["dataset"], NOTION, "CLF") if row["method"] == "CLF" else None
    accuracy = float(row["accuracy_mean"])
    return accuracy - float(row["violation_mean"]) if paper is None else -abs(accuracy - paper.accuracy)


def _recipe(method: str, settings: Mapping[str, Any]) -> str:
    """The estimator with these settings, in which a default that is spelt out makes no difference."""
    return recipe(Cell("choose", "bank", NOTION, method, 0, split="inner", settings=settings))


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the means of all candidates; return them."""
    table = summarise(results)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "figures" / "choose.csv", index=False, lineterminator="\n", float_format="%.6g")
    return table.round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """That the settings in use are those the rule picks."""
    found = []
    for row in summarise(results).itertuples():
        entry: Any = row
        if entry.chosen:
            used, picked = dict(METHODS[entry.method].settings), json.loads(entry.settings)
            same = _recipe(entry.method, used) == _recipe(entry.method, used | picked)
            text = ", ".join(f"{name} {value}" for name, value in picked.items()) or "the defaults"
            numbers = f"the rule picks {text}, with accuracy {entry.accuracy:.3f} and violation {entry.violation:.3f}"
            found.append(Claim(f"{entry.method} runs with the settings of the rule.", same, numbers))
    return found


CHOOSE = Experiment("choose", cells, publish, (), claims, methods=tuple(CANDIDATES))

if __name__ == "__main__":
    raise SystemExit(import_module("bench.experiments.__main__").main(["choose"]))
