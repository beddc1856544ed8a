"""Arrow streams as they are read: the same rows as pyarrow reads, and one sentence for everything else."""

import random
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mutated import messages, mutated, seeds, stream

from justitia.custodian.errors import RequestError
from justitia.custodian.wire import from_stream, to_stream

ROWS = np.random.default_rng(0).normal(size=(30, 3))
LISTS = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.reshape(-1)), 3)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:0], ROWS[:1], np.array([[np.nan, -np.inf, -0.0]])])
def test_rows_that_were_written_are_read_to_the_last_bit(rows: Any) -> None:
    assert from_stream(to_stream(rows), max_width=3).tobytes() == rows.tobytes()


def test_rows_of_other_writers_are_read_as_pyarrow_reads_them() -> None:
    kind = pa.schema([pa.field("x", LISTS.type, metadata={"a": "b"})], metadata={"pandas": "x" * 500})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind) as writer:
        for first, rows in ((0, 7), (7, 0), (7, 23)):
            writer.write_batch(pa.record_batch([LISTS.slice(first, rows)], schema=kind))
    body = bytes(sink.getvalue())
    read = pa.ipc.open_stream(body).read_all().column(0).combine_chunks().flatten().to_numpy().reshape(-1, 3)
    assert (from_stream(body, max_width=3) == read).all()
    assert (from_stream(bytearray(body[:-8]), max_width=3) == ROWS).all()  # a stream may end without its mark


def test_first_message_that_is_no_schema_is_refused_and_does_not_end_the_process() -> None:
    """In a process of its own: pyarrow's read_schema ends it.

    It does not check the table of a message whose type it does not know, and follows its offsets.
    """
    schema, batch, end = messages(to_stream(ROWS))
    strange = schema.replace(b"\x06\0\x05\0\x08\0", b"\x06\0\x01\0\x08\0")  # the type is where a 0 is
    beyond = strange.replace(b"\xcc\xff\xff\xff", b"\xcc\xff\xff\xe2")
    assert len({schema, strange, beyond}) == 3
    bodies = [
        beyond,
        strange + batch + end,
        batch + end,
        end,
        batch + schema + end,
        schema + schema + end,
        schema + batch + schema + end,
    ]
    script = (
        "import sys\nfrom justitia.custodian.errors import RequestError\n"
        "from justitia.custodian.wire import from_stream\n"
        "for line in sys.stdin:\n    try:\n        from_stream(bytes.fromhex(line), max_width=9)\n"
        "    except RequestError as refused:\n        print(refused.status)\n"
    )
    text = "\n".join(body.hex() for body in bodies)
    run = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["422"] * len(bodies)


def declared(body: bytes, value: int, new: int) -> list[bytes]:
    """The body with each place that holds one whole number holding another."""
    old, changed = struct.pack("<q", value), struct.pack("<q", new)
    places = [place for place in range(0, 600, 8) if body[place : place + 8] == old]
    return [body[:place] + changed + body[place + 8 :] for place in places]


@pytest.mark.parametrize("new", [-1, 2**31, 2**40, 2**62, 2**63 - 1])
def test_lengths_beyond_the_body_are_refused_before_anything_is_allocated(new: int) -> None:
    body, numbers = to_stream(ROWS), ROWS.size
    changed = [one for value in (len(ROWS), numbers, 8 * numbers) for one in declared(body, value, new)]
    assert len(changed) >= 4  # rows, lists, numbers, bytes
    before = memory()
    for one in changed:
        with pytest.raises(RequestError) as refused:
            from_stream(one, max_width=9)
        assert refused.value.status == 422
    assert memory() - before < 100


def memory() -> float:
    """Largest memory of this process so far, in megabytes."""
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(peak.split()[1]) / 1e3


def test_bodies_with_more_batches_or_bytes_than_rows_need_are_refused() -> None:
    with pytest.raises(RequestError) as refused:
        from_stream(stream(LISTS.slice(0, 0), batches=2000), max_width=3)
    assert refused.value.status == 413
    with pytest.raises(RequestError):
        from_stream(to_stream(ROWS) + b"more", max_width=3)


def test_mutated_bodies_are_rows_or_are_refused() -> None:
    chance, found, read = random.Random(1), seeds(), []
    for _ in range(3000):
        body = mutated(chance, found)
        with suppress(RequestError):
            read.append((from_stream(body, max_width=4096).nbytes, len(body)))
    assert len(read) > 100
    assert all(held <= came for held, came in read)
