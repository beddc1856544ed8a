"""Consecutive columns of public rows in factored form: as they are, outer products, looked-up vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


def zero_rows(values: Tensor, mask: Tensor) -> Tensor:
    """Exact zeros in the rows where ``mask`` is true, whatever they held."""
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

    @property
    def positions(self) -> int:
        """How many products add up to one entry of a row."""

    def squared_norms(self) -> Tensor:
        """Squared Euclidean norm of each row, shape (m,)."""

    def squared_sizes(self) -> Tensor:
        """Squared norm that each row would have if none of its products cancelled, shape (m,); at least its own."""

    def sums(self, c: Tensor) -> list[Tensor]:
        """Weighted sum of the rows as consecutive flat pieces."""

    def weighted_sum(self, c: Tensor) -> Tensor:
        """Weighted sum of the rows, shape (width,)."""

    def inner(self, vectors: Tensor) -> Tensor:
        """Inner products of each row with the rows of ``vectors`` (K, width), shape (m, K)."""

    def zeroed(self, mask: Tensor) -> Block:
        """Replace the rows where ``mask`` is true by exact zeros."""

    def part(self, rows: slice) -> Block:
        """Some consecutive rows."""

    def double(self) -> Block:
        """The same rows with factors in float64."""


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

    @property
    def positions(self) -> int:
        """One."""
        return 1

    def squared_norms(self) -> Tensor:
        """Squared norm of each row, shape (m,)."""
        return _squares(self.values)

    def squared_sizes(self) -> Tensor:
        """Squared norm of each row: nothing cancels."""
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
        return DenseBlock(zero_rows(self.values, mask))

    def part(self, rows: slice) -> DenseBlock:
        """Some consecutive rows."""
        return DenseBlock(self.values[rows])

    def double(self) -> DenseBlock:
        """The same rows in float64."""
        return DenseBlock(self.values.double())


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

    @property
    def positions(self) -> int:
        """L."""
        return 1 if self.left.ndim == 2 else self.left.shape[1]

    def squared_sizes(self) -> Tensor:
        """Square of the sum over positions of ``|left_l| |(right_l, 1)|``."""
        # A square that underflows must not hide a factor which the other one makes large again.
        tiny = torch.finfo(self.left.dtype).tiny
        left = torch.linalg.vecdot(self.left, self.left) + tiny
        right = torch.linalg.vecdot(self.right, self.right) + (1 if self.bias else tiny)
        squares: Tensor = left * right
        return squares if squares.ndim == 1 else squares.sqrt().sum(1).square()

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
        return OuterBlock(zero_rows(self.left, mask), zero_rows(self.right, mask), self.bias)

    def part(self, rows: slice) -> OuterBlock:
        """Some consecutive rows."""
        return OuterBlock(self.left[rows], self.right[rows], self.bias)

    def double(self) -> OuterBlock:
        """The same rows with factors in float64."""
        return OuterBlock(self.left.double(), self.right.double(), self.bias)


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

    @property
    def positions(self) -> int:
        """L."""
        return self.index.shape[1]

    def squared_sizes(self) -> Tensor:
        """Square of the sum, over looked-up vectors, of the norms of their gradients."""
        squares: Tensor = torch.linalg.vecdot(self.values, self.values)
        return squares.sqrt().sum(1).square()

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
        return replace(self, values=zero_rows(self.values, mask))

    def part(self, rows: slice) -> ScatterBlock:
        """Some consecutive rows."""
        return replace(self, index=self.index[rows], values=self.values[rows])

    def double(self) -> ScatterBlock:
        """The same rows in float64."""
        return replace(self, values=self.values.double())
