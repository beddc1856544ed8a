"""Boosted trees of LightGBM as plain arrays, read from LightGBM's text format, checked, and written again.

The text that is written holds what predictions need and nothing else: no feature ranges, no row counts, no settings.
The text that is read may come from anyone, and LightGBM follows the indices in it without checking them. So every index
is checked here, and LightGBM gets only text that this module wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Bits of LightGBM's ``decision_type``: split by category, missing goes left, and what counts as missing.
CATEGORICAL, DEFAULT_LEFT, ZERO_MISSING, NAN_MISSING = 1, 2, 4, 8
#: Objectives, which say what the sum of the leaves is: scaled log-odds of a label, logits of classes, or a number.
PROBABILITY, NUMBER = re.compile(r"binary sigmoid:(\d+(?:\.\d+)?)"), "regression"
CLASSES = re.compile(r"multiclass num_class:(\d+)")
DAMAGED = "expected trees of one label as LightGBM writes them, got another text."
#: Predicted in one thread.
FEW_ROWS = 64
#: Estimators of LightGBM whose trees are read.
ESTIMATORS = ("LGBMClassifier", "LGBMRegressor")


@dataclass(frozen=True, eq=False)
class Tree:
    """Inner nodes 0 .. m - 1, the root first, and leaves 0 .. m; a child c < 0 is leaf -c - 1.

    Attributes
    ----------
    feature, threshold, decision, left, right : ndarray (m,)
        Numbers at most the threshold go left. Where the decision is by category, the threshold is a place in
        ``boundaries``, and ``bits`` between there and the next say which categories go left.
    value : ndarray (m + 1,)
        Of the leaves.
    boundaries, bits : ndarray
        Empty without categories.
    """

    feature: Ints
    threshold: Floats
    decision: Ints
    left: Ints
    right: Ints
    value: Floats
    boundaries: Ints
    bits: Ints

    def is_sound(self, features: int) -> bool:
        """Whether every index leads somewhere, and every walk from the root ends at a leaf."""
        m, inner = len(self.feature), (self.threshold, self.decision, self.left, self.right)
        if any(len(part) != m for part in inner) or len(self.value) != m + 1:
            return False
        # Each node but the root is a child exactly once: no walk from the root comes back.
        children = np.sort(np.concatenate([self.left, self.right]))
        expected = [*range(-m - 1, 0), *range(1, m)] if m else []
        finite = bool(np.isfinite(self.threshold).all() and np.isfinite(self.value).all())
        inside = bool(((self.feature >= 0) & (self.feature < features)).all())
        known = bool(((self.decision >= 0) & (self.decision < ZERO_MISSING + NAN_MISSING)).all())
        return np.array_equal(children, expected) and finite and inside and known and self._has_sound_categories()

    def _has_sound_categories(self) -> bool:
        places = self.threshold[self.decision & CATEGORICAL > 0]
        if not len(self.boundaries):
            return not len(places) and not len(self.bits)
        ordered = self.boundaries[0] == 0 and (np.diff(self.boundaries) > 0).all()
        whole = np.isin(places, np.arange(len(self.boundaries) - 1)).all()
        sized = self.boundaries[-1] == len(self.bits) and ((self.bits >= 0) & (self.bits < 2**32)).all()
        return bool(ordered and whole and sized)

    def lines(self) -> Iterable[str]:
        """As LightGBM reads it."""
        yield f"num_leaves={len(self.value)}"
        yield f"num_cat={max(len(self.boundaries) - 1, 0)}"
        yield f"split_feature={_joined(self.feature)}"
        yield f"threshold={_joined(self.threshold)}"
        yield f"decision_type={_joined(self.decision)}"
        yield f"left_child={_joined(self.left)}"
        yield f"right_child={_joined(self.right)}"
        yield f"leaf_value={_joined(self.value)}"
        if len(self.boundaries):
            yield f"cat_boundaries={_joined(self.boundaries)}"
            yield f"cat_threshold={_joined(self.bits)}"


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees, or their mean; of K classes one sum per class, and trees j, j + K, j + 2 K ... belong to class j.

    Attributes
    ----------
    features : int
        Columns that they read.
    objective : str
        ``binary sigmoid:s``, ``multiclass num_class:K`` or ``regression``.
    averaged : bool
        Whether leaves are averaged instead of summed, as in a forest.
    trees : tuple of Tree
    categories : list, optional
        Values of pandas' categorical columns, in the order of their codes.
    """

    features: int
    objective: str
    averaged: bool
    trees: tuple[Tree, ...]
    categories: list[Any] | None = None

    @property
    def sigmoid(self) -> float | None:
        """Scale of the log-odds of a binary label; None where the sums are logits of classes or a number."""
        found = PROBABILITY.fullmatch(self.objective)
        return None if found is None else float(found[1])

    @property
    def sums(self) -> int:
        """Number of sums: K for several classes, otherwise 1."""
        return _sums(self.objective)

    @property
    def kind(self) -> str:
        """Kind of target, as in :class:`justitia.tasks.Task`."""
        if self.objective == NUMBER:
            return "number"
        return "binary" if self.sums == 1 else "classes"

    def text(self) -> str:
        """As LightGBM reads it."""
        head = ["tree", "version=v4", f"num_class={self.sums}", f"num_tree_per_iteration={self.sums}", "label_index=0"]
        head += [f"max_feature_idx={self.features - 1}", f"objective={self.objective}"]
        head += ["average_output"] if self.averaged else []
        head += ["feature_names=" + " ".join(f"Column_{j}" for j in range(self.features))]
        head += ["feature_infos=" + " ".join(["none"] * self.features), ""]
        body = [line for j, tree in enumerate(self.trees) for line in (f"Tree={j}", *tree.lines(), "", "")]
        return "\n".join([*head, *body, "end of trees", "", f"pandas_categorical:{json.dumps(self.categories)}", ""])


