"""The default base, by one rule from public numbers: boosted trees, as many as rows that they have not seen ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from justitia.learners.base import CrossFitted, parts_of, told_of
from justitia.learners.inputs import Inputs

Array = NDArray[np.float64]
#: Leaves of a tree for at most so many rows; evidence in ``docs/plugin.md``.
SIZES = ((2_000, 7), (20_000, 15), (10**12, 31))
#: Trees at most; each of them sees a share of the columns, and its leaves are pulled towards 0.
TREES, COLUMNS, PULL = 300, 0.5, 5.0
#: Boosting ends when so many trees in a row have not helped with the rows that were left out.
PATIENCE = 40
LEARNING_RATE = 0.06


class BoostedBase(CrossFitted):
    """Boosted trees of LightGBM, cross-fitted; how many is one number, chosen where the loss out of fold is least.

    Parameters
    ----------
    n : int
        Number of training rows.
    """

    def __init__(self, n: int) -> None:
        leaves = next(leaves for most, leaves in SIZES if n <= most)
        trees = boosted_trees("LGBMClassifier", n_estimators=TREES, num_leaves=leaves)
        super().__init__(trees.set_params(colsample_bytree=COLUMNS, reg_lambda=PULL), encoded=True)

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold probabilities, by as many trees of each clone."""
        parts, paths, models = list(parts_of(y, seed)), [], []
        for seen, unseen in parts:
            model = self.seeded_clone(seed)
            left_out = self._read(inputs.take(unseen)), y[unseen], weight[unseen]
            with told_of(model):
                _boost(model, (self._read(inputs.take(seen)), y[seen], weight[seen]), left_out)
                paths.append(_path(model.booster_, left_out[0]))
            models.append(model)
            progress(1)
        length = min(len(path) for path in paths)
        found = np.zeros((length, len(y)))
        for path, (_, unseen) in zip(paths, parts, strict=True):
            found[:, unseen] = path[:length]
        best = int(np.argmin(_losses(found, y, weight)))
        for model in models:
            model.booster_.best_iteration = best + 1  # what is predicted with, and written
        self.models = tuple(models)
        chosen: Array = expit(found[best])
        return chosen


def _boost(model: Any, seen: tuple[Any, Array, Array], left_out: tuple[Any, Array, Array]) -> None:
    """Fit until trees no longer help with the rows that were left out."""
    import lightgbm  # noqa: PLC0415

    (rows, y, weight), (others, label, other_weight) = seen, left_out
    model.fit(
        rows,
        y.astype(int),
        sample_weight=weight,
        eval_X=others,
        eval_y=label.astype(int),
        eval_sample_weight=[other_weight],
        eval_metric="binary_logloss",
        callbacks=[lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)],
    )


def _path(booster: Any, rows: Any) -> Array:
    """(T, m): log-odds of rows after each number of trees."""
    leaves = np.asarray(booster.predict(rows, pred_leaf=True, num_iteration=-1), dtype=np.intp).reshape(len(rows), -1)
    values = [
        np.array([booster.get_leaf_output(j, leaf) for leaf in range(leaves[:, j].max(initial=0) + 1)])[leaves[:, j]]
        for j in range(leaves.shape[1])
    ]
    path: Array = np.cumsum(values, axis=0)
    return path


def _losses(logits: Array, y: Array, weight: Array) -> Array:
    """(T,): mean loss after each number of trees."""
    losses: Array = (np.logaddexp(0.0, logits) - y * logits) @ (weight / weight.sum())
    return losses


def default_base(n: int) -> CrossFitted:
    """Boosted trees of LightGBM for n rows, on numbers after the estimator's preprocessing."""
    return BoostedBase(n)


def boosted_trees(kind: str, **size: int) -> Any:
    """An estimator of LightGBM that gives the same answer on every machine; imported when needed."""
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
