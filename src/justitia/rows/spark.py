"""Data frames of Spark (classic or Connect): passes are ``mapInArrow``, and blocks are kept in Spark's cache.

Spark runs a task again whose executor is lost, and computes cached blocks again that were lost with it. Columns that a
fit uses are cached first: without that, Spark could plan the partitions of each pass anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions

from justitia.rows.frames import RESULT, Frame, Kept, KeptBlock, Outcome, Part, Work, answered, computed
from justitia.rows.processes import in_one_line
from justitia.rows.source import Block

#: What a task returns for a partition: its number, the kind of the outcome, and the pickled value or one line of text.
OUTCOME = "place int, kind string, value binary"
#: A kept block: arrays and their shapes, and the attribute's entries as an Arrow stream. An error has a kind.
BLOCK = (
    "place int, kind string, first long, shapes array<int>, X binary, y binary, weight binary, score binary, "
    "proxy binary, private binary"
)
_ARROW = pa.schema([("place", pa.int32()), ("kind", pa.string()), ("value", pa.binary())])


class SparkFrame(Frame):
    """A ``pyspark.sql.DataFrame``; rows are numbered by partition, and by their order there."""

    engine = "Spark"

    def __init__(self, frame: Any) -> None:
        self._frame, self.names = frame, tuple(frame.columns)
        self._used: Any = None
        self._public: list[str] = []
        self._private: list[str] = []

    def select(self, public: Sequence[str], private: Sequence[str]) -> None:
        """Use these columns from now on."""
        self.close()
        self._public, self._private = list(public), list(private)
        columns = [functions.col(f"`{name}`") for name in (*public, *private)]
        self._used = self._frame.select(*columns).persist(StorageLevel.MEMORY_AND_DISK)

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return _collected(self._used.mapInArrow(_on_partitions(task, self._public, self._private), OUTCOME))

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> SparkBlocks:
        """Blocks of every partition, in Spark's cache."""
        made = self._used.mapInArrow(_blocks_of_partitions(task, self._public, self._private), BLOCK)
        return SparkBlocks(made.persist(StorageLevel.MEMORY_AND_DISK))

    def with_columns(self, work: Work, features: list[str], like: Mapping[str, Any]) -> Any:
        """The data frame with more columns; Python gets the features alone."""
        kinds = {name: _kind_of(empty) for name, empty in like.items()}
        schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
        added = functions.pandas_udf(_columns_of(work, features), schema)
        given = functions.struct(*(functions.col(f"`{name}`") for name in features))
        with_all = self._frame.withColumn("__justitia", added(given))
        return with_all.select(
            *(functions.col(f"`{name}`") for name in self.names),
            *(functions.col("__justitia")[name].alias(name) for name in like),
        )

    def close(self) -> None:
        """Drop the columns from Spark's cache."""
        if self._used is not None:
            self._used.unpersist()
        self._used = None


class SparkBlocks(Kept):
    """Blocks in Spark's cache."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return _collected(self._kept.mapInArrow(_on_blocks(task), OUTCOME))

    def close(self) -> None:
        """Drop them from the cache."""
        self._kept.unpersist()


def _on_partitions(task: Any, public: list[str], private: list[str]) -> Any:
    """A function for ``mapInArrow``: a task on a partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        k = _place()
        yield _outcome(k, answered(lambda: task(k, _parts(batches, public, private))))

    return run


def _blocks_of_partitions(task: Any, public: list[str], private: list[str]) -> Any:
    """A function for ``mapInArrow``: the blocks of a partition, each as soon as it is made."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        k = _place()
        try:
            for one in task(k, _parts(batches, public, private)):
                yield _packed(k, one)
        except Exception as error:  # noqa: BLE001 - the driver raises it
            kind, sentence = in_one_line(error)
            yield _error(k, kind, sentence)

    return run


def _on_blocks(task: Any) -> Any:
    """A function for ``mapInArrow``: a task on kept blocks, or the error with which they were to be made."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        errors: list[Outcome] = []
        outcome = answered(task, _unpacked(batches, errors))
        yield _outcome(_place(), errors[0] if errors else outcome)

    return run


