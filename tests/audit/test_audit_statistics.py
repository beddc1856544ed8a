import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from justitia.audit.statistics import (
    Evidence,
    best_threshold,
    direction,
    epsilon_of_rates,
    evidence,
    mu_of_accuracy,
    mu_of_rates,
    one_run_epsilon,
    one_run_p_value,
    rate_above,
    rate_below,
)
from justitia.privacy.accounting import gaussian_epsilon

PHI = NormalDist().cdf


def test_rate_bounds_at_the_ends_are_the_closed_forms() -> None:
    assert rate_below(0, 10, 0.05) == 0.0
    assert rate_below(10, 10, 0.05) == pytest.approx(0.05 ** (1 / 10))
    assert rate_above(0, 10, 0.05) == pytest.approx(1 - 0.05 ** (1 / 10))
    assert rate_above(10, 10, 0.05) == 1.0


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.93])
def test_rate_bounds_summed_over_every_outcome_fail_with_at_most_alpha(p: float) -> None:
    chances = stats.binom(20, p).pmf(np.arange(21))
    too_high = sum(chances[k] for k in range(21) if rate_below(k, 20, 0.05) > p)
    too_low = sum(chances[k] for k in range(21) if rate_above(k, 20, 0.05) < p)
    assert max(too_high, too_low) <= 0.05


def test_epsilon_of_rates_uses_both_directions_and_delta() -> None:
    assert epsilon_of_rates(0.5, 0.1, 0.0) == pytest.approx(math.log(5))
    assert epsilon_of_rates(0.9, 0.5, 0.0) == pytest.approx(math.log(5))
    assert epsilon_of_rates(0.5, 0.1, 0.1) == pytest.approx(math.log(4))
    assert epsilon_of_rates(0.1, 0.5, 0.0) == 0.0
    assert epsilon_of_rates(0.5, 0.0, 0.0) == math.inf


def test_epsilon_of_rates_of_randomized_response_is_its_epsilon() -> None:
    truth = math.exp(1.3) / (1 + math.exp(1.3))
    assert epsilon_of_rates(truth, 1 - truth, 0.0) == pytest.approx(1.3)


@pytest.mark.parametrize("threshold", [-1.0, 0.4, 2.0])
def test_mu_of_rates_of_a_shifted_normal_is_the_shift(threshold: float) -> None:
    assert mu_of_rates(PHI(0.7 - threshold), PHI(-threshold)) == pytest.approx(0.7)
    assert mu_of_rates(PHI(-threshold), PHI(0.7 - threshold)) == 0.0
    assert mu_of_accuracy(PHI(0.35)) == pytest.approx(0.7)