def read_trees(text: str) -> Trees:
    """Trees of LightGBM's text, or of ours.

    Raises
    ------
    ValueError
        If it is another text, or has what we do not write: linear leaves, another objective.
    """
    try:
        return _read(text)
    except (ValueError, KeyError, OverflowError, RecursionError):
        raise ValueError(DAMAGED) from None


def _read(text: str) -> Trees:
    body, ended, rest = text.partition("\nend of trees")
    first, *blocks = re.split(r"\nTree=\d+\n", body)
    head = _pairs(first)
    features = int(head["max_feature_idx"]) + 1
    objective = head["objective"].strip()
    trees = tuple(_tree(_pairs(block)) for block in blocks)
    sums = _sums(objective)
    # At least one tree per class: the number of classes cannot be larger than the text.
    full = len(trees) % sums == 0 and (sums == 1 or len(trees) > 0)
    matching = head["num_class"] == head["num_tree_per_iteration"] == str(sums) and full
    # The text itself has a name for each feature: their number cannot be larger than the text.
    sized = 0 < features <= len(text) and len(head["feature_names"].split(" ")) == features
    if not (ended and matching and sized and all(tree.is_sound(features) for tree in trees)):
        raise ValueError(DAMAGED)
    return Trees(features, objective, "\naverage_output\n" in f"{first}\n", trees, _categories(rest))


def _sums(objective: str) -> int:
    """Number of sums of trees by the objective; another objective than ours is refused."""
    classes = CLASSES.fullmatch(objective)
    if classes is not None and int(classes[1]) > 2:
        return int(classes[1])
    if objective != NUMBER and not PROBABILITY.fullmatch(objective):
        raise ValueError(DAMAGED)
    return 1


def _pairs(block: str) -> dict[str, str]:
    return {name: value for name, found, value in (line.partition("=") for line in block.splitlines()) if found}


