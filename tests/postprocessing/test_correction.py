"""What is deployed of multipliers and memberships: a small network that says t(x), for any multipliers."""

import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

import justitia.postprocessing.correction as module
from justitia.postprocessing.correction import MOST_UNITS, UNITS_EACH, Correction, Distillation
from justitia.postprocessing.dual import clip_to_decision_side

Array = NDArray[np.float64]


def rows(n: int = 3000) -> tuple[NDArray[np.float32], Array, Array]:
    """Features, eta and two smooth columns c that they tell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    eta = 1 / (1 + np.exp(-X[:, 0]))
    first = 2 / (1 + np.exp(-X[:, 1] - 0.5 * X[:, 0]))
    return X.astype(np.float32), eta, np.column_stack([first, 2 - first])


LAM = np.array([0.3, -0.3])


@pytest.fixture(scope="module")
def made() -> Distillation:
    return Distillation.of_two_classes(*rows(), LAM, 2 * rows()[1] - 1)


def told(correction: Correction) -> Array:
    numbers, eta, _ = rows()
    return correction(numbers, eta)


def test_correction_of_any_multipliers_is_close_to_theirs(made: Distillation) -> None:
    for lam in (LAM, np.array([-0.8, 0.8]), np.array([0.5, 0.2]), 0.01 * LAM):
        target = rows()[2] @ lam
        error = told(made.correction(lam)) - target
        assert np.sqrt((error**2).mean()) < 0.02 * np.sqrt((target**2).mean())


def test_correction_is_close_for_rows_that_were_not_learned_from() -> None:
    numbers, eta, c = rows()
    found = Distillation.of_two_classes(numbers[:1500], eta[:1500], c[:1500], LAM, 2 * eta[:1500] - 1).correction(LAM)
    target = c[1500:] @ LAM
    error = found(numbers[1500:], eta[1500:]) - target
    assert np.sqrt((error**2).mean()) < 0.03 * target.std()


def test_correction_of_a_sum_of_multipliers_is_the_sum_of_corrections(made: Distillation) -> None:
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    whole = told(made.correction(2 * one - 3 * other))
    assert whole == pytest.approx(2 * told(made.correction(one)) - 3 * told(made.correction(other)), abs=1e-10)


def columns_of_many_groups(groups: int, n: int = 3000) -> tuple[NDArray[np.float32], Array, Array]:
    """Features, eta and one smooth column for each group, that add up to the number of groups."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 6))
    odds = np.exp(X @ (0.5 * rng.normal(size=(6, groups))))
    return X.astype(np.float32), 1 / (1 + np.exp(-X[:, 0])), groups * odds / odds.sum(1, keepdims=True)


def test_multipliers_of_many_groups_have_a_network_of_their_own_that_does_not_grow_with_the_groups() -> None:
    few, most = MOST_UNITS // UNITS_EACH, 50
    for groups, units in ((few, MOST_UNITS), (most, MOST_UNITS)):
        numbers, eta, c = columns_of_many_groups(groups)
        lams = 0.1 * np.random.default_rng(3).normal(size=(2, groups))
        made = Distillation.of_two_classes(numbers, eta, c, lams[0], 2 * eta - 1)
        for lam, found in zip(lams, made.corrections(lams), strict=True):
            assert found.hidden is not None
            assert found.hidden.shape[1] == units
            target = c @ lam
            error = found(numbers, eta) - target
            assert np.sqrt((error**2).mean()) < 0.25 * target.std()


def test_several_multipliers_of_few_groups_have_the_corrections_of_each(made: Distillation) -> None:
    lams = np.array([[0.3, -0.3], [0.1, 0.4]])
    for lam, found in zip(lams, made.corrections(lams), strict=True):
        assert np.array_equal(told(found), told(made.correction(lam)))


def test_correction_equals_its_formula_by_hand() -> None:
    # one feature, one unit: z = (x - 1) / 2 = 0.5, units = tanh(0.5 + 0 + 0 + 0.25), eta = 0.5
    one = Correction(
        np.array([1.0]), np.array([2.0]), np.array([[1.0], [3.0], [5.0], [0.25]]), np.array([[4.0, 2.0], [1.0, -1.0]])
    )
    unit = np.tanh(0.75)
    v, u = 4 * unit + 1, 2 * unit - 1
    assert one(np.array([[2.0]], dtype=np.float32), np.array([0.5])) == pytest.approx([0.5 * u + 0.5 * v])


