"""A base model that the library does not have, as a user would add it: one class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Base, Inputs

Array = NDArray[np.float64]


class FrequencyTable(Base):
    """How often the label is 1 in each of ten bins of the first feature; training rows are left out of their own."""

    fits = 1

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        self.edges = np.quantile(inputs.numbers[:, 0], np.linspace(0.1, 0.9, 9))
        bins = self._bins(inputs)
        self.positive, self.all = (np.bincount(bins, one, minlength=10) for one in (weight * y, weight))
        progress(1)
        return self._smoothed(self.positive[bins] - weight * y, self.all[bins] - weight)

    def predict(self, inputs: Inputs) -> Array:
        bins = self._bins(inputs)
        return self._smoothed(self.positive[bins], self.all[bins])

    def describe(self) -> str:
        return "frequencies of the label in ten bins of the first feature"

    def _bins(self, inputs: Inputs) -> Any:
        return np.searchsorted(self.edges, inputs.numbers[:, 0])

    @staticmethod
    def _smoothed(positive: Array, rows: Array) -> Array:
        return (positive + 0.5) / (rows + 1)
