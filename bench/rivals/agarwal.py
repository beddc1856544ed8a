"""Agarwal et al. (2018): reductions by exponentiated gradient, fairlearn's implementation behind our surface."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bench.rivals.classifier import RivalClassifier, all_or_nothing, as_matrix
from bench.rivals.plain import PlainClassifier
from justitia._validate import check_choice, check_int, check_nonnegative
from justitia.notions import (
    AccuracyParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FairnessNotion,
    PredictiveEquality,
    get_notion,
)
from justitia.preprocessing.tables import public_seed
from justitia.privacy.interface import Vault, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, local_vault, open_vault

#: fairlearn's moment for each of our notions. All bound |rate of a group - rate of the population|.
MOMENTS: dict[type[FairnessNotion], str] = {
    DemographicParity: "DemographicParity",
    EqualizedOdds: "EqualizedOdds",
    AccuracyParity: "ErrorRateParity",
    EqualOpportunity: "TruePositiveRateParity",
    PredictiveEquality: "FalsePositiveRateParity",
}
BASES = ("logistic", "network")
#: 1 / B, where B bounds the sum of the multipliers: fairlearn's ``eps``, kept at its default. It is not the constraint.
MULTIPLIER_BOUND_INVERSE = 0.01
#: A best response is one of dozens, each trained from scratch: about 300 steps, and a rate that makes them enough.
NETWORK_STEPS, NETWORK_BATCH, NETWORK_RATE = 300, 256, 8e-3

Predictor = Any  # a fitted estimator whose predict gives 0 and 1


class ReductionParameters(Protocol):
    """Constructor's arguments that every method built on the reduction shares."""

    notion: str | FairnessNotion
    difference_bound: float
    base: str
    max_iter: int


@dataclass(frozen=True)
class Mixture:
    """A randomised classifier: each row is decided by ``predictors[j]`` with probability ``weights[j]``."""

    predictors: tuple[Predictor, ...]
    weights: NDArray[np.float64]

    def without_zeros(self) -> Mixture:
        """The same classifier, with only the predictors that are ever drawn."""
        kept = np.flatnonzero(self.weights > 0)
        return Mixture(tuple(self.predictors[j] for j in kept), self.weights[kept])


@dataclass(frozen=True)
class Reduction:
    """What one run of exponentiated gradient needs besides data."""

    notion: FairnessNotion
    difference_bound: float
    base: str
    max_iter: int
    seed: int

    def run(self, X: NDArray[np.float64], y: NDArray[np.int64], codes: NDArray[np.int64], *, n_groups: int) -> Mixture:
        """Every classifier found, with its weight in the saddle point.

        Rows whose code is ``n_groups`` ("not given") take part in the loss and in no constraint: they form a stratum of
        their own (fairlearn's control feature) in which there is one group and so nothing to compare. The other groups
        are compared with the rate of all rows whose attribute is given.

        Warns
        -----
        ConvergenceWarning
            If the saddle point was not reached: too few rounds, or a constraint that no mixture meets.
        """
        reductions = import_reductions()
        moment = getattr(reductions, MOMENTS[type(self.notion)])(difference_bound=self.difference_bound)
        game = reductions.ExponentiatedGradient(
            make_base(self.base, n=len(y), seed=self.seed), moment, eps=MULTIPLIER_BOUND_INVERSE, max_iter=self.max_iter
        )
        given = codes < n_groups
        strata = {} if given.all() else {"control_features": np.where(given, "given", "not given")}
        with warnings.catch_warnings():
            # What fairlearn 0.15 does to its own tables, pandas 3 deprecates; a user can do nothing about it.
            warnings.filterwarnings("ignore", message="Setting (a value|an item)", category=DeprecationWarning)
            game.fit(X, y, sensitive_features=codes, **strata)
        if game.best_gap_ > game.nu:  # of the saddle point, in which a constraint that is not met weighs heavily
            warnings.warn(
                f"expected the reduction to meet its constraint within {self.max_iter} rounds, but it stopped early; "
                "raise max_iter or difference_bound.",
                ConvergenceWarning,
                stacklevel=4,
            )
        # The fitted object holds the training rows with their groups; only classifiers and weights leave this function.
        weights = game.weights_.reindex(game.predictors_.index).to_numpy(dtype=np.float64)
        return Mixture(tuple(game.predictors_), weights)


def import_reductions() -> ModuleType:
    """The reductions of fairlearn, imported when a rival needs them.

    Raises
    ------
    ImportError
        If fairlearn is not installed.
    """
    try:
        from fairlearn import reductions  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise ImportError(
            "expected fairlearn to be installed for this method, found none; run: make setup, in the checkout."
        ) from None
    module: ModuleType = reductions
    return module


def make_base(base: str, *, n: int, seed: int) -> BaseEstimator:
    """An unfitted classifier of labels 0 and 1, for n rows, whose ``fit`` takes ``sample_weight``."""
    if base == "logistic":
        return LogisticRegression(max_iter=1000)
    return PlainClassifier(
        epochs=math.ceil(NETWORK_STEPS / math.ceil(n / NETWORK_BATCH)),
        batch_size=NETWORK_BATCH,
        learning_rate=NETWORK_RATE,
        random_state=seed,
        preprocess=None,
    )


