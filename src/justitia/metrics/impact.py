r"""Impact ratios, significance and shortfall of which only noisy counts are known, with bounds.

A group is compared with a named reference, or with everybody else. The noise of the two is correlated: with a named
group by the projection of the answer onto its public total; with everybody else wholly, since both add up to a public
number.

* Ratio of two rates: all :math:`\rho` for which the bounds of :math:`p_a - \rho\, p_b` hold 0 (Fieller's set, with the
  bounds of :mod:`justitia.metrics.intervals` in the place of normal ones: Donner and Zou 2012).
* The ratio to the best group is the smallest of the ratios to all groups. Its lower bound has to hold for the one group
  that is the best, so it needs no correction for their number; its upper bound does.
* z: the difference of two rates over its standard deviation if both were equal, the noise in it.

Leading axes are kept; letters as in :mod:`justitia.metrics.intervals`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from justitia.metrics.intervals import (
    Array,
    NoisyRates,
    Side,
    around,
    marginal_quantile,
    minus,
    pairs_quantile,
    several_quantile,
    wider,
)

#: Share of what may fail that bounds here take; the rest is for what normal errors leave out.
SHARE = 0.9
#: The rule of thumb of US agencies (1978): a rate below four fifths of the highest one is regarded as adverse impact.
FOUR_FIFTHS = 0.8


def careful(confidence: float) -> float:
    """A little more than asked for: normal errors are an approximation."""
    return 1 - SHARE * (1 - confidence)


def other_side(values: Array, total: Array | float, reference: int | None) -> Array:
    """Sums (..., G, K) of whom each group is compared with: the reference, or everybody else."""
    if reference is None:
        rest: Array = total - values
        return rest
    return np.broadcast_to(values[..., [reference], :], values.shape)


@dataclass(frozen=True)
class Compared:
    """Rates of every group beside those of the reference, or of everybody else.

    Attributes
    ----------
    first, second : NoisyRates
        Of the same shape, (..., G, K).
    cross : float
        Covariance of the noise of the two, as a multiple of that within one.
    itself : array of bool (G,)
        Where a group would be compared with itself.
    """

    first: NoisyRates
    second: NoisyRates
    cross: float
    itself: NDArray[np.bool_]

    @classmethod
    def of(cls, noisy: NoisyRates, reference: int | None) -> Compared:
        """Each group beside the reference; without one, beside everybody else."""
        if reference is None:
            second = noisy.rest
        else:
            counts, sums = (other_side(one, 0.0, reference) for one in (noisy.counts, noisy.sums))
            second = replace(noisy, counts=counts, sums=sums)
        groups = noisy.counts.shape[-2]
        return cls(noisy, second, -1.0 if reference is None else noisy.cross, np.arange(groups) == reference)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where both rates are, (..., G, K)."""
        return self.first.enough & self.second.enough & ~self.itself[:, None]

    @property
    def times(self) -> int:
        """How many comparisons there are."""
        return max(1, int((~self.itself).sum()))

    def differences(self, quantile: float | Array) -> tuple[Array, Array, Array]:
        """Rate minus that of the other side, with bounds, (..., G, K); NaN where one is unknown."""
        noise = self.cross * self.first.noise_with(self.second)
        _, low, high = minus(self.first.unclipped(quantile), self.second.unclipped(quantile), noise)
        found = around(self.first.rates - self.second.rates, low, high)
        value, low, high = (np.where(self.known, one, np.nan) for one in found)
        return value, low, high

    def z(self) -> Array:
        """Difference over its standard deviation if both rates were equal, (..., G, K); NaN where one is unknown."""
        n, m = self.first.known_counts, self.second.known_counts
        pooled = np.clip((self.first.sums + self.second.sums) / (n + m), 0, 1)
        noise = self.first.noise_at(pooled)
        sampling = pooled * (1 - pooled) * (1 / self.first.independent + 1 / self.second.independent)
        variance = sampling + noise * (1 / n**2 + 1 / m**2 - 2 * self.cross / (n * m))
        apart = self.first.sums / n - self.second.sums / m
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(variance > 0, apart / np.sqrt(variance), 0.0)
        return np.where(self.known, found, np.nan)

    def shortfall(self, quantile: float) -> tuple[Array, Array, Array]:
        """How many more of a group's people would have to be positive for equal rates, with bounds, (..., G, K).

        Negative where the group has the higher rate.
        """
        value, low, high = self.differences(quantile)
        n = self.first.known_counts
        by = quantile * value * np.sqrt(self.first.var_count)
        return -n * value, *wider(-n * value, -n * high, -n * low, by)


def ratios(noisy: NoisyRates, quantile: float) -> tuple[Array, Array, Array]:
    """Rate of a over rate of b with bounds, (..., G, G, K); NaN, 0 and infinity where one is unknown."""
    sides = noisy.unclipped(quantile)
    a, b = (_taken(sides, axis) for axis in (-2, -3))
    first, second = (replace(noisy, counts=_axis(noisy.counts, x), sums=_axis(noisy.sums, x)) for x in (-2, -3))
    raised = {name: getattr(noisy, name)[..., None, :] for name in ("var_sum", "cov", "var_count")}
    noise = noisy.cross * replace(first, **raised).noise_with(replace(second, **raised))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.nan_to_num(noise / (a.count * b.count) / np.sqrt(a.variance * b.variance), posinf=0.0, neginf=0.0)
        value = _axis(noisy.rates, -2) / _axis(noisy.rates, -3)
    r = np.clip(r, -1, 1)
    lower = _root(a.rate, b.rate, a.rate - a.lower, b.upper - b.rate, r, upper=False)
    upper = _root(a.rate, b.rate, a.upper - a.rate, b.rate - b.lower, r, upper=True)
    known = ~np.isnan(a.rate) & ~np.isnan(b.rate)
    # Noise may take the bounds of unclipped rates past the ratio of clipped ones; fmin and fmax pass over 0 / 0.
    lower, upper = np.fmin(lower, value), np.fmax(upper, value)
    return np.where(known, value, np.nan), np.where(known, lower, 0.0), np.where(known, upper, np.inf)


