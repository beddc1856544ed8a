"""The journal of a ledger: one line per debit, read and appended by one holder at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from justitia.exceptions import LedgerError
from justitia.privacy.file_lock import LockedFile
from justitia.privacy.ledger_file import sync_folder

#: Seconds to wait for others, who hold a journal for as long as one debit takes.
TIMEOUT = 60.0


class Journal:
    """An open journal; nobody else reads or appends meanwhile."""

    def __init__(self, file: LockedFile) -> None:
        self._file = file
        self._content = file.read()
        self._end = self._content.rfind(b"\n") + 1  # half a line is a debit whose answer was never computed

    def lines(self, offset: int) -> list[bytes]:
        """Complete lines from this position on, each with its end."""
        if offset > self._end:
            raise LedgerError(
                f"The journal {str(self._file.path)!r} lacks debits that were made; restore its newest copy."
            )
        return self._content[offset : self._end].splitlines(keepends=True)

    def append(self, line: str) -> None:
        """Add a line, to the disk; half a line at the end makes room for it."""
        added, start = line.encode() + b"\n", self._end
        self._file.write(added, at=start)
        if start == 0:  # the name of a new file is durable once its folder is
            sync_folder(self._file.path.parent)
        self._content = self._content[:start] + added
        self._end += len(added)


@contextmanager
def opened_journal(path: Path, *, write: bool) -> Iterator[Journal]:
    """The journal, made if it is to be written; waits for others who hold it.

    Raises
    ------
    LedgerError
        If others hold it for long, or it cannot be locked.
    """
    flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
    try:
        file = LockedFile(path, flags, timeout=TIMEOUT)
    except TimeoutError:
        raise LedgerError(
            f"The journal {str(path)!r} was in use by other processes for {TIMEOUT:g} s; try again."
        ) from None
    with file:
        yield Journal(file)
