r"""Score metrics of which only noisy counts by bin are known: AUC, Kolmogorov-Smirnov distance, means, calibration.

All come from the one noisy answer: :math:`\hat n_{a,j}`, people of group a in column j of (bin, label, decision), and
the noisy sum of what bins leave out.

* Binned AUC: how often the positive one of two people of either label is in the higher bin, where the same bin counts
  one half: :math:`\hat p^\top K \hat q / (\hat P \hat Q)` for the counts p and q of either label by bin, where K is 1
  below the diagonal, 0 above, and one half on it. Its sampling error has Wilson's bounds, as for a share of so many
  people as would have the same variance (delta method); they are widened by the noise, which is normal whatever the
  AUC.
* AUC: how people are ranked within a bin is not measured, and may be anything. The AUC of exact scores is between that
  with zeros on the diagonal of K (the negative one always has the higher score of two in one bin) and that with ones.
* Kolmogorov-Smirnov distance: the largest difference between shares above a public cut point
  (:mod:`justitia.metrics.largest`).
* Standardised mean difference: difference of mean scores over everybody's standard deviation, which is public.

Leading axes are kept; letters as in :mod:`justitia.metrics.intervals`, and B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import norm

from justitia.metrics.impact import Compared, careful, other_side
from justitia.metrics.intervals import EVIDENCE, Array, NoisyRates, added
from justitia.metrics.largest import reaches
from justitia.metrics.rates import NoisyCells
from justitia.metrics.repeats import Repeats
from justitia.metrics.score_bins import ScoreFacts

Bounds = tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """Noisy counts by group and column of scores.

    Attributes
    ----------
    cells : NoisyCells
        (..., G, m); the columns hold everybody, once.
    facts : ScoreFacts
    rest : array of shape (..., G)
        Noisy sum of scores minus the mean of their column.
    rest_variance : float
        Of its noise.
    """

    cells: NoisyCells
    facts: ScoreFacts
    rest: Array
    rest_variance: float

    @cached_property
    def curve(self) -> NoisyRates:
        """Share above every cut point, (..., G, B - 1)."""
        value = (self.facts.bin > np.arange(len(self.facts.cuts))[:, None]).astype(float)
        return self.cells.rates(np.ones_like(value), value)

    @property
    def scoring_rate(self) -> NoisyRates:
        """Share above everybody's median, (..., G, 1)."""
        return self.curve.only([self.facts.median])

    @cached_property
    def calibration(self) -> NoisyRates:
        """Share of the positive label in every bin that somebody is in, (..., G, bins)."""
        member = (self.facts.bin == np.unique(self.facts.bin)[:, None]).astype(float)
        return self.cells.rates(member, member * self.facts.label)

    @property
    def bin_means(self) -> Array:
        """Mean score of everybody in each of these bins: public."""
        bins = np.unique(self.facts.bin)[:, None] == self.facts.bin
        weights = bins * self.cells.totals[..., None, :]
        means: Array = weights @ self.facts.mean / weights.sum(axis=-1)
        return means

    def binned_auc(self, confidence: float) -> Bounds:
        """AUC of the bins of each group, with bounds for all that are known, (..., G); else NaN, 0 and 1.

        Two people of different labels in one bin count one half.
        """
        return _Ranked.of(self.cells, self.facts, tied=0.5).bounds(confidence)

    def auc_between(self, confidence: float) -> tuple[Array, Array]:
        """Bounds of the AUC of exact scores, for all groups that are known, (..., G); else 0 and 1.

        They hold however people are ranked within a bin.
        """
        lowest, highest = (_Ranked.of(self.cells, self.facts, tied=one).bounds(confidence) for one in (0.0, 1.0))
        return lowest[1], highest[2]

    def means(self) -> tuple[Array, Array]:
        """Mean score of each group and its variance, (..., G); NaN without enough evidence."""
        return _Means.of(self, self.cells.counts, self.rest, self.cells.repeats).told

    def mean_difference(self, reference: int | None, quantile: float) -> Bounds:
        """Difference of mean scores over everybody's deviation, with bounds, (..., G); NaN where one is unknown."""
        totals = self.cells.totals[..., None, :]
        first = _Means.of(self, self.cells.counts, self.rest, self.cells.repeats)
        second = _Means.of(
            self,
            other_side(self.cells.counts, totals, reference),
            other_side(self.rest[..., None], 0.0, reference)[..., 0],
            self.cells.repeats if reference is not None else self.cells.rest_repeats,
        )
        cross = -1.0 if reference is None else self.cells.cross
        variance = first.told[1] + second.told[1] - 2 * cross * first.noise_with(second)
        itself = np.arange(self.rest.shape[-1]) == reference
        value = np.where(itself, np.nan, first.told[0] - second.told[0]) / self.facts.deviation
        half = quantile * np.sqrt(np.maximum(variance, 0)) / self.facts.deviation
        return value, value - half, value + half

    def distance(self, reference: int | None, confidence: float) -> Bounds:
        """Kolmogorov-Smirnov distance of each group, with bounds for all that are known, (..., G)."""
        compared = Compared.of(self.curve, reference)
        known: Any = compared.known.all(axis=-1)
        apart = compared.first.rates - compared.second.rates
        covariance = np.where(known[..., None, None], self._band(compared), np.nan)
        below, above = reaches(apart, covariance, _each(known, confidence))
        _, low, high = compared.differences(below[..., None])
        lower = np.maximum(np.maximum(low, -high), 0.0).max(axis=-1)
        _, low, high = compared.differences(above[..., None])
        upper = np.maximum(np.abs(low), np.abs(high)).max(axis=-1)
        value = np.where(known, np.abs(apart).max(axis=-1), np.nan)
        itself = np.where(compared.itself, np.nan, 0.0)  # a group has no distance from itself
        return value, np.where(known, lower, itself), np.where(known, upper, 1 + itself)

    def _band(self, compared: Compared) -> Array:
        """(..., G, K, K): covariance of the differences between shares above the cut points."""
        value = (self.facts.bin > np.arange(len(self.facts.cuts))[:, None]).astype(float)
        sides = (compared.first, compared.second)
        found: Any = 0.0
        rows = []
        for one in sides:
            n = np.where(one.enough, one.counts, np.nan)[..., :1]
            # Two successes and two failures more, so that no share of a few people is without variance.
            share = (np.clip(one.sums, 0, n) + 2) / (n + 4)
            joint = np.minimum(share[..., :, None], share[..., None, :])
            found = found + (joint - share[..., :, None] * share[..., None, :]) / one.independent[..., :1, None]
            rows.append((value - one.rates[..., None]) / n[..., None])
        noise = self.cells.noise[..., None, :, :]
        first, second = rows
        found = found + sum(row @ noise @ np.swapaxes(row, -1, -2) for row in rows)
        both = first @ noise @ np.swapaxes(second, -1, -2)
        total: Array = found - compared.cross * (both + np.swapaxes(both, -1, -2))
        return total


