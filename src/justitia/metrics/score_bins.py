"""Scores as public bins: their cut points, the rates that are asked about them, and what bins leave out.

Scores are public. Cut points are quantiles of everybody's scores, the median among them; a score is above a cut point
if it is larger. What a bin leaves out, a score's distance from the mean of its cell, is one more public column of the
row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from justitia._validate import check_int
from justitia.metrics.cells import Cells, Ints
from justitia.metrics.intervals import Array
from justitia.metrics.rates import Rate, Rows

#: What all shares above cut points weigh together in the choice of rows, and all calibration rates: beside 1 of a rate.
SCORE_WEIGHT = 1 / 16
#: Share of a row's squared length that goes into what bins leave out.
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
    def of(cls, scores: Any, n: int, bins: int) -> ScoreBins:
        """Bins at quantiles of everybody's scores.

        Raises
        ------
        ValueError, TypeError
            If there is not one finite score per row, or all are the same.
        """
        check_int("score_bins", bins, at_least=2)
        if bins % 2:
            raise ValueError(f"expected an even score_bins, so that the median is a cut point, got {bins}; pass 10.")
        values = _finite(scores, n)
        if values.min() == values.max():
            raise ValueError("expected scores that differ, got one value in every row; leave the scores out.")
        cuts = np.unique(np.quantile(values, np.arange(1, bins) / bins))
        return cls(values, cuts, np.searchsorted(cuts, values, side="left"))

    @property
    def median(self) -> int:
        """Place of the median among the cut points."""
        return int(np.searchsorted(self.cuts, np.median(self.scores)))

    def rates(self, cells: Cells) -> list[Rate]:
        """Share above every cut point; positive labels in every bin. All of a kind weigh little beside one rate."""
        everyone = tuple(1.0 for _ in cells.bin)
        above = [
            Rate(f"above {cut:.6g}", everyone, tuple((cells.bin > k).astype(float)), SCORE_WEIGHT / len(self.cuts))
            for k, cut in enumerate(self.cuts)
        ]
        found = np.unique(cells.bin)
        label = cells.label.astype(float)
        within = [(cells.bin == b).astype(float) for b in found]
        names = [f"label in bin {b + 1}" for b in found]
        weight = SCORE_WEIGHT / len(found)
        calibrated = zip(names, within, strict=True)
        return above + [Rate(name, tuple(one), tuple(one * label), weight) for name, one in calibrated]

    def facts(self, cells: Cells, rows: Rows) -> ScoreFacts:
        """What is public about the scores in each column of the release."""
        column = rows.cell[cells.place]
        places = range(len(rows.totals))
        mean, spread = (np.array([how(self.scores[column == j]) for j in places]) for how in (np.mean, np.var))
        rest = self.scores - mean[column]
        return ScoreFacts(
            cuts=self.cuts,
            median=self.median,
            label=rows.of_columns(cells.label),
            bin=rows.of_columns(cells.bin),
            mean=mean,
            spread=spread,
            deviation=float(self.scores.std()),
            rest=rest,
            reach=float(np.abs(rest).max()),
        )


def _finite(scores: Any, n: int) -> Array:
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        raise TypeError("expected scores to be numbers, got something else; pass one number per row.") from None
    if values.shape != (n,):
        raise ValueError(f"expected one score per row ({n}), got shape {values.shape}; pass one number per row.")
    if pd.isna(values).any() or not np.isfinite(values).all():
        raise ValueError("expected a finite score in every row, got missing or infinite ones; drop those rows.")
    if np.abs(values).max(initial=0.0) > LARGEST_SCORE:
        raise ValueError(
            f"expected scores between -{LARGEST_SCORE:g} and {LARGEST_SCORE:g}, got one of {np.abs(values).max():g}; "
            "pass probabilities or log-odds, or drop such rows."
        )
    return values


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
        Mean and variance of the scores of everybody in the column.
    deviation : float
        Standard deviation of everybody's scores.
    rest : array of shape (n,)
        Score minus the mean of its column.
    reach : float
        Largest distance from it.
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
        """Of a row's squared length that is spent on what bins leave out; none if they leave out nothing."""
        return LEFT_OUT if self.reach > 0 else 0.0

    def beside(self, vectors: Array) -> Array:
        """Rows (n, m) of the cells, made shorter, with one more column; none is longer than 1."""
        rest = np.zeros_like(self.rest) if self.reach == 0 else self.rest / self.reach
        return np.column_stack([np.sqrt(1 - self.share) * vectors, np.sqrt(self.share) * rest])
