"""Goals that hold groups to a common value: the deployed correction keeps what groups have in common."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from justitia import LagrangianDualClassifier
from justitia.datasets import make_synthetic

DATA = make_synthetic(3000, random_state=0)
MEMBER = np.asarray(DATA.sensitive)


def decisions(**goal: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    model = LagrangianDualClassifier(epsilon=np.inf, groups=DATA.groups, random_state=0, progress=False, **goal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without privacy
        model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    return np.asarray(model.predict(DATA.X) == model.classes_[1])


def test_deployed_decisions_have_the_ratio_that_was_given() -> None:
    decided = decisions(ratio=0.8)
    rates = [decided[one == MEMBER].mean() for one in DATA.groups]
    assert min(rates) / max(rates) == pytest.approx(0.8, abs=0.03)


def test_deployed_decisions_are_equally_precise_in_all_groups() -> None:
    decided, positive = (
        decisions(notion="predictive_parity", tolerance=0.01),
        np.asarray(DATA.y) == np.unique(DATA.y)[1],
    )
    precision = [positive[decided & (one == MEMBER)].mean() for one in DATA.groups]
    assert np.ptp(precision) < 0.04
