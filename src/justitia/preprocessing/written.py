"""Numbers and dates as people write them: decimal commas, marks between thousands, days first or years first."""

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

#: What people write where a number or a date is not known, in lower case.
NOT_KNOWN = frozenset(
    {"n.a.", "n.a", "na", "n/a", "nan", "none", "null", "nil", "-", "--", "---", "?", ".", "#n/a", "missing"}
    | {"unknown", "not available", "k.a.", "k. a.", "keine angabe"}
)
DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", "'", " ")
#: Years first, and days before months with dots: nobody writes these another way round. Slashes are another matter.
PLAIN_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y"),
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%d.%m.%Y %H:%M"),
)
UNSURE_DATE = re.compile(r"\d{1,2}[/-]\d{1,2}[/-](\d{2}|\d{4})")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})
_DAY = 86_400.0


@dataclass(frozen=True)
class Written:
    """How a file writes numbers and dates.

    Attributes
    ----------
    decimal : {".", ","}
    thousands : {"", ".", ",", "'", " "}
        What stands between groups of three digits; "" for nothing.
    dates : mapping of str to str
        Format of the dates of a column, in the letters of ``strptime``; that of "" is tried on every column of text.
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
        """Whether numbers are written as programs write them."""
        return self.decimal == "." and not self.thousands

    def numbers(self, texts: Iterable[Any]) -> Floats:
        """Each text as a number; NaN for what is none."""
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
        """What a command has to be given to read such numbers."""
        thousands = '"\'"' if self.thousands == "'" else repr(self.thousands)
        return (f" --decimal {self.decimal!r}" if self.decimal != "." else "") + (
            f" --thousands {thousands}" if self.thousands else ""
        )

    def looks_like_thousands(self, texts: Iterable[Any]) -> Written | None:
        """How the same texts read if every decimal mark in them stood between thousands; None where one cannot.

        A mark with one to three digits before it and exactly three behind it is read both ways: 1,500 is 1.5 or 1500.
        If all marked numbers of a column are like that, nothing in the column says which one is meant.
        """
        if self.thousands:  # a file that marks thousands has another mark for decimals
            return None
        marked = [one for one in texts if isinstance(one, str) and self.decimal in one]
        other = Written("," if self.decimal == "." else ".", self.decimal, self.dates)
        return other if marked and not np.isnan(other.numbers(marked)).any() else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a model's facts."""
        return {"decimal": self.decimal, "thousands": self.thousands, "dates": dict(self.dates)}


#: Other ways to write numbers, that are looked for but never guessed.
OTHERS_WRITTEN = tuple(
    Written(decimal, thousands)
    for decimal, thousands in (
        *((".", ""), (",", ""), (",", "."), (".", ",")),
        *((".", "'"), (",", "'"), (".", " "), (",", " ")),
    )
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


def is_not_known(text: Any) -> bool:
    """Whether a text says that there is no value."""
    return isinstance(text, str) and text.strip().lower() in NOT_KNOWN


def days(values: Any, form: str) -> Floats:
    """Each text as days since 1970-01-01; NaN for what is no date of this format."""
    parsed = pd.to_datetime(pd.Series(values, dtype=object), format=form, errors="coerce")
    return days_of(parsed)


def days_of(times: pd.Series) -> Floats:
    """Points in time as days since 1970-01-01, in universal time; NaN where there is none."""
    stamps = pd.to_datetime(times, utc=True, errors="coerce").dt.tz_localize(None).astype("datetime64[us]")
    found: Floats = stamps.astype("int64").to_numpy() / (1e6 * _DAY)
    return np.where(stamps.isna().to_numpy(), np.nan, found)


def day_text(day: float) -> str:
    """A number of days as a date."""
    return str(np.datetime64("1970-01-01") + np.timedelta64(int(day // 1), "D"))
