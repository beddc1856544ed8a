import datetime as dt
import decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from justitia.privacy.groups import encode, group_names, infer_groups, public_groups, read_columns

SEX = ["F", "M", None, "F"]
RACE = ["B", "W", "W", None]


class Hostile:
    """Raises on every question that Python can ask of a value."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")


class UnequalToAll:
    """Can be hashed like "F" but raises when compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash("F")


def codes_of(sensitive_features: Any, groups: Any, **options: Any) -> list[int]:
    names, columns = read_columns(sensitive_features)
    return encode(columns, public_groups(groups, names=names), **options).tolist()


@pytest.mark.parametrize(
    "container",
    [
        SEX,
        tuple(SEX),
        np.array(SEX, dtype=object),
        np.array(SEX, dtype=object)[:, None],
        pd.Series(SEX, name="sex"),
        pd.Series(SEX, dtype="category"),
        pd.Index(SEX),
        pl.Series("sex", SEX),
        pa.array(SEX),
        pa.chunked_array([SEX]),
        pd.DataFrame({"sex": SEX}),
        pl.DataFrame({"sex": SEX}),
        pa.table({"sex": SEX}),
        {"sex": SEX},
        np.ma.MaskedArray(["F", "M", "M", "F"], mask=[0, 0, 1, 0]),
        [["F"], ["M"], [None], ["F"]],
    ],
    ids=lambda container: type(container).__name__,
)
def test_encode_any_container_gives_the_same_codes(container: Any) -> None:
    assert codes_of(container, ["F", "M"]) == [0, 1, 2, 0]


@pytest.mark.parametrize(
    "container",
    [
        {"sex": SEX, "race": RACE},
        {"sex": pd.Series(SEX), "race": np.array(RACE, dtype=object)},
        pd.DataFrame({"sex": SEX, "race": RACE}),
        pl.DataFrame({"sex": SEX, "race": RACE}),
        pa.table({"sex": SEX, "race": RACE}),
        np.array([SEX, RACE], dtype=object).T,
        list(zip(SEX, RACE, strict=True)),
        [list(row) for row in zip(SEX, RACE, strict=True)],
    ],
    ids=lambda container: type(container).__name__,
)
def test_encode_two_columns_are_crossed_and_any_missing_is_not_given(container: Any) -> None:
    assert codes_of(container, [("F", "B"), ("F", "W"), ("M", "B"), ("M", "W")]) == [0, 3, 4, 4]


def test_encode_dict_of_groups_in_another_order_follows_the_columns() -> None:
    frame = pd.DataFrame({"sex": SEX, "race": RACE})
    assert codes_of(frame, {"race": ["B", "W"], "sex": ["F", "M"]}) == [0, 3, 4, 4]


def test_encode_numbers_match_as_python_hashes_them() -> None:
    ones = [1, 1.0, True, np.int8(1), np.float32(1), np.True_, decimal.Decimal(1), 2]
    assert codes_of(ones, [0, 1]) == [1, 1, 1, 1, 1, 1, 1, 2]


def test_encode_integer_column_with_a_gap_matches_integer_groups() -> None:
    assert codes_of(pd.Series([0, 1, None]), [0, 1]) == [0, 1, 2]


def test_encode_numpy_strings_match_python_strings() -> None:
    assert codes_of(np.array(["F", "M"]), ["M", "F"]) == [1, 0]
    assert codes_of(["F", "M"], np.array(["M", "F"])) == [1, 0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        float("nan"),
        np.nan,
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        decimal.Decimal("NaN"),
        decimal.Decimal("sNaN"),
        "unknown label",
        "",
        ["F"] * 2,
        [],
        {"F": 1},
        {"F"},
        np.array(["F"]),
        np.array("F"),
        object(),
        b"F",
        Hostile(),
        UnequalToAll(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_encode_missing_or_odd_value_is_not_given(value: Any) -> None:
    column = np.empty(3, dtype=object)
    column[:] = ["M", None, "F"]
    column[1] = value
    assert encode([column], ("F", "M")).tolist() == [1, 2, 0]
    assert encode([column, np.array(["x"] * 3, dtype=object)], (("F", "x"), ("M", "x"))).tolist() == [1, 2, 0]


def test_encode_list_that_holds_itself_is_not_given() -> None:
    endless: list[Any] = []
    endless += [endless, "F"]
    assert codes_of(["F", endless], ["F", "M"]) == [0, 2]


def test_encode_marker_is_not_given() -> None:
    assert codes_of(["F", "?", "M"], ["F", "M"], missing_marker="?") == [0, 2, 1]


def test_encode_marker_among_the_groups_is_refused() -> None:
    with pytest.raises(ValueError, match=r"groups without the missing marker '\?'"):
        codes_of(["F"], ["F", "?"], missing_marker="?")
    with pytest.raises(ValueError, match="missing marker 9"):
        codes_of({"a": [1], "b": [1]}, [(1, 9), (1, 1)], missing_marker=9)


@pytest.mark.parametrize("labels", [["F", "M", "F"], [None, None, None], [Hostile(), [], "?"]])
def test_encode_any_values_give_the_same_type_and_shape(labels: list[Any]) -> None:
    _, columns = read_columns(labels)
    codes = encode(columns, ("F", "M"))
    assert codes.shape == (3,)
    assert codes.dtype == np.int64


def test_encode_no_rows_gives_no_codes() -> None:
    assert codes_of([], ["F", "M"]) == []


def test_encode_groups_for_one_column_but_two_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="one label for each of the 2 columns"):
        codes_of({"a": [1], "b": [1]}, [0, 1])


def test_encode_row_order_moves_with_the_rows() -> None:
    order = [3, 1, 0, 2]
    assert codes_of([SEX[i] for i in order], ["F", "M"]) == [codes_of(SEX, ["F", "M"])[i] for i in order]


def test_read_columns_column_with_an_unreadable_value_keeps_the_others() -> None:
    days = pa.array([0, 10**8, 1], type=pa.int32()).cast(pa.date32())
    for container in (days, pa.chunked_array([days]), pa.table({"born": days})):
        _, (column,) = read_columns(container)
        assert column.tolist() == [dt.date(1970, 1, 1), None, dt.date(1970, 1, 2)]


def test_read_columns_names_are_those_of_the_container() -> None:
    assert read_columns(SEX)[0] == (None,)
    assert read_columns(pd.Series(SEX))[0] == (None,)
    assert read_columns(pl.Series(SEX))[0] == (None,)
    assert read_columns(pd.Series(SEX, name="sex"))[0] == ("sex",)
    assert read_columns(pd.DataFrame({"sex": SEX, 1: RACE}))[0] == ("sex", "1")
    assert read_columns(np.zeros((2, 3)))[0] == (None, None, None)


@pytest.mark.parametrize("value", ["FM", 3, None, {"F", "M"}, np.float64(1), pl.LazyFrame({"a": [1]}), iter("FM")])
def test_read_columns_of_another_type_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="expected sensitive_features to be a Series, DataFrame, array, list or dict"):
        read_columns(value)


