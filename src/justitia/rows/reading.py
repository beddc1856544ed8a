"""From Arrow tables of consecutive rows to blocks of public numbers: labels, weights, encoded features and scores.

Every row source that reads Arrow data uses these functions, so the numbers of a row are the same on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.learners.base import Inputs
from justitia.privacy.noise_grid import exact_sum_step, to_nearest
from justitia.rows.source import Block, IntArray, Predict

#: More values of a target are not classes.
MOST_CLASSES = 20
#: From a table (Arrow or pandas) to features as numbers.
Encode = Callable[[Any], NDArray[np.float32]]


def sampled(start: int, stop: int, n: int, s: int) -> NDArray[np.int64]:
    """Positions from start to stop that are in the sample of n rows: one per stretch of s rows, by a hash.

    The row at position p has place ``p // s`` in the sample.
    """
    stretch = np.arange(start // s, max(-(-stop // s), start // s), dtype=np.uint64)
    mixed = (stretch + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    drawn = (stretch * np.uint64(s) + (mixed >> np.uint64(33)) % np.uint64(s)).astype(np.int64)
    drawn = np.minimum(drawn, n - 1)  # the last stretch may be short
    return drawn[(drawn >= start) & (drawn < stop)]


@dataclass(frozen=True)
class Columns:
    """Names of the public columns.

    Attributes
    ----------
    features : tuple of str
    target : str, optional
    weight : str, optional
    number : bool
        Whether the target is a number.
    proxy : tuple of str
        Columns that say something about the group; none of them is a feature.
    """

    features: tuple[str, ...]
    target: str | None = None
    weight: str | None = None
    number: bool = False
    proxy: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Names of all of them, each once."""
        extra = (name for name in (self.target, self.weight) if name is not None)
        return list(dict.fromkeys((*self.features, *self.proxy, *extra)))


@dataclass(frozen=True)
class PublicRange:
    """Range of a numeric target, by which it is scaled to between 0 and 1."""

    low: float
    high: float

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Numbers between 0 and 1."""
        return ((values - self.low) / (self.high - self.low)).astype(np.float32)


@dataclass(frozen=True)
class Weights:
    """How sample weights of the files are scaled: cut at ``cap`` times the largest, then divided by their mean."""

    largest: float = 1.0
    cap: float = 1.0
    mean: float = 1.0

    @property
    def scaled_max(self) -> float:
        """The largest weight after scaling."""
        return float(np.float32(self.cap / self.mean))

    def scaled(self, weight: NDArray[np.float64]) -> NDArray[np.float32]:
        """Weights with mean 1, in single precision as a fit in memory has them."""
        return (np.minimum(weight / self.largest, self.cap) / self.mean).astype(np.float32)


@dataclass
class Scan:
    """What the first pass finds: class labels or the range of a number, the largest weight, and the sample's tables."""

    labels: set[Any] = field(default_factory=set)
    smallest: float = np.inf
    largest: float = -np.inf
    largest_weight: float = 0.0
    tables: list[Any] = field(default_factory=list)

    def sample(self) -> pd.DataFrame:
        """The rows of the sample in order."""
        import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

        found: pd.DataFrame = pa.concat_tables(self.tables, promote_options="permissive").to_pandas()
        self.tables.clear()
        return found

    def add(self, other: Scan) -> None:
        """Join what another part of the rows has."""
        self.labels |= other.labels
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)
        self.largest_weight = max(self.largest_weight, other.largest_weight)
        self.tables += other.tables


def scan_table(table: Any, first: int, columns: Columns, n: int, every: int) -> Scan:
    """What consecutive rows say before anything is learned.

    Parameters
    ----------
    table : pyarrow.Table
    first : int
        Position of its first row among all n rows.
    every : int
        One of this many rows is in the sample.

    Raises
    ------
    ValueError
        If a label is missing, there are very many, a number is not finite, or a weight is negative or not finite.
    """
    found = Scan()
    if columns.target is not None and columns.number:
        numbers = read_target_numbers(table, columns.target)
        found.smallest, found.largest = float(numbers.min(initial=np.inf)), float(numbers.max(initial=-np.inf))
    elif columns.target is not None:
        found.labels = _labels(table, columns.target)
    if columns.weight is not None:
        found.largest_weight = float(read_weights(table, columns.weight).max(initial=0.0))
    found.tables.append(table.take(sampled(first, first + len(table), n, every) - first))
    return found


def weight_sum_of(table: Any, name: str, weights: Weights, n: int) -> IntArray:
    """(1,): sum of the weights, in units of the largest and cut, on the grid of n rows."""
    used = np.minimum(read_weights(table, name) / weights.largest, weights.cap)
    total: IntArray = to_nearest(used, exact_sum_step(2.0 * n)).sum(keepdims=True).astype(np.int64)
    return total


