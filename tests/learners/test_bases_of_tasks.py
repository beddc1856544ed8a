"""``base=`` for targets of several classes and for numbers: what becomes of it, and what is refused."""

from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import nn
from xgboost import XGBClassifier, XGBRegressor

from justitia.learners.base import CrossFitted, Fitted, Inputs, ScoreColumn, ScoreColumns, base_of, check_prediction
from justitia.tasks import BINARY, NUMBER, Task

CLASSES = Task.of_classes(["high", "low", "medium"])
N = 120
X = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), columns=["u", "v"])
CODES = (np.arange(N) % 3).astype(float)
LABELS = np.array(CLASSES.classes)[CODES.astype(int)]
NUMBERS = (2 * X["u"] + 1).to_numpy()
SHARES = np.full((N, 3), [0.2, 0.3, 0.5])
TABLE = X.assign(a=0.2, b=0.3, c=0.5, gap=np.nan, word="x")


def inputs(table: Any = TABLE) -> Inputs:
    return Inputs(table, X.to_numpy().astype(np.float32))


def learned(base: Any, task: Task, y: Any, weight: Any = None) -> Any:
    found = base_of(base, task)
    assert found is not None
    weights = np.ones(N) if weight is None else weight
    return found.learn(Inputs(X, X.to_numpy()), y, weights, seed=0, progress=lambda _: None)


# What becomes of it


@pytest.mark.parametrize(
    ("base", "task", "kind"),
    [
        (LogisticRegression(), CLASSES, CrossFitted),
        (LogisticRegression().fit(X, LABELS), CLASSES, Fitted),
        (FrozenEstimator(LogisticRegression().fit(X, LABELS)), CLASSES, Fitted),
        (make_pipeline(StandardScaler(), LogisticRegression()), CLASSES, CrossFitted),
        (lambda table: SHARES[: len(table)], CLASSES, Fitted),
        (["a", "b", "c"], CLASSES, ScoreColumns),
        ({"low": "b", "high": "a", "medium": "c"}, CLASSES, ScoreColumns),
        (Ridge(), NUMBER, CrossFitted),
        (Ridge().fit(X, NUMBERS), NUMBER, Fitted),
        (make_pipeline(StandardScaler(), Ridge()), NUMBER, CrossFitted),
        (make_pipeline(StandardScaler(), Ridge()).fit(X, NUMBERS), NUMBER, Fitted),
        (lambda table: table["u"], NUMBER, Fitted),
        ("u", NUMBER, ScoreColumn),
        (["a", "b"], BINARY, ScoreColumn),
    ],
)
def test_base_of_a_task_is_of_the_right_kind(base: Any, task: Task, kind: type) -> None:
    found = base_of(base, task)
    assert type(found) is kind
    assert found.task == task
    assert base_of(found, task) is found


@pytest.mark.parametrize("base", [["a", "b", "c"], {"low": "b", "high": "a", "medium": "c"}], ids=["list", "mapping"])
def test_columns_of_scores_are_in_the_order_of_the_classes(base: Any) -> None:
    found = base_of(base, CLASSES)
    assert found is not None
    assert found.predict(inputs()) == pytest.approx(SHARES)
    assert found.describe() == "scores in columns 'a', 'b', 'c'"


def test_fitted_classifier_is_read_by_its_own_classes_or_by_codes() -> None:
    by_label = LogisticRegression().fit(X, LABELS)
    shuffled = Task.of_classes(["medium", "high", "low"])
    assert Fitted(by_label, CLASSES).predict(inputs(X)) == pytest.approx(by_label.predict_proba(X))
    assert Fitted(by_label, shuffled).predict(inputs(X)) == pytest.approx(by_label.predict_proba(X)[:, [2, 0, 1]])
    by_code = LogisticRegression().fit(X, CODES.astype(int))
    assert Fitted(by_code, CLASSES).predict(inputs(X)) == pytest.approx(by_code.predict_proba(X))