def _effect(repeats: Repeats | None, counts: Array) -> Array:
    """Design effect of so many rows."""
    return np.ones_like(counts) if repeats is None else repeats.design_effect(counts)


def _each(known: Any, confidence: float) -> Array:
    """(..., G): confidence of each bound, if those of all groups that are known are to hold at once (Sidak)."""
    times = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    return np.broadcast_to(careful(confidence) ** (1 / times), known.shape)


@dataclass(frozen=True)
class _Means:
    """Noisy mean scores of some sums over columns."""

    count: Array  # (..., G), NaN without enough evidence
    independent: Array  # independent rows that have the same sampling error
    mean: Array
    spread: Array  # variance of one person's score
    rows: Array  # (..., G, m): the mean's sensitivity to the count of each column
    noise: Array
    rest_variance: float

    @classmethod
    def of(cls, scores: NoisyScores, counts: Array, rest: Array, repeats: Repeats | None) -> _Means:
        facts, noise = scores.facts, scores.cells.noise
        n = counts.sum(axis=-1)
        enough = (n > 0) & (n > EVIDENCE * np.sqrt(noise.sum(axis=(-2, -1)))[..., None])
        n = np.where(enough, n, np.nan)
        mean = (counts @ facts.mean + rest) / n
        apart = facts.mean - mean[..., None]
        spread = ((facts.spread + apart**2) * counts).sum(axis=-1) / n
        spread = np.maximum(spread, facts.deviation**2 / 4)  # noisy counts may add up to too little
        rows, noise = apart / n[..., None], noise[..., None, :, :]
        return cls(n, n / _effect(repeats, n), mean, spread, rows, noise, scores.rest_variance)

    @property
    def told(self) -> tuple[Array, Array]:
        """Mean, and its variance."""
        return self.mean, self.spread / self.independent + self.noise_with(self)

    def noise_with(self, other: _Means) -> Array:
        """Covariance of the noise of two means, if it were the same in both."""
        of_counts = (self.rows[..., None, :] @ self.noise @ other.rows[..., :, None])[..., 0, 0]
        found: Array = of_counts + self.rest_variance / (self.count * other.count)
        return found


