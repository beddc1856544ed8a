"""Rows in several places, and one sum over all of them.

The step of the grid comes from the number of rows everywhere, and what each place adds up is a whole number of steps:
so sums over places are exact in any order, and an answer does not depend on how rows were split. Nothing is noised
here: whoever adds up the places is inside the boundary (``docs/privacy.md``, section 2.7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.rows import DenseSource


@dataclass(frozen=True, eq=False)
class Drawn:
    """Some rows of all places, in order.

    Attributes
    ----------
    here : ndarray
        Which rows of this place are among them.
    places : slice
        Where they stand among all that were drawn.
    number : int
        Of all that were drawn.
    """

    here: NDArray[np.int64]
    places: slice
    number: int

    def placed(self, codes: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
        """(number,): codes of the rows of this place, 0 elsewhere."""
        found = np.zeros(self.number, dtype=np.int64)
        found[self.places] = codes[self.here]
        return found


class Together(ABC):
    """All places that hold a part of the rows, seen from one of them."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are in all places."""

    @abstractmethod
    def begin(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Tell the others, after the debit, what to add up; only then do they compute."""

    @abstractmethod
    def add(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum over all places of whole numbers (int64); only the place that debits is given it."""

    @abstractmethod
    def gather(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Codes of rows that were drawn, of all places; after the debit the others are told to add theirs."""


class Alone(Together):
    """One place with all rows.

    Parameters
    ----------
    rows : int
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._rows

    def begin(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Nobody to tell."""
        del source, bound, step

    def add(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is here is all there is."""
        return steps

    def gather(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is here is all there is."""
        return codes


__all__ = ["Alone", "Drawn", "Together"]