def test_correction_of_a_far_outlier_is_that_of_the_cut() -> None:
    numbers, eta, c = rows()
    correction = Distillation.of_two_classes(numbers, eta, c, LAM, 2 * eta - 1).correction(LAM)
    far, farther = (np.full((1, 3), value, dtype=np.float32) for value in (50.0, 1e12))
    assert correction(far, np.array([0.5])) == correction(farther, np.array([0.5]))


def test_correction_without_a_network_is_zero_everywhere() -> None:
    assert not told(Correction()).any()
    assert Correction().is_zero


def test_correction_survives_a_pickle(made: Distillation) -> None:
    correction = made.correction(LAM)
    assert np.array_equal(told(pickle.loads(pickle.dumps(correction))), told(correction))


def test_correction_holds_nothing_with_a_row_per_person(made: Distillation) -> None:
    found = vars(made.correction(np.array([0.1, 0.7])))
    assert set(found) == {"centre", "spread", "hidden", "out"}
    assert {part.shape for part in found.values()} == {(3,), (6, module.UNITS), (module.UNITS + 1, 2)}


def test_many_rows_are_learned_from_by_a_public_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, eta, c = rows()
    monkeypatch.setattr(module, "ROWS", 1000)
    thinned = [part[::3] for part in (numbers, eta, c)]
    all_rows, some = (Distillation.of_two_classes(*part, LAM, 2 * part[1] - 1) for part in ((numbers, eta, c), thinned))
    assert np.array_equal(told(all_rows.correction(LAM)), told(some.correction(LAM)))


def test_same_rows_give_the_same_correction(made: Distillation) -> None:
    again = Distillation.of_two_classes(*rows(), LAM, 2 * rows()[1] - 1)
    assert np.array_equal(told(again.correction(LAM)), told(made.correction(LAM)))


def test_score_is_the_gain_where_the_decision_stays_and_beside_the_line_where_it_turns() -> None:
    gain, corrected = np.array([0.5, 0.5, -0.2, -0.2, 0.0]), np.array([0.1, -0.3, -0.9, 0.4, 0.0])
    assert clip_to_decision_side(gain, corrected) == pytest.approx([0.5, -3e-4, -0.2, 4e-4, 0.0])
    assert ((clip_to_decision_side(gain, corrected) > 0) == (corrected > 0)).all()


def test_correction_that_differs_little_from_a_constant_is_learned() -> None:
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal((2000, 3)).astype(np.float32)
    eta = 1 / (1 + np.exp(-numbers[:, 0].astype(np.float64)))
    small = 0.02 * np.tanh(numbers[:, 1].astype(np.float64))
    c, lam = np.column_stack([1 + small, 1 - small]), np.array([-20.0, 20.0])
    found = Distillation.of_two_classes(numbers, eta, c, lam, 2 * eta - 1).correction(lam)(numbers, eta)
    assert np.corrcoef(found, c @ lam)[0, 1] > 0.99


def test_deployed_decisions_with_equalized_odds_are_those_of_the_exact_correction() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 20))
    eta = 1 / (1 + np.exp(-1.5 * X[:, 0] - X[:, 1]))
    q = [1 / (1 + np.exp(-1.5 * X[:, 2] - X[:, 0] - shift)) for shift in (-1.5, -0.5)]  # p(a | x, y) by label
    c = np.column_stack([q[0] * (1 - eta), q[1] * eta, (1 - q[0]) * (1 - eta), (1 - q[1]) * eta]).reshape(-1, 2, 2)
    c = c / c.mean(0)
    c = (c - c.mean(1, keepdims=True)).reshape(-1, 4)
    lam, gain, numbers = np.array([-0.4, 0.5, 0.4, -0.5]), 2 * eta - 1, X.astype(np.float32)
    found = Distillation.of_two_classes(numbers[:2000], eta[:2000], c[:2000], lam, gain[:2000]).correction(lam)
    exact, deployed = gain > c @ lam, gain > found(numbers, eta)
    assert (exact != (gain > 0)).mean() > 0.05  # it corrects something
    assert (exact != deployed).mean() < 0.01
