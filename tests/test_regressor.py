"""``LagrangianDualRegressor``: what its predictions have in common between groups, and scikit-learn's conventions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from justitia import LagrangianDualRegressor, PostProcessingPlan, PrivacyLedger, tradeoff
from justitia.exceptions import AccuracyWarning, BudgetExceeded, JustitiaWarning

Array = NDArray[np.float64]
GROUPS = ("a", "b", "c")
pytestmark = [
    pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning"),
    pytest.mark.usefixtures("quick_fits"),
]


def people(n: int = 1500, groups: int = 2, seed: int = 0) -> tuple[pd.DataFrame, Array, list[str]]:
    """Features, hours and groups: the group leans on the second feature, which adds eight hours."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, 3)), columns=["skill", "leaning", "other"])
    codes = (X["leaning"] + 0.5 * rng.standard_normal(n)).to_numpy().argsort().argsort() * groups // n
    y = 40 + 6 * X["skill"] + 4 * X["leaning"] + 2 * rng.standard_normal(n)
    return X, y.to_numpy(), [GROUPS[code] for code in codes]


def regressor(**changes: Any) -> LagrangianDualRegressor:
    usual: dict[str, Any] = {
        "groups": ["a", "b"],
        "epsilon": 8.0,
        "tolerance": 0.05,
        "base": LinearRegression(),
        "random_state": 0,
        "noise_seed": 0,
        "progress": False,
    }
    return LagrangianDualRegressor(**usual | changes)


def parts(values: Array, labels: list[str]) -> list[Array]:
    return [values[np.array(labels) == name] for name in sorted(set(labels))]


def distance(values: Array, labels: list[str]) -> float:
    groups = parts(values, labels)
    return max(float(ks_2samp(one, other).statistic) for one in groups for other in groups)


# What is alike


@pytest.mark.parametrize("groups", [2, 3])
def test_distributions_of_predictions_are_alike_for_other_rows(groups: int) -> None:
    X, y, labels = people(groups=groups)
    other, truth, theirs = people(3000, groups, seed=1)
    model = regressor(groups=GROUPS[:groups]).fit(X, y, sensitive_features=labels)
    found = model.predict(other)
    assert distance(model.base_predict(other), theirs) > 0.3
    assert distance(found, theirs) < 0.05 + 0.08
    assert model.distance_ == pytest.approx(0.05, abs=0.05)
    assert np.corrcoef(found, truth)[0, 1] > 0.7  # skill is still there
    assert len(np.unique(found.round(6))) > 2500  # not one of twenty values
    assert list(model.dual_.index) == list(GROUPS[:groups])
    assert model.dual_.shape == (groups, 19)
    assert model.dual_.columns[0].startswith("above ")


def test_means_of_predictions_are_alike_in_units_of_the_target() -> None:
    X, y, labels = people()
    other, _, theirs = people(3000, seed=1)
    model = regressor(notion="mean_parity", tolerance=0.5).fit(X, y, sensitive_features=labels)
    means = [one.mean() for one in parts(model.predict(other), theirs)]
    before = [one.mean() for one in parts(model.base_predict(other), theirs)]
    assert np.ptp(before) > 4
    assert np.ptp(means) == pytest.approx(0.5, abs=0.7)
    assert model.tolerance_ == 0.5
    assert list(model.dual_.columns) == ["mean"]


def test_errors_of_predictions_are_alike_in_squared_units_of_the_target() -> None:
    rng = np.random.default_rng(0)
    X, y, labels = people(4000)
    noisy = np.array(labels) == "b"
    y = y + noisy * 4 * rng.standard_normal(len(y))  # the second group is harder to predict
    model = regressor(notion="equal_error", tolerance=2.0).fit(X[:2000], y[:2000], sensitive_features=labels[:2000])

    def gap(values: Array) -> float:
        return float(np.ptp([one.mean() for one in parts((y[2000:] - values) ** 2, labels[2000:])]))

    before, after = gap(model.base_predict(X[2000:])), gap(model.predict(X[2000:]))
    assert before > 12
    assert after < before / 2


def test_predictions_within_the_tolerance_are_those_of_the_base() -> None:
    X, y, labels = people(600)
    model = regressor(tolerance=1.0).fit(X, y, sensitive_features=labels)
    assert model.predict(X) == pytest.approx(model.base_predict(X), rel=1e-6)
    assert model.score(X, y) > 0.8
    assert not model.dual_.to_numpy().any()


def test_tolerance_that_is_not_given_is_a_standard_error() -> None:
    X, y, labels = people(600)
    for notion, low, high in (("demographic_parity", 0.01, 0.3), ("mean_parity", 0.1, 5.0), ("equal_error", 0.1, 20.0)):
        model = regressor(notion=notion, tolerance=None).fit(X, y, sensitive_features=labels)
        assert low < model.tolerance_ < high


