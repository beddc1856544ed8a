"""The printed engine on trial: does an attack prove more than its printed epsilon? Beside it the repaired engines.

Bank is a public dataset and the other people are synthetic, so the exact results may be printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.experiments.audit import DELTA, MEASURES, numbers, rounded_down
from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import dataset
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan, PFLDPlan
from justitia.audit import audit
from justitia.datasets import Dataset, make_synthetic

EPSILON = 1.0
#: Made for the attack: two people in one group, everybody in every batch.
WORST = {"people": 40, "epochs": 3}
PLANS: dict[tuple[str, str], Any] = {
    (SIMULATED, "printed"): PFLDAsPublishedPlan(epochs=WORST["epochs"], batch_size=WORST["people"]),
    (SIMULATED, "gradients"): PFLDPlan(private_steps=2, public_steps=2, warmup_steps=5, batch_size=40),
    (SIMULATED, "moments"): MomentsPlan(rounds=6, public_steps=2, warmup_steps=5, checks=2, batch_size=40),
    ("bank", "printed"): PFLDAsPublishedPlan(),
    ("bank", "moments"): MomentsPlan(rounds=40),
}
MODULES: dict[str, tuple[int, ...]] = {SIMULATED: (4,), "bank": (10, 7)}
#: Runs of each neighbour: of the printed engine, and of the repaired ones beside it.
RUNS = {("bank", "mechanism"): (600, 100), (SIMULATED, "mechanism"): (1_000, 1_000), (SIMULATED, "weights"): (200, 100)}
NAMES = {SIMULATED: "a group of two", "bank": "Bank"}


def cells(*, quick: bool) -> list[Cell]:
    """The noised steps on both datasets and whole fits on the small one, for the printed engine and repaired ones."""
    kinds = [(data, engine, attack) for data, attack in RUNS for of, engine in PLANS if of == data]
    kinds = [kind for kind in kinds if not (quick and kind[0] == "bank")]
    return [
        Cell(
            "trial",
            data,
            "demographic_parity",
            engine,
            0,
            epsilon=EPSILON,
            settings={"attack": attack, "runs": 16 if quick else _runs(data, attack, engine), "audits": len(kinds)},
            recipe=f"{PLANS[data, engine]}, {MODULES[data]}, {WORST}",
        )
        for data, engine, attack in kinds
    ]


def _runs(data: str, attack: str, engine: str) -> int:
    return RUNS[data, attack][engine != "printed"]


def people(name: str) -> tuple[Dataset, Any, Any]:
    """A dataset, everybody's attribute, and the canary; in the small one the canary is one of two in their group."""
    if name == "bank":
        return dataset(name), dataset(name).sensitive, "worst"
    data = make_synthetic(WORST["people"], n_features=3, random_state=1)
    small, large = data.groups
    return data, np.array([small] * 2 + [large] * (WORST["people"] - 2)), 0


def work(cell: Cell) -> dict[str, float]:
    """One audit."""
    data, attribute, canary = people(cell.dataset)
    model = LagrangianDualClassifier(
        cell.notion,
        epsilon=cell.epsilon,
        delta=DELTA,
        groups=data.groups,
        engine=cell.method,
        plan=PLANS[cell.dataset, cell.method],
        module=MODULES[cell.dataset],
        random_state=0,
    )
    how: dict[str, Any] = {"canary": canary, "seed": cell.noise_seed, "progress": False}
    return numbers(audit(model, data.X, data.y, sensitive_features=attribute, **dict(cell.settings), **how))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One line per audit, the printed engine first."""
    labelled = results.assign(attack=setting(results, "attack"), first=results["method"] != "printed")
    columns = ["first", "dataset", "attack", "method"]
    table = labelled.sort_values(columns).drop(columns="first").reset_index(drop=True)
    return table[["dataset", "attack", "method", *MEASURES]]


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The table."""
    del folder
    return summarise(results).round(3).to_string(index=False)


def table(results: pd.DataFrame) -> str:
    """The audits as a table for the page."""
    lines = ["| data | attacker sees | engine | runs | epsilon stated | lower bound | right guesses |"]
    lines.append("|---|---|---|---|---|---|---|")
    seen = {"mechanism": "every noisy step", "weights": "what `fit` returns"}
    for _, row in summarise(results).iterrows():
        attack = seen[row["attack"]]
        parts = [
            NAMES[row["dataset"]],
            attack,
            name_of(row["method"]),
            f"{int(row['runs']):,}",
            f"{row['certificate']:.2f}",
        ]
        parts += [rounded_down(row["lower"], 2), f"{int(row['right']):,} of {int(row['guesses']):,}"]
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def claims(results: pd.DataFrame) -> list[Claim]:
    """Whether each printed epsilon is exceeded, and that no certificate of a repaired engine is."""
    found = []
    summary = summarise(results)
    for _, row in summary[summary["method"] == "printed"].iterrows():
        seen = "every noisy step" if row["attack"] == "mechanism" else "what fit returns"
        sentence = f"The published epsilon bounds an attacker who sees {seen} ({NAMES[row['dataset']]})."
        numbers_found = (
            f"the lower bound is {rounded_down(row['lower'], 2)} at 95%, corrected for {len(summary)} audits"
        )
        found.append(Claim(sentence, not row["exceeded"], f"{numbers_found}, beside {row['certificate']:.2f}"))
    repaired = summary[summary["method"] != "printed"]
    refuted = int(repaired["exceeded"].sum())
    sentence = "No attack on a repaired engine exceeds its certificate on the same data."
    return [*found, Claim(sentence, refuted == 0, f"{refuted} of {len(repaired)} refuted")]


TRIAL = Experiment("trial", cells, publish, claims=claims, work=work, measures=MEASURES, table=table)
