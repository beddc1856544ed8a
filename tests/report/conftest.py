"""Three models to report on."""

from __future__ import annotations

import numpy as np
import pytest
from cases import PLAN, Case, fit, found

from justitia import LagrangianDualClassifier, tradeoff
from justitia.datasets import make_synthetic


@pytest.fixture(scope="session")
def two() -> Case:
    """Two groups, demographic parity, the second of three points of a curve."""
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    model = LagrangianDualClassifier(
        epsilon=2.0, groups=["women", "men"], plan=PLAN, module=(6,), random_state=0, noise_seed=0
    )
    curve = tradeoff(model, data.X, data.y, sensitive_features=data.sensitive, tolerances=(0.0, 0.05, 0.2))
    chosen = curve.models[1]
    return Case(chosen, found(chosen, data, "demographic_parity"), curve)


@pytest.fixture(scope="session")
def five() -> Case:
    """Five groups, equalized odds: two events, ten multipliers; names that would be markup elsewhere."""
    groups = ("<script>alert(1)</script>", 'a"b', "c|d & e", "`f` *g* [h](i)", "x" * 90)
    return fit(groups, "equalized_odds", epsilon=4.0)


@pytest.fixture(scope="session")
def open_book() -> Case:
    """Trained without privacy."""
    return fit(("a", "b"), epsilon=np.inf)


@pytest.fixture(params=["two", "five", "open_book"])
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.getfixturevalue(request.param)
    return chosen
