"""What each engine asks of the attribute, what it costs, and what it does with the answer.

One folder each: ``plan.py`` says what is asked and what it costs, ``engine.py`` what is done with the answers. A new
engine is a new folder, one line in the table below, and the contract tests.
"""

from justitia.engines.gradients.plan import GradientsPlan
from justitia.engines.moments.plan import MomentsPlan
from justitia.engines.printed.plan import PrintedPlan
from justitia.training.plan import TrainingPlan

#: The plan an engine starts from when none is given.
DEFAULT_PLANS: dict[str, TrainingPlan] = {
    "moments": MomentsPlan(),
    "gradients": GradientsPlan(),
    "printed": PrintedPlan(),
}

__all__ = ["DEFAULT_PLANS", "GradientsPlan", "MomentsPlan", "PrintedPlan"]
