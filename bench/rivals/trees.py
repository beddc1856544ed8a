"""Boosted trees without a constraint, for classes and numbers; they never read the attribute."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bench.rivals.target_model import Array, ClassesModel, NumberModel


class TreesClassifier(ClassesModel):
    """LightGBM for classes, cross-fitted; ``sensitive_features`` is accepted for comparisons and not read."""

    is_private: ClassVar[bool] = True

    def __init__(self, *, groups: Any = None, base: Any = None, random_state: Any = None) -> None:
        self.groups = groups
        self.base = base
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Learn from features and classes."""
        del sensitive_features
        numbers, target, seed = self._read(X, y)
        self.model_ = self._base()
        self.model_.learn(numbers, target, seed=seed)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): the most likely class."""
        labels: NDArray[Any] = self.classes_[np.argmax(self.model_(self._numbers(X, reset=False)), axis=1)]
        return labels


class TreesRegressor(NumberModel):
    """LightGBM for a number, cross-fitted; ``sensitive_features`` is accepted for comparisons and not read."""

    is_private: ClassVar[bool] = True

    def __init__(self, *, groups: Any = None, base: Any = None, random_state: Any = None) -> None:
        self.groups = groups
        self.base = base
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Learn from features and numbers."""
        del sensitive_features
        numbers, target, seed = self._read(X, y)
        self.model_ = self._base()
        self.model_.learn(numbers, target, seed=seed)
        return self

    def predict(self, X: Any) -> Array:
        """(n,): E[y | x]."""
        return self.model_(self._numbers(X, reset=False))
