r"""Calibration of predictions, used only where public targets show that it is needed.

* Binary: beta calibration (Kull, Silva Filho and Flach, 2017) has three parameters,
  :math:`\mathrm{logit}\, p' = \alpha \log p - \beta \log(1 - p) + \gamma`; 1, 1, 0 is the identity.
* Classes: vector scaling (Guo, Pleiss, Sun and Weinberger, 2017) has a scale and a shift per class,
  :math:`p' = \mathrm{softmax}(s_k \log p_k + b_k)`.
* Numbers: a line, :math:`m' = a + b\, m`.

Scales and slopes are not negative. All parameters are floats or tuples of floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from justitia.tasks import Task

Array = NDArray[np.float64]
#: Probabilities are clipped to [EDGE, 1 - EDGE].
EDGE = 1e-4
#: Calibration is used if it lowers the mean log loss by more than so many standard errors of the difference.
STANDARD_ERRORS = 3.0
#: Standard deviation of constant predictions at most, as a share of the largest.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Calibration:
    """Fitted calibration map; the default is the identity."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing but the clipping."""
        return self == Calibration()

    def describe(self) -> str:
        """One phrase for reports."""
        if self.is_identity:
            return "none needed"
        return f"beta calibration with {self.alpha:.4g}, {self.beta:.4g}, {self.gamma:.4g}"

    def __call__(self, probability: Array) -> Array:
        """(n,): calibrated probabilities, clipped away from 0 and 1."""
        p = np.clip(probability, EDGE, 1 - EDGE)
        if self.is_identity:
            return p
        logit = self.alpha * np.log(p) - self.beta * np.log1p(-p) + self.gamma
        calibrated: Array = np.clip(expit(logit), EDGE, 1 - EDGE)
        return calibrated


@dataclass(frozen=True)
class VectorScaling:
    """Fitted calibration of the probabilities of K classes.

    Attributes
    ----------
    scale, shift : tuple of float (K,)
        Ones and zeros are the identity.
    """

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    @classmethod
    def identity(cls, n_classes: int) -> VectorScaling:
        """Map that changes nothing."""
        return cls((1.0,) * n_classes, (0.0,) * n_classes)

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        return self == VectorScaling.identity(len(self.scale))

    def describe(self) -> str:
        """One phrase for reports."""
        if self.is_identity:
            return "none needed"
        scale, shift = (", ".join(f"{one:.4g}" for one in part) for part in (self.scale, self.shift))
        return f"vector scaling with scales {scale} and shifts {shift}"

    def __call__(self, probability: Array) -> Array:
        """(n, K): calibrated probabilities of the classes, clipped away from 0."""
        p = _clip_classes(probability)
        if self.is_identity:
            return p
        return _clip_classes(softmax(np.log(p) * self.scale + self.shift, axis=1))


def _clip_classes(probability: Array) -> Array:
    clipped = np.maximum(probability, EDGE)
    scaled: Array = clipped / clipped.sum(axis=1, keepdims=True)
    return scaled


@dataclass(frozen=True)
class LinearCalibration:
    """Fitted calibration of predicted numbers; the default is the identity."""

    intercept: float = 0.0
    slope: float = 1.0

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        return self == LinearCalibration()

    def describe(self) -> str:
        """One phrase for reports."""
        return "none needed" if self.is_identity else f"line with {self.intercept:.4g} + {self.slope:.4g} m(x)"

    def __call__(self, mean: Array) -> Array:
        """(n,): calibrated numbers."""
        return mean if self.is_identity else self.intercept + self.slope * mean


#: Calibration of any task: a function of predictions with ``is_identity`` and ``describe``.
AnyCalibration = Calibration | VectorScaling | LinearCalibration


