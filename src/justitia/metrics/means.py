r"""Query rows about numeric predictions, and how the noisy answer is read.

A mean by group, of predictions or of their squared or absolute errors, is a ratio of a sum and a count. The public
query row of a row i with the value :math:`x_i` has the columns

.. math:: \sqrt{s_0}\, v_{b(i)}, \quad \sqrt{s_1}\, \frac{x_i - m}{R}, \quad
    \sqrt{s_2}\, \frac{(x_i - m)^2 - v}{Q}, \qquad s_0 + s_1 + s_2 = 1,

with the public mean m and variance v of all rows. R and Q are the largest distances from 0 that occur in the two, so no
row is longer than 1, and a farthest one is as long. The unit vector :math:`v_{b(i)}` is about the bin of the prediction
(:mod:`justitia.metrics.distribution`), or about the number of rows alone. Centred values need no count: noise of the
number of rows enters a difference of means through the difference alone. The squares say how much values of a group
vary, which bounds of its mean depend on. Several means have two columns each.

Values are then scaled to [0, 1], so that their means are rates (:class:`~justitia.metrics.bounds.NoisyRates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from justitia._validate import check_choice, check_int
from justitia.metrics.bounds import NoisyRates, SecondMoments
from justitia.metrics.distribution import NoisyDistribution, rates_above
from justitia.metrics.person_rows import PersonRows
from justitia.metrics.quantiles import Array
from justitia.metrics.rates import Cells, NoisyCells, QueryRows, RateMetric, make_rows
from justitia.notions import FairnessNotion, notion_name

#: Means by the names that fairlearn and scikit-learn use.
NUMBER_METRICS = ("mean_prediction", "mean_squared_error", "mean_absolute_error")
#: The mean that each notion compares; none for the whole distribution.
NUMBER_NOTIONS: dict[str, str | None] = {
    "demographic_parity": None,
    "mean_parity": "mean_prediction",
    "equal_error": "mean_squared_error",
}
#: Names that say by themselves that numbers are measured.
NUMBERS_ALONE = frozenset({"mean_parity", "equal_error", *NUMBER_METRICS})
#: Notions of decisions, and those of numbers that come nearest.
_NEAREST = {"accuracy_parity": "equal_error", "selection_rate_parity": "demographic_parity"}

#: Part of a query row's squared length that is about the predictions before: a quarter, because the verdict is about
#: those after. Their noise is then 1.15 times as large as without a comparison, noise of those before twice as large.
BEFORE_SHARE = 1 / 4
#: Weight of the number of rows beside that of a mean, where the distribution is not measured.
COUNT_WEIGHT = 1 / 4
#: Weight of a mean that was not asked for, and of the squares of a mean as a multiple of its own.
SMALL_WEIGHT = 1 / 16


def means_by_name(notions: Iterable[Any], metrics: Iterable[Any]) -> dict[str, str | None]:
    """Each notion or metric by its name, with the mean that it compares; None for the distribution.

    Raises
    ------
    ValueError, TypeError
        If there is no such notion or metric of numbers, or one is given twice.
    """
    found: dict[str, str | None] = {}
    given = 0
    for notion in notions:
        given += 1
        name = notion_name(notion) if isinstance(notion, str | FairnessNotion) else notion
        if name in _NEAREST:
            raise ValueError(f"expected a notion of numbers, got {name!r}; pass {_NEAREST[name]!r}.")
        found[name] = NUMBER_NOTIONS[check_choice("notion of numbers", name, NUMBER_NOTIONS)]
    for metric in metrics:
        given += 1
        found[metric] = check_choice("metric of numbers", metric, NUMBER_METRICS)
    if len(found) < given:
        raise ValueError("expected each notion and metric once, got one twice; remove the repeated one.")
    return found


def names_numbers(*names: Any) -> bool:
    """Whether one of these notions or metrics is about numbers alone."""
    return any(isinstance(one, str) and one in NUMBERS_ALONE for one in names)


def values_of_mean(name: str, truth: Array | None, predicted: Array) -> Array:
    """What is averaged, by row."""
    if name == "mean_prediction":
        return predicted
    if truth is None:
        raise ValueError(f"expected labels in y_true for {name!r}, got None; pass them, or measure 'mean_parity'.")
    error: Array = truth - predicted
    return np.square(error) if name == "mean_squared_error" else np.abs(error)


def public_levels(values: Array, levels: int) -> Array:
    """Cut points at quantiles of all values, increasing; all values but the largest, if they are few.

    A value that many rows share has a cut point on either side, so that its share is compared as a whole.
    """
    distinct = np.unique(values)
    if len(distinct) <= levels + 1:
        return distinct[:-1]
    cuts = np.quantile(values, np.arange(1, levels + 1) / (levels + 1), method="inverted_cdf")
    repeated = cuts[1:][cuts[1:] == cuts[:-1]]
    below = distinct[np.maximum(np.searchsorted(distinct, repeated) - 1, 0)]
    found = np.unique(np.concatenate([cuts, below]))
    kept: Array = found[found < distinct[-1]]
    return kept


@dataclass(frozen=True, eq=False)
class MeanColumn:
    """Public values whose mean by group is measured.

    Attributes
    ----------
    name : str
    values : array of shape (n,)
    weight : float
        Of its squared length in a query row, beside the others.
    """

    name: str
    values: Array
    weight: float

    @cached_property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value; of values that are all the same, an interval of length 1."""
        low, high = float(self.values.min()), float(self.values.max())
        return (low, high) if high > low else (low, low + 1.0)

    @property
    def width(self) -> float:
        """Length of the range."""
        return self.range[1] - self.range[0]

    @cached_property
    def scaled(self) -> Array:
        """Values as numbers between 0 and 1."""
        return (self.values - self.range[0]) / self.width

    @cached_property
    def mean(self) -> float:
        """Of the scaled values."""
        return float(self.scaled.mean())

    @cached_property
    def variance(self) -> float:
        """Of the scaled values."""
        return float(self.scaled.var())

    @cached_property
    def centred(self) -> tuple[Array, Array]:
        """Scaled values and their squared distances from the mean, each minus its mean."""
        apart = self.scaled - self.mean
        return apart, apart**2 - self.variance

    @property
    def reach(self) -> tuple[float, float]:
        """Largest absolute value of the two, R and Q; 1 where all are 0."""
        first, second = (float(np.abs(one).max()) for one in self.centred)
        return first or 1.0, second or 1.0


