"""Public rules against single numbers that ruin a fit: cells far out of a column's range, weights far above others.

Both rules look at features and weights alone, which are public, and both leave ordinary columns and weights as they
are, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import Diagnostic, InputWarning

Array = NDArray[np.float64]
#: Rows below which nobody can tell what is usual.
FEWEST_ROWS = 100
#: Share of rows at either end that the usual range does not look at, and how many times as far a cell may be.
TAIL, FAR = 0.01, 10.0
#: No row counts more than so many times the mean of the rows that count.
HEAVIEST = 10.0
#: Fewer rows per input than this are few, where there are at least so many inputs.
ROWS_PER_INPUT, MANY_INPUTS = 20, 20
LARGEST = float(np.finfo(np.float32).max)


def usual_range(values: Array) -> tuple[float, float]:
    """Between which numbers cells are kept: the median and ten times the distance to the farther of two quantiles.

    The quantiles are 1% and 99%. Where at least that many rows have one value, a column of rare events, the distance is
    the median one of the other rows.
    """
    if len(values) < FEWEST_ROWS:
        return -LARGEST, LARGEST
    median = float(np.median(values))
    low, high = float(np.quantile(values, TAIL, method="higher")), float(np.quantile(values, 1 - TAIL, method="lower"))
    reach = max(median - low, high - median)
    if reach == 0:
        others = np.abs(values[values != median] - median)
        reach = float(np.median(others)) if len(others) else LARGEST
    return max(-LARGEST, median - FAR * reach), min(LARGEST, median + FAR * reach)


def ranges_remark(cut: Sequence[tuple[str, int]]) -> list[Diagnostic]:
    """A sentence about columns with cells far out of range, and how many."""
    if not cut:
        return []
    named = ", ".join(f"{name!r} ({cells})" for name, cells in cut[:5])
    more = f" and {len(cut) - 5} more columns" if len(cut) > 5 else ""
    sentence = (
        f"cells far out of range in column {named}{more} were cut to {FAR:g} times the usual distance from the median; "
        "are they errors?"
    )
    return [Diagnostic(sentence, InputWarning)]


def truncated(weight: Array) -> Array:
    """(n,): weights of which none is above :data:`HEAVIEST` times the mean of the positive ones, cut ones included.

    What a sum is noised with follows the heaviest row, so a few huge weights would drown everybody else.
    """
    positive = weight[weight > 0]
    cap = HEAVIEST * float(positive.mean())
    while (next_cap := HEAVIEST * float(np.minimum(positive, cap).mean())) < cap * (1 - 1e-9):
        cap = next_cap
    return np.minimum(weight, cap)


def weights_remark(given: Array, used: Array) -> list[Diagnostic]:
    """A sentence if weights were cut."""
    cut = used < given
    if not cut.any():
        return []
    share = 1 - used.sum() / given.sum()
    sentence = (
        f"{int(cut.sum())} of {len(given)} sample weights were above {HEAVIEST:g} times the mean and cut to it, which "
        f"takes {share:.0%} off the sum of all: noise follows the heaviest row."
    )
    return [Diagnostic(sentence, InputWarning)]


def width_remark(rows: int, inputs: int) -> list[Diagnostic]:
    """A sentence if there are many inputs for few rows."""
    if inputs < MANY_INPUTS or rows >= ROWS_PER_INPUT * inputs:
        return []
    sentence = (
        f"there are {inputs} inputs for {rows} rows: what is learned, and what is held, may be about these rows more "
        "than about people to come; leave out inputs, or measure on other rows."
    )
    return [Diagnostic(sentence, InputWarning)]


def input_remarks(encoder: Any, sample_weight: Any, shape: Sequence[int]) -> list[Diagnostic]:
    """What is remarkable about the rows of a fit, all of it public.

    Parameters
    ----------
    encoder : TabularEncoder, optional
        How they were encoded, if they were.
    sample_weight : array-like (n,), optional
        Checked before.
    shape : (n, p)
        Of the features.
    """
    cut = [(how.name, how.cut) for how in getattr(encoder, "columns_", ()) if getattr(how, "cut", 0)]
    given = np.ones(1) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    given = given / given.max()
    weights = weights_remark(given, truncated(given)) if given.ndim else []
    return [*ranges_remark(cut), *weights, *width_remark(shape[0], math.prod(shape[1:]))]
