"""LinearPost (Xian and Zhao 2024) for any number of classes: exact attribute in training, none at prediction."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bench.rivals.boosted import BoostedTrees
from bench.rivals.classifier import all_or_nothing
from bench.rivals.rate_program import prices, rate_table, solve_program
from bench.rivals.target_model import Array, ClassesModel, one_hot
from justitia._validate import check_nonnegative
from justitia.privacy.ledger import PrivacyLedger


class LinearPostClassesClassifier(ClassesModel):
    r"""Post-processing by a linear program, for several classes; not private.

    Models of p(y | x) and p(a | x, y) are learned from the exact attribute. The rule of
    :func:`~bench.rivals.rate_program.solve_program` on the training rows decides by

    .. math:: \arg\max_l\; p(y{=}l \mid x) - \sum_{a, y} w_{yla}\, p(a, y \mid x).

    Parameters
    ----------
    notion : str or sequence of str
        "demographic_parity", "equalized_odds", "accuracy_parity", with two classes "equal_opportunity", or several.
    tolerance : float
        Largest difference between two groups' rates.
    groups : sequence, mapping or None
        The list of group labels; read off the data if None.
    base : object, optional
        Model of the classes; boosted trees by default.
    random_state : int, optional

    Attributes
    ----------
    classes_ : ndarray (L,)
    prices_ : ndarray (L, L, G)
        w.
    certificate_ : Certificate
        Epsilon is infinite.
    """

    def __init__(
        self,
        notion: Any = "demographic_parity",
        *,
        tolerance: float = 0.01,
        groups: Any = None,
        base: Any = None,
        random_state: Any = None,
    ) -> None:
        self.notion = notion
        self.tolerance = tolerance
        self.groups = groups
        self.base = base
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Learn posteriors, then solve."""
        tolerance = check_nonnegative("tolerance", self.tolerance)
        numbers, target, seed = self._read(X, y)
        table = rate_table(self.notion, len(self.classes_))
        vault = self._vault(sensitive_features, len(target), ledger)
        codes = self._exact_codes(vault, "exact attribute for a model of the groups")
        self.model_, self.group_model_ = self._base(), GroupTrees(len(self.classes_), self.n_groups_)
        eta = self.model_.learn(numbers, target, seed=seed)
        joint = eta[:, :, None] * self.group_model_.learn(numbers, target, codes, seed=seed)
        self.prices_ = prices(table, joint, solve_program(eta, joint, table, tolerance))
        self.certificate_ = vault.certificate()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): decisions; the attribute is not an input."""
        numbers = self._numbers(X, reset=False)
        eta = self.model_(numbers)
        joint = eta[:, :, None] * self.group_model_(numbers)
        margins = eta - np.einsum("nya,yla->nl", joint, self.prices_)
        labels: NDArray[Any] = self.classes_[np.argmax(margins, axis=1)]
        return labels


class GroupTrees:
    """p(a | x, y) for every class y by boosted trees that read features and class."""

    def __init__(self, n_classes: int, n_groups: int) -> None:
        self.n_classes, self.n_groups = n_classes, n_groups
        self.trees = BoostedTrees("classes")

    def learn(self, numbers: Array, target: NDArray[np.int64], codes: NDArray[np.int64], *, seed: int) -> Array:
        """(n, L, G) for the training rows, by models that have not seen them; rows without a group take the mean."""
        known = codes < self.n_groups
        self.trees.learn(self._with_class(numbers, target)[known], codes[known], seed=seed)
        found = np.zeros((len(target), self.n_classes, self.n_groups))
        for label in range(self.n_classes):
            rows = self._with_class(numbers, np.full(len(target), label))
            found[known, label] = self.trees.out_of_fold(rows[known])
            if not known.all():
                found[~known, label] = self.trees(rows[~known])
        return found

    def __call__(self, numbers: Array) -> Array:
        """(n, L, G) for new rows."""
        rows = [self.trees(self._with_class(numbers, np.full(len(numbers), label))) for label in range(self.n_classes)]
        return np.stack(rows, axis=1)

    def _with_class(self, numbers: Array, target: NDArray[np.int64]) -> Array:
        return np.hstack([numbers, one_hot(target, self.n_classes)])
