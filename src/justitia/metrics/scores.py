r"""Score metrics by group: AUC, Kolmogorov-Smirnov distance, mean scores, calibration, with bounds.

Scores are public. They fall into public bins whose cut points are quantiles of all scores, the median among them; a
score is above a cut point if it is larger. What a bin leaves out, a score's distance from the mean of its cell, is one
more public column of the query row. All metrics come from the one noisy answer: :math:`\hat n_{a,j}`, rows of group a
in column j of (bin, label, decision), and the noisy sum of what bins leave out.

* Binned AUC: how often the positive one of two rows of either label is in the higher bin, where the same bin counts one
  half: :math:`\hat p^\top K \hat q / (\hat P \hat Q)` for the counts p and q of either label by bin, where K is 1
  below the diagonal, 0 above, and one half on it. Its sampling error has Wilson's bounds, as for a share of so many
  rows as would have the same variance (delta method); they are widened by the noise, which is normal whatever the
  AUC.
* AUC: how rows are ranked within a bin is not measured, and may be anything. The AUC of exact scores is between that
  with zeros on the diagonal of K (the negative one always has the higher score of two in one bin) and that with ones.
* Kolmogorov-Smirnov distance: the largest difference between shares above a public cut point
  (:mod:`justitia.metrics.distribution`).
* Standardised mean difference: difference of mean scores over the standard deviation of all scores, which is public.

Leading axes are kept; letters as in :mod:`justitia.metrics.bounds`, and B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from justitia._validate import check_int
from justitia.metrics.bounds import (
    EVIDENCE,
    NoisyRates,
    Repeats,
    combined_half_width,
    table_records,
)
from justitia.metrics.distribution import (
    Bounds,
    Distribution,
    NoisyDistribution,
    each_confidence,
    frame_by_place,
    rates_above,
)
from justitia.metrics.impact import Impact
from justitia.metrics.quantiles import Array, conservative, sidak_quantile
from justitia.metrics.rates import Cells, Ints, NoisyCells, QueryRows, RateMetric

#: Weight of all shares above cut points together in the choice of query rows, and of all calibration rates: beside 1 of
#: a rate.
SCORE_WEIGHT = 1 / 16
#: Share of a query row's squared length that goes into what bins leave out.
LEFT_OUT = 1 / 16
#: Squares of larger scores would not be finite numbers.
LARGEST_SCORE = 1e100


@dataclass(frozen=True, eq=False)
class ScoreBins:
    """Public scores and their bins.

    Attributes
    ----------
    scores : array of shape (n,)
    cuts : array of shape (B - 1,)
        Increasing.
    bin : array of shape (n,)
        Number of cut points below each score.
    """

    scores: Array
    cuts: Array
    bin: Ints

    @classmethod
    def from_scores(cls, scores: Any, n: int, bins: int) -> ScoreBins:
        """Bins at quantiles of all scores.

        Raises
        ------
        ValueError, TypeError
            If there is not one finite score per row, or all are the same.
        """
        check_int("score_bins", bins, at_least=2)
        if bins % 2:
            raise ValueError(f"expected an even score_bins, so that the median is a cut point, got {bins}; pass 10.")
        try:
            values = np.asarray(scores, dtype=float)
        except (TypeError, ValueError):
            raise TypeError("expected scores to be numbers, got something else; pass one number per row.") from None
        if values.shape != (n,):
            raise ValueError(f"expected one score per row ({n}), got shape {values.shape}; pass one number per row.")
        if not np.isfinite(values).all():
            raise ValueError("expected a finite score in every row, got missing or infinite ones; drop those rows.")
        largest = np.abs(values).max(initial=0.0)
        if largest > LARGEST_SCORE:
            raise ValueError(
                f"expected scores between -{LARGEST_SCORE:g} and {LARGEST_SCORE:g}, got one of {largest:g}; "
                "pass probabilities or log-odds, or drop such rows."
            )
        if values.min() == values.max():
            raise ValueError("expected scores that differ, got one value in every row; leave the scores out.")
        cuts = np.unique(np.quantile(values, np.arange(1, bins) / bins))
        return cls(values, cuts, np.searchsorted(cuts, values, side="left"))

    def rates(self, cells: Cells) -> list[RateMetric]:
        """Share above every cut point; positive labels in every bin. All of a kind weigh little beside one rate."""
        found = rates_above(self.cuts, cells.bin, SCORE_WEIGHT)
        bins = np.unique(cells.bin)
        for b in bins:
            within = (cells.bin == b).astype(float)
            positive = within * cells.label.astype(float)
            found.append(RateMetric(f"label in bin {b + 1}", tuple(within), tuple(positive), SCORE_WEIGHT / len(bins)))
        return found

    def facts(self, cells: Cells, rows: QueryRows) -> ScoreFacts:
        """What is public about the scores in each column of the release."""
        column = rows.cell[cells.place]
        by_column = [self.scores[column == j] for j in range(len(rows.totals))]
        mean = np.array([np.mean(one) for one in by_column])
        rest = self.scores - mean[column]
        return ScoreFacts(
            cuts=self.cuts,
            median=int(np.searchsorted(self.cuts, np.median(self.scores))),
            label=rows.by_column(cells.label),
            bin=rows.by_column(cells.bin),
            mean=mean,
            spread=np.array([np.var(one) for one in by_column]),
            deviation=float(self.scores.std()),
            rest=rest,
            reach=float(np.abs(rest).max()),
        )


@dataclass(frozen=True, eq=False)
class ScoreFacts:
    """Public facts about scores, by column of the release.

    Attributes
    ----------
    cuts : array of shape (B - 1,)
    median : int
        Its place in ``cuts``.
    label, bin : arrays of shape (m,)
    mean, spread : arrays of shape (m,)
        Mean and variance of the scores of all rows in the column.
    deviation : float
        Standard deviation of all scores.
    rest : array of shape (n,)
        Score minus the mean of its column.
    reach : float
        Largest absolute value of ``rest``.
    """

    cuts: Array
    median: int
    label: Ints
    bin: Ints
    mean: Array
    spread: Array
    deviation: float
    rest: Array
    reach: float

    @property
    def share(self) -> float:
        """Of a query row's squared length that is spent on what bins leave out; none if they leave out nothing."""
        return LEFT_OUT if self.reach > 0 else 0.0

    def append_to(self, vectors: Array) -> Array:
        """Query rows (n, m) of the cells, made shorter, with one more column; none is longer than 1."""
        rest = np.zeros_like(self.rest) if self.reach == 0 else self.rest / self.reach
        return np.column_stack([np.sqrt(1 - self.share) * vectors, np.sqrt(self.share) * rest])


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """Noisy counts by group and column of scores.

    Attributes
    ----------
    cells : NoisyCells
        (..., G, m); every row is in one column.
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
    def distribution(self) -> NoisyDistribution:
        """Counts by bin alone."""
        return NoisyDistribution(self.cells, self.facts.cuts, self.facts.bin)

    @property
    def scoring_rate(self) -> NoisyRates:
        """Share above the median of all scores, (..., G, 1)."""
        return self.distribution.curve.select([self.facts.median])

    @cached_property
    def calibration(self) -> NoisyRates:
        """Share of the positive label in every bin that has rows, (..., G, bins)."""
        member = (self.facts.bin == np.unique(self.facts.bin)[:, None]).astype(float)
        return self.cells.rates(member, member * self.facts.label)

    @property
    def bin_means(self) -> Array:
        """Mean score of all rows in each of these bins: public."""
        bins = np.unique(self.facts.bin)[:, None] == self.facts.bin
        weights = bins * self.cells.totals[..., None, :]
        means: Array = weights @ self.facts.mean / weights.sum(axis=-1)
        return means

    def binned_auc(self, confidence: float) -> Bounds:
        """AUC of the bins of each group, with bounds for all that are known, (..., G); else NaN, 0 and 1.

        Two rows of different labels in one bin count one half.
        """
        return self._auc(confidence, tied=0.5)

    def auc_bounds(self, confidence: float) -> tuple[Array, Array]:
        """Bounds of the AUC of exact scores, for all groups that are known, (..., G); else 0 and 1.

        They hold however rows are ranked within a bin.
        """
        return self._auc(confidence, tied=0.0)[1], self._auc(confidence, tied=1.0)[2]

    def _auc(self, confidence: float, *, tied: float) -> Bounds:
        """AUC where two rows of different labels in one bin count ``tied``, with bounds."""
        cells, facts = self.cells, self.facts
        bins = np.arange(len(facts.cuts) + 1)
        positive = ((facts.bin[:, None] == bins) & (facts.label[:, None] == 1)).astype(float)
        negative = ((facts.bin[:, None] == bins) & (facts.label[:, None] == 0)).astype(float)
        K = np.tril(np.ones((len(bins), len(bins))), -1) + tied * np.eye(len(bins))
        p, q = cells.counts @ positive, cells.counts @ negative
        P = _known_totals(p, positive.T @ cells.noise @ positive)
        Q = _known_totals(q, negative.T @ cells.noise @ negative)
        both = positive.T @ cells.noise @ negative
        ranked_q, ranked_p = q @ K.T, p @ K
        # Unclipped: noise may take it beyond 0 and 1.
        estimate = ((p * ranked_q).sum(axis=-1) - np.einsum("bc,...bc->...", K, both)[..., None]) / (P * Q)
        value = np.clip(estimate, 0, 1)
        by_p = (ranked_q / Q[..., None] - value[..., None]) / P[..., None]
        by_q = (ranked_p / P[..., None] - value[..., None]) / Q[..., None]
        p_effect, q_effect = _design_effect(cells.repeats, P), _design_effect(cells.repeats, Q)
        sampling_p = p_effect * P * (_shares(p) * by_p**2).sum(axis=-1)
        sampling_q = q_effect * Q * (_shares(q) * by_q**2).sum(axis=-1)
        # Noise of one label is in the gradient by the other, so that of their product is in the square.
        gradient = by_p @ positive.T + by_q @ negative.T
        noise = (gradient[..., None, :] @ cells.noise[..., None, :, :] @ gradient[..., :, None])[..., 0, 0]

        known = ~np.isnan(estimate)
        quantile = norm.isf((1 - each_confidence(known, confidence)) / 2)
        # The variance is at most that of as many disjoint pairs as there are rows of either label.
        fewer = np.minimum(P / p_effect, Q / q_effect)
        n = np.maximum(value * (1 - value) / np.maximum(sampling_p + sampling_q, 1e-12), fewer)
        square = quantile**2
        middle = (value * n + square / 2) / (n + square)  # Wilson's interval
        half_width = quantile * np.sqrt(value * (1 - value) * n + square / 4) / (n + square)
        low, high = middle - half_width, middle + half_width
        noise_width = quantile * np.sqrt(noise)
        lower = np.clip(estimate - combined_half_width(value - low, noise_width), 0, 1)
        upper = np.clip(estimate + combined_half_width(high - value, noise_width), 0, 1)
        return value, np.where(known, lower, 0.0), np.where(known, upper, 1.0)

    @property
    def means(self) -> Array:
        """Mean score of each group, (..., G); NaN without enough evidence."""
        return _NoisyMeans.from_counts(self, self.cells.counts, self.rest, self.cells.repeats).mean

    def mean_difference(self, reference: int | None, quantile: float) -> Bounds:
        """Standardised difference of mean scores, with bounds, (..., G); NaN where one is unknown."""
        cells = self.cells
        first = _NoisyMeans.from_counts(self, cells.counts, self.rest, cells.repeats)
        if reference is None:
            counts, rest, cross = cells.totals[..., None, :] - cells.counts, 0.0 - self.rest, -1.0
            second = _NoisyMeans.from_counts(self, counts, rest, cells.rest_repeats)
        else:
            counts = np.broadcast_to(cells.counts[..., [reference], :], cells.counts.shape)
            rest, cross = np.broadcast_to(self.rest[..., [reference]], self.rest.shape), cells.cross
            second = _NoisyMeans.from_counts(self, counts, rest, cells.repeats)
        variance = first.variance + second.variance - 2 * cross * first.noise_covariance(second)
        itself = np.arange(self.rest.shape[-1]) == reference
        value = np.where(itself, np.nan, first.mean - second.mean) / self.facts.deviation
        half_width = quantile * np.sqrt(np.maximum(variance, 0)) / self.facts.deviation
        return value, value - half_width, value + half_width

    def ks_distance(self, reference: int | None, confidence: float) -> Bounds:
        """Kolmogorov-Smirnov distance of each group, with bounds for all that are known, (..., G)."""
        return self.distribution.ks_distance(reference, confidence)


@dataclass(frozen=True)
class _NoisyMeans:
    """Noisy mean scores, from counts by column."""

    count: Array  # (..., G), NaN without enough evidence
    effective_count: Array  # independent rows that have the same sampling error
    mean: Array
    score_variance: Array  # of one row's score
    gradient: Array  # (..., G, m): of the mean, by the count of each column
    noise: Array
    rest_variance: float

    @classmethod
    def from_counts(cls, scores: NoisyScores, counts: Array, rest: Array, repeats: Repeats | None) -> _NoisyMeans:
        facts, noise = scores.facts, scores.cells.noise
        n = _known_totals(counts, noise)
        mean = (counts @ facts.mean + rest) / n
        apart = facts.mean - mean[..., None]
        variance = ((facts.spread + apart**2) * counts).sum(axis=-1) / n
        variance = np.maximum(variance, facts.deviation**2 / 4)  # noisy counts may add up to too little
        gradient, noise = apart / n[..., None], noise[..., None, :, :]
        return cls(n, n / _design_effect(repeats, n), mean, variance, gradient, noise, scores.rest_variance)

    @property
    def variance(self) -> Array:
        """Variance of the mean, sampling and noise."""
        return self.score_variance / self.effective_count + self.noise_covariance(self)

    def noise_covariance(self, other: _NoisyMeans) -> Array:
        """Covariance of the noise of two means, if it were the same in both."""
        of_counts = (self.gradient[..., None, :] @ self.noise @ other.gradient[..., :, None])[..., 0, 0]
        found: Array = of_counts + self.rest_variance / (self.count * other.count)
        return found


def _design_effect(repeats: Repeats | None, counts: Array) -> Array:
    return np.ones_like(counts) if repeats is None else repeats.design_effect(counts)


def _known_totals(counts: Array, noise: Array) -> Array:
    """Noisy number of rows in all columns; NaN without enough evidence."""
    total = counts.sum(axis=-1)
    enough = (total > 0) & (total > EVIDENCE * np.sqrt(noise.sum(axis=(-2, -1)))[..., None])
    return np.where(enough, total, np.nan)


def _shares(counts: Array) -> Array:
    """Noisy counts as shares that are not negative."""
    kept = np.maximum(counts, 0)
    found: Array = kept / np.maximum(kept.sum(axis=-1, keepdims=True), 1e-12)
    return found


@dataclass(frozen=True, eq=False)
class Scores:
    """Score metrics by group, computed from one noisy answer and public numbers.

    Attributes
    ----------
    groups : tuple of str
    noisy : NoisyScores
    confidence : float
    reference : int or None
        Place of the group that means and distances are compared with; all other rows if None.
    labelled : bool
        Whether labels were given; AUC and calibration need them.
    """

    groups: tuple[str, ...]
    noisy: NoisyScores
    confidence: float
    reference: int | None = None
    labelled: bool = True

    @property
    def compared_with(self) -> str:
        """Whom means and distances compare with."""
        return "everybody else" if self.reference is None else self.groups[self.reference]

    @property
    def scoring(self) -> Impact:
        """Rate of scores above the median of all (Local Law 144's "scoring rate"), and its impact ratios."""
        return Impact("scoring_rate", self.groups, self.noisy.scoring_rate, self.confidence, self.reference)

    @property
    def table(self) -> pd.DataFrame:
        """One line per group; the bounds of each column hold for all groups at once.

        * ``mean_score``; ``standardized_mean_difference`` and ``ks_distance``, to the reference or to all other rows.
        * ``binned_auc``: how often the positive one of two rows of different labels is in the higher public bin of
          scores; two rows in one bin count one half. Its bounds are about this quantity.
        * ``auc_lower``, ``auc_upper``: bounds of the AUC of exact scores, which hold however rows are ranked within
          a bin. More bins (``score_bins``) bring the two nearer, and more noise into each.

        Without labels there is no AUC.
        """
        others = max(1, len(self.groups) - (self.reference is not None))
        quantile = sidak_quantile(conservative(self.confidence), others)
        bounded = {
            "standardized_mean_difference": self.noisy.mean_difference(self.reference, quantile),
            "ks_distance": self.noisy.ks_distance(self.reference, self.confidence),
        }
        if self.labelled:
            bounded["binned_auc"] = self.noisy.binned_auc(self.confidence)
        columns = {"mean_score": self.noisy.means}
        for name, found in bounded.items():
            columns |= dict(zip((name, f"{name}_lower", f"{name}_upper"), found, strict=True))
        if self.labelled:
            columns["auc_lower"], columns["auc_upper"] = self.noisy.auc_bounds(self.confidence)
        return pd.DataFrame(columns, index=pd.Index(self.groups, name="group"))

    @property
    def curve(self) -> pd.DataFrame:
        """Share above each public cut point, by group, and its gap to the population with bounds for all at once."""
        return Distribution(self.groups, self.noisy.distribution, self.confidence, self.reference).curve

    @property
    def calibration(self) -> pd.DataFrame:
        """Share of the positive label by bin of scores and group, with bounds for all at once.

        ``score`` is the mean score of all rows in the bin and ``overall`` their share; both are public. The table is
        empty without labels.
        """
        rates = self.noisy.calibration
        lower, upper = rates.interval(sidak_quantile(self.confidence, rates.counts.size))
        known = rates.enough & ((lower > 0) | (upper < 1))
        columns = {
            "score": np.broadcast_to(self.noisy.bin_means, rates.counts.shape),
            "overall": np.broadcast_to(rates.overall, rates.counts.shape),
            "count": rates.counts,
            "rate": np.where(known, rates.rates, np.nan),
            "lower": lower,
            "upper": upper,
        }
        table = frame_by_place(columns, np.arange(rates.counts.shape[-1]) + 1, "bin", self.groups, known)
        return table if self.labelled else table.iloc[:0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "compared_with": self.compared_with,
            "median": float(self.noisy.facts.cuts[self.noisy.facts.median]),
            "labelled": self.labelled,
            "by_group": table_records(self.table),
            "scoring_rate": self.scoring.to_dict(),
            "curve": table_records(self.curve),
            "calibration": table_records(self.calibration),
        }
