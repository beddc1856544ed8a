"""fairlearn's metrics and MetricFrame take what our classifiers return, and our metrics agree with theirs."""

import math
import warnings
from functools import partial
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import pytest
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, mean_squared_error

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, PFLDPlan, measure
from justitia.metrics import exact as metrics
from justitia.notions import get_notion

PLAN = PFLDPlan(warmup_steps=60, private_steps=2, public_steps=3, batch_size=64, warmup_learning_rate=0.05)
RNG = np.random.default_rng(1)
X = pd.DataFrame(RNG.normal(size=(400, 3)), columns=["a", "b", "c"])
TRUTH = (X["a"] + 0.7 * RNG.normal(size=400) > 0).astype(int)
SENSITIVE = pd.DataFrame(
    {"sex": np.where(X["b"] + 0.6 * X["a"] > 0, "f", "m"), "half": np.where(X["c"] > 0, "east", "west")}
)
WORDS = np.array(["no", "yes"])


@pytest.fixture(scope="module", params=["int", "text"])
def decided(request: pytest.FixtureRequest) -> tuple[pd.Series, np.ndarray, Any]:
    """Labels as our classifier was given them, its decisions, and the positive class."""
    y = TRUTH if request.param == "int" else pd.Series(WORDS[TRUTH], index=X.index)
    model = LagrangianDualClassifier(
        epsilon=8.0, groups=["f", "m"], engine="pf-ld", plan=PLAN, random_state=0, noise_seed=0
    )
    predicted = model.fit(X, y, sensitive_features=SENSITIVE["sex"]).predict(X)
    return y, predicted, model.classes_[1]


@pytest.mark.parametrize("columns", ["sex", ["sex"], ["sex", "half"]], ids=["series", "frame", "two columns"])
def test_metric_frame_takes_labels_decisions_and_attributes_as_they_are(decided: Any, columns: Any) -> None:
    y, predicted, positive = decided
    frame = fairlearn.MetricFrame(
        metrics={"rate": partial(fairlearn.selection_rate, pos_label=positive), "accuracy": accuracy_score},
        y_true=y,
        y_pred=predicted,
        sensitive_features=SENSITIVE[columns],
    )
    ours = {
        "rate": metrics.rates_by_group(y, predicted, sensitive_features=SENSITIVE[columns])["rate"],
        "accuracy": 1
        - metrics.rates_by_group(y, predicted, sensitive_features=SENSITIVE[columns], notion="accuracy_parity")["rate"],
    }
    assert len(frame.by_group) == (4 if columns == ["sex", "half"] else 2)
    for name, values in ours.items():
        assert values.tolist() == pytest.approx(frame.by_group[name].tolist(), abs=1e-12)
        assert frame.difference()[name] == pytest.approx(values.max() - values.min(), abs=1e-12)
    assert frame.difference()["rate"] > 0.05


@pytest.mark.parametrize(
    "name",
    [
        "demographic_parity_difference",
        "demographic_parity_ratio",
        "equalized_odds_difference",
        "equalized_odds_ratio",
        "equal_opportunity_difference",
        "equal_opportunity_ratio",
    ],
)
def test_disparity_of_our_decisions_is_the_same_number_in_both(decided: Any, name: str) -> None:
    y, predicted, positive = decided
    ours = getattr(metrics, name)(y, predicted, sensitive_features=SENSITIVE["sex"])
    # Their shorthands know 0 and 1 only.
    theirs = getattr(fairlearn, name)(y == positive, predicted == positive, sensitive_features=SENSITIVE["sex"])
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_measurement_without_noise_is_metric_frame_in_names_and_numbers(decided: Any) -> None:
    y, predicted, positive = decided
    found = measure(
        y,
        predicted,
        sensitive_features=SENSITIVE["sex"],
        groups=["f", "m"],
        metrics=["selection_rate", "true_positive_rate", "false_positive_rate"],
        epsilon=math.inf,
    )
    rates = {
        name: partial(getattr(fairlearn, name), pos_label=positive)
        for name in ("selection_rate", "true_positive_rate", "false_positive_rate")
    }
    frame = fairlearn.MetricFrame(metrics=rates, y_true=y, y_pred=predicted, sensitive_features=SENSITIVE["sex"])
    for ours, theirs in (
        (found.by_group, frame.by_group),
        (found.overall, frame.overall),
        (found.difference(), frame.difference()),
        (found.difference("to_overall"), frame.difference(method="to_overall")),
        (found.ratio(), frame.ratio()),
        (found.group_min(), frame.group_min()),
        (found.group_max(), frame.group_max()),
    ):
        aligned = theirs.reindex_like(ours)
        np.testing.assert_allclose(ours.to_numpy(float), aligned.to_numpy(float), atol=1e-9)


