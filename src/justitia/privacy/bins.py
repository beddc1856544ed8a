"""Groups of a numeric attribute, such as age, by public cut points.

``Bins`` is the public list of groups, and its entries carry the range that each name stands for. So it goes wherever a
list of groups goes: ``groups=Bins([25, 60])``, or ``groups={"age": Bins([25, 60]), "sex": ["f", "m"]}``.

Guarantee
---------
* The list of groups follows from the cut points alone; no value of the attribute changes it.
* The group of an entry depends on that entry alone. One that is not a number is "not given".
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self


class Range(str):
    """Name of a group of numbers from ``low`` up to but not including ``high``; a text in every other respect."""

    __slots__ = ("high", "low")
    low: float
    high: float

    def __new__(cls, text: str, low: float, high: float) -> Self:
        """A name with its range."""
        made = super().__new__(cls, text)
        made.low, made.high = float(low), float(high)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.low, self.high)


class Bins(tuple[Range, ...]):
    """Public cut points that turn a numeric attribute into groups; a value equal to a cut is above it.

    Parameters
    ----------
    cuts : sequence of float
        Finite and rising. n cuts make n + 1 groups.
    name : str, optional
        Name of the attribute, for the names of the groups: "age<25", "25<=age<60", "age>=60". Without it they are
        "below 25", "25 to below 60", "60 or above".

    Raises
    ------
    TypeError, ValueError
        If cuts are not such numbers.

    Examples
    --------
    >>> list(Bins([25, 60]))
    ['below 25', '25 to below 60', '60 or above']
    """

    __slots__ = ()

    def __new__(cls, cuts: Iterable[float], name: str | None = None) -> Self:
        """The groups between these cuts, from the lowest."""
        listed = None if isinstance(cuts, str | bytes) or not isinstance(cuts, Iterable) else list(cuts)
        if not listed or any(isinstance(one, bool) or not hasattr(one, "__float__") for one in listed):
            raise TypeError(f"expected cuts to be a list of numbers, got {cuts!r}; pass [25, 60], say.")
        points = [float(one) for one in listed]
        if not all(map(math.isfinite, points)) or points != sorted(set(points)):
            raise ValueError(f"expected cuts to be finite and rising, got {cuts!r}; pass [25, 60], say.")
        texts = [f"{one:.12g}" for one in points]
        between = itertools.pairwise(texts)
        if name is None:
            names = [f"below {texts[0]}", *(f"{a} to below {b}" for a, b in between), f"{texts[-1]} or above"]
        else:
            names = [f"{name}<{texts[0]}", *(f"{a}<={name}<{b}" for a, b in between), f"{name}>={texts[-1]}"]
        ends = itertools.pairwise([-math.inf, *points, math.inf])
        return super().__new__(cls, [Range(text, *pair) for text, pair in zip(names, ends, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _bins_of, (tuple(self),)

    def __repr__(self) -> str:
        return f"Bins({[one.low for one in self[1:]]}: {', '.join(map(str, self))})"


def _bins_of(ranges: Iterable[Range]) -> Bins:
    """Copy of bins, from a pickle."""
    return tuple.__new__(Bins, ranges)


def ranges_of(labels: Iterable[Hashable]) -> tuple[Range, ...]:
    """The ranges among the labels of one column, from the lowest; empty if they are labels as they are.

    Raises
    ------
    ValueError
        If some are ranges and others are not.
    """
    every = set(labels)
    found = sorted((one for one in every if isinstance(one, Range)), key=lambda one: one.low)
    if found and len(found) < len(every):
        raise ValueError("expected ranges of numbers alone in groups, got other labels beside them; use Bins alone.")
    return tuple(found)


def range_of(label: Any, ranges: Sequence[Range]) -> Range | None:
    """The range that a number is in; None for one outside of all, or NaN. Raises if the label is not a number."""
    number = float(label)
    if math.isnan(number):  # the text "nan"; it is above every cut as far as comparisons say
        return None
    place = bisect.bisect_right(ranges, number, key=lambda one: one.low) - 1
    inside = place >= 0 and (number < ranges[place].high or ranges[place].high == math.inf)
    return ranges[place] if inside else None
