"""Exact measures of decisions among several classes and of numeric predictions, by group, on public test folds.

They are written without the library's own measures, so that one can be held against the other; they are not private.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp, norm

Array = NDArray[np.float64]
#: Permutations of the groups that tell what a perfectly fair rule shows by chance.
PERMUTATIONS = 20


def counts_of(y: Any, decided: Any, codes: NDArray[np.int64], classes: Any, n_groups: int) -> Array:
    """(G, L, L): rows by group, true class and decision; rows whose code is below 0 are in no group."""
    size = len(classes)
    truth, choice = (np.searchsorted(classes, np.asarray(one)) for one in (y, decided))
    known = codes >= 0
    cells = (codes * size + truth) * size + choice
    found = np.bincount(cells[known], minlength=n_groups * size * size)
    return found.reshape(n_groups, size, size).astype(float)


def rates_of(notion: str, counts: Array) -> Array:
    """(G, K): what the notion compares, NaN where a group has no rows.

    Raises
    ------
    KeyError
        For a notion without a formula.
    """
    sizes = counts.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        formulas: dict[str, Any] = {
            "demographic_parity": lambda: counts.sum(axis=1) / sizes[:, None],
            "equalized_odds": lambda: (counts / counts.sum(axis=2, keepdims=True)).reshape(len(counts), -1),
            "equal_opportunity": lambda: (counts[:, 1, 1] / counts[:, 1].sum(axis=1))[:, None],
            "predictive_parity": lambda: (counts[:, 1, 1] / counts[:, :, 1].sum(axis=1))[:, None],
            "accuracy_parity": lambda: (np.trace(counts, axis1=1, axis2=2) / sizes)[:, None],
        }
        found: Array = formulas[notion]()
    return found


def largest_difference(rates: Array) -> float:
    """Largest difference between two groups, over all rates; a group without rows takes no part."""
    return float(np.max(np.nanmax(rates, axis=0) - np.nanmin(rates, axis=0)))


def difference_and_error(notion: str, counts: Array) -> tuple[float, float]:
    """Difference between the groups that are furthest apart, of the rate with the largest, and its standard error."""
    rates = rates_of(notion, counts)
    k = int(np.argmax(np.nanmax(rates, axis=0) - np.nanmin(rates, axis=0)))
    ends = [int(np.nanargmin(rates[:, k])), int(np.nanargmax(rates[:, k]))]
    sizes = _events(notion, counts)[ends, k]
    shares = rates[ends, k]
    return float(shares[1] - shares[0]), float(np.sqrt(np.sum(shares * (1 - shares) / sizes)))


def _events(notion: str, counts: Array) -> Array:
    """(G, K): rows that each rate is a mean over."""
    size = counts.shape[1]
    if notion == "equalized_odds":
        return np.repeat(counts.sum(axis=2), size, axis=1)
    if notion == "equal_opportunity":
        return counts[:, 1].sum(axis=1)[:, None]
    if notion == "predictive_parity":
        return counts[:, :, 1].sum(axis=1)[:, None]
    return np.repeat(counts.sum(axis=(1, 2))[:, None], size if notion == "demographic_parity" else 1, axis=1)


def smallest_ratio(counts: Array) -> float:
    """Smallest by largest rate of the second class."""
    rates = rates_of("demographic_parity", counts)[:, 1]
    return float(np.nanmin(rates) / max(np.nanmax(rates), 1e-12))


def ratio_lower_bound(selected: Array, sizes: Array, confidence: float = 0.95) -> float:
    """One-sided lower bound of the smallest by the largest selection rate, by a normal approximation of its logarithm.

    Parameters
    ----------
    selected, sizes : ndarray (G,)
    """
    rates = selected / sizes
    low, high = int(np.argmin(rates)), int(np.argmax(rates))
    variance = sum((1 - rates[one]) / max(selected[one], 1.0) for one in (low, high))
    return float(np.exp(np.log(rates[low] / rates[high]) - norm.ppf(confidence) * np.sqrt(variance)))


def largest_distance(predicted: Array, codes: NDArray[np.int64], n_groups: int) -> float:
    """Largest Kolmogorov-Smirnov distance between two groups' predictions."""
    parts = [predicted[codes == a] for a in range(n_groups)]
    pairs = itertools.combinations([part for part in parts if len(part)], 2)
    return max(float(ks_2samp(first, second).statistic) for first, second in pairs)


def determination(y: Array, predicted: Array) -> float:
    """R squared."""
    return float(1 - np.mean(np.square(y - predicted)) / np.var(y))


def by_chance(measure: Any, codes: NDArray[np.int64]) -> float:
    """Mean of a measure where the groups are permuted: what no rule can be below on so few rows."""
    generator = np.random.default_rng(0)
    return float(np.mean([measure(generator.permutation(codes)) for _ in range(PERMUTATIONS)]))
