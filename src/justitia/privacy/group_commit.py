"""Group commit: several threads share one write to the disk, and each waits until its own part is there."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Pending(Generic[Item, Result]):
    """An item that waits for its commit, and the lock that its thread waits for."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = self.leads = False
        self.result: Result | None = None
        self.error: Exception | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit(Generic[Item, Result]):
    """Commits items of several threads together: what arrives while a commit runs is part of the next one.

    A thread is woken once, when its item is on the disk or when it is to commit those that wait: to wake all of them
    after every commit takes longer than the commit.

    Parameters
    ----------
    commit : callable
        Gets a list of items, makes them durable, and returns one result for each. One thread at a time calls it.

    Guarantee
    ---------
    * :meth:`submit` returns after the commit of its item has returned, and raises if that commit raised.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: list[_Pending[Item, Result]] = []
        self._busy = False

    def submit(self, item: Item) -> Result:
        """Commit an item, together with those that other threads have submitted; returns its result."""
        own: _Pending[Item, Result] = _Pending(item)
        with self._lock:
            self._waiting.append(own)
            own.leads, self._busy = not self._busy, True
        try:
            if not own.leads:
                own.wake.acquire()
            if not own.done:
                self._lead(own)
        except BaseException:  # this thread is interrupted: no other may wait for it
            with self._lock:
                if own in self._waiting:
                    self._waiting.remove(own)
                if own.leads and not own.done:
                    self._pass_on()
            raise
        if own.error is not None:
            raise own.error
        return own.result  # type: ignore[return-value]  # the commit returned one for each item

    def _lead(self, own: _Pending[Item, Result]) -> None:
        """Commit all items that wait, and let the thread of a later one lead."""
        # For the others where this thread is interrupted: whether their items are on the disk is not known.
        error: Exception | None = OSError(errno.EINTR, "the commit was interrupted")
        batch: list[_Pending[Item, Result]] = []
        try:
            with self._lock:
                batch, self._waiting = self._waiting, []
            results = self._commit([one.item for one in batch])
            for one, result in zip(batch, results, strict=True):
                one.result = result
            error = None
        except Exception as raised:  # noqa: BLE001 - raised by every thread whose item was in the batch
            error = raised
        finally:
            with self._lock:
                own.leads = False
                for one in batch:
                    one.done, one.error = True, error
                self._pass_on()
            for one in batch:
                one.wake.release()

    def _pass_on(self) -> None:
        """Wake the first thread that waits to commit; the caller holds the lock."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._waiting[0].leads = True
            self._waiting[0].wake.release()


__all__ = ["GroupCommit"]
