"""The deployed model of engine ``post-processing`` as files: trees as text, numbers as JSON and arrays, and no pickle.

Bases of boosted trees (LightGBM) and of logistic regression are written. A base that is a column needs nothing. Any
other one cannot be written: ``save`` refuses it, or with ``without_base=True`` leaves it with its owner, who passes it
again when the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from sklearn.linear_model import LogisticRegression

from justitia.learners.base import Base, Column, CrossFitted, Fitted
from justitia.learners.calibration import Calibration
from justitia.learners.trees import Trees, TreesClassifier, read_trees
from justitia.postprocessing.correction import Correction, Levels, Rule

#: Names of files of ours; which of them there are says the rule.
CORRECTION, TREES, NUMBERS = "correction.safetensors", "base-{}.txt", "base-{}.json"
#: Thresholds at most of a rule of scores.
MOST_LEVELS = 10_000
#: Models of a base at most, and bytes of one file.
MOST_MODELS, MOST_BYTES = 100, 2**28
#: Arrays of a correction.
PARTS = ("centre", "spread", "hidden", "out")
Files = Mapping[str, bytes]


def written_rule(rule: Rule) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What goes into ``model.json``, public numbers and what the base is; and the files, by name."""
    base, mend = rule.base, rule.calibration
    kind = CrossFitted if isinstance(base, CrossFitted) else type(base)
    facts: dict[str, Any] = {"kind": kind.__name__, "words": base.describe()}
    models = [_written(model) for model in _models(base)]
    files = {name.format(j): text.encode() for j, (name, text) in enumerate(filter(None, models), start=1)}
    facts["written"] = len(files) == len(models) <= MOST_MODELS
    if not facts["written"]:
        files = {}
    elif isinstance(base, Column):
        facts["column"] = base.name
    else:
        facts |= {"encoded": getattr(base, "encoded", False), "second": is_second(base), "files": list(files)}
    if not rule.correction.is_zero:
        files[CORRECTION] = safetensors.numpy.save(_arrays(rule))
    kept = {"calibration": [mend.alpha, mend.beta, mend.gamma], "threshold": rule.threshold}
    return kept | {"base": facts, "correction": CORRECTION in files}, files


def _arrays(rule: Rule) -> dict[str, Any]:
    """The correction; of scores, all of them, which differ in what comes after the hidden units."""
    arrays = {name: np.asarray(getattr(rule.correction, name)) for name in PARTS}
    if rule.levels is not None:
        each = [np.asarray(one.out) for one in rule.levels.corrections]
        arrays |= {"levels": rule.levels.at, "each": np.stack(each)}
    return arrays


def _models(base: Base) -> tuple[Any, ...]:
    """Fitted models of the base; none of a column."""
    if isinstance(base, CrossFitted):
        return base.models
    return () if isinstance(base, Column) else (getattr(base, "model", None),)


def is_second(base: Base) -> bool:
    """Whether a positive answer is the second class of the base's models, as far as they know it."""
    classes = [] if not isinstance(base, Fitted) else list(base.model.classes_)
    return not isinstance(base, Fitted) or base.positive not in classes or classes.index(base.positive) == 1


def _written(model: Any) -> tuple[str, str] | None:
    """Pattern of a name, and text of one model; None for a kind of model that is not written."""
    trees = trees_of(model)
    if trees is not None:
        return TREES, trees.text()
    if type(model) is LogisticRegression and model.coef_.shape[0] == 1 and len(model.classes_) == 2:
        return NUMBERS, json.dumps(_coefficients(model))
    return None


def trees_of(model: Any) -> Trees | None:
    """The trees of a classifier of LightGBM; None of any other model, or of one whose trees we do not write."""
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


def _coefficients(model: LogisticRegression) -> dict[str, Any]:
    return {
        "coef": model.coef_[0].tolist(),
        "intercept": float(model.intercept_[0]),
        "dtype": model.coef_.dtype.name,
        "names": [str(name) for name in getattr(model, "feature_names_in_", ())],
    }


def read_rule(facts: Mapping[str, Any], files: Files, base: Base | None, *, columns: int, numbers: int) -> Rule:
    """The rule that was written.

    Parameters
    ----------
    facts : mapping
        What :func:`written_rule` gave.
    files : mapping
        Contents by name.
    base : Base, optional
        Where it was not written.
    columns, numbers : int
        How many a table has, before and after preprocessing.

    Raises
    ------
    ValueError
        If a file is not what was written, or the base is missing or not needed.
    """
    correction, levels = Correction(), None
    if facts["correction"]:
        correction, levels = _correction(files[CORRECTION], numbers)
    alpha, beta, gamma = (float(one) for one in facts["calibration"])
    found = _read_base(facts["base"], files, base, columns=columns, numbers=numbers)
    return Rule(found, Calibration(alpha, beta, gamma), correction, float(facts["threshold"]), levels)


def _read_base(facts: Mapping[str, Any], files: Files, base: Base | None, *, columns: int, numbers: int) -> Base:
    if not facts["written"]:
        return _given(base, facts["words"])
    if base is not None:
        raise BaseMismatch(
            f"expected no base, since this model holds its own ({facts['words']}), got one; leave it out."
        )
    if facts["kind"] == "Column":
        return Column(str(facts["column"]))
    width = numbers if facts["encoded"] else columns
    models = tuple(_model(name, files[name], width) for name in facts["files"])
    if facts["kind"] == "Fitted":
        (model,) = models
        return Fitted(model, model.classes_[int(facts["second"])])
    found = CrossFitted(models[0], encoded=bool(facts["encoded"]))
    found.models = models
    return found


class BaseMismatch(ValueError):
    """A base was passed where none is needed, or left out where one is."""


def _given(base: Base | None, words: str) -> Base:
    """A base that its owner passes again."""
    if base is None or (isinstance(base, CrossFitted) and not base.models):
        what = "none" if base is None else "one that is not fitted"
        raise BaseMismatch(
            f"expected the base that this model was fitted with ({words}), which is not in the folder, got {what}; "
            "pass load(..., base=that model, fitted, or the rule_.base of the model that was saved)."
        )
    return base


def _model(name: str, content: bytes, columns: int) -> Any:
    if name.endswith(".txt"):
        trees = _checked_trees(content, columns)
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


def _correction(content: bytes, numbers: int) -> tuple[Correction, Levels | None]:
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
    shapes |= {"levels": (count,), "each": (count, units + 1, 2)} if 0 < count <= MOST_LEVELS else {}
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


def _checked_trees(content: bytes, columns: int) -> Trees:
    trees = read_trees(content.decode())
    if trees.features != columns:
        raise ValueError("expected trees that read as many columns as the table has, got others.")
    return trees


__all__ = ["BaseMismatch", "is_second", "read_rule", "trees_of", "written_rule"]
