"""The rule of engine ``post-processing`` in an ONNX graph: base, calibration and correction in double precision.

Trees become ``TreeEnsemble`` nodes, which compare and add in double precision as LightGBM does, and the correction is
computed in double precision, so that decisions are those of the library but for the last digits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from sklearn.linear_model import LogisticRegression

from justitia.learners.base import Base, Column, CrossFitted, Fitted
from justitia.learners.calibration import EDGE, Calibration
from justitia.learners.trees import CATEGORICAL, DEFAULT_LEFT, NAN_MISSING, ZERO_MISSING, Tree, Trees
from justitia.persistence.onnx_graph import ML, Graph
from justitia.persistence.rule import PARTS, is_second, trees_of
from justitia.postprocessing.correction import CUT, Correction, Levels, Rule
from justitia.postprocessing.dual import BEYOND

#: The first version of the operators for trees that adds in double precision.
TREES_OPSET = 5
#: What is done with the leaves of all trees.
AVERAGE, SUM = 0, 1
#: One node whose both children are leaf 0: operators have no tree of one leaf.
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
class Table:
    """The table as it is passed to ``predict``: one input (N, 1) per column, or one (N, p) for all.

    Attributes
    ----------
    inputs : list of str
        Of numbers in double precision, or of text.
    names : list of str
        Of the columns.
    texts : list of bool
        Which columns hold text; empty for one input.
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


def add_rule(graph: Graph, rule: Rule, table: Table, numbers: str) -> tuple[str, str]:
    """(N,) margins and (N,) probabilities of the second class.

    Parameters
    ----------
    table : Table
        What a base reads that is not ours.
    numbers : str
        (N, d) the columns after preprocessing.

    Raises
    ------
    ValueError
        If the base has no form in ONNX here.
    """
    graph.domains[ML] = TREES_OPSET
    doubled = graph.add("Cast", numbers, to=TensorProto.DOUBLE)
    eta = _calibrated(graph, rule.calibration, _add_base(graph, rule.base, table, doubled))
    gain = graph.add("Mul", graph.add("Sub", eta, _number(graph, rule.threshold)), _number(graph, 2.0))
    if rule.levels is not None:
        margin = _moved(graph, rule, rule.levels, eta, doubled)
    elif rule.correction.is_zero:
        margin = gain
    else:
        margin = _kept_side(graph, gain, graph.add("Sub", gain, _correction(graph, rule.correction, eta, doubled)))
    half = graph.add("Add", _number(graph, rule.threshold), graph.add("Div", margin, _number(graph, 2.0)))
    moved = graph.add("Clip", half, _number(graph, 0.0), _number(graph, 1.0))
    flat = graph.constant(np.array([-1], dtype=np.int64))
    return graph.add("Reshape", margin, flat), graph.add("Reshape", moved, flat)


def reads_table(base: Base) -> bool:
    """Whether the base reads the table as it is passed, before preprocessing."""
    return not getattr(base, "encoded", False)


def _add_base(graph: Graph, base: Base, table: Table, numbers: str) -> str:
    """(N, 1): p(y = 1 | x)."""
    if isinstance(base, Column):
        return table.column(graph, base.name)
    models = base.models if isinstance(base, CrossFitted) else (getattr(base, "model", None),)
    parts = [_readable(model) for model in models]
    rows = table.matrix(graph) if reads_table(base) else numbers
    found = [_add_model(graph, part, rows) for part in parts]
    total = functools.reduce(lambda one, other: graph.add("Add", one, other), found)
    mean = graph.add("Div", total, _number(graph, len(found)))
    flipped = isinstance(base, Fitted) and not is_second(base)
    return graph.add("Sub", _number(graph, 1.0), mean) if flipped else mean


def _readable(model: Any) -> Trees | LogisticRegression:
    trees = trees_of(model)
    if trees is not None:
        return trees
    if type(model) is LogisticRegression and len(model.coef_) == 1:
        return model
    raise ValueError(
        "expected a base of boosted trees (LightGBM), of logistic regression or a column of scores to export, got "
        f"{getattr(model, '__name__', type(model).__name__)!r}; export that model by itself, and fit with its "
        "scores as a column."
    )


