"""Base models: P(y = 1 | x) from any classifier, cross-fitted so that no training row is scored by a model that saw it.

A base model is what the default engine corrects. It may be an unfitted scikit-learn classifier (:class:`CrossFitted`),
a fitted one or a function (:class:`Fitted`), or a column of scores (:class:`ScoreColumn`). Base models read public
features and labels, never the sensitive attribute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

Array = NDArray[np.float64]
#: Folds of cross-fitting: each fold is scored by a model that was fitted on the others.
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Inputs:
    """Features of some rows in the two forms that models read.

    Attributes
    ----------
    table : array-like or DataFrame (n, p)
        As the user passed them.
    numbers : ndarray (n, d)
        After the estimator's preprocessing.
    """

    table: Any
    numbers: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not (hasattr(self.table, "shape") or isinstance(self.table, list | tuple)):
            # An object that only has __array__ cannot be indexed by row.
            object.__setattr__(self, "table", np.asarray(self.table))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, index: NDArray[np.intp]) -> Inputs:
        """Select rows by position."""
        return Inputs(_safe_indexing(self.table, index), self.numbers[index])


class Base(ABC):
    """Interface of a base model: a model of the label."""

    #: Number of models that :meth:`learn` fits.
    fits: int = 0

    def learn(
        self,
        inputs: Inputs,
        y: Array,  # noqa: ARG002 - read by base models that are fitted here
        weight: Array,  # noqa: ARG002
        *,
        seed: int,  # noqa: ARG002
        progress: Callable[[int], object],  # noqa: ARG002
    ) -> Array:
        """(n,): P(y = 1 | x) of the training rows, each by a model that was not fitted on it.

        A base model that is fitted already does not learn and scores the rows as they are.
        """
        return self.probability(inputs)

    @abstractmethod
    def probability(self, inputs: Inputs) -> Array:
        """(m,): P(y = 1 | x) of new rows."""

    @abstractmethod
    def describe(self) -> str:
        """One phrase that names the model, for logs and reports."""


class CrossFitted(Base):
    """A scikit-learn classifier, cross-fitted: one clone per fold; new rows get the average of all clones.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``; it is cloned, never changed.
    encoded : bool
        Whether it reads the numbers after the estimator's preprocessing instead of the table as it was passed.
    """

    fits = FOLDS

    def __init__(self, estimator: Any, *, encoded: bool = False) -> None:
        self.estimator, self.encoded = estimator, encoded
        self.models: tuple[Any, ...] = ()

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold probabilities; the folds are stratified by the label and drawn with the public seed."""
        models, out_of_fold = [], np.zeros(len(y))
        for train, test in cross_fit_folds(y, seed):
            model = self.seeded_clone(seed)
            fold, w = inputs.take(train), weight[train]
            # Not every classifier takes weights; without weights none has to.
            weights = {} if (w == w[0]).all() else {_weight_parameter(model): w}
            with errors_of_base(model):
                model.fit(self._read(fold), y[train].astype(int), **weights)
            out_of_fold[test] = _positive_probability(model, self._read(inputs.take(test)))
            models.append(model)
            progress(1)
        self.models = tuple(models)
        return out_of_fold

    def seeded_clone(self, seed: int) -> Any:
        """Unfitted copy whose unset seeds are ``seed``, so that the same ``random_state`` gives the same answer."""
        model = clone(self.estimator)
        for name, value in model.get_params().items():
            if value is None and name.split("__")[-1] == "random_state":
                model.set_params(**{name: seed})
        return model

    def _read(self, inputs: Inputs) -> Any:
        return inputs.numbers if self.encoded else inputs.table

    def probability(self, inputs: Inputs) -> Array:
        """Average of the clones."""
        rows = self._read(inputs)
        mean: Array = np.mean([_positive_probability(model, rows) for model in self.models], axis=0)
        return mean

    def describe(self) -> str:
        """Class of the classifier and number of clones."""
        return f"{_name(self.estimator)}, average of {len(self.models) or FOLDS} cross-fitted models"


class Fitted(Base):
    """A classifier that is fitted already, or a function of the table; it is used as it is.

    Parameters
    ----------
    model : classifier or callable
        With ``predict_proba``, or a function from a table to p(y = 1 | x).
    positive : object
        The model's label of the positive class.
    """

    def __init__(self, model: Any, positive: Any) -> None:
        self.model, self.positive = model, positive

    def probability(self, inputs: Inputs) -> Array:
        """P(y = 1 | x) as the model gives it."""
        return _positive_probability(self.model, inputs.table, self.positive)

    def describe(self) -> str:
        """Class or name of the model."""
        return f"{_name(self.model)}, fitted before"


