"""What rivals for classes and numbers share: features as numbers, the exact attribute, and two flags."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from bench.rivals.boosted import BoostedTrees, Kind
from justitia._validate import check_same_length
from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.tables import public_seed
from justitia.privacy.interface import Vault, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, local_vault, open_vault

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


class TargetModel(BaseEstimator):
    """Base of rivals whose target is one of several classes or a number.

    Attributes
    ----------
    is_private : bool
        Whether ``fit`` protects the attribute.
    reads_attribute : bool
        Whether ``predict`` needs the attribute of new rows, as ``sensitive_features``; such a method is out of reach
        where the attribute may not be an input.
    """

    is_private: ClassVar[bool] = False
    reads_attribute: ClassVar[bool] = False
    kind: ClassVar[Kind]

    groups: Any
    base: Any
    random_state: Any

    def _numbers(self, X: Any, *, reset: bool) -> Array:
        """(n, d): public features through the library's preprocessing."""
        if reset:
            self.encoder_ = TabularEncoder().fit(X)
        numbers: Array = self.encoder_.transform(X).astype(np.float64)
        return numbers

    def _target(self, y: Any) -> NDArray[Any]:
        """A number, or the code of a class; the names of the classes are kept."""
        if self.kind == "number":
            return np.asarray(y, dtype=np.float64)
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        return codes

    def _read(self, X: Any, y: Any) -> tuple[Array, NDArray[Any], int]:
        """Features, target and public seed of a fit."""
        numbers, target = self._numbers(X, reset=True), self._target(y)
        check_same_length(X=numbers, y=target)
        return numbers, target, public_seed(self.random_state)

    def _base(self) -> BoostedTrees:
        """Fresh trees, or those that cells of one experiment share."""
        return BoostedTrees(self.kind) if self.base is None else self.base

    def _vault(self, sensitive_features: Any, n: int, ledger: PrivacyLedger | None = None, **private: Any) -> Vault:
        """A ends here."""
        request = {"epsilon": math.inf} | private
        ledger = ledger_or_new(ledger, epsilon=request["epsilon"], delta=0.0)
        return open_vault(sensitive_features, VaultRequest(groups=self.groups, ledger=ledger, n=n, **request))

    def _exact_codes(self, vault: Vault, purpose: str) -> Codes:
        """(n,): 0 .. G - 1, and G where the attribute is not given."""
        self.n_groups_ = vault.n_groups
        return local_vault(vault).reveal(purpose=purpose)

    def _codes_of_new_rows(self, sensitive_features: Any, n: int) -> Codes:
        if sensitive_features is None:
            raise TypeError(
                "expected sensitive_features, since this method reads the attribute at prediction; pass it."
            )
        return self._exact_codes(self._vault(sensitive_features, n), "attribute as an input at prediction")


class ClassesModel(ClassifierMixin, TargetModel):
    """Base of rivals for classes."""

    kind = "classes"
    classes_: NDArray[Any]


class NumberModel(RegressorMixin, TargetModel):
    """Base of rivals for numbers."""

    kind = "number"


def one_hot(codes: Codes, n_groups: int) -> Array:
    """(n, G): indicators of the groups; a row whose attribute is not given has none."""
    indicators: Array = (codes[:, None] == np.arange(n_groups)).astype(np.float64)
    return indicators
