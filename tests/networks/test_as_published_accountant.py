"""The published accountant says what the paper says; what remains without amplification is beside it."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import stats

from justitia.networks.pf_ld_as_published.accountant import (
    ORDERS,
    epsilon_without_amplification,
    published_epsilon,
    published_noise,
    renyi_sampled_gaussian,
)
from justitia.privacy.accounting import GaussianCost, epsilon_spent, gaussian_epsilon

BANK = {"epochs": 50, "batches_per_epoch": 8929 / 256, "sample_rate": 256 / 8929, "delta": 1e-5}
INCOME = {"epochs": 50, "batches_per_epoch": 36177 / 512, "sample_rate": 512 / 36177, "delta": 1e-5}


def divergence(order, p, q, dx):
    return math.log(float(np.sum(p * (p / q) ** (order - 1))) * dx) / (order - 1)


def test_renyi_sampled_gaussian_order_two_by_hand():
    # E[(1 - q + q e^(x - 1/2))^2] under N(0, 1) is 1 + q^2 (e - 1).
    assert renyi_sampled_gaussian(0.1, 1.0, 2) == pytest.approx(math.log(1 + 0.01 * (math.e - 1)), rel=1e-12)


def test_renyi_sampled_gaussian_full_rate_is_order_over_twice_variance():
    assert renyi_sampled_gaussian(1.0, 2.0, 8) == pytest.approx(1.0)
    assert renyi_sampled_gaussian(1 - 1e-12, 2.0, 8) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("q", "sigma", "order"), [(0.1, 1.0, 3), (0.3, 2.0, 7), (0.01, 0.8, 4)])
def test_renyi_sampled_gaussian_covers_both_printed_directions(q, sigma, order):
    x = np.linspace(-14 * sigma, 14 * sigma + order, 100_001)
    plain = stats.norm.pdf(x, 0, sigma)
    mixed = (1 - q) * plain + q * stats.norm.pdf(x, 1, sigma)
    ours = renyi_sampled_gaussian(q, sigma, order)
    assert ours == pytest.approx(divergence(order, mixed, plain, x[1] - x[0]), rel=1e-6)
    assert ours >= divergence(order, plain, mixed, x[1] - x[0])


@pytest.mark.parametrize(("q", "sigma"), [(0.02, 1.0), (0.2, 4.0), (0.003, 0.7)])
def test_renyi_sampled_gaussian_every_order_agrees_with_a_second_library(q, sigma):
    orders = [2, 3, 16, 64, 512]
    accountant = rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)))
    ours = [renyi_sampled_gaussian(q, sigma, order) for order in orders]
    np.testing.assert_allclose(ours, accountant._rdp, rtol=1e-8)


@pytest.mark.parametrize("order", [1, 0, 2.5])
def test_renyi_sampled_gaussian_order_not_an_integer_above_one_raises(order):
    with pytest.raises(ValueError, match="integer of at least 2"):
        renyi_sampled_gaussian(0.1, 1.0, order)


def test_renyi_sampled_gaussian_bad_rate_or_multiplier_raises():
    with pytest.raises(ValueError, match="sample_rate"):
        renyi_sampled_gaussian(0.0, 1.0, 2)
    with pytest.raises(ValueError, match="noise_multiplier"):
        renyi_sampled_gaussian(0.1, 0.0, 2)


def test_as_published_epsilon_is_theorem_five_with_its_conversion():
    by_hand = min(
        2 * 10 * renyi_sampled_gaussian(0.1, 3.0, a) + 2 * a / (2 * 9.0**2) + math.log(1e5) / (a - 1)
        for a in range(2, 513)
    )
    ours = published_epsilon(epochs=2, batches_per_epoch=10, sample_rate=0.1, sigma_p=3.0, sigma_d=9.0, delta=1e-5)
    assert ours == pytest.approx(by_hand, rel=1e-12)


def test_as_published_epsilon_full_batches_never_fall_below_the_exact_composition():
    claimed = published_epsilon(epochs=10, batches_per_epoch=1, sample_rate=1.0, sigma_p=9.0, sigma_d=12.0, delta=1e-5)
    exact = epsilon_spent({GaussianCost(9.0): 10, GaussianCost(12.0): 10}, 1e-5)
    assert exact < claimed < 1.4 * exact


@pytest.mark.parametrize("run", [BANK, INCOME], ids=["bank", "income"])
@pytest.mark.parametrize("ratio", [1.0, 10.0])
def test_as_published_noise_ends_where_the_claim_is_met_and_is_tight(run, ratio):
    sigma = published_noise(**run, epsilon=1.0, dual_ratio=ratio)
    assert published_epsilon(**run, sigma_p=sigma, sigma_d=ratio * sigma) <= 1.0
    assert published_epsilon(**run, sigma_p=sigma * (1 - 1e-8), sigma_d=ratio * sigma * (1 - 1e-8)) > 1.0


def test_as_published_noise_below_the_floor_of_the_orders_raises():
    with pytest.raises(ValueError, match=r"epsilon must exceed 0\.0225"):
        published_noise(**BANK, epsilon=0.02)


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"dual_ratio": -1.0}, {"delta": 0.0}, {"epochs": 0}])
def test_as_published_noise_bad_argument_raises(change):
    with pytest.raises(ValueError, match=r"must|needs"):
        published_noise(**{**BANK, "epsilon": 1.0, **change})


@pytest.mark.parametrize(("run", "really"), [(BANK, 4.55), (INCOME, 5.99)], ids=["bank", "income"])
def test_epsilon_without_amplification_recognised_batches_cost_several_times_the_claim(run, really):
    # Claimed epsilon 1 with the paper's accountant and a dual step ten times as noisy.
    sigma = published_noise(**run, epsilon=1.0, dual_ratio=10.0)
    ours = epsilon_without_amplification(epochs=50, sigma_p=sigma, sigma_d=10 * sigma, delta=1e-5)
    assert ours == pytest.approx(really, abs=0.005)


@pytest.mark.parametrize(("n", "batch", "really"), [(8929, 256, 5.6), (36177, 512, 7.5)])
def test_epsilon_without_amplification_sharper_claim_costs_more(n, batch, really):
    # Claimed epsilon 1 with today's conversion of the same Renyi curve (a second library) for the same run;
    # the primal releases alone then cost:
    def claim(sigma):
        accountant = rdp.RdpAccountant()
        sampled = dp_accounting.PoissonSampledDpEvent(batch / n, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(sampled, 50 * n // batch).compose(dp_accounting.GaussianDpEvent(10 * sigma), 50)
        return accountant.get_epsilon(1e-5)

    sigma = {8929: 5.687, 36177: 4.4935}[n]
    assert claim(sigma) == pytest.approx(1.0, abs=1e-3)
    ours = epsilon_without_amplification(epochs=50, sigma_p=sigma, sigma_d=math.inf, delta=1e-5)
    assert round(ours, 1) == really


def test_epsilon_without_amplification_is_gaussian_composition_of_both_steps():
    ours = epsilon_without_amplification(epochs=4, sigma_p=2.0, sigma_d=4.0, delta=1e-6)
    assert ours == gaussian_epsilon(math.sqrt(1.25), 1e-6)
    assert ours == epsilon_spent({GaussianCost(2.0): 4, GaussianCost(4.0): 4}, 1e-6)


def test_epsilon_without_amplification_bad_multiplier_raises():
    with pytest.raises(ValueError, match="must be positive"):
        epsilon_without_amplification(epochs=1, sigma_p=0.0, sigma_d=1.0, delta=1e-5)


def test_orders_default_are_strictly_increasing_integers_from_two_to_512():
    assert ORDERS[0] == 2
    assert ORDERS[-1] == 512
    assert all(a < b for a, b in itertools.pairwise(ORDERS))
