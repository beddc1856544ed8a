"""What a fitted model says of people: scores, probabilities, decisions. The attribute is not an input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from justitia.engines.plugin.learner import Rule
from justitia.inputs.files import is_files
from justitia.inputs.public_sample import frames
from justitia.learners.inputs import Inputs
from justitia.networks.classifier import NetworkClassifier
from justitia.privacy.frames import features_only


class DecidingClassifier(NetworkClassifier):
    """A network, or a base with a correction; rows in memory, or in files."""

    rule_: Rule
    feature_names_in_: NDArray[Any]

    @features_only
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "plan_")
        if is_files(X):
            return np.concatenate([self.decision_function(table) for table in frames(X, self.feature_names_in_)])
        if hasattr(self, "module_"):
            return super().decision_function(X)
        return self.rule_.margin(self._inputs(X))

    @features_only
    def base_proba(self, X: Any) -> NDArray[np.float64] | None:
        """(n,): the base's probability of the second class, before the correction; None of a network, without one."""
        check_is_fitted(self, "plan_")
        return self.rule_.base_probability(self._inputs(X)) if hasattr(self, "rule_") else None

    def _inputs(self, X: Any) -> Inputs:
        return Inputs(X, self._features(X, reset=False).flatten(1).numpy())

    @features_only
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): what decisions are made from, in the order of ``classes_``.

        Of engine "plugin" the second column is the base's calibrated probability where the correction leaves the
        decision as it was; where it changes the decision, a number next to ``threshold`` on the decision's side.
        """
        if hasattr(self, "module_"):
            return super().predict_proba(X)
        margin = self.decision_function(X)
        second = self.rule_.probability(margin)
        return np.column_stack([1 - second, second])
