"""Mean parity: the quadratic dual against a closed form and a general optimiser."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

from justitia.postprocessing.mean_parity import solve_mean_parity

Array = NDArray[np.float64]


def population(groups: int, n: int = 40) -> tuple[Array, Array, Array]:
    """m, c and the share of n atoms."""
    rng = np.random.default_rng([0, groups])
    q, share = rng.dirichlet(np.ones(groups), n), rng.uniform(0.5, 2.0, n)
    share /= share.sum()
    return 0.6 * rng.uniform(size=n) + 0.4 * q[:, 0], q / (share @ q), share


def test_two_groups_without_tolerance_have_the_closed_form() -> None:
    m, c, share = population(2)
    b = np.array([0.01, -0.02])
    difference = c[:, 0] - c[:, 1]
    lam = 2 * (share @ (difference * m) + b[0] - b[1]) / (share @ difference**2)
    assert solve_mean_parity(m, c, b, share, 0.0) == pytest.approx([lam, -lam], rel=1e-6)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.08])
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_solution_is_the_one_that_a_general_optimiser_finds(groups: int, tolerance: float) -> None:
    m, c, share = population(groups)
    b = 0.02 * np.random.default_rng(1).standard_normal(groups)
    lam = solve_mean_parity(m, c, b, share, tolerance)
    f = m - c @ lam / 2
    means = (share * f) @ c + b
    assert np.ptp(means) <= tolerance + 1e-6
    pairs = [(a, other) for a in range(groups) for other in range(groups) if a != other]
    limit = LinearConstraint(
        np.array([share * (c[:, a] - c[:, other]) for a, other in pairs]),
        ub=np.array([tolerance - b[a] + b[other] for a, other in pairs]),
    )
    found = minimize(
        lambda one: share @ (one - m) ** 2,
        m,
        jac=lambda one: 2 * share * (one - m),
        constraints=[limit],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success
    assert share @ (f - m) ** 2 == pytest.approx(found.fun, abs=1e-7)


def test_multipliers_are_zero_within_the_tolerance_and_finite_where_features_say_nothing() -> None:
    m, c, share = population(3)
    assert not solve_mean_parity(m, c, np.zeros(3), share, 1.0).any()
    alike = np.ones((40, 3))
    lam = solve_mean_parity(m, alike, np.array([0.1, 0.0, -0.1]), share, 0.0)
    assert np.isfinite(lam).all()
    assert np.abs(lam).max() < 50