def _add_model(graph: Graph, model: Trees | LogisticRegression, rows: str) -> str:
    if isinstance(model, Trees):
        logit = _add_trees(graph, model, rows)
        return graph.add("Sigmoid", graph.add("Mul", logit, _number(graph, model.sigmoid or 1.0)))
    weight, bias = (np.asarray(part, dtype=np.float64) for part in (model.coef_, model.intercept_))
    return graph.add("Sigmoid", graph.add("Gemm", rows, graph.constant(weight), graph.constant(bias), transB=1))


def _calibrated(graph: Graph, mend: Calibration, p: str) -> str:
    """As :class:`Calibration` does."""
    low, high = _number(graph, EDGE), _number(graph, 1 - EDGE)
    p = graph.add("Clip", p, low, high)
    if mend == Calibration():
        return p
    rest = graph.add("Log", graph.add("Sub", _number(graph, 1.0), p))
    first = graph.add("Mul", graph.add("Log", p), _number(graph, mend.alpha))
    second = graph.add("Mul", rest, _number(graph, mend.beta))
    logit = graph.add("Add", graph.add("Sub", first, second), _number(graph, mend.gamma))
    return graph.add("Clip", graph.add("Sigmoid", logit), low, high)


def _correction(graph: Graph, correction: Correction, eta: str, numbers: str) -> str:
    """(N, 1): as :class:`Correction` does."""
    centre, spread, hidden, out = (graph.constant(np.asarray(getattr(correction, name))) for name in PARTS)
    standard = graph.add("Div", graph.add("Sub", numbers, centre), spread)
    standard = graph.add("Clip", standard, _number(graph, -CUT), _number(graph, CUT))
    one, two = _number(graph, 1.0), _number(graph, 2.0)
    rest = graph.add("Sub", one, eta)
    odds = graph.add("Div", graph.add("Log", graph.add("Div", eta, rest)), _number(graph, CUT))
    ones = graph.add("Add", eta, rest)
    centred = graph.add("Sub", graph.add("Mul", eta, two), one)
    units = graph.add("Tanh", graph.add("MatMul", graph.add("Concat", standard, centred, odds, ones, axis=1), hidden))
    sides = graph.add("MatMul", graph.add("Concat", units, ones, axis=1), out)
    shares = graph.add("Concat", rest, eta, axis=1)
    return graph.add("MatMul", graph.add("Mul", sides, shares), graph.constant(np.ones((2, 1))))


def _kept_side(graph: Graph, gain: str, moved: str) -> str:
    """(N, 1): as :func:`clip_to_decision_side` does."""
    zero = _number(graph, 0.0)
    same = graph.add("Equal", graph.add("Greater", gain, zero), graph.add("Greater", moved, zero))
    return graph.add("Where", same, gain, graph.add("Mul", moved, _number(graph, BEYOND)))


def _moved(graph: Graph, rule: Rule, levels: Levels, eta: str, numbers: str) -> str:
    """(N, 1): as :func:`moved_probability` does, twice less the threshold."""
    two, zero, last = _number(graph, 2.0), _number(graph, 0.0), len(levels.at) - 1
    margins = [
        graph.add(
            "Sub", graph.add("Mul", graph.add("Sub", eta, _number(graph, s)), two), _correction(graph, t, eta, numbers)
        )
        for s, t in zip(levels.at, levels.corrections, strict=True)
    ]
    # TopK of all is a sort
    falling = graph.two("TopK", graph.add("Concat", *margins, axis=1), graph.constant(np.array([last + 1])), axis=1)
    at = graph.constant(levels.at)
    positive = graph.add("Cast", graph.add("Greater", falling, zero), to=TensorProto.INT64)
    passed = graph.add("ReduceSum", positive, graph.constant(np.array([1])), keepdims=1)
    one, whole = graph.constant(np.int64(1)), graph.constant(np.int64(last))
    below = graph.add("Max", graph.add("Sub", passed, one), graph.constant(np.int64(0)))
    above = graph.add("Min", passed, whole)
    m_below, m_above = (graph.add("GatherElements", falling, which, axis=1) for which in (below, above))
    s_below, s_above = (graph.add("Gather", at, which) for which in (below, above))
    span = graph.add("Max", graph.add("Sub", m_below, m_above), _number(graph, 1e-12))
    share = graph.add("Clip", graph.add("Div", m_below, span), zero, _number(graph, 1.0))
    inside = graph.add("Add", s_below, graph.add("Mul", share, graph.add("Sub", s_above, s_below)))
    lowest, highest = (_end(graph, falling, levels.at, place) for place in (0, last))
    top = graph.add("Where", graph.add("Equal", passed, graph.constant(np.int64(last + 1))), highest, inside)
    p = graph.add("Where", graph.add("Equal", passed, graph.constant(np.int64(0))), lowest, top)
    return graph.add("Mul", graph.add("Sub", p, _number(graph, rule.threshold)), two)