@dataclass(frozen=True)
class _Ranked:
    """An AUC of the bins of each group and its two errors, (..., G); NaN without enough evidence."""

    estimate: Array  # beyond 0 and 1, if noise takes it there
    sampling: Array  # variance
    noise: Array  # variance
    fewer: Array  # independent rows of the label that fewer have

    @classmethod
    def of(cls, cells: NoisyCells, facts: ScoreFacts, *, tied: float) -> _Ranked:
        """``tied``: what two people of different labels in one bin count."""
        bins = np.arange(len(facts.cuts) + 1)
        positive = ((facts.bin[:, None] == bins) & (facts.label[:, None] == 1)).astype(float)
        negative = ((facts.bin[:, None] == bins) & (facts.label[:, None] == 0)).astype(float)
        K = np.tril(np.ones((len(bins), len(bins))), -1) + tied * np.eye(len(bins))
        p, q = cells.counts @ positive, cells.counts @ negative
        noise_p, noise_q, both = (
            np.swapaxes(one, -1, -2) @ cells.noise @ other
            for one, other in ((positive, positive), (negative, negative), (positive, negative))
        )
        P, Q = (_known_total(one, noise) for one, noise in ((p, noise_p), (q, noise_q)))
        ranked_q, ranked_p = q @ K.T, p @ K
        estimate = ((p * ranked_q).sum(axis=-1) - np.einsum("bc,...bc->...", K, both)[..., None]) / (P * Q)
        value = np.clip(estimate, 0, 1)
        by_p = (ranked_q / Q[..., None] - value[..., None]) / P[..., None]
        by_q = (ranked_p / P[..., None] - value[..., None]) / Q[..., None]
        p_effect, q_effect = (_effect(cells.repeats, one) for one in (P, Q))
        sampling = p_effect * P * (_shares(p) * by_p**2).sum(axis=-1) + q_effect * Q * (_shares(q) * by_q**2).sum(
            axis=-1
        )
        # Noise of one label is in the gradient by the other, so that of their product is in the square.
        gradient = by_p @ positive.T + by_q @ negative.T
        noise = (gradient[..., None, :] @ cells.noise[..., None, :, :] @ gradient[..., :, None])[..., 0, 0]
        return cls(estimate, sampling, noise, np.minimum(P / p_effect, Q / q_effect))

    def bounds(self, confidence: float) -> Bounds:
        known = ~np.isnan(self.estimate)
        quantile = norm.isf((1 - _each(known, confidence)) / 2)
        value = np.clip(self.estimate, 0, 1)
        # The variance is at most that of as many disjoint pairs as there are people of either label.
        people = np.maximum(value * (1 - value) / np.maximum(self.sampling, 1e-12), self.fewer)
        low, high = _wilson(value, people, quantile)
        reach = quantile * np.sqrt(self.noise)
        lower = np.clip(self.estimate - added(value - low, reach), 0, 1)
        upper = np.clip(self.estimate + added(high - value, reach), 0, 1)
        return value, np.where(known, lower, 0.0), np.where(known, upper, 1.0)


def _wilson(share: Array, people: Array, quantile: Array) -> tuple[Array, Array]:
    """Bounds of a share among so many people."""
    square = quantile**2
    middle = (share * people + square / 2) / (people + square)
    reach = quantile * np.sqrt(share * (1 - share) * people + square / 4) / (people + square)
    return middle - reach, middle + reach


def _known_total(counts: Array, noise: Array) -> Array:
    total = counts.sum(axis=-1)
    enough = (total > 0) & (total > EVIDENCE * np.sqrt(noise.sum(axis=(-2, -1)))[..., None])
    return np.where(enough, total, np.nan)


def _shares(counts: Array) -> Array:
    """Noisy counts as shares that are not negative."""
    kept = np.maximum(counts, 0)
    found: Array = kept / np.maximum(kept.sum(axis=-1, keepdims=True), 1e-12)
    return found
