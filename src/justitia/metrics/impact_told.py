"""Impact of decisions or scores on groups, as auditors ask for it: ratios, significance, shortfall, small groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.metrics.impact import FOUR_FIFTHS, Compared, ImpactRatios, careful, p_value, smallest_ratio_bounds
from justitia.metrics.intervals import Array, NoisyRates, marginal_quantile, several_quantile
from justitia.metrics.told import NOT_ENOUGH, Verdict, records

#: A group of a smaller share may be left out of the ratios (New York City, 6 RCNY 5-301 (d)).
SMALL = 0.02


@dataclass(frozen=True, eq=False)
class Impact:
    """How one rate of each group compares with that of a reference.

    Ratios are to the named reference or, without one, to the group with the highest rate. z and shortfall compare with
    the named reference or, without one, with everybody else. Everything is made of noisy answers and public numbers.

    Attributes
    ----------
    rate : str
    groups : tuple of str
    noisy : NoisyRates
        Of this rate alone.
    confidence : float
    reference : int or None
        Place of the named reference.
    """

    rate: str
    groups: tuple[str, ...]
    noisy: NoisyRates
    confidence: float
    reference: int | None = None

    @property
    def ratio_to(self) -> str:
        """Whose rate the ratios are divided by."""
        return "the highest rate" if self.reference is None else self.groups[self.reference]

    @property
    def compared_with(self) -> str:
        """Whom z and shortfall compare with."""
        return "everybody else" if self.reference is None else self.groups[self.reference]

    @property
    def table(self) -> pd.DataFrame:
        """One line per group.

        * ``count``, ``share`` (of all rows) and ``positives``, noisy; ``small``: a share below 2%.
        * ``rate``; ``impact_ratio`` with bounds for all groups at once; ``four_fifths``: "below", "above" (or equal) or
          "not enough evidence", by the same bounds.
        * ``z``, ``p_value``; ``statistically_significant``: z is farther from 0 than its quantile;
          ``practically_significant``: the noisy ratio is below four fifths.
        * ``shortfall``: positive decisions that lack for equal rates, with bounds for all groups at once.
        """
        compared = Compared.of(self.noisy, self.reference)
        ratio = ImpactRatios.of(self.noisy, self.reference, self.confidence)
        z = compared.z()[:, 0]
        shortfall = compared.shortfall(several_quantile(careful(self.confidence), compared.times))
        enough = self.noisy.enough[:, 0]
        share = self.noisy.counts[:, 0] / self.noisy.population[0, 0]
        columns: dict[str, Any] = {
            "count": self.noisy.counts[:, 0],
            "share": share,
            "small": share < SMALL,
            "positives": self.noisy.sums[:, 0],
            "rate": self.noisy.rates[:, 0],
            "impact_ratio": ratio.value,
            "lower": ratio.lower,
            "upper": ratio.upper,
            "four_fifths": [_against(*one) for one in zip(ratio.value, ratio.lower, ratio.upper, strict=True)],
            "practically_significant": _known(ratio.value, ratio.value < FOUR_FIFTHS),
            "z": z,
            "p_value": p_value(z),
            "statistically_significant": _known(z, np.abs(z) > marginal_quantile(self.confidence)),
            "shortfall": shortfall[0][:, 0],
            "shortfall_lower": shortfall[1][:, 0],
            "shortfall_upper": shortfall[2][:, 0],
        }
        table = pd.DataFrame(columns, index=pd.Index(self.groups, name="group"))
        return table.assign(evidence=np.where(enough, "enough", NOT_ENOUGH))

    @property
    def not_given(self) -> float:
        """Noisy number of rows without a group; its noise has the deviation :attr:`count_deviation`."""
        return float(self.noisy.population[0, 0] - self.noisy.counts[:, 0].sum())

    @property
    def count_deviation(self) -> float:
        """Standard deviation of the noise of every count."""
        return float(np.sqrt(self.noisy.var_count[0, 0]))

    @property
    def verdict(self) -> Verdict:
        """The smallest impact ratio against four fifths; wrong with probability at most 1 - confidence."""
        at_least, at_most = (float(one) for one in smallest_ratio_bounds(self.noisy, self.reference, self.confidence))
        answer = "below" if at_most < FOUR_FIFTHS else "above" if at_least > FOUR_FIFTHS else NOT_ENOUGH
        subject = f"smallest impact ratio of {self.rate}"
        enough = self.noisy.enough[:, 0]
        unknown = tuple(group for group, known in zip(self.groups, enough, strict=True) if not known)
        return Verdict(answer, FOUR_FIFTHS, self.confidence, at_least, at_most, subject, unknown)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rate": self.rate,
            "ratio_to": self.ratio_to,
            "compared_with": self.compared_with,
            "by_group": records(self.table),
            "not_given": self.not_given,
            "count_deviation": self.count_deviation,
            "four_fifths": self.verdict.to_dict(),
        }


def _known(value: Array, answer: NDArray[np.bool_]) -> list[bool | None]:
    """The answers, none where the value is not known."""
    return [None if np.isnan(one) else bool(true) for one, true in zip(value, answer, strict=True)]


def _against(value: float, lower: float, upper: float) -> str:
    if np.isnan(value):
        return NOT_ENOUGH
    return "below" if upper < FOUR_FIFTHS else "above" if lower >= FOUR_FIFTHS else NOT_ENOUGH
