"""Clipping of rows to a norm, and the sensitivity of their sums with all rounding included.

The proof is in ``docs/proofs.md``, sections 2.1 and 2.7.
"""

from __future__ import annotations

import math

import numpy as np

from justitia.privacy.arrays import Array, Floats, quietly
from justitia.privacy.mechanisms import Mechanism
from justitia.privacy.rows import CANCELLATION, SUM_ERROR, FactoredRows, round_off

#: A row this long counts as zero: its square is infinite in float64, and sums of such rows are not exact on the grid.
LONGEST = 2.0**512
#: What the underflow of a factor, at most 2^-1074 each, may add to one row that long.
_UNDERFLOW = 2.0**-560
#: Rows whose weights are compared at once; a matter of speed only.
_ROWS = 4096


def check_bound(bound: float) -> float:
    """A finite bound of at least 0."""
    if not (math.isfinite(bound) and bound >= 0):
        raise ValueError(f"Expected a finite bound of at least 0 on the rows; got {bound!r}.")
    return float(bound)


@quietly
def bounded_rows(rows: Array, bound: float) -> Array:
    """Rows scaled down to norm ``bound``; rows that are not finite, or as long as ``LONGEST``, become zero."""
    norms: Array = np.sqrt(np.vecdot(rows, rows))[:, None]
    scaled: Array = rows * clip_factor(norms, bound)
    scaled[~(norms[:, 0] < LONGEST)] = 0.0  # NaN, too
    return scaled


@quietly
def clip_factor(norms: Floats, bound: float) -> Floats:
    """Factor that brings each norm down to ``bound``.

    The square of a very small number is 0, so a norm below the root of the smallest one may be too small by all of it;
    such a norm is taken as that root. Bound 0 then means zero, and not "as small as float can show" without noise.
    """
    smallest = float(np.finfo(norms.dtype).tiny) ** 0.5
    factor: Floats = np.minimum(bound / (norms if bound > smallest else np.maximum(norms, smallest)), 1.0)
    return factor


def _extremes(weights: Floats) -> tuple[Floats, Floats]:
    """Smallest and largest weight of each row; numpy takes several times as long over a short last axis."""
    low, high = np.empty_like(weights[:, 0]), np.empty_like(weights[:, 0])
    for start in range(0, len(weights), _ROWS):
        rows = slice(start, start + _ROWS)
        columns = np.ascontiguousarray(weights[rows].T)
        columns.min(0, out=low[rows])
        columns.max(0, out=high[rows])
    return low, high


def weight_range(weights: Floats) -> float:
    """How far one row's weight can move at most, from any group to any other."""
    low, high = _extremes(weights)
    largest = float((high - low).max())
    if not math.isfinite(largest):
        raise ValueError("Expected finite weights; some are NaN or infinite.")
    return largest


def with_norm_rounding(bound: float, width: int) -> float:
    """Norm that no row scaled down to ``bound`` exceeds, although norm and factor were rounded."""
    return bound * (1 + round_off(width)) + _UNDERFLOW if bound > 0 else 0.0


def with_rounding(sensitivity: float, weights: Floats, bound: float, width: int, noise: Mechanism) -> float:
    """Sensitivity of the computed weighted sum: both neighbours' sums may be off, and both are rounded to the grid.

    Where the exact sensitivity is 0 the same numbers are added in the same order, and so is that of the computed sum.
    """
    if sensitivity == 0:
        return 0.0
    low, high = _extremes(weights)
    error = SUM_ERROR * CANCELLATION * bound * float(np.maximum(high, -low).sum()) + len(weights) * _UNDERFLOW
    computed = sensitivity * (1 + round_off(width)) + 2 * error
    total, rounded = 0.0, computed
    while rounded > total:  # the step grows with the noise, which grows with what is rounded to the step
        total, rounded = rounded, computed + 1.01 * math.sqrt(width) * noise.step(rounded)
    return total


def clipped_sum(rows: FactoredRows, selected: Floats, bound: float) -> Floats:
    """Sum of the rows, each clipped to ``bound`` and times its weight (the paper's clipped gradient, Equation 10)."""
    rows = rows.double()
    norms = rows.norm_bounds()
    if not math.isfinite(float(norms.sum())):  # rows are public, so this branch is too
        finite = np.isfinite(norms)
        rows, norms = rows.zeroed(~finite), np.where(finite, norms, 0.0)
    return rows.weighted_sum(selected * clip_factor(norms, bound))
