"""Accuracy, confusion, AUC, calibration and R2 from public labels alone: exact, and at no privacy cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.training.diagnostics import area_under_curve

Array = NDArray[np.float64]

#: Bins of a calibration curve, at quantiles of the scores.
BINS = 10


def public_quality(y: NDArray[np.int64], decided: NDArray[np.int64], scores: Array | None = None) -> dict[str, Any]:
    """Accuracy and confusion of decisions; AUC and calibration of scores, if there are any.

    Returns
    -------
    dict
        ``accuracy``; ``confusion``: rows of label 0 refused and accepted, of label 1 refused and accepted; ``auc``
        (None where one label is missing) and ``calibration``: rows, mean score and share of label 1 by bin of scores.
    """
    confusion = np.bincount(2 * y + decided, minlength=4).tolist()
    names = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    found: dict[str, Any] = {
        "accuracy": float(np.mean(y == decided)),
        "confusion": dict(zip(names, confusion, strict=True)),
    }
    if scores is None:
        return found
    auc = area_under_curve(scores, y == 1, np.ones(len(y)))
    return found | {"auc": None if np.isnan(auc) else auc, "calibration": _calibration(y, scores)}


def class_quality(y: NDArray[np.int64], decided: NDArray[np.int64], classes: Sequence[Any]) -> dict[str, Any]:
    """Accuracy, confusion and recall of decisions among several classes.

    Returns
    -------
    dict
        ``accuracy``; ``by_class``: label, rows, decisions and recall (None without rows) of each class; ``table``: rows
        by label and decision.
    """
    k = len(classes)
    table = np.bincount(k * y + decided, minlength=k * k).reshape(k, k)
    rows, chosen = table.sum(1), table.sum(0)
    by_class = [
        {
            "label": str(label),
            "rows": int(rows[j]),
            "decided": int(chosen[j]),
            "recall": None if not rows[j] else float(table[j, j] / rows[j]),
        }
        for j, label in enumerate(classes)
    ]
    return {"accuracy": float(np.mean(y == decided)), "by_class": by_class, "table": table.tolist()}


def number_quality(y: Array, predicted: Array) -> dict[str, Any]:
    """R2 (None if all labels are equal), mean squared and mean absolute error, and means of numeric predictions."""
    error, varies = y - predicted, float(np.var(y))
    return {
        "r2": float(1 - np.mean(error**2) / varies) if varies > 0 else None,
        "mean_squared_error": float(np.mean(error**2)),
        "mean_absolute_error": float(np.mean(np.abs(error))),
        "mean_prediction": float(np.mean(predicted)),
        "mean_target": float(np.mean(y)),
    }


def _calibration(y: NDArray[np.int64], scores: Array) -> list[dict[str, float]]:
    cuts = np.unique(np.quantile(scores, np.arange(1, BINS) / BINS))
    bins = np.searchsorted(cuts, scores, side="left")
    return [
        {"rows": int(here.sum()), "score": float(scores[here].mean()), "share": float(y[here].mean())}
        for here in (bins == b for b in np.unique(bins))
    ]
