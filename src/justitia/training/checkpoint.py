"""Checkpoint and resume that neither replays noise nor loses a debit.

A checkpoint is a folder with two files. ``ledger.jsonl`` receives every debit before its answer is computed;
``state.npz`` is written after every round. If the run debits a durable ledger, ``run.txt`` stands in the place of the
first: the name under which that ledger holds its debits. A run that stops in between has paid for answers that are
gone: when it is resumed they stay paid, are not asked again, and the round goes on without them.

One run at a time: for as long as it works, a run holds ``lock``, which says whose the folder is. Two runs would each
pay for half of the answers, and each would certify what it paid.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.file_lock import LockedFile, sync_folder, write_durably
from justitia.privacy.ledger import BudgetExceeded, LedgerError, PrivacyLedger
from justitia.training import state_file

Array = NDArray[Any]

#: Holds the debits of a run that has no durable ledger.
JOURNAL = "ledger.jsonl"
#: Holds the name of a run whose debits are in a durable ledger.
RUN_FILE = "run.txt"
#: Is there, and locked, while a run works in the folder.
LOCK_FILE = "lock"
#: Bytes that a state takes at most: of weights and answers, and of each row.
ROOM, ROOM_PER_ROW = 2**20, 16
_FIRST_WORDS = b'{"process": '


class RunFolder:
    """A checkpoint's folder in the hands of one run; :func:`open_folder` makes it."""

    def __init__(self, path: Path, lock: LockedFile) -> None:
        self.path = path
        self._lock = lock

    @property
    def journal(self) -> Path:
        """Where a run without a durable ledger keeps its debits."""
        return self.path / JOURNAL

    def run_name(self) -> str:
        """The name of the run in this folder; a fresh one if there is none."""
        file = self.path / RUN_FILE
        return file.read_text(encoding="utf-8").strip() if file.exists() else uuid.uuid4().hex

    def ledger_of_run(self, given: PrivacyLedger | None) -> PrivacyLedger | None:
        """A durable ledger under the name of this run; None if the folder keeps the run's own.

        Raises
        ------
        ValueError
            If the run in this folder was begun with the other kind, or the given ledger is one in memory.
        """
        if isinstance(given, DurableLedger):
            if self.journal.exists():
                raise ValueError(
                    f"the checkpoint in {str(self.path)!r} keeps its own ledger; resume it without ledger."
                )
            return given.for_run(self.run_name())
        if given is not None:
            raise ValueError(
                "a checkpoint keeps its own ledger; pass either checkpoint or ledger, not both, or a DurableLedger."
            )
        if (self.path / RUN_FILE).exists():
            raise ValueError(
                f"the run in {str(self.path)!r} debits a DurableLedger; pass that one as ledger to resume it."
            )
        return None

    def check(self) -> None:
        """Refuse to go on if the folder is no longer this process's: after a fork, or without its lock."""
        if not self._lock.is_current():
            raise LedgerError(
                f"The run in {str(self.path)!r} no longer holds the folder (its lock was deleted, or the process "
                "forked); resume it in one process."
            )


@contextmanager
def open_folder(path: Path | str | None) -> Iterator[RunFolder | None]:
    """The folder for one run at a time, made if needed; a folder that stays empty is not left behind.

    Raises
    ------
    LedgerError
        If another run works in it, or the file of the lock's name was not made by this package.
    """
    if path is None:
        yield None
        return
    folder = Path(path).absolute()
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    lock = _lock(folder)
    if not _is_ours(lock.read()):
        lock.close()
        raise LedgerError(
            f"The folder {str(folder)!r} holds a file {LOCK_FILE!r} that is not a checkpoint's; choose another folder."
        )
    try:
        lock.write(_owner().encode(), at=0)
        yield RunFolder(folder, lock)
    finally:
        _release(lock, missing)


def _release(lock: LockedFile, made: list[Path]) -> None:
    """End the lock without a trace; a fork's child, or whoever lost the file, leaves it to its holder."""
    if not lock.is_current():
        lock.close()
        return
    with suppress(OSError):
        if os.name == "posix":
            lock.path.unlink()  # while it is held: nobody can have locked another file of this name yet
        lock.close()
        if os.name != "posix":  # which cannot delete an open file
            lock.path.unlink()
        for place in made:
            place.rmdir()
    lock.close()


def _lock(folder: Path) -> LockedFile:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return LockedFile(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), timeout=0)
        except FileNotFoundError:
            continue  # another run has just ended and left nothing
        except TimeoutError:
            raise LedgerError(
                f"The checkpoint in {str(folder)!r} is in use by {_holder(folder)}; wait for its end, or choose "
                "another folder."
            ) from None


