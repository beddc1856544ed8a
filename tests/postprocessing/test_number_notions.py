"""Notions for numbers: exactness of equal errors, the distribution of the target, and bounds of checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from justitia.postprocessing.number_notions import (
    NUMBER_NOTIONS,
    EqualDistributions,
    EqualErrors,
    EqualMeans,
    Posteriors,
)
from justitia.postprocessing.target_distribution import TargetDistribution

Array = NDArray[np.float64]


def population(groups: int, n: int = 40) -> tuple[EqualErrors, Posteriors]:
    """Rows of a target with two values, and memberships that depend on it."""
    rng = np.random.default_rng([0, groups])
    m, share = rng.uniform(0.2, 0.8, n), rng.uniform(0.5, 2.0, n)
    share /= share.sum()
    means = np.array([0.1, 0.9])
    target = TargetDistribution(np.array([0.5]), means, means**2 + 0.001, np.array([]), np.zeros((1, 401)))
    high = (m - 0.1) / 0.8  # so that the mean is m
    q = rng.dirichlet(0.7 * np.ones(groups), (2, n))
    return EqualErrors(target), Posteriors(m, q * np.stack([1 - high, high])[:, :, None], share)


def linear_program(notion: EqualErrors, given: Posteriors, b: Array, tolerance: float) -> float:
    """Smallest squared distance to m of predictions on a grid, such that errors differ by at most the tolerance."""
    grid, (_, n, groups) = notion.grid(given.m), given.joint.shape
    errors = np.einsum("yna,yl->anl", given.joint, notion.table(grid).values[:, :, 0]) / given.sizes[:, None, None]
    rows, limits = [], []
    for a in range(groups):
        for other in range(groups):
            rows.append((given.share[:, None] * (errors[a] - errors[other])).ravel())
            limits.append(tolerance - b[0, a] + b[0, other])
    loss = given.share[:, None] * (given.m[:, None] - grid) ** 2
    found: Any = linprog(
        loss.ravel(),
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=np.kron(np.eye(n), np.ones(len(grid))),
        b_eq=np.ones(n),
        bounds=(0, 1),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
@pytest.mark.parametrize("groups", [2, 3, 4, 5])
def test_multipliers_of_errors_are_those_of_the_linear_program(groups: int, tolerance: float) -> None:
    notion, given = population(groups)
    b = 0.002 * np.random.default_rng(1).standard_normal((1, groups))
    lam = notion.solve(given, b, tolerance, None)
    grid = notion.grid(given.m)
    errors = np.einsum("yna,yl->nla", given.joint, notion.table(grid).values[:, :, 0]) / given.sizes
    lagrangian = ((given.m[:, None] - grid) ** 2 + errors @ lam[0]).min(1)
    dual = given.share @ lagrangian + float((lam * b).sum()) - tolerance / 2 * np.abs(lam).sum()
    assert dual == pytest.approx(linear_program(notion, given, b, tolerance), abs=2e-4)
    assert np.abs(lam).max() > 0


@pytest.mark.parametrize("groups", [2, 4])
def test_prediction_of_errors_is_the_best_of_a_fine_grid(groups: int) -> None:
    notion, given = population(groups)
    lam = 2.0 * np.random.default_rng(2).standard_normal((1, groups))
    lam -= lam.mean()
    read = notion.mix(lam) @ notion.columns(given.joint, given.sizes).T
    grid = np.linspace(0, 1, 2001)
    errors = np.einsum("yna,yl->nla", given.joint, notion.table(grid).values[:, :, 0]) / given.sizes
    best = grid[((given.m[:, None] - grid) ** 2 + errors @ lam[0]).argmin(1)]
    assert notion.predict(given.m, read) == pytest.approx(best, abs=1e-3)
    assert (1 + read[0] < 0).any()  # parabolas that open upwards are among them


def test_estimated_errors_are_those_of_the_table() -> None:
    notion, given = population(3)
    errors = np.einsum("yna,y->na", given.joint, notion.table(np.array([0.3])).values[:, 0, 0]) / given.sizes
    found = notion.estimated(given, np.full(len(given.m), 0.3))
    assert found[0] == pytest.approx(given.share @ errors)


def test_distribution_of_the_target_follows_residuals_around_m() -> None:
    rng = np.random.default_rng(0)
    m = rng.uniform(0.3, 0.7, 20_000)
    y = m + rng.uniform(-0.1, 0.1, 20_000)
    found = TargetDistribution.fit(m, y, np.full(20_000, 1 / 20_000))
    p = found.probabilities(m)
    assert p.shape == (20_000, 8)
    assert p.sum(1) == pytest.approx(np.ones(20_000))
    assert (p >= 0).all()
    exact = np.clip((found.edges[3] - 0.5 + 0.1) / 0.2, 0, 1)  # a uniform residual
    assert found.probabilities(np.array([0.5]))[0, :4].sum() == pytest.approx(exact, abs=0.02)
    assert p @ found.means == pytest.approx(m, abs=0.08)


def test_distribution_of_a_target_with_few_values_has_as_many_bins() -> None:
    y = np.repeat([0.0, 0.5, 1.0], 50)
    found = TargetDistribution.fit(np.full(150, 0.5), y, np.full(150, 1 / 150))
    assert found.means == pytest.approx([0.0, 0.5, 1.0])
    assert found.probabilities(np.array([0.5]))[0] == pytest.approx([1 / 3] * 3, abs=0.01)


def test_bounds_of_checks_are_the_longest_rows_that_occur() -> None:
    levels = EqualDistributions(np.array([0.3, 0.6]))
    f = np.array([0.1, 0.4, 0.4, 0.9])
    values = levels.values(f, f)
    assert values.tolist() == [[0, 0], [1, 0], [1, 0], [1, 1]]
    means, weights = values.mean(0), np.bincount(levels.cells(values), minlength=levels.n_cells)
    rows = (values - means) @ levels.factor.inverse.T
    assert levels.longest_row(weights, means) == pytest.approx(np.linalg.norm(rows, axis=1).max())
    mean = EqualMeans()
    values = mean.values(f, f)
    weights = np.bincount(mean.cells(values), minlength=mean.n_cells)
    longest = np.abs(values - values.mean()).max()
    assert longest <= mean.longest_row(weights, values.mean(0)) <= longest + 1 / mean.n_cells


def test_errors_are_cut_off_in_checks_alone() -> None:
    notion = EqualErrors(most=0.04)
    y, f = np.array([0.0, 1.0]), np.array([0.1, 0.2])
    assert notion.values(y, f)[:, 0] == pytest.approx([0.01, 0.04])
    assert notion.uncut(y, f)[:, 0] == pytest.approx([0.01, 0.64])


def test_every_notion_says_its_name_and_unit() -> None:
    assert {name: one.power for name, one in NUMBER_NOTIONS.items()} == {
        "demographic_parity": 0,
        "mean_parity": 1,
        "equal_error": 2,
    }
