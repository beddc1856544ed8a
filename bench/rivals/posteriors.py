"""What two rivals share: posteriors of group and label by models of their own, and the best rule that they give."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from bench.rivals.classifier import RivalClassifier, all_or_nothing
from justitia._validate import check_nonnegative
from justitia.learners.base import FOLDS, CrossFitted, Inputs
from justitia.learners.calibration import Calibration, calibrate
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.notions import FairnessNotion, get_notion
from justitia.postprocessing.dual import constraints_of, label_table, solve
from justitia.preprocessing.tables import public_seed
from justitia.privacy.interface import Vault, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import open_vault

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Numbers = NDArray[np.float32]


class GroupModel:
    """p(a | x, y) for training rows by models that have not seen them, and for new rows by the mean of these models.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``; one clone per part learns from features and label.
    unmix : ndarray (G, categories)
        From what codes are likely to what groups are likely; the identity for exact groups.
    """

    def __init__(self, estimator: Any, unmix: Array) -> None:
        self._estimator, self._unmix = estimator, unmix
        self._models: list[Any] = []

    def learn(self, numbers: Array, y: Array, codes: Codes, *, seed: int) -> tuple[Array, Array]:
        """Two (n, G): p(a | x, 0) and p(a | x, 1). Rows with a code beyond the categories are not learned from."""
        known = codes < self._unmix.shape[1]
        if known.sum() < FOLDS:
            raise ValueError(f"expected at least {FOLDS} rows whose attribute is given, got fewer; pass more rows.")
        found = np.zeros((2, len(y), len(self._unmix)))
        for seen, unseen in KFold(FOLDS, shuffle=True, random_state=seed).split(numbers):
            learned = seen[known[seen]]
            several = len(np.unique(codes[learned])) > 1
            model = clone(self._estimator) if several else DummyClassifier(strategy="prior")
            model.fit(with_label(numbers[learned], y[learned]), codes[learned])
            found[:, unseen] = self._of(model, numbers[unseen])
            self._models.append(model)
        return found[0], found[1]

    def __call__(self, numbers: Array) -> Array:
        """(2, m, G) for new rows."""
        mean: Array = np.mean([self._of(model, numbers) for model in self._models], axis=0)
        return mean

    def _of(self, model: Any, numbers: Array) -> Array:
        said = np.zeros((2, len(numbers), self._unmix.shape[1]))
        for label in (0, 1):
            said[label][:, model.classes_] = model.predict_proba(with_label(numbers, np.full(len(numbers), label)))
        # what is left of a likely lie may be below 0
        likely = np.clip(said @ self._unmix.T, 1e-6, None)
        shares: Array = likely / likely.sum(axis=2, keepdims=True)
        return shares


def with_label(numbers: Array, y: Array) -> Array:
    """(n, d + 1): features, and the label last."""
    return np.column_stack([numbers, y])


@dataclass(frozen=True, eq=False)
class Learned:
    """Models of label and group, what they say of the training rows, and who paid."""

    base: CrossFitted
    calibration: Calibration
    groups: GroupModel
    eta: Array
    q0: Array
    q1: Array
    vault: Vault
    ledger: PrivacyLedger

    def weights(self, notion: FairnessNotion, tolerance: float) -> Array:
        r"""(2, G): w with :math:`t(x) = \sum_{y, a} w_{ya} p(a, y \mid x)`, the correction of the best rule."""
        constraints = constraints_of(notion, self.eta, self.q0, self.q1, np.ones(len(self.eta)))
        lam = solve(2 * self.eta - 1, constraints, tolerance)
        return linear_weights(notion, lam, self.eta, np.stack([self.q0, self.q1]))


def linear_weights(notion: FairnessNotion, lam: Array, eta: Array, q: Array) -> Array:
    r"""(2, G): w with :math:`\lambda \cdot c(x) = \sum_{y, a} w_{ya}\, p(a, y \mid x)`.

    Parameters
    ----------
    lam : ndarray (G, K)
    eta : ndarray (n,)
    q : ndarray (2, n, G)
        p(a | x, y) of the rows that the multipliers were found on.
    """
    events, _, change = label_table(notion)
    sizes = np.einsum("yna,yk->ak", joint(eta, q), events) / len(eta)
    found: Array = np.einsum("ak,yk,y->ya", lam / np.maximum(sizes, 1e-9), events, change)
    return found


def joint(eta: Array, q: Array) -> Array:
    """(2, n, G): p(a, y | x)."""
    return q * np.stack([1 - eta, eta])[:, :, None]


class PosteriorClassifier(RivalClassifier):
    """Base of classifiers that decide by a linear function of p(a, y | x); the attribute is not an input."""

    notion: str | FairnessNotion
    tolerance: float
    groups: Any
    random_state: Any
    weights_: Array

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Learn posteriors, then solve.

        Raises
        ------
        ValueError, TypeError
            For anything wrong that can be seen without the attribute, before any budget is spent.
        BudgetExceeded
            If the ledger cannot pay, before the attribute is asked.
        """
        tolerance = check_nonnegative("tolerance", self.tolerance)
        return self._keep(self._learn(X, y, sensitive_features, ledger), tolerance)

    @all_or_nothing
    def learn(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Family[Self]:
        """Posteriors alone, for a whole curve: the attribute is asked once."""
        learned = self._learn(X, y, sensitive_features, ledger)
        return Family(copy.copy(self), learned)

    @abstractmethod
    def _learn(self, X: Any, y: Any, sensitive_features: Any, ledger: PrivacyLedger | None) -> Learned:
        """Check, ask, learn."""

    def _posteriors(
        self, X: Any, features: Numbers, target: Numbers, codes: Codes, groups: GroupModel, *, seed: int
    ) -> dict[str, Any]:
        """Models of label and group, and what they say of the training rows."""
        inputs, y = Inputs(X, features), target.astype(np.float64)
        base, ones = LightGBMBase(len(y)), np.ones(len(y))
        raw = base.learn(inputs, y, ones, seed=seed, progress=lambda _: None)
        calibration = calibrate(raw, y, ones)
        q0, q1 = groups.learn(features.astype(np.float64), y, codes, seed=seed)
        eta = calibration(raw)
        return {"base": base, "calibration": calibration, "groups": groups, "eta": eta, "q0": q0, "q1": q1}

    def _vault(self, sensitive_features: Any, ledger: PrivacyLedger, *, n: int, **private: Any) -> Vault:
        """A ends here."""
        return open_vault(
            sensitive_features,
            VaultRequest(
                groups=self.groups,
                ledger=ledger,
                n=n,
                features=getattr(self, "feature_names_in_", ()),
                **({"epsilon": math.inf} | private),
            ),
        )

    def _checked(self) -> tuple[FairnessNotion, int]:
        """Notion and public seed."""
        notion = get_notion(self.notion)
        label_table(notion)
        return notion, public_seed(self.random_state)

    def _keep(self, learned: Learned, tolerance: float) -> Self:
        self.weights_ = learned.weights(get_notion(self.notion), tolerance)
        self.models_ = (learned.base, learned.calibration, learned.groups)
        self.ledger_ = learned.ledger
        self.certificate_ = learned.vault.certificate()
        return self

    def posteriors(self, X: Any) -> tuple[Array, Array]:
        """(n,) p(y = 1 | x) and (2, n, G) p(a, y | x)."""
        check_is_fitted(self, "weights_")
        features = self._features(X, reset=False)
        base, calibration, groups = self.models_
        eta = calibration(base.predict(Inputs(X, features)))
        return eta, joint(eta, groups(features.astype(np.float64)))

    def margin(self, eta: Array, likely: Array) -> Array:
        """(n,): 2 eta - 1 less the correction, from :meth:`posteriors`."""
        moved: Array = np.einsum("ya,yna->n", self.weights_, likely)
        return 2 * eta - 1 - moved

    def decision_function(self, X: Any) -> Array:
        """2 eta - 1 less the correction; positive means that ``predict`` says the second class."""
        return self.margin(*self.posteriors(X))

    def predict_proba(self, X: Any) -> Array:
        """(n, 2): what decisions are made from, between 0 and 1, in the order of ``classes_``."""
        second = np.clip(0.5 + self.decision_function(X) / 2, 0.0, 1.0)
        return np.column_stack([1 - second, second])


Model = TypeVar("Model", bound=PosteriorClassifier)


@dataclass(frozen=True, eq=False)
class Family(Generic[Model]):
    """All rules from one reading of the attribute."""

    first: Model
    learned: Learned

    def at(self, tolerance: float, notion: str | FairnessNotion | None = None) -> Model:
        """The fitted model of a tolerance, and of another notion if one is given."""
        changed = {} if notion is None else {"notion": notion}
        model: Model = copy.copy(self.first).set_params(tolerance=tolerance, **changed)
        return model._keep(self.learned, check_nonnegative("tolerance", tolerance))
