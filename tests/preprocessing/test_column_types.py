"""How columns are read: by hand-made columns, each with the reading that it should get."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia.preprocessing.column_types import ColumnType, convert_column, infer_type
from justitia.preprocessing.number_formats import NumberFormat, to_days

N = 100


def column(values: Any, name: str = "c") -> pd.Series:
    return pd.Series([values(row) for row in range(N)] if callable(values) else values, name=name)


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        (lambda row: row % 7 / 3, "c", "number"),
        (lambda row: 1000 + 13 * row, "amount", "number"),  # all different, but neither counted nor called so
        (lambda row: 1000 + 13 * row, "customer_id", "identifier"),
        (lambda row: 1000 + 13 * row, "customerId", "identifier"),
        (lambda row: row + 5, "c", "identifier"),
        (lambda row: row % 2 == 0, "c", "number"),
        (lambda row: f"p{row}", "c", "identifier"),
        (lambda row: f"p{row % 9}", "id", "category"),  # few levels, whatever the name
        (lambda row: f"{row % 9:05d}", "c", "category"),
        (lambda row: f"{row % 60:05d}", "c", "identifier"),
        (lambda row: f"this is what person {row} had to say about the matter", "c", "text"),
        (lambda row: "same", "c", "ignored"),
        (lambda row: None, "c", "ignored"),
        (lambda row: "  " if row % 2 else " ", "c", "ignored"),
        (lambda row: f"2024-01-{1 + row % 28:02d}", "c", "date"),
        (lambda row: f"{1 + row % 28:02d}.01.2024", "c", "date"),
        (lambda row: dt.datetime(2024, 1, 1 + row % 28), "c", "date"),
        (lambda row: dt.date(2024, 1, 1 + row % 28), "c", "date"),
        (lambda row: "n.a." if row == 3 else str(row % 7), "c", "number"),
        (lambda row: "?" if row % 2 else "yes", "c", "category"),
    ],
)
def test_column_is_read_as_its_kind(values: Any, name: str, kind: str) -> None:
    reading = infer_type(column(values, name), NumberFormat())
    assert (reading.kind, reading.refusal) == (kind, "")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (lambda row: f"{row % 7},5", "--decimal ','"),
        (lambda row: f"1.{row + 100},5", "--decimal ',' --thousands '.'"),
        (lambda row: f"20'{row + 100}", '--thousands "\'"'),
        (lambda row: f"{row % 7} %", "with signs, such as '0 %'"),
        (lambda row: f"${row + 1},{row + 100}.25", "with signs, such as '$1,100.25'"),  # never an identifier
        (lambda row: f"{row + 1}.{row + 100},25 €", "with signs, such as '1.100,25 €'"),
        (lambda row: f"({row}.5)" if row % 4 else f"{row}.0", "with signs, such as '(1.5)'"),
        (lambda row: np.inf if row == 3 else float(row), "holds infinity; write a number"),
        (lambda row: f"{1 + row % 12}/{1 + row % 28}/2024", "--date 'c="),
        (lambda row: "many" if row == 3 else str(row % 7), "but also 'many'"),
    ],
)
def test_column_that_could_be_several_things_is_not_guessed(values: Any, part: str) -> None:
    reading = infer_type(column(values), NumberFormat())
    assert part in reading.refusal
    assert not reading.is_feature


AMOUNTS = ["950", "2,500", "120,000", "1,500"]


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (AMOUNTS, "pass --thousands ',' if that is 2500, pass --decimal ',' if it is 2.5,"),
        ([*AMOUNTS, "1,250,000"], "written as '2,500'; pass --thousands ',', or"),
        ([*AMOUNTS, "2,500.75"], "written as '2,500'; pass --thousands ',', or"),
        ([*AMOUNTS, "0,250"], "written as '2,500'; pass --decimal ',', or"),  # no amount begins with a zero
        ([*AMOUNTS, "2,5"], "written as '2,500'; pass --decimal ',', or"),
        (["7"] * 90 + ["2,500"] * 9, "pass --thousands ',' if that is 2500, pass --decimal ',' if it is 2.5,"),
        (["950", "1.500", "1.250.000"], "written as '1.250.000'; pass --decimal ',' --thousands '.', or"),
        (["2 500", "950", "12 500,5"], "written as '2 500'; pass --decimal ',' --thousands ' ', or"),
    ],
)
def test_marks_between_thousands_are_told_from_decimal_marks(values: list[str], part: str) -> None:
    reading = infer_type(column(values * 10), NumberFormat())
    assert part in reading.refusal
    assert not reading.is_feature


def test_decimal_marks_that_may_stand_between_thousands_are_read_with_a_warning() -> None:
    reading = infer_type(column(AMOUNTS * 10), NumberFormat(","))
    assert (reading.kind, reading.says) == ("number", "1.5 to 950")
    assert "is read as 1.5 to 950, but every ',' in it has three digits after it, as in '2,500'" in reading.doubt
    assert "pass --thousands ',' instead of --decimal ',' to read 950 to 120000." in reading.doubt
    assert infer_type(column([*AMOUNTS, "0,250"] * 10), NumberFormat(",")).doubt == ""
    assert infer_type(column(AMOUNTS * 10), NumberFormat(".", ",")).says == "950 to 120000"
    assert infer_type(column(AMOUNTS * 10), NumberFormat(".", ",")).doubt == ""


def test_numbers_of_a_program_in_a_file_with_other_marks_are_refused_with_what_to_leave_out() -> None:
    assert (
        "leave out --decimal and --thousands"
        in infer_type(column(["2.5", "7.25", "9"] * 10), NumberFormat(",")).refusal
    )


def test_identifier_that_is_wanted_is_a_feature_and_levels_may_be_numbers() -> None:
    assert infer_type(column(lambda row: f"p{row}"), NumberFormat(), wanted=True).kind == "category"
    codes = infer_type(column(lambda row: row % 5), NumberFormat(), categorical=True)
    assert (codes.kind, codes.says) == ("category", "5 levels: 0, 1, 2, 3, ...")
    assert convert_column(pd.Series([1.0, None, 2.0], name="c"), codes, NumberFormat()).tolist()[::2] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "number_format", "number"),
    [
        ("1.234,5", NumberFormat(",", "."), 1234.5),
        ("-20'000", NumberFormat(".", "'"), -20000.0),
        ("1 234", NumberFormat(",", " "), 1234.0),
        ("1\u202f234,5", NumberFormat(",", " "), 1234.5),
        ("12.34", NumberFormat(",", "."), np.nan),  # no group of three digits
        ("0.123", NumberFormat(",", "."), np.nan),
        ("1e3", NumberFormat(), 1000.0),
        ("0x10", NumberFormat(), np.nan),
        ("nan", NumberFormat(), np.nan),
        ("", NumberFormat(), np.nan),
    ],
)
def test_number_is_read_as_it_is_written(text: str, number_format: NumberFormat, number: float) -> None:
    np.testing.assert_array_equal(number_format.numbers([text]), [number])


def test_dates_become_days_and_what_is_missing_stays_missing() -> None:
    reading = ColumnType("c", "date", form="%d.%m.%Y")
    found = convert_column(pd.Series(["02.01.1970", None, "n.a.", "01.01.1969"], name="c"), reading, NumberFormat())
    np.testing.assert_array_equal(found, [1.0, np.nan, np.nan, -365.0])
    half = pd.Series(pd.to_datetime(["1970-01-01 12:00", None], utc=True))
    np.testing.assert_array_equal(to_days(half), [0.5, np.nan])


def test_entry_of_another_kind_than_in_training_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="expected numbers in column 'c', as in training, got 'much'; mend it"):
        convert_column(pd.Series(["1", "much"], name="c"), ColumnType("c", "number"), NumberFormat())


def test_reading_survives_being_written_down() -> None:
    for reading in (ColumnType("c", "date", form="%Y"), infer_type(column(lambda row: f"p{row}"), NumberFormat())):
        assert ColumnType.from_dict(reading.to_dict()) == reading
