"""The rows of one process where rows are in files: what a pass over them adds up, in whole numbers.

Everything here is public: it is the vault that knows groups. Numbers of one row do not depend on the rows beside it
(products of matrices have one shape, whatever rows are there), and what is added up is rounded to a grid first: so
sums do not depend on how rows were split. What an engine adds is in its own folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from justitia.postprocessing.features import PublicRows
from justitia.preprocessing.files import BLOCK
from justitia.preprocessing.public_sample import Block, OwnRows, sampled, weights
from justitia.privacy.noise_grid import exact_sum_step, to_nearest
from justitia.privacy.shards import Drawn
from justitia.training.ranks import Message

Array = NDArray[np.float64]
#: Whole numbers that are added up.
Steps = NDArray[np.int64]
#: From a table to features as numbers.
Encode = Callable[[pd.DataFrame], NDArray[np.float32]]
#: Columns of a product of matrices come in multiples of this.
WIDTH = 16


@dataclass(frozen=True)
class Facts:
    """Public numbers about everybody that each process needs.

    Attributes
    ----------
    positive : object
        The label that counts as 1.
    largest : float
        The largest weight in the files.
    cap : float
        Weights in units of the largest are cut here (:func:`justitia.preprocessing.outliers.clip_weights`).
    mean : float
        Of the weights that are left; divided by it, they have mean 1.
    """

    positive: Any
    largest: float = 1.0
    cap: float = 1.0
    mean: float = 1.0

    @property
    def heaviest(self) -> float:
        """The largest weight, scaled."""
        return float(np.float32(self.cap / self.mean))

    def scaled(self, given: Array) -> NDArray[np.float32]:
        """Weights with mean 1, in single precision as a fit in memory has them."""
        return (np.minimum(given / self.largest, self.cap) / self.mean).astype(np.float32)


@dataclass(frozen=True)
class Piece:
    """Some consecutive rows with their features, and which of them are in the sample, where in it."""

    block: Block
    numbers: NDArray[np.float32]
    drawn: NDArray[np.int64]
    places: slice


class Shard(ABC):
    """The rows of one process.

    Parameters
    ----------
    rows : OwnRows
    facts : Facts
    encode : callable
        From a table to features as numbers.
    """

    def __init__(self, rows: OwnRows, facts: Facts, encode: Encode) -> None:
        self.rows, self.facts, self.encode = rows, facts, encode
        self.learned: PublicRows | None = None
        self.width = 0

    @property
    def weight_step(self) -> float:
        """Grid of sums of weights over everybody."""
        return exact_sum_step(2.0 * self.rows.n * self.facts.heaviest)

    @property
    def row_step(self) -> float:
        """Grid of sums of public rows, whose entries are at most 1, over everybody."""
        return exact_sum_step(2.0 * self.rows.n)

    def pieces(self) -> Iterator[Piece]:
        """All rows with their features, a few at a time."""
        place = len(sampled(0, self.rows.first, self.rows.n))
        for block in self.rows.blocks():
            drawn = sampled(block.first, block.first + len(block), self.rows.n) - block.first
            numbers = self.encode(block.frame(self.rows.columns.features))
            yield Piece(block, numbers, drawn, slice(place, place + len(drawn)))
            place += len(drawn)

    def drawn(self) -> Drawn:
        """Which rows are in the sample."""
        first, n = self.rows.first, self.rows.n
        before, here = len(sampled(0, first, n)), sampled(first, first + len(self.rows), n)
        return Drawn(here - first, slice(before, before + len(here)), len(sampled(0, n, n)))

    @abstractmethod
    def moments(self) -> Iterator[NDArray[Any]]:
        """(m, width): public rows of the moments, a few at a time."""

    def columns(self) -> Iterator[NDArray[Any]]:
        """(m, d): all that memberships are a function of; the moments, unless said otherwise."""
        return self.moments()

    @property
    def scale(self) -> Array:
        """(d,) powers of two, by which these columns are at most 1 in size."""
        return np.ones(self.width)

    @abstractmethod
    def public(self, job: Message) -> Steps:
        """Whole numbers that a public pass of the engine adds up."""

    @abstractmethod
    def decision_rows(self, message: Message) -> ShardRows:
        """What the decisions of the moment add to a group's sums, for the vault."""

    def labels(self, block: Block) -> NDArray[np.float32]:
        """0 or 1."""
        target = self.rows.columns.target
        assert target is not None  # noqa: S101 - checked before
        labels: NDArray[np.float32] = (block.column(target) == self.facts.positive).astype(np.float32)
        return labels

    def weights(self, block: Block) -> Array:
        """How often rows count."""
        name = self.rows.columns.weight
        return np.ones(len(block)) if name is None else self.facts.scaled(weights(block, name)).astype(np.float64)

    def of_table(self, block: Block, decided: NDArray[np.bool_], table: Array) -> NDArray[Any]:
        """(m, K): what decisions add to a group's sums: weight times an entry of a table, by label and decision."""
        weight = self.weights(block)[:, None].astype(np.float32)
        rows: NDArray[Any] = weight * table[self.labels(block).astype(int), decided.astype(int)].astype(np.float32)
        return rows

    def weight_sums(self, cap: float) -> Steps:
        """Of the weights in the files, in units of the heaviest and cut, on the grid."""
        name, step = self.rows.columns.weight, exact_sum_step(2.0 * self.rows.n)
        total = np.zeros(1, dtype=np.int64)
        for block in self.rows.blocks([] if name is None else [name]):
            if name is not None:
                used = np.minimum(weights(block, name) / self.facts.largest, cap)
                total += whole(used[:, None], step)
        return total

    def expected(self, membership: Array) -> Steps:
        """(C d,): sums of columns under memberships of these weights; columns and memberships on a grid."""
        bits = product_bits(self.rows.n)
        total = np.zeros(membership.size, dtype=np.int64)
        for columns in self.columns():
            q = memberships_of(membership, columns)
            steps = np.rint(columns.astype(np.float64) * (2.0**bits / self.scale))
            total += (np.rint(q * 2.0**bits).T @ steps).astype(np.int64).ravel()  # below 2^53: exact in any order
        return total

    def size_rows(self, message: Message) -> ShardRows:
        """A one for everybody."""

        def parts() -> Iterator[NDArray[Any]]:
            for start in range(0, len(self.rows), BLOCK):
                yield np.ones((min(BLOCK, len(self.rows) - start), 1))

        return ShardRows(parts, len(self.rows), 1, message)

    def moment_rows(self, message: Message) -> ShardRows:
        """Public rows for the vault."""
        return ShardRows(self.moments, len(self.rows), self.width, message)


