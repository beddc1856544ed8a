"""scikit-learn's own checks, and routing of the sensitive attribute through its meta-estimators."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.metadata_routing import get_routing_for_object

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, PFLDPlan, PrivacyLedger
from justitia.metrics.exact import violation

pytestmark = pytest.mark.usefixtures("quick_fits")

QUICK = PFLDPlan(warmup_steps=60, private_steps=2, public_steps=3, batch_size=64, warmup_learning_rate=0.05)


class InventedGroups(LagrangianDualClassifier):
    """scikit-learn's checks know no sensitive_features: every second row is in the second group."""

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, **rest: Any) -> "InventedGroups":
        n = 0 if y is None else len(np.asarray(y))
        groups = np.array(["a", "b"])[np.arange(n) % 2]
        return super().fit(X, y, sensitive_features=groups, sample_weight=sample_weight, **rest)


WITHOUT_NOISE = InventedGroups(
    epsilon=math.inf, groups=["a", "b"], engine="pf-ld", plan=QUICK, noise_seed=1, preprocess=None
)
WITH_NOISE = InventedGroups(epsilon=1.0, groups=["a", "b"], engine="pf-ld", plan=QUICK, noise_seed=1)
DEFAULT = InventedGroups(groups=["a", "b"], noise_seed=1)
DEFAULT_WITHOUT_NOISE = InventedGroups(epsilon=math.inf, groups=["a", "b"], noise_seed=1, preprocess=None)

#: Checks that fail, and why; docs/compatibility.md has the table. What weights do is tested below.
EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
#: scikit-learn says the first of CalibratedClassifierCV and its other estimators that cross-fit.
CROSS_FITTED = (
    "parts for cross-fitting are drawn by row, so copies of a row may be in two parts; and weights are relative, so a "
    "row of weight 2 is one observation where tolerance, calibration and sampling errors weigh evidence"
)
EXPECTED = {
    "post-processing": {EQUIVALENCE: CROSS_FITTED},
    "network": {
        EQUIVALENCE: "mini-batches are drawn by row, so a row of weight 2 does not meet the batches that two rows "
        "meet; test_fit_weight_two_equals_row_twice shows the equivalence for full batches",
        "check_class_weight_classifiers": "networks refuse class_weight; it belongs to the default engine",
    },
}


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    return EXPECTED["post-processing" if estimator.engine is None else "network"]


@pytest.mark.filterwarnings(
    "ignore::justitia.exceptions.NoisyEstimateWarning", "ignore::justitia.exceptions.UnknownGroupWarning"
)
@parametrize_with_checks(
    [WITHOUT_NOISE, WITH_NOISE, DEFAULT, DEFAULT_WITHOUT_NOISE], expected_failed_checks=expected_failures
)
def test_scikit_learn_check_invented_groups_passes(estimator: BaseEstimator, check: Any) -> None:
    # That check is for estimators that compute on other array libraries, and skips itself here.
    if check.func.__name__ != "check_array_api_input":
        check(estimator)


def scores(X: Any) -> np.ndarray:
    """A base that is not learned, so nothing is cross-fitted."""
    return 1 / (1 + np.exp(-2 * np.asarray(X)[:, 0]))


@pytest.mark.parametrize(
    "model",
    [
        LagrangianDualClassifier(epsilon=math.inf, groups=["f", "m"], base=scores, random_state=0),
        LagrangianDualClassifier(epsilon=1.0, groups=["f", "m"], base=scores, random_state=0, noise_seed=0),
        LagrangianDualRegressor("mean_parity", epsilon=math.inf, groups=["f", "m"], base=scores, random_state=0),
    ],
    ids=["classifier", "classifier with noise", "regressor"],
)
@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
def test_weights_are_relative_so_that_equal_weights_are_none(people: Any, model: Any) -> None:
    answers = []
    for weight in (None, np.full(120, 2.0)):
        fitted = clone(model).fit(people.X, people.y, sensitive_features=people.a, sample_weight=weight)
        answers.append(fitted.predict(people.X))
    assert np.array_equal(*answers)


def test_feature_names_of_a_frame_are_kept_and_checked(people: Any, make: Any) -> None:
    X = pd.DataFrame(people.X, columns=["x", "y", "z"])
    model = make().fit(X, people.y, sensitive_features=people.a)
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.rename(columns={"z": "w"}))
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(X[["z", "y", "x"]])


def test_pipeline_with_set_output_gives_the_model_the_names_of_its_transformers(people: Any, make: Any) -> None:
    X = pd.DataFrame(people.X, columns=["x", "y", "z"])
    pipe = Pipeline([("scale", StandardScaler()), ("clf", make())]).set_output(transform="pandas")
    pipe.fit(X, people.y, clf__sensitive_features=people.a)
    assert pipe[-1].feature_names_in_.tolist() == ["x", "y", "z"]
    assert pipe[:-1].get_feature_names_out().tolist() == ["x", "y", "z"]


