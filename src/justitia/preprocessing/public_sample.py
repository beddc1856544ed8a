"""The public part of rows in files: what their columns are, and the sample that is held in memory.

The sample has at most ``SAMPLE`` rows: one of every s consecutive rows, s = ceil(n / SAMPLE), drawn by a fixed public
rule. Of at most ``SAMPLE`` rows it has all. Encoders, the model of the label and the multipliers are learned from it;
what is asked about groups is asked of everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.preprocessing.files import RowFiles

#: Rows that are held in memory.
SAMPLE = 200_000
Positions = NDArray[np.int64]


def stride(n: int) -> int:
    """One of so many consecutive rows is in the sample."""
    return max(1, -(-n // SAMPLE))


def sampled(start: int, stop: int, n: int) -> Positions:
    """Positions between start and stop that are in the sample of n rows."""
    s = stride(n)
    stretch = np.arange(start // s, max(-(-stop // s), start // s), dtype=np.uint64)
    mixed = (stretch + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    drawn = (stretch * np.uint64(s) + (mixed >> np.uint64(33)) % np.uint64(s)).astype(np.int64)
    drawn = np.minimum(drawn, n - 1)  # the last stretch may be short
    return drawn[(drawn >= start) & (drawn < stop)]


@dataclass(frozen=True)
class Columns:
    """Which public columns are what.

    Attributes
    ----------
    features : tuple of str
    target : str
    weight : str, optional
    """

    features: tuple[str, ...]
    target: str | None = None
    weight: str | None = None

    @property
    def all(self) -> list[str]:
        """Names of all of them, each once."""
        extra = (name for name in (self.target, self.weight) if name is not None)
        return list(dict.fromkeys((*self.features, *extra)))


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows: the position of the first, and their public columns."""

    first: int
    table: Any = field(repr=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def frame(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns as pandas has them."""
        found: pd.DataFrame = self.table.select(list(names)).to_pandas()
        return found

    def column(self, name: str) -> NDArray[Any]:
        """One column as an array."""
        return self.frame([name])[name].to_numpy()


@dataclass(frozen=True, eq=False)
class OwnRows:
    """The rows of one process.

    Attributes
    ----------
    files : RowFiles
    columns : Columns
    start, stop : int
        Rows of the files that are this process's.
    first, n : int
        Position of the first among the rows of all processes, and their number.
    watch : callable
        From a number of rows to the progress bar of a pass over them.
    """

    files: RowFiles
    columns: Columns
    start: int
    stop: int
    first: int
    n: int
    watch: Callable[[int], AbstractContextManager[Any]] = lambda _: nullcontext()

    def __len__(self) -> int:
        return self.stop - self.start

    def blocks(self, names: Sequence[str] | None = None) -> Iterator[Block]:
        """All rows of this process in order, a few at a time."""
        names = self.columns.all if names is None else names
        with self.watch(len(self)) as bar:
            for at, table in self.files.blocks(names, self.start, self.stop):
                yield Block(at - self.start + self.first, table)
                if bar is not None:
                    bar.update(len(table))


def frames(where: Any, names: Iterable[str]) -> Iterator[pd.DataFrame]:
    """These columns of all rows of files, a few at a time."""
    files, listed = RowFiles.of(where), [str(name) for name in names]
    files.check(listed)
    for at, table in files.blocks(listed):
        yield Block(at, table).frame(listed)


@dataclass
class Look:
    """What one pass finds before anything is learned: labels, weights, and the rows of the sample."""

    labels: set[Any] = field(default_factory=set)
    heaviest: float = 0.0
    tables: list[Any] = field(default_factory=list)
    positions: list[Positions] = field(default_factory=list)


def look(rows: OwnRows, into: Look) -> None:
    """Read the rows of one process once.

    Raises
    ------
    ValueError
        If a label is missing, there are more than two, or a weight is none.
    """
    for block in rows.blocks():
        if rows.columns.target is not None:
            _see_labels(block, rows.columns.target, into)
        if rows.columns.weight is not None:
            into.heaviest = max(into.heaviest, float(weights(block, rows.columns.weight).max(initial=0.0)))
        drawn = sampled(block.first, block.first + len(block), rows.n)
        into.tables.append(block.table.take(drawn - block.first))
        into.positions.append(drawn)


def _see_labels(block: Block, target: str, into: Look) -> None:
    found = block.column(target)
    if pd.isna(found).any():
        raise ValueError(f"expected a class label in every row, got rows without {target!r}; remove or complete them.")
    into.labels |= set(pd.unique(found).tolist())
    if len(into.labels) > 2:
        raise ValueError(
            f"Only binary classification is supported: expected two class labels in {target!r}, got more; merge "
            "classes until two are left."
        )


def weights(block: Block, name: str) -> NDArray[np.float64]:
    """Public weights of rows, as they are in the files.

    Raises
    ------
    ValueError
        If one is no finite number of at least 0.
    """
    try:
        found = np.asarray(block.column(name), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(len(block), np.nan)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"expected every weight in {name!r} to be finite and at least 0, got others; replace them.")
    return found


__all__ = ["SAMPLE", "Block", "Columns", "Look", "OwnRows", "frames", "look", "sampled", "stride", "weights"]