def test_cross_fitted_classifier_learns_codes_whatever_the_labels_are() -> None:
    """Labels 2, 0, 1 in this order have the codes 0, 1, 2: code 0 is not label 0."""
    y = (X["u"] > 0.4).astype(float) + (X["u"] > -0.4)
    found = learned(LogisticRegression(), Task.of_classes([2, 0, 1]), y.to_numpy())
    assert np.mean(found.argmax(1) == y) > 0.8


def test_cross_fitted_regressor_is_the_same_as_by_hand() -> None:
    base = base_of(LinearRegression(), NUMBER)
    assert isinstance(base, CrossFitted)
    y = NUMBERS + np.random.default_rng(1).normal(size=N)
    base.learn(Inputs(X, X.to_numpy()), y, np.ones(N), seed=0, progress=lambda _: None)
    by_hand = np.mean([model.predict(X) for model in base.models], axis=0)
    assert base.predict(inputs(X)) == pytest.approx(by_hand)
    assert base.describe() == "LinearRegression, average of 5 cross-fitted models"


@pytest.mark.parametrize("rare", [1, 2])
def test_classifier_that_demands_every_class_in_every_fold_reads_a_rare_one(rare: int) -> None:
    y = (CODES % 2).copy()
    y[:rare] = 2.0
    assert learned(XGBClassifier(n_estimators=3, n_jobs=1), CLASSES, y).shape == (N, 3)


def test_regressors_of_other_libraries_are_cross_fitted() -> None:
    for base in (XGBRegressor(n_estimators=30, n_jobs=1), lightgbm.LGBMRegressor(verbosity=-1, n_jobs=1)):
        found = learned(base, NUMBER, NUMBERS)
        assert 1 - np.var(NUMBERS - found) / np.var(NUMBERS) > 0.7


def test_booster_that_cannot_be_fitted_again_is_used_as_it_is() -> None:
    booster = lightgbm.LGBMRegressor(n_estimators=5, verbosity=-1, n_jobs=1).fit(X, NUMBERS).booster_
    found = base_of(booster, NUMBER)
    assert isinstance(found, Fitted)
    assert np.array_equal(found.predict(inputs(X)), booster.predict(X))


def test_predictions_of_one_column_are_read_as_numbers() -> None:
    found = base_of(lambda table: np.asarray(table[["u"]]), NUMBER)
    assert found is not None
    assert np.array_equal(found.predict(inputs()), X["u"])


def test_probabilities_that_were_rounded_are_scaled_to_1() -> None:
    rounded = np.array([[0.33, 0.33, 0.33], [0.005, 0.0, 1.0]])
    found = check_prediction(rounded, 2, CLASSES, "columns")
    assert found.sum(1) == pytest.approx([1.0, 1.0], abs=1e-15)
    assert found[0] == pytest.approx([1 / 3] * 3)


def test_weights_of_a_regressor_that_takes_none_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="expected a base that takes sample_weight, got 'KNeighborsRegressor'"):
        learned(KNeighborsRegressor(), NUMBER, NUMBERS, np.arange(1.0, N + 1))


# What is refused


