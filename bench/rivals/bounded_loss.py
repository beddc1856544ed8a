"""Bounded group loss (Agarwal, Dudik and Wu 2019) by fairlearn: no group's squared loss is above a bound."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from bench.rivals.agarwal import import_reductions
from bench.rivals.classifier import all_or_nothing
from bench.rivals.target_model import Array, NumberModel
from justitia._validate import check_choice
from justitia.privacy.ledger import PrivacyLedger

SEARCHES = ("exponentiated gradient", "grid search")


class BoundedLossRegressor(NumberModel):
    """fairlearn's reduction for regression; not private, and the attribute is not an input at prediction.

    The notion bounds the loss of every group. It does not compare distributions of predictions, so it is no
    competitor for demographic parity; it is what fairlearn offers for numbers.

    Parameters
    ----------
    search : {"exponentiated gradient", "grid search"}
        How the reduction is solved, with fairlearn's defaults.
    groups : sequence, mapping or None
    base : object, optional
        Trees that tell how many trees the reduction's own models have.
    random_state : int, optional

    Attributes
    ----------
    bound_ : float
        Loss over all training rows of the model without a constraint: no group may lose more than the mean does.
    certificate_ : Certificate
        Epsilon is infinite.

    Notes
    -----
    A mixture predicts the mean of its models. Its squared loss is at most that of a random choice among them, which
    is what fairlearn's ``predict`` makes.
    """

    def __init__(
        self, search: str = SEARCHES[0], *, groups: Any = None, base: Any = None, random_state: Any = None
    ) -> None:
        self.search = search
        self.groups = groups
        self.base = base
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Solve the reduction on the rows whose attribute is given."""
        check_choice("search", self.search, SEARCHES)
        numbers, target, seed = self._read(X, y)
        vault = self._vault(sensitive_features, len(target), ledger)
        codes = self._exact_codes(vault, "exact attribute for the reduction")
        known = codes < self.n_groups_
        trees = self._base()
        trees.learn(numbers, target, seed=seed)
        estimator = trees.unfitted(len(target))
        loss = np.square(estimator.fit(numbers, target).predict(numbers) - target)
        self.bound_ = float(loss.mean())
        self.models_, self.weights_ = self._reduce(estimator, numbers[known], target[known], codes[known])
        self.certificate_ = vault.certificate()
        return self

    def _reduce(self, estimator: Any, numbers: Array, target: Array, codes: Any) -> tuple[list[Any], Array]:
        reductions = import_reductions()
        square = reductions.SquareLoss(float(target.min()), float(target.max()))
        moment = reductions.BoundedGroupLoss(square, upper_bound=self.bound_)
        kind = reductions.GridSearch if self.search == SEARCHES[1] else reductions.ExponentiatedGradient
        with warnings.catch_warnings():
            # What fairlearn 0.15 does to its own tables, pandas 3 deprecates; a user can do nothing about it.
            warnings.simplefilter("ignore")
            game = kind(estimator, moment).fit(numbers, target, sensitive_features=codes)
        # The fitted object holds the training rows with their groups; only models and weights leave this function.
        if self.search == SEARCHES[1]:
            return [game.predictors_[game.best_idx_]], np.ones(1)
        weights = game.weights_.reindex(game.predictors_.index).to_numpy(dtype=np.float64)
        kept = np.flatnonzero(weights > 0)
        return [game.predictors_[j] for j in kept], weights[kept]

    def predict(self, X: Any) -> Array:
        """(n,): mean of the models, by their weights."""
        numbers = self._numbers(X, reset=False)
        mean: Array = (
            sum(
                weight * np.asarray(model.predict(numbers))
                for model, weight in zip(self.models_, self.weights_, strict=True)
            )
            / self.weights_.sum()
        )
        return mean
