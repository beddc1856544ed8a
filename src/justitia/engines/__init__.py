"""What each engine asks of the attribute, what it costs, and what it does with the answer.

One folder each: ``plan.py`` says what is asked and what it costs, ``engine.py`` what is done with the answers. A new
engine is a new folder, one line in the table below, and the contract tests. ``shards.py`` and ``crowds.py`` are what
engines share where rows are in files: the rows of one process, and everybody as rank 0 sees them.
"""

from justitia._validate import check_choice
from justitia.networks.gradients.plan import GradientsPlan
from justitia.networks.moments.plan import MomentsPlan
from justitia.postprocessing.plan import PluginPlan
from justitia.networks.printed.plan import PrintedPlan
from justitia.training.plan import Plan

#: The plan an engine starts from when none is given.
DEFAULT_PLANS: dict[str, Plan] = {
    "plugin": PluginPlan(),
    "moments": MomentsPlan(),
    "gradients": GradientsPlan(),
    "printed": PrintedPlan(),
}


def engine_of(engine: str | None, module: object) -> str:
    """The engine by name; by default "plugin", and "moments" where a network is given."""
    if engine is None:
        return "plugin" if module is None else "moments"
    return check_choice("engine", engine, DEFAULT_PLANS)


def name_of(plan: Plan) -> str:
    """The engine that carries out plans of this kind."""
    return next(name for name, default in DEFAULT_PLANS.items() if isinstance(plan, type(default)))


__all__ = ["DEFAULT_PLANS", "GradientsPlan", "MomentsPlan", "PluginPlan", "PrintedPlan", "engine_of", "name_of"]
