"""Public facts about training runs and measurements, and saved models with the facts beside them."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np

from justitia._files import read_object
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.attribute import Groups, groups_text, read_groups
from justitia.cli.files.rows import LabelledRows
from justitia.cli.files.streamed import StreamedRows
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.measurement import Measurement
from justitia.persistence.folder import MODEL, saved_task
from justitia.regressor import LagrangianDualRegressor
from justitia.tasks import NUMBER, Task
from justitia.training.diagnostics import public_scores

Model = LagrangianDualClassifier | LagrangianDualRegressor

FACTS, CURVE = "training.json", "tradeoff.json"
#: Field of training.json and of measurements: a summary of the public rows, from which later measurements see whether
#: they use the same individuals.
ROWS = "public_rows"


def version() -> str:
    """Version of this package."""
    try:
        return metadata.version("justitia")
    except metadata.PackageNotFoundError:
        return "unknown"


def now() -> str:
    """The current time as ISO text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def training_metadata(model: Model, rows: LabelledRows | StreamedRows, *, target: str) -> dict[str, Any]:
    """Facts of one training run, for ``training.json``: public, or computed from its noisy releases."""
    attribute = rows.attribute
    context = click.get_current_context(silent=True)
    words = [] if context is None else context.meta.get("justitia.words", [])
    tolerance = None if model.tolerance is None else float(np.max(model.tolerance))
    if tolerance is None and math.isfinite(model.certificate_.epsilon):
        tolerance = model.tolerance_  # without noise it depends on exact group sizes, which are private
    rule: Any = getattr(model, "rule_", None)
    base = {} if rule is None else {"base": rule.base.describe()}
    if hasattr(rule, "threshold"):
        base["threshold"] = rule.threshold
    return {
        "title": f"{target} from {rows.table.path.name}",
        "data": rows.table.path.name,
        "separator": rows.table.separator,
        "encoding": rows.table.encoding,
        "rows": len(rows),
        "columns": int(model.n_features_in_),
        "target": target,
        **target_facts(model),
        "notion": model.notion,
        "sensitive": list(attribute.columns),
        "groups": groups_text(model_groups(model, attribute.columns)),
        "bins": list(map(str, attribute.bins)),
        "key": attribute.key,
        "person": attribute.person,
        "missing": attribute.missing,
        "seed": model.random_state,
        **base,
        "tolerance": tolerance,
        **_training_quality(model, rows),
        "noisy_violation": noisy_violation(model),
        "command": shlex.join(["justitia", *words]),
        "justitia": version(),
        "created": now(),
    }


def target_facts(model: Model) -> dict[str, Any]:
    """What a model predicts: its task, and classes or range."""
    if isinstance(model, LagrangianDualRegressor):
        return {"task": NUMBER.kind, "bounds": list(model.bounds_)}
    classes = model.classes_.tolist()
    positive = {"positive": classes[1]} if len(classes) == 2 else {}
    return {"task": Task.of_classes(classes).kind, "classes": classes, **positive}


def _training_quality(model: Model, rows: LabelledRows | StreamedRows) -> dict[str, float | None]:
    """Public accuracy and AUC, or R2, on training rows."""
    if not hasattr(model, "rule_") and isinstance(rows, LabelledRows):
        scores = public_scores(model.decision_function(rows.X), rows.y, np.ones(len(rows)))
    else:
        # The base has learned from all rows, so the history has scores by models that have not learned from the row.
        # For rows in files, it has scores of the sample.
        last = model.history_.iloc[-1]
        scores = {name: float(last[name]) for name in ("accuracy", "auc", "r2") if name in last}
    return {f"training_{name}": None if math.isnan(value) else value for name, value in scores.items()}


def measurement_metadata(
    found: Measurement, accuracy: float | None, data: str, r2: float | None = None
) -> dict[str, Any]:
    """Facts of one measurement: public, or computed from its noisy release."""
    quality = {"accuracy": accuracy} if r2 is None else {"r2": r2}
    return found.to_dict() | quality | {"data": data, "justitia": version(), "created": now()}


def noisy_violation(model: Model) -> float | None:
    """Largest difference between two groups by the noisy gaps of the last round that has any; None without any."""
    by_event: dict[Any, list[str]] = {}
    for column in model.history_columns_:
        if column.kind == "noisy_gap" and column.status == "noised":
            by_event.setdefault(column.event, []).append(column.name)
    known = model.history_[list(itertools.chain(*by_event.values()))].dropna()
    if not by_event or not len(known):
        return None
    violation = 0.0
    for names in by_event.values():
        violation = max(violation, float(np.ptp(known[names].iloc[-1])))
    return violation


def model_groups(model: Model, columns: Sequence[str]) -> Groups:
    """The public groups of a model by column."""
    found: Groups = {}
    for group in model.groups_:
        labels = group if isinstance(group, tuple) else (group,)
        if len(labels) != len(columns):
            raise Refusal("the model's groups are those of other columns; pass --groups, once for every one.")
        for name, label in zip(columns, map(str, labels), strict=True):
            listed = found.setdefault(name, [])
            if label not in listed:
                listed.append(label)
    return found


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file of an earlier command; None if there is none."""
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return read_object(path)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise Refusal(f"{shown_path(path)} is damaged; run the command that wrote it again.") from None
    except ValueError as error:
        raise Refusal(str(error)) from None


def load_model(folder: Path) -> tuple[Model, dict[str, Any]]:
    """A saved model and its facts, which are empty if it was saved from Python."""
    if not folder.is_dir():
        raise Refusal(f"there is no model folder {shown_path(folder)}; train one with 'justitia train'.")
    if (folder / CURVE).is_file() and not (folder / MODEL).is_file():
        raise Refusal(
            f"{shown_path(folder)} is a curve; name one of its models, {shown_path(folder / 'tolerance-...')}."
        )
    kind: Any = LagrangianDualRegressor if saved_task(folder) == NUMBER.kind else LagrangianDualClassifier
    return kind.load(folder), read_json(folder / FACTS) or {}


def model_features(model: Model) -> list[str] | None:
    """Names of a model's feature columns; None if it was trained without names."""
    return [str(name) for name in getattr(model, "feature_names_in_", [])] or None


def facts_groups(facts: dict[str, Any], columns: Sequence[str]) -> Groups | None:
    """Groups by column, from ``training.json``."""
    listed = facts.get("groups")
    return read_groups(listed, columns, ()) if listed else None
