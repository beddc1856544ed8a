"""Without a tolerance, few rows are not worth the accuracy of all: multipliers of small groups are held back."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier
from justitia.exceptions import ViolationWarning
from justitia.postprocessing.dual import DEFAULT_WORTH_PER_SHARE

SHARE, N = 0.01, 20_000
_RANDOM = np.random.default_rng(0)
GROUP = (_RANDOM.uniform(size=N) < SHARE).astype(int)
#: The features say little about the small group, which is accepted more often.
X = _RANDOM.standard_normal((N, 2)) + GROUP[:, None] * [0.0, 0.6]
Y = (X.sum(1) + _RANDOM.standard_normal(N) > 0.4).astype(int)


def fitted(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": math.inf, "groups": (0, 1), "base": LogisticRegression(), "random_state": 0}
    return LagrangianDualClassifier(**usual | options, progress=False).fit(X, Y, sensitive_features=GROUP)


@pytest.mark.filterwarnings("ignore")
def test_default_gives_up_less_accuracy_for_a_small_group_than_a_tolerance_that_is_given() -> None:
    default, strict = fitted(), fitted(tolerance=0.01)
    (held, wanted) = (one.price_[one.price_["deployed"]].iloc[0] for one in (default, strict))
    assert held["accuracy"] > wanted["accuracy"] + 0.01
    assert held["violation"] > wanted["violation"] + 0.02
    worth = DEFAULT_WORTH_PER_SHARE * SHARE  # beyond it a multiplier grows slowly with what is missing
    assert worth < np.abs(default.dual_.to_numpy()).max() < 2 * worth < np.abs(strict.dual_.to_numpy()).max()


def test_remaining_gap_is_said_where_no_tolerance_was_given() -> None:
    with pytest.warns(ViolationWarning, match="right decisions for each decision that changes"):
        default = fitted()
    assert any("Give a tolerance to correct more" in str(one) for one in default.certificate_.remarks)


def test_large_groups_are_corrected_as_with_their_tolerance() -> None:
    group = (X[:, 1] + _RANDOM.standard_normal(N) > 0).astype(int)
    usual: dict[str, Any] = {"epsilon": math.inf, "groups": (0, 1), "base": LogisticRegression(), "random_state": 0}
    default = LagrangianDualClassifier(**usual, progress=False).fit(X, Y, sensitive_features=group)
    given = LagrangianDualClassifier(**usual, progress=False, tolerance=default.tolerance_)
    given.fit(X, Y, sensitive_features=group)
    np.testing.assert_array_equal(default.dual_.to_numpy(), given.dual_.to_numpy())
