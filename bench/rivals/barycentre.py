"""Chzhen et al. (2020): regression with equal distributions by quantile maps to a Wasserstein barycentre."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from bench.rivals.boosted import BoostedTrees
from bench.rivals.classifier import all_or_nothing
from bench.rivals.target_model import Array, Codes, NumberModel, one_hot
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import PrivacyLedger


class BarycentreRegressor(NumberModel):
    r"""Every group's predictions are moved to the common distribution; it reads the attribute, and is not private.

    With f(x, a) = E[y | x, a], distribution functions :math:`F_a` and quantile functions :math:`Q_a` of f in each
    group, and shares :math:`w_a`,

    .. math:: g(x, a) = \sum_{a'} w_{a'}\, Q_{a'}(F_a(f(x, a))).

    The authors learn f and the distributions from two samples. Here f is cross-fitted, and out-of-fold predictions of
    the training rows stand for the second sample.

    Parameters
    ----------
    groups : sequence, mapping or None
    base : object, optional
        Ignored: the trees read the attribute, too.
    random_state : int, optional

    Attributes
    ----------
    scores_ : tuple of ndarray
        Sorted predictions of each group's training rows.
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
        """Learn f, then the distributions of its out-of-fold predictions."""
        numbers, target, seed = self._read(X, y)
        vault = self._vault(sensitive_features, len(target), ledger)
        codes = self._exact_codes(vault, "exact attribute as an input, and for distributions")
        self.model_ = BoostedTrees("number")
        scores = self.model_.learn(np.hstack([numbers, one_hot(codes, self.n_groups_)]), target, seed=seed)
        self.scores_ = tuple(np.sort(scores[codes == a]) for a in range(self.n_groups_))
        self.certificate_ = vault.certificate()
        return self

    @protects_attribute
    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """(n,): predictions from features and attribute; a row without a group keeps f."""
        numbers = self._numbers(X, reset=False)
        codes = self._codes_of_new_rows(sensitive_features, len(numbers))
        scores = self.model_(np.hstack([numbers, one_hot(codes, self.n_groups_)]))
        return to_barycentre(scores, codes, self.scores_)


def to_barycentre(scores: Array, codes: Codes, sorted_scores: tuple[Array, ...]) -> Array:
    """(n,): scores moved to the mean, by shares, of the groups' quantile functions.

    Parameters
    ----------
    sorted_scores : tuple of ndarray
        A sample of each group's scores, in ascending order.
    """
    sizes = np.array([len(one) for one in sorted_scores])
    moved = scores.copy()
    for a, own in enumerate(sorted_scores):
        rows = codes == a
        if not len(own) or not rows.any():
            continue
        # Middle of the steps on either side, so that ties are moved together, without the authors' jitter.
        ends = [np.searchsorted(own, scores[rows], side=side) for side in ("left", "right")]
        rank = (ends[0] + ends[1]) / (2 * len(own))
        moved[rows] = sum(
            size / sizes.sum() * np.quantile(other, rank)
            for size, other in zip(sizes, sorted_scores, strict=True)
            if size
        )
    return moved
