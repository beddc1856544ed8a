"""Boosted trees of XGBoost as plain arrays, read from its JSON, for a graph that computes what it computes.

XGBoost compares and adds in single precision: a number *below* the threshold goes left, and one that is missing goes
where the node says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.learners.trees import DEFAULT_LEFT, NAN_MISSING, Tree

#: Objectives whose outputs are known here, by kind of target.
OBJECTIVES = {
    "binary": ("binary:logistic",),
    "classes": ("multi:softprob", "multi:softmax"),
    "number": ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"),
}


@dataclass(frozen=True, eq=False)
class SingleTrees:
    """A sum of trees, or one sum for each class, in single precision.

    Attributes
    ----------
    trees : tuple of Tree
    sum_of : ndarray (trees,)
        The class of each tree.
    margin : ndarray (sums,)
        What is added to each sum.
    """

    trees: tuple[Tree, ...]
    sum_of: NDArray[np.int64]
    margin: NDArray[np.float64]

    @property
    def sums(self) -> int:
        """Number of sums: K for several classes, otherwise 1."""
        return len(self.margin)


def xgboost_trees(model: Any, kind: str) -> SingleTrees | None:
    """The trees of an estimator of XGBoost; None for another model, or one that they do not describe."""
    model = getattr(model, "model", model)  # one that was loaded
    if type(model).__module__.partition(".")[0] != "xgboost" or not hasattr(model, "get_booster"):
        return None
    learner = json.loads(bytes(model.get_booster().save_raw("json")))["learner"]
    objective, booster = learner["objective"]["name"], learner["gradient_booster"]
    if objective not in OBJECTIVES[kind] or booster["name"] != "gbtree":
        return None
    parts = booster["model"]["trees"]
    if any(any(one["split_type"]) for one in parts):
        return None  # splits by category
    sums = max(1, int(learner["learner_model_param"]["num_class"]))
    best = learner["attributes"].get("best_iteration")
    if best is not None:  # later trees are not used
        parts = parts[: (int(best) + 1) * sums * int(booster["model"]["gbtree_model_param"]["num_parallel_tree"])]
    return SingleTrees(
        trees=tuple(map(_tree, parts)),
        sum_of=np.array(booster["model"]["tree_info"][: len(parts)], dtype=np.int64),
        margin=_margin(learner["learner_model_param"]["base_score"], sums, kind),
    )


def _margin(text: str, sums: int, kind: str) -> NDArray[np.float64]:
    """The base score before the link; one number or, from version 3.1 on, a list in brackets."""
    scores = np.array([float(one) for one in text.strip("[]").split(",")], dtype=np.float64)
    margins = np.array([math.log(one / (1 - one)) for one in scores]) if kind == "binary" else scores
    return np.broadcast_to(margins, (sums,)).copy()


def _tree(facts: Mapping[str, Any]) -> Tree:
    """Nodes in the form of :class:`Tree`: inner ones are numbered from the root, leaves are negative."""
    left, right = (np.array(facts[name], dtype=np.int64) for name in ("left_children", "right_children"))
    inner = left != -1
    place = np.where(inner, np.cumsum(inner) - 1, -np.cumsum(~inner))
    values = np.array(facts["split_conditions"], dtype=np.float64)
    default = np.array(facts["default_left"], dtype=np.int64)
    empty = np.zeros(0, dtype=np.int64)
    return Tree(
        feature=np.array(facts["split_indices"], dtype=np.int64)[inner],
        threshold=values[inner],
        decision=NAN_MISSING + DEFAULT_LEFT * default[inner],
        left=place[left[inner]],
        right=place[right[inner]],
        value=values[~inner],
        boundaries=empty,
        bits=empty,
    )
