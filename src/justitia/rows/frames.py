"""Row source for data frames of Spark, Ray and Dask: their workers hold the rows and run passes, the driver adds up.

A fit goes through a data frame three times: `check` counts the rows of every partition and takes a digest of their
public columns; `scan` finds class labels, the largest weight and the public sample; `score` encodes and scores all rows
and lets the engine keep them as blocks, on which all later passes run. A row is identified by its place: by the order
of partitions, and by its place in its partition. Each time rows are read their digest has to be the first one, so a
data frame whose order changes from one computation to the next is noticed.

The attribute stays in the workers. Blocks carry its entries as the engine holds them, closed, and only
:mod:`justitia.privacy.vault` opens them, inside a pass. What a worker returns for a released pass is one array of
integer sums before noise, so workers, their links and the driver are inside the boundary.

Errors leave a worker as a class and one line of text and never as an exception, because an engine's own traceback would
be written to its logs. :class:`Frame` is what an engine has to be able to do; `dask`, `ray` and `spark` are engines.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.frames import forget_locals
from justitia.privacy.noise_grid import exact_sum_step
from justitia.rows.files import Progress, stride
from justitia.rows.parquet import BLOCK
from justitia.rows.processes import KNOWN, in_one_line
from justitia.rows.reading import (
    BlockReader,
    Columns,
    Encode,
    PublicRange,
    Scan,
    Weights,
    check_few_classes,
    scan_table,
    weight_sum_of,
)
from justitia.rows.source import Block, IntArray, Pass, Predict, RowSource

#: The kind of a result that is no error.
RESULT = "result"
#: What a worker needs besides the engine; the names under which they are imported.
PACKAGES = ("justitia", "lightgbm", "numpy", "pandas", "pyarrow", "sklearn")
T = TypeVar("T")
#: A result or an error: its kind, and the value or one line of text.
Outcome = tuple[str, Any]
#: From a pandas DataFrame of features to new columns by name.
Work = Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows of a partition, in a worker.

    Attributes
    ----------
    public : pyarrow.Table
    private : pyarrow.Table or pandas.DataFrame
        Entries of the attribute as the engine holds them: to convert a column as a whole could fail for one entry.
    """

    public: Any
    private: Any

    def __len__(self) -> int:
        return int(self.public.num_rows)

    def slices(self, size: int = BLOCK) -> Iterator[Part]:
        """The rows, so many at a time."""
        for start in range(0, len(self), size):
            private = self.private
            if private is not None:
                private = private.slice(start, size) if hasattr(private, "slice") else private[start : start + size]
            yield Part(self.public.slice(start, size), private)


@dataclass(frozen=True, eq=False)
class KeptBlock:
    """A block that an engine keeps between passes, and the attribute's entries of its rows."""

    block: Block
    private: Any


