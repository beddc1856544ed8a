"""Randomised attribute, then the best rule: group fairness in the local model of privacy."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Tags

from bench.rivals.debiasing import inverse_response_matrix, minority_response_matrix
from bench.rivals.posteriors import Codes, GroupModel, Learned, PosteriorClassifier
from justitia._validate import check_positive
from justitia.notions import FairnessNotion
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed, MinorityResponse, RandomizedResponse, Response
from justitia.privacy.vault import ledger_or_new, local_vault, named_groups, noise_from


def slopes_for_each_label(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 2 d + 1): features, the label, which is the last column, and their products."""
    return np.hstack([rows, rows[:, :-1] * rows[:, -1:]])


class LocalClassifier(HiddenNoiseSeed, PosteriorClassifier):
    r"""Everybody randomises the attribute; the rule is solved with posteriors that undo the randomisation.

    The local model of Ghoukasian and Asoodeh (2025), *Optimal Fairness under Local Differential Privacy*, who study
    which randomisation of the attribute leaves data least unfair. Their classifiers read the randomised attribute
    at prediction; ours may not, so of their setting this keeps what applies: answers Z at epsilon, by k-ary randomised
    response or, for two groups, by their mechanism (``justitia.privacy.mechanisms.MinorityResponse``), and the
    best rule without the attribute from what the answers tell,

    .. math:: p(a \mid x, y) \propto \Bigl(\sum_z \Pi^{-1}_{az}\, p(z \mid x, y)\Bigr)_+.

    p(z | x, y) is a logistic regression with slopes for each label. The program and the model of the label are those
    of :class:`LinearPostClassifier`.

    Parameters
    ----------
    notion : str or FairnessNotion
        One that compares decisions.
    epsilon : float
        Privacy budget of everybody's answer; delta is 0.
    tolerance : float
        Largest difference between two groups' rates.
    groups : sequence, mapping or "infer"
        As in :class:`justitia.LagrangianDualClassifier`.
    not_given : bool
        Whether "not given" is one more answer. Without it, rows whose attribute is not given answer with any group.
    minority : hashable, optional
        The smaller of two groups, which has to be public knowledge: answers are then given by the mechanism that leaves
        data least unfair, instead of randomised response. It needs ``not_given=False``.
    preprocess, random_state
        As in :class:`justitia.LagrangianDualClassifier`.
    noise_seed : int, optional
        Makes the randomisation reproducible for tables; the certificate then says that nothing is promised.

    Attributes
    ----------
    classes_ : ndarray (2,)
    weights_ : ndarray (2, G)
    models_ : tuple
    ledger_ : PrivacyLedger
    certificate_ : Certificate

    Guarantee
    ---------
    * With a given list of groups and no ``noise_seed``, everything that leaves ``fit`` is (epsilon, 0)-differentially
      private in the attribute of any one row.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        epsilon: float = 1.0,
        tolerance: float = 0.01,
        groups: Any = None,
        not_given: bool = True,
        minority: Hashable | None = None,
        preprocess: str | None = "auto",
        random_state: Any = None,
        noise_seed: int | None = None,
    ) -> None:
        self.notion = notion
        self.epsilon = epsilon
        self.tolerance = tolerance
        self.groups = groups
        self.not_given = not_given
        self.minority = minority
        self.preprocess = preprocess
        self.random_state = random_state
        self.noise_seed = noise_seed

    def _learn(self, X: Any, y: Any, sensitive_features: Any, ledger: PrivacyLedger | None) -> Learned:
        _, seed = self._checked()
        epsilon = check_positive("epsilon", self.epsilon)
        noise_from(self.noise_seed)
        named_groups(self.groups, epsilon)
        features, target = self._read(X, y)
        ledger = ledger_or_new(ledger, epsilon=epsilon, delta=0.0)
        private = {"epsilon": epsilon, "noise_seed": self.noise_seed}
        vault = self._vault(sensitive_features, ledger, n=len(target), **private)
        answers, unmix = self._ask(vault, epsilon)
        linear = make_pipeline(FunctionTransformer(slopes_for_each_label), LogisticRegression(max_iter=1000))
        found = self._posteriors(X, features, target, answers, GroupModel(linear, unmix), seed=seed)
        return Learned(**found, vault=vault, ledger=ledger)

    def _ask(self, vault: Vault, epsilon: float) -> tuple[Codes, NDArray[np.float64]]:
        """Everybody's answer, and (G, answers) what undoes the randomisation."""
        not_given = bool(self.not_given)
        response: Response = RandomizedResponse(epsilon)
        unmix = inverse_response_matrix(epsilon, vault.n_groups + not_given)[: vault.n_groups]
        if self.minority is not None:
            minority = self._code_of_minority(vault)
            response = MinorityResponse(epsilon, minority)
            unmix = np.asarray(np.linalg.inv(minority_response_matrix(epsilon, minority)), dtype=np.float64)
        answers = local_vault(vault).randomized_labels(response, purpose="randomised groups", not_given=not_given)
        return answers, unmix

    def _code_of_minority(self, vault: Vault) -> int:
        if vault.n_groups != 2 or self.minority not in vault.groups:
            raise ValueError("expected two groups and minority to be one of them, got others; leave minority out.")
        if self.not_given:
            raise ValueError(
                "expected not_given=False where a minority is named, got True; "
                "people without an attribute then answer with either group."
            )
        return vault.groups.index(self.minority)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the randomised response, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None
        return tags
