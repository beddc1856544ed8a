"""Decisions of the current multipliers on any block of rows: as a pass, and as rows whose group sums a check releases.

A decision is made at one threshold or, with ``at="scores"``, at each of T thresholds ("levels"). Rates of a notion are
linear in the decisions of rows with either label, so a (2, 2) table by label and decision says what a row adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.notions import FairnessNotion
from justitia.postprocessing.correction import moved_probability
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.memberships import Memberships
from justitia.privacy.noise_grid import to_nearest
from justitia.rows.source import Block, IntArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DecisionRule:
    r"""Decisions :math:`1[2(\eta(x) - s_t) > \lambda_t \cdot c(x)]` at levels s_t, on blocks with memberships.

    Parameters
    ----------
    memberships : Memberships
    factors : ndarray (T, 2, G)
        What p(a, y | x) is multiplied by in lambda_t . c.
    levels : ndarray (T,)
        Rising thresholds.
    digest : str
        A name of these decisions, by which a block finds them again.
    """

    memberships: Memberships
    factors: Array
    levels: Array
    digest: str

    def decide(self, block: Block) -> tuple[NDArray[np.bool_], tuple[Array, Array] | None]:
        """(m, T) decisions, and the memberships that they are made of unless the block has the decisions already."""
        kept = block.memo.get("decisions")
        if kept is not None and kept[0] == self.digest:
            return np.unpackbits(kept[1], axis=0, count=len(block)).astype(np.bool_), None
        q0, q1 = self.memberships.both_labels(block)
        eta = _scores(block)
        correction = (1 - eta) * (q0 @ self.factors[:, 0].T).T + eta * (q1 @ self.factors[:, 1].T).T
        margins = 2 * (eta - self.levels[:, None]) - correction  # (T, m)
        if len(self.levels) == 1:
            decided = (margins > 0).T
        else:
            decided = moved_probability(margins, self.levels)[:, None] > self.levels
        block.memo["decisions"] = (self.digest, np.packbits(decided, axis=0))
        return decided, (q0, q1)


def _scores(block: Block) -> Array:
    if block.score is None:
        raise ValueError("expected rows with scores of a base model, got none; call score first.")
    return block.score


@dataclass(frozen=True, eq=False)
class EvaluateDecisions:
    """Pass: weights by level, label, decision and group under the memberships, in steps of ``step``.

    The last axis of the (T, 2, 2, 2 G + 1) result holds the sum of w p(a, y | x) over all rows, the sum of w p(a | x,
    y) over rows of label y, and the sum of w over rows of label y.
    """

    rule: DecisionRule
    step: float

    def run(self, block: Block) -> IntArray:
        """(T, 2, 2, 2 G + 1)."""
        decided, found = self.rule.decide(block)
        q0, q1 = self.rule.memberships.both_labels(block) if found is None else found
        eta, weight = _scores(block)[:, None], block.weight[:, None].astype(np.float64)
        groups = q0.shape[1]
        total = np.zeros((decided.shape[1], 2, 2, 2 * groups + 1), dtype=np.int64)
        for label, q, p in ((0, q0, 1 - eta), (1, q1, eta)):
            own = (block.y == label)[:, None]
            columns = to_nearest(np.concatenate([q * p, q * own, own], axis=1) * weight, self.step)
            whole = columns.sum(0)
            for t in range(decided.shape[1]):
                positive = columns[decided[:, t]].sum(0)
                total[t, label, 0] = (whole - positive).astype(np.int64)
                total[t, label, 1] = positive.astype(np.int64)
        return total


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Row function of a check: weight times an entry of a table, by label and decision, for every level.

    Parameters
    ----------
    rule : DecisionRule
    table : ndarray (T, 2, 2, K)
        Centred values by level, label and decision.
    """

    rule: DecisionRule
    table: Array

    @property
    def width(self) -> int:
        """T K."""
        return len(self.table) * int(self.table.shape[-1])

    def __call__(self, block: Block) -> NDArray[Any]:
        """(m, T K)."""
        decided, _ = self.rule.decide(block)
        y, weight = block.y.astype(int), block.weight[:, None].astype(np.float32)
        parts = [weight * values[y, decided[:, t].astype(int)] for t, values in enumerate(self._single)]
        return np.concatenate(parts, axis=1)

    @cached_property
    def _single(self) -> NDArray[np.float32]:
        return self.table.astype(np.float32)

    def bound(self, max_weight: float, cells: Array) -> float:
        """Largest norm of a row, over the labels and decisions that occur: decisions of a row fall with the level.

        Parameters
        ----------
        cells : ndarray (T, 2, 2)
            Public weights by level, label and decision.
        """
        levels, longest = len(self.table), 0.0
        for label in (0, 1):
            for passed in range(levels + 1):  # the row is above so many levels
                below, above = passed - 1, passed
                occurs = (below < 0 or cells[below, label, 1] > 0) and (above >= levels or cells[above, label, 0] > 0)
                if occurs:
                    parts = [self._single[t, label, int(t < passed)] for t in range(levels)]
                    longest = max(longest, float(np.linalg.norm(np.concatenate(parts).astype(np.float64))))
        return max_weight * longest


@dataclass(frozen=True, eq=False)
class Ones:
    """Row function of the sizes: a one for every row."""

    width: int = 1

    def __call__(self, block: Block) -> Array:
        """(m, 1)."""
        return np.ones((len(block), 1))


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Pass: public sums of rows whose entries are at most 1, in steps of ``step``."""

    rows: Any
    step: float

    def run(self, block: Block) -> IntArray:
        """(width,)."""
        steps: IntArray = to_nearest(self.rows(block).astype(np.float64), self.step).sum(0).astype(np.int64)
        return steps


def rates_of_cells(notion: FairnessNotion, shares: Array) -> Array:
    """(T, G, K): rates from (T, 2, 2, G) sums of weights by label, decision and group."""
    events, without, change = label_table(notion)
    sizes = np.einsum("yk,tyda->tak", events, shares)
    sums = np.einsum("yk,tya->tak", events * without[:, None], shares[:, :, 0])
    sums += np.einsum("yk,tya->tak", events * (without + change)[:, None], shares[:, :, 1])
    rates: Array = sums / np.maximum(sizes, 1e-9)
    return rates


def means_of_cells(notion: FairnessNotion, cells: Array) -> Array:
    """(T, K): means of the population from (T, 2, 2) sums of weights by label and decision."""
    events, without, change = label_table(notion)
    h = np.stack([without, without + change], axis=1)  # (2, 2): by label and decision
    sizes = cells.sum(2) @ events
    sums = (cells * h).sum(2) @ events
    return np.where(sizes > 0, sums / np.maximum(sizes, 1e-12), 0.0)


def centred_table(notion: FairnessNotion, means: Array) -> Array:
    """(T, 2, 2, K): what a row of weight 1 adds to a group's sums, less the mean, by level, label and decision."""
    events, without, change = (one.astype(np.float32) for one in label_table(notion))
    h = np.stack([without, without + change], axis=1)
    table: Array = events[:, None, :] * (h[:, :, None] - means[:, None, None, :].astype(np.float32))
    return table.astype(np.float64)
