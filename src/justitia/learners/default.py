"""The default base, by one rule from public numbers: boosted trees, as many as rows that they have not seen ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
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
#: Rows whose leaves are looked up at once.
CHUNK = 8_192


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
        left_out, models = [], []
        for seen, unseen in parts_of(y, seed):
            model, path = self.learn_part(inputs, y, weight, seen, unseen, seed=seed)
            left_out.append((unseen, path))
            models.append(model)
            progress(1)
        length = min(len(path) for _, path in left_out)
        best = int(np.argmin(sum(path.losses(length, y[unseen], weight[unseen]) for unseen, path in left_out)))
        for model in models:
            model.booster_.best_iteration = best + 1  # what is predicted with, and written
        self.models = tuple(models)
        chosen = np.zeros(len(y))
        for unseen, path in left_out:
            chosen[unseen] = expit(path.after(best + 1))
        return chosen

    def learn_part(
        self, inputs: Inputs, y: Array, weight: Array, seen: Any, unseen: Any, *, seed: int
    ) -> tuple[Any, _Path]:
        """A clone that learns from some rows, and what it says of the others after each number of trees."""
        model = self.seeded_clone(seed)
        others = self._read(inputs.take(unseen)), y[unseen], weight[unseen]
        with told_of(model):
            _boost(model, (self._read(inputs.take(seen)), y[seen], weight[seen]), others)
            return model, _Path.of(model.booster_, others[0])


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


@dataclass(frozen=True, eq=False)
class _Path:
    """Log-odds of rows after each number of trees, as the leaves that they are in: a byte per row and tree."""

    leaves: NDArray[np.uint8]
    values: tuple[Array, ...]

    @classmethod
    def of(cls, booster: Any, rows: Any) -> _Path:
        """What a model says of rows."""
        leaves = np.empty((booster.num_trees(), len(rows)), dtype=np.uint8)
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            found = booster.predict(some, pred_leaf=True, num_iteration=-1)
            leaves[:, start : start + CHUNK] = np.asarray(found).reshape(len(some), -1).T
        values = [
            np.array([booster.get_leaf_output(j, leaf) for leaf in range(tree.max(initial=0) + 1)])
            for j, tree in enumerate(leaves)
        ]
        return cls(leaves, tuple(values))

    def __len__(self) -> int:
        return len(self.leaves)

    def _each(self) -> Iterator[Array]:
        logits = np.zeros(self.leaves.shape[1])
        for tree, values in zip(self.leaves, self.values, strict=True):
            logits += values[tree]
            yield logits

    def losses(self, length: int, y: Array, weight: Array) -> Array:
        """(length,): sums of losses after each number of trees."""
        each = ((np.logaddexp(0.0, logits) - y * logits) @ weight for logits in islice(self._each(), length))
        return np.fromiter(each, dtype=np.float64, count=length)

    def after(self, trees: int) -> Array:
        """(m,): log-odds after so many trees."""
        return next(islice(self._each(), trees - 1, None))


def default_base(n: int) -> BoostedBase:
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
