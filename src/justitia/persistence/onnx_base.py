"""ONNX graphs of base models: boosted trees, logistic and linear regression, and columns of scores.

Trees become ``TreeEnsemble`` nodes, which compare and add in double precision as LightGBM does, or in single precision
as XGBoost does, so that predictions agree with the library but for the last digits. This module needs the extra
``onnx``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from sklearn.linear_model import LogisticRegression

from justitia.learners.base import Base, CrossFitted, Fitted, ScoreColumn, ScoreColumns
from justitia.learners.trees import CATEGORICAL, DEFAULT_LEFT, NAN_MISSING, ZERO_MISSING, Tree, Trees, trees_of
from justitia.persistence.base import LINEAR_MODELS, columns_of_classes, is_second, is_softmax
from justitia.persistence.onnx_graph import ML, Graph
from justitia.persistence.xgboost_trees import SingleTrees, xgboost_trees
from justitia.tasks import Task

#: First version whose trees add in double precision.
TREES_OPSET = 5
#: Aggregation of the leaves of all trees in a ``TreeEnsemble``.
AVERAGE, SUM = 0, 1
#: Modes of a node: at most the split, below the split, or in a set goes the way of "true".
AT_MOST, BELOW, MEMBER = 0, 1, 6
#: Base models that have a form in ONNX here, by kind of target, for messages.
EXPORTED_BASES = {
    "binary": "boosted trees (LightGBM, XGBoost), of logistic regression or a column of scores",
    "classes": "boosted trees (LightGBM, XGBoost), of logistic regression or columns of scores",
    "number": "boosted trees (LightGBM, XGBoost), of linear or ridge regression or a column of predictions",
}
#: One node whose children both are leaf 0, for a tree of one leaf, which ONNX does not have.
ROOT = Tree(
    feature=np.zeros(1, dtype=np.int64),
    threshold=np.zeros(1),
    decision=np.zeros(1, dtype=np.int64),
    left=np.full(1, -1),
    right=np.full(1, -1),
    value=np.zeros(1),
    boundaries=np.zeros(0, dtype=np.int64),
    bits=np.zeros(0, dtype=np.int64),
)


@dataclass(frozen=True)
class TableInputs:
    """Graph inputs for the table that is passed to ``predict``: one (N, 1) per column, or one (N, p) for all.

    Attributes
    ----------
    inputs : list of str
        Names of the graph inputs, which hold numbers in double precision, or text.
    names : list of str
        Names of the columns.
    texts : list of bool
        Which columns hold text; empty if there is one input for all columns.
    """

    inputs: list[str]
    names: list[str]
    texts: list[bool]

    def column(self, graph: Graph, name: str) -> str:
        """(N, 1): one column of numbers."""
        place = self.names.index(name)
        if not self.texts:
            return graph.add("Gather", self.inputs[0], graph.constant(np.array([place])), axis=1)
        return self.inputs[place]

    def matrix(self, graph: Graph) -> str:
        """(N, p): all columns as numbers."""
        if any(self.texts):
            raise ValueError(
                "expected a base that reads columns of numbers to export, got one of a table with text or categories; "
                "fit one on numbers."
            )
        return graph.add("Concat", *self.inputs, axis=1) if self.texts else self.inputs[0]


def reads_table(base: Base) -> bool:
    """Whether the base model reads the table as it is passed, before preprocessing."""
    return not getattr(base, "encoded", False)


def add_base(graph: Graph, base: Base, table: TableInputs, numbers: str) -> str:
    """(N, 1): P(y = 1 | x) or E[y | x]; (N, K): probabilities of several classes.

    Parameters
    ----------
    table : TableInputs
        What a base model of the user's own reads.
    numbers : str
        (N, d) the columns after preprocessing in double precision; what the default base model reads.

    Raises
    ------
    ValueError
        If the base has no form in ONNX here.
    """
    graph.domains[ML] = TREES_OPSET
    if isinstance(base, ScoreColumn):
        return table.column(graph, base.name)
    if isinstance(base, ScoreColumns):
        return divided_by_sums(graph, graph.add("Concat", *(table.column(graph, one) for one in base.names), axis=1))
    models = base.models if isinstance(base, CrossFitted) else (getattr(base, "model", None),)
    parts = [_readable(model, base.task) for model in models]
    rows = table.matrix(graph) if reads_table(base) else numbers
    found = [_add_model(graph, part, rows, base.task) for part in parts]
    if base.task.kind == "classes":
        order = columns_of_classes(base)
        if order != sorted(order):
            found = [graph.add("Gather", one, graph.index(*order), axis=1) for one in found]
        found = [divided_by_sums(graph, one) for one in found]
    total = functools.reduce(lambda one, other: graph.add("Add", one, other), found)
    mean = graph.add("Div", total, graph.scalar(len(found)))
    flipped = base.task.kind == "binary" and isinstance(base, Fitted) and not is_second(base)
    return graph.add("Sub", graph.scalar(1.0), mean) if flipped else mean


def divided_by_sums(graph: Graph, values: str) -> str:
    """(N, K): each row divided by its sum."""
    return graph.add("Div", values, graph.add("ReduceSum", values, graph.index(1), keepdims=1))


def _readable(model: Any, task: Task) -> Any:
    """Trees, or a linear model of this kind of target."""
    trees = trees_of(model)
    if trees is not None and trees.kind == task.kind:
        return trees
    single = xgboost_trees(model, task.kind)
    if single is not None:
        return single
    known = {
        "binary": type(model) is LogisticRegression and len(model.coef_) == 1,
        "classes": is_softmax(model),
        "number": type(model) in LINEAR_MODELS.values() and model.coef_.ndim == 1,
    }
    if known[task.kind]:
        return model
    raise ValueError(
        f"expected a base of {EXPORTED_BASES[task.kind]} to export, got "
        f"{getattr(model, '__name__', type(model).__name__)!r}; export that model by itself, and fit with its "
        "scores as a column."
    )


def _add_model(graph: Graph, model: Any, rows: str, task: Task) -> str:
    """(N, 1), or (N, K) of several classes."""
    if isinstance(model, SingleTrees):
        scores = _add_single_trees(graph, model, rows)
    elif isinstance(model, Trees):
        scores, scale = _add_trees(graph, model, rows), model.sigmoid
        scores = scores if scale is None else graph.add("Mul", scores, graph.scalar(scale or 1.0))
    else:
        weight, bias = (np.asarray(part, dtype=np.float64) for part in (model.coef_, model.intercept_))
        weight, bias = np.atleast_2d(weight), np.atleast_1d(bias)
        scores = graph.add("Gemm", rows, graph.constant(weight), graph.constant(bias), transB=1)
    if task.kind == "number":
        return scores
    return graph.add("Softmax", scores, axis=1) if task.kind == "classes" else graph.add("Sigmoid", scores)


def _add_trees(graph: Graph, trees: Trees, rows: str) -> str:
    """(N, sums): sum or mean of the leaves."""
    parts = trees.trees or (ROOT,)
    sums = trees.sums
    # The mean that the operator takes is over all trees, not over those of one class.
    averaged = trees.averaged and sums == 1
    found = graph.add(
        "TreeEnsemble",
        rows,
        domain=ML,
        aggregate_function=AVERAGE if averaged else SUM,
        **_ensemble(parts, np.arange(len(parts)) % sums, sums, np.float64, AT_MOST),
    )
    if averaged or not trees.averaged:
        return found
    return graph.add("Div", found, graph.scalar(len(parts) / sums))


def _add_single_trees(graph: Graph, trees: SingleTrees, rows: str) -> str:
    """(N, sums): sum of the leaves in single precision, and the margin."""
    parts, sum_of = trees.trees or (ROOT,), trees.sum_of if trees.trees else np.zeros(1, dtype=np.int64)
    given = graph.add("Cast", rows, to=TensorProto.FLOAT)
    facts = _ensemble(parts, sum_of, trees.sums, np.float32, BELOW)
    found = graph.add("TreeEnsemble", given, domain=ML, aggregate_function=SUM, **facts)
    return graph.add("Add", graph.add("Cast", found, to=TensorProto.DOUBLE), graph.constant(trees.margin))


def _ensemble(parts: tuple[Tree, ...], sum_of: NDArray[Any], sums: int, kind: type, mode: int) -> dict[str, Any]:
    """Attributes of a ``TreeEnsemble`` whose trees belong to these sums."""
    nodes = np.concatenate([[0], np.cumsum([max(len(tree.feature), 1) for tree in parts])])
    leaves = np.concatenate([[0], np.cumsum([len(tree.value) for tree in parts])])
    each = [_nodes(tree, *starts) for tree, *starts in zip(parts, nodes, leaves, strict=False)]
    ids, splits, weights = ([one[name] for one in each] for name in ("feature", "threshold", "value"))
    by_category = np.concatenate([one["by_category"] for one in each])
    members = [part for one in each for part in one["members"]]
    found: dict[str, Any] = {
        "n_targets": sums,
        "tree_roots": nodes[:-1].tolist(),
        "nodes_featureids": np.concatenate(ids).tolist(),
        "nodes_splits": _tensor(splits, kind),
        "nodes_modes": _tensor([np.where(by_category, MEMBER, mode)], np.uint8),
        "leaf_weights": _tensor(weights, kind),
        "leaf_targetids": [int(sum_of[j]) for j, tree in enumerate(parts) for _ in tree.value],
        **{
            f"nodes_{name}": np.concatenate([one[name] for one in each]).astype(int).tolist()
            for name in ("truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing_value_tracks_true")
        },
    }
    if members:
        found["membership_values"] = _tensor(members, kind)
    return found


def _nodes(tree: Tree, first_node: int, first_leaf: int) -> dict[str, Any]:
    """Arrays of one tree whose nodes and leaves are counted from these; a tree of one leaf gets a root above it."""
    by_category = tree.decision & CATEGORICAL > 0
    if (tree.decision[~by_category] & ZERO_MISSING).any():
        raise ValueError(
            "expected a base that takes NaN for missing to export, got one that takes 0 for missing; fit one on "
            "numbers without zero_as_missing."
        )
    rooted = tree if len(tree.feature) else ROOT
    # LightGBM takes what is missing for 0, unless rows were missing in training: then each node has a side for them.
    missing = np.where(rooted.decision & NAN_MISSING, rooted.decision & DEFAULT_LEFT > 0, rooted.threshold >= 0)
    by_category = by_category if len(tree.feature) else np.zeros(1, dtype=np.bool_)
    found: dict[str, Any] = {"feature": rooted.feature, "value": tree.value, "by_category": by_category}
    found["threshold"] = np.where(by_category, 0.0, rooted.threshold)
    found["members"] = [_members(tree, int(place)) for place in tree.threshold[tree.decision & CATEGORICAL > 0]]
    found["missing_value_tracks_true"] = missing & ~by_category
    for way, child in (("true", rooted.left), ("false", rooted.right)):
        leaf = child < 0
        found |= {f"{way}leafs": leaf, f"{way}nodeids": np.where(leaf, -child - 1 + first_leaf, child + first_node)}
    return found


def _members(tree: Tree, place: int) -> NDArray[np.float64]:
    """Categories that go left at a node, and NaN, which ends each list."""
    words = tree.bits[tree.boundaries[place] : tree.boundaries[place + 1]]
    kept = [32 * k + bit for k, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1]
    return np.array([*kept, np.nan])


def _tensor(parts: list[NDArray[Any]], kind: type) -> Any:
    return numpy_helper.from_array(np.concatenate(parts).astype(kind), "")
