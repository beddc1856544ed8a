r"""Rates as sums over public cells, and the query rows whose noisy group sums estimate gaps with the least noise.

A hard decision about a row of label y falls into one public cell (y, decision): one of four for two classes, one of
L^2 for L. Every rate is a ratio of sums over cells: selection rate, true and false positive rate, accuracy, and
whatever a notion of your own averages. So the number of rows of each group in each cell is all that has to be asked
about A, once, for any number of rates. Scores and the decisions of a second model make the cells finer
(:class:`Cells`), and nothing else changes.

One row is in one cell. If its query row is the unit vector of the cell, the answer is noisy counts. Any other unit
vectors :math:`v_1, ..., v_m` cost the same, and the counts recovered from their sums have noise of covariance
:math:`\tau^2 C^{-1}` with :math:`C_{jl} = \langle v_j, v_l \rangle`. :func:`best_correlations` chooses C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.metrics.bounds import NoisyRates, Repeats
from justitia.metrics.quantiles import Array
from justitia.notions import NOTIONS, FairnessNotion, get_notion

Ints = NDArray[np.int64]

#: Label and decision of the four cells, in their order 2 y + decision.
_LABEL = (0, 0, 1, 1)
_DECISION = (0, 1, 0, 1)

#: How much the noise of a count weighs beside that of a gap: as much as it would in a ratio with a gap of one sixth.
COUNT_WEIGHT = 1 / 36
#: Keeps the query rows of cells that no rate distinguishes from becoming equal.
_RIDGE = 1e-6


@dataclass(frozen=True)
class RateMetric:
    """What is averaged over which cells.

    Attributes
    ----------
    name : str
    member : tuple of 0.0 or 1.0, one per cell
        Which cells make up the event.
    value : tuple of floats, one per cell
        h of a row in each cell, 0 outside the event.
    weight : float
        How much its noise matters beside that of the others, in the choice of query rows.
    """

    name: str
    member: tuple[float, ...]
    value: tuple[float, ...]
    weight: float = 1.0

    def over(self, kinds: Ints) -> RateMetric:
        """The same rate over finer cells; ``kinds`` says which cell each of them is a part of."""
        member, value = np.array([self.member, self.value])[:, kinds].tolist()
        return replace(self, member=tuple(member), value=tuple(value))


def _rate(name: str, member: Any, value: Any) -> RateMetric:
    event = np.array(member, dtype=np.float64)
    return RateMetric(name, tuple(event.tolist()), tuple((event * value).tolist()))


_ALL, _NEGATIVE, _SELECTED = (1, 1, 1, 1), (1, 1, 0, 0), _DECISION
_WRONG, _RIGHT = (0, 1, 1, 0), (1, 0, 0, 1)

#: Rates by the names that fairlearn and scikit-learn use.
METRICS: dict[str, RateMetric] = {
    one.name: one
    for one in (
        _rate("selection_rate", _ALL, _DECISION),
        _rate("true_positive_rate", _LABEL, _DECISION),
        _rate("false_positive_rate", _NEGATIVE, _DECISION),
        _rate("true_negative_rate", _NEGATIVE, (1, 0, 1, 0)),
        _rate("false_negative_rate", _LABEL, (1, 0, 1, 0)),
        _rate("accuracy_score", _ALL, _RIGHT),
        _rate("zero_one_loss", _ALL, _WRONG),
        _rate("precision_score", _SELECTED, _LABEL),
    )
}
_BY_CELLS = {(one.member, one.value): one for one in METRICS.values()}


def notion_rates(notion: FairnessNotion) -> tuple[RateMetric, ...]:
    """The rates that a notion compares, one per event; those with a usual name have that name."""
    y, decided = np.array(_LABEL, dtype=np.float64), np.array(_DECISION, dtype=np.float64)
    h = notion.h_exact(2 * decided - 1, y).tolist()
    found = []
    for event, member in zip(notion.event_names, notion.events(y).T.tolist(), strict=True):
        rate = _rate(f"{notion.name}[{event}]", member, h)
        found.append(_BY_CELLS.get((rate.member, rate.value), rate))
    return tuple(found)


def class_metrics(classes: Sequence[Any], truth: Ints, decided: Ints) -> dict[str, tuple[RateMetric, ...]]:
    """Rates of decisions among L classes by the names of scikit-learn, over the cells L y + decision.

    A rate of every class is one metric, ``selection_rate`` for example. Where a rate is conditional on a label or on a
    decision, classes without such rows are left out, because labels and decisions are public.

    Parameters
    ----------
    classes : sequence of labels
    truth, decided : arrays of shape (n,)
        Public codes of labels and decisions.
    """
    L = len(classes)
    label, decision = (one.astype(float) for one in np.divmod(np.arange(L * L), L))
    everywhere, right = np.ones(L * L), (label == decision).astype(float)
    true, predicted = (np.unique(one).tolist() for one in (truth, decided))
    return {
        "selection_rate": tuple(
            _rate(f"selection_rate[{name}]", everywhere, decision == c) for c, name in enumerate(classes)
        ),
        "selection_rate_by_label": tuple(
            _rate(f"selection_rate[{name} | y={classes[y]}]", label == y, decision == c)
            for y in true
            for c, name in enumerate(classes)
        ),
        "recall_score": tuple(_rate(f"recall_score[{classes[y]}]", label == y, right) for y in true),
        "precision_score": tuple(_rate(f"precision_score[{classes[d]}]", decision == d, right) for d in predicted),
        "accuracy_score": (_rate("accuracy_score", everywhere, right),),
        "zero_one_loss": (_rate("zero_one_loss", everywhere, 1 - right),),
    }


#: Names of metrics of several classes that a user may give.
CLASS_METRICS = ("selection_rate", "recall_score", "precision_score", "accuracy_score", "zero_one_loss")
#: The metric of several classes that each notion compares.
CLASS_NOTIONS = {
    "demographic_parity": "selection_rate",
    "equalized_odds": "selection_rate_by_label",
    "equal_opportunity": "recall_score",
    "accuracy_parity": "zero_one_loss",
}


def class_metric_of(notion: str | FairnessNotion) -> tuple[str, str]:
    """Name of a notion, and the metric of several classes that it compares.

    Raises
    ------
    ValueError
        If the notion is about two classes alone, as one of your own is.
    """
    chosen = get_notion(notion)
    if type(chosen) not in NOTIONS.values() or chosen.name not in CLASS_NOTIONS:
        known = ", ".join(map(repr, CLASS_NOTIONS))
        raise ValueError(
            f"expected a notion of several classes ({known}), got {chosen.name!r}; pass one of these, or compare one "
            "class with all others."
        )
    return chosen.name, CLASS_NOTIONS[chosen.name]


@dataclass(frozen=True, eq=False)
class Cells:
    """Public cells that occur, in the order of their codes: label, decision, second decision, bin of scores.

    Attributes
    ----------
    place : array of shape (n,)
        Which cell each row is in.
    kind : array, one entry per cell
        L y + decision.
    before : array, one entry per cell
        L y + decision of the second model; that of the first if there is no second.
    bin : array, one entry per cell
        Of the score; 0 if there are none.
    totals : array, one entry per cell
        Public number of rows.
    classes : int
        L.
    """

    place: Ints
    kind: Ints
    before: Ints
    bin: Ints
    totals: Array
    classes: int = 2

    @classmethod
    def from_rows(
        cls, truth: Any, decided: Any, before: Any = None, bins: Ints | None = None, classes: int = 2
    ) -> Cells:
        """Cells of rows with these labels, decisions (0 to L - 1), decisions of a second model, and bins of scores."""
        y, d, L = np.asarray(truth, dtype=np.int64), np.asarray(decided, dtype=np.int64), classes
        second = d if before is None else np.asarray(before, dtype=np.int64)
        binned = np.zeros_like(y) if bins is None else bins
        code, place = np.unique(((binned * L + y) * L + d) * L + second, return_inverse=True)
        label, decision, other = code // L**2 % L, code // L % L, code % L
        totals = np.bincount(place, minlength=len(code)).astype(float)
        return cls(place, L * label + decision, L * label + other, code // L**3, totals, L)

    @property
    def label(self) -> Ints:
        """Label of each cell."""
        return self.kind // self.classes


def best_correlations(weights: Array) -> Array:
    r"""Inner products of the unit query rows whose answer has the least noise.

    .. math:: \min_C \operatorname{tr}(C^{-1} W) \quad \text{over positive definite } C \text{ with } C_{jj} = 1

    A convex problem; where :math:`C^{-1} W C^{-1} = \operatorname{diag}(\lambda)` it is solved, so :math:`\lambda` is
    scaled until :math:`C = \Lambda^{-1/2} (\Lambda^{1/2} W \Lambda^{1/2})^{1/2} \Lambda^{-1/2}` has a diagonal of ones.

    Parameters
    ----------
    weights : array of shape (..., m, m)
        W, symmetric: the sum of c c^T over all combinations c of the counts that matter.
    """
    m = weights.shape[-1]
    diagonal = np.einsum("...ii->...i", weights)
    eye: Array = np.eye(m)
    W = weights + _RIDGE * diagonal.mean(-1)[..., None, None] * eye
    lam = 1 / diagonal
    for _ in range(200):
        root = np.sqrt(lam)
        C = _square_root(root[..., :, None] * W * root[..., None, :]) / (root[..., :, None] * root[..., None, :])
        lengths = np.einsum("...ii->...i", C)
        if np.abs(lengths - 1).max() < 1e-9:
            break
        lam = lam * lengths
    # Unit rows to the last bit, whatever the last step left.
    unit: Array = C / np.sqrt(lengths[..., :, None] * lengths[..., None, :])
    return unit


def _square_root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return root


@dataclass(frozen=True)
class NoisyCells:
    """Noisy number of rows of each group in each column of cells, with the covariance of the noise.

    Attributes
    ----------
    counts : array of shape (..., G, m)
    noise : array of shape (..., m, m)
        Covariance of the noise within one group.
    cross : float
        That between two groups, as a multiple of it.
    totals : array of shape (..., m)
        Public number of rows in each column.
    repeats, rest_repeats : Repeats, optional
        Rows by person: those that may be counted in a group, and all of them. Without them rows are independent.
    """

    counts: Array
    noise: Array
    cross: float
    totals: Array
    repeats: Repeats | None = None
    rest_repeats: Repeats | None = None

    def rates(self, member: Array, value: Array) -> NoisyRates:
        """Rates whose events and values are given by column, (K, m)."""
        population = self.totals @ member.T
        return NoisyRates(
            counts=self.counts @ member.T,
            sums=self.counts @ value.T,
            var_sum=_along(self.noise, value, value),
            cov=_along(self.noise, value, member),
            var_count=_along(self.noise, member, member),
            cross=self.cross,
            population=population[..., None, :],
            overall=(self.totals @ value.T / population)[..., None, :],
            # No part of the rows has a larger design effect than this allows for as many of all rows.
            repeats=None if self.repeats is None else (self.repeats,) * len(member),
            rest_repeats=None if self.rest_repeats is None else (self.rest_repeats,) * len(member),
        )


def _along(matrix: Array, first: Array, second: Array) -> Array:
    found: Array = np.einsum("kj,...jl,kl->...k", first, matrix, second)[..., None, :]
    return found


@dataclass(frozen=True)
class QueryRows:
    """The public query rows of one release, and how its answer is read.

    Attributes
    ----------
    cell : array of ints, one per cell
        Which of the m columns each cell became; -1 for cells that are not queried: those in no event, and those
        without rows.
    member, value : arrays of shape (K, m)
    totals : array of shape (..., m)
        Public number of rows in each column.
    vectors : array of shape (..., m, m)
        Row j is the query row of whoever is in column j, of length 1.
    """

    cell: NDArray[np.int64]
    member: Array
    value: Array
    totals: Array
    vectors: Array

    def cells(self, answer: Array, variance: float) -> NoisyCells:
        """Counts from noisy group sums (..., G, m) whose blocks were projected onto their public total.

        Parameters
        ----------
        variance : float
            Of the noise of one entry before the projection.
        """
        groups = answer.shape[-2]
        # Rows are symmetric, so the noise of the counts has covariance (V V)^-1; the projection takes 1/(G + 1) of it.
        noise = variance * groups / (groups + 1) * np.linalg.inv(self.vectors @ self.vectors)
        return NoisyCells(answer @ np.linalg.inv(self.vectors), noise, -1 / groups, self.totals)

    def read(self, answer: Array, variance: float) -> NoisyRates:
        """Rates from the same; see :meth:`cells`."""
        return self.cells(answer, variance).rates(self.member, self.value)

    def by_column(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Values of the cells by column; -1 where cells of one column differ."""
        found = np.full(self.member.shape[-1], -1)
        for column in range(len(found)):
            known = np.unique(values[self.cell == column])
            found[column] = known[0] if len(known) == 1 else -1
        return found


