r"""Distribution of scores or numeric predictions by group: Kolmogorov-Smirnov distances at public levels, with bounds.

Values are public and fall into public bins. What is compared is the share of each group above every cut point, a level.
The distance of two groups is the largest difference between their shares, over all levels. Its bounds are simultaneous
over levels (:func:`~justitia.metrics.quantiles.ks_quantiles`). Between two levels shares are not compared; where values
repeat and every one of them is a level, nothing is left out.

Leading axes are kept; letters as in :mod:`justitia.metrics.bounds`, and B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from justitia.metrics.bounds import NOT_ENOUGH, NoisyRates, table_records
from justitia.metrics.impact import Comparison
from justitia.metrics.quantiles import Array, conservative, ks_quantiles, ks_upper_quantile
from justitia.metrics.rates import Ints, NoisyCells, RateMetric

Bounds = tuple[Array, Array, Array]


def rates_above(cuts: Array, bins: Ints, weight: float) -> list[RateMetric]:
    """Share above every cut point, of cells in these bins; all of them together have this weight."""
    everywhere = (1.0,) * len(bins)
    found = []
    for k, cut in enumerate(cuts):
        above = tuple((bins > k).astype(float))
        found.append(RateMetric(f"above {cut:.6g}", everywhere, above, weight / len(cuts)))
    return found


@dataclass(frozen=True, eq=False)
class NoisyDistribution:
    """Noisy counts by group and bin.

    Attributes
    ----------
    cells : NoisyCells
        (..., G, m); every row is in one column.
    cuts : array of shape (B - 1,)
        Public levels, increasing.
    bin : array of shape (m,)
        Of each column: the number of cut points below its values.
    """

    cells: NoisyCells
    cuts: Array
    bin: Ints

    @cached_property
    def _above(self) -> Array:
        """(B - 1, m): 1 where a column is above the cut point."""
        return (self.bin > np.arange(len(self.cuts))[:, None]).astype(float)

    @cached_property
    def curve(self) -> NoisyRates:
        """Share above every cut point, (..., G, B - 1)."""
        return self.cells.rates(np.ones_like(self._above), self._above)

    def ks_distance(self, reference: int | None, confidence: float) -> Bounds:
        """Distance of each group from the reference or from all other rows, (..., G).

        The bounds are for all groups that are known, at once; the others have NaN, 0 and 1.
        """
        comparison = Comparison.with_reference(self.curve, reference)
        known: Any = comparison.known.all(axis=-1)
        apart = comparison.first.rates - comparison.second.rates
        below, above = ks_quantiles(apart, self._covariance(comparison, known), each_confidence(known, confidence))
        lower, upper = _distance_at_least(comparison, below[..., None]), _distance_at_most(comparison, above[..., None])
        value = np.where(known, np.abs(apart).max(axis=-1), np.nan)
        itself = np.where(comparison.itself, np.nan, 0.0)  # a group has no distance from itself
        return value, np.where(known, lower, itself), np.where(known, upper, 1 + itself)

    def largest_distance(self, confidence: float) -> Bounds:
        """Largest distance between two groups that are known, with bounds, (...); NaN, 0 and 1 without two.

        The lower bound is the largest of those of all pairs at once. The upper bound has to hold for the one pair that
        attains the maximum, so it is the largest upper bound of one pair, each for itself.
        """
        comparison = Comparison.between_groups(self.curve)
        known: Any = comparison.known.all(axis=-1)
        apart = comparison.first.rates - comparison.second.rates
        each = each_confidence(known, confidence)
        below, _ = ks_quantiles(apart, self._covariance(comparison, known), each)
        value = _largest(np.abs(apart).max(axis=-1), known, np.nan)
        lower = _largest(_distance_at_least(comparison, below[..., None]), known, 0.0)
        above = ks_upper_quantile(conservative(confidence))
        return value, lower, _largest(_distance_at_most(comparison, above), known, 1.0)

    def largest_distance_at_most(self, confidence: float) -> Array:
        """One-sided upper bound of the largest distance between two groups, (...)."""
        comparison = Comparison.between_groups(self.curve)
        quantile = ks_upper_quantile(conservative(confidence), one_sided=True)
        return _largest(_distance_at_most(comparison, quantile), comparison.known.all(axis=-1), 1.0)

    def _covariance(self, comparison: Comparison, known: Any) -> Array:
        """(..., G, K, K): covariance of the differences between shares; NaN where one side is unknown."""
        value = self._above
        found: Any = 0.0
        gradients = []
        for side in (comparison.first, comparison.second):
            n = side.known_counts[..., :1]
            # Two successes and two failures more, so that no share of a few rows is without variance.
            share = (np.clip(side.sums, 0, n) + 2) / (n + 4)
            joint = np.minimum(share[..., :, None], share[..., None, :])
            found = found + (joint - share[..., :, None] * share[..., None, :]) / side.effective_counts[..., :1, None]
            gradients.append((value - side.rates[..., None]) / n[..., None])
        noise = self.cells.noise[..., None, :, :]
        first, second = gradients
        found = found + (first @ noise @ np.swapaxes(first, -1, -2) + second @ noise @ np.swapaxes(second, -1, -2))
        both = first @ noise @ np.swapaxes(second, -1, -2)
        total: Array = found - comparison.cross * (both + np.swapaxes(both, -1, -2))
        return np.where(known[..., None, None], total, np.nan)


def _distance_at_least(comparison: Comparison, quantile: float | Array) -> Array:
    _, low, high = comparison.differences(quantile)
    found: Array = np.maximum(np.maximum(low, -high), 0.0).max(axis=-1)
    return found


def _distance_at_most(comparison: Comparison, quantile: float | Array) -> Array:
    _, low, high = comparison.differences(quantile)
    found: Array = np.maximum(np.abs(low), np.abs(high)).max(axis=-1)
    return found


def _largest(values: Array, known: Any, unknown: float) -> Array:
    """Largest of the values that are known, over the last axis; ``unknown`` if none is."""
    found = np.where(known, values, -1.0).max(axis=-1, initial=-1.0)
    return np.where(found < 0, unknown, found)


def each_confidence(known: Any, confidence: float) -> Array:
    """(..., G): confidence of each bound, if those of all groups that are known are to hold at once (Sidak)."""
    times = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    return np.broadcast_to(conservative(confidence) ** (1 / times), known.shape)


@dataclass(frozen=True, eq=False)
class Distribution:
    """How values are distributed by group, computed from one noisy answer and public numbers.

    Attributes
    ----------
    groups : tuple of str
    noisy : NoisyDistribution
    confidence : float
    reference : int or None
        Place of the group that distances are from; all other rows if None.
    """

    groups: tuple[str, ...]
    noisy: NoisyDistribution
    confidence: float
    reference: int | None = None

    @property
    def compared_with(self) -> str:
        """Whom distances compare with."""
        return "all other rows" if self.reference is None else self.groups[self.reference]

    @property
    def table(self) -> pd.DataFrame:
        """One line per group: Kolmogorov-Smirnov distance from the reference or all other rows, with bounds for all."""
        names = ("ks_distance", "ks_distance_lower", "ks_distance_upper")
        found = self.noisy.ks_distance(self.reference, self.confidence)
        return pd.DataFrame(dict(zip(names, found, strict=True)), index=pd.Index(self.groups, name="group"))

    @property
    def curve(self) -> pd.DataFrame:
        """Share above each public cut point, by group, and its gap to the population with bounds for all at once."""
        rates = self.noisy.curve
        gap, low, high = rates.gaps(rates.simultaneous_quantile("to_overall", self.confidence))
        columns = {
            "overall": np.broadcast_to(rates.overall, gap.shape),
            "rate": rates.rates,
            "gap": gap,
            "gap_lower": low,
            "gap_upper": high,
        }
        return frame_by_place(columns, self.noisy.cuts, "threshold", self.groups, rates.enough)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "compared_with": self.compared_with,
            "by_group": table_records(self.table),
            "curve": table_records(self.curve),
        }


def frame_by_place(
    columns: dict[str, Array], places: Any, name: str, groups: tuple[str, ...], known: Any
) -> pd.DataFrame:
    """Columns (G, places) as a table by place and group, with a column that says where there is enough evidence."""
    index = pd.MultiIndex.from_product([places, groups], names=[name, "group"])
    table = pd.DataFrame({key: values.T.ravel() for key, values in columns.items()}, index=index)
    return table.assign(evidence=np.where(known.T.ravel(), "enough", NOT_ENOUGH))
