r"""The public cells behind every rate, and the rows whose noisy group sums estimate gaps with the least noise.

A hard decision about a person of label y falls into one of four public cells (y, decision), and every rate is a ratio
of sums over cells: selection rate, true and false positive rate, accuracy, and whatever a notion of your own averages.
So the number of people of each group in each cell is all that A has to be asked, once, for any number of rates. Scores
and the decisions of a second model make the cells finer (:mod:`justitia.metrics.cells`), and nothing else changes.

One person is in one cell. If their row is the unit vector of the cell, the answer is noisy counts. Any other unit
vectors :math:`v_1, ..., v_m` cost the same, and the counts recovered from their sums have noise of covariance
:math:`\tau^2 C^{-1}` with :math:`C_{jl} = \langle v_j, v_l \rangle`. :func:`best_correlations` chooses C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from justitia.metrics.intervals import Array, NoisyRates
from justitia.metrics.repeats import Repeats
from justitia.notions import FairnessNotion

#: Label and decision of the four cells, in their order 2 y + decision.
_LABEL = (0, 0, 1, 1)
_DECISION = (0, 1, 0, 1)

#: How much the noise of a count weighs beside that of a gap: as much as it would in a ratio with a gap of one sixth.
COUNT_WEIGHT = 1 / 36
#: Keeps the rows of cells that no rate tells apart from falling together.
_RIDGE = 1e-6


@dataclass(frozen=True)
class Rate:
    """What is averaged over which cells.

    Attributes
    ----------
    name : str
    member : tuple of 0.0 or 1.0, one per cell
        Which cells make up the event.
    value : tuple of floats, one per cell
        h of a row in each cell, 0 outside the event.
    weight : float
        How much its noise matters beside that of the others, in the choice of rows.
    """

    name: str
    member: tuple[float, ...]
    value: tuple[float, ...]
    weight: float = 1.0

    def over(self, kinds: NDArray[np.int64]) -> Rate:
        """The same rate over finer cells, of which ``kinds`` says what each was made of."""
        member, value = (tuple(float(one[kind]) for kind in kinds) for one in (self.member, self.value))
        return replace(self, member=member, value=value)


def _rate(name: str, member: Sequence[float], value: Sequence[float]) -> Rate:
    return Rate(
        name,
        tuple(float(one) for one in member),
        tuple(float(one * h) for one, h in zip(member, value, strict=True)),
    )


_EVERYONE, _NEGATIVE, _SELECTED = (1, 1, 1, 1), (1, 1, 0, 0), _DECISION
_WRONG, _RIGHT = (0, 1, 1, 0), (1, 0, 0, 1)

#: Rates by the names that fairlearn and scikit-learn use.
METRICS: dict[str, Rate] = {
    one.name: one
    for one in (
        _rate("selection_rate", _EVERYONE, _DECISION),
        _rate("true_positive_rate", _LABEL, _DECISION),
        _rate("false_positive_rate", _NEGATIVE, _DECISION),
        _rate("true_negative_rate", _NEGATIVE, (1, 0, 1, 0)),
        _rate("false_negative_rate", _LABEL, (1, 0, 1, 0)),
        _rate("accuracy_score", _EVERYONE, _RIGHT),
        _rate("zero_one_loss", _EVERYONE, _WRONG),
        _rate("precision_score", _SELECTED, _LABEL),
    )
}


def notion_rates(notion: FairnessNotion) -> tuple[Rate, ...]:
    """The rates that a notion compares, one per event; those with a usual name bear it."""
    y, decided = np.array(_LABEL, dtype=np.float64), np.array(_DECISION, dtype=np.float64)
    h = notion.h_exact(2 * decided - 1, y).tolist()
    made = [
        _rate(f"{notion.name}[{event}]", member, h)
        for event, member in zip(notion.event_names, notion.events(y).T.tolist(), strict=True)
    ]
    known = {(one.member, one.value): one for one in METRICS.values()}
    return tuple(known.get((one.member, one.value), one) for one in made)


def best_correlations(weights: Array) -> Array:
    r"""Inner products of the unit rows that answer with the least noise.

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
    """Noisy number of people of each group in each column of cells, with the covariance of the noise.

    Attributes
    ----------
    counts : array of shape (..., G, m)
    noise : array of shape (..., m, m)
        Covariance of the noise within one group.
    cross : float
        That between two groups, as a multiple of it.
    totals : array of shape (..., m)
        Public number of people in each column.
    repeats, rest_repeats : Repeats, optional
        Rows by person: those that groups may hold, and all of them. Without them rows are independent.
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
class Rows:
    """The public rows of one release, and how its answer is read.

    Attributes
    ----------
    cell : array of ints, one per cell
        Which of the m columns each cell became; -1 for cells that need no question: those in no event, and those that
        nobody is in.
    member, value : arrays of shape (K, m)
    totals : array of shape (..., m)
        Public number of people in each column.
    vectors : array of shape (..., m, m)
        Row j is the row of a person in column j, of length 1.
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

    def of_columns(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is known of each cell, by column; cells of one column must agree, or it is -1."""
        found = np.full(self.member.shape[-1], -1)
        for column in range(len(found)):
            known = np.unique(values[self.cell == column])
            found[column] = known[0] if len(known) == 1 else -1
        return found


def make_rows(rates: Sequence[Rate], totals: Array) -> Rows:
    """The rows for some rates, from the public number of people in each cell.

    Cells that no rate tells apart become one column. Each rate weighs its gap to the population and, less, its count,
    by the inverse of its number of people: noise is compared with sampling error.

    Parameters
    ----------
    totals : array of shape (..., number of cells)
        Several at once must have the same cells occupied.
    """
    member, value = np.array([one.member for one in rates]), np.array([one.value for one in rates])
    cells = totals.shape[-1]
    occupied = (totals > 0).reshape(-1, cells).all(axis=0)
    columns: list[tuple[float, ...]] = []
    cell = np.full(cells, -1)
    for place in np.flatnonzero(occupied & member.any(axis=0)):
        kind = (*member[:, place], *value[:, place])
        if kind not in columns:
            columns.append(kind)
        cell[place] = columns.index(kind)
    members, values = np.array(columns).T.reshape(2, len(rates), -1)
    merged = totals @ (cell[:, None] == np.arange(len(columns))).astype(float)
    importance = np.array([one.weight for one in rates])
    weights = _weights(members, values, merged, importance)
    return Rows(cell, members, values, merged, _square_root(best_correlations(weights)))


def _weights(member: Array, value: Array, totals: Array, importance: Array) -> Array:
    people = totals @ member.T
    gap = value - member * (totals @ value.T / people)[..., None]
    pairs = np.einsum("...kj,...kl->...kjl", gap, gap) + COUNT_WEIGHT * np.einsum("kj,kl->kjl", member, member)
    weights: Array = (pairs * (importance / people)[..., None, None]).sum(axis=-3)
    return weights
