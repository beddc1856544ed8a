"""Wire formats: rows and noisy sums as Arrow IPC streams, measurements as JSON.

A stream has one column of fixed-size lists of float64, without nulls and without compression. The length of a body then
limits what it holds, and no small body becomes a large one.

pyarrow writes streams; this module reads them, with bounds checked on every access, because pyarrow ends the process on
some malformed messages (a first message that is no schema, for one) and allocates what a message declares. The layout
is that of ``Message.fbs`` and ``Schema.fbs`` of the Arrow format, versions 4 and 5 of its metadata.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from justitia.custodian.errors import RequestError, invalid_input, too_large
from justitia.metrics.bounds import NoisyRates
from justitia.metrics.measurement import Measurement
from justitia.metrics.rates import NoisyCells
from justitia.metrics.scores import NoisyScores, ScoreFacts
from justitia.privacy.arrays import Array as Rows
from justitia.privacy.arrays import Index
from justitia.privacy.certificate import Certificate

Body = bytes | bytearray
ARROW = "application/vnd.apache.arrow.stream"
_COLUMN = "row"
#: Limit on batches, each of which takes time to check whatever it holds; the client of this package sends one.
_MAX_BATCHES = 1000
_CONTINUATION = 0xFFFFFFFF
_VERSIONS = (3, 4)  # V4 and V5
_SCHEMA, _RECORD_BATCH = 1, 3  # MessageHeader
_FLOATING_POINT, _FIXED_SIZE_LIST, _DOUBLE = 3, 16, 2  # Type, Type, Precision
_NOT_ROWS = (
    "expected an Arrow IPC stream with one column of lists of float64 of one length, without nulls and without "
    "compression, got other data; send rows as the client of this package does."
)


def to_stream(rows: Rows) -> bytes:
    """Rows, or noisy sums, as a stream of one batch."""
    table: Rows = np.ascontiguousarray(rows, dtype=np.float64)
    column = pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])
    kind = pa.schema([(_COLUMN, column.type)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind) as writer:
        writer.write_batch(pa.record_batch([column], schema=kind))
    return bytes(sink.getvalue().to_pybytes())


def from_stream(body: Body, *, max_width: int) -> Rows:
    """(n, width): the rows of an untrusted stream; NaN and infinity stay as they are.

    A stream of one batch is not copied: its rows are a view of ``body``.

    Raises
    ------
    RequestError
        If the body is no such stream, or its rows are wider than ``max_width``.
    """
    try:
        messages = _messages(memoryview(body))
        first = next(messages, None)
        if first is None or first.kind != _SCHEMA:
            raise _Malformed
        width = _width(first.header)
        if width > max_width:
            raise too_large(f"rows of at most {max_width} numbers")
        parts: list[Rows] = []
        for message in messages:
            if message.kind != _RECORD_BATCH:
                raise _Malformed
            if len(parts) == _MAX_BATCHES:
                raise too_large(f"at most {_MAX_BATCHES} batches in one stream")
            parts.append(_batch(message, width))
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, width)), *parts])
    except (ValueError, struct.error, MemoryError):
        raise invalid_input(_NOT_ROWS) from None


class _Malformed(ValueError):
    """The body is no Arrow stream, or a stream of another layout."""


class _Message(NamedTuple):
    kind: int
    header: _FlatbufferTable
    body: memoryview


def _messages(stream: memoryview) -> Iterator[_Message]:
    """Yield the messages of a stream; every length is checked against the end of the stream."""
    at = 0
    while at < len(stream):
        mark, size = struct.unpack_from("<Ii", stream, at)
        at += 8
        if mark != _CONTINUATION or not 0 <= size <= len(stream) - at:
            raise _Malformed
        if size == 0:  # end-of-stream marker
            if at != len(stream):
                raise _Malformed
            return
        table = _FlatbufferTable.root(stream[at : at + size])
        at += size
        body_length = table.number(3, "<q")
        header = table.table(2)
        if header is None or table.number(0, "<h") not in _VERSIONS or not 0 <= body_length <= len(stream) - at:
            raise _Malformed
        yield _Message(table.number(1, "<B"), header, stream[at : at + body_length])
        at += body_length


def _width(schema: _FlatbufferTable) -> int:
    """Numbers per row of a schema with one column of fixed-size lists of float64."""
    (column,) = schema.tables(1)
    kind = column.table(3)
    if schema.number(0, "<h") or column.number(2, "<B") != _FIXED_SIZE_LIST or kind is None:
        raise _Malformed  # the first number is the byte order: 0 is little-endian
    width = kind.number(0, "<i")
    (entries,) = column.tables(5)
    number = entries.table(3)
    if entries.number(2, "<B") != _FLOATING_POINT or number is None or number.number(0, "<h") != _DOUBLE:
        raise _Malformed
    if width < 1 or column.has(4) or entries.has(4) or any(entries.tables(5)):  # 4: a dictionary
        raise _Malformed
    return width


def _batch(message: _Message, width: int) -> Rows:
    """The rows of one batch, a view of the body."""
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
    offset, length = buffers[2]  # the other two are validity bitmaps, of lists and of numbers; nothing is null
    if length < 8 * rows * width:
        raise _Malformed
    return np.frombuffer(message.body, dtype="<f8", count=rows * width, offset=offset).reshape(rows, width)


class _FlatbufferTable:
    """A table of a flatbuffer; every access is checked against both ends of the buffer.

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
    def root(cls, data: memoryview) -> _FlatbufferTable:
        """The root table of a flatbuffer."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def _read(self, kind: str, at: int) -> int:
        if at < 0:  # struct would count from the end
            raise _Malformed
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int | None:
        offset = self._read("<H", self._vtable + 4 + 2 * field) if field < self._fields else 0
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Whether the table has this field."""
        return self._place(field) is not None

    def number(self, field: int, kind: str) -> int:
        """An integer field; 0 if it is absent, which is the default of all fields that are read here."""
        place = self._place(field)
        return 0 if place is None else self._read(kind, place)

    def table(self, field: int) -> _FlatbufferTable | None:
        """A nested table; None if it is absent."""
        place = self._place(field)
        return None if place is None else _FlatbufferTable(self._data, place + self._read("<I", place))

    def _vector(self, field: int, most: int) -> tuple[int, int]:
        """Position of the first entry of a vector, and the number of entries, at most ``most``."""
        place = self._place(field)
        if place is None:
            return 0, 0
        begin = place + self._read("<I", place)
        count = self._read("<I", begin)
        if count > most:
            raise _Malformed
        return begin + 4, count

    def tables(self, field: int) -> list[_FlatbufferTable]:
        """Tables in a vector of at most one, since the layout has one column."""
        begin, count = self._vector(field, 1)
        places = [begin + 4 * number for number in range(count)]
        return [_FlatbufferTable(self._data, place + self._read("<I", place)) for place in places]

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Pairs of integers in a vector of at most three, since the layout has three buffers."""
        begin, count = self._vector(field, 3)
        return [(self._read("<q", begin + 16 * k), self._read("<q", begin + 16 * k + 8)) for k in range(count)]


def wrong_rows(expected: int, came: int) -> RequestError:
    """Other rows than those of the cohort were sent."""
    return invalid_input(
        f"expected {expected} rows of one width, in the order of the cohort, got {came}; send all of them."
    )


class SpooledRows:
    """Row source for the parts of a request, one file each, read one part at a time.

    Parameters
    ----------
    files : sequence of paths
    rows : int
        Number of rows in all files.
    width : int
    """

    def __init__(self, files: Sequence[Path], rows: int, width: int) -> None:
        self._files, self._rows, self._width = list(files), rows, width

    @classmethod
    def from_files(cls, files: Sequence[Path], *, max_width: int, rows: int) -> SpooledRows:
        """Check that the files have ``rows`` rows together, all of one width.

        Raises
        ------
        RequestError
            If they have not.
        """
        shapes = [from_stream(file.read_bytes(), max_width=max_width).shape for file in files]
        if len({width for _, width in shapes}) != 1 or sum(n for n, _ in shapes) != rows:
            raise wrong_rows(rows, sum(n for n, _ in shapes))
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
            rows = from_stream(file.read_bytes(), max_width=self._width)
            yield np.arange(done, done + len(rows)), rows
            done += len(rows)


def measurement_to_json(found: Measurement, certificate: Certificate) -> bytes:
    """A measurement as JSON, from which the client makes the same one, to the last bit."""
    facts = {
        "people": found.people,
        "groups": found.groups,
        "rate_names": found.rate_names,
        "questions": {name: list(places) for name, places in found.questions.items()},
        "labelled": found.labelled,
        "noisy": _plain(found.noisy),
        "noisy_before": _plain(found.noisy_before),
        "noisy_scores": _plain(found.noisy_scores),
        "reference": found.reference,
        "confidence": found.confidence,
        "certificate": certificate.to_dict(),
        "threshold": found.threshold,
    }
    return json.dumps(facts).encode()


def measurement_from_json(body: bytes) -> Measurement:
    """Inverse of :func:`measurement_to_json`.

    Raises
    ------
    ValueError
        If the body is anything else.
    """
    try:
        facts: dict[str, Any] = json.loads(body)
        return Measurement(
            people=facts["people"],
            groups=tuple(facts["groups"]),
            rate_names=tuple(facts["rate_names"]),
            questions={name: tuple(places) for name, places in facts["questions"].items()},
            labelled=facts["labelled"],
            noisy=_from_plain(NoisyRates, facts["noisy"]),
            noisy_before=None if facts["noisy_before"] is None else _from_plain(NoisyRates, facts["noisy_before"]),
            noisy_scores=None if facts["noisy_scores"] is None else _scores(facts["noisy_scores"]),
            reference=facts["reference"],
            confidence=facts["confidence"],
            certificate=Certificate.from_dict(facts["certificate"]),
            threshold=facts["threshold"],
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise ValueError("expected a measurement from the custodian, got other data; is this its address?") from None


def _plain(value: Any) -> Any:
    """A dataclass of arrays as what JSON can hold."""
    if isinstance(value, ScoreFacts):
        value = replace(value, rest=value.rest[:0])  # one number per row, which only the query needs
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if value is None or isinstance(value, int) else float(value)


def _from_plain(kind: Any, facts: dict[str, Any]) -> Any:
    return kind(**{name: np.array(value) if isinstance(value, list) else value for name, value in facts.items()})


def _scores(facts: dict[str, Any]) -> NoisyScores:
    parts = {"cells": _from_plain(NoisyCells, facts["cells"]), "facts": _from_plain(ScoreFacts, facts["facts"])}
    found: NoisyScores = _from_plain(NoisyScores, facts | parts)
    return found


__all__ = [
    "ARROW",
    "SpooledRows",
    "from_stream",
    "measurement_from_json",
    "measurement_to_json",
    "to_stream",
    "wrong_rows",
]
