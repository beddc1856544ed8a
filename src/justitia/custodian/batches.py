"""One thread for short work of many requests: what waits together is done together, and returned in one step.

A thread for each request would have to be woken, and would have to wake the event loop, once for each of them. Where
many requests come at once, that takes longer than their work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
#: Seconds without work after which the thread ends; the next item starts another one.
IDLE = 5.0


class _Waiting(NamedTuple):
    item: Any
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Batches(Generic[Item]):
    """A thread that works on all items that wait.

    Parameters
    ----------
    work : callable
        Gets the items in the order in which they came, and returns for each its result, or the error to raise. What it
        raises itself is raised for all of them.
    name : str
        Of the thread.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Any]], name: str) -> None:
        self._work, self._name = work, name
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._running = False
        self._lock = threading.Lock()

    async def run(self, item: Item) -> Any:
        """The result of the work on this item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(_Waiting(item, future, loop))
        if not self._running:
            self._start()
        return await future

    def _start(self) -> None:
        with self._lock:
            if not self._running:
                self._running = True
                threading.Thread(target=self._serve, daemon=True, name=self._name).start()

    def _serve(self) -> None:
        while True:
            try:
                batch = [self._queue.get(timeout=IDLE)]
            except Empty:
                with self._lock:
                    self._running = False
                if self._queue.empty():
                    return
                self._start()  # an item came meanwhile, and its request may have seen this thread running
                return
            with suppress(Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            self._answer(batch)

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            results = self._work([one.item for one in batch])
        except Exception as error:  # noqa: BLE001 - raised in the coroutines that wait
            results = [error] * len(batch)
        pairs = list(zip(batch, results, strict=True))
        for loop in {one.loop for one in batch}:
            with suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_deliver, [(one.future, found) for one, found in pairs if one.loop is loop])


def _deliver(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, found in results:
        if future.done():  # its request was cancelled
            continue
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)


__all__ = ["Batches"]
