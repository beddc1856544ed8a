"""The attribute in a database: read only, each entry by itself, and no error shows the connection."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from databases import postgres, programs, run_duckdb, run_postgres

from justitia.cli import cli
from justitia.cli.files.databases import DATABASE
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.register import Register, digests_of
from justitia.privacy.vault import SensitiveVault

NO_POSTGRES = pytest.mark.skipif(programs() is None, reason="there is no initdb and postgres on this machine")
OPTIONS = ("--population", "people", "--id", "id", "--sensitive", "sex", "--groups", "a,b", "--epsilon", "3")
PEOPLE = "('1', 'a'), ('2', 'b'), ('3', 'a'), ('4', 'b'), ('5', 'a')"


class Source:
    """A database, and the command that registers from it."""

    def __init__(self, kind: str, place: Any) -> None:
        self.kind, self.place, self._made = kind, place, 0

    def run(self, *lines: str) -> None:
        (run_duckdb if self.kind == "duckdb" else run_postgres)(self.place, *lines)

    def table(self, columns: str, rows: str, name: str = "staff") -> None:
        self.run(
            f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES {rows}"
        )

    def register(self, folder: Path, *more: str, table: str = "staff", options: Any = OPTIONS) -> Result:
        self._made += 1
        holder = folder / f"holder{self._made}"
        run = CliRunner(env={DATABASE: str(self.place)} if self.kind == "postgres" else {})
        assert run.invoke(cli, ["custodian", "init", str(holder)]).exit_code == 0
        file = [str(self.place)] if self.kind == "duckdb" else []
        found = run.invoke(cli, ["custodian", "register", str(holder), *file, "--table", table, *options, *more])
        self.attribute = holder / "populations" / "people.attribute"
        return found

    def groups(self, ids: list[str], groups: tuple[str, ...] = ("a", "b")) -> list[int]:
        """The group of each of these people, 2 for "not given"."""
        cohort = Register.read(self.attribute).cohort(digests_of(ids))
        vault = SensitiveVault(cohort, groups=list(groups), ledger=PrivacyLedger(epsilon=float("inf"), delta=0.0))
        return [int(one) for one in vault.reveal(purpose="test")]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory, where that is a folder: a custodian waits for the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=NO_POSTGRES)])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    place = tmp_path / "people.duckdb" if request.param == "duckdb" else request.getfixturevalue("server")
    return Source(request.param, place)


def output(result: Result) -> str:
    """What is printed, without the name of the folder."""
    return "\n".join(line for line in result.output.splitlines() if "holder" not in line)


ENTRIES = [
    "NULL",
    "''",
    "'no such group'",
    "'A'",
    "'é\u202e\U0001f600'",
    "'it''s; DROP TABLE staff'",
    f"'{'x' * 100_000}'",
]


@pytest.mark.parametrize("entry", ENTRIES, ids=[one[:12] for one in ENTRIES])
def test_entry_of_one_person_changes_nobody_elses_and_not_what_is_said(
    entry: str, source: Source, tmp_path: Path
) -> None:
    source.table("id TEXT, sex TEXT", PEOPLE)
    here = source.register(tmp_path)
    assert (here.exit_code, source.groups(list("12345"))) == (0, [0, 1, 0, 1, 0])
    source.table("id TEXT, sex TEXT", PEOPLE.replace("('3', 'a')", f"('3', {entry})"))
    there = source.register(tmp_path)
    assert (there.exit_code, output(there)) == (here.exit_code, output(here))
    assert source.groups(list("12345")) == [0, 1, 2, 1, 0]


ROWS = [
    "('3', 'b'), ('3', NULL)",  # the same person again
    "(NULL, 'b'), (NULL, NULL), ('', 'b')",  # nobody
    f"('{'9' * 5000}', 'b')",
    "('ﬁ\U0001f600', 'b'), ('3 3', 'b'), ('p.0', 'b')",
]


@pytest.mark.parametrize("rows", ROWS, ids=["again", "nobody", "huge", "unicode"])
def test_rows_of_one_person_or_nobody_change_no_other_ones_group(rows: str, source: Source, tmp_path: Path) -> None:
    for place in (f"{rows}, {PEOPLE}", f"{PEOPLE}, {rows}"):
        source.table("id TEXT, sex TEXT", place)
        assert source.register(tmp_path).exit_code == 0
        assert source.groups(["1", "2", "4", "5"]) == [0, 1, 1, 0]


#: Types of ids, what somebody's odd id is, and how clients write those of the others.
IDS = [
    ("INTEGER", "2147483647", ["1", "2", "4", "5"]),
    ("INTEGER", "NULL", ["1.0", "2.0", "4", "5"]),
    ("DOUBLE PRECISION", "1e300", ["1", "2.0", "4", "5"]),
    ("DOUBLE PRECISION", "'nan'", ["1", "2.0", "4", "5"]),
    ("NUMERIC(38, 2)", "99999999999999999999999999.99", ["1", "2", "4.00", "5"]),
    ("BIGINT", "-9223372036854775808", ["1", "2", "4", "5"]),
]


@pytest.mark.parametrize(("kind", "odd", "asked"), IDS)
def test_ids_of_numbers_are_those_that_clients_write(
    kind: str, odd: str, asked: list[str], source: Source, tmp_path: Path
) -> None:
    rows = "(1, 'a'), (2, 'b'), ({}, 'a'), (4, 'b'), (5, 'a')"
    for third in ("3", odd):
        source.table(f"id {kind}, sex TEXT", rows.format(third))
        assert source.register(tmp_path).exit_code == 0
        assert source.groups(asked) == [0, 1, 1, 0]


#: Types of the attribute, how two groups are written in it and as text, and an entry that Python has no room for.
KINDS = [
    ("INTEGER", "0", "1", "0,1", "-2147483648"),
    ("DOUBLE PRECISION", "0", "1.0", "0,1", "'infinity'"),
    ("BOOLEAN", "false", "true", "false,true", "NULL"),
    ("DATE", "'2000-01-01'", "'2001-02-03'", "2000-01-01,2001-02-03", "'infinity'"),
    ("TIMESTAMP", "'2000-01-01'", "'2001-02-03'", "2000-01-01 00:00:00,2001-02-03 00:00:00", "'-infinity'"),
    ("INTERVAL", "'1 day'", "'2 days'", "1 day,2 days", "'99999 years'"),
    ("INTEGER[]", "ARRAY[1]", "ARRAY[2]", "", "ARRAY[1, NULL]"),
    ("UUID", f"'{'0' * 32}'", f"'{'1' * 32}'", "", "NULL"),
]


@pytest.mark.parametrize(("kind", "one", "other", "names", "odd"), KINDS, ids=[row[0] for row in KINDS])
def test_attribute_of_any_type_is_what_the_database_writes(
    kind: str, one: str, other: str, names: str, odd: str, source: Source, tmp_path: Path
) -> None:
    if source.kind == "postgres" and kind.endswith("[]"):
        pytest.skip("lists are not read there")
    known = ("--groups", names or "x,y")
    options = [*(word for word in OPTIONS if word not in {"--groups", "a,b"}), *known]
    first = ""
    for third, expected in ((one, [0, 1, 0]), (odd, [0, 1, 2])):
        source.table(f"id TEXT, sex {kind}", f"('1', {one}), ('2', {other}), ('3', {third})")
        found = source.register(tmp_path, options=options)
        assert found.exit_code == 0
        assert output(found) == (first or output(found))
        first = output(found)
        assert source.groups(list("123"), tuple(known[1].split(","))) == (expected if names else [2, 2, 2])


def test_names_that_are_no_plain_words_are_quoted(source: Source, tmp_path: Path) -> None:
    source.run('CREATE SCHEMA IF NOT EXISTS "of; all"')
    source.table('"i""d;--" TEXT, "sex (told)" TEXT', PEOPLE, name='"of; all"."st.aff"')
    options = [{"id": 'i"d;--', "sex": "sex (told)"}.get(word, word) for word in OPTIONS]
    assert source.register(tmp_path, table='of; all."st.aff"', options=options).exit_code == 0
    assert source.groups(list("12345")) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("table", "change", "sentence"),
    [
        ("nowhere", {}, "rows of its own"),
        ("computed", {}, "rows of its own"),
        ("a.b.c", {}, "SCHEMA.NAME"),
        ("staff; DROP TABLE staff", {}, "rows of its own"),
        ("staff", {"sex": "sec"}, "did you mean 'sex'?"),
        ("staff", {"id": "ids"}, "did you mean 'id'?"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_sentence(
    table: str, change: dict[str, str], sentence: str, source: Source, tmp_path: Path
) -> None:
    source.run("DROP VIEW IF EXISTS computed")
    source.table("id TEXT, sex TEXT", PEOPLE)
    source.run("CREATE VIEW computed AS SELECT id, CAST(sex AS INTEGER) AS sex FROM staff")
    try:
        found = source.register(tmp_path, table=table, options=[change.get(word, word) for word in OPTIONS])
    finally:
        source.run("DROP VIEW computed")
    assert found.exit_code == 2
    assert sentence in found.output
    assert not source.attribute.exists()


@NO_POSTGRES
@pytest.mark.parametrize(
    ("kind", "code"), [("ENUM ('f', 'm')", 0), ("(word TEXT)", 2)], ids=["listed words", "a type of its own"]
)
def test_columns_whose_text_may_fail_for_one_entry_are_not_read(
    kind: str, code: int, server: str, tmp_path: Path
) -> None:
    source = Source("postgres", server)
    source.run("DROP TABLE IF EXISTS staff CASCADE", "DROP TYPE IF EXISTS told CASCADE", f"CREATE TYPE told AS {kind}")
    source.run("CREATE TABLE staff (id TEXT, sex told)")
    found = source.register(tmp_path)
    source.run("DROP TABLE staff", "DROP TYPE told")
    assert found.exit_code == code, found.output
    assert ("'sex'" in found.output) == bool(code)


@NO_POSTGRES
@pytest.mark.parametrize("kind", ["JSONB", "NUMERIC[]", "BYTEA"])
def test_columns_whose_small_entries_may_be_too_long_as_text_are_not_read(
    kind: str, server: str, tmp_path: Path
) -> None:
    source = Source("postgres", server)
    source.table(f"id TEXT, sex {kind}", "('1', NULL)")
    found = source.register(tmp_path)
    source.run("DROP TABLE staff")
    assert found.exit_code == 2
    assert "'sex'" in found.output


@NO_POSTGRES
def test_texts_that_are_too_long_to_be_sent_are_none(server: str, tmp_path: Path) -> None:
    source = Source("postgres", server)
    source.table("id TEXT, sex TEXT", PEOPLE)
    here = source.register(tmp_path)
    long = "repeat('x', 1000001)"
    source.run(f"UPDATE staff SET sex = {long} WHERE id = '3'", f"INSERT INTO staff VALUES ({long}, 'a')")
    there = source.register(tmp_path)
    assert (there.exit_code, output(there)) == (0, output(here))
    assert source.groups(list("12345")) == [0, 1, 2, 1, 0]


@NO_POSTGRES
def test_postgres_is_read_in_a_transaction_that_cannot_write(server: str, tmp_path: Path) -> None:
    source = Source("postgres", server)
    source.table("id TEXT, sex TEXT", PEOPLE)
    source.run(
        "DROP TABLE IF EXISTS seen CASCADE",
        "CREATE TABLE seen (query TEXT)",
        "CREATE OR REPLACE FUNCTION keep() RETURNS BOOLEAN LANGUAGE sql"
        " AS $$ INSERT INTO seen VALUES ('x') RETURNING true $$",
        "ALTER TABLE staff ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE staff FORCE ROW LEVEL SECURITY",
        "CREATE POLICY watched ON staff USING (keep())",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON staff TO reader",
        "GRANT INSERT, SELECT ON seen TO reader",
    )
    found = Source("postgres", server.replace("holder", "reader")).register(tmp_path)
    assert found.exit_code == 2
    assert "the rows of 'staff' cannot be read" in found.output


@NO_POSTGRES
def test_bytes_that_are_no_text_are_one_persons_own(tmp_path: Path) -> None:
    with postgres(encoding="SQL_ASCII") as url:
        source = Source("postgres", url)
        source.table("id TEXT, sex TEXT", PEOPLE.replace("('3', 'a')", r"('3', E'\xff\xfe')"))
        assert source.register(tmp_path).exit_code == 0
        assert source.groups(list("12345")) == [0, 1, 2, 1, 0]


SECRETS = [
    "postgresql://holder:a-secret-word@127.0.0.1:1/postgres",
    "host=127.0.0.1 port=1 password=a-secret-word",
    "a-secret-word",
    "password='a-secret-word",
    "postgresql://a-secret-word",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_connection_string_is_in_no_error(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUSTITIA_TRACEBACK", "1")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "1")
    (tmp_path / "secret").write_text(secret + "\n")
    assert CliRunner().invoke(cli, ["custodian", "init", str(tmp_path / "holder")]).exit_code == 0
    given = ["--table", "staff", "--database-file", str(tmp_path / "secret"), *OPTIONS]
    found = CliRunner().invoke(cli, ["custodian", "register", str(tmp_path / "holder"), *given])
    assert found.exit_code == 2
    assert "the connection string opens" in found.output
    kept = b"".join(one.read_bytes() for one in (tmp_path / "holder").rglob("*") if one.is_file())
    assert b"a-secret-word" not in found.output.encode() + kept
    error: BaseException | None = found.exception
    while error is not None:
        assert "a-secret-word" not in repr(error)
        error = error.__context__


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--table", "staff"], "connection string of a database, got none"),
        (["{file}"], "pass --table NAME"),
        (["{file}", "--table", "staff", "--database-file", "x"], "got both"),
        (["{text}", "--table", "staff"], "no DuckDB file that can be read"),
    ],
)
def test_sources_that_are_not_named_whole_are_refused(words: list[str], sentence: str, tmp_path: Path) -> None:
    file, text = tmp_path / "people.duckdb", tmp_path / "people.txt"
    run_duckdb(file, "CREATE TABLE staff (id TEXT)")
    text.write_text("id,sex\n")
    holder = str(tmp_path / "holder")
    assert CliRunner().invoke(cli, ["custodian", "init", holder]).exit_code == 0
    given = [word.format(file=file, text=text) for word in words]
    found = CliRunner().invoke(cli, ["custodian", "register", holder, *given, *OPTIONS])
    assert found.exit_code == 2
    assert sentence in found.output
