"""Columns of hostile labels for every container that the attribute may come in."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

UTC = dt.UTC
DAY = dt.date(1970, 1, 2)
BIG = 2**53 + 1
#: Numbers behind dates and times: the second day, the edges of what Python holds, and far outside.
TICKS = (0, 1, 86_400, -1, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1)
BYTES = (b"f", b"m", b"", b"\xff", b"f\xff", b"\xc3", b"f\x00m", b"\xed\xa0\x80", b"f" * 3000, "é".encode())
TEXTS = ("f", "m", "", "nan", "None", "f\x00m", "\r", "1e400", "é", "f" * 3000)


class Panic(BaseException):
    """Neither an Exception nor an interrupt: what a panic of another language's runtime looks like."""


class Refuses:
    """Raises whatever it is asked."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def _refuse(self, *_: Any) -> Any:
        raise self.error("no")

    __eq__ = __ne__ = __hash__ = __bool__ = __str__ = __repr__ = __float__ = __lt__ = _refuse  # type: ignore[assignment]


class LikeF(Refuses):
    """Has the hash of "f" and seems to equal itself, but raises when compared with anything else."""

    def __hash__(self) -> int:
        return hash("f")

    def __eq__(self, other: object) -> bool:
        return True if other is self else self._refuse()

    def __ne__(self, other: object) -> bool:
        return False if other is self else self._refuse()


class Warns:
    """Warns when compared."""

    def __eq__(self, other: object) -> bool:
        warnings.warn("compared", stacklevel=1)
        return other is self

    def __hash__(self) -> int:
        return hash("m")


class BadTruth:
    """Whose comparison has no truth value."""

    def __eq__(self, other: object) -> Any:
        return Refuses(Panic)

    __ne__ = __eq__

    def __hash__(self) -> int:
        return 0


def endless() -> list[Any]:
    inner: list[Any] = ["f"]
    inner.append(inner)
    return inner


OBJECTS: tuple[Any, ...] = (
    *("f", "m", 0, 1, True, BIG, DAY, None, "", "nan", "\ud800", "f\x00", "f" * 3000, b"f", b"\xff"),
    *(float("nan"), float("inf"), -0.0, 1e308, 10**5000, -(10**5000), 2**63, 1j, complex("nan")),
    *(pd.NA, pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT"), np.nan, np.ma.masked, Ellipsis, NotImplemented),
    *(np.str_("f"), np.int64(BIG), np.float32(1), np.True_, np.longdouble(1), np.datetime64(2**62, "s")),
    *(np.datetime64("1970-01-02"), np.timedelta64(2**62, "s"), np.void(b"f"), np.array("f"), np.array([]), np.zeros(2)),
    *(pd.Timestamp("1970-01-02"), pd.Timedelta(1), pd.Period("1970-01-02"), pd.Interval(0, 1)),
    *(dt.datetime.min, dt.datetime.max.replace(tzinfo=UTC), dt.datetime(1970, 1, 2), dt.timedelta.max, dt.time(1)),
    *(decimal.Decimal("NaN"), decimal.Decimal("sNaN"), decimal.Decimal("1e999999"), decimal.Decimal(1)),
    *(fractions.Fraction(1), ["f"], ["f", "m"], ("f", None), [], [[["f"]]], {"f": 1}, {"f"}, frozenset("f"), endless()),
    *(pd.Series(["f"]), pl.Series(["f"]), pl.col("f"), pa.scalar("f"), pa.array(["f"]), object(), object, len),
    *(Refuses(RuntimeError), Refuses(Panic), LikeF(RuntimeError), LikeF(Panic), Warns(), BadTruth()),
)
#: Groups that all columns below are read against; as Python hashes them, no two are the same.
GROUPS: tuple[Any, ...] = (
    *("f", "m", 0, 1, BIG, BIG - 1, 2**63 - 1, b"f", DAY, dt.date(1970, 1, 1)),
    *(dt.datetime(1970, 1, 2), dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=UTC), ("f", "m"), 0.5),
    *(
        dt.timedelta(0),
        dt.timedelta(days=1),
        decimal.Decimal("0.25"),
        (DAY, DAY),
        (0, dt.datetime(1970, 1, 1)),
        dt.time(0),
    ),
)


@dataclass(frozen=True)
class Kind:
    """A container and the values that it may hold."""

    build: Callable[[list[Any]], Any]
    values: Sequence[Any]


def object_array(values: list[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def masked(values: list[Any]) -> Any:
    data = np.array([0 if value is None else value for value in values], dtype=np.int64)
    return np.ma.MaskedArray(data, mask=[value is None for value in values])


def masked_records(values: list[Any]) -> Any:
    kind = [("a", np.int64), ("b", "M8[s]")]
    data = np.array([(0, 0) if value is None else (value, value) for value in values], dtype=kind)
    return np.ma.MaskedArray(data, mask=[(False, value is None) for value in values])


def texts_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow column of text from any bytes: nobody checks that they are text."""
    return pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary()).view(kind)


