"""Bounds of noisy rates: limits that are known in closed form, and coverage on reduced simulations."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.stats import binom, norm

from bench.experiments.measure import RATES, SIZES, Population, answers, coverage
from justitia.metrics.bounds import NoisyRates
from justitia.metrics.exact import wilson_interval
from justitia.metrics.quantiles import normal_quantile, sidak_quantile, tukey_quantile
from justitia.metrics.rates import METRICS, best_correlations, make_rows, notion_rates
from justitia.notions import NOTIONS

Z = normal_quantile(0.95)


def noisy(
    counts: Any, sums: Any, *, variance: float = 0.0, population: float | None = None, overall: float | None = None
) -> NoisyRates:
    """One rate with independent noise of count and sum."""
    n, s = (np.asarray(one, dtype=float)[:, None] for one in (counts, sums))
    spread = np.full((1, 1), variance)
    total = np.full((1, 1), n.sum() if population is None else population)
    mean = np.full((1, 1), s.sum() / n.sum() if overall is None else overall)
    return NoisyRates(n, s, spread, 0 * spread, spread, -1 / len(n), total, mean)


def test_rate_without_noise_has_wilsons_interval() -> None:
    counts, sums = np.array([30.0, 500.0, 40.0]), np.array([0.0, 120.0, 39.0])
    lower, upper = noisy(counts, sums).interval(Z)
    assert_allclose(np.c_[lower, upper].T, wilson_interval(sums / counts, counts, 0.95), atol=1e-12)


def test_rate_without_sampling_error_has_fiellers_interval() -> None:
    # So much noise beside so many people that n p (1 - p) is nothing: |s - p n| <= z sd sqrt(1 + p^2) at both ends.
    n, s, sd = 1e12, 3e11, 1e10
    lower, upper = noisy([n, n], [s, s], variance=sd**2).interval(Z)
    for end in (lower[0, 0], upper[0, 0]):
        assert abs(s - end * n) == pytest.approx(Z * sd * math.sqrt(1 + end**2), rel=1e-4)


def test_rate_with_a_sum_outside_its_range_has_a_nonempty_interval_at_the_edge() -> None:
    lower, upper = noisy([100, 100], [-60, 190], variance=4.0).interval(Z)
    assert (lower[0, 0], upper[1, 0]) == (0.0, 1.0)
    assert 0 < upper[0, 0] < 0.2
    assert 0.8 < lower[1, 0] < 1


@pytest.mark.parametrize("count", [0.0, -50.0, 29.0])
def test_group_whose_count_may_be_noise_has_no_rate_and_every_value_is_possible(count: float) -> None:
    found = noisy([count, 5000], [10, 1500], variance=100.0)  # three standard deviations are 30
    assert found.enough[:, 0].tolist() == [False, True]
    assert np.isnan(found.rates[0, 0])
    lower, upper = found.interval(Z)
    assert (lower[0, 0], upper[0, 0]) == (0.0, 1.0)
    assert [float(one) for one in found.largest_difference("between_groups", 0.95)[1:]] == [0.0, 1.0]
    assert np.isnan(found.largest_difference("between_groups", 0.95)[0])


def test_difference_of_large_samples_has_the_normal_interval() -> None:
    n = np.array([40_000.0, 10_000.0])
    p = np.array([0.3, 0.5])
    value, low, high = noisy(n, n * p, variance=90_000.0).differences(Z)
    noise = 90_000 * (1 + p**2) / n**2
    cross = -0.5 * 90_000 * (1 + p[0] * p[1]) / n.prod()
    sd = math.sqrt((p * (1 - p) / n + noise).sum() - 2 * cross)
    assert value[0, 0] == pytest.approx(-0.2)
    assert (high - low)[0, 0] / 2 == pytest.approx(Z * sd, rel=0.01)


def test_gap_of_two_groups_is_the_other_share_of_their_difference() -> None:
    n = np.array([30_000.0, 10_000.0])
    found = noisy(n, n * np.array([0.3, 0.5]))
    gap, low, high = found.gaps(Z)
    assert gap[:, 0].tolist() == pytest.approx([-0.05, 0.15])
    value, pair_low, pair_high = found.differences(Z)
    share = np.sqrt(0.75 * 0.25 / 40_000) * 0.2 * Z  # the share itself is estimated, too
    half = np.hypot((pair_high - pair_low)[0, 0] / 2 * np.array([0.25, 0.75]), share)
    assert_allclose((high - low)[:, 0] / 2, half, rtol=0.01)
    assert value[0, 0] == pytest.approx(-0.2)


def test_gap_of_a_group_that_is_nearly_everybody_is_bounded_by_what_is_left() -> None:
    gap, low, high = noisy([9_990, 5], [3_000, 2], variance=25.0, population=10_000.0, overall=0.3).gaps(Z)
    assert low[0, 0] <= gap[0, 0] <= high[0, 0]
    assert max(-low[0, 0], high[0, 0]) < 0.01


def test_quantiles_of_one_pair_and_of_several_are_tukeys() -> None:
    assert tukey_quantile(0.95, 2, 1) == pytest.approx(1.95996, abs=1e-4)
    assert tukey_quantile(0.95, 5, 1) == pytest.approx(3.858 / math.sqrt(2), abs=1e-3)  # printed tables
    assert sidak_quantile(0.95, 2) == pytest.approx(2.2365, abs=1e-3)


def test_largest_lies_between_its_bounds_and_ignores_unknown_groups() -> None:
    found = noisy([400, 400, 2], [100, 200, 2], variance=100.0, population=800.0, overall=0.375)
    value, lower, upper = (float(one) for one in found.largest_difference("between_groups", 0.95))
    assert value == pytest.approx(0.25)
    assert lower < value < upper
    assert upper == pytest.approx(
        float(noisy([400, 400], [100, 200], variance=100.0).differences(Z)[1][0, 0] * -1), 0.2
    )


def five_groups(noise: float = 100.0) -> NoisyRates:
    """Five groups whose rates differ by little more than noise: there the largest of ten differences leans upward."""
    sums = np.array([270.0, 300.0, 310.0, 290.0, 330.0])
    return noisy(np.full(5, 1000.0), sums, variance=noise, population=5000.0, overall=sums.sum() / 5000)


def test_largest_difference_has_its_upper_bound_drawn_nearer_and_its_lower_one_left() -> None:
    found = five_groups()
    value, lower, upper = (float(one) for one in found.largest_difference("between_groups", 0.95))
    _, low, high = found.differences(Z)
    _, low_all, high_all = found.differences(tukey_quantile(0.95, 5, 1))
    assert value == pytest.approx(0.06)
    assert lower == max(0.0, low_all.max(), -high_all.min())
    assert value < upper < 0.95 * max(np.abs(low).max(), np.abs(high).max())


def test_largest_gap_to_the_overall_rate_keeps_the_bounds_of_its_gaps() -> None:
    found = five_groups()
    value, lower, upper = (float(one) for one in found.largest_difference("to_overall", 0.95))
    gap, low, high = found.gaps(Z)
    _, low_all, high_all = found.gaps(sidak_quantile(0.95, 5))
    assert value == np.abs(gap).max()
    assert lower == max(0.0, low_all.max(), -high_all.min())
    assert upper == max(np.abs(low).max(), np.abs(high).max())


@pytest.mark.parametrize("compared", ["between_groups", "to_overall"])
def test_largest_beyond_noise_has_the_lower_bound_of_all_pairs_at_once(compared: str) -> None:
    counts, sums = np.full(3, 4000.0), np.array([800.0, 2000.0, 2200.0])
    found = noisy(counts, sums, variance=400.0)
    _, lower, _ = (float(one) for one in found.largest_difference(compared, 0.95))
    together = {"between_groups": tukey_quantile(0.95, 3, 1), "to_overall": sidak_quantile(0.95, 3)}[compared]
    _, low, high = found.differences(together) if compared == "between_groups" else found.gaps(together)
    assert lower == max(low.max(), -high.min())
    assert lower > 0.15


# --- rows


def variances(C: NDArray[np.float64], *combinations: NDArray[np.float64]) -> list[float]:
    return [float(c @ np.linalg.solve(C, c)) for c in combinations]


@pytest.mark.parametrize("p", [0.5, 0.25, 0.1, 0.9])
def test_best_rows_of_two_cells_are_the_closed_form(p: float) -> None:
    gap, count = np.array([1 - p, -p]), np.ones(2)
    W = np.outer(gap, gap) + np.outer(count, count) / 36
    s, w = np.trace(W), W[0, 1]
    assert best_correlations(W)[0, 1] == pytest.approx(2 * w / (s + math.sqrt(s * s - 4 * w * w)), abs=1e-5)


def test_best_rows_of_an_even_rate_have_two_thirds_of_the_variance_of_counts() -> None:
    gap, count = np.array([0.5, -0.5]), np.ones(2)
    C = best_correlations(np.outer(gap, gap) + np.outer(count, count) / 36)
    assert variances(C, gap, count) == pytest.approx([1 / 3, 4.0], rel=1e-4)
    assert variances(np.eye(2), gap, count) == pytest.approx([1 / 2, 2.0])


def test_rows_for_several_notions_beat_a_part_of_the_budget_for_each() -> None:
    totals = np.array([6000.0, 500.0, 900.0, 1600.0])
    names = ("selection_rate", "true_positive_rate", "false_positive_rate", "zero_one_loss")
    together = make_rows([METRICS[name] for name in names], totals)
    found = together.read(np.zeros((2, 4)), 1.0)
    p = found.overall[0]
    shared = (found.var_sum - 2 * p * found.cov + p**2 * found.var_count)[0]
    parts = [("selection_rate",), ("true_positive_rate", "false_positive_rate"), ("zero_one_loss",)]
    alone = []
    for part in parts:  # a third of mu^2 is three times the variance
        one = make_rows([METRICS[name] for name in part], totals).read(np.zeros((2, 2 * len(part))), 3.0)
        alone += (one.var_sum - 2 * one.overall * one.cov + one.overall**2 * one.var_count)[0].tolist()
    assert (shared < 0.75 * np.array(alone)).all()


@pytest.mark.parametrize("names", [["selection_rate"], ["true_positive_rate"], list(METRICS)])
def test_rows_are_unit_vectors_and_exact_answers_are_read_as_exact_rates(names: list[str]) -> None:
    rng = np.random.default_rng(0)
    people = rng.integers(1, 50, size=(3, 4)).astype(float)
    rates = [METRICS[name] for name in names]
    rows = make_rows(rates, people.sum(0))
    assert_allclose(np.linalg.norm(rows.vectors, axis=1), 1.0, atol=1e-12)
    cells = people @ (rows.cell[:, None] == np.arange(len(rows.vectors))).astype(float)
    found = rows.read(cells @ rows.vectors, 1.0)
    member, value = np.array([one.member for one in rates]), np.array([one.value for one in rates])
    assert_allclose(found.counts, people @ member.T, atol=1e-7)
    assert_allclose(found.sums, people @ value.T, atol=1e-7)


def test_cells_that_nobody_is_in_are_not_asked_for() -> None:
    rows = make_rows([METRICS["selection_rate"]], np.array([40.0, 0.0, 20.0, 0.0]))
    assert rows.cell.tolist() == [0, -1, 0, -1]
    assert rows.read(np.array([[25.0], [35.0]]), 1.0).rates.tolist() == [[0.0], [0.0]]


def test_rates_of_the_notions_bear_their_usual_names() -> None:
    found = {name: [rate.name for rate in notion_rates(kind())] for name, kind in NOTIONS.items()}
    assert found == {
        "demographic_parity": ["selection_rate"],
        "equalized_odds": ["false_positive_rate", "true_positive_rate"],
        "equal_opportunity": ["true_positive_rate"],
        "predictive_equality": ["false_positive_rate"],
        "accuracy_parity": ["zero_one_loss"],
    }


# --- coverage

TIMES = 300
#: Fewer hits than this happen once in 10,000 times if the coverage is 0.95.
FEWEST = binom.ppf(1e-4, TIMES, 0.95) / TIMES

GRID = [
    (2, "30", "equal", 5.0),
    (2, "300", "unequal", 0.5),
    (2, "3000", "unequal", 0.1),
    (2, "mixed", "equal", 1.0),
    (5, "300", "equal", 0.5),
    (5, "3000", "unequal", 0.5),
    (5, "30000", "equal", 0.1),
    (5, "mixed", "unequal", 1.0),
]


def population(groups: int, sizes: str, rates: str) -> Population:
    return Population(np.array(SIZES[sizes][groups]), np.array(RATES[rates][groups]))


@pytest.mark.parametrize(("groups", "sizes", "rates", "epsilon"), GRID)
def test_bounds_of_95_percent_hold_the_truth_in_95_percent_of_simulations(
    groups: int, sizes: str, rates: str, epsilon: float
) -> None:
    found = coverage(population(groups, sizes, rates), epsilon, TIMES, seed=1)
    for name in ("violation_always", "differences", "largest_gap", "rates"):
        assert found[name] >= FEWEST, name


@pytest.mark.parametrize(
    ("groups", "sizes", "rates"), [(2, "300", "equal"), (5, "3000", "equal"), (2, "3000", "unequal")]
)
def test_bounds_of_95_percent_are_not_those_of_99(groups: int, sizes: str, rates: str) -> None:
    found = coverage(population(groups, sizes, rates), 0.5, 2 * TIMES, seed=2)
    most = binom.ppf(1 - 1e-4, 2 * TIMES, 0.96) / (2 * TIMES)
    assert found["differences"] <= most
    assert found["rates"] <= most


def test_coverage_of_bounds_that_forget_the_noise_or_the_sample_is_seen_to_fail() -> None:
    rng = np.random.default_rng(3)
    people = population(2, "300", "equal")
    ((_, honest),) = answers(people.draw(TIMES, rng), 0.1, rng)
    for forgetful in (
        NoisyRates(
            honest.counts,
            honest.sums,
            *(0 * one for one in (honest.var_sum,) * 3),
            -0.5,
            honest.population,
            honest.overall,
        ),
        NoisyRates(
            honest.counts * 1e4,
            honest.sums * 1e4,
            honest.var_sum,
            honest.cov,
            honest.var_count,
            -0.5,
            honest.population,
            honest.overall,
        ),
    ):
        _, low, high = forgetful.differences(Z)
        assert np.nanmean((low <= 0) & (high >= 0)) < FEWEST - 0.1


def test_upper_bound_needs_no_correction_for_the_number_of_pairs_in_the_normal_limit() -> None:
    """Normal estimates of five rates, every arrangement of them: upper and lower bound fail in at most 5% together."""
    rng = np.random.default_rng(4)
    first, second = np.triu_indices(5, 1)
    c = tukey_quantile(0.95, 5, 1) * math.sqrt(2)
    z = norm.ppf(0.975) * math.sqrt(2)
    errors = rng.standard_normal((20_000, 5))
    for shape in ([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0.5, 0.5, 0.5, 1], [0, 0.25, 0.5, 0.75, 1]):
        for scale in (0.0, 1.0, 2.5, 3.0, 4.0, 8.0):
            estimate = np.abs(
                (errors + scale * np.array(shape))[:, first] - (errors + scale * np.array(shape))[:, second]
            )
            missed = (estimate.max(1) + z < scale) | (estimate.max(1) - c > scale)
            assert missed.mean() < 0.055