def _axis(values: Array, axis: int) -> Array:
    """(..., G, K) as one side of all pairs."""
    return np.expand_dims(values, axis)


def _taken(side: Side, axis: int) -> Side:
    return Side(*(_axis(one, axis) for one in (side.rate, side.lower, side.upper, side.variance, side.count)))


def _root(p: Array, q: Array, a: Array, b: Array, r: Array, *, upper: bool) -> Array:
    r"""Where :math:`(p - \rho q)^2 = a^2 + \rho^2 b^2 - 2 \rho r a b`; infinite where q may be 0."""
    with np.errstate(invalid="ignore", divide="ignore"):  # reaches may be infinite
        square, middle, rest = q**2 - b**2, p * q - r * a * b, p**2 - a**2
        root = np.sqrt(np.maximum(middle**2 - square * rest, 0))
        if upper:
            return np.where((q > 0) & (square > 0) & (middle + root > 0), (middle + root) / square, np.inf)
        found = rest / (middle + root)  # the smaller root, whatever the sign of square
    return np.where(np.isfinite(found), np.maximum(found, 0.0), 0.0)


@dataclass(frozen=True)
class ImpactRatios:
    """Each group's rate over the reference's or the best group's, for one rate; bounds hold for all groups at once."""

    value: Array  # (..., G)
    lower: Array
    upper: Array

    @classmethod
    def of(cls, noisy: NoisyRates, reference: int | None, confidence: float) -> ImpactRatios:
        """Ratios of the only rate of ``noisy``."""
        if reference is not None:
            quantile = several_quantile(careful(confidence), max(1, noisy.counts.shape[-2] - 1))
            own = np.arange(noisy.counts.shape[-2]) == reference
            found = (one[..., reference, 0] for one in ratios(noisy, quantile))
            known = noisy.enough[..., [reference], 0]
            return cls(*(np.where(own & known, 1.0, one) for one in found))
        return cls.to_best(noisy, *best_quantiles(confidence, noisy.counts.shape[-2]))

    @classmethod
    def to_best(cls, noisy: NoisyRates, alone: float, together: float) -> ImpactRatios:
        """Smallest ratio to any group that is known: its own, 1, among them."""
        value, lower = (one[..., 0] for one in ratios(noisy, alone)[:2])
        upper = ratios(noisy, together)[2][..., 0]
        own = np.eye(value.shape[-1], dtype=bool)
        unknown = np.isnan(np.einsum("...aa->...a", value))
        low = np.where(own, 1.0, np.where(unknown[..., None, :], np.inf, lower)).min(axis=-1)
        high = np.where(own, 1.0, upper).min(axis=-1)
        best = np.nanmin(np.where(own, 1.0, value), axis=-1)
        return cls(np.where(unknown, np.nan, best), np.where(unknown, 0.0, low), np.where(unknown, 1.0, high))


def best_quantiles(confidence: float, groups: int) -> tuple[float, float]:
    """For all groups at once: of the ratio to one group, which is the best; and of those to all of them."""
    return several_quantile(careful(confidence), groups), pairs_quantile(careful(confidence), groups, 1)


def smallest_ratio_bounds(noisy: NoisyRates, reference: int | None, confidence: float) -> tuple[Array, Array]:
    """One-sided bounds of the smallest impact ratio of the only rate: at least, and at most.

    The smallest is at least the smallest lower bound of one pair, each for itself; at most the smallest upper bound of
    all pairs at once. A group that is not known leaves the first at 0.
    """
    confidence = careful(confidence)
    one = marginal_quantile(2 * confidence - 1)
    groups = noisy.counts.shape[-2]
    if reference is not None:
        others = np.arange(groups) != reference
        at_least = ratios(noisy, one)[1][..., others, reference, 0].min(axis=-1)
        several = float(norm.ppf(confidence ** (1 / max(1, groups - 1))))
        at_most = ratios(noisy, several)[2][..., others, reference, 0].min(axis=-1)
        return np.minimum(at_least, 1.0), at_most
    enough = noisy.enough[..., 0].all(axis=-1)
    at_least = ImpactRatios.to_best(noisy, one, one).lower.min(axis=-1)
    at_most = ImpactRatios.to_best(noisy, one, pairs_quantile(confidence, groups, 1)).upper.min(axis=-1)
    return np.where(enough, at_least, 0.0), at_most


def p_value(z: Array) -> Array:
    """Two-sided."""
    found: Array = 2 * norm.sf(np.abs(z))
    return found


def significant(confidence: float) -> float:
    """|z| above which a difference is called significant: 1.96 at 0.95."""
    return marginal_quantile(confidence) if confidence < 1 else math.inf
