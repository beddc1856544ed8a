"""scikit-learn's own checks of the regressor."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from justitia import LagrangianDualRegressor, PostProcessingPlan

pytestmark = pytest.mark.usefixtures("quick_fits")


class InventedGroups(LagrangianDualRegressor):
    """scikit-learn's checks know no sensitive_features: every second row is in the second group."""

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, **rest: Any) -> "InventedGroups":
        n = 0 if y is None else len(np.asarray(y))
        groups = np.array(["a", "b"])[np.arange(n) % 2]
        return super().fit(X, y, sensitive_features=groups, sample_weight=sample_weight, **rest)


QUICK = PostProcessingPlan(checks=1, levels=5)
WITH_NOISE = InventedGroups(groups=["a", "b"], noise_seed=1, plan=QUICK)
WITHOUT_NOISE = InventedGroups(epsilon=math.inf, groups=["a", "b"], noise_seed=1, plan=QUICK, preprocess=None)
#: As of the classifier; docs/compatibility.md has the table.
FAILS = {
    "check_sample_weight_equivalence_on_dense_data": "parts for cross-fitting are drawn by row, so copies of a row may "
    "be in two parts; and weights are relative, so a row of weight 2 is one observation",
}


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
@parametrize_with_checks([WITH_NOISE, WITHOUT_NOISE], expected_failed_checks=lambda _: FAILS)
def test_scikit_learn_check_invented_groups_passes(estimator: BaseEstimator, check: Any) -> None:
    # That check is for estimators that compute on other array libraries, and skips itself here.
    if check.func.__name__ != "check_array_api_input":
        check(estimator)
