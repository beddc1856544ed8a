"""What the custodian remembers, in one SQLite file: clients, populations, cohorts, requests with answers, receipts.

Nothing in it is an attribute or a key: clients are kept with the hash of theirs.
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
_TABLES = (
    "CREATE TABLE IF NOT EXISTS clients (name TEXT PRIMARY KEY, hash TEXT NOT NULL, roles TEXT NOT NULL, epsilon REAL,"
    " created TEXT NOT NULL)",
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
    """Who asks: a name, what for, and the largest epsilon of each population that is theirs (None: all of it)."""

    name: str
    roles: tuple[str, ...]
    epsilon: float | None
    hash: str = ""


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
        self._rows("PRAGMA journal_mode = WAL")
        with self._connection() as connection:
            for table in _TABLES:
                connection.execute(table)

    @contextmanager
    def _connection(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=60.0)) as connection:
            return connection.execute(query, values).fetchall()

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
        values = (client.name, client.hash, " ".join(client.roles), client.epsilon, now())
        with self._connection(durable=True) as connection:
            connection.execute("INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?, ?)", values)

    def clients(self) -> list[Client]:
        """Everybody with a key."""
        rows = self._rows("SELECT name, roles, epsilon, hash FROM clients ORDER BY name")
        return [Client(name, tuple(roles.split()), epsilon, kept) for name, roles, epsilon, kept in rows]

    def drop_clients(self, names: Sequence[str]) -> None:
        """Their keys are deleted."""
        with self._connection(durable=True) as connection:
            connection.executemany("DELETE FROM clients WHERE name = ?", [(name,) for name in names])

    # -- populations and cohorts

    def put_population(self, one: Population) -> None:
        """Register; a name is used once."""
        lists = json.dumps(one.columns), json.dumps(one.groups)
        values = (one.name, *lists, one.epsilon, one.delta, one.people, one.registered, one.retired)
        with self._connection(durable=True) as connection:
            connection.execute("INSERT INTO populations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def retire(self, name: str) -> None:
        """Say so, and forget who is in which cohort and what was answered: receipts and ledger stay."""
        with self._connection(durable=True) as connection:
            connection.execute("UPDATE populations SET retired = ? WHERE name = ?", (now(), name))
            connection.execute("DELETE FROM cohorts WHERE population = ?", (name,))
            connection.execute("UPDATE requests SET answer = NULL WHERE population = ?", (name,))

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

    def put_part(self, client: str, request: str, part: int, digest: str, size: int) -> None:
        """One more has come, and is in its file."""
        with self._connection() as connection:
            connection.execute("INSERT INTO parts VALUES (?, ?, ?, ?, ?)", (client, request, part, digest, size))

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


def _population(row: Sequence[Any]) -> Population:
    name, columns, groups, *rest = row
    listed = tuple(tuple(one) if isinstance(one, list) else one for one in json.loads(groups))
    return Population(name, tuple(json.loads(columns)), listed, *rest)


__all__ = ["ROLES", "Asked", "Client", "Cohort", "Population", "Records", "chained", "now"]
