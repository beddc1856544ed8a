"""Small fitted models with their measurements and curves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from justitia import LagrangianDualClassifier, Measurement, MomentsPlan, Tradeoff, measure
from justitia.datasets import make_synthetic

PLAN = MomentsPlan(warmup_steps=60, rounds=12, public_steps=3, checks=2, batch_size=256)
FACTS: dict[str, Any] = {
    "title": "Loans of a small bank",
    "data": "loans.csv",
    "rows": 1200,
    "target": "repaid",
    "accuracy": 0.8125,
    "created": "2026-11-16",
    "command": "justitia train loans.csv --target repaid --sensitive sex --out model/",
}


@dataclass(frozen=True)
class Case:
    """A model and what was found out about it."""

    model: LagrangianDualClassifier
    measurement: Measurement
    curve: Tradeoff | None = None


def fit(groups: tuple[str, ...], notion: str = "demographic_parity", n: int = 1200, **options: Any) -> Case:
    """A model that trains in a second, and its measurement."""
    data = make_synthetic(n, groups=groups, n_features=3, random_state=1)
    settings: dict[str, Any] = {
        "groups": list(groups),
        "plan": PLAN,
        "module": (6,),
        "random_state": 0,
        "noise_seed": 0,
    }
    model = LagrangianDualClassifier(notion, **settings | {"epsilon": 2.0, "tolerance": 0.05} | options)
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    return Case(model, found(model, data, notion))


#: Public numbers of a model and its base, as ``justitia evaluate`` keeps them.
PUBLIC: dict[str, Any] = {
    "accuracy": 0.8,
    "auc": 0.85,
    "confusion": {"true_negatives": 500, "false_positives": 120, "false_negatives": 80, "true_positives": 500},
    "calibration": [{"rows": 400, "score": 0.2, "share": 0.15}, {"rows": 800, "score": 0.7, "share": 0.75}],
    "before": {"name": "a base", "accuracy": 0.82, "auc": 0.9, "confusion": {}, "calibration": []},
}


def signed(case: Case) -> dict[str, Any]:
    """A measurement with scores, decisions before and public numbers, as the command line keeps it."""
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    scores = case.model.predict_proba(data.X)[:, 1]
    options = {"scores": scores, "before": (scores > 0.4).astype(int), "reference": "men", "epsilon": 4.0}
    measured = found(case.model, data, "demographic_parity", **options).to_dict()
    return measured | {"public": PUBLIC, "accuracy": 0.8, "data": "new.csv", "created": "2026-11-17T10:00:00+00:00"}


def found(model: LagrangianDualClassifier, data: Any, notion: str, **options: Any) -> Measurement:
    settings: dict[str, Any] = {"groups": list(data.groups), "notion": notion, "epsilon": 1.0, "noise_seed": 1}
    return measure(
        data.y, model.predict(data.X), sensitive_features=data.sensitive, **settings | {"threshold": 0.2} | options
    )


def price_list() -> pd.DataFrame:
    """What a fit leaves as ``price_``."""
    return pd.DataFrame(
        {
            "tolerance": [math.nan, 0.1, 0.03],
            "accuracy": [0.86, 0.855, 0.84],
            "auc": [0.9, 0.9, 0.89],
            "positive_rate": [0.25, 0.24, 0.2],
            "violation": [0.18, 0.1, 0.03],
            "violation_stderr": [0.02, 0.02, 0.01],
            "corrected": [False, True, True],
            "deployed": [False, False, True],
        }
    )
