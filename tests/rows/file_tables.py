"""A small table with all kinds of columns, ways to store it as Parquet files, and fits of it."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from justitia import LagrangianDualClassifier, MomentsPlan, PostProcessingPlan
from justitia.privacy.vault import SensitiveVault
from justitia.rows.parquet import RowFiles

GROUPS = ("f", "m", "x")
#: Rows of the public sample in tests, so that most rows are not in it.
FEW = 300


def make_table(n: int = 1200) -> pd.DataFrame:
    """Numbers with gaps, text, labels, weights, persons, and an attribute that some did not give."""
    rng = np.random.default_rng(17)
    X = rng.normal(size=(n, 4)).round(3)
    y = np.where(X[:, 0] + 0.7 * X[:, 1] + 0.8 * rng.normal(size=n) > 0, "yes", "no")
    place = np.argsort(np.argsort(X[:, 1] + rng.normal(size=n))) * 3 // n
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table.loc[table.index % 11 == 3, "c"] = np.nan
    table["town"] = np.where(X[:, 3] > 0.3, "north", "south")
    table["label"] = y
    table["sex"] = [None if i % 9 == 4 else GROUPS[code] for i, code in enumerate(place)]
    table["weight"] = np.linspace(1, 2, n).round(3)
    table["id"] = np.arange(n) * 7 + 3
    table["who"] = np.arange(n) // 2
    return table


FEATURES = ("a", "b", "c", "d", "town")


def write(table: pd.DataFrame, path: Path, row_group_size: int = 190) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=row_group_size)
    return path


def write_parts(table: pd.DataFrame, folder: Path, cuts: Sequence[int]) -> list[Path]:
    """One file per stretch of rows; a stretch may be empty."""
    ends = [*cuts, len(table)]
    starts = [0, *cuts]
    return [write(table[a:b], folder / f"{k}.parquet") for k, (a, b) in enumerate(zip(starts, ends, strict=True))]


def files(path: Any, **how: Any) -> RowFiles:
    return RowFiles.open(path, features=FEATURES, **how)


SHORT: dict[str, Any] = {"warmup_steps": 60, "batch_size": 64, "warmup_learning_rate": 0.02, "learning_rate": 0.01}
PLANS = {
    "post-processing": PostProcessingPlan(checks=2),
    "moments": MomentsPlan(**SHORT, rounds=6, public_steps=5, checks=2, candidates=3, penalty=0.02),
}


def model(notion: str = "equalized_odds", engine: str = "post-processing", **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 4.0, "groups": GROUPS, "tolerance": 0.02}
    usual |= {"engine": engine, "plan": PLANS.get(engine)}
    return LagrangianDualClassifier(notion, **usual | {"random_state": 3, "noise_seed": 11} | changes)


def digest(fitted: LagrangianDualClassifier, table: pd.DataFrame) -> str:
    """Of multipliers, noised gaps and scores, to the last bit."""
    gaps = [column.name for column in fitted.history_columns_ if column.kind == "noisy_gap"]
    parts = [fitted.dual_, fitted.history_[gaps], fitted.decision_function(table[list(FEATURES)])]
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(part, dtype=np.float64).tobytes() for part in parts)
    ).hexdigest()


@contextmanager
def recorded_sums() -> Iterator[list[bytes]]:
    """The exact sums of all releases, before their noise."""
    kept: list[bytes] = []
    original = SensitiveVault._pass_steps

    def recorded(self: SensitiveVault, *query: Any) -> Any:
        found = original(self, *query)
        kept.append(found.tobytes())
        return found

    SensitiveVault._pass_steps = recorded  # type: ignore[method-assign]
    try:
        yield kept
    finally:
        SensitiveVault._pass_steps = original  # type: ignore[method-assign]