def ticks(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, pa.int64()).view(kind)


def days(values: list[Any]) -> list[Any]:
    return [None if value is None else max(min(value, 2**31 - 1), -(2**31)) for value in values]


def polars_ticks(kind: Any) -> Callable[[list[Any]], pl.Series]:
    return lambda values: pl.Series(values, dtype=pl.Int64).cast(kind)


def polars_days(values: list[Any]) -> pl.Series:
    return pl.Series(days(values), dtype=pl.Int32).cast(pl.Date)


def pandas_ticks(kind: str) -> Callable[[list[Any]], Any]:
    return lambda values: pd.Series(np.array(["NaT" if v is None else v for v in values], dtype=object).astype(kind))


INTS = (0, 1, BIG, BIG - 1, 2**63 - 1, -(2**63), -1)
FLOATS = (0.0, -0.0, 1.0, 0.5, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324)
MAYBE_INTS, MAYBE_TICKS, MAYBE_TEXTS, MAYBE_BYTES = (*INTS, None), (*TICKS, None), (*TEXTS, None), (*BYTES, None)
LISTS = (["f", "m"], ["f"], [], [None, "f"], None, ["f", "m", "f"])
DAY_LISTS = ([1, 1], [2**31 - 1, 1], [1], None, [])
ARROW_TIMES = {
    **{f"timestamp {unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "timestamp with a zone": pa.timestamp("s", "Europe/Berlin"),
    **{f"duration {unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
    "date64": pa.date64(),
    "time64": pa.time64("us"),
}
POLARS_TIMES = {
    **{f"polars datetime {unit}": pl.Datetime(unit) for unit in ("ms", "us", "ns")},
    **{f"polars datetime {unit} with a zone": pl.Datetime(unit, "America/New_York") for unit in ("ms", "us", "ns")},
    **{f"polars duration {unit}": pl.Duration(unit) for unit in ("ms", "us", "ns")},
}
PANDAS_TIMES = [f"{word}64[{unit}]" for word in ("datetime", "timedelta") for unit in ("s", "us", "ns")]
NUMPY_TIMES = [f"{word}64[{unit}]" for word in ("datetime", "timedelta") for unit in ("Y", "D", "s", "us", "ns")]

KINDS: dict[str, Kind] = {
    "list": Kind(list, OBJECTS),
    "tuple": Kind(tuple, OBJECTS),
    "dict": Kind(lambda values: {"a": values, "b": ["f"] * len(values)}, OBJECTS),
    "dict of a closed column": Kind(lambda values: {"a": object_array(values)}, OBJECTS),
    "numpy object": Kind(object_array, OBJECTS),
    "numpy two columns": Kind(lambda values: object_array([*values, *values]).reshape(2, -1).T, OBJECTS),
    "numpy int": Kind(lambda values: np.array(values, dtype=np.int64), INTS),
    "numpy uint": Kind(lambda values: np.array(values, dtype=np.uint64), (0, 1, BIG, 2**64 - 1)),
    "numpy float": Kind(np.array, FLOATS),
    "numpy text": Kind(lambda values: np.array(values, dtype=np.str_), (*TEXTS[:-1], "\ud800")),
    "numpy text of no characters": Kind(
        lambda values: np.array(values, dtype=np.uint32).view("U1"), (102, 109, 0, 0xD800, 0x110000, 2**32 - 1)
    ),
    "numpy bytes": Kind(lambda values: np.array(values, dtype=np.bytes_), BYTES),
    "numpy records": Kind(lambda values: np.array([(v, v) for v in values], dtype=[("a", "i8"), ("b", "M8[s]")]), INTS),
    "numpy masked": Kind(masked, MAYBE_INTS),
    "numpy masked records": Kind(masked_records, MAYBE_INTS),
    **{f"numpy {name}": Kind(lambda values, name=name: np.array(values).astype(name), TICKS) for name in NUMPY_TIMES},
    "pandas object": Kind(lambda values: pd.Series(object_array(values), dtype=object), OBJECTS),
    "pandas table": Kind(lambda values: pd.DataFrame({"a": object_array(values)}), OBJECTS),
    "pandas float": Kind(lambda values: pd.Series(values, dtype=float), (*FLOATS, None)),
    "pandas Int64": Kind(lambda values: pd.Series(values, dtype="Int64"), MAYBE_INTS),
    "pandas array": Kind(lambda values: pd.array(values, dtype="Int64"), MAYBE_INTS),
    "pandas boolean": Kind(lambda values: pd.Series(values, dtype="boolean"), (True, False, None)),
    "pandas text": Kind(lambda values: pd.Series(values, dtype="str"), MAYBE_TEXTS),
    "pandas string": Kind(lambda values: pd.Series(values, dtype="string[python]"), (*MAYBE_TEXTS, "\ud800")),
    "pandas category": Kind(lambda values: pd.Series(pd.Categorical(values)), MAYBE_TEXTS),
    "pandas category of times": Kind(
        lambda values: pd.Series(pd.Categorical(pandas_ticks("datetime64[s]")(values))), MAYBE_TICKS
    ),
    "pandas index": Kind(lambda values: pd.Index(object_array(values), dtype=object), OBJECTS[:40]),
    **{f"pandas {name}": Kind(pandas_ticks(name), MAYBE_TICKS) for name in PANDAS_TIMES},
    "pandas time with a zone": Kind(
        lambda values: pandas_ticks("datetime64[s]")(values).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
        (0, 86_400, 2**31, -(2**36), 2**40, None),
    ),
    "pandas Arrow int": Kind(lambda values: pd.Series(values, dtype="int64[pyarrow]"), MAYBE_INTS),
    "pandas Arrow text": Kind(
        lambda values: pd.Series(pd.arrays.ArrowExtensionArray(texts_of(values, pa.string()))), MAYBE_BYTES
    ),
    "pandas Arrow date": Kind(
        lambda values: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(days(values), pa.int32()).view(pa.date32()))),
        MAYBE_TICKS,
    ),
    **{
        f"pandas Arrow {name}": Kind(
            lambda values, kind=kind: pd.Series(pd.arrays.ArrowExtensionArray(ticks(kind)(values))), MAYBE_TICKS
        )
        for name, kind in ARROW_TIMES.items()
    },
    "polars object": Kind(lambda values: pl.Series(values, dtype=pl.Object), OBJECTS[:40]),
    "polars int": Kind(lambda values: pl.Series(values, dtype=pl.Int64), MAYBE_INTS),
    "polars float": Kind(lambda values: pl.Series(values, dtype=pl.Float64), (*FLOATS, None)),
    "polars text": Kind(lambda values: pl.Series(values, dtype=pl.String), MAYBE_TEXTS),
    "polars text of any bytes": Kind(lambda values: pl.from_arrow(texts_of(values, pa.large_string())), MAYBE_BYTES),
    "polars category": Kind(lambda values: pl.Series(values, dtype=pl.Categorical), MAYBE_TEXTS),
    "polars binary": Kind(lambda values: pl.Series(values, dtype=pl.Binary), MAYBE_BYTES),
    "polars table": Kind(
        lambda values: pl.DataFrame({"a": polars_days(values), "b": polars_days(values)}), MAYBE_TICKS
    ),
    "polars date": Kind(polars_days, MAYBE_TICKS),
    "polars lists": Kind(lambda values: pl.Series(values, dtype=pl.List(pl.String)), LISTS),
    "polars lists of dates": Kind(
        lambda values: pl.Series(values, dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date)), DAY_LISTS
    ),
    "polars extension": Kind(lambda values: polars_days(values).ext.to(pl.Extension("a", pl.Date)), MAYBE_TICKS),
    "polars records": Kind(lambda values: pl.DataFrame({"d": polars_days(values)}).to_struct("s"), MAYBE_TICKS),
    **{name: Kind(polars_ticks(kind), MAYBE_TICKS) for name, kind in POLARS_TIMES.items()},
    "Arrow int": Kind(lambda values: pa.array(values, pa.int64()), MAYBE_INTS),
    "Arrow text": Kind(lambda values: texts_of(values, pa.string()), MAYBE_BYTES),
    "Arrow dictionary": Kind(lambda values: texts_of(values, pa.string()).dictionary_encode(), MAYBE_BYTES),
    "Arrow binary": Kind(lambda values: pa.array(values, pa.binary()), MAYBE_BYTES),
    "Arrow lists": Kind(lambda values: pa.array(values, pa.list_(pa.string())), LISTS),
    "Arrow chunks": Kind(lambda values: pa.chunked_array([values[:1], values[1:]], pa.int64()), MAYBE_INTS),
    "Arrow date32": Kind(lambda values: pa.array(days(values), pa.int32()).view(pa.date32()), MAYBE_TICKS),
    "Arrow table": Kind(lambda values: pa.table({"a": ticks(pa.date64())(values), "b": values}), MAYBE_TICKS),
    "Arrow batch": Kind(lambda values: pa.record_batch({"a": ticks(pa.date64())(values)}), MAYBE_TICKS),
    "Arrow decimal": Kind(
        lambda values: pa.array(values, pa.decimal128(38, 2)),
        (decimal.Decimal("0.25"), decimal.Decimal(1), decimal.Decimal(10**34), None),
    ),
    **{f"Arrow {name}": Kind(ticks(kind), MAYBE_TICKS) for name, kind in ARROW_TIMES.items()},
}
