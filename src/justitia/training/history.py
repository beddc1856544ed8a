"""The history of a fit as a table, and what each of its columns is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Column:
    """One column of a history: what it holds, of whom, and whether its numbers may be shown.

    Attributes
    ----------
    name : str
        In the table.
    kind : str
        "round", "loss", "accuracy", "auc", "r2", "noisy_gap", "multiplier", "noisy_violation" or "violation_error".
    status : {"public", "noised", "exact"}
        "exact" is whatever no finite epsilon vouches for: answers without noise, or noised as printed in the paper.
    event, group : str, optional
        Of a number by group.
    """

    name: str
    kind: str
    status: Literal["public", "noised", "exact"]
    event: str | None = None
    group: str | None = None

    @property
    def released(self) -> bool:
        """Whether reports and trackers may show it."""
        return self.status in ("public", "noised")


def history_table(
    history: list[dict[str, Any]],
    groups: list[str],
    events: list[str],
    *,
    private: bool,
    scores: tuple[str, ...] = ("accuracy", "auc"),
) -> tuple[pd.DataFrame, tuple[Column, ...]]:
    """One row per round, and what its columns are.

    Gaps and multipliers get one column per group (and event, if there are several). The largest difference between two
    groups, by the gaps, and its standard error (noise and sampling, where the engine knows it) follow.

    Parameters
    ----------
    private : bool
        Whether a finite epsilon vouches for the answers that gaps and multipliers are made of.
    scores : tuple of str
        Public scores besides the loss.
    """
    status: Literal["noised", "exact"] = "noised" if private else "exact"
    columns: list[Column] = []
    cells: list[tuple[int, int] | None] = []
    for kind in ("round", "loss", *scores):
        columns.append(Column(kind, kind, "public"))
        cells.append(None)
    for kind in ("noisy_gap", "multiplier"):
        for a, group in enumerate(groups):
            for k, event in enumerate(events):
                name = group if len(events) == 1 else f"{event}, {group}"
                columns.append(Column(f"{kind}[{name}]", kind, status, event, group))
                cells.append((a, k))
    for kind in ("noisy_violation", "violation_error"):
        columns.append(Column(kind, kind, status))
        cells.append(None)
    rows = []
    for record in history:
        gap, error, row = record["noisy_gap"], record.get("violation_error"), dict[str, Any]()
        known = record | {
            "noisy_violation": math.nan if gap is None else float(np.ptp(gap, axis=0).max()),
            "violation_error": math.nan if gap is None or error is None else error,
        }
        for column, cell in zip(columns, cells, strict=True):
            value = known.get(column.kind, math.nan)
            row[column.name] = value if cell is None else math.nan if value is None else value[cell[0]][cell[1]]
        rows.append(row)
    return pd.DataFrame(rows, columns=list(map(attrgetter("name"), columns))), tuple(columns)


def names_of(columns: Iterable[Column], *kinds: str) -> list[str]:
    """Names of the columns of these kinds that may be shown, of all kinds if none is given."""
    return [column.name for column in columns if column.released and (not kinds or column.kind in kinds)]
