"""Tables of Postgres and DuckDB, from which a custodian reads the attribute by one read-only query.

The connection string of Postgres is a secret: it comes from a file or from the environment, and is in no argument, log
or error. Messages of the database libraries are not shown, because they may quote it or an entry.

Guarantee
---------
* Whether a table can be read depends on its name, its kind, and the names and types of its columns. The database
  converts every entry to text, and each is read by itself; an entry that cannot be read is None.
* Rows are sorted by their values, because a table has no order: of several rows of one person the same one counts,
  whatever the other people's rows are.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.reading import Table, as_text
from justitia.privacy.columns import INTERRUPTS, read_each
from justitia.privacy.frames import forgets_locals

#: Environment variables for the connection string if no file is named: the string itself, or the file with it.
DATABASE, DATABASE_FILE = "JUSTITIA_CUSTODIAN_DATABASE", "JUSTITIA_CUSTODIAN_DATABASE_FILE"
DUCKDB = (".duckdb", ".ddb", ".db")
#: Kinds of relations in Postgres that store rows; the query of a view may fail for one row.
_STORED = "rpm"
_FLOATS = {"float4", "float8", "FLOAT", "DOUBLE"}
_RELATION = (
    "SELECT n.nspname::text, c.oid::text, c.relkind::text FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = %(table)s AND (n.nspname = %(schema)s"
    " OR (%(schema)s = '' AND pg_catalog.pg_table_is_visible(c.oid)))"
)
_COLUMNS = (
    "SELECT a.attname::text, t.typname::text, a.attgenerated::text FROM pg_catalog.pg_attribute a"
    " JOIN pg_catalog.pg_type t ON t.oid = a.atttypid"
    " WHERE a.attrelid = %(relation)s::oid AND a.attnum > 0 AND NOT a.attisdropped AND (t.typtype = 'e'"
    " OR (t.typnamespace = 'pg_catalog'::regnamespace AND (t.typname = 'uuid' OR t.typcategory IN ('B', 'D', 'N', 'S',"
    " 'T')))) ORDER BY a.attnum"
)
#: Bytes of the longest text that is read: Postgres cannot send a row with more than 1 GB.
_LONGEST = 1_000_000
_SAFE = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
}
Entries = list[tuple[Any, ...]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class DatabaseTable(Table):
    """A table of a database, of which only the attribute and ids are read.

    Attributes
    ----------
    fetch : callable
        From names of columns to rows of text, or of bytes of text.
    kinds : dict
        The type of each column.
    codec : str
        Encoding of the bytes.
    """

    fetch: Callable[[Sequence[str]], Entries] = field(default=lambda _: [], repr=False)
    kinds: dict[str, str] = field(default_factory=dict)
    codec: str = "utf-8"

    @forgets_locals
    def private(self, names: Sequence[str]) -> dict[str, list[str | None]]:
        """These columns as text, by one query; None for entries that are empty or cannot be read."""
        rows = self.fetch(names)
        columns = [read_each(self._reader(name), (row[at] for row in rows)) for at, name in enumerate(names)]
        ordered = sorted(zip(*columns, strict=True), key=lambda row: tuple(one or "" for one in row))
        return {name: [row[at] for row in ordered] for at, name in enumerate(names)}

    def _reader(self, name: str) -> Callable[[Any], str | None]:
        def read(entry: Any) -> str | None:
            text = entry.decode(self.codec) if isinstance(entry, bytes) else entry
            return as_text(float(text) if text is not None and self.kinds[name] in _FLOATS else text)

        return read


def open_database(file: Path | None, table: str | None, database_file: Path | None) -> DatabaseTable:
    """Open a table of a DuckDB file, or of Postgres if no file is named, and read the names of its columns.

    Raises
    ------
    Refusal
        If there is no such table, or it is a view.
    """
    if table is None:
        raise Refusal(f"expected the table of {shown_path(file or Path())}, got none; pass --table NAME.")
    schema, name = _parts(table)
    if file is not None:
        if database_file is not None:
            raise Refusal("expected FILE or --database-file, got both; the latter is for Postgres.")
        return _open_duckdb(file, table, schema, name)
    return _open_postgres(_connection_string(database_file), table, schema, name)


def _parts(table: str) -> tuple[str, str]:
    """Schema and name of a table; either may be in double quotes."""
    parts = next(csv.reader([table], delimiter="."), [])
    if len(parts) not in (1, 2) or not all(parts):
        raise Refusal(f"expected a table as NAME or SCHEMA.NAME, got {table!r}.")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def _hide_errors(sentence: str, query: Callable[[], Found]) -> Found:
    """Run a query; any error of the library is replaced by this sentence."""
    try:
        return query()
    except (Refusal, *INTERRUPTS):
        raise
    except BaseException:  # noqa: BLE001, S110 - each library has errors of its own, which quote strings and entries
        pass
    raise Refusal(sentence)  # outside, so that it does not carry the other error with it


def _found(table: str, columns: Iterable[tuple[str, str]], **more: Any) -> DatabaseTable:
    kinds = dict(columns)
    return DatabaseTable(Path(table), tuple(kinds), kinds=kinds, **more)


def _none_or_view(table: str) -> Refusal:
    return Refusal(
        f"expected a table with rows of its own, got {table!r}, which is none that can be seen, or a view: what a view "
        "computes may fail for one entry; name a table or a materialized view."
    )


# -- DuckDB


def _open_duckdb(file: Path, table: str, schema: str, name: str) -> DatabaseTable:
    file.open("rb").close()  # raises the operating system's error for a file that cannot be read
    query = (
        "SELECT t.schema_name, c.column_name, c.data_type FROM duckdb_tables() t JOIN duckdb_columns() c"
        " USING (database_name, schema_name, table_name) WHERE database_name = current_database()"
        " AND table_name = $name AND schema_name = $schema ORDER BY c.column_index"
    )
    found = _duckdb_rows(file, query, {"name": name, "schema": schema or "main"})
    if not found:
        raise _none_or_view(table)
    place = f"{_quoted(found[0][0])}.{_quoted(name)}"

    def fetch(names: Sequence[str]) -> Entries:
        # TRY: a column that is computed when it is read may fail for one entry
        entries = ", ".join(f"TRY(CAST({_quoted(one)} AS VARCHAR))" for one in names)
        return _duckdb_rows(file, f"SELECT {entries} FROM {place}", {})  # noqa: S608 - names are quoted

    return _found(table, [(column, kind) for _, column, kind in found], fetch=fetch)


def _duckdb_rows(file: Path, query: str, values: dict[str, str]) -> Entries:
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError:
        raise Refusal("a DuckDB file needs one more package; run pip install 'justitia[custodian]'.") from None

    def ask() -> Entries:
        with duckdb.connect(file, read_only=True, config=dict(_SAFE)) as connection:
            return list(connection.execute(query, values).fetchall())

    sentence = f"{shown_path(file)} is no DuckDB file that can be read now; is another program writing to it?"
    return _hide_errors(sentence, ask)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# -- Postgres


def _connection_string(file: Path | None) -> str:
    named = file if file is not None else os.environ.get(DATABASE_FILE)
    text = Path(named).read_text(encoding="utf-8") if named is not None else os.environ.get(DATABASE, "")
    if not text.strip():
        raise Refusal(
            "expected the connection string of a database, got none; name its file with --database-file, or set "
            f"{DATABASE}."
        )
    return text.strip()


def _connected(secret: str) -> Any:
    """A read-only transaction in which texts come as the stored bytes, because a conversion could fail for an entry."""
    try:
        import psycopg  # noqa: PLC0415 - an extra
        from psycopg.adapt import Loader  # noqa: PLC0415
    except ImportError:
        raise Refusal("Postgres needs one more package; run pip install 'justitia[custodian]'.") from None

    class Raw(Loader):
        def load(self, data: Any) -> bytes:
            return bytes(data)

    def connect() -> Any:
        connection = psycopg.connect(secret, connect_timeout=10)
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        stored = connection.info.parameter_status("server_encoding")
        connection.execute(psycopg.sql.SQL("SET client_encoding TO {}").format(stored))
        connection.adapters.register_loader("text", Raw)
        return connection

    return _hide_errors("expected a database that the connection string opens, got none; check both.", connect)


def _open_postgres(secret: str, table: str, schema: str, name: str) -> DatabaseTable:
    codec, place, columns = _postgres_columns(secret, table, schema, name)

    def fetch(names: Sequence[str]) -> Entries:
        from psycopg import sql  # noqa: PLC0415 - an extra

        text = sql.SQL("CASE WHEN octet_length({0}::text) <= {1} THEN {0}::text END")
        entries = sql.SQL(", ").join(text.format(sql.Identifier(one), _LONGEST) for one in names)
        query = sql.SQL("SELECT {} FROM {}").format(entries, sql.Identifier(place, name))
        sentence = f"the rows of {table!r} cannot be read; may this user of the database see them?"
        with _connected(secret) as connection:
            return _hide_errors(sentence, lambda: list(connection.execute(query).fetchall()))

    return _found(table, columns, fetch=fetch, codec=codec)


def _postgres_columns(secret: str, table: str, schema: str, name: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Encoding, schema, and names and types of the stored columns with numbers, text, enums and times.

    The conversion of other types to text may fail for one entry: user-defined types run user-defined code, and the text
    of bytes, lists and JSON may be longer than Postgres can make it.
    """

    def ask() -> tuple[str, str, list[tuple[str, str]]]:
        codec = "utf-8" if connection.info.encoding == "ascii" else connection.info.encoding
        found = _decoded(codec, connection.execute(_RELATION, {"table": name, "schema": schema}))
        if len(found) != 1 or found[0][2] not in _STORED:
            raise _none_or_view(table)
        place, relation, _ = found[0]
        columns = _decoded(codec, connection.execute(_COLUMNS, {"relation": relation}))
        return codec, place, [(column, kind) for column, kind, generated in columns if generated != "v"]

    with _connected(secret) as connection:
        return _hide_errors(f"the columns of {table!r} cannot be read; may this user of the database see them?", ask)


def _decoded(codec: str, rows: Iterable[tuple[bytes, ...]]) -> list[tuple[str, ...]]:
    return [tuple(one.decode(codec) for one in row) for row in rows]


__all__ = ["DATABASE", "DATABASE_FILE", "DUCKDB", "DatabaseTable", "open_database"]
