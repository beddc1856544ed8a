"""Persistent records of a custodian: a SQLite database and an append-only audit log.

The database holds clients, populations, cohorts, requests with their answers, and receipts. It holds no attribute and
no key, only the hash of a key. What is deleted is overwritten with zeros (``secure_delete``), because cohorts hold
digests of ids.

The audit log has JSON lines. A request with a valid key has two lines of the same number: one when it begins, before
its body is read, and one when it ends. Numbers start again with the service. The log holds no key, no id of a person
and nothing derived from an attribute.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from justitia.custodian.settings import private_file
from justitia.privacy.group_commit import GroupCommit

DATABASE, AUDIT_LOG = "custodian.sqlite", "audit.jsonl"
ROLES = ("train", "measure", "read")
#: Version of the tables below, in ``PRAGMA user_version``; files from before there was one have 0.
SCHEMA = 2
#: Connections of each kind that stay open between operations.
_KEPT = 8
#: Characters of a text that the audit log keeps.
_MAX_TEXT = 200
_TABLES = (
    "CREATE TABLE IF NOT EXISTS clients (name TEXT PRIMARY KEY, hash TEXT NOT NULL, roles TEXT NOT NULL, epsilon REAL,"
    " created TEXT NOT NULL, populations TEXT NOT NULL DEFAULT '[]')",
    "CREATE INDEX IF NOT EXISTS clients_hash ON clients (hash)",
    "CREATE TABLE IF NOT EXISTS claims (name TEXT PRIMARY KEY, file TEXT NOT NULL, started TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS populations (name TEXT PRIMARY KEY, columns TEXT NOT NULL, groups TEXT NOT NULL,"
    " epsilon REAL NOT NULL, delta REAL NOT NULL, people INTEGER NOT NULL, registered TEXT NOT NULL, retired TEXT,"
    " source TEXT NOT NULL DEFAULT '', keep_until TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE IF NOT EXISTS cohorts (id TEXT PRIMARY KEY, population TEXT NOT NULL, people INTEGER NOT NULL,"
    " digests BLOB NOT NULL, person INTEGER NOT NULL, client TEXT NOT NULL, created TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS requests (client TEXT NOT NULL, request TEXT NOT NULL, question TEXT NOT NULL,"
    " parts INTEGER NOT NULL, population TEXT NOT NULL, created TEXT NOT NULL, answer BLOB, receipt TEXT,"
    " PRIMARY KEY (client, request))",
    "CREATE INDEX IF NOT EXISTS requests_open ON requests (client) WHERE receipt IS NULL",
    "CREATE TABLE IF NOT EXISTS parts (client TEXT NOT NULL, request TEXT NOT NULL, part INTEGER NOT NULL,"
    " digest TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (client, request, part))",
    "CREATE TABLE IF NOT EXISTS receipts (population TEXT NOT NULL, number INTEGER NOT NULL, receipt TEXT NOT NULL,"
    " link TEXT NOT NULL, PRIMARY KEY (population, number))",
    "CREATE TRIGGER IF NOT EXISTS receipts_stand BEFORE UPDATE ON receipts"
    " BEGIN SELECT RAISE(ABORT, 'a receipt stands'); END",
    "CREATE TRIGGER IF NOT EXISTS receipts_stay BEFORE DELETE ON receipts"
    " BEGIN SELECT RAISE(ABORT, 'a receipt stands'); END",
)


@dataclass(frozen=True)
class Client:
    """Owner of a key.

    Parameters
    ----------
    name : str
    roles : tuple of str
        Roles of the key, among ``ROLES``.
    epsilon : float or None
        The client's own budget within that of each population; None for no limit of its own.
    hash : str
        Hash of the key.
    populations : tuple of str
        Names of the populations that the key may use; to this client the others do not exist.
    """

    name: str
    roles: tuple[str, ...]
    epsilon: float | None
    hash: str = ""
    populations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Population:
    """Public facts about a registered population; its list of groups never changes.

    ``source`` says where the attribute was read, ``keep_until`` is the date after which it should be retired; both may
    be empty.
    """

    name: str
    columns: tuple[str, ...]
    groups: tuple[Any, ...]
    epsilon: float
    delta: float
    people: int
    registered: str
    retired: str | None = None
    source: str = ""
    keep_until: str = ""


class CohortRecord(NamedTuple):
    """Ordered rows of one population; with ``person``, all rows of an id are protected together."""

    id: str
    population: str
    rows: int
    digests: bytes
    person: bool = False


class RequestRecord(NamedTuple):
    """A request with the hash of its query and, once it is answered, its answer and receipt."""

    query: str
    parts: int
    answer: bytes | None
    receipt: str | None


class NewAnswer(NamedTuple):
    """An answer to store; ``facts`` returns what its receipt says, when it is called.

    ``part`` is the digest and size of the body of a request that came in one part; its request id is bound to ``query``
    together with the answer.
    """

    client: str
    request: str
    query: str
    population: str
    answer: bytes
    facts: Callable[[], dict[str, Any]]
    part: tuple[str, int] | None = None


def now() -> str:
    """The present time in UTC, as all records write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def chain_hash(previous: str, receipt: dict[str, Any]) -> str:
    """Hash of a receipt and of the chain before it."""
    return _link(previous, json.dumps(receipt, sort_keys=True))


