"""fairlearn's CorrelationRemover, then boosted trees: features without linear correlation with the attribute."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from bench.rivals.boosted import BoostedTrees
from bench.rivals.classifier import all_or_nothing
from bench.rivals.target_model import Array, Codes, NumberModel, one_hot
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import PrivacyLedger


class CorrelationRemoverRegressor(NumberModel):
    """Trees on features that are uncorrelated with the groups; not private, and it reads the attribute at prediction.

    Parameters
    ----------
    groups : sequence, mapping or None
    base : object, optional
        Ignored: the trees learn from other features than the shared ones.
    random_state : int, optional

    Attributes
    ----------
    certificate_ : Certificate
        Epsilon is infinite.
    """

    reads_attribute: ClassVar[bool] = True

    def __init__(self, *, groups: Any = None, base: Any = None, random_state: Any = None) -> None:
        self.groups = groups
        self.base = base
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Remove correlations, then learn."""
        from fairlearn.preprocessing import CorrelationRemover  # noqa: PLC0415 - an optional dependency

        numbers, target, seed = self._read(X, y)
        vault = self._vault(sensitive_features, len(target), ledger)
        codes = self._exact_codes(vault, "exact attribute for the removal of correlations")
        # One group is left out, since its indicator is one minus the others.
        self.remover_ = CorrelationRemover(sensitive_feature_ids=list(range(self.n_groups_ - 1)))
        self.remover_.fit(self._beside(numbers, codes))
        self.model_ = BoostedTrees("number")
        self.model_.learn(self.remover_.transform(self._beside(numbers, codes)), target, seed=seed)
        self.certificate_ = vault.certificate()
        return self

    @protects_attribute
    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """(n,): predictions from features and attribute."""
        numbers = self._numbers(X, reset=False)
        codes = self._codes_of_new_rows(sensitive_features, len(numbers))
        return self.model_(self.remover_.transform(self._beside(numbers, codes)))

    def _beside(self, numbers: Array, codes: Codes) -> Array:
        return np.hstack([one_hot(codes, self.n_groups_)[:, :-1], numbers])
