"""File locks that end with their process, and writes that are on the disk when they return.

A lock belongs to an open handle. However a process ends, the operating system closes its handles, so a lock never
outlives its process. Two handles in one process exclude each other like two processes do. A fork would share a handle
and its lock: the child's copies are closed as soon as it exists, and the parent's lock stays with the parent.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path
from typing import Self
from weakref import WeakSet

from justitia.exceptions import LedgerError

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # locked bytes cannot be read by others on Windows, so lock one that nobody reads

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


_PAUSE = 0.002  # seconds between two attempts


class LockedFile:
    """An open file with an exclusive lock.

    Parameters
    ----------
    path : path
        The file. If it is deleted or replaced on the way, the file that then has its name is locked.
    flags : int
        As for :func:`os.open`.
    timeout : float
        Seconds to wait while another handle has it.

    Raises
    ------
    TimeoutError
        If another handle held it all the time.
    LedgerError
        If files cannot be locked there.
    OSError
        If it cannot be opened.
    """

    def __init__(self, path: Path, flags: int, *, timeout: float) -> None:
        self.path = path
        self.handle: int | None = None
        self._locked = False
        deadline = time.monotonic() + timeout
        while not self._lock(flags | getattr(os, "O_BINARY", 0)):
            if time.monotonic() >= deadline:
                raise TimeoutError
            time.sleep(_PAUSE)

    def _lock(self, flags: int) -> bool:
        """Open and lock the file that has the name; False if another handle has it locked."""
        while True:
            self.handle = os.open(self.path, flags, 0o666)
            _OPEN.add(self)  # before it is locked: a thread may fork at any time
            try:
                free = self._locked = _try_lock(self.handle)
            except OSError as error:
                self.close()
                raise LedgerError(
                    f"The file {str(self.path)!r} cannot be locked here ({error.strerror}); choose a local folder."
                ) from None
            if free and self.is_current():
                return True
            self.close()
            if not free:
                return False

    def is_current(self) -> bool:
        """Whether the locked file is still the one that has this name."""
        try:
            return self.handle is not None and os.path.samestat(os.fstat(self.handle), self.path.stat())
        except FileNotFoundError:
            return False

    def read(self) -> bytes:
        """All of the file."""
        handle = self._held()
        os.lseek(handle, 0, os.SEEK_SET)
        parts = []
        while part := os.read(handle, 1 << 20):
            parts.append(part)
        return b"".join(parts)

    def write(self, content: bytes, *, at: int) -> None:
        """Cut the file off at this position, and put this there, to the disk."""
        handle = self._held()
        os.ftruncate(handle, at)
        os.lseek(handle, at, os.SEEK_SET)
        while content:
            content = content[os.write(handle, content) :]
        os.fsync(handle)

    def _held(self) -> int:
        if self.handle is None:
            raise OSError(f"The file {str(self.path)!r} is not held by this process.")
        return self.handle

    def close(self) -> None:
        """End the lock, also if a fork's child has not closed its copy of the handle yet."""
        if self._locked and self.handle is not None:
            _unlock(self.handle)
        self.forget()

    def forget(self) -> None:
        """Close the handle and leave the lock to whoever shares it: in a fork's child, the parent."""
        _OPEN.discard(self)
        handle, self.handle, self._locked = self.handle, None, False
        if handle is not None:
            os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_OPEN: WeakSet[LockedFile] = WeakSet()


def _close_in_child() -> None:
    for file in list(_OPEN):
        file.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def write_durably(path: Path, text: str) -> None:
    """A small file that is whole and on the disk when this returns."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The name of a new file is durable once its folder is."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