def _link(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


@dataclass
class _Chain:
    """The newest receipt of a population within a transaction, and whether the population is not retired."""

    number: int
    link: str
    live: bool

    @classmethod
    def read(cls, connection: sqlite3.Connection, population: str) -> _Chain:
        """As the transaction finds them."""
        last = "SELECT number, link FROM receipts WHERE population = ? ORDER BY number DESC LIMIT 1"
        number, link = connection.execute(last, (population,)).fetchone() or (-1, "")
        live = "SELECT 1 FROM populations WHERE name = ? AND retired IS NULL"
        return cls(number, link, connection.execute(live, (population,)).fetchone() is not None)


class Records:
    """The database; each operation has a transaction of its own, so that none is ever half done.

    A killed process loses nothing that was written. Clients, populations, and answers with their receipts also survive
    a power failure, because they are on the disk when their operation returns; answers of several threads share a
    transaction. Other records may be lost then; a
    request that was debited is refused later, because the ledger has its debit.
    """

    def __init__(self, folder: Path) -> None:
        self.path = private_file(folder / DATABASE)
        self._kept: dict[bool, list[sqlite3.Connection]] | None = None  # by whether their commits are durable
        self._writing = threading.Lock()  # SQLite waits for a lock in steps of milliseconds
        self._answers: GroupCommit[NewAnswer, str] = GroupCommit(self._put_answers)
        try:
            self._rows("PRAGMA journal_mode = WAL")
            if self._version() != SCHEMA:
                self._upgrade()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # busy, or a full disk: the file itself is sound
                raise
            raise ValueError(
                f"expected the records of a custodian in {str(self.path)!r}, got other data ({error}); restore them."
            ) from None

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        with self._writing, self._connection(durable=durable) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection that is kept open, or a new one; an error closes it, which undoes its transaction."""
        kept = None if self._kept is None else self._kept[durable]
        try:
            connection = kept.pop() if kept else self._connect(durable=durable)
        except IndexError:  # another thread took the last one
            connection = self._connect(durable=durable)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if kept is None or kept is not (self._kept or {}).get(durable) or len(kept) >= _KEPT:
            connection.close()
        else:
            kept.append(connection)

    def _connect(self, *, durable: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA secure_delete = ON")  # some builds of SQLite have it off
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    # -- versions of the tables

    def _version(self) -> int:
        """Version of the tables in the file.

        Raises
        ------
        ValueError
            If it is newer than this program.
        """
        found = int(self._rows("PRAGMA user_version")[0][0])
        if found > SCHEMA:
            raise ValueError(
                f"expected records of version {SCHEMA} in {str(self.path)!r}, got version {found}, which a newer "
                "justitia wrote; upgrade this one."
            )
        return found

    def _upgrade(self) -> None:
        """Create the tables, or migrate those of an earlier version.

        A key from before keys had lists may use the populations that are registered now, and none that come later.
        """
        with self._transaction(durable=True) as connection:
            found = _columns(connection)
            if "cohorts" in found and "person" not in found["cohorts"]:
                # Clients send their cohorts again for every fit, and the first version named them differently.
                connection.execute("DROP TABLE cohorts")
            for table in _TABLES:
                connection.execute(table)
            if "clients" in found and "populations" not in found["clients"]:
                connection.execute("ALTER TABLE clients ADD COLUMN populations TEXT NOT NULL DEFAULT '[]'")
                names = connection.execute(
                    "SELECT name FROM populations WHERE retired IS NULL ORDER BY name"
                ).fetchall()
                connection.execute("UPDATE clients SET populations = ?", (json.dumps([name for (name,) in names]),))
            for name in ("source", "keep_until"):
                if "populations" in found and name not in found["populations"]:
                    connection.execute(f"ALTER TABLE populations ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")
            if _columns(connection) != _expected_columns():
                raise ValueError(
                    f"expected the records of a custodian in {str(self.path)!r}, got tables of no version of justitia; "
                    "restore the newest copy of the folder."
                )
        if found:
            self.scrub()  # earlier versions may have left deleted rows in free pages
        with self._transaction(durable=True) as connection:  # last: a process killed before this migrates again
            connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def scrub(self) -> None:
        """Rewrite the database and truncate the write-ahead log, so that nothing is left of what was deleted.

        ``secure_delete`` alone is not enough: where SQLite moves rows between pages, copies stay in their unused parts.

        Raises
        ------
        ValueError
            If another process used the records all the time.
        """
        try:
            with self._connection() as connection:
                connection.execute("VACUUM")
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            busy = True
        if busy:
            raise ValueError(
                f"expected {str(self.path)!r} to be free for a moment within 60 s, but it was in use all the time: it "
                "may still hold what was deleted; run the command again."
            )

    def keep_open(self) -> None:
        """Keep connections until :meth:`close`: to open one takes time, and so does the checkpoint of the last one."""
        self._kept = {durable: [self._connect(durable=durable)] for durable in (False, True)}
        for (connection,) in self._kept.values():
            connection.execute("PRAGMA journal_mode = WAL")  # the first statement connects

    def close(self) -> None:
        """Close the connections of :meth:`keep_open`; everything is then in the one file."""
        kept, self._kept = self._kept, None
        for connection in [one for connections in (kept or {}).values() for one in connections]:
            connection.close()

    # -- clients

    def put_client(self, client: Client) -> None:
        """Add a client, or replace the key, roles and budget of a known one; the earlier key is no longer valid."""
        roles, populations = " ".join(client.roles), json.dumps(client.populations)
        values = (client.name, client.hash, roles, client.epsilon, now(), populations)
        insert = (
            "INSERT OR REPLACE INTO clients (name, hash, roles, epsilon, created, populations)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        with self._transaction(durable=True) as connection:
            connection.execute(insert, values)

    def clients(self) -> list[Client]:
        """All clients with a key."""
        rows = self._rows(f"SELECT {_CLIENT} FROM clients ORDER BY name")  # noqa: S608 - names of ours
        return [_client(row) for row in rows]

    def clients_with(self, key_hash: str) -> list[Client]:
        """The clients whose key has this hash: one or none."""
        rows = self._rows(f"SELECT {_CLIENT} FROM clients WHERE hash = ?", key_hash)  # noqa: S608 - names of ours
        return [_client(row) for row in rows]

    def allow(self, name: str, populations: Sequence[str]) -> None:
        """Let the key of a known client use these populations too."""
        with self._transaction(durable=True) as connection:
            (present,) = connection.execute("SELECT populations FROM clients WHERE name = ?", (name,)).fetchone()
            listed = list(dict.fromkeys([*json.loads(present), *populations]))
            connection.execute("UPDATE clients SET populations = ? WHERE name = ?", (json.dumps(listed), name))

    def drop_clients(self, names: Sequence[str]) -> None:
        """Delete the keys of these clients."""
        with self._transaction(durable=True) as connection:
            connection.executemany("DELETE FROM clients WHERE name = ?", [(name,) for name in names])

    # -- populations and cohorts

    def claim(self, name: str, file: str) -> None:
        """Reserve a name for a registration in progress, with the file that the attribute will be written to.

        Raises
        ------
        ValueError
            If the name is taken.
        """
        with self._transaction(durable=True) as connection:
            taken = "SELECT name FROM populations WHERE name = ? UNION SELECT name FROM claims WHERE name = ?"
            if connection.execute(taken, (name, name)).fetchone():
                raise ValueError(f"the population {name!r} is registered, or was; choose another name.")
            connection.execute("INSERT INTO claims VALUES (?, ?, ?)", (name, file, now()))

    def claims(self) -> dict[str, str]:
        """Names of registrations that are not finished, with the file of each."""
        return dict(self._rows("SELECT name, file FROM claims ORDER BY name"))

    def drop_claim(self, name: str) -> None:
        """Release the name of a registration that ended without a population and whose files are deleted."""
        with self._transaction(durable=True) as connection:
            connection.execute("DELETE FROM claims WHERE name = ?", (name,))

    def put_population(self, one: Population) -> None:
        """Register a population, and end the claim of its name; a name is used once."""
        lists = json.dumps(one.columns), json.dumps(one.groups)
        budget = one.epsilon, one.delta
        values = (one.name, *lists, *budget, one.people, one.registered, one.retired, one.source, one.keep_until)
        with self._transaction(durable=True) as connection:
            connection.execute(f"INSERT INTO populations VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
            connection.execute("DELETE FROM claims WHERE name = ?", (one.name,))

    def retire(self, name: str) -> list[tuple[str, str]]:
        """Mark a population as retired, and delete its cohorts and stored answers; receipts and ledger stay.

        Returns
        -------
        list of (client, request)
            Its requests, parts of which may be in the spool.
        """
        own = "(SELECT client, request FROM requests WHERE population = ?)"
        with self._transaction(durable=True) as connection:
            update = "UPDATE populations SET retired = COALESCE(retired, ?) WHERE name = ?"
            connection.execute(update, (now(), name))
            connection.execute("DELETE FROM cohorts WHERE population = ?", (name,))
            connection.execute(f"DELETE FROM parts WHERE (client, request) IN {own}", (name,))  # noqa: S608 - ours
            requests = connection.execute("SELECT client, request FROM requests WHERE population = ?", (name,))
            found = [(client, request) for client, request in requests]
            # The hash of a query includes the name of its cohort, which is a hash of ids.
            connection.execute("UPDATE requests SET answer = NULL, question = '' WHERE population = ?", (name,))
        return found

    def populations(self) -> list[Population]:
        """All populations, also retired ones."""
        return [_population(row) for row in self._rows("SELECT * FROM populations ORDER BY name")]

    def live_populations(self) -> set[str]:
        """Names of the populations that are not retired."""
        return {name for (name,) in self._rows("SELECT name FROM populations WHERE retired IS NULL")}

    def population(self, name: str) -> Population | None:
        """The population of this name, also a retired one; None if there is none."""
        rows = self._rows("SELECT * FROM populations WHERE name = ?", name)
        return _population(rows[0]) if rows else None

    def put_cohort(self, cohort: CohortRecord, client: str) -> None:
        """Store a cohort, unless it is stored already or its population is retired."""
        insert = (
            "INSERT OR IGNORE INTO cohorts SELECT ?, ?, ?, ?, ?, ?, ?"
            " WHERE EXISTS (SELECT 1 FROM populations WHERE name = ? AND retired IS NULL)"
        )
        with self._transaction() as connection:
            connection.execute(insert, (*cohort, client, now(), cohort.population))

    def cohort(self, name: str, client: str | None = None, *, with_digests: bool = False) -> CohortRecord | None:
        """The cohort of this name, if it is this client's where one is given; without its ids unless wanted."""
        query = (
            "SELECT id, population, people, CASE WHEN ? THEN digests ELSE x'' END, person FROM cohorts"
            " WHERE id = ? AND client = COALESCE(?, client)"
        )
        rows = self._rows(query, with_digests, name, client)
        return CohortRecord(*rows[0]) if rows else None

    def size_of_cohorts(self, client: str) -> int:
        """Total bytes of the cohorts of this client."""
        return int(self._rows("SELECT COALESCE(SUM(LENGTH(digests)), 0) FROM cohorts WHERE client = ?", client)[0][0])

    # -- requests

    def request(self, client: str, request: str) -> RequestRecord | None:
        """The record of this request id of this client; None if there is none."""
        query = "SELECT question, parts, answer, receipt FROM requests WHERE client = ? AND request = ?"
        rows = self._rows(query, client, request)
        return RequestRecord(*rows[0]) if rows else None

    def put_request(self, client: str, request: str, query: str, parts: int, population: str) -> None:
        """Bind a request id to the hash of its query."""
        with self._transaction() as connection:
            values = (client, request, query, parts, population, now())
            connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", values)

    def parts(self, client: str, request: str) -> dict[int, str]:
        """Digest of each part that has arrived."""
        query = "SELECT part, digest FROM parts WHERE client = ? AND request = ?"
        return dict(self._rows(query, client, request))

    def put_part(self, client: str, request: str, part: int, digest: str, size: int) -> bool:
        """Record a part whose file is written; False, and nothing is recorded, if its population was retired."""
        insert = (
            "INSERT INTO parts SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM requests JOIN populations"
            " ON populations.name = requests.population WHERE client = ? AND request = ? AND retired IS NULL)"
        )
        with self._transaction() as connection:
            own = client, request
            return connection.execute(insert, (*own, part, digest, size, *own)).rowcount > 0

    def spooled_bytes(self, client: str) -> int:
        """Total bytes of this client's parts whose request has no answer yet."""
        query = (
            "SELECT COALESCE(SUM(size), 0) FROM requests CROSS JOIN parts USING (client, request)"
            " WHERE client = ? AND receipt IS NULL"
        )
        return int(self._rows(query, client)[0][0])

    def abandoned(self) -> list[tuple[str, str]]:
        """Requests without an answer that are over a day old, or about retired populations; the ledger has debits."""
        before = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="milliseconds")
        query = (
            "SELECT client, request FROM requests WHERE receipt IS NULL AND (created < ? OR population IN"
            " (SELECT name FROM populations WHERE retired IS NOT NULL))"
        )
        return [(client, request) for client, request in self._rows(query, before)]

    def unanswered(self) -> list[tuple[str, str]]:
        """Requests without an answer, parts of which may be in the spool."""
        rows = self._rows("SELECT client, request FROM requests WHERE receipt IS NULL")
        return [(client, request) for client, request in rows]

    def delete_request(self, client: str, request: str) -> None:
        """Delete a request that was refused before any debit, so that its id is free again."""
        with self._transaction() as connection:
            for table in ("requests", "parts"):
                query = f"DELETE FROM {table} WHERE client = ? AND request = ?"  # noqa: S608 - names of ours
                connection.execute(query, (client, request))

    def put_answer(self, new: NewAnswer) -> str:
        """Store an answer and its receipt in one transaction.

        Returns
        -------
        str
            The receipt as JSON, the next link of the population's chain.
        """
        return self._answers.submit(new)

    def _put_answers(self, answers: Sequence[NewAnswer]) -> list[str]:
        """Store several answers, in this order; those of one population extend its chain one after the other."""
        facts = [new.facts() for new in answers]  # now: the states of a ledger are in the order of the chain
        with self._transaction(durable=True) as connection:
            chains = {new.population: _Chain.read(connection, new.population) for new in answers}
            pairs = zip(answers, facts, strict=True)
            return [self._put(connection, new, one, chains[new.population]) for new, one in pairs]

    @staticmethod
    def _put(connection: sqlite3.Connection, new: NewAnswer, facts: dict[str, Any], chain: _Chain) -> str:
        time, number, previous = now(), chain.number + 1, chain.link
        receipt = facts | {"population": new.population, "number": number, "request": new.request}
        receipt |= {"answer": hashlib.sha256(new.answer).hexdigest(), "time": time, "previous": previous}
        text = json.dumps(receipt, sort_keys=True)
        link = _link(previous, text)
        connection.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", (new.population, number, text, link))
        chain.number, chain.link = number, link
        returned = json.dumps(receipt | {"link": link}, sort_keys=True)
        own = new.client, new.request
        # An answer about a population that was retired meanwhile is returned, and not stored; nor is its query.
        answer, query = (new.answer, new.query) if chain.live else (None, "")
        if new.part is None:
            update = "UPDATE requests SET answer = ?, receipt = ? WHERE client = ? AND request = ?"
            connection.execute(update, (answer, returned, *own))
        else:
            insert = "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, 1, ?, ?, ?, ?)"
            connection.execute(insert, (*own, query, new.population, time, answer, returned))
            if chain.live:
                connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, 0, ?, ?)", (*own, *new.part))
        return returned

    # -- receipts

    def receipts(self, population: str) -> list[tuple[dict[str, Any], str]]:
        """The chain of receipts, each with its link; checked.

        Raises
        ------
        ValueError
            If a link does not follow from those before it.
        """
        query = "SELECT receipt, link FROM receipts WHERE population = ? ORDER BY number"
        found, previous = [], ""
        for number, (text, link) in enumerate(self._rows(query, population)):
            receipt = json.loads(text)
            if receipt["number"] != number or link != chain_hash(previous, receipt):
                raise ValueError(
                    f"receipt {number} of {population!r} does not follow from those before it; restore them."
                )
            found.append((receipt, link))
            previous = link
        return found

    def link(self, population: str, number: int) -> str | None:
        """The link of one receipt; None if there is none of this number."""
        rows = self._rows("SELECT link FROM receipts WHERE population = ? AND number = ?", population, number)
        return str(rows[0][0]) if rows else None

    def head(self, population: str) -> tuple[int, str]:
        """Number of receipts, and the last link."""
        query = "SELECT number, link FROM receipts WHERE population = ? ORDER BY number DESC LIMIT 1"
        rows = self._rows(query, population)
        return (rows[0][0] + 1, rows[0][1]) if rows else (0, "")