def _tree(parts: dict[str, str]) -> Tree:
    if parts.get("is_linear", "0") != "0":
        raise ValueError(DAMAGED)
    several = int(parts["num_leaves"]) > 1  # a tree of one leaf may leave out its nodes
    nodes = {name: parts[name] if several else "" for name in ("split_feature", "left_child", "right_child")}
    return Tree(
        feature=_array(nodes["split_feature"], np.int64),
        threshold=_array(parts["threshold"] if several else "", np.float64),
        decision=_array(parts["decision_type"] if several else "", np.int64),
        left=_array(nodes["left_child"], np.int64),
        right=_array(nodes["right_child"], np.int64),
        value=_array(parts["leaf_value"], np.float64),
        boundaries=_array(parts.get("cat_boundaries", ""), np.int64),
        bits=_array(parts.get("cat_threshold", ""), np.int64),
    )


def _array(words: str, kind: type) -> Any:
    return np.array(words.split(), dtype=kind)


def _joined(values: NDArray[Any]) -> str:
    return " ".join(f"{value:.17g}" if values.dtype.kind == "f" else str(value) for value in values.tolist())


def _categories(rest: str) -> list[Any] | None:
    found = re.search(r"^pandas_categorical:(.*)$", rest, re.MULTILINE)
    values = None if found is None else json.loads(found[1])
    if not (values is None or (isinstance(values, list) and all(isinstance(one, list) for one in values))):
        raise ValueError(DAMAGED)
    return values


class TreesModel:
    """Trees in place of the model of LightGBM that learned them: the same predictions, and no more.

    Parameters
    ----------
    trees : Trees
    n_jobs : int, optional
        Threads of a prediction: None is one, a negative number is one per core.
    """

    #: LightGBM's own text where it learned them in this process, with the numbers of rows that SHAP values depend on.
    learned: str | None = None

    def __init__(self, trees: Trees, n_jobs: int | None = -1) -> None:
        self.trees, self.n_jobs = trees, n_jobs

    @cached_property
    def booster_(self) -> Any:
        """LightGBM's own form of them, made when it is first needed."""
        import lightgbm  # noqa: PLC0415

        return lightgbm.Booster(model_str=self.trees.text())

    def _predict(self, X: Any) -> Floats:
        # Numbers of ours need no check, and threads that are started for a few rows take longer than their trees.
        known = hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.dtype == np.float32 and X.ndim == 2)
        rows = X if known else check_array(X, ensure_all_finite=False)
        threads = 1 if len(rows) <= FEW_ROWS else max(self.n_jobs or 1, 0)
        found: Floats = self.booster_.predict(rows, num_threads=threads)
        return found


class TreesClassifier(TreesModel):
    """Trees of a label in place of the classifier that learned them."""

    def __init__(self, trees: Trees, n_jobs: int | None = -1) -> None:
        super().__init__(trees, n_jobs)
        self.classes_ = np.arange(max(trees.sums, 2))
        self.__name__ = "LGBMClassifier"

    def predict_proba(self, X: Any) -> Floats:
        """(m, 2): probabilities of the negative and of the positive answer; (m, K) of several classes."""
        found = self._predict(X)
        return np.column_stack([1.0 - found, found]) if self.trees.sums == 1 else found


class TreesRegressor(TreesModel):
    """Trees of a number in place of the regressor that learned them."""

    def __init__(self, trees: Trees, n_jobs: int | None = -1) -> None:
        super().__init__(trees, n_jobs)
        self.__name__ = "LGBMRegressor"

    def predict(self, X: Any) -> Floats:
        """(m,): predicted numbers."""
        return self._predict(X)


def trees_of(model: Any) -> Trees | None:
    """Trees of a classifier or regressor of LightGBM; None for any other model, and for trees that are not written."""
    if isinstance(model, TreesModel):
        return model.trees
    kind = type(model)
    if kind.__name__ not in ESTIMATORS or not kind.__module__.startswith("lightgbm."):
        return None
    if "pred" in " ".join(model.get_params()):  # options of predictions are not in LightGBM's text
        return None
    try:
        trees = read_trees(model.booster_.model_to_string())
    except ValueError:
        return None
    # The objective is an option: a classifier may have learned a number.
    return trees if (trees.kind == "number") == (kind.__name__ == "LGBMRegressor") else None
