"""Sixty people and a short plan that the tests of the edges share."""

from typing import Any

import numpy as np
import pytest

from justitia import LagrangianDualClassifier, MomentsPlan

# Sixty people are few: every fit says so.
QUIET = [
    pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning"),
    pytest.mark.filterwarnings("ignore::justitia.exceptions.UnknownGroupWarning"),
    pytest.mark.filterwarnings("ignore::justitia.exceptions.LargeDeltaWarning"),
]

N = 60
GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(N, 3))
Y = (X[:, 0] + 0.5 * GENERATOR.normal(size=N) > 0).astype(int)
#: A label that no other text of the library contains.
SECRET = np.array(["zyxelbrand", "quuxfather"])[(X[:, 1] > 0).astype(int)].tolist()
GROUPS = ["zyxelbrand", "quuxfather"]
PLAN = MomentsPlan(rounds=6, warmup_steps=5, checks=2)


def classifier(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "groups": GROUPS, "plan": PLAN, "module": (4,)}
    return LagrangianDualClassifier(**usual | {"random_state": 0} | changes)
