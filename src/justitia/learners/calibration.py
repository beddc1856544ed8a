r"""Beta calibration of predicted probabilities, used only where public labels show that it is needed.

The calibration map of Kull, Silva Filho and Flach (2017) has three parameters,
:math:`\mathrm{logit}\, p' = \alpha \log p - \beta \log(1 - p) + \gamma`; 1, 1, 0 is the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Array = NDArray[np.float64]
#: Probabilities are clipped to [EDGE, 1 - EDGE].
EDGE = 1e-4
#: Calibration is used if it lowers the mean log loss by more than so many standard errors of the difference.
STANDARD_ERRORS = 3.0
#: Bins of the calibration error.
BINS = 15


@dataclass(frozen=True)
class Calibration:
    """Fitted calibration map; the default is the identity."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 0.0

    def describe(self) -> str:
        """One phrase for reports."""
        if self == Calibration():
            return "none needed"
        return f"beta calibration with {self.alpha:.4g}, {self.beta:.4g}, {self.gamma:.4g}"

    def __call__(self, probability: Array) -> Array:
        """(n,): calibrated probabilities, clipped away from 0 and 1."""
        p = np.clip(probability, EDGE, 1 - EDGE)
        if self == Calibration():
            return p
        logit = self.alpha * np.log(p) - self.beta * np.log1p(-p) + self.gamma
        calibrated: Array = np.clip(expit(logit), EDGE, 1 - EDGE)
        return calibrated


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
    improvement = weight * (before - after)
    worth_it = improvement.mean() > STANDARD_ERRORS * improvement.std() / np.sqrt(len(y))
    return fitted if worth_it else Calibration()


def calibration_error(probability: Array, y: Array, weight: Array) -> float:
    """Expected calibration error: mean distance of probability and label over bins with equally many rows."""
    order = np.argsort(probability, kind="stable")
    share = weight / weight.sum()
    parts = np.array_split(order, BINS)
    return float(sum(abs((share[part] * (y[part] - probability[part])).sum()) for part in parts))
