"""Inputs of a fit on files or on data frames of engines: names of the public columns, and where the attribute is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from justitia.privacy.attribute import HeldElsewhere, SensitiveColumns
from justitia.privacy.joining import FileAttribute, FrameAttribute, check_held, held_for_files
from justitia.privacy.persons import Persons
from justitia.rows.files import Columns, FileRows, Progress
from justitia.rows.frames import Frame, FrameRows, columns_here
from justitia.rows.parquet import RowFiles, is_files

#: Where the class of each engine's data frame is: the engine, its package, and names of the class.
_CLASSES = (("dask", "dask", ("DataFrame",)), ("ray", "ray", ("Dataset",)), ("spark", "pyspark", ("DataFrame",)))


@dataclass(frozen=True, eq=False)
class FileData:
    """Files or a data frame, names of their public columns, and where the attribute is.

    Attributes
    ----------
    files : RowFiles or Frame
    columns : Columns
    sensitive : SensitiveColumns or HeldElsewhere
    second : RowFiles, optional
        Files that hold the attribute, if it is not in ``files``.
    person : str, optional
        Column of public ids.
    """

    files: RowFiles | Frame
    columns: Columns
    sensitive: SensitiveColumns | HeldElsewhere
    second: RowFiles | None
    person: str | None

    @classmethod
    def from_names(cls, X: Any, y: Any, sensitive: Any, weight: Any, person: Any, proxy: Any = None) -> FileData:
        """Open the files or the data frame and check names and types of columns.

        Raises
        ------
        ValueError, TypeError
            In one sentence, before any row is read.
        """
        for name, given in (("y", y), ("sample_weight", weight), ("person", person)):
            if not (isinstance(given, str) or (given is None and name != "y")):
                raise TypeError(
                    f"expected {name} to be the name of a column where X is in files, got {type(given).__name__!r}."
                )
        proxies = _proxy_names(proxy, (y, weight, person))
        files = open_frame(X) if is_frame(X) else RowFiles.open(X)
        if isinstance(files, Frame):
            check_frame(files, sensitive)
        where: SensitiveColumns | HeldElsewhere
        private: tuple[str, ...]
        if isinstance(sensitive, HeldElsewhere):
            where, private, second = sensitive, (), None
            key: str | None = check_held(sensitive, person)
        else:
            where = SensitiveColumns.from_name(sensitive)
            private, key = where.columns, where.key
            second = None if where.file is None else RowFiles.open(where.file)
        beside = private if second is None else ()
        hidden = {y, weight, person, key, *beside, *proxies} - {None}
        chosen = tuple(name for name in (files.features or files.names) if name not in hidden)
        if not chosen:
            raise ValueError(f"{files.shown} has no column left to learn from; leave fewer out.")
        columns = Columns(chosen, y, weight, proxy=proxies)
        public = [name for name in (*columns.all, person, key) if name is not None]
        clash = [name for name in private if name in public]
        if clash:
            raise ValueError(f"the column {clash[0]!r} is sensitive and cannot be used as a public one; name another.")
        files.check(public, beside)
        if second is not None and key is not None:
            second.check([], [key, *private])
        if not len(files):
            raise ValueError(f"expected rows in {files.shown}, got none; pass files with rows.")
        return cls(files, columns, where, second, person)

    def rows(self, progress: Progress) -> FileRows | FrameRows:
        """The row source, with a bar for each pass."""
        if isinstance(self.files, Frame):
            return FrameRows(self.files, self.columns, self.attribute(), progress)
        return FileRows(self.files, self.columns, progress)

    def attribute(
        self, ranges: tuple[tuple[int, int], ...] | None = None
    ) -> FileAttribute | FrameAttribute | HeldElsewhere:
        """Where the attribute of the rows is, or who holds it; ``ranges`` are the rows of each process."""
        if isinstance(self.files, Frame):
            return FrameAttribute(SensitiveColumns.from_name(self.sensitive), len(self.files))
        if isinstance(self.sensitive, HeldElsewhere):
            return held_for_files(self.sensitive, self.files, self.person)
        return FileAttribute(self.sensitive, self.files, self.second, ranges)

    def persons(self) -> Persons | None:
        """Which rows are one person's; a custodian counts them by its own ids."""
        if self.person is None or isinstance(self.sensitive, HeldElsewhere):
            return None
        if isinstance(self.files, Frame):
            return Persons.from_ids(columns_here(self.files, [self.person])[self.person])
        tables = self.files.tables([self.person])
        return Persons.from_ids([one for table in tables for one in table.column(0).to_pylist()])


def _proxy_names(proxy: Any, others: tuple[str | None, ...]) -> tuple[str, ...]:
    """Names of the columns of proxies."""
    listed = () if proxy is None else (proxy,) if isinstance(proxy, str) else proxy
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise TypeError(
            f"expected proxy to be names of columns where X is in files, got {type(proxy).__name__!r}; write "
            "proxy=['p_black'], say."
        )
    for name in listed:
        if name in others:
            raise ValueError(f"the column {name!r} is target, weight or id and cannot be a proxy; name another.")
    return tuple(dict.fromkeys(listed))


def is_stored(X: Any) -> bool:
    """Whether rows are in files or in a data frame of an engine, so that other columns are given by name."""
    return is_files(X) or is_frame(X)


def is_frame(X: Any) -> bool:
    """Whether this is a data frame of Spark, Ray or Dask, or a :class:`Frame`; imports none of them."""
    return isinstance(X, Frame) or _engine_of(X) is not None


def open_frame(X: Any) -> Frame:
    """The data frame with one interface for all engines."""
    if isinstance(X, Frame):
        return X
    engine = _engine_of(X)
    opened: Frame
    if engine == "dask":
        from justitia.rows.dask import DaskFrame  # noqa: PLC0415 - optional

        opened = DaskFrame(X)
    elif engine == "ray":
        from justitia.rows.ray import RayFrame  # noqa: PLC0415 - optional

        opened = RayFrame(X)
    else:
        from justitia.rows.spark import SparkFrame  # noqa: PLC0415 - optional

        opened = SparkFrame(X)
    return opened


def _engine_of(X: Any) -> str | None:
    for kind in type(X).__mro__:
        package = kind.__module__.partition(".")[0]
        for engine, home, names in _CLASSES:
            if package == home and home in sys.modules and any(name in kind.__name__ for name in names):
                return engine
    return None


def check_frame(frame: Frame, sensitive: Any) -> None:
    """Refuse what only rows in files can do.

    Raises
    ------
    ValueError
    """
    if isinstance(sensitive, HeldElsewhere):
        raise ValueError(f"expected no custodian with {frame.shown}, got one; write the rows to Parquet files first.")
    if isinstance(sensitive, SensitiveColumns) and sensitive.file is not None:
        raise ValueError(
            f"expected the sensitive column in {frame.shown}, got a file of its own; join the two by their key with "
            f"{frame.engine} first."
        )


__all__ = ["FileData", "is_frame", "is_stored", "open_frame"]
