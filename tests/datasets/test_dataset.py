import math

import numpy as np
import pandas as pd
import pytest

from justitia.datasets import Dataset


def table(sensitive: list[str | None] | None = None, **changes) -> Dataset:
    parts = {
        "name": "tiny",
        "X": pd.DataFrame({"x": range(20)}),
        "y": pd.Series([0, 1, 1, 0] * 5, name="y"),
        "sensitive": pd.Series(sensitive or ["a"] * 15 + ["b"] * 5, name="group"),
        "groups": ("a", "b"),
        "description": "twenty rows",
    }
    return Dataset(**(parts | changes))


def test_folds_of_twenty_rows_are_disjoint_and_cover_every_row_once():
    tests = []
    for train, test in table().folds(n_splits=5):
        assert not set(train) & set(test)
        assert len(train) == 16
        tests.extend(test)
    assert sorted(tests) == list(range(20))


def test_folds_are_stratified_on_the_label():
    data = table()
    assert [int(data.y.iloc[test].sum()) for _, test in data.folds(n_splits=5)] == [2, 2, 2, 2, 2]


def test_folds_with_permuted_sensitive_column_stay_the_same():
    one = list(table().folds(seed=3))
    other = list(table(["b"] * 5 + ["a"] * 15).folds(seed=3))
    for (train, test), (other_train, other_test) in zip(one, other, strict=True):
        np.testing.assert_array_equal(train, other_train)
        np.testing.assert_array_equal(test, other_test)


def test_folds_with_another_seed_differ():
    first, second = (next(table().folds(seed=seed))[1].tolist() for seed in (0, 1))
    assert first != second


def test_dataset_with_sensitive_column_in_x_is_refused():
    with pytest.raises(ValueError, match="must not hold the sensitive column, but has 'group'"):
        table(X=pd.DataFrame({"group": range(20)}))


def test_dataset_with_missing_sensitive_value_is_accepted():
    assert table([None] + ["a"] * 19).sensitive.isna().sum() == 1


def test_dataset_with_unlisted_group_is_refused_without_naming_it():
    with pytest.raises(ValueError, match="not in `groups`") as caught:
        table(["a"] * 19 + ["secret"])
    assert "secret" not in str(caught.value)


def test_dataset_with_label_two_is_refused():
    with pytest.raises(ValueError, match="only 0 and 1"):
        table(y=pd.Series([2] * 20))


def test_dataset_with_short_labels_is_refused():
    with pytest.raises(ValueError, match="20, 3 and 20"):
        table(y=pd.Series([0, 1, 0]))


def test_dataset_repr_holds_no_rows():
    assert repr(table()) == "Dataset(name='tiny', groups=('a', 'b'))"


def test_dataset_with_names_of_classes_is_accepted_and_its_folds_are_stratified():
    data = table(y=pd.Series(["a", "b", "c", "c"] * 5), task="classes")
    assert [sorted(data.y.iloc[test]) for _, test in data.folds()] == [["a", "b", "c", "c"]] * 5


def test_folds_of_a_number_have_every_decile_though_values_are_tied():
    data = table(y=pd.Series([10.0] * 5 + [40.0] * 10 + [60.0] * 5), task="number")
    assert [sorted(data.y.iloc[test]) for _, test in data.folds()] == [[10.0, 40.0, 40.0, 60.0]] * 5


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("classes", ["a"] * 20, "at least two classes"),
        ("classes", ["a", None] * 10, "at least two classes"),
        ("number", [math.inf] * 20, "finite numbers"),
        ("number", ["a"] * 20, "finite numbers"),
    ],
)
def test_dataset_with_another_kind_of_target_is_refused(task, y, message):
    with pytest.raises(ValueError, match=message):
        table(y=pd.Series(y), task=task)
