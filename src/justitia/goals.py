"""What decisions are held to: which rates, how they are compared between groups, and shares of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.notions import FairnessNotion, RateTable

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Goal:
    """The rates of one or several notions, and what is allowed of them.

    Attributes
    ----------
    table : RateTable
        All rates, side by side; of S Y labels where there are public strata.
    notion_of : ndarray of int (K,)
        Which of the notions each rate belongs to.
    ratio : float, optional
        Smallest rate of a group as a share of the largest; differences are not bounded then.
    is_fraction : bool
        Whether the two rates are numerator and denominator of the number that groups are compared by.
    quota : ndarray (D,), optional
        Share of rows that each action but the first gets; NaN is any.
    """

    table: RateTable
    notion_of: NDArray[np.int64]
    ratio: float | None = None
    is_fraction: bool = False
    quota: Array | None = None

    @classmethod
    def from_notions(
        cls,
        notions: Sequence[FairnessNotion],
        classes: Sequence[object],
        *,
        strata: Sequence[object] = (),
        ratio: float | None = None,
        quota: Array | None = None,
    ) -> Goal:
        """The goal of these notions for a target of these classes.

        Raises
        ------
        ValueError
            If a notion says nothing about so many classes, or cannot be held together with the others.
        """
        tables, fraction, counts = [], False, []
        for one in notions:
            made = checked_table(one.rates(classes), len(classes), one.name)
            if strata:
                made = made.within(strata) if one.within_strata else made.in_all(len(strata))
            tables.append(made)
            fraction |= one.is_fraction
            counts.append(len(made.names))
        if fraction and (len(notions) > 1 or ratio is not None):
            raise ValueError(
                "expected 'predictive_parity' alone and with a tolerance, got it with another notion or with a ratio; "
                "leave the others out."
            )
        table = RateTable.joined(tables)
        if len(set(table.names)) < len(table.names):  # two notions of the same events
            prefixes = [one.name for one in notions]
            tables = [
                RateTable(made.events, made.values, tuple(f"{prefix}: {name}" for name in made.names))
                for prefix, made in zip(prefixes, tables, strict=True)
            ]
            table = RateTable.joined(tables)
        return cls(table, np.repeat(np.arange(len(tables)), counts), ratio, fraction, quota)

    def violations(self, rates: Array) -> Array:
        """(J,): largest difference between two groups of every number that is compared, from (G, K) rates.

        With a ratio: what the smallest rate lacks to its share of the largest.
        """
        if self.ratio is not None:
            lacking: Array = np.maximum(self.ratio * rates.max(0) - rates.min(0), 0.0)
            return lacking
        compared = rates[:, :1] / np.maximum(rates[:, 1:], 1e-9) if self.is_fraction else rates
        differences: Array = np.ptp(compared, axis=0)
        return differences

    def allowed(self, tolerance: Array) -> Array:
        """(J,): what :meth:`violations` may be."""
        if self.ratio is not None:
            return np.zeros(len(tolerance))
        return tolerance[:1] if self.is_fraction else tolerance

    def excess(self, rates: Array, tolerance: Array) -> float:
        """How far the worst number is beyond what is allowed; negative if all are within."""
        return float((self.violations(rates) - self.allowed(tolerance)).max())


def checked_table(table: RateTable, labels: int, name: str) -> RateTable:
    """The table of a notion, whose numbers bound what one row adds to a release.

    Raises
    ------
    ValueError
        If it has other shapes, or numbers that are no rates.
    """
    rates = len(table.names)
    events, values = np.asarray(table.events, dtype=np.float64), np.asarray(table.values, dtype=np.float64)
    fits = rates > 0 and events.shape == (labels, rates) and values.shape == (labels, labels, rates)
    # Comparisons with NaN are false, so it is refused with what is too large.
    if not fits or not (np.isin(events, (0.0, 1.0)).all() and ((values >= 0) & (values <= 1)).all()):
        raise ValueError(
            f"expected rates of {name!r} with events of shape ({labels}, K) that are 0 or 1 and values of shape "
            f"({labels}, {labels}, K) between 0 and 1, got others; correct its method rates."
        )
    if not events.any(0).all():
        raise ValueError(f"expected a label in the event of every rate of {name!r}, got none; leave that rate out.")
    return RateTable(events, values, table.names)


def population_rates(
    table: RateTable, labels: NDArray[np.generic], actions: NDArray[np.generic], weight: Array
) -> Array:
    """(K,): rates of all rows, public; 0 for an event without rows."""
    codes, decided = labels.astype(np.int64), actions.astype(np.int64)
    events = table.events[codes] * weight[:, None]
    sizes = events.sum(0)
    sums = (events * table.values[codes, decided]).sum(0)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1e-12), 0.0)
