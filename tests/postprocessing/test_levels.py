"""Strong demographic parity by levels: the joint dual against a linear program, and predictions between levels."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from justitia.postprocessing.dual import MOST_WORTH, PATIENCE
from justitia.postprocessing.levels import (
    LevelRates,
    interpolated,
    margins,
    passed_levels,
    quantile_levels,
    solve_levels,
    spacing,
)

Array = NDArray[np.float64]
LEVELS = np.array([0.2, 0.3, 0.5, 0.8])


def unnested_share(found: Array, share: Array) -> float:
    """Share of rows that pass a level and not a lower one, by the signs of (T, n) margins."""
    above = found > 0
    return float(share @ (above[1:] & ~above[:-1]).any(0))


def population(groups: int, n: int = 60) -> tuple[Array, Array, Array]:
    """m, c and the share of n atoms; the first group has larger numbers."""
    rng = np.random.default_rng([0, groups])
    q, share = rng.dirichlet(np.ones(groups), n), rng.uniform(0.5, 2.0, n)
    share /= share.sum()
    return 0.6 * rng.uniform(size=n) + 0.4 * q[:, 0], q / (share @ q), share


def linear_program(m: Array, some: LevelRates, levels: Array, tolerance: float) -> tuple[float, Array]:
    """Best value, and (n, T + 1) probabilities of the number of levels that each atom passes."""
    (n, groups), count = some.c.shape, len(levels)
    gains = np.cumsum(spacing(levels) * 2 * (m[:, None] - levels), axis=1)
    gains = np.concatenate([np.zeros((n, 1)), gains], axis=1)
    rows, limits = [], []
    for t in range(count):
        above = np.arange(count + 1) > t
        for a in range(groups):
            for other in range(groups):
                difference = some.share * (some.c[:, a] - some.c[:, other])
                rows.append((difference[:, None] * above).ravel())
                limits.append(tolerance - some.b[t, a] + some.b[t, other])
    found: Any = linprog(
        -(some.share[:, None] * gains).ravel(),
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=np.kron(np.eye(n), np.ones(count + 1)),
        b_eq=np.ones(n),
        bounds=(0, 1),
        method="highs",
    )
    assert found.status == 0
    return -float(found.fun), found.x.reshape(n, count + 1)


def dual_value(m: Array, some: LevelRates, levels: Array, tolerance: float, lam: Array) -> float:
    weights = spacing(levels)
    most = np.cumsum(weights[:, None] * margins(m, levels, lam, some.c), axis=0).max(0).clip(0)
    fixed = (lam * some.b).sum(1) - tolerance / 2 * np.abs(lam).sum(1)
    return float(some.share @ most - weights @ fixed)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("groups", [2, 3, 4, 5])
@pytest.mark.parametrize("shifted", [False, True])
def test_joint_solution_is_the_optimum_of_the_linear_program(groups: int, tolerance: float, shifted: bool) -> None:
    m, c, share = population(groups)
    b = 0.02 * np.random.default_rng(1).standard_normal((len(LEVELS), groups)) * shifted
    some = LevelRates(c, b, share)
    lam = solve_levels(m, LEVELS, some, tolerance)
    best, decisions = linear_program(m, some, LEVELS, tolerance)
    assert dual_value(m, some, LEVELS, tolerance, lam) == pytest.approx(best, abs=2e-4)
    assert lam.sum(1) == pytest.approx(np.zeros(len(LEVELS)), abs=1e-9)
    # atoms that the program does not divide get the same number of levels, but for those on a line
    whole = decisions.max(1) > 1 - 1e-6
    passed = passed_levels(margins(m, LEVELS, lam, c), spacing(LEVELS))
    assert (passed == decisions.argmax(1))[whole].mean() > 0.9


def test_joint_solution_is_the_optimum_where_binary_problems_contradict_each_other() -> None:
    """Checks ask for more of the first group above the second level and less above the first and third ones."""
    m, c, share = population(2)
    b = np.array([[0.06, -0.06], [-0.06, 0.06], [0.06, -0.06], [0.0, 0.0]])
    some = LevelRates(c, b, share)
    apart = [solve_levels(m, LEVELS[t : t + 1], LevelRates(c, b[t : t + 1], share), 0.02) for t in range(len(LEVELS))]
    assert unnested_share(margins(m, LEVELS, np.concatenate(apart), c), share) > 0.05
    lam = solve_levels(m, LEVELS, some, 0.02)
    best, _ = linear_program(m, some, LEVELS, 0.02)
    assert dual_value(m, some, LEVELS, 0.02, lam) == pytest.approx(best, abs=2e-4)


@pytest.mark.parametrize(("groups", "tolerance"), [(2, 0.0), (3, 0.05)])
def test_distributions_of_a_fine_population_differ_by_no_more_than_the_tolerance(groups: int, tolerance: float) -> None:
    m, c, share = population(groups, n=8000)
    levels = quantile_levels(m, share, 9)
    some = LevelRates(c, np.zeros((9, groups)), share)
    lam = solve_levels(m, levels, some, tolerance)
    found = margins(m, levels, lam, c)
    rates = some.rates(passed_levels(found, spacing(levels)))
    assert np.ptp(rates, axis=1).max() <= tolerance + 2e-3
    predictions = interpolated(found, levels, spacing(levels))
    assert len(np.unique(predictions)) > 7000  # not one of ten values


def test_multipliers_are_zero_where_m_itself_meets_the_tolerance_and_warm_starts_agree() -> None:
    m, c, share = population(3)
    some = LevelRates(c, np.zeros((4, 3)), share)
    assert not solve_levels(m, LEVELS, some, 1.0).any()
    cold = solve_levels(m, LEVELS, some, 0.02)
    warm = solve_levels(m, LEVELS, some, 0.02, start=solve_levels(m, LEVELS, some, 0.03))
    values = [dual_value(m, some, LEVELS, 0.02, lam) for lam in (cold, warm)]
    assert values[0] == pytest.approx(values[1], abs=1e-5)


def test_rates_that_no_prediction_has_are_asked_for_with_multipliers_of_a_size() -> None:
    m, c, share = population(2)
    lam = solve_levels(m, LEVELS, LevelRates(c, np.array([[5.0, -5.0]] * 4), share), 0.0)
    assert np.isfinite(lam).all()
    assert MOST_WORTH < np.abs(lam).max() < MOST_WORTH + 11 * PATIENCE


def test_prediction_without_multipliers_is_m() -> None:
    m = np.linspace(0, 1, 101)
    found = margins(m, LEVELS, np.zeros((4, 2)), np.ones((101, 2)))
    assert interpolated(found, LEVELS, spacing(LEVELS)) == pytest.approx(m)
    assert unnested_share(found, np.full(101, 1 / 101)) == 0


def test_prediction_is_above_exactly_the_levels_that_it_passes() -> None:
    found = np.random.default_rng(0).standard_normal((4, 500))
    predictions, passed = interpolated(found, LEVELS, spacing(LEVELS)), passed_levels(found, spacing(LEVELS))
    assert np.array_equal((predictions > LEVELS[:, None]).sum(0), passed)
    assert ((predictions >= 0) & (predictions <= 1)).all()
    assert set(passed) == {0, 1, 2, 3, 4}


def test_prediction_of_crossing_margins_by_hand() -> None:
    """Margins -1, 2, -1 of even levels: F is 0, -1, 1, 0, so two levels are passed, with slopes 1/2 and -1."""
    levels = np.array([0.2, 0.4, 0.6])
    found = np.array([[-1.0], [2.0], [-1.0]])
    assert passed_levels(found, spacing(levels)).tolist() == [2]
    assert interpolated(found, levels, spacing(levels)) == pytest.approx([0.4 + 0.2 * (0.5 / 1.5)])
    assert unnested_share(found, np.ones(1)) == 1


def test_spacing_is_the_trapezoid_of_each_level() -> None:
    assert spacing(np.array([0.0, 1.0, 4.0])) == pytest.approx(np.array([1.0, 2.0, 3.0]) / 2)
    assert spacing(np.array([0.3])) == [1.0]


def test_levels_are_weighted_quantiles_that_are_apart() -> None:
    m = np.linspace(0, 1, 101)
    assert quantile_levels(m, np.ones(101), 3) == pytest.approx([0.25, 0.5, 0.75])
    assert quantile_levels(m, np.where(m < 0.5, 0.0, 1.0), 1) == pytest.approx([0.75])
    assert quantile_levels(np.full(5, 0.4), np.ones(5), 7) == pytest.approx([0.4])


def test_solution_of_many_rows_is_that_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    m, c, share = population(3, n=1000)
    some = LevelRates(c, np.zeros((4, 3)), share)
    whole = solve_levels(m, LEVELS, some, 0.02)
    monkeypatch.setattr("justitia.postprocessing.levels.PART", 200)
    values = [dual_value(m, some, LEVELS, 0.02, lam) for lam in (whole, solve_levels(m, LEVELS, some, 0.02))]
    assert values[0] == pytest.approx(values[1], abs=1e-5)
