"""Rates and rows of decisions from sums by label and decision: everybody's, whose rows are not in memory."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from justitia.engines.plugin.dual import label_table
from justitia.notions import FairnessNotion

Array = NDArray[np.float64]


def rates_of(notion: FairnessNotion, shares: Array) -> Array:
    """(G, K): rates from (2, 2, G) sums of w p(a, y | x) by label and decision."""
    events, without, change = label_table(notion)
    sizes = np.einsum("yk,yda->ak", events, shares)
    positive = events * (without + change)[:, None]
    sums = (events * without[:, None]).T @ shares[:, 0] + positive.T @ shares[:, 1]
    rates: Array = sums.T / np.maximum(sizes, 1e-9)
    return rates


def population_means_of(notion: FairnessNotion, judged: Tensor) -> Tensor:
    """(K,): means of the population from sums of weights by label and decision."""
    events, without, change = (torch.from_numpy(one) for one in label_table(notion))
    cells = judged[:, :, -1]
    h = torch.stack([without, without + change], dim=1)  # (2, 2): by label and decision
    sizes = events.T @ cells.sum(1)
    return torch.where(sizes > 0, events.T @ (cells * h).sum(1) / sizes.clamp_min(1e-12), 0.0)


def decision_table(notion: FairnessNotion, means: Tensor) -> Tensor:
    """(2, 2, K): a centred public row of weight 1 by label and decision, in single precision as in memory."""
    events, without, change = (torch.from_numpy(one).float() for one in label_table(notion))
    h = torch.stack([without, without + change], dim=1)
    return (events[:, None, :] * (h[:, :, None] - means.to(h.dtype))).double()


__all__ = ["decision_table", "population_means_of", "rates_of"]
