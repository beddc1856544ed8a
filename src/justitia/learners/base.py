"""The base of a plug-in rule: p(y = 1 | x) from any model, for training rows by models that have not seen them.

Everything here is a function of public features and labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from justitia.learners.inputs import Inputs

Array = NDArray[np.float64]
#: Parts that training rows are cut into; each is scored by a model that has learned from the others.
PARTS = 5


class Base(ABC):
    """A model of the label."""

    #: How many models are fitted in :meth:`learn`.
    fits: int = 0

    @abstractmethod
    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """(n,): p(y = 1 | x) of the training rows, each by a model that has not learned from it where we fit one."""

    @abstractmethod
    def probability(self, inputs: Inputs) -> Array:
        """(m,): p(y = 1 | x) of new rows."""

    @abstractmethod
    def describe(self) -> str:
        """What it is, for people."""


class CrossFitted(Base):
    """A scikit-learn classifier, cross-fitted: clones that leave one part out each; new rows get their mean.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``; cloned, never changed.
    encoded : bool
        Whether it reads numbers after the estimator's preprocessing instead of the table as it was passed.
    """

    fits = PARTS

    def __init__(self, estimator: Any, *, encoded: bool = False) -> None:
        self.estimator, self.encoded = estimator, encoded
        self.models: tuple[Any, ...] = ()

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold probabilities; the parts are stratified by the label and drawn by the public seed."""
        models, found = [], np.zeros(len(y))
        for seen, unseen in parts_of(y, seed):
            model = self.seeded_clone(seed)
            self._fit(model, inputs.take(seen), y[seen], weight[seen])
            found[unseen] = _positive(model, self._read(inputs.take(unseen)))
            models.append(model)
            progress(1)
        self.models = tuple(models)
        return found

    def seeded_clone(self, seed: int) -> Any:
        """An unfitted copy; unset seeds become the public one."""
        return _seeded(clone(self.estimator), seed)

    def _fit(self, model: Any, inputs: Inputs, y: Array, weight: Array) -> None:
        weights = {} if (weight == weight[0]).all() else {_weight_parameter(model): weight}
        with told_of(model):
            model.fit(self._read(inputs), y.astype(int), **weights)

    def _read(self, inputs: Inputs) -> Any:
        return inputs.numbers if self.encoded else inputs.table

    def probability(self, inputs: Inputs) -> Array:
        """Mean of the clones."""
        rows = self._read(inputs)
        mean: Array = np.mean([_positive(model, rows) for model in self.models], axis=0)
        return mean

    def describe(self) -> str:
        """Its class."""
        return (
            f"{_name(self.estimator)}, mean of {len(self.models) or PARTS} fits that leave out a part of the rows each"
        )


class Fitted(Base):
    """A model that is fitted already, or a function of the table: used as it is.

    Parameters
    ----------
    model : classifier or callable
        With ``predict_proba``, or a function from a table to p(y = 1 | x).
    positive : object
        Its label of a positive answer.
    """

    def __init__(self, model: Any, positive: Any) -> None:
        self.model, self.positive = model, positive

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """What the model says of the rows; it does not learn."""
        del y, weight, seed, progress
        return self.probability(inputs)

    def probability(self, inputs: Inputs) -> Array:
        """What the model says of the rows."""
        return _positive(self.model, inputs.table, self.positive)

    def describe(self) -> str:
        """Its class or name."""
        return f"{_name(self.model)}, fitted before"


class Column(Base):
    """A column of the table that holds p(y = 1 | x), made by whatever model.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """The column."""
        del y, weight, seed, progress
        return self.probability(inputs)

    def probability(self, inputs: Inputs) -> Array:
        """The column."""
        columns = list(getattr(inputs.table, "columns", ()))
        if self.name not in columns:
            raise ValueError(f"expected X to have a column {self.name!r} of scores, got {len(columns)} other columns.")
        try:
            values = np.asarray(inputs.table[self.name], dtype=np.float64)
        except (TypeError, ValueError):
            values = np.full(len(inputs), np.nan)
        return _checked(values, len(inputs), f"column {self.name!r}")

    def describe(self) -> str:
        """Its name."""
        return f"scores in column {self.name!r}"


def base_of(base: Any, positive: Any) -> Base | None:
    """What users pass as ``base``; None leaves it to the rule of :mod:`justitia.learners.default`.

    Raises
    ------
    TypeError
        If it is neither a classifier, fitted or not, nor a function, nor the name of a column.
    """
    if base is None or isinstance(base, Base):
        return base
    if isinstance(base, str):
        return Column(base)
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


class told_of:  # noqa: N801 - reads as the sentence it is
    """Whatever a user's model raises becomes one sentence.

    Parameters
    ----------
    model : object
        Named in it.
    """

    def __init__(self, model: Any) -> None:
        self.name = _name(model)

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        """Raise it anew as a ``ValueError``; interrupts pass through."""
        if isinstance(error, Exception):
            first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise ValueError(
                f"expected the base {self.name!r} to learn from X and y and to score X, got '{first}'; try it alone "
                "first, or pass a pipeline that prepares X for it."
            ) from None


def _positive(model: Any, table: Any, positive: Any = 1) -> Array:
    with told_of(model):
        if not hasattr(model, "predict_proba"):
            values = np.asarray(model(table), dtype=np.float64)
        else:
            found = np.asarray(model.predict_proba(table), dtype=np.float64)
            classes = list(getattr(model, "classes_", (0, 1)))
            values = found[:, classes.index(positive) if positive in classes else -1]
    return _checked(values, len(values) if not hasattr(table, "__len__") else len(table), _name(model))


def _checked(values: Array, rows: int, what: str) -> Array:
    if values.shape != (rows,) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"expected one probability between 0 and 1 per row from the base ({what}), got other numbers; pass "
            "probabilities of the positive answer."
        )
    return values


def parts_of(y: Array, seed: int) -> Iterator[tuple[Any, Any]]:
    """Rows to learn from and rows to score; a label with a single row has to be learned from where it is scored."""
    parts = min(PARTS, int(y.sum()), int(len(y) - y.sum()))
    if parts < 2:
        everybody = np.arange(len(y))
        return iter([(everybody, everybody)])
    splits: Iterator[tuple[Any, Any]] = StratifiedKFold(parts, shuffle=True, random_state=seed).split(y, y)
    return splits


def _weight_parameter(model: Any) -> str:
    """How ``fit`` calls the weights of rows; a pipeline hands them to its last step."""
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


def _seeded(model: Any, seed: int) -> Any:
    """Unset seeds become the public one, so that the same ``random_state`` gives the same answer."""
    unset = {name: seed for name, value in model.get_params().items() if _is_seed(name) and value is None}
    return model.set_params(**unset)


def _is_seed(name: str) -> bool:
    return name.rpartition("__")[2] == "random_state"


def _name(model: Any) -> str:
    return getattr(model, "__name__", type(model).__name__)
