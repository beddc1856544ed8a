"""The rows of one process in engine ``plugin``: what each pass over them adds up, in whole numbers.

Everything here is public: it is the vault that knows groups. Numbers of one row do not depend on the rows beside it
(blocks are filled up to one size, so that products of matrices are computed alike), and what is added up is rounded to
a grid first: so sums do not depend on how rows were split.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from justitia.engines.moments.public_rows import PublicRows
from justitia.inputs.files import BLOCK
from justitia.inputs.public_sample import Block, OwnRows, sampled, weights
from justitia.privacy.noise_grid import exact_sum_step, to_nearest
from justitia.training.ranks import Message

Array = NDArray[np.float64]
#: From a table to features as numbers, and from both to p(y = 1 | x).
Score = Callable[[pd.DataFrame, NDArray[np.float32]], Array]
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
        Weights in units of the largest are cut here (:func:`justitia.inputs.ranges.truncated`).
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


class Shard:
    """The rows of one process.

    Parameters
    ----------
    rows : OwnRows
    facts : Facts
    encode : callable
        From a table to features as numbers.
    """

    def __init__(self, rows: OwnRows, facts: Facts, encode: Encode) -> None:
        self.rows, self.facts, self._encode = rows, facts, encode
        self._eta: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as this lives; public
        weakref.finalize(self, self._eta.close)
        self._learned: PublicRows | None = None
        self._width = 0

    @property
    def weight_step(self) -> float:
        """Grid of sums of weights over everybody."""
        return exact_sum_step(2.0 * self.rows.n * self.facts.heaviest)

    @property
    def row_step(self) -> float:
        """Grid of sums of public rows, whose entries are at most 1, over everybody."""
        return exact_sum_step(2.0 * self.rows.n)

    def score(self, learned: PublicRows, width: int, score: Score, sample_eta: Array) -> Tensor:
        """Score all rows and keep what was said; (width,) sums of public rows."""
        self._learned, self._width = learned, width
        self._eta.seek(0)
        place = len(sampled(0, self.rows.first, self.rows.n))
        total = torch.zeros(width, dtype=torch.int64)
        for block in self.rows.blocks():
            table = block.frame(self.rows.columns.features)
            numbers = self._encode(table)
            eta = score(table, numbers)
            drawn = sampled(block.first, block.first + len(block), self.rows.n)
            eta[drawn - block.first] = sample_eta[place : place + len(drawn)]  # by models that have not seen them
            place += len(drawn)
            self._keep(eta)
            total += _whole(self._phi(block, numbers, eta)[: len(block)].double(), self.row_step)
        return total

    def _keep(self, eta: Array) -> None:
        content, kept = eta.tobytes(), 0
        with suppress(OSError):
            kept = self._eta.write(content)
        if kept < len(content):
            self._eta.close()  # gives back what it took
            raise ValueError(
                f"expected room for 8 bytes per row in {tempfile.gettempdir()!r}, got none; make room, or set TMPDIR."
            )

    def _scored(self) -> Iterator[tuple[Block, NDArray[np.float32], Array]]:
        """Blocks with their features and what was said of them."""
        self._eta.seek(0)
        for block in self.rows.blocks():
            eta = np.frombuffer(self._eta.read(8 * len(block)), dtype=np.float64).copy()
            yield block, self._encode(block.frame(self.rows.columns.features)), eta

    def _phi(self, block: Block, numbers: NDArray[np.float32], eta: Array) -> Tensor:
        """Public rows of a block, filled up."""
        return self._rows_of(block, numbers, eta).take(torch.arange(BLOCK))

    def _rows_of(self, block: Block, numbers: NDArray[np.float32], eta: Array) -> PublicRows:
        assert self._learned is not None  # noqa: S101 - rows are scored first
        missing = BLOCK - len(block)
        X, y = torch.from_numpy(numbers).flatten(1), torch.from_numpy(self._labels(block))
        said = represented(np.pad(eta, (0, missing), constant_values=0.5))
        return self._learned.of(said, pad(X, (0, 0, 0, missing)), pad(y, (0, missing)))

    def _labels(self, block: Block) -> NDArray[np.float32]:
        target = self.rows.columns.target
        assert target is not None  # noqa: S101 - checked before
        labels: NDArray[np.float32] = (block.column(target) == self.facts.positive).astype(np.float32)
        return labels

    def _weights(self, block: Block) -> Array:
        name = self.rows.columns.weight
        return np.ones(len(block)) if name is None else self.facts.scaled(weights(block, name)).astype(np.float64)

    def weight_sums(self, cap: float) -> Tensor:
        """Of the weights in the files, in units of the heaviest and cut, on the grid."""
        name, step = self.rows.columns.weight, exact_sum_step(2.0 * self.rows.n)
        total = torch.zeros(1, dtype=torch.int64)
        for block in self.rows.blocks([] if name is None else [name]):
            if name is not None:
                total += _whole(
                    torch.from_numpy(np.minimum(weights(block, name) / self.facts.largest, cap))[:, None], step
                )
        return total

    def expected(self, membership: Tensor) -> Tensor:
        """(C d,): sums of public rows under memberships of these weights; rows and memberships on a grid."""
        bits = product_bits(self.rows.n)
        total = torch.zeros(membership.numel(), dtype=torch.int64)
        for block, numbers, eta in self._scored():
            phi = self._phi(block, numbers, eta)
            q = _memberships(membership, phi)[: len(block)]
            steps = (phi[: len(block)].double() * 2.0**bits).round_()
            total += ((q * 2.0**bits).round_().T @ steps).long().flatten()  # below 2^53: exact in any order
        return total

    def _posteriors(self, membership: Tensor) -> Iterator[tuple[Block, Array, Tensor, Tensor]]:
        """Blocks with eta and p(a | x, y) of both labels, without those for "not given"."""
        everybody = torch.arange(BLOCK)
        for block, numbers, eta in self._scored():
            rows = self._rows_of(block, numbers, eta)
            q0, q1 = (_memberships(membership, rows.take(everybody, label)) for label in (0.0, 1.0))
            yield block, eta, q0[: len(block), :-1], q1[: len(block), :-1]

    def judge(self, membership: Tensor, multiplied: Tensor, threshold: float) -> Tensor:
        """Weights by label, decision and group that the memberships say, and by label and decision: (2, 2, 2 G + 1).

        The last axis: sum of w p(a, y | x) over everybody, sum of w p(a | x, y) over those of label y, and of w.
        """
        groups = multiplied.shape[1]
        total = torch.zeros(2, 2, 2 * groups + 1, dtype=torch.int64)
        for block, eta, q0, q1 in self._posteriors(membership):
            decided = decisions(torch.from_numpy(eta), q0, q1, multiplied, threshold)
            weight = torch.from_numpy(self._weights(block))[:, None]
            y, e = torch.from_numpy(self._labels(block)).long(), torch.from_numpy(eta)[:, None]
            for label, q, p in ((0, q0, 1 - e), (1, q1, e)):
                own = (y == label)[:, None]
                columns = to_nearest(torch.cat([q * p, q * own, own], dim=1) * weight, self.weight_step)
                for d in (0, 1):
                    total[label, d] += columns[decided == bool(d)].sum(0).long()
        return total.flatten()

    def size_rows(self, message: Message) -> ShardRows:
        """A one for everybody."""

        def parts() -> Iterator[Tensor]:
            for start in range(0, len(self.rows), BLOCK):
                yield torch.ones(min(BLOCK, len(self.rows) - start), 1)

        return ShardRows(parts, len(self.rows), 1, message)

    def moment_rows(self, message: Message) -> ShardRows:
        """Public rows for the vault."""

        def parts() -> Iterator[Tensor]:
            for block, numbers, eta in self._scored():
                yield self._phi(block, numbers, eta)[: len(block)]

        return ShardRows(parts, len(self.rows), self._width, message)

    def decision_rows(self, message: Message) -> ShardRows:
        """What the decisions of the moment add to a group's sums: weight times an entry of a table."""
        membership, multiplied, table = (message[name] for name in ("membership", "multiplied", "table"))

        def parts() -> Iterator[Tensor]:
            for block, eta, q0, q1 in self._posteriors(membership):
                decided = decisions(torch.from_numpy(eta), q0, q1, multiplied, message["threshold"])
                weight = torch.from_numpy(self._weights(block))[:, None].float()
                yield weight * table[torch.from_numpy(self._labels(block)).long(), decided.long()].float()

        return ShardRows(parts, len(self.rows), table.shape[-1], message)


