"""Clipping of outliers: cells far out of a column's range, and sample weights far above the mean.

Both rules read features and weights alone, which are public, and both leave ordinary columns and weights unchanged to
the last bit. :func:`input_diagnostics` reports what was clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import Diagnostic, InputWarning

Array = NDArray[np.float64]
#: With fewer rows nothing is clipped: they are too few to find outliers.
MIN_ROWS = 100
#: Share of rows beyond each quantile, and how many times the quantiles' distance from the median a cell may have.
TAIL_SHARE, MAX_DISTANCE = 0.01, 10.0
#: Largest sample weight, as a multiple of the mean positive weight.
MAX_WEIGHT = 10.0
#: Fewer rows per input than the first number are reported, if there are at least as many inputs as the second.
ROWS_PER_INPUT, MANY_INPUTS = 20, 20
MAX_FLOAT32 = float(np.finfo(np.float32).max)


def clipping_range(values: Array) -> tuple[float, float]:
    """Range to which cells are clipped: the median +- ten times the distance to the farther of two quantiles.

    The quantiles are 1% and 99%. If both equal the median, as in a column of rare events, the distance is the median
    distance of the rows with other values.
    """
    if len(values) < MIN_ROWS:
        return -MAX_FLOAT32, MAX_FLOAT32
    median = float(np.median(values))
    low, high = (
        float(np.quantile(values, TAIL_SHARE, method="higher")),
        float(np.quantile(values, 1 - TAIL_SHARE, method="lower")),
    )
    distance = max(median - low, high - median)
    if distance == 0:
        others = np.abs(values[values != median] - median)
        distance = float(np.median(others)) if len(others) else MAX_FLOAT32
    return max(-MAX_FLOAT32, median - MAX_DISTANCE * distance), min(MAX_FLOAT32, median + MAX_DISTANCE * distance)


def clip_weights(weight: Array) -> Array:
    """(n,): weights clipped to :data:`MAX_WEIGHT` times the mean of the positive clipped weights.

    The noise of a weighted sum is proportional to the largest weight, so without clipping a few huge weights would
    drown all other rows in noise.
    """
    positive = weight[weight > 0]
    cap = MAX_WEIGHT * float(positive.mean())
    while (next_cap := MAX_WEIGHT * float(np.minimum(positive, cap).mean())) < cap * (1 - 1e-9):
        cap = next_cap
    return np.minimum(weight, cap)


def input_diagnostics(encoder: Any, sample_weight: Any, shape: Sequence[int]) -> list[Diagnostic]:
    """Sentences about clipped cells, clipped weights and too few rows per input; all of it is public.

    Parameters
    ----------
    encoder : TabularEncoder, optional
        The fitted encoder, if features were encoded.
    sample_weight : array-like (n,), optional
        Checked before.
    shape : (n, p)
        Of the features.
    """
    found: list[Diagnostic] = []
    clipped = []
    for column in getattr(encoder, "columns_", ()):
        if getattr(column, "cut", 0):
            clipped.append(f"{column.name!r} ({column.cut})")  # noqa: PERF401 - a loop reads better
    if clipped:
        named = ", ".join(clipped[:5])
        more = f" and {len(clipped) - 5} more columns" if len(clipped) > 5 else ""
        sentence = (
            f"cells far out of range in column {named}{more} were cut to {MAX_DISTANCE:g} times the usual distance "
            "from the median; are they errors?"
        )
        found.append(Diagnostic(sentence, InputWarning))
    given = np.ones(1) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    given = given / given.max()
    used = clip_weights(given)
    if given.ndim and (cut := used < given).any():
        share = 1 - used.sum() / given.sum()
        sentence = (
            f"{int(cut.sum())} of {len(given)} sample weights were above {MAX_WEIGHT:g} times the mean and cut to it, "
            f"which takes {share:.0%} off the sum of all: noise is proportional to the largest weight."
        )
        found.append(Diagnostic(sentence, InputWarning))
    rows, inputs = shape[0], math.prod(shape[1:])
    if inputs >= MANY_INPUTS and rows < ROWS_PER_INPUT * inputs:
        sentence = (
            f"there are {inputs} inputs for {rows} rows: the model and its rates may fit these rows better than new "
            "ones; leave out inputs, or measure on other rows."
        )
        found.append(Diagnostic(sentence, InputWarning))
    return found
