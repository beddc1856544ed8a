"""Decisions of the current multipliers on any block of rows: as a pass, and as rows whose group sums a check releases.

A decision is one of L actions, made once or, with ``at="scores"``, yes or no at each of T thresholds ("levels"). Rates
are linear in the indicators of the actions, so a (Y, L) table by label and action says what a row adds. A row in public
stratum s with label y has the label Y s + y.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.notions import RateTable
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.correction import moved_probability
from justitia.postprocessing.dual import best_action, utilities
from justitia.postprocessing.features import ALIGNED
from justitia.postprocessing.memberships import Memberships
from justitia.postprocessing.prefix_sums import PrefixFactor
from justitia.postprocessing.proxies import AveragedMemberships
from justitia.privacy.noise_grid import to_nearest
from justitia.rows.source import Block, IntArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gains:
    """What actions are worth more than the first one, by a prediction of the label.

    Attributes
    ----------
    levels : ndarray (T,)
        Rising thresholds of p(y = 1 | x), of a target with two classes.
    costs : ndarray (Y, L), optional
        Cost of each action by label, of a target with more classes; by default 1 for every error.
    """

    levels: Array
    costs: Array | None = None

    def __call__(self, prediction: Array) -> Array:
        """(T, m, D): of p(y = 1 | x), or of (m, K) probabilities of classes."""
        if prediction.ndim == 1:
            return (2 * (prediction - self.levels[:, None]))[:, :, None]
        utility = utilities(prediction, self.costs)
        gains: Array = (utility[:, 1:] - utility[:, :1])[None]
        return gains


@dataclass(frozen=True, eq=False)
class DecisionRule:
    r"""Decisions :math:`\arg\max_l g_l(x) - t_l(x)` on blocks with memberships.

    Parameters
    ----------
    memberships : Memberships or AveragedMemberships
    prices : ndarray (T, S Y, G, D)
        What p(a, y | x) is multiplied by in t, for each level.
    gains : Gains
    quota : ndarray (D,)
        What every row pays for an action.
    digest : str
        A name of these decisions, by which a block finds them again.
    coin : Coin, optional
        Moves the line row by row.
    """

    memberships: Memberships | AveragedMemberships
    prices: Array
    gains: Gains
    quota: Array
    digest: str
    coin: Coin | None = None

    def decide(self, block: Block) -> tuple[NDArray[np.int64], Array | None]:
        """(T, m) actions, and the memberships that they are made of unless the block has the decisions already."""
        kept = block.memo.get("decisions")
        if kept is not None and kept[0] == self.digest:
            bits = np.unpackbits(kept[1], axis=1, count=len(block)) if self.prices.shape[-1] == 1 else kept[1]
            return bits.astype(np.int64), None
        q, p = self.memberships.by_label(block), probabilities(block)
        correction = self._correction(block, q, p)
        margins = self.gains(block.prediction) - correction - self.quota
        if self.coin is not None:
            margins = margins - self.coin(block.X)[:, None]
        if len(margins) == 1:
            decided = best_action(margins[0])[None]
        else:
            levels = self.gains.levels
            decided = (moved_probability(margins[:, :, 0], levels) > levels[:, None]).astype(np.int64)
        small = np.packbits(decided, axis=1) if self.prices.shape[-1] == 1 else decided.astype(np.uint8)
        block.memo["decisions"] = (self.digest, small)
        return decided, q

    def _correction(self, block: Block, q: Array, p: Array) -> Array:
        """(T, m, D)."""
        labels = len(q)
        stratum = block.y.astype(np.int64) // labels
        total = np.zeros((len(self.prices), len(block), self.prices.shape[-1]))
        for s in range(self.prices.shape[1] // labels):
            here = slice(None) if self.prices.shape[1] == labels else stratum == s
            for y in range(labels):
                total[:, here] += p[y, here, None] * (q[y, here] @ self.prices[:, s * labels + y])
        return total


def probabilities(block: Block) -> Array:
    """(Y, m): probability of each label."""
    score = block.prediction
    return np.stack([1 - score, score]) if score.ndim == 1 else score.T


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a pass over all rows has found of decisions or predictions.

    Attributes
    ----------
    rates : ndarray (T, G, K), of a number (K, G)
        By the memberships with the rows' own targets.
    means : ndarray (T, K), of a number (K,)
        Of the values of all rows, public.
    cells : ndarray
        Public weight of the rows in each cell.
    """

    rates: Array
    means: Array
    cells: Array


