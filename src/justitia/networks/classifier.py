"""Classifiers that are a network: features in, logits out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted
from torch import nn

from justitia.networks.default import evaluate
from justitia.privacy.frames import features_only
from justitia.tabular import TabularClassifier


def logits(module: nn.Module, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n,): the network's scores of rows with these features."""
    return evaluate(module, torch.from_numpy(features))


class NetworkClassifier(TabularClassifier):
    """Base of classifiers that, once fitted, have a ``module_``."""

    module_: nn.Module

    @features_only
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class: its log-odds; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "module_")
        return logits(self.module_, self._features(X, reset=False))

    @features_only
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): the score through a sigmoid, in the order of ``classes_``."""
        second = expit(self.decision_function(X))
        return np.column_stack([1 - second, second])
