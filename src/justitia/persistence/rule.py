"""Files of the model that engine ``post-processing`` deploys: trees as text, numbers as JSON and arrays, no pickle.

Base models of LightGBM and logistic regression are written to files. A base model that is a column of scores needs no
file. Any other base model cannot be written: ``save`` refuses it, or with ``without_base=True`` leaves it out, and its
owner passes it again when the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from sklearn.linear_model import LogisticRegression

from justitia.learners.base import Base, CrossFitted, Fitted, ScoreColumn
from justitia.learners.calibration import Calibration
from justitia.learners.trees import Trees, TreesClassifier, read_trees
from justitia.postprocessing.correction import Correction, Levels, Rule
from justitia.tasks import Task

#: Names of the files; ``model.json`` says which of them a model has.
CORRECTION, TREES, NUMBERS = "correction.safetensors", "base-{}.txt", "base-{}.json"
#: Limits of what is read: thresholds of a model of scores, models of a base, and bytes of one file.
MAX_LEVELS, MAX_MODELS, MAX_BYTES = 10_000, 100, 2**28
#: Arrays of a correction.
CORRECTION_ARRAYS = ("centre", "spread", "hidden", "out")
Files = Mapping[str, bytes]


def rule_to_files(rule: Rule) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Public numbers and a description of the base for ``model.json``, and the contents of all files by name."""
    base, calibration = rule.base, rule.calibration
    facts: dict[str, Any] = {"kind": _kind(base), "words": base.describe()}
    models: tuple[Any, ...] = (getattr(base, "model", None),)
    if isinstance(base, CrossFitted):
        models = base.models
    elif isinstance(base, ScoreColumn):
        models = ()
    texts = [_model_to_text(model) for model in models]
    files = {name.format(j): text.encode() for j, (name, text) in enumerate(filter(None, texts), start=1)}
    facts["written"] = len(files) == len(models) <= MAX_MODELS
    if not facts["written"]:
        files = {}
    elif isinstance(base, ScoreColumn):
        facts["column"] = base.name
    else:
        facts |= {"encoded": getattr(base, "encoded", False), "second": is_second(base), "files": list(files)}
    if not rule.correction.is_zero:
        arrays = {name: np.asarray(getattr(rule.correction, name)) for name in CORRECTION_ARRAYS}
        if rule.levels is not None:  # a model of scores: its corrections differ only after the hidden units
            each = [np.asarray(one.out) for one in rule.levels.corrections]
            arrays |= {"levels": rule.levels.at, "each": np.stack(each)}
        files[CORRECTION] = safetensors.numpy.save(arrays)
    numbers = {"calibration": [calibration.alpha, calibration.beta, calibration.gamma], "threshold": rule.threshold}
    return numbers | {"base": facts, "correction": CORRECTION in files}, files


def _kind(base: Base) -> str:
    """Name of the kind of base in ``model.json``; part of the file format."""
    if isinstance(base, CrossFitted):
        return "CrossFitted"
    return "Column" if isinstance(base, ScoreColumn) else type(base).__name__


def is_second(base: Base) -> bool:
    """Whether the positive class is the second class of the base's models; true where they do not know it."""
    classes = [] if not isinstance(base, Fitted) else list(base.model.classes_)
    return not isinstance(base, Fitted) or base.positive not in classes or classes.index(base.positive) == 1


def _model_to_text(model: Any) -> tuple[str, str] | None:
    """Pattern of the file name, and text of one model; None for a kind of model that is not written."""
    trees = trees_of(model)
    if trees is not None:
        return TREES, trees.text()
    if type(model) is LogisticRegression and model.coef_.shape[0] == 1 and len(model.classes_) == 2:
        coefficients = {
            "coef": model.coef_[0].tolist(),
            "intercept": float(model.intercept_[0]),
            "dtype": model.coef_.dtype.name,
            "names": [str(name) for name in getattr(model, "feature_names_in_", ())],
        }
        return NUMBERS, json.dumps(coefficients)
    return None


def trees_of(model: Any) -> Trees | None:
    """Trees of a LightGBM classifier; None for any other model, and for trees that are not written."""
    if isinstance(model, TreesClassifier):
        return model.trees
    kind = type(model)
    if kind.__name__ != "LGBMClassifier" or not kind.__module__.startswith("lightgbm."):
        return None
    if any("pred" in name for name in model.get_params()):  # options of predictions are not in LightGBM's text
        return None
    try:
        trees = read_trees(model.booster_.model_to_string())
    except ValueError:
        return None
    return None if trees.sigmoid is None else trees