@pytest.mark.parametrize(
    ("base", "task", "error", "words"),
    [
        (LinearRegression(), CLASSES, TypeError, "got 'LinearRegression', which has none; pass a classifier"),
        (LinearSVC(), CLASSES, TypeError, "got 'LinearSVC', which has none; wrap it in scikit-learn's Calibrated"),
        (LogisticRegression(), NUMBER, TypeError, "expected base to be a regressor because y holds numbers, got the"),
        (LinearSVC(), NUMBER, TypeError, "got the classifier 'LinearSVC'; pass a regressor"),
        (make_pipeline(StandardScaler(), LinearSVC()), NUMBER, TypeError, "got the classifier 'Pipeline'"),
        (StandardScaler(), NUMBER, TypeError, "expected a base with predict, got 'StandardScaler', which has none"),
        (Ridge, NUMBER, TypeError, "expected base to be a regressor, got 'Ridge'; pass an object of that class"),
        (nn.Linear(2, 1), NUMBER, TypeError, "got 'Linear'; pass a function of X that gives its predictions"),
        (3, NUMBER, TypeError, "expected base to be a regressor, a function of X or the name of a column, got 'int'"),
        ("a", CLASSES, ValueError, "expected one column of scores per class because y has 3 classes, got the name 'a'"),
        (["a", "b"], CLASSES, ValueError, r"expected the names of 3 columns, one per class in the order \['high', 'l"),
        (["a", "b", 3], CLASSES, ValueError, "expected the names of 3 columns"),
        ({"low": "a", "high": "b"}, CLASSES, ValueError, "expected a column of scores for each of the classes"),
        (["a", "b"], NUMBER, ValueError, "expected the name of one column because y holds numbers, got 2 columns"),
        (ScoreColumn("a"), CLASSES, ValueError, "expected a base for a target of 3 classes, got 'ScoreColumn' for two"),
        (ScoreColumn("a"), NUMBER, ValueError, "expected a base for a target of numbers, got 'ScoreColumn' for two"),
        (CrossFitted(Ridge(), NUMBER), BINARY, ValueError, "expected a base for a target of two classes"),
    ],
)
def test_base_of_another_target_is_refused_in_one_sentence(base: Any, task: Task, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        base_of(base, task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "task", "words"),
    [
        (lambda table: SHARES[:, :2], CLASSES, r"got shape \(120, 2\) for 120 rows; pass one column per class"),
        (lambda table: SHARES[:, 0], CLASSES, r"got shape \(120,\) for 120 rows"),
        (lambda table: SHARES[:3], CLASSES, r"got shape \(3, 3\) for 120 rows"),
        (lambda table: SHARES * 0.9, CLASSES, "got rows that do not add up to 1; pass probabilities of all classes"),
        (lambda table: SHARES - 0.3, CLASSES, "got numbers that are not between 0 and 1; pass probabilities"),
        (lambda table: SHARES * np.nan, CLASSES, "got numbers that are not between 0 and 1"),
        (["a", "b", "gone"], CLASSES, "expected X to have a column 'gone' of scores, got 7 other columns"),
        (["a", "b", "word"], CLASSES, "got numbers that are not between 0 and 1"),
        (["a", "b", "gap"], CLASSES, r"from the base \(columns 'a', 'b', 'gap'\), got numbers"),
        (["a", "a", "a"], CLASSES, "got rows that do not add up to 1"),
        (LogisticRegression().fit(X, CODES > 1), CLASSES, "expected a base that predicts the 3 classes of y, got 'Log"),
        (LogisticRegression().fit(X, CODES + 1), CLASSES, "expected a base that predicts the 3 classes of y"),
        (lambda table: np.full(N, np.inf), NUMBER, "expected one finite number per row from the base"),
        (lambda table: np.ones(3), NUMBER, "expected one finite number per row from the base"),
        (lambda table: np.ones((N, 2)), NUMBER, "expected one finite number per row from the base"),
        (lambda table: table["word"], NUMBER, "to learn from X and y and to score X, got 'could not convert"),
        ("gap", NUMBER, r"expected one finite number per row from the base \(column 'gap'\)"),
        ("word", NUMBER, r"expected one finite number per row from the base \(column 'word'\)"),
    ],
)
def test_wrong_predictions_are_refused_in_one_sentence(base: Any, task: Task, words: str) -> None:
    found = base_of(base, task)
    assert found is not None
    rows = inputs(X) if isinstance(base, LogisticRegression) else inputs()
    with pytest.raises(ValueError, match=words) as caught:
        found.predict(rows)
    assert "\n" not in str(caught.value)
