"""Accuracy, confusion, AUC and calibration from public labels alone: exact, and at no privacy cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.training.public_scores import area_under_curve

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


def _calibration(y: NDArray[np.int64], scores: Array) -> list[dict[str, float]]:
    cuts = np.unique(np.quantile(scores, np.arange(1, BINS) / BINS))
    bins = np.searchsorted(cuts, scores, side="left")
    return [
        {"rows": int(here.sum()), "score": float(scores[here].mean()), "share": float(y[here].mean())}
        for here in (bins == b for b in np.unique(bins))
    ]
