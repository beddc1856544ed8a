r"""Factored public rows: norms and clipped weighted sums of rows that are never built.

Each row is a plain piece of data. Norms and weighted sums of many rows come from the factors,

.. math:: \|g a^\top\| = \|g\| \|a\|, \qquad \sum_i c_i\, g_i a_i^\top = (c \odot G)^\top A,

so the gradient of every example costs about as much as the ordinary gradient of their sum. Rows may be centred by
public vectors (:meth:`FactoredRows.centred`), which shortens them, and with them the noise a clipped sum needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from justitia.privacy.arrays import Array, Floats, Index, Mask, quietly
from justitia.privacy.blocks import ColumnBlock, DenseBlock, OuterBlock, ScatterBlock, zero_rows

#: Relative round-off that centring may hide in a squared norm; it is added, so that a row is never clipped too little.
ROUND_OFF = 1e-5
#: At most this many products are added up at a time; what comes after that is summed without noticeable rounding.
TERMS = 1024
#: A clipped row is also scaled down to this many times the bound before its products and its centre cancel.
CANCELLATION = 32.0
#: Error of a clipped sum, relative to the lengths of everything that was added: one rounding per addition, a few more
#: for the products and for joining the pieces.
SUM_ERROR = 1.01 * (TERMS + 16) * 2.0**-53


def round_off(terms: int) -> float:
    """Relative error that a float64 norm of so many terms stays below, with room to spare."""
    return (terms + 64) * 2.0**-51


@dataclass(frozen=True, eq=False)
class FactoredRows:
    """m public rows ``row_i = scale_i * (block_1 | block_2 | ...)_i - member_i @ centres``.

    Parameters
    ----------
    blocks : tuple of ColumnBlock
        At least one, all with m rows.
    scale : ndarray of shape (m,), optional
        One factor per row; 1 if absent.
    member : ndarray of shape (m, K), optional
        How much of each centre is taken off row i.
    centres : ndarray of shape (K, width), optional
        Public vectors.
    """

    blocks: tuple[ColumnBlock, ...]
    scale: Floats | None = None
    member: Floats | None = None
    centres: Floats | None = None

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(block.width for block in self.blocks)

    @quietly
    def norms(self) -> Floats:
        """Euclidean norm of each row, shape (m,); not finite for every row that is not finite."""
        total = self.blocks[0].squared_norms()
        for block in self.blocks[1:]:
            total = total + block.squared_norms()
        total = total if self.scale is None else total * np.square(self.scale)
        return np.sqrt(total if self.member is None else self._centred_squares(total))

    def _centred_squares(self, raw: Floats) -> Floats:
        """|g - c|^2 = |g|^2 - 2 <g, c> + |c|^2, rounded up."""
        assert self.member is not None  # noqa: S101 - for the type checker; the caller has checked it
        assert self.centres is not None  # noqa: S101
        pieces = np.split(self.centres, np.cumsum([block.width for block in self.blocks])[:-1], axis=1)
        inner = np.stack([block.inner(piece) for block, piece in zip(self.blocks, pieces, strict=True)]).sum(0)
        cross = np.vecdot(inner, self.member)
        cross = cross if self.scale is None else cross * self.scale
        own = np.vecdot(self.member @ (self.centres @ self.centres.T), self.member)
        squares: Floats = np.maximum(raw - 2 * cross + own, 0) + ROUND_OFF * (raw + own)
        return squares

    @quietly
    def weighted_sum(self, c: Floats) -> Floats:
        """Sum of ``c_i * row_i``, shape (width,)."""
        scaled = c if self.scale is None else c * self.scale
        total = np.concatenate([piece for block in self.blocks for piece in block.sums(scaled)])
        if self.member is None or self.centres is None:
            return total
        centred: Floats = total - (c @ self.member) @ self.centres
        return centred

    @quietly
    def norm_bounds(self) -> Floats:
        r"""Length by which each row of float64 factors is clipped, shape (m,).

        Guarantee
        ---------
        * ``(1 + round_off(width)) * bound_i`` is not below the true norm of row i, whatever was rounded on the way.
        * With ``c_i <= w_i B / bound_i``, :meth:`weighted_sum` over :meth:`pieces`, joined by :class:`LongSum`, is
          within ``SUM_ERROR * CANCELLATION * B * sum_i w_i`` of the exact sum.
        """
        squares = self.blocks[0].squared_sizes()
        for block in self.blocks[1:]:
            squares = squares + block.squared_sizes()
        sizes = np.sqrt(squares) if self.scale is None else np.sqrt(squares) * np.abs(self.scale)
        positions, n_centres = max(block.positions for block in self.blocks), 0
        if self.member is not None and self.centres is not None:
            sizes = sizes + np.abs(self.member) @ np.sqrt(np.vecdot(self.centres, self.centres))
            n_centres = len(self.centres)
        elif positions == 1:
            return sizes  # nothing cancels: the size is the norm
        slack = round_off(self.width + positions**2 + n_centres)
        longer = max(1.0, positions / TERMS) + n_centres / TERMS
        norms = np.sqrt(np.square(self.norms()) + slack * np.square(sizes))
        return np.maximum(norms, sizes * (longer / CANCELLATION))

    def pieces(self) -> Iterator[tuple[slice, FactoredRows]]:
        """Consecutive rows, as many at a time as add up ``TERMS`` products in each entry of their sum."""
        step = max(1, TERMS // max(block.positions for block in self.blocks))
        if len(self) <= step:
            yield slice(None), self
            return
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            scale, member = (None if part is None else part[rows] for part in (self.scale, self.member))
            yield rows, FactoredRows(tuple(block.part(rows) for block in self.blocks), scale, member, self.centres)

    def double(self) -> FactoredRows:
        """The same rows with every factor in float64: products of two single-precision numbers are then exact."""
        scale, member, centres = (
            None if part is None else part.astype(np.float64, copy=False)
            for part in (self.scale, self.member, self.centres)
        )
        return FactoredRows(tuple(block.double() for block in self.blocks), scale, member, centres)

    def scaled(self, scale: Floats) -> FactoredRows:
        """Multiply row i by ``scale_i``, centres included; the factors are shared, not copied."""
        member = None if self.member is None else self.member * scale[:, None]
        return replace(self, scale=scale if self.scale is None else self.scale * scale, member=member)

    def centred(self, member: Floats, centres: Floats) -> FactoredRows:
        """Take ``member_i @ centres`` off row i."""
        return replace(self, member=member, centres=centres)

    def zeroed(self, mask: Mask) -> FactoredRows:
        """Replace the rows where ``mask`` is true by exact zeros, whatever they held."""
        scale = None if self.scale is None else zero_rows(self.scale, mask)
        member = None if self.member is None else zero_rows(self.member, mask)
        return FactoredRows(tuple(block.zeroed(mask) for block in self.blocks), scale, member, self.centres)


class LongSum:
    """Sum of any number of float64 vectors, as exact as if it were taken in twice the precision and rounded once.

    What each addition rounds away is kept and added at the end (Ogita, Rump and Oishi 2005, Sum2).
    """

    def __init__(self, width: int) -> None:
        self._total = np.zeros(width)
        self._lost = np.zeros(width)

    def add(self, part: Floats) -> None:
        """One more vector."""
        total = self._total + part
        added = total - self._total
        self._lost += (self._total - (total - added)) + (part - added)
        self._total = total

    def value(self) -> Array:
        """The sum so far."""
        return self._total + self._lost


@runtime_checkable
class DenseSource(Protocol):
    """Public rows that come a few at a time."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    def dense(self) -> Iterator[tuple[Index, Floats]]:
        """Yield ``(positions, rows)`` for all rows in order."""


