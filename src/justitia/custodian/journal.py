"""The audit log: who asked what, when, why, and what came of it; JSON lines, only ever appended.

A request with a valid key has two lines of the same number: one when it begins, before anything that it holds is read,
and one when it ends. Numbers begin anew with the service.

It holds no key, no id of a person and nothing made of an attribute.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from justitia.custodian.records import now
from justitia.custodian.settings import private_file

FILE = "audit.jsonl"
_LONGEST = 200


class AuditLog:
    """The file, and counts of what happened since the service started."""

    def __init__(self, folder: Path) -> None:
        self.path = private_file(folder / FILE)
        self.counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def begin(self, what: str, **facts: Any) -> None:
        """The line of a request that begins; where none of the same number follows, the process ended meanwhile."""
        self._append({"time": now(), "what": what, "begun": True, **facts}, durable=False)

    def write(self, what: str, status: int, **facts: Any) -> None:
        """The line of a request that ends, on the disk when this returns."""
        self.count(what, status)
        self._append({"time": now(), "what": what, "status": status, **facts}, durable=True)

    def count(self, what: str, status: int) -> None:
        """Count a request that gets no line."""
        with self._lock:
            self.counts[what, status] += 1

    def _append(self, facts: dict[str, Any], *, durable: bool) -> None:
        shown = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in facts.items()}
        line = (json.dumps(shown) + "\n").encode()
        with self._lock:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND)
            try:
                if _is_cut(handle):
                    line = b"\n" + line
                if os.write(handle, line) < len(line):
                    raise OSError(errno.ENOSPC, "the disk is full")
                if durable:  # a line that a killed process has written stays in any case
                    os.fsync(handle)
            finally:
                os.close(handle)

    def last(self, number: int = 200) -> list[dict[str, Any]]:
        """The newest lines, newest first."""
        with self.path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - number * 1024))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [entry for line in reversed(lines[-number:]) if (entry := _entry(line)) is not None]


def _is_cut(handle: int) -> bool:
    """Whether the last line has no end: the disk was full, or the power failed."""
    size = os.fstat(handle).st_size
    return size > 0 and os.pread(handle, 1, size - 1) != b"\n"


def _entry(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


__all__ = ["AuditLog"]