@dataclass(frozen=True, eq=False)
class ShardRows:
    """Rows for a vault, and the message that lets other processes make theirs."""

    parts: Callable[[], Iterator[Tensor]]
    length: int
    width: int
    message: Message

    def __len__(self) -> int:
        return self.length

    def dense(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        at = 0
        for rows in self.parts():
            yield torch.arange(at, at + len(rows)), rows
            at += len(rows)


def represented(eta: Array) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What the base says of rows: probability and log-odds."""
    said = torch.from_numpy(eta)

    def represent(index: Tensor) -> tuple[Tensor, Tensor]:
        some = said[index].float()
        return (2 * some - 1)[:, None], torch.logit(some)

    return represent


def decisions(eta: Tensor, q0: Tensor, q1: Tensor, multiplied: Tensor, threshold: float) -> Tensor:
    """(m,): whether 2 (eta - threshold) exceeds lambda . c, written with what multiplies p(a, y | x)."""
    corrected = torch.zeros_like(eta)
    for a in range(multiplied.shape[1]):  # one after the other: a row's sum does not depend on the rows beside it
        corrected += (1 - eta) * q0[:, a] * multiplied[0, a] + eta * q1[:, a] * multiplied[1, a]
    decided: Tensor = 2 * (eta - threshold) - corrected > 0
    return decided


def _memberships(membership: Tensor, phi: Tensor) -> Tensor:
    """(m, C) in double precision; a row's product does not depend on its place, which other widths do not promise."""
    missing = -phi.shape[1] % WIDTH
    return (pad(phi, (0, missing)) @ pad(membership.to(phi.dtype), (0, missing)).T).softmax(1).double()


def product_bits(n: int) -> int:
    """Bits behind the point of both factors, so that sums of n products are exact and fit 62 bits."""
    return min(18, (62 - n.bit_length()) // 2)


def _whole(values: Tensor, step: float) -> Tensor:
    """(d,): sums of the columns in steps."""
    return to_nearest(values, step).sum(0).long()


__all__ = ["Facts", "Shard", "ShardRows", "decisions", "product_bits", "represented"]