# Data


def test_without_noise_the_certificate_says_so_and_gaps_meet_the_tolerance() -> None:
    X, y, labels = people(800)
    model = regressor(epsilon=np.inf).fit(X, y, sensitive_features=labels)
    assert model.history_["noisy_violation"].iloc[-1] == pytest.approx(0.05, abs=0.02)
    assert not np.isfinite(model.certificate_.epsilon)


def test_row_twice_is_weight_two() -> None:
    X, y, labels = people(400)
    weight = np.where(np.arange(400) < 100, 2.0, 1.0)
    base = LinearRegression().fit(X, y)
    options: dict[str, Any] = {"epsilon": np.inf, "base": base, "bounds": (0, 80), "preprocess": None}
    weighted = regressor(**options).fit(X, y, sensitive_features=labels, sample_weight=weight)
    rows = np.concatenate([np.arange(400), np.arange(100)])
    twice = regressor(**options).fit(X.iloc[rows], y[rows], sensitive_features=[labels[i] for i in rows])
    assert weighted.predict(X) == pytest.approx(twice.predict(X), abs=2.5)


def test_missing_and_crossed_attributes_and_persons_are_taken() -> None:
    X, y, labels = people(900)
    given = [None if i % 9 == 0 else one for i, one in enumerate(labels)]
    ages = np.where(np.arange(900) % 2, "old", "young")
    table = pd.DataFrame({"sex": given, "age": ages})
    groups = {"sex": ["a", "b"], "age": ["old", "young"]}
    model = regressor(groups=groups).fit(X, y, sensitive_features=table, person=np.arange(900) // 2)
    assert len(model.groups_) == 4
    assert "person" in model.certificate_.to_json()
    assert model.predict(X).shape == (900,)


def test_plan_announces_what_the_ledger_records() -> None:
    X, y, labels = people(300)
    ledger = PrivacyLedger(epsilon=2.5, delta=1e-5)
    regressor(epsilon=2.0, plan=PostProcessingPlan(checks=2)).fit(X, y, sensitive_features=labels, ledger=ledger)
    assert [one.purpose for one in ledger.releases] == ["moments", "decisions", "decisions"]
    with pytest.raises(BudgetExceeded):
        regressor(epsilon=2.0).fit(X, y, sensitive_features=labels, ledger=ledger)


def test_run_that_was_interrupted_is_resumed_to_the_same_model(tmp_path: Any, monkeypatch: Any) -> None:
    from justitia.postprocessing.regression import NumberRun

    X, y, labels = people(300)
    whole = regressor(plan=PostProcessingPlan(checks=2)).fit(X, y, sensitive_features=labels)
    check, done = NumberRun._check, []

    def dies(run: NumberRun) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(1)
        check(run)

    model = regressor(plan=PostProcessingPlan(checks=2))
    monkeypatch.setattr(NumberRun, "_check", dies)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, sensitive_features=labels, checkpoint=tmp_path / "run")
    monkeypatch.setattr(NumberRun, "_check", check)
    model.fit(X, y, sensitive_features=labels, checkpoint=tmp_path / "run")
    assert len(model.ledger_.releases) == 3
    assert model.predict(X) == pytest.approx(whole.predict(X), abs=1e-6)
    with pytest.raises(ValueError, match="another"):
        regressor(notion="mean_parity", plan=PostProcessingPlan(checks=2)).fit(
            X, y, sensitive_features=labels, checkpoint=tmp_path / "run"
        )