def part_of(table: Any, public: Sequence[str], private: Sequence[str]) -> Part:
    """The rows of a pandas DataFrame or of an Arrow table; only public columns are converted.

    Raises
    ------
    ValueError
        If a column is not there or repeats, or Arrow has no type for a public one.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional, and needed by every engine

    names = list(table.columns) if hasattr(table, "iloc") else table.column_names
    for name in (*public, *private):
        if names.count(name) != 1:
            raise ValueError(
                f"expected a column {name!r} in every partition, got {names.count(name) or 'none'} in one; write "
                "partitions alike."
            )
    entries = None
    if not hasattr(table, "iloc"):
        entries = table.select(list(private)) if private else None
        return Part(table.select(list(public)), entries)
    entries = table[list(private)] if private else None
    try:
        return Part(pa.Table.from_pandas(table[list(public)], preserve_index=False).replace_schema_metadata(), entries)
    except (pa.ArrowException, TypeError):
        raise ValueError(
            "expected public columns of one type each, got a partition with a column of several types; convert it."
        ) from None


class Frame(ABC):
    """A data frame of an engine, whose partitions are numbered in a fixed order.

    A new engine implements ``names``, ``select``, ``each``, ``keep`` and ``with_columns``.

    Attributes
    ----------
    engine : str
        Its name, for messages.
    names : tuple of str
        All columns.
    """

    engine: str
    names: tuple[str, ...]
    #: As in :class:`~justitia.RowFiles`: by default all columns without another role are features.
    features: tuple[str, ...] | None = None
    positive: str | None = None

    @property
    def shown(self) -> str:
        """What messages call it."""
        return f"the data frame of {self.engine}"

    @abstractmethod
    def select(self, public: Sequence[str], private: Sequence[str]) -> None:
        """Use these columns from now on, always all of them: partitions must not depend on what is asked for."""

    @abstractmethod
    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What ``task(k, parts)`` returns for every partition k, in order, through :func:`answered`."""

    @abstractmethod
    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> Kept:
        """Blocks that ``task(k, parts)`` makes of every partition, which stay with the engine."""

    @abstractmethod
    def with_columns(self, work: Work, features: list[str], like: Mapping[str, Any]) -> Any:
        """The data frame of the engine with more columns, made of the features of each row.

        Parameters
        ----------
        work : callable
            From a pandas DataFrame of features to columns by name.
        like : mapping
            An empty array of the type of each new column.
        """

    def close(self) -> None:  # noqa: B027 - most engines have nothing to end
        """Drop what the engine has kept for ``each``."""

    def check(self, public: Sequence[str], private: Sequence[str] = ()) -> None:
        """Refuse columns that are not there, public ones whose type is not the same in every partition, and no rows.

        Raises
        ------
        ValueError
        """
        for name in (*public, *private):
            if self.names.count(name) != 1:
                raise ValueError(f"expected a column {name!r} in {self.shown}, got none or several; add or rename it.")
        self.select(list(dict.fromkeys(public)), list(private))
        self.__dict__.pop("counted", None)
        try:
            self.types()
            if not len(self):
                raise ValueError(f"expected rows in {self.shown}, got none; pass rows.")
        except BaseException:
            self.close()  # the attribute would stay with the engine
            raise

    @cached_property
    def counted(self) -> list[RowCount]:
        """Rows, digest and types of every partition; a pass."""
        found = results(self.engine, self.each(_count_rows()))
        lacking = [name for names in found if isinstance(names, list) for name in names]
        if lacking:
            raise ValueError(
                f"expected the package {lacking[0]!r} on every worker of {self.engine}, got one without it; install "
                "there what the driver has."
            )
        return [RowCount(*one) for one in found]

    def types(self) -> dict[str, Any]:
        """The Arrow type of each public column; a column without any entry in a partition has that of the others."""
        types: dict[str, Any] = {}
        for one in self.counted:
            for name, kind in one.types.items() if one.rows else ():
                if str(types.get(name, "null")) != "null" and str(kind) not in ("null", str(types[name])):
                    raise ValueError(
                        f"expected one type in column {name!r}, got {types[name]} and {kind} in two partitions of "
                        f"{self.shown}; convert the column."
                    )
                if str(kind) != "null" or name not in types:
                    types[name] = kind
        return types

    def __len__(self) -> int:
        return sum(one.rows for one in self.counted)


@dataclass(frozen=True)
class RowCount:
    """Rows of a partition, a digest of their public columns, and the types of these."""

    rows: int
    digest: int
    types: dict[str, Any]


class Kept(ABC):
    """Blocks that an engine keeps between passes."""

    @abstractmethod
    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What ``task(blocks)`` returns for every partition, in order; an error that made a partition fail instead."""

    def close(self) -> None:  # noqa: B027 - blocks in memory go with the last reference to them
        """Let the engine drop them."""


def answered(task: Callable[..., Any], *given: Any) -> Outcome:
    """What a task returns, or the class and first line of its error; for workers."""
    try:
        return RESULT, task(*given)
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return in_one_line(error)


def results(engine: str, outcomes: Iterable[Outcome]) -> list[Any]:
    """The values, or the first error.

    Raises
    ------
    ValueError, TypeError, MemoryError, RuntimeError
        In the one sentence that came from the worker.
    """
    found = []
    for kind, value in outcomes:
        if kind != RESULT:
            raise KNOWN.get(kind, RuntimeError)(value)
        found.append(value)
    if not found:
        raise ValueError(f"expected rows in the data frame of {engine}, got no partition; pass rows.")
    return found


def computed(engine: str, work: Callable[[], T]) -> T:
    """What an engine computes; in the place of its own error, one that says nothing of rows.

    An engine that runs tasks in this process raises what they raised, with frames that hold rows and their attribute,
    and with a text that may hold values. None of it stays with the error that is raised here, not even as its context.

    Raises
    ------
    RuntimeError
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - its text may hold values
        forget_locals(error)
        kind = type(error).__name__
    raise RuntimeError(
        f"{engine} could not compute a pass ({kind}); its own log says why. Workers need the packages "
        "of the driver and room for their rows. What was debited stays debited; resume from the checkpoint if there "
        "is one."
    )