# --- their models and metrics beside ours


@pytest.fixture(scope="module")
def reduced() -> ExponentiatedGradient:
    """A model that fairlearn has corrected, with the exact attribute."""
    constraint = DemographicParity(difference_bound=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairlearn's own use of pandas
        return ExponentiatedGradient(LogisticRegression(), constraint).fit(
            X, TRUTH, sensitive_features=SENSITIVE["sex"]
        )


def test_model_that_fairlearn_corrected_is_measured_by_ours(reduced: Any) -> None:
    predicted = reduced.predict(X, random_state=0)
    asked: dict[str, Any] = {"sensitive_features": SENSITIVE["sex"]}
    exact = fairlearn.demographic_parity_difference(TRUTH, predicted, **asked)
    noisy = measure(TRUTH, predicted, groups=["f", "m"], epsilon=8.0, noise_seed=0, **asked)
    assert noisy.violation.lower <= exact <= noisy.violation.upper
    assert noisy.violation.estimate == pytest.approx(exact, abs=0.05)


def test_one_metric_frame_per_model_compares_ours_with_a_reduction(reduced: Any) -> None:
    ours = LagrangianDualClassifier(
        epsilon=8.0, groups=["f", "m"], base=LogisticRegression(), random_state=0, noise_seed=0
    ).fit(X, TRUTH, sensitive_features=SENSITIVE["sex"])
    uncorrected = LogisticRegression().fit(X, TRUTH)
    decided = {"none": uncorrected.predict(X), "reduction": reduced.predict(X, random_state=0), "ours": ours.predict(X)}
    gaps = {
        name: fairlearn.MetricFrame(
            metrics=fairlearn.selection_rate, y_true=TRUTH, y_pred=one, sensitive_features=SENSITIVE["sex"]
        ).difference()
        for name, one in decided.items()
    }
    assert gaps["none"] > 0.25
    assert max(gaps["reduction"], gaps["ours"]) < gaps["none"] / 2


def test_metric_frame_takes_classes_and_numbers_of_our_estimators() -> None:
    given = {"epsilon": 8.0, "groups": ["f", "m"], "random_state": 0, "noise_seed": 0}
    number = X["a"] + 0.5 * X["b"]
    levels = np.array(["low", "middle", "top"])[np.digitize(number, [-0.5, 0.5])]
    for model, target, metric in (
        (LagrangianDualClassifier(base=LogisticRegression(), **given), levels, accuracy_score),
        (LagrangianDualRegressor(base=LinearRegression(), bounds=(-5.0, 5.0), **given), number, mean_squared_error),
    ):
        predicted = model.fit(X, target, sensitive_features=SENSITIVE["sex"]).predict(X)
        frame = fairlearn.MetricFrame(
            metrics=metric, y_true=target, y_pred=predicted, sensitive_features=SENSITIVE["sex"]
        )
        assert frame.by_group.index.tolist() == ["f", "m"]
        assert frame.overall == metric(target, predicted)


def test_fairlearns_names_of_constraints_are_names_of_our_notions() -> None:
    for name in (
        "selection_rate_parity",
        "true_positive_rate_parity",
        "false_positive_rate_parity",
        "error_rate_parity",
    ):
        assert get_notion(name).name in {
            "demographic_parity",
            "equal_opportunity",
            "predictive_equality",
            "accuracy_parity",
        }
