"""Row source for Parquet files that do not fit in memory, in this process or in worker processes.

A fit reads the files three times: `scan` finds the class labels, the largest weight and the sample; `weight_sum` scales
weights, if there are any; `load` encodes and scores all rows and keeps them in temporary files, which later passes
read. The sample has at most ``SAMPLE`` rows: one of every s consecutive rows, s = ceil(n / SAMPLE), drawn by a fixed
public rule. The encoder, the base model and the multipliers are learned from it; group sums are over all rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.learners.base import Inputs
from justitia.privacy.noise_grid import exact_sum_step, to_nearest
from justitia.rows.parquet import BLOCK, RowFiles
from justitia.rows.processes import WorkerPool
from justitia.rows.source import Block, IntArray, Pass, Predict, RowSource

#: More values of a target are not classes.
MOST_CLASSES = 20
#: Rows that are held in memory.
SAMPLE = 200_000
#: From a table to features as numbers.
Encode = Callable[[pd.DataFrame], NDArray[np.float32]]
#: ``progress(total, name)`` makes a bar for one pass.
Progress = Callable[[int, str], "tqdm[Any]"]


def stride(n: int) -> int:
    """One of this many consecutive rows is in the sample."""
    return max(1, -(-n // SAMPLE))


def sampled(start: int, stop: int, n: int, s: int) -> NDArray[np.int64]:
    """Positions from start to stop that are in the sample of n rows: one per stretch of s rows, by a hash."""
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


class FilePart:
    """Consecutive rows of files, held by one process: encoded and scored once, in temporary files of that process.

    Parameters
    ----------
    files : RowFiles
    columns : Columns
    start, stop : int
        Positions of the rows; ``start`` is a multiple of ``block_rows``.
    every : int
        One of this many rows is in the sample.
    block_rows : int
        Rows of a block.
    """

    def __init__(self, files: RowFiles, columns: Columns, start: int, stop: int, every: int, block_rows: int) -> None:
        self.files, self.columns, self.start, self.stop, self.n = files, columns, start, stop, len(files)
        self.every, self.block_rows = every, block_rows
        self.progress: Callable[[int], object] = lambda _: None
        self._arrays: tuple[NDArray[Any], ...] | None = None
        self._memos: dict[int, dict[str, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker that takes over gets the description of the part, and reads and encodes the rows itself.
        names = ("files", "columns", "start", "stop", "n", "every", "block_rows")
        described = {name: getattr(self, name) for name in names}
        return described | {"progress": _ignore, "_arrays": None, "_memos": {}}

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def n_blocks(self) -> int:
        """Number of its blocks."""
        return -(-len(self) // self.block_rows)

    def _tables(self, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Position of the first row and Arrow table of each block."""
        for first, table in self.files.blocks(names, self.start, self.stop, self.block_rows):
            yield first, table
            self.progress(len(table))

    def scan(self) -> Scan:
        """Read the rows once.

        Raises
        ------
        ValueError
            If a label is missing, there are very many, a number is not finite, or a weight is negative or not finite.
        """
        found, target, weight = Scan(), self.columns.target, self.columns.weight
        for first, table in self._tables(self.columns.all):
            if target is not None and self.columns.number:
                numbers = read_target_numbers(table, target)
                found.smallest = min(found.smallest, float(numbers.min(initial=np.inf)))
                found.largest = max(found.largest, float(numbers.max(initial=-np.inf)))
            elif target is not None:
                found.labels |= _labels(table, target)
                if len(found.labels) > MOST_CLASSES:
                    raise ValueError(
                        f"expected at most {MOST_CLASSES} class labels in {target!r}, got more; merge rare classes."
                    )
            if weight is not None:
                found.largest_weight = max(found.largest_weight, float(read_weights(table, weight).max(initial=0.0)))
            found.tables.append(table.take(sampled(first, first + len(table), self.n, self.every) - first))
        return found

    def weight_sum(self, weights: Weights) -> IntArray:
        """Sum of the weights, in units of the largest and cut, on the grid."""
        assert self.columns.weight is not None  # noqa: S101 - asked for only where there are weights
        total, step = np.zeros(1, dtype=np.int64), exact_sum_step(2.0 * self.n)
        for _, table in self._tables([self.columns.weight]):
            used = np.minimum(read_weights(table, self.columns.weight) / weights.largest, weights.cap)
            total += to_nearest(used, step).sum().astype(np.int64)
        return total

    def load(
        self,
        encode: Encode,
        classes: Sequence[Any] | PublicRange,
        weights: Weights,
        predict: Predict | None,
        sample_scores: NDArray[np.float64] | None,
        encode_proxy: Encode | None,
    ) -> None:
        """Encode and score all rows, and keep them in temporary files.

        Raises
        ------
        ValueError
            If there is no room for them.
        """
        target, weight, features = self.columns.target, self.columns.weight, list(self.columns.features)
        arrays: tuple[NDArray[Any], ...] | None = None
        place = len(sampled(0, self.start, self.n, self.every))  # of this part's first row in the sample
        for first, table in self._tables(self.columns.all):
            frame = table.select(features).to_pandas()
            X = encode(frame)
            proxy: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
            if encode_proxy is not None:
                proxy = encode_proxy(table.select(list(self.columns.proxy)).to_pandas())
            if isinstance(classes, PublicRange):
                y = classes.scaled(read_target_numbers(table, str(target)))
            else:
                y = label_codes(table.select([target]).to_pandas()[target].to_numpy(), classes)
            scaled = np.ones(len(y)) if weight is None else weights.scaled(read_weights(table, weight))
            score = np.zeros(0)
            if sample_scores is not None and predict is not None:
                drawn = sampled(first, first + len(y), self.n, self.every) - first
                shape = (len(y), *sample_scores.shape[1:])
                score = np.zeros(shape) if self.every == 1 else predict(Inputs(frame, X))
                score[drawn] = sample_scores[place : place + len(drawn)]  # by models that have not seen them
                place += len(drawn)
            if arrays is None:
                scores = (len(self) if len(score) else 0, *score.shape[1:])
                proxies = (len(self) if len(proxy) else 0, *proxy.shape[1:])
                shapes = ((len(self), X.shape[1]), (len(self),), (len(self),), scores, proxies)
                kinds = (np.float32, np.float32, np.float32, np.float64, np.float32)
                arrays = tuple(disk_array(shape, kind) for shape, kind in zip(shapes, kinds, strict=True))
            rows = slice(first - self.start, first - self.start + len(y))
            for kept, values in zip(arrays, (X, y, scaled, score, proxy), strict=True):
                if len(kept):
                    kept[rows] = values
        self._arrays, self._memos = arrays, {}

    def blocks(self) -> Iterator[Block]:
        """The rows as they were loaded."""
        for number in range(self.n_blocks):
            block = self.block(number)
            yield block
            self.progress(len(block))

    def run(self, work: Pass) -> IntArray | int:
        """The sum over the blocks of this part."""
        return sum(work.run(block) for block in self.blocks())

    def block(self, number: int) -> Block:
        """One of its blocks."""
        assert self._arrays is not None  # noqa: S101 - loaded before
        X, y, weight, score, proxy = self._arrays
        at = number * self.block_rows
        rows, first = slice(at, min(at + self.block_rows, len(self))), self.start + at
        scored = score[rows] if len(score) else None
        memo = self._memos.setdefault(first, {})
        return Block(first, X[rows], y[rows], weight[rows], scored, memo, proxy[rows] if len(proxy) else None)

    def read_codes(self, codes: Any) -> None:
        """Read the group codes of these rows; they stay in ``codes``, in this process."""
        codes.take(self.start, self.stop)

    def apply(self, number: int, function: Callable[[Block], Any]) -> Any:
        """A function of one block."""
        return function(self.block(number))


