"""The upper bound of a largest difference: how far it reaches, and that it still holds."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from justitia.metrics.quantiles import MAX_GROUPS, USED_SHARE, tukey_quantile, upper_bound_quantile

ALONE = float(norm.ppf(0.975))
Array = NDArray[np.float64]


def covariance(spreads: list[float], cross: float = 0.0) -> Array:
    """(1, G, G)."""
    s = np.array(spreads)
    made: Array = np.diag(s**2) * (1 - cross) + cross * np.outer(s, s)
    return made[None]


def repeated(v: float | Array, C: Array) -> tuple[Array, Array]:
    values = np.atleast_1d(np.asarray(v, dtype=float))
    return values, np.broadcast_to(C, (len(values), *C.shape[1:]))


def reach(v: float | Array, C: Array, *, together: float = math.inf) -> Array:
    return upper_bound_quantile(*repeated(v, C), error=0.05, at_most=ALONE, lower_quantile=together)


def test_far_from_zero_two_groups_need_the_one_sided_quantile() -> None:
    assert reach(50.0, covariance([1.0, 1.0]))[0] == pytest.approx(norm.ppf(1 - 0.05 * USED_SHARE), abs=0.05)


def test_reach_grows_with_the_difference_and_is_never_more_than_that_of_one_pair() -> None:
    for spreads in ([1.0, 1.0], [1.0] * 5, [0.1, 0.3, 1.0, 3.0, 0.3]):
        together = tukey_quantile(0.95, len(spreads), 1)
        found = reach(np.linspace(0.0, 30.0, 90), covariance(spreads), together=together)
        assert (np.diff(found) >= -0.02).all()
        assert found.min() >= 0
        assert found.max() <= ALONE


def test_within_noise_more_groups_need_less() -> None:
    few, many = reach(2.0, covariance([1.0] * 2))[0], reach(2.0, covariance([1.0] * 6))[0]
    assert many < few - 0.3


def test_what_the_lower_bound_fails_with_is_not_given_away_twice() -> None:
    C = covariance([1.0] * 3)
    alone = reach(3.0, C)[0]
    shared = reach(3.0, C, together=tukey_quantile(0.95, 3, 1))[0]
    assert shared > alone


def test_unknown_groups_change_nothing() -> None:
    both = covariance([1.0, 1.0, 1.0])
    both[0, 2, :] = both[0, :, 2] = np.nan
    assert reach(3.0, both)[0] == pytest.approx(reach(3.0, covariance([1.0, 1.0]))[0], abs=0.1)


def test_many_groups_keep_the_quantile_of_one_pair() -> None:
    assert reach(1.0, covariance([1.0] * (MAX_GROUPS + 1)))[0] == ALONE
    assert len(reach(np.empty(0), covariance([1.0, 1.0]))) == 0


@pytest.mark.parametrize("spreads", [[1.0] * 5, [0.2, 0.2, 1.0, 1.0, 2.0], [2.0, 0.1, 0.1, 0.1]])
@pytest.mark.parametrize("cross", [0.0, -0.2])
def test_both_bounds_fail_in_at_most_five_of_a_hundred_whatever_the_rates(spreads: list[float], cross: float) -> None:
    """Normal estimates, bounds as in :meth:`NoisyRates.largest_difference`, many arrangements of true rates."""
    rng, groups, times = np.random.default_rng(1), len(spreads), 10_000
    C = covariance(spreads, cross)
    i, j = np.triu_indices(groups, 1)
    s = np.sqrt(C[0, i, i] + C[0, j, j] - 2 * C[0, i, j])
    together = tukey_quantile(0.95, groups, 1)
    values = np.linspace(0.0, 4 + 8 * s.max(), 60)  # z is smooth in v
    z_at = reach(values, C, together=together)
    errors = rng.multivariate_normal(np.zeros(groups), C[0], size=times)
    halfway = np.array([0, 1, *[0.5] * (groups - 2)])
    for shape in (np.arange(groups) == 0, np.arange(groups) % 2, np.linspace(0, 1, groups), halfway, halfway**0.2):
        for scale in (0.1, 0.3, 1.0, 1.5, 2.5, 4.0):
            estimate = errors + scale * shape
            distance = np.abs(estimate[:, i] - estimate[:, j])
            lower, upper = (distance - together * s).max(1), (distance + ALONE * s).max(1)
            for _ in range(8):
                upper = (distance + np.interp(upper, values, z_at)[:, None] * s).max(1)
            missed = np.mean((upper < scale) | (lower > scale))
            assert missed < 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)
