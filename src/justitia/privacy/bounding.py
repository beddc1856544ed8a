"""Rows that no person makes longer than a bound, and what rounding adds to the sensitivity of their sums.

The proof is in ``docs/privacy.md``, sections 2.1 and 2.7.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from justitia.privacy.mechanisms import Noise
from justitia.privacy.rows import CANCELLATION, SUM_ERROR, FactoredRows, round_off

#: A longer row counts as zero: its square is infinite in float64, and sums of such rows are not exact on the grid.
LONGEST = 2.0**512
#: What the underflow of a factor, at most 2^-1074 each, may add to one row that long.
_UNDERFLOW = 2.0**-560


def check_bound(bound: float) -> float:
    """A finite bound of at least 0."""
    if not (math.isfinite(bound) and bound >= 0):
        raise ValueError(f"Expected a finite bound of at least 0 on the rows; got {bound!r}.")
    return float(bound)


def bounded_rows(rows: Tensor, bound: float) -> Tensor:
    """Rows scaled down to norm ``bound``; rows that are not finite, or longer than ``LONGEST``, become zero."""
    norms = rows.norm(dim=1, keepdim=True)
    # Not only where the norm is infinite: that of a single column is its absolute value, which is never squared.
    return torch.where(norms <= LONGEST, rows * clip_factor(norms, bound), torch.zeros_like(rows))


def clip_factor(norms: Tensor, bound: float) -> Tensor:
    """Factor that brings each norm down to ``bound``.

    The square of a very small number is 0, so a norm below the root of the smallest one may be too small by all of it;
    such a norm is taken as that root. Bound 0 then means zero, and not "as small as float can show" without noise.
    """
    smallest = torch.finfo(norms.dtype).tiny ** 0.5
    return (bound / (norms if bound > smallest else norms.clamp_min(smallest))).clamp_max(1.0)


def weight_range(weights: Tensor) -> float:
    """How far one row's weight can move at most, from any group to any other."""
    low, high = weights.aminmax(dim=1)
    spread = float((high - low).max())
    if not math.isfinite(spread):
        raise ValueError("Expected finite weights; some are NaN or infinite.")
    return spread


def with_norm_rounding(bound: float, width: int) -> float:
    """Norm that no row scaled down to ``bound`` exceeds, although norm and factor were rounded."""
    return bound * (1 + round_off(width)) + _UNDERFLOW if bound > 0 else 0.0


def with_rounding(sensitivity: float, weights: Tensor, bound: float, width: int, noise: Noise) -> float:
    """Sensitivity of the computed weighted sum: both neighbours' sums may be off, and both are rounded to the grid.

    Where the exact sensitivity is 0 the same numbers are added in the same order, and so is that of the computed sum.
    """
    if sensitivity == 0:
        return 0.0
    error = SUM_ERROR * CANCELLATION * bound * float(weights.abs().amax(1).sum()) + len(weights) * _UNDERFLOW
    computed = sensitivity * (1 + round_off(width)) + 2 * error
    total, rounded = 0.0, computed
    while rounded > total:  # the step grows with the noise, which grows with what is rounded to the step
        total, rounded = rounded, computed + 1.01 * math.sqrt(width) * noise.step(rounded)
    return total


def clipped_sum(rows: FactoredRows, selected: Tensor, bound: float) -> Tensor:
    """Sum of the rows, each clipped to ``bound`` and times its weight (the paper's clipped gradient, Equation 10)."""
    rows = rows.double()
    norms = rows.norm_bounds()
    if not math.isfinite(float(norms.sum())):  # rows are public, so this branch is too
        finite = torch.isfinite(norms)
        rows, norms = rows.zeroed(~finite), torch.where(finite, norms, torch.zeros_like(norms))
    return rows.weighted_sum(selected.double() * clip_factor(norms, bound))
