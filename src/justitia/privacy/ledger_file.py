"""The file of a durable ledger: how it is made, opened and checked, and what is said when that fails.

The file is written with a rollback journal and ``synchronous=EXTRA``: a commit returns once the entry, and the removal
of the journal that could undo it, are on the disk. A write-ahead log would be faster, but then a copy of the one file
that people know of would lack the newest debits.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from justitia.exceptions import LedgerError
from justitia.privacy.accounting import cost_from_dict, cost_to_dict
from justitia.privacy.release import Release

#: Marks a SQLite file as a ledger: "JLed".
APPLICATION = 0x4A4C6564
#: Version of the tables below; a file of any other is refused.
SCHEMA = 2

#: A REPLACE deletes without asking the delete trigger, so an entry that is not the next one is refused as such.
_TABLES = (
    "CREATE TABLE ledger (identity TEXT NOT NULL, dataset TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,"
    " created TEXT NOT NULL, version TEXT NOT NULL)",
    "CREATE TABLE debits (number INTEGER PRIMARY KEY, purpose TEXT NOT NULL, cost TEXT NOT NULL,"
    " sensitivity REAL NOT NULL, unit TEXT NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, version TEXT NOT NULL,"
    " link TEXT NOT NULL)",
    "CREATE TRIGGER debits_stand BEFORE UPDATE ON debits BEGIN SELECT RAISE(ABORT, 'a debit stands'); END",
    "CREATE TRIGGER debits_stay BEFORE DELETE ON debits BEGIN SELECT RAISE(ABORT, 'a debit stands'); END",
    "CREATE TRIGGER debits_follow BEFORE INSERT ON debits WHEN NEW.number IS NOT"
    " (SELECT COALESCE(MAX(number) + 1, 0) FROM debits) BEGIN SELECT RAISE(ABORT, 'a debit stands'); END",
    "CREATE TRIGGER budget_stands BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'a budget stands'); END",
    "CREATE TRIGGER budget_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'a budget stands'); END",
    "CREATE TRIGGER budget_is_one BEFORE INSERT ON ledger WHEN (SELECT COUNT(*) FROM ledger) > 0"
    " BEGIN SELECT RAISE(ABORT, 'a budget stands'); END",
)

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "was in use by other processes for {timeout:g} s; try again, or pass a longer timeout.",
    sqlite3.SQLITE_LOCKED: "was in use by other processes for {timeout:g} s; try again, or pass a longer timeout.",
    sqlite3.SQLITE_READONLY: "cannot be written; allow writing to the file and to its folder.",
    sqlite3.SQLITE_PERM: "cannot be written; allow writing to the file and to its folder.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or written; allow writing to the file and to its folder.",
    sqlite3.SQLITE_FULL: "could not be written because the disk is full; make room and try again.",
    sqlite3.SQLITE_IOERR: "could not be written or read because the disk failed or is full; make room or repair it.",
    sqlite3.SQLITE_NOTADB: "is not a ledger; choose another file.",
}
_RESTORE = "restore its newest copy, and count every debit made since as spent."
_DAMAGED = f"is damaged; {_RESTORE}"


class Header(NamedTuple):
    """What a ledger file says about itself."""

    identity: str
    dataset: str
    epsilon: float
    delta: float
    created: str
    version: str


class Entry(NamedTuple):
    """One debit as the file holds it, without its link."""

    number: int
    purpose: str
    cost: str
    sensitivity: float
    unit: str
    time: str
    run: str
    version: str


def new_header(dataset: str, epsilon: float, delta: float) -> Header:
    """The header of a ledger that is made now."""
    return Header(uuid.uuid4().hex, dataset, epsilon, delta, _now(), _versions())


def entry_of(release: Release, number: int, run: str) -> Entry:
    """A debit that is made now."""
    cost, sensitivity = json.dumps(cost_to_dict(release.cost)), float(release.sensitivity)
    return Entry(number, release.purpose, cost, sensitivity, release.unit, _now(), run, _versions())


def release_of(entry: Entry, path: Path) -> Release:
    """What was debited."""
    try:
        return Release(entry.purpose, cost_from_dict(json.loads(entry.cost)), entry.sensitivity, entry.unit)
    except (ValueError, TypeError, AttributeError):
        raise LedgerError(f"The ledger {str(path)!r} holds a cost that this version cannot read; upgrade it.") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@cache
def _versions() -> str:
    try:
        own = metadata.version("justitia")
    except metadata.PackageNotFoundError:
        own = "unknown"
    return f"justitia {own}, python {platform.python_version()}, sqlite {sqlite3.sqlite_version}"


def link(previous: str, fields: Header | Entry) -> str:
    """Hash of these fields and of all that came before them; of the header, with nothing before, it is the first."""
    # SQLite gives back 0.0 for -0.0; all other numbers come back to the last bit.
    plain = [value + 0.0 if isinstance(value, float) else value for value in fields]
    return hashlib.sha256(f"{previous}\n{json.dumps(plain)}".encode()).hexdigest()


@contextmanager
def connection_to(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    """A connection for one operation, closed (and an open transaction undone) at its end; errors in our words."""
    try:
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=timeout, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # a viewer may have given it a write-ahead log
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache
            yield connection
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code is detail
        sentence = _SENTENCES.get(primary, _DAMAGED)
        if primary == sqlite3.SQLITE_CANTOPEN and not path.exists():
            sentence = f"is gone; {_RESTORE}"
        raise LedgerError(f"The ledger {str(path)!r} {sentence.format(timeout=timeout)}") from error


def make_file(path: Path, header: Header, *, timeout: float) -> None:
    """Make the file under another name and give it its own in one step: no ledger is ever half made."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.touch(mode=0o644)  # which says why where it cannot
        with connection_to(draft, timeout) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", header)
            connection.execute("COMMIT")
        os.link(draft, path)
    except FileExistsError:
        return  # another process made it first
    except OSError as error:
        raise LedgerError(
            f"The ledger {str(path)!r} cannot be made here: {error.strerror}; choose another place."
        ) from None
    finally:
        for left in (draft, journal_of(draft)):
            left.unlink(missing_ok=True)
    sync_folder(path.parent)