def test_tags_say_what_estimators_are_and_take() -> None:
    classifier, regressor = get_tags(LagrangianDualClassifier()), get_tags(LagrangianDualRegressor())
    assert (classifier.estimator_type, regressor.estimator_type) == ("classifier", "regressor")
    assert classifier.classifier_tags.multi_class
    assert not get_tags(LagrangianDualClassifier(engine="pf-ld")).classifier_tags.multi_class
    for tags in (classifier, regressor):
        assert tags.input_tags.allow_nan
        assert tags.input_tags.string
        assert tags.non_deterministic  # the noise is the operating system's
        assert tags.target_tags.required


def test_request_for_the_attribute_is_on_by_default_and_can_be_taken_back() -> None:
    requests = get_routing_for_object(LagrangianDualClassifier()).fit.requests
    assert requests["sensitive_features"] is True
    assert requests["sample_weight"] is None
    with sklearn.config_context(enable_metadata_routing=True):
        changed = LagrangianDualClassifier().set_fit_request(sensitive_features=False, sample_weight=True)
    assert get_routing_for_object(changed).fit.requests["sensitive_features"] is False


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def scorer() -> Any:
    return make_scorer(violation, greater_is_better=False).set_score_request(sensitive_features=True)


@pytest.mark.usefixtures("routing")
def test_pipeline_routing_on_passes_the_attribute_to_fit_only(people: Any, make: Any) -> None:
    pipe = Pipeline([("scale", StandardScaler()), ("clf", make())])
    pipe.fit(people.X, people.y, sensitive_features=people.a)
    direct = make().fit(StandardScaler().fit_transform(people.X), people.y, sensitive_features=people.a)
    assert np.array_equal(pipe.predict(people.X), direct.predict(StandardScaler().fit_transform(people.X)))
    assert pipe[-1].certificate_.epsilon == pytest.approx(8.0, abs=1e-6)


def test_pipeline_routing_off_takes_the_prefixed_keyword(people: Any, make: Any) -> None:
    pipe = Pipeline([("scale", StandardScaler()), ("clf", make())])
    pipe.fit(people.X, people.y, clf__sensitive_features=people.a)
    assert pipe.predict(people.X).shape == (120,)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    "container", [np.asarray, pd.Series, list, pl.Series], ids=["numpy", "pandas", "list", "polars"]
)
def test_cross_validate_violation_scorer_sees_the_rows_of_its_fold(
    people: Any, make: Any, scorer: Any, container: Any
) -> None:
    found = cross_validate(
        make(),
        people.X,
        people.y,
        scoring={"violation": scorer, "accuracy": "accuracy"},
        params={"sensitive_features": container(people.a)},
        cv=3,
        return_estimator=True,
        return_indices=True,
        error_score="raise",
    )
    for fold, model in enumerate(found["estimator"]):
        rows = found["indices"]["test"][fold]
        by_hand = violation(people.y[rows], model.predict(people.X[rows]), sensitive_features=people.a[rows])
        assert found["test_violation"][fold] == -by_hand


@pytest.mark.usefixtures("routing")
def test_grid_search_over_tolerance_routes_to_fit_and_scorer(people: Any, make: Any, scorer: Any) -> None:
    search = GridSearchCV(make(), {"tolerance": [0.0, 0.3]}, scoring=scorer, cv=2, error_score="raise")
    search.fit(people.X, people.y, sensitive_features=people.a)
    assert search.best_params_["tolerance"] in (0.0, 0.3)
    assert search.best_estimator_.tolerance == search.best_params_["tolerance"]
    assert (search.cv_results_["mean_test_score"] <= 0).all()


@pytest.mark.usefixtures("routing")
def test_cross_validate_shared_ledger_adds_up_over_folds(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    model = make().set_fit_request(ledger=True)
    cross_validate(
        model, people.X, people.y, params={"sensitive_features": people.a, "ledger": ledger}, cv=2, error_score="raise"
    )
    assert len(ledger.releases) == 2 * 7  # per fold: sizes once, three violations, three group gradients


@pytest.mark.usefixtures("routing")
def test_sample_weight_requested_is_routed(people: Any, make: Any) -> None:
    weight = np.where(people.X[:, 2] > 0, 1.0, 9.0)
    pipe = Pipeline([("scale", StandardScaler().set_fit_request(sample_weight=False)), ("clf", make())])
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        clone(pipe).fit(people.X, people.y, sensitive_features=people.a, sample_weight=weight)
    pipe[-1].set_fit_request(sample_weight=True)
    weighted = clone(pipe).fit(people.X, people.y, sensitive_features=people.a, sample_weight=weight)
    plain = clone(pipe).fit(people.X, people.y, sensitive_features=people.a)
    assert not np.array_equal(weighted.decision_function(people.X), plain.decision_function(people.X))


def test_fit_without_sensitive_features_is_an_error(people: Any, make: Any) -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'sensitive_features'"):
        make().fit(people.X, people.y)
