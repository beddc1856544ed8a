"""Several notions at once, ratios, quotas, strata and precision, of two classes and through the public interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, tradeoff
from justitia.datasets import make_synthetic

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows
    pytest.mark.usefixtures("quick_fits"),
]
DATA = make_synthetic(3000, groups=("f", "m"), random_state=0)
X, Y, A = DATA.X, np.asarray(DATA.y), np.asarray(DATA.sensitive)
N = len(Y)


def fitted(strata: Any = None, **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {
        "epsilon": 8.0,
        "groups": ["f", "m"],
        "base": LogisticRegression(),
        "tolerance": 0.02,
        "random_state": 0,
        "noise_seed": 0,
    }
    return LagrangianDualClassifier(**usual | changes).fit(X, Y, sensitive_features=A, strata=strata)


def rates(decisions: Any, rows: Any = slice(None)) -> Any:
    """(2,): share of positive decisions in both groups."""
    return np.array([decisions[rows][A[rows] == name].mean() for name in "fm"])


PLAIN = fitted(tolerance=1.0).predict(X)


def test_several_notions_are_held_at_once_each_with_its_tolerance() -> None:
    model = fitted(notion=["demographic_parity", "equal_opportunity"], tolerance=[0.02, 0.05])
    decided = model.predict(X)
    assert np.ptp(rates(PLAIN)) > 0.1
    assert np.ptp(rates(decided)) < 0.05
    assert np.ptp(rates(decided, Y == 1)) < 0.08
    assert model.tolerances_.to_dict() == {"all": 0.02, "y=1": 0.05}
    assert model.tolerance_ == 0.05
    one = fitted().predict(X)
    assert np.ptp(rates(one, Y == 1)) > np.ptp(rates(decided, Y == 1))


def test_rates_of_the_same_name_are_told_apart_by_their_notion() -> None:
    model = fitted(notion=["demographic_parity", "accuracy_parity"], tolerance=0.05)
    assert list(model.dual_.columns) == ["demographic_parity: all", "accuracy_parity: all"]


def test_tolerance_of_one_event_leaves_the_others_to_the_default() -> None:
    model = fitted(notion="equalized_odds", tolerance={"y=1": 0.3})
    assert model.tolerances_["y=1"] == 0.3
    assert 0 < model.tolerances_["y=0"] < 0.1


@pytest.mark.parametrize("ratio", [0.8, 0.95])
def test_smallest_rate_is_at_least_a_share_of_the_largest(ratio: float) -> None:
    before, after = rates(PLAIN), rates(fitted(ratio=ratio, tolerance=None).predict(X))
    assert before.min() < 0.75 * before.max()
    assert after.min() / after.max() == pytest.approx(ratio, abs=0.04)


@pytest.mark.parametrize("quota", [0.2, 0.6])
def test_quota_is_exact_to_one_row_in_training(quota: float) -> None:
    for tolerance in (0.02, 1.0):
        model = fitted(quota=quota, tolerance=tolerance)
        assert abs(model.predict(X).sum() - quota * N) <= 1
    assert np.ptp(rates(fitted(quota=quota).predict(X))) < 0.05


def test_quota_of_the_first_class_leaves_the_rest_to_the_second() -> None:
    assert abs(fitted(quota={0: 0.75}, tolerance=1.0).predict(X).sum() - 0.25 * N) <= 1


def test_rates_are_alike_within_public_strata() -> None:
    strata = np.where(X.iloc[:, 0] > 0, "upper", "lower")
    model = fitted(strata, notion="conditional_demographic_parity")
    assert list(model.dual_.columns) == ["lower", "upper"]
    for name in ("lower", "upper"):
        before, after = (np.ptp(rates(one, strata == name)) for one in (PLAIN, model.predict(X)))
        assert after < max(0.06, 0.5 * before)


def test_strata_may_be_a_column_of_the_table() -> None:
    column = str(X.columns[0])
    banded = X.assign(**{column: pd.cut(X[column], [-np.inf, 0, np.inf], labels=["low", "high"]).astype(str)})
    model = LagrangianDualClassifier(
        "conditional_demographic_parity", epsilon=8.0, groups=["f", "m"], tolerance=0.05, random_state=0, noise_seed=0
    ).fit(banded, Y, sensitive_features=A, strata=column)
    assert list(model.dual_.columns) == ["high", "low"]


def test_precision_is_the_same_in_both_groups() -> None:
    def precision(decided: Any) -> Any:
        return np.array([Y[(name == A) & (decided == 1)].mean() for name in "fm"])

    assert np.ptp(precision(PLAIN)) > 0.05
    assert np.ptp(precision(fitted(notion="predictive_parity").predict(X))) < 0.05


def test_costs_of_two_classes_set_the_threshold() -> None:
    model = fitted(costs=[[0, 1], [3, 0]], tolerance=1.0)
    assert model.rule_.threshold == pytest.approx(0.25)
    assert np.array_equal(model.predict(X), (model.base_proba(X) > 0.25).astype(int))


def test_curve_of_several_notions_uses_one_tolerance_for_all() -> None:
    model = LagrangianDualClassifier(
        ["demographic_parity", "equal_opportunity"],
        epsilon=8.0,
        groups=["f", "m"],
        base=LogisticRegression(),
        random_state=0,
        noise_seed=0,
    )
    curve = tradeoff(model, X, Y, sensitive_features=A, tolerances=(0.0, 0.2))
    assert curve.models[0].tolerances_.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ratio": 0.8}, "expected tolerance or ratio, got both"),
        ({"ratio": 1.5, "tolerance": None}, "expected ratio to be a number above 0 and at most 1"),
        ({"quota": 1.0}, "expected quota to be a share between 0 and 1"),
        ({"quota": 0.2, "at": "scores"}, "expected at='decision' with a ratio, a quota"),
        ({"notion": []}, "expected at least one notion"),
        ({"notion": ["demographic_parity"] * 2}, "expected each notion once"),
        ({"notion": ["predictive_parity", "demographic_parity"]}, "expected 'predictive_parity' alone"),
        (
            {"notion": "conditional_demographic_parity"},
            "expected strata for 'conditional_demographic_parity', got none",
        ),
        ({"strata": np.zeros(N)}, "expected a notion within strata"),
        ({"strata": "none", "notion": "conditional_demographic_parity"}, "which X does not have"),
        ({"strata": np.zeros(3), "notion": "conditional_demographic_parity"}, "expected one stratum per row"),
        ({"strata": np.arange(N), "notion": "conditional_demographic_parity"}, "expected at most 50 strata"),
        ({"costs": [[0, 1], [3, 0]], "class_weight": "balanced"}, "expected costs, threshold or class_weight"),
        ({"tolerance": [0.1, -0.1]}, "tolerance"),
        ({"quota": 0.2, "engine": "pf-ld", "base": None}, "expected engine 'post-processing' for several notions"),
        ({"notion": "predictive_parity", "engine": "moments", "base": None}, "'post-processing' for predictive_parity"),
    ],
)
def test_what_cannot_be_held_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        fitted(**changes)
    assert "\n" not in str(refused.value)
