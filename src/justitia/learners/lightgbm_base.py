"""LightGBM base model: cross-fitted, with the number of trees that has the least out-of-fold loss.

New rows are predicted by the mean of the cross-fitted models where training rows are few, and by one model of all rows
where they are many: then a prediction costs a fifth, and the mean is no more accurate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from justitia.learners.base import FOLDS, CrossFitted, Inputs, cross_fit_folds, errors_of_base
from justitia.learners.trees import TreesClassifier, TreesModel, TreesRegressor, read_trees
from justitia.tasks import BINARY, Task

Array = NDArray[np.float64]
#: Leaves per tree, by the number of training rows at most; evidence in ``docs/design_choices.md``.
LEAVES_BY_ROWS = ((2_000, 7), (20_000, 15), (10**12, 31))
#: Learning rate and trees at most, by the number of training rows at most.
RATE_BY_ROWS = ((20_000, 0.06, 300), (10**12, 0.12, 150))
#: From more training rows than this on, one model of all rows is deployed; evidence in ``docs/design_choices.md``.
MOST_ROWS_OF_MEAN = 50_000
#: Share of the columns that each tree may use, and L2 penalty of its leaf values.
COLUMN_SHARE, LEAF_PENALTY = 0.5, 5.0
#: Early stopping: boosting of a fold ends after so many trees in a row that do not lower its out-of-fold loss.
PATIENCE = 40
#: Objective of LightGBM and the loss that stops it early, by kind of target.
OBJECTIVES = {
    "binary": ("binary", "binary_logloss"),
    "classes": ("multiclass", "multi_logloss"),
    "number": ("regression", "l2"),
}
#: Prediction from the sum of the trees, by kind of target.
LINKS: dict[str, Callable[[Array], Array]] = {
    "binary": expit,
    "classes": lambda scores: softmax(scores, axis=1),
    "number": lambda scores: scores,
}


@dataclass(frozen=True)
class BaseSize:
    """Sizes of the base, by the number of training rows.

    Attributes
    ----------
    leaves, most_trees : int
        Of one model.
    learning_rate : float
    one_model : bool
        Whether one model of all rows is deployed instead of the mean of the cross-fitted ones.
    """

    leaves: int
    learning_rate: float
    most_trees: int
    one_model: bool

    @classmethod
    def for_rows(cls, n: int) -> BaseSize:
        """Default for n training rows."""
        _, leaves = LEAVES_BY_ROWS[bisect_left(LEAVES_BY_ROWS, (n,))]
        _, rate, trees = RATE_BY_ROWS[bisect_left(RATE_BY_ROWS, (n,))]
        return cls(leaves, rate, trees, n > MOST_ROWS_OF_MEAN)


class LightGBMBase(CrossFitted):
    """Boosted trees of LightGBM, cross-fitted; all models use the number of trees with the least out-of-fold loss.

    The loss is the log loss of classes and the squared error of numbers. Features are binned once, with all rows: bins
    depend on features alone, never on targets.

    Parameters
    ----------
    n : int
        Number of training rows.
    task : Task
        The target; by default binary.
    n_jobs : int, optional
        Folds that are learned at the same time, and threads of a prediction; as in scikit-learn, None is one and -1
        is one per core. Trees do not depend on it.
    size : BaseSize, optional
        By default by the number of rows.
    """

    def __init__(self, n: int, task: Task = BINARY, *, n_jobs: int | None = None, size: BaseSize | None = None) -> None:
        self.size = BaseSize.for_rows(n) if size is None else size
        super().__init__(None, task, encoded=True, n_jobs=n_jobs)
        self.model_name = "LGBMRegressor" if task.kind == "number" else "LGBMClassifier"
        self.fits, self.deployed = FOLDS + self.size.one_model, 1 if self.size.one_model else FOLDS
        objective, metric = OBJECTIVES[task.kind]
        classes = {"num_class": task.n_classes} if task.kind == "classes" else {}
        #: Of LightGBM, with which it gives the same answer on every machine.
        self.parameters: dict[str, Any] = classes | {
            "objective": objective,
            "metric": metric,
            "learning_rate": self.size.learning_rate,
            "num_leaves": self.size.leaves,
            "min_data_in_leaf": 20,
            "feature_fraction": COLUMN_SHARE,
            "lambda_l2": LEAF_PENALTY,
            "seed": 0,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold predictions, by the same number of trees in every fold."""
        folds = list(cross_fit_folds(y, seed, self.task))
        data = self.binned(inputs, y, weight)
        fitted = self.each_fold(lambda fold: self.learn_fold(data, *fold), folds, progress)
        boosters, losses = zip(*fitted, strict=True)
        shared = min(map(len, losses))  # iterations that all folds have
        total = np.zeros(shared)
        for (_, test), loss in zip(folds, losses, strict=True):
            # LightGBM's losses are means; of rows without weight they are not a number, and then they do not count.
            total = total + weight[test].sum() * np.nan_to_num(loss[:shared])
        trees = int(np.argmin(total)) + 1
        prediction = np.zeros(self.task.prediction_shape(len(y)))

        def scored(one: tuple[Any, tuple[Any, NDArray[np.intp]]]) -> TreesModel:
            booster, (_, test) = one
            model = self._model(booster, trees)
            scores = model.booster_.predict(inputs.numbers[test], raw_score=True, num_threads=1)
            prediction[test] = LINKS[self.task.kind](scores)
            return model

        self.models = tuple(self.each_fold(scored, list(zip(boosters, folds, strict=True))))
        if self.size.one_model:
            self.models = (self.refitted(data, trees),)
            progress(1)
        return prediction

    def refitted(self, data: Any, trees: int) -> TreesModel:
        """One model of all rows with this many trees."""
        with errors_of_base(self.model_name):
            return self._model(self._train(data, trees), trees)

    def binned(self, inputs: Inputs, y: Array, weight: Array) -> Any:
        """All rows as LightGBM reads them."""
        import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

        with errors_of_base(self.model_name):
            return lightgbm.Dataset(inputs.numbers, y, weight=weight, params=self.parameters).construct()

    def learn_fold(self, data: Any, train: Any, test: Any) -> tuple[Any, Array]:
        """Boost on some rows; return LightGBM's booster and its mean loss on others after each iteration."""
        import lightgbm  # noqa: PLC0415

        losses: dict[str, dict[str, list[float]]] = {}
        stop = lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)
        with errors_of_base(self.model_name):
            booster = self._train(
                data.subset(train),
                self.size.most_trees,
                valid_sets=[data.subset(test)],
                valid_names=["unseen"],
                callbacks=[stop, lightgbm.record_evaluation(losses)],
            )
        return booster, np.array(losses["unseen"][OBJECTIVES[self.task.kind][1]])

    def _train(self, data: Any, trees: int, **more: Any) -> Any:
        import lightgbm  # noqa: PLC0415

        # Kept as it was trained: LightGBM would drop the trees after a fold's own best iteration.
        return lightgbm.train(self.parameters, data, num_boost_round=trees, keep_training_booster=True, **more)

    def _model(self, booster: Any, trees: int) -> TreesModel:
        """The first trees of a booster, without the data it was trained on."""
        kind = TreesRegressor if self.task.kind == "number" else TreesClassifier
        text = booster.model_to_string(num_iteration=trees)
        model = kind(read_trees(text), self.n_jobs)
        model.learned = text
        return model
