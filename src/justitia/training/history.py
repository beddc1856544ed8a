"""The history of a fit as a table, and what each of its columns is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
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
    public = tuple(Column(kind, kind, "public") for kind in ("round", "loss", *scores))
    cells = [(a, k) for a in range(len(groups)) for k in range(len(events))]
    named = [groups[a] if len(events) == 1 else f"{events[k]}, {groups[a]}" for a, k in cells]
    status: Literal["noised", "exact"] = "noised" if private else "exact"
    by_group = tuple(
        Column(f"{kind}[{name}]", kind, status, events[k], groups[a])
        for kind in ("noisy_gap", "multiplier")
        for name, (a, k) in zip(named, cells, strict=True)
    )
    rows = []
    for record in history:
        row = {column.name: record.get(column.kind, math.nan) for column in public}
        for column, (a, k) in zip(by_group, 2 * cells, strict=True):
            values = record[column.kind]
            row[column.name] = math.nan if values is None else values[a][k]
        gap, error = record["noisy_gap"], record.get("violation_error")
        row["noisy_violation"] = math.nan if gap is None else float(np.ptp(gap, axis=0).max())
        row["violation_error"] = math.nan if gap is None or error is None else error
        rows.append(row)
    columns = public + by_group + tuple(Column(kind, kind, status) for kind in ("noisy_violation", "violation_error"))
    return pd.DataFrame(rows, columns=[column.name for column in columns]), columns


def names_of(columns: Iterable[Column], *kinds: str) -> list[str]:
    """Names of the columns of these kinds that may be shown, of all kinds if none is given."""
    return [column.name for column in columns if column.released and (not kinds or column.kind in kinds)]
