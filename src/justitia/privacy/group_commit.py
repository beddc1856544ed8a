"""Group commit: several threads share one write to the disk, and each waits until its own part is there."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Pending(Generic[Item, Result]):
    """An item that waits for its commit."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.result: Result | None = None
        self.error: Exception | None = None


class GroupCommit(Generic[Item, Result]):
    """Commits items of several threads together: what arrives while a commit runs is part of the next one.

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
        self._changed = threading.Condition()
        self._waiting: list[_Pending[Item, Result]] = []
        self._busy = False

    def submit(self, item: Item) -> Result:
        """Commit an item, together with those that other threads have submitted; returns its result."""
        own: _Pending[Item, Result] = _Pending(item)
        with self._changed:
            self._waiting.append(own)
            while self._busy and not own.done:
                self._changed.wait()
            leads = not own.done
            if leads:
                self._busy = True
                batch, self._waiting = self._waiting, []
        if leads:
            self._run(batch)
        if own.error is not None:
            raise own.error
        return own.result  # type: ignore[return-value]  # the commit returned one for each item

    def _run(self, batch: list[_Pending[Item, Result]]) -> None:
        # For the others where this thread is interrupted: whether their items are on the disk is not known.
        error: Exception | None = OSError(errno.EINTR, "the commit was interrupted")
        try:
            results = self._commit([one.item for one in batch])
            for one, result in zip(batch, results, strict=True):
                one.result = result
            error = None
        except Exception as raised:  # noqa: BLE001 - raised by every thread whose item was in the batch
            error = raised
        finally:
            with self._changed:
                self._busy = False
                for one in batch:
                    one.done, one.error = True, error
                self._changed.notify_all()


__all__ = ["GroupCommit"]
