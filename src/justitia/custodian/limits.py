"""Request limits: size and time of bodies, memory, requests per minute, and answers that one client may wait for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.requests import ClientDisconnect, Request

from justitia.custodian.refusals import NO_MEMORY, QUEUE_FULL, TOO_MUCH_AT_ONCE, TOO_SLOW, Refused, too_large

#: Names whose rate is kept; beyond, the least recently used one is dropped.
_REMEMBERED = 10_000
#: Answers that are computed at once. Few, because each may need as much memory as its people have rows.
_THREADS = 4
#: Bytes that an entry of a list takes in Python beside its characters, with the pointer to it.
_NUMBER, _TEXT = 32, 80


async def read_body(request: Request, memory: Reserved, *, largest: int, seconds: float) -> bytearray:
    """The whole body of a request; its memory is reserved before the first byte is read.

    Raises
    ------
    Refused
        If it is compressed, too large, too slow, or more than there is memory for.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise Refused(415, "encoding", "expected a body that is not compressed, got another one; send it as it is.")
    announced = request.headers.get("content-length", "")
    length = int(announced) if announced.isdecimal() and len(announced) < 20 else None
    if length is not None and length > largest:
        raise too_large(f"a body of at most {largest} bytes")
    memory.take(largest if length is None else length)
    # In one piece where the length is known: one that grows leaves several times as much behind it.
    body, at = bytearray(length or 0), 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                if at + len(part) > largest:
                    raise too_large(f"a body of at most {largest} bytes")
                body[at : at + len(part)] = part
                at += len(part)
    except TimeoutError:
        raise TOO_SLOW from None
    except ClientDisconnect:
        raise TOO_SLOW from None
    del body[at:]
    return body


def json_memory(body: bytes | bytearray, *, texts: bool, most: int) -> int:
    """Bytes that a list in a body of JSON takes at most once it is decoded, from single characters of the body.

    Parameters
    ----------
    texts : bool
        Whether its entries are texts; numbers otherwise. The decoder stops at the first entry of another kind.
    most : int
        Entries that all lists of the body may have together.

    Raises
    ------
    Refused
        If there may be more: an entry is two bytes in the body, and many more in memory.
    """
    entries = body.count(b",") + 1
    if texts:
        entries = min(entries, body.count(b'"') // 2)
    if entries > most:
        raise too_large(f"lists of at most {most} entries together")
    if not texts:
        return _NUMBER * entries
    # Python takes four bytes for each character of a text that has a rare one.
    wide = not body.isascii() or b"\\u" in body
    return _TEXT * entries + (4 if wide else 1) * len(body)


class Memory:
    """Bytes of requests that are held at once, by each client and by all of them.

    Parameters
    ----------
    each, most : int
        Largest number of one client, and of all.
    """

    def __init__(self, *, each: int, most: int) -> None:
        self._each, self._most = each, most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, client: str) -> Reserved:
        """What one request of this client has reserved: nothing yet."""
        return Reserved(self, client)

    def take(self, client: str, own: int, more: int) -> None:
        """Reserve more for a request that has its own part already, or refuse."""
        if own + more > self._each:
            raise too_large(f"a request that needs at most {self._each} bytes of memory")
        with self._lock:
            if self._held[client] + more > self._each:
                raise TOO_MUCH_AT_ONCE
            if self._held.total() + more > self._most:
                raise NO_MEMORY
            self._held[client] += more

    def give_back(self, client: str, size: int) -> None:
        """Reserve it no longer."""
        with self._lock:
            self._held[client] -= size
            if not self._held[client]:
                del self._held[client]


class Reserved:
    """What one request has reserved, until the end of a ``with`` block."""

    def __init__(self, memory: Memory, client: str) -> None:
        self._memory, self._client, self._size = memory, client, 0

    def __enter__(self) -> Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.give_back(self._client, self._size)
        self._size = 0

    def take(self, more: int) -> None:
        """Reserve so much more, or refuse."""
        self._memory.take(self._client, self._size, more)
        self._size += more


class Rate:
    """So many requests per minute of each name, with as many at once."""

    def __init__(self, per_minute: int, clock: Any = time.monotonic) -> None:
        self._most, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Whether one more is within it; it then counts."""
        now = self._clock()
        left, before = self._left.pop(name, (self._most, now))
        left = min(self._most, left + (now - before) * self._most / 60)
        self._left[name] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return bool(left >= 1)


class Answers:
    """Threads of their own for answers, so that keys are checked and refusals are given whatever is computed.

    One answer of each client is computed at a time. So a client that asks a lot waits for itself, and others get one of
    the other threads.

    Parameters
    ----------
    most : int
        Requests of one client that wait or are answered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="answer")
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._lock = threading.Lock()

    async def get(self, client: str, job: Callable[[], Any]) -> Any:
        """The result of ``job``, after that of all earlier ones of this client.

        Raises
        ------
        Refused
            If too many of them wait.
        """
        future: Future[Any] = Future()
        with self._lock:
            queue = self._waiting.get(client)
            if queue is not None and len(queue) >= self._most - 1:
                raise QUEUE_FULL
            if queue is None:
                self._waiting[client] = deque()
                self._threads.submit(self._run, client, future, job)
            else:
                queue.append((future, job))
        return await asyncio.wrap_future(future)

    def _run(self, client: str, future: Future[Any], job: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(error)
        with self._lock:
            queue = self._waiting[client]
            if queue:
                self._threads.submit(self._run, client, *queue.popleft())
            else:
                del self._waiting[client]


__all__ = ["Answers", "Memory", "Rate", "Reserved", "json_memory", "read_body"]
