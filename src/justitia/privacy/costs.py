"""What one release costs, and the closed forms for Gaussian releases (mu-GDP).

``noise_multiplier`` means one thing everywhere: the standard deviation of the noise over the sensitivity, and
the sensitivity is the largest L2 distance the un-noised answer moves between neighbours.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

from justitia.privacy.noise_grid import check_deliverable

#: A smaller delta counts as 0, and a delta that is not 0 is never said to be smaller: floats run out of digits there,
#: and what underflows to 0 would pass for a release that cannot fail.
SMALLEST_DELTA = 1e-300


@dataclass(frozen=True)
class GaussianCost:
    """One Gaussian release over all rows."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        if not 0.0 < self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be positive and finite, got {self.noise_multiplier!r}.")


@dataclass(frozen=True)
class RandomizedResponseCost:
    """One answer per person among ``categories``; the true one is e^epsilon times as likely as any other."""

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon of randomized response must be positive and finite, got {self.epsilon!r}.")
        check_deliverable(self.epsilon, 0.0)
        if not (isinstance(self.categories, int) and self.categories >= 2):
            raise ValueError(f"categories must be a whole number of at least 2, got {self.categories!r}.")


@dataclass(frozen=True)
class SelectionCost:
    r"""The best of a random number K of trials, of which nothing else is seen (:mod:`justitia.privacy.selection`).

    Parameters
    ----------
    noise_multiplier : float
        Of one trial: its releases together cost what one Gaussian release with this multiplier costs.
    stop : float
        gamma in (0, 1] of the truncated negative binomial law of K; 1 means one trial.
    shape : float
        eta > -1 of that law: 1 is geometric with mean 1/gamma, 0 is logarithmic.
    """

    noise_multiplier: float
    stop: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be positive and finite, got {self.noise_multiplier!r}.")
        if not 0.0 < self.stop <= 1.0:
            raise ValueError(f"stop must lie in (0, 1], got {self.stop!r}.")
        if not -1.0 < self.shape < math.inf:
            raise ValueError(f"shape must be finite and above -1, got {self.shape!r}.")


@dataclass(frozen=True)
class UnboundedCost:
    """A release without protection: no finite epsilon covers it."""


Bounded = GaussianCost | RandomizedResponseCost | SelectionCost
Cost = Bounded | UnboundedCost

#: Every kind of cost by the name that certificates and files give it.
COST_KINDS: dict[str, type[Cost]] = {
    "gaussian": GaussianCost,
    "randomized response": RandomizedResponseCost,
    "best of several trials": SelectionCost,
    "unprotected": UnboundedCost,
}


def kind_of(cost: Cost) -> str:
    """Name of the mechanism that has this cost."""
    return next(name for name, kind in COST_KINDS.items() if isinstance(cost, kind))


def cost_to_dict(cost: Cost) -> dict[str, Any]:
    """Plain data: the kind, and numbers that JSON gives back to the last bit."""
    return {"kind": kind_of(cost), **asdict(cost)}


def cost_from_dict(facts: Mapping[str, Any]) -> Cost:
    """Inverse of :func:`cost_to_dict`; a ValueError for anything that is not a cost."""
    numbers = dict(facts)
    kind = COST_KINDS.get(str(numbers.pop("kind", None)))
    if kind is None:
        raise ValueError(f"expected a kind of cost among {sorted(COST_KINDS)}, got {facts.get('kind')!r}.")
    try:
        return kind(**numbers)
    except TypeError:
        raise ValueError(f"expected the numbers of a {kind.__name__}, got {sorted(numbers)}.") from None


def private_end(is_private: Callable[[float], bool], outside: float, inside: float, precision: float) -> float:
    """Bisect to the border of ``is_private`` and return the end at which it holds."""
    while abs(inside - outside) > precision * max(abs(inside), abs(outside)):
        middle = outside + (inside - outside) / 2
        if middle in {inside, outside}:
            break
        inside, outside = (middle, outside) if is_private(middle) else (inside, middle)
    return inside


def gaussian_delta(mu: float, epsilon: float) -> float:
    r"""Smallest delta of a mu-GDP release at ``epsilon``, or `SMALLEST_DELTA` if it is smaller than that.

    .. math:: \delta(\varepsilon) =
        \Phi(-\varepsilon/\mu + \mu/2) - e^\varepsilon \Phi(-\varepsilon/\mu - \mu/2)
    """
    if mu == 0.0 or epsilon == math.inf:
        return 0.0
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    log_first = float(special.log_ndtr(-near))
    if log_first < math.log(SMALLEST_DELTA):
        return SMALLEST_DELTA
    if near > -30.0 and mu < 1e-5:
        # The integral of the logarithm's slope from near to far: two Mills ratios this close have the same digits.
        middle = epsilon / mu
        log_ratio = mu * (middle - math.sqrt(2 / math.pi) / float(special.erfcx(middle / math.sqrt(2))))
    elif near > -30.0:
        # The two terms as a ratio of Mills ratios: e^epsilon cancels on paper, not in floating point.
        log_ratio = math.log(special.erfcx(far / math.sqrt(2)) / special.erfcx(near / math.sqrt(2)))
    else:
        log_ratio = epsilon + float(special.log_ndtr(-far)) - log_first
    return max(SMALLEST_DELTA, -math.exp(log_first) * math.expm1(min(0.0, log_ratio)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon of a mu-GDP release at ``delta``, rounded up."""
    if mu == 0.0:
        return 0.0
    if delta < SMALLEST_DELTA:
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while gaussian_delta(mu, high) > delta:
        high *= 1.1
    return private_end(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, high, 1e-15)


def check_target(epsilon: float, delta: float) -> None:
    """Refuse an (epsilon, delta) that no noise can be calibrated to."""
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite, got {epsilon!r}.")
    check_delta(delta)


def check_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1)."""
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}.")


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose release is (epsilon, delta)-private, rounded down: 0.2681 for (1, 1e-5)."""
    check_target(epsilon, delta)
    if delta < SMALLEST_DELTA:
        raise ValueError(
            f"delta must be positive for Gaussian noise, got {delta!r}; use randomized response for pure privacy."
        )
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2.0
    mu = private_end(lambda mu: gaussian_delta(mu, epsilon) <= delta, high, 0.0, 1e-15)
    shrink = 1e-15
    while gaussian_epsilon(mu, delta) > epsilon or gaussian_delta(mu, epsilon) > delta:  # the last bits must agree
        mu, shrink = mu * (1 - shrink), shrink * 4
    return mu