def calibrate(probability: Array, y: Array, weight: Array) -> Calibration:
    """Fit the calibration map; return the identity if the labels do not show that the map is better.

    ``alpha`` and ``beta`` are not negative, so calibration never reverses the order of rows.
    """
    p = np.clip(probability, EDGE, 1 - EDGE)
    columns = np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))])
    share = weight / weight.sum()

    def loss(parameters: Array) -> tuple[float, Array]:
        z = columns @ parameters
        return float(share @ (np.logaddexp(0.0, z) - y * z)), (share * (expit(z) - y)) @ columns

    found = minimize(loss, (1.0, 1.0, 0.0), jac=True, method="L-BFGS-B", bounds=[(0, None), (0, None), (None, None)])
    fitted = Calibration(*map(float, found.x))
    before, after = -np.log(np.where(y > 0.5, [p, fitted(p)], [1 - p, 1 - fitted(p)]))
    return fitted if _is_lower(before, after, weight) else Calibration()


def calibrate_classes(probability: Array, y: Array, weight: Array) -> VectorScaling:
    """Fit vector scaling to (n, K) probabilities and codes of classes; the identity if it is not clearly better."""
    n, K = probability.shape
    codes, share, identity = y.astype(int), weight / weight.sum(), VectorScaling.identity(K)
    logs = np.log(identity(probability))
    is_class = np.arange(K) == codes[:, None]

    def loss(parameters: Array) -> tuple[float, Array]:
        scores = log_softmax(parameters[:K] * logs + parameters[K:], axis=1)
        slope = share[:, None] * (np.exp(scores) - is_class)
        return float(-share @ scores[is_class]), np.concatenate([(slope * logs).sum(0), slope.sum(0)])

    start = np.concatenate([np.ones(K), np.zeros(K)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * K + [(None, None)] * K).x
    # Shifts count up to a common constant.
    fitted = VectorScaling(tuple(found[:K].tolist()), tuple((found[K:] - found[K:].mean()).tolist()))
    before, after = (-np.log(one(probability)[is_class]) for one in (identity, fitted))
    # Each fitted parameter lowers the mean loss on these rows by 1 / (2n) and raises it by as much on new rows (Akaike,
    # 1974). Without this term, 2K - 1 parameters would pass the test by chance once K is large.
    return fitted if _is_lower(before, after, weight, optimism=(2 * K - 1) / n) else identity


def calibrate_numbers(mean: Array, y: Array, weight: Array) -> LinearCalibration:
    """Fit a line by least squares to predictions and numbers; the identity if it is not clearly better."""
    share = weight / weight.sum()
    centre, target = share @ mean, share @ y
    variance, covariance = share @ (mean - centre) ** 2, share @ ((mean - centre) * (y - target))
    # Predictions that differ by rounding alone have no slope.
    is_constant = variance <= (ROUNDING * np.abs(mean).max()) ** 2
    slope = 1.0 if is_constant else max(float(covariance / variance), 0.0)
    fitted = LinearCalibration(float(target - slope * centre), slope)
    before, after = (y - mean) ** 2, (y - fitted(mean)) ** 2
    return fitted if _is_lower(before, after, weight) else LinearCalibration()


def calibrate_target(prediction: Array, y: Array, weight: Array, task: Task) -> AnyCalibration:
    """Fit the calibration of a task; the identity if the targets do not show that it is needed."""
    if task.kind == "classes":
        return calibrate_classes(prediction, y, weight)
    return (calibrate_numbers if task.kind == "number" else calibrate)(prediction, y, weight)


def identity_calibration(task: Task) -> AnyCalibration:
    """Calibration of a task that changes nothing, except that it clips probabilities."""
    if task.kind == "classes":
        return VectorScaling.identity(task.n_classes)
    return LinearCalibration() if task.kind == "number" else Calibration()


def _is_lower(before: Array, after: Array, weight: Array, *, optimism: float = 0.0) -> bool:
    """Whether the mean loss after is lower by more than STANDARD_ERRORS of the difference, and by ``optimism``."""
    improvement = weight * (before - after)
    return bool(improvement.mean() - optimism > STANDARD_ERRORS * improvement.std() / np.sqrt(len(improvement)))
