"""Maximum-entropy memberships: one smooth convex problem, checked against its own conditions and another solver."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

import justitia.postprocessing.memberships as module
from justitia.postprocessing.memberships import (
    PRECISION,
    RIDGE_PER_ROW,
    _Objective,
    _whitening,
    fit_memberships,
    memberships,
)

Array = NDArray[Any]
N, D, C = 90, 4, 3


@pytest.fixture
def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve to rounding error, so that answers can be compared digit by digit."""
    monkeypatch.setattr(module, "PRECISION", 1e-10)
    monkeypatch.setattr(module, "MAX_ITERATIONS", 2000)


def make_rows(n: int = N, d: int = D, *, seed: int = 0) -> Array:
    """(n, d) rows of length at most 1, the first column a constant."""
    rows = np.random.default_rng(seed).standard_normal((n, d))
    rows[:, 0] = 1.0
    return rows / np.linalg.norm(rows, axis=1).max()


def make_codes(rows: Array, categories: int = C, *, seed: int = 1) -> Array:
    """Everybody's category, which leans on the second and third column."""
    generator = np.random.default_rng(seed)
    lean = 3 * rows[:, 1:2] * np.arange(categories) + 2 * rows[:, 2:3]
    gumbel = -np.log(-np.log(generator.random((len(rows), categories))))
    return (lean + gumbel).argmax(1)


def sums_over(codes: Array, rows: Array, categories: int = C) -> Array:
    return np.stack([rows[codes == a].sum(0) for a in range(categories)])


def noised(sums: Array, spread: float, *, seed: int = 2) -> Array:
    """Sums with noise that leaves their total as it was, as the vault's answers are."""
    noise = spread * np.random.default_rng(seed).standard_normal(sums.shape)
    return sums + noise - noise.mean(0)


def objective(W: Array, rows: Array, sums: Array, ridge: Array) -> float:
    """F as the module's docstring states it."""
    return float(logsumexp(rows @ W.T, axis=1).sum() - (W * sums).sum() + 0.5 * (ridge * W**2).sum())


def effective(ridge: Array, n: int) -> Array:
    """The ridge of the problem that is solved: never less than what keeps it well-posed."""
    return ridge.astype(np.float64) + RIDGE_PER_ROW * n


@pytest.mark.parametrize("where", ["zero", "anywhere"])
def test_objective_is_the_stated_function_and_its_slope_equals_finite_differences(where: str) -> None:
    rows, ridge = make_rows(), np.array([0.3, 0.1, 2.0, 0.0], dtype=np.float64)
    sums = noised(sums_over(make_codes(rows), rows), 1.0)
    factor = _whitening(rows, ridge)
    inverse = np.linalg.inv(factor)
    tested = _Objective([inverse @ part.T for part in (rows[:40], rows[40:80], rows[80:])], inverse, sums, ridge)
    V = np.zeros((C, D))
    if where == "anywhere":
        V = np.random.default_rng(3).standard_normal((C, D))
    flat = V.flatten()
    value, slope = tested(flat)
    assert value == pytest.approx(objective(V @ inverse, rows, sums, ridge), rel=1e-12)
    steps = 1e-5 * np.eye(flat.size)
    differences = [(tested(flat + step)[0] - tested(flat - step)[0]) / 2e-5 for step in steps]
    assert slope.tolist() == pytest.approx(differences, abs=1e-6)


def test_slope_equals_the_derivative_written_out() -> None:
    rows, ridge = make_rows(), np.full(D, 0.2)
    sums = noised(sums_over(make_codes(rows), rows), 1.0)
    inverse = np.linalg.inv(_whitening(rows, ridge))
    V = np.random.default_rng(3).standard_normal((C, D))
    W = V @ inverse
    expected = (memberships(W, rows).T @ rows - sums + ridge * W) @ inverse.T
    tested = _Objective([inverse @ part.T for part in (rows[:40], rows[40:80], rows[80:])], inverse, sums, ridge)
    _, slope = tested(V.flatten())
    assert slope.tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-10)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
