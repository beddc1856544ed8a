"""Targets as estimators read them: two classes, several classes, numbers; and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia.preprocessing.tables import MOST_CLASSES, read_costs, read_target, read_task_target, read_weight
from justitia.tasks import BINARY, NUMBER, Task


@pytest.mark.parametrize(
    "y",
    [["no", "yes", "yes"], [0, 1, 1], [-1.0, 1.0, 1.0], [False, True, True], [0.5, 1.5, 1.5]],
    ids=["text", "whole", "signs", "truth", "fractions"],
)
def test_two_values_are_a_binary_target_with_the_same_codes_as_ever(y: Any) -> None:
    task, classes, codes = read_task_target(y)
    before, target = read_target(y)
    assert task == Task("binary", tuple(classes))
    assert np.array_equal(classes, before)
    assert classes.dtype == before.dtype
    assert codes.tolist() == target.tolist() == [0.0, 1.0, 1.0]
    assert codes.dtype == target.dtype == np.float32


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["low", "high", "medium", "low"], ["high", "low", "medium"]),
        ([3, 1, 2, 3], [1, 2, 3]),
        ([3.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        (pd.Series(["c", "a", "b", "c"], dtype="category"), ["a", "b", "c"]),
        (pd.Series([3, 1, 2, 3], dtype="Int64"), [1, 2, 3]),
        (np.array([3, 1, 2, 3], dtype=object), [1, 2, 3]),
    ],
    ids=["text", "whole", "whole floats", "categories", "nullable", "objects"],
)
def test_several_values_are_classes_with_codes_in_sorted_order(y: Any, classes: list[Any]) -> None:
    task, found, codes = read_task_target(y)
    assert task.kind == "classes"
    assert found.tolist() == list(task.classes) == classes
    assert np.array_equal(found[codes.astype(int)], np.asarray(y))


@pytest.mark.parametrize("y", [[1.5, 2.0, -3.25], [1, 2, 3], [True, False, True], pd.Series([7.0, 7.0, 7.0])])
def test_numbers_are_read_as_they_are(y: Any) -> None:
    task, classes, values = read_task_target(y, "number")
    assert task == NUMBER
    assert not len(classes)
    assert values.dtype == np.float64
    assert values.tolist() == [float(one) for one in y]


def test_many_classes_are_read_where_the_user_says_that_they_are_classes() -> None:
    y = np.arange(MOST_CLASSES + 1)
    assert read_task_target(y, "classes")[0].n_classes == MOST_CLASSES + 1
    assert read_task_target(y[:-1])[0].n_classes == MOST_CLASSES


@pytest.mark.parametrize(
    ("y", "task", "error", "words"),
    [
        ([0.5, 1.5, 2.5], "auto", ValueError, "Unknown label type: continuous.*use LagrangianDualRegressor"),
        ([0.5, 1.5, 2.5], "classes", ValueError, "Unknown label type: continuous.*use LagrangianDualRegressor"),
        (np.array([0.5, 1.5, 2.5], dtype=object), "auto", ValueError, "Unknown label type: continuous"),
        (np.arange(21), "auto", ValueError, "at most 20 classes in y, got 21 different values; use LagrangianDualR"),
        ([f"w{j}" for j in range(21)], "auto", ValueError, "at most 20 classes.*; merge rare classes"),
        ([1, 1, 1], "auto", ValueError, "expected two classes in y, got only one class, 1"),
        (np.array([1, "a", 2], dtype=object), "auto", TypeError, "expected class labels of one type in y"),
        (["a", None, "b"], "auto", ValueError, "Input y contains NaN or another missing value"),
        ([1.0, 2.0, np.inf], "auto", ValueError, "Input y contains infinity"),
        ([], "auto", ValueError, "expected y to have rows"),
        (None, "auto", ValueError, "the target y is None"),
        (["1.5", "2.5"], "number", TypeError, "expected numbers in y, got something else.*LagrangianDualClassifier"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "number", TypeError, "expected numbers in y"),
        ([1.0, np.nan], "number", ValueError, "Input y contains NaN or infinity; expected a finite number"),
        ([1.0, -np.inf], "number", ValueError, "Input y contains NaN or infinity"),
        ([], "number", ValueError, "expected y to have rows"),
        (None, "number", ValueError, "the target y is None"),
        ([1, 2], "numbers", ValueError, "no task 'numbers'; did you mean 'number'"),
    ],
)
def test_wrong_targets_are_refused_in_one_sentence(y: Any, task: str, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        read_task_target(y, task)
    assert "\n" not in str(caught.value)


def test_weights_need_a_row_of_every_class_and_of_no_class_where_y_is_a_number() -> None:
    y, classes = np.array([0.0, 1.0, 2.0, 2.0]), Task.of_classes("abc")
    assert read_weight([1, 1, 0, 2], y, classes).tolist() == [1.0, 1.0, 0.0, 2.0]
    with pytest.raises(ValueError, match="expected a positive sample_weight in every class, got a class without"):
        read_weight([1, 1, 0, 0], y, classes)
    with pytest.raises(ValueError, match="expected a positive sample_weight in both classes"):
        read_weight([1, 0], np.array([0.0, 1.0]), BINARY)
    assert read_weight([1, 0, 0, 3], y, NUMBER).tolist() == [1.0, 0.0, 0.0, 3.0]


def test_costs_are_one_number_per_class() -> None:
    classes, y = np.array(["a", "b", "c"]), np.array([0, 1, 2, 2], dtype=np.float32)
    assert read_costs({"a": 1.0, "b": 2.0, "c": 5.0}, classes, y) == pytest.approx([1.0, 2.0, 5.0])
    assert read_costs("balanced", classes, y) == pytest.approx([4 / 3, 4 / 3, 2 / 3])
    with pytest.raises(ValueError, match="expected class_weight to be 'balanced' or a cost above 0 by class"):
        read_costs("none of these", classes, y)


# The description of a target


def test_task_says_how_many_classes_it_has_and_the_shape_of_predictions() -> None:
    three = Task.of_classes(["a", "b", "c"])
    assert [task.n_classes for task in (BINARY, three, NUMBER)] == [2, 3, 0]
    assert [task.prediction_shape(5) for task in (BINARY, three, NUMBER)] == [(5,), (5, 3), (5,)]
    assert [task.describe() for task in (BINARY, three, NUMBER)] == ["two classes", "3 classes", "numbers"]
    assert Task.of_classes(["no", "yes"]).positive == "yes"


@pytest.mark.parametrize(
    ("kind", "classes"), [("binary", ("a",)), ("binary", ("a", "b", "c")), ("classes", ("a", "b")), ("number", ("a",))]
)
def test_task_with_another_number_of_classes_is_refused(kind: str, classes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="classes of a target of kind"):
        Task(kind, classes)


def test_task_of_another_kind_is_refused_and_only_two_classes_have_a_positive_one() -> None:
    with pytest.raises(ValueError, match="no kind of target 'numeric'; did you mean 'number'"):
        Task("numeric")
    for task in (Task.of_classes("abc"), NUMBER):
        with pytest.raises(AttributeError, match="has no positive class"):
            _ = task.positive
