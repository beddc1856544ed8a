"""Resource limits: body size and time, memory, requests per minute, queued answers, and open connections.

Whatever one client, or a stranger, sends or withholds, the others are still answered.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from justitia.custodian.errors import BODY_TIMEOUT, CLIENT_MEMORY_FULL, MEMORY_FULL, QUEUE_FULL, RequestError, too_large

#: Names whose rate is remembered; beyond, the least recently used one is dropped.
_MAX_NAMES = 10_000
#: Answers that are computed at once; few, because each may need as much memory as its cohort has rows.
_THREADS = 4
#: The same, of small requests, which mostly wait for the disk together.
_THREADS_OF_SMALL = 16
#: Bytes that a number or a text takes in a Python list, beside its characters and with the pointer to it.
_NUMBER_BYTES, _TEXT_BYTES = 32, 80


async def read_body(request: Request, memory: MemoryReservation, *, max_bytes: int, seconds: float) -> bytearray:
    """The whole body of a request; its memory is reserved before the first byte is read.

    Raises
    ------
    RequestError
        If the body is compressed, too large, too slow, or more than there is memory for.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise RequestError(
            415, "encoding", "expected a body that is not compressed, got another one; send it as it is."
        )
    announced = request.headers.get("content-length", "")
    length = int(announced) if announced.isdecimal() and len(announced) < 20 else None
    if length is not None and length > max_bytes:
        raise too_large(f"a body of at most {max_bytes} bytes")
    memory.take(max_bytes if length is None else length)
    # Allocated in one piece where the length is known: a bytearray that grows leaves several times its size behind.
    body, at = bytearray(length or 0), 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                if at + len(part) > max_bytes:
                    raise too_large(f"a body of at most {max_bytes} bytes")
                body[at : at + len(part)] = part
                at += len(part)
    except (TimeoutError, ClientDisconnect):
        raise BODY_TIMEOUT from None
    del body[at:]
    return body


def json_memory(body: bytes | bytearray, *, texts: bool, max_entries: int) -> int:
    """Upper bound on the bytes that the lists of a JSON body take once it is decoded, from counts of its characters.

    Parameters
    ----------
    texts : bool
        Whether entries are texts; numbers otherwise. The decoder stops at the first entry of another kind.
    max_entries : int
        Limit on the entries of all lists together.

    Raises
    ------
    RequestError
        If there may be more entries: one is two bytes in the body, and many more in memory.
    """
    entries = body.count(b",") + 1
    if texts:
        entries = min(entries, body.count(b'"') // 2)
    if entries > max_entries:
        raise too_large(f"lists of at most {max_entries} entries together")
    if not texts:
        return _NUMBER_BYTES * entries
    # Python takes four bytes for each character of a text that has a rare one.
    wide = not body.isascii() or b"\\u" in body
    return _TEXT_BYTES * entries + (4 if wide else 1) * len(body)


class MemoryLimiter:
    """Limit on the bytes that requests hold at once.

    Parameters
    ----------
    per_client, total : int
        Maximum bytes of one client, and of all.
    """

    def __init__(self, *, per_client: int, total: int) -> None:
        self._per_client, self._total = per_client, total
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reservation(self, client: str) -> MemoryReservation:
        """An empty reservation for one request of this client."""
        return MemoryReservation(self, client)

    def take(self, client: str, own: int, more: int) -> None:
        """Reserve more bytes for a request that has ``own`` bytes already, or raise :class:`RequestError`."""
        if own + more > self._per_client:
            raise too_large(f"a request that needs at most {self._per_client} bytes of memory")
        with self._lock:
            if self._held[client] + more > self._per_client:
                raise CLIENT_MEMORY_FULL
            if self._held.total() + more > self._total:
                raise MEMORY_FULL
            self._held[client] += more

    def release(self, client: str, size: int) -> None:
        """Give reserved bytes back."""
        with self._lock:
            self._held[client] -= size
            if not self._held[client]:
                del self._held[client]


class MemoryReservation:
    """Bytes that one request has reserved, until the end of a ``with`` block."""

    def __init__(self, limiter: MemoryLimiter, client: str) -> None:
        self._limiter, self._client, self._size = limiter, client, 0

    def __enter__(self) -> MemoryReservation:
        return self

    def __exit__(self, *_: object) -> None:
        self._limiter.release(self._client, self._size)
        self._size = 0

    def take(self, more: int) -> None:
        """Reserve more bytes, or raise :class:`RequestError`."""
        self._limiter.take(self._client, self._size, more)
        self._size += more


class RateLimiter:
    """Limit on requests per minute of each name (a token bucket that holds one minute's worth)."""

    def __init__(self, per_minute: int, clock: Any = time.monotonic) -> None:
        self._capacity, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, name: str) -> bool:
        """Whether one more request is within the limit; it then counts."""
        now = self._clock()
        with self._lock:
            left, before = self._left.pop(name, (self._capacity, now))
            left = min(self._capacity, left + (now - before) * self._capacity / 60)
            self._left[name] = (left - 1 if left >= 1 else left, now)
            while len(self._left) > _MAX_NAMES:
                self._left.popitem(last=False)
        return bool(left >= 1)


