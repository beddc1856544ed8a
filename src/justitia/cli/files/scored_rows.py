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
from justitia.cli.files.rows import Label, read_target
from justitia.cli.files.streamed import read_streamed
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.attribute import HeldElsewhere, SensitiveColumns
from justitia.rows.files import frames
from justitia.rows.parquet import RowFiles

Array = NDArray[np.float64]
#: Decisions (0 or 1), scores, and scores of the base where there is one.
ModelOutputs = tuple[NDArray[np.int64], Array, Array | None]


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows of files with the outputs of a model; features are not kept.

    Attributes
    ----------
    files : RowFiles
    y : array of 0 and 1
    classes : tuple
        What 0 and 1 are called in the files.
    attribute : PublicAttribute
        Public facts about the attribute.
    sensitive : SensitiveColumns
        Where it is.
    person : str, optional
    public : RowHashes
    decided, scores, base_scores : array
        Outputs of the model.
    """

    files: RowFiles = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)
    classes: tuple[Label, Label]
    attribute: PublicAttribute
    sensitive: SensitiveColumns | HeldElsewhere
    person: str | None
    public: RowHashes = field(repr=False)
    decided: NDArray[np.int64] = field(repr=False)
    scores: Array = field(repr=False)
    base_scores: Array | None = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)


def model_outputs(model: LagrangianDualClassifier, X: pd.DataFrame) -> ModelOutputs:
    """Decisions (0 or 1), scores, and scores of the base where there is one."""
    margin = model.decision_function(X)
    scores = model.rule_.probability(margin) if hasattr(model, "rule_") else model.predict_proba(X)[:, 1]
    return (margin > 0).astype(np.int64), scores, model.base_proba(X)


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
    decided, scores, base = (_joined(parts) for parts in zip(*outputs, strict=True))
    return ScoredRows(rows.X, y, known, rows.attribute, rows.sensitive, rows.person, public, decided, scores, base)


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


__all__ = ["ModelOutputs", "ScoredRows", "model_outputs", "read_scored_rows"]