def normal_runs(mu: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((runs, 1)), mu + generator.standard_normal((runs, 1))


@pytest.mark.parametrize("mu", [0.0, 0.2681, 0.9249])
def test_evidence_of_two_thousand_audits_exceeds_the_truth_no_more_often_than_alpha(mu: float) -> None:
    audits = range(2000)
    found = [evidence(*normal_runs(mu, 100, seed), alpha=0.05, delta=1e-5, known=np.ones(1)) for seed in audits]
    wrong = sum(one.mu > mu or one.binomial(1e-5) > gaussian_epsilon(mu, 1e-5) for one in found)
    assert wrong <= 0.05 * len(audits)


def test_evidence_of_a_learned_score_that_is_not_normal_exceeds_the_truth_no_more_often_than_alpha() -> None:
    # A function of a normal number is no less private: still 0.9249-GDP, though heavy-tailed and with useless entries.
    wrong = 0
    for seed in range(300):
        first, second = normal_runs(0.9249, 160, seed)
        useless = np.random.default_rng(10_000 + seed).standard_cauchy((2, 160, 3))
        runs = [np.hstack([np.sinh(one), extra]) for one, extra in zip((first, second), useless, strict=True)]
        found = evidence(*runs, alpha=0.05, delta=1e-5)
        wrong += found.mu > 0.9249 or found.binomial(1e-5) > gaussian_epsilon(0.9249, 1e-5)
    assert wrong <= 0.05 * 300


def test_evidence_of_many_runs_comes_close_to_the_truth() -> None:
    found = evidence(*normal_runs(0.2681, 40_000, 1), alpha=0.05, delta=1e-5, known=np.ones(1))
    assert 1 / 2.5 <= found.gaussian(1e-5) <= 1.0


def test_evidence_of_too_few_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 8 runs of each neighbour, got 7; raise runs"):
        evidence(*normal_runs(1.0, 7, 1), alpha=0.05, delta=1e-5)


def beside_noise(mu: float, runs: int, *, signal: int) -> list[np.ndarray]:
    """Runs of two numbers, of which only one differs between the neighbours."""
    pairs = zip(normal_runs(mu, runs, 1), normal_runs(0.0, runs, 2), strict=True)
    return [np.hstack([one, noise] if signal == 0 else [noise, one]) for one, noise in pairs]


def test_evidence_of_a_known_score_tests_three_quarters_of_the_runs_and_prefers_it_to_a_lucky_direction() -> None:
    first, second = beside_noise(0.5, 80, signal=0)
    known = evidence(first, second, alpha=0.05, delta=1e-5, known=np.array([1.0, 0.0]))
    assert known == evidence(first[:, :1], second[:, :1], alpha=0.05, delta=1e-5, known=np.ones(1))
    assert known.tested == 60
    assert evidence(first, second, alpha=0.05, delta=1e-5).tested == 40


def test_evidence_of_a_known_score_that_misses_what_is_there_goes_by_the_learned_one() -> None:
    first, second = beside_noise(4.0, 400, signal=1)
    assert evidence(first, second, alpha=0.05, delta=1e-5, known=np.array([1.0, 0.0])).binomial(1e-5) > 2.0


def test_best_threshold_is_the_one_of_all_candidates_with_the_largest_bound() -> None:
    low, high = (one[:, 0] for one in normal_runs(2.0, 100, 3))
    chosen = best_threshold(low, high, alpha=0.05, delta=1e-5)

    def proven(threshold: float) -> float:
        return Evidence(100, int((high > threshold).sum()), int((low > threshold).sum()), 0, 0.05).binomial(1e-5)

    assert all(proven(chosen) >= proven(other) for other in np.linspace(-3, 5, 30))


def test_evidence_of_runs_without_noise_is_as_much_as_their_number_allows() -> None:
    found = evidence(np.zeros((400, 1)), np.ones((400, 1)), alpha=0.05, delta=1e-5)
    assert (found.true_positives, found.false_positives, found.right) == (200, 0, 400)
    assert found.binomial(0.0) == pytest.approx(math.log(found.tpr_low / found.fpr_high))
    assert found.tpr_low == pytest.approx(0.0125 ** (1 / 200))


def test_evidence_of_neighbours_that_differ_in_spread_alone_is_found_without_a_known_score() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((200, 20)), 5 * generator.standard_normal((200, 20))
    assert evidence(first, second, alpha=0.05, delta=1e-5).binomial(1e-5) > 2.0
    assert evidence(first, -first[::-1], alpha=0.05, delta=1e-5).binomial(1e-5) < 1.0


def test_evidence_of_equal_runs_proves_nothing() -> None:
    found = Evidence(tested=100, true_positives=50, false_positives=50, right=100, alpha=0.05)
    assert (found.binomial(1e-5), found.mu, found.gaussian(1e-5)) == (0.0, 0.0, 0.0)


def test_direction_of_an_entry_that_never_varies_outweighs_noise() -> None:
    noise = np.random.default_rng(0).standard_normal((50, 2))
    first, second = noise.copy(), noise[::-1].copy()
    first[:, 0], second[:, 0] = 1.0, 2.0
    weights = direction(first, second)
    assert weights[0] > 1e6 * abs(weights[1])


def test_one_run_p_value_without_privacy_loss_is_the_tail_of_fair_coins() -> None:
    assert one_run_p_value(40, 20, 15, 0.0, 0.0) == pytest.approx(stats.binom(20, 0.5).sf(14))
    assert one_run_p_value(40, 20, 15, 0.0, 1e-3) > one_run_p_value(40, 20, 15, 0.0, 0.0)


def test_one_run_epsilon_of_guesses_that_are_all_right_is_the_closed_form() -> None:
    p = 0.05 ** (1 / 100)
    assert one_run_epsilon(200, 100, 100, alpha=0.05, delta=0.0) == pytest.approx(math.log(p / (1 - p)), rel=1e-6)
    assert one_run_epsilon(200, 100, 50, alpha=0.05, delta=0.0) == 0.0
    with pytest.raises(ValueError, match="expected right <= guesses <= canaries"):
        one_run_epsilon(10, 20, 5, alpha=0.05, delta=0.0)