def _count_rows() -> Callable[[int, Iterable[Part]], Any]:
    """The first task of every worker: a nested function, which is sent by value and so runs without our package."""
    packages = PACKAGES

    def count(k: int, parts: Iterable[Any]) -> Any:
        import importlib.util  # noqa: PLC0415 - runs in a worker

        lacking = [name for name in packages if importlib.util.find_spec(name) is None]
        if lacking:
            return lacking
        from justitia.rows.frames import count_rows  # noqa: PLC0415 - as above

        return count_rows(k, parts)

    return count


def count_rows(_: int, parts: Iterable[Part]) -> tuple[int, int, dict[str, Any]]:
    """Rows of a partition, their digest and the types of their columns."""
    rows, digest, types = 0, 0, {}
    for part in parts:
        rows, digest = rows + len(part), row_digest(part.public, digest)
        types = {name: _value_type(part.public.schema.field(name).type) for name in part.public.column_names}
    return rows, digest, types


def _value_type(kind: Any) -> Any:
    return getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind


def row_digest(table: Any, before: int) -> int:
    """A check sum of public rows in their order, which goes on from that of the rows before them."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

    for part in Part(table, None).slices():
        for column in part.public.columns:
            # bytes under missing entries and behind the last bit are whatever was in memory
            pieces = (column.is_null(), column.drop_null()) if column.null_count else (column,)
            for piece in pieces:
                whole = piece.combine_chunks()
                whole = whole.cast(pa.uint8()) if pa.types.is_boolean(whole.type) else whole
                batch, sink = pa.record_batch([whole], names=["x"]), pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                before = zlib.crc32(sink.getvalue(), before)
    return before


@dataclass(frozen=True, eq=False)
class Reading:
    """How workers read a partition: where its rows begin, and what they have to be.

    Attributes
    ----------
    starts : list of int
        Position of the first row of each partition.
    counted : list of RowCount
    types : dict
        Of the public columns.
    n : int
        All rows.
    every : int
        One of this many rows is in the sample.
    """

    starts: list[int]
    counted: list[RowCount]
    types: dict[str, Any]
    n: int
    every: int

    @classmethod
    def of(cls, frame: Frame) -> Reading:
        """How the workers of this data frame read it."""
        starts = [0, *accumulate(one.rows for one in frame.counted)][:-1]
        return cls(starts, frame.counted, frame.types(), len(frame), stride(len(frame)))

    def parts(self, k: int, parts: Iterable[Part]) -> Iterator[tuple[int, Part]]:
        """Position of the first row and rows of each slice of a partition, which are checked at the end.

        Raises
        ------
        ValueError
            If they are not those that were counted.
        """
        at, digest = self.starts[k], 0
        for whole in parts:
            digest = row_digest(whole.public, digest)
            for part in whole.slices():
                yield at, replace(part, public=self._typed(part.public))
                at += len(part)
        if (at - self.starts[k], digest) != (self.counted[k].rows, self.counted[k].digest):
            raise ValueError(
                "expected a data frame that gives the same rows in the same order each time, got other ones; sort it "
                "or store it first, and fit again."
            )

    def _typed(self, table: Any) -> Any:
        """A column without any entry gets the type that it has elsewhere."""
        for place, field in enumerate(table.schema):
            if str(field.type) == "null" and str(self.types[field.name]) != "null":
                table = table.set_column(place, field.name, table.column(place).cast(self.types[field.name]))
        return table


@dataclass(frozen=True, eq=False)
class ScanRows:
    """Task: class labels or the range of a number, the largest weight, and the rows of the sample."""

    reading: Reading
    columns: Columns

    def __call__(self, k: int, parts: Iterable[Part]) -> Scan:
        """Those of a partition."""
        found, reading = Scan(), self.reading
        for first, part in reading.parts(k, parts):
            found.add(scan_table(part.public, first, self.columns, reading.n, reading.every))
            check_few_classes(found.labels, self.columns.target)
        return found


@dataclass(frozen=True, eq=False)
class SumWeights:
    """Task: the sum of the weights on the grid."""

    reading: Reading
    name: str
    weights: Weights

    def __call__(self, k: int, parts: Iterable[Part]) -> IntArray | int:
        """That of a partition; 0 without rows."""
        n, rows = self.reading.n, self.reading.parts(k, parts)
        return sum(weight_sum_of(part.public, self.name, self.weights, n) for _, part in rows)


@dataclass(frozen=True, eq=False)
class LoadBlocks:
    """Task: blocks with encoded features, codes of the target, weights and scores."""

    reading: Reading
    reader: BlockReader

    def __call__(self, k: int, parts: Iterable[Part]) -> Iterator[KeptBlock]:
        """The blocks of a partition."""
        for first, part in self.reading.parts(k, parts):
            yield KeptBlock(self.reader.block(first, part.public), part.private)


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """Task: some public columns as Arrow tables."""

    reading: Reading
    names: tuple[str, ...]

    def __call__(self, k: int, parts: Iterable[Part]) -> list[Any]:
        """Those of a partition."""
        return [part.public.select(list(self.names)) for _, part in self.reading.parts(k, parts)]


def columns_here(frame: Frame, names: Sequence[str]) -> dict[str, NDArray[np.object_]]:
    """Public columns in this process; equal entries share one object. A pass."""
    known: dict[Any, Any] = {}
    task = ReadColumns(Reading.of(frame), tuple(dict.fromkeys(names)))
    tables = [one for part in results(frame.engine, frame.each(task)) for one in part]
    return {
        name: np.array([known.setdefault(x, x) for t in tables for x in t.column(name).to_pylist()], dtype=object)
        for name in task.names
    }


@dataclass(frozen=True, eq=False)
class LoadPositions:
    """Task: blocks without features, for passes whose public rows come from the driver."""

    reading: Reading

    def __call__(self, k: int, parts: Iterable[Part]) -> Iterator[KeptBlock]:
        """The blocks of a partition."""
        for first, part in self.reading.parts(k, parts):
            nothing = np.zeros(len(part), dtype=np.float32)
            yield KeptBlock(Block(first, nothing[:, None][:, :0], nothing, nothing), part.private)


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Public rows that the driver has, as a function of a block: few different ones, and which of them each row has."""

    different: NDArray[np.float64]
    which: NDArray[np.unsignedinteger[Any]]

    @classmethod
    def from_rows(cls, rows: NDArray[np.float64]) -> GivenRows:
        """(n, width) rows, kept small for the way to the workers."""
        as_bytes = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
        _, first, which = np.unique(as_bytes, return_index=True, return_inverse=True)
        return cls(rows[first], which.astype(np.min_scalar_type(len(first))))

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.different.shape[1])

    def __call__(self, block: Block) -> NDArray[np.float64]:
        """(m, width)."""
        rows: NDArray[np.float64] = self.different[self.which[block.first : block.first + len(block)]]
        return rows


