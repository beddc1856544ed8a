"""Base models: predictions of the target, cross-fitted so that no training row is predicted by a model that saw it.

A base model is what the default engine corrects. It predicts P(y = 1 | x) of a binary target, the probability of every
class of a target with several classes, or E[y | x] of a number (:class:`justitia.tasks.Task`). It may be an unfitted
scikit-learn classifier or regressor (:class:`CrossFitted`), a fitted one or a function (:class:`Fitted`), or columns of
predictions (:class:`ScoreColumn`, :class:`ScoreColumns`). Base models read public features and targets, never the
sensitive attribute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, shuffle
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from justitia.tasks import BINARY, Task

Array = NDArray[np.float64]
#: Folds of cross-fitting: each fold is scored by a model that was fitted on the others.
FOLDS = 5
#: Class probabilities of a row may miss the sum 1 by this much, as columns that were rounded to two digits do.
SUM_ERROR = 0.02


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
    """Interface of a base model: a model of the target."""

    #: Number of models that :meth:`learn` fits.
    fits: int = 0
    #: Whether it reads the table as the user has it, and not only the numbers after the estimator's preprocessing.
    reads_table: bool = True
    #: What it predicts, which sets the shape of predictions; a base for another target sets its own.
    task: Task = BINARY

    def learn(
        self,
        inputs: Inputs,
        y: Array,  # noqa: ARG002 - read by base models that are fitted here
        weight: Array,  # noqa: ARG002
        *,
        seed: int,  # noqa: ARG002
        progress: Callable[[int], object],  # noqa: ARG002
    ) -> Array:
        """Prediction of the training rows, each by a model that was not fitted on it.

        A base model that is fitted already does not learn and predicts the rows as they are.

        Parameters
        ----------
        inputs : Inputs
        y : ndarray (n,)
            0 or 1 for a binary target, 0 .. K - 1 for K classes, or numbers.
        weight : ndarray (n,)
        seed : int
            Of public randomness.
        progress : callable
            Called with 1 after each fit.

        Returns
        -------
        ndarray (n,) or (n, K)
            As :meth:`predict`.
        """
        return self.predict(inputs)

    @abstractmethod
    def predict(self, inputs: Inputs) -> Array:
        """Prediction of new rows: (m,) P(y = 1 | x), (m, K) probabilities of the classes, or (m,) E[y | x]."""

    @abstractmethod
    def describe(self) -> str:
        """One phrase that names the model, for logs and reports."""


class CrossFitted(Base):
    """A scikit-learn classifier or regressor, cross-fitted: one clone per fold; new rows get the mean of all clones.

    Parameters
    ----------
    estimator : classifier or regressor
        With ``predict_proba``, or with ``predict`` for a number; it is cloned, never changed.
    task : Task
        The target; by default binary.
    encoded : bool
        Whether it reads the numbers after the estimator's preprocessing instead of the table as it was passed.
    n_jobs : int, optional
        Folds that are learned at the same time, in threads; as in scikit-learn, None is one and -1 is one per core.
        The clones are the same whatever it is.

    Attributes
    ----------
    models : tuple
        Fitted models, whose mean is the prediction of new rows.
    deployed : int
        How many these are.
    """

    fits = FOLDS
    deployed = FOLDS

    def __init__(
        self, estimator: Any, task: Task = BINARY, *, encoded: bool = False, n_jobs: int | None = None
    ) -> None:
        self.estimator, self.task, self.encoded, self.n_jobs = estimator, task, encoded, n_jobs
        self.model_name = _name(estimator)
        self.reads_table = not encoded
        self.models: tuple[Any, ...] = ()

    def learn(self, inputs: Inputs, y: Array, weight: Array, *, seed: int, progress: Callable[[int], object]) -> Array:
        """Out-of-fold predictions; the folds are stratified by class and drawn with the public seed."""
        out_of_fold = np.zeros(self.task.prediction_shape(len(y)))
        target = y if self.task.kind == "number" else y.astype(int)

        def fitted(fold: tuple[Any, Any]) -> Any:
            train, test = fold
            model, w = self.seeded_clone(seed), weight[train]
            # Not every model takes weights; without weights none has to.
            weights = {} if (w == w[0]).all() else {_weight_parameter(model): w}
            with errors_of_base(model):
                model.fit(self._read(inputs.take(train)), target[train], **weights)
            out_of_fold[test] = self._predict_by(model, self._read(inputs.take(test)))
            return model

        self.models = tuple(self.each_fold(fitted, cross_fit_folds(y, seed, self.task), progress))
        return out_of_fold

    def each_fold(
        self, work: Callable[[Any], Any], folds: Iterable[Any], progress: Callable[[int], object] | None = None
    ) -> list[Any]:
        """What ``work`` returns for each fold, in order; ``n_jobs`` folds at the same time."""
        found = []
        for one in Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")(map(delayed(work), folds)):
            found.append(one)
            if progress is not None:
                progress(1)
        return found

    def seeded_clone(self, seed: int) -> Any:
        """Unfitted copy whose unset seeds are ``seed``, so that the same ``random_state`` gives the same answer."""
        model = clone(self.estimator)
        for name, value in model.get_params().items():
            if value is None and name.split("__")[-1] == "random_state":
                model.set_params(**{name: seed})
        return model

    def _read(self, inputs: Inputs) -> Any:
        return inputs.numbers if self.encoded else inputs.table

    def _predict_by(self, model: Any, rows: Any) -> Array:
        # Clones learn from codes, whatever the labels of the classes are.
        return _predict(model, rows, self.task, range(self.task.n_classes))

    def predict(self, inputs: Inputs) -> Array:
        """Mean of the clones."""
        rows = self._read(inputs)
        mean: Array = np.mean([self._predict_by(model, rows) for model in self.models], axis=0)
        return mean

    def describe(self) -> str:
        """Class of the model and number of models that are deployed."""
        count = len(self.models) or self.deployed
        return f"{self.model_name}, " + (
            f"average of {count} cross-fitted models" if count > 1 else "one model of all rows"
        )


class Fitted(Base):
    """A model that is fitted already, or a function of the table; it is used as it is.

    Parameters
    ----------
    model : classifier, regressor or callable
        With ``predict_proba``, with ``predict`` for a number, or a function from a table to a prediction.
    task : Task
        The target, with the labels of its classes; by default the classes 0 and 1.
    """

    def __init__(self, model: Any, task: Task = BINARY) -> None:
        self.model, self.task = model, task

    @property
    def positive(self) -> Any:
        """Label of the positive class of a binary target."""
        return self.task.positive

    def predict(self, inputs: Inputs) -> Array:
        """As the model predicts, with classes in the order of the task."""
        return _predict(self.model, inputs.table, self.task, self.task.classes)

    def describe(self) -> str:
        """Class or name of the model."""
        return f"{_name(self.model)}, fitted before"


class ScoreColumn(Base):
    """A column of the table that holds P(y = 1 | x), or E[y | x] of a number, computed by any model elsewhere.

    Parameters
    ----------
    name : str
    task : Task
        The target: binary, or a number.
    """

    def __init__(self, name: str, task: Task = BINARY) -> None:
        self.name, self.task = name, task

    def predict(self, inputs: Inputs) -> Array:
        """Values of the column, checked."""
        return check_prediction(_read_column(inputs, self.name), len(inputs), self.task, f"column {self.name!r}")

    def describe(self) -> str:
        """Name of the column."""
        return f"scores in column {self.name!r}"


class ScoreColumns(Base):
    """Columns of the table that hold the probabilities of several classes, computed by any model elsewhere.

    Parameters
    ----------
    names : sequence of str
        One column per class, in the order of the task's classes.
    task : Task
    """

    def __init__(self, names: Sequence[str], task: Task) -> None:
        self.names, self.task = tuple(names), task

    def predict(self, inputs: Inputs) -> Array:
        """Values of the columns, checked."""
        values = np.column_stack([_read_column(inputs, name) for name in self.names])
        return check_prediction(values, len(inputs), self.task, f"columns {', '.join(map(repr, self.names))}")

    def describe(self) -> str:
        """Names of the columns."""
        return f"scores in columns {', '.join(map(repr, self.names))}"


def _read_column(inputs: Inputs, name: str) -> Array:
    """(n,): numbers in a column; NaN everywhere if it holds other values."""
    columns = list(getattr(inputs.table, "columns", ()))
    if name not in columns:
        raise ValueError(f"expected X to have a column {name!r} of scores, got {len(columns)} other columns.")
    try:
        return np.asarray(inputs.table[name], dtype=np.float64)
    except (TypeError, ValueError):
        return np.full(len(inputs), np.nan)


def base_of(base: Any, task: Task, *, n_jobs: int | None = None) -> Base | None:
    """Base model from what a user passes as ``base``; None means the default one, which is above this module.

    Parameters
    ----------
    base : classifier, regressor, pipeline, callable, str, sequence of str, mapping, Base or None
        Columns of scores are one name for a binary target or a number; for classes they are a list of names in the
        order of the classes, or a mapping from class to name.
    task : Task
        The target.
    n_jobs : int, optional
        Folds of an unfitted model that are learned at the same time.

    Raises
    ------
    TypeError
        If it is none of these, or predicts another kind of target.
    ValueError
        If it is a :class:`Base` of another target, or has not one column per class.
    """
    if base is None:
        return None
    if isinstance(base, Base):
        return _check_task(base, task)
    if isinstance(base, str | list | tuple | Mapping):
        return _columns_of(base, task)
    _check_object(base, task)
    expected, method = ("regressor", "predict") if task.kind == "number" else ("classifier", "predict_proba")
    if hasattr(base, method):
        return Fitted(base, task) if _is_fitted(base) else CrossFitted(base, task, n_jobs=n_jobs)
    if hasattr(base, "fit"):
        advice = "wrap it in scikit-learn's CalibratedClassifierCV"
        if task.kind == "number" or (hasattr(base, "__sklearn_tags__") and is_regressor(base)):
            advice = f"pass a {expected}"
        raise TypeError(f"expected a base with {method}, got {type(base).__name__!r}, which has none; {advice}.")
    if callable(base):
        return Fitted(base, task)
    raise TypeError(
        f"expected base to be a {expected}, a function of X or the name of a column, got {type(base).__name__!r}."
    )


def _check_object(base: Any, task: Task) -> None:
    """Refuse a class, a network of torch, and a classifier where y holds numbers."""
    expected, values = ("regressor", "predictions") if task.kind == "number" else ("classifier", "probabilities")
    is_network = hasattr(base, "forward") and hasattr(base, "state_dict")  # of torch, which need not be installed
    if isinstance(base, type) or is_network:
        hint = "an object of that class" if isinstance(base, type) else f"a function of X that gives its {values}"
        if task.kind == "binary" and not isinstance(base, type):
            hint = f"it as module=, or {hint}"
        raise TypeError(f"expected base to be a {expected}, got {_name(base)!r}; pass {hint}.")
    is_classifying = hasattr(base, "predict_proba") or (hasattr(base, "__sklearn_tags__") and is_classifier(base))
    if task.kind == "number" and is_classifying:
        raise TypeError(
            f"expected base to be a regressor because y holds numbers, got the classifier {_name(base)!r}; pass a "
            "regressor, or use LagrangianDualClassifier if y holds classes."
        )


def _check_task(base: Base, task: Task) -> Base:
    """Refuse a base of another target; labels of classes may differ, because a base may know them as codes."""
    if (base.task.kind, base.task.n_classes) != (task.kind, task.n_classes):
        raise ValueError(
            f"expected a base for a target of {task.describe()}, got {type(base).__name__!r} for "
            f"{base.task.describe()}; make it with the task of this target."
        )
    return base


def _columns_of(base: Any, task: Task) -> Base:
    """Base of columns of scores."""
    if isinstance(base, str):
        if task.kind == "classes":
            raise ValueError(
                f"expected one column of scores per class because y has {task.n_classes} classes, got the name "
                f"{base!r}; pass a list of {task.n_classes} names, or a mapping from class to name."
            )
        return ScoreColumn(base, task)
    if task.kind == "number":
        raise ValueError(f"expected the name of one column because y holds numbers, got {len(base)} columns.")
    if isinstance(base, Mapping) and set(base) != set(task.classes):
        raise ValueError(
            f"expected a column of scores for each of the classes {list(task.classes)}, got columns for {list(base)}."
        )
    names = [base[one] for one in task.classes] if isinstance(base, Mapping) else list(base)
    if len(names) != task.n_classes or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"expected the names of {task.n_classes} columns, one per class in the order {list(task.classes)}, got "
            f"{len(names)} entries."
        )
    return ScoreColumn(names[1], task) if task.kind == "binary" else ScoreColumns(names, task)


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


def _predict(model: Any, table: Any, task: Task, labels: Sequence[Any]) -> Array:
    """Prediction of a model that calls the classes ``labels``, or of a function."""
    known: list[Any] | None = None
    with errors_of_base(model):
        if hasattr(model, "predict_proba"):
            values = np.asarray(model.predict_proba(table), dtype=np.float64)
            known = list(getattr(model, "classes_", range(task.n_classes)))
        else:
            call = model.predict if task.kind == "number" and hasattr(model, "predict") else model
            values = np.asarray(call(table), dtype=np.float64)
        if known is not None and task.kind == "binary":
            positive = labels[1]
            values = values[:, known.index(positive) if positive in known else -1]
    if known is not None and task.kind == "classes" and values.shape[1:] == (len(known),):
        values = values[:, class_order(known, labels, _name(model))]
    return check_prediction(values, len(values) if not hasattr(table, "__len__") else len(table), task, _name(model))


def class_order(known: list[Any], labels: Sequence[Any], name: str) -> list[int]:
    """Columns of a classifier in the order of the target's classes, which it may also know as codes 0 .. K - 1."""
    for classes in (labels, range(len(labels))):
        if len(known) == len(labels) and set(known) == set(classes):
            return [known.index(one) for one in classes]
    raise ValueError(
        f"expected a base that predicts the {len(labels)} classes of y, got {name!r} with {len(known)} classes or "
        "others; fit it on the same classes, or pass it unfitted."
    )


