r"""Confidence bounds for rates, gaps and violations of which only noisy counts are known.

What is estimated is a fact about the population that the measured rows were drawn from: the rate
:math:`p_a = P(h = 1 \mid \text{event}, A = a)`. A noisy answer differs from it by two errors, and every bound covers
both: the rows are a sample, and the counts carry Gaussian noise of a known covariance.

* A rate: all p for which the noisy sum :math:`\hat S - p \hat N` is within c standard deviations of 0,

  .. math:: (\hat S - p \hat N)^2 \le c^2 \left(\hat N p (1 - p) + \mathrm{Var}[\xi_S - p\, \xi_N]\right),

  a quadratic in p. Without noise it is Wilson's interval; without sampling error it is Fieller's for a ratio. The
  sampling variance is larger where persons have several rows (:class:`Repeats`).
* A difference of two rates, or of a rate and the population's: the half-widths of both bounds, squared and added, less
  their correlation (Zou and Donner 2008). Here noisy rates and their bounds may leave [0, 1]: noise takes a rate of 1
  to 1.1 as often as to 0.9, and a clipped rate would be too low on average, with no half-width above it. Only the
  bounds of the difference are clipped.
* The largest of several differences: see :meth:`NoisyRates.largest_difference`.

Everything here is computed from noisy answers and public numbers, and works on any number of them at once: leading axes
are kept. Letters: G groups, K rates, m public cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.metrics.quantiles import (
    Array,
    normal_quantile,
    sidak_quantile,
    tukey_quantile,
    upper_bound_quantile,
)

NOT_ENOUGH = "not enough evidence"
#: A noisy count below this many standard deviations of its noise is no evidence: an empty group exceeds it once in 740.
EVIDENCE = 3.0
#: A group's variance of a numeric value is taken to be at least this share of that of all rows: noisy sums of squares
#: may come out too small.
LEAST_VARIANCE = 1 / 4
#: How often the upper bound of a largest difference is tightened.
ITERATIONS = 6


@dataclass(frozen=True)
class Interval:
    """A noisy value between its two-sided bounds; the value is NaN if too few groups have enough evidence."""

    estimate: float
    lower: float
    upper: float

    @property
    def width(self) -> float:
        """Upper minus lower bound."""
        return self.upper - self.lower

    def __str__(self) -> str:
        return self.text(3)

    def text(self, decimals: int) -> str:
        """Value and bounds with so many decimals."""
        if math.isnan(self.estimate):
            return NOT_ENOUGH
        return f"{self.estimate:.{decimals}f} [{self.lower:.{decimals}f}, {self.upper:.{decimals}f}]"

    def to_dict(self) -> dict[str, float | None]:
        """Plain data."""
        return {name: json_number(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Verdict:
    """Whether a number is below a threshold, as far as its noisy bounds show.

    Attributes
    ----------
    answer : {"below", "above", "not enough evidence"}
    threshold, confidence : float
    at_least, at_most : float
        The one-sided bounds that were compared with the threshold.
    subject : str
        What the number is called.
    unknown : tuple of str
        Groups that nothing is known about: they rule out "below".
    largest : float
        What the number cannot exceed.
    """

    answer: str
    threshold: float
    confidence: float
    at_least: float
    at_most: float
    subject: str
    unknown: tuple[str, ...] = ()
    largest: float = 1.0

    @property
    def sentence(self) -> str:
        """The answer with the bound that it rests on."""
        sure = f"at {self.confidence:.4g} confidence"
        least, most = format_bound(self.at_least, self.threshold), format_bound(self.at_most, self.threshold)
        if self.answer == "below":
            return f"{self.subject}: below {self.threshold:g} {sure}; the one-sided upper bound is {most}."
        if self.answer == "above":
            return f"{self.subject}: above {self.threshold:g} {sure}; the lower bound is {least}."
        doubt = f"{self.subject}: {NOT_ENOUGH} {sure} to call it below or above {self.threshold:g}"
        if self.at_least <= 0 and self.at_most >= self.largest:
            return f"{doubt}, or to bound it."
        among = f" among the groups that are known, not {', '.join(self.unknown)}" if self.unknown else ""
        return f"{doubt}; it is between {least} and {most}, each bound for itself{among}."

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "answer": self.answer,
            "threshold": self.threshold,
            "at_least": json_number(self.at_least),
            "at_most": json_number(self.at_most),
            "sentence": self.sentence,
        }


def format_bound(bound: float, limit: float) -> str:
    """A bound with three decimals, or as many more as show on which side of a limit it is."""
    for digits in range(3, 9):
        text = f"{bound:.{digits}f}"
        if (float(text) < limit, float(text) > limit) == (bound < limit, bound > limit):
            return text
    return f"{bound:.3f}"


def json_number(value: Any) -> Any:
    """A number, or None for one that JSON does not have: NaN and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines of a table as plain data, index included."""
    lines = table.reset_index().to_dict("records")
    return [{str(key): json_number(value) for key, value in line.items()} for line in lines]


@dataclass(frozen=True, eq=False)
class Repeats:
    r"""Numbers of rows per person in one event, and the design effect that follows from them.

    Rows of one person are not independent. With :math:`m_i` rows of person i, the variance of a sum over rows is at
    most :math:`D = \sum_i m_i^2 / \sum_i m_i` times that of as many independent rows (Kish 1965); it is that large
    where all rows of a person are alike. Which persons are in a group is private, so D of a group is not known. Its
    largest possible value is: a group of n rows has at most the D of the n rows whose persons have the most rows. That
    is a public function of n, evaluated at the noisy count. If the rows of a person are independent of each other,
    bounds with D in them are wider than necessary.

    Attributes
    ----------
    rows, squares : arrays, increasing from 0
        Number of rows of the first persons, those with the most rows first, and sum of their squared numbers of rows,
        where the number of rows of a person changes. Between two of these places both grow linearly.
    """

    rows: Array
    squares: Array

    @classmethod
    def from_codes(cls, codes: NDArray[np.int64]) -> Repeats:
        """From the public number of the person of every row in the event."""
        sizes = np.bincount(codes)
        values, times = np.unique(sizes[sizes > 0], return_counts=True)
        each, persons = values[::-1].astype(float), times[::-1].astype(float)
        rows, squares = np.cumsum(persons * each), np.cumsum(persons * each**2)
        return cls(np.concatenate([[0.0], rows]), np.concatenate([[0.0], squares]))

    def design_effect(self, counts: Array) -> Array:
        """Largest possible D of so many rows, at least 1; NaN stays NaN."""
        n = np.clip(counts, 1.0, max(1.0, float(self.rows[-1])))
        found: Array = np.maximum(np.interp(n, self.rows, self.squares) / n, 1.0)
        return np.where(np.isnan(counts), np.nan, found)


@dataclass(frozen=True)
class SecondMoments:
    """Noisy sums of squared distances from the public mean: they give the variance of a numeric value by group.

    Attributes
    ----------
    sums : array of shape (..., G, K)
    variance : array of shape (..., 1, K)
        Of the noise of a sum.
    total : array of shape (..., 1, K)
        Public sum over all rows.
    """

    sums: Array
    variance: Array
    total: Array


@dataclass(frozen=True)
class NoisyRates:
    """Noisy counts and sums by group, with the covariance of their noise.

    A mean of numbers between 0 and 1 is a rate, too. Its variance is smaller than that of a decision of the same rate,
    p (1 - p), and ``second`` says by how much.

    Parameters
    ----------
    counts, sums : arrays of shape (..., G, K)
        Noisy number of rows of group a in the event of rate k, and noisy sum of h over them.
    var_sum, cov, var_count : arrays of shape (..., 1, K)
        Variance of the noise of a sum, its covariance with that of the count, variance of that of the count.
    cross : float
        Covariance of the noise of two groups, as a multiple of that within one.
    population : array of shape (..., 1, K)
        Public number of rows in each event.
    overall : array of shape (..., 1, K)
        Public rate of all of them.
    repeats, rest_repeats : tuple of K Repeats, optional
        Rows of each event by person: those that may be counted in a group, and all of them. Without them rows are
        independent.
    second : SecondMoments, optional
        Of numbers; without them h is 0 or 1.
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
    second: SecondMoments | None = None

    def select(self, rates: Sequence[int]) -> NoisyRates:
        """These rates alone, in this order."""
        taken: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                taken[field.name] = value[..., list(rates)]
            elif isinstance(value, tuple):
                taken[field.name] = tuple(value[k] for k in rates)
            elif isinstance(value, SecondMoments):
                taken[field.name] = SecondMoments(*(one[..., list(rates)] for one in vars(value).values()))
        return replace(self, **taken)

    def take(self, groups: Any) -> NoisyRates:
        """The same rates of these groups, by their places; a group may occur more than once."""
        second = self.second and replace(self.second, sums=self.second.sums[..., groups, :])
        return replace(self, counts=self.counts[..., groups, :], sums=self.sums[..., groups, :], second=second)

    @property
    def rest(self) -> NoisyRates:
        """The same rates of all rows that are not in the group; those without a group are among them."""
        n0 = self.population
        second = self.second and replace(self.second, sums=self.second.total - self.second.sums)
        return replace(
            self,
            counts=n0 - self.counts,
            sums=n0 * self.overall - self.sums,
            repeats=self.rest_repeats,
            second=second,
        )

    @property
    def complement(self) -> NoisyRates:
        """The rates of the opposite decision: 1 - rate, from the same answer."""
        return replace(
            self,
            sums=self.counts - self.sums,
            var_sum=self.var_count + self.var_sum - 2 * self.cov,
            cov=self.var_count - self.cov,
            overall=1 - self.overall,
        )

    @property
    def enough(self) -> NDArray[np.bool_]:
        """Where the noisy count is clearly above 0, (..., G, K)."""
        return (self.counts > EVIDENCE * np.sqrt(self.var_count)) & (self.counts > 0)

    @property
    def known_counts(self) -> Array:
        """Noisy counts, (..., G, K); NaN without enough evidence."""
        return np.where(self.enough, self.counts, np.nan)

    @property
    def effective_counts(self) -> Array:
        """How many independent rows have the sampling error of the known counts, (..., G, K)."""
        n = self.known_counts
        if self.repeats is None:
            return n
        return n / np.stack([one.design_effect(n[..., k]) for k, one in enumerate(self.repeats)], axis=-1)

    @property
    def decision_counts(self) -> Array:
        """How many independent decisions of the same rate have the sampling error of these values, (..., G, K)."""
        return self.effective_counts if self.second is None else self.effective_counts / self.dispersion

    @property
    def dispersion(self) -> Array:
        """Variance of one value over that of a decision of the same rate, p (1 - p), (..., G, K); at most 1.

        The variance is estimated from noisy sums of squares. One standard deviation of their noise is added, so that
        it is rarely too small; it is at least a quarter of that of all rows, and at most p (1 - p), which no
        distribution on [0, 1] exceeds (Bhatia and Davis 2000).
        """
        if self.second is None:
            return np.ones_like(self.counts)
        n, p = self.known_counts, self.rates
        most = p * (1 - p)
        estimate = (self.second.sums + np.sqrt(self.second.variance)) / n - (p - self.overall) ** 2
        least = LEAST_VARIANCE * self.second.total / self.population
        found: Array = np.minimum(np.maximum(estimate, least), most) / np.where(most > 0, most, 1)
        return np.where(most > 0, found, 1.0)

    @property
    def rates(self) -> Array:
        """Noisy rates between 0 and 1, (..., G, K); NaN without enough evidence."""
        return np.clip(self.sums / self.known_counts, 0, 1)

    @property
    def variance(self) -> Array:
        """Estimated variance of each rate, sampling and noise, (..., G, K)."""
        p = self.rates
        return p * (1 - p) / self.decision_counts + self.noise_covariance(p, p) / self.known_counts**2

    def noise_covariance(self, p: Array, q: Array) -> Array:
        """Covariance of the noise of a sum less p times its count and that less q times it, (..., G, K)."""
        return self.var_sum - (p + q) * self.cov + p * q * self.var_count

    def interval(self, quantile: float | Array) -> tuple[Array, Array]:
        """Lower and upper bound of each rate, (..., G, K); 0 and 1 without enough evidence."""
        # A sum outside its range counts as the nearest possible one: the interval is wider, and never empty.
        lower, upper = self._roots(np.clip(self.sums, 0, self.known_counts), quantile, sampling=True)
        return np.clip(np.nan_to_num(lower, nan=0.0), 0, 1), np.clip(np.nan_to_num(upper, nan=1.0), 0, 1)

    def unclipped(self, quantile: float | Array) -> UnclippedRates:
        """Each rate with its bounds, none of them clipped to [0, 1]; infinite bounds where any rate is possible.

        Between 0 and 1 a rate has sampling error and noise, outside it noise alone.
        """
        noise = self._roots(self.sums, quantile, sampling=False)
        both = self._roots(self.sums, quantile, sampling=True)
        lower, upper = (np.where((one >= 0) & (one <= 1), one, other) for one, other in zip(both, noise, strict=True))
        n = self.known_counts
        rate = self.sums / n
        return UnclippedRates(rate, np.minimum(lower, rate), np.maximum(upper, rate), self.variance, n)

    def _roots(self, sums: Array, quantile: float | Array, *, sampling: bool) -> tuple[Array, Array]:
        """Smallest and largest p within so many standard deviations; infinite where these are no bounds."""
        n, square = self.known_counts, quantile**2
        # Variance of a sum, over p (1 - p).
        sampled = n**2 / self.decision_counts if sampling else np.zeros_like(n)
        a = n**2 + square * (sampled - self.var_count)
        b = n * sums + square * (sampled / 2 - self.cov)
        c = sums**2 - square * self.var_sum
        root = np.sqrt(np.maximum(b**2 - a * c, 0))
        divisor = np.where(a > 0, a, 1)
        unknown = np.where(np.isnan(n), np.nan, np.inf)
        return np.where(a > 0, (b - root) / divisor, -unknown), np.where(a > 0, (b + root) / divisor, unknown)

    def gaps(self, quantile: float) -> tuple[Array, Array, Array]:
        r"""Each rate minus the population's, with bounds, (..., G, K); NaN without enough evidence.

        With the share :math:`\pi_a` of the group, :math:`p_a - p = (1 - \pi_a) (p_a - p_{\text{rest}})`: the group and
        the rest of the population are two disjoint samples, which the group and the population are not.
        """
        n0, share = self.population, self.known_counts / self.population
        rest = self.rest
        effect = self.known_counts / self.effective_counts
        stddev = np.sqrt(effect * np.maximum(share * (1 - share), 0) / n0 + self.var_count / n0**2)
        noise = -self.noise_covariance(self.rates, rest.rates)
        value, low, high = _subtract(self.unclipped(quantile), rest.unclipped(quantile), noise)
        left = np.clip(1 - share, 0, 1)
        # The rest of a group that has nearly all rows may be unknown; it cannot weigh more than this.
        most = np.clip(left + quantile * stddev, 0, 1)
        with np.errstate(invalid="ignore"):  # 0 times an infinite bound where no rows are left
            low, high = widen(left * value, left * low, left * high, quantile * value * stddev)
        low, high = np.where(rest.enough, low, -most), np.where(rest.enough, high, most)
        return _clip_around(self.rates - self.overall, low, high)

    def differences(self, quantile: float | Array) -> tuple[Array, Array, Array]:
        """Rate of a minus rate of b for all pairs a < b, with bounds, (..., pairs, K); NaN without enough evidence."""
        first, second = (self.take(side) for side in np.triu_indices(self.counts.shape[-2], 1))
        return difference(first, second, self.cross, quantile)

    def simultaneous_quantile(self, compared: str, confidence: float) -> float:
        """Quantile of all gaps ("to_overall") or of all differences ("between_groups") at once."""
        groups, rates = self.counts.shape[-2:]
        if compared == "between_groups":
            return tukey_quantile(confidence, groups, rates)
        return sidak_quantile(confidence, groups * rates)

    def largest_difference(self, compared: str, confidence: float) -> tuple[Array, Array, Array]:
        r"""Largest absolute gap or difference over groups and rates, with bounds; NaN, 0, 1 if nothing is known.

        The upper bound is the largest upper bound of one pair, each for itself: it has to hold for the one pair that
        attains the maximum only, so it needs no correction for their number. The lower bound is the largest
        distance from 0 of the *simultaneous* bounds. The upper bound can fail only where the maximum exceeds its
        own half-width, and there the lower bound can fail on one side only; so at most ``1 - confidence`` in all.
        The upper bound of differences between groups is then tightened
        (:func:`~justitia.metrics.quantiles.upper_bound_quantile`).

        Parameters
        ----------
        compared : {"between_groups", "to_overall"}
        """
        alone, together = normal_quantile(confidence), self.simultaneous_quantile(compared, confidence)
        bounds = self.differences if compared == "between_groups" else self.gaps
        value, low, high = bounds(alone)
        _, low_all, high_all = bounds(together)
        lower = _max_known(np.maximum(np.maximum(low_all, -high_all), 0), 0.0)
        if compared == "between_groups":
            # Lower bounds of other rates may fail as well, each with its share.
            error = (1 - confidence) / self.counts.shape[-1]
            upper = self._tightened_upper_bound(error=error, at_most=alone, lower_quantile=together)
        else:
            upper = _max_size(low, high)
        return _max_known(np.abs(value), np.nan), lower, upper

    def largest_difference_at_most(self, confidence: float) -> Array:
        """One-sided upper bound of the largest difference between groups."""
        return self._tightened_upper_bound(error=1 - confidence, at_most=normal_quantile(2 * confidence - 1))

    def _tightened_upper_bound(self, *, at_most: float, **shared: float) -> Array:
        """Upper bound of the largest difference: of each rate, step by step, with the last bound for the truth."""
        found = []
        for one in (self.select([k]) for k in range(self.counts.shape[-1])):
            p = one.rates
            noise = (np.sqrt(np.maximum(one.noise_covariance(p, p), 0)) / one.known_counts)[..., 0]
            # Of the errors of the rates of all groups; NaN on the diagonal without enough evidence.
            covariance: Array = one.cross * noise[..., :, None] * noise[..., None, :]
            own = np.arange(noise.shape[-1])
            covariance[..., own, own] = one.variance[..., 0]
            covariance = covariance.reshape(-1, *covariance.shape[-2:])
            quantile: Array = np.full(self.counts.shape[:-2], at_most)
            for _ in range(ITERATIONS):
                upper = _max_size(*one.differences(quantile[..., None, None])[1:])
                z = upper_bound_quantile(upper.ravel(), covariance, at_most=at_most, **shared)
                quantile = np.minimum(quantile, z.reshape(quantile.shape))
            found.append(_max_size(*one.differences(quantile[..., None, None])[1:]))
        bound: Array = np.max(found, axis=0)
        return bound


@dataclass(frozen=True)
class UnclippedRates:
    """Rates and bounds, which may leave [0, 1], with their variances and noisy counts."""

    rate: Array
    lower: Array
    upper: Array
    variance: Array
    count: Array


def difference(
    first: NoisyRates, second: NoisyRates, cross: float, quantile: float | Array
) -> tuple[Array, Array, Array]:
    """Rate of one group minus that of another, with bounds; ``cross`` is as in :class:`NoisyRates`, for these two."""
    noise = cross * first.noise_covariance(first.rates, second.rates)
    _, low, high = _subtract(first.unclipped(quantile), second.unclipped(quantile), noise)
    return _clip_around(first.rates - second.rates, low, high)


def _subtract(a: UnclippedRates, b: UnclippedRates, noise: Array) -> tuple[Array, Array, Array]:
    """Difference of two rates with bounds; ``noise`` is the covariance of their noise times both counts."""
    r, value = correlation(a, b, noise), a.rate - b.rate
    return (
        value,
        value - combined_half_width(a.rate - a.lower, b.upper - b.rate, r),
        value + combined_half_width(a.upper - a.rate, b.rate - b.lower, r),
    )


def correlation(a: UnclippedRates, b: UnclippedRates, noise: Array) -> Array:
    """Correlation of the errors of two rates; ``noise`` is the covariance of their noise times both counts."""
    with np.errstate(invalid="ignore", divide="ignore"):  # rates without any variance are not correlated
        r = noise / (a.count * b.count) / np.sqrt(a.variance * b.variance)
    return np.clip(np.nan_to_num(r, posinf=0.0, neginf=0.0), -1, 1)


