"""Rows in several places, and one sum over all of them.

The step of the grid comes from the number of rows everywhere, and what each place adds up is a whole number of steps:
so sums over places are exact in any order, and an answer does not depend on how rows were split. Nothing is noised
here: whoever adds up the places is inside the boundary (``docs/privacy.md``, section 2.7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from justitia.privacy.questions import Listener, Question
from justitia.privacy.rows import DenseSource


class Together(ABC):
    """All places that hold a part of the rows, seen from one of them."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are in all places."""

    @abstractmethod
    def listener(self, question: Question, source: DenseSource, bound: float) -> Listener:
        """What hears the public rows of this place, for noise that can be drawn again."""

    @abstractmethod
    def begin(self, source: DenseSource, *, bound: float, step: float, seeded: bool) -> None:
        """Tell the others, after the debit, what to add up; only then do they compute."""

    @abstractmethod
    def add(self, steps: Tensor) -> Tensor:
        """Sum over all places of whole numbers (int64); only the place that debits is given it."""


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

    def listener(self, question: Question, source: DenseSource, bound: float) -> Listener:
        """The question itself, which hears rows in order."""
        del source, bound
        return question

    def begin(self, source: DenseSource, *, bound: float, step: float, seeded: bool) -> None:
        """Nobody to tell."""
        del source, bound, step, seeded

    def add(self, steps: Tensor) -> Tensor:
        """What is here is all there is."""
        return steps


__all__ = ["Alone", "Together"]
