"""From one row per fit to means and standard deviations, and single numbers out of those."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def mean_and_sd(results: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """One row per combination of ``by``: number of fits, mean and standard deviation (over the fits) of each column."""
    groups = results.groupby(list(by), sort=False, dropna=False)
    parts: dict[str, pd.Series] = {"fits": groups.size()}
    for name in columns:
        parts[f"{name}_mean"] = groups[name].mean()
        parts[f"{name}_sd"] = groups[name].std(ddof=0)
    return pd.DataFrame(parts).reset_index()


def setting(results: pd.DataFrame, name: str) -> pd.Series:
    """One of the settings of each row, from its JSON text; None where a row does not change it."""
    found = [json.loads(text).get(name) for text in results["settings"]]
    return pd.Series(found, index=results.index, dtype=object)


def lookup(table: pd.DataFrame, column: str, **where: Any) -> float | None:
    """The number in ``column`` of the row that ``where`` names; None if there is no such row."""
    chosen = table
    for name, value in where.items():
        chosen = chosen[chosen[name] == value]
    values: list[float] = chosen[column].tolist()
    return values[0] if values else None


def clearly_less(table: pd.DataFrame, column: str, low: Mapping[str, Any], high: Mapping[str, Any]) -> bool:
    """Whether the mean of one row is below that of another by more than the standard error of their difference."""
    first, second = (
        [lookup(table, name, **where) or 0.0 for name in (f"{column}_mean", f"{column}_sd", "fits")]
        for where in (low, high)
    )
    return second[0] - first[0] > math.sqrt(first[1] ** 2 / max(first[2], 1) + second[1] ** 2 / max(second[2], 1))


def dominated(accuracy: list[float], violation: list[float]) -> list[bool]:
    """Whether some other point has no less accuracy and no more violation, and not the same of both."""
    a, v = np.asarray(accuracy), np.asarray(violation)
    no_worse = (a[None, :] >= a[:, None]) & (v[None, :] <= v[:, None])
    better = (a[None, :] > a[:, None]) | (v[None, :] < v[:, None])
    return [bool(row.any()) for row in no_worse & better]


def listed(values: Sequence[float]) -> str:
    """Numbers with three digits after the point, separated by commas."""
    return ", ".join(f"{value:.3f}" for value in values)
