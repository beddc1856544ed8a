"""The features of some rows in the two forms that models read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing


@dataclass(frozen=True, eq=False)
class Inputs:
    """Features as the user passed them, and as numbers.

    Attributes
    ----------
    table : array-like or DataFrame (n, p)
    numbers : ndarray (n, d)
        After the estimator's preprocessing.
    """

    table: Any
    numbers: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not (hasattr(self.table, "shape") or isinstance(self.table, list | tuple)):
            object.__setattr__(self, "table", np.asarray(self.table))  # something that only knows to become an array

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, index: NDArray[np.intp]) -> Inputs:
        """Some of the rows."""
        return Inputs(_safe_indexing(self.table, index), self.numbers[index])
