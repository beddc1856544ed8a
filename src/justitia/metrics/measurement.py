"""Result of a private measurement: noisy rates or means by group, gaps, violations and bounds, in MetricFrame's words.

Groups that cross several columns have a result for each column alone as well (:class:`Margin`). Its counts are sums of
those of the crossed groups, at no further cost.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd

from justitia._validate import check_choice, check_nonnegative
from justitia.metrics.bounds import NOT_ENOUGH, Interval, NoisyRates, Verdict, table_records
from justitia.metrics.distribution import Distribution, NoisyDistribution
from justitia.metrics.impact import Impact
from justitia.metrics.quantiles import Array, sidak_quantile
from justitia.metrics.rates import NoisyCells
from justitia.metrics.scores import NoisyScores, Scores
from justitia.privacy.groups import group_names
from justitia.privacy.interface import Groups
from justitia.privacy.ledger import Certificate

Method = Literal["between_groups", "to_overall"]
Favorable = Literal["positive", "negative"]
#: Line width of the text form.
WIDTH = 96
#: With more rates than this, the text form shows those with the largest differences.
SHOWN_RATES = 12


@dataclass(frozen=True, eq=False)
class Margin:
    r"""The groups of one of several crossed columns.

    Every crossed group has noise of variance v, and two of them a covariance of c v. A sum of s of them has the
    variance :math:`s (1 + (s - 1) c) v`, and two sums over other groups have the covariance :math:`s^2 c v`: the same
    form again.

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
        own, cross = self._noise_factors(noisy.cross)
        second = noisy.second
        if second is not None:
            second = replace(second, sums=self.parts @ second.sums, variance=own * second.variance)
        return replace(
            noisy,
            counts=self.parts @ noisy.counts,
            sums=self.parts @ noisy.sums,
            var_sum=own * noisy.var_sum,
            cov=own * noisy.cov,
            var_count=own * noisy.var_count,
            cross=cross,
            second=second,
        )

    def distribution(self, noisy: NoisyDistribution) -> NoisyDistribution:
        """Distribution of these groups."""
        return replace(noisy, cells=self._cells(noisy.cells))

    def scores(self, noisy: NoisyScores) -> NoisyScores:
        """Scores of these groups."""
        own, _ = self._noise_factors(noisy.cells.cross)
        rest = self.parts @ noisy.rest
        return replace(noisy, cells=self._cells(noisy.cells), rest=rest, rest_variance=own * noisy.rest_variance)

    def _cells(self, cells: NoisyCells) -> NoisyCells:
        own, cross = self._noise_factors(cells.cross)
        return replace(cells, counts=self.parts @ cells.counts, noise=own * cells.noise, cross=cross)

    def _noise_factors(self, cross: float) -> tuple[float, float]:
        """Variance of a sum as a multiple of that of one part; covariance of two sums as a multiple of it."""
        s = float(self.parts[0].sum())
        own = s * (1 + (s - 1) * cross)
        return own, s**2 * cross / own


