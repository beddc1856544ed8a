"""Step sizes of the printed engine on inner splits of every dataset: which one comes nearest to the print, and why.

PF-LD as printed is a reproduction, so its step size is found as the length of CLF's training is: of five for scores
(three for losses), one for all datasets, the one nearest to the printed accuracies and violations on inner folds of
training rows. The same algorithm without noise (F-LD) stands beside it: what it does not reach, noise does not hide.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import MEASURES, fitted, measures, with_recipes
from bench.experiments.methods import METHODS
from bench.experiments.paper import DATASETS, NOTIONS, printed
from bench.experiments.runner import Cell
from bench.experiments.summaries import mean_and_sd
from justitia import PFLDAsPublishedPlan

#: s_k of Algorithm 1 for scores and for losses. The authors' public scripts have 0.007 to 0.01, and 0.02 to 0.5.
CANDIDATES = {"dual_step": (0.001, 0.003, 0.01, 0.03, 0.1), "loss_dual_step": (0.02, 0.1, 0.5)}
PRINTED, WITHOUT_NOISE = "PF-LD printed", "F-LD"
#: Where the algorithm without noise is run as well, and with which steps.
BESIDE, BESIDE_STEPS = ("bank", "compas", "income"), (0.003, 0.01, 0.1)
#: Inner folds; two where violations are small and noisy.
FITS = {"bank": 1, "income": 1, "compas": 2, "m_bank3": 1, "m_bank5": 1}
SHUFFLE = 7
HEADER = "| s_k | accuracy | violation | multipliers | distance to the published values | accuracy minus violation |"


def step_name(notion: str) -> str:
    """The setting that holds a notion's step: accuracy parity averages losses, the others scores."""
    return "loss_dual_step" if notion == "accuracy_parity" else "dual_step"


def cells(*, quick: bool) -> list[Cell]:
    """Every step on inner folds of every dataset and notion; quick: two steps on one inner fold of Bank."""
    places = [(dataset, notion) for dataset in DATASETS for notion in NOTIONS]
    wanted = [
        (PRINTED, dataset, notion, step) for dataset, notion in places for step in CANDIDATES[step_name(notion)]
    ] + [(WITHOUT_NOISE, dataset, "demographic_parity", step) for dataset in BESIDE for step in BESIDE_STEPS]
    if quick:
        wanted = [(PRINTED, "bank", "demographic_parity", step) for step in (0.003, 0.01)]
    return with_recipes(
        [
            Cell(
                "steps",
                dataset,
                notion,
                method,
                fold,
                SHUFFLE,
                1.0 if METHODS[method].private else math.inf,
                "inner",
                {step_name(notion): step},
            )
            for method, dataset, notion, step in wanted
            for fold in range(1 if quick else FITS[dataset])
        ]
    )


def work(cell: Cell) -> dict[str, float]:
    """Accuracy and violation, the largest multiplier at the end, and the largest noised violation of the first step."""
    _, _, found = fitted(cell)
    history = getattr(found["model"], "history_", None)
    if history is None:
        return measures(found) | {"multiplier": math.nan, "first_gap": math.nan}
    last = history.filter(like="multiplier[").iloc[-1].max()
    first = history.filter(like="noisy_gap[").dropna().iloc[0].max()
    return measures(found) | {"multiplier": float(last), "first_gap": float(first)}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Means by method, dataset, notion and step, and how far each is from the print."""
    labelled = results.assign(step=[next(iter(json.loads(text).values())) for text in results["settings"]])
    by, columns = ["method", "dataset", "notion", "step"], ["accuracy", "violation", "multiplier", "first_gap"]
    table = mean_and_sd(labelled, by, columns)
    table["away"] = [_away(row) for _, row in table.iterrows()]
    return table.sort_values(by).reset_index(drop=True)


def _away(row: Any) -> float:
    """Distance of accuracy plus distance of violation from the print."""
    paper = printed(row["dataset"], row["notion"], "PF-LD")
    if paper is None:
        return math.nan
    return abs(row["accuracy_mean"] - paper.accuracy) + abs(row["violation_mean"] - paper.violation)


def by_step(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """One row per step of the printed engine: means over all datasets and the notions that take this step."""
    part = table[(table["method"] == PRINTED) & (table["notion"].map(step_name) == kind)]
    columns = ["accuracy_mean", "violation_mean", "multiplier_mean", "away"]
    means = part.groupby("step")[columns].mean().reset_index()
    means.columns = pd.Index(["step", "accuracy", "violation", "multiplier", "away"])
    means["value"] = means["accuracy"] - means["violation"]
    return means


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the means; return them."""
    table = summarise(results)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "figures" / "steps.csv", index=False, lineterminator="\n", float_format="%.6g")
    return table.round(3).to_string(index=False)


