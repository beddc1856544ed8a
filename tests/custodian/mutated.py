"""Send mutated Arrow bodies to a custodian that runs: ``python mutated.py FOLDER COUNT``.

The service is a process of its own, as ``justitia custodian serve`` starts it. Bodies are streams of rows, and of what
is no rows, of which bytes, lengths or whole messages are others. Printed: replies by status, whether the service is up
afterwards and answers a good body, and the most memory that it had.
"""

import http.client
import json
import random
import struct
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa
from service_fixtures import IDS, KEYS, make_folder, serving

from justitia.custodian.wire import to_stream

ROWS = np.random.default_rng(0).normal(size=(12, 2))
EXTREME = (0, 1, 7, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
CONNECTIONS = 4


def stream(*columns: Any, batches: int = 1, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(list(columns), names=[f"c{k}" for k in range(len(columns))])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def seeds() -> list[bytes]:
    """Streams to begin with: most are good ones."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.reshape(-1)), 2)
    words = pa.array(["a", "b", None] * 4)
    good = [to_stream(ROWS), stream(rows), stream(rows, batches=3)]
    other = [
        stream(rows, words),
        stream(words.dictionary_encode()),
        stream(pa.array([[1.0], [2.0, 3.0]] * 6)),
        stream(pa.FixedSizeListArray.from_arrays(words, 2)),
        stream(rows, compression="zstd"),
        stream(pa.array([{"x": 1.0}] * 12)),
        stream(pa.array([None, 1.0] * 6)),
    ]
    return good * 5 + other


def messages(body: bytes) -> list[bytes]:
    """Whole messages of a good stream, its end last."""
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    found: list[bytes] = []
    while True:
        try:
            found.append(reader.read_next_message().serialize().to_pybytes())
        except StopIteration:
            return [*found, b"\xff\xff\xff\xff\0\0\0\0"]


def mutated(chance: random.Random, found: list[bytes]) -> bytes:
    body = bytearray(chance.choice(found))
    if chance.random() < 0.2:  # whole messages in another order, twice, or of another stream
        parts = messages(bytes(body)) + messages(chance.choice(found))
        body = bytearray(b"".join(chance.choice(parts) for _ in range(chance.randint(1, 5))))
    for _ in range(chance.choice([0, 1, 1, 2, 4, 16])):
        place = chance.randrange(min(len(body), 1200)) if body else 0
        kind = chance.random()
        if not body:
            break
        if kind < 0.4:
            body[place] = chance.randrange(256)
        elif kind < 0.8:
            size = chance.choice([2, 4, 8])
            value = (chance.choice(EXTREME) + chance.randint(-2, 2)) % 2 ** (8 * size)
            place -= place % size
            body[place : place + size] = struct.pack({2: "<H", 4: "<I", 8: "<Q"}[size], value)
        elif kind < 0.9:
            del body[place : place + chance.choice([1, 4, 8, 64, 10**6])]
        else:
            body[place:place] = chance.randbytes(chance.choice([1, 4, 8, 64]))
    return bytes(body)


class Sender(threading.Thread):
    """One connection, and every so-manieth body."""

    def __init__(self, url: str, cohort: str, first: int, count: int) -> None:
        super().__init__()
        self._place, self._cohort, self._first, self._count = urlsplit(url), cohort, first, count
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        chance, found = random.Random(self._first), seeds()
        connection = http.client.HTTPConnection(str(self._place.hostname), self._place.port, timeout=60)
        for number in range(self._first, self._count, CONNECTIONS):
            # Most are kept back for a second part; some are asked in full, and answered if they are good.
            parts = 1 if number % 50 == 0 else 2
            asked = {"request": f"r{number}" if parts == 1 else "r", "purpose": "fuzz", "bound": 1, "parts": parts}
            path = f"/v1/cohorts/{self._cohort}/sums?{urlencode(asked | {'noise_multiplier': 1e6})}"
            try:
                connection.request("POST", path, mutated(chance, found), {"Authorization": f"Bearer {KEYS['trainer']}"})
                reply = connection.getresponse()
                reply.read()
                self.statuses[reply.status] += 1
            except OSError:
                self.statuses[0] += 1
                connection.close()


def ask(url: str, path: str, body: bytes) -> tuple[int, bytes]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    connection.request("POST", path, body, {"Authorization": f"Bearer {KEYS['trainer']}"})
    reply = connection.getresponse()
    return reply.status, reply.read()


def fuzz(folder: Path, count: int) -> dict[str, Any]:
    with serving(make_folder(folder / "holder", epsilon=50.0)) as (url, process):
        _, made = ask(url, "/v1/populations/people/cohorts", json.dumps({"ids": IDS[: len(ROWS)]}).encode())
        cohort = json.loads(made)["cohort"]
        senders = [Sender(url, cohort, first, count) for first in range(CONNECTIONS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        good = {"request": "last", "purpose": "fuzz", "bound": 1, "noise_multiplier": 1e6}
        status, _ = ask(url, f"/v1/cohorts/{cohort}/sums?{urlencode(good)}", to_stream(ROWS))
        peak = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmHWM" in line)
    statuses: Counter[int] = sum((sender.statuses for sender in senders), Counter())
    told = {str(one): statuses[one] for one in sorted(statuses)}
    return {"bodies": statuses.total(), "statuses": told, "good": status, "peak_mb": int(peak.split()[1]) / 1e3}


if __name__ == "__main__":
    print(json.dumps(fuzz(Path(sys.argv[1]), int(sys.argv[2]))))
