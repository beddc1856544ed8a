"""Engines by name: which plan each starts from, and what has to be installed for it.

``postprocessing`` is the default engine, which corrects a base model; the engines that train a network are in
``networks`` and need the extra of that name.
"""

from __future__ import annotations

import warnings
from importlib import import_module

from justitia._validate import check_choice
from justitia.exceptions import DeprecatedNameWarning
from justitia.training.plan import Plan

POST_PROCESSING, MOMENTS, PF_LD, AS_PUBLISHED = "post-processing", "moments", "pf-ld", "pf-ld-as-published"
#: Module and class of each engine's plan; one that trains a network is imported only when it is asked for.
PLANS: dict[str, tuple[str, str]] = {
    POST_PROCESSING: ("justitia.postprocessing.plan", "PostProcessingPlan"),
    MOMENTS: ("justitia.networks.moments.plan", "MomentsPlan"),
    PF_LD: ("justitia.networks.pf_ld.plan", "PFLDPlan"),
    AS_PUBLISHED: ("justitia.networks.pf_ld_as_published.plan", "PFLDAsPublishedPlan"),
}
#: Names of engines in version 0.1, which the next release no longer accepts.
OLD_NAMES = {"plugin": POST_PROCESSING, "gradients": PF_LD, "printed": AS_PUBLISHED}


def plan_class(engine: str) -> type[Plan]:
    """The class of an engine's plans, by today's name of the engine or that of version 0.1; called, the default plan.

    Raises
    ------
    ImportError
        If the engine trains a network and torch is not installed.
    """
    engine = OLD_NAMES.get(engine, engine)
    module, name = PLANS[engine]
    try:
        kind: type[Plan] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"expected torch to be installed for engine {engine!r}, got none; run pip install 'justitia[networks]', "
            "or leave engine and module out."
        ) from None
    return kind


def engine_of(engine: str | None, module: object) -> str:
    """Today's name of the engine; by default "post-processing", and "moments" where a network is given."""
    if engine is None:
        return POST_PROCESSING if module is None else MOMENTS
    renamed = OLD_NAMES.get(engine, engine) if isinstance(engine, str) else engine
    return check_choice("engine", renamed, PLANS)


def renamed_sentence(old: str) -> str:
    """What to write instead of an engine's name of version 0.1."""
    return f"engine {old!r} is now called {OLD_NAMES[old]!r}; the old name works in this release and in no later one."


def warn_of_old_name(engine: str | None) -> None:
    """Warn if the engine is given by its name of version 0.1."""
    if isinstance(engine, str) and engine in OLD_NAMES:
        warnings.warn(renamed_sentence(engine), DeprecatedNameWarning, stacklevel=2)


def name_of(plan: Plan) -> str:
    """The engine that carries out plans of this kind."""
    for kind in type(plan).__mro__:
        for name, place in PLANS.items():
            if place == (kind.__module__, kind.__qualname__):
                return name
    raise TypeError(f"expected the plan of an engine, got {type(plan).__name__!r}; derive it from one of these.")


__all__ = [
    "AS_PUBLISHED",
    "MOMENTS",
    "OLD_NAMES",
    "PF_LD",
    "PLANS",
    "POST_PROCESSING",
    "engine_of",
    "name_of",
    "plan_class",
    "renamed_sentence",
    "warn_of_old_name",
]
