"""Row functions and passes of engine ``moments``: what a network says of any block of public rows.

All of them are picklable and hold a copy of the network as it is at one moment, so a pass can run where the rows are.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from justitia.networks.requirements import as_scores
from justitia.notions import FairnessNotion
from justitia.postprocessing.features import ALIGNED, aligned_product
from justitia.privacy.interface import RowFunction
from justitia.privacy.noise_grid import to_nearest
from justitia.privacy.rows import placed_chunks
from justitia.rows.source import Block, IntArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A copy of the network as it is now: its score, and what it computes before its last linear layer.

    A network that does not use exactly one linear layer with a single output exposes no representation.

    Attributes
    ----------
    module : nn.Module
    shape : tuple of int
        Of the features of one row.
    chunk_rows : int
        Rows that are computed at once.
    """

    module: nn.Module
    shape: tuple[int, ...]
    chunk_rows: int

    @classmethod
    def from_module(cls, module: nn.Module, X: Array, micro_batch: int) -> FrozenNetwork:
        """A copy of a network whose inputs are rows of X."""
        return cls(copy.deepcopy(module).eval(), X.shape[1:], min(micro_batch, ALIGNED))

    def __call__(self, block: Block) -> tuple[Array, Array]:
        """(m, width) representation, width 0 if there is none, and (m,) scores."""
        X, entering = block.X.reshape(len(block), *self.shape), list[Tensor]()
        last = [part for part in self.module.modules() if isinstance(part, nn.Linear) and part.out_features == 1]
        hooks = [part.register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0])) for part in last]
        hidden, scores = [], []
        try:
            # Rows of products are placed by their position, so that a row's last bit is the same in every block.
            for places, who in placed_chunks(block.first, len(block), self.chunk_rows):
                entering.clear()
                with torch.no_grad():
                    found = as_scores(self.module(torch.from_numpy(X[who])), len(who))
                exposed = len(entering) == 1 and entering[0].ndim == 2 and len(entering[0]) == len(who)
                layer = entering[0] if exposed else found.new_zeros(len(who), 0)
                hidden.append(layer[places].numpy())
                scores.append(found[places].numpy())
        finally:
            for hook in hooks:
                hook.remove()
        return np.concatenate(hidden), np.concatenate(scores)


@dataclass(frozen=True, eq=False)
class CheckRows:
    """Row function of a check: hard decisions of a network, less their mean over all rows.

    Attributes
    ----------
    network : FrozenNetwork
    notion : FairnessNotion
    means : ndarray (K,)
        Of the population, public.
    """

    network: FrozenNetwork
    notion: FairnessNotion
    means: Array

    @property
    def width(self) -> int:
        """K."""
        return len(self.means)

    def __call__(self, block: Block) -> Array:
        """(m, K)."""
        events = self.notion.events(block.y) * block.weight[:, None]
        return decided_rows(self.notion, self.network(block)[1], block.y, events, self.means)


def decided_rows(notion: FairnessNotion, scores: Array, y: Array, events: Array, means: Array) -> Array:
    """(m, K): what the decisions of these scores add to the sums of a group, less the means of the population."""
    h = notion.h_exact(scores, y)
    rows: Array = events * (h[:, None] - means.astype(h.dtype))
    return rows


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Row functions side by side: the columns that memberships are a function of."""

    parts: tuple[RowFunction, ...]

    @property
    def width(self) -> int:
        """Number of columns of all parts."""
        return sum(part.width for part in self.parts)

    def __call__(self, block: Block) -> Array:
        """(m, width)."""
        return np.concatenate([part(block) for part in self.parts], axis=1)


@dataclass(frozen=True, eq=False)
class EvaluateNetwork:
    """Pass: weights by label, decision and group under the memberships, in steps of ``step``.

    The last axis of the (2, 2, G + 1) result holds the sum of w p(a | x, y) of each group, and the sum of w.

    Attributes
    ----------
    network : FrozenNetwork
        Makes the decisions.
    columns : RowFunction
    weights : ndarray (C, width)
        Of the memberships.
    step : float
    """

    network: FrozenNetwork
    columns: RowFunction
    weights: Array
    step: float

    def run(self, block: Block) -> IntArray:
        """(2, 2, G + 1)."""
        q = softmax(aligned_product(block.first, self.columns(block), self.weights.T), axis=1).astype(np.float64)
        q[:, -1] = 1.0  # in the place of "not given"
        counted = to_nearest(q * block.weight[:, None].astype(np.float64), self.step)
        positive, decided = block.y > 0.5, self.network(block)[1] > 0
        total = np.zeros((2, 2, q.shape[1]), dtype=np.int64)
        for label in (0, 1):
            for decision in (0, 1):
                rows = (positive == bool(label)) & (decided == bool(decision))
                total[label, decision] = counted[rows].sum(0).astype(np.int64)
        return total
