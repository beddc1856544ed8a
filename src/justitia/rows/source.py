"""Row sources and passes: public rows in blocks, wherever they are, and pure functions of a block that are added up.

Everything that a fit needs from many rows is a *pass*: a function of a block of public rows that returns integers on a
public grid. Integers are added without rounding, so a result does not depend on how rows are split, and a pass that is
repeated after a fault gives the same numbers. The driver alone debits, adds noise once to the sum, and solves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Inputs

IntArray = NDArray[np.int64]
#: From features to p(y = 1 | x), or to (m, K) probabilities of classes.
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
        Labels 0 to Y - 1; in public stratum s, Y s more.
    weight : ndarray (m,)
        Sample weights; those of all rows have mean 1.
    score : ndarray (m,) or (m, K), optional
        p(y = 1 | x), or probabilities of K classes, once a base model has scored the rows.
    memo : dict
        What earlier passes have computed of this block; it is dropped with the process that holds the block.
    proxy : ndarray (m, r), optional
        Public columns that say something about the group, as numbers. They are no features of the base model.
    """

    first: int
    X: NDArray[np.float32]
    y: NDArray[np.float32]
    weight: NDArray[np.float32]
    score: NDArray[np.float64] | None = None
    memo: dict[str, Any] = field(default_factory=dict, repr=False)
    proxy: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def prediction(self) -> NDArray[np.float64]:
        """The scores, of a block that has them.

        Raises
        ------
        ValueError
            If no base model has scored the rows yet.
        """
        if self.score is None:
            raise ValueError("expected rows with scores of a base model, got none; call score first.")
        return self.score

    def take(self, rows: NDArray[np.int64]) -> Block:
        """Some of the rows."""
        score = None if self.score is None else self.score[rows]
        proxy = None if self.proxy is None else self.proxy[rows]
        return Block(self.first, self.X[rows], self.y[rows], self.weight[rows], score, proxy=proxy)


class Pass(Protocol):
    """A pure, picklable function of a block; its results are added up over all blocks."""

    def run(self, block: Block) -> IntArray:
        """Integers on a public grid, of the same shape for every block."""


class RowSource(ABC):
    """All public rows of a fit.

    A new kind of source (another engine that can map over blocks and add) implements ``run``, ``map``,
    ``score`` and ``read_codes``.

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
    def score(self, predict: Predict, sample_scores: NDArray[np.float64]) -> None:
        """Put p(y = 1 | x) into every block.

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

    @abstractmethod
    def read_codes(self, codes: Any) -> None:
        """Let every process that holds rows call ``codes.take(start, stop)`` for its own rows, and drop the result."""

    def check_unchanged(self) -> None:  # noqa: B027 - rows in memory have nothing to check
        """Raise ``ValueError`` if the rows are no longer those that were read first; called before each debit."""

    def close(self) -> None:  # noqa: B027 - rows in memory have nothing to end
        """End worker processes and remove temporary files, if there are any."""


class MemoryRows(RowSource):
    """Rows in memory. The sample is all of them.

    Parameters
    ----------
    X, y, weight : ndarray
        As in :class:`Block`.
    block_rows : int
        Rows that a pass computes at once; it bounds memory and does not change results.
    proxy : ndarray (n, r), optional
        As in :class:`Block`.
    """

    def __init__(
        self,
        X: NDArray[np.float32],
        y: NDArray[np.float32],
        weight: NDArray[np.float32],
        block_rows: int = 65_536,
        proxy: NDArray[np.float32] | None = None,
    ) -> None:
        self.n, self.max_weight, self.block_rows = len(y), float(weight.max(initial=0.0)), block_rows
        self._X, self._y, self._weight, self._proxy = X.reshape(len(y), -1), y, weight, proxy
        self._score: NDArray[np.float64] | None = None
        self._memos: dict[int, dict[str, Any]] = {}

    def blocks(self) -> Iterator[Block]:
        """Views of consecutive rows."""
        for first in range(0, self.n, self.block_rows):
            rows = slice(first, first + self.block_rows)
            score = None if self._score is None else self._score[rows]
            memo = self._memos.setdefault(first, {})
            proxy = None if self._proxy is None else self._proxy[rows]
            yield Block(first, self._X[rows], self._y[rows], self._weight[rows], score, memo, proxy)

    def replace_features(self, X: NDArray[np.float32]) -> None:
        """Use these features from now on: a method may add public columns that it has learned."""
        self._X, self._memos = X.reshape(self.n, -1), {}

    def run(self, work: Pass) -> IntArray:
        """The sum over all blocks."""
        total: IntArray = sum(map(work.run, self.blocks()))  # type: ignore[assignment]
        return total

    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        """A function of every block, in order."""
        return map(function, self.blocks())

    def read_codes(self, codes: Any) -> None:
        """All rows are here."""
        codes.take(0, self.n)

    def score(self, predict: Predict, sample_scores: NDArray[np.float64]) -> None:  # noqa: ARG002
        """Take the scores of the sample, which is all rows: nothing has to be predicted."""
        self._score, self._memos = sample_scores, {}


__all__ = ["Block", "IntArray", "MemoryRows", "Pass", "Predict", "RowSource"]
