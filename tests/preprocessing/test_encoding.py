import datetime as dt
import decimal
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from justitia.preprocessing.encoding import TabularEncoder

# age: filled 20, 40, 30, 30 (median 30), deviation sqrt(50); job: clerk twice, baker once, one missing.
AGE = [20.0, 40.0, None, 30.0]
JOB = ["clerk", "baker", "clerk", None]
OWNER = [True, False, True, False]
ROOT = 10 / np.sqrt(50)
ENCODED = [
    [-ROOT, 0, 1, 0, 0, 1],
    [ROOT, 0, 0, 1, 0, -1],
    [0, 1, 1, 0, 0, 1],
    [0, 0, 0, 0, 1, -1],
]
COLUMNS = {"age": AGE, "job": JOB, "owner": OWNER}
NAMES = ["age", "age=(missing)", "job=clerk", "job=baker", "job=(missing)", "owner"]


def column(*values: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": pd.Series(values, dtype=object)})


@parametrize_with_checks([TabularEncoder()])
def test_encoder_scikit_learn_checks_pass(estimator: Any, check: Any) -> None:
    if check.func.__name__ != "check_array_api_input":
        check(estimator)


def test_encoder_small_table_equals_hand_computation() -> None:
    encoded = TabularEncoder().fit_transform(pd.DataFrame(COLUMNS))
    assert encoded.dtype == np.float32
    assert encoded == pytest.approx(np.array(ENCODED), abs=1e-6)


def test_encoder_feature_names_out_name_every_column() -> None:
    assert TabularEncoder().fit(pd.DataFrame(COLUMNS)).get_feature_names_out().tolist() == NAMES


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).astype({"age": "Float64", "job": "category", "owner": "boolean"}),
        pd.DataFrame(COLUMNS).astype(object),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).with_columns(pl.col("job").cast(pl.Categorical)),
        pa.table(COLUMNS),
        np.array(list(zip(AGE, JOB, OWNER, strict=True)), dtype=object),
        [list(row) for row in zip(AGE, JOB, OWNER, strict=True)],
    ],
    ids=["pandas", "nullable", "object", "polars", "polars category", "pyarrow", "numpy", "list"],
)
def test_encoder_any_container_gives_the_same_matrix(table: Any) -> None:
    assert TabularEncoder().fit_transform(table) == pytest.approx(np.array(ENCODED), abs=1e-6)


def test_encoder_fitted_on_one_library_transforms_another() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame(COLUMNS))
    assert encoder.transform(pl.DataFrame(COLUMNS)) == pytest.approx(np.array(ENCODED), abs=1e-6)


def test_encoder_row_order_moves_with_the_rows() -> None:
    frame, order = pd.DataFrame(COLUMNS), [2, 0, 3, 1]
    shuffled = TabularEncoder().fit_transform(frame.iloc[order])
    assert shuffled == pytest.approx(TabularEncoder().fit_transform(frame)[order], abs=1e-6)


def test_encoder_transform_uses_training_statistics_only() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame({"x": [0.0, 2.0]}))
    assert encoder.transform(pd.DataFrame({"x": [5.0, 1.0]})).tolist() == [[4.0], [0.0]]


def test_encoder_missing_number_without_one_in_training_gets_the_median_and_no_indicator() -> None:
    encoder = TabularEncoder().fit([[0.0], [0.0], [3.0]])
    median = encoder.transform([[0.0]])
    assert encoder.transform([[None]]).tolist() == encoder.transform([[float("nan")]]).tolist() == median.tolist()


@pytest.mark.parametrize("constant", [0.1, 7, True])
def test_encoder_constant_column_becomes_zeros(constant: Any) -> None:
    encoder = TabularEncoder().fit([[constant]] * 7)
    assert encoder.transform([[constant], [99]]).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(
    "table",
    [[[None], [None]], pl.DataFrame({"x": [None, None]}), pa.table({"x": pa.nulls(2)}), column(None, None)],
    ids=["list", "polars", "pyarrow", "pandas"],
)
def test_encoder_all_missing_column_becomes_zeros_and_an_indicator(table: Any) -> None:
    assert TabularEncoder().fit_transform(table).tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_encoder_one_row_is_finite() -> None:
    assert TabularEncoder().fit_transform([[3.0, "a", None]]).tolist() == [[0.0, 1.0, 0.0, 1.0]]