class AnswerQueue:
    """Thread pool that computes answers, apart from the threads that check keys and write the log.

    One answer of each client is computed at a time. So a client with many requests waits for itself, and others get one
    of the other threads.

    Parameters
    ----------
    per_client : int
        Maximum number of requests of one client that wait or are being answered.
    """

    def __init__(self, per_client: int) -> None:
        self._per_client = per_client
        self._threads = {
            small: ThreadPoolExecutor(number, thread_name_prefix="answer")
            for small, number in ((False, _THREADS), (True, _THREADS_OF_SMALL))
        }
        self._waiting: dict[str, deque[tuple[bool, Future[Any], Callable[[], Any]]]] = {}
        self._lock = threading.Lock()

    async def run(self, client: str, job: Callable[[], Any], *, small: bool = False) -> Any:
        """The result of ``job``, computed after all earlier jobs of this client.

        Parameters
        ----------
        client : str
        job : callable
        small : bool
            Whether the job needs little memory; more of those are computed at once.

        Raises
        ------
        RequestError
            If too many jobs of this client wait.
        """
        future: Future[Any] = Future()
        with self._lock:
            queue = self._waiting.get(client)
            if queue is not None and len(queue) >= self._per_client - 1:
                raise QUEUE_FULL
            if queue is None:
                self._waiting[client] = deque()
                self._threads[small].submit(self._work, client, future, job)
            else:
                queue.append((small, future, job))
        return await asyncio.wrap_future(future)

    def _work(self, client: str, future: Future[Any], job: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised in the coroutine that awaits the result
            future.set_exception(error)
        with self._lock:
            queue = self._waiting[client]
            if queue:
                small, following, its_job = queue.popleft()
                self._threads[small].submit(self._work, client, following, its_job)
            else:
                del self._waiting[client]


# -- connections

#: Seconds from the connection to the last byte of the headers, TLS handshake included.
HEADER_SECONDS = 5.0
#: Seconds that a connection stays open after a response: for the rest of it to arrive, and for another request.
IDLE_SECONDS = 60.0
#: Seconds from the headers of a request to the end of its response: its body, its turn in the queue, its answer.
REQUEST_SECONDS = 900.0


class ConnectionLimiter:
    """Limit on open connections, with a deadline for each.

    A connection *waits* from when it is accepted until the headers of a request are complete, and again once the
    response is sent. Where there are too many connections, the oldest one that waits is closed. So an attacker who
    opens hundreds of connections and sends half a header on each pushes out their own, and a client that sends its
    request at once is answered.

    Parameters
    ----------
    per_address, total : int
        Maximum number of connections of one address, and of all.
    """

    def __init__(self, *, per_address: int, total: int) -> None:
        self._per_address, self._total = per_address, total
        self._open: dict[int, LimitedConnection] = {}
        self._waiting: dict[int, LimitedConnection] = {}  # oldest first
        self._count: Counter[str] = Counter()

    def admit(self, accepted: socket.socket, address: str) -> LimitedConnection | None:
        """Take a connection in; None, and it is closed, where the limit is reached and no other connection waits."""
        fits = self._make_room(self._count[address] < self._per_address, address)
        if not (fits and self._make_room(len(self._open) < self._total, None)):
            accepted.close()
            return None
        connection = LimitedConnection(accepted, address, self)
        self._open[connection.number] = connection
        self._count[address] += 1
        self._wait(connection, HEADER_SECONDS)
        return connection

    def _make_room(self, enough: bool, address: str | None) -> bool:
        """Whether there is room, if need be after the oldest waiting connection (of this address) is closed."""
        if enough:
            return True
        oldest = next((one for one in self._waiting.values() if address in {None, one.address}), None)
        if oldest is not None:
            oldest.cut()
        return oldest is not None

    def _wait(self, connection: LimitedConnection, seconds: float) -> None:
        self._waiting.pop(connection.number, None)
        self._waiting[connection.number] = connection
        connection.set_deadline(seconds)

    def headers_complete(self, number: int) -> None:
        """The connection with this file descriptor has sent the headers of a request."""
        self._waiting.pop(number, None)
        if number in self._open:
            self._open[number].set_deadline(REQUEST_SECONDS)

    def response_complete(self, number: int) -> None:
        """Its response is on the way; so may be the next request."""
        if number in self._open:
            self._wait(self._open[number], IDLE_SECONDS)

    def closed(self, connection: LimitedConnection) -> None:
        """The connection counts no longer."""
        self._waiting.pop(connection.number, None)
        if self._open.pop(connection.number, None) is not None:
            self._count[connection.address] -= 1
            if not self._count[connection.address]:
                del self._count[connection.address]


class LimitedConnection(socket.socket):
    """A socket with a deadline that notifies its limiter when it is closed."""

    def __init__(self, accepted: socket.socket, address: str, limiter: ConnectionLimiter) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.address, self.number, self._limiter = address, self.fileno(), limiter
        self._deadline: asyncio.TimerHandle | None = None

    def set_deadline(self, seconds: float) -> None:
        """Cut the connection after this many seconds; replaces an earlier deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut)

    def cut(self) -> None:
        """End it for the other side; the event loop reads that, and closes it."""
        self._limiter.closed(self)
        with suppress(OSError):  # the other side was first
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._limiter.closed(self)
        super().close()


__all__ = [
    "AnswerQueue",
    "ConnectionLimiter",
    "LimitedConnection",
    "MemoryLimiter",
    "MemoryReservation",
    "RateLimiter",
    "json_memory",
    "read_body",
]