def check_reduction(model: ReductionParameters, *, seed: int) -> Reduction:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notion = get_notion(model.notion)
    if type(notion) not in MOMENTS:
        raise ValueError(
            f"expected one of the notions {', '.join(sorted(kind.name for kind in MOMENTS))}, "
            f"got {type(notion).__name__}; the reduction knows no others."
        )
    return Reduction(
        notion,
        check_nonnegative("difference_bound", model.difference_bound),
        check_choice("base", model.base, BASES),
        check_int("max_iter", model.max_iter, at_least=1),
        seed,
    )


class MixtureClassifier(RivalClassifier):
    """Base of classifiers that draw, for each row, one of several predictors; the attribute is not an input."""

    mixture_: Mixture
    prediction_seed_: int

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): how likely ``predict`` is to say each class, in the order of ``classes_``."""
        check_is_fitted(self, "mixture_")
        rows = as_matrix(self._features(X, reset=False))
        second = np.zeros(len(rows))
        for predictor, weight in zip(self.mixture_.predictors, self.mixture_.weights, strict=True):
            second += weight * predictor.predict(rows)
        second = second.clip(0.0, 1.0)
        return np.column_stack([1 - second, second])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Probability of the second class minus one half; ``predict`` draws, so it may still say the first."""
        margin: NDArray[np.float64] = self.predict_proba(X)[:, 1] - 0.5
        return margin

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): labels drawn from ``predict_proba``.

        The draws start anew from ``prediction_seed_`` in every call, so the same rows in the same order get the same
        labels; a row's label may change with its place among them.
        """
        second = self.predict_proba(X)[:, 1]
        drawn = second >= check_random_state(self.prediction_seed_).random_sample(len(second))
        labels: NDArray[Any] = self.classes_[drawn.astype(int)]
        return labels

    def _arrays(self, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Public rows and 0/1 targets of a fit."""
        features, target = self._read(X, y)
        return as_matrix(features), target.astype(np.int64)

    def _vault(
        self, sensitive_features: Any, *, epsilon: float, ledger: PrivacyLedger, n: int, noise_seed: int | None = None
    ) -> Vault:
        return open_vault(
            sensitive_features,
            VaultRequest(
                groups=self.groups,
                epsilon=epsilon,
                ledger=ledger,
                n=n,
                features=getattr(self, "feature_names_in_", ()),
                noise_seed=noise_seed,
            ),
        )

    def _keep(self, mixture: Mixture, seed: int, vault: Vault, ledger: PrivacyLedger) -> Self:
        self.mixture_ = mixture.without_zeros()
        self.prediction_seed_ = seed
        self.ledger_ = ledger
        self.certificate_ = vault.certificate()
        return self


class AgarwalClassifier(MixtureClassifier):
    r"""Reductions by exponentiated gradient; not private: the attribute is read exactly.

    Finds a randomised classifier Q with little error such that, for every event k and group a of the notion,

    .. math:: |\mu_Q(D_{G_{k,a}}) - \mu_Q(D_{P_k})| \le \mathit{difference\_bound},

    so two groups may differ by twice the bound. It is a game between multipliers, which move by exponentiated
    gradient, and classifiers, each a best response: one weighted fit of the base (Agarwal et al. 2018, Algorithm 1).

    Parameters
    ----------
    notion : str or FairnessNotion
        One of the five named notions.
    difference_bound : float
        The constraint on the training rows. fairlearn's own ``eps`` only sets the bound on the multipliers and stays at
        its default, 0.01 (multipliers add up to at most 100).
    base : {"logistic", "network"}
        Logistic regression, or the network of :class:`PlainClassifier` with about 300 steps of Adam per best response.
        Networks are no exact best responses, so the game may end farther from its saddle point.
    groups : sequence, mapping or None
        The list of group labels; read off the data if None.
    max_iter : int
        Rounds of the game at most; one round costs two to five fits of the base.
    preprocess, random_state
        As in :class:`justitia.LagrangianDualClassifier`. ``random_state`` also seeds the draws of ``predict``.

    Attributes
    ----------
    classes_ : ndarray (2,)
    mixture_ : Mixture
        The classifiers and their probabilities; neither rows nor groups.
    prediction_seed_ : int
    ledger_ : PrivacyLedger
        One release without protection.
    certificate_ : Certificate
        Epsilon is infinite.

    Notes
    -----
    People whose attribute is not given take part in the loss and in no constraint; groups are then compared with the
    rate of everyone whose attribute is given.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        difference_bound: float = 0.01,
        base: str = "logistic",
        groups: Any = None,
        max_iter: int = 50,
        preprocess: str | None = "auto",
        random_state: Any = None,
    ) -> None:
        self.notion = notion
        self.difference_bound = difference_bound
        self.base = base
        self.groups = groups
        self.max_iter = max_iter
        self.preprocess = preprocess
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Train on the exact attribute.

        Raises
        ------
        BudgetExceeded
            If ``ledger`` has a finite budget, before the attribute is read.
        ImportError
            If fairlearn is not installed.
        """
        seed = public_seed(self.random_state)
        reduction = check_reduction(self, seed=seed)
        import_reductions()
        rows, target = self._arrays(X, y)
        ledger = ledger_or_new(ledger, epsilon=math.inf, delta=0.0)
        vault = self._vault(sensitive_features, epsilon=math.inf, ledger=ledger, n=len(rows))
        codes = local_vault(vault).reveal(purpose="exact attribute for the reduction")
        return self._keep(reduction.run(rows, target, codes, n_groups=vault.n_groups), seed, vault, ledger)