def test_encoder_no_rows_at_transform_gives_an_empty_matrix() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame(COLUMNS))
    assert encoder.transform(pd.DataFrame(COLUMNS).iloc[:0]).shape == (0, 6)


def test_encoder_rare_levels_share_other() -> None:
    encoder = TabularEncoder(max_levels=2).fit(column("a", "a", "b", "c"))
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=(other)"]
    assert encoder.transform(column("a", "c", "new", None)).tolist() == [[1, 0], [0, 1], [0, 1], [0, 1]]


def test_encoder_as_many_levels_as_allowed_need_no_other() -> None:
    encoder = TabularEncoder(max_levels=2).fit(column("b", "a"))
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=b"]


def test_encoder_unseen_and_missing_levels_without_other_become_zeros() -> None:
    encoder = TabularEncoder().fit(column("a", "b"))
    assert encoder.transform(column("new", None)).tolist() == [[0, 0], [0, 0]]


def test_encoder_missing_level_of_training_keeps_its_own_column() -> None:
    encoder = TabularEncoder(max_levels=2).fit(column("a", "a", "b", "c", None))
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=(other)", "x=(missing)"]
    assert encoder.transform(column(None, "b")).tolist() == [[0, 0, 1], [0, 1, 0]]


def test_encoder_level_called_other_is_not_confused_with_the_rest() -> None:
    encoder = TabularEncoder(max_levels=2).fit(column("(other)", "(other)", "b", "c"))
    assert encoder.transform(column("(other)", "b")).tolist() == [[1, 0], [0, 1]]


def test_encoder_category_column_of_numbers_is_one_hot() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame({"x": pd.Categorical([1, 2, 2])}))
    assert encoder.get_feature_names_out().tolist() == ["x=2", "x=1"]
    assert encoder.transform(pd.DataFrame({"x": [1.0, 2.0]})).tolist() == [[0, 1], [1, 0]]


def test_encoder_objects_that_are_all_numbers_are_numeric() -> None:
    encoder = TabularEncoder().fit(column(1, np.float32(3), decimal.Decimal(5), None))
    assert encoder.get_feature_names_out().tolist() == ["x", "x=(missing)"]


def test_encoder_numbers_mixed_with_text_are_levels() -> None:
    assert TabularEncoder().fit([[1], ["a"]]).get_feature_names_out().tolist() == ["x0=1", "x0=a"]


def test_encoder_extreme_value_at_transform_stays_finite() -> None:
    encoder = TabularEncoder().fit([[0.0], [1e-30]])
    assert np.isfinite(encoder.transform([[1e38], [-1e38]])).all()


def test_encoder_state_through_json_restores_exactly() -> None:
    frame = pd.DataFrame(COLUMNS)
    encoder = TabularEncoder(max_levels=5).fit(frame.assign(age=[0.1, 1 / 3, None, 1e-9]))
    text = json.dumps(encoder.to_state(), allow_nan=False)
    restored = TabularEncoder.from_state(json.loads(text))
    assert restored.to_state() == encoder.to_state() == json.loads(text)
    assert np.array_equal(restored.transform(frame), encoder.transform(frame))
    assert restored.columns_ == encoder.columns_
    assert restored.get_params() == encoder.get_params()
    assert restored.feature_names_in_.tolist() == ["age", "job", "owner"]
    assert restored.n_features_in_ == 3


def test_encoder_state_of_an_array_has_no_names() -> None:
    restored = TabularEncoder.from_state(TabularEncoder().fit(np.eye(2)).to_state())
    assert not hasattr(restored, "feature_names_in_")
    assert restored.n_features_in_ == 2


def test_encoder_state_with_an_unknown_kind_is_refused() -> None:
    state = {"max_levels": 32, "feature_names": None, "columns": [{"kind": "numbers"}]}
    with pytest.raises(ValueError, match="no kind 'numbers'; did you mean 'number'"):
        TabularEncoder.from_state(state)


def test_encoder_fit_twice_forgets_the_first_table() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame(COLUMNS)).fit(np.eye(2))
    assert encoder.n_features_in_ == 2
    assert not hasattr(encoder, "feature_names_in_")


def test_encoder_integer_column_names_are_not_feature_names() -> None:
    assert not hasattr(TabularEncoder().fit(pd.DataFrame({0: [1, 2]})), "feature_names_in_")


