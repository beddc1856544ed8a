"""How loud the noise of a plan is: public numbers, known before anything is asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from justitia.privacy.mechanisms import Noise, Unprotected
from justitia.training.engine import calibrated

if TYPE_CHECKING:
    from justitia.networks.moments.plan import MomentsPlan
    from justitia.postprocessing.plan import PluginPlan

#: Noise in a group's rate that is worth a sentence, whatever the tolerance.
LOUD = 0.05


def noise_spread(noise: Noise, bound: float, n_groups: int) -> float:
    """Known standard deviation of a group's sum: sqrt(2) * bound * sigma, less what the public total takes off."""
    if isinstance(noise, Unprotected):
        return 0.0
    return noise.noise_multiplier * math.sqrt(2 * (1 - 1 / (n_groups + 1))) * bound


def gap_spread(plan: MomentsPlan | PluginPlan, heaviest: float, n_groups: int) -> float:
    """Known standard deviation of a group's gap times its size, at most: all releases of the plan taken together."""
    noises = [calibrated(plan.noise_moments), *[calibrated(plan.noise_checks)] * plan.checks]
    if isinstance(noises[0], Unprotected):
        return 0.0
    return math.sqrt(1 / sum(noise_spread(noise, heaviest, n_groups) ** -2 for noise in noises))


def outlook_of(size: float, noise: float, tolerance: float) -> list[str]:
    """A sentence if groups of this size are too small for this noise in their rates."""
    if noise <= max(tolerance, LOUD):
        return []
    return [
        f"with this budget and groups of about {size:.0f} the noise in a group's rate is about {noise:.2g}, "
        "and no smaller violation can be held; raise epsilon, or compare fewer groups."
    ]


__all__ = ["LOUD", "gap_spread", "noise_spread", "outlook_of"]
