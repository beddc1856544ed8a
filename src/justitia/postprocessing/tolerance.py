"""The tolerance where none is given, how well rates are known, and how much of what checks say is believed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from justitia.postprocessing.plan import PluginPlan

Array = NDArray[np.float64]


def default_tolerance(plan: PluginPlan, rates: Array, sizes: Array, sum_noise: float) -> float:
    """The tolerance where none is given: standard errors of the difference between the two least known groups.

    Parameters
    ----------
    rates : ndarray (K,)
        Of the population.
    sizes : ndarray (G, K)
        Of the groups.
    sum_noise : float
        Standard deviation of the noise in the sum of a group.
    """
    return min(1.0, max(plan.least, plan.dead_zone * spread_of_rates(rates, sizes, sum_noise)))


def spread_of_rates(rates: Array, sizes: Array, sum_noise: float) -> float:
    """Standard error, sampling and noise, of the difference between the two least known groups; as above."""
    rates = np.clip(rates, 0.0, 1.0)
    variance = rates * (1 - rates) / sizes + (sum_noise / sizes) ** 2
    return float(np.sqrt(np.sort(variance, axis=0)[-2:].sum(0).max()))


def weight_of_checks(trust: float, variance: Array) -> Array:
    """(G, K): how much of what the checks say is believed, by their known variance; all of it without noise."""
    prior = max(trust, math.sqrt(np.finfo(float).tiny)) ** 2
    weight: Array = np.where(variance > 0, prior / (prior + variance), 1.0)
    return weight