def check_file(path: Path) -> None:
    """Refuse what cannot be a ledger before SQLite touches it."""
    if not path.exists():
        raise LedgerError(f"There is no ledger {str(path)!r}; give a dataset and a budget to make one.")
    if not path.is_file():
        raise LedgerError(f"Expected {str(path)!r} to be a file, got a folder or a device; choose a file in it.")
    if path.stat().st_size == 0:
        raise LedgerError(f"The ledger {str(path)!r} is empty, and none is ever made so; restore its newest copy.")


def read_header(connection: sqlite3.Connection, path: Path) -> Header:
    """What the file says about itself; refuses a database of something else and tables of another version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise LedgerError(f"The file {str(path)!r} is a database but not a ledger; choose another file.")
    if version < SCHEMA:
        raise LedgerError(
            f"The ledger {str(path)!r} has schema {version} of an older version of justitia, and this one reads "
            f"{SCHEMA}; keep it as a record, and make a new file whose budget is what remains of it."
        )
    if version > SCHEMA:
        raise LedgerError(
            f"The ledger {str(path)!r} has schema {version} and this version of justitia reads {SCHEMA}; upgrade it."
        )
    own = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    if sorted(sql for (sql,) in connection.execute(own)) != sorted(_TABLES):
        raise LedgerError(f"The ledger {str(path)!r} has tables or triggers that were changed; {_RESTORE}")
    rows = connection.execute("SELECT * FROM ledger").fetchall()
    if len(rows) != 1:
        raise LedgerError(f"The ledger {str(path)!r} {_DAMAGED}")
    return Header(*rows[0])


def read_entries(connection: sqlite3.Connection, path: Path, links: Sequence[str]) -> list[tuple[Entry, str]]:
    """The debits after those whose links are known (the first link is that of the header), each with its own.

    Raises
    ------
    LedgerError
        If debits are missing, or one does not follow from what came before it.
    """
    known = len(links) - 1
    first = max(known - 1, 0)  # the last known one too: if any before it was changed, its link is another
    # Nothing before it is looked at again, however long the file: who knows a debit counts it, whoever deletes it.
    rows = connection.execute("SELECT * FROM debits WHERE number >= ? ORDER BY number", (first,)).fetchall()
    held = first + len(rows)
    if held < known or [row[0] for row in rows] != list(range(first, held)):
        raise LedgerError(f"The ledger {str(path)!r} lacks debits that were made; {_RESTORE}")
    found, previous = [], links[first]
    for *fields, own_link in rows:
        entry = Entry(*fields)
        expected = link(previous, entry)
        if own_link != expected or (entry.number < known and own_link != links[known]):
            raise LedgerError(
                f"The ledger {str(path)!r} was changed by other means than a debit, at or before entry {entry.number}; "
                f"{_RESTORE}"
            )
        found.append((entry, own_link))
        previous = own_link
    return found[known - first :]


def insert_entry(connection: sqlite3.Connection, entry: Entry, own_link: str) -> None:
    """Add a debit, which counts once the transaction is committed."""
    connection.execute("INSERT INTO debits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*entry, own_link))


def check_writable(connection: sqlite3.Connection) -> None:
    """Write, and undo it: raises now what the first debit would raise."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE trial (number INTEGER)")
    connection.execute("ROLLBACK")


def check_sound(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose pages do not fit together."""
    if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
        raise LedgerError(f"The ledger {str(path)!r} {_DAMAGED}")


def journal_of(path: Path) -> Path:
    """Where SQLite keeps what would undo an unfinished transaction."""
    return path.with_name(path.name + "-journal")


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