@pytest.mark.usefixtures("exactly")
def test_fitted_sums_agree_with_the_given_ones_up_to_the_pull_of_the_ridge(spread: float) -> None:
    rows, ridge = make_rows(), np.array([0.1, 1.0, 5.0, 0.5], dtype=np.float64)
    sums = noised(sums_over(make_codes(rows), rows), spread)
    W = fit_memberships(rows, sums, ridge=ridge)
    q = memberships(W, rows)
    assert np.allclose(q.T @ rows, sums - effective(ridge, N) * W, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_fit_stops_where_the_slope_in_whitened_coordinates_is_below_the_stated_precision(
    spread: float, dtype: Any
) -> None:
    rows, ridge = make_rows(400), np.full(D, 0.05 * spread**2)
    sums = noised(sums_over(make_codes(rows), rows), spread)
    W = fit_memberships(rows.astype(dtype), sums, ridge=ridge)
    rho = effective(ridge, 400)
    inverse = np.linalg.inv(_whitening(rows, rho))
    slope = (memberships(W, rows).T @ rows - sums + rho * W) @ inverse.T
    assert float(np.abs(slope).max()) <= 1.05 * PRECISION  # 5% for rows in single precision


@pytest.mark.usefixtures("exactly")
def test_fit_on_sums_over_true_labels_equals_logistic_regression() -> None:
    rows, rho = make_rows(), 0.7
    codes = make_codes(rows)
    W = fit_memberships(rows, sums_over(codes, rows), ridge=np.full(D, rho - RIDGE_PER_ROW * N))
    reference = LogisticRegression(C=1 / rho, fit_intercept=False, tol=1e-10, max_iter=10_000)
    reference.fit(rows, codes)
    assert np.allclose(memberships(W, rows), reference.predict_proba(rows), atol=1e-6)
    assert np.allclose(W, reference.coef_, atol=1e-5)


@pytest.mark.usefixtures("exactly")
def test_fit_of_two_categories_on_one_column_by_hand() -> None:
    # By symmetry W = (w, -w), and w minimises sum_i log(2 cosh(w x_i)) - w (S_0 - S_1) + rho w^2.
    x, rho = np.array([1.0, 0.5, -0.25, -1.0]), 0.2
    difference = 1.1
    total = float(x.sum())
    sums = np.array([[(total + difference) / 2], [(total - difference) / 2]], dtype=np.float64)
    found = minimize_scalar(
        lambda w: float(np.logaddexp(w * x, -w * x).sum() - w * difference + rho * w**2), options={"xtol": 1e-12}
    )
    W = fit_memberships(x[:, None], sums, ridge=np.array([rho - 4 * RIDGE_PER_ROW]))
    assert W.flatten().tolist() == pytest.approx([found.x, -found.x], abs=1e-6)
    q = memberships(W, x[:, None])
    assert q[:, 0].tolist() == pytest.approx((1 / (1 + np.exp(-2 * found.x * x))).tolist(), abs=1e-6)


@pytest.mark.usefixtures("exactly")
def test_fit_on_a_constant_alone_gives_everyone_the_shares() -> None:
    rows = np.ones((10, 1))
    W = fit_memberships(rows, np.array([[7.0], [2.0], [1.0]]), ridge=np.zeros(1))
    expected = np.tile([0.7, 0.2, 0.1], (10, 1))
    assert np.allclose(memberships(W, rows), expected, atol=1e-5)  # the least ridge moves the last digits


@pytest.mark.usefixtures("exactly")
def test_fit_from_any_start_gives_the_same_weights() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    expected = fit_memberships(rows, sums, ridge=ridge)
    for seed in range(4):
        start = 5 * np.random.default_rng(seed).standard_normal((C, D))
        assert np.allclose(fit_memberships(rows, sums, ridge=ridge, start=start), expected, atol=1e-6)


def test_fit_from_the_optimum_stays_there() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    optimum = fit_memberships(rows, sums, ridge=ridge)
    again = fit_memberships(rows, sums, ridge=ridge, start=optimum)
    assert np.allclose(again, optimum, atol=1e-12)


@pytest.mark.usefixtures("exactly")
def test_fit_with_a_column_of_zeros_gives_the_same_memberships_and_no_weight_to_it() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    expected = fit_memberships(rows, sums, ridge=ridge)
    wider = np.concatenate([rows, np.zeros((N, 1))], axis=1)
    for rho in (0.0, 1.0):
        W = fit_memberships(wider, np.pad(sums, ((0, 0), (0, 1))), ridge=np.concatenate([ridge, np.array([rho])]))
        assert np.allclose(W[:, :D], expected, atol=1e-6)
        assert np.array_equal(W[:, D], np.zeros(C))


@pytest.mark.usefixtures("exactly")
def test_fit_from_earlier_weights_padded_for_a_new_column_equals_fit_from_nothing() -> None:
    rows, ridge = make_rows(d=5), np.full(5, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    earlier = fit_memberships(rows[:, :4], sums[:, :4], ridge=ridge[:4])
    start = np.pad(earlier, ((0, 0), (0, 1)))
    expected = fit_memberships(rows, sums, ridge=ridge)
    assert np.allclose(fit_memberships(rows, sums, ridge=ridge, start=start), expected, atol=1e-6)


@pytest.mark.usefixtures("exactly")
def test_fit_without_noise_recovers_group_sums_of_every_function_linear_in_the_rows() -> None:
    rows = make_rows(400)
    codes = make_codes(rows)
    W = fit_memberships(rows, sums_over(codes, rows), ridge=np.zeros(D))
    q = memberships(W, rows)
    for seed in range(3):
        f = rows @ np.random.default_rng(seed).standard_normal(D)
        exact = np.stack([f[codes == a].sum() for a in range(C)])
        # The least ridge, 1e-6 per row, is all that stands between them: 1e-6 * 400 * |W|.
        assert np.allclose(q.T @ f, exact, atol=1e-6 * 400 * float(np.abs(W).max()) * 5)
        assert np.allclose(q.T @ f / q.sum(0), exact / np.bincount(codes), atol=1e-4)


@pytest.mark.usefixtures("exactly")
def test_fit_does_not_depend_on_the_order_of_the_rows() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    order = np.random.default_rng(0).permutation(N)
    W, permuted = (fit_memberships(each, sums, ridge=ridge) for each in (rows, rows[order]))
    assert np.allclose(W, permuted, atol=1e-6)
    assert np.allclose(memberships(W, rows)[order], memberships(permuted, rows[order]), atol=1e-6)


@pytest.mark.usefixtures("exactly")
def test_fit_with_categories_in_another_order_gives_their_weights_in_that_order() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    W = fit_memberships(rows, sums, ridge=ridge)
    assert np.allclose(fit_memberships(rows, sums[[2, 0, 1]], ridge=ridge), W[[2, 0, 1]], atol=1e-6)


@pytest.mark.usefixtures("exactly")
def test_fit_of_every_row_twice_with_twice_the_sums_and_ridge_is_the_same_fit() -> None:
    rows, ridge = make_rows(), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    W = fit_memberships(rows, sums, ridge=ridge)
    assert np.allclose(fit_memberships(np.tile(rows, (2, 1)), 2 * sums, ridge=2 * ridge), W, atol=1e-6)


@pytest.mark.usefixtures("exactly")
def test_fit_under_a_growing_ridge_goes_to_equal_memberships() -> None:
    rows = make_rows()
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    distances = []
    for rho in (1e0, 1e2, 1e4, 1e6):
        q = memberships(fit_memberships(rows, sums, ridge=np.full(D, rho)), rows)
        distances.append(float(np.abs(q - 1 / C).max()))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-4


@pytest.mark.parametrize("spread", [1.0, 100.0, 1e5])
def test_memberships_are_probabilities_however_wild_the_sums_are(spread: float) -> None:
    rows = make_rows().astype(np.float32)
    sums = noised(sums_over(make_codes(rows.astype(np.float64)), rows.astype(np.float64)), spread)
    for ridge in (np.zeros(D), np.full(D, 0.05 * spread**2)):
        q = memberships(fit_memberships(rows, sums, ridge=ridge), rows)
        assert q.shape == (N, C)
        assert q.dtype == np.float32
        assert bool((q >= 0).all())
        assert np.allclose(q.sum(1), np.ones(N), atol=1e-5)


def test_fit_on_columns_that_repeat_each_other_is_well_posed_without_a_ridge() -> None:
    rows = make_rows().astype(np.float32)
    doubled = np.concatenate([rows, rows], axis=1)
    sums = sums_over(make_codes(rows.astype(np.float64)), doubled.astype(np.float64))
    W = fit_memberships(doubled, sums, ridge=np.zeros(2 * D))
    assert np.allclose(W[:, :D], W[:, D:], atol=1e-2)  # what they say is divided between them
    assert np.allclose((memberships(W, doubled).T @ rows).astype(np.float64), sums[:, :D], atol=0.05)


def test_fit_of_more_columns_than_rows_is_finite() -> None:
    rows = make_rows(8, 20).astype(np.float32)
    sums = noised(sums_over(make_codes(rows.astype(np.float64), 2), rows.astype(np.float64), 2), 3.0)
    W = fit_memberships(rows, sums, ridge=np.full(20, 0.05 * 9))
    assert bool(np.isfinite(W).all())


def test_fit_in_single_precision_agrees_with_double_precision() -> None:
    rows, ridge = make_rows(2000), np.full(D, 0.5)
    sums = noised(sums_over(make_codes(rows), rows), 3.0)
    one, other = (memberships(fit_memberships(r, sums, ridge=ridge), rows) for r in (rows, rows.astype(np.float32)))
    assert np.allclose(one, other, atol=1e-3)


def test_fit_changes_none_of_its_arguments() -> None:
    rows, ridge, start = make_rows(), np.full(D, 0.5), np.ones((C, D))
    sums = noised(sums_over(make_codes(rows), rows), 2.0)
    before = [each.copy() for each in (rows, sums, ridge, start)]
    fit_memberships(rows, sums, ridge=ridge, start=start)
    assert all(np.array_equal(one, other) for one, other in zip(before, (rows, sums, ridge, start), strict=True))


def test_entropy_of_the_fit_is_the_largest_among_memberships_with_the_same_sums() -> None:
    """Moving along a direction that leaves every sum as it is can only lose entropy."""
    rows = make_rows(30)
    W = fit_memberships(rows, sums_over(make_codes(rows), rows), ridge=np.zeros(D))
    q = memberships(W, rows)
    # Directions u (n,) orthogonal to every column: move u from the first category to the second.
    free = np.linalg.svd(rows.T, full_matrices=True)[2][D:]
    entropy = -(q * np.log(q)).sum()
    for u in free[:10]:
        step = 0.2 * float(q[:, :2].min()) / float(np.abs(u).max())
        for sign in (-1, 1):
            moved = q.copy()
            moved[:, 0] += sign * step * u
            moved[:, 1] -= sign * step * u
            assert np.allclose(moved.T @ rows, q.T @ rows, atol=1e-12)
            assert float(-(moved * np.log(moved)).sum()) < float(entropy) - 1e-12
