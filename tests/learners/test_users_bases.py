"""``base=`` as users pass it: their own model, fitted or not, a pipeline, a function, a column; and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from torch import nn
from xgboost import XGBClassifier

from bench.rivals import PlainClassifier
from justitia import LagrangianDualClassifier
from justitia.learners.base import CrossFitted, Fitted, Inputs, ScoreColumn, base_of
from justitia.tasks import Task

N = 600
YES_NO = Task.of_classes(["no", "yes"])


def table(seed: int = 0) -> tuple[pd.DataFrame, Any, Any]:
    """Numbers and a category, labels in words, and an attribute that leans on one of the numbers."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["u", "v"])
    chance = 1 / (1 + np.exp(-2 * X["u"] - X["v"]))
    y = np.where(rng.uniform(size=N) < chance, "yes", "no")
    a = np.where(X["v"] + rng.normal(size=N) > 0, "f", "m")
    return X.assign(job=rng.choice(["clerk", "cook"], N), score=chance), y, a


def earlier() -> tuple[pd.DataFrame, Any]:
    """Rows and labels of another year."""
    rows, y, _ = table(1)
    return rows[["u", "v"]], y


X, Y, A = table()
NUMBERS = X[["u", "v"]]


def model(base: Any, **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"groups": ["f", "m"], "epsilon": 8.0, "random_state": 0, "noise_seed": 0, "tolerance": 0.0}
    return LagrangianDualClassifier(base=base, **usual | changes)


def encoded(last: Any) -> Any:
    columns = make_column_transformer((OneHotEncoder(), ["job"]), ("passthrough", ["u", "v"]))
    return make_pipeline(columns, last)


def small(kind: Any, **changes: Any) -> Any:
    return kind(n_estimators=20, n_jobs=1, **changes)


BASES: dict[str, tuple[Callable[[], Any], pd.DataFrame]] = {
    "LightGBM": (lambda: small(LGBMClassifier, verbosity=-1), NUMBERS),
    "fitted LightGBM": (lambda: small(LGBMClassifier, verbosity=-1).fit(*earlier()), NUMBERS),
    "XGBoost in a pipeline": (lambda: encoded(small(XGBClassifier)), X),
    "fitted XGBoost in a pipeline": (lambda: encoded(small(XGBClassifier)).fit(X, (Y == "yes").astype(int)), X),
    "forest": (lambda: small(RandomForestClassifier, min_samples_leaf=5), NUMBERS),
    "fitted forest": (lambda: small(RandomForestClassifier, min_samples_leaf=5).fit(NUMBERS, Y), NUMBERS),
    "logistic regression": (LogisticRegression, NUMBERS),
    "histogram boosting with categories": (
        lambda: HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype"),
        X.astype({"job": "category"}),
    ),
    "function": (lambda: lambda rows: 1 / (1 + np.exp(-2 * rows["u"] - rows["v"])), NUMBERS),
    "column": (lambda: "score", X),
    "network": (lambda: PlainClassifier(module=(4,), steps=200, learning_rate=0.02), NUMBERS),
    "module": (lambda: PlainClassifier(module=nn.Linear(2, 1), steps=200, learning_rate=0.02), NUMBERS),
}
every_base = pytest.mark.parametrize("name", BASES)


@every_base
def test_fit_on_a_users_base_predicts_its_labels_and_lessens_the_gap(name: str) -> None:
    make, rows = BASES[name]
    free, strict = (model(make(), tolerance=one).fit(rows, Y, sensitive_features=A) for one in (1.0, 0.0))
    assert set(strict.predict(rows)) == {"no", "yes"}
    assert np.mean(strict.predict(rows) == Y) > 0.65
    gaps = []
    for one in (free, strict):
        positive = one.predict(rows) == "yes"
        gaps.append(abs(positive[A == "f"].mean() - positive[A == "m"].mean()))
    assert gaps[0] > 0.15
    assert gaps[1] < 0.6 * gaps[0]


@every_base
def test_fit_leaves_a_users_base_as_it_was(name: str) -> None:
    make, rows = BASES[name]
    base = make()
    kind, inputs = base_of(base, YES_NO), Inputs(rows, NUMBERS.to_numpy())
    assert kind is not None
    told = None if isinstance(kind, CrossFitted) else kind.predict(inputs)
    assert model(base).fit(rows, Y, sensitive_features=A).base is base
    again = base_of(base, YES_NO)
    assert again is not None
    assert type(again) is type(kind)  # what was not fitted is not fitted still
    assert told is None or np.array_equal(again.predict(inputs), told)