class FactoredSource(Protocol):
    """Public rows in factored form that come a few at a time."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    def chunks(self) -> Iterator[tuple[Index, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""


def index_chunks(n: int, chunk_rows: int) -> Iterator[Index]:
    """Split 0..n-1 into consecutive pieces of at most ``chunk_rows``."""
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}; leave it at its default.")
    for start in range(0, n, chunk_rows):
        yield np.arange(start, min(start + chunk_rows, n))


def placed_chunks(first: int, count: int, size: int) -> Iterator[tuple[slice, Index]]:
    """Cut ``count`` rows, of which the first has position ``first``, into chunks at multiples of ``size``.

    Each chunk is ``(taken, rows)``: ``rows`` (size,) says which row is at each place of the chunk, and ``taken`` which
    places are the chunk's own; the others repeat a row. A row's place follows from its position alone, so a matrix
    product gives it the same bits whichever process holds the rows beside it.
    """
    at = 0
    while at < count:
        start = (first + at) % size
        taken = min(size - start, count - at)
        rows = np.full(size, at)
        rows[start : start + taken] = np.arange(at, at + taken)
        yield slice(start, start + taken), rows
        at += taken


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """A public matrix as a source of rows.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    chunk_rows : int, default 8192
        Rows per chunk: bounds memory, never changes the answer beyond round-off.
    """

    values: Floats
    chunk_rows: int = 8192

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def chunks(self) -> Iterator[tuple[Index, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self), self.chunk_rows):
            yield part, FactoredRows((DenseBlock(self.values[part[0] : part[-1] + 1]),))

    def dense(self) -> Iterator[tuple[Index, Floats]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self.values), self.chunk_rows):
            yield part, self.values[part[0] : part[-1] + 1]


__all__ = [
    "CANCELLATION",
    "ROUND_OFF",
    "SUM_ERROR",
    "TERMS",
    "ArrayRows",
    "ColumnBlock",
    "DenseBlock",
    "DenseSource",
    "FactoredRows",
    "FactoredSource",
    "LongSum",
    "OuterBlock",
    "ScatterBlock",
    "index_chunks",
    "placed_chunks",
    "round_off",
]
