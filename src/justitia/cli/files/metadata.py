"""Public facts about training runs and measurements, and saved models with the facts beside them."""

from __future__ import annotations

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
import pandas as pd

from justitia._files import read_object
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.attribute import Groups, groups_text, read_groups
from justitia.cli.files.rows import LabelledRows
from justitia.cli.files.seen import Said
from justitia.cli.files.streamed import StreamedRows
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.measurement import Measurement
from justitia.persistence.folder import MODEL
from justitia.training.public_scores import public_scores

FACTS, CURVE = "training.json", "tradeoff.json"


def version() -> str:
    """Version of this package."""
    try:
        return metadata.version("justitia")
    except metadata.PackageNotFoundError:
        return "unknown"


def now() -> str:
    """The current time as ISO text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def training_metadata(
    model: LagrangianDualClassifier, rows: LabelledRows | StreamedRows, *, target: str
) -> dict[str, Any]:
    """Facts of one training run, for ``training.json``: public, or computed from its noisy releases."""
    attribute, classes = rows.attribute, model.classes_.tolist()
    context = click.get_current_context(silent=True)
    words = [] if context is None else context.meta.get("justitia.words", [])
    tolerance = None if model.tolerance is None else float(model.tolerance)
    if tolerance is None and math.isfinite(model.certificate_.epsilon):
        tolerance = model.tolerance_  # without noise it depends on exact group sizes, which are private
    if hasattr(model, "rule_") or isinstance(rows, StreamedRows):
        # The base has learned from all rows, so the history has scores by models that have not learned from the row.
        # For rows in files, it has scores of the sample.
        scores = {name: float(model.history_[name].iloc[-1]) for name in ("accuracy", "auc")}
    else:
        scores = public_scores(model.decision_function(rows.X), rows.y, np.ones(len(rows)))
    base = {"base": model.rule_.base.describe(), "threshold": model.rule_.threshold} if hasattr(model, "rule_") else {}
    return {
        "title": f"{target} from {rows.table.path.name}",
        "data": rows.table.path.name,
        "separator": rows.table.separator,
        "encoding": rows.table.encoding,
        "rows": len(rows),
        "columns": int(model.n_features_in_),
        "target": target,
        "classes": classes,
        "positive": classes[1],
        "sensitive": list(attribute.columns),
        "groups": groups_text(model_groups(model, attribute.columns)),
        "bins": [str(one) for one in attribute.bins],
        "key": attribute.key,
        "person": attribute.person,
        "missing": attribute.missing,
        "seed": model.random_state,
        **base,
        "tolerance": tolerance,
        "training_accuracy": scores["accuracy"],
        "training_auc": scores["auc"],
        "noisy_violation": noisy_violation(model),
        "command": shlex.join(["justitia", *words]),
        "justitia": version(),
        "created": now(),
    }


def measurement_metadata(found: Measurement, accuracy: float | None, data: str) -> dict[str, Any]:
    """Facts of one measurement: public, or computed from its noisy release."""
    return found.to_dict() | {"accuracy": accuracy, "data": data, "justitia": version(), "created": now()}


def noisy_violation(model: LagrangianDualClassifier) -> float | None:
    """Largest difference between two groups by the noisy gaps of the last round that has any; None without any."""
    gaps = [column for column in model.history_columns_ if column.kind == "noisy_gap" and column.status == "noised"]
    known = model.history_[[column.name for column in gaps]].dropna()
    if not gaps or not len(known):
        return None
    by_event: dict[Any, list[float]] = {}
    for column in gaps:
        by_event.setdefault(column.event, []).append(float(known.iloc[-1][column.name]))
    return max(float(np.ptp(values)) for values in by_event.values())


def model_groups(model: LagrangianDualClassifier, columns: Sequence[str]) -> Groups:
    """The public groups of a model by column."""
    labels = [label if isinstance(label, tuple) else (label,) for label in model.groups_]
    if any(len(label) != len(columns) for label in labels):
        raise Refusal("the model's groups are those of other columns; pass --groups, once for each sensitive column.")
    parts = zip(*labels, strict=True)
    return {name: list(dict.fromkeys(map(str, one))) for name, one in zip(columns, parts, strict=True)}


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


def load_model(folder: Path) -> tuple[LagrangianDualClassifier, dict[str, Any]]:
    """A saved model and its facts, which are empty if it was saved from Python."""
    if not folder.is_dir():
        raise Refusal(f"there is no model folder {shown_path(folder)}; train one with 'justitia train'.")
    if (folder / CURVE).is_file() and not (folder / MODEL).is_file():
        raise Refusal(
            f"{shown_path(folder)} is a curve; name one of its models, {shown_path(folder / 'tolerance-...')}."
        )
    return LagrangianDualClassifier.load(folder), read_json(folder / FACTS) or {}


def model_features(model: LagrangianDualClassifier) -> list[str] | None:
    """Names of a model's feature columns; None if it was trained without names."""
    return [str(name) for name in getattr(model, "feature_names_in_", [])] or None


def facts_groups(facts: dict[str, Any], columns: Sequence[str]) -> Groups | None:
    """Groups by column, from ``training.json``."""
    listed = facts.get("groups")
    return read_groups(listed, columns, ()) if listed else None


def said_of(model: LagrangianDualClassifier, X: pd.DataFrame) -> Said:
    """Decisions (0 or 1), scores, and scores of the base where there is one."""
    margin = model.decision_function(X)
    scores = model.rule_.probability(margin) if hasattr(model, "rule_") else model.predict_proba(X)[:, 1]
    return (margin > 0).astype(np.int64), scores, model.base_proba(X)