@dataclass(frozen=True, eq=False)
class RunPass:
    """Task: the sum of a pass over blocks. A pass that reads the attribute is given the entries of each block."""

    work: Pass
    attribute: Any

    def __call__(self, kept: Iterable[KeptBlock]) -> IntArray | int:
        """0 without blocks."""
        total: IntArray | int = 0
        for one in kept:
            opened = getattr(self.work, "with_entries", None)
            work = self.work if opened is None else opened(one.block.first, self.attribute.stream(one.private))
            total = total + work.run(one.block)
        return total


@dataclass(frozen=True, eq=False)
class MapBlocks:
    """Task: a function of every block."""

    function: Callable[[Block], Any]

    def __call__(self, kept: Iterable[KeptBlock]) -> list[Any]:
        """In order."""
        return [self.function(one.block) for one in kept]


class FrameRows(RowSource):
    """Rows of a data frame of Spark, Ray or Dask.

    Parameters
    ----------
    frame : Frame
        Checked and counted.
    columns : Columns
    attribute : FrameAttribute or None
        How workers read the attribute; None where no pass will.
    progress : callable
        Makes the bar of a pass.
    """

    #: No process of ours reads a range of rows.
    ranges: tuple[tuple[int, int], ...] | None = None

    def __init__(self, frame: Frame, columns: Columns, attribute: Any, progress: Progress) -> None:
        self.frame, self.columns, self.n, self._progress = frame, columns, len(frame), progress
        self.weights, self.attribute = Weights(), attribute
        self._reading = Reading.of(frame)
        self._encode: Encode | None = None
        self._encode_proxy: Encode | None = None
        self._classes: Sequence[Any] | PublicRange = ()
        self._kept: Kept | None = None
        self._passes = 0

    @property
    def max_weight(self) -> float:  # type: ignore[override]
        """Largest weight after scaling."""
        return 1.0 if self.columns.weight is None else self.weights.scaled_max

    def _pass(self, work: Callable[[], list[Outcome]]) -> list[Any]:
        self._passes += 1
        with self._progress(self.n, f"pass {self._passes}") as bar:
            found = results(self.frame.engine, work())
            bar.update(self.n)
        return found

    def check_room(self, features: int, scores: int) -> None:
        """Nothing: the engine says where its blocks are kept."""

    def scan(self) -> Scan:
        """The first pass over the rows."""
        found = Scan()
        for one in self._pass(lambda: self.frame.each(ScanRows(self._reading, self.columns))):
            found.add(one)
        return found

    def scale_weights(self, largest: float, cap: float) -> Weights:
        """Scale weights so that those of all rows have mean 1; a pass."""
        weights = Weights(largest or 1.0, cap)
        task = SumWeights(self._reading, str(self.columns.weight), weights)
        total = float(sum(self._pass(lambda: self.frame.each(task)))[0]) * exact_sum_step(2.0 * self.n)
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
        """Read, encode and score all rows, which the engine keeps; a pass."""
        self._load(predict, sample_scores)

    def load(self) -> None:
        """Read and encode all rows, for methods without a base model; a pass."""
        self._load(None, None)

    def load_positions(self) -> None:
        """Keep the attribute's entries beside blocks without features, for passes over :class:`GivenRows`."""
        self._keep(LoadPositions(self._reading))

    def _load(self, predict: Predict | None, sample_scores: NDArray[np.float64] | None) -> None:
        assert self._encode is not None  # noqa: S101 - set before
        made = (self.columns, self._encode, self._classes, self.weights, self.n, stride(self.n))
        reader = BlockReader(*made, predict, sample_scores, self._encode_proxy)
        self._keep(LoadBlocks(self._reading, reader))

    def _keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> None:
        kept = self.frame.keep(task)
        if self._kept is not None:
            self._kept.close()
        self._kept = kept
        rows = sum(sum(one) for one in self._pass(lambda: kept.each(MapBlocks(len))))
        if rows != self.n:
            raise ValueError(f"expected {self.n} rows in {self.frame.shown}, got {rows}; fit again.")

    def run(self, work: Pass) -> IntArray:
        """The sum over all partitions."""
        assert self._kept is not None  # noqa: S101 - loaded before
        kept, task = self._kept, RunPass(work, self.attribute)
        total: IntArray = sum(self._pass(lambda: kept.each(task)))
        return total

    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        """A function of every block, in order."""
        assert self._kept is not None  # noqa: S101 - loaded before
        kept, task = self._kept, MapBlocks(function)
        return (one for part in self._pass(lambda: kept.each(task)) for one in part)

    def read_codes(self, codes: Any) -> None:
        """Nothing: entries come with the blocks, and each pass reads them again."""

    def close(self) -> None:
        """Let the engine drop what it has kept."""
        if self._kept is not None:
            self._kept.close()
        self._kept = None
        self.frame.close()


__all__ = ["Frame", "FrameRows", "GivenRows", "Kept", "KeptBlock", "Part", "columns_here"]
