"""LightGBM base model; the number of trees is chosen by out-of-fold loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from justitia.learners.base import CrossFitted, Inputs, cross_fit_folds, errors_of_base

Array = NDArray[np.float64]
#: Leaves per tree, by the number of training rows at most; evidence in ``docs/plugin.md``.
LEAVES_BY_ROWS = ((2_000, 7), (20_000, 15), (10**12, 31))
#: Trees at most, share of the columns that each tree may use, and L2 penalty of its leaf values.
MAX_TREES, COLUMN_SHARE, LEAF_PENALTY = 300, 0.5, 5.0
#: Early stopping: boosting of a fold ends after so many trees in a row that do not lower its out-of-fold loss.
PATIENCE = 40
LEARNING_RATE = 0.06
#: Rows whose leaves are looked up at once.
CHUNK = 8_192


class LightGBMBase(CrossFitted):
    """Boosted trees of LightGBM, cross-fitted; all folds use the number of trees with the least out-of-fold loss.

    Parameters
    ----------
    n : int
        Number of training rows.
    """

    def __init__(self, n: int) -> None:
        leaves = next(leaves for most, leaves in LEAVES_BY_ROWS if n <= most)
        trees = lightgbm_model("LGBMClassifier", n_estimators=MAX_TREES, num_leaves=leaves)
        super().__init__(trees.set_params(colsample_bytree=COLUMN_SHARE, reg_lambda=LEAF_PENALTY), encoded=True)

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold probabilities, by the same number of trees in every fold."""
        out_of_fold, models, losses = [], [], np.zeros(MAX_TREES)
        for train, test in cross_fit_folds(y, seed):
            model, logits = self.learn_fold(inputs, y, weight, train, test, seed=seed)
            loss = logits.losses(y[test], weight[test])
            losses = losses[: len(loss)] + loss[: len(losses)]  # of as many trees as all folds have
            out_of_fold.append((test, logits))
            models.append(model)
            progress(1)
        best = int(np.argmin(losses))
        for model in models:
            model.booster_.best_iteration = best + 1  # LightGBM predicts with, and writes, this many trees
        self.models = tuple(models)
        probability = np.zeros(len(y))
        for test, logits in out_of_fold:
            probability[test] = expit(logits.after(best + 1))
        return probability

    def learn_fold(
        self, inputs: Inputs, y: Array, weight: Array, train: Any, test: Any, *, seed: int
    ) -> tuple[Any, _StagedLogits]:
        """Fit a clone on some rows; return it with its log-odds of the other rows after each number of trees."""
        import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

        model, held_out = self.seeded_clone(seed), inputs.numbers[test]
        with errors_of_base(model):
            model.fit(
                inputs.numbers[train],
                y[train].astype(int),
                sample_weight=weight[train],
                eval_X=held_out,
                eval_y=y[test].astype(int),
                eval_sample_weight=[weight[test]],
                eval_metric="binary_logloss",
                callbacks=[lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)],
            )
            return model, _StagedLogits.from_booster(model.booster_, held_out)


@dataclass(frozen=True, eq=False)
class _StagedLogits:
    """Log-odds of rows after each number of trees, stored as the leaf of each row in each tree: a byte for each."""

    leaves: NDArray[np.uint8]
    values: tuple[Array, ...]

    @classmethod
    def from_booster(cls, booster: Any, rows: Any) -> _StagedLogits:
        """Look up the leaves of ``rows`` in all trees of a fitted model."""
        leaves = np.empty((booster.num_trees(), len(rows)), dtype=np.uint8)
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            found = booster.predict(some, pred_leaf=True, num_iteration=-1)
            leaves[:, start : start + CHUNK] = np.asarray(found).reshape(len(some), -1).T
        values = []
        for j, tree in enumerate(leaves):
            outputs = map(booster.get_leaf_output, repeat(j), range(tree.max(initial=0) + 1))
            values.append(np.fromiter(outputs, dtype=np.float64))
        return cls(leaves, tuple(values))

    def losses(self, y: Array, weight: Array) -> Array:
        """(number of trees,): weighted sums of the log loss after each number of trees."""
        logits, losses = np.zeros(len(y)), np.zeros(len(self.leaves))
        for j, (tree, values) in enumerate(zip(self.leaves, self.values, strict=True)):
            logits += values[tree]
            losses[j] = (np.logaddexp(0.0, logits) - y * logits) @ weight
        return losses

    def after(self, trees: int) -> Array:
        """(m,): log-odds after so many trees."""
        logits = np.zeros(self.leaves.shape[1])
        for tree, values in zip(self.leaves[:trees], self.values[:trees], strict=True):
            logits += values[tree]
        return logits


def default_base(n: int) -> LightGBMBase:
    """Default base model for n rows; it reads the numbers after the estimator's preprocessing."""
    return LightGBMBase(n)


def lightgbm_model(kind: str, **size: int) -> Any:
    """Unfitted estimator of LightGBM, of class ``kind``, that gives the same answer on every machine."""
    import lightgbm  # noqa: PLC0415

    return getattr(lightgbm, kind)(
        learning_rate=LEARNING_RATE,
        min_child_samples=20,
        verbosity=-1,
        n_jobs=1,
        random_state=0,
        deterministic=True,
        force_row_wise=True,
        **size,
    )
