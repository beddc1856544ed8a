"""Calibration of a base: the identity where nothing is wrong, a mend where labels show that something is."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit

from justitia.learners.calibration import EDGE, Calibration, calibrate, calibration_error

Array = NDArray[np.float64]


def drawn(n: int = 8000, seed: int = 0) -> tuple[Array, Array]:
    """Probabilities, and labels drawn by them."""
    rng = np.random.default_rng(seed)
    p = expit(1.5 * rng.normal(size=n))
    return p, (rng.uniform(size=n) < p).astype(float)


def squashed(p: Array) -> Array:
    """As a logistic function of a probability gives: between .5 and .73."""
    squeezed: Array = expit(p)
    return squeezed


@pytest.mark.parametrize("seed", range(5))
def test_calibrated_probabilities_are_left_as_they_are(seed: int) -> None:
    p, y = drawn(seed=seed)
    found = calibrate(p, y, np.ones(len(y)))
    assert found == Calibration()
    assert np.array_equal(found(p), np.clip(p, EDGE, 1 - EDGE))


@pytest.mark.parametrize(
    "wrong",
    [squashed, lambda p: expit(3 * logit(p)), lambda p: expit(logit(p) + 1.0), lambda p: expit(0.3 * logit(p))],
    ids=["squashed", "too sure", "shifted", "too shy"],
)
def test_wrong_probabilities_are_mended(wrong: object) -> None:
    p, y = drawn()
    said, weight = wrong(p), np.ones(len(y))  # type: ignore[operator]
    mend = calibrate(said, y, weight)
    assert mend != Calibration()
    assert calibration_error(said, y, weight) > 0.03
    assert calibration_error(mend(said), y, weight) < 0.03
    assert np.abs(mend(said) - p).mean() < 0.03


def test_mend_keeps_the_order_of_rows() -> None:
    p, y = drawn()
    mended = calibrate(squashed(p), y, np.ones(len(y)))(squashed(p))
    order = np.argsort(p)
    assert (np.diff(mended[order]) >= 0).all()


def test_probabilities_that_rank_the_wrong_way_round_become_the_share_of_the_label() -> None:
    """Nothing that keeps the order of rows is better."""
    p, y = drawn()
    assert calibrate(1 - p, y, np.ones(len(y)))(1 - p) == pytest.approx(np.full(len(y), y.mean()), abs=1e-3)


def test_probabilities_that_say_nothing_become_the_share_of_the_label() -> None:
    p, _ = drawn()
    y = (np.random.default_rng(9).uniform(size=len(p)) < 0.3).astype(float)
    assert np.abs(calibrate(p, y, np.ones(len(y)))(p) - 0.3).max() < 0.05


def test_rows_of_weight_zero_do_not_count() -> None:
    p, y = drawn()
    weight = np.where(np.arange(len(y)) < 4000, 1.0, 0.0)
    spoiled = np.where(weight > 0, y, 1 - y)
    assert calibrate(p, spoiled, weight) == Calibration()
    assert calibrate(p, spoiled, np.ones(len(y))) != Calibration()


def test_certain_probabilities_stay_a_little_uncertain_and_separate_labels_do_no_harm() -> None:
    y = (np.arange(200) % 2).astype(float)
    found = calibrate(y, y, np.ones(200))(y)
    assert found.min() >= EDGE
    assert found.max() <= 1 - EDGE
    assert np.array_equal(found > 0.5, y > 0.5)


def test_constant_probabilities_of_the_right_size_are_left_alone() -> None:
    y = (np.arange(300) % 3 == 0).astype(float)
    assert calibrate(np.full(300, 1 / 3), y, np.ones(300)) == Calibration()


def test_calibration_error_is_the_distance_of_probability_and_outcome() -> None:
    y = (np.arange(150) % 2).astype(float)
    assert calibration_error(np.full(150, 0.9), y, np.ones(150)) == pytest.approx(0.4)
    assert calibration_error(np.full(150, 0.5), y, np.ones(150)) == pytest.approx(0.0, abs=0.06)
