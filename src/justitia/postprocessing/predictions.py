"""Predictions of the current multipliers on any block: as a pass, and as rows whose group sums a check releases.

The counterpart of :mod:`justitia.postprocessing.decisions` for a numeric target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.postprocessing.decisions import Evaluation
from justitia.postprocessing.number_notions import NumberNotion
from justitia.postprocessing.number_rows import NumberMemberships
from justitia.privacy.noise_grid import to_nearest
from justitia.rows.source import Block, IntArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PredictionRule:
    """Predictions of a notion with these multipliers, on blocks with predictions of a base model.

    Parameters
    ----------
    memberships : NumberMemberships
    notion : NumberNotion
    lam : ndarray (K, G)
    sizes : ndarray (G,)
        p(a) in the sample, by which memberships are divided.
    digest : str
        A name of these predictions, by which a block finds them again.
    """

    memberships: NumberMemberships
    notion: NumberNotion
    lam: Array
    sizes: Array
    digest: str

    def predict(self, block: Block) -> Array:
        """(m,): between 0 and 1."""
        kept = block.memo.get("predictions")
        if kept is not None and kept[0] == self.digest:
            found: Array = kept[1]
            return found
        columns = self.notion.columns(self.joint(block), self.sizes)
        f = self.notion.predict(block.prediction, self.notion.mix(self.lam) @ columns.T)
        block.memo["predictions"] = (self.digest, f)
        return f

    def joint(self, block: Block) -> Array:
        """(Y, m, G): p(a, y bin | x)."""
        chances = self.notion.bins(block.prediction)  # (m, Y)
        parts = []
        for chance, value in zip(chances.T, self.notion.bin_means, strict=True):
            q = self.memberships.at(block, np.full(len(block), value))
            parts.append(q * chance[:, None])
        return np.stack(parts)


@dataclass(frozen=True, eq=False)
class EvaluatePredictions:
    """Pass: what the current predictions are, in steps of ``step``.

    The result has, one after the other, for K rates and G groups: sums of w q(a | x, y) (G); of it times the values
    (K G) and times the uncut values (K G); public sums of w (1), of w times the values (K) and their squares (K); and
    the weight of the rows in each cell.
    """

    rule: PredictionRule
    step: float

    def run(self, block: Block) -> IntArray:
        """(G + 2 K G + 1 + 2 K + cells,)."""
        notion, f = self.rule.notion, self.rule.predict(block)
        q, weight = self.rule.memberships.own(block), block.weight[:, None].astype(np.float64)
        values, uncut = notion.values(block.y, f), notion.uncut(block.y, f)
        own = q * weight
        parts = [own]
        parts += [own * one[:, None] for one in (*values.T, *uncut.T)]
        parts += [weight, weight * values, weight * values**2]
        sums = to_nearest(np.concatenate(parts, axis=1), self.step).sum(0).astype(np.int64)
        counts = to_nearest(weight, self.step)[:, 0].astype(np.int64)
        cells = np.zeros(notion.n_cells, dtype=np.int64)
        np.add.at(cells, notion.cells(values), counts)
        return np.concatenate([sums, cells])


@dataclass(frozen=True, eq=False)
class NumberEvaluation(Evaluation):
    """What a pass over all rows has found of predictions.

    Attributes
    ----------
    sizes : ndarray (G,)
        Weight of the groups, by the memberships.
    uncut : ndarray (K, G)
        Rates of uncut values.
    variances : ndarray (K,)
        Of the values of all rows, public.
    """

    sizes: Array
    uncut: Array
    variances: Array

    @classmethod
    def from_sums(cls, sums: Array, groups: int, rates: int) -> NumberEvaluation:
        """From the sums of :class:`EvaluatePredictions`."""
        ends = np.cumsum([groups, rates * groups, rates * groups, 1, rates, rates])
        sizes, cut, uncut, total, first, second, cells = np.split(sums, ends)
        used, means = np.maximum(sizes, 1.0), first / max(float(total[0]), 1e-12)
        variances = np.maximum(second / max(float(total[0]), 1e-12) - means**2, 0.0)
        shape = (rates, groups)
        return cls(cut.reshape(shape) / used, means, cells, used, uncut.reshape(shape) / used, variances)


@dataclass(frozen=True, eq=False)
class PredictionRows:
    """Row function of a check: weight times values less their means, encoded for their levels.

    Parameters
    ----------
    rule : PredictionRule
    means : ndarray (K,)
        Public.
    """

    rule: PredictionRule
    means: Array

    @property
    def width(self) -> int:
        """K."""
        return self.rule.notion.count

    def __call__(self, block: Block) -> Array:
        """(m, K)."""
        notion = self.rule.notion
        centred = notion.values(block.y, self.rule.predict(block)) - self.means
        found: Array = block.weight[:, None].astype(np.float64) * (centred @ notion.factor.inverse.T)
        return found

    def decoded(self, answer: Array) -> Array:
        """(K, G): sums of the values, from an answer (G, K)."""
        return self.rule.notion.factor.decoded(answer.T)

    @property
    def noise(self) -> Array:
        """(K, 1): standard deviation of decoded noise, if that of the answer is 1."""
        return self.rule.notion.factor.noise[:, None]
