"""ONNX graphs of a fitted classifier: table columns in, labels and probabilities out.

:class:`Graph` collects nodes; ``add_encoder`` adds the preprocessing, ``add_rule`` the model of engine
``post-processing`` (base, calibration, correction), ``add_outputs`` labels and probabilities. Only standard operators
are used, in the precision in which ``predict_proba`` computes: trees become ``TreeEnsemble`` nodes, which compare and
add in double precision as LightGBM does, so that decisions agree with the library but for the last digits.

This module needs the extra ``onnx``; :mod:`justitia.persistence.onnx` imports it when an export is requested.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

from justitia.learners.base import Base, CrossFitted, Fitted, ScoreColumn
from justitia.learners.calibration import EDGE, Calibration
from justitia.learners.trees import CATEGORICAL, DEFAULT_LEFT, NAN_MISSING, ZERO_MISSING, Tree, Trees, trees_of
from justitia.persistence.base import is_second
from justitia.persistence.rule import CORRECTION_ARRAYS
from justitia.postprocessing.correction import CUT, Correction, Levels, Rule
from justitia.postprocessing.dual import BEYOND
from justitia.preprocessing.encoding import CategoryColumn, NumberColumn, TabularEncoder

#: Versions that runtimes of the last years read, and the first one whose trees add in double precision.
OPSET, ML_OPSET, TREES_OPSET, IR_VERSION = 18, 3, 5, 10
ML = "ai.onnx.ml"
ROWS = "N"
#: Aggregation of the leaves of all trees in a ``TreeEnsemble``.
AVERAGE, SUM = 0, 1
_LARGEST = float(np.finfo(np.float32).max)


class Graph:
    """Builder of an ONNX graph: nodes, constants, inputs, outputs and the names in use."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.functions: list[Any] = []
        self.domains: dict[str, int] = {"": OPSET, ML: ML_OPSET}
        self._names: set[str] = set()

    def unique_name(self, name: str) -> str:
        """The name, with underscores appended if it is taken, since a column may be called "label"."""
        while not name or name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def input(self, name: str, kind: int, shape: Sequence[str | int]) -> str:
        """Add an input; return its name."""
        name = self.unique_name(name)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, kind: int, shape: Sequence[str | int]) -> None:
        """Add an output that holds a value."""
        name = self.unique_name(name)
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its value."""
        name = self.unique_name(f"{operator.lower()}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def add_pair(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with two values; return the name of the first."""
        names = [self.unique_name(f"{operator.lower()}_{len(self.nodes)}_{j}") for j in range(2)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0]

    def constant(self, values: Any) -> str:
        """Add a constant; return its name."""
        name = self.unique_name(f"constant_{len(self.constants)}")
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def model(self, facts: dict[str, str]) -> Any:
        """The finished model, checked."""
        graph = helper.make_graph(self.nodes, "justitia", self.inputs, self.outputs, self.constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in self.domains.items()],
            functions=self.functions,
            producer_name="justitia",
            ir_version=IR_VERSION,
        )
        helper.set_model_props(model, facts)
        onnx.checker.check_model(model, full_check=True)
        return model


def add_columns(graph: Graph, encoder: TabularEncoder) -> list[str]:
    """One input of shape (N, 1) per column."""
    kinds = [TensorProto.DOUBLE if isinstance(how, NumberColumn) else TensorProto.STRING for how in encoder.columns_]
    return [graph.input(how.name, kind, (ROWS, 1)) for how, kind in zip(encoder.columns_, kinds, strict=True)]


def add_encoder(graph: Graph, encoder: TabularEncoder, inputs: Sequence[str], missing: str) -> str:
    """The encoded matrix of :class:`TabularEncoder`."""
    blocks: list[str] = []
    for how, x in zip(encoder.columns_, inputs, strict=True):
        blocks += _number(graph, x, how) if isinstance(how, NumberColumn) else _category(graph, x, how, missing)
    return graph.add("Concat", *blocks, axis=1)


def _number(graph: Graph, x: str, how: NumberColumn) -> list[str]:
    """(value or median, clipped, - mean) / scale in double precision, and an indicator of missing values."""
    low, high = graph.constant(-_LARGEST), graph.constant(_LARGEST)
    gone = graph.add("IsNaN", x)
    known = graph.add("Where", gone, graph.constant(how.median), x)
    filled = graph.add("Clip", known, graph.constant(how.low), graph.constant(how.high))
    centred = graph.add("Sub", filled, graph.constant(how.mean))
    constant = not how.scale > 0
    scaled = graph.add("Mul" if constant else "Div", centred, graph.constant(0.0 if constant else how.scale))
    blocks = [graph.add("Cast", graph.add("Clip", scaled, low, high), to=TensorProto.FLOAT)]
    return [*blocks, graph.add("Cast", gone, to=TensorProto.FLOAT)] if how.missing else blocks


