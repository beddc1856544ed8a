"""One query of an engine of Algorithm 1 and its answer, as the loop makes it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from torch import nn

from justitia.networks.engine import PrimalDualEngine
from justitia.training.method import ALL_ROWS, Array, Rows


def opened(engine: Any) -> Any:
    """The engine, after what it queries once."""
    engine.query_before(nn.Identity(), np.zeros(0), 0)
    return engine


def asked(engine: PrimalDualEngine, scores: Array, k: int = 0, rows: Rows = ALL_ROWS) -> Any:
    """The gap after what the engine queries after round k."""
    engine.query_after(nn.Identity(), scores, k)
    return engine.gap(scores, rows)


def with_plan(kind: Any, plan: Any, **settings: Any) -> Any:
    """A rival trained by descent whose plan takes the settings that are a plan's."""
    names = {one.name for one in fields(plan)}
    return kind(
        plan=plan(**{name: value for name, value in settings.items() if name in names}),
        **{name: value for name, value in settings.items() if name not in names},
    )
