r"""Confidence bounds for rates, gaps and violations of which only noisy counts are known.

What is estimated is a fact about the population that the measured people were drawn from: the rate
:math:`p_a = P(h = 1 \mid \text{event}, A = a)`. Two errors stand between a noisy answer and it, and every bound holds
both: the people are a sample, and the counts carry Gaussian noise of a known covariance.

* A rate: all p for which the noisy sum :math:`\hat S - p \hat N` is within c standard deviations of 0,

  .. math:: (\hat S - p \hat N)^2 \le c^2 \left(\hat N p (1 - p) + \mathrm{Var}[\xi_S - p\, \xi_N]\right),

  a quadratic in p. Without noise it is Wilson's interval; without sampling error it is Fieller's for a ratio. The
  sampling variance is larger where persons have several rows (:mod:`justitia.metrics.repeats`).
* A difference of two rates, or of a rate and the population's: the reaches of both bounds, squared and added, less
  their correlation (Zou and Donner 2008). Here noisy rates and their bounds may leave [0, 1]: noise takes a rate of 1
  to 1.1 as often as to 0.9, and a clipped rate would be too low on average, with no reach above it. Only the bounds of
  the difference are clipped.
* The largest of several differences: see :meth:`NoisyRates.largest`.

Everything here is computed from noisy answers and public numbers, and works on any number of them at once: leading axes
are kept. Letters: G groups, K rates, m public cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, studentized_range

from justitia.metrics.repeats import Repeats
from justitia.metrics.upper_bound import upper_quantile

Array = NDArray[np.float64]

#: A noisy count below this many standard deviations of its noise says nothing: an empty group gets past it once in 740.
EVIDENCE = 3.0
#: How often the upper bound of a largest difference is drawn nearer.
REACHES = 6


def marginal_quantile(confidence: float) -> float:
    """Two-sided normal quantile of one bound: 1.96 for 0.95."""
    return float(norm.ppf((1 + confidence) / 2))


def several_quantile(confidence: float, intervals: int) -> float:
    """Two-sided quantile for several normal errors at once, whatever their correlation (Sidak 1967)."""
    return marginal_quantile(confidence ** (1 / intervals))


@cache
def pairs_quantile(confidence: float, groups: int, rates: int) -> float:
    """Quantile for all differences between groups at once (Tukey), and that for each of ``rates`` rates (Sidak)."""
    return float(studentized_range.ppf(confidence ** (1 / rates), groups, math.inf)) / math.sqrt(2)


@dataclass(frozen=True)
class NoisyRates:
    """Noisy counts and sums by group, with the covariance of their noise.

    Parameters
    ----------
    counts, sums : arrays of shape (..., G, K)
        Noisy number of people of group a in the event of rate k, and noisy sum of h over them.
    var_sum, cov, var_count : arrays of shape (..., 1, K)
        Variance of the noise of a sum, its covariance with that of the count, variance of that of the count.
    cross : float
        Covariance of the noise of two groups, as a multiple of that within one.
    population : array of shape (..., 1, K)
        Public number of people in each event.
    overall : array of shape (..., 1, K)
        Public rate of all of them.
    repeats, rest_repeats : tuple of K Repeats, optional
        Rows of each event by person: those that groups may hold, and all of them. Without them rows are independent.
    """

    counts: Array
    sums: Array
    var_sum: Array
    cov: Array
    var_count: Array
    cross: float
    population: Array
    overall: Array
    repeats: tuple[Repeats, ...] | None = None
    rest_repeats: tuple[Repeats, ...] | None = None

    def only(self, rates: Sequence[int]) -> NoisyRates:
        """These rates alone, in this order."""
        arrays = [one.name for one in fields(self) if isinstance(getattr(self, one.name), np.ndarray)]
        taken: dict[str, Any] = {name: getattr(self, name)[..., list(rates)] for name in arrays}
        for name in ("repeats", "rest_repeats"):
            known = getattr(self, name)
            taken[name] = None if known is None else tuple(known[k] for k in rates)
        return replace(self, **taken)

    @property
    def rest(self) -> NoisyRates:
        """The same rates of everybody who is not in the group; those without a group are among them."""
        n0 = self.population
        return replace(self, counts=n0 - self.counts, sums=n0 * self.overall - self.sums, repeats=self.rest_repeats)

    @property
    def independent(self) -> Array:
        """How many independent rows have the sampling error of the known counts, (..., G, K)."""
        n = self.known_counts
        if self.repeats is None:
            return n
        return n / np.stack([one.design_effect(n[..., k]) for k, one in enumerate(self.repeats)], axis=-1)

    @property
    def enough(self) -> NDArray[np.bool_]:
        """Where the noisy count is clearly above 0, (..., G, K)."""
        return (self.counts > EVIDENCE * np.sqrt(self.var_count)) & (self.counts > 0)

    @property
    def rates(self) -> Array:
        """Noisy rates between 0 and 1, (..., G, K); NaN without enough evidence."""
        return np.clip(self.sums / self.known_counts, 0, 1)

    @property
    def known_counts(self) -> Array:
        """Noisy counts, (..., G, K); NaN without enough evidence."""
        return np.where(self.enough, self.counts, np.nan)

    @property
    def variance(self) -> Array:
        """Estimated variance of each rate, sampling and noise, (..., G, K)."""
        p, n = self.rates, self.known_counts
        return p * (1 - p) / self.independent + self.noise_at(p) / n**2

    def noise_at(self, p: Array) -> Array:
        """Variance of the noise of a sum less p times its count, (..., G, K)."""
        return self.var_sum - 2 * p * self.cov + p**2 * self.var_count

    def interval(self, quantile: float | Array) -> tuple[Array, Array]:
        """Lower and upper bound of each rate, (..., G, K); 0 and 1 without enough evidence."""
        # A sum outside its range counts as the nearest possible one: the interval is wider, and never empty.
        lower, upper = self._roots(np.clip(self.sums, 0, self.known_counts), quantile, sampling=True)
        return np.clip(np.nan_to_num(lower, nan=0.0), 0, 1), np.clip(np.nan_to_num(upper, nan=1.0), 0, 1)

    def unclipped(self, quantile: float | Array) -> Side:
        """Each rate with its bounds, none of them clipped to [0, 1]; infinite bounds where any rate is possible.

        Between 0 and 1 a rate has sampling error and noise, outside it noise alone.
        """
        noise = self._roots(self.sums, quantile, sampling=False)
        both = self._roots(self.sums, quantile, sampling=True)
        lower, upper = (np.where((one >= 0) & (one <= 1), one, other) for one, other in zip(both, noise, strict=True))
        n = self.known_counts
        rate = self.sums / n
        return Side(rate, np.minimum(lower, rate), np.maximum(upper, rate), self.variance, n)

    def _roots(self, sums: Array, quantile: float | Array, *, sampling: bool) -> tuple[Array, Array]:
        """Smallest and largest p within so many standard deviations; infinite where these are no bounds."""
        n, square = self.known_counts, quantile**2
        people = n**2 / self.independent if sampling else np.zeros_like(n)  # variance of a sum, over p (1 - p)
        a = n**2 + square * (people - self.var_count)
        b = n * sums + square * (people / 2 - self.cov)
        c = sums**2 - square * self.var_sum
        root = np.sqrt(np.maximum(b**2 - a * c, 0))
        divisor = np.where(a > 0, a, 1)
        unknown = np.where(np.isnan(n), np.nan, np.inf)
        return np.where(a > 0, (b - root) / divisor, -unknown), np.where(a > 0, (b + root) / divisor, unknown)

    def gaps(self, quantile: float) -> tuple[Array, Array, Array]:
        r"""Each rate minus the population's, with bounds, (..., G, K); NaN without enough evidence.

        With the share :math:`\pi_a` of the group, :math:`p_a - p = (1 - \pi_a) (p_a - p_{\text{rest}})`: the group and
        the rest of the population are two samples of different people, which the group and the population are not.
        """
        n0, share = self.population, self.known_counts / self.population
        rest = self.rest
        effect = self.known_counts / self.independent
        spread = np.sqrt(effect * np.maximum(share * (1 - share), 0) / n0 + self.var_count / n0**2)
        value, low, high = minus(self.unclipped(quantile), rest.unclipped(quantile), -self.noise_with(rest))
        left = np.clip(1 - share, 0, 1)
        # What lies outside a group that is nearly everybody may be unknown; it cannot weigh more than this.
        most = np.clip(left + quantile * spread, 0, 1)
        with np.errstate(invalid="ignore"):  # nothing is left of an infinite bound where the rest is nobody
            low, high = wider(left * value, left * low, left * high, quantile * value * spread)
        low, high = np.where(rest.enough, low, -most), np.where(rest.enough, high, most)
        gap = self.rates - self.overall
        return gap, np.minimum(gap, np.clip(low, -1, 1)), np.maximum(gap, np.clip(high, -1, 1))

    def noise_with(self, other: NoisyRates) -> Array:
        """Covariance of the noise of two rates, if it were the same in both, times their counts."""
        p, q = self.rates, other.rates
        return self.var_sum - (p + q) * self.cov + p * q * self.var_count

    def differences(self, quantile: float | Array) -> tuple[Array, Array, Array]:
        """Rate of a minus rate of b for all pairs a < b, with bounds, (..., pairs, K); NaN without enough evidence."""
        first, second = (
            replace(self, counts=self.counts[..., side, :], sums=self.sums[..., side, :])
            for side in np.triu_indices(self.counts.shape[-2], 1)
        )
        noise = self.cross * first.noise_with(second)
        _, low, high = minus(first.unclipped(quantile), second.unclipped(quantile), noise)
        return around(first.rates - second.rates, low, high)

    def largest(self, compared: str, confidence: float) -> tuple[Array, Array, Array]:
        r"""Largest absolute gap or difference over groups and rates, with bounds; NaN, 0, 1 if nothing is known.

        The upper bound is the largest upper bound of one pair, each for itself: it has to hold for the one pair that
        attains the maximum only, so it needs no correction for their number. The lower bound is the largest
        distance from 0 of the *simultaneous* bounds. The upper bound can fail only where the maximum is beyond its
        own reach of 0, and there the lower bound can fail on one side only; so at most ``1 - confidence`` in all.
        The upper bound of differences between groups is then drawn nearer (:mod:`justitia.metrics.upper_bound`).

        Parameters
        ----------
        compared : {"between_groups", "to_overall"}
        """
        alone, together = self.quantiles(compared, confidence)
        bounds = self.differences if compared == "between_groups" else self.gaps
        value, low, high = bounds(alone)
        _, low_all, high_all = bounds(together)
        lower, upper = _most(np.maximum(np.maximum(low_all, -high_all), 0), 0.0), _largest_size(low, high)
        if compared == "between_groups":
            # Lower bounds of other rates may fail as well, each with its share.
            wrong = (1 - confidence) / self.counts.shape[-1]
            upper = self._nearer(wrong=wrong, most=alone, below=together)
        return _most(np.abs(value), np.nan), lower, upper

    def largest_at_most(self, confidence: float) -> Array:
        """One-sided upper bound of the largest difference between groups."""
        return self._nearer(wrong=1 - confidence, most=marginal_quantile(2 * confidence - 1))

    def _nearer(self, *, most: float, **shared: float) -> Array:
        """Upper bound of the largest difference: of each rate, round by round, with the last bound for the truth."""
        found = []
        for one in (self.only([k]) for k in range(self.counts.shape[-1])):
            quantile: Array = np.full(self.counts.shape[:-2], most)
            for _ in range(REACHES):
                upper = _largest_size(*one.differences(quantile[..., None, None])[1:])
                z = upper_quantile(upper.ravel(), one._covariance(), most=most, **shared)
                quantile = np.minimum(quantile, z.reshape(quantile.shape))
            found.append(_largest_size(*one.differences(quantile[..., None, None])[1:]))
        bound: Array = np.max(found, axis=0)
        return bound

    def _covariance(self) -> Array:
        """(N, G, G): of the errors of one rate of every group; NaN on the diagonal without enough evidence."""
        noise = (np.sqrt(np.maximum(self.noise_at(self.rates), 0)) / self.known_counts)[..., 0]
        between: Array = self.cross * noise[..., :, None] * noise[..., None, :]
        own = np.arange(noise.shape[-1])
        between[..., own, own] = self.variance[..., 0]
        return between.reshape(-1, *between.shape[-2:])

    def quantiles(self, compared: str, confidence: float) -> tuple[float, float]:
        """Quantile of one gap or difference, and of all of them at once."""
        groups, rates = self.counts.shape[-2:]
        if compared == "between_groups":
            return marginal_quantile(confidence), pairs_quantile(confidence, groups, rates)
        return marginal_quantile(confidence), several_quantile(confidence, groups * rates)


@dataclass(frozen=True)
class Side:
    """One of two rates to subtract: its value and bounds, which may leave [0, 1], its variance and its noisy count."""

    rate: Array
    lower: Array
    upper: Array
    variance: Array
    count: Array


def minus(a: Side, b: Side, noise: Array) -> tuple[Array, Array, Array]:
    """Difference of two rates with bounds; ``noise`` is the covariance of their noise times both counts."""
    with np.errstate(invalid="ignore", divide="ignore"):  # rates without any variance are not correlated
        r = noise / (a.count * b.count) / np.sqrt(a.variance * b.variance)
    r = np.clip(np.nan_to_num(r, posinf=0.0, neginf=0.0), -1, 1)
    value = a.rate - b.rate
    return (
        value,
        value - added(a.rate - a.lower, b.upper - b.rate, r),
        value + added(a.upper - a.rate, b.rate - b.lower, r),
    )


def around(value: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """A difference of clipped rates with its bounds, which are clipped and hold it."""
    return value, np.minimum(value, np.clip(low, -1, 1)), np.maximum(value, np.clip(high, -1, 1))


def added(first: Array, second: Array, r: Array | float = 0.0) -> Array:
    """Reach of a difference from the reaches of both, which are correlated by r; infinite if one of them is."""
    with np.errstate(invalid="ignore"):
        found = np.sqrt(np.maximum(first**2 + second**2 - 2 * r * first * second, 0))
    return np.where(np.isinf(first) | np.isinf(second), np.inf, found)


def wider(value: Array, low: Array, high: Array, by: Array) -> tuple[Array, Array]:
    """Both bounds, moved away from the value by one more independent error."""
    return value - added(value - low, by), value + added(high - value, by)


def _largest_size(low: Array, high: Array) -> Array:
    """Largest absolute number in an interval over the last two axes."""
    return _most(np.maximum(np.abs(low), np.abs(high)), 1.0)


def _most(values: Array, unknown: float) -> Array:
    """Largest number over the last two axes, ``unknown`` where there is none."""
    known = np.where(np.isnan(values), -1.0, values).max(axis=(-2, -1))
    return np.where(known < 0, unknown, known)
