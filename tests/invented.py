"""A sensitive attribute for scikit-learn's checks, which know none: the group follows from the row's own numbers.

So a row that is repeated, moved or left out keeps its group, and a check compares the estimator, not its rows' places.
"""

import zlib
from typing import Any

import numpy as np

GROUPS = ("a", "b")


def invented_groups(X: Any) -> np.ndarray:
    """One of two groups for every row, from a checksum of its entries; of what is no table, none."""
    if not hasattr(X, "__array__") and not isinstance(X, list):  # sparse, or nothing: the estimator says so
        return np.array([GROUPS[0]] * (X.shape[0] if hasattr(X, "shape") else 0))
    rows = np.asarray(X, dtype=object)
    return np.array([GROUPS[zlib.crc32(repr(np.ravel(row).tolist()).encode()) % 2] for row in np.atleast_1d(rows)])
