"""Checks and conversion of estimator inputs: features, targets, sample weights and class weights."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d, validate_data

from justitia._validate import check_choice
from justitia.preprocessing.outliers import clip_weights
from justitia.tasks import BINARY, NUMBER, Task

#: Most classes that a classifier reads without being told that y holds classes; more are often a quantity.
MOST_CLASSES = 20
TASKS = ("auto", "classes", "number")


def read_numbers(model: BaseEstimator, X: Any, *, reset: bool) -> NDArray[np.float32]:
    """X as float32, if it holds finite numbers in two or more dimensions; ``reset`` stores its shape on ``model``."""
    try:
        array = validate_data(
            model, X, dtype=np.float32, allow_nd=True, ensure_all_finite=False, copy=True, reset=reset
        )
    except (TypeError, ValueError) as error:
        # scikit-learn's own message prints the data.
        if "Expected 2D array" in str(error):
            raise ValueError(
                "expected X to have rows and columns, got fewer than 2 dimensions: Reshape your data, "
                "with .reshape(-1, 1) if it is one column."
            ) from None
        if "float" not in str(error):
            raise
        reason = str(error).splitlines()[0].rstrip(".")
        raise type(error)(
            f"expected numbers in X because preprocess=None, got something else ({reason}); encode it, "
            "or use preprocess='auto'."
        ) from None
    found: NDArray[np.float32] = array
    if not np.isfinite(found).all():
        raise ValueError(
            "expected finite numbers in X because preprocess=None, but X contains NaN or infinity; "
            "fill the gaps, or use preprocess='auto'."
        )
    return found


class PlainNumbers:
    """Encoder of ``preprocess=None``: tables with this many columns, as they are; picklable."""

    def __init__(self, columns: int) -> None:
        self._like = BaseEstimator()
        self._like.n_features_in_ = columns

    def __call__(self, table: Any) -> NDArray[np.float32]:
        """Features as numbers."""
        return read_numbers(self._like, np.asarray(table), reset=False)


def read_target(y: Any) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The two class labels, sorted, and (n,) codes 0 and 1."""
    if y is None:
        raise ValueError("This classifier requires y to be passed, but the target y is None; pass two class labels.")
    return _read_classes(column_or_1d(y, warn=True), most=2)


def read_task_target(y: Any, task: str = "auto") -> tuple[Task, NDArray[Any], NDArray[Any]]:
    """Kind of the target, its class labels and its values.

    Parameters
    ----------
    y : array-like (n,)
    task : {"auto", "classes", "number"}
        "auto" and "classes" read class labels, binary if they are two: text, truth values, categories or whole
        numbers. "auto" refuses more than ``MOST_CLASSES`` of them. "number" reads finite numbers.

    Returns
    -------
    task : Task
    classes : ndarray (K,)
        Class labels, sorted, in the type of y; empty for a number.
    values : ndarray (n,)
        float32 codes 0 .. K - 1 of the classes, or float64 numbers.

    Raises
    ------
    ValueError, TypeError
        If y is missing, empty, not finite, of one class or of another kind.
    """
    check_choice("task", task, TASKS)
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None; pass one value per row.")
    values = column_or_1d(y, warn=True)
    if task == "number":
        return NUMBER, np.array([]), _finite_numbers(values)
    classes, codes = _read_classes(values, most=MOST_CLASSES if task == "auto" else math.inf)
    return Task.of_classes(classes), classes, codes


