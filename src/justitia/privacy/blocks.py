"""Consecutive columns of public rows in factored form: as they are, outer products, looked-up vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.arrays import Floats, Mask, sum_by


def zero_rows(values: Floats, mask: Mask) -> Floats:
    """Exact zeros in the rows where ``mask`` is true, whatever they held."""
    return np.where(_as_column(mask, values), values.dtype.type(0), values)


def _as_column(c: NDArray[Any], values: Floats) -> NDArray[Any]:
    return c.reshape(-1, *[1] * (values.ndim - 1))


def _squares(values: Floats) -> Floats:
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    squares: Floats = np.vecdot(flat, flat)
    return squares


class ColumnBlock(Protocol):
    """Some consecutive columns of m rows."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of columns."""

    @property
    def positions(self) -> int:
        """How many products add up to one entry of a row."""

    def squared_norms(self) -> Floats:
        """Squared Euclidean norm of each row, shape (m,)."""

    def squared_sizes(self) -> Floats:
        """Squared norm that each row would have if none of its products cancelled, shape (m,); at least its own."""

    def sums(self, c: Floats) -> list[Floats]:
        """Weighted sum of the rows as consecutive flat pieces."""

    def weighted_sum(self, c: Floats) -> Floats:
        """Weighted sum of the rows, shape (width,)."""

    def inner(self, vectors: Floats) -> Floats:
        """Inner products of each row with the rows of ``vectors`` (K, width), shape (m, K)."""

    def zeroed(self, mask: Mask) -> ColumnBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""

    def part(self, rows: slice) -> ColumnBlock:
        """Some consecutive rows."""

    def double(self) -> ColumnBlock:
        """The same rows with factors in float64."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """Rows as they are.

    Parameters
    ----------
    values : ndarray of shape (m, d)
    """

    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def positions(self) -> int:
        """One."""
        return 1

    def squared_norms(self) -> Floats:
        """Squared norm of each row, shape (m,)."""
        return _squares(self.values)

    def squared_sizes(self) -> Floats:
        """Squared norm of each row: nothing cancels."""
        return _squares(self.values)

    def sums(self, c: Floats) -> list[Floats]:
        """Return the weighted sum as one piece."""
        return [c @ self.values]

    def weighted_sum(self, c: Floats) -> Floats:
        """Sum of ``c_i * row_i``, shape (width,)."""
        total: Floats = c @ self.values
        return total

    def inner(self, vectors: Floats) -> Floats:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        products: Floats = self.values @ vectors.T
        return products

    def zeroed(self, mask: Mask) -> DenseBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        return DenseBlock(zero_rows(self.values, mask))

    def part(self, rows: slice) -> DenseBlock:
        """Some consecutive rows."""
        return DenseBlock(self.values[rows])

    def double(self) -> DenseBlock:
        """The same rows in float64."""
        return DenseBlock(self.values.astype(np.float64, copy=False))


@dataclass(frozen=True, eq=False)
class OuterBlock:
    r"""Gradients of an affine map: ``sum_l left_l right_l^T``, then ``sum_l left_l`` for the bias.

    Parameters
    ----------
    left : ndarray of shape (m, out) or (m, L, out)
        Back-propagated gradients of the map's outputs.
    right : ndarray of shape (m, in) or (m, L, in)
        Inputs of the map. L positions share one weight: sequences, unfolded convolutions.
    bias : bool
        Whether the columns of the bias follow those of the weight.
    """

    left: Floats
    right: Floats
    bias: bool

    def __len__(self) -> int:
        return len(self.left)

    @property
    def width(self) -> int:
        """Number of columns, ``out * in`` and ``out`` more with a bias."""
        return int(self.left.shape[-1] * (self.right.shape[-1] + self.bias))

    @property
    def positions(self) -> int:
        """L."""
        return 1 if self.left.ndim == 2 else int(self.left.shape[1])

    def squared_sizes(self) -> Floats:
        """Square of the sum over positions of ``|left_l| |(right_l, 1)|``."""
        # A square that underflows must not hide a factor which the other one makes large again.
        tiny = np.finfo(self.left.dtype).tiny
        left = np.vecdot(self.left, self.left) + tiny
        right = np.vecdot(self.right, self.right) + (1 if self.bias else tiny)
        squares: Floats = left * right
        return squares if squares.ndim == 1 else np.square(np.sqrt(squares).sum(1))

    def squared_norms(self) -> Floats:
        """Squared norm of each row, shape (m,)."""
        if self.left.ndim == 2:
            right = _squares(self.right)
            return _squares(self.left) * (right + 1 if self.bias else right)
        positions, n_out, n_in = self.left.shape[1], self.left.shape[2], self.right.shape[2]
        gram_is_cheaper = positions * (n_out + n_in) <= n_out * n_in
        return self._gram_norms() if gram_is_cheaper else self._materialised_norms()

    def _gram_norms(self) -> Floats:
        # Positions may cancel. In double precision the cancellation cannot hide a norm that single
        # precision would have shown, so a row is never clipped too little.
        left, right = self.left.astype(np.float64), self.right.astype(np.float64)
        products = right @ right.mT
        gram = (left @ left.mT) * (products + 1 if self.bias else products)
        squares: Floats = np.maximum(gram.sum((1, 2)), 0).astype(self.left.dtype)
        return squares

    def _materialised_norms(self) -> Floats:
        weight = _squares(self.left.mT @ self.right)
        return weight + _squares(self.left.sum(1)) if self.bias else weight

    def sums(self, c: Floats) -> list[Floats]:
        """Weighted sums of the weight's columns and, if there are any, of the bias's."""
        left, right = self.left * _as_column(c, self.left), self.right
        left, right = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
        weight = (left.T @ right).reshape(-1)
        return [weight, left.sum(0)] if self.bias else [weight]

    def weighted_sum(self, c: Floats) -> Floats:
        """Sum of ``c_i * row_i``, shape (width,)."""
        return np.concatenate(self.sums(c))

    def inner(self, vectors: Floats) -> Floats:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        n_out, n_in = self.left.shape[-1], self.right.shape[-1]
        columns = []
        for vector in vectors:
            weight, bias = vector[: n_out * n_in].reshape(n_out, n_in), vector[n_out * n_in :]
            product: Floats = np.vecdot(self.left @ weight, self.right)
            product = product + self.left @ bias if self.bias else product
            columns.append(product if product.ndim == 1 else product.sum(1))
        return np.stack(columns, 1)

    def zeroed(self, mask: Mask) -> OuterBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        # Both factors: 0 * nan would bring the row back.
        return OuterBlock(zero_rows(self.left, mask), zero_rows(self.right, mask), self.bias)

    def part(self, rows: slice) -> OuterBlock:
        """Some consecutive rows."""
        return OuterBlock(self.left[rows], self.right[rows], self.bias)

    def double(self) -> OuterBlock:
        """The same rows with factors in float64."""
        left, right = (part.astype(np.float64, copy=False) for part in (self.left, self.right))
        return OuterBlock(left, right, self.bias)


@dataclass(frozen=True, eq=False)
class ScatterBlock:
    """Gradients of a table of vectors of which each row looks up L; an entry looked up twice adds up.

    Parameters
    ----------
    index : ndarray of shape (m, L)
        Looked-up entries.
    values : ndarray of shape (m, L, e)
        Gradient of each looked-up vector.
    rows : int
        Number of entries of the table.
    """

    index: NDArray[np.integer[Any]]
    values: Floats
    rows: int

    def __len__(self) -> int:
        return len(self.index)

    @property
    def width(self) -> int:
        """Number of columns, ``rows * e``."""
        return int(self.rows * self.values.shape[2])

    @property
    def positions(self) -> int:
        """L."""
        return int(self.index.shape[1])

    def squared_sizes(self) -> Floats:
        """Square of the sum, over looked-up vectors, of the norms of their gradients."""
        squares: Floats = np.square(np.sqrt(np.vecdot(self.values, self.values)).sum(1))
        return squares

    def squared_norms(self) -> Floats:
        """Squared norm of each row, shape (m,)."""
        if self.index.shape[1] == 1:
            return _squares(self.values)
        return self._gram_norms() if self.index.shape[1] <= self.rows else self._materialised_norms()

    def _gram_norms(self) -> Floats:
        # Double precision for the same reason as in OuterBlock. Where, not product: 0 * nan is nan, and
        # a row's norm must still show its nan, which the diagonal does.
        values = self.values.astype(np.float64)
        same = self.index[:, None, :] == self.index[:, :, None]
        gram = np.where(same, values @ values.mT, 0.0)
        squares: Floats = np.maximum(gram.sum((1, 2)), 0).astype(self.values.dtype)
        return squares

    def _materialised_norms(self) -> Floats:
        m, _, e = self.values.shape
        places = np.arange(m)[:, None] * self.rows + self.index
        return _squares(sum_by(places.ravel(), self.values.reshape(-1, e), m * self.rows).reshape(m, self.width))

    def sums(self, c: Floats) -> list[Floats]:
        """Return the weighted sum as one piece."""
        return [self.weighted_sum(c)]

    def weighted_sum(self, c: Floats) -> Floats:
        """Sum of ``c_i * row_i``, shape (width,)."""
        weighted = self.values * _as_column(c, self.values)
        return sum_by(self.index.ravel(), weighted.reshape(-1, weighted.shape[2]), self.rows).reshape(-1)

    def inner(self, vectors: Floats) -> Floats:
        """Inner products of each row with the rows of ``vectors``, shape (m, K)."""
        tables = vectors.reshape(len(vectors), self.rows, -1)
        return np.stack([(table[self.index] * self.values).sum((1, 2)) for table in tables], 1)

    def zeroed(self, mask: Mask) -> ScatterBlock:
        """Replace the rows where ``mask`` is true by exact zeros."""
        return replace(self, values=zero_rows(self.values, mask))

    def part(self, rows: slice) -> ScatterBlock:
        """Some consecutive rows."""
        return replace(self, index=self.index[rows], values=self.values[rows])

    def double(self) -> ScatterBlock:
        """The same rows in float64."""
        return replace(self, values=self.values.astype(np.float64, copy=False))
