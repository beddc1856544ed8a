"""Attribute-flip audits: what attacks on one person's attribute prove, next to the certificate.

The people are synthetic, so the exact results may be printed. Every cell is corrected for the number of cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.experiment import Claim, Experiment
from experiments.measure import SIMULATED
from experiments.runner import Cell
from experiments.summaries import setting
from justitia import GradientsPlan, LagrangianDualClassifier, MomentsPlan
from justitia.audit import audit
from justitia.datasets import make_synthetic

PEOPLE = 120
#: Runs of each neighbour: the bound of a small epsilon needs many to differ from 0.
RUNS = {0.5: 24_000, 1.0: 8_000, 4.0: 2_000}
FITS = 200
FACTOR = 2.5
PLANS: dict[str, Any] = {
    "gradients": GradientsPlan(private_steps=4, public_steps=2, warmup_steps=5, batch_size=64, averaging=0.5),
    "moments": MomentsPlan(rounds=6, public_steps=2, warmup_steps=5, checks=2, batch_size=64, averaging=0.5),
}
MEASURES = ("lower", "binomial", "gaussian", "certificate", "runs", "exceeded", "guesses", "right")


def cells(*, quick: bool) -> list[Cell]:
    """Every engine, number of groups and epsilon for replays; one epsilon for whole fits and for one run."""
    budgets = (4.0,) if quick else tuple(RUNS)
    kinds = [("mechanism", epsilon, 100 if quick else RUNS[epsilon]) for epsilon in budgets]
    kinds += [(attack, 4.0, 8 if quick else FITS) for attack in ("weights", "predictions")] + [("one run", 4.0, 8)]
    all_kinds = [(engine, groups, *kind) for engine in PLANS for groups in (2, 5) for kind in kinds]
    return [
        Cell(
            "audit",
            SIMULATED,
            "demographic_parity",
            engine,
            0,
            epsilon=epsilon,
            settings={"attack": attack, "groups": groups, "runs": runs, "audits": len(all_kinds)},
            recipe=f"{PEOPLE} people, {PLANS[engine]}",
        )
        for engine, groups, attack, epsilon, runs in all_kinds
    ]


def work(cell: Cell) -> dict[str, float]:
    """One audit."""
    options = dict(cell.settings)
    data = make_synthetic(
        PEOPLE, groups=("a", "b", "c", "d", "e")[: options.pop("groups")], n_features=3, random_state=1
    )
    model = LagrangianDualClassifier(
        cell.notion,
        epsilon=cell.epsilon,
        groups=data.groups,
        engine=cell.method,
        plan=PLANS[cell.method],
        module=(4,),
        random_state=0,
    )
    found = audit(
        model, data.X, data.y, sensitive_features=data.sensitive, seed=cell.noise_seed, progress=False, **options
    )
    facts = found.table.iloc[0]
    return {
        "lower": found.lower,
        "binomial": found.binomial,
        "gaussian": float("nan") if found.gaussian is None else found.gaussian,
        "certificate": found.epsilon,
        "runs": found.runs,
        "exceeded": float(found.exceeded),
        "guesses": float(facts["guesses"]),
        "right": float(facts["right"]),
    }


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One line per audit."""
    labelled = results.assign(attack=setting(results, "attack"), groups=setting(results, "groups").astype(int))
    columns = ["attack", "method", "groups", "epsilon"]
    return labelled[[*columns, *MEASURES]].sort_values(columns).reset_index(drop=True)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The table."""
    del folder
    return summarise(results).round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """No certificate is refuted, and the attack on the mechanism has teeth."""
    table = summarise(results)
    refuted = int(table["exceeded"].sum())
    found = [Claim("No attack proves more than its certificate.", refuted == 0, f"{refuted} of {len(table)} refuted")]
    strong = table[table["attack"] == "mechanism"]
    ratio = strong["certificate"] / strong["lower"]
    sentence = f"Every attack on the mechanism comes within a factor of {FACTOR} of its certificate."
    return [*found, Claim(sentence, bool((ratio <= FACTOR).all()), f"factors {ratio.min():.2f} to {ratio.max():.2f}")]


AUDIT = Experiment("audit", cells, publish, claims=claims, work=work, measures=MEASURES)
