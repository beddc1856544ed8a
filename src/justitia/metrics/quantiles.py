r"""Quantiles for confidence bounds: how many standard errors a bound lies from its estimate.

* :func:`normal_quantile` is for one bound, :func:`sidak_quantile` for several at once and :func:`tukey_quantile` for
  all differences between groups at once.
* :func:`upper_bound_quantile` is for the upper bound of the largest difference between groups.
* :func:`ks_quantiles` is for both bounds of the largest difference between two curves.

The last two are found by simulating normal errors. Everything here is a function of noisy answers and public numbers;
the draws are public, and the same every time. Letters: N samples, G groups, P pairs of groups, K places of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, qmc, studentized_range

Array = NDArray[np.float64]
Single = NDArray[np.float32]

#: Share of the error probability that bounds use; the rest is for what the normal approximation leaves out.
USED_SHARE = 0.9
#: Errors that are drawn for an upper bound, as a power of two.
DRAWS = 11
#: With more groups, the upper bound keeps the quantile of one pair: the number of cases doubles with each group.
MAX_GROUPS = 8
#: Samples that are simulated together.
BATCH = 16
#: Errors that are drawn for a curve, as a power of two. With 2 ** 11 the band of five groups held 94.5%.
KS_DRAWS = 13
#: Share of the error probability that the lower bound of a Kolmogorov-Smirnov distance takes where the curves are
#: furthest apart at one place alone; the upper bound has the rest.
KS_LOWER_SHARE = 1 / 5


def normal_quantile(confidence: float) -> float:
    """Two-sided normal quantile of one bound: 1.96 for 0.95."""
    return float(norm.ppf((1 + confidence) / 2))


def sidak_quantile(confidence: float, intervals: int) -> float:
    """Two-sided quantile for several normal errors at once, whatever their correlation (Sidak 1967)."""
    return normal_quantile(confidence ** (1 / intervals))


@cache
def tukey_quantile(confidence: float, groups: int, rates: int) -> float:
    """Quantile for all differences between groups at once (Tukey), and that for each of ``rates`` rates (Sidak)."""
    return float(studentized_range.ppf(confidence ** (1 / rates), groups, math.inf)) / math.sqrt(2)


def conservative(confidence: float) -> float:
    """A slightly higher confidence than was asked for, because normal errors are an approximation."""
    return 1 - USED_SHARE * (1 - confidence)


@cache
def sobol_normals(width: int, power: int) -> Array:
    """(2 ** power, width) quasi-random standard normal numbers, each with its mirror image."""
    half = norm.ppf(qmc.Sobol(width, seed=0).random_base2(power - 1))
    return np.concatenate([half, -half])


def upper_bound_quantile(
    largest: Array, covariance: Array, *, error: float, at_most: float, lower_quantile: float = math.inf
) -> Array:
    r"""(N,): quantile z of the upper bound, if ``largest`` were the largest difference between the groups.

    The largest of several noisy differences is biased upward. Where differences are within noise, a bound that adds
    1.96 standard errors to each, as for one pair alone, therefore nearly always holds, and says little. The test is
    inverted instead: if the largest difference were v, which z keeps the probability that all upper bounds are below v
    at alpha? Whatever the rates :math:`\theta` of range v,

    .. math:: z(v) = \sup_\theta \; (1 - \alpha_\theta)\text{-quantile of } \min_{i<j}
        \frac{v - |\theta_i - \theta_j + e_i - e_j|}{s_{ij}}

    does, where :math:`\alpha_\theta` is what the lower bound leaves: with the same rates it fails with a probability of
    its own. z is found by drawing normal errors e of known covariance, over the rates that matter
    (:func:`_extreme_rates`). A test tries others.

    z grows with v. Let U(z) be the largest of the upper bounds with z in them, and v the truth: v exceeds U(z(v)) with
    probability at most alpha; and if it does not, and is at most some number u, it is at most U(z(u)) as well. So the
    bound with the quantile of one pair may be put in for u, and its result again: each step tightens it.

    Parameters
    ----------
    largest : array of shape (N,)
        v.
    covariance : array of shape (N, G, G)
        Of the errors of the rates; NaN on the diagonal where a group is unknown.
    error : float
        Probability with which lower and upper bound may fail, together.
    at_most : float
        z is at most this.
    lower_quantile : float
        Standard errors from the estimates to the lower bounds; infinite if there are none.
    """
    if not 2 <= covariance.shape[-1] <= MAX_GROUPS or len(largest) == 0:
        return np.full(len(largest), at_most)
    parts = [slice(start, start + BATCH) for start in range(0, len(largest), BATCH)]
    found = [_simulated_quantile(largest[part], covariance[part], error, lower_quantile) for part in parts]
    return np.clip(np.concatenate(found), 0.0, at_most)


def _simulated_quantile(v: Array, covariance: Array, error: float, lower_quantile: float) -> Array:
    """(N,): z of a few samples, the largest over all rates that matter."""
    groups = covariance.shape[-1]
    i, j = np.triu_indices(groups, 1)
    known = ~np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
    both = known[:, :, None] & known[:, None, :]
    filled = np.where(both, covariance, 0.0) + 1e-12 * np.eye(groups)
    pairs = both[:, i, j]
    s = np.sqrt(filled[:, i, i] + filled[:, j, j] - 2 * filled[:, i, j])  # (N, P) standard errors
    drawn = sobol_normals(groups, DRAWS) @ np.linalg.cholesky(filled).swapaxes(1, 2)
    errors: Single = ((drawn[..., i] - drawn[..., j]) / s[:, None]).astype(np.float32)  # (N, draws, P)
    far = np.where(pairs, v[:, None] / s, np.inf).astype(np.float32)
    draws, samples = errors.shape[1], np.arange(len(v))
    found = []
    for rates in _extreme_rates(v, s, groups):
        apart = rates[:, i] - rates[:, j]
        shift = (apart / s).astype(np.float32)
        # How far the largest estimate falls short of v, in units of its own standard error.
        short = (far[:, None] - np.abs(errors + shift[:, None])).min(2)
        alpha = np.clip(error - (-short > lower_quantile).mean(1), 0.0, USED_SHARE * error)
        place = np.minimum(np.ceil((1 - alpha) * draws).astype(int), draws - 1)
        possible = np.any((np.abs(apart) >= v[:, None]) & pairs, axis=1)  # two known groups are v apart
        found.append(np.where(possible, np.sort(short, axis=1)[samples, place], 0.0))
    quantiles: Array = np.max(found, axis=0)
    return quantiles


def _extreme_rates(v: Array, s: Array, groups: int) -> Iterator[Array]:
    """True rates (N, G) of range v for which upper bounds fail most often.

    * One pair is v apart, and the others are between: estimates are smallest. Where between is worst depends on the
      standard errors ``s``: half-way, or where both distances are as many standard errors short of v.
    * Every group has one of two rates: estimates are largest, and the lower bound fails most often.
    """
    i, j = np.triu_indices(groups, 1)
    stddev = np.zeros((len(v), groups, groups))
    stddev[:, i, j] = stddev[:, j, i] = s
    for one, other in zip(i, j, strict=True):
        balanced = stddev[:, :, other] / (stddev[:, :, one] + stddev[:, :, other])
        for share in (0.5, balanced) if groups > 2 else ():
            rates = v[:, None] * np.broadcast_to(share, balanced.shape)
            rates[:, one], rates[:, other] = 0.0, v
            yield rates
    for rest in list(product((0.0, 1.0), repeat=groups - 1))[1:]:
        yield v[:, None] * np.array((0.0, *rest))


def ks_upper_quantile(confidence: Any, *, one_sided: bool = False) -> Any:
    """Quantile z of the upper bound of a Kolmogorov-Smirnov distance; all of the error is its own if ``one_sided``."""
    return norm.isf((1 if one_sided else 1 - KS_LOWER_SHARE) * (1 - confidence))


def ks_quantiles(differences: Array, covariance: Array, confidence: Array) -> tuple[Array, Array]:
    r"""Quantiles of the lower and of the upper bound of a Kolmogorov-Smirnov distance, c and z, (...).

    Estimates D of differences d at K places have normal errors of standard deviations s and a known covariance, and
    :math:`\theta = \max_k |d_k|`. A lower bound fails most often if all places are at :math:`\theta`, an upper one if
    one is alone; never both. So the two need not share the error probability alpha half and half: at a place alone the
    lower bound takes a fifth of it and the upper bound the rest, and where many places are at :math:`\theta` the upper
    bound hardly fails, and the lower bound takes all.

    * Upper bound: :math:`\max_k |D_k| + z s_k`, where one normal error is below -z with probability 4 alpha / 5. Any
      place whose own bound reaches that far could be the one at :math:`\theta`, so no smaller z does.
    * Lower bound: :math:`\max_k |D_k| - c s_k`. First c covers all differences at once, on both sides (the band). A
      side of a place that even the band leaves below this first bound is not at :math:`\theta`: then the errors of the
      other sides alone have to be covered, and c is smaller (moment selection: Romano, Shaikh and Wolf 2014). It is
      at least what leaves a place alone its fifth.

    Parameters
    ----------
    differences : array of shape (..., K)
        Estimates.
    covariance : array of shape (..., K, K)
        Of their errors; c is NaN where it is.
    confidence : array of shape (...)
        With which both bounds hold.
    """
    stddev = np.sqrt(np.maximum(np.einsum("...kk->...k", covariance), 1e-18))
    least, upper = norm.isf(KS_LOWER_SHARE * (1 - confidence)), ks_upper_quantile(confidence)
    lower = np.full(differences.shape[:-1], np.nan)
    # Half of the draws; the other half are their mirror images.
    half = sobol_normals(differences.shape[-1], KS_DRAWS)[: 2 ** (KS_DRAWS - 1)]
    normals = np.ascontiguousarray(half.T, dtype=np.float32)
    for place in map(tuple, np.argwhere(np.isfinite(covariance).all(axis=(-2, -1)))):
        apart, s = differences[place], stddev[place]
        values, vectors = np.linalg.eigh(covariance[place] / np.outer(s, s))
        errors: Single = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32) @ normals  # (K, draws)
        band = _empirical_quantile(np.abs(errors).max(axis=0), confidence[place])
        first = np.max(np.abs(apart) - band * s)
        above, below = apart + band * s >= first, -apart + band * s >= first
        sides = np.concatenate([errors[above], -errors[below]])
        both = np.concatenate([sides.max(axis=0), -sides.min(axis=0)])
        lower[place] = max(_empirical_quantile(both, confidence[place]), least[place])
    return lower, upper


def _empirical_quantile(values: Single, confidence: float) -> float:
    place = math.ceil(confidence * (len(values) - 1))
    return float(np.partition(values, place)[place])
