"""The deployed model of a number: a base model, and a correction of its predictions as functions of x."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import AnyCalibration
from justitia.postprocessing.correction import Correction
from justitia.postprocessing.number_notions import NumberNotion

Array = NDArray[np.float64]
#: Scaled predictions of the base model stay this far from both ends of the range.
EDGE = 1e-4


class NumberRule:
    """Predictions of a base model, corrected.

    Parameters
    ----------
    base : Base
    calibration : AnyCalibration
        Of the base.
    notion : NumberNotion
        How predictions follow from m and the corrections.
    corrections : tuple of Correction
        The R combinations of memberships as functions of x; none where the base is within the tolerance.
    bounds : (float, float)
        Public range of the target.
    """

    def __init__(
        self,
        base: Base,
        calibration: AnyCalibration,
        notion: NumberNotion,
        corrections: tuple[Correction, ...],
        bounds: tuple[float, float],
    ) -> None:
        self.base, self.calibration, self.notion = base, calibration, notion
        self.corrections, self.bounds = corrections, bounds

    def base_prediction(self, inputs: Inputs) -> Array:
        """(m,): E[y | x] by the base model, in units of the target and within its public range."""
        return self.unscaled(self.scaled_base(inputs))

    def scaled_base(self, inputs: Inputs) -> Array:
        """(m,): the same, between 0 and 1."""
        return scale(self.calibration(self.base.predict(inputs)), self.bounds)

    def predict(self, inputs: Inputs) -> Array:
        """(m,): corrected predictions in units of the target."""
        return self.unscaled(self.corrected(inputs.numbers, self.scaled_base(inputs)))

    def corrected(self, numbers: NDArray[np.float32], m: Array) -> Array:
        """(m,): corrected predictions between 0 and 1, of rows with these features and scaled base predictions."""
        if not self.corrections:
            return m
        return self.notion.predict(m, np.stack([one(numbers, m) for one in self.corrections]))

    def unscaled(self, values: Array) -> Array:
        """(m,): from the unit interval to the public range."""
        low, high = self.bounds
        return low + (high - low) * values


def scale(values: Array, bounds: tuple[float, float]) -> Array:
    """(m,): from the public range to the unit interval, a little away from its ends."""
    low, high = bounds
    scaled: Array = np.clip((np.asarray(values, dtype=np.float64) - low) / (high - low), EDGE, 1 - EDGE)
    return scaled