def label_codes(labels: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.float32]:
    """(m,): place of each label among the classes."""
    codes = np.zeros(len(labels), dtype=np.float32)
    for code, label in enumerate(classes):
        codes[labels == label] = code
    return codes


def _labels(table: Any, name: str) -> set[Any]:
    """Class labels of rows, of which none may be missing."""
    labels = table.select([name]).to_pandas()[name].to_numpy()
    if pd.isna(labels).any():
        raise ValueError(f"expected a class label in every row, got rows without {name!r}; remove or complete them.")
    return set(pd.unique(labels).tolist())


def read_target_numbers(table: Any, name: str) -> NDArray[np.float64]:
    """Numbers of the target, of which none may be missing or infinite."""
    try:
        found = np.asarray(table.select([name]).to_pandas()[name].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(len(table), np.nan)
    if not np.isfinite(found).all():
        raise ValueError(f"expected a finite number in every row of {name!r}, got others; remove or complete them.")
    return found


def _ignore(_: int) -> None:
    """No progress is shown in a worker."""


def read_weights(table: Any, name: str) -> NDArray[np.float64]:
    """Public weights of rows, as they are in the files.

    Raises
    ------
    ValueError
        If one is negative or not finite.
    """
    try:
        found = np.asarray(table.select([name]).to_pandas()[name].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(len(table), np.nan)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(f"expected every weight in {name!r} to be finite and at least 0, got others; replace them.")
    return found


def disk_array(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """An array of public numbers in a temporary file without a name, which is gone with the array or the process.

    Raises
    ------
    ValueError
        If there is no room; before anything is written, since a write to a mapped file on a full disk kills a process.
    """
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if not size:
        return np.empty(shape, dtype=kind)
    with tempfile.TemporaryFile() as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError:
            raise ValueError(
                f"expected room for {size / 2**20:.0f} MB in {tempfile.gettempdir()!r}, got less; make room, or set "
                "TMPDIR."
            ) from None
        return np.memmap(file, dtype=kind, mode="r+", shape=shape)


class FileRows(RowSource):
    """Rows of Parquet files.

    Parameters
    ----------
    files : RowFiles
        With the number of worker processes.
    columns : Columns
    progress : callable
        Makes the bar of a pass.
    """

    def __init__(self, files: RowFiles, columns: Columns, progress: Progress) -> None:
        self.files, self.columns, self.n, self._progress = files, columns, len(files), progress
        self.weights = Weights()
        blocks, workers = -(-self.n // BLOCK), files.workers
        ends = [min(self.n, BLOCK * (blocks * part // workers)) for part in range(workers + 1)]
        rows = [ends[k : k + 2] for k in range(workers) if ends[k] < ends[k + 1]]
        parts = [FilePart(files, columns, a, b, every=stride(self.n), block_rows=BLOCK) for a, b in rows]
        self.ranges = tuple((part.start, part.stop) for part in parts)
        self._parts = parts
        self._pool = WorkerPool(parts) if len(parts) > 1 else None
        self._encode: Encode | None = None
        self._encode_proxy: Encode | None = None
        self._classes: Sequence[Any] | PublicRange = ()
        self._passes = 0

    @property
    def max_weight(self) -> float:  # type: ignore[override]
        """Largest weight after scaling."""
        return 1.0 if self.columns.weight is None else self.weights.scaled_max

    def _each(self, call: str, *arguments: Any, keeps: bool = False) -> list[Any]:
        """What a method of every part returns.

        Parameters
        ----------
        keeps : bool
            Whether it changes the part; such a call is repeated in a worker that replaces another one.
        """
        self._passes += 1
        with self._progress(self.n, f"pass {self._passes}") as bar:
            if self._pool is not None:
                return self._pool.each(call, *arguments, keeps=keeps, done=lambda k: bar.update(len(self._parts[k])))
            for part in self._parts:
                part.progress = bar.update
            return [getattr(part, call)(*arguments) for part in self._parts]

    def scan(self) -> Scan:
        """The first pass."""
        found = Scan()
        for one in self._each("scan"):
            found.add(one)
        return found

    def scale_weights(self, largest: float, cap: float) -> Weights:
        """Scale weights so that those of all rows have mean 1; a pass."""
        weights = Weights(largest or 1.0, cap)
        total = float(sum(self._each("weight_sum", weights))[0]) * exact_sum_step(2.0 * self.n)
        if not total:
            raise ValueError("expected some sample_weight above zero, got zero everywhere; leave it out.")
        self.weights = replace(weights, mean=total / self.n)
        return self.weights

    def encode_with(
        self, encode: Encode, classes: Sequence[Any] | PublicRange, encode_proxy: Encode | None = None
    ) -> None:
        """Encode features and proxies with these functions, labels by their place among classes or in a range."""
        self._encode, self._classes, self._encode_proxy = encode, classes, encode_proxy

    def score(self, predict: Predict, sample_scores: NDArray[np.float64]) -> None:
        """Read, encode and score all rows; a pass."""
        given = (self._encode, self._classes, self.weights, predict, sample_scores, self._encode_proxy)
        self._each("load", *given, keeps=True)

    def load(self) -> None:
        """Read and encode all rows, for methods without a base model; a pass."""
        self._each("load", self._encode, self._classes, self.weights, None, None, self._encode_proxy, keeps=True)

    def run(self, work: Pass) -> IntArray:
        """The sum over all parts."""
        total: IntArray = sum(self._each("run", work))
        return total

    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        """A function of every block, in order."""
        for k, part in enumerate(self._parts):
            for number in range(part.n_blocks):
                if self._pool is None:
                    yield part.apply(number, function)
                else:
                    yield self._pool.one(k, "apply", number, function)

    def read_codes(self, codes: Any) -> None:
        """Each part reads its own."""
        self._each("read_codes", codes)

    def check_unchanged(self) -> None:
        """Refuse files that were changed since they were first read."""
        self.files.check_unchanged()

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()


def frames(where: Any, names: Iterable[str]) -> Iterator[pd.DataFrame]:
    """These columns of all rows of files, a block at a time."""
    files, listed = RowFiles.open(where), [str(name) for name in names]
    files.check(listed)
    for _, table in files.blocks(listed):
        yield table.select(listed).to_pandas()


__all__ = ["SAMPLE", "Columns", "FileRows", "PublicRange", "Scan", "Weights", "frames", "sampled", "stride"]
