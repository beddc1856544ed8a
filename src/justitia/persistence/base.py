"""Files of a base model: trees as text, coefficients as JSON, no pickle.

Base models of LightGBM, logistic regression and, for numbers, linear and ridge regression are written here, those of
XGBoost, CatBoost and scikit-learn in formats of these libraries (:mod:`justitia.persistence.formats`). Columns of
scores need no file. Any other base model cannot be written: ``save`` refuses it, or with ``without_base=True`` leaves
it out, and its owner passes it again when the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from justitia.learners.base import Base, CrossFitted, Fitted, ScoreColumn, ScoreColumns, class_order
from justitia.learners.trees import TreesClassifier, TreesRegressor, read_trees, trees_of
from justitia.persistence.formats import LIBRARIES, model_from_bytes, model_to_bytes
from justitia.tasks import Task

#: Names of the files; ``model.json`` says which of them a model has.
TREES, NUMBERS = "base-{}.txt", "base-{}.json"
#: Models of a base at most.
MAX_MODELS = 100
#: Base models that are written, by kind of target, for messages.
WRITTEN_BASES = {
    "binary": "a LightGBM classifier, a logistic regression of two classes, XGBoost, CatBoost, scikit-learn's common "
    "models with skops installed, or a column of scores",
    "classes": "a LightGBM classifier, a logistic regression, XGBoost, CatBoost, scikit-learn's common models with "
    "skops installed, or columns of scores",
    "number": "a LightGBM regressor of squared errors, a linear or ridge regression, XGBoost, CatBoost, scikit-learn's "
    "common models with skops installed, or a column of predictions",
}
#: Linear models of a number, by the name that is written.
LINEAR_MODELS: dict[str, Any] = {"LinearRegression": LinearRegression, "Ridge": Ridge}
Files = Mapping[str, bytes]


class BaseMismatch(ValueError):
    """A base was passed where none is needed, or left out where one is."""


def base_to_files(base: Base) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Description of a base for ``model.json``, and the contents of its files by name; none if it cannot be written."""
    facts: dict[str, Any] = {"kind": _kind(base), "words": base.describe()}
    if isinstance(base, ScoreColumn):
        return facts | {"written": True, "column": base.name}, {}
    if isinstance(base, ScoreColumns):
        return facts | {"written": True, "columns": list(base.names)}, {}
    models = base.models if isinstance(base, CrossFitted) else (getattr(base, "model", None),)
    files: dict[str, bytes] = {}
    for model in models:
        found = _model_to_text(model, base.task)
        if found is not None:
            pattern, text = found
            files[pattern.format(len(files) + 1)] = text.encode()
        elif (foreign := model_to_bytes(model, base.task)) is not None:
            suffix, content = foreign
            files[f"base-{len(files) + 1}.{suffix}"] = content
    if not len(files) == len(models) <= MAX_MODELS:
        return facts | {"written": False}, {}
    facts |= {"written": True, "encoded": getattr(base, "encoded", False), "files": list(files)}
    if base.task.kind == "binary":
        facts["second"] = is_second(base)
    elif base.task.kind == "classes":
        facts["order"] = columns_of_classes(base)
    return facts, files


def _kind(base: Base) -> str:
    """Name of the kind of base in ``model.json``; part of the file format."""
    if isinstance(base, CrossFitted):
        return "CrossFitted"
    return {ScoreColumn: "Column", ScoreColumns: "Columns"}.get(type(base), type(base).__name__)


def is_second(base: Base) -> bool:
    """Whether the positive class is the second class of the base's models; true where they do not know it."""
    classes = [] if not isinstance(base, Fitted) else list(base.model.classes_)
    return not isinstance(base, Fitted) or base.positive not in classes or classes.index(base.positive) == 1


def columns_of_classes(base: Base) -> list[int]:
    """For each class of the target, its column in the probabilities of the base's models."""
    if not isinstance(base, Fitted):
        return list(range(base.task.n_classes))  # clones learn from codes
    return class_order(list(base.model.classes_), base.task.classes, base.describe())


def is_softmax(model: Any) -> bool:
    """Whether a model is a logistic regression whose probabilities of several classes are a softmax."""
    # Versions of scikit-learn before 1.8 also have one regression per class, by the solver or by an option.
    option = getattr(model, "multi_class", "auto")
    known = type(model) is LogisticRegression and len(model.classes_) > 2 and model.solver != "liblinear"
    return known and option in ("auto", "deprecated", "multinomial")


def _model_to_text(model: Any, task: Task) -> tuple[str, str] | None:
    """Pattern of the file name, and text of one model; None for a kind of model that is not written."""
    trees = trees_of(model)
    if trees is not None:
        return (TREES, trees.text()) if trees.kind == task.kind else None
    facts: dict[str, Any]
    if task.kind == "number":
        if type(model) not in LINEAR_MODELS.values() or model.coef_.ndim != 1:
            return None
        facts = {"model": type(model).__name__, "coef": model.coef_.tolist(), "intercept": float(model.intercept_)}
    elif task.kind == "classes":
        if not is_softmax(model):
            return None
        facts = {"coef": model.coef_.tolist(), "intercept": model.intercept_.tolist()}
    elif type(model) is LogisticRegression and model.coef_.shape[0] == 1 and len(model.classes_) == 2:
        facts = {"coef": model.coef_[0].tolist(), "intercept": float(model.intercept_[0])}
    else:
        return None
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    return NUMBERS, json.dumps(facts | {"dtype": model.coef_.dtype.name, "names": names})


