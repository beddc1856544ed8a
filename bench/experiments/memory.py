"""What the cells of one process share: models that do not depend on notion, budget or noise are learned once per fold.

The numbers are the same as without; only the seconds of a cell are then those of what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rivals.boosted import BoostedTrees, Kind
from justitia.learners.base import Base, Inputs
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.tasks import BINARY, Task

_known: dict[Hashable, Any] = {}


def remembered(key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make`` returned when this key was first asked for in this process."""
    if key not in _known:
        _known[key] = make()
    return _known[key]


class SharedBase(Base):
    """The default base of some rows.

    Parameters
    ----------
    rows : hashable
        Tells the rows, and the public seed, from all others of the process.
    task : Task
        The target; by default binary.
    """

    def __init__(self, rows: Hashable, task: Task = BINARY) -> None:
        self._rows, self.task = rows, task
        self._base: Any = None

    def learn(
        self,
        inputs: Inputs,
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
        *,
        seed: int,
        progress: Callable[[int], object],
    ) -> NDArray[np.float64]:
        """Out-of-fold predictions of the default base."""

        def learned() -> tuple[Any, NDArray[np.float64]]:
            base = LightGBMBase(len(y), self.task)
            return base, base.learn(inputs, y, weight, seed=seed, progress=progress)

        self._base, found = remembered(("base", self._rows), learned)
        return np.array(found)

    def predict(self, inputs: Inputs) -> NDArray[np.float64]:
        """As the default base."""
        found: NDArray[np.float64] = self._base.predict(inputs)
        return found

    def describe(self) -> str:
        """As the default base."""
        return str(self._base.describe())

    def __repr__(self) -> str:
        return "the default base, learned once per fold"


class SharedTrees:
    """The trees of some rows that rivals for classes and numbers start from.

    Parameters
    ----------
    kind : {"classes", "number"}
    rows : hashable
        Tells the rows, and the public seed, from all others of the process.
    """

    def __init__(self, kind: Kind, rows: Hashable) -> None:
        self._kind: Kind = kind
        self._rows = rows
        self._trees: Any = None

    def learn(self, numbers: Any, target: Any, *, seed: int) -> Any:
        """Out-of-fold scores."""

        def learned() -> tuple[Any, Any]:
            trees = BoostedTrees(self._kind)
            return trees, trees.learn(numbers, target, seed=seed)

        self._trees, found = remembered(("trees", self._kind, self._rows), learned)
        return np.array(found)

    def __call__(self, numbers: Any) -> Any:
        """Scores of new rows."""
        return self._trees(numbers)

    def unfitted(self, n: int) -> Any:
        """As the trees."""
        return self._trees.unfitted(n)

    def __repr__(self) -> str:
        return f"trees for {self._kind}, learned once per fold"
