"""What the custodian remembers, in one SQLite file: clients, populations, cohorts, requests with answers, receipts.

Nothing in it is an attribute or a key: clients are kept with the hash of theirs. What is deleted is overwritten with
zeros (``secure_delete``), because cohorts hold digests of people's ids.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from justitia.custodian.settings import private_file

FILE = "custodian.sqlite"
ROLES = ("train", "measure", "read")
#: Version of the tables below, kept in ``PRAGMA user_version``; files from before it was kept have 0.
SCHEMA = 1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS clients (name TEXT PRIMARY KEY, hash TEXT NOT NULL, roles TEXT NOT NULL, epsilon REAL,"
    " created TEXT NOT NULL, populations TEXT NOT NULL DEFAULT '[]')",
    "CREATE TABLE IF NOT EXISTS claims (name TEXT PRIMARY KEY, file TEXT NOT NULL, started TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS populations (name TEXT PRIMARY KEY, columns TEXT NOT NULL, groups TEXT NOT NULL,"
    " epsilon REAL NOT NULL, delta REAL NOT NULL, people INTEGER NOT NULL, registered TEXT NOT NULL, retired TEXT)",
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
        What the key is good for, of ``ROLES``.
    epsilon : float or None
        The client's own budget within that of each population; None for no limit of its own.
    hash : str
        Of the key.
    populations : tuple of str
        Names of the populations that the key may use; the others do not exist for it.
    """

    name: str
    roles: tuple[str, ...]
    epsilon: float | None
    hash: str = ""
    populations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Population:
    """Public facts about registered people; the list of groups is fixed from now on."""

    name: str
    columns: tuple[str, ...]
    groups: tuple[Any, ...]
    epsilon: float
    delta: float
    people: int
    registered: str
    retired: str | None = None


class Cohort(NamedTuple):
    """Rows of one population's people, in order; with ``person``, all rows of one are protected together."""

    id: str
    population: str
    people: int
    digests: bytes
    person: bool = False


class Asked(NamedTuple):
    """A request as it is remembered."""

    question: str
    parts: int
    answer: bytes | None
    receipt: str | None


