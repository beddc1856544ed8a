"""Boosted trees for classes and numbers, cross-fitted: what every rival for these targets starts from."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from justitia.learners.base import FOLDS
from justitia.learners.lightgbm_base import COLUMN_SHARE, LEAF_PENALTY, LEAVES_BY_ROWS, PATIENCE

Array = NDArray[np.float64]
Kind = Literal["classes", "number"]
#: Trees at most and learning rate.
MAX_TREES, LEARNING_RATE = 300, 0.06
#: LightGBM's estimator and loss for each kind of target; with two classes it reads the loss as that of two.
ESTIMATORS = {"classes": ("LGBMClassifier", "multi_logloss"), "number": ("LGBMRegressor", "l2")}


class BoostedTrees:
    """P(y = l | x) or E[y | x] by LightGBM, with the sizes of the library's default base.

    Training rows are scored by models that have not seen them, new rows by the mean of all models. All models have the
    number of trees with the least out-of-fold loss.

    Parameters
    ----------
    kind : {"classes", "number"}
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.models: tuple[Any, ...] = ()
        self.held_out: tuple[Any, ...] = ()
        self.trees = 0

    def learn(self, numbers: Array, target: NDArray[Any], *, seed: int) -> Array:
        """Out-of-fold scores, (n, L) for classes 0 .. L - 1 and (n,) for a number."""
        split: Any = StratifiedKFold if self.kind == "classes" else KFold
        parts = list(split(FOLDS, shuffle=True, random_state=seed).split(numbers, target))
        fitted = [self._fit(numbers, target, train, test) for train, test in parts]
        most = min(len(losses) for _, losses in fitted)
        total = sum(len(test) * losses[:most] for (_, test), (_, losses) in zip(parts, fitted, strict=True))
        self.trees = int(np.argmin(total)) + 1
        self.models = tuple(model for model, _ in fitted)
        self.held_out = tuple(test for _, test in parts)
        return self.out_of_fold(numbers)

    def out_of_fold(self, numbers: Array) -> Array:
        """Scores of the training rows, whose features may have been changed, by models that have not seen them."""
        first, *others = zip(self.held_out, self.models, strict=True)
        scores = self._score(first[1], numbers[first[0]])
        found = np.zeros((len(numbers), *scores.shape[1:]))
        found[first[0]] = scores
        for test, model in others:
            found[test] = self._score(model, numbers[test])
        return found

    def unfitted(self, n: int) -> Any:
        """An estimator for n rows with as many trees as were best."""
        return _estimator(self.kind, n).set_params(n_estimators=self.trees or MAX_TREES)

    def __call__(self, numbers: Array) -> Array:
        """Scores of new rows."""
        mean: Array = np.mean([self._score(model, numbers) for model in self.models], axis=0)
        return mean

    def __repr__(self) -> str:
        return f"BoostedTrees({self.kind!r})"

    def _fit(self, numbers: Array, target: NDArray[Any], train: Any, test: Any) -> tuple[Any, Array]:
        import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

        losses: dict[str, Any] = {}
        metric = ESTIMATORS[self.kind][1]
        model = _estimator(self.kind, len(target)).fit(
            numbers[train],
            target[train],
            eval_X=numbers[test],
            eval_y=target[test],
            eval_metric=metric,
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), lightgbm.record_evaluation(losses)],
        )
        ((loss,),) = (recorded.values() for recorded in losses.values())
        return model, np.asarray(loss)

    def _score(self, model: Any, numbers: Array) -> Array:
        ask = model.predict_proba if self.kind == "classes" else model.predict
        return np.asarray(ask(numbers, num_iteration=self.trees), dtype=np.float64)


def _estimator(kind: Kind, n: int) -> Any:
    leaves = next(leaves for most, leaves in LEAVES_BY_ROWS if n <= most)
    model = lightgbm_model(ESTIMATORS[kind][0], n_estimators=MAX_TREES, num_leaves=leaves)
    return model.set_params(colsample_bytree=COLUMN_SHARE, reg_lambda=LEAF_PENALTY)


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
