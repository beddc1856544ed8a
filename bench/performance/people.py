"""People that are made up, by the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

FEATURES = 50


def made_up(rows: int) -> tuple[Any, Any, Any]:
    """Features, labels and three groups that the features tell something about."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, FEATURES), dtype=np.float32)
    groups = (X[:, 0] + generator.standard_normal(rows, dtype=np.float32) > 1).astype(np.int8)
    groups[generator.random(rows) < 0.1] = 2
    y = (X[:, 0] + X[:, 1] + generator.standard_normal(rows, dtype=np.float32) > 0).astype(np.int8)
    return X, y, groups
