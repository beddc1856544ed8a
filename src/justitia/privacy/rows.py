r"""Public rows v_i in factored form: what the boundary clips and sums without ever building them.

Each row is a plain piece of data. Norms and weighted sums of many rows come from the factors,

.. math:: \|g a^\top\| = \|g\| \|a\|, \qquad \sum_i c_i\, g_i a_i^\top = (c \odot G)^\top A,

so the gradient of every example costs about as much as the ordinary gradient of their sum. Rows may be centred by
public vectors (:meth:`FactoredRows.centred`), which shortens them, and with them the noise a clipped sum needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

#: Relative round-off that centring may hide in a squared norm; it is added, so that a row is never clipped too little.
ROUND_OFF = 1e-5


def _zero_rows(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(mask.view(-1, *[1] * (values.ndim - 1)), 0)


def _per_row(c: Tensor, values: Tensor) -> Tensor:
    return values * (c.unsqueeze(1) if values.ndim == 2 else c.view(-1, *[1] * (values.ndim - 1)))


def _squares(values: Tensor) -> Tensor:
    flat = values if values.ndim == 2 else values.flatten(1)
    squares: Tensor = torch.linalg.vecdot(flat, flat)
    return squares


class Block(Protocol):
    """Some consecutive columns of m rows."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    def squared_norms(self) -> Tensor:
        """Squared Euclidean norm of each row, shape (m,)."""

    def sums(self, c: Tensor) -> list[Tensor]:
        """Weighted sum of the rows as consecutive flat pieces."""

    def weighted_sum(self, c: Tensor) -> Tensor:
        """Weighted sum of the rows, shape (width,)."""

    def inner(self, vectors: Tensor) -> Tensor:
        """Inner products of each row with the rows of ``vectors`` (K, width), shape (m, K)."""

    def zeroed(self, mask: Tensor) -> Block:
        """Replace the rows where ``mask`` is true by exact zeros."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """Rows as they are.

    Parameters
    ----------
    values : Tensor of shape (m, d)
    """

    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def squared_norms(self) -> Tensor:
        """Squared norm of each row, shape (m,)."""
        return _squares(self.values)

    def sums(self, c: Tensor) -> list[Tensor]:
        """Return the weighted sum as one piece."""
        return [c @ self.values]

    def weighted_sum(self, c: Tensor) -> Tensor:
        """Sum of ``c_i * row_i``, shape (width,)."""
        return c @ self.values

    def inner(self, vectors: Tensor) -> Tensor:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        return self.values @ vectors.T

    def zeroed(self, mask: Tensor) -> DenseBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        return DenseBlock(_zero_rows(self.values, mask))


@dataclass(frozen=True, eq=False)
class OuterBlock:
    r"""Gradients of an affine map: ``sum_l left_l right_l^T``, then ``sum_l left_l`` for the bias.

    Parameters
    ----------
    left : Tensor of shape (m, out) or (m, L, out)
        Back-propagated gradients of the map's outputs.
    right : Tensor of shape (m, in) or (m, L, in)
        Inputs of the map. L positions share one weight: sequences, unfolded convolutions.
    bias : bool
        Whether the columns of the bias follow those of the weight.
    """

    left: Tensor
    right: Tensor
    bias: bool

    def __len__(self) -> int:
        return len(self.left)

    @property
    def width(self) -> int:
        """Number of columns, ``out * in`` and ``out`` more with a bias."""
        return self.left.shape[-1] * (self.right.shape[-1] + self.bias)

    def squared_norms(self) -> Tensor:
        """Squared norm of each row, shape (m,)."""
        if self.left.ndim == 2:
            right = _squares(self.right)
            return _squares(self.left) * (right + 1 if self.bias else right)
        positions, n_out, n_in = self.left.shape[1], self.left.shape[2], self.right.shape[2]
        gram_is_cheaper = positions * (n_out + n_in) <= n_out * n_in
        return self._gram_norms() if gram_is_cheaper else self._materialised_norms()

    def _gram_norms(self) -> Tensor:
        # Positions may cancel. In double precision the cancellation cannot hide a norm that single
        # precision would have shown, so a row is never clipped too little.
        left, right = self.left.double(), self.right.double()
        products = right @ right.mT
        gram = (left @ left.mT) * (products + 1 if self.bias else products)
        return gram.sum((1, 2)).clamp(min=0).to(self.left.dtype)

    def _materialised_norms(self) -> Tensor:
        weight = _squares(self.left.mT @ self.right)
        return weight + _squares(self.left.sum(1)) if self.bias else weight

    def sums(self, c: Tensor) -> list[Tensor]:
        """Weighted sums of the weight's columns and, if there are any, of the bias's."""
        left, right = _per_row(c, self.left), self.right
        if left.ndim == 3:
            left, right = left.flatten(0, 1), right.flatten(0, 1)
        weight = (left.T @ right).view(-1)
        return [weight, left.sum(0)] if self.bias else [weight]

    def weighted_sum(self, c: Tensor) -> Tensor:
        """Sum of ``c_i * row_i``, shape (width,)."""
        return torch.cat(self.sums(c))

    def inner(self, vectors: Tensor) -> Tensor:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        n_out, n_in = self.left.shape[-1], self.right.shape[-1]
        columns = []
        for vector in vectors:
            weight, bias = vector[: n_out * n_in].view(n_out, n_in), vector[n_out * n_in :]
            product = torch.linalg.vecdot(self.left @ weight, self.right)
            product = product + self.left @ bias if self.bias else product
            columns.append(product if product.ndim == 1 else product.sum(1))
        return torch.stack(columns, 1)

    def zeroed(self, mask: Tensor) -> OuterBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        # Both factors: 0 * nan would bring the row back.
        return OuterBlock(_zero_rows(self.left, mask), _zero_rows(self.right, mask), self.bias)


@dataclass(frozen=True, eq=False)
class ScatterBlock:
    """Gradients of a table of vectors of which each row looks up L; an entry looked up twice adds up.

    Parameters
    ----------
    index : Tensor of shape (m, L)
        Looked-up entries.
    values : Tensor of shape (m, L, e)
        Gradient of each looked-up vector.
    rows : int
        Number of entries of the table.
    """

    index: Tensor
    values: Tensor
    rows: int

    def __len__(self) -> int:
        return len(self.index)

    @property
    def width(self) -> int:
        """Number of columns, ``rows * e``."""
        return self.rows * self.values.shape[2]

    def squared_norms(self) -> Tensor:
        """Squared norm of each row, shape (m,)."""
        if self.index.shape[1] == 1:
            return _squares(self.values)
        return self._gram_norms() if self.index.shape[1] <= self.rows else self._materialised_norms()

    def _gram_norms(self) -> Tensor:
        # Double precision for the same reason as in OuterBlock. Where, not product: 0 * nan is nan, and
        # a row's norm must still show its nan, which the diagonal does.
        values = self.values.double()
        same = self.index.unsqueeze(1) == self.index.unsqueeze(2)
        gram = torch.where(same, values @ values.mT, 0)
        return gram.sum((1, 2)).clamp(min=0).to(self.values.dtype)

    def _materialised_norms(self) -> Tensor:
        m, _, e = self.values.shape
        table = self.values.new_zeros(m, self.rows, e)
        return _squares(table.scatter_add_(1, self.index.unsqueeze(2).expand_as(self.values), self.values))

    def sums(self, c: Tensor) -> list[Tensor]:
        """Return the weighted sum as one piece."""
        return [self.weighted_sum(c)]

    def weighted_sum(self, c: Tensor) -> Tensor:
        """Sum of ``c_i * row_i``, shape (width,)."""
        table = self.values.new_zeros(self.rows, self.values.shape[2])
        return table.index_add_(0, self.index.flatten(), _per_row(c, self.values).flatten(0, 1)).view(-1)

    def inner(self, vectors: Tensor) -> Tensor:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        tables = vectors.view(len(vectors), self.rows, -1)
        return torch.stack([(table[self.index] * self.values).sum((1, 2)) for table in tables], 1)

    def zeroed(self, mask: Tensor) -> ScatterBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        return replace(self, values=_zero_rows(self.values, mask))


@dataclass(frozen=True, eq=False)
class FactoredRows:
    """m public rows ``row_i = scale_i * (block_1 | block_2 | ...)_i - member_i @ centres``.

    Parameters
    ----------
    blocks : tuple of Block
        At least one, all with m rows.
    scale : Tensor of shape (m,), optional
        One factor per row; 1 if absent.
    member : Tensor of shape (m, K), optional
        How much of each centre is taken off row i.
    centres : Tensor of shape (K, width), optional
        Public vectors.
    """

    blocks: tuple[Block, ...]
    scale: Tensor | None = None
    member: Tensor | None = None
    centres: Tensor | None = None

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(block.width for block in self.blocks)

    @torch.no_grad()
    def norms(self) -> Tensor:
        """Euclidean norm of each row, shape (m,); not finite for every row that is not finite."""
        total = self.blocks[0].squared_norms()
        for block in self.blocks[1:]:
            total = total + block.squared_norms()
        total = total if self.scale is None else total * self.scale.square()
        return (total if self.member is None else self._centred_squares(total)).sqrt()

    def _centred_squares(self, raw: Tensor) -> Tensor:
        """|g - c|^2 = |g|^2 - 2 <g, c> + |c|^2, rounded up."""
        assert self.member is not None  # noqa: S101 - tells the type checker what the caller has seen
        assert self.centres is not None  # noqa: S101
        widths = [block.width for block in self.blocks]
        pieces = torch.split(self.centres, widths, dim=1)
        inner = torch.stack([block.inner(piece) for block, piece in zip(self.blocks, pieces, strict=True)]).sum(0)
        cross = torch.linalg.vecdot(inner, self.member)
        cross = cross if self.scale is None else cross * self.scale
        own = torch.linalg.vecdot(self.member @ (self.centres @ self.centres.T), self.member)
        squares: Tensor = (raw - 2 * cross + own).clamp(min=0) + ROUND_OFF * (raw + own)
        return squares

    @torch.no_grad()
    def weighted_sum(self, c: Tensor) -> Tensor:
        """Sum of ``c_i * row_i``, shape (width,)."""
        scaled = c if self.scale is None else c * self.scale
        total = torch.cat([piece for block in self.blocks for piece in block.sums(scaled)])
        if self.member is None or self.centres is None:
            return total
        return total - (c @ self.member) @ self.centres

    def scaled(self, scale: Tensor) -> FactoredRows:
        """Multiply row i by ``scale_i``, centres included; the factors are shared, not copied."""
        member = None if self.member is None else self.member * scale.unsqueeze(1)
        return replace(self, scale=scale if self.scale is None else self.scale * scale, member=member)

    def centred(self, member: Tensor, centres: Tensor) -> FactoredRows:
        """Take ``member_i @ centres`` off row i."""
        return replace(self, member=member, centres=centres)

    def zeroed(self, mask: Tensor) -> FactoredRows:
        """Replace the rows where ``mask`` is true by exact zeros, whatever they held."""
        scale = None if self.scale is None else self.scale.masked_fill(mask, 0)
        member = None if self.member is None else _zero_rows(self.member, mask)
        return FactoredRows(tuple(block.zeroed(mask) for block in self.blocks), scale, member, self.centres)


class DenseSource(Protocol):
    """Public rows asked for a few at a time, as they are."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    def dense(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(positions, rows)`` for all rows in order."""


