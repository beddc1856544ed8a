"""Population means, centred rows, multipliers and weights: written numbers, brute force, derivatives."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from justitia.notions import EqualizedOdds
from justitia.training.lagrangian import (
    Problem,
    ascend,
    ascend_as_published,
    centred_rows,
    group_weights,
    largest_gap,
    population_means,
    population_weights,
    row_bound,
    usable_sizes,
)

Array = NDArray[Any]

# Four rows, two events: rows 0, 1 in the first; rows 1, 2, 3 in the second, row 3 with weight 2.
EVENTS = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 2.0]])
H = np.array([0.2, 0.6, 0.0, 0.9])


def test_population_means_two_events_give_written_numbers() -> None:
    means = population_means(H, EVENTS)
    assert means.tolist() == pytest.approx([0.4, (0.6 + 0.0 + 1.8) / 4])
    assert means.dtype == np.float64


def test_population_means_event_without_rows_is_zero() -> None:
    assert population_means(H, np.zeros((4, 1))).tolist() == [0.0]


def test_centred_rows_sum_over_a_group_is_size_times_violation() -> None:
    group = np.array([0, 1, 1, 0])
    mu_p = population_means(H, EVENTS)
    for a in (0, 1):
        inside = (group == a).astype(np.float32)[:, None] * EVENTS
        sizes = inside.sum(0)
        mu_g = (inside * H[:, None]).sum(0) / sizes
        asked = centred_rows(H, EVENTS)[group == a].sum(0)
        assert asked.tolist() == pytest.approx((sizes * (mu_g - mu_p)).tolist(), abs=1e-6)


def test_centred_rows_all_rows_add_up_to_nothing() -> None:
    assert centred_rows(H, EVENTS).sum(0).tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_row_bound_ignores_rows_that_are_not_finite() -> None:
    rows = np.array([[3.0, 4.0], [float("nan"), 1.0], [float("inf"), 0.0]])
    assert row_bound(rows) == 5.0
    assert row_bound(np.empty((0, 2))) == 0.0


def test_usable_sizes_near_zero_are_lifted_by_twice_the_noise() -> None:
    noisy = np.array([[-4.0, 7.0], [100.0, 0.2]], dtype=np.float64)
    assert usable_sizes(noisy, 3.0).tolist() == [[6.0, 7.0], [100.0, 6.0]]
    assert usable_sizes(noisy, 0.0).tolist() == [[1.0, 7.0], [100.0, 1.0]]


def test_problem_events_carry_the_weights_of_rows() -> None:
    y = np.array([0.0, 1.0, 1.0])
    problem = Problem(np.zeros((3, 1)), y, np.array([0.5, 1.0, 1.5]), EqualizedOdds())
    assert problem.events.tolist() == [[0.5, 0.0], [0.0, 1.0], [0.0, 1.5]]
    assert problem.event_sizes.tolist() == [0.5, 2.5]
    assert len(problem) == 3


# --- dual step


def proximal_by_search(lam: float, gap: float, step: float, tolerance: float, limit: float) -> float:
    """Maximise l * gap - tolerance |l| - (l - lam)^2 / (2 step) over |l| <= limit on a fine grid."""
    grid = np.linspace(-limit, limit, 80001)
    value = grid * gap - tolerance * np.abs(grid) - (grid - lam) ** 2 / (2 * step)
    return float(grid[np.argmax(value)])


@pytest.mark.parametrize("lam", [-1.5, -0.02, 0.0, 0.3, 1.9])
@pytest.mark.parametrize("gap", [-0.4, -0.05, 0.0, 0.06, 0.8])
@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_ascend_any_multiplier_is_the_proximal_step_found_by_search(lam: float, gap: float, tolerance: float) -> None:
    ours = ascend(np.array([[lam]]), np.array([[gap]]), step=0.5, tolerance=tolerance, limit=2.0)
    assert ours.item() == pytest.approx(proximal_by_search(lam, gap, 0.5, tolerance, 2.0), abs=5e-5)


def test_ascend_tolerance_zero_is_plain_signed_ascent() -> None:
    lam, gap = np.array([[0.5, -0.25]]), np.array([[-0.1, 0.2]])
    assert ascend(lam, gap, step=2.0, tolerance=0.0, limit=5.0).tolist() == [pytest.approx([0.3, 0.15])]


def test_ascend_gap_within_the_tolerance_leaves_zero_at_zero() -> None:
    gap = np.array([[0.04, -0.05]], dtype=np.float64)
    assert ascend(np.zeros((1, 2)), gap, step=0.25, tolerance=0.05, limit=5.0).tolist() == [[0.0, 0.0]]


def test_ascend_beyond_the_limit_stops_there() -> None:
    lam = np.array([[0.9, -0.9]])
    assert ascend(lam, np.array([[1.0, -1.0]]), step=1.0, tolerance=0.0, limit=1.0).tolist() == [[1.0, -1.0]]
    assert ascend(lam, np.array([[1.0, 1.0]]), step=1.0, tolerance=0.0, limit=0.0).tolist() == [[0.0, 0.0]]


def test_ascend_as_published_negative_noise_stays_at_zero_and_large_stops_at_the_limit() -> None:
    lam = np.array([0.1, 0.1, 4.9])
    assert ascend_as_published(lam, np.array([-1.0, 0.2, 1.0]), step=0.5, limit=5.0).tolist() == pytest.approx(
        [0.0, 0.2, 5.0]
    )


# --- primal weights


def lagrangian(theta: Array, X: Array, group: Array, lam: Array) -> Any:
    """Sum of lambda_ak (mu(D_G_ak) - mu(D_P_k)), with exact sizes."""
    h, total = 1 / (1 + np.exp(-X @ theta)), 0.0
    for a in range(lam.shape[0]):
        for k in range(lam.shape[1]):
            population, inside = EVENTS[:, k], EVENTS[:, k] * (group == a)
            mu_g = (inside * h).sum() / inside.sum() if inside.sum() > 0 else 0.0
            total = total + lam[a, k] * (mu_g - (population * h).sum() / population.sum())
    return total


def lagrangian_gradient(theta: Array, X: Array, group: Array, lam: Array) -> Array:
    """Its gradient, exact to rounding: the imaginary part of a tiny imaginary step."""
    steps = 1e-30j * np.eye(len(theta))
    return np.array([lagrangian(theta + step, X, group, lam).imag / 1e-30 for step in steps])


def test_group_and_population_weights_exact_sizes_give_the_gradient_of_the_lagrangian() -> None:
    X = np.array([[1.0, -0.5], [0.3, 0.8], [-1.2, 0.4], [0.7, 0.1]], dtype=np.float64)
    theta, group = np.array([0.6, -0.9], dtype=np.float64), np.array([0, 1, 1, 0])
    lam = np.array([[0.7, -1.1], [-0.2, 0.5]], dtype=np.float64)
    sizes = np.stack([(EVENTS * (group == a)[:, None]).sum(0) for a in (0, 1)])
    omega = group_weights(lam, sizes, EVENTS)
    h = expit(X @ theta)
    rows = (h * (1 - h))[:, None] * X
    by_weights = (omega[np.arange(4), group] - population_weights(lam, EVENTS)) @ rows
    assert by_weights.tolist() == pytest.approx(lagrangian_gradient(theta, X, group, lam).tolist(), abs=1e-12)


def test_group_weights_two_groups_give_written_numbers_and_zero_for_not_given() -> None:
    lam = np.array([[1.0, 0.0], [0.0, -3.0]], dtype=np.float64)
    sizes = np.array([[4.0, 9.0], [9.0, 6.0]], dtype=np.float64)
    expected = [[0.25, 0.0, 0.0], [0.25, -0.5, 0.0], [0.0, -0.5, 0.0], [0.0, -1.0, 0.0]]
    assert group_weights(lam, sizes, EVENTS).tolist() == expected


def test_population_weights_event_without_rows_adds_nothing() -> None:
    events = np.concatenate([EVENTS, np.zeros((4, 1))], axis=1)
    lam = np.array([[1.0, 0.0, 5.0], [0.0, -3.0, 5.0]], dtype=np.float64)
    assert population_weights(lam, events).tolist() == [0.5, -0.25, -0.75, -1.5]


def test_largest_gap_is_the_widest_event() -> None:
    assert largest_gap(np.array([[0.1, -0.2], [0.0, 0.3], [-0.1, 0.0]])) == pytest.approx(0.5)
