"""Settings of an engine from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.engines import POST_PROCESSING, default_plan
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.training.plan import Plan

#: Fields that ``calibrate`` sets from the budget.
_CALIBRATED = {"noise_sizes", "noise_violations", "noise_gradients", "noise_moments", "noise_checks"}
_CALIBRATED |= {"sigma_p", "sigma_d", "claim"}


def starting_plan(engine: str) -> Plan:
    """What commands start from.

    Unlike Python's default, the plan of engine post-processing sets 5% of the budget aside to ask for the sizes of
    the groups first, because whoever types names of groups mistypes them.
    """
    return PostProcessingPlan(share_sizes=0.05) if engine == POST_PROCESSING else default_plan(engine)


def command_plan(path: Path | None, engine: str, *, small_groups: bool) -> Plan:
    """The plan of a command: the file's, or the engine's; with ``small_groups`` it does not ask for sizes first."""
    plan = read_plan(path, engine) or starting_plan(engine)
    return replace(plan, share_sizes=0.0) if small_groups and isinstance(plan, PostProcessingPlan) else plan


def read_plan(path: Path | None, engine: str) -> Plan | None:
    """The engine's plan with what the file changes; None without a file.

    Raises
    ------
    Refusal
        If the file is not TOML, or names a setting that the engine does not have.
    ValueError, TypeError
        If a value is not one that the setting may have.
    """
    if path is None:
        return None
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise Refusal(f"{shown_path(path)} is not TOML; expected lines such as 'checks = 2'.") from None
    default = starting_plan(engine)
    known = [field.name for field in fields(default) if field.name not in _CALIBRATED]
    for name in settings:
        if name not in known:
            raise no_such("setting", name, known, place=f"the plan of engine {engine!r}")
    return replace(default, **settings)
