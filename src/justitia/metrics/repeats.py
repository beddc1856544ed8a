r"""Design effect of several rows per person, from public ids.

Rows of one person are not independent. With :math:`m_i` rows of person i, the variance of a sum over rows is at most
:math:`D = \sum_i m_i^2 / \sum_i m_i` times that of as many independent rows (Kish 1965); it is that large where all
rows of a person are alike. Which persons are in a group is private, so D of a group is not known. Its largest possible
value is: a group of n rows has at most the D of the n rows whose persons have the most rows. That is a public function
of n, evaluated at the noisy count.

If the rows of a person are independent of each other, bounds with D in them are wider than necessary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.persons import Persons, person_codes

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Repeats:
    """Rows of one event by person, persons with the most rows first.

    Attributes
    ----------
    rows, squares : arrays, increasing from 0
        Number of rows of the first persons, and sum of their squared numbers of rows, where the number of rows of a
        person changes. Between two of these places both grow linearly.
    """

    rows: Array
    squares: Array

    @classmethod
    def of(cls, codes: NDArray[np.int64]) -> Repeats:
        """From the public number of the person of every row in the event."""
        sizes = np.bincount(codes)
        each, persons = (one[::-1].astype(float) for one in np.unique(sizes[sizes > 0], return_counts=True))
        rows, squares = (np.concatenate([[0.0], np.cumsum(persons * each**power)]) for power in (1, 2))
        return cls(rows, squares)

    def design_effect(self, counts: Array) -> Array:
        """Largest possible D of so many rows, at least 1; NaN stays NaN."""
        n = np.clip(counts, 1.0, max(1.0, float(self.rows[-1])))
        found: Array = np.maximum(np.interp(n, self.rows, self.squares) / n, 1.0)
        return np.where(np.isnan(counts), np.nan, found)


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Which public rows are one person's.

    Attributes
    ----------
    codes : array of shape (n,)
        Number of the person of every row.
    persons : Persons
        Which of a person's rows are counted in a group; the others count as "not given".
    """

    codes: NDArray[np.int64]
    persons: Persons

    @classmethod
    def of(cls, ids: Any, n: int) -> PersonRows:
        """From public ids, one per row.

        Raises
        ------
        TypeError, ValueError
            If there is not one id per row.
        """
        codes = person_codes(ids)
        persons = Persons.from_codes(codes)
        persons.check_rows(n)
        return cls(codes, persons)

    def repeats(self, event: NDArray[np.bool_]) -> tuple[Repeats, Repeats]:
        """Rows of an event by person: those that groups may hold, and all of them."""
        return Repeats.of(self.codes[event & self.persons.counted]), Repeats.of(self.codes[event])


__all__ = ["PersonRows", "Repeats"]
