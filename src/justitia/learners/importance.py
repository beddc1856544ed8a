"""Importance of features for a base model: public, and the same after saving and loading."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Base, Inputs
from justitia.learners.trees import trees_of

Array = NDArray[np.float64]


def base_importances(base: Base, columns: int) -> Array | None:
    """(d,): mean importance over the models of a base, adding up to 1; None where it has none of so many columns."""
    models = getattr(base, "models", None) or (getattr(base, "model", None),)
    found = [one for one in (model_importances(model) for model in models) if one is not None and len(one) == columns]
    if len(found) < len(models) or not columns:
        return None
    mean: Array = np.mean(found, axis=0)
    return mean


def model_importances(model: Any) -> Array | None:
    """Share of the splits of trees, ``feature_importances_``, or share of the absolute coefficients of a linear model.

    Coefficients are about features as the model reads them, which preprocessing has standardised.
    """
    trees = trees_of(model)
    if trees is not None:
        values = np.zeros(trees.features)
        for tree in trees.trees:
            np.add.at(values, tree.feature, 1.0)
    elif hasattr(model, "feature_importances_"):
        values = np.asarray(model.feature_importances_, dtype=np.float64)
    elif hasattr(model, "coef_"):
        values = np.abs(np.asarray(model.coef_, dtype=np.float64).reshape(-1, np.shape(model.coef_)[-1])).sum(0)
    else:
        return None
    return values / values.sum() if values.sum() > 0 else values


def contributions(base: Base, inputs: Inputs, columns: int) -> Array | None:
    """(n, d): SHAP values of the base's log-odds or number, mean over its models, by LightGBM's own tree method.

    None for other models, for more than two classes, and for trees that were loaded from a file: the file does not keep
    how many training rows each leaf had, which the values depend on.
    """
    texts = [getattr(one, "learned", None) for one in getattr(base, "models", ())]
    if not texts or None in texts or base.task.kind == "classes":
        return None
    import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

    each = [
        np.asarray(lightgbm.Booster(model_str=text).predict(inputs.numbers, pred_contrib=True, num_threads=1))
        for text in texts
    ]
    if any(one.shape[1] != columns + 1 for one in each):
        return None
    mean: Array = np.mean(each, axis=0)[:, :-1]
    return mean
