"""Rows and answers as Arrow IPC streams, and what is refused of them before a number is read.

One column of lists of a fixed length, float64, without nulls and without compression: what a body holds is then known
from its length, and no small body becomes a large one.

Streams are written by pyarrow and read here, with bounds checked on every access: pyarrow ends the process on some
malformed messages (a first message that is no schema, for one), and allocates what a message declares. The layout is
that of ``Message.fbs`` and ``Schema.fbs`` of the Arrow format, versions 4 and 5 of its metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from justitia.custodian.refusals import Refused, too_large, wrong
from justitia.privacy.arrays import Array as Rows
from justitia.privacy.arrays import Index

Body = bytes | bytearray
ARROW = "application/vnd.apache.arrow.stream"
_COLUMN = "row"
#: Every batch costs time to check, whatever it holds; the client of this package sends one.
_MOST_BATCHES = 1000
_CONTINUATION = 0xFFFFFFFF
_VERSIONS = (3, 4)  # V4 and V5
_SCHEMA, _RECORD_BATCH = 1, 3  # MessageHeader
_FLOATING_POINT, _FIXED_SIZE_LIST, _DOUBLE = 3, 16, 2  # Type, Type, Precision
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


def from_stream(body: Body, *, widest: int) -> Rows:
    """(n, width): rows of a stream that somebody sent; entries that are no numbers are left as they are.

    A stream of one batch is not copied: its rows are a view of ``body``.

    Raises
    ------
    Refused
        If it is anything else.
    """
    try:
        return _decoded(memoryview(body), widest)
    except Refused:
        raise
    except (ValueError, struct.error, MemoryError):
        raise wrong(_NOT_ROWS) from None


class _Malformed(ValueError):
    """A stream that is not one, or has something else in it."""


class _Message(NamedTuple):
    kind: int
    header: _Table
    body: memoryview


def _decoded(body: memoryview, widest: int) -> Rows:
    messages = _messages(body)
    first = next(messages, None)
    if first is None or first.kind != _SCHEMA:
        raise _Malformed
    width = _width(first.header)
    if width > widest:
        raise too_large(f"rows of at most {widest} numbers")
    parts: list[Rows] = []
    for message in messages:
        if message.kind != _RECORD_BATCH:
            raise _Malformed
        if len(parts) == _MOST_BATCHES:
            raise too_large(f"at most {_MOST_BATCHES} batches in one stream")
        parts.append(_batch(message, width))
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, width)), *parts])


def _messages(stream: memoryview) -> Iterator[_Message]:
    """Yield the messages of a stream; each of their lengths lies within it."""
    at = 0
    while at < len(stream):
        mark, size = struct.unpack_from("<Ii", stream, at)
        at += 8
        if mark != _CONTINUATION or not 0 <= size <= len(stream) - at:
            raise _Malformed
        if size == 0:  # the end
            if at != len(stream):
                raise _Malformed
            return
        table = _Table.root(stream[at : at + size])
        at += size
        held = table.number(3, "<q")  # bodyLength
        header = table.table(2)
        if header is None or table.number(0, "<h") not in _VERSIONS or not 0 <= held <= len(stream) - at:
            raise _Malformed
        yield _Message(table.number(1, "<B"), header, stream[at : at + held])
        at += held


def _width(schema: _Table) -> int:
    """Numbers in each row, if a schema has one column of lists of float64 of one length."""
    (column,) = schema.tables(1)
    kind = column.table(3)
    if schema.number(0, "<h") or column.number(2, "<B") != _FIXED_SIZE_LIST or kind is None:
        raise _Malformed  # the first: numbers of the other byte order
    width = kind.number(0, "<i")
    (entries,) = column.tables(5)
    number = entries.table(3)
    if entries.number(2, "<B") != _FLOATING_POINT or number is None or number.number(0, "<h") != _DOUBLE:
        raise _Malformed
    if width < 1 or column.has(4) or entries.has(4) or any(entries.tables(5)):  # 4: a dictionary
        raise _Malformed
    return width


def _batch(message: _Message, width: int) -> Rows:
    """The rows of one batch, a view."""
    header = message.header
    rows = header.number(0, "<q")
    nodes, buffers = header.pairs(1), header.pairs(2)  # (length, nulls) and (offset, length)
    if header.has(3) or len(nodes) != 2 or len(buffers) != 3:  # 3: compression
        raise _Malformed
    if rows < 0 or nodes != [(rows, 0), (rows * width, 0)]:
        raise _Malformed
    for offset, length in buffers:
        if min(offset, length) < 0 or offset + length > len(message.body):
            raise _Malformed
    offset, length = buffers[2]  # the other two say what is null, of lists and of numbers; nothing is
    if length < 8 * rows * width:
        raise _Malformed
    return np.frombuffer(message.body, dtype="<f8", count=rows * width, offset=offset).reshape(rows, width)


class _Table:
    """A table of a flatbuffer; every access is checked against the buffer's ends.

    Parameters
    ----------
    data : memoryview
        The whole flatbuffer.
    at : int
        Where the table begins.
    """

    __slots__ = ("_at", "_data", "_fields", "_vtable")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._read("<i", at)
        self._fields = (self._read("<H", self._vtable) - 4) // 2

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """The table that a flatbuffer is about."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def _read(self, kind: str, at: int) -> int:
        if at < 0:  # which struct would count from the end
            raise _Malformed
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int | None:
        offset = self._read("<H", self._vtable + 4 + 2 * field) if field < self._fields else 0
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._place(field) is not None

    def number(self, field: int, kind: str) -> int:
        """A whole number; 0 where the field is not there, which is the default of all that are read here."""
        place = self._place(field)
        return 0 if place is None else self._read(kind, place)

    def table(self, field: int) -> _Table | None:
        """A table within this one."""
        place = self._place(field)
        return None if place is None else _Table(self._data, place + self._read("<I", place))

    def _vector(self, field: int, most: int) -> tuple[int, int]:
        """Where the entries of a vector begin, and how many there are."""
        place = self._place(field)
        if place is None:
            return 0, 0
        begin = place + self._read("<I", place)
        count = self._read("<I", begin)
        if count > most:
            raise _Malformed
        return begin + 4, count

    def tables(self, field: int) -> list[_Table]:
        """Tables in a vector; more than one is of no use here."""
        begin, count = self._vector(field, 1)
        places = [begin + 4 * number for number in range(count)]
        return [_Table(self._data, place + self._read("<I", place)) for place in places]

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Pairs of whole numbers in a vector."""
        begin, count = self._vector(field, 3)
        return [(self._read("<q", begin + 16 * k), self._read("<q", begin + 16 * k + 8)) for k in range(count)]


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


__all__ = ["ARROW", "SpooledRows", "from_stream", "to_stream"]
