"""A network as part of an ONNX graph; a module of one's own goes through torch's exporter."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, compose, helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from justitia.networks.multilayer import widths_of
from justitia.networks.requirements import as_scores
from justitia.persistence.onnx_graph import OPSET, ROWS, Graph

#: Largest difference between torch and the exported module.
AGREEMENT = 1e-5


def add_module(graph: Graph, module: nn.Module, x: str, rows: NDArray[np.float32]) -> str:
    """(N,) scores in double precision; ``rows`` are a few public rows that a module of one's own is traced with."""
    if widths_of(module) is None:
        scores = _add_traced(graph, module, x, torch.from_numpy(rows))
    else:
        scores = _add_multilayer(graph, module, graph.add("Cast", x, to=TensorProto.DOUBLE))
    flat = graph.add("Reshape", scores, graph.constant(np.array([-1], dtype=np.int64)))
    return graph.add("Cast", flat, to=TensorProto.DOUBLE)


def _add_multilayer(graph: Graph, module: nn.Module, x: str) -> str:
    """The default network, in the double precision of ``predict_proba``."""
    for layer in module.children():
        if isinstance(layer, nn.Linear):
            weight, bias = (parameter.detach().double().numpy() for parameter in (layer.weight, layer.bias))
            x = graph.add("Gemm", x, graph.constant(weight), graph.constant(bias), transB=1)
        else:
            x = graph.add("Relu", x)
    return x


def _add_traced(graph: Graph, module: nn.Module, x: str, rows: Tensor) -> str:
    """A module of one's own, as torch exports it, under names that collide with none of ours."""
    traced = _traced(copy.deepcopy(module).eval(), rows)
    _forget_sources(traced.graph.node)
    for function in traced.functions:
        _forget_sources(function.node)
    named = compose.add_prefix(traced, graph.unique_name("module") + "/")
    inner = named.graph
    graph.nodes.append(helper.make_node("Identity", [x], [inner.input[0].name]))
    graph.nodes += inner.node
    graph.constants += inner.initializer
    graph.functions += named.functions
    graph.domains |= {one.domain: one.version for one in named.opset_import}
    return str(inner.output[0].name)


def _traced(module: nn.Module, rows: Tensor) -> Any:
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # torch's, about its own parts: a user can do nothing about them
        try:
            program: Any = torch.onnx.export(
                module,
                (rows,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim(ROWS)},),
                opset_version=OPSET,
                verbose=False,
            )
            found = program.model_proto
            agree = all(_agrees(module, found, part) for part in (rows, rows[:1]))
        except Exception as error:  # noqa: BLE001 - a user's module and torch's exporter may raise anything
            first = (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
            raise ValueError(
                f"expected a module that torch.onnx can export, got '{first}'; use layers and operators it knows."
            ) from None
    if not agree:
        raise ValueError(
            f"expected the exported module to agree with torch to {AGREEMENT:g}, got scores further apart; "
            "use layers and operators that torch.onnx translates faithfully."
        )
    return found


def _agrees(module: nn.Module, proto: Any, rows: Tensor) -> bool:
    with torch.no_grad():
        expected = as_scores(module(rows), len(rows)).double().numpy()
    (found,) = ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: rows.numpy()})
    return bool(np.allclose(np.reshape(found, -1), expected, rtol=AGREEMENT, atol=AGREEMENT))


def _forget_sources(nodes: Iterable[Any]) -> None:
    """Remove what torch notes beside a node: source lines and paths of the machine that trained."""
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _forget_sources(inner.node)
