r"""Soft group memberships of public rows that agree with noised sums: a maximum-entropy problem.

Given public rows :math:`\phi_i` and (noised) sums :math:`S_a` of them over each category a, the memberships

.. math:: q_i(a) = \frac{\exp(W_a \cdot \phi_i)}{\sum_b \exp(W_b \cdot \phi_i)}

of largest entropy whose sums :math:`\sum_i q_i(a) \phi_i` are :math:`S_a` up to noise are those whose W minimises

.. math:: F(W) = \sum_i \log \sum_a \exp(W_a \cdot \phi_i) - \langle W, S \rangle + \tfrac12 \sum_j \rho_j |W_j|^2,

a smooth convex function. Nothing here knows the attribute: S is all that is known about it.

`ridges` chooses the ridge penalty of each column: with d columns and noise alone the largest of d standardised sums is
about :math:`\sqrt{2 \log d}` (the universal threshold of Donoho and Johnstone, 1994). Columns whose noisy sums cannot
be told from noise are shrunk more, because the noise of a hundred of them would add up and decide about rows near the
line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import softmax

from justitia.postprocessing.features import ALIGNED, PublicRows, aligned_product
from justitia.rows.source import Block, IntArray

Array = NDArray[Any]
#: Largest derivative of F in coordinates in which its curvature is about 1: F is then right to about 1e-3 nats.
PRECISION = 3e-2
MAX_ITERATIONS = 1000
#: Rows of one product.
CHUNK = 16_384
#: Problems with no more numbers than this are solved in double precision.
SMALL = 4_000_000
#: Ridge that keeps a problem without noise well-posed, per row.
RIDGE_PER_ROW = 1e-6
#: Ridge without noise: without one memberships are too sure, and their correction is hard to learn.
LEAST_RIDGE = 1.0
#: Ridge of a column that is like noise, for each of them, as a share of the variance of the noise: the more there are,
#: the less each can matter. Inner splits of four data sets, and wide data: ``docs/design_choices.md``.
IDLE = 0.02
#: Rows that the memberships are fitted on, a public sample where there are more.
FIT_ROWS = 200_000
#: How often the sample's solution is then corrected by a pass over all rows.
CORRECTIONS = 1


def memberships(weights: Array, rows: Array) -> Array:
    """(n, C): memberships of each row."""
    q: Array = softmax(rows @ weights.T.astype(rows.dtype), axis=1)
    return q


def expected_sums(weights: Array, rows: Array) -> Array:
    """(C, d): sums of rows over each category under the memberships."""
    return (memberships(weights, rows).T @ rows).astype(np.float64)


def fit_memberships(rows: Array, sums: Array, *, ridge: Array, start: Array | None = None) -> Array:
    """(C, d): the W that minimises F, by L-BFGS in whitened coordinates.

    Parameters
    ----------
    rows : ndarray (n, d)
        Public rows.
    sums : ndarray (C, d)
        Noised sums over each category, "not given" among them; they add up to the total of the rows.
    ridge : ndarray (d,)
        The rho of each column; where it is infinite, the weights are 0.
    start : ndarray (C, d), optional
        Where to start; zero means equal memberships.
    """
    used = np.isfinite(ridge)
    if not used.all():
        weights = np.zeros(sums.shape)
        first = None if start is None else start[:, used]
        weights[:, used] = fit_memberships(rows[:, used], sums[:, used], ridge=ridge[used], start=first)
        return weights
    ridge = ridge.astype(np.float64) + RIDGE_PER_ROW * len(rows)
    rows = rows.astype(np.float64) if rows.size <= SMALL else rows
    factor = _whitening(rows, ridge)
    inverse: Array = solve_triangular(factor, np.eye(len(factor)), lower=True)
    narrow = inverse.astype(rows.dtype)
    white = [narrow @ rows[first : first + CHUNK].T for first in range(0, len(rows), CHUNK)]
    objective = _Objective(white, inverse, sums.astype(np.float64), ridge)
    V = np.zeros(sums.shape) if start is None else start.astype(np.float64) @ factor
    options: Any = {"maxiter": MAX_ITERATIONS, "gtol": PRECISION, "ftol": 0.0, "maxcor": 20}
    found: Any = minimize(objective, V.ravel(), jac=True, method="L-BFGS-B", options=options)
    solved: Array = found.x.reshape(V.shape) @ inverse
    return solved


def _whitening(rows: Array, ridge: Array) -> Array:
    """Cholesky factor of the curvature of F where memberships are undecided between two categories."""
    return np.linalg.cholesky(0.25 * (rows.T @ rows).astype(np.float64) + np.diag(ridge))


class _Objective:
    """F and its gradient as functions of V = W L, where L L^T is the curvature.

    Whitened rows come in parts of (d, m): both products are fast that way round, the second finds its part in the
    processor's cache, and single precision does not add up over all rows.
    """

    def __init__(self, white: list[Array], inverse: Array, sums: Array, ridge: Array) -> None:
        self.white, self.inverse, self.ridge = white, inverse, ridge
        self.sums = sums @ inverse.T

    def __call__(self, flat: Array) -> tuple[float, Array]:
        V = flat.reshape(self.sums.shape)
        W = V @ self.inverse
        value = 0.5 * float((self.ridge * W**2).sum()) - float((V * self.sums).sum())
        slope = (self.ridge * W) @ self.inverse.T - self.sums
        V = V.astype(self.white[0].dtype)
        for part in self.white:
            logits = V @ part
            top = logits.max(0)
            shares = np.exp(logits - top)
            total = shares.sum(0)
            value += float((top + np.log(total)).sum(dtype=np.float64))
            shares /= total
            slope += shares @ part.T
        return value, slope.ravel()


def ridges(
    sums: Array,
    total: Array,
    rows: NDArray[Any],
    constant: NDArray[np.int64],
    n: int,
    stddev: float,
    share: float,
    optional: NDArray[np.bool_] | None = None,
) -> Array:
    """(d,): the ridge of each column.

    Parameters
    ----------
    sums : ndarray (G, d)
        Noised sums over each group.
    total : ndarray (d,)
        Sum over all rows.
    rows : ndarray (m, d)
        Public rows of a sample.
    constant : ndarray of int (d,)
        Position of the column that is constant where this one is not 0.
    n : int
        Number of all rows.
    stddev : float
        Standard deviation of the noise of a sum.
    share : float
        Ridge of a column whose sums differ from noise, as a share of the variance of the noise.
    optional : ndarray of bool (d,), optional
        Columns that are left out, by an infinite ridge, where their sums cannot be told from noise.
    """
    mean = total / np.maximum(total[constant], 1e-12)
    squares = np.zeros(len(mean))
    for at in range(0, len(rows), CHUNK):
        wide = rows[at : at + CHUNK].astype(np.float64)
        squares += np.square(wide - wide[:, constant] * mean).sum(0)
    squares *= n / len(rows)
    part = np.clip(sums[:, constant] / np.maximum(total[constant], 1e-12), 0.0, 1.0)
    chance = part * (1 - part) * squares + stddev**2 * (1 + mean**2)
    statistic = (np.square(sums - sums[:, constant] * mean) / np.maximum(chance, 1e-12)).max(0)
    informative = (statistic > 2 * math.log(len(total))) | (constant == np.arange(len(total)))
    left_out = np.zeros(len(total), dtype=np.bool_) if optional is None else optional & ~informative
    idle = max(share, IDLE * int((~informative & ~left_out).sum()))
    found = np.maximum(np.where(informative, share, idle) * stddev**2, LEAST_RIDGE)
    return np.where(left_out, np.inf, found)


def _shares(logits: Array) -> Array:
    """(..., C, m): softmax over the categories; rows come last, so that each step is over many of them."""
    rows_last = np.ascontiguousarray(logits)
    shares: Array = np.exp(rows_last - rows_last.max(-2, keepdims=True))
    shares /= shares.sum(-2, keepdims=True)
    return shares


@dataclass(frozen=True, eq=False)
class Memberships:
    """p(a | x, y) of any block of public rows; "not given" is the last category, if attributes may be missing.

    Parameters
    ----------
    rows : PublicRows
    weights : ndarray (C, width)
        The W that :func:`fit_memberships` finds.
    groups : int, optional
        Number of named groups; by default all categories but the last.
    """

    rows: PublicRows
    weights: Array
    groups: int | None = None

    def by_label(self, block: Block) -> Array:
        """(Y, m, G): memberships of the named groups if the label were each of the Y labels."""
        weights = np.concatenate(self.rows.by_label(self.weights))
        logits = aligned_product(block.first, self.rows.label_free(block), weights.T)
        shares = _shares(logits.T.reshape(self.rows.labels, -1, len(block)))
        # Rows first in memory, too: products over groups are then over numbers that lie side by side.
        return np.ascontiguousarray(shares[:, : self.groups or -1].transpose(0, 2, 1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ExpectedSums:
    """Pass: sums of public rows under memberships of these weights, in steps of ``scale * 4^-bits``.

    Parameters
    ----------
    columns : callable
        From a block to the public columns that memberships are a function of.
    weights : ndarray (C, d)
    bits : int
        Behind the point of both factors of a product (:func:`product_bits`).
    scale : ndarray (d,), optional
        Powers of two by which the columns are at most 1 in size; 1 by default.
    """

    columns: Callable[[Block], Array]
    weights: Array
    bits: int
    scale: Array | None = None

    def run(self, block: Block) -> IntArray:
        """(C, d)."""
        columns = self.columns(block)
        q = _shares(aligned_product(block.first, columns, self.weights.T).T).astype(np.float64)
        scale = 1.0 if self.scale is None else self.scale
        q, total = np.rint(q * 2.0**self.bits), np.zeros(self.weights.shape, dtype=np.int64)
        for at in range(0, len(columns), ALIGNED):
            steps = columns[at : at + ALIGNED].astype(np.float64)
            steps *= 2.0**self.bits / scale
            total += (q[:, at : at + ALIGNED] @ np.rint(steps, out=steps)).astype(np.int64)
        return total  # products are below 2^53: exact in any order


def product_bits(n: int) -> int:
    """Bits behind the point of both factors, so that sums of n products are exact and fit 62 bits."""
    return min(18, (62 - n.bit_length()) // 2)


def fit_to_all_rows(
    sample: Array,
    sums: Array,
    *,
    ridge: Array,
    n: int,
    expected: Callable[[Array], Array],
    start: Array | None = None,
) -> Array:
    """(C, d): weights of memberships that agree with sums over all n rows, fitted on a sample of them.

    A pass computes the sums over all rows at the sample's solution, and the sample is then fitted to the difference: F
    of all rows is F of the sample plus a nearly linear function (as in variance reduction).

    Parameters
    ----------
    sample : ndarray (m, d)
        Public columns of the sample.
    expected : callable
        From weights to sums over all rows under their memberships.
    """
    share = len(sample) / n
    if share == 1:
        return fit_memberships(sample, sums, ridge=ridge, start=start)
    sizes = np.maximum(sums[:, 0], 0.0)
    equal = (sizes / max(float(sizes.sum()), 1e-12))[:, None]
    target = share * (sums - equal * sums.sum(0)) + equal * sample.sum(0, dtype=np.float64)
    for _ in range(CORRECTIONS):
        start = fit_memberships(sample, target, ridge=share * ridge, start=start)
        target = share * (sums - expected(start)) + expected_sums(start, sample)
    return fit_memberships(sample, target, ridge=share * ridge, start=start)
