"""What releases cost together: the one odometer, and the calibration of noise to a budget."""

import math
from collections.abc import Callable, Mapping

from justitia.privacy.costs import (
    SMALLEST_DELTA,
    Bounded,
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    check_delta,
    check_target,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    private_end,
)
from justitia.privacy.privacy_loss import delta_on_grid, epsilon_on_grid, refine
from justitia.privacy.selection import selection_delta, selection_epsilon

__all__ = [
    "Cost",
    "GaussianCost",
    "RandomizedResponseCost",
    "SelectionCost",
    "UnboundedCost",
    "calibrate",
    "delta_spent",
    "epsilon_left",
    "epsilon_spent",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "private_end",
]

_SMALLEST_GRIDDED = 0.01  # a smaller multiplier costs an epsilon in the thousands: not worth a grid


def _added_up(costs: Mapping[Cost, int]) -> tuple[float, float]:
    """(mu, epsilon): what the Gaussians cost together, and the sum of the responses."""
    mus = (math.sqrt(n) / cost.noise_multiplier for cost, n in costs.items() if isinstance(cost, GaussianCost))
    pure = sum(n * cost.epsilon for cost, n in costs.items() if isinstance(cost, RandomizedResponseCost))
    return math.hypot(*mus), pure  # a square would underflow where the cost does not


def _is_one_selection(costs: Mapping[Cost, int]) -> bool:
    return sum(costs.values()) == 1 and any(isinstance(cost, SelectionCost) for cost in costs)


def _epsilon_bound(costs: Mapping[Cost, int], delta: float) -> float:
    """Closed form: exact for Gaussians and for one selection, too large or infinite for mixtures."""
    for cost in costs:
        if isinstance(cost, SelectionCost):
            return selection_epsilon(cost, delta) if _is_one_selection(costs) else math.inf
    mu, pure = _added_up(costs)
    return gaussian_epsilon(mu, delta) + pure


def _delta_bound(costs: Mapping[Cost, int], epsilon: float) -> float:
    """The counterpart of `_epsilon_bound`."""
    for cost in costs:
        if isinstance(cost, SelectionCost):
            return selection_delta(cost, epsilon) if _is_one_selection(costs) else 1.0
    mu, pure = _added_up(costs)
    return gaussian_delta(mu, epsilon - pure) if epsilon >= pure else 1.0


def _gridded(costs: Mapping[Cost, int]) -> frozenset[tuple[Bounded, int]]:
    """Pick what a grid has to compose: all Gaussians become one; nothing if the closed form does."""
    rest: dict[Bounded, int] = {}
    gaussians: dict[Cost, int] = {}
    if _is_one_selection(costs):
        return frozenset()
    for cost, count in costs.items():
        if isinstance(cost, GaussianCost | UnboundedCost):
            gaussians[cost] = count
        else:
            rest[cost] = count
    mu, _ = _added_up(gaussians)
    if rest and mu > 0.0:
        rest[GaussianCost(1 / mu)] = 1
    if any(getattr(cost, "noise_multiplier", math.inf) < _SMALLEST_GRIDDED for cost in rest):
        return frozenset()
    return frozenset(rest.items())


def _releases(costs: Mapping[Cost, int]) -> dict[Cost, int]:
    for cost, count in costs.items():
        if count < 0:
            raise ValueError(f"the count of {cost!r} must not be negative, got {count!r}.")
    return {cost: count for cost, count in costs.items() if count > 0}


def epsilon_spent(costs: Mapping[Cost, int], delta: float) -> float:
    """Epsilon of all releases together at ``delta``.

    Guarantee
    ---------
    * Never below the true value: closed form for Gaussians, otherwise an upper bound that exceeds
      the exact composition of the dominating pairs by about one part in ten thousand.
    * No releases cost 0; one unbounded release costs infinity.

    Parameters
    ----------
    costs : mapping
        How many releases of each kind; order does not matter, and each may depend on the answers before it.
    delta : float
        In [0, 1). At 0 (below 1e-300) only randomized response has a finite cost, the sum of its epsilons.
    """
    check_delta(delta)
    costs = _releases(costs)
    if any(isinstance(cost, UnboundedCost) for cost in costs):
        return math.inf
    bound = _epsilon_bound(costs, delta)
    gridded = _gridded(costs)
    if not gridded or delta < SMALLEST_DELTA:
        return bound
    return min(bound, refine(gridded, epsilon_on_grid, delta, 1e-6 * delta))


def delta_spent(costs: Mapping[Cost, int], epsilon: float) -> float:
    """Delta of all releases together at ``epsilon``: the counterpart of `epsilon_spent`, rounded up alike."""
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon must not be negative, got {epsilon!r}.")
    costs = _releases(costs)
    if any(isinstance(cost, UnboundedCost) for cost in costs):
        return 1.0
    bound = _delta_bound(costs, epsilon)
    gridded = _gridded(costs)
    if not gridded or bound == 0.0:
        return bound
    return min(bound, max(SMALLEST_DELTA, refine(gridded, delta_on_grid, epsilon, 1e-30)))


def epsilon_left(costs: Mapping[Cost, int], epsilon: float, delta: float) -> float:
    """Epsilon of the costliest single Gaussian release that fits into what ``costs`` leave of (epsilon, delta).

    Not the difference of two epsilons: releases compose to less than their sum. Rounded down, to three digits where a
    grid does the accounting. At delta 0, where no Gaussian release fits, it is that difference.
    """
    spent = epsilon_spent(costs, delta)
    if epsilon == math.inf or spent >= epsilon:
        return epsilon if epsilon == math.inf else 0.0
    if delta < SMALLEST_DELTA:
        return epsilon - spent
    mu, _ = _added_up(costs)
    top = gaussian_mu(epsilon, delta)
    if not _gridded(costs) and not _is_one_selection(costs):
        return gaussian_epsilon(math.sqrt(max(0.0, top**2 - mu**2)), delta)

    def fits(extra: float) -> bool:
        return epsilon_spent({**costs, GaussianCost(1 / extra): 1}, delta) <= epsilon

    low = top
    while not fits(low):
        low /= 2
        if low < 1e-6 * top:
            return 0.0
    return gaussian_epsilon(private_end(fits, 2 * low, low, 1e-3), delta)


def calibrate(costs_at: Callable[[float], Mapping[Cost, int]], epsilon: float, delta: float) -> float:
    """Smallest noise scale whose releases stay within (epsilon, delta).

    Parameters
    ----------
    costs_at : callable
        Noise scale to costs; a larger scale must not cost more.
    epsilon, delta : float
        The target.

    Returns
    -------
    float
        On the private side: ``epsilon_spent(costs_at(scale), delta) <= epsilon``. The relative precision is
        1e-10 where the accounting is closed-form and 1e-4 elsewhere.
    """
    check_target(epsilon, delta)

    def is_private(scale: float) -> bool:
        return epsilon_spent(costs_at(scale), delta) <= epsilon

    outside = inside = 1.0
    while not is_private(inside):
        outside, inside = inside, 2 * inside
        if inside > 2.0**40:
            raise ValueError(
                f"no noise scale up to 2^40 brings the releases to epsilon {epsilon!r} at delta {delta!r}; "
                "remove unprotected releases, allow a positive delta or raise epsilon."
            )
    while inside == outside or is_private(outside):
        inside, outside = outside, outside / 2
        if outside < 2.0**-40:
            raise ValueError("costs_at must charge for its noise, but the releases are private at any noise scale.")
    return private_end(is_private, outside, inside, 1e-4 if _gridded(costs_at(inside)) else 1e-10)