def _category(graph: Graph, x: str, how: CategoryColumn, missing: str) -> list[str]:
    """One-hot encoding; a level that training did not have is "(other)", or -1 and so all zeros without one."""
    unseen = len(how.levels) if how.other else -1
    gone = len(how.levels) + how.other if how.missing else unseen
    code = graph.add(
        "LabelEncoder",
        x,
        domain=ML,
        keys_strings=[*how.levels, missing],
        values_int64s=[*range(len(how.levels)), gone],
        default_int64=unseen,
    )
    hot = graph.add("Equal", code, graph.constant(np.arange(len(how.names()), dtype=np.int64)[None]))
    return [graph.add("Cast", hot, to=TensorProto.FLOAT)]


def add_outputs(graph: Graph, scores: str, probability: str, classes: NDArray[Any]) -> None:
    """Outputs "label" (N,), by the sign of scores, and "probabilities" (N, 2), in the order of ``classes_``."""
    column = graph.add("Unsqueeze", probability, graph.constant(np.array([1], dtype=np.int64)))
    pair = graph.add("Concat", graph.add("Sub", graph.constant(np.float64(1)), column), column, axis=1)
    second = graph.add("Cast", graph.add("Greater", scores, graph.constant(np.float64(0))), to=TensorProto.INT64)
    kind, labels = _labels(classes)
    graph.output("label", graph.add("Gather", graph.constant(labels), second), kind, (ROWS,))
    graph.output("probabilities", pair, TensorProto.DOUBLE, (ROWS, 2))


