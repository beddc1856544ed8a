"""Noise for a budget, and costs where floats run out."""

import math

import pytest

from justitia.privacy.accounting import (
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    calibrate,
    delta_spent,
    epsilon_left,
    epsilon_spent,
    gaussian_delta,
    gaussian_mu,
)

# --- calibration


def test_calibrate_one_full_release_returns_the_closed_form():
    scale = calibrate(lambda s: {GaussianCost(s): 1}, 1.0, 1e-5)
    assert scale == pytest.approx(1 / gaussian_mu(1.0, 1e-5), rel=1e-9)
    assert epsilon_spent({GaussianCost(scale): 1}, 1e-5) <= 1.0


PLANS = {
    "full": lambda s: {GaussianCost(s): 30, GaussianCost(5 * s): 4},
    "with responses": lambda s: {GaussianCost(s): 3, RandomizedResponseCost(0.2, 3): 1},
    "responses": lambda s: {RandomizedResponseCost(1 / s, 4): 5},
}


@pytest.mark.parametrize("costs_at", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_calibrate_any_plan_ends_on_the_private_side_and_is_tight(costs_at, epsilon):
    scale = calibrate(costs_at, epsilon, 1e-5)
    assert epsilon_spent(costs_at(scale), 1e-5) <= epsilon
    assert epsilon_spent(costs_at(scale * (1 - 1e-3)), 1e-5) > epsilon


def test_calibrate_pure_target_works_for_responses():
    scale = calibrate(lambda s: {RandomizedResponseCost(1 / s, 2): 4}, 1.0, 0.0)
    assert scale == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(math.inf, 1e-5, "epsilon"), (0.0, 1e-5, "epsilon"), (1.0, 1.0, "delta"), (1.0, -1e-9, "delta")],
)
def test_calibrate_impossible_target_raises(epsilon, delta, message):
    with pytest.raises(ValueError, match=f"{message} must"):
        calibrate(lambda s: {GaussianCost(s): 1}, epsilon, delta)


def test_calibrate_releases_no_noise_can_pay_for_raises():
    with pytest.raises(ValueError, match="no noise scale up to"):
        calibrate(lambda s: {GaussianCost(s): 1, UnboundedCost(): 1}, 1.0, 1e-5)
    with pytest.raises(ValueError, match="no noise scale up to"):
        calibrate(lambda s: {GaussianCost(s): 1}, 1.0, 0.0)


def test_calibrate_free_releases_raises():
    with pytest.raises(ValueError, match="private at any noise scale"):
        calibrate(lambda s: {}, 1.0, 1e-5)


# --- where floats run out


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        (1e-14, 0.0, 3.989422804014327e-15),
        (1e-17, 0.0, 3.989422804014327e-18),
        (1e-9, 2e-9, 8.49070262532034e-12),
        (1e-200, 0.0, 3.989422804014327e-201),
    ],
)
def test_gaussian_delta_of_very_much_noise_matches_high_precision_values(mu, epsilon, delta):
    assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-11, abs=0.0)


@pytest.mark.parametrize("cost", [GaussianCost(3.731), GaussianCost(200.0), SelectionCost(50.0, 0.5)])
@pytest.mark.parametrize("more", [{}, {RandomizedResponseCost(0.5, 2): 3}])
def test_delta_of_what_is_not_pure_is_never_zero(cost, more):
    for epsilon in (10.0, 100.0, 1e4, 1e8):
        assert delta_spent({cost: 1, **more}, epsilon) > 0.0


@pytest.mark.parametrize("cost", [GaussianCost(3.731), GaussianCost(1e200), SelectionCost(50.0, 0.5)])
@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-310])
def test_epsilon_of_what_is_not_pure_is_infinite_without_delta(cost, delta):
    assert epsilon_spent({cost: 1}, delta) == math.inf
    assert epsilon_spent({cost: 1, RandomizedResponseCost(0.5, 2): 1}, delta) == math.inf


def test_epsilon_of_randomized_response_at_a_delta_too_small_for_floats_is_the_sum():
    for delta in (0.0, 5e-324, 1e-310):
        assert epsilon_spent({RandomizedResponseCost(1.0, 2): 1100}, delta) == 1100.0


def test_epsilon_at_a_tiny_delta_is_finite_and_on_the_private_side():
    for cost in (GaussianCost(3.731), GaussianCost(1e200), GaussianCost(1e-3)):
        epsilon = epsilon_spent({cost: 1}, 1e-299)
        assert 0.0 < epsilon < math.inf
        assert delta_spent({cost: 1}, epsilon) <= 1e-299


def test_noise_for_no_delta_is_refused():
    for delta in (0.0, 1e-310):
        with pytest.raises(ValueError, match="delta must be positive for Gaussian noise, got"):
            gaussian_mu(1.0, delta)
        assert epsilon_left({RandomizedResponseCost(0.5, 2): 1}, 1.0, delta) == 0.5
