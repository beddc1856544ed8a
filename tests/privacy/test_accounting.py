"""What releases cost together: closed forms, composition, and a second library's traps."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, signal, stats

from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    UnboundedCost,
    delta_spent,
    epsilon_spent,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
)

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


few = settings(derandomize=True, deadline=None, max_examples=15)


# --- costs


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_gaussian_cost_multiplier_not_positive_finite_raises(multiplier):
    with pytest.raises(ValueError, match="noise_multiplier must be positive and finite"):
        GaussianCost(multiplier)


def test_randomized_response_cost_bad_arguments_raises():
    with pytest.raises(ValueError, match="positive and finite"):
        RandomizedResponseCost(0.0, 2)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        RandomizedResponseCost(1.0, 1)


def test_costs_equal_arguments_share_one_key():
    assert len({GaussianCost(2.0), GaussianCost(2.0), UnboundedCost(), UnboundedCost()}) == 2


# --- closed forms


def test_gaussian_mu_epsilon_one_gives_the_known_multiplier():
    assert gaussian_mu(1.0, 1e-5) == pytest.approx(0.2681, abs=5e-5)
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.731, abs=5e-4)
    assert epsilon_spent({GaussianCost(3.7307): 1}, 1e-5) == pytest.approx(1.00, abs=1e-4)


def test_gaussian_delta_extreme_arguments_match_high_precision_values():
    # The right-hand sides were evaluated with 60 digits.
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.1269367375066439, rel=1e-13, abs=0.0)
    assert gaussian_delta(1.0, 20.0) == pytest.approx(2.664706705365498e-86, rel=1e-12, abs=0.0)
    assert gaussian_delta(0.5, 18.0) == pytest.approx(4.555621690641717e-282, rel=1e-11, abs=0.0)
    assert gaussian_delta(1e-4, 1e-6) == pytest.approx(3.939624241641901e-05, rel=1e-10, abs=0.0)
    assert gaussian_delta(1e-4, 1e-3) == pytest.approx(7.478298460019543e-29, rel=1e-10, abs=0.0)
    assert gaussian_delta(40.0, 1000.0) == pytest.approx(2.536296514956551e-7, rel=1e-11, abs=0.0)


@few
@given(st.floats(-6, 2.3), st.floats(-50, -0.5))
def test_gaussian_inverses_any_target_end_on_the_private_side(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(mu, delta) <= epsilon
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert gaussian_delta(mu * 1.001, epsilon) > delta


def test_gaussian_mu_delta_zero_raises():
    with pytest.raises(ValueError, match="use randomized response"):
        gaussian_mu(1.0, 0.0)


# --- composition


def test_epsilon_spent_nothing_released_is_zero():
    assert epsilon_spent({}, 1e-5) == 0.0
    assert epsilon_spent({GaussianCost(1.0): 0, UnboundedCost(): 0}, 0.0) == 0.0
    assert delta_spent({}, 0.0) == 0.0


def test_epsilon_spent_one_unbounded_release_is_infinite():
    assert epsilon_spent({UnboundedCost(): 1, GaussianCost(9.0): 1}, 0.1) == math.inf
    assert delta_spent({UnboundedCost(): 1}, 100.0) == 1.0


def test_epsilon_spent_gaussian_at_delta_zero_is_infinite():
    assert epsilon_spent({GaussianCost(100.0): 1}, 0.0) == math.inf


def test_epsilon_spent_two_releases_of_root_two_sigma_cost_one_of_sigma():
    one = epsilon_spent({GaussianCost(3.0): 1}, 1e-6)
    assert epsilon_spent({GaussianCost(3.0 * math.sqrt(2)): 2}, 1e-6) == pytest.approx(one, rel=1e-12)
    split = {GaussianCost(3.0 * math.sqrt(2)): 1, GaussianCost(6.0): 2}
    assert epsilon_spent(split, 1e-6) == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize(
    ("sigma", "each", "categories", "n"), [(5.0, 0.1, 2, 40), (1.0, 0.5, 4, 3), (30.0, 0.02, 3, 400)]
)
def test_epsilon_spent_gaussian_and_many_responses_agree_with_a_second_library(sigma, each, categories, n):
    lie = categories / (math.exp(each) + categories - 1)  # chance that their response is drawn from all categories
    fine = {"value_discretization_interval": 5e-4 / n}  # they round every loss up by as much
    reference = privacy_loss_distribution.from_randomized_response(lie, categories, **fine).self_compose(n)
    reference = reference.compose(privacy_loss_distribution.from_gaussian_mechanism(sigma, **fine))
    ours = epsilon_spent({GaussianCost(sigma): 1, RandomizedResponseCost(each, categories): n}, 1e-5)
    assert ours == pytest.approx(reference.get_epsilon_for_delta(1e-5), rel=1e-3)


def test_epsilon_spent_narrow_losses_stay_tight():
    # Many weak responses among k behave like one Gaussian of mu = epsilon sqrt(2 n / k).
    for each, categories, n in [(1e-3, 2, 1_000_000), (1e-4, 4, 10_000_000)]:
        limit = gaussian_epsilon(each * math.sqrt(2 * n / categories), 1e-5)
        responses = RandomizedResponseCost(each, categories)
        assert epsilon_spent({responses: n}, 1e-5) == pytest.approx(limit, rel=1e-3)
        both = gaussian_epsilon(math.hypot(each * math.sqrt(2 * n / categories), 0.2), 1e-5)
        assert epsilon_spent({responses: n, GaussianCost(5.0): 1}, 1e-5) == pytest.approx(both, rel=1e-3)


def test_epsilon_spent_tiny_delta_through_the_grid_stays_tight():
    # A response that says next to nothing sends the Gaussian through the grid.
    whisper = RandomizedResponseCost(1e-9, 2)
    for delta in [1e-12, 1e-50, 1e-200]:
        exact = gaussian_epsilon(0.8, delta)
        assert exact <= epsilon_spent({GaussianCost(2.5): 4, whisper: 1}, delta) * (1 + 1e-9)
        assert epsilon_spent({GaussianCost(2.5): 4, whisper: 1}, delta) <= exact * (1 + 1e-3)


def loss_histogram(cost, step, reach):
    """Losses of one release, rounded to the nearest multiple of a fine step."""
    if isinstance(cost, RandomizedResponseCost):
        others = cost.categories - 1
        truth = math.exp(cost.epsilon) / (math.exp(cost.epsilon) + others)
        losses = np.array([cost.epsilon, -cost.epsilon, 0.0])
        masses = np.array([truth, (1 - truth) / others, (1 - truth) * (others - 1) / others])
    else:
        sigma = cost.noise_multiplier
        x = np.linspace(-9 * sigma, 9 * sigma, 200_001)
        masses = stats.norm.pdf(x, 0.5, sigma) * (x[1] - x[0])
        losses = x / sigma**2
    return np.bincount(np.round(losses / step).astype(int) + reach, masses, 2 * reach + 1)


def delta_by_convolution(costs, epsilon, step=5e-4, reach=12_000):
    total = np.ones(1)
    for cost in costs:
        total = signal.fftconvolve(total, loss_histogram(cost, step, reach))
    losses = step * (np.arange(len(total)) - len(costs) * reach)
    return float(total @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))


EVENTS: list[Cost] = [
    GaussianCost(5.0),
    RandomizedResponseCost(0.3, 2),
    RandomizedResponseCost(0.3, 4),
]


@pytest.mark.parametrize("cost", EVENTS, ids=str)
def test_delta_spent_five_copies_cost_what_composition_says(cost):
    for epsilon in [0.1, 0.35]:
        exact = delta_by_convolution([cost] * 5, epsilon)
        assert delta_spent({cost: 5}, epsilon) == pytest.approx(exact, rel=5e-3)
        assert delta_spent({cost: 5}, epsilon) > 1.5 * delta_spent({cost: 1}, epsilon)


@pytest.mark.parametrize(
    "costs",
    [
        [GaussianCost(2.0), RandomizedResponseCost(0.5, 2)],
        [GaussianCost(2.0), RandomizedResponseCost(0.4, 3), GaussianCost(4.0), GaussianCost(4.0)],
        [RandomizedResponseCost(0.4, 3), RandomizedResponseCost(0.25, 2)],
    ],
    ids=["gaussian+response", "gaussians+response", "two responses"],
)
def test_delta_spent_mixture_costs_what_composition_says(costs):
    counted = {cost: costs.count(cost) for cost in costs}
    for epsilon in [0.2, 0.5]:
        exact = delta_by_convolution(costs, epsilon)
        assert delta_spent(counted, epsilon) == pytest.approx(exact, rel=5e-3)


def test_delta_spent_gaussian_and_response_is_the_average_of_shifted_curves():
    epsilon, response = 1.0, RandomizedResponseCost(0.5, 3)
    truth = math.exp(0.5) / (math.exp(0.5) + 2)
    lie = (1 - truth) / 2

    def delta(
        shifted,
    ):  # the Gaussian curve, continued to negative epsilon by delta(-e) = 1 - e^-e (1 - delta(e))
        return (
            gaussian_delta(0.7, shifted)
            if shifted >= 0
            else 1 - math.exp(shifted) * (1 - gaussian_delta(0.7, -shifted))
        )

    exact = truth * delta(epsilon - 0.5) + lie * delta(epsilon + 0.5) + lie * delta(epsilon)
    ours = delta_spent({GaussianCost(1 / 0.7): 1, response: 1}, epsilon)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + 1e-3)
    assert delta_spent({GaussianCost(math.sqrt(2) / 0.7): 2, response: 1}, epsilon) == pytest.approx(ours, rel=1e-9)


@few
@given(st.floats(0.05, 4.0), st.integers(2, 5), st.integers(1, 12), st.floats(-12, -1))
def test_epsilon_spent_randomized_response_is_the_exact_multinomial(each, categories, n, log_delta):
    law = {0: 1.0}
    scale = math.exp(each) + categories - 1
    for _ in range(n):
        after: dict[int, float] = {}
        for k, mass in law.items():
            for move, share in [(1, math.exp(each)), (-1, 1.0), (0, categories - 2.0)]:
                after[k + move] = after.get(k + move, 0.0) + mass * share / scale
        law = after

    def excess(epsilon):
        return sum(-m * math.expm1(epsilon - k * each) for k, m in law.items() if k * each > epsilon) - 10**log_delta

    exact = optimize.brentq(excess, 0.0, n * each) if excess(0.0) > 0 else 0.0
    ours = epsilon_spent({RandomizedResponseCost(each, categories): n}, 10**log_delta)
    assert ours == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_epsilon_spent_randomized_response_at_delta_zero_is_the_sum():
    costs = {RandomizedResponseCost(0.5, 2): 10, RandomizedResponseCost(0.25, 4): 2}
    assert epsilon_spent(costs, 0.0) == pytest.approx(5.5, abs=1e-12)
    assert epsilon_spent(costs, 1e-300) <= 5.5
    assert delta_spent(costs, 5.5) == 0.0
    assert 0.0 < delta_spent(costs, 5.4) < 1e-2


@few
@given(st.floats(0.8, 5.0), st.floats(0.02, 0.9), st.integers(1, 200), st.floats(-9, -2), st.floats(1.01, 1.5))
def test_epsilon_spent_mixture_is_monotone_in_every_argument(sigma, each, n, log_delta, factor):
    delta = 10**log_delta

    def spent(scale=1.0, said=1.0, more=0, wider=1.0):
        costs: dict[Cost, int] = {GaussianCost(sigma * scale): n + more, RandomizedResponseCost(each * said, 3): 2}
        return epsilon_spent(costs, delta * wider)

    base = spent()
    slack = 1 + 5e-4  # the accuracy of the grid
    assert spent(scale=factor) <= base * slack
    assert spent(said=1 / factor) <= base * slack
    assert spent(wider=factor) <= base * slack
    assert base <= spent(more=5) * slack
    assert epsilon_spent({GaussianCost(sigma): n}, delta) <= base * slack
    assert base <= epsilon_spent({GaussianCost(sigma): n}, delta) + 2 * each


@few
@given(st.floats(0.3, 50.0), st.integers(1, 1000), st.floats(-20, -1), st.floats(1.001, 2.0))
def test_epsilon_spent_full_gaussian_is_monotone_in_every_argument(sigma, n, log_delta, factor):
    base = epsilon_spent({GaussianCost(sigma): n}, 10**log_delta)
    assert epsilon_spent({GaussianCost(sigma * factor): n}, 10**log_delta) <= base
    assert epsilon_spent({GaussianCost(sigma): n}, 10**log_delta * factor) <= base
    assert base <= epsilon_spent({GaussianCost(sigma): n + 1}, 10**log_delta)


@few
@given(st.floats(0.8, 4.0), st.floats(0.05, 0.9), st.integers(1, 100), st.floats(-8, -2))
def test_delta_spent_at_epsilon_spent_returns_delta(sigma, each, n, log_delta):
    costs: dict[Cost, int] = {GaussianCost(sigma): n, RandomizedResponseCost(each, 3): 3}
    epsilon = epsilon_spent(costs, 10**log_delta)
    if epsilon > 0:
        assert delta_spent(costs, epsilon) == pytest.approx(10**log_delta, rel=2e-2)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_epsilon_spent_delta_outside_unit_interval_raises(delta):
    with pytest.raises(ValueError, match="delta must lie in"):
        epsilon_spent({GaussianCost(1.0): 1}, delta)


def test_spent_negative_count_or_epsilon_raises():
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        epsilon_spent({GaussianCost(1.0): -1}, 1e-5)
    with pytest.raises(ValueError, match="epsilon must not be negative"):
        delta_spent({GaussianCost(1.0): 1}, -1.0)


def test_epsilon_spent_tiny_multipliers_fall_back_on_the_closed_form():
    costs = {GaussianCost(1e-3): 1, RandomizedResponseCost(2.0, 2): 1}
    assert epsilon_spent(costs, 1e-5) == gaussian_epsilon(1000.0, 1e-5) + 2.0


# --- traps in a second library, and that we are not in them


def test_epsilon_spent_substitution_is_twice_what_a_renyi_accountant_says():
    # Standard deviation 2 and contributions of norm 1: substitution moves the sum by 2, our multiplier is 1.
    theirs = rdp.RdpAccountant(neighboring_relation=REPLACE_ONE)
    theirs.compose(dp_accounting.GaussianDpEvent(2.0))
    assert theirs.get_epsilon(1e-5) == pytest.approx(2.17, abs=5e-3)
    assert epsilon_spent({GaussianCost(1.0): 1}, 1e-5) == pytest.approx(4.38, abs=5e-3)


def test_epsilon_spent_ten_responses_cost_more_than_one_unlike_a_loss_accountant():
    # Truth with probability 3/4, the other answer with 1/4: epsilon = log 3.
    theirs = pld.PLDAccountant(neighboring_relation=REPLACE_ONE)
    theirs.compose(dp_accounting.RandomizedResponseDpEvent(0.5, 2), 10)
    assert theirs.get_epsilon(1e-5) == pytest.approx(1.0986, abs=1e-3)
    one = RandomizedResponseCost(math.log(3), 2)
    assert epsilon_spent({one: 1}, 1e-5) == pytest.approx(1.0986, abs=1e-3)
    # All ten true has mass 0.75^10: delta = 0.75^10 (1 - e^(epsilon - 10 log 3)).
    assert epsilon_spent({one: 10}, 1e-5) == pytest.approx(10.98612 - 1e-5 / 0.75**10, abs=1e-5)