@dataclass(frozen=True, eq=False)
class ShardRows:
    """Rows for a vault, and the message that lets other processes make theirs."""

    parts: Callable[[], Iterator[NDArray[Any]]]
    length: int
    width: int
    message: Message

    def __len__(self) -> int:
        return self.length

    def dense(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        at = 0
        for rows in self.parts():
            yield np.arange(at, at + len(rows)), rows
            at += len(rows)


def memberships_of(membership: Array, columns: NDArray[Any]) -> Array:
    """(m, C) in double precision; a row's product does not depend on its place, which other widths do not promise."""
    missing = -columns.shape[1] % WIDTH
    filled = np.pad(columns, ((0, BLOCK - len(columns)), (0, missing)))
    product = filled @ np.pad(membership.astype(columns.dtype), ((0, 0), (0, missing))).T
    q: Array = softmax(product[: len(columns)], axis=1).astype(np.float64)
    return q


def product_bits(n: int) -> int:
    """Bits behind the point of both factors, so that sums of n products are exact and fit 62 bits."""
    return min(18, (62 - n.bit_length()) // 2)


def whole(values: Array, step: float) -> Steps:
    """(d,): sums of the columns in steps."""
    steps: Steps = to_nearest(values, step).sum(0).astype(np.int64)
    return steps


__all__ = ["Encode", "Facts", "Piece", "Shard", "ShardRows", "memberships_of", "product_bits", "whole"]
