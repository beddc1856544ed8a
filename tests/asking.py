"""One question of an engine and its answer, as the loop asks it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from torch import nn

from justitia.training.method import ALL_ROWS, Array, Engine, Rows


def opened(engine: Any) -> Any:
    """The engine, after what it asks once."""
    engine.ask_before(nn.Identity(), np.zeros(0), 0)
    return engine


def asked(engine: Engine, scores: Array, k: int = 0, seen: Rows = ALL_ROWS) -> Any:
    """The gap after what the engine asks after round k."""
    engine.ask_after(scores, k)
    return engine.gap(scores, seen)


def with_plan(kind: Any, plan: Any, **settings: Any) -> Any:
    """A rival trained by descent whose plan takes the settings that are a plan's."""
    names = {one.name for one in fields(plan)}
    return kind(
        plan=plan(**{name: value for name, value in settings.items() if name in names}),
        **{name: value for name, value in settings.items() if name not in names},
    )
