"""Xian and Zhao (2024), LinearPost: the best rule for posteriors of group and label, learned from the attribute."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from bench.rivals.boosted import lightgbm_model
from bench.rivals.posteriors import GroupModel, Learned, PosteriorClassifier
from justitia.notions import FairnessNotion
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, local_vault

#: Trees and leaves of the model of the groups, for at most so many rows.
SIZES = ((2_000, 60, 7), (20_000, 150, 15), (10**12, 200, 31))


class LinearPostClassifier(PosteriorClassifier):
    r"""Post-processing by a linear program, without the attribute at prediction; not private.

    A model of p(a, y | x) is learned from the exact attribute. Among all rules that are functions of it, the one with
    the smallest error such that rates of two groups differ by at most ``tolerance`` is the solution of a linear
    program; it decides by

    .. math:: 2 p(y{=}1 \mid x) - 1 > \sum_{a, y} w_{ay}\, p(a, y \mid x).

    Here p(y | x) comes from the default base of engine "plugin" and p(a | x, y) from boosted trees, too,
    both cross-fitted, and the program is solved through its dual. So what differs from engine "plugin" is privacy:
    trees on the exact attribute instead of memberships from noised sums.

    Parameters
    ----------
    notion : str or FairnessNotion
        One that compares decisions.
    tolerance : float
        Largest difference between two groups' rates.
    groups : sequence, mapping or None
        The list of group labels; read off the data if None.
    preprocess, random_state
        As in :class:`justitia.LagrangianDualClassifier`.

    Attributes
    ----------
    classes_ : ndarray (2,)
    weights_ : ndarray (2, G)
        w, by label and group.
    models_ : tuple
        Of label and group: unlike our engines this method predicts groups.
    ledger_ : PrivacyLedger
        One release without protection.
    certificate_ : Certificate
        Epsilon is infinite.

    Notes
    -----
    Rows whose attribute is not given take part in the label's model and in the program, with the posteriors that the
    other rows give them.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        tolerance: float = 0.01,
        groups: Any = None,
        preprocess: str | None = "auto",
        random_state: Any = None,
    ) -> None:
        self.notion = notion
        self.tolerance = tolerance
        self.groups = groups
        self.preprocess = preprocess
        self.random_state = random_state

    def _learn(self, X: Any, y: Any, sensitive_features: Any, ledger: PrivacyLedger | None) -> Learned:
        _, seed = self._checked()
        ledger = ledger_or_new(ledger, epsilon=math.inf, delta=0.0)
        features, target = self._read(X, y)
        vault = self._vault(sensitive_features, ledger, n=len(target))
        codes = local_vault(vault).reveal(purpose="exact attribute for a model of the groups")
        size, leaves = next((trees, leaves) for most, trees, leaves in SIZES if len(target) <= most)
        trees = lightgbm_model("LGBMClassifier", n_estimators=size, num_leaves=leaves)
        found = self._posteriors(X, features, target, codes, GroupModel(trees, np.eye(vault.n_groups)), seed=seed)
        return Learned(**found, vault=vault, ledger=ledger)
