r"""Scores that are alike, not only decisions: one rule per level of the score, made monotone.

At each of a few thresholds :math:`s_1 < \dots < s_T`, quantiles of the score, the best decision under the constraint
is :math:`d_t(x) = 1[m_t(x) > 0]` with margin :math:`m_t(x) = 2(\eta(x) - s_t) - \lambda_t \cdot c(x)`: the same c for
every threshold, so nothing more is asked. A score p whose decisions at all thresholds are these has :math:`p(x) > s_t`
where :math:`m_t(x) > 0`. The margins of a row, sorted, fall with t (rearrangement), and p is where they cross 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.postprocessing.correction import Correction

Array = NDArray[np.float64]
#: Thresholds closer to each other than this are one.
APART = 1e-3


def levels_of(eta: Array, threshold: float, count: int) -> Array:
    """(T,): evenly spaced quantiles of eta, and the threshold where decisions are made."""
    found = [threshold]
    for level in np.quantile(eta, np.arange(1, count + 1) / (count + 1)):
        if min(abs(level - one) for one in found) > APART:
            found.append(float(level))
    return np.sort(found)


def moved_probability(margins: Array, levels: Array) -> Array:
    """(m,): the score whose decision at every level is the sign of the sorted margins.

    Parameters
    ----------
    margins : ndarray (T, m)
        At each level.
    levels : ndarray (T,)
        Rising.
    """
    falling = -np.sort(-margins, axis=0)
    passed = (falling > 0).sum(0)  # how many levels a row is above
    above, below = np.minimum(passed, len(levels) - 1), np.maximum(passed - 1, 0)
    m_below, m_above = (np.take_along_axis(falling, one[None], 0)[0] for one in (below, above))
    share = m_below / np.maximum(m_below - m_above, 1e-12)
    inside = levels[below] + np.clip(share, 0.0, 1.0) * (levels[above] - levels[below])
    lowest = np.clip(levels[0] + falling[0] / 2, 0.0, levels[0])
    highest = np.clip(levels[-1] + falling[-1] / 2, levels[-1], 1.0)
    found: Array = np.where(passed == 0, lowest, np.where(passed == len(levels), highest, inside))
    return found


@dataclass(frozen=True, eq=False)
class Levels:
    """What is deployed of many thresholds: where they are, and a correction at each.

    Parameters
    ----------
    at : ndarray (T,)
        The thresholds, rising.
    corrections : tuple of Correction
        t at each.
    """

    at: Array
    corrections: tuple[Correction, ...]

    def probability(self, numbers: NDArray[np.float32], eta: Array) -> Array:
        """(m,): the moved probability of rows with these features and this eta."""
        margins = [2 * (eta - s) - t(numbers, eta) for s, t in zip(self.at, self.corrections, strict=True)]
        return moved_probability(np.stack(margins), self.at)
