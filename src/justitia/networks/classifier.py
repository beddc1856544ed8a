"""What every network classifier shares: features in, scores and labels out. The attribute is not an input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from justitia.inputs.encoding import TabularEncoder
from justitia.inputs.tables import read_numbers
from justitia.networks.default import evaluate
from justitia.privacy.frames import features_only


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """Base of classifiers with a ``preprocess`` parameter and, once fitted, ``module_`` and ``classes_``."""

    preprocess: str | None
    module_: nn.Module
    classes_: NDArray[Any]

    def _features(self, X: Any, *, reset: bool) -> Tensor:
        """Public features as a float tensor, through the default preprocessing unless it is off."""
        if self.preprocess is None:
            if reset:
                self.__dict__.pop("encoder_", None)  # of an earlier fit
            return torch.from_numpy(read_numbers(self, X, reset=reset))
        if getattr(X, "ndim", 2) == 2:  # otherwise the encoder says what is wrong
            validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self.encoder_ = TabularEncoder().fit(X)
        features = torch.from_numpy(self.encoder_.transform(X))
        if not len(features):
            raise ValueError("expected X to have rows, got 0 sample(s) while a minimum of 1 is required.")
        return features

    @features_only
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class: its log-odds; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "module_")
        return evaluate(self.module_, self._features(X, reset=False))

    @features_only
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): the score through a sigmoid, in the order of ``classes_``.

        A probability of the label as far as the loss made it one: a constraint moves scores, and where it does they are
        what is compared with 1/2 and no more.
        """
        second = torch.sigmoid(torch.from_numpy(self.decision_function(X))).numpy()
        return np.column_stack([1 - second, second])

    @features_only
    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): predicted class labels; the attribute is not an input."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self.preprocess is not None
        tags.input_tags.string = tags.input_tags.categorical = self.preprocess is not None
        return tags


def public_seed(random_state: Any) -> int:
    """One seed for everything public; None draws a fresh one and leaves numpy's global generator alone."""
    try:
        source = np.random.RandomState() if random_state is None else check_random_state(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"expected random_state to be a non-negative int, a numpy RandomState or None, got {random_state!r}."
        ) from None
    return int(source.randint(2**31 - 1))


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Whatever is raised inside, the estimator's attributes are afterwards what they were."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise
