"""Rows of Parquet files, a few at a time: one file, a folder, a pattern, or a dataset of pyarrow.

Rows are numbered in the order of the sorted paths, and cut into blocks at multiples of ``BLOCK`` whatever the files and
row groups are, so that what is computed block by block does not depend on how rows were stored. A folder may be
partitioned hive-style (``year=2024/part.parquet``): such keys are columns.

A fit reads the rows several times and relies on finding the same ones, so a file whose size or time of change differs
from what it was at first is refused.

pyarrow is imported when it is needed. Batches are read from one file after the other: scanning a whole dataset keeps
what it has read (arrow issue 39808).
"""

from __future__ import annotations

import glob
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from justitia._validate import check_int
from justitia.exceptions import DeprecatedNameWarning

#: Rows that are held at once; a row group is read as it is needed.
BLOCK = 32_768
#: Bytes of a column that are read at once.
BUFFER = 2**16
ENDINGS = (".parquet", ".pq")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def _no_version() -> None:
    """Of a table in memory, which does not change."""


@dataclass(frozen=True, eq=False)
class ParquetPart:
    """One Parquet file: how to open it, its name for messages, and the hive keys of its folder.

    ``version`` gives its size and the time of its last change, where there are any.
    """

    shown: str
    open: Callable[[], Any] = field(repr=False)
    keys: dict[str, Any] = field(default_factory=dict)
    version: Callable[[], Any] = field(default=_no_version, repr=False)

    @cached_property
    def _first_version(self) -> Any:
        return self.version()

    def check_unchanged(self) -> None:
        """Refuse a file that is not the one that was read first.

        Inodes are not compared: some network file systems number their files anew.

        Raises
        ------
        ValueError
            If it was replaced, changed or removed.
        """
        with one_sentence(self.shown):
            same = self._first_version == self.version()
        if not same:
            raise ValueError(
                f"expected {self.shown} to stay as it was when it was first read, got a file that was changed since; "
                "start again when nobody writes to it."
            )

    def file(self) -> Any:
        """The file, opened by pyarrow.

        Raises
        ------
        ValueError
            If it cannot be read, or was changed since it was first read.
        """
        self.check_unchanged()
        with one_sentence(self.shown):
            return _parquet().ParquetFile(self.open(), pre_buffer=False, buffer_size=BUFFER)

    @cached_property
    def schema(self) -> Any:
        """Names and types of its columns."""
        return self.file().schema_arrow

    @cached_property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.file().metadata.num_rows)


@contextmanager
def one_sentence(shown: str) -> Iterator[None]:
    """Turn what pyarrow raises about the file of this name into one sentence; other errors pass through."""
    try:
        yield
    except MemoryError:
        raise
    except (_arrow().ArrowException, OSError, EOFError):
        raise ValueError(f"{shown} cannot be read as Parquet; write it again, or leave it out.") from None


