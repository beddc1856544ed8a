"""Labels, decisions and the attribute of rows in Parquet files or in a data frame of an engine, for a measurement."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.attribute import HeldElsewhere, SensitiveColumns
from justitia.privacy.joining import FileAttribute, FrameAttribute, check_held, held_for_files
from justitia.rows.file_data import check_frame, open_frame
from justitia.rows.files import Columns
from justitia.rows.frames import FrameRows, columns_here
from justitia.rows.parquet import RowFiles
from justitia.training.method import pass_bar

Labels = NDArray[np.object_]


def read_files(
    data: Any, y_true: Any, y_pred: Any, where: Any, person: Any
) -> tuple[Any, Any, FileAttribute | HeldElsewhere, list[Any] | None, None]:
    """Labels, decisions, the attribute closed, public ids, and no row source.

    Parameters
    ----------
    data : path, pattern, dataset or RowFiles
    y_true, y_pred : str or array-like
        Names of columns; decisions may be an array, as ``model.predict(data)`` gives one. Labels may be None.
    where : str, SensitiveColumns or HeldElsewhere
    person : str, optional

    Raises
    ------
    ValueError, TypeError
        For what is wrong with names and files.
    """
    files = RowFiles.open(data)
    if isinstance(where, HeldElsewhere):
        files.check([name for name in (y_true, y_pred, check_held(where, person)) if isinstance(name, str)])
        held = held_for_files(where, files, person)
        truth, decided = (_column(files, one) if isinstance(one, str) else one for one in (y_true, y_pred))
        return truth, decided, held, None if person is None else list(_column(files, person)), None
    sensitive = SensitiveColumns.from_name(where)
    public = [name for name in (y_true, y_pred, person, sensitive.key) if isinstance(name, str)]
    clash = [name for name in sensitive.columns if name in public]
    if clash:
        raise ValueError(f"the column {clash[0]!r} is sensitive and cannot be used as a public one; name another.")
    files.check(public, () if sensitive.file is not None else sensitive.columns)
    truth, decided, ids = (_column(files, one) if isinstance(one, str) else one for one in (y_true, y_pred, person))
    second = None if sensitive.file is None else RowFiles.open(sensitive.file)
    if second is not None and sensitive.key is not None:
        second.check([], [sensitive.key, *sensitive.columns])
    return truth, decided, FileAttribute(sensitive, files, second), None if ids is None else list(ids), None


def read_frame(
    data: Any, y_true: Any, y_pred: Any, where: Any, person: Any
) -> tuple[Any, Any, FrameAttribute, list[Any] | None, FrameRows]:
    """The same of a data frame of Spark, Ray or Dask, and a row source whose workers hold the attribute.

    Raises
    ------
    ValueError, TypeError
        For what is wrong with names and columns.
    """
    frame = open_frame(data)
    check_frame(frame, where)
    sensitive = SensitiveColumns.from_name(where)
    for name, given in (("y_true", y_true), ("y_pred", y_pred), ("person", person)):
        if not (isinstance(given, str) or (given is None and name != "y_pred")):
            raise TypeError(
                f"expected {name} to be the name of a column of {frame.shown}, got {type(given).__name__!r}; "
                "model.predict(data) returns the data frame with a column 'prediction'."
            )
    public = [name for name in (y_true, y_pred, person) if name is not None]
    clash = [name for name in sensitive.columns if name in public]
    if clash:
        raise ValueError(f"the column {clash[0]!r} is sensitive and cannot be used as a public one; name another.")
    frame.check(public, sensitive.columns)
    attribute = FrameAttribute(sensitive, len(frame))
    source = FrameRows(
        frame, Columns(tuple(public)), attribute, lambda total, name: pass_bar(shown=False, rows=total, name=name)
    )
    try:
        columns = columns_here(frame, public)
        source.load_positions()
    except BaseException:
        source.close()
        raise
    return columns.get(y_true), columns[y_pred], attribute, None if person is None else list(columns[person]), source


def _column(files: RowFiles, name: str) -> Labels:
    """One public column; equal labels share one object."""
    known: dict[Any, Any] = {}
    parts = [
        np.fromiter((known.setdefault(one, one) for one in table.column(0).to_pylist()), object, table.num_rows)
        for _, table in files.blocks([name])
    ]
    return np.concatenate([np.empty(0, dtype=object), *parts])


__all__ = ["read_files", "read_frame"]
