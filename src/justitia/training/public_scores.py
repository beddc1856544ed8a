"""Accuracy and area under the ROC curve of scores, from public labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decided(scores: NDArray[Any]) -> NDArray[np.int64]:
    """(n,): decisions of (n,) scores, whose sign decides, or of (n, K) scores of classes, of which the largest does."""
    found: NDArray[np.int64] = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)
    return found


def public_scores(scores: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> dict[str, float]:
    """Weighted accuracy of the decisions, and AUC of the scores; NaN where one label is missing, and of classes."""
    if scores.ndim == 2:
        return {"accuracy": float(np.average(decided(scores) == y, weights=weight.astype(np.float64))), "auc": math.nan}
    positive, counts = y > 0.5, weight.astype(np.float64)
    right = ((scores > 0) == positive) * counts
    return {
        "accuracy": float(right.sum() / counts.sum()),
        "auc": area_under_curve(scores.astype(np.float64), positive, counts),
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