@dataclass(frozen=True, eq=False)
class NumberQuery:
    """The one query of a measurement of numeric predictions.

    Attributes
    ----------
    cells : Cells
        Bins of the predictions; one cell if the distribution is not measured.
    cuts : array
        Public levels between the bins.
    rows : QueryRows
        Query rows of the cells.
    means : tuple of MeanColumn
    places : mapping
        Each notion or metric, with the place of its mean; empty for the distribution.
    persons : PersonRows or None
        Which rows are one person's.
    """

    cells: Cells
    cuts: Array
    rows: QueryRows
    means: tuple[MeanColumn, ...]
    places: Mapping[str, tuple[int, ...]]
    persons: PersonRows | None = None

    @classmethod
    def from_rows(
        cls, compared: Mapping[str, str | None], truth: Array | None, predicted: Array, levels: int
    ) -> NumberQuery:
        """The query about rows with these labels and predictions.

        Raises
        ------
        ValueError, TypeError
            If a mean needs labels and there are none, or all predictions are the same.
        """
        check_int("levels", levels, at_least=1)
        if predicted.min(initial=np.inf) == predicted.max(initial=-np.inf):
            raise ValueError("expected predictions that differ, got one value in every row; all groups are alike.")
        asked = [name for name in compared.values() if name is not None]
        names = list(dict.fromkeys(["mean_prediction", *asked]))
        means = tuple(
            MeanColumn(name, values_of_mean(name, truth, predicted), 1.0 if name in asked else SMALL_WEIGHT)
            for name in names
            if name in asked or not asked
        )
        cuts = public_levels(predicted, levels) if None in compared.values() else np.empty(0)
        nothing = np.zeros(len(predicted), dtype=np.int64)
        cells = Cells.from_rows(nothing, nothing, bins=np.searchsorted(cuts, predicted, side="left"))
        everyone = RateMetric("rows", (1.0,) * len(cells.bin), (1.0,) * len(cells.bin))
        rates = rates_above(cuts, cells.bin, 1.0) if len(cuts) else [everyone]
        order = [one.name for one in means]
        places = {name: () if mean is None else (order.index(mean),) for name, mean in compared.items()}
        return cls(cells, cuts, make_rows(rates, cells.totals), means, places)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.cells.place)

    @property
    def ranges(self) -> tuple[tuple[float, float], ...]:
        """Public range of each mean."""
        return tuple(one.range for one in self.means)

    @property
    def shares(self) -> tuple[float, Array]:
        """Share of a query row's squared length that the cells have, and (2, means) that of values and of squares."""
        own = np.array([one.weight for one in self.means])
        cells = 1.0 if len(self.cuts) else COUNT_WEIGHT
        weights: Array = np.stack([own, SMALL_WEIGHT * own])
        total = cells + weights.sum()
        return cells / total, weights / total

    def values(self) -> Array:
        """(n, width): the public query row of every row, of length at most 1."""
        cells, shares = self.shares
        columns = [np.sqrt(cells) * self.rows.vectors[self.rows.cell[self.cells.place]]]
        for mean, share in zip(self.means, shares.T, strict=True):
            parts = zip(mean.centred, mean.reach, share, strict=True)
            columns.append(np.column_stack([np.sqrt(s) * column / reach for column, reach, s in parts]))
        return np.column_stack(columns)

    def results(self, answer: Array, variance: float) -> dict[str, Any]:
        """What :meth:`read` gives, as fields of a Measurement."""
        noisy, distribution = self.read(answer, variance)
        names = tuple(one.name for one in self.means)
        return {"rate_names": names, "ranges": self.ranges, "noisy": noisy, "noisy_distribution": distribution}

    def read(self, answer: Array, variance: float) -> tuple[NoisyRates, NoisyDistribution | None]:
        """Means scaled to [0, 1], and the distribution, from the noisy group sums of :meth:`values`.

        Parameters
        ----------
        variance : float
            Of the noise of one entry before the projection onto the public total.
        """
        cells, shares = self.shares
        groups, m = answer.shape[-2], len(self.rows.totals)
        noisy = self.rows.cells(answer[..., :m] / np.sqrt(cells), variance / cells)
        sums = answer[..., m:].reshape(*answer.shape[:-1], len(self.means), 2)
        reach = np.array([one.reach for one in self.means])  # (means, 2)
        after = variance * groups / (groups + 1) * reach**2 / shares.T  # the projection
        if self.persons is not None:
            own, rest = self.persons.repeats(np.ones(self.n, dtype=np.bool_))
            noisy = replace(noisy, repeats=own, rest_repeats=rest)
        rates = self._rates(noisy, sums * reach / np.sqrt(shares.T), after)
        if not len(self.cuts):
            return rates, None
        return rates, NoisyDistribution(noisy, self.cuts, self.rows.by_column(self.cells.bin))

    def _rates(self, cells: NoisyCells, centred: Array, noise: Array) -> NoisyRates:
        """Means from noisy sums (..., G, means, 2) of centred values and centred squares, and the variance of both."""
        counts = cells.counts.sum(axis=-1, keepdims=True)
        var_count = cells.noise.sum(axis=(-2, -1))[..., None, None]
        mean = np.array([one.mean for one in self.means])
        variances = np.array([one.variance for one in self.means])
        n = cells.totals.sum(axis=-1)[..., None, None]
        shape = (*counts.shape[:-2], 1, len(mean))
        return NoisyRates(
            counts=np.broadcast_to(counts, (*counts.shape[:-1], len(mean))),
            sums=centred[..., 0] + mean * counts,
            var_sum=noise[:, 0] + mean**2 * var_count,
            cov=mean * var_count,
            var_count=np.broadcast_to(var_count, shape),
            cross=cells.cross,
            population=np.broadcast_to(n, shape),
            overall=np.broadcast_to(mean, shape),
            repeats=None if cells.repeats is None else (cells.repeats,) * len(mean),
            rest_repeats=None if cells.rest_repeats is None else (cells.rest_repeats,) * len(mean),
            second=SecondMoments(
                sums=centred[..., 1] + variances * counts,
                variance=noise[:, 1] + variances**2 * var_count,
                total=n * variances,
            ),
        )


