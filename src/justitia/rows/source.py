"""Row sources and passes: public rows in blocks, wherever they are, and pure functions of a block that are added up.

Everything that a fit needs from many rows is a *pass*: a function of a block of public rows that returns integers on a
public grid. Integers are added without rounding, so a result does not depend on how rows are split, and a pass that is
repeated after a fault gives the same numbers. The driver alone debits, adds noise once to the sum, and solves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from justitia.learners.inputs import Inputs

IntArray = NDArray[np.int64]
#: From features to p(y = 1 | x).
Predict = Callable[[Inputs], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive public rows.

    Attributes
    ----------
    first : int
        Position of the first row among all rows.
    X : ndarray (m, p)
        Features as numbers.
    y : ndarray (m,)
        Labels, 0 or 1.
    weight : ndarray (m,)
        Sample weights; those of all rows have mean 1.
    score : ndarray (m,), optional
        p(y = 1 | x), once a base model has scored the rows.
    memo : dict
        What earlier passes have computed of this block; it is dropped with the process that holds the block.
    """

    first: int
    X: NDArray[np.float32]
    y: NDArray[np.float32]
    weight: NDArray[np.float32]
    score: NDArray[np.float64] | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.y)


class Pass(Protocol):
    """A pure, picklable function of a block; its results are added up over all blocks."""

    def run(self, block: Block) -> IntArray:
        """Integers on a public grid, of the same shape for every block."""


class RowSource(ABC):
    """All public rows of a fit.

    A new kind of source (another engine that can map over blocks and add) implements ``run``, ``map`` and
    ``with_scores``.

    Attributes
    ----------
    n : int
        Number of rows.
    max_weight : float
        Largest sample weight.
    """

    n: int
    max_weight: float

    @abstractmethod
    def run(self, work: Pass) -> IntArray:
        """The sum of ``work.run(block)`` over all blocks."""

    @abstractmethod
    def with_scores(self, predict: Predict, sample_scores: NDArray[np.float64]) -> Self:
        """The same rows with p(y = 1 | x) in every block.

        Parameters
        ----------
        predict : callable
            Scores rows outside the sample.
        sample_scores : ndarray
            Scores of the rows of the sample, by models that have not learned from them.
        """

    @abstractmethod
    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        """A function of every block, in order; for rows that are sent to a custodian."""

    def check_unchanged(self) -> None:
        """Raise ``ValueError`` if the rows are no longer those that were read first; called before each debit."""

    def close(self) -> None:
        """End worker processes and remove temporary files, if there are any."""


@dataclass(frozen=True, eq=False)
class MemoryRows(RowSource):
    """Rows in memory. The sample is all of them.

    Parameters
    ----------
    X, y, weight : ndarray
        As in :class:`Block`.
    score : ndarray (n,), optional
    block_rows : int
        Rows that a pass computes at once; it bounds memory and does not change results.
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    weight: NDArray[np.float32]
    score: NDArray[np.float64] | None = None
    block_rows: int = 65_536
    memos: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.y)

    @property
    def max_weight(self) -> float:  # type: ignore[override]
        """Largest sample weight."""
        return float(self.weight.max(initial=0.0))

    def blocks(self) -> Iterator[Block]:
        """Views of consecutive rows."""
        X = self.X.reshape(self.n, -1)
        for first in range(0, self.n, self.block_rows):
            rows = slice(first, first + self.block_rows)
            score = None if self.score is None else self.score[rows]
            memo = self.memos.setdefault(first, {})
            yield Block(first, X[rows], self.y[rows], self.weight[rows], score, memo)

    def run(self, work: Pass) -> IntArray:
        """The sum over all blocks."""
        total: IntArray = sum(work.run(block) for block in self.blocks())  # type: ignore[assignment]
        return total

    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        """A function of every block, in order."""
        return map(function, self.blocks())

    def with_scores(self, predict: Predict, sample_scores: NDArray[np.float64]) -> MemoryRows:  # noqa: ARG002
        """The same rows; all of them are in the sample, so nothing has to be predicted."""
        return MemoryRows(self.X, self.y, self.weight, sample_scores, self.block_rows)


__all__ = ["Block", "IntArray", "MemoryRows", "Pass", "Predict", "RowSource"]
