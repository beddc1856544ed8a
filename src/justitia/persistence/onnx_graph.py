"""A fitted classifier as one ONNX graph: the columns of a table in, labels and probabilities out.

Needs the extra ``onnx``; :mod:`justitia.persistence.onnx` imports this file when it is there. Everything is written
with standard operators, in the precision in which ``predict_proba`` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from justitia.preprocessing.encoding import CategoryColumn, NumberColumn, TabularEncoder

#: Versions that runtimes of the last years read.
OPSET, ML_OPSET, IR_VERSION = 18, 3, 10
ML = "ai.onnx.ml"
ROWS = "N"
_LARGEST = float(np.finfo(np.float32).max)


class Graph:
    """Nodes, constants and names of a graph in the making."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.functions: list[Any] = []
        self.domains: dict[str, int] = {"": OPSET, ML: ML_OPSET}
        self._taken: set[str] = set()

    def free(self, name: str) -> str:
        """The name, with underscores behind it if it is taken: a column may be called "label"."""
        while not name or name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def input(self, name: str, kind: int, shape: Sequence[str | int]) -> str:
        """A new input."""
        name = self.free(name)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, kind: int, shape: Sequence[str | int]) -> None:
        """Give a value out under a name of its own."""
        name = self.free(name)
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A new node; returns the name of its value."""
        name = self.free(f"{operator.lower()}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def two(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A new node with two values; returns the name of the first."""
        names = [self.free(f"{operator.lower()}_{len(self.nodes)}_{j}") for j in range(2)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0]

    def constant(self, values: Any) -> str:
        """A new constant; returns its name."""
        name = self.free(f"constant_{len(self.constants)}")
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
    """(value or median, kept in range, - mean) / scale in double precision, and what was missing."""
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
    """The position of each level, compared with all positions; the unseen is -1 unless there is a rest for it."""
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


def add_answers(graph: Graph, scores: str, probability: str, classes: NDArray[Any]) -> None:
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
