"""Public cut points that turn a numeric attribute, such as age, into groups."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from justitia.cli.errors import Refusal
from justitia.privacy.columns import read_each


@dataclass(frozen=True)
class Bins:
    """Cut points of one column; a value equal to a cut belongs to the group above it.

    Guarantee
    ---------
    * The list of groups follows from the cut points alone. What is no number is "not given".
    """

    column: str
    cuts: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the groups, from the lowest: "age<25", "25<=age<60", "age>=60"."""
        name, texts = self.column, [f"{cut:.12g}" for cut in self.cuts]
        middle = [f"{low}<={name}<{high}" for low, high in itertools.pairwise(texts)]
        return (f"{name}<{texts[0]}", *middle, f"{name}>={texts[-1]}")

    def assign(self, values: Iterable[Any]) -> list[str | None]:
        """The group of each value, each by itself."""
        labels = self.labels
        return [
            None if number is None else labels[bisect.bisect_right(self.cuts, number)]
            for number in read_each(_number, values)
        ]

    def __str__(self) -> str:
        return f"{self.column}={','.join(f'{cut:.12g}' for cut in self.cuts)}"


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def read_bins(text: str) -> Bins:
    """``age=25,60`` as cut points."""
    column, _, listed = text.partition("=")
    cuts = [_number(one) for one in listed.split(",")]
    numbers = [cut for cut in cuts if cut is not None and math.isfinite(cut)]
    if not column.strip() or len(numbers) < len(cuts) or numbers != sorted(set(numbers)):
        raise Refusal(f"expected --bins to be a column and rising numbers, such as 'age=25,60', got {text!r}.")
    return Bins(column.strip(), tuple(numbers))
