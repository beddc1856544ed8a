"""Theorems 6 and 7: written numbers, convexity, their minimisers, and a simulated mechanism below the bound."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize

from justitia.networks.pf_ld.clipping import dual_error_bound, minimise_error_bound, primal_error_bound

NORMS = [torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, 5.0])]
PRIMAL: dict[str, Any] = {
    "gradient_norms": NORMS,
    "multipliers": torch.tensor([0.5, 2.0]),
    "parameters": 9,
    "sigma_p": 0.1,
    "lambda_max": 2.0,
    "smallest_group": 5,
}


def test_primal_error_bound_two_groups_gives_written_numbers() -> None:
    # Noise 2 * 3 * 0.1 * 2 * C / 4 = 0.3 C. At C = 2: 0.6 + 0.5 * mean(0, 0, 2) + 2 * mean(1, 3).
    assert primal_error_bound(2.0, **PRIMAL) == pytest.approx(0.6 + 0.5 * 2 / 3 + 2 * 2.0)
    # At C = 5 nothing is clipped: noise only.
    assert primal_error_bound(5.0, **PRIMAL) == pytest.approx(1.5)


def test_dual_error_bound_one_group_gives_written_numbers() -> None:
    # sqrt(2) * 0.5 * 3 / 10 + mean(0.5, 0, 0.25): negative values count by their size.
    values = torch.tensor([1.0, 0.5, -0.75])
    bound = dual_error_bound(0.5, values=values, sigma_d=3.0, smallest_group=11)
    assert bound == pytest.approx(math.sqrt(2) * 0.15 + 0.25)


@pytest.mark.parametrize("size", [0, 1])
def test_error_bounds_smallest_group_of_at_most_one_are_infinite(size: int) -> None:
    assert primal_error_bound(1.0, **(PRIMAL | {"smallest_group": size})) == math.inf
    assert dual_error_bound(1.0, values=torch.ones(3), sigma_d=1.0, smallest_group=size) == math.inf


def test_error_bounds_group_without_rows_has_no_bias() -> None:
    empty = PRIMAL | {"gradient_norms": [torch.empty(0), torch.tensor([3.0, 5.0])]}
    assert primal_error_bound(2.0, **empty) == pytest.approx(0.6 + 2 * 2.0)
    assert dual_error_bound(1.0, values=torch.empty(0), sigma_d=1.0, smallest_group=3) == pytest.approx(
        math.sqrt(2) / 2
    )


def test_error_bounds_between_any_two_clipping_values_are_convex() -> None:
    def dual(C_d: float) -> float:
        return dual_error_bound(C_d, values=torch.tensor([0.2, 1.5, -3.0]), sigma_d=1.0, smallest_group=6)

    grid = np.linspace(0.0, 6.0, 25)
    for left, right in zip(grid[:-2], grid[2:], strict=True):
        middle = (left + right) / 2
        assert dual(middle) <= (dual(left) + dual(right)) / 2 + 1e-7
        ends = primal_error_bound(left, **PRIMAL) + primal_error_bound(right, **PRIMAL)
        assert primal_error_bound(middle, **PRIMAL) <= ends / 2 + 1e-6


def weights_of_rows(multipliers: torch.Tensor, norms: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.full((len(n),), float(lam) / len(n)) for lam, n in zip(multipliers, norms, strict=True)])


@pytest.mark.parametrize(
    ("slope", "expected"), [(0.3, 5.0), (1.0, 5.0), (1.1, 4.0), (2.1, 3.0), (2.2, 2.0), (2.4, 1.0)]
)
def test_minimise_error_bound_satisfies_the_printed_condition(slope: float, expected: float) -> None:
    # Weights: 1/6 on the norms 1, 2, 4 and 1 on the norms 3, 5.
    sizes, weights = torch.cat(NORMS), weights_of_rows(torch.tensor([0.5, 2.0]), NORMS)
    best = minimise_error_bound(sizes, weights, slope)
    assert best == expected
    # Printed: the noise's slope equals the weight of all rows with norm >= C_p; on a step function, it is passed there.
    assert float(weights[sizes > best].sum()) <= slope <= float(weights[sizes >= best].sum()) + 1e-6


@pytest.mark.parametrize("slope", [0.05, 0.31, 0.47, 0.9])
def test_minimise_error_bound_random_rows_is_as_low_as_a_numerical_search(slope: float) -> None:
    generator = np.random.default_rng(7)
    sizes, weights = torch.from_numpy(generator.gamma(2.0, size=40)), torch.from_numpy(generator.random(40) / 20)

    def bound(C: float) -> float:
        return slope * C + float((weights * (sizes - C).clamp_min(0.0)).sum())

    searched = optimize.minimize_scalar(bound, bounds=(0.0, 12.0), method="bounded", options={"xatol": 1e-9})
    best = minimise_error_bound(sizes, weights, slope)
    assert bound(best) <= searched.fun + 1e-9
    assert best == pytest.approx(searched.x, abs=1e-4)


def test_minimise_error_bound_noise_dearer_than_all_bias_clips_to_nothing() -> None:
    assert minimise_error_bound(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5]), 1.01) == 0.0
    assert minimise_error_bound(torch.empty(0), torch.empty(0), 1.0) == 0.0


def test_primal_error_bound_simulated_mechanism_stays_below_it() -> None:
    # One group whose mean gradient lies beyond the population's in every direction, so that signs do not change.
    generator = np.random.default_rng(3)
    rows, lam, lambda_max, sigma_p = generator.normal(1.0, 0.5, size=(20, 4)), 0.8, 1.0, 0.7
    norms = np.linalg.norm(rows, axis=1)
    for C_p in (0.5, 1.5, 2.5):
        clipped = rows * np.minimum(1.0, C_p / norms)[:, None]
        noise_std = sigma_p * 2 * C_p * lambda_max / (len(rows) - 1)
        noise = generator.normal(scale=noise_std, size=(4000, 4))
        error = np.linalg.norm(lam * (clipped.mean(0) - rows.mean(0)) + noise, axis=1).mean()
        bound = primal_error_bound(
            C_p,
            gradient_norms=[torch.from_numpy(norms)],
            multipliers=torch.tensor([lam]),
            parameters=4,
            sigma_p=sigma_p,
            lambda_max=lambda_max,
            smallest_group=len(rows),
        )
        assert 0.5 * bound < error < bound


def test_dual_error_bound_simulated_mechanism_stays_below_it() -> None:
    generator = np.random.default_rng(4)
    h, mu_p, sigma_d = generator.exponential(size=30), 0.1, 2.0
    for C_d in (0.3, 1.0, 3.0):
        noise = generator.normal(scale=sigma_d * math.sqrt(2) * C_d / (len(h) - 1), size=20000)
        noised = abs(mu_p - np.minimum(h, C_d).mean()) + noise
        error = np.abs(noised - abs(mu_p - h.mean())).mean()
        bound = dual_error_bound(C_d, values=torch.from_numpy(h), sigma_d=sigma_d, smallest_group=len(h))
        assert 0.5 * bound < error < bound