def base_from_files(
    facts: Mapping[str, Any], files: Files, given: Base | None, task: Task, *, columns: int, numbers: int
) -> Base:
    """Read the base that :func:`base_to_files` described, or take the one that was passed for it.

    Parameters
    ----------
    facts : mapping
        The part of ``model.json``.
    files : mapping
        Contents by name.
    given : Base, optional
        The base that was passed to ``load``, if it was not written.
    task : Task
    columns, numbers : int
        Number of columns of a table before and after preprocessing.

    Raises
    ------
    BaseMismatch
        If the base is missing or not needed.
    ValueError
        If a file is not what was written.
    """
    if not facts["written"]:
        if given is None or (isinstance(given, CrossFitted) and not given.models):
            what = "none" if given is None else "one that is not fitted"
            raise BaseMismatch(
                f"expected the base that this model was fitted with ({facts['words']}), which is not in the folder, "
                f"got {what}; pass load(..., base=that model, fitted, or the rule_.base of the model that was saved)."
            )
        return given
    if given is not None:
        raise BaseMismatch(
            f"expected no base, since this model holds its own ({facts['words']}), got one; leave it out."
        )
    if facts["kind"] in ("Column", "Columns"):
        return _read_columns(facts, task)
    width = numbers if facts["encoded"] else columns
    if not 0 < len(facts["files"]) <= MAX_MODELS:
        raise ValueError(f"expected at most {MAX_MODELS} models of a base, got more or none.")
    models = tuple(_model_from_text(name, files[name], width, task) for name in facts["files"])
    if facts["kind"] == "Fitted":
        (model,) = models
        return Fitted(model, _task_of_fitted(facts, task))
    found = CrossFitted(models[0], task, encoded=bool(facts["encoded"]))
    found.models = models
    return found


def _read_columns(facts: Mapping[str, Any], task: Task) -> Base:
    if (facts["kind"] == "Columns") != (task.kind == "classes"):
        raise ValueError("expected one column of scores per class, got another number.")
    if task.kind != "classes":
        return ScoreColumn(str(facts["column"]), task)
    names = facts["columns"]
    if not isinstance(names, list) or len(names) != task.n_classes or not all(isinstance(one, str) for one in names):
        raise ValueError("expected one column of scores per class, got another number.")
    return ScoreColumns(names, task)


def _task_of_fitted(facts: Mapping[str, Any], task: Task) -> Task:
    """The target with the codes that a model which was read has for its classes."""
    if task.kind == "binary":
        return Task("binary", (0, 1) if facts["second"] else (1, 0))
    if task.kind == "classes":
        if sorted(facts["order"]) != list(range(task.n_classes)):
            raise ValueError("expected every class once, got another order.")
        return Task("classes", tuple(facts["order"]))
    return task


def _model_from_text(name: str, content: bytes, columns: int, task: Task) -> Any:
    suffix = name.rpartition(".")[-1]
    if suffix in LIBRARIES:
        return model_from_bytes(suffix, content, columns, task)
    if name.endswith(".txt"):
        trees = read_trees(content.decode())
        if trees.features != columns:
            raise ValueError("expected trees that read as many columns as the table has, got others.")
        if trees.kind != task.kind or trees.sums not in (1, task.n_classes):
            raise ValueError("expected trees of this target, got those of another.")
        return TreesRegressor(trees) if task.kind == "number" else TreesClassifier(trees)
    facts = json.loads(content)
    rows = task.n_classes if task.kind == "classes" else 1
    coefficients = _coefficients(facts, rows, columns)
    intercept = np.atleast_1d(np.array(facts["intercept"], dtype=coefficients.dtype))
    if intercept.shape != (rows,) or not np.isfinite(intercept).all():
        raise ValueError("expected one intercept per class, got others.")
    model = LINEAR_MODELS[facts["model"]]() if task.kind == "number" else LogisticRegression()
    if task.kind == "number":
        model.coef_, model.intercept_ = coefficients[0], intercept[0]
    else:
        model.coef_, model.intercept_, model.classes_ = coefficients, intercept, np.arange(max(rows, 2))
    model.n_features_in_ = columns
    if facts["names"]:
        model.feature_names_in_ = np.array(facts["names"], dtype=object)
    return model


def _coefficients(facts: Mapping[str, Any], rows: int, columns: int) -> NDArray[Any]:
    """(rows, columns); the type in the file is checked first, because it decides how much memory is allocated."""
    wrong = "expected one finite number per column, got others."
    given = facts["coef"] if rows > 1 else [facts["coef"]]
    if facts["dtype"] not in ("float32", "float64") or len(given) != rows or any(len(one) != columns for one in given):
        raise ValueError(wrong)
    found: NDArray[Any] = np.array(given, dtype=facts["dtype"])
    if found.shape != (rows, columns) or not np.isfinite(found).all():
        raise ValueError(wrong)
    return found


__all__ = ["WRITTEN_BASES", "BaseMismatch", "base_from_files", "base_to_files", "columns_of_classes", "is_second"]
