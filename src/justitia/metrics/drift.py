"""Drift of public columns: how the values of new rows differ from those of reference rows.

Numbers are compared by the Kolmogorov-Smirnov distance, categories by a chi-square test; both have a population
stability index. A reference keeps at most :data:`KNOTS` numbers of a column, and no row.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import kolmogorov
from scipy.stats import chi2

#: Places at which the distribution of a column of numbers is kept; categories that are kept by name.
KNOTS, CATEGORIES = 101, 30
#: Bins of the population stability index of numbers.
_BINS = 10
#: The index from which a change counts as large enough for an alert; from 0.25 on it is commonly called major.
LARGE = 0.1


@dataclass(frozen=True)
class Drift:
    """How far the values of one column are from those of the reference.

    Attributes
    ----------
    stability_index : float
        Population stability index: 0 for equal shares of all bins.
    distance : float
        Kolmogorov-Smirnov distance at the kept places; of categories, half the sum of the differences of their shares.
    p_value : float
        Probability of such a distance or a larger one, at most, where both are drawn from one distribution.
    """

    stability_index: float
    distance: float
    p_value: float

    def alert(self, level: float) -> bool:
        """Whether the change is large, and too large for chance at this level."""
        return self.p_value < level and self.stability_index >= LARGE


@dataclass(frozen=True)
class ColumnReference:
    """Distribution of a public column in the reference rows.

    Attributes
    ----------
    rows : int
    values : tuple of float, or tuple of str
        Places of numbers, increasing; or names of categories.
    shares : tuple of float
        Share of rows up to each place; or of each category.
    """

    rows: int
    values: tuple[Any, ...]
    shares: tuple[float, ...]

    @staticmethod
    def from_values(name: str, values: Any) -> ColumnReference:
        """Reference of a column of numbers without gaps, or of categories.

        Raises
        ------
        ValueError
            If there are no rows.
        """
        column = np.asarray(values)
        if column.ndim != 1 or len(column) == 0:
            raise ValueError(f"expected a column of at least one row in {name!r}, got none; pass reference rows.")
        if column.dtype.kind in "iuf":
            numbers = _numbers(name, column)
            knots = np.unique(np.quantile(numbers, np.linspace(0, 1, KNOTS), method="inverted_cdf"))
            return ColumnReference(len(numbers), tuple(map(float, knots)), tuple(map(float, _shares(numbers, knots))))
        counts = Counter(map(str, column.tolist())).most_common(CATEGORIES)
        return ColumnReference(
            len(column), tuple(one for one, _ in counts), tuple(count / len(column) for _, count in counts)
        )

    @property
    def numeric(self) -> bool:
        """Whether the column has numbers."""
        return not isinstance(self.values[0], str)

    def drift(self, name: str, values: Any) -> Drift:
        """How far these values are from the reference.

        Raises
        ------
        ValueError
            If there are none, or numbers were expected.
        """
        column = np.asarray(values)
        if column.ndim != 1 or len(column) == 0:
            raise ValueError(f"expected a column of at least one row in {name!r}, got none.")
        return self._of_numbers(_numbers(name, column)) if self.numeric else self._of_categories(column)

    def _of_numbers(self, numbers: NDArray[np.float64]) -> Drift:
        before, after = np.array(self.shares), _shares(numbers, np.array(self.values))
        distance = float(np.abs(before - after).max())
        size = self.rows * len(numbers) / (self.rows + len(numbers))
        ends = np.unique(np.searchsorted(before, np.linspace(0, 1, _BINS + 1)[1:-1]))
        bins = [np.diff(np.concatenate([[0.0], cumulative[ends], [1.0]])) for cumulative in (before, after)]
        # At places alone the distance is at most the true one, so the probability is at least the true one.
        return Drift(
            _stability_index(bins[0], bins[1], self.rows, len(numbers)),
            distance,
            float(kolmogorov(distance * math.sqrt(size))),
        )

    def _of_categories(self, column: NDArray[Any]) -> Drift:
        counts = Counter(map(str, column.tolist()))
        after = np.array([counts[one] for one in self.values], dtype=float)
        after = np.append(after, len(column) - after.sum())
        before = self.rows * np.append(self.shares, max(0.0, 1 - math.fsum(self.shares)))
        both = before + after
        found = both > 0.5  # without the rest where there is none
        before, after, both = before[found], after[found], both[found]
        share = len(column) / (self.rows + len(column))
        statistic = float(((after - share * both) ** 2 / (share * (1 - share) * both)).sum())
        shares = before / self.rows, after / len(column)
        return Drift(
            _stability_index(*shares, self.rows, len(column)),
            float(np.abs(shares[0] - shares[1]).sum() / 2),
            float(chi2.sf(statistic, len(both) - 1)) if len(both) > 1 else 1.0,
        )


def _numbers(name: str, column: NDArray[Any]) -> NDArray[np.float64]:
    if column.dtype.kind not in "iufb" or not np.isfinite(column.astype(np.float64)).all():
        raise ValueError(f"expected a finite number in every row of {name!r}, got others; fill gaps before.")
    numbers: NDArray[np.float64] = column.astype(np.float64)
    return numbers


def _shares(numbers: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of numbers up to each place."""
    found: NDArray[np.float64] = np.searchsorted(np.sort(numbers), places, side="right") / len(numbers)
    return found


def _stability_index(before: NDArray[np.float64], after: NDArray[np.float64], rows: int, new: int) -> float:
    """Population stability index; half a row in every bin keeps it finite."""
    smooth = [(shares * count + 0.5) / (count + 0.5 * len(shares)) for shares, count in ((before, rows), (after, new))]
    return float(((smooth[1] - smooth[0]) * np.log(smooth[1] / smooth[0])).sum())


__all__ = ["CATEGORIES", "KNOTS", "LARGE", "ColumnReference", "Drift"]
