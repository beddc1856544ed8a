"""ONNX graphs of a fitted model: table columns in; labels and probabilities, or predicted numbers, out.

:class:`Graph` collects nodes; ``add_encoder`` adds the preprocessing. The model between them is added by
:mod:`justitia.persistence.onnx_rules` or :mod:`justitia.networks.onnx`, and ``add_outputs``, ``add_class_outputs`` and
``add_number_output`` add the outputs. Only standard operators are used, in the precision in which ``predict_proba``
computes.

This module needs the extra ``onnx``; :mod:`justitia.persistence.onnx` imports it when an export is requested.
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

    def scalar(self, value: float) -> str:
        """Add a constant number in double precision; return its name."""
        return self.constant(np.float64(value))

    def index(self, *values: int) -> str:
        """Add a constant list of integers, such as axes or positions; return its name."""
        return self.constant(np.array(values, dtype=np.int64))

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
    add_class_outputs(graph, second, pair, classes)


def add_class_outputs(graph: Graph, decided: str, probabilities: str, classes: NDArray[Any]) -> None:
    """Outputs "label" (N,), by the positions of the decided classes, and "probabilities" (N, K)."""
    kind, labels = _labels(classes)
    graph.output("label", graph.add("Gather", graph.constant(labels), decided), kind, (ROWS,))
    graph.output("probabilities", probabilities, TensorProto.DOUBLE, (ROWS, len(classes)))


def add_number_output(graph: Graph, prediction: str) -> None:
    """Output "prediction" (N,)."""
    graph.output("prediction", prediction, TensorProto.DOUBLE, (ROWS,))


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
