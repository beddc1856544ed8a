"""Rows and answers as Arrow IPC streams, and what is refused of them before a number is read.

One column of lists of a fixed length, float64, without nulls and without compression: what a body holds is then known
from its length, and no small body becomes a large one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from justitia.custodian.refusals import Refused, too_large, wrong
from justitia.privacy.arrays import Array as Rows
from justitia.privacy.arrays import Index

ARROW = "application/vnd.apache.arrow.stream"
_COLUMN = "row"
_COMPRESSION = 3  # place of the field in the table that describes a batch of rows
_HEADER = 2  # place, in the table that describes a message, of the former
_NOT_ROWS = (
    "expected an Arrow IPC stream with one column of lists of float64 of one length, without nulls and without "
    "compression, got other data; send rows as the client of this package does."
)


def to_stream(rows: Rows) -> bytes:
    """Rows, or an answer."""
    table: Rows = np.ascontiguousarray(rows, dtype=np.float64)
    column = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])
    kind = pa.schema([(_COLUMN, column.type)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind) as writer:
        writer.write_batch(pa.record_batch([column], schema=kind))
    return bytes(sink.getvalue().to_pybytes())


def from_stream(body: bytes, *, widest: int) -> Rows:
    """(n, width): rows of a stream that somebody sent; entries that are no numbers are left as they are.

    Raises
    ------
    Refused
        If it is anything else.
    """
    try:
        return _decoded(body, widest)
    except Refused:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        struct.error,
        IndexError,
        OverflowError,
        MemoryError,
        StopIteration,
    ):
        raise wrong(_NOT_ROWS) from None


def _decoded(body: bytes, widest: int) -> Rows:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    first = reader.read_next_message()
    schema = pa.ipc.read_schema(first)
    if len(schema) != 1 or not pa.types.is_fixed_size_list(schema.field(0).type):
        raise wrong(_NOT_ROWS)
    kind = schema.field(0).type
    if kind.value_type != pa.float64() or kind.list_size < 1:
        raise wrong(_NOT_ROWS)
    if kind.list_size > widest:
        raise too_large(f"rows of at most {widest} numbers")
    parts = [_batch(message, schema, kind.list_size) for message in _messages(reader)]
    return np.concatenate([np.empty((0, kind.list_size)), *parts])


def _messages(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _batch(message: Any, schema: Any, width: int) -> Rows:
    if message.type != "record batch" or is_compressed(message.metadata.to_pybytes()):
        raise wrong(_NOT_ROWS)
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    column = batch.column(0)
    if column.null_count or column.flatten().null_count or len(column.flatten()) != len(batch) * width:
        raise wrong(_NOT_ROWS)
    found: Rows = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return found


def is_compressed(metadata: bytes) -> bool:
    """Whether the description of a batch (a flatbuffer) says that its body is compressed."""
    batch = _field(metadata, struct.unpack_from("<I", metadata, 0)[0], _HEADER)
    if batch is None:
        return True  # no batch at all
    return _field(metadata, batch + struct.unpack_from("<I", metadata, batch)[0], _COMPRESSION) is not None


def _field(data: bytes, table: int, place: int) -> int | None:
    """Where a table of a flatbuffer has its field of this place; None if it has none."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    at = 4 + 2 * place
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
    return table + offset if offset else None


class SpooledRows:
    """Rows in files, one for each part, read one part at a time.

    Parameters
    ----------
    files : sequence of paths
    rows : int
        In all of them.
    width : int
    """

    def __init__(self, files: Sequence[Path], rows: int, width: int) -> None:
        self._files, self._rows, self._width = list(files), rows, width

    @classmethod
    def of(cls, files: Sequence[Path], *, widest: int, rows: int) -> SpooledRows:
        """Look at them.

        Raises
        ------
        Refused
            If they have another number of rows, or rows of several widths.
        """
        shapes = [from_stream(file.read_bytes(), widest=widest).shape for file in files]
        if len({width for _, width in shapes}) != 1 or sum(n for n, _ in shapes) != rows:
            came = sum(n for n, _ in shapes)
            raise wrong(f"expected {rows} rows of one width, in the order of the cohort, got {came}; send all of them.")
        return cls(files, rows, shapes[0][1])

    def __len__(self) -> int:
        return self._rows

    @property
    def width(self) -> int:
        """Number of columns."""
        return self._width

    def dense(self) -> Iterator[tuple[Index, Rows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        done = 0
        for file in self._files:
            rows = from_stream(file.read_bytes(), widest=self._width)
            yield np.arange(done, done + len(rows)), rows
            done += len(rows)


__all__ = ["ARROW", "SpooledRows", "from_stream", "is_compressed", "to_stream"]