@dataclass(frozen=True, eq=False)
class BlockReader:
    """From Arrow tables of consecutive rows to blocks; picklable.

    Parameters
    ----------
    columns : Columns
    encode : callable
        From a table of the features to numbers.
    classes : sequence or PublicRange
        Class labels in the order of their codes, or the range of a number.
    weights : Weights
    n : int
        Number of all rows.
    every : int
        One of this many rows is in the sample.
    predict : callable, optional
        Scores rows outside the sample; without it blocks have no score.
    sample_scores : ndarray, optional
        Scores of the rows of the sample, by models that have not learned from them.
    encode_proxy : callable, optional
        From a DataFrame of the proxies to numbers; without it blocks have none.
    """

    columns: Columns
    encode: Encode
    classes: Sequence[Any] | PublicRange
    weights: Weights
    n: int
    every: int
    predict: Predict | None = None
    sample_scores: NDArray[np.float64] | None = None
    encode_proxy: Encode | None = None

    def block(self, first: int, table: Any) -> Block:
        """The rows of a table, of which the first has this position among all rows."""
        features = table.select(list(self.columns.features))
        # pandas only where somebody reads it: Arrow's numbers become numpy's without a copy by row.
        reads_table = self.predict is not None and getattr(self.predict, "reads_table", True)
        if reads_table or not _is_simple(features):
            features = features.to_pandas()
        X = self.encode(features)
        y, weight, name = self._target(table), np.ones(len(X), dtype=np.float32), self.columns.weight
        if name is not None:
            weight = self.weights.scaled(read_weights(table, name))
        proxy = None
        if self.encode_proxy is not None:
            proxy = self.encode_proxy(table.select(list(self.columns.proxy)).to_pandas())
        return Block(first, X, y, weight, self._score(first, Inputs(features, X)), proxy=proxy)

    def _target(self, table: Any) -> NDArray[np.float32]:
        """(m,): codes of the labels, or scaled numbers."""
        name = str(self.columns.target)
        if isinstance(self.classes, PublicRange):
            return self.classes.scaled(read_target_numbers(table, name))
        return label_codes(_values(table, name), self.classes)

    def _score(self, first: int, inputs: Inputs) -> NDArray[np.float64] | None:
        """Scores by the deployed models; those of the sample's rows by models that have not seen them."""
        if self.sample_scores is None or self.predict is None:
            return None
        rows = sampled(first, first + len(inputs), self.n, self.every)
        if len(rows) == len(inputs):  # nothing is left to predict
            return self.sample_scores[rows // self.every]
        score = self.predict(inputs)
        score[rows - first] = self.sample_scores[rows // self.every]
        return score


def _is_simple(table: Any) -> bool:
    """Whether the encoder reads these columns from Arrow as it reads them from pandas."""
    from pyarrow import types  # noqa: PLC0415 - optional, and here it is

    kinds = (types.is_floating, types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    return all(any(kind(one) for kind in kinds) for one in table.schema.types)


def _values(table: Any, name: str) -> NDArray[Any]:
    """Entries of a column as pandas has them."""
    found: NDArray[Any] = table.select([name]).to_pandas()[name].to_numpy()
    return found


def label_codes(labels: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.float32]:
    """(m,): place of each label among the classes."""
    codes = np.zeros(len(labels), dtype=np.float32)
    for code, label in enumerate(classes):
        codes[labels == label] = code
    return codes


def _labels(table: Any, name: str) -> set[Any]:
    """Class labels of rows, of which none may be missing."""
    labels = _values(table, name)
    if pd.isna(labels).any():
        raise ValueError(f"expected a class label in every row, got rows without {name!r}; remove or complete them.")
    return set(pd.unique(labels).tolist())


def check_few_classes(labels: set[Any], name: str | None) -> None:
    """Refuse a target with very many values."""
    if len(labels) > MOST_CLASSES:
        raise ValueError(f"expected at most {MOST_CLASSES} class labels in {name!r}, got more; merge rare classes.")


def read_target_numbers(table: Any, name: str) -> NDArray[np.float64]:
    """Numbers of the target, of which none may be missing or infinite."""
    try:
        found = np.asarray(_values(table, name), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(len(table), np.nan)
    if not np.isfinite(found).all():
        raise ValueError(f"expected a finite number in every row of {name!r}, got others; remove or complete them.")
    return found


def read_weights(table: Any, name: str) -> NDArray[np.float64]:
    """Public weights of rows, as they are in the files.

    Raises
    ------
    ValueError
        If one is negative or not finite.
    """
    try:
        found = np.asarray(_values(table, name), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(len(table), np.nan)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"expected every weight in {name!r} to be finite and at least 0, got others; replace them.")
    return found


__all__ = [
    "BlockReader",
    "Columns",
    "PublicRange",
    "Scan",
    "Weights",
    "check_few_classes",
    "label_codes",
    "sampled",
    "scan_table",
    "weight_sum_of",
]