def _columns_of(work: Work, features: list[str]) -> Any:
    """A function for ``pandas_udf``: new columns of rows."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        found = work(rows[features])
        return pd.DataFrame({name: pd.Series(np.asarray(values)) for name, values in found.items()})

    return run


def _place() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - runs in a worker

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark runs this function
    return int(context.partitionId())


def _parts(batches: Iterator[pa.RecordBatch], public: list[str], private: list[str]) -> Iterator[Part]:
    for batch in batches:
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            yield Part(table.select(public), table.select(private) if private else None)


def _outcome(k: int, outcome: Outcome) -> pa.RecordBatch:
    kind, value = outcome
    return pa.RecordBatch.from_pylist([{"place": k, "kind": kind, "value": pickle.dumps(value)}], schema=_ARROW)


def _packed(k: int, kept: KeptBlock) -> pa.RecordBatch:
    """A block as one row of binary columns."""
    block, entries = kept.block, pa.BufferOutputStream()
    score = np.zeros((0, 0)) if block.score is None else block.score
    proxy = np.zeros((len(block), 0), dtype=np.float32) if block.proxy is None else block.proxy
    shapes = [len(block), block.X.shape[1], proxy.shape[1], score.ndim, *score.shape]
    if kept.private is not None:
        with pa.ipc.new_stream(entries, kept.private.schema) as writer:
            writer.write_table(kept.private)
    arrays = {"X": block.X, "y": block.y, "weight": block.weight, "score": score, "proxy": proxy}
    row: dict[str, Any] = {name: np.ascontiguousarray(values).tobytes() for name, values in arrays.items()}
    row |= {"place": k, "kind": RESULT, "first": block.first, "shapes": shapes}
    row["private"] = entries.getvalue().to_pybytes()
    return pa.RecordBatch.from_pylist([row], schema=_block_schema())


def _error(k: int, kind: str, sentence: str) -> pa.RecordBatch:
    row = {"place": k, "kind": kind, "first": 0, "shapes": [], "private": sentence.encode()}
    return pa.RecordBatch.from_pylist([row], schema=_block_schema())


def _block_schema() -> pa.Schema:
    numbers = [("place", pa.int32()), ("kind", pa.string()), ("first", pa.int64()), ("shapes", pa.list_(pa.int32()))]
    return pa.schema([*numbers, *((name, pa.binary()) for name in ("X", "y", "weight", "score", "proxy", "private"))])


def _unpacked(batches: Iterator[pa.RecordBatch], errors: list[Outcome]) -> Iterator[KeptBlock]:
    for batch in batches:
        for at in range(batch.num_rows):
            row = {name: batch.column(name)[at] for name in batch.schema.names}
            if row["kind"].as_py() != RESULT:
                errors.append((row["kind"].as_py(), row["private"].as_py().decode()))
                return
            yield _block_of(row)


def _block_of(row: Mapping[str, Any]) -> KeptBlock:
    rows, columns, proxies, dimensions, *shape = row["shapes"].as_py()
    X = np.frombuffer(row["X"].as_buffer(), dtype=np.float32).reshape(rows, columns)
    proxy = np.frombuffer(row["proxy"].as_buffer(), dtype=np.float32).reshape(rows, -1) if proxies else None
    y, weight = (np.frombuffer(row[name].as_buffer(), dtype=np.float32) for name in ("y", "weight"))
    score = np.frombuffer(row["score"].as_buffer(), dtype=np.float64).reshape(shape[:dimensions])
    entries = row["private"].as_buffer()
    private = pa.ipc.open_stream(entries).read_all() if len(entries) else None
    return KeptBlock(Block(row["first"].as_py(), X, y, weight, score if shape[0] else None, proxy=proxy), private)


def _kind_of(empty: Any) -> str:
    """Spark's name for the type of an array."""
    return {"f": "double", "i": "long", "u": "long", "b": "boolean"}.get(np.asarray(empty).dtype.kind, "string")


def _collected(made: Any) -> list[Outcome]:
    """The outcomes of all partitions, in order."""
    rows: list[Any] = computed("Spark", made.collect)
    return [(row.kind, pickle.loads(row.value)) for row in sorted(rows, key=lambda row: row.place)]  # noqa: S301 - from the workers that this driver runs, as Spark itself reads them


__all__ = ["SparkFrame"]
