"""How good scores are, told from public labels: accuracy and the area under the ROC curve."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def public_scores(scores: Tensor, y: Tensor, weight: Tensor) -> dict[str, float]:
    """Weighted accuracy of the decisions ``scores > 0``, and AUC of the scores; NaN where one label is missing."""
    right = ((scores > 0) == (y > 0.5)).double() * weight.double()
    return {
        "accuracy": float(right.sum() / weight.double().sum()),
        "auc": area_under_curve(scores.double().numpy(), y.numpy() > 0.5, weight.double().numpy()),
    }


def area_under_curve(scores: NDArray[np.float64], positive: NDArray[np.bool_], weight: NDArray[np.float64]) -> float:
    """Share of pairs of a positive and a negative row that are ranked right; equal scores count half."""
    order = np.argsort(scores, kind="stable")
    _, where = np.unique(scores[order], return_inverse=True)
    above = np.bincount(where, np.where(positive, weight, 0.0)[order])
    below = np.bincount(where, np.where(positive, 0.0, weight)[order])
    pairs = above.sum() * below.sum()
    lower = np.cumsum(below) - below / 2
    return float(above @ lower / pairs) if pairs > 0 else math.nan
