"""Zafar et al. (2015, 2017): logistic regression whose decision boundary is uncorrelated with the group."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from bench.rivals.classifier import RivalClassifier, all_or_nothing, as_matrix
from bench.rivals.covariance import Solution, error_constraint, linear_constraint, logistic_loss
from justitia._validate import check_int, check_nonnegative, check_positive
from justitia.networks.multilayer import multilayer
from justitia.notions import NOTIONS, DemographicParity, FairnessNotion, get_notion
from justitia.privacy.interface import Vault, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, local_vault, open_vault


class ZafarClassifier(RivalClassifier):
    r"""Logistic regression under decision-boundary covariance constraints; not private, two groups only.

    Minimises :math:`\frac1n \sum_i \log(1 + e^{-s_i d_\theta(x_i)}) + \frac{l2}2 \|\theta\|^2` (labels
    :math:`s_i = \pm 1`, groups :math:`z_i \in \{0, 1\}`, intercept without ridge) subject to

    .. math:: \Bigl|\frac1m \sum_i (z_i - \bar z)\, g_\theta(x_i)\Bigr| \le \mathit{bound}

    * demographic parity: :math:`g = d_\theta(x)` over all rows (2015). Convex.
    * accuracy parity: :math:`g = \min(0, s\, d_\theta(x))` over all rows (2017, overall misclassification).
    * equalized odds: the same g, once over the rows of label 0 (false positives) and once over those of label 1 (false
      negatives); equal opportunity and predictive equality are its halves. As in the authors' experiments the mean
      :math:`\bar z` is that of the rows of the label, so the constraint compares the groups within it.

    The forms of 2017 are not convex: the penalty convex-concave procedure finds a local optimum, from the optimum
    without constraint. Each convex problem has one variable per feature and is solved by SLSQP of scipy; see
    :mod:`bench.rivals.covariance`.

    Parameters
    ----------
    notion : str or FairnessNotion
        One of the five named notions.
    bound : float
        Largest allowed covariance, in log-odds; ``inf`` gives plain logistic regression. The covariance only stands in
        for the difference of rates: bound 0 does not mean violation 0.
    groups : sequence of two labels, or None
        The list of group labels; read off the data if None.
    l2 : float
        Ridge, above 0: without one, separable rows have no best weights and one-hot columns no unique ones.
    max_iterations : int
        Most rounds of the convex-concave procedure.
    preprocess : "auto" or None
        As in :class:`justitia.LagrangianDualClassifier`.

    Attributes
    ----------
    classes_ : ndarray (2,)
    module_ : torch.nn.Module
        One linear layer.
    ledger_ : PrivacyLedger
        One release without protection.
    certificate_ : Certificate
        Epsilon is infinite.

    Notes
    -----
    People whose attribute is not given take part in the loss and in no covariance. Where one of the two groups has no
    rows the covariance is 0 and nothing is constrained.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        bound: float = 0.0,
        groups: Any = None,
        l2: float = 1e-5,
        max_iterations: int = 100,
        preprocess: str | None = "auto",
    ) -> None:
        self.notion = notion
        self.bound = bound
        self.groups = groups
        self.l2 = l2
        self.max_iterations = max_iterations
        self.preprocess = preprocess

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Train on the exact attribute.

        Raises
        ------
        ValueError, TypeError
            For anything wrong with the arguments, among it more or fewer than two groups.
        BudgetExceeded
            If ``ledger`` has a finite budget, before the attribute is read.

        Warns
        -----
        ConvergenceWarning
            If the solver stopped early; the model is the last point it reached.
        """
        notion = self._check_parameters()
        ledger = ledger_or_new(ledger, epsilon=math.inf, delta=0.0)
        features, target = self._read(X, y)
        rows = as_matrix(features)
        vault = self._vault(sensitive_features, ledger, n=len(target))
        z = local_vault(vault).reveal(purpose="exact attribute for the covariance constraint")
        solution = self._solve(rows, target, z, notion)
        self.module_ = _linear(solution.theta)
        self.ledger_ = ledger
        self.certificate_ = vault.certificate()
        if not solution.converged:
            warnings.warn(
                "expected the constrained logistic regression to converge, but the solver stopped early; "
                f"raise max_iterations (now {self.max_iterations}), bound or l2.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_parameters(self) -> FairnessNotion:
        notion = get_notion(self.notion)
        if type(notion) not in NOTIONS.values():
            raise ValueError(
                f"expected one of the notions {', '.join(NOTIONS)}, got {type(notion).__name__}; "
                "no covariance constraint is known for others."
            )
        check_nonnegative("bound", self.bound, allow_inf=True)
        check_positive("l2", self.l2)
        check_int("max_iterations", self.max_iterations, at_least=1)
        return notion

    def _vault(self, sensitive_features: Any, ledger: PrivacyLedger, *, n: int) -> Vault:
        """A ends here."""
        vault = open_vault(
            sensitive_features,
            VaultRequest(
                groups=self.groups,
                epsilon=math.inf,
                ledger=ledger,
                n=n,
                features=getattr(self, "feature_names_in_", ()),
            ),
        )
        if vault.n_groups != 2:
            raise ValueError(
                f"expected two groups, because a covariance constraint compares exactly two, got {vault.n_groups}; "
                "merge groups, or use a method for several."
            )
        return vault

    def _solve(
        self, rows: NDArray[np.float64], target: NDArray[np.float32], z: NDArray[np.int64], notion: FairnessNotion
    ) -> Solution:
        loss = logistic_loss(rows, target.astype(np.float64), float(self.l2))
        if isinstance(notion, DemographicParity):
            return linear_constraint(loss, z, float(self.bound))
        events = notion.events(target).astype(bool)
        return error_constraint(loss, z, events, float(self.bound), self.max_iterations)


def _linear(theta: NDArray[np.float64]) -> nn.Module:
    """A network without hidden layers, in double precision; the last weight is the intercept."""
    module = multilayer(len(theta) - 1, ()).double()
    weights = torch.from_numpy(theta)
    module.load_state_dict({"0.weight": weights[None, :-1], "0.bias": weights[-1:]})
    return module.eval().requires_grad_(requires_grad=False)
