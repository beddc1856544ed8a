r"""Privacy accounting: what one release costs, what releases cost together, and noise calibrated to a budget.

A cost is an immutable value such as ``GaussianCost(noise_multiplier=3.7)``. Totals are functions of how many releases
of each cost there are (:func:`epsilon_spent`, :func:`delta_spent`, :func:`epsilon_left`); :func:`calibrate` is their
inverse. Gaussian releases (mu-GDP) and one private selection have closed forms. Mixtures are composed numerically
(``privacy_loss.py``), rounded up.

``noise_multiplier`` means one thing everywhere: the standard deviation of the noise over the sensitivity, and
the sensitivity is the largest L2 distance the un-noised answer moves between neighbours.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from scipy import special

from justitia.privacy.noise_grid import check_deliverable
from justitia.privacy.privacy_loss import (
    GriddedReleases,
    LossGrid,
    delta_on_grid,
    epsilon_on_grid,
    gaussian_losses,
    on_grid,
    response_law,
    selection_losses,
)

#: A smaller delta counts as 0, and a delta that is not 0 is never said to be smaller: floats run out of digits there,
#: and what underflows to 0 would pass for a release that cannot fail.
SMALLEST_DELTA = 1e-300

_SMALLEST_GRIDDED = 0.01  # a smaller multiplier costs an epsilon in the thousands: not worth a grid
_CONVERGED = 3e-4  # relative change at which halving the grid step stops; what is left is a third of it
_LARGEST_GRID = 2**18


@dataclass(frozen=True)
class GaussianCost:
    """One Gaussian release over all rows."""

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not 0.0 < self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be positive and finite, got {self.noise_multiplier!r}.")


@dataclass(frozen=True)
class RandomizedResponseCost:
    """One answer per person among ``categories``; the true one is e^epsilon times as likely as any other."""

    kind: ClassVar[str] = "randomized response"
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
    r"""Private selection: the best of a random number K of trials, and nothing else, is released.

    With :math:`\delta_Q` the privacy profile of a trial, :math:`m = E[K]` and any :math:`t \ge 0` such that
    :math:`\gamma (e^t - 1) \ge (1-\gamma) \delta_Q(t)`, the profile of the search is at most

    .. math:: \delta(\varepsilon + (1+\eta) t) \le m \, \delta_Q(\varepsilon).

    ``docs/proofs.md``, section 2.8, has the proof; bounds of this form are due to Koskela, Redberg and Wang (2024).
    :mod:`justitia.privacy.selection` draws K and calibrates the noise of the trials.

    Parameters
    ----------
    noise_multiplier : float
        Of one trial: its releases together cost what one Gaussian release with this multiplier costs.
    stop : float
        gamma in (0, 1] of the truncated negative binomial law of K; 1 means one trial.
    shape : float
        eta > -1 of that law: 1 is geometric with mean 1/gamma, 0 is logarithmic.
    """

    kind: ClassVar[str] = "best of several trials"
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

    kind: ClassVar[str] = "unprotected"


Bounded = GaussianCost | RandomizedResponseCost | SelectionCost
Cost = Bounded | UnboundedCost

_COSTS: tuple[type[Cost], ...] = (GaussianCost, RandomizedResponseCost, SelectionCost, UnboundedCost)
#: Every kind of cost by the name that certificates and files give it.
COST_KINDS = {cost.kind: cost for cost in _COSTS}


def gaussian_multipliers(costs: Mapping[Cost, int]) -> list[tuple[float, int]] | None:
    """Noise multiplier and count of each cost; None if some are not Gaussian."""
    pairs = [(cost.noise_multiplier, count) for cost, count in costs.items() if isinstance(cost, GaussianCost)]
    return pairs if len(pairs) == len(costs) else None


def cost_to_dict(cost: Cost) -> dict[str, Any]:
    """Plain data: the kind, and numbers that JSON gives back to the last bit."""
    return {"kind": cost.kind, **asdict(cost)}


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


def mean_trials(stop: float, shape: float = 1.0) -> float:
    """E[K], from which gamma follows: the smaller ``stop``, the more trials."""
    if stop == 1.0:
        return 1.0
    survival = -math.log(stop) if shape == 0.0 else -math.expm1(shape * math.log(stop)) / shape
    return (1 - stop) / (stop * survival)


def extra_loss(profile: Callable[[float], float], stop: float) -> float:
    """Smallest t with gamma (e^t - 1) >= (1 - gamma) profile(t), rounded up (the t of :class:`SelectionCost`)."""
    if stop == 1.0:
        return 0.0

    def is_enough(t: float) -> bool:
        return stop * math.expm1(t) >= (1 - stop) * profile(t)

    return 0.0 if is_enough(0.0) else private_end(is_enough, 0.0, math.log(1 / stop), 1e-14)


@lru_cache(maxsize=1024)
def selection_shift(cost: SelectionCost) -> float:
    """(1 + eta) t of a search whose trials are Gaussian: what is added to the epsilon of a trial."""
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


@lru_cache(maxsize=1024)
def _selection_start(cost: SelectionCost) -> float:
    """Loss above which the dominating pair of a search lives: all its mass lies beyond it or below its negative."""
    mu, m, shift = 1 / cost.noise_multiplier, mean_trials(cost.stop, cost.shape), selection_shift(cost)

    def holds_everything(start: float) -> bool:
        z = (start - shift) / mu - mu / 2
        return m * float(special.ndtr(-z) + math.exp(-shift) * special.ndtr(-z - mu)) >= 1.0

    if not holds_everything(0.0):
        return 0.0
    return private_end(holds_everything, shift + mu**2 / 2 + 40 * mu, 0.0, 1e-12)


def _loss_grid(cost: Bounded, step: float, tail: float) -> LossGrid:
    """Distribution of the privacy loss of one release."""
    if isinstance(cost, GaussianCost):
        return gaussian_losses(1 / cost.noise_multiplier, step, tail)
    if isinstance(cost, SelectionCost):
        mean, shift = mean_trials(cost.stop, cost.shape), selection_shift(cost)
        return selection_losses(1 / cost.noise_multiplier, mean, shift, _selection_start(cost), step, tail)
    return on_grid(*response_law(cost.epsilon, cost.categories), step, 0.0)


@lru_cache(maxsize=1024)
def _mean_square_loss(cost: Bounded) -> float:
    """Mean square of the privacy loss of one release."""
    if not isinstance(cost, RandomizedResponseCost):
        shift = selection_shift(cost) if isinstance(cost, SelectionCost) else 0.0
        return (shift + cost.noise_multiplier**-2 / 2) ** 2 + cost.noise_multiplier**-2
    losses, masses = response_law(cost.epsilon, cost.categories)
    return float(masses @ losses**2)


@lru_cache(maxsize=4096)
def _compose_on_grid(
    costs: frozenset[tuple[Bounded, int]],
    measure: Callable[[GriddedReleases, float], float],
    at: float,
    tail: float,
) -> float:
    """Upper bound by ``measure`` on finer and finer grids: its error falls with the square of the step."""
    events = sorted(costs, key=repr)
    n = sum(count for _, count in events)
    # Powers of two, so that calls with neighbouring counts share their cached grids.
    tail = 2.0 ** math.floor(math.log2(max(tail / n, 1e-300)))
    rms = math.sqrt(sum(_mean_square_loss(cost) * count for cost, count in events) / n)
    step, best = min(1.0, 2.0 ** math.floor(math.log2(rms / 6))), math.inf
    epsilons = {cost.epsilon if isinstance(cost, RandomizedResponseCost) else 0.0 for cost, _ in events}
    if len(epsilons) == 1 and (epsilon := epsilons.pop()) > 0.0:
        step = epsilon / math.ceil(epsilon)  # all losses lie on this grid: exact
    while True:
        parts = tuple((_loss_grid(cost, step, tail), count) for cost, count in events)
        before, best = best, min(best, measure(GriddedReleases(parts, step), at))
        if not before - best > _CONVERGED * best or max(len(grid.masses) for grid, _ in parts) > _LARGEST_GRID:
            return best
        step /= 2


class _Total(NamedTuple):
    """Costs of all releases, added up by how they compose."""

    releases: int
    unbounded: bool
    mu: float  # of all Gaussian releases together
    pure: float  # sum of the epsilons of randomized response
    selection: SelectionCost | None
    gridded: frozenset[tuple[Bounded, int]]  # what a grid has to compose; empty if the closed form is exact


def _add_up(costs: Mapping[Cost, int]) -> _Total:
    """Sort the costs by kind; all Gaussian releases become one."""
    releases, unbounded, selection = 0, False, None
    mus: list[float] = []
    pure: list[float] = []
    rest: dict[Bounded, int] = {}
    for cost, count in costs.items():
        if count < 0:
            raise ValueError(f"the count of {cost!r} must not be negative, got {count!r}.")
        if count == 0:
            continue
        releases += count
        if isinstance(cost, UnboundedCost):
            unbounded = True
        elif isinstance(cost, GaussianCost):
            mus.append(math.sqrt(count) / cost.noise_multiplier)
        else:
            rest[cost] = count
            if isinstance(cost, SelectionCost):
                selection = selection or cost
            else:
                pure.append(count * cost.epsilon)
    mu = math.hypot(*mus)  # a square would underflow where the cost does not
    if rest and mu > 0.0:
        rest[GaussianCost(1 / mu)] = 1
    closed = selection is not None and releases == 1
    for cost in rest:
        closed = closed or getattr(cost, "noise_multiplier", math.inf) < _SMALLEST_GRIDDED
    return _Total(releases, unbounded, mu, sum(pure), selection, frozenset() if closed else frozenset(rest.items()))


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
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}.")
    total = _add_up(costs)
    if total.unbounded:
        return math.inf
    # The closed form is exact for Gaussians and for one selection, and too large or infinite for mixtures.
    if total.selection:
        bound = selection_epsilon(total.selection, delta) if total.releases == 1 else math.inf
    else:
        bound = gaussian_epsilon(total.mu, delta) + total.pure
    if not total.gridded or delta < SMALLEST_DELTA:
        return bound
    return min(bound, _compose_on_grid(total.gridded, epsilon_on_grid, delta, 1e-6 * delta))


def delta_spent(costs: Mapping[Cost, int], epsilon: float) -> float:
    """Delta of all releases together at ``epsilon``: the counterpart of `epsilon_spent`, rounded up alike."""
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon must not be negative, got {epsilon!r}.")
    total = _add_up(costs)
    if total.unbounded:
        return 1.0
    if total.selection:
        bound = selection_delta(total.selection, epsilon) if total.releases == 1 else 1.0
    else:
        bound = gaussian_delta(total.mu, epsilon - total.pure) if epsilon >= total.pure else 1.0
    if not total.gridded or bound == 0.0:
        return bound
    return min(bound, max(SMALLEST_DELTA, _compose_on_grid(total.gridded, delta_on_grid, epsilon, 1e-30)))


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
    total = _add_up(costs)
    top = gaussian_mu(epsilon, delta)
    if not total.gridded and not total.selection:
        return gaussian_epsilon(math.sqrt(max(0.0, top**2 - total.mu**2)), delta)

    def fits(extra: float) -> bool:
        return epsilon_spent({**costs, GaussianCost(1 / extra): 1}, delta) <= epsilon

    low = top
    while not fits(low):
        low /= 2
        if low < 1e-6 * top:
            return 0.0
    return gaussian_epsilon(private_end(fits, 2 * low, low, 1e-3), delta)


def best_guess(costs: Mapping[Cost, int], delta: float) -> float:
    r"""Largest probability of naming the right one of two equally likely groups, for who sees answers of these costs.

    :math:`\Phi(\mu / 2)` for Gaussian releases, :math:`(e^\epsilon + \delta) / (1 + e^\epsilon)` otherwise; 0.5 is what
    chance alone gives.
    """
    total = _add_up(costs)
    if total.unbounded:
        return 1.0
    if total.pure == 0 and total.selection is None:
        return 0.5 * math.erfc(-total.mu / math.sqrt(8))
    epsilon = epsilon_spent(costs, delta)
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


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
    return private_end(is_private, outside, inside, 1e-4 if _add_up(costs_at(inside)).gridded else 1e-10)
