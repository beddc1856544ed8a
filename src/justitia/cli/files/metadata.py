"""Public facts about a run, kept in ``training.json`` beside the model."""

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
from justitia.cli.files.rows import Rows
from justitia.cli.files.seen import Said
from justitia.cli.files.streamed import StreamedRows
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.measurement import Measurement
from justitia.persistence.folder import MODEL
from justitia.training.public_scores import public_scores

FACTS, CURVE = "training.json", "tradeoff.json"


def version() -> str:
    """Of this package."""
    try:
        return metadata.version("justitia")
    except metadata.PackageNotFoundError:
        return "unknown"


def now() -> str:
    """The time, as ISO text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command_line() -> str:
    """The command as it was typed."""
    context = click.get_current_context(silent=True)
    return shlex.join(["justitia", *([] if context is None else context.meta.get("justitia.words", []))])


def training_metadata(model: LagrangianDualClassifier, rows: Rows | StreamedRows, *, target: str) -> dict[str, Any]:
    """Facts of one run: public, or noised by it."""
    attribute = rows.attribute
    groups = groups_of(model, attribute.columns)
    return {
        "title": f"{target} from {rows.table.path.name}",
        "data": rows.table.path.name,
        "separator": rows.table.separator,
        "encoding": rows.table.encoding,
        "rows": len(rows),
        "columns": int(model.n_features_in_),
        "target": target,
        "classes": model.classes_.tolist(),
        "positive": model.classes_.tolist()[1],
        "sensitive": list(attribute.columns),
        "groups": groups_text(groups),
        "bins": [str(one) for one in attribute.bins],
        "key": attribute.key,
        "person": attribute.person,
        "missing": attribute.missing,
        "seed": model.random_state,
        **trained_from(model),
        "tolerance": tolerance_in_force(model),
        **{f"training_{name}": value for name, value in training_scores(model, rows).items()},
        "noisy_violation": noisy_violation(model),
        "command": command_line(),
        "justitia": version(),
        "created": now(),
    }


def measurement_metadata(found: Measurement, accuracy: float | None, data: str) -> dict[str, Any]:
    """Facts of one measurement: public, or noised by it."""
    return found.to_dict() | {"accuracy": accuracy, "data": data, "justitia": version(), "created": now()}


def trained_from(model: LagrangianDualClassifier) -> dict[str, Any]:
    """What engine "post-processing" started from: the base and the threshold; nothing of a network."""
    return {"base": model.rule_.base.describe(), "threshold": model.rule_.threshold} if hasattr(model, "rule_") else {}


def tolerance_in_force(model: LagrangianDualClassifier) -> float | None:
    """The tolerance given, or what it came to; None where only exact sizes of groups would tell."""
    if model.tolerance is not None:
        return float(model.tolerance)
    return model.tolerance_ if math.isfinite(model.certificate_.epsilon) else None


def training_scores(model: LagrangianDualClassifier, rows: Rows | StreamedRows) -> dict[str, float]:
    """Public accuracy and AUC of the training rows.

    A base that was fitted here has learned from all of them, so those of engine "post-processing" are the last of its
    history: by models that have not learned from the row. So are those of rows that are read from files: of the sample.
    """
    if hasattr(model, "rule_") or isinstance(rows, StreamedRows):
        return {name: float(model.history_[name].iloc[-1]) for name in ("accuracy", "auc")}
    return public_scores(model.decision_function(rows.X), rows.y, np.ones(len(rows)))


def noisy_violation(model: LagrangianDualClassifier) -> float | None:
    """Largest difference between two groups in the noised gaps of the last round that has any; None without noise."""
    gaps = [column for column in model.history_columns_ if column.kind == "noisy_gap" and column.status == "noised"]
    known = model.history_[[column.name for column in gaps]].dropna()
    if not gaps or not len(known):
        return None
    last = known.iloc[-1]
    return max(
        float(np.ptp([float(last[column.name]) for column in gaps if column.event == event]))
        for event in {column.event for column in gaps}
    )


def groups_of(model: LagrangianDualClassifier, columns: Sequence[str]) -> Groups:
    """The public groups of a model by column."""
    labels = [label if isinstance(label, tuple) else (label,) for label in model.groups_]
    if any(len(label) != len(columns) for label in labels):
        raise Refusal("the model's groups are those of other columns; pass --groups, once for each sensitive column.")
    parts = zip(*labels, strict=True)
    return {name: list(dict.fromkeys(str(part) for part in one)) for name, one in zip(columns, parts, strict=True)}


def read_json(path: Path) -> dict[str, Any] | None:
    """A file that an earlier command wrote; None if it did not."""
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return read_object(path)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise Refusal(f"{shown_path(path)} is damaged; run the command that wrote it again.") from None
    except ValueError as error:
        raise Refusal(str(error)) from None


def load_model(folder: Path) -> tuple[LagrangianDualClassifier, dict[str, Any]]:
    """A saved model and its facts, which are empty for one that was saved from Python."""
    if not folder.is_dir():
        raise Refusal(f"there is no model folder {shown_path(folder)}; train one with 'justitia train'.")
    if (folder / CURVE).is_file() and not (folder / MODEL).is_file():
        raise Refusal(
            f"{shown_path(folder)} is a curve; name one of its models, {shown_path(folder / 'tolerance-...')}."
        )
    return LagrangianDualClassifier.load(folder), read_json(folder / FACTS) or {}


def features_of(model: LagrangianDualClassifier) -> list[str] | None:
    """Names of the columns that a model reads; None where its table had none."""
    return [str(name) for name in getattr(model, "feature_names_in_", [])] or None


def groups_from(facts: dict[str, Any], columns: Sequence[str]) -> Groups | None:
    """Groups that ``training.json`` names."""
    listed = facts.get("groups")
    return read_groups(listed, columns, ()) if listed else None


def decisions(model: LagrangianDualClassifier, X: pd.DataFrame) -> Any:
    """0 or 1 for each row."""
    return (model.decision_function(X) > 0).astype(np.int64)


def said_of(model: LagrangianDualClassifier, X: pd.DataFrame) -> Said:
    """Decisions, scores, and scores of the base where there is one."""
    margin = model.decision_function(X)
    scores = model.rule_.probability(margin) if hasattr(model, "rule_") else model.predict_proba(X)[:, 1]
    return (margin > 0).astype(np.int64), scores, model.base_proba(X)