@pytest.mark.parametrize("value", [{}, pd.DataFrame(index=[0, 1]), np.zeros((3, 0))])
def test_read_columns_without_columns_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="at least one column, got none"):
        read_columns(value)


def test_read_columns_three_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 2 dimensions, got 3"):
        read_columns(np.zeros((2, 2, 2)))


def test_read_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="'sex' has 4, 'race' has 1"):
        read_columns({"sex": SEX, "race": ["B"]})


def test_read_columns_table_inside_a_dict_is_refused() -> None:
    with pytest.raises(ValueError, match="each entry of sensitive_features to be one column, got 2"):
        read_columns({"sex": np.zeros((3, 2))})


def test_public_groups_labels_become_plain_python() -> None:
    groups = public_groups(np.array([2, 1]))
    assert groups == (2, 1)
    assert [type(group) for group in groups] == [int, int]


def test_public_groups_dict_of_columns_is_crossed() -> None:
    crossed = (("F", "B"), ("F", "W"), ("M", "B"), ("M", "W"))
    assert public_groups({"sex": ["F", "M"], "race": ["B", "W"]}) == crossed
    assert public_groups({"sex": ["F", "M"]}) == ("F", "M")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["F", "F"], "each label in groups once"),
        ([1, True], "each label in groups once"),
        (["F"], "at least 2 labels in groups, got 1"),
        ([], "at least 2 labels in groups, got 0"),
        (["F", None], "leave out 'not given'"),
        (["F", float("nan")], "leave out 'not given'"),
        ([("F", "B"), ("M", None)], "leave out 'not given'"),
        ({"sex": ["F", "M"], "race": ["B", "B"]}, r"each label in groups\['race'\] once"),
        ({"sex": ["F"], "race": ["B"]}, "at least 2 labels in groups, got 1"),
        ({}, "one list of labels per column"),
    ],
)
def test_public_groups_that_make_no_list_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        public_groups(groups)


def test_public_groups_dict_for_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the columns \['sex'\] of sensitive_features, got them for \['gender'\]"):
        public_groups({"gender": ["F", "M"]}, names=("sex",))


@pytest.mark.parametrize("groups", ["FM", {"F", "M"}, 2, None])
def test_public_groups_of_another_type_is_a_type_error(groups: Any) -> None:
    with pytest.raises(TypeError, match="expected groups to be a list of labels"):
        public_groups(groups)


def test_infer_groups_are_sorted_and_without_missing_values() -> None:
    _, columns = read_columns(["M", None, "F", "?", "M", float("nan")])
    assert infer_groups(columns, missing_marker="?") == ("F", "M")


def test_infer_groups_of_mixed_types_are_in_a_fixed_order() -> None:
    for labels in (["b", 2, "a", 1], [1, "a", 2, "b"]):
        assert infer_groups(read_columns(labels)[1]) == (1, 2, "a", "b")


def test_infer_groups_of_two_columns_cross_the_observed_values() -> None:
    _, columns = read_columns({"sex": ["F", "M"], "race": ["B", "W"]})
    assert infer_groups(columns) == (("F", "B"), ("F", "W"), ("M", "B"), ("M", "W"))


def test_infer_groups_all_missing_is_empty() -> None:
    assert infer_groups(read_columns([None, None])[1]) == ()


def test_group_names_print_the_labels() -> None:
    assert group_names(("F", 1)) == ("F", "1")
    assert group_names((("F", "B"), ("M", "W"))) == ("F & B", "M & W")
    assert group_names((("F", "B"),), names=("sex", "race")) == ("sex=F & race=B",)
    assert group_names((("F", "B"),), names=(None, None)) == ("F & B",)


def test_group_names_that_would_print_alike_stay_apart() -> None:
    assert group_names((1, "1")) == ("1", "'1'")
