"""Calibration of a base: the identity where nothing is wrong, a mend where labels show that something is."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from justitia.learners.calibration import (
    EDGE,
    Calibration,
    LinearCalibration,
    VectorScaling,
    calibrate,
    calibrate_classes,
    calibrate_numbers,
    calibrate_target,
    identity_calibration,
)
from justitia.tasks import BINARY, NUMBER, Task

Array = NDArray[np.float64]
#: Bins of the calibration error.
BINS = 15


def calibration_error(probability: Array, y: Array, weight: Array) -> float:
    """Expected calibration error: mean distance of probability and label over bins with equally many rows."""
    order = np.argsort(probability, kind="stable")
    share = weight / weight.sum()
    parts = np.array_split(order, BINS)
    return float(sum(abs((share[part] * (y[part] - probability[part])).sum()) for part in parts))


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


# Several classes


def drawn_classes(K: int = 3, n: int = 8000, seed: int = 0) -> tuple[Array, Array]:
    """Probabilities of K classes, and classes drawn by them."""
    rng = np.random.default_rng(seed)
    p: Array = softmax(1.5 * rng.normal(size=(n, K)), axis=1)
    return p, (rng.uniform(size=(n, 1)) > p.cumsum(1)[:, : K - 1]).sum(1).astype(float)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("K", [3, 6, 20])
def test_calibrated_probabilities_of_classes_are_left_as_they_are(K: int, seed: int) -> None:
    p, y = drawn_classes(K, 3000, seed)
    found = calibrate_classes(p, y, np.ones(len(y)))
    assert found == VectorScaling.identity(K)
    assert found.is_identity
    assert found.describe() == "none needed"
    clipped = np.maximum(p, EDGE)
    assert found(p) == pytest.approx(clipped / clipped.sum(1, keepdims=True))


@pytest.mark.parametrize(
    ("scale", "shift"),
    [((3.0, 3.0, 3.0), (0.0, 0.0, 0.0)), ((1.0, 1.0, 1.0), (1.0, 0.0, -0.5)), ((0.4, 1.0, 0.7), (0.3, 0.0, 0.0))],
    ids=["too sure", "shifted", "mixed"],
)
def test_wrong_probabilities_of_classes_are_mended(scale: tuple[float, ...], shift: tuple[float, ...]) -> None:
    p, y = drawn_classes()
    wrong = softmax(np.log(p) * scale + shift, axis=1)
    mend = calibrate_classes(wrong, y, np.ones(len(y)))
    assert not mend.is_identity
    assert np.abs(wrong - p).mean() > 0.05
    assert np.abs(mend(wrong) - p).mean() < 0.02
    assert mend(wrong).sum(1) == pytest.approx(np.ones(len(y)))


def test_vector_scaling_is_the_fit_of_least_log_loss() -> None:
    """Of data in K columns without bounds that bind, vector scaling is a multinomial regression with a diagonal."""
    p, y = drawn_classes()
    wrong = softmax(2 * np.log(p) + [0.5, 0.0, -0.5], axis=1)
    found = calibrate_classes(wrong, y, np.ones(len(y)))

    def loss(scale: Array, shift: Array) -> float:
        q = softmax(np.log(wrong) * scale + shift, axis=1)
        return float(-np.log(q[np.arange(len(y)), y.astype(int)]).mean())

    scale, shift = np.array(found.scale), np.array(found.shift)
    assert shift.sum() == pytest.approx(0.0, abs=1e-9)
    for k in range(3):
        for step in (-0.02, 0.02):
            nudge = step * np.eye(3)[k]
            assert min(loss(scale + nudge, shift), loss(scale, shift + nudge)) > loss(scale, shift)


def test_classes_of_weight_zero_rows_do_not_count() -> None:
    p, y = drawn_classes()
    weight = np.where(np.arange(len(y)) < 4000, 1.0, 0.0)
    spoiled = np.where(weight > 0, y, 2 - y)
    assert calibrate_classes(p, spoiled, weight).is_identity
    assert not calibrate_classes(p, spoiled, np.ones(len(y))).is_identity


def test_certain_probabilities_of_classes_stay_a_little_uncertain() -> None:
    y = (np.arange(300) % 3).astype(float)
    certain = np.eye(3)[y.astype(int)]
    found = calibrate_classes(certain, y, np.ones(300))(certain)
    assert found.min() >= EDGE / (1 + 3 * EDGE)
    assert np.array_equal(found.argmax(1), y)
    assert found.sum(1) == pytest.approx(np.ones(300))


# Numbers


@pytest.mark.parametrize("seed", range(5))
def test_numbers_without_a_bias_are_left_as_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = rng.normal(size=2000)
    found = calibrate_numbers(m, m + rng.normal(size=2000), np.ones(2000))
    assert found == LinearCalibration()
    assert np.array_equal(found(m), m)
    assert found.describe() == "none needed"


def test_numbers_off_a_line_are_mended_by_least_squares() -> None:
    rng = np.random.default_rng(0)
    m, weight = rng.normal(size=2000), rng.uniform(size=2000)
    y = 3 + 2 * m + rng.normal(size=2000)
    found = calibrate_numbers(m, y, weight)
    slope, intercept = np.polyfit(m, y, 1, w=np.sqrt(weight))
    assert (found.intercept, found.slope) == pytest.approx((intercept, slope))
    assert found(np.array([0.0, 1.0])) == pytest.approx([intercept, intercept + slope])
    assert found.describe() == f"line with {intercept:.4g} + {slope:.4g} m(x)"


def test_numbers_that_rank_the_wrong_way_round_become_the_mean() -> None:
    rng = np.random.default_rng(0)
    m = rng.normal(size=500)
    found = calibrate_numbers(m, 4 - m, np.ones(500))
    assert found.slope == 0.0
    assert found(m) == pytest.approx(np.full(500, (4 - m).mean()))


def test_constant_predictions_of_numbers_are_shifted_or_left() -> None:
    y = np.arange(100.0)
    assert calibrate_numbers(np.full(100, 49.5), y, np.ones(100)).is_identity
    for constant in (0.0, 0.1, -7.3):
        found = calibrate_numbers(np.full(100, constant), y, np.ones(100))
        assert (found.intercept, found.slope) == (pytest.approx(49.5 - constant), 1.0)
    assert calibrate_numbers(y, y, np.ones(100)).is_identity


def test_calibration_is_of_the_kind_of_the_task() -> None:
    classes = Task.of_classes("abc")
    kinds = {BINARY: Calibration(), classes: VectorScaling.identity(3), NUMBER: LinearCalibration()}
    for task, expected in kinds.items():
        assert identity_calibration(task) == expected
        assert expected.is_identity
    p, y = drawn()
    assert calibrate_target(squashed(p), y, np.ones(len(y)), BINARY) == calibrate(squashed(p), y, np.ones(len(y)))
    assert isinstance(calibrate_target(*drawn_classes(), np.ones(8000), classes), VectorScaling)
    assert isinstance(calibrate_target(p, y, np.ones(len(y)), NUMBER), LinearCalibration)
