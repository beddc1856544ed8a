"""Boosted trees of LightGBM as plain arrays, read from LightGBM's text format, checked, and written again.

The text that is written holds what predictions need and nothing else: no feature ranges, no row counts, no settings.
The text that is read may come from anyone, and LightGBM follows the indices in it without checking them. So every index
is checked here, and LightGBM gets only text that this module wrote.
"""

from __future__ import annotations

import json
import re
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
#: Names of LightGBM for the arrays of a tree, in the order in which they are written.
FIELDS = {
    "split_feature": "feature",
    "threshold": "threshold",
    "decision_type": "decision",
    "left_child": "left",
    "right_child": "right",
    "leaf_value": "value",
    "cat_boundaries": "boundaries",
    "cat_threshold": "bits",
}
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
        m = len(self.feature)
        if (
            not m
            == len(self.threshold)
            == len(self.decision)
            == len(self.left)
            == len(self.right)
            == len(self.value) - 1
        ):
            return False
        # Each node but the root is a child exactly once: no walk from the root comes back.
        children = np.sort(np.concatenate([self.left, self.right]))
        expected = [*range(-m - 1, 0), *range(1, m)] if m else []
        finite = np.isfinite(self.threshold).all() and np.isfinite(self.value).all()
        inside = ((self.feature >= 0) & (self.feature < features)).all()
        known = ((self.decision >= 0) & (self.decision < ZERO_MISSING + NAN_MISSING)).all()
        if not (np.array_equal(children, expected) and finite and inside and known):
            return False
        places = self.threshold[self.decision & CATEGORICAL > 0]
        if not len(self.boundaries):
            return not len(places) and not len(self.bits)
        ordered = self.boundaries[0] == 0 and (np.diff(self.boundaries) > 0).all()
        whole = np.isin(places, np.arange(len(self.boundaries) - 1)).all()
        sized = self.boundaries[-1] == len(self.bits) and ((self.bits >= 0) & (self.bits < 2**32)).all()
        return bool(ordered and whole and sized)

    def lines(self) -> list[str]:
        """As LightGBM reads it."""
        found = [f"num_leaves={len(self.value)}", f"num_cat={max(len(self.boundaries) - 1, 0)}"]
        for name, field in FIELDS.items():
            values = getattr(self, field)
            if len(self.boundaries) or field not in ("boundaries", "bits"):
                written = "{:.17g}".format if values.dtype.kind == "f" else str
                found.append(f"{name}={' '.join(map(written, values.tolist()))}")
        return found


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
        """Number of sums: K for several classes, otherwise 1; another objective than ours is refused."""
        classes = CLASSES.fullmatch(self.objective)
        if classes is not None and int(classes[1]) > 2:
            return int(classes[1])
        if self.objective != NUMBER and not PROBABILITY.fullmatch(self.objective):
            raise ValueError(DAMAGED)
        return 1

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
        head += ["feature_names=" + " ".join(map("Column_{}".format, range(self.features)))]
        head += ["feature_infos=" + " ".join(["none"] * self.features), ""]
        body: list[str] = []
        for j, tree in enumerate(self.trees):
            body += [f"Tree={j}", *tree.lines(), "", ""]
        return "\n".join([*head, *body, "end of trees", "", f"pandas_categorical:{json.dumps(self.categories)}", ""])


def read_trees(text: str) -> Trees:
    """Trees of LightGBM's text, or of ours.

    Raises
    ------
    ValueError
        If it is another text, or has what we do not write: linear leaves, another objective.
    """
    try:
        body, ended, rest = text.partition("\nend of trees")
        first, *blocks = re.split(r"\nTree=\d+\n", body)
        head = _pairs(first)
        categories = re.search(r"^pandas_categorical:(.*)$", rest, re.MULTILINE)
        trees = Trees(
            features=int(head["max_feature_idx"]) + 1,
            objective=head["objective"].strip(),
            averaged="\naverage_output\n" in f"{first}\n",
            trees=tuple(map(_tree, blocks)),
            categories=None if categories is None else json.loads(categories[1]),
        )
        sums, count, features = trees.sums, len(trees.trees), trees.features
        # At least one tree per class: the number of classes cannot be larger than the text.
        full = count % sums == 0 and (sums == 1 or count > 0)
        matching = head["num_class"] == head["num_tree_per_iteration"] == str(sums)
        # The text itself has a name for each feature: their number cannot be larger than the text.
        sized = 0 < features <= len(text) and len(head["feature_names"].split(" ")) == features
        listed = trees.categories is None or (
            isinstance(trees.categories, list) and all(isinstance(one, list) for one in trees.categories)
        )
        sound = (
            ended and full and matching and sized and listed and all(tree.is_sound(features) for tree in trees.trees)
        )
    except (ValueError, KeyError, OverflowError, RecursionError):
        raise ValueError(DAMAGED) from None
    if not sound:
        raise ValueError(DAMAGED)
    return trees


def _pairs(block: str) -> dict[str, str]:
    found = {}
    for line in block.splitlines():
        name, is_pair, value = line.partition("=")
        if is_pair:
            found[name] = value
    return found


def _tree(block: str) -> Tree:
    parts = _pairs(block)
    arrays: dict[str, Any] = {}
    if parts.get("is_linear", "0") != "0":
        raise ValueError(DAMAGED)
    single = int(parts["num_leaves"]) <= 1  # a tree of one leaf may leave out its nodes
    for name, field in FIELDS.items():
        left_out = single and field != "value"
        words = parts.get(name, "") if name.startswith("cat_") else "" if left_out else parts[name]
        arrays[field] = np.array(words.split(), dtype=np.float64 if field in ("threshold", "value") else np.int64)
    return Tree(**arrays)


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
