r"""One of several crossed columns: its counts are sums of those of the crossed groups, at no further cost.

Every crossed group has noise of variance v, and two of them a covariance of c v. A sum of s of them has the variance
:math:`s (1 + (s - 1) c) v`, and two sums over other groups have the covariance :math:`s^2 c v`: the same form again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from justitia.metrics.intervals import Array, NoisyRates
from justitia.metrics.scores import NoisyScores
from justitia.privacy.groups import Groups, group_names


@dataclass(frozen=True, eq=False)
class Margin:
    """The groups of one column.

    Attributes
    ----------
    column : str
    groups : tuple of str
    parts : array of shape (groups, crossed groups)
        1 where a crossed group is a part of the group; each has as many parts as the others.
    """

    column: str
    groups: tuple[str, ...]
    parts: Array

    def rates(self, noisy: NoisyRates) -> NoisyRates:
        """Rates of these groups."""
        own, cross = self._noise(noisy.cross)
        return replace(
            noisy,
            counts=self.parts @ noisy.counts,
            sums=self.parts @ noisy.sums,
            var_sum=own * noisy.var_sum,
            cov=own * noisy.cov,
            var_count=own * noisy.var_count,
            cross=cross,
        )

    def scores(self, noisy: NoisyScores) -> NoisyScores:
        """Scores of these groups."""
        cells = noisy.cells
        own, cross = self._noise(cells.cross)
        summed = replace(cells, counts=self.parts @ cells.counts, noise=own * cells.noise, cross=cross)
        rest, variance = self.parts @ noisy.rest, own * noisy.rest_variance
        return replace(noisy, cells=summed, rest=rest, rest_variance=variance)

    def _noise(self, cross: float) -> tuple[float, float]:
        """Variance of a sum as a multiple of that of one part; covariance of two sums as a multiple of it."""
        s = float(self.parts[0].sum())
        own = s * (1 + (s - 1) * cross)
        return own, s**2 * cross / own


def margins(groups: Groups, columns: Sequence[str]) -> tuple[Margin, ...]:
    """One for each of the crossed columns whose groups have equally many parts; none without crossed columns.

    Parameters
    ----------
    groups : tuple of labels
        Tuples, if columns are crossed.
    columns : sequence of str
        Their names; without them they are numbered.
    """
    crossed = [group for group in groups if isinstance(group, tuple)]
    width = len(crossed[0]) if len(crossed) == len(groups) else 0
    names = columns if len(columns) == width else [f"column {place + 1}" for place in range(width)]
    found = []
    for place, name in enumerate(names):
        labels = Counter(group[place] for group in crossed)
        if len(labels) > 1 and len(set(labels.values())) == 1:
            parts = np.array([[float(group[place] == label) for group in crossed] for label in labels])
            found.append(Margin(name, group_names(tuple(labels)), parts))
    return tuple(found)