_CLIENT = "name, roles, epsilon, hash, populations"


def _client(row: Sequence[Any]) -> Client:
    name, roles, epsilon, key_hash, populations = row
    return Client(name, tuple(roles.split()), epsilon, key_hash, tuple(json.loads(populations)))


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Column names of every table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    query = "SELECT name FROM pragma_table_info(?)"
    return {table: [name for (name,) in connection.execute(query, (table,))] for (table,) in tables}


def _expected_columns() -> dict[str, list[str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in _TABLES:
            connection.execute(table)
        return _columns(connection)


def _population(row: Sequence[Any]) -> Population:
    name, columns, groups, *rest = row
    listed = tuple(tuple(one) if isinstance(one, list) else one for one in json.loads(groups))
    return Population(name, tuple(json.loads(columns)), listed, *rest)


class AuditLog:
    """The audit log, and counts of responses since the service started."""

    def __init__(self, folder: Path) -> None:
        self.path = private_file(folder / AUDIT_LOG)
        self.counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    @staticmethod
    def begin(what: str, **facts: Any) -> bytes:
        """The line of a request that begins; if none of the same number follows, the process ended meanwhile."""
        return _line({"time": now(), "what": what, "begun": True, **facts})

    def end(self, what: str, status: int, **facts: Any) -> bytes:
        """Count a request that ends; returns its line, which has to be on the disk before its response leaves."""
        self.count(what, status)
        return _line({"time": now(), "what": what, "status": status, **facts})

    def count(self, what: str, status: int) -> None:
        """Count a request that gets no line."""
        with self._lock:
            self.counts[what, status] += 1

    def append_durably(self, lines: Sequence[bytes]) -> list[None]:
        """Append lines of several requests, to the disk."""
        self.append(lines, durable=True)
        return [None] * len(lines)

    def append(self, lines: Sequence[bytes], *, durable: bool = False) -> None:
        """Append lines of several requests; those that a killed process has written stay in any case."""
        text = b"".join(lines)
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND)
        try:
            with self._lock:
                size = os.fstat(handle).st_size
                if size > 0 and os.pread(handle, 1, size - 1) != b"\n":  # cut off by a full disk or a power failure
                    text = b"\n" + text
                if os.write(handle, text) < len(text):
                    raise OSError(errno.ENOSPC, "the disk is full")
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)

    def last(self, number: int = 200) -> list[dict[str, Any]]:
        """The newest lines, newest first; lines that were cut off are left out."""
        with self.path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - number * 1024))
            lines = file.read().decode("utf-8", "replace").splitlines()
        entries = []
        for line in reversed(lines[-number:]):
            with suppress(ValueError):
                entries.append(json.loads(line))
        return [entry for entry in entries if isinstance(entry, dict)]


def _line(facts: dict[str, Any]) -> bytes:
    """A line of the log, with long texts cut off."""
    shown = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in facts.items()}
    return (json.dumps(shown) + "\n").encode()


__all__ = [
    "ROLES",
    "SCHEMA",
    "AuditLog",
    "Client",
    "CohortRecord",
    "NewAnswer",
    "Population",
    "Records",
    "RequestRecord",
    "chain_hash",
    "now",
]
