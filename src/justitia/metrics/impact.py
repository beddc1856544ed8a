r"""Impact of decisions on groups, as auditors ask for it: impact ratios, significance and shortfall, with bounds.

Only noisy counts are known. A group is compared with a named reference, or with all other rows. The noise of the two is
correlated: with a named group by the projection of the answer onto its public total; with all other rows wholly, since
both add up to a public number.

* Ratio of two rates: all :math:`\rho` for which the bounds of :math:`p_a - \rho\, p_b` contain 0 (Fieller's set, with
  the bounds of :mod:`justitia.metrics.bounds` in the place of normal ones: Donner and Zou 2012).
* The ratio to the best group is the smallest of the ratios to all groups. Its lower bound has to hold for the one group
  that is the best, so it needs no correction for their number; its upper bound does.
* z: the difference of two rates over its standard deviation if both were equal, the noise included.

Leading axes are kept; letters as in :mod:`justitia.metrics.bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from justitia.metrics.bounds import (
    NOT_ENOUGH,
    NoisyRates,
    UnclippedRates,
    Verdict,
    correlation,
    difference,
    table_records,
    widen,
)
from justitia.metrics.quantiles import Array, conservative, normal_quantile, sidak_quantile, tukey_quantile

#: The rule of thumb of US agencies (1978): a rate below four fifths of the highest one is regarded as adverse impact.
FOUR_FIFTHS = 0.8
#: A group of a smaller share may be left out of the ratios (New York City, 6 RCNY 5-301 (d)).
SMALL = 0.02


@dataclass(frozen=True)
class Comparison:
    """Rates of every group beside those of the reference, or of all other rows.

    Attributes
    ----------
    first, second : NoisyRates
        Of the same shape, (..., G, K).
    cross : float
        Covariance of the noise of the two, as a multiple of that within one.
    itself : array of bool (G,)
        Where a group would be compared with itself.
    """

    first: NoisyRates
    second: NoisyRates
    cross: float
    itself: NDArray[np.bool_]

    @classmethod
    def with_reference(cls, noisy: NoisyRates, reference: int | None) -> Comparison:
        """Each group beside the reference; without one, beside all other rows."""
        itself = np.arange(noisy.counts.shape[-2]) == reference
        if reference is None:
            return cls(noisy, noisy.rest, -1.0, itself)
        return cls(noisy, noisy.take([reference] * len(itself)), noisy.cross, itself)

    @classmethod
    def between_groups(cls, noisy: NoisyRates) -> Comparison:
        """Group a beside group b for all pairs a < b: (..., pairs, K) in the place of (..., G, K)."""
        first, second = np.triu_indices(noisy.counts.shape[-2], 1)
        return cls(noisy.take(first), noisy.take(second), noisy.cross, np.zeros(len(first), dtype=np.bool_))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where both rates are, (..., G, K)."""
        return self.first.enough & self.second.enough & ~self.itself[:, None]

    def differences(self, quantile: float | Array) -> tuple[Array, Array, Array]:
        """Rate minus that of the other side, with bounds, (..., G, K); NaN where one is unknown."""
        value, low, high = difference(self.first, self.second, self.cross, quantile)
        known = self.known
        return np.where(known, value, np.nan), np.where(known, low, np.nan), np.where(known, high, np.nan)

    def z(self) -> Array:
        """Difference over its standard deviation if both rates were equal, (..., G, K); NaN where one is unknown."""
        n, m = self.first.known_counts, self.second.known_counts
        pooled = np.clip((self.first.sums + self.second.sums) / (n + m), 0, 1)
        noise = self.first.noise_covariance(pooled, pooled)
        sampling = pooled * (1 - pooled) * (1 / self.first.effective_counts + 1 / self.second.effective_counts)
        variance = sampling + noise * (1 / n**2 + 1 / m**2 - 2 * self.cross / (n * m))
        apart = self.first.sums / n - self.second.sums / m
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(variance > 0, apart / np.sqrt(variance), 0.0)
        return np.where(self.known, found, np.nan)

    def shortfall(self, quantile: float) -> tuple[Array, Array, Array]:
        """How many more of a group's rows would have to be positive for equal rates, with bounds, (..., G, K).

        Negative where the group has the higher rate.
        """
        value, low, high = self.differences(quantile)
        n = self.first.known_counts
        half_width = quantile * value * np.sqrt(self.first.var_count)
        return -n * value, *widen(-n * value, -n * high, -n * low, half_width)