def column_margins(groups: Groups, columns: Sequence[str]) -> tuple[Margin, ...]:
    """One margin for each of the crossed columns whose groups have equally many parts; none without crossed columns.

    Parameters
    ----------
    groups : tuple of labels
        Tuples, if columns are crossed.
    columns : sequence of str
        Their names; without them they are numbered.
    """
    crossed = [group for group in groups if isinstance(group, tuple)]
    if len(crossed) < len(groups):
        return ()
    width = len(crossed[0])
    names = columns if len(columns) == width else [f"column {place + 1}" for place in range(width)]
    found = []
    for place, name in enumerate(names):
        labels = Counter(group[place] for group in crossed)
        if len(labels) > 1 and len(set(labels.values())) == 1:
            parts = np.array([[float(group[place] == label) for group in crossed] for label in labels])
            found.append(Margin(name, group_names(tuple(labels)), parts))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Measurement:
    """Rates by group, gaps and violations, computed from one noisy answer and public numbers.

    Names follow fairlearn's ``MetricFrame``: rows are groups, columns are rates, or means of numeric predictions and of
    their errors, in the units of these. Of decisions among several classes there is a rate of every class, and the
    violation is the largest difference over all of them. Of numeric predictions, the violation of demographic parity is
    the largest Kolmogorov-Smirnov distance between two groups at public levels. Bounds are about the population that
    the rows were drawn from and cover sampling error and privacy noise; ``confidence`` is for

    * all rates of :attr:`table` at once,
    * all gaps to the population of :attr:`table` at once,
    * each violation and each largest gap.

    Guarantee
    ---------
    * Everything here is post-processing of what the ledger was debited for, and costs nothing more.

    Attributes
    ----------
    people : int
        Public number of rows.
    groups : tuple of str
    rate_names : tuple of str
    questions : mapping
        Each notion or metric that was measured, with the places of its rates in ``rate_names``; of numbers, demographic
        parity has none, because it compares distributions.
    noisy : NoisyRates
        Noisy counts and sums, and the covariance of their noise.
    confidence : float
    certificate : Certificate
    threshold : float or None
        Of :attr:`verdicts`.
    reference : str or None
        Group that ratios, distances and z are compared with.
    noisy_before : NoisyRates or None
        The same rates of the decisions of another model about the same rows.
    noisy_scores : NoisyScores or None
        If scores were given.
    crossed : tuple of Margin
        The columns that the groups are crossed of.
    labelled : bool
        Whether labels were given. Without them scores have neither an AUC nor calibration.
    ranges : tuple of (low, high), optional
        Of numeric predictions: the public range of each mean, which ``noisy`` has scaled to [0, 1].
    noisy_distribution : NoisyDistribution or None
        Of numeric predictions, if demographic parity was measured.
    favorable : {"positive", "negative"}
        Which of two decisions people want; :meth:`impact` is about its rate.
    ranges_before, noisy_distribution_before
        Of numeric predictions: the same of the predictions of the other model.
    """

    people: int
    groups: tuple[str, ...]
    rate_names: tuple[str, ...]
    questions: Mapping[str, tuple[int, ...]]
    noisy: NoisyRates
    confidence: float
    certificate: Certificate
    threshold: float | None = None
    reference: str | None = None
    noisy_before: NoisyRates | None = None
    noisy_scores: NoisyScores | None = None
    crossed: tuple[Margin, ...] = ()
    labelled: bool = True
    ranges: tuple[tuple[float, float], ...] | None = None
    noisy_distribution: NoisyDistribution | None = None
    favorable: Favorable = "positive"
    ranges_before: tuple[tuple[float, float], ...] | None = None
    noisy_distribution_before: NoisyDistribution | None = None

    @property
    def overall(self) -> pd.Series:
        """Rates of the whole population: public, without noise."""
        return pd.Series(self._in_units(self.noisy.overall[0]), index=self.rate_names)

    @property
    def by_group(self) -> pd.DataFrame:
        """Noisy rates, groups by rates; NaN where there is not enough evidence."""
        return self._frame(np.where(self._enough, self._in_units(self.noisy.rates), np.nan))

    def _in_units(self, rates: Array) -> Array:
        """(..., K): rates as they are; means, which were scaled to [0, 1], in their own units."""
        if self.ranges is None:
            return rates
        low, high = np.array(self.ranges).T
        scaled: Array = low + (high - low) * rates
        return scaled

    @property
    def _widths(self) -> Array:
        """(K,): length of the range of each rate."""
        return np.ones(len(self.rate_names)) if self.ranges is None else np.diff(np.array(self.ranges))[:, 0]

    @property
    def counts(self) -> pd.DataFrame:
        """Noisy number of rows behind each rate, groups by rates; it may be negative."""
        return self._frame(self.noisy.counts)

    def _frame(self, values: Array) -> pd.DataFrame:
        return pd.DataFrame(values, index=pd.Index(self.groups, name="group"), columns=list(self.rate_names))

    @property
    def _bounds(self) -> tuple[Array, Array]:
        return self.noisy.interval(sidak_quantile(self.confidence, self.noisy.counts.size))

    @property
    def _enough(self) -> Any:
        """Where the count is clearly above 0 and the bounds exclude something, (G, K)."""
        lower, upper = self._bounds
        return self.noisy.enough & ((lower > 0) | (upper < 1))

    @property
    def table(self) -> pd.DataFrame:
        """One line per rate and group: noisy count, rate with bounds, gap to the population with bounds, evidence.

        Of numbers, the rate is a mean.
        """
        lower, upper = self._bounds
        gap, gap_lower, gap_upper = self.noisy.gaps(self.noisy.simultaneous_quantile("to_overall", self.confidence))
        columns = {
            "count": self.noisy.counts,
            "rate": self._in_units(self.noisy.rates),
            "lower": self._in_units(lower),
            "upper": self._in_units(upper),
            "gap": self._widths * gap,
            "gap_lower": self._widths * gap_lower,
            "gap_upper": self._widths * gap_upper,
        }
        enough = self._enough
        for name in ("rate", "gap", "gap_lower", "gap_upper"):
            columns[name] = np.where(enough, columns[name], np.nan)
        index = pd.MultiIndex.from_product([self.rate_names, self.groups], names=["metric", "group"])
        table = pd.DataFrame({name: values.T.ravel() for name, values in columns.items()}, index=index)
        return table.assign(evidence=np.where(enough.T.ravel(), "enough", NOT_ENOUGH))

    def difference(self, method: Method = "between_groups") -> pd.Series:
        """Noisy largest difference of each rate; a maximum of noisy numbers is biased upward, its bounds are not."""
        check_choice("method", method, ("between_groups", "to_overall"))
        rates = self.by_group
        found = rates.max() - rates.min() if method == "between_groups" else (rates - self.overall).abs().max()
        return found.where(rates.notna().sum() >= (2 if method == "between_groups" else 1))

    def ratio(self, method: Method = "between_groups") -> pd.Series:
        """Noisy smallest ratio of each rate; NaN where every rate is 0."""
        check_choice("method", method, ("between_groups", "to_overall"))
        rates = self.by_group
        if method == "between_groups":
            return (rates.min() / rates.max()).where(rates.notna().sum() >= 2)
        ratios = rates / self.overall
        return ratios.where(ratios <= 1, 1 / ratios).min()

    def group_min(self) -> pd.Series:
        """Smallest noisy rate over the groups."""
        return self.by_group.min()

    def group_max(self) -> pd.Series:
        """Largest noisy rate over the groups."""
        return self.by_group.max()

    @cached_property
    def violations(self) -> dict[str, Interval]:
        """For each notion or metric, the largest difference between two groups, as in ``metrics.violation``.

        It is about the groups that have enough evidence; :attr:`unknown_groups` names the others.
        """
        return {name: self._largest_difference(name, "between_groups") for name in self.questions}

    @cached_property
    def largest_gaps(self) -> dict[str, Interval]:
        """For each notion or metric, the largest difference between a group and the population."""
        return {name: self._largest_difference(name, "to_overall") for name in self.questions}

    @property
    def violation(self) -> Interval:
        """The violation, if one notion was measured."""
        return self.violations[self._only_question(None)]

    def _largest_difference(self, name: str, method: Method) -> Interval:
        if self._compares_distributions(name) and method == "between_groups":
            found = self._distribution.largest_distance(self.confidence)
        else:
            found = self._rates_of(name).largest_difference(method, self.confidence)
        estimate, lower, upper = (float(one) * self._largest(name) for one in found)
        return Interval(estimate, lower, upper)

    def _compares_distributions(self, name: str) -> bool:
        return not self.questions[name]

    @property
    def _distribution(self) -> NoisyDistribution:
        if self.noisy_distribution is None:
            raise ValueError("expected a measurement of numeric predictions with 'demographic_parity', got another.")
        return self.noisy_distribution

    def _rates_of(self, name: str) -> NoisyRates:
        """Rates that a notion compares; of a distribution, the shares above each level."""
        if self._compares_distributions(name):
            return self._distribution.curve
        return self.noisy.select(self.questions[name])

    def _largest(self, name: str) -> float:
        """What a difference cannot exceed: 1, or the length of the public range of a mean."""
        return 1.0 if self._compares_distributions(name) else float(self._widths[list(self.questions[name])].max())

    def _only_question(self, name: str | None) -> str:
        if name is not None:
            return check_choice("notion", name, self.questions)
        if len(self.questions) > 1:
            raise ValueError(
                f"expected one notion, got {len(self.questions)} in this measurement; use violations, or pass its name."
            )
        return next(iter(self.questions))

    @property
    def unknown_groups(self) -> tuple[str, ...]:
        """Groups without enough evidence for some rate."""
        return tuple(group for group, known in zip(self.groups, self._enough.all(axis=1), strict=True) if not known)

    def not_compared(self, notion: str | None = None) -> tuple[str, ...]:
        """Groups that the violation leaves out: some rate of theirs that it compares lacks evidence."""
        enough = self._rates_of(self._only_question(notion)).enough
        return tuple(group for group, known in zip(self.groups, enough, strict=True) if not known.all())

    def test(self, threshold: float, notion: str | None = None) -> Verdict:
        """Whether the violation is below ``threshold``, with an error of at most 1 - confidence whatever the truth.

        "below" is said if every difference between two listed groups is; so a group without enough evidence leaves
        "above" and "not enough evidence". "below" is wrong with probability at most 1 - confidence if the violation
        is at or above the threshold, and "above" if it is at or below.
        """
        threshold, name = check_nonnegative("threshold", threshold), self._only_question(notion)
        at_least, at_most = self._one_sided[name]
        unknown = self.not_compared(name)
        if at_least > threshold:
            answer = "above"
        elif at_most < threshold and not unknown:
            answer = "below"
        else:
            answer = NOT_ENOUGH
        return Verdict(answer, threshold, self.confidence, at_least, at_most, name, unknown, self._largest(name))

    @cached_property
    def _one_sided(self) -> dict[str, tuple[float, float]]:
        """Bounds of each violation, each for itself: only one of the two mistakes is possible at a time."""
        found = {}
        for name in self.questions:
            if self._compares_distributions(name):
                at_most = self._distribution.largest_distance_at_most(self.confidence)
            else:
                at_most = self._rates_of(name).largest_difference_at_most(self.confidence)
            found[name] = (self.violations[name].lower, float(at_most) * self._largest(name))
        return found

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Each notion against the threshold that was given, if one was."""
        return {} if self.threshold is None else {name: self.test(self.threshold, name) for name in self.questions}

    @cached_property
    def before(self) -> Measurement | None:
        """The same rates, gaps and violations of another model's decisions or numbers, from the same noisy answer."""
        if self.noisy_before is None:
            return None
        return replace(
            self,
            noisy=self.noisy_before,
            noisy_before=None,
            noisy_scores=None,
            ranges=self.ranges_before,
            ranges_before=None,
            noisy_distribution=self.noisy_distribution_before,
            noisy_distribution_before=None,
        )

    @cached_property
    def margins(self) -> dict[str, Measurement]:
        """Of groups that cross several columns: the same for each column alone, from the same noisy answer.

        It is about rows for which all columns are given. Confidence is for each column by itself.
        """
        return {
            one.column: replace(
                self,
                groups=one.groups,
                noisy=one.rates(self.noisy),
                reference=None,
                noisy_before=None if self.noisy_before is None else one.rates(self.noisy_before),
                noisy_scores=None if self.noisy_scores is None else one.scores(self.noisy_scores),
                noisy_distribution=self.noisy_distribution and one.distribution(self.noisy_distribution),
                noisy_distribution_before=self.noisy_distribution_before
                and one.distribution(self.noisy_distribution_before),
                crossed=(),
            )
            for one in self.crossed
        }

    @property
    def scores(self) -> Scores | None:
        """Score metrics by group, if scores were given."""
        if self.noisy_scores is None:
            return None
        return Scores(self.groups, self.noisy_scores, self.confidence, self._reference, self.labelled)

    @property
    def distribution(self) -> Distribution | None:
        """Shares above public levels and distances by group, if demographic parity of numbers was measured."""
        if self.noisy_distribution is None:
            return None
        return Distribution(self.groups, self.noisy_distribution, self.confidence, self._reference)

    @property
    def _reference(self) -> int | None:
        return None if self.reference is None else self.groups.index(self.reference)

    def impact(self, rate: str = "selection_rate") -> Impact:
        """Impact ratios, significance and shortfall of a rate; of the selection rate, of the favorable decision."""
        if self.ranges is not None:
            raise ValueError("expected rates of decisions, got means of numbers; an impact ratio is about decisions.")
        place = self.rate_names.index(check_choice("rate", rate, self.rate_names))
        noisy = self.noisy.select([place])
        if rate == "selection_rate" and self.favorable == "negative":
            noisy, rate = noisy.complement, "negative_rate"
        return Impact(rate, self.groups, noisy, self.confidence, self._reference)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: noisy and public numbers, bounds and the certificate."""
        return self._rates_dict() | {
            "people": self.people,
            "confidence": self.confidence,
            "favorable_decision": self.favorable,
            "verdicts": {name: one.to_dict() for name, one in self.verdicts.items()},
            "impact": self.impact().to_dict() if "selection_rate" in self.rate_names else None,
            "scores": None if self.scores is None else self.scores.to_dict(),
            "before": None if self.before is None else self.before._rates_dict() | self.before._distribution_dict(),
            "margins": {column: one._rates_dict() for column, one in self.margins.items()},
            "certificate": self.certificate.to_dict(),
            **self._distribution_dict(),
        }

    def _distribution_dict(self) -> dict[str, Any]:
        return {} if self.distribution is None else {"distribution": self.distribution.to_dict()}

    def _rates_dict(self) -> dict[str, Any]:
        bounded = {
            name: one.to_dict()
            | dict(zip(("at_least", "at_most"), self._one_sided[name], strict=True))
            | {"not_compared": list(self.not_compared(name))}
            for name, one in self.violations.items()
        }
        return {
            "overall": {name: float(value) for name, value in self.overall.items()},
            "by_group": table_records(self.table),
            "violations": bounded,
            "largest_gaps": {name: one.to_dict() for name, one in self.largest_gaps.items()},
            "unknown_groups": list(self.unknown_groups),
        }

    def plot(self, ax: Any = None, *, rate: str | None = None) -> Any:
        """Rates of each group with their bounds (matplotlib); a ``metrics.displays.MeasurementDisplay``.

        Parameters
        ----------
        ax : matplotlib axes, optional
        rate : str, optional
            By default the first one.
        """
        displays = import_module("justitia.metrics.displays")  # it imports measure, which imports this module
        return displays.MeasurementDisplay(self, rate).plot(ax=ax)

    def __repr__(self) -> str:
        if math.isinf(self.certificate.epsilon):  # a notebook shows this unasked; print shows the numbers
            return f"Measurement({self.people:,} rows, {len(self.groups)} groups: exact, not private)"
        gaps = ", ".join(f"{name} {self._text(name, one)}" for name, one in self.violations.items())
        return f"Measurement({self.people:,} rows, {len(self.groups)} groups: {gaps} at {self.confidence:.4g})"

    def _repr_html_(self) -> str:
        """For notebooks: gaps first, then rates by group, then what it cost."""
        form: str = import_module("justitia.report.notebook").measurement_form(self)
        return form

    def to_json(self) -> str:
        """The measurement as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        names = self._shown_rates
        shown = self.table.loc[list(names)].reset_index()
        digits = {name: _decimals(width) for name, width in zip(self.rate_names, self._widths, strict=True)}
        metrics = shown["metric"].tolist()
        value = "rate" if self.ranges is None else "mean"
        lines = pd.DataFrame(
            {
                "metric": shown["metric"].where(~shown["metric"].duplicated(), ""),
                "group": shown["group"],
                "rows": [f"{count:,.0f}" for count in shown["count"]],
                **{
                    name: [
                        Interval(*row).text(digits[metric])
                        for metric, row in zip(metrics, shown[columns].to_numpy().tolist(), strict=True)
                    ]
                    for name, columns in (
                        (value, ["rate", "lower", "upper"]),
                        ("gap", ["gap", "gap_lower", "gap_upper"]),
                    )
                },
            }
        )
        text = [
            f"{self.people:,} rows, {len(self.groups)} groups; noisy, with bounds at {self.confidence:.4g}",
            lines.to_string(index=False),
        ]
        if len(names) < len(self.rate_names):
            left = len(self.rate_names) - len(names)
            text.append(f"  {left} more rates, whose noisy differences are smaller, are in the table")
        text += [
            f"violation, {name}{self._kind(name)}: {self._text(name, one)}" for name, one in self.violations.items()
        ]
        if self.unknown_groups:
            text.append(f"  among the groups with enough evidence, not {', '.join(self.unknown_groups)}")
        text += [
            f"largest gap to the population, {name}: {self._text(name, one)}" for name, one in self.largest_gaps.items()
        ]
        for sentence in (*map(str, self.verdicts.values()), self.certificate.statement, *self.certificate.remarks):
            text.append(textwrap.fill(sentence, WIDTH, break_on_hyphens=False, subsequent_indent="  "))
        return "\n".join(text)

    @property
    def _shown_rates(self) -> tuple[str, ...]:
        """Rates of the text form: all, or those with the largest noisy differences, in their order."""
        if len(self.rate_names) <= SHOWN_RATES:
            return self.rate_names
        largest = set(self.difference().fillna(-1.0).nlargest(SHOWN_RATES).index)
        return tuple(name for name in self.rate_names if name in largest)

    def _kind(self, name: str) -> str:
        """What the violation is, where it is no difference of rates or means."""
        if not self._compares_distributions(name):
            return ""
        return f" (Kolmogorov-Smirnov distance, {len(self._distribution.cuts)} levels)"

    def _text(self, name: str, found: Interval) -> str:
        return found.text(_decimals(self._largest(name)))


def _decimals(width: float) -> int:
    """Three for a rate; of a mean, as many as show a thousandth of its range."""
    return max(0, 3 - math.floor(math.log10(width)))
