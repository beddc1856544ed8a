"""Engines by name: which plan each starts from, and what has to be installed for it.

``postprocessing`` is the default engine, which corrects a base model; the engines that train a network are in
``networks`` and need the extra of that name. ``shards.py`` and ``crowds.py`` are what engines share where rows are in
files.
"""

from __future__ import annotations

from importlib import import_module

from justitia._validate import check_choice
from justitia.training.plan import Plan

#: Module and class of each engine's plan; one that trains a network is imported only when somebody asks for it.
PLANS: dict[str, tuple[str, str]] = {
    "plugin": ("justitia.postprocessing.plan", "PluginPlan"),
    "moments": ("justitia.networks.moments.plan", "MomentsPlan"),
    "gradients": ("justitia.networks.gradients.plan", "GradientsPlan"),
    "printed": ("justitia.networks.printed.plan", "PrintedPlan"),
}


def default_plan(engine: str) -> Plan:
    """The plan that an engine starts from when none is given.

    Raises
    ------
    ImportError
        If the engine trains a network and torch is not installed.
    """
    module, name = PLANS[engine]
    try:
        plan: Plan = getattr(import_module(module), name)()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"expected torch to be installed for engine {engine!r}, got none; run pip install 'justitia[networks]', "
            "or leave engine and module out."
        ) from None
    return plan


def engine_of(engine: str | None, module: object) -> str:
    """The engine by name; by default "plugin", and "moments" where a network is given."""
    if engine is None:
        return "plugin" if module is None else "moments"
    return check_choice("engine", engine, PLANS)


def name_of(plan: Plan) -> str:
    """The engine that carries out plans of this kind."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(plan).__mro__}
    return next(name for name, place in PLANS.items() if ".".join(place) in kinds)


__all__ = ["PLANS", "default_plan", "engine_of", "name_of"]
