r"""The best of a random number of trials: what choosing costs, and how the number is drawn.

A search draws K from the truncated negative binomial law (Liu and Talwar 2019; Papernot and Steinke 2022),

.. math:: \Pr[K = k] \propto (1-\gamma)^k \prod_{l=0}^{k-1} \frac{l + \eta}{l + 1}, \qquad k = 1, 2, \dots,

runs K independent trials of one mechanism and shows the best outcome alone: not K, and nothing of the others. With
:math:`\delta_Q` the privacy profile of a trial, :math:`m = E[K]` and any :math:`t \ge 0` such that
:math:`\gamma (e^t - 1) \ge (1-\gamma) \delta_Q(t)`, the profile of the search is at most

.. math:: \delta(\varepsilon + (1+\eta) t) \le m \, \delta_Q(\varepsilon).

``docs/privacy.md``, section 2.8, has the proof; bounds of this form are due to Koskela, Redberg and Wang (2024).
"""

import math
from collections.abc import Callable
from functools import lru_cache

from justitia.privacy.costs import SelectionCost, check_target, gaussian_delta, gaussian_epsilon, private_end


def mean_trials(stop: float, shape: float = 1.0) -> float:
    """E[K], from which gamma follows: the smaller ``stop``, the more trials."""
    if stop == 1.0:
        return 1.0
    survival = -math.log(stop) if shape == 0.0 else -math.expm1(shape * math.log(stop)) / shape
    return (1 - stop) / (stop * survival)


def stop_for(trials: float, shape: float = 1.0) -> float:
    """Gamma at which E[K] is ``trials``, rounded towards fewer trials."""
    if not 1.0 <= trials < math.inf:
        raise ValueError(f"expected a mean of at least one trial, got {trials!r}; pass, for example, trials=10.")
    if trials == 1.0:
        return 1.0
    log_stop = private_end(lambda x: mean_trials(math.exp(x), shape) <= trials, -40.0, 0.0, 1e-15)
    return math.exp(log_stop)


def draw_trials(uniform: float, stop: float, shape: float = 1.0) -> int:
    """K by inversion of its distribution function at a uniform number from (0, 1)."""
    if stop == 1.0:
        return 1
    scale = -math.log(stop) if shape == 0.0 else math.expm1(-shape * math.log(stop)) / shape
    k, chance = 1, (1 - stop) / scale
    total = chance
    while total < uniform and chance > 1e-20:
        chance *= (1 - stop) * (k + shape) / (k + 1)
        total += chance
        k += 1
    return k


def extra_loss(profile: Callable[[float], float], stop: float) -> float:
    """Smallest t with gamma (e^t - 1) >= (1 - gamma) profile(t), rounded up: what one factor of the choice costs."""
    if stop == 1.0:
        return 0.0

    def is_enough(t: float) -> bool:
        return stop * math.expm1(t) >= (1 - stop) * profile(t)

    return 0.0 if is_enough(0.0) else private_end(is_enough, 0.0, math.log(1 / stop), 1e-14)


@lru_cache(maxsize=1024)
def selection_shift(cost: SelectionCost) -> float:
    """(1 + eta) t of this search, whose trials are Gaussian."""
    mu = 1 / cost.noise_multiplier
    return (1 + cost.shape) * extra_loss(lambda t: gaussian_delta(mu, t), cost.stop)


def selection_delta(cost: SelectionCost, epsilon: float) -> float:
    """Upper bound of the search's delta at ``epsilon``."""
    trial = epsilon - selection_shift(cost)
    if trial < 0.0:
        return 1.0
    return min(1.0, mean_trials(cost.stop, cost.shape) * gaussian_delta(1 / cost.noise_multiplier, trial))


def selection_epsilon(cost: SelectionCost, delta: float) -> float:
    """Upper bound of the search's epsilon at ``delta``."""
    share = delta / mean_trials(cost.stop, cost.shape)
    return selection_shift(cost) + gaussian_epsilon(1 / cost.noise_multiplier, share)


def calibrate_selection(epsilon: float, delta: float, *, trials: float, shape: float = 1.0) -> SelectionCost:
    """The search over ``trials`` trials on average that costs (epsilon, delta): how much noise each trial needs.

    Guarantee
    ---------
    * On the private side: ``selection_epsilon(cost, delta) <= epsilon``.
    """
    check_target(epsilon, delta)
    if delta == 0.0:
        raise ValueError("delta must be positive for trials with Gaussian noise, got 0.0; pass a small one.")
    stop = stop_for(trials, shape)

    def is_private(multiplier: float) -> bool:
        return selection_epsilon(SelectionCost(multiplier, stop, shape), delta) <= epsilon

    high = 1.0
    while not is_private(high):
        high *= 2.0
    low = high
    while is_private(low):
        low /= 2.0
    return SelectionCost(private_end(is_private, low, high, 1e-10), stop, shape)