@dataclass(frozen=True, eq=False)
class RowFiles:
    """The rows of some files, in order.

    Attributes
    ----------
    parts : tuple of ParquetPart
    shown : str
        The path or pattern, for messages.
    features : tuple of str, optional
        Columns to learn from; by default all that have no other role.
    positive : str, optional
        The class label that counts as the second one, as text; by default the later one in order.
    workers : int
        Worker processes on this machine that a fit divides the rows among; 1 works in this process.
    """

    parts: tuple[ParquetPart, ...]
    shown: str
    features: tuple[str, ...] | None = None
    positive: str | None = None
    workers: int = 1

    @classmethod
    def open(
        cls,
        where: Any,
        *,
        features: Sequence[str] | None = None,
        positive: str | None = None,
        workers: int = 1,
    ) -> RowFiles:
        """The files that a path, a pattern or a dataset of pyarrow names.

        Raises
        ------
        ValueError
            If there are none, or they cannot be read.
        """
        if isinstance(where, RowFiles):
            return where
        check_int("workers", workers, at_least=1)
        parts = _parts_of_path(str(where)) if isinstance(where, str | Path) else _parts_of_dataset(where)
        shown = str(where) if isinstance(where, str | Path) else "the dataset"
        if not parts:
            raise ValueError(f"expected Parquet files in {shown!r}, got none; name a file, a folder or a pattern.")
        return cls(tuple(parts), shown, None if features is None else tuple(features), positive, workers)

    @classmethod
    def of(cls, where: Any, **options: Any) -> RowFiles:
        """The old name of :meth:`open`."""
        sentence = "RowFiles.of is now called RowFiles.open; the old name works in this release and in no later one."
        warnings.warn(sentence, DeprecatedNameWarning, stacklevel=2)
        return cls.open(where, **options)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Rows of each file."""
        return tuple(part.rows for part in self.parts)

    def __len__(self) -> int:
        return sum(self.counts)

    def check_unchanged(self) -> None:
        """Refuse files that were changed since they were first read (:meth:`ParquetPart.check_unchanged`)."""
        for part in self.parts:
            part.check_unchanged()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Columns of the first file, hive keys last."""
        return (*self.parts[0].schema.names, *self.parts[0].keys)

    def check(self, public: Sequence[str], private: Sequence[str] = ()) -> None:
        """Refuse columns that are not in every file, or public ones whose type is not the same everywhere.

        Types of private columns are not compared: an entry is read by itself.
        """
        first = self.parts[0].schema
        for part in self.parts:
            schema = part.schema
            twice = [name for name in schema.names if name in part.keys or schema.names.count(name) > 1]
            if twice:
                raise ValueError(f"{part.shown} has the column {twice[0]!r} twice; remove one of them.")
            for name in (*public, *private):
                if name not in schema.names and name not in part.keys:
                    raise ValueError(f"expected a column {name!r} in every file, got none in {part.shown}; add it.")
            for name in public:
                if name in schema.names and schema.field(name).type != first.field(name).type:
                    raise ValueError(
                        f"expected one type in column {name!r}, got {schema.field(name).type} in {part.shown} and "
                        f"{first.field(name).type} in {self.parts[0].shown}; write them alike."
                    )
        keyed = [name for part in self.parts for name in private if name in part.keys]
        if keyed:
            raise ValueError(
                f"the sensitive column {keyed[0]!r} is a key of folders, so that names of files tell it; store it as a "
                "column of the files."
            )

    def blocks(
        self, names: Sequence[str], start: int = 0, stop: int | None = None, size: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield ``(position of the first row, Arrow table)`` for these columns of the rows from start to stop.

        Tables end at multiples of ``size`` (``BLOCK`` by default) and where the range ends.
        """
        stop, size = len(self) if stop is None else stop, BLOCK if size is None else size
        waiting: list[Any] = []
        begun = at = start
        for table in self.tables(names, start, stop):
            rest = table
            while len(rest):
                taken = rest.slice(0, (at // size + 1) * size - at)
                waiting.append(taken)
                rest, at = rest.slice(len(taken)), at + len(taken)
                if at % size == 0:
                    yield begun, _joined(waiting)
                    waiting, begun = [], at
        if waiting:
            yield begun, _joined(waiting)

    def tables(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Arrow tables of the rows from start to stop, as the files type them: no file's types change another's."""
        first, stop = 0, len(self) if stop is None else stop
        for part, count in zip(self.parts, self.counts, strict=True):
            low, high = max(start - first, 0), min(stop - first, count)
            first += count
            if low < high:
                yield from _rows_of(part, names, low, high)


def is_files(where: Any) -> bool:
    """Whether this names files: a path, a pattern, :class:`RowFiles` or a dataset of pyarrow."""
    if isinstance(where, str | Path | RowFiles):
        return True
    dataset = sys.modules.get("pyarrow._dataset")  # a dataset exists only where it is imported
    return dataset is not None and isinstance(where, dataset.Dataset)


def _rows_of(part: ParquetPart, names: Sequence[str], low: int, high: int) -> Iterator[Any]:
    """One row group after the other: a reader of several fetches the bytes of all of them first."""
    file, first = part.file(), 0
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if first < high and first + count > low and count:
            yield from _rows_of_group(file, group, part, names, max(low - first, 0), min(high - first, count))
        first += count
    part.check_unchanged()


def _rows_of_group(
    file: Any, group: int, part: ParquetPart, names: Sequence[str], low: int, high: int
) -> Iterator[Any]:
    arrow, at = _arrow(), 0
    stored = [name for name in names if name not in part.keys]
    with one_sentence(part.shown):
        for batch in file.iter_batches(batch_size=BLOCK, row_groups=[group], columns=stored, use_threads=False):
            begin, end = max(low - at, 0), min(high - at, len(batch))
            at += len(batch)
            if begin < end:
                kept = batch.slice(begin, end - begin)
                columns = {name: kept.column(name) for name in stored}
                columns |= {
                    name: arrow.repeat(arrow.scalar(part.keys[name], type=_kind(part.keys[name])), len(kept))
                    for name in names
                    if name in part.keys
                }
                yield arrow.table({name: columns[name] for name in names})


def _kind(value: Any) -> Any:
    return _arrow().int64() if isinstance(value, int) else _arrow().string()


def _joined(tables: list[Any]) -> Any:
    return tables[0] if len(tables) == 1 else _arrow().concat_tables(tables, promote_options="permissive")


def _parts_of_path(text: str) -> list[ParquetPart]:
    path = Path(text)
    if path.is_file():
        return [_stored(path, path.name, {})]
    if path.is_dir():
        found = [one for one in path.rglob("*") if one.suffix.lower() in ENDINGS and _is_data(one.relative_to(path))]
        return _hive(sorted(found), path)
    if any(mark in text for mark in "*?["):
        return _hive(sorted(Path(one) for one in glob.glob(text, recursive=True) if Path(one).is_file()), None)  # noqa: PTH207
    raise ValueError(f"expected a Parquet file or a folder of them, got {text!r}, which is not there.")


def _is_data(path: Path) -> bool:
    return not any(one.startswith(("_", ".")) for one in path.parts)


def _hive(paths: Sequence[Path], root: Path | None) -> list[ParquetPart]:
    """Files with the keys that their folders are named after; a key whose values are all whole numbers is a number."""
    keys = [
        {key: unquote(value) for key, mark, value in (one.partition("=") for one in folders) if mark}
        for folders in ((path.relative_to(root) if root else path).parent.parts for path in paths)
    ]
    whole = {key for one in keys for key in one if all(_is_whole(other.get(key, _NULL)) for other in keys)}
    typed: list[dict[str, Any]] = [
        {key: None if value == _NULL else int(value) if key in whole else value for key, value in one.items()}
        for one in keys
    ]
    names = [str(path.relative_to(root) if root else path.name) for path in paths]
    return [_stored(path, name, known) for path, name, known in zip(paths, names, typed, strict=True)]


def _stored(path: Path, name: str, keys: dict[str, Any]) -> ParquetPart:
    return ParquetPart(name, path.__fspath__, keys, partial(_version_of, path))


def _version_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _is_whole(text: str) -> bool:
    return text == _NULL or text.removeprefix("-").isdecimal()


def _parts_of_dataset(dataset: Any) -> list[ParquetPart]:
    """The files of a dataset, or a table in memory."""
    from pyarrow import dataset as ds  # noqa: PLC0415 - optional

    if isinstance(dataset, ds.FileSystemDataset) and isinstance(dataset.format, ds.ParquetFileFormat):
        return [
            ParquetPart(
                Path(one.path).name,
                partial(_opened, one),
                dict(ds.get_partition_keys(one.partition_expression)),
                partial(_version, one),
            )
            for one in dataset.get_fragments()
        ]
    if isinstance(dataset, ds.InMemoryDataset):
        return [InMemory("the table", dataset.to_table)]
    raise ValueError(f"expected a dataset of Parquet files, got {type(dataset).__name__!r}; pass a folder of them.")


def _opened(fragment: Any) -> Any:
    return fragment.filesystem.open_input_file(fragment.path)


def _version(fragment: Any) -> Any:
    about = fragment.filesystem.get_file_info(fragment.path)
    return about.size, about.mtime_ns  # None where a store has none


class InMemory(ParquetPart):
    """A table in memory that is read like a file."""

    def file(self) -> Any:
        """The table with the interface of a Parquet file."""
        return _TableAsFile(self.open())


class _TableAsFile:
    """The part of a Parquet file's interface that this module uses."""

    def __init__(self, table: Any) -> None:
        self._table, self.schema_arrow, self.metadata = table, table.schema, self
        self.num_rows, self.num_row_groups = table.num_rows, 1

    def row_group(self, _: int) -> _TableAsFile:
        """The whole table."""
        return self

    def iter_batches(self, *, batch_size: int, columns: list[str], **_: Any) -> Iterator[Any]:
        """Batches of these columns."""
        return iter(self._table.select(columns).to_batches(max_chunksize=batch_size))


def _arrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
    except ImportError:
        raise ValueError("reading Parquet files needs pyarrow; run pip install pyarrow.") from None
    return pa


def _parquet() -> Any:
    _arrow()
    from pyarrow import parquet  # noqa: PLC0415 - optional

    return parquet


__all__ = ["BLOCK", "RowFiles", "is_files"]