class RowSource(Protocol):
    """Public rows asked for a few at a time, in factored form."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    def chunks(self, index: Tensor | None = None) -> Iterator[tuple[Tensor, FactoredRows]]:
        """Yield ``(positions, rows)`` for ``index``, or for all rows in order."""


def index_chunks(n: int, chunk_rows: int, index: Tensor | None = None) -> Iterator[Tensor]:
    """Split ``index`` (all of 0..n-1 if absent) into consecutive pieces of at most ``chunk_rows``."""
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}; leave it at its default.")
    total = n if index is None else len(index)
    for start in range(0, total, chunk_rows):
        stop = min(start + chunk_rows, total)
        yield torch.arange(start, stop) if index is None else index[start:stop]


@dataclass(frozen=True, eq=False)
class TensorRows:
    """A public matrix as a source of rows.

    Parameters
    ----------
    values : Tensor of shape (n, d)
    chunk_rows : int, default 8192
        Rows per chunk: bounds memory, never changes the answer beyond round-off.
    """

    values: Tensor
    chunk_rows: int = 8192

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    def chunks(self, index: Tensor | None = None) -> Iterator[tuple[Tensor, FactoredRows]]:
        """Yield ``(positions, rows)`` for ``index``, or for all rows in order."""
        for part in index_chunks(len(self), self.chunk_rows, index):
            yield part, FactoredRows((DenseBlock(self.values[part]),))

    def dense(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self), self.chunk_rows):
            yield part, self.values[part]
