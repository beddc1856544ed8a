"""Row source for Parquet files that do not fit in memory, in this process or in worker processes.

A fit reads the files three times: `scan` finds the class labels, the largest weight and the sample; `weight_sum` scales
weights, if there are any; `load` encodes and scores all rows and keeps them in temporary files, which later passes
read. The sample has at most ``SAMPLE`` rows: one of every s consecutive rows, s = ceil(n / SAMPLE), drawn by a fixed
public rule. The encoder, the base model and the multipliers are learned from it; group sums are over all rows.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.privacy.noise_grid import exact_sum_step
from justitia.rows.parquet import BLOCK, RowFiles
from justitia.rows.processes import WorkerPool
from justitia.rows.reading import (
    BlockReader,
    Columns,
    Encode,
    PublicRange,
    Scan,
    Weights,
    check_few_classes,
    label_codes,
    sampled,
    scan_table,
    weight_sum_of,
)
from justitia.rows.source import Block, IntArray, Pass, Predict, RowSource

#: Rows that are held in memory.
SAMPLE = 200_000
#: Said where the temporary files do not fit.
NO_ROOM = "expected room for {size:,} MB of encoded rows in {place!r}, got less; make room, or set TMPDIR."
#: ``progress(total, name)`` makes a bar for one pass.
Progress = Callable[[int, str], "tqdm[Any]"]


def stride(n: int) -> int:
    """One of this many consecutive rows is in the sample."""
    return max(1, -(-n // SAMPLE))


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
        self._stored: StoredRows | None = None
        self._memos: dict[int, dict[str, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker that takes over gets the description of the part, and reads and encodes the rows itself.
        names = ("files", "columns", "start", "stop", "n", "every", "block_rows")
        described = {name: getattr(self, name) for name in names}
        return described | {"progress": _ignore, "_stored": None, "_memos": {}}

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
        found = Scan()
        for first, table in self._tables(self.columns.all):
            found.add(scan_table(table, first, self.columns, self.n, self.every))
            check_few_classes(found.labels, self.columns.target)
        return found

    def weight_sum(self, weights: Weights) -> IntArray:
        """Sum of the weights, in units of the largest and cut, on the grid."""
        assert self.columns.weight is not None  # noqa: S101 - asked for only where there are weights
        name = self.columns.weight
        total = np.zeros(1, dtype=np.int64)
        for _, table in self._tables([name]):
            total += weight_sum_of(table, name, weights, self.n)
        return total

    def load(self, reader: BlockReader) -> None:
        """Encode and score all rows, and keep them in temporary files.

        Raises
        ------
        ValueError
            If there is no room for them.
        """
        stored: StoredRows | None = None
        for first, table in self._tables(self.columns.all):
            block = reader.block(first, table)
            if stored is None:
                stored = StoredRows(len(self), block, weighted=self.columns.weight is not None)
            stored.put(first - self.start, block)
        self._stored, self._memos = stored, {}

    def blocks(self) -> Iterator[Block]:
        """The rows as they were loaded."""
        assert self._stored is not None  # noqa: S101 - loaded before
        for number in range(self.n_blocks):
            block = self.block(number)
            yield block
            self._stored.unmap()
            self.progress(len(block))

    def run(self, work: Pass) -> IntArray | int:
        """The sum over the blocks of this part."""
        return sum(work.run(block) for block in self.blocks())

    def block(self, number: int) -> Block:
        """One of its blocks."""
        assert self._stored is not None  # noqa: S101 - loaded before
        at = number * self.block_rows
        first = self.start + at
        return self._stored.block(at, min(at + self.block_rows, len(self)), first, self._memos.setdefault(first, {}))

    def read_codes(self, codes: Any) -> None:
        """Read the group codes of these rows; they stay in ``codes``, in this process."""
        codes.take(self.start, self.stop)

    def apply(self, number: int, function: Callable[[Block], Any]) -> Any:
        """A function of one block."""
        found = function(self.block(number))
        if self._stored is not None:
            self._stored.unmap()
        return found


def _ignore(_: int) -> None:
    """No progress is shown in a worker."""


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
            raise ValueError(NO_ROOM.format(size=-(-size // 2**20), place=tempfile.gettempdir())) from None
        return np.memmap(file, dtype=kind, mode="r+", shape=shape)


class StoredRows:
    """Encoded rows and scores, public numbers, in temporary files without a name.

    Parameters
    ----------
    n : int
        Number of rows.
    like : Block
        Some of them, which say the shapes.
    weighted : bool
        Whether weights differ; otherwise all are 1 and none is stored.
    """

    def __init__(self, n: int, like: Block, *, weighted: bool) -> None:
        kinds = {"X": np.float32, "y": np.float32, "weight": np.float32, "score": np.float64, "proxy": np.float32}
        shapes = {name: getattr(like, name).shape[1:] for name in kinds if getattr(like, name) is not None}
        if not weighted:
            del shapes["weight"]
        self._arrays = {name: disk_array((n, *shape), kinds[name]) for name, shape in shapes.items()}

    def put(self, at: int, block: Block) -> None:
        """Store consecutive rows, of which the first is row ``at``."""
        for name, array in self._arrays.items():
            array[at : at + len(block)] = getattr(block, name)
        self.unmap()

    def block(self, at: int, stop: int, first: int, memo: dict[str, Any]) -> Block:
        """Rows at .. stop, of which the first has position ``first`` among all rows."""
        found = {name: array[at:stop] for name, array in self._arrays.items()}
        weight = found.get("weight")
        weight = np.ones(stop - at, dtype=np.float32) if weight is None else weight
        return Block(first, found["X"], found["y"], weight, found.get("score"), memo, found.get("proxy"))

    def unmap(self) -> None:
        """Let go of the pages that were read or written: the memory of a process does not grow with its rows."""
        for array in self._arrays.values():
            if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
                array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # of a mapped file: nothing is lost


def stored_bytes(features: int, scores: int, *, weighted: bool) -> int:
    """Bytes of temporary files for one row: encoded features and proxies, scores, label and weights."""
    return 4 * features + 8 * scores + 4 + 4 * weighted


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
                return self._pool.each(call, *arguments, keeps=keeps, progress=bar.update)
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

    def check_room(self, features: int, scores: int) -> None:
        """Refuse to go on if the encoded rows would not fit; before a base model learns, which takes long.

        Parameters
        ----------
        features, scores : int
            Columns of encoded features, and of the base model's predictions.

        Raises
        ------
        ValueError
            If there is less room in the folder of temporary files.
        """
        size = self.n * stored_bytes(features, scores, weighted=self.columns.weight is not None)
        place = tempfile.gettempdir()
        if shutil.disk_usage(place).free < size:
            raise ValueError(NO_ROOM.format(size=-(-size // 2**20), place=place))

    def score(self, predict: Predict, sample_scores: NDArray[np.float64]) -> None:
        """Read, encode and score all rows; a pass."""
        self._load(predict, sample_scores)

    def load(self) -> None:
        """Read and encode all rows, for methods without a base model; a pass."""
        self._load(None, None)

    def _load(self, predict: Predict | None, sample_scores: NDArray[np.float64] | None) -> None:
        if self._encode is None:
            raise ValueError("expected an encoder, got none; call encode_with first.")
        made = (self.columns, self._encode, self._classes, self.weights, self.n, stride(self.n))
        self._each("load", BlockReader(*made, predict, sample_scores, self._encode_proxy), keeps=True)

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


__all__ = [
    "SAMPLE",
    "Columns",
    "FileRows",
    "PublicRange",
    "Scan",
    "Weights",
    "frames",
    "label_codes",
    "sampled",
    "stride",
]