class ScoreColumn(Base):
    """A column of the table that holds P(y = 1 | x), computed by any model elsewhere.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def probability(self, inputs: Inputs) -> Array:
        """Values of the column, checked."""
        columns = list(getattr(inputs.table, "columns", ()))
        if self.name not in columns:
            raise ValueError(f"expected X to have a column {self.name!r} of scores, got {len(columns)} other columns.")
        try:
            values = np.asarray(inputs.table[self.name], dtype=np.float64)
        except (TypeError, ValueError):
            values = np.full(len(inputs), np.nan)
        return _checked(values, len(inputs), f"column {self.name!r}")

    def describe(self) -> str:
        """Name of the column."""
        return f"scores in column {self.name!r}"


def base_of(base: Any, positive: Any) -> Base | None:
    """Base model from what a user passes as ``base``; None means :func:`justitia.learners.lightgbm_base.default_base`.

    Raises
    ------
    TypeError
        If it is neither a classifier, fitted or not, nor a function, nor the name of a column.
    """
    if base is None or isinstance(base, Base):
        return base
    if isinstance(base, str):
        return ScoreColumn(base)
    is_network = hasattr(base, "forward") and hasattr(base, "state_dict")  # of torch, which need not be installed
    if isinstance(base, type) or is_network:
        of_module = "it as module=, or a function of X that gives its probabilities"
        hint = "an object of that class" if isinstance(base, type) else of_module
        raise TypeError(f"expected base to be a classifier, got {_name(base)!r}; pass {hint}.")
    if hasattr(base, "predict_proba"):
        return Fitted(base, positive) if _is_fitted(base) else CrossFitted(base)
    if hasattr(base, "fit"):
        raise TypeError(
            f"expected a base with predict_proba, got {type(base).__name__!r}, which has none; wrap it in "
            "scikit-learn's CalibratedClassifierCV."
        )
    if callable(base):
        return Fitted(base, positive)
    raise TypeError(
        f"expected base to be a classifier, a function of X or the name of a column, got {type(base).__name__!r}."
    )


@contextmanager
def errors_of_base(model: Any) -> Iterator[None]:
    """Turn any exception of a user's model into one sentence that names the model; interrupts pass through."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a user's model may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"expected the base {_name(model)!r} to learn from X and y and to score X, got '{first}'; try it alone "
            "first, or pass a pipeline that prepares X for it."
        ) from None


def _positive_probability(model: Any, table: Any, positive: Any = 1) -> Array:
    with errors_of_base(model):
        if not hasattr(model, "predict_proba"):
            values = np.asarray(model(table), dtype=np.float64)
        else:
            by_class = np.asarray(model.predict_proba(table), dtype=np.float64)
            classes = list(getattr(model, "classes_", (0, 1)))
            values = by_class[:, classes.index(positive) if positive in classes else -1]
    return _checked(values, len(values) if not hasattr(table, "__len__") else len(table), _name(model))


def _checked(values: Array, rows: int, what: str) -> Array:
    if values.shape != (rows,) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"expected one probability between 0 and 1 per row from the base ({what}), got other numbers; pass "
            "probabilities of the positive answer."
        )
    return values


def cross_fit_folds(y: Array, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield (rows to fit on, rows to score) of each fold, stratified by the label.

    A label with a single row allows no folds: then all rows are fitted on and scored.
    """
    folds = min(FOLDS, int(y.sum()), int(len(y) - y.sum()))
    if folds < 2:
        rows = np.arange(len(y))
        return iter([(rows, rows)])
    splits: Iterator[tuple[Any, Any]] = StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y)
    return splits


def _weight_parameter(model: Any) -> str:
    """Name of the argument of ``fit`` for sample weights; a pipeline passes them to its last step."""
    step, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    if not has_fit_parameter(last, "sample_weight"):
        raise ValueError(
            f"expected a base that takes sample_weight, got {_name(last)!r}; leave the weights out, or pass a fitted "
            "base."
        )
    return f"{step}__sample_weight" if step else "sample_weight"


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        return False
    return True


def _name(model: Any) -> str:
    return getattr(model, "__name__", type(model).__name__)