def _labels(classes: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    labels = np.array(classes.tolist())
    known: dict[str, tuple[int, Any]] = {
        "b": (TensorProto.BOOL, np.bool_),
        "i": (TensorProto.INT64, np.int64),
        "f": (TensorProto.DOUBLE, np.float64),
        "U": (TensorProto.STRING, object),
    }
    if labels.dtype.kind not in known:
        raise TypeError("expected class labels that are text, numbers or booleans, got others, which ONNX has not.")
    kind, dtype = known[labels.dtype.kind]
    return kind, labels.astype(dtype)


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


def add_rule(graph: Graph, rule: Rule, table: TableInputs, numbers: str) -> tuple[str, str]:
    """(N,) margins and (N,) probabilities of the second class.

    Parameters
    ----------
    table : TableInputs
        What a base model of the user's own reads.
    numbers : str
        (N, d) the columns after preprocessing; what the default base model and the correction read.

    Raises
    ------
    ValueError
        If the base has no form in ONNX here.
    """
    graph.domains[ML] = TREES_OPSET
    doubled = graph.add("Cast", numbers, to=TensorProto.DOUBLE)
    eta = _calibrated(graph, rule.calibration, _add_base(graph, rule.base, table, doubled))
    uncorrected = graph.add("Mul", graph.add("Sub", eta, _scalar(graph, rule.threshold)), _scalar(graph, 2.0))
    if rule.levels is not None:
        margin = _score_margin(graph, rule, rule.levels, eta, doubled)
    elif rule.correction.is_zero:
        margin = uncorrected
    else:
        corrected = graph.add("Sub", uncorrected, _correction(graph, rule.correction, eta, doubled))
        margin = _clip_to_decision_side(graph, uncorrected, corrected)
    half = graph.add("Add", _scalar(graph, rule.threshold), graph.add("Div", margin, _scalar(graph, 2.0)))
    probability = graph.add("Clip", half, _scalar(graph, 0.0), _scalar(graph, 1.0))
    flat = graph.constant(np.array([-1], dtype=np.int64))
    return graph.add("Reshape", margin, flat), graph.add("Reshape", probability, flat)


def reads_table(base: Base) -> bool:
    """Whether the base model reads the table as it is passed, before preprocessing."""
    return not getattr(base, "encoded", False)


def _add_base(graph: Graph, base: Base, table: TableInputs, numbers: str) -> str:
    """(N, 1): p(y = 1 | x)."""
    if isinstance(base, ScoreColumn):
        return table.column(graph, base.name)
    models = base.models if isinstance(base, CrossFitted) else (getattr(base, "model", None),)
    parts = [_readable(model) for model in models]
    rows = table.matrix(graph) if reads_table(base) else numbers
    found = [_add_model(graph, part, rows) for part in parts]
    total = functools.reduce(lambda one, other: graph.add("Add", one, other), found)
    mean = graph.add("Div", total, _scalar(graph, len(found)))
    flipped = isinstance(base, Fitted) and not is_second(base)
    return graph.add("Sub", _scalar(graph, 1.0), mean) if flipped else mean


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
        return graph.add("Sigmoid", graph.add("Mul", logit, _scalar(graph, model.sigmoid or 1.0)))
    weight, bias = (np.asarray(part, dtype=np.float64) for part in (model.coef_, model.intercept_))
    return graph.add("Sigmoid", graph.add("Gemm", rows, graph.constant(weight), graph.constant(bias), transB=1))


def _calibrated(graph: Graph, calibration: Calibration, p: str) -> str:
    """As :class:`Calibration` does."""
    low, high = _scalar(graph, EDGE), _scalar(graph, 1 - EDGE)
    p = graph.add("Clip", p, low, high)
    if calibration == Calibration():
        return p
    rest = graph.add("Log", graph.add("Sub", _scalar(graph, 1.0), p))
    first = graph.add("Mul", graph.add("Log", p), _scalar(graph, calibration.alpha))
    second = graph.add("Mul", rest, _scalar(graph, calibration.beta))
    logit = graph.add("Add", graph.add("Sub", first, second), _scalar(graph, calibration.gamma))
    return graph.add("Clip", graph.add("Sigmoid", logit), low, high)


def _correction(graph: Graph, correction: Correction, eta: str, numbers: str) -> str:
    """(N, 1): as :class:`Correction` does."""
    centre, scale, hidden, out = (graph.constant(np.asarray(getattr(correction, name))) for name in CORRECTION_ARRAYS)
    standard = graph.add("Div", graph.add("Sub", numbers, centre), scale)
    standard = graph.add("Clip", standard, _scalar(graph, -CUT), _scalar(graph, CUT))
    one, two = _scalar(graph, 1.0), _scalar(graph, 2.0)
    rest = graph.add("Sub", one, eta)
    odds = graph.add("Div", graph.add("Log", graph.add("Div", eta, rest)), _scalar(graph, CUT))
    ones = graph.add("Add", eta, rest)
    centred = graph.add("Sub", graph.add("Mul", eta, two), one)
    units = graph.add("Tanh", graph.add("MatMul", graph.add("Concat", standard, centred, odds, ones, axis=1), hidden))
    sides = graph.add("MatMul", graph.add("Concat", units, ones, axis=1), out)
    shares = graph.add("Concat", rest, eta, axis=1)
    return graph.add("MatMul", graph.add("Mul", sides, shares), graph.constant(np.ones((2, 1))))


def _clip_to_decision_side(graph: Graph, margin: str, corrected: str) -> str:
    """(N, 1): as :func:`clip_to_decision_side` does."""
    zero = _scalar(graph, 0.0)
    same = graph.add("Equal", graph.add("Greater", margin, zero), graph.add("Greater", corrected, zero))
    return graph.add("Where", same, margin, graph.add("Mul", corrected, _scalar(graph, BEYOND)))


def _score_margin(graph: Graph, rule: Rule, levels: Levels, eta: str, numbers: str) -> str:
    """(N, 1): as :func:`moved_probability` does, twice less the threshold."""
    two, zero, last = _scalar(graph, 2.0), _scalar(graph, 0.0), len(levels.at) - 1
    margins = [
        graph.add(
            "Sub", graph.add("Mul", graph.add("Sub", eta, _scalar(graph, s)), two), _correction(graph, t, eta, numbers)
        )
        for s, t in zip(levels.at, levels.corrections, strict=True)
    ]
    # TopK of all is a sort
    falling = graph.add_pair(
        "TopK", graph.add("Concat", *margins, axis=1), graph.constant(np.array([last + 1])), axis=1
    )
    at = graph.constant(levels.at)
    positive = graph.add("Cast", graph.add("Greater", falling, zero), to=TensorProto.INT64)
    passed = graph.add("ReduceSum", positive, graph.constant(np.array([1])), keepdims=1)
    one, whole = graph.constant(np.int64(1)), graph.constant(np.int64(last))
    below = graph.add("Max", graph.add("Sub", passed, one), graph.constant(np.int64(0)))
    above = graph.add("Min", passed, whole)
    m_below, m_above = (graph.add("GatherElements", falling, which, axis=1) for which in (below, above))
    s_below, s_above = (graph.add("Gather", at, which) for which in (below, above))
    span = graph.add("Max", graph.add("Sub", m_below, m_above), _scalar(graph, 1e-12))
    share = graph.add("Clip", graph.add("Div", m_below, span), zero, _scalar(graph, 1.0))
    inside = graph.add("Add", s_below, graph.add("Mul", share, graph.add("Sub", s_above, s_below)))
    lowest, highest = (_end_score(graph, falling, levels.at, place) for place in (0, last))
    top = graph.add("Where", graph.add("Equal", passed, graph.constant(np.int64(last + 1))), highest, inside)
    p = graph.add("Where", graph.add("Equal", passed, graph.constant(np.int64(0))), lowest, top)
    return graph.add("Mul", graph.add("Sub", p, _scalar(graph, rule.threshold)), two)


def _end_score(graph: Graph, falling: str, at: NDArray[np.float64], place: int) -> str:
    """(N, 1): the score below the lowest level, or above the highest."""
    margin = graph.add("Gather", falling, graph.constant(np.array([place])), axis=1)
    moved = graph.add("Add", _scalar(graph, at[place]), graph.add("Div", margin, _scalar(graph, 2.0)))
    low, high = (0.0, at[0]) if place == 0 else (at[-1], 1.0)
    return graph.add("Clip", moved, _scalar(graph, low), _scalar(graph, high))


def _scalar(graph: Graph, value: float) -> str:
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
