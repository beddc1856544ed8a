"""Labels and predictions as they are measured: two classes, several classes, or numbers.

Everything here is public. Which of the three a measurement is about is seen from the values, unless that would be a
guess; then one sentence asks for ``task``.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia._validate import check_choice, check_same_length

Array = NDArray[np.float64]
Kind = Literal["binary", "classes", "number"]

TASKS = ("auto", "classes", "number")
#: Numbers with at most so many different values may be names of classes just as well.
FEW_VALUES = 30
#: Rates of more classes would each rest on very few rows.
MOST_CLASSES = 100
#: Squares of larger numbers would not be finite.
LARGEST_NUMBER = 1e100


def kind_of_target(y_true: Any, y_pred: Any, task: str, pos_label: Any = None) -> Kind:
    """What is measured: decisions between two classes or among several, or numeric predictions.

    With ``task="auto"`` two labels are two classes, labels that are not numbers are classes, and numbers with more
    than 30 different values are numbers.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels may be None.
    task : {"auto", "classes", "number"}
    pos_label : label, optional
        One that is given says that there are two classes.

    Raises
    ------
    ValueError, TypeError
        If values and task do not fit, or if numbers may be classes.
    """
    check_choice("task", task, TASKS)
    if task == "number":
        if pos_label is not None:
            raise ValueError("expected no pos_label with task='number', got one; leave it out.")
        return "number"
    labels = set() if y_true is None else _distinct("y_true", y_true)
    found = labels | _distinct("y_pred", y_pred)
    if len(found) <= 2 or pos_label is not None:
        return "binary"
    if task == "classes" or not all(_is_number(one) for one in found):
        if len(found) > MOST_CLASSES:
            raise ValueError(
                f"expected at most {MOST_CLASSES} classes, got {len(found)}; merge classes, or pass numbers with "
                "task='number'."
            )
        return "classes"
    # Probabilities beside two labels are a slip, and so are they beside no labels.
    whole = all(float(one).is_integer() for one in found)
    if (labels and len(labels) <= 2) or (not labels and not whole and all(0 <= one <= 1 for one in found)):
        return "binary"
    if len(found) <= FEW_VALUES:
        raise ValueError(
            f"expected task='classes' or task='number' for numbers with {len(found)} different values, got "
            "task='auto'; pass one of the two."
        )
    return "number"


def _is_number(value: Hashable) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def _distinct(name: str, values: Any) -> set[Any]:
    return set(as_labels(name, values).tolist())


def as_labels(name: str, values: Any) -> NDArray[Any]:
    """One label per row, as objects.

    Raises
    ------
    ValueError
        If there is more than one dimension, or a label is missing.
    """
    labels = np.asarray(values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"expected {name} to have one dimension, got {labels.ndim}; pass one label per row.")
    if pd.isna(labels).any():
        raise ValueError(f"expected a label in every row of {name}, got missing ones; drop those rows.")
    return labels.astype(object)


def as_binary(y_true: Any, y_pred: Any, pos_label: Any) -> tuple[Array, Array]:
    """Labels and decisions as 0.0 and 1.0."""
    truth, decided = as_labels("y_true", y_true), as_labels("y_pred", y_pred)
    check_same_length(y_true=truth, y_pred=decided)
    positive = _positive_label(set(truth.tolist()) | set(decided.tolist()), pos_label)
    return (truth == positive).astype(np.float64), (decided == positive).astype(np.float64)


def positive_label(y_true: Any, y_pred: Any, pos_label: Any) -> tuple[set[Any], Any]:
    """The two labels, and the positive one of them."""
    found = _distinct("y_true", y_true) | _distinct("y_pred", y_pred)
    return found, _positive_label(found, pos_label)


def _positive_label(found: set[Any], pos_label: Any) -> Any:
    if pos_label is not None:
        found = found | {pos_label}
    if len(found) > 2:
        raise ValueError(
            f"expected two class labels in y_true and y_pred together, got {len(found)}; "
            "pass decisions, not probabilities, and a pos_label that occurs."
        )
    if pos_label is not None:
        return pos_label
    # One class alone does not say which of the two it is, unless the labels are the usual numbers.
    if found <= {0, 1} or found <= {-1, 1}:
        return 1
    if len(found) == 1:
        raise ValueError("expected two class labels in y_true and y_pred together, got one; pass pos_label.")
    return sorted(found)[1]


def as_classes(y_true: Any, y_pred: Any, *others: Any) -> tuple[list[Any], list[NDArray[np.int64]]]:
    """All class labels, sorted, and (n,) their codes in each of the columns.

    Raises
    ------
    ValueError, TypeError
        If lengths differ, or labels cannot be sorted.
    """
    columns = [as_labels("y_true", y_true), as_labels("y_pred", y_pred), *(as_labels("before", one) for one in others)]
    check_same_length(**dict(zip(("y_true", "y_pred", "before"), columns, strict=False)))
    found = set().union(*(one.tolist() for one in columns))
    try:
        classes = sorted(found)
    except TypeError:
        raise TypeError("expected class labels of one type, got several; pass all as text.") from None
    place = {label: code for code, label in enumerate(classes)}
    return classes, [np.array([place[one] for one in column], dtype=np.int64) for column in columns]


def as_numbers(name: str, values: Any, value_range: Any = None) -> Array:
    """One finite number per row, clipped to a public range if one is given.

    Raises
    ------
    ValueError, TypeError
        If there is anything else, or the range is none.
    """
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"expected {name} to be numbers, got something else; pass one number per row.") from None
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ValueError(f"expected {name} to have one dimension, got {column.ndim}; pass one number per row.")
    if not np.isfinite(column).all():
        raise ValueError(f"expected a finite number in every row of {name}, got others; drop those rows.")
    largest = np.abs(column).max(initial=0.0)
    if largest > LARGEST_NUMBER:
        raise ValueError(
            f"expected numbers of at most {LARGEST_NUMBER:g} in {name}, got one of {largest:g}; drop such rows."
        )
    return column if value_range is None else np.clip(column, *_check_range(value_range))


def _check_range(value_range: Any) -> tuple[float, float]:
    try:
        low, high = (float(one) for one in value_range)
    except (TypeError, ValueError):
        raise TypeError("expected value_range to be two numbers, got something else; pass (low, high).") from None
    if not (-LARGEST_NUMBER <= low < high <= LARGEST_NUMBER):
        raise ValueError(f"expected value_range to be (low, high) with low below high, got ({low:g}, {high:g}).")
    return low, high