def _finite_numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers of a target; complex ones and text, even text that reads as a number, are mistakes."""
    is_text = values.dtype.kind in "USO" and any(isinstance(one, str | bytes) for one in values.tolist())
    try:
        found = None if is_text or values.dtype.kind in "cmM" else values.astype(np.float64)
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise TypeError(
            "expected numbers in y, got something else; convert them, or use LagrangianDualClassifier if y holds "
            "classes."
        )
    if not len(found):
        raise ValueError("expected y to have rows, got 0 sample(s) while a minimum of 1 is required.")
    if not np.isfinite(found).all():
        raise ValueError("Input y contains NaN or infinity; expected a finite number in every row.")
    return found


def _check_several_classes(labels: NDArray[Any], count: int, most: float) -> None:
    """Refuse more than ``most`` classes, and numbers that are not whole."""
    if most == 2:
        check_classification_targets(labels)
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: "
            "merge classes until two are left, or train one model per class."
        )
    is_number = labels.dtype.kind in "iuf" or all(isinstance(one, numbers.Real) for one in labels.tolist())
    if is_number and (labels.astype(np.float64) % 1 != 0).any():
        raise ValueError(
            "Unknown label type: continuous. Expected class labels in y, got numbers that are not whole; use "
            "LagrangianDualRegressor for a numeric target, or divide y into bins."
        )
    if count > most:
        advice = "use LagrangianDualRegressor, or divide y into bins" if is_number else "merge rare classes"
        raise ValueError(f"expected at most {most:g} classes in y, got {count} different values; {advice}.")


def _read_classes(labels: NDArray[Any], *, most: float) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The class labels, of which there are two to ``most``, sorted, and (n,) codes."""
    if not len(labels):
        raise ValueError("expected y to have rows, got 0 sample(s) while a minimum of 1 is required.")
    if pd.isna(labels).any():
        raise ValueError("Input y contains NaN or another missing value; expected a class label in every row.")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError("Input y contains infinity; expected a class label in every row.")
    try:
        count = len(pd.unique(labels))
    except TypeError:
        check_classification_targets(labels)
        raise TypeError("Unknown label type: expected text or numbers in y, got nested values.") from None
    if count > 2:
        _check_several_classes(labels, count, most)
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise TypeError("expected class labels of one type in y, got several; pass all text or all numbers.") from None
    if len(classes) < 2:
        (only,) = classes.tolist()
        raise ValueError(f"expected two classes in y, got only one class, {only!r}; pass rows of both.")
    return classes, codes.astype(np.float32)


def read_weight(sample_weight: Any, target: NDArray[Any], task: Task = BINARY) -> NDArray[np.float32]:
    """Public weights (n,), clipped (:func:`justitia.preprocessing.outliers.clip_weights`) and scaled to mean 1.

    Every class of the target needs a row with a positive weight.
    """
    n = len(target)
    if sample_weight is None:
        return np.ones(n, dtype=np.float32)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError("expected sample_weight to hold one number per row, got something else.") from None
    weight = np.full(n, weight) if weight.ndim == 0 else weight
    if weight.shape != (n,):
        raise ValueError(f"expected one sample_weight per row, shape ({n},), got shape {weight.shape}.")
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("expected every sample_weight to be finite and at least 0, got others; replace them.")
    if not (weight > 0).any():
        raise ValueError("expected some sample_weight above zero, got zero everywhere; leave it out to count all rows.")
    weight = weight / weight.max()
    if any(weight[target == code].sum() == 0 for code in range(task.n_classes)):
        if task.kind == "binary":
            raise ValueError("expected a positive sample_weight in both classes, got it in one class only.")
        raise ValueError("expected a positive sample_weight in every class, got a class without; leave its rows out.")
    weight = clip_weights(weight)
    scaled: NDArray[np.float32] = (weight / weight.mean()).astype(np.float32)
    return scaled


def read_costs(class_weight: Any, classes: NDArray[Any], target: NDArray[np.float32]) -> NDArray[np.float64]:
    """(K,): cost of an error by true class."""
    try:
        y = classes[target.astype(np.int64)]
        costs: NDArray[np.float64] = compute_class_weight(class_weight, classes=classes, y=y).astype(np.float64)
    except (TypeError, ValueError):
        costs = np.zeros(len(classes))
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise ValueError(
            f"expected class_weight to be 'balanced' or a cost above 0 by class, got {class_weight!r}; the classes are "
            f"{classes.tolist()}."
        )
    return costs


def public_seed(random_state: Any) -> int:
    """Seed of all public randomness; None draws a fresh one and leaves numpy's global generator alone."""
    try:
        source = np.random.RandomState() if random_state is None else check_random_state(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"expected random_state to be a non-negative int, a numpy RandomState or None, got {random_state!r}."
        ) from None
    return int(source.randint(2**31 - 1))
