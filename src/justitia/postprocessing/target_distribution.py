"""Distribution of a numeric target given the features: bins of the target, from m(x) and out-of-fold residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Bins of the target, strata of the prediction whose residuals are pooled, and steps of the grid of residuals.
BINS, STRATA, STEPS = 8, 5, 401


@dataclass(frozen=True, eq=False)
class TargetDistribution:
    """p(y in bin | x) of a target between 0 and 1.

    The residual y - m(x) has within each stratum of m(x) the distribution of the out-of-fold residuals there.

    Attributes
    ----------
    edges : ndarray (Y - 1,)
        Between the bins.
    means, squares : ndarray (Y,)
        Mean of y and of its square in each bin.
    strata : ndarray (S - 1,)
        Edges between the strata of m(x).
    below : ndarray (S, STEPS)
        Share of residuals at most each point of the even grid from -1 to 1, by stratum.
    """

    edges: Array
    means: Array
    squares: Array
    strata: Array
    below: Array

    @classmethod
    def fit(cls, m: Array, y: Array, share: Array) -> TargetDistribution:
        """Learn from public rows.

        Parameters
        ----------
        m, y : ndarray (n,)
            Out-of-fold prediction and target, between 0 and 1.
        share : ndarray (n,)
            Of each row; they add up to 1.
        """
        edges = np.unique(np.quantile(y, np.arange(1, BINS) / BINS))
        edges = edges[(edges >= y.min()) & (edges < y.max())]
        bins = np.searchsorted(edges, y)  # y <= edge is in the lower bin
        sizes = np.maximum(np.bincount(bins, share, len(edges) + 1), 1e-12)
        means = np.bincount(bins, share * y, len(sizes)) / sizes
        squares = np.bincount(bins, share * y**2, len(sizes)) / sizes
        strata = np.unique(np.quantile(m, np.arange(1, STRATA) / STRATA))
        stratum = np.searchsorted(strata, m)
        grid, below = np.linspace(-1, 1, STEPS), np.zeros((len(strata) + 1, STEPS))
        for s in range(len(below)):
            inside = stratum == s
            chosen = inside if inside.any() else np.ones(len(m), dtype=bool)
            residual, part = (y - m)[chosen], share[chosen]
            order = np.argsort(residual, kind="stable")
            total = np.concatenate([[0.0], np.cumsum(part[order])])
            below[s] = total[np.searchsorted(residual[order], grid, side="right")] / total[-1]
        return cls(edges, means, squares, strata, below)

    def probabilities(self, m: Array) -> Array:
        """(n, Y): probability of each bin."""
        stratum, last = np.searchsorted(self.strata, m), STEPS - 1
        place = np.clip((self.edges - m[:, None] + 1) / 2 * last, 0.0, last)  # on the grid of residuals
        lower = np.minimum(place.astype(np.int64), last - 1)
        left, right = (self.below[stratum[:, None], lower + one] for one in (0, 1))
        at_most = left + (place - lower) * (right - left)
        whole = np.concatenate([np.zeros((len(m), 1)), at_most, np.ones((len(m), 1))], axis=1)
        found: Array = np.diff(whole, axis=1)
        return found
