"""What the rivals share: a ``fit`` that reads X and y, and leaves the estimator as it was if it fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from justitia._validate import check_choice, check_same_length
from justitia.networks.classifier import NetworkClassifier
from justitia.preprocessing.tables import read_target
from justitia.privacy.frames import protects_attribute
from justitia.tabular import unchanged_on_error

Model = TypeVar("Model")


class RivalClassifier(NetworkClassifier):
    """Base of all rivals."""

    def _read(self, X: Any, y: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Features and 0/1 targets of a fit, checked; the two class labels are kept."""
        if self.preprocess is not None:
            check_choice("preprocess", self.preprocess, ("auto",))
        features = self._features(X, reset=True)
        self.classes_, target = read_target(y)
        check_same_length(X=features, y=target)
        return features, target


def all_or_nothing(fit: Callable[..., Model]) -> Callable[..., Model]:
    """Make a ``fit`` that fails leave its estimator as it was, and hand it the attribute closed."""

    @protects_attribute
    @functools.wraps(fit)
    def guarded(self: BaseEstimator, *args: Any, **kwargs: Any) -> Model:
        with unchanged_on_error(self):
            return fit(self, *args, **kwargs)

    return guarded


def as_matrix(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, p): features for methods that know rows and columns only."""
    if features.ndim != 2:
        raise ValueError(f"expected X to have 2 dimensions, got {features.ndim}; pass one row per person.")
    return features.astype(np.float64)