def pairwise_ratios(noisy: NoisyRates, quantile: float) -> tuple[Array, Array, Array]:
    """Rate of a over rate of b with bounds, (..., G, G, K); NaN, 0 and infinity where one is unknown."""
    bounds = noisy.unclipped(quantile)
    a, b = (UnclippedRates(*(np.expand_dims(one, axis) for one in vars(bounds).values())) for axis in (-2, -3))
    p, q = np.expand_dims(noisy.rates, -2), np.expand_dims(noisy.rates, -3)
    raised = {name: getattr(noisy, name)[..., None, :] for name in ("var_sum", "cov", "var_count")}
    r = correlation(a, b, noisy.cross * replace(noisy, **raised).noise_covariance(p, q))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = p / q
    lower = _ratio_bound(a.rate, b.rate, a.rate - a.lower, b.upper - b.rate, r, upper=False)
    upper = _ratio_bound(a.rate, b.rate, a.upper - a.rate, b.rate - b.lower, r, upper=True)
    known = ~np.isnan(a.rate) & ~np.isnan(b.rate)
    # Noise may take the bounds of unclipped rates past the ratio of clipped ones; fmin and fmax pass over 0 / 0.
    lower, upper = np.fmin(lower, value), np.fmax(upper, value)
    return np.where(known, value, np.nan), np.where(known, lower, 0.0), np.where(known, upper, np.inf)


def _ratio_bound(p: Array, q: Array, a: Array, b: Array, r: Array, *, upper: bool) -> Array:
    r"""Where :math:`(p - \rho q)^2 = a^2 + \rho^2 b^2 - 2 \rho r a b`; infinite where q may be 0."""
    with np.errstate(invalid="ignore", divide="ignore"):  # half-widths may be infinite
        square, middle, rest = q**2 - b**2, p * q - r * a * b, p**2 - a**2
        root = np.sqrt(np.maximum(middle**2 - square * rest, 0))
        if upper:
            return np.where((q > 0) & (square > 0) & (middle + root > 0), (middle + root) / square, np.inf)
        found = rest / (middle + root)  # the smaller root, whatever the sign of square
    return np.where(np.isfinite(found), np.maximum(found, 0.0), 0.0)


def impact_ratios(noisy: NoisyRates, reference: int | None, confidence: float) -> tuple[Array, Array, Array]:
    """Each group's rate over the reference's or the best group's, with bounds for all groups at once, (..., G).

    ``noisy`` has one rate.
    """
    confidence, groups = conservative(confidence), noisy.counts.shape[-2]
    if reference is None:
        return _ratios_to_best(noisy, sidak_quantile(confidence, groups), tukey_quantile(confidence, groups, 1))
    found = pairwise_ratios(noisy, sidak_quantile(confidence, max(1, groups - 1)))
    own = (np.arange(groups) == reference) & noisy.enough[..., [reference], 0]
    value, lower, upper = (np.where(own, 1.0, one[..., reference, 0]) for one in found)
    return value, lower, upper


def _ratios_to_best(noisy: NoisyRates, alone: float, together: float) -> tuple[Array, Array, Array]:
    """Smallest ratio to any group that is known, its own, 1, among them; with bounds, (..., G).

    ``alone`` is the quantile of the ratio to one group, which is the best; ``together`` that of those to all groups.
    """
    value, lower = (one[..., 0] for one in pairwise_ratios(noisy, alone)[:2])
    upper = pairwise_ratios(noisy, together)[2][..., 0]
    own = np.eye(value.shape[-1], dtype=bool)
    unknown = np.isnan(np.einsum("...aa->...a", value))
    low = np.where(own, 1.0, np.where(unknown[..., None, :], np.inf, lower)).min(axis=-1)
    high = np.where(own, 1.0, upper).min(axis=-1)
    best = np.nanmin(np.where(own, 1.0, value), axis=-1)
    return np.where(unknown, np.nan, best), np.where(unknown, 0.0, low), np.where(unknown, 1.0, high)


