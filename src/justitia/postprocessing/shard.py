"""The rows of one process in engine ``post-processing``: scores of the base, and decisions corrected by memberships."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.engines.shards import Encode, Facts, Piece, Shard, ShardRows, memberships_of, whole
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.solver import represented
from justitia.preprocessing.public_sample import Block, OwnRows, stride
from justitia.preprocessing.spilled import Spilled
from justitia.privacy.noise_grid import to_nearest
from justitia.training.ranks import Message, Steps

Array = NDArray[np.float64]
#: From a table and features as numbers to p(y = 1 | x).
Score = Callable[[pd.DataFrame, NDArray[np.float32]], Array]


class ScoredShard(Shard):
    """The rows of one process with what the base says of them, which is kept in a temporary file.

    Parameters
    ----------
    read : callable, optional
        From a message of rank 0 to what scores rows.
    """

    def __init__(
        self, rows: OwnRows, facts: Facts, encode: Encode, read: Callable[[Message], Score] | None = None
    ) -> None:
        super().__init__(rows, facts, encode)
        self._read = read
        self._eta, self._decided = Spilled(np.dtype(np.float64)), Spilled(np.dtype(np.bool_))
        self._decided_by: Message = {}

    def public(self, job: Message) -> Steps:
        """Scores of everybody, or what the memberships say of decisions."""
        if job["name"] == "judge":
            return self.judge(job["membership"], job["multiplied"], job["threshold"])
        assert self._read is not None  # noqa: S101 - of a process that is sent messages
        return self.score(PublicRows.from_numbers(job["learned"]), job["width"], self._read(job), job["eta"])

    def score(self, learned: PublicRows, width: int, score: Score, sample_eta: Array) -> Steps:
        """Score all rows and keep what was said; (width,) sums of public rows."""
        self.learned, self.width = learned, width
        self._eta.rewind()
        total = np.zeros(width, dtype=np.int64)
        everybody = stride(self.rows.n) == 1
        for piece in self.pieces():
            names = self.rows.columns.features
            eta = np.zeros(len(piece.block)) if everybody else score(piece.block.frame(names), piece.numbers)
            eta[piece.drawn] = sample_eta[piece.places]  # by models that have not seen them
            self._eta.write(eta)
            total += whole(self._rows_of(piece, eta).astype(np.float64), self.row_step)
        return total

    def _scored(self) -> Iterator[tuple[Piece, Array]]:
        """Rows with what was said of them."""
        self._eta.rewind()
        for piece in self.pieces():
            yield piece, self._eta.read(len(piece.block))

    def moments(self) -> Iterator[Array]:
        """(m, width): public rows."""
        return (self._rows_of(piece, eta) for piece, eta in self._scored())

    def _rows_of(self, piece: Piece, eta: Array, label: float | None = None) -> Array:
        """Public rows, by their own labels or as if all had one label."""
        assert self.learned is not None  # noqa: S101 - rows are scored first
        y = self.labels(piece.block)
        rows = self.learned.of(represented(eta), piece.numbers, y if label is None else np.full_like(y, label))
        return rows.placed(piece.block.first, np.arange(len(y)))

    def _posteriors(self, membership: Array) -> Iterator[tuple[Piece, Array, Array, Array]]:
        """Rows with eta and p(a | x, y) of both labels, without those for "not given"."""
        for piece, eta in self._scored():
            q0, q1 = (memberships_of(membership, self._rows_of(piece, eta, label))[:, :-1] for label in (0.0, 1.0))
            yield piece, eta, q0, q1

    def judge(self, membership: Array, multiplied: Array, threshold: float) -> Steps:
        """Weights by label, decision and group that the memberships say, and by label and decision: (2, 2, 2 G + 1).

        The last axis: sum of w p(a, y | x) over everybody, sum of w p(a | x, y) over those of label y, and of w.
        The decisions are kept: the vault is asked about the same ones next.
        """
        groups = multiplied.shape[1]
        self._decided_by = {}
        self._decided.rewind()
        total = np.zeros((2, 2, 2 * groups + 1), dtype=np.int64)
        for piece, eta, q0, q1 in self._posteriors(membership):
            decided = decisions(eta, q0, q1, multiplied, threshold)
            self._decided.write(decided)
            weight = self.weights(piece.block)[:, None]
            y, e = self.labels(piece.block), eta[:, None]
            for label, q, p in ((0, q0, 1 - e), (1, q1, e)):
                own = (y == label)[:, None]
                columns = to_nearest(np.concatenate([q * p, q * own, own], axis=1) * weight, self.weight_step)
                for d in (0, 1):
                    total[label, d] += columns[decided == bool(d)].sum(0).astype(np.int64)
        self._decided_by = {"membership": membership, "multiplied": multiplied, "threshold": threshold}
        return total.ravel()

    def _decisions(self, by: Message) -> Iterator[tuple[Block, NDArray[np.bool_]]]:
        """Blocks, of which labels and weights are read, with their decisions: those that are kept, or made anew."""
        if _same(by, self._decided_by):
            self._decided.rewind()
            columns = self.rows.columns
            for block in self.rows.blocks([name for name in (columns.target, columns.weight) if name is not None]):
                yield block, self._decided.read(len(block))
        else:
            for piece, eta, q0, q1 in self._posteriors(by["membership"]):
                yield piece.block, decisions(eta, q0, q1, by["multiplied"], by["threshold"])

    def decision_rows(self, message: Message) -> ShardRows:
        """What the decisions of the moment add to a group's sums: weight times an entry of a table."""
        table = message["table"]

        def parts() -> Iterator[Array]:
            return (self.of_table(block, decided, table) for block, decided in self._decisions(message))

        return ShardRows(parts, len(self.rows), table.shape[-1], message)


def _same(one: Message, other: Message) -> bool:
    """Whether both were decided by the same numbers."""
    return bool(other) and all(np.array_equal(one[name], other[name]) for name in other)


def decisions(eta: Array, q0: Array, q1: Array, multiplied: Array, threshold: float) -> NDArray[np.bool_]:
    """(m,): whether 2 (eta - threshold) exceeds lambda . c, written with what multiplies p(a, y | x)."""
    corrected = np.zeros_like(eta)
    for a in range(multiplied.shape[1]):  # one after the other: a row's sum does not depend on the rows beside it
        corrected += (1 - eta) * q0[:, a] * multiplied[0, a] + eta * q1[:, a] * multiplied[1, a]
    decided: NDArray[np.bool_] = 2 * (eta - threshold) - corrected > 0
    return decided


__all__ = ["Score", "ScoredShard", "decisions"]