@every_base
def test_fit_without_a_constraint_that_binds_decides_as_the_base_does(name: str) -> None:
    make, rows = BASES[name]
    made = model(make(), tolerance=1.0).fit(rows, Y, sensitive_features=A)
    eta = made.rule_.calibration(made.rule_.base.predict(made_inputs(made, rows)))
    assert np.array_equal(made.predict(rows) == "yes", eta > 0.5)
    assert made.predict_proba(rows)[:, 1] == pytest.approx(eta)
    assert not made.dual_.to_numpy().any()


def made_inputs(made: LagrangianDualClassifier, rows: pd.DataFrame) -> Any:
    return Inputs(rows, made._features(rows, reset=False))


@pytest.mark.parametrize("weight", ["equal", "some"])
@pytest.mark.parametrize("name", ["LightGBM", "XGBoost in a pipeline", "fitted forest", "function", "column"])
def test_fit_with_weights_works_for_every_kind_of_base(name: str, weight: str) -> None:
    make, rows = BASES[name]
    weights = np.ones(N) if weight == "equal" else np.where(Y == "yes", 3.0, 1.0)
    made = model(make()).fit(rows, Y, sensitive_features=A, sample_weight=weights)
    assert made.predict(rows).shape == (N,)


def test_weights_change_a_pipeline_that_is_cross_fitted() -> None:
    make, rows = BASES["XGBoost in a pipeline"]
    plain, weighted = (
        model(make(), tolerance=1.0).fit(rows, Y, sensitive_features=A, sample_weight=one)
        for one in (None, np.where(Y == "yes", 5.0, 1.0))
    )
    assert np.mean(weighted.predict(rows) == "yes") > np.mean(plain.predict(rows) == "yes")


def test_base_that_takes_no_weights_is_refused_with_them_in_one_sentence() -> None:
    with pytest.raises(
        ValueError, match="expected a base that takes sample_weight, got 'KNeighborsClassifier'"
    ) as caught:
        model(KNeighborsClassifier()).fit(NUMBERS, Y, sensitive_features=A, sample_weight=np.arange(1.0, N + 1))
    assert "\n" not in str(caught.value)
    assert model(KNeighborsClassifier()).fit(NUMBERS, Y, sensitive_features=A).predict(NUMBERS).shape == (N,)


# Which class is positive


def test_fitted_base_is_read_by_its_own_classes() -> None:
    """A base whose second class is the first of the labels is not turned round."""
    turned = LogisticRegression().fit(NUMBERS, np.where(Y == "yes", "a yes", "no"))
    assert turned.classes_.tolist() == ["a yes", "no"]
    made = model(turned, tolerance=1.0).fit(NUMBERS, np.where(Y == "yes", "a yes", "no"), sensitive_features=A)
    assert made.classes_.tolist() == ["a yes", "no"]
    assert np.array_equal(made.predict(NUMBERS), turned.predict(NUMBERS))


def test_fitted_base_of_numbers_serves_labels_in_words() -> None:
    base = LogisticRegression().fit(NUMBERS, (Y == "yes").astype(int))
    made = model(base, tolerance=1.0).fit(NUMBERS, Y, sensitive_features=A)
    assert np.array_equal(made.predict(NUMBERS) == "yes", base.predict(NUMBERS) == 1)


# Through scikit-learn's tools


def test_clone_makes_a_fitted_base_new_and_leaves_a_frozen_one_fitted() -> None:
    base = LogisticRegression().fit(NUMBERS, Y)
    assert isinstance(base_of(clone(model(base)).base, YES_NO), CrossFitted)
    assert isinstance(base_of(clone(model(FrozenEstimator(base))).base, YES_NO), Fitted)


def test_frozen_base_goes_through_a_grid_search_and_cross_validation() -> None:
    base = FrozenEstimator(LogisticRegression().fit(*earlier()))
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(model(base), {"tolerance": [0.0, 1.0]}, cv=2, error_score="raise")
        search.fit(NUMBERS, Y, sensitive_features=A)
        found = cross_validate(
            model(base), NUMBERS, Y, params={"sensitive_features": A}, cv=2, error_score="raise", return_estimator=True
        )
    assert search.best_params_ == {"tolerance": 1.0}  # accuracy is the score
    assert all(isinstance(one.rule_.base, Fitted) for one in [*found["estimator"], search.best_estimator_])


