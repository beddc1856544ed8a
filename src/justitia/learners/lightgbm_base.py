"""LightGBM base model; the number of trees is chosen by out-of-fold loss."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from justitia.learners.base import CrossFitted, Inputs, cross_fit_folds, errors_of_base
from justitia.tasks import BINARY, Task

Array = NDArray[np.float64]
#: Leaves per tree, by the number of training rows at most; evidence in ``docs/plugin.md``.
LEAVES_BY_ROWS = ((2_000, 7), (20_000, 15), (10**12, 31))
#: Trees at most, share of the columns that each tree may use, and L2 penalty of its leaf values.
MAX_TREES, COLUMN_SHARE, LEAF_PENALTY = 300, 0.5, 5.0
#: Early stopping: boosting of a fold ends after so many trees in a row that do not lower its out-of-fold loss.
PATIENCE = 40
LEARNING_RATE = 0.06
#: Estimator of LightGBM and the loss that stops it early, by kind of target.
OBJECTIVES = {
    "binary": ("LGBMClassifier", "binary_logloss"),
    "classes": ("LGBMClassifier", "multi_logloss"),
    "number": ("LGBMRegressor", "l2"),
}
#: Prediction from the sum of the trees, by kind of target.
LINKS: dict[str, Callable[[Array], Array]] = {
    "binary": expit,
    "classes": lambda scores: softmax(scores, axis=1),
    "number": lambda scores: scores,
}
#: Rows whose leaves are looked up at once.
CHUNK = 8_192


class LightGBMBase(CrossFitted):
    """Boosted trees of LightGBM, cross-fitted; all folds use the number of trees with the least out-of-fold loss.

    The loss is the log loss of classes and the squared error of numbers.

    Parameters
    ----------
    n : int
        Number of training rows.
    task : Task
        The target; by default binary.
    """

    def __init__(self, n: int, task: Task = BINARY) -> None:
        leaves = next(leaves for most, leaves in LEAVES_BY_ROWS if n <= most)
        trees = lightgbm_model(OBJECTIVES[task.kind][0], n_estimators=MAX_TREES, num_leaves=leaves)
        trees.set_params(colsample_bytree=COLUMN_SHARE, reg_lambda=LEAF_PENALTY)
        super().__init__(trees, task, encoded=True)

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold predictions, by the same number of trees in every fold."""
        folds, models, losses = list(cross_fit_folds(y, seed, self.task)), [], np.zeros(MAX_TREES)
        for train, test in folds:
            model, loss = self.learn_fold(inputs, y, weight, train, test, seed=seed)
            losses = losses[: len(loss)] + loss[: len(losses)]  # of as many iterations as all folds have
            models.append(model)
            progress(1)
        iterations = int(np.argmin(losses)) + 1
        prediction = np.zeros(self.task.prediction_shape(len(y)))
        for model, (_, test) in zip(models, folds, strict=True):
            model.booster_.best_iteration = iterations  # LightGBM predicts with, and writes, this many
            scores = model.booster_.predict(inputs.numbers[test], raw_score=True)
            prediction[test] = LINKS[self.task.kind](scores)
        self.models = tuple(models)
        return prediction

    def learn_fold(
        self, inputs: Inputs, y: Array, weight: Array, train: Any, test: Any, *, seed: int
    ) -> tuple[Any, Array]:
        """Fit a clone on some rows; return it with its loss on the other rows after each iteration of boosting."""
        import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

        model, held_out = self.seeded_clone(seed), inputs.numbers[test]
        target = y if self.task.kind == "number" else y.astype(int)
        with errors_of_base(model):
            model.fit(
                inputs.numbers[train],
                target[train],
                sample_weight=weight[train],
                eval_X=held_out,
                eval_y=target[test],
                eval_sample_weight=[weight[test]],
                eval_metric=OBJECTIVES[self.task.kind][1],
                callbacks=[lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)],
            )
            return model, _staged_losses(model.booster_, held_out, y[test], weight[test], self.task.kind)


def _staged_losses(booster: Any, rows: Any, y: Array, weight: Array, kind: str) -> Array:
    """(iterations,): weighted sums of the loss after each iteration of boosting, which adds a tree to each score."""
    leaves = _leaves(booster, rows)
    scores = np.zeros((booster.num_model_per_iteration(), len(rows)))  # log-odds, logits of the classes, or a number
    losses = []
    for j, tree in enumerate(leaves):
        outputs = map(booster.get_leaf_output, repeat(j), range(tree.max(initial=0) + 1))
        score = j % len(scores)
        scores[score] += np.fromiter(outputs, dtype=np.float64)[tree]
        if score == len(scores) - 1:
            losses.append(_losses(scores, y, kind) @ weight)
    return np.array(losses)


def _leaves(booster: Any, rows: Any) -> NDArray[np.uint8]:
    """(trees, rows): the leaf of each row in each tree, a byte for each."""
    leaves = np.empty((booster.num_trees(), len(rows)), dtype=np.uint8)
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        found = booster.predict(some, pred_leaf=True, num_iteration=-1)
        leaves[:, start : start + CHUNK] = np.asarray(found).reshape(len(some), -1).T
    return leaves


def _losses(scores: Array, y: Array, kind: str) -> Array:
    """(m,): loss of each row with the scores (1, m), or (K, m) for K classes."""
    if kind == "classes":
        losses: Array = logsumexp(scores, axis=0) - scores[y.astype(int), np.arange(len(y))]
    elif kind == "number":
        losses = (y - scores[0]) ** 2
    else:
        losses = np.logaddexp(0.0, scores[0]) - y * scores[0]
    return losses


def default_base(n: int, task: Task = BINARY) -> LightGBMBase:
    """Default base model for n rows of a target; it reads the numbers after the estimator's preprocessing."""
    return LightGBMBase(n, task)


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
