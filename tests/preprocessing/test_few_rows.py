"""Few rows of a data frame are encoded all columns at once, to the same bits as many rows."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia.preprocessing.encoding import FEW_ROWS, TabularEncoder

ROWS = 2 * FEW_ROWS
POSITION = np.arange(ROWS)
TABLE = pd.DataFrame(
    {
        "whole": POSITION * 3 - 50,
        "single": np.sin(POSITION).astype(np.float32),
        "double": np.where(POSITION % 7, np.cos(POSITION) * 1e5, np.nan),
        "truth": POSITION % 3 == 0,
        "constant": 4.0,
        "nullable": pd.array([None if one % 5 == 0 else one for one in POSITION.tolist()], dtype="Int64"),
        "text": [None if one % 11 == 0 else f"level {one % 4}" for one in POSITION.tolist()],
        "category": pd.Categorical([f"c{one % 3}" for one in POSITION.tolist()]),
        "mixed": pd.Series([1 if one % 2 else 2.5 for one in POSITION.tolist()], dtype=object),
    }
)
ENCODER = TabularEncoder().fit(TABLE)


@pytest.mark.parametrize("count", [1, 2, FEW_ROWS])
def test_few_rows_are_encoded_as_they_are_among_many(count: int) -> None:
    whole = ENCODER.transform(TABLE)
    for first in range(0, ROWS - count + 1, max(1, ROWS // 20)):
        few = ENCODER.transform(TABLE.iloc[first : first + count])
        assert few.dtype == np.float32
        assert np.array_equal(few, whole[first : first + count])


@pytest.mark.parametrize(
    ("column", "value"),
    [("double", np.inf), ("single", np.float32(np.inf)), ("whole", "ten"), ("text", dt.date.today())],
)
def test_few_rows_are_refused_in_the_same_words(column: str, value: Any) -> None:
    table = TABLE.astype({column: object}) if isinstance(value, str | dt.date) else TABLE.copy()
    table.loc[0, column] = value
    sentences = []
    for rows in (table.iloc[:1], table):
        with pytest.raises((ValueError, TypeError)) as refused:
            ENCODER.transform(rows)
        sentences.append(str(refused.value))
    assert sentences[0] == sentences[1]


def test_few_rows_with_another_number_of_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="is expecting 9 features"):
        ENCODER.transform(TABLE.iloc[:1, :5])


def test_number_where_training_had_text_is_a_level() -> None:
    encoder = TabularEncoder().fit(pd.DataFrame({"code": ["1", "2", "1"], "x": [1.0, 2.0, 3.0]}))
    few = encoder.transform(pd.DataFrame({"code": [1], "x": [2.0]}))
    assert few.tolist() == [[1.0, 0.0, 0.0]]
