"""Square-root factorisation of prefix sums: its factors, its sensitivity, and the noise after decoding."""

import numpy as np
import pytest

from justitia.postprocessing.prefix_sums import PrefixFactor, even_bounds


@pytest.mark.parametrize("levels", [1, 2, 7, 20])
def test_root_squared_is_the_prefix_sum_and_inverse_undoes_it(levels):
    factor = PrefixFactor(levels)
    np.testing.assert_allclose(factor.root @ factor.root, np.tril(np.ones((levels, levels))), atol=1e-12)
    np.testing.assert_allclose(factor.root @ factor.inverse, np.eye(levels), atol=1e-12)


def test_coefficients_of_four_levels_are_central_binomials_over_powers_of_four():
    np.testing.assert_allclose(PrefixFactor(4).root[:, 0], [1, 1 / 2, 3 / 8, 5 / 16])
    np.testing.assert_allclose(PrefixFactor(4).inverse[:, 0], [1, -1 / 2, -1 / 8, -1 / 16])


def test_one_level_changes_nothing():
    factor = PrefixFactor(1)
    assert factor.factored(np.array([[0.3]])) == factor.decoded(np.array([[0.3]])) == 0.3
    assert factor.noise == factor.noise_covariance == 1


def test_decoded_group_sums_are_the_numbers_of_rows_below_each_level():
    cells = np.array([0, 0, 1, 3, 3, 2, 0])  # of three levels, four cells
    below = (cells[:, None] <= np.arange(3)).astype(float)  # (n, T)
    factor = PrefixFactor(3)
    released = factor.factored(below[:, :, None]).sum(0)
    np.testing.assert_allclose(factor.decoded(released)[:, 0], [3, 4, 5], atol=1e-12)


@pytest.mark.parametrize(
    ("levels", "factored", "direct"), [(20, 1.6279, 2.5511), (100, 2.1792, 5.7592), (19, 1.6095, 2.4850)]
)
def test_noise_at_the_noisiest_level_is_that_of_the_docstring(levels, factored, direct):
    row, noise = even_bounds(levels)
    assert row * noise == pytest.approx(factored, abs=1e-4)
    rate = np.arange(1, levels + 1) / (levels + 1)
    assert np.linalg.norm(rate) == pytest.approx(direct, abs=1e-4)  # an indicator row less its mean


@pytest.mark.parametrize("shares", [np.full(6, 1 / 6), np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])])
def test_one_person_who_changes_the_group_moves_the_sums_by_at_most_the_sensitivity_and_attains_it(shares):
    factor, levels = PrefixFactor(5), 5
    bound = factor.longest_row(shares)
    mean = np.cumsum(shares)[:-1]
    moves = []
    for cell in range(levels + 1):
        row = factor.factored(((cell <= np.arange(levels)) - mean)[:, None])[:, 0]
        before, after = np.zeros((3, levels)), np.zeros((3, levels))
        before[0], after[2] = row, row  # from the first group to the third
        moves.append(np.linalg.norm(after - before))
    assert max(moves) == pytest.approx(np.sqrt(2) * bound, rel=1e-12)


def test_cells_without_rows_do_not_lengthen_the_longest_row():
    shares = np.array([0.0, 0.5, 0.5])
    centred = PrefixFactor(2).root @ (np.eye(3)[:-1] - shares[:-1, None])
    assert PrefixFactor(2).longest_row(shares) == pytest.approx(np.linalg.norm(centred, axis=0)[1:].max())
    assert np.linalg.norm(centred[:, 0]) > PrefixFactor(2).longest_row(shares)


def test_decoded_noise_has_the_covariance_that_is_stated():
    factor = PrefixFactor(6)
    noise = np.random.default_rng(0).standard_normal((200_000, 6, 1))
    decoded = factor.decoded(noise)[..., 0]
    np.testing.assert_allclose(np.cov(decoded.T), factor.noise_covariance, atol=0.02)
    np.testing.assert_allclose(decoded.std(0), factor.noise, rtol=0.01)