def test_encoder_clone_is_unfitted_with_the_same_parameters() -> None:
    copy = clone(TabularEncoder(max_levels=7).fit([[1.0], [2.0]]))
    assert copy.max_levels == 7
    with pytest.raises(NotFittedError):
        copy.transform([[1.0]])


def test_encoder_in_a_pipeline_predicts() -> None:
    frame = pd.DataFrame(COLUMNS)
    model = make_pipeline(TabularEncoder(), LogisticRegression()).fit(frame, [0, 1, 0, 1])
    assert model.predict(frame).tolist() == [0, 1, 0, 1]


def test_encoder_pandas_output_carries_the_names() -> None:
    out = TabularEncoder().set_output(transform="pandas").fit_transform(pd.DataFrame(COLUMNS))
    assert list(out.columns) == NAMES


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"born": pd.to_datetime(["2020-01-01"])}),
        pd.DataFrame({"born": pd.Series([dt.date(2020, 1, 1)], dtype=object)}),
        pd.DataFrame({"born": pd.to_timedelta([1], unit="D")}),
        pl.DataFrame({"born": [dt.date(2020, 1, 1)]}),
        pl.DataFrame({"born": [[1, 2]]}),
        pl.DataFrame({"born": [{"year": 2020}]}),
        pa.table({"born": [dt.datetime(2020, 1, 1)]}),
        pd.DataFrame({"born": pd.Series([[1, 2]], dtype=object)}),
        pd.DataFrame({"born": pd.Series([(1, 2)], dtype=object)}),
    ],
    ids=["datetime", "date", "timedelta", "polars date", "list", "struct", "pyarrow", "object list", "tuple"],
)
def test_encoder_date_or_nested_column_is_refused_by_name(table: Any) -> None:
    with pytest.raises(TypeError, match="column 'born'"):
        TabularEncoder().fit(table)


def test_encoder_array_of_dates_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="column 'x0' to hold numbers or text, got datetime64"):
        TabularEncoder().fit(np.array([["2020-01-01"]], dtype="datetime64[D]"))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, 10**400], ids=["inf", "-inf", "large", "huge int"])
def test_encoder_infinite_or_too_large_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match="finite numbers in column 'x', got infinity or a value too large"):
        TabularEncoder().fit(column(1.0, value))


def test_encoder_sparse_matrix_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected X to be a dense table, got a sparse matrix; pass X.toarray\(\)"):
        TabularEncoder().fit(sparse.eye_array(3))


@pytest.mark.parametrize("table", [[1.0, 2.0], pd.Series([1.0]), [[1], [1, 2]], np.zeros((2, 2, 2)), 3.0])
def test_encoder_not_a_table_is_refused(table: Any) -> None:
    with pytest.raises(ValueError, match="expected X to have 2 dimensions"):
        TabularEncoder().fit(table)


@pytest.mark.parametrize("table", [np.zeros((0, 2)), np.zeros((2, 0)), pd.DataFrame()])
def test_encoder_without_rows_or_columns_is_refused(table: Any) -> None:
    with pytest.raises(ValueError, match="expected X to have rows and columns"):
        TabularEncoder().fit(table)


def test_encoder_other_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="X has 1 features, but TabularEncoder is expecting 2 features as input"):
        TabularEncoder().fit(np.eye(2)).transform(np.ones((2, 1)))


def test_encoder_text_in_a_numeric_column_is_refused() -> None:
    with pytest.raises(TypeError, match="column 'x' held numbers in training but holds text now"):
        TabularEncoder().fit(column(1, 2)).transform(column("1", "2"))


@pytest.mark.parametrize(("value", "error"), [(1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_encoder_impossible_max_levels_is_refused_at_fit(value: Any, error: type[Exception]) -> None:
    encoder = TabularEncoder(max_levels=value)
    with pytest.raises(error, match="max_levels"):
        encoder.fit([[1.0]])


def test_encoder_names_of_single_rows_are_not_kept_where_levels_are_many() -> None:
    table = pd.DataFrame({"mail": [f"person{i}@example.org" for i in range(60)], "x": range(60)})
    encoder = TabularEncoder().fit(table)
    assert "example.org" not in str(encoder.to_state())
    assert encoder.transform(table)[:, :-1].tolist() == [[1.0]] * 60
    some = pd.DataFrame({"job": ["clerk", "clerk", *(f"job {i}" for i in range(58))]})
    assert TabularEncoder().fit(some).get_feature_names_out().tolist() == ["job=clerk", "job=(other)"]