@dataclass(frozen=True, eq=False)
class EvaluateDecisions:
    """Pass: weights by level, label, action and group under the memberships, in steps of ``step``.

    The last axis of the (T, S Y, L, 2 G + 1) result holds the sum of w p(a, y | x) over rows of the stratum, the sum of
    w p(a | x, y) over rows of label y, and the sum of w over rows of label y.
    """

    rule: DecisionRule
    step: float

    def run(self, block: Block) -> IntArray:
        """(T, S Y, L, 2 G + 1)."""
        decided, found = self.rule.decide(block)
        q = self.rule.memberships.by_label(block) if found is None else found
        p, weight = probabilities(block), block.weight.astype(np.float64)
        labels, actions = len(q), self.rule.prices.shape[-1]
        codes = block.y.astype(np.int64)
        total = np.zeros((len(decided), self.rule.prices.shape[1], actions + 1, 2 * q.shape[2] + 1), dtype=np.int64)
        for code in range(total.shape[1]):
            y = code % labels
            own, inside = (codes == code)[None], codes // labels == code // labels
            shares = q[y].T  # rows come last: sums over them are then products of a matrix and a vector
            steps = to_nearest(np.concatenate([shares * (p[y] * inside), shares * own, own]) * weight, self.step)
            whole = steps.sum(1)
            for t, actual in enumerate(decided):
                for action in range(1, actions + 1):  # sums of whole numbers: exact in any order
                    total[t, code, action] = (steps @ (actual == action).astype(np.float64)).astype(np.int64)
                total[t, code, 0] = whole.astype(np.int64) - total[t, code, 1:].sum(0)
        return total


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Row function of a check: weight times an entry of a table, by label and action, for every level.

    Decisions of a row fall with the level, so a row is one of T + 1 for its label, and many levels are released through
    the square root of the prefix sums (:mod:`justitia.postprocessing.prefix_sums`).

    Parameters
    ----------
    rule : DecisionRule
    table : ndarray (T, S Y, L, K)
        Centred values by level, label and action.
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
        found: NDArray[Any] = weight * self._released[y, decided[0] if len(self.table) == 1 else decided.sum(0)]
        return found

    @cached_property
    def _released(self) -> NDArray[np.float32]:
        """(S Y, L, K): rows of weight 1 by label and action or, of T levels, (S Y, T + 1, T K) by label and levels."""
        single: NDArray[np.float32] = self.table[0].astype(np.float32)
        if len(self.table) == 1:
            return single
        levels = len(self.table)
        is_above = (np.arange(levels) < np.arange(levels + 1)[:, None]).astype(np.int64)  # (T + 1, T)
        rows = self.table[np.arange(levels), :, is_above]  # (T + 1, T, S Y, K)
        factored = PrefixFactor(levels).factored(rows.transpose(2, 0, 1, 3))
        found: NDArray[np.float32] = factored.reshape(*factored.shape[:2], -1).astype(np.float32)
        return found

    def longest(self, cells: Array) -> float:
        """Largest norm of a row of weight 1, over the labels and actions that occur; decisions fall with the level.

        Parameters
        ----------
        cells : ndarray (T, S Y, L)
            Public weights by level, label and action.
        """
        norms = np.linalg.norm(self._released.astype(np.float64), axis=2)
        if len(self.table) == 1:
            return float(norms[cells[0] > 0].max(initial=0.0))
        occurs = np.ones(norms.shape, dtype=bool)
        occurs[:, 1:] &= (cells[:, :, 1] > 0).T  # someone is above the last level that is passed
        occurs[:, :-1] &= (cells[:, :, 0] > 0).T  # and below the next one
        return float(norms[occurs].max(initial=0.0))

    def decoded(self, answer: Array) -> Array:
        """(T, G, K): sums at every level, from an answer (G, T K)."""
        if len(self.table) == 1:
            return answer[None]
        by_level = np.stack(np.split(answer, len(self.table), axis=1), axis=1)  # (G, T, K)
        return PrefixFactor(len(self.table)).decoded(by_level).transpose(1, 0, 2)

    @property
    def noise(self) -> Array:
        """(T, 1, 1): standard deviation of decoded noise, if that of the answer is 1."""
        if len(self.table) == 1:
            return np.ones((1, 1, 1))
        return PrefixFactor(len(self.table)).noise[:, None, None]


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
        rows = self.rows(block)
        total = np.zeros(rows.shape[1], dtype=np.int64)
        for at in range(0, len(rows), ALIGNED):  # so few that they stay in the processor's cache
            total += to_nearest(rows[at : at + ALIGNED].astype(np.float64), self.step).sum(0).astype(np.int64)
        return total


def rates_of_cells(table: RateTable, shares: Array) -> Array:
    """(T, G, K): rates from (T, Y, L, G) sums of weights by label, action and group."""
    sizes = np.einsum("yk,tyda->tak", table.events, shares)
    sums = np.einsum("yk,ydk,tyda->tak", table.events, table.values, shares)
    rates: Array = sums / np.maximum(sizes, 1e-9)
    return rates


def means_of_cells(table: RateTable, cells: Array) -> Array:
    """(T, K): means of the population from (T, Y, L) sums of weights by label and action."""
    sizes = cells.sum(2) @ table.events
    sums = np.einsum("yk,ydk,tyd->tk", table.events, table.values, cells)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1e-12), 0.0)


def centred_table(table: RateTable, means: Array) -> Array:
    """(T, Y, L, K): what a row of weight 1 adds to a group's sums, less the mean, by level, label and action."""
    events, values = table.events.astype(np.float32), table.values.astype(np.float32)
    centred: NDArray[Any] = events[:, None, :] * (values - means[:, None, None, :].astype(np.float32))
    return centred.astype(np.float64)