def test_rows_in_files_give_the_model_of_rows_in_memory(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    X, y, labels = people(500)
    X.assign(hours=y, sex=labels).to_parquet(tmp_path / "rows.parquet")
    stored = regressor().fit(str(tmp_path / "rows.parquet"), "hours", sensitive_features="sex")
    held = regressor().fit(X, y, sensitive_features=labels)
    assert stored.predict(X) == pytest.approx(held.predict(X))
    assert stored.predict(str(tmp_path / "rows.parquet")) == pytest.approx(held.predict(X))


@pytest.mark.parametrize("notion", ["demographic_parity", "mean_parity", "equal_error"])
def test_more_rows_in_files_than_the_sample_treat_groups_alike(tmp_path: Any, monkeypatch: Any, notion: str) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("justitia.rows.files.SAMPLE", 800)
    X, y, labels = people(2400)
    X.assign(hours=y, sex=labels, weight=1.0 + (np.arange(2400) % 2)).to_parquet(tmp_path / "rows.parquet")
    model = regressor(
        notion=notion, tolerance={"demographic_parity": 0.05, "mean_parity": 0.4, "equal_error": 3.0}[notion]
    )
    model.fit(str(tmp_path / "rows.parquet"), "hours", sensitive_features="sex", sample_weight="weight")
    if notion == "demographic_parity":
        assert distance(model.predict(X), labels) < 0.15
    assert model.bounds_ == (pytest.approx(y.min()), pytest.approx(y.max()))


def test_curve_of_tolerances_costs_one_model() -> None:
    X, y, labels = people(500)
    curve = tradeoff(regressor(), X, y, sensitive_features=labels, tolerances=(0.05, 0.2, 0.25))
    assert curve.certificate.epsilon <= 8.0
    assert np.diff(curve.table["r2"]).min() > -0.01
    assert curve.table["noisy_violation"].to_numpy() == pytest.approx([0.05, 0.2, 0.25], abs=0.02)
    assert curve.choose(0.22).tolerance == 0.2
    with pytest.raises(TypeError, match="LagrangianDualRegressor"):
        tradeoff(LinearRegression(), X, y, sensitive_features=labels)


def test_most_of_what_was_learned_is_lost_with_a_warning() -> None:
    X, _, labels = people(600)
    with pytest.warns(AccuracyWarning):
        regressor(tolerance=0.0, base=LinearRegression()).fit(
            X[["leaning", "other"]], 4 * X["leaning"], sensitive_features=labels
        )


# Conventions


def test_estimator_is_a_regressor_that_clones_pickles_and_scores() -> None:
    X, y, labels = people(400)
    model = regressor()
    assert is_regressor(model)
    assert clone(model).get_params()["tolerance"] == 0.05
    model.fit(X, y, sensitive_features=labels)
    assert pickle.loads(pickle.dumps(model)).predict(X) == pytest.approx(model.predict(X))
    assert -1 < model.score(X, y) < 1
    assert list(model.feature_names_in_) == ["skill", "leaning", "other"]
    low, high = model.bounds_
    assert ((model.predict(X) >= low) & (model.predict(X) <= high)).all()


def test_bases_are_pipelines_functions_and_columns() -> None:
    X, y, labels = people(300)
    X = X.assign(score=40 + 6 * X["skill"] + 4 * X["leaning"])
    for base in (make_pipeline(StandardScaler(), LinearRegression()), lambda X: X["score"].to_numpy(), "score", None):
        model = regressor(base=base).fit(X, y, sensitive_features=labels)
        assert np.corrcoef(model.base_predict(X), y)[0, 1] > 0.8


def test_cross_validation_routes_the_attribute_to_fit() -> None:
    from sklearn import config_context

    X, y, labels = people(300)
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(regressor(), X, y, cv=2, params={"sensitive_features": np.array(labels)})
    assert len(scores) == 2


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"notion": "equalized_odds"}, {}, "notion"),
    ({"bounds": (3, 1)}, {}, "expected bounds"),
    ({"bounds": (0, 41)}, {}, "expected every y between 0 and 41"),
    ({"plan": 3}, {}, "PostProcessingPlan"),
    ({"tolerance": -1}, {}, "tolerance"),
    ({"groups": None}, {}, "groups"),
    ({}, {"y": ["x"] * 60}, "expected numbers in y"),
    ({}, {"y": [1.0] * 60}, "expected different numbers"),
    ({}, {"y": [np.nan] * 60}, "NaN"),
    ({}, {"y": np.arange(59.0)}, "59"),
]


@pytest.mark.parametrize(("options", "data", "words"), WRONG)
def test_wrong_input_gets_one_sentence_and_debits_nothing(
    options: dict[str, Any], data: dict[str, Any], words: str
) -> None:
    X, y, labels = people(60)
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    with pytest.raises((ValueError, TypeError), match=words):
        regressor(**options).fit(X, **({"y": y} | data), sensitive_features=labels, ledger=ledger)
    assert not ledger.releases


def test_small_groups_are_warned_of_before_the_first_query() -> None:
    X, y, labels = people(60)
    with pytest.warns(JustitiaWarning):
        regressor(epsilon=0.1).fit(X, y, sensitive_features=labels)


@pytest.mark.parametrize("notion", ["demographic_parity", "mean_parity", "equal_error"])
def test_constant_bases_empty_groups_and_missing_attributes_give_finite_predictions(notion: str) -> None:
    X, y, labels = people(120)
    cases: list[dict[str, Any]] = [
        {"base": lambda X: np.full(len(X), 40.0)},
        {"groups": ["a", "b", "nobody"]},
        {"plan": PostProcessingPlan(checks=0)},
    ]
    for options in cases:
        model = regressor(notion=notion, tolerance=None, epsilon=1.0, **options).fit(X, y, sensitive_features=labels)
        assert np.isfinite(model.predict(X)).all()
    alone = regressor(notion=notion, tolerance=None).fit(X, y, sensitive_features=[None] * 120)
    assert np.isfinite(alone.predict(X)).all()
