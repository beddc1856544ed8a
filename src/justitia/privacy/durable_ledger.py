"""Durable privacy ledger: a budget that outlives the process, in one SQLite file per dataset.

Each operation opens a connection of its own, unless :meth:`DurableLedger.keep_open` was called; none is used after a
fork, and no lock is held while noise is drawn. Debits of several threads share one commit. The file is written with a
rollback journal and ``synchronous=EXTRA``: a commit returns once the entry, and the removal of the journal that could
undo it, are on the disk. A write-ahead log would be faster, but then a copy of the one file that users know of would
lack the newest debits.

The entries form a hash chain. A :class:`Head`, or a receipt made of it, that is kept elsewhere shows later whether the
file was replaced by an old copy or rewritten.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import Cost, cost_from_dict, cost_to_dict, epsilon_spent
from justitia.privacy.certificate import json_ready, rounded_up
from justitia.privacy.file_lock import sync_folder
from justitia.privacy.group_commit import GroupCommit
from justitia.privacy.ledger import PrivacyLedger, Release, accountant, summary

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
    """Facts of a ledger file, fixed when it is made."""

    identity: str
    dataset: str
    epsilon: float
    delta: float
    created: str
    version: str


class Entry(NamedTuple):
    """One debit as it is stored in the file, without its link."""

    number: int
    purpose: str
    cost: str
    sensitivity: float
    unit: str
    time: str
    run: str
    version: str


class Head(NamedTuple):
    """State of a ledger file: the number of its debits, and a hash of all of them and of the header."""

    debits: int
    hash: str


def _new_entry(release: Release, number: int, run: str) -> Entry:
    """Entry of a debit that is made now."""
    cost, sensitivity = json.dumps(cost_to_dict(release.cost)), float(release.sensitivity)
    return Entry(number, release.purpose, cost, sensitivity, release.unit, _now(), run, _versions())


def _to_release(entry: Entry, path: Path) -> Release:
    """Release that an entry records."""
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
    """Hash of these fields and of the link before them; the first link is that of the header, after an empty one."""
    # SQLite gives back 0.0 for -0.0; all other numbers come back to the last bit.
    plain = [value + 0.0 if isinstance(value, float) else value for value in fields]
    return hashlib.sha256(f"{previous}\n{json.dumps(plain)}".encode()).hexdigest()


@contextmanager
def _errors_of(path: Path, timeout: float) -> Iterator[None]:
    """Errors of SQLite become LedgerError."""
    try:
        yield
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code is detail
        sentence = _SENTENCES.get(primary, _DAMAGED)
        if primary == sqlite3.SQLITE_CANTOPEN and not path.exists():
            sentence = f"is gone; {_RESTORE}"
        raise LedgerError(f"The ledger {str(path)!r} {sentence.format(timeout=timeout)}") from error


def _opened(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = DELETE")  # a viewer may have given it a write-ahead log
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _connect(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    """Connection for one operation; its end undoes an open transaction. Errors of SQLite become LedgerError."""
    with _errors_of(path, timeout), closing(_opened(path, timeout)) as connection:
        yield connection


class _KeptConnection:
    """A connection for many operations, made anew where the file has another inode and after an error.

    ``version`` is SQLite's number of the state that was read last; it changes when another connection writes.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self.in_use = False
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None

    @contextmanager
    def operation(self, path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
        """The connection; what is not committed at the end is undone."""
        with _errors_of(path, timeout):
            self.in_use = True
            try:
                if self._connection is None or not self._is_current(path):
                    self.close()
                    self._connection = _opened(path, timeout)
                    self._file = path.stat()
                yield self._connection
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            except BaseException:
                self.close()
                raise
            finally:
                self.in_use = False

    def holds(self, connection: sqlite3.Connection) -> bool:
        """Whether this is the connection that is kept."""
        return connection is self._connection

    def _is_current(self, path: Path) -> bool:
        try:
            return self._file is not None and os.path.samestat(self._file, path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close it; the next operation makes another one."""
        connection, self._connection, self.version = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _make_file(path: Path, header: Header, *, timeout: float) -> None:
    """Make the file under another name and give it its own in one step, so that no ledger is ever half made."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.touch(mode=0o644)  # its error says why, where a file cannot be made here
        with _connect(draft, timeout) as connection:
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
        for left in (draft, _journal_of(draft)):
            left.unlink(missing_ok=True)
    sync_folder(path.parent)


def _check_file(path: Path) -> None:
    """Refuse what cannot be a ledger before SQLite opens it."""
    if not path.exists():
        raise LedgerError(f"There is no ledger {str(path)!r}; give a dataset and a budget to make one.")
    if not path.is_file():
        raise LedgerError(f"Expected {str(path)!r} to be a file, got a folder or a device; choose a file in it.")
    if path.stat().st_size == 0:
        raise LedgerError(f"The ledger {str(path)!r} is empty, and none is ever made so; restore its newest copy.")


def _read_header(connection: sqlite3.Connection, path: Path) -> Header:
    """Read the header; refuse a database of something else and tables of another version."""
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


def _read_entries(connection: sqlite3.Connection, path: Path, links: Sequence[str]) -> list[tuple[Entry, str]]:
    """Read the debits after those whose links are known (the first link is that of the header), each with its own.

    Raises
    ------
    LedgerError
        If debits are missing, or one does not follow from what came before it.
    """
    known = len(links) - 1
    first = max(known - 1, 0)  # the last known one too: if any before it was changed, its link is another
    # Nothing before it is read again, however long the file: a debit that was read once counts, whoever deletes it.
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


def _journal_of(path: Path) -> Path:
    """Path of SQLite's rollback journal."""
    return path.with_name(path.name + "-journal")


class DurableLedger(PrivacyLedger):
    """A :class:`PrivacyLedger` in a file: every fit, curve and retry on the same dataset debits the same total.

    Parameters
    ----------
    path : path
        The file; created if there is none. Use one file per dataset, and keep it as long as the attribute is kept.
    dataset : str
        Public name of the dataset; a file of another one is refused.
    epsilon, delta : float
        The budget. It is fixed when the file is made; other numbers are refused later.
    timeout : float
        Seconds to wait for other processes.
    run : str, optional
        Public name of this run, for :meth:`own_releases`; by default a fresh one.
    writable : bool
        False allows a file that can only be read; a debit then fails.

    Notes
    -----
    The file contains purposes, costs, times, run names and versions: nothing derived from the attribute.

    Guarantee
    ---------
    * :meth:`debit` returns after the debit is on the disk, or raises; a crash can lose an answer, never a debit.
    * Debits are made in exclusive transactions over all entries: processes that debit at once cannot together exceed
      the budget. Debits of threads that share this object and debit at once may share a transaction; each returns after
      it is on the disk.
    * Whatever is wrong with the file raises :class:`LedgerError` before an answer is computed. Each entry has a hash
      of itself and of all before it, checked when entries are read: one that was changed without making all that follow
      anew is noticed, and what was made anew is noticed by :meth:`verify` with a receipt kept elsewhere. Entries that
      this object has read are not read again: they count as they were, and whoever opens the file next notices.

    Examples
    --------
    >>> from justitia import DurableLedger
    >>> ledger = DurableLedger("hospital.ledger", dataset="hospital-2026", epsilon=3.0, delta=1e-5)  # doctest: +SKIP
    >>> model.fit(X, y, sensitive_features=a, ledger=ledger)  # doctest: +SKIP
    """

    _kept: _KeptConnection | None

    def __init__(
        self,
        path: Path | str,
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        timeout: float = 60.0,
        run: str | None = None,
        writable: bool = True,
    ) -> None:
        super().__init__(epsilon=epsilon, delta=delta)
        self._in_memory = False
        if not isinstance(dataset, str) or not dataset:
            raise ValueError(
                f"expected dataset to be a name, got {dataset!r}; pass a public one such as 'people-2026'."
            )
        if not 0 <= timeout < math.inf:
            raise ValueError(f"expected timeout to be a finite number of seconds, got {timeout!r}.")
        self.path = Path(path).absolute()
        self.dataset = dataset
        self.timeout = float(timeout)
        self.run = uuid.uuid4().hex if run is None else str(run)
        self._runs: list[str] = []
        self._alike: dict[Release, Release] = {}
        self._check_path()
        if not self.path.exists():
            header = Header(uuid.uuid4().hex, dataset, self.budget_epsilon, self.delta, _now(), _versions())
            _make_file(self.path, header, timeout=self.timeout)
        with _connect(self.path, self.timeout) as connection:
            header = _read_header(connection, self.path)
            given = {"dataset": self.dataset, "epsilon": self.budget_epsilon, "delta": self.delta}
            for name, came in given.items():
                stored = getattr(header, name)
                if stored != came:
                    raise LedgerError(
                        f"The ledger {str(self.path)!r} was made with {name}={stored!r}, got {came!r}; pass "
                        f"{stored!r}, or choose another file for other people."
                    )
            self._identity, self._links = header.identity, [link("", header)]
            if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                raise LedgerError(f"The ledger {str(self.path)!r} {_DAMAGED}")
            if writable:  # write, and undo it: raises now what the first debit would raise
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("CREATE TABLE trial (number INTEGER)")
                connection.execute("ROLLBACK")
            connection.execute("BEGIN")  # what follows sees one state of the file
            self._read(connection)

    @classmethod
    def open(cls, path: Path | str, *, timeout: float = 60.0) -> Self:
        """Open an existing ledger by its path alone: dataset and budget are those in the file. It may be read-only."""
        file = Path(path).absolute()
        _check_file(file)
        with _connect(file, timeout) as connection:
            header = _read_header(connection, file)
        facts: dict[str, Any] = {"dataset": header.dataset, "epsilon": header.epsilon, "delta": header.delta}
        return cls(file, **facts, timeout=timeout, writable=False)

    @property
    def identity(self) -> str:
        """A name that no other ledger file has."""
        return self._identity

    def for_run(self, run: str) -> DurableLedger:
        """The same file under the name of this run, whose earlier debits then count as its own."""
        return DurableLedger(
            self.path,
            dataset=self.dataset,
            epsilon=self.budget_epsilon,
            delta=self.delta,
            timeout=self.timeout,
            run=run,
        )

    # -- the interface of PrivacyLedger

    def debit(self, release: Release) -> int:
        """Record ``release`` on the disk and return its number, or raise and record nothing.

        Raises
        ------
        BudgetExceeded
            If the budget does not allow it together with all debits of all processes.
        LedgerError
            If the file cannot be used.
        """
        number = self._commits.submit((release, self._present_run()))
        if number is None:
            with self._lock:
                raise BudgetExceeded(self._refusal({release.cost: 1}, release.purpose))
        return number

    def _commit(self, debits: Sequence[tuple[Release, str]]) -> list[int | None]:
        """Record debits in one transaction, in their order; the number of each, or None for one that does not fit."""
        with self._lock, self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._read(connection)
            numbers: list[int | None] = []
            taken: list[tuple[Release, str, str]] = []
            counts: Counter[Cost] = Counter()
            first, previous = len(self._releases), self._links[-1]
            for release, run in debits:
                fits = self._fits(counts + Counter({release.cost: 1}))
                numbers.append(first + len(taken) if fits else None)
                if fits:
                    entry = _new_entry(release, first + len(taken), run)
                    previous = link(previous, entry)
                    connection.execute("INSERT INTO debits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*entry, previous))
                    counts[release.cost] += 1
                    taken.append((release, run, previous))
            if taken:
                connection.execute("COMMIT")
            for one in taken:
                self._take(*one)
            self._known = self._counts.copy()
        return numbers

    def check_known(self, costs: Mapping[Cost, int], *, purpose: str) -> None:
        """Like ``check``, by what this object has read or written last; it waits for no commit, and reads no file.

        What does not fit now will never fit. What fits may be refused by the debit, which reads the file.
        """
        if not self._allows(self._known + Counter(costs)):
            self.check(costs, purpose=purpose)

    @contextmanager
    def running(self, run: str) -> Iterator[None]:
        """Debits of this thread are recorded under this run's name until the end of the block."""
        self._thread.run = run
        try:
            yield
        finally:
            del self._thread.run

    def _present_run(self) -> str:
        return str(getattr(self._thread, "run", self.run))

    def _take(self, release: Release, run: str, own_link: str) -> None:
        self._runs.append(run)
        self._links.append(own_link)
        # Equal releases are one object: a custodian has many of them. Last: what is not in the list yet is read again.
        self._append(self._alike.setdefault(release, release))

    def _refusal(self, costs: Mapping[Cost, int], purpose: str) -> str:
        alone = epsilon_spent(costs, self.delta)
        left = super().remaining()
        return (
            f"{super()._refusal(costs, purpose)} This request alone costs epsilon {alone:.4g}; what remains of "
            f"{self.dataset!r} pays for {left:.4g}."
        )

    def own_releases(self) -> tuple[Release, ...]:
        """What was released under the name of this run, in order."""
        own = self._present_run()
        with self._fresh():
            pairs = zip(self._releases, self._runs, strict=True)
            return tuple(release for release, run in pairs if run == own)

    def releases_by_run(self) -> tuple[tuple[str, Release], ...]:
        """Everything released so far, in order, with the name of its run."""
        with self._fresh():
            return tuple(zip(self._runs, self._releases, strict=True))

    # -- receipts

    @property
    def head(self) -> Head:
        """The state of the file now; kept elsewhere, it shows later whether the file was put back or rewritten."""
        with self._fresh():
            return Head(len(self._releases), self._links[-1])

    def receipt(self) -> dict[str, Any]:
        """:attr:`head` and the ledger's identity as plain data, for :meth:`verify`; certificates have one too."""
        return self._receipt(self.head.debits)

    def known_receipt(self) -> dict[str, Any]:
        """:meth:`receipt` of the state that this object has read or written last, without reading the file."""
        return self._receipt(len(self._releases))

    def _receipt(self, debits: int) -> dict[str, Any]:
        return {"ledger": self._identity, "debits": debits, "head": self._links[debits]}

    def verify(self, receipt: Mapping[str, Any]) -> None:
        """Raise :class:`LedgerError` unless this file still begins with the debits it had when ``receipt`` was made.

        Parameters
        ----------
        receipt : mapping
            From :meth:`receipt`, or ``certificate.receipt``.
        """
        debits, head = receipt.get("debits"), receipt.get("head")
        with self._fresh():
            if not (isinstance(debits, int) and debits >= 0 and isinstance(head, str)):
                raise LedgerError(
                    "Expected a receipt with 'ledger', 'debits' and 'head', got other data; pass a receipt."
                )
            if receipt.get("ledger") != self._identity:
                raise LedgerError(
                    f"The receipt is not of the ledger {str(self.path)!r} but of another one; pass that one."
                )
            if debits >= len(self._links):
                raise LedgerError(
                    f"The ledger {str(self.path)!r} holds {len(self._links) - 1} debits and had {debits} when the "
                    "receipt was made, so it is an old copy; restore its newest one."
                )
            if self._links[debits] != head:
                raise LedgerError(
                    f"The ledger {str(self.path)!r} does not begin with the {debits} debits that it had when the "
                    "receipt was made, so it was rewritten; restore its newest copy."
                )

    # -- text

    def to_json(self) -> str:
        """All entries and the totals as JSON text; an infinite number is the word "infinity"."""
        with self._fresh() as connection:
            entries = [entry for entry, _ in _read_entries(connection, self.path, self._links[:1])]
            counts = Counter(release.cost for release in self._releases)
        exported = {
            "schema": SCHEMA,
            "ledger": self._identity,
            "dataset": self.dataset,
            "receipt": self._receipt(len(entries)),
            "budget_epsilon": self.budget_epsilon,
            "delta": self.delta,
            "spent_epsilon": epsilon_spent(counts, self.delta),
            "remaining_epsilon": super().remaining(),
            "accountant": accountant(counts),
            "entries": [entry._asdict() | {"cost": json.loads(entry.cost)} for entry in entries],
        }
        return json.dumps(json_ready(exported), indent=2)

    def export(self, path: Path | str) -> Path:
        """Write :meth:`to_json` to ``path``, which must not be there yet.

        Opening the ledger's own file by other means would, on POSIX, also drop the locks that SQLite holds on it.
        """
        target = Path(path).absolute()
        text = self.to_json() + "\n"
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise FileExistsError(
                f"expected a file that is not there yet, got {str(path)!r}; choose a new name."
            ) from None
        return target

    def describe(self) -> str:
        """What was spent, on what, and what remains, as text."""
        with self._fresh():
            releases, runs = list(self._releases), set(self._runs)
        debits = _counted(len(releases), "debit")
        lines = [
            f"Ledger of {self.dataset!r} in {self.path}",
            f"  budget     epsilon {self.budget_epsilon:.4g} at delta {rounded_up(self.delta)}",
            f"  spent      epsilon {rounded_up(self.epsilon())}: {debits} of {_counted(len(runs), 'run')}",
            f"  remaining  epsilon {self.remaining():.4g} for one more Gaussian release",
        ]
        if releases:
            lines.append(f"  {'count':>6}  {'noise':>9}  mechanism: purpose")
        for entry in summary(releases):
            noise = entry["noise_multiplier"] or entry["epsilon"]
            shown = "none" if noise is None else f"{noise:.4g}"
            purpose = _on_one_line(entry["purpose"])
            lines.append(f"  {entry['count']:>6}  {shown:>9}  {entry['mechanism']}: {purpose}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"DurableLedger({str(self.path)!r}, dataset={self.dataset!r}, epsilon={self.budget_epsilon!r})"

    # -- the file

    def _check_path(self) -> None:
        if self.path.exists():
            _check_file(self.path)
        elif not self.path.parent.is_dir():
            raise LedgerError(f"The folder {str(self.path.parent)!r} does not exist; make it, or choose another file.")
        elif _journal_of(self.path).exists() and not self.path.exists():  # unless another process just made it
            raise LedgerError(
                f"The ledger {str(self.path)!r} is gone but its journal is there; restore the ledger's newest copy."
            )

    @contextmanager
    def _fresh(self) -> Iterator[sqlite3.Connection]:
        """A connection, after what other processes recorded has been read."""
        with self._lock, self._connected() as connection:
            connection.execute("BEGIN")
            self._read(connection)
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection that is kept open, or one for this operation; the caller holds the lock."""
        kept = self._kept
        if kept is None or kept.in_use:  # in use: a refusal is worded while the entries are being read
            opened = _connect(self.path, self.timeout)
        else:
            opened = kept.operation(self.path, self.timeout)
        with opened as connection:
            yield connection

    def keep_open(self) -> None:
        """Use one connection for all operations until :meth:`close`, for a process that debits often."""
        with self._lock:
            self._kept = self._kept or _KeptConnection()

    def close(self) -> None:
        """Close the connection of :meth:`keep_open`; later operations open their own."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is not None:
                kept.close()

    def _renew_lock(self) -> None:
        super()._renew_lock()
        self._commits: GroupCommit[tuple[Release, str], int | None] = GroupCommit(self._commit)
        self._thread = threading.local()
        # A fork's child must neither use nor close its parent's connection.
        self._inherited = self.__dict__.get("_kept")
        self._kept = None

    def __getstate__(self) -> dict[str, Any]:
        own = {"_commits", "_thread", "_inherited", "_kept"}
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._fresh():
            yield

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the entries that were added since the last time; entries are only ever added."""
        version, kept = None, self._kept
        if kept is not None and not kept.holds(connection):
            kept = None
        if kept is not None:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version == kept.version:  # only this object has written since it was read
                return
        header = _read_header(connection, self.path)
        if header.identity != self._identity:
            raise LedgerError(f"The ledger {str(self.path)!r} was replaced by another one while in use; restore it.")
        if link("", header) != self._links[0]:
            raise LedgerError(
                f"The ledger {str(self.path)!r} was given another budget or name while in use; restore it."
            )
        known = len(self._releases)
        del self._runs[known:], self._links[known + 1 :]  # of a debit that was interrupted on its way into memory
        for entry, own_link in _read_entries(connection, self.path, self._links):
            self._take(_to_release(entry, self.path), entry.run, own_link)
        self._known = self._counts.copy()
        if kept is not None:
            kept.version = version


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _on_one_line(text: str) -> str:
    """A purpose, which may come from another machine, without characters that move the cursor or end the line."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