def now() -> str:
    """The time, as everything here writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def chained(previous: str, receipt: dict[str, Any]) -> str:
    """Hash of a receipt and of all before it."""
    return hashlib.sha256(f"{previous}\n{json.dumps(receipt, sort_keys=True)}".encode()).hexdigest()


class Records:
    """The file; each operation has a connection and a transaction of its own, so that none is ever half done.

    A killed process loses nothing that was written. What has to outlive a power failure too (clients, populations,
    answers with their receipts) is on the disk when its operation returns; what else is lost then is refused later,
    because the ledger has its debit.
    """

    def __init__(self, folder: Path) -> None:
        self.path = private_file(folder / FILE)
        self._held: sqlite3.Connection | None = None
        try:
            self._rows("PRAGMA journal_mode = WAL")
            if self._version() != SCHEMA:
                self._upgrade()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # busy, a full disk: nothing is wrong with the file
                raise
            raise ValueError(
                f"expected the records of a custodian in {str(self.path)!r}, got other data ({error}); restore them."
            ) from None

    @contextmanager
    def _connection(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        with self._connected() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")  # some builds of SQLite have it off
            yield connection

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=60.0)) as connection:
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
        """Make the tables, or bring those of an earlier version to this one.

        A key from before keys had lists may use the populations that are registered now, and none that come later.
        """
        with self._connection(durable=True) as connection:
            found = _columns(connection)
            if "cohorts" in found and "person" not in found["cohorts"]:
                # Clients send their cohorts anew for every fit, under names that the first version made otherwise.
                connection.execute("DROP TABLE cohorts")
            for table in _TABLES:
                connection.execute(table)
            if "clients" in found and "populations" not in found["clients"]:
                connection.execute("ALTER TABLE clients ADD COLUMN populations TEXT NOT NULL DEFAULT '[]'")
                names = connection.execute(
                    "SELECT name FROM populations WHERE retired IS NULL ORDER BY name"
                ).fetchall()
                connection.execute("UPDATE clients SET populations = ?", (json.dumps([name for (name,) in names]),))
            if _columns(connection) != _expected_columns():
                raise ValueError(
                    f"expected the records of a custodian in {str(self.path)!r}, got tables of no version of justitia; "
                    "restore the newest copy of the folder."
                )
        if found:
            self.scrub()  # earlier versions may have left deleted rows in free pages
        with self._connection(durable=True) as connection:  # last: whoever was killed before this starts again
            connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def scrub(self) -> None:
        """Write all records anew and cut off the write-ahead log, so that nothing is left of what was deleted.

        ``secure_delete`` alone is not enough: where SQLite moves rows between pages, copies stay in their unused parts.

        Raises
        ------
        ValueError
            If another process used the records all the time.
        """
        try:
            with self._connected() as connection:
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

    def hold(self) -> None:
        """Stay connected: who closes the last connection copies everything back into the file, which takes time."""
        self._held = sqlite3.connect(self.path, timeout=60.0, check_same_thread=False)
        self._held.execute("PRAGMA journal_mode = WAL")  # the first statement connects

    def close(self) -> None:
        """Hold it no longer: everything is in the one file from now on."""
        if self._held is not None:
            self._held.close()

    # -- clients

    def put_client(self, client: Client) -> None:
        """A new client, or a new key, roles and budget of one that is known: the earlier key is worth nothing."""
        lists = " ".join(client.roles), json.dumps(client.populations)
        values = (client.name, client.hash, lists[0], client.epsilon, now(), lists[1])
        insert = (
            "INSERT OR REPLACE INTO clients (name, hash, roles, epsilon, created, populations)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        with self._connection(durable=True) as connection:
            connection.execute(insert, values)

    def clients(self) -> list[Client]:
        """Everybody with a key."""
        rows = self._rows("SELECT name, roles, epsilon, hash, populations FROM clients ORDER BY name")
        return [
            Client(name, tuple(roles.split()), epsilon, kept, tuple(json.loads(listed)))
            for name, roles, epsilon, kept, listed in rows
        ]

    def allow(self, name: str, populations: Sequence[str]) -> None:
        """Let the key of a known client use these populations too."""
        with self._connection(durable=True) as connection:
            (held,) = connection.execute("SELECT populations FROM clients WHERE name = ?", (name,)).fetchone()
            listed = list(dict.fromkeys([*json.loads(held), *populations]))
            connection.execute("UPDATE clients SET populations = ? WHERE name = ?", (json.dumps(listed), name))

    def drop_clients(self, names: Sequence[str]) -> None:
        """Their keys are deleted."""
        with self._connection(durable=True) as connection:
            connection.executemany("DELETE FROM clients WHERE name = ?", [(name,) for name in names])

    # -- populations and cohorts

    def claim(self, name: str, file: str) -> None:
        """Take a name for people who are being registered, and say which file their attribute will be written to.

        Raises
        ------
        ValueError
            If the name is taken.
        """
        with self._connection(durable=True) as connection:
            taken = "SELECT name FROM populations WHERE name = ? UNION SELECT name FROM claims WHERE name = ?"
            if connection.execute(taken, (name, name)).fetchone():
                raise ValueError(
                    f"the population {name!r} is registered, or was; choose another name for other people."
                )
            connection.execute("INSERT INTO claims VALUES (?, ?, ?)", (name, file, now()))

    def claims(self) -> dict[str, str]:
        """Names that were claimed for a registration that is not finished, with the file of each."""
        return dict(self._rows("SELECT name, file FROM claims ORDER BY name"))

    def drop_claim(self, name: str) -> None:
        """The registration ended without a population, and its files are gone."""
        with self._connection(durable=True) as connection:
            connection.execute("DELETE FROM claims WHERE name = ?", (name,))

    def put_population(self, one: Population) -> None:
        """Register, and end the claim of the name; a name is used once."""
        lists = json.dumps(one.columns), json.dumps(one.groups)
        values = (one.name, *lists, one.epsilon, one.delta, one.people, one.registered, one.retired)
        with self._connection(durable=True) as connection:
            connection.execute("INSERT INTO populations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("DELETE FROM claims WHERE name = ?", (one.name,))

    def retire(self, name: str) -> list[tuple[str, str]]:
        """Mark a population as retired, and delete its cohorts and stored answers: receipts and ledger stay.

        Returns
        -------
        list of (client, request)
            Its requests, parts of which may wait in the spool.
        """
        own = "(SELECT client, request FROM requests WHERE population = ?)"
        with self._connection(durable=True) as connection:
            update = "UPDATE populations SET retired = COALESCE(retired, ?) WHERE name = ?"
            connection.execute(update, (now(), name))
            connection.execute("DELETE FROM cohorts WHERE population = ?", (name,))
            connection.execute(f"DELETE FROM parts WHERE (client, request) IN {own}", (name,))  # noqa: S608 - ours
            requests = connection.execute("SELECT client, request FROM requests WHERE population = ?", (name,))
            found = [(client, request) for client, request in requests]
            # A question is kept as a hash that its cohort is part of.
            connection.execute("UPDATE requests SET answer = NULL, question = '' WHERE population = ?", (name,))
        return found

    def populations(self) -> list[Population]:
        """All of them, retired ones too."""
        return [_population(row) for row in self._rows("SELECT * FROM populations ORDER BY name")]

    def population(self, name: str) -> Population | None:
        """One of them."""
        rows = self._rows("SELECT * FROM populations WHERE name = ?", name)
        return _population(rows[0]) if rows else None

    def put_cohort(self, cohort: Cohort, client: str) -> None:
        """Remember it; the same people in the same order are the same cohort. None is made of retired people."""
        insert = (
            "INSERT OR IGNORE INTO cohorts SELECT ?, ?, ?, ?, ?, ?, ?"
            " WHERE EXISTS (SELECT 1 FROM populations WHERE name = ? AND retired IS NULL)"
        )
        with self._connection() as connection:
            connection.execute(insert, (*cohort, client, now(), cohort.population))

    def cohort(self, name: str, client: str | None = None, *, whole: bool = False) -> Cohort | None:
        """One of them, or of this client's; only if it is wanted whole, with its people."""
        query = (
            "SELECT id, population, people, CASE WHEN ? THEN digests ELSE x'' END, person FROM cohorts"
            " WHERE id = ? AND client = COALESCE(?, client)"
        )
        rows = self._rows(query, whole, name, client)
        return Cohort(*rows[0]) if rows else None

    def size_of_cohorts(self, client: str) -> int:
        """Bytes of all cohorts of this client."""
        return int(self._rows("SELECT COALESCE(SUM(LENGTH(digests)), 0) FROM cohorts WHERE client = ?", client)[0][0])

    # -- requests

    def request(self, client: str, request: str) -> Asked | None:
        """What is remembered under this request id of this client."""
        query = "SELECT question, parts, answer, receipt FROM requests WHERE client = ? AND request = ?"
        rows = self._rows(query, client, request)
        return Asked(*rows[0]) if rows else None

    def put_request(self, client: str, request: str, question: str, parts: int, population: str) -> None:
        """From now on this id stands for this question."""
        with self._connection() as connection:
            values = (client, request, question, parts, population, now())
            connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", values)

    def parts(self, client: str, request: str) -> dict[int, str]:
        """Digest of each part that has come."""
        query = "SELECT part, digest FROM parts WHERE client = ? AND request = ?"
        return dict(self._rows(query, client, request))

    def put_part(self, client: str, request: str, part: int, digest: str, size: int) -> bool:
        """One more has come, and is in its file; False, and nothing is noted, if its people were retired meanwhile."""
        insert = (
            "INSERT INTO parts SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM requests JOIN populations"
            " ON populations.name = requests.population WHERE client = ? AND request = ? AND retired IS NULL)"
        )
        with self._connection() as connection:
            own = client, request
            return connection.execute(insert, (*own, part, digest, size, *own)).rowcount > 0

    def waiting(self, client: str) -> int:
        """Bytes of this client's parts whose request has no answer yet."""
        query = (
            "SELECT COALESCE(SUM(size), 0) FROM requests CROSS JOIN parts USING (client, request)"
            " WHERE client = ? AND receipt IS NULL"
        )
        return int(self._rows(query, client)[0][0])

    def abandoned(self) -> list[tuple[str, str]]:
        """Requests without an answer of more than a day ago, or about retired people; the ledger knows the debits."""
        before = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="milliseconds")
        query = (
            "SELECT client, request FROM requests WHERE receipt IS NULL AND (created < ? OR population IN"
            " (SELECT name FROM populations WHERE retired IS NOT NULL))"
        )
        return [(client, request) for client, request in self._rows(query, before)]

    def unanswered(self) -> list[tuple[str, str]]:
        """Requests without an answer, parts of which may wait in the spool."""
        rows = self._rows("SELECT client, request FROM requests WHERE receipt IS NULL")
        return [(client, request) for client, request in rows]

    def forget_request(self, client: str, request: str) -> None:
        """A request that was refused before any debit."""
        with self._connection() as connection:
            for table in ("requests", "parts"):
                query = f"DELETE FROM {table} WHERE client = ? AND request = ?"  # noqa: S608 - names of ours
                connection.execute(query, (client, request))

    def keep_answer(self, client: str, request: str, population: str, answer: bytes, facts: dict[str, Any]) -> str:
        """Answer and receipt in one step; the receipt, as JSON, is the next link of the population's chain."""
        with self._connection(durable=True) as connection:
            last = "SELECT number, link FROM receipts WHERE population = ? ORDER BY number DESC LIMIT 1"
            number, previous = connection.execute(last, (population,)).fetchone() or (-1, "")
            receipt = facts | {"population": population, "number": number + 1, "request": request}
            receipt |= {"answer": hashlib.sha256(answer).hexdigest(), "time": now(), "previous": previous}
            link, text = chained(previous, receipt), json.dumps(receipt, sort_keys=True)
            connection.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", (population, number + 1, text, link))
            told = json.dumps(receipt | {"link": link}, sort_keys=True)
            update = (  # an answer about people who were retired meanwhile is told, and not kept
                "UPDATE requests SET answer = (SELECT ? FROM populations WHERE name = ? AND retired IS NULL),"
                " receipt = ? WHERE client = ? AND request = ?"
            )
            connection.execute(update, (answer, population, told, client, request))
        return told

    # -- receipts

    def receipts(self, population: str) -> list[tuple[dict[str, Any], str]]:
        """The chain, checked.

        Raises
        ------
        ValueError
            If a link does not follow from those before it.
        """
        query = "SELECT receipt, link FROM receipts WHERE population = ? ORDER BY number"
        found, previous = [], ""
        for number, (text, link) in enumerate(self._rows(query, population)):
            receipt = json.loads(text)
            if receipt["number"] != number or link != chained(previous, receipt):
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
        """How many receipts there are, and the last link."""
        query = "SELECT number, link FROM receipts WHERE population = ? ORDER BY number DESC LIMIT 1"
        rows = self._rows(query, population)
        return (rows[0][0] + 1, rows[0][1]) if rows else (0, "")


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Names of the columns of every table."""
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


__all__ = ["ROLES", "SCHEMA", "Asked", "Client", "Cohort", "Population", "Records", "chained", "now"]
