"""The best of a random number of trials costs no more than is claimed, by brute force on small mechanisms."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special

from justitia.privacy.accounting import (
    GaussianCost,
    SelectionCost,
    _selection_start,
    delta_spent,
    epsilon_spent,
    extra_loss,
    gaussian_delta,
    gaussian_epsilon,
    mean_trials,
    selection_delta,
    selection_epsilon,
    selection_shift,
)
from justitia.privacy.selection import calibrate_selection, draw_trials, stop_for

Floats = NDArray[np.float64]
EPSILONS = (0.0, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0)


def generating(x: Floats, stop: float, shape: float) -> Floats:
    """E[x^K] of the truncated negative binomial law."""
    if shape == 0:
        return np.asarray(np.log1p(-(1 - stop) * x) / math.log(stop))
    return np.asarray(((1 - (1 - stop) * x) ** -shape - 1) / (stop**-shape - 1))


def best_of(masses: Floats, order: NDArray[np.int64], stop: float, shape: float) -> Floats:
    """Law of the best of K outcomes, worst first in ``order``."""
    below = np.append(0.0, np.minimum(np.cumsum(masses[order]), 1.0))
    return np.diff(generating(below, stop, shape))


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


SCORES: dict[str, Callable[[Floats], Floats]] = {
    "up": lambda x: x,
    "down": lambda x: -x,
    "middle": lambda x: -np.abs(x),
    "tails": np.abs,
    "waves": lambda x: np.sin(5 * x),
    "upper half first, from below": lambda x: np.where(x > 0.5, 10 - x, x),
    "lower half first, from above": lambda x: np.where(x < 0.0, 10 + x, -x),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("mu", "stop"), [(0.3, 0.1), (1.0, 0.3), (1.0, 0.02), (2.0, 0.5)])
def test_best_gaussian_trial_by_any_score_stays_below_the_claim(
    score: str, shape: float, mu: float, stop: float
) -> None:
    x = np.linspace(-9.0, 9.0 + mu, 6001)
    edges = np.append(np.append(-np.inf, (x[1:] + x[:-1]) / 2), np.inf)
    p, q = np.diff(special.ndtr(edges)), np.diff(special.ndtr(edges - mu))
    order = np.argsort(SCORES[score](x), kind="stable")
    one, other = best_of(p, order, stop, shape), best_of(q, order, stop, shape)
    cost = SelectionCost(1 / mu, stop, shape)
    for epsilon in EPSILONS:
        claimed = selection_delta(cost, epsilon) + 1e-12
        assert hockey_stick(one, other, epsilon) <= claimed
        assert hockey_stick(other, one, epsilon) <= claimed


def test_choosing_does_cost_more_than_one_trial_and_the_claim_is_not_far_above() -> None:
    mu, stop, epsilon = 1.0, 0.1, 5.0
    x = np.linspace(-9.0, 10.0, 6001)
    edges = np.append(np.append(-np.inf, (x[1:] + x[:-1]) / 2), np.inf)
    p, q = np.diff(special.ndtr(edges)), np.diff(special.ndtr(edges - mu))
    order = np.argsort(np.where(x > 0.5, x, 10 - x))
    one, other = best_of(p, order, stop, 1.0), best_of(q, order, stop, 1.0)
    found = max(hockey_stick(one, other, epsilon), hockey_stick(other, one, epsilon))
    assert found > 100 * gaussian_delta(mu, epsilon)
    assert epsilon <= selection_epsilon(SelectionCost(1 / mu, stop, 1.0), found) < 1.25 * epsilon


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("stop", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("categories", [2, 3])
def test_best_randomized_response_stays_below_the_claim_for_any_profile(
    shape: float, stop: float, categories: int
) -> None:
    base = 0.7
    truth = 1 / (1 + (categories - 1) * math.exp(-base))
    lie = truth * math.exp(-base)

    def profile(epsilon: float) -> float:
        return max(0.0, truth - math.exp(epsilon) * lie)

    p, q = np.full(categories, lie), np.full(categories, lie)
    p[0], q[-1] = truth, truth
    shift, m = (1 + shape) * extra_loss(profile, stop), mean_trials(stop, shape)
    assert shift <= (1 + shape) * base
    for order in (np.arange(categories), np.arange(categories)[::-1], np.roll(np.arange(categories), 1)):
        one, other = best_of(p, order, stop, shape), best_of(q, order, stop, shape)
        for epsilon in np.linspace(0.0, 1.0, 21):
            assert hockey_stick(one, other, epsilon + shift) <= m * profile(epsilon) + 1e-12
            assert hockey_stick(other, one, epsilon + shift) <= m * profile(epsilon) + 1e-12


def renyi_theorem(mu: float, stop: float, shape: float, delta: float) -> float:
    """Papernot and Steinke (2022), Theorem 2, for Gaussian trials at the best orders, as epsilon at delta."""
    orders = 1 + np.geomspace(0.05, 2000, 4000)
    hat = 1 + np.geomspace(1e-3, 1e4, 4000)
    choice = ((1 + shape) * ((1 - 1 / hat) * hat * mu**2 / 2 + math.log(1 / stop) / hat)).min()
    renyi = orders * mu**2 / 2 + choice + math.log(mean_trials(stop, shape)) / (orders - 1)
    converted = renyi + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return float(converted.min())


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("trials", [2.0, 10.0, 100.0])
@pytest.mark.parametrize("mu", [0.1, 0.27, 1.0, 3.0])
def test_claim_is_below_the_renyi_theorem(mu: float, trials: float, shape: float) -> None:
    stop = stop_for(trials, shape)
    claimed = selection_epsilon(SelectionCost(1 / mu, stop, shape), 1e-5)
    assert gaussian_epsilon(mu, 1e-5) < claimed < renyi_theorem(mu, stop, shape, 1e-5)


def test_one_trial_costs_what_the_trial_costs() -> None:
    assert selection_epsilon(SelectionCost(3.0, 1.0), 1e-5) == gaussian_epsilon(1 / 3.0, 1e-5)


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("trials", [1.0, 3.0, 20.0])
def test_calibrated_search_ends_on_the_private_side_and_is_tight(trials: float, shape: float) -> None:
    cost = calibrate_selection(1.0, 1e-5, trials=trials, shape=shape)
    assert 1 - 1e-6 < epsilon_spent({cost: 1}, 1e-5) <= 1.0
    assert delta_spent({cost: 1}, 1.0) <= 1e-5 * (1 + 1e-9)
    assert mean_trials(cost.stop, shape) == pytest.approx(trials)


def test_geometric_search_over_ten_trials_leaves_this_much_for_each() -> None:
    cost = calibrate_selection(1.0, 1e-5, trials=10.0)
    assert cost.stop == pytest.approx(0.1)
    assert gaussian_epsilon(1 / cost.noise_multiplier, 1e-5) == pytest.approx(0.6033, abs=1e-4)


# --- composition


def pair_profile(cost: SelectionCost, x: float) -> float:
    """Hockey-stick divergence of order x of the pair behind a search: the curve, its tangent, and the mirror image."""
    if x < 1:
        return 1 - x + x * pair_profile(cost, 1 / x)
    mu, m, start, shift = 1 / cost.noise_multiplier, mean_trials(cost.stop, cost.shape), 0.0, selection_shift(cost)
    start = math.exp(_selection_start(cost))
    if x >= start:
        return m * gaussian_delta(mu, math.log(x) - shift)
    at = m * gaussian_delta(mu, math.log(start) - shift)
    return at + (start - x) * (1 - at) / (1 + start)  # the tangent goes through (-1, 1)


@pytest.mark.parametrize("cost", [SelectionCost(4.0, 0.1), SelectionCost(1.5, 0.3, 0.0)])
def test_two_searches_cost_the_integral_over_both(cost: SelectionCost) -> None:
    mu, m = 1 / cost.noise_multiplier, mean_trials(cost.stop, cost.shape)
    start, centre = _selection_start(cost), selection_shift(cost) + mu**2 / 2
    for epsilon in (1.0, 2.0, 3.0):

        def at(z: float, epsilon: float = epsilon) -> float:
            loss, mass = centre + mu * z, m * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            up, down = pair_profile(cost, math.exp(epsilon - loss)), pair_profile(cost, math.exp(epsilon + loss))
            return mass * (up + math.exp(-loss) * down)

        expected = integrate.quad(at, (start - centre) / mu, 12.0, limit=400, epsabs=1e-13)[0]
        assert expected * (1 - 1e-6) <= delta_spent({cost: 2}, epsilon) <= expected * 1.002


def test_search_beside_a_gaussian_release_costs_more_than_either_and_less_than_the_sum() -> None:
    search, gaussian = calibrate_selection(1.0, 1e-5, trials=10.0), GaussianCost(3.731)
    together = epsilon_spent({search: 1, gaussian: 1}, 1e-5)
    assert 1.3 < together < 2.0


def test_grid_of_one_search_agrees_with_its_closed_form() -> None:
    search = SelectionCost(5.0, 0.1)
    faint = GaussianCost(1e4)  # next to nothing, but it makes the accountant use the grid
    assert epsilon_spent({search: 1, faint: 1}, 1e-5) == pytest.approx(selection_epsilon(search, 1e-5), rel=1e-3)


# --- the number of trials


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("stop", [0.8, 0.1])
def test_number_of_trials_follows_its_law(stop: float, shape: float) -> None:
    n = 40_000
    drawn = np.array([draw_trials((i + 0.5) / n, stop, shape) for i in range(n)])
    for x in (0.2, 0.7, 0.95):
        assert (x**drawn).mean() == pytest.approx(float(generating(np.array(x), stop, shape)), abs=1e-3)
    assert drawn.mean() == pytest.approx(mean_trials(stop, shape), rel=5e-3)
    assert drawn.min() == 1


def test_number_of_trials_ends_at_the_largest_uniform_number() -> None:
    assert 300 < draw_trials(1 - 2.0**-53, 0.1) < 600


@pytest.mark.parametrize(
    ("arguments", "text"), [((0.0, 0.1), "noise_multiplier"), ((1.0, 0.0), "stop"), ((1.0, 0.5, -1.0), "shape")]
)
def test_wrong_numbers_of_a_search_are_refused(arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SelectionCost(*arguments)


def test_less_than_one_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a mean of at least one trial"):
        stop_for(0.5)
