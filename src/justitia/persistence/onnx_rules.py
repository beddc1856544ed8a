"""ONNX graphs of the models that engine ``post-processing`` deploys: base, calibration and correction.

Each function computes what the method of the same purpose in :mod:`justitia.postprocessing` does, on columns of a table
instead of arrays. This module needs the extra ``onnx``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from justitia.learners.calibration import EDGE, Calibration, VectorScaling
from justitia.persistence.onnx_base import TableInputs, add_base, divided_by_sums
from justitia.persistence.onnx_graph import Graph, add_class_outputs, add_number_output, add_outputs
from justitia.postprocessing.correction import CUT, ClassRule, Correction, Levels, Rule
from justitia.postprocessing.dual import BEYOND
from justitia.postprocessing.levels import spacing
from justitia.postprocessing.number_notions import EqualDistributions, EqualErrors, EqualMeans
from justitia.postprocessing.number_rule import EDGE as NUMBER_EDGE
from justitia.postprocessing.number_rule import NumberRule

Array = NDArray[np.float64]


def add_rule(graph: Graph, model: Any, table: TableInputs, numbers: str) -> None:
    """The rule of a fitted model, and its outputs.

    Parameters
    ----------
    table : TableInputs
        What a base model of the user's own reads.
    numbers : str
        (N, d) the columns after preprocessing; what the default base model and the correction read.

    Raises
    ------
    ValueError
        If the base or the notion has no form in ONNX here.
    """
    rule, doubled = model.rule_, graph.add("Cast", numbers, to=TensorProto.DOUBLE)
    prediction = add_base(graph, rule.base, table, doubled)
    if isinstance(rule, NumberRule):
        add_number_output(graph, _flat(graph, _number(graph, rule, prediction, doubled)))
    elif isinstance(rule, ClassRule):
        p = _calibrated_classes(graph, rule.calibration, prediction)
        add_class_outputs(graph, *_classes(graph, rule, p, doubled), model.classes_)
    else:
        margin, probability = _binary(graph, rule, _calibrated(graph, rule.calibration, prediction), doubled)
        add_outputs(graph, _flat(graph, margin), _flat(graph, probability), model.classes_)


def _flat(graph: Graph, column: str) -> str:
    """(N,)."""
    return graph.add("Reshape", column, graph.index(-1))


# --- two classes


def _binary(graph: Graph, rule: Rule, eta: str, numbers: str) -> tuple[str, str]:
    """(N, 1) margins and (N, 1) probabilities of the second class, as :class:`Rule` has them."""
    uncorrected = graph.add("Mul", graph.add("Sub", eta, graph.scalar(rule.threshold)), graph.scalar(2.0))
    if rule.levels is not None:
        margin = _score_margin(graph, rule, rule.levels, eta, numbers)
    elif rule.correction.is_zero:
        margin = uncorrected
    else:
        correction = _corrections(graph, [rule.correction], eta, numbers)
        margin = _clip_to_decision_side(graph, uncorrected, graph.add("Sub", uncorrected, correction))
    half = graph.add("Add", graph.scalar(rule.threshold), graph.add("Div", margin, graph.scalar(2.0)))
    return margin, graph.add("Clip", half, graph.scalar(0.0), graph.scalar(1.0))


def _calibrated(graph: Graph, calibration: Calibration, p: str) -> str:
    """As :class:`Calibration` does."""
    low, high = graph.scalar(EDGE), graph.scalar(1 - EDGE)
    p = graph.add("Clip", p, low, high)
    if calibration.is_identity:
        return p
    rest = graph.add("Log", graph.add("Sub", graph.scalar(1.0), p))
    first = graph.add("Mul", graph.add("Log", p), graph.scalar(calibration.alpha))
    second = graph.add("Mul", rest, graph.scalar(calibration.beta))
    logit = graph.add("Add", graph.add("Sub", first, second), graph.scalar(calibration.gamma))
    return graph.add("Clip", graph.add("Sigmoid", logit), low, high)


def _hidden(graph: Graph, correction: Correction, prediction: str, numbers: str) -> str:
    """(N, H + 1): hidden units of a correction, and ones."""
    centre, scale, hidden = (graph.constant(np.asarray(getattr(correction, one))) for one in _READ)
    standard = graph.add("Div", graph.add("Sub", numbers, centre), scale)
    standard = graph.add("Clip", standard, graph.scalar(-CUT), graph.scalar(CUT))
    one, two = graph.scalar(1.0), graph.scalar(2.0)
    ratio = graph.add("Div", prediction, graph.add("Sub", one, prediction))
    odds = graph.add("Div", graph.add("Log", ratio), graph.scalar(CUT))
    centred = graph.add("Sub", graph.add("Mul", prediction, two), one)
    first = graph.add("Gather", prediction, graph.index(0), axis=1)
    ones = graph.add("Add", graph.add("Mul", first, graph.scalar(0.0)), one)
    units = graph.add("Tanh", graph.add("MatMul", graph.add("Concat", standard, centred, odds, ones, axis=1), hidden))
    return graph.add("Concat", units, ones, axis=1)


#: Arrays that hidden units read.
_READ = ("centre", "spread", "hidden")


def _corrections(graph: Graph, corrections: Sequence[Correction], eta: str, numbers: str) -> str:
    """(N, R): corrections that differ only after the hidden units, as :class:`Correction` has them for one column."""
    units = _hidden(graph, corrections[0], eta, numbers)
    outputs = np.stack([np.asarray(one.out) for one in corrections], axis=1)  # (H + 1, R, 2)
    v, u = (graph.add("MatMul", units, graph.constant(np.ascontiguousarray(outputs[..., j]))) for j in (0, 1))
    rest = graph.add("Sub", graph.scalar(1.0), eta)
    return graph.add("Add", graph.add("Mul", eta, u), graph.add("Mul", rest, v))


def _clip_to_decision_side(graph: Graph, margin: str, corrected: str) -> str:
    """(N, 1): as :func:`clip_to_decision_side` does."""
    zero = graph.scalar(0.0)
    same = graph.add("Equal", graph.add("Greater", margin, zero), graph.add("Greater", corrected, zero))
    return graph.add("Where", same, margin, graph.add("Mul", corrected, graph.scalar(BEYOND)))


def _level_margins(graph: Graph, at: Array, corrections: Sequence[Correction], m: str, numbers: str) -> str:
    """(N, T): twice the distance from each level, less the correction there."""
    distance = graph.add("Mul", graph.add("Sub", m, graph.constant(at[None])), graph.scalar(2.0))
    return graph.add("Sub", distance, _corrections(graph, corrections, m, numbers))


def _score_margin(graph: Graph, rule: Rule, levels: Levels, eta: str, numbers: str) -> str:
    """(N, 1): as :func:`moved_probability` does, twice less the threshold."""
    zero, last = graph.scalar(0.0), len(levels.at) - 1
    margins = _level_margins(graph, levels.at, levels.corrections, eta, numbers)
    falling = graph.add_pair("TopK", margins, graph.index(last + 1), axis=1)  # TopK of all is a sort
    positive = graph.add("Cast", graph.add("Greater", falling, zero), to=TensorProto.INT64)
    passed = graph.add("ReduceSum", positive, graph.index(1), keepdims=1)
    m_below, m_above, s_below, s_above = _around(graph, falling, levels.at, passed)
    span = graph.add("Max", graph.add("Sub", m_below, m_above), graph.scalar(1e-12))
    share = graph.add("Clip", graph.add("Div", m_below, span), zero, graph.scalar(1.0))
    inside = graph.add("Add", s_below, graph.add("Mul", share, graph.add("Sub", s_above, s_below)))
    lowest, highest = (
        _end(graph, levels.at, place, graph.add("Gather", falling, graph.index(place), axis=1)) for place in (0, last)
    )
    p = _by_passed(graph, passed, len(levels.at), (lowest, inside, highest))
    return graph.add("Mul", graph.add("Sub", p, graph.scalar(rule.threshold)), graph.scalar(2.0))


def _around(graph: Graph, values: str, at: Array, passed: str) -> tuple[str, str, str, str]:
    """(N, 1) each: (N, T) values at the last level that a row passes and at the next one, and these two levels."""
    one, last = graph.constant(np.int64(1)), graph.constant(np.int64(len(at) - 1))
    below = graph.add("Max", graph.add("Sub", passed, one), graph.constant(np.int64(0)))
    above = graph.add("Min", passed, last)
    v_below, v_above = (graph.add("GatherElements", values, which, axis=1) for which in (below, above))
    s_below, s_above = (graph.add("Gather", graph.constant(at), which) for which in (below, above))
    return v_below, v_above, s_below, s_above


def _end(graph: Graph, at: Array, place: int, slope: str) -> str:
    """(N, 1): the prediction below the lowest level, or above the highest."""
    moved = graph.add("Add", graph.scalar(at[place]), graph.add("Div", slope, graph.scalar(2.0)))
    low, high = (0.0, at[0]) if place == 0 else (at[-1], 1.0)
    return graph.add("Clip", moved, graph.scalar(low), graph.scalar(high))


def _by_passed(graph: Graph, passed: str, levels: int, parts: tuple[str, str, str]) -> str:
    """(N, 1): one of three values of rows that pass no level, some, or all."""
    none, some, every = parts
    all_passed, none_passed = (graph.add("Equal", passed, graph.constant(np.int64(count))) for count in (levels, 0))
    return graph.add("Where", none_passed, none, graph.add("Where", all_passed, every, some))


# --- several classes


def _calibrated_classes(graph: Graph, calibration: VectorScaling, p: str) -> str:
    """(N, K): as :class:`VectorScaling` does."""

    def clipped(values: str) -> str:
        return divided_by_sums(graph, graph.add("Max", values, graph.scalar(EDGE)))

    p = clipped(p)
    if calibration.is_identity:
        return p
    scale, shift = (graph.constant(np.array(part)[None]) for part in (calibration.scale, calibration.shift))
    scores = graph.add("Add", graph.add("Mul", graph.add("Log", p), scale), shift)
    return clipped(graph.add("Softmax", scores, axis=1))


def _classes(graph: Graph, rule: ClassRule, p: str, numbers: str) -> tuple[str, str]:
    """(N,) positions of the decided classes and (N, K) probabilities, as :class:`ClassRule` has them."""
    utility, plain = p, p
    if rule.costs is not None:
        utility = plain = graph.add("Neg", graph.add("MatMul", p, graph.constant(rule.costs)))
    paid = np.zeros(1) if rule.quota is None else rule.quota
    others = graph.add("Sub", _columns(graph, utility, 1, None), graph.constant(paid[None]))
    if not rule.correction.is_zero:
        others = graph.add("Sub", others, _class_correction(graph, rule.correction, p, numbers))
    first = _columns(graph, utility, 0, 1)
    decided = _best_action(graph, graph.add("Sub", others, first))
    uncorrected = _best_action(graph, graph.add("Sub", _columns(graph, plain, 1, None), first))
    return _flat(graph, decided), _moved_classes(graph, p, decided, uncorrected, len(rule.calibration.scale))


def _columns(graph: Graph, values: str, start: int, end: int | None) -> str:
    last = np.iinfo(np.int64).max if end is None else end
    return graph.add("Slice", values, graph.index(start), graph.index(int(last)), graph.index(1))


def _class_correction(graph: Graph, correction: Correction, p: str, numbers: str) -> str:
    """(N, K - 1): as :class:`Correction` does for classes."""
    out = np.asarray(correction.out)
    _, labels, actions = out.shape
    units = _hidden(graph, correction, p, numbers)
    by_label = graph.add("MatMul", units, graph.constant(out.reshape(len(out), labels * actions)))
    by_label = graph.add("Reshape", by_label, graph.index(-1, labels, actions))
    weighted = graph.add("Mul", by_label, graph.add("Unsqueeze", p, graph.index(2)))
    return graph.add("ReduceSum", weighted, graph.index(1), keepdims=0)


def _best_action(graph: Graph, gains: str) -> str:
    """(N, 1): as :func:`best_action` does."""
    best = graph.add("ArgMax", gains, axis=1, keepdims=1)
    largest = graph.add("GatherElements", gains, best, axis=1)
    one, first = graph.constant(np.int64(1)), graph.constant(np.int64(0))
    return graph.add("Where", graph.add("Greater", largest, graph.scalar(0.0)), graph.add("Add", best, one), first)


def _moved_classes(graph: Graph, p: str, decided: str, uncorrected: str, classes: int) -> str:
    """(N, K): as :func:`moved_classes` does."""
    is_decided = graph.add("Equal", decided, graph.constant(np.arange(classes, dtype=np.int64)[None]))
    is_changed = graph.add("Not", graph.add("Equal", decided, uncorrected))
    largest = graph.add("ReduceMax", p, graph.index(1), keepdims=1)
    raised = graph.add("Mul", largest, graph.scalar(1 + BEYOND))
    return divided_by_sums(graph, graph.add("Where", graph.add("And", is_decided, is_changed), raised, p))


# --- numbers


def _number(graph: Graph, rule: NumberRule, prediction: str, numbers: str) -> str:
    """(N, 1): as :class:`NumberRule` predicts."""
    calibration: Any = rule.calibration
    low, width = graph.scalar(rule.bounds[0]), graph.scalar(rule.bounds[1] - rule.bounds[0])
    if not calibration.is_identity:
        sloped = graph.add("Mul", prediction, graph.scalar(calibration.slope))
        prediction = graph.add("Add", sloped, graph.scalar(calibration.intercept))
    scaled = graph.add("Div", graph.add("Sub", prediction, low), width)
    m = graph.add("Clip", scaled, graph.scalar(NUMBER_EDGE), graph.scalar(1 - NUMBER_EDGE))
    corrected = _corrected(graph, rule, m, numbers) if rule.corrections else m
    return graph.add("Add", low, graph.add("Mul", width, corrected))


def _corrected(graph: Graph, rule: NumberRule, m: str, numbers: str) -> str:
    """(N, 1): as the notion predicts from m and its corrections."""
    if isinstance(rule.notion, EqualDistributions):
        at = rule.notion.at
        return _interpolated(graph, _level_margins(graph, at, rule.corrections, m, numbers), at)
    read, zero, one = _corrections(graph, rule.corrections, m, numbers), graph.scalar(0.0), graph.scalar(1.0)
    if isinstance(rule.notion, EqualMeans):
        moved = graph.add("Sub", m, graph.add("Div", read, graph.scalar(2.0)))
        return graph.add("Clip", moved, zero, one)
    if not isinstance(rule.notion, EqualErrors):
        raise ValueError(
            f"expected one of our notions to export, got {type(rule.notion).__name__!r}, which has no form in ONNX; "
            "save the model instead."
        )
    curve = graph.add("Add", one, _columns(graph, read, 0, 1))
    top = graph.add("Add", m, _columns(graph, read, 1, 2))
    opens_down = graph.add("Greater", curve, zero)
    inside = graph.add("Clip", graph.add("Div", top, graph.add("Where", opens_down, curve, one)), zero, one)
    at_end = graph.add("Greater", graph.add("Mul", top, graph.scalar(2.0)), curve)
    return graph.add("Where", opens_down, inside, graph.add("Cast", at_end, to=TensorProto.DOUBLE))


def _interpolated(graph: Graph, margins: str, at: Array) -> str:
    """(N, 1): as :func:`interpolated` does, with the sums F of margins and W of the levels' parts of the range."""
    weights, zero, one = spacing(at), graph.scalar(0.0), graph.scalar(1.0)
    sums = graph.add("CumSum", graph.add("Mul", margins, graph.constant(weights[None])), graph.constant(np.int64(1)))
    first = _columns(graph, sums, 0, 1)
    F = graph.add("Concat", graph.add("Mul", first, zero), sums, axis=1)
    W = np.concatenate([[0.0], np.cumsum(weights)])
    passed = _best_action(graph, sums)  # the maximum of F, and of several maxima the lowest
    rise = graph.add("Sub", graph.add("GatherElements", F, passed, axis=1), F)
    run = graph.add("Sub", graph.add("Gather", graph.constant(W), passed), graph.constant(W[None]))
    slope = graph.add("Div", rise, graph.add("Where", graph.add("Equal", run, zero), one, run))
    inf = graph.scalar(np.inf)
    to_left = graph.add("Where", graph.add("Greater", run, zero), slope, inf)
    to_right = graph.add("Where", graph.add("Less", run, zero), slope, graph.scalar(-np.inf))
    left = graph.add("ReduceMin", to_left, graph.index(1), keepdims=1)
    right = graph.add("ReduceMax", to_right, graph.index(1), keepdims=1)
    span = graph.add("Max", graph.add("Sub", left, right), graph.scalar(1e-12))
    # Of rows that pass none or all levels one side is infinite: that quotient is not used, but must not be NaN.
    none, every = (graph.add("Equal", passed, graph.constant(np.int64(count))) for count in (0, len(at)))
    outside = graph.add("Or", none, every)
    share = graph.add("Div", graph.add("Where", outside, zero, left), graph.add("Where", outside, one, span))
    _, _, s_below, s_above = _around(graph, sums, at, passed)
    part = graph.add("Mul", graph.add("Clip", share, zero, one), graph.add("Sub", s_above, s_below))
    lowest = _end(graph, at, 0, graph.add("Where", none, right, zero))
    highest = _end(graph, at, len(at) - 1, graph.add("Where", every, left, zero))
    return _by_passed(graph, passed, len(at), (lowest, graph.add("Add", s_below, part), highest))
