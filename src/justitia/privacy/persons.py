"""Persons: which rows belong to one person, and how many of them a query counts.

Ids are public. Without them the unit of every promise is a row; with them it is a person, with all of that person's
rows at once. A person who moves k rows moves an answer k times as far, so the noise grows with the largest k. One
person with a thousand rows must not set the noise for all: beyond a public number of rows, a person's other rows
count as "not given".
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

#: A whole number as text, with or without the point that tools add to a column with a gap.
_WHOLE = re.compile(r"^\+?(-?[0-9]+)(\.0+)?$")
#: Noise, relative to the rows that are asked about, may be this many times what it is with one row per person.
MOST_NOISE = 1.1


@dataclass(frozen=True, eq=False)
class Persons:
    """Rows grouped by person.

    Attributes
    ----------
    rows_each : int
        The largest number of rows of one person that are asked about.
    counted : array of bool (n,)
        The rows that are asked about, drawn by chance where a person has more than ``rows_each``.
    number : int
        How many persons there are.
    digest : str
        Of which rows are one person's, whatever the ids are called.

    Guarantee
    ---------
    * A function of ids and of a fixed public seed: nothing here depends on the attribute.
    * No person has more than ``rows_each`` rows that count.
    """

    rows_each: int
    counted: NDArray[np.bool_] = field(repr=False)
    number: int
    digest: str

    @classmethod
    def from_ids(cls, ids: Any) -> Persons:
        """Group rows by their public ids.

        Raises
        ------
        TypeError, ValueError
            If ``ids`` is not one column, or an id is missing.
        """
        return cls.from_codes(person_codes(ids))

    @classmethod
    def from_codes(cls, codes: NDArray[np.int64]) -> Persons:
        """The same from numbers of persons, in order of appearance."""
        sizes = np.bincount(codes)
        each = rows_each(sizes)
        order = np.random.default_rng(0).permutation(len(codes))  # public: which rows of a person count
        by_person = order[np.argsort(codes[order], kind="stable")]
        place = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        counted = np.zeros(len(codes), dtype=np.bool_)
        counted[by_person] = place < each
        return cls(each, counted, len(sizes), hashlib.sha256(codes.astype("<i8").tobytes()).hexdigest())

    def check_rows(self, n: int) -> None:
        """Refuse another number of rows."""
        if len(self.counted) != n:
            raise ValueError(
                f"expected one id per row in person, got {len(self.counted)} for {n} rows; pass a column of the table."
            )


def rows_each(sizes: NDArray[np.int64]) -> int:
    r"""Number of rows of one person that queries count, from the numbers of rows of all persons.

    With k rows each, :math:`R(k) = \sum_p \min(m_p, k)` rows count and the noise is k times that of one row, so
    relative to these rows it is :math:`k / R(k)`, which never falls as k grows. More rows have less sampling
    error: the largest k is taken whose relative noise is at most ``MOST_NOISE`` times that of k = 1.
    """
    count = np.bincount(sizes)
    at_least = count[::-1].cumsum()[::-1][1:]  # persons with at least 1, 2, ... rows
    k = np.arange(1, len(at_least) + 1)
    allowed = k * at_least[0] <= MOST_NOISE * at_least.cumsum()
    return int(k[allowed].max())


def person_codes(ids: Any) -> NDArray[np.int64]:
    """Number of each row's person, in order of appearance.

    Raises
    ------
    TypeError, ValueError
        If ``ids`` is not one column, or an id is missing.
    """
    native = nw.from_native(ids, pass_through=True, allow_series=True)
    values = native.to_list() if isinstance(native, nw.Series) else ids
    if isinstance(values, np.ndarray):
        values = values.tolist() if values.ndim == 1 else None
    if not isinstance(values, list | tuple):
        raise TypeError(
            f"expected person to be one column of ids, got {type(ids).__name__!r}; pass a list, an array or a Series."
        )
    known: dict[Any, int] = {}
    codes = [_code(value, known) for value in values]
    absent = sum(code < 0 for code in codes)
    if absent:
        raise ValueError(f"expected an id in every row of person, got {absent} without one; give every row an id.")
    if not codes:
        raise ValueError("expected person to hold one id per row, got none.")
    return np.array(codes, dtype=np.int64)


def _code(value: Any, known: dict[Any, int]) -> int:
    """Number of this id, in order of appearance; -1 for a missing one.

    Ids that are equal in Python are one person, and so are a whole number and its text: a column that was read in parts
    may hold 1, 1.0 and "1". To take two persons for one protects both.
    """
    try:
        if value is None or bool(value != value):  # noqa: PLR0124 - only NaN and its like differ from themselves
            return -1
        return known.setdefault(_same(value), len(known))
    except TypeError:
        raise TypeError(
            f"expected ids that can be compared in person, got {type(value).__name__!r}; pass numbers or text."
        ) from None


def _same(value: Any) -> Any:
    """The id that others are compared with."""
    if isinstance(value, str):
        return _WHOLE.sub(r"\1", value.strip())
    try:
        return str(int(value)) if int(value) == value else value
    except (TypeError, ValueError, OverflowError):
        return value


__all__ = ["Persons", "person_codes", "rows_each"]