def smallest_ratio_bounds(noisy: NoisyRates, reference: int | None, confidence: float) -> tuple[Array, Array]:
    """One-sided bounds of the smallest impact ratio of the only rate: at least, and at most.

    The smallest is at least the smallest lower bound of one pair, each for itself; at most the smallest upper bound of
    all pairs at once. A group that is not known leaves the first at 0.
    """
    confidence, groups = conservative(confidence), noisy.counts.shape[-2]
    one = normal_quantile(2 * confidence - 1)
    if reference is not None:
        others = np.arange(groups) != reference
        at_least = pairwise_ratios(noisy, one)[1][..., others, reference, 0].min(axis=-1)
        several = float(norm.ppf(confidence ** (1 / max(1, groups - 1))))
        at_most = pairwise_ratios(noisy, several)[2][..., others, reference, 0].min(axis=-1)
        return np.minimum(at_least, 1.0), at_most
    enough = noisy.enough[..., 0].all(axis=-1)
    _, lower, upper = _ratios_to_best(noisy, one, tukey_quantile(confidence, groups, 1))
    return np.where(enough, lower.min(axis=-1), 0.0), upper.min(axis=-1)


@dataclass(frozen=True, eq=False)
class Impact:
    """How one rate of each group compares with that of a reference.

    Ratios are to the named reference or, without one, to the group with the highest rate. z and shortfall compare with
    the named reference or, without one, with all other rows. Everything is computed from noisy answers and public
    numbers.

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
        comparison = Comparison.with_reference(self.noisy, self.reference)
        ratio, lower, upper = impact_ratios(self.noisy, self.reference, self.confidence)
        z = comparison.z()[:, 0]
        times = max(1, int((~comparison.itself).sum()))
        shortfall = comparison.shortfall(sidak_quantile(conservative(self.confidence), times))
        share = self.noisy.counts[:, 0] / self.noisy.population[0, 0]
        four_fifths = np.select([upper < FOUR_FIFTHS, lower >= FOUR_FIFTHS], ["below", "above"], NOT_ENOUGH)
        columns: dict[str, Any] = {
            "count": self.noisy.counts[:, 0],
            "share": share,
            "small": share < SMALL,
            "positives": self.noisy.sums[:, 0],
            "rate": self.noisy.rates[:, 0],
            "impact_ratio": ratio,
            "lower": lower,
            "upper": upper,
            "four_fifths": np.where(np.isnan(ratio), NOT_ENOUGH, four_fifths).tolist(),
            "practically_significant": _where_known(ratio, ratio < FOUR_FIFTHS),
            "z": z,
            "p_value": 2 * norm.sf(np.abs(z)),
            "statistically_significant": _where_known(z, np.abs(z) > normal_quantile(self.confidence)),
            "shortfall": shortfall[0][:, 0],
            "shortfall_lower": shortfall[1][:, 0],
            "shortfall_upper": shortfall[2][:, 0],
        }
        table = pd.DataFrame(columns, index=pd.Index(self.groups, name="group"))
        return table.assign(evidence=np.where(self.noisy.enough[:, 0], "enough", NOT_ENOUGH))

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
        return self.against(FOUR_FIFTHS)

    def against(self, limit: float) -> Verdict:
        """The smallest impact ratio against a limit, such as that of a policy."""
        at_least, at_most = map(float, smallest_ratio_bounds(self.noisy, self.reference, self.confidence))
        answer = "below" if at_most < limit else "above" if at_least >= limit else NOT_ENOUGH
        subject = f"smallest impact ratio of {self.rate}"
        enough = self.noisy.enough[:, 0]
        unknown = tuple(group for group, known in zip(self.groups, enough, strict=True) if not known)
        return Verdict(answer, limit, self.confidence, at_least, at_most, subject, unknown)

    def plot(self, ax: Any = None) -> Any:
        """Impact ratios with bounds (matplotlib); an ``metrics.displays.ImpactDisplay``."""
        displays = import_module("justitia.metrics.displays")  # it imports this module
        return displays.ImpactDisplay(self).plot(ax=ax)

    def __repr__(self) -> str:
        return f"Impact({self.verdict})" if self.count_deviation > 0 else f"Impact({self.rate}: exact, not private)"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, ratios with bounds, and the line of four fifths."""
        form: str = import_module("justitia.report.notebook").impact_form(self)
        return form

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rate": self.rate,
            "ratio_to": self.ratio_to,
            "compared_with": self.compared_with,
            "by_group": table_records(self.table),
            "not_given": self.not_given,
            "count_deviation": self.count_deviation,
            "four_fifths": self.verdict.to_dict(),
        }


def _where_known(value: Array, answer: NDArray[np.bool_]) -> list[bool | None]:
    """The answers, None where the value is not known."""
    return [None if np.isnan(one) else bool(true) for one, true in zip(value, answer, strict=True)]
