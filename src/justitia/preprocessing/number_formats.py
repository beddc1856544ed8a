"""Number and date formats of text columns: decimal marks, thousands separators, order of day, month and year."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia._validate import check_choice

Floats = NDArray[np.float64]

#: Words in place of a missing number or date, in lower case.
MISSING_WORDS = frozenset(
    {"n.a.", "n.a", "na", "n/a", "nan", "none", "null", "nil", "-", "--", "---", "?", ".", "#n/a", "missing"}
    | {"unknown", "not available", "k.a.", "k. a.", "keine angabe"}
)
DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", "'", " ")
#: Date formats that have one reading: year first, or day before month with dots. With slashes, 01/02 has two.
UNAMBIGUOUS_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y"),
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%d.%m.%Y %H:%M"),
)
AMBIGUOUS_DATE = re.compile(r"\d{1,2}[/-]\d{1,2}[/-](\d{2}|\d{4})")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})
_DAY = 86_400.0


@dataclass(frozen=True)
class NumberFormat:
    """Format of numbers and dates in a file.

    Attributes
    ----------
    decimal : {".", ","}
    thousands : {"", ".", ",", "'", " "}
        Separator of groups of three digits; "" for none.
    dates : mapping of str to str
        ``strptime`` format of the dates of a column; the format of column "" is tried on every text column.
    """

    decimal: str = "."
    thousands: str = ""
    dates: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("decimal", self.decimal, DECIMALS)
        check_choice("thousands", self.thousands, THOUSANDS)
        if self.decimal == self.thousands:
            raise ValueError(f"expected two different marks as decimal and thousands, got {self.decimal!r} twice.")

    @property
    def is_plain(self) -> bool:
        """Whether this is the format that programs write: a decimal point and no thousands separator."""
        return self.decimal == "." and not self.thousands

    def numbers(self, texts: Iterable[Any]) -> Floats:
        """Parse each text; NaN where it is not a number in this format."""
        pattern = _pattern(self.decimal, self.thousands)
        return np.array([self._number(text, pattern) for text in texts], dtype=np.float64)

    def _number(self, text: Any, pattern: re.Pattern[str]) -> float:
        if not isinstance(text, str):
            return _as_float(text)
        plain = text.strip().translate(_SPACES)
        if not pattern.fullmatch(plain):
            return np.nan
        if self.thousands:
            plain = plain.replace(self.thousands, "")
        return float(plain.replace(self.decimal, "."))

    def options(self) -> str:
        """Command-line options that select this format."""
        thousands = '"\'"' if self.thousands == "'" else repr(self.thousands)
        return (f" --decimal {self.decimal!r}" if self.decimal != "." else "") + (
            f" --thousands {thousands}" if self.thousands else ""
        )

    def with_thousands(self, texts: Iterable[Any]) -> NumberFormat | None:
        """Format in which every decimal mark of these texts separates thousands; None if one of them cannot.

        A mark with one to three digits before it and exactly three after it has two readings: 1,500 is 1.5 or 1500. If
        all marked numbers of a column are like that, the column does not say which reading is meant.
        """
        if self.thousands:  # then the decimal mark is another one, and nothing is ambiguous
            return None
        marked = [one for one in texts if isinstance(one, str) and self.decimal in one]
        other = NumberFormat("," if self.decimal == "." else ".", self.decimal, self.dates)
        return other if marked and not np.isnan(other.numbers(marked)).any() else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``training.json``."""
        return {"decimal": self.decimal, "thousands": self.thousands, "dates": dict(self.dates)}


#: Formats that are recognised, so that a message can name them, but never assumed.
OTHER_FORMATS = (
    *(NumberFormat("."), NumberFormat(","), NumberFormat(",", "."), NumberFormat(".", ",")),
    *(NumberFormat(".", "'"), NumberFormat(",", "'"), NumberFormat(".", " "), NumberFormat(",", " ")),
)


def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    mark = re.escape(decimal)
    whole = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d+" if thousands else r"\d+"
    return re.compile(rf"[+-]?(?:(?:{whole})(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?")


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def means_missing(text: Any) -> bool:
    """Whether a text stands for a missing value."""
    return isinstance(text, str) and text.strip().lower() in MISSING_WORDS


def parse_days(values: Any, form: str) -> Floats:
    """Parse each text as days since 1970-01-01; NaN where it is not a date of this format."""
    parsed = pd.to_datetime(pd.Series(values, dtype=object), format=form, errors="coerce")
    return to_days(parsed)


def to_days(times: pd.Series) -> Floats:
    """Timestamps as days since 1970-01-01 in UTC; NaN where one is missing."""
    stamps = pd.to_datetime(times, utc=True, errors="coerce").dt.tz_localize(None).astype("datetime64[us]")
    found: Floats = stamps.astype("int64").to_numpy() / (1e6 * _DAY)
    return np.where(stamps.isna().to_numpy(), np.nan, found)


def format_day(day: float) -> str:
    """Days since 1970-01-01 as a date."""
    return str(np.datetime64("1970-01-01") + np.timedelta64(int(day // 1), "D"))