def test_base_in_a_pipeline_sees_what_the_steps_before_made() -> None:
    pipe = make_pipeline(StandardScaler(), model(LogisticRegression(), preprocess=None))
    pipe.fit(NUMBERS, Y, lagrangiandualclassifier__sensitive_features=A)
    assert pipe.predict(NUMBERS).shape == (N,)


# What is refused


class Spoiled(LogisticRegression):
    """Learns nothing, and then raises two lines."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return self

    def predict_proba(self, X: Any) -> Any:
        raise RuntimeError("first line\nsecond line")


@pytest.mark.parametrize(
    ("base", "error", "words"),
    [
        (LogisticRegression, TypeError, "got 'LogisticRegression'; pass an object of that class"),
        (nn.Linear(2, 1), TypeError, "got 'Linear'; pass it as module="),
        (LinearSVC(), TypeError, "expected a base with predict_proba, got 'LinearSVC', which has none"),
        (LinearRegression(), TypeError, "expected a base with predict_proba, got 'LinearRegression', which has none"),
        (3, TypeError, "expected base to be a classifier, a function of X or the name of a column, got 'int'"),
        ("absent", ValueError, "expected X to have a column 'absent' of scores"),
        ("job", ValueError, r"expected one probability between 0 and 1 per row from the base \(column 'job'\)"),
        ("u", ValueError, r"expected one probability between 0 and 1 per row from the base \(column 'u'\)"),
        (lambda rows: np.full(len(rows), 2.0), ValueError, "expected one probability between 0 and 1 per row"),
        (lambda rows: np.full(3, 0.5), ValueError, "expected one probability between 0 and 1 per row"),
        (lambda rows: np.full(len(rows), np.nan), ValueError, "expected one probability between 0 and 1 per row"),
        (lambda rows: rows["gone"], ValueError, "to learn from X and y and to score X, got ''gone''"),
        (Spoiled(), ValueError, "the base 'Spoiled' to learn from X and y and to score X, got 'first line'"),
        (LogisticRegression(), ValueError, "pass a pipeline that prepares X for it"),  # of a table with words
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__) if not isinstance(one, str) else one[:20],
)
def test_wrong_base_is_refused_in_one_sentence_before_anything_is_asked(base: Any, error: Any, words: str) -> None:
    made = model(base)
    with pytest.raises(error, match=words) as caught:
        made.fit(X, Y, sensitive_features=A)
    assert "\n" not in str(caught.value)
    assert not hasattr(made, "rule_")


def test_score_column_that_is_missing_at_prediction_is_told_in_one_sentence() -> None:
    made = model("score").fit(X, Y, sensitive_features=A)
    with pytest.raises(ValueError, match="score") as caught:
        made.predict(X.drop(columns="score"))
    assert "attribute" not in str(caught.value)


def test_kinds_of_base_are_told_apart() -> None:
    fitted = LogisticRegression().fit(NUMBERS, Y)
    assert base_of(None, YES_NO) is None
    assert isinstance(base_of("score", YES_NO), ScoreColumn)
    assert isinstance(base_of(LogisticRegression(), YES_NO), CrossFitted)
    assert isinstance(base_of(fitted, YES_NO), Fitted)
    assert isinstance(base_of(make_pipeline(StandardScaler(), LogisticRegression()), YES_NO), CrossFitted)
    assert isinstance(base_of(make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS, Y), YES_NO), Fitted)
    assert isinstance(base_of(lambda rows: rows, YES_NO), Fitted)
    ready = ScoreColumn("score")
    assert base_of(ready, YES_NO) is ready


def test_base_with_an_engine_that_trains_a_network_is_refused_in_one_sentence() -> None:
    for changes in ({"engine": "moments"}, {"engine": "pf-ld"}, {"module": (4,)}):
        with pytest.raises(ValueError, match="expected engine 'post-processing' where base, threshold or class_weight"):
            model(LogisticRegression(), **changes).fit(NUMBERS, Y, sensitive_features=A)
    with pytest.raises(ValueError, match="expected no module with engine 'post-processing', got one; pass it as base"):
        model(None, engine="post-processing", module=(4,)).fit(NUMBERS, Y, sensitive_features=A)
