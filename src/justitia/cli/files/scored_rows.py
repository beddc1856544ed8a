"""Scored rows of Parquet files: labels, a model's decisions and scores, and hashes of the rows, after one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.files.attribute import PublicAttribute, Where
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.public_rows import RowHashes, row_hashes
from justitia.cli.files.streamed import read_streamed
from justitia.cli.files.target import Label, read_target, task_of
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.attribute import HeldElsewhere, SensitiveColumns
from justitia.regressor import LagrangianDualRegressor
from justitia.rows.files import frames
from justitia.rows.parquet import RowFiles
from justitia.tasks import Task
from justitia.training.diagnostics import decided

Array = NDArray[np.float64]
#: Decisions (codes of classes, or numbers), scores of two classes, and decisions and scores of the base where there is
#: one.
ModelOutputs = tuple[NDArray[Any], Array | None, NDArray[Any] | None, Array | None]


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows of files with the outputs of a model; features are not kept.

    Attributes
    ----------
    files : RowFiles
    y : array
        Codes 0, 1, ... of the classes, or numbers.
    classes : tuple
        What the codes are called in the files; empty for numbers.
    attribute : PublicAttribute
        Public facts about the attribute.
    sensitive : SensitiveColumns
        Where it is.
    person : str, optional
    public : RowHashes
    decided, scores, base_decided, base_scores : array or None
        Outputs of the model.
    """

    files: RowFiles = field(repr=False)
    y: NDArray[Any] = field(repr=False)
    classes: tuple[Label, ...]
    attribute: PublicAttribute
    sensitive: SensitiveColumns | HeldElsewhere
    person: str | None
    public: RowHashes = field(repr=False)
    decided: NDArray[Any] = field(repr=False)
    scores: Array | None = field(repr=False)
    base_decided: NDArray[Any] | None = field(repr=False)
    base_scores: Array | None = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        return task_of(self.classes)


def model_outputs(model: LagrangianDualClassifier | LagrangianDualRegressor, X: pd.DataFrame) -> ModelOutputs:
    """Decisions (codes of classes, or numbers), scores of two classes, and decisions and scores of the base."""
    if isinstance(model, LagrangianDualRegressor):
        return model.predict(X), None, model.base_predict(X), None
    margin, base = model.decision_function(X), model.base_proba(X)
    if len(model.classes_) > 2:
        utility = base if base is None or model.rule_.costs is None else -base @ model.rule_.costs
        return decided(margin), None, None if utility is None else utility.argmax(1), None
    scores = model.rule_.probability(margin) if hasattr(model, "rule_") else model.predict_proba(X)[:, 1]
    before = None if base is None else (base > model.rule_.threshold).astype(np.int64)
    return decided(margin), scores, before, base


def read_scored_rows(
    data: Path,
    where: Where,
    outputs_of: Callable[[pd.DataFrame], ModelOutputs],
    *,
    target: str,
    columns: FeatureColumns,
    positive: str | None = None,
    classes: Sequence[Label] | None = None,
) -> ScoredRows:
    """Check names of columns, read labels, and let a model decide, a few rows at a time. The attribute is not read."""
    rows = read_streamed(data, where, target=target, columns=columns)
    y, known = read_target(rows.table, target, positive, classes)
    outputs: list[ModelOutputs] = []
    hashes: list[NDArray[np.uint64]] = []
    names, at = list(rows.X.features or ()), 0
    for frame in frames(rows.X, names):
        X = columns.as_read(frame)
        outputs.append(outputs_of(X))
        hashes.append(row_hashes(X, y[at : at + len(X)], known))
        names, at = sorted(str(name) for name in X.columns), at + len(X)
    public = RowHashes((*names, target), np.concatenate(hashes))
    found = [_joined(parts) for parts in zip(*outputs, strict=True)]
    return ScoredRows(rows.X, y, known, rows.attribute, rows.sensitive, rows.person, public, *found)


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


__all__ = ["ModelOutputs", "ScoredRows", "model_outputs", "read_scored_rows"]
