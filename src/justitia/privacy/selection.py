r"""Private selection: the random number of trials of a search, and the noise of each trial.

A search draws K from the truncated negative binomial law (Liu and Talwar 2019; Papernot and Steinke 2022),

.. math:: \Pr[K = k] \propto (1-\gamma)^k \prod_{l=0}^{k-1} \frac{l + \eta}{l + 1}, \qquad k = 1, 2, \dots,

runs K independent trials of one mechanism and releases the best outcome alone: neither K nor anything of the others.
:class:`~justitia.privacy.accounting.SelectionCost` says what that costs.
"""

import math

from justitia.privacy.accounting import SelectionCost, check_target, mean_trials, private_end, selection_epsilon


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
