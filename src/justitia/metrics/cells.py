"""Public cells that rows fall into: label and decision and, if asked, another model's decision and a bin of scores.

Everything here is a function of public numbers; the attribute is asked which cells the people of a group are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.metrics.intervals import Array
from justitia.metrics.rates import Rate

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells that occur, in the order of their codes.

    Attributes
    ----------
    place : array of shape (n,)
        Which cell each row is in.
    kind : array, one entry per cell
        2 y + decision.
    before : array, one entry per cell
        2 y + decision of the second model; that of the first if there is no second.
    bin : array, one entry per cell
        Of the score; 0 if there are none.
    totals : array, one entry per cell
        Public number of rows.
    """

    place: Ints
    kind: Ints
    before: Ints
    bin: Ints
    totals: Array

    @property
    def label(self) -> Ints:
        """Label of each cell."""
        return self.kind // 2

    def rate(self, one: Rate) -> Rate:
        """A rate of label and decision over these cells."""
        return one.over(self.kind)

    def rate_before(self, one: Rate) -> Rate:
        """The same of the second model's decisions."""
        return one.over(self.before)


def cells_of(truth: Any, decided: Any, before: Any = None, bins: Ints | None = None) -> Cells:
    """Cells of rows with these labels, decisions (0 or 1), decisions of a second model, and bins of scores."""
    y, d = (np.asarray(one, dtype=np.int64) for one in (truth, decided))
    second = d if before is None else np.asarray(before, dtype=np.int64)
    binned = np.zeros_like(y) if bins is None else bins
    code, place = np.unique(8 * binned + 4 * y + 2 * d + second, return_inverse=True)
    label, decision, other = code // 4 % 2, code // 2 % 2, code % 2
    totals = np.bincount(place, minlength=len(code)).astype(float)
    return Cells(place, 2 * label + decision, 2 * label + other, code // 8, totals)