def combined_half_width(first: Array, second: Array, r: Array | float = 0.0) -> Array:
    """Half-width of a difference from those of both terms, which are correlated by r; infinite if one of them is."""
    with np.errstate(invalid="ignore"):
        found = np.sqrt(np.maximum(first**2 + second**2 - 2 * r * first * second, 0))
    return np.where(np.isinf(first) | np.isinf(second), np.inf, found)


def widen(value: Array, low: Array, high: Array, half_width: Array) -> tuple[Array, Array]:
    """Both bounds, moved away from the value by one more independent error."""
    return value - combined_half_width(value - low, half_width), value + combined_half_width(high - value, half_width)


def _clip_around(value: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """A difference of clipped rates with its bounds, which are clipped and contain it."""
    return value, np.minimum(value, np.clip(low, -1, 1)), np.maximum(value, np.clip(high, -1, 1))


def _max_size(low: Array, high: Array) -> Array:
    """Largest absolute number in an interval over the last two axes."""
    return _max_known(np.maximum(np.abs(low), np.abs(high)), 1.0)


def _max_known(values: Array, unknown: float) -> Array:
    """Largest number over the last two axes, ``unknown`` where there is none."""
    known = np.where(np.isnan(values), -1.0, values).max(axis=(-2, -1))
    return np.where(known < 0, unknown, known)
