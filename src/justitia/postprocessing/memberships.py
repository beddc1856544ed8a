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
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

#: Largest derivative of F in coordinates in which its curvature is about 1: F is then right to about 1e-3 nats.
PRECISION = 3e-2
MAX_ITERATIONS = 1000
#: Rows of one product.
CHUNK = 16_384
#: Problems with no more numbers than this are solved in double precision.
SMALL = 4_000_000
#: Ridge that keeps a problem without noise well-posed, per row.
LEAST_RIDGE = 1e-6


def memberships(weights: Tensor, rows: Tensor) -> Tensor:
    """(n, C): q of each row."""
    return (rows @ weights.T.to(rows.dtype)).softmax(1)


def expected_sums(weights: Tensor, rows: Tensor) -> Tensor:
    """(C, d): what the sums over each category are under q."""
    return (memberships(weights, rows).T @ rows).double()


def fit_memberships(rows: Tensor, sums: Tensor, *, ridge: Tensor, start: Tensor | None = None) -> Tensor:
    """(C, d): the W that minimises F, by L-BFGS in whitened coordinates.

    Parameters
    ----------
    rows : Tensor (n, d)
        Public rows.
    sums : Tensor (C, d)
        Noised sums over each category, "not given" among them; they add up to the total of the rows.
    ridge : Tensor (d,)
        The rho of each column.
    start : Tensor (C, d), optional
        Where to start; zero means equal memberships.
    """
    ridge = ridge.double() + LEAST_RIDGE * len(rows)
    rows = rows.double() if rows.numel() <= SMALL else rows
    factor = _whitening(rows, ridge)
    inverse = torch.linalg.inv(factor)
    white = [inverse.to(rows.dtype) @ part.T for part in rows.split(CHUNK)]
    objective = _Objective(white, inverse, sums.double(), ridge)
    first = torch.zeros_like(objective.sums) if start is None else start.double() @ factor
    options: Any = {"maxiter": MAX_ITERATIONS, "gtol": PRECISION, "ftol": 0.0, "maxcor": 20}
    found: Any = minimize(objective, first.numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
    weights: Tensor = torch.from_numpy(found.x).view_as(first) @ inverse
    return weights


def _whitening(rows: Tensor, ridge: Tensor) -> Tensor:
    """Cholesky factor of the curvature of F where memberships are undecided between two categories."""
    curvature = 0.25 * (rows.T @ rows).double() + torch.diag(ridge)
    factor: Tensor = torch.linalg.cholesky(curvature)
    return factor


class _Objective:
    """F and its gradient as functions of V = W L, where L L^T is the curvature.

    Whitened rows come in parts of (d, m): both products are fast that way round, the second finds its part in the
    processor's cache, and single precision does not add up over everybody.
    """

    def __init__(self, white: list[Tensor], inverse: Tensor, sums: Tensor, ridge: Tensor) -> None:
        self.white, self.inverse, self.ridge = white, inverse, ridge
        self.sums = sums @ inverse.T

    def __call__(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        V = torch.from_numpy(flat).view_as(self.sums)
        W = V @ self.inverse
        value = 0.5 * (self.ridge * W**2).sum() - (V * self.sums).sum()
        slope = (self.ridge * W) @ self.inverse.T - self.sums
        V = V.to(self.white[0].dtype)
        for part in self.white:
            logits = V @ part
            normalisers = logits.logsumexp(0)
            value += normalisers.double().sum()
            slope += ((logits - normalisers).exp() @ part.T).double()
        return float(value), slope.numpy().ravel()