def markdown(results: pd.DataFrame) -> str:
    """Means over all datasets by step: for scores, then for losses."""
    table, lines = summarise(results), [HEADER, "|" + "---:|" * 6]
    for kind, name in (("dual_step", "scores"), ("loss_dual_step", "losses")):
        for _, row in by_step(table, kind).iterrows():
            numbers = [f"{row[name]:.3f}" for name in ("accuracy", "violation", "multiplier", "away", "value")]
            lines.append(f"| {row['step']:g} ({name}) | {' | '.join(numbers)} |")
    return "\n".join(lines)


def claims(results: pd.DataFrame) -> list[Claim]:
    """That the steps in use are those nearest to the print; what the same steps do without noise."""
    table = summarise(results)
    found = [claim for kind in CANDIDATES for claim in _nearest(by_step(table, kind), kind)]
    return [*found, *_without_noise(table)]


def _nearest(means: pd.DataFrame, kind: str) -> list[Claim]:
    if means.empty:
        return []
    nearest, best = (means.loc[index] for index in (means["away"].idxmin(), means["value"].idxmax()))
    same = bool(getattr(PFLDAsPublishedPlan(), kind) == nearest["step"])
    what = "scores" if kind == "dual_step" else "losses"
    numbers = f"{nearest['step']:g} is nearest ({nearest['away']:.3f}); {best['step']:g} has the largest accuracy "
    numbers += f"minus violation ({best['value']:.3f}, against {nearest['value']:.3f})"
    return [
        Claim(f"The default step for {what} is the one nearest to the published values on inner splits.", same, numbers)
    ]


def _without_noise(table: pd.DataFrame) -> list[Claim]:
    """Where noise is what keeps the violation up, and where F-LD does no better with the same small step."""
    found = []
    part = table[(table["notion"] == "demographic_parity") & table["step"].isin(BESIDE_STEPS)]
    for dataset in BESIDE:
        here = part[part["dataset"] == dataset]
        texts = []
        for step in BESIDE_STEPS:
            rows = here[here["step"] == step].set_index("method")
            if {PRINTED, WITHOUT_NOISE} <= set(rows.index):
                pair = [rows.loc[method] for method in (PRINTED, WITHOUT_NOISE)]
                texts.append((step, [f"{one['violation_mean']:.3f}" for one in pair], pair))
        if not texts:
            continue
        first, last = texts[0][2], texts[-1][2]
        noise = bool(first[0]["violation_mean"] - first[1]["violation_mean"] > 0.02)
        numbers = "; ".join(f"at {step:g}: {values[0]} with noise, {values[1]} without" for step, values, _ in texts)
        numbers += f"; first gap of the scores {last[1]['first_gap_mean']:.2f}, "
        numbers += f"multipliers without noise {first[1]['multiplier_mean']:.2f} to {last[1]['multiplier_mean']:.2f}"
        sentence = f"At the default step the noise keeps the violation up ({name_of(dataset)})."
        found.append(Claim(sentence, noise, numbers))
    return found


STEPS = Experiment(
    "steps",
    cells,
    publish,
    (),
    claims,
    (PRINTED, WITHOUT_NOISE),
    work,
    markdown,
    measures=(*MEASURES, "multiplier", "first_gap"),
)