def rule_from_files(facts: Mapping[str, Any], files: Files, base: Base | None, *, columns: int, numbers: int) -> Rule:
    """Read the model that :func:`rule_to_files` wrote.

    Parameters
    ----------
    facts : mapping
        The part of ``model.json``.
    files : mapping
        Contents by name.
    base : Base, optional
        The base model, if it was not written.
    columns, numbers : int
        Number of columns of a table before and after preprocessing.

    Raises
    ------
    ValueError
        If a file is not what was written, or the base is missing or not needed.
    """
    correction, levels = Correction(), None
    if facts["correction"]:
        correction, levels = _correction_from(files[CORRECTION], numbers)
    alpha, beta, gamma = (float(one) for one in facts["calibration"])
    found = _read_base(facts["base"], files, base, columns=columns, numbers=numbers)
    return Rule(found, Calibration(alpha, beta, gamma), correction, float(facts["threshold"]), levels)


def _read_base(facts: Mapping[str, Any], files: Files, base: Base | None, *, columns: int, numbers: int) -> Base:
    if not facts["written"]:
        if base is None or (isinstance(base, CrossFitted) and not base.models):
            what = "none" if base is None else "one that is not fitted"
            raise BaseMismatch(
                f"expected the base that this model was fitted with ({facts['words']}), which is not in the folder, "
                f"got {what}; pass load(..., base=that model, fitted, or the rule_.base of the model that was saved)."
            )
        return base
    if base is not None:
        raise BaseMismatch(
            f"expected no base, since this model holds its own ({facts['words']}), got one; leave it out."
        )
    if facts["kind"] == "Column":
        return ScoreColumn(str(facts["column"]))
    width = numbers if facts["encoded"] else columns
    models = tuple(_model_from_text(name, files[name], width) for name in facts["files"])
    if facts["kind"] == "Fitted":
        (model,) = models
        classes = tuple(model.classes_ if facts["second"] else model.classes_[::-1])
        return Fitted(model, Task("binary", classes))
    found = CrossFitted(models[0], encoded=bool(facts["encoded"]))
    found.models = models
    return found


class BaseMismatch(ValueError):
    """A base was passed where none is needed, or left out where one is."""


def _model_from_text(name: str, content: bytes, columns: int) -> Any:
    if name.endswith(".txt"):
        trees = read_trees(content.decode())
        if trees.features != columns:
            raise ValueError("expected trees that read as many columns as the table has, got others.")
        if trees.sigmoid is None:
            raise ValueError("expected a model of a label, got a correction.")
        return TreesClassifier(trees)
    facts = json.loads(content)
    if facts["dtype"] not in ("float32", "float64") or len(facts["coef"]) != columns:
        raise ValueError("expected one number per column, got others.")
    model = LogisticRegression()
    model.coef_ = np.array([facts["coef"]], dtype=facts["dtype"])
    model.intercept_ = np.array([facts["intercept"]], dtype=model.coef_.dtype)
    model.classes_, model.n_features_in_ = np.array([0, 1]), columns
    if model.coef_.shape != (1, columns) or not np.isfinite(model.coef_).all():
        raise ValueError("expected one number per column, got others.")
    if facts["names"]:
        model.feature_names_in_ = np.array(facts["names"], dtype=object)
    return model


def _correction_from(content: bytes, numbers: int) -> tuple[Correction, Levels | None]:
    try:
        parts = safetensors.numpy.load(content)
    except safetensors.SafetensorError:
        raise ValueError("expected arrays of numbers, got something else.") from None
    units, count = parts["hidden"].shape[-1], len(parts.get("levels", ()))
    shapes: dict[str, tuple[int, ...]] = {
        "centre": (numbers,),
        "spread": (numbers,),
        "hidden": (numbers + 3, units),
        "out": (units + 1, 2),
    }
    shapes |= {"levels": (count,), "each": (count, units + 1, 2)} if 0 < count <= MAX_LEVELS else {}
    right = {name: part.shape for name, part in parts.items()} == shapes
    if not right or any(part.dtype != np.float64 or not np.isfinite(part).all() for part in parts.values()):
        raise ValueError("expected a correction that reads as many columns as the table has, got another.")
    of_levels = {name: parts.pop(name) for name in ("levels", "each") if count}
    if not count:
        return Correction(**parts), None
    if (np.diff(of_levels["levels"]) <= 0).any():
        raise ValueError("expected rising thresholds, got others.")
    corrections = tuple(Correction(**parts | {"out": np.ascontiguousarray(one)}) for one in of_levels["each"])
    return Correction(**parts), Levels(of_levels["levels"], corrections)


__all__ = ["BaseMismatch", "is_second", "rule_from_files", "rule_to_files", "trees_of"]