def _end(graph: Graph, falling: str, at: NDArray[np.float64], place: int) -> str:
    """(N, 1): the score below the lowest level, or above the highest."""
    margin = graph.add("Gather", falling, graph.constant(np.array([place])), axis=1)
    moved = graph.add("Add", _number(graph, at[place]), graph.add("Div", margin, _number(graph, 2.0)))
    low, high = (0.0, at[0]) if place == 0 else (at[-1], 1.0)
    return graph.add("Clip", moved, _number(graph, low), _number(graph, high))


def _number(graph: Graph, value: float) -> str:
    return graph.constant(np.float64(value))


def _add_trees(graph: Graph, trees: Trees, rows: str) -> str:
    """(N, 1): sum or mean of the leaves."""
    parts = trees.trees or (ROOT,)
    nodes = np.concatenate([[0], np.cumsum([max(len(tree.feature), 1) for tree in parts])])
    leaves = np.concatenate([[0], np.cumsum([len(tree.value) for tree in parts])])
    each = [_nodes(tree, *starts) for tree, *starts in zip(parts, nodes, leaves, strict=False)]
    ids, splits, weights = ([one[name] for one in each] for name in ("feature", "threshold", "value"))
    return graph.add(
        "TreeEnsemble",
        rows,
        domain=ML,
        aggregate_function=AVERAGE if trees.averaged else SUM,
        n_targets=1,
        tree_roots=nodes[:-1].tolist(),
        nodes_featureids=np.concatenate(ids).tolist(),
        nodes_splits=_tensor(splits, np.float64),
        nodes_modes=_tensor([np.zeros(nodes[-1])], np.uint8),  # at most the split goes the way of "true"
        leaf_weights=_tensor(weights, np.float64),
        leaf_targetids=[0] * int(leaves[-1]),
        **{
            f"nodes_{name}": np.concatenate([one[name] for one in each]).astype(int).tolist()
            for name in ("truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing_value_tracks_true")
        },
    )


def _nodes(tree: Tree, first_node: int, first_leaf: int) -> dict[str, NDArray[Any]]:
    """Arrays of one tree whose nodes and leaves are counted from these; a tree of one leaf gets a root above it."""
    if (tree.decision & (CATEGORICAL | ZERO_MISSING)).any():
        raise ValueError(
            "expected a base that splits on numbers to export, got one that splits on categories or takes 0 for "
            "missing; fit one on numbers."
        )
    rooted = tree if len(tree.feature) else ROOT
    # LightGBM takes what is missing for 0, unless rows were missing in training: then each node has a side for them.
    missing = np.where(rooted.decision & NAN_MISSING, rooted.decision & DEFAULT_LEFT > 0, rooted.threshold >= 0)
    found: dict[str, NDArray[Any]] = {"feature": rooted.feature, "threshold": rooted.threshold, "value": tree.value}
    found["missing_value_tracks_true"] = missing
    for way, child in (("true", rooted.left), ("false", rooted.right)):
        leaf = child < 0
        found |= {f"{way}leafs": leaf, f"{way}nodeids": np.where(leaf, -child - 1 + first_leaf, child + first_node)}
    return found


def _tensor(parts: list[NDArray[Any]], kind: type) -> Any:
    return numpy_helper.from_array(np.concatenate(parts).astype(kind), "")
