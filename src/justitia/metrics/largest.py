r"""Bounds of the largest of several differences whose errors are correlated: where two curves are furthest apart.

Estimates D of differences d at K places have normal errors of standard deviations s and a known covariance, and
:math:`\theta = \max_k |d_k|`. A lower bound fails most often if all places are at :math:`\theta`, an upper one if one
is alone; never both. So the two need not share what may fail, alpha, half and half: at a place alone the lower
bound takes a fifth of it and the upper bound the rest, and where many places are at :math:`\theta` the upper bound
hardly fails, and the lower bound takes all.

* Upper bound: :math:`\max_k |D_k| + z s_k`, where one normal error is below -z with probability 4 alpha / 5. Any place
  whose own bound reaches that far could be the one at :math:`\theta`, so no smaller z does.
* Lower bound: :math:`\max_k |D_k| - c s_k`. First c holds all differences at once, on both sides (the band). A side of
  a place that even the band leaves below this first bound is not at :math:`\theta`: then the errors of the other
  sides alone have to be held, and c is smaller (moment selection: Romano, Shaikh and Wolf 2014). It is at
  least what leaves a place alone its fifth.

Everything here is a function of noisy answers and public numbers; the draws are public, and the same every time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import norm

from justitia.metrics.upper_bound import Array, Single, even_normals

#: Errors that are drawn, as a power of two. With 2 ** 11 the band of five groups held 94.5%.
DRAWS = 13
#: Share of what may fail that the lower bound takes where one place is alone; the upper bound has the rest.
LOWER = 1 / 5


def reaches(apart: Array, covariance: Array, confidence: Array) -> tuple[Array, Array]:
    """Standard errors to the lower and to the upper bound, c and z, (...); c is NaN where the covariance is.

    Parameters
    ----------
    apart : array of shape (..., K)
        Estimated differences.
    covariance : array of shape (..., K, K)
        Of their errors.
    confidence : array of shape (...)
        With which both bounds hold.
    """
    spread = np.sqrt(np.maximum(np.einsum("...kk->...k", covariance), 1e-18))
    least, above = norm.isf(LOWER * (1 - confidence)), norm.isf((1 - LOWER) * (1 - confidence))
    below = np.full(apart.shape[:-1], np.nan)
    for place in map(tuple, np.argwhere(np.isfinite(covariance).all(axis=(-2, -1)))):
        errors = _errors(covariance[place] / np.outer(spread[place], spread[place]))
        below[place] = max(_reach(errors, apart[place], spread[place], confidence[place]), least[place])
    return below, above


def _errors(correlation: Array) -> Single:
    """(K, draws): half of the drawn errors; the other half are their mirror images."""
    half = even_normals(len(correlation), DRAWS)[: 2 ** (DRAWS - 1)]
    values, vectors = np.linalg.eigh(correlation)
    root = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
    found: Single = root @ np.ascontiguousarray(half.T, dtype=np.float32)
    return found


def _reach(errors: Single, apart: Array, spread: Array, confidence: float) -> float:
    """Standard errors that hold all sides of differences that may be at the largest."""
    band = _quantile(np.abs(errors).max(axis=0), confidence)
    first = np.max(np.abs(apart) - band * spread)
    above, below = (side + band * spread >= first for side in (apart, -apart))
    sides = np.concatenate([errors[above], -errors[below]])
    return _quantile(np.concatenate([sides.max(axis=0), -sides.min(axis=0)]), confidence)


def _quantile(values: Any, confidence: float) -> float:
    kept = math.ceil(confidence * (len(values) - 1))
    return float(np.partition(values, kept)[kept])