def _owner() -> str:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "started": started})


def _is_ours(content: bytes) -> bool:
    """Whether a lock may be written and removed: it is new, or of a run that was killed."""
    return not content or content.startswith(_FIRST_WORDS)


def _holder(folder: Path) -> str:
    """Who holds the lock, by the holder's own words; a run that has just begun may not have written them yet."""
    try:
        facts = json.loads((folder / LOCK_FILE).read_text(encoding="utf-8"))
        return f"process {facts['process']} on {facts['host']!r} since {facts['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


@dataclass(frozen=True, eq=False)
class SavedRun:
    """What an interrupted run has left.

    Attributes
    ----------
    state : dict
        As the run saved it.
    lam : ndarray
        Multipliers.
    position : int
        In the schedule, to go on from.
    lost : int
        Answers that were paid for and not saved: they are not queried again.
    """

    state: dict[str, Any]
    lam: Array
    position: int
    lost: int


class Checkpoint:
    """A folder that an interrupted ``fit`` can be resumed from.

    Parameters
    ----------
    folder : RunFolder
        Held by this run, so that what is read here stays true.
    fingerprint : str
        Hash of the public inputs; a folder of another run is refused.
    ledger : PrivacyLedger
        The run's ledger: its journal is this folder's ``ledger.jsonl``, or it is a durable one and the folder keeps
        the name of the run.
    rows : int
        In memory, for which there has to be room before anything is asked.
    """

    def __init__(self, folder: RunFolder, *, fingerprint: str, ledger: PrivacyLedger, rows: int = 0) -> None:
        folder.check()
        self._held = folder
        self.folder = folder.path
        self.ledger = ledger
        self.fingerprint = fingerprint
        self._state = self._read()
        self._spent = 0  # releases when the state was read
        if self._state is None:
            self._check_room(ROOM + ROOM_PER_ROW * rows)
        if isinstance(ledger, DurableLedger) and not (self.folder / RUN_FILE).exists():
            write_durably(self.folder / RUN_FILE, ledger.run)

    def _check_room(self, size: int) -> None:
        """Refuse a folder on a full disk: answers that are paid for could not be saved there."""
        temporary = self.folder / "state.tmp"
        temporary.unlink(missing_ok=True)
        try:
            with temporary.open("xb") as file:
                getattr(os, "posix_fallocate", lambda *_: None)(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise ValueError(
                    f"expected room for {size / 2**20:.0f} MB in {str(self.folder)!r}, got less; make room, or choose "
                    "another folder for the checkpoint."
                ) from None
        finally:
            temporary.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / "state.npz"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = state_file.from_bytes(path.read_bytes())
            known = state["fingerprint"] == self.fingerprint
        except Exception:  # noqa: BLE001 - a damaged file may raise anything
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} is damaged; choose another folder, or delete this one."
            ) from None
        if not known:
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} belongs to a run with other data or settings; "
                "choose another folder, or delete this one."
            )
        return state

    def restore(self) -> SavedRun | None:
        """The state that an earlier run has saved; None if there is none, or an error if a debit was lost with it."""
        self._spent = spent = len(self.ledger.own_releases())
        if self._state is None:
            if spent:
                raise BudgetExceeded(
                    f"The run in {str(self.folder)!r} stopped before its first answer was saved, and the debit stands; "
                    "start again in another folder with a new budget."
                )
            return None
        state = self._state
        if spent < state["releases"]:
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} records debits that its ledger does not hold; "
                "resume it with the ledger it was started with."
            )
        return SavedRun(state["state"], state["lam"], state["position"], spent - state["releases"])

    def save(self, state: dict[str, Any], lam: Array, position: int) -> None:
        """Write the state of a run atomically, and to the disk."""
        self._held.check()
        spent = len(self.ledger.own_releases())
        if self._state is not None and self._state["position"] == position and spent == self._spent:
            return  # just restored: to save it again would forget how many of the debits so far have lost their answer
        saved = {
            "fingerprint": self.fingerprint,
            "releases": spent,
            "position": position,
            "lam": lam,
            "state": state,
        }
        temporary = self.folder / "state.tmp"
        temporary.unlink(missing_ok=True)  # of a run that was killed
        with temporary.open("xb") as file:  # never through a link
            file.write(state_file.to_bytes(saved))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / "state.npz")
        sync_folder(self.folder)