def make_rows(rates: Sequence[RateMetric], totals: Array) -> QueryRows:
    """The query rows for some rates, from the public number of rows in each cell.

    Cells that no rate distinguishes become one column. Each rate weighs its gap to the population and, less, its count,
    by the inverse of its number of rows: noise is compared with sampling error.

    Parameters
    ----------
    totals : array of shape (..., number of cells)
        Several at once must have the same cells occupied.
    """
    table = np.array([(one.member, one.value) for one in rates])  # (K, 2, number of cells)
    cells = totals.shape[-1]
    occupied = (totals > 0).reshape(-1, cells).all(axis=0)
    columns: list[tuple[float, ...]] = []
    cell = np.full(cells, -1)
    for place in np.flatnonzero(occupied & table[:, 0].any(axis=0)):
        kind = (*table[:, 0, place], *table[:, 1, place])
        if kind not in columns:
            columns.append(kind)
        cell[place] = columns.index(kind)
    member, value = np.array(columns).T.reshape(2, len(rates), -1)
    merged = totals @ (cell[:, None] == np.arange(len(columns))).astype(float)
    sizes = merged @ member.T
    gap = value - member * (merged @ value.T / sizes)[..., None]
    pairs = np.einsum("...kj,...kl->...kjl", gap, gap) + COUNT_WEIGHT * np.einsum("kj,kl->kjl", member, member)
    importance = np.array([one.weight for one in rates])
    weights: Array = (pairs * (importance / sizes)[..., None, None]).sum(axis=-3)
    return QueryRows(cell, member, value, merged, _square_root(best_correlations(weights)))
