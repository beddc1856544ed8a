r"""Whether p(y = 1 | x) means what it says, and what mends it: three numbers learned from public labels.

Beta calibration (Kull, Silva Filho and Flach 2017),
:math:`\mathrm{logit}\, p' = \alpha \log p - \beta \log(1 - p) + \gamma`, is the identity for 1, 1, 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Array = NDArray[np.float64]
#: Probabilities are kept this far from 0 and 1.
EDGE = 1e-4
#: A mend is used if it lowers the mean loss by more than so many of its standard errors.
NOTICED = 3.0
BINS = 15


@dataclass(frozen=True)
class Calibration:
    """The three numbers."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 0.0

    def describe(self) -> str:
        """What was mended, for reports."""
        if self == Calibration():
            return "none needed"
        return f"beta calibration with {self.alpha:.4g}, {self.beta:.4g}, {self.gamma:.4g}"

    def __call__(self, probability: Array) -> Array:
        """(n,): calibrated probabilities, never quite 0 or 1."""
        p = np.clip(probability, EDGE, 1 - EDGE)
        if self == Calibration():
            return p
        mended: Array = np.clip(expit(self.alpha * np.log(p) - self.beta * np.log1p(-p) + self.gamma), EDGE, 1 - EDGE)
        return mended


def calibrate(probability: Array, y: Array, weight: Array) -> Calibration:
    """The mend, if the labels show that one is needed; otherwise none. It never turns the order of rows round."""
    p = np.clip(probability, EDGE, 1 - EDGE)
    columns = np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))])
    share = weight / weight.sum()

    def loss(numbers: Array) -> tuple[float, Array]:
        z = columns @ numbers
        return float(share @ (np.logaddexp(0.0, z) - y * z)), (share * (expit(z) - y)) @ columns

    found = minimize(loss, (1.0, 1.0, 0.0), jac=True, method="L-BFGS-B", bounds=[(0, None), (0, None), (None, None)])
    mend = Calibration(*map(float, found.x))
    gained = weight * (_loss(p, y) - _loss(mend(p), y))
    return mend if gained.mean() > NOTICED * gained.std() / np.sqrt(len(y)) else Calibration()


def calibration_error(probability: Array, y: Array, weight: Array) -> float:
    """Mean distance of probability and outcome over equally filled bins of the probability."""
    order = np.argsort(probability, kind="stable")
    share = weight / weight.sum()
    parts = np.array_split(order, BINS)
    return float(sum(abs((share[part] * (y[part] - probability[part])).sum()) for part in parts))


def _loss(p: Array, y: Array) -> Array:
    loss: Array = -np.log(np.where(y > 0.5, p, 1 - p))
    return loss
