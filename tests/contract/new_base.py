"""A base model that the library does not have, as a user would add it: one class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Base, Inputs
from justitia.tasks import BINARY, Task

Array = NDArray[np.float64]


class FrequencyTable(Base):
    """Mean of the target, or share of each class, in ten bins of the first feature; a row is left out of its bin."""

    fits = 1

    def __init__(self, task: Task = BINARY) -> None:
        self.task = task

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        self.edges = np.quantile(inputs.numbers[:, 0], np.linspace(0.1, 0.9, 9))
        bins, w = self._bins(inputs), weight[:, None]
        values = np.eye(self.task.n_classes)[y.astype(int)] if self.task.kind == "classes" else y[:, None]
        self.prior = np.average(values, axis=0, weights=weight)
        member = np.arange(10)[:, None] == bins
        self.totals, self.rows = member @ (w * values), member @ w
        progress(1)
        return self._smoothed(self.totals[bins] - w * values, self.rows[bins] - w)

    def predict(self, inputs: Inputs) -> Array:
        bins = self._bins(inputs)
        return self._smoothed(self.totals[bins], self.rows[bins])

    def describe(self) -> str:
        return "mean of the target in ten bins of the first feature"

    def _bins(self, inputs: Inputs) -> Any:
        return np.searchsorted(self.edges, inputs.numbers[:, 0])

    def _smoothed(self, totals: Array, rows: Array) -> Array:
        mean: Array = (totals + self.prior) / (rows + 1)
        return mean if self.task.kind == "classes" else mean[:, 0]