@dataclass(frozen=True, eq=False)
class ComparedNumberQuery:
    """The one query about the predictions of two models: the query rows of both side by side, shortened to length 1.

    Attributes
    ----------
    after, before : NumberQuery
    """

    after: NumberQuery
    before: NumberQuery
    persons: PersonRows | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.after.n

    @property
    def places(self) -> Mapping[str, tuple[int, ...]]:
        """Each notion or metric, with the place of its mean."""
        return self.after.places

    def values(self) -> Array:
        """(n, width): both query rows, whose squared lengths add up to at most 1."""
        return np.hstack(
            [np.sqrt(1 - BEFORE_SHARE) * self.after.values(), np.sqrt(BEFORE_SHARE) * self.before.values()]
        )

    def results(self, answer: Array, variance: float) -> dict[str, Any]:
        """Results of both, as fields of a Measurement."""
        after, before = (replace(one, persons=self.persons) for one in (self.after, self.before))
        width = len(after.rows.totals) + 2 * len(after.means)
        share = 1 - BEFORE_SHARE
        found = after.results(answer[..., :width] / np.sqrt(share), variance / share)
        earlier = before.results(answer[..., width:] / np.sqrt(BEFORE_SHARE), variance / BEFORE_SHARE)
        return found | {
            "noisy_before": earlier["noisy"],
            "ranges_before": earlier["ranges"],
            "noisy_distribution_before": earlier["noisy_distribution"],
        }