def check_prediction(values: Array, rows: int, task: Task, what: str) -> Array:
    """Return a prediction of ``rows`` rows with class probabilities scaled to sum 1, or refuse it in one sentence.

    Parameters
    ----------
    values : ndarray
    rows : int
    task : Task
        The target.
    what : str
        Name of the base model, for the message.
    """
    if task.kind == "classes":
        return _check_class_probabilities(values, rows, task.n_classes, what)
    if task.kind == "number":
        values = values[:, 0] if values.shape == (rows, 1) else values
        if values.shape != (rows,) or not np.isfinite(values).all():
            raise ValueError(
                f"expected one finite number per row from the base ({what}), got something else; pass predictions of y."
            )
    elif values.shape != (rows,) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"expected one probability between 0 and 1 per row from the base ({what}), got other numbers; pass "
            "probabilities of the positive answer."
        )
    return values


def _check_class_probabilities(values: Array, rows: int, n_classes: int, what: str) -> Array:
    expected = f"expected {n_classes} probabilities per row, one per class, from the base ({what})"
    if values.shape != (rows, n_classes):
        raise ValueError(f"{expected}, got shape {values.shape} for {rows} rows; pass one column per class.")
    if not ((values >= 0) & (values <= 1 + SUM_ERROR)).all():
        raise ValueError(f"{expected}, got numbers that are not between 0 and 1; pass probabilities.")
    sums = values.sum(axis=1, keepdims=True)
    if not (np.abs(sums - 1) <= SUM_ERROR).all():
        raise ValueError(f"{expected}, got rows that do not add up to 1; pass probabilities of all classes.")
    scaled: Array = values / sums
    return scaled


