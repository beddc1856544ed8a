r"""How far the upper bound of a largest difference has to reach above its estimate.

The largest of several noisy differences leans upward. Where differences are within noise, a bound that adds 1.96
standard errors to each, as for one pair alone, therefore nearly always holds, and says little. So the question is
turned round: if the largest difference were v, how many standard errors z would do for all the upper bounds to be below
v with probability at most alpha? Whatever the rates :math:`\theta` of range v,

.. math:: z(v) = \sup_\theta \; (1 - \alpha_\theta)\text{-quantile of } \min_{i<j}
    \frac{v - |\theta_i - \theta_j + e_i - e_j|}{s_{ij}}

does, and :math:`\alpha_\theta` is what the lower bound leaves: with the same rates it fails with a probability of its
own. z is found for normal errors e of known covariance by drawing them, over the rates that matter: one pair at
distance v and the others between, where estimates are smallest, and every group at one of two places, where they are
largest and the lower bound fails most often. A test tries others.

z grows with v. Let U(z) be the largest of the upper bounds with z in them, and v the truth: v exceeds U(z(v)) with
probability at most alpha; and if it does not, and is at most some number u, it is at most U(z(u)) as well. So the bound
with the quantile of one pair may be put in for u, and its result again: each step draws it nearer.

Everything here is a function of noisy answers and public numbers; the draws are public, and the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc

Array = NDArray[np.float64]
Single = NDArray[np.float32]

#: Errors that are drawn, as a power of two.
DRAWS = 11
#: With more groups, the quantile of one pair stays.
MOST_GROUPS = 8
#: Share of what may fail that the upper bound may take; the rest is for what normal errors leave out.
SHARE = 0.9
#: Samples that are looked at together.
TOGETHER = 16


def upper_quantile(largest: Array, covariance: Array, *, wrong: float, most: float, below: float = math.inf) -> Array:
    """(N,): z of each sample, if this were the largest difference between its groups.

    Parameters
    ----------
    largest : array of shape (N,)
        v.
    covariance : array of shape (N, G, G)
        Of the errors of the rates; NaN on the diagonal where a group is unknown.
    wrong : float
        Probability with which lower and upper bound may fail, together.
    most : float
        z is at most this.
    below : float
        Standard errors that the lower bounds reach down from the estimates; infinite if there are none.
    """
    if not 2 <= covariance.shape[-1] <= MOST_GROUPS or len(largest) == 0:
        return np.full(len(largest), most)
    parts = [slice(at, at + TOGETHER) for at in range(0, len(largest), TOGETHER)]
    found = [_largest_quantile(_Draws.of(largest[part], covariance[part]), wrong, below) for part in parts]
    return np.clip(np.concatenate(found), 0.0, most)


@cache
def even_normals(width: int, power: int = DRAWS) -> Array:
    """(2 ** power, width) standard normal numbers, evenly spread, each with its mirror image."""
    half = norm.ppf(qmc.Sobol(width, seed=0).random_base2(power - 1))
    return np.concatenate([half, -half])


@dataclass(frozen=True)
class _Draws:
    """Drawn errors of the differences between the groups of a few samples, in units of their standard errors."""

    v: Array  # (N,) the largest true difference
    i: NDArray[np.int64]  # (P,) first and second group of each pair
    j: NDArray[np.int64]
    s: Array  # (N, P) standard errors
    known: NDArray[np.bool_]  # (N, P) whether both groups are
    errors: Single  # (N, draws, P)

    @classmethod
    def of(cls, v: Array, covariance: Array) -> _Draws:
        groups = covariance.shape[-1]
        i, j = np.triu_indices(groups, 1)
        known = ~np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
        both = known[:, :, None] & known[:, None, :]
        filled = np.where(both, covariance, 0.0) + 1e-12 * np.eye(groups)
        errors = even_normals(groups) @ np.linalg.cholesky(filled).swapaxes(1, 2)
        s = np.sqrt(filled[:, i, i] + filled[:, j, j] - 2 * filled[:, i, j])
        return cls(v, i, j, s, both[:, i, j], ((errors[..., i] - errors[..., j]) / s[:, None]).astype(np.float32))

    def short(self, rates: Array) -> Single:
        """(N, draws, P): how far estimates fall short of v if these (N, G) are the true rates; infinite if unknown."""
        shift = ((rates[:, self.i] - rates[:, self.j]) / self.s).astype(np.float32)
        far = np.where(self.known, self.v[:, None] / self.s, np.inf).astype(np.float32)
        found: Single = far[:, None] - np.abs(self.errors + shift[:, None])
        return found


def _largest_quantile(draws: _Draws, wrong: float, below: float) -> Array:
    """z, over all rates that matter."""
    found = []
    for rates in (*_one_apart(draws), *_two_camps(draws)):
        short = draws.short(rates).min(2)  # of the largest estimate, in units of its own standard error
        fails = (-short > below).mean(1)
        alpha = np.clip(wrong - fails, 0.0, SHARE * wrong)
        found.append(np.where(_possible(draws, rates), _quantile(short, alpha), 0.0))
    quantiles: Array = np.max(found, axis=0)
    return quantiles


def _possible(draws: _Draws, rates: Array) -> NDArray[np.bool_]:
    """(N,): whether two known groups are v apart."""
    apart = np.abs(rates[:, draws.i] - rates[:, draws.j]) >= draws.v[:, None]
    possible: NDArray[np.bool_] = np.any(apart & draws.known, axis=1)
    return possible


def _quantile(values: Single, alpha: Array) -> Array:
    """(N,): the number that at most a share alpha of the draws exceeds."""
    draws = values.shape[1]
    place = np.minimum(np.ceil((1 - alpha) * draws).astype(int), draws - 1)
    found: Array = np.sort(values, axis=1)[np.arange(len(values)), place]
    return found


def _two_camps(draws: _Draws) -> Iterator[Array]:
    """True rates (N, G) of range v where every group has one of two."""
    for rest in list(product((0.0, 1.0), repeat=int(draws.j.max())))[1:]:
        yield draws.v[:, None] * np.array((0.0, *rest))


def _one_apart(draws: _Draws) -> Iterator[Array]:
    """True rates (N, G) of range v where one pair is v apart, and the others are between.

    Where between is worst depends on the standard errors: half-way, or where both distances are as many standard errors
    short of v. (With either of the two they make two camps.)
    """
    v, s, i, j = draws.v, draws.s, draws.i, draws.j
    groups = int(j.max()) + 1
    spread = np.zeros((len(v), groups, groups))
    spread[:, i, j] = spread[:, j, i] = s
    for one, other in zip(i, j, strict=True):
        balanced = spread[:, :, other] / (spread[:, :, one] + spread[:, :, other])
        for share in (0.5, balanced) if groups > 2 else ():
            rates = v[:, None] * np.broadcast_to(share, balanced.shape)
            rates[:, one], rates[:, other] = 0.0, v
            yield rates
