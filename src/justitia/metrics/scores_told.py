"""What a private measurement says about scores: means, distances, AUC and calibration by group, a curve of gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from justitia.metrics.impact import careful
from justitia.metrics.impact_told import Impact
from justitia.metrics.intervals import Array, NoisyRates, several_quantile
from justitia.metrics.scores import NoisyScores
from justitia.metrics.told import NOT_ENOUGH, records

SCORING_RATE = "scoring_rate"


@dataclass(frozen=True, eq=False)
class Scores:
    """Score metrics by group, made of one noisy answer and public numbers.

    Attributes
    ----------
    groups : tuple of str
    noisy : NoisyScores
    confidence : float
    reference : int or None
        Place of the group that means and distances are compared with; everybody else if None.
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
        """Rate of scores above everybody's median (Local Law 144's "scoring rate"), and its impact ratios."""
        return Impact(SCORING_RATE, self.groups, self.noisy.scoring_rate, self.confidence, self.reference)

    @property
    def table(self) -> pd.DataFrame:
        """One line per group; the bounds of each column hold for all groups at once.

        * ``mean_score``; ``standardized_mean_difference`` and ``ks_distance``, to the reference or everybody else.
        * ``binned_auc``: how often the positive one of two people of different labels is in the higher public bin of
          scores; two people in one bin count one half. Its bounds are about this quantity.
        * ``auc_lower``, ``auc_upper``: bounds of the AUC of exact scores, which hold however people are ranked within
          a bin. More bins (``score_bins``) bring the two nearer, and more noise into each.

        Without labels there is no AUC.
        """
        others = max(1, len(self.groups) - (self.reference is not None))
        columns = {"mean_score": self.noisy.means()[0]}
        for name, found in (
            (
                "standardized_mean_difference",
                self.noisy.mean_difference(self.reference, several_quantile(careful(self.confidence), others)),
            ),
            ("ks_distance", self.noisy.distance(self.reference, self.confidence)),
            *((("binned_auc", self.noisy.binned_auc(self.confidence)),) if self.labelled else ()),
        ):
            columns |= dict(zip((name, f"{name}_lower", f"{name}_upper"), found, strict=True))
        if self.labelled:
            columns |= dict(zip(("auc_lower", "auc_upper"), self.noisy.auc_between(self.confidence), strict=True))
        return pd.DataFrame(columns, index=pd.Index(self.groups, name="group"))

    @property
    def curve(self) -> pd.DataFrame:
        """Share above each public cut point, by group, and its gap to the population with bounds for all at once."""
        rates = self.noisy.curve
        return self._by_cut(rates, self.noisy.facts.cuts, "threshold")

    @property
    def calibration(self) -> pd.DataFrame:
        """Share of the positive label by bin of scores and group, with bounds for all at once.

        ``score`` is everybody's mean score in the bin and ``overall`` everybody's share; both are public. The table is
        empty without labels.
        """
        rates = self.noisy.calibration
        lower, upper = rates.interval(several_quantile(self.confidence, rates.counts.size))
        known = rates.enough & ((lower > 0) | (upper < 1))
        places = np.arange(rates.counts.shape[-1])
        columns = {
            "score": np.broadcast_to(self.noisy.bin_means, rates.counts.shape),
            "overall": np.broadcast_to(rates.overall, rates.counts.shape),
            "count": rates.counts,
            "rate": np.where(known, rates.rates, np.nan),
            "lower": lower,
            "upper": upper,
        }
        table = self._frame(columns, places + 1, "bin", known)
        return table if self.labelled else table.iloc[:0]

    def _by_cut(self, rates: NoisyRates, cuts: Array, name: str) -> pd.DataFrame:
        gap, low, high = rates.gaps(rates.quantiles("to_overall", self.confidence)[1])
        known = rates.enough
        columns = {
            "overall": np.broadcast_to(rates.overall, gap.shape),
            "rate": rates.rates,
            "gap": gap,
            "gap_lower": low,
            "gap_upper": high,
        }
        return self._frame(columns, cuts, name, known)

    def _frame(self, columns: dict[str, Array], places: Any, name: str, known: Any) -> pd.DataFrame:
        index = pd.MultiIndex.from_product([places, self.groups], names=[name, "group"])
        table = pd.DataFrame({key: values.T.ravel() for key, values in columns.items()}, index=index)
        return table.assign(evidence=np.where(known.T.ravel(), "enough", NOT_ENOUGH))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "compared_with": self.compared_with,
            "median": float(self.noisy.facts.cuts[self.noisy.facts.median]),
            "labelled": self.labelled,
            "by_group": records(self.table),
            "scoring_rate": self.scoring.to_dict(),
            "curve": records(self.curve),
            "calibration": records(self.calibration),
        }
