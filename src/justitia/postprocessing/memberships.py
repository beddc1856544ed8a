r"""Soft group memberships of public rows that agree with noised sums: a maximum-entropy problem.

Given public rows :math:`\phi_i` and (noised) sums :math:`S_a` of them over each category a, the memberships

.. math:: q_i(a) = \frac{\exp(W_a \cdot \phi_i)}{\sum_b \exp(W_b \cdot \phi_i)}

of largest entropy whose sums :math:`\sum_i q_i(a) \phi_i` are :math:`S_a` up to noise are those whose W minimises

.. math:: F(W) = \sum_i \log \sum_a \exp(W_a \cdot \phi_i) - \langle W, S \rangle + \tfrac12 \sum_j \rho_j |W_j|^2,

a smooth convex function. Nothing here knows the attribute: S is all that is known about it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

Array = NDArray[Any]
#: Largest derivative of F in coordinates in which its curvature is about 1: F is then right to about 1e-3 nats.
PRECISION = 3e-2
MAX_ITERATIONS = 1000
#: Rows of one product.
CHUNK = 16_384
#: Problems with no more numbers than this are solved in double precision.
SMALL = 4_000_000
#: Ridge that keeps a problem without noise well-posed, per row.
LEAST_RIDGE = 1e-6


def memberships(weights: Array, rows: Array) -> Array:
    """(n, C): q of each row."""
    q: Array = softmax(rows @ weights.T.astype(rows.dtype), axis=1)
    return q


def expected_sums(weights: Array, rows: Array) -> Array:
    """(C, d): what the sums over each category are under q."""
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
        The rho of each column.
    start : ndarray (C, d), optional
        Where to start; zero means equal memberships.
    """
    ridge = ridge.astype(np.float64) + LEAST_RIDGE * len(rows)
    rows = rows.astype(np.float64) if rows.size <= SMALL else rows
    factor = _whitening(rows, ridge)
    inverse: Array = solve_triangular(factor, np.eye(len(factor)), lower=True)
    narrow = inverse.astype(rows.dtype)
    white = [narrow @ rows[first : first + CHUNK].T for first in range(0, len(rows), CHUNK)]
    objective = _Objective(white, inverse, sums.astype(np.float64), ridge)
    first = np.zeros(sums.shape) if start is None else start.astype(np.float64) @ factor
    options: Any = {"maxiter": MAX_ITERATIONS, "gtol": PRECISION, "ftol": 0.0, "maxcor": 20}
    found: Any = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    weights: Array = found.x.reshape(first.shape) @ inverse
    return weights


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
            normalisers = logsumexp(logits, axis=0)
            value += float(normalisers.sum(dtype=np.float64))
            slope += np.exp(logits - normalisers) @ part.T
        return value, slope.ravel()