def cross_fit_folds(y: Array, seed: int, task: Task = BINARY) -> Iterator[tuple[Any, Any]]:
    """Yield (rows to fit on, rows to predict) of each fold, stratified by class.

    Every model is fitted on rows of all classes. So a binary target has at most as many folds as the rarer class has
    rows; if that is a single row, all rows are fitted on and predicted. Of several classes, only the one row of a class
    that has no other is fitted on in every fold.
    """
    if task.kind == "classes":
        return _class_folds(y.astype(int), seed)
    folds = min(FOLDS, len(y)) if task.kind == "number" else min(FOLDS, int(y.sum()), int(len(y) - y.sum()))
    if folds < 2:
        rows = np.arange(len(y))
        return iter([(rows, rows)])
    kind = KFold if task.kind == "number" else StratifiedKFold
    splits: Iterator[tuple[Any, Any]] = kind(folds, shuffle=True, random_state=seed).split(y, y)
    return splits


def _class_folds(y: NDArray[np.int_], seed: int) -> Iterator[tuple[Any, Any]]:
    counts = np.bincount(y)
    # A stable sort of shuffled rows by class: dealing them out in turn puts rows of a rare class into different folds.
    order = shuffle(np.arange(len(y)), random_state=seed)
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=int)
    fold[order] = np.arange(len(y)) % min(FOLDS, len(y))
    for one in range(min(FOLDS, len(y))):
        test = fold == one
        yield np.flatnonzero(~test | (counts[y] == 1)), np.flatnonzero(test)


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
    except NotFittedError:
        return False
    except TypeError:  # of a model without fit, which somebody must have fitted elsewhere
        return True
    return True


def _name(model: Any) -> str:
    return getattr(model, "__name__", type(model).__name__)
