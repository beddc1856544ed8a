"""Base classes of estimators on tables: features in; scores, probabilities, labels or numbers out.

The attribute is not an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.tables import read_numbers
from justitia.privacy.frames import features_only


class TabularEstimator(BaseEstimator):
    """Base of estimators with a ``preprocess`` parameter."""

    preprocess: str | None

    def _features(self, X: Any, *, reset: bool) -> NDArray[np.float32]:
        """Public features as numbers, through the default preprocessing unless it is off."""
        if self.preprocess is None:
            if reset:
                self.__dict__.pop("encoder_", None)  # of an earlier fit
            return read_numbers(self, X, reset=reset)
        if getattr(X, "ndim", 2) == 2:  # otherwise the encoder says what is wrong
            validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self.encoder_ = TabularEncoder().fit(X)
        features = self.encoder_.transform(X)
        if not len(features):
            raise ValueError("expected X to have rows, got 0 sample(s) while a minimum of 1 is required.")
        return features

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.preprocess is not None
        tags.input_tags.string = tags.input_tags.categorical = self.preprocess is not None
        return tags


class TabularClassifier(ClassifierMixin, TabularEstimator):
    """Base of classifiers that, once fitted, have ``classes_`` and scores."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class; positive means that ``predict`` says the second class."""
        raise NotImplementedError

    @features_only
    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): predicted class labels; the attribute is not an input."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Whatever is raised inside, the estimator's attributes are afterwards what they were."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise
