"""Cruz et al. (2023), FairGBM: boosted trees that descend on a proxy Lagrangian while multipliers ascend."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted

from bench.rivals.boosted import lightgbm_model
from bench.rivals.classifier import RivalClassifier, all_or_nothing
from justitia._validate import check_int, check_nonnegative
from justitia.learners.lightgbm_base import LEAVES_BY_ROWS
from justitia.notions import EqualizedOdds, EqualOpportunity, FairnessNotion, PredictiveEquality, get_notion
from justitia.preprocessing.tables import public_seed
from justitia.privacy.interface import VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, local_vault, open_vault

Array = NDArray[np.float64]
#: Notions that compare false positive rates, false negative rates or both.
DEFINED: tuple[type[FairnessNotion], ...] = (EqualizedOdds, EqualOpportunity, PredictiveEquality)
#: Shift of the cross-entropy that stands for a step: it is 1 where the step is, at score 0.
SHIFT = math.log(math.e - 1)


@dataclass(eq=False)
class ProxyLagrangian:
    r"""The game of one fit: which scores the next tree should move, and by how much multipliers have grown.

    With rates :math:`r_{ka}` of wrong decisions among rows of event k and group a, and :math:`\tilde r_{ka}`, in which
    a cross-entropy stands for the step of the decision, trees descend on

    .. math:: \frac1n \sum_i \ell(s_i, y_i) + \sum_{k,a} \lambda_{ka} (\max_b \tilde r_{kb} - \tilde r_{ka} - \tau)

    and, after every tree, :math:`\lambda_{ka} \leftarrow (\lambda_{ka} + \eta\,(\max_b r_{kb} - r_{ka} - \tau))_+`.

    Parameters
    ----------
    y : ndarray (n,)
    cells : ndarray (n, K, G)
        1 where the row belongs to the event and the group; rows whose attribute is not given belong to none.
    step, tolerance : float
    """

    y: Array
    cells: Array
    step: float
    tolerance: float
    lam: Array = field(init=False)
    trees: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.lam = np.zeros(self.cells.shape[1:])
        self._sizes = self.cells.sum(axis=0)
        self._wrong = 1 - 2 * self.y  # the sign of a score that is wrong

    def next_tree(self, scores: Array) -> tuple[Array, Array]:
        """Gradient and curvature of every row, n times those of the Lagrangian; asked for once before each tree."""
        if self.trees:
            self.ascend(scores)
        self.trees += 1
        probability = expit(scores)
        return probability - self.y + self.pull(scores), probability * (1 - probability)

    def ascend(self, scores: Array) -> None:
        """Move the multipliers by what the decisions show."""
        rates = self.rates((self._wrong * scores > 0).astype(float))
        gaps = rates.max(axis=1, keepdims=True) - rates - self.tolerance
        self.lam = np.maximum(self.lam + self.step * np.where(self._sizes > 0, gaps, 0.0), 0.0)

    def pull(self, scores: Array) -> Array:
        """(n,): the constraint's part of the gradient. As published, it has no curvature."""
        shifted = self._wrong * scores + SHIFT
        rates = self.rates(np.logaddexp(0.0, shifted))
        worst = np.arange(rates.shape[1]) == rates.argmax(axis=1)[:, None]
        weights = np.where(worst, self.lam.sum(axis=1, keepdims=True), 0.0) - self.lam
        of_row = np.einsum("nka,ka->n", self.cells, weights / np.maximum(self._sizes, 1))
        found: Array = len(scores) * of_row * self._wrong * expit(shifted)
        return found

    def rates(self, values: Array) -> Array:
        """(K, G): means over the cells, of numbers of at least 0; an empty cell has 0 and is no larger than any."""
        means: Array = np.einsum("n,nka->ka", values, self.cells) / np.maximum(self._sizes, 1)
        return means


class FairGBMClassifier(RivalClassifier):
    r"""Boosted trees of LightGBM with FairGBM's objective; not private: the attribute is read exactly.

    Every tree is fitted to the gradient of :class:`bench.rivals.fairgbm.ProxyLagrangian`; the attribute is not an
    input. It is defined for false positive and false negative rates: equalized odds, equal opportunity and predictive
    equality. Other notions are refused. (By the same proxy for rates of positive decisions, the violation of
    demographic parity hardly moved on synthetic data: proxies can be alike where decisions are not.)

    Parameters
    ----------
    notion : str or FairnessNotion
        "equalized_odds", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Largest difference between two groups' rates on the training rows.
    multiplier_step : float
        :math:`\eta`; 0 is boosting without constraint.
    n_estimators : int
        Trees, and so steps of the multipliers.
    groups : sequence, mapping or None
        The list of group labels; read off the data if None.
    preprocess, random_state
        As in :class:`justitia.LagrangianDualClassifier`.

    Attributes
    ----------
    classes_ : ndarray (2,)
    booster_ : lightgbm.Booster
    start_ : float
        Log-odds of the second class, to which trees add.
    multipliers_ : ndarray (K, G)
        At the last tree.
    ledger_ : PrivacyLedger
        One release without protection.
    certificate_ : Certificate
        Epsilon is infinite.

    Notes
    -----
    Rates are those of rows that the trees have learned from, as published, so violations of new rows are larger.
    Rows whose attribute is not given take part in the loss and in no constraint.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "equalized_odds",
        *,
        tolerance: float = 0.01,
        multiplier_step: float = 0.1,
        n_estimators: int = 150,
        groups: Any = None,
        preprocess: str | None = "auto",
        random_state: Any = None,
    ) -> None:
        self.notion = notion
        self.tolerance = tolerance
        self.multiplier_step = multiplier_step
        self.n_estimators = n_estimators
        self.groups = groups
        self.preprocess = preprocess
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Train on the exact attribute.

        Raises
        ------
        BudgetExceeded
            If ``ledger`` has a finite budget, before the attribute is read.
        """
        notion, step, tolerance = self._checked()
        seed = public_seed(self.random_state)
        features, target = self._read(X, y)
        ledger = ledger_or_new(ledger, epsilon=math.inf, delta=0.0)
        vault = open_vault(
            sensitive_features,
            VaultRequest(
                groups=self.groups,
                epsilon=math.inf,
                ledger=ledger,
                n=len(target),
                features=getattr(self, "feature_names_in_", ()),
            ),
        )
        codes = local_vault(vault).reveal(purpose="exact attribute for the proxy Lagrangian")
        label = target.astype(np.float64)
        belongs = (codes[:, None] == np.arange(vault.n_groups)).astype(float)
        cells = np.einsum("nk,na->nka", notion.events(label), belongs)
        game = ProxyLagrangian(label, cells, step, tolerance)
        self.start_ = float(logit(label.mean()))
        self._boost(features.astype(np.float64), label, game, seed=seed)
        self.multipliers_ = game.lam
        self.ledger_ = ledger
        self.certificate_ = vault.certificate()
        return self

    def _checked(self) -> tuple[FairnessNotion, float, float]:
        """Notion, step and tolerance."""
        notion = get_notion(self.notion)
        if type(notion) not in DEFINED:
            raise ValueError(
                f"expected one of the notions {', '.join(kind.name for kind in DEFINED)}, got {type(notion).__name__}; "
                "FairGBM is defined for false positive and false negative rates."
            )
        check_int("n_estimators", self.n_estimators, at_least=1)
        step = check_nonnegative("multiplier_step", self.multiplier_step)
        return notion, step, check_nonnegative("tolerance", self.tolerance)

    def _boost(self, numbers: Array, label: Array, game: ProxyLagrangian, *, seed: int) -> None:
        import lightgbm  # noqa: PLC0415

        leaves = next(leaves for most, leaves in LEAVES_BY_ROWS if len(label) <= most)
        trees = lightgbm_model("LGBMRegressor", n_estimators=self.n_estimators, num_leaves=leaves)
        # a function, because LightGBM plays with a copy of anything else
        trees.set_params(objective=lambda _, scores: game.next_tree(scores), random_state=seed)
        trees.fit(numbers, label, init_score=np.full(len(label), self.start_))
        # the estimator holds its objective, and so everybody's group; the text holds trees
        self.booster_ = lightgbm.Booster(model_str=trees.booster_.model_to_string())

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second class; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "booster_")
        rows = self._features(X, reset=False).astype(np.float64)
        scores: Array = self.start_ + np.asarray(self.booster_.predict(rows), dtype=np.float64)
        return scores
