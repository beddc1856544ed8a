"""What a ledger file may not be: another's, damaged, edited, rewritten, read only, or on a full disk."""

import json
import os
import resource
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ledger_files import SIGMA, SMALL, assert_one_sentence, edited, inserted, opened, release

from justitia import BudgetExceeded, DurableLedger, LedgerError
from justitia.privacy.accounting import Cost, GaussianCost, RandomizedResponseCost, SelectionCost
from justitia.privacy.durable_ledger import _connect
from justitia.privacy.ledger import Release


def statement(path: Path, *sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for one in sql:
            connection.execute(one)


# --- what a file may not be


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dataset": "others"}, "was made with dataset='people', got 'others'"),
        ({"epsilon": 2.0}, r"was made with epsilon=1\.0, got 2\.0"),
        ({"delta": 1e-6}, "was made with delta=1e-05, got 1e-06"),
    ],
)
def test_file_of_another_dataset_or_budget_is_refused(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    opened(tmp_path)
    with pytest.raises(LedgerError, match=text) as caught:
        opened(tmp_path, **change)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"people and their budget\n" * 300, "is not a ledger"),
        (b"SQLite format 3\0", "is not a ledger"),
    ],
)
def test_file_of_something_else_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "people.ledger").write_bytes(content)
    with pytest.raises(LedgerError, match=text) as caught:
        opened(tmp_path)
    assert_one_sentence(caught.value)
    assert (tmp_path / "people.ledger").read_bytes() == content


def test_database_of_something_else_is_refused(tmp_path: Path) -> None:
    statement(tmp_path / "people.ledger", "CREATE TABLE debits (number INTEGER)")
    with pytest.raises(LedgerError, match="is a database but not a ledger") as caught:
        opened(tmp_path)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (1, r"has schema 1 of an older version of justitia, and this one reads 2; keep it as a record, and make a new"),
        (3, r"has schema 3 and this version of justitia reads 2; upgrade it\."),
    ],
)
def test_other_schema_is_refused(tmp_path: Path, version: int, text: str) -> None:
    statement(opened(tmp_path).path, f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match=text) as caught:
        opened(tmp_path)
    assert_one_sentence(caught.value)


def test_cost_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    inserted(ledger, '{"kind": "magic"}')
    with pytest.raises(LedgerError, match="holds a cost that this version cannot read"):
        ledger.debit(release())


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = opened(tmp_path).path
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="is damaged") as caught:
        opened(tmp_path)
    assert_one_sentence(caught.value)


def test_folder_in_the_place_of_the_file_and_missing_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "people.ledger").mkdir()
    with pytest.raises(LedgerError, match="to be a file, got a folder"):
        opened(tmp_path)
    with pytest.raises(LedgerError, match="does not exist; make it"):
        opened(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="There is no ledger"):
        DurableLedger.open(tmp_path / "none.ledger")


def test_journal_without_its_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.ledger-journal").write_bytes(b"x")
    with pytest.raises(LedgerError, match="is gone but its journal is there"):
        opened(tmp_path)


ROW = "'sizes', '{\"kind\": \"gaussian\", \"noise_multiplier\": 1e9}', 1.0, 'row', 'now', 'run', 'v', 'x'"


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM debits",
        "UPDATE debits SET cost = '{}'",
        "UPDATE OR IGNORE debits SET number = 7",
        *(f"{verb} INTO debits VALUES (0, {ROW})" for verb in ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE")),
        f"INSERT INTO debits VALUES (0, {ROW}) ON CONFLICT (number) DO UPDATE SET cost = excluded.cost",
        f"INSERT INTO debits VALUES (2, {ROW})",
        f"INSERT INTO debits VALUES (-1, {ROW})",
        f"INSERT INTO debits VALUES (NULL, {ROW})",
        "UPDATE ledger SET epsilon = 9.0",
        "UPDATE OR REPLACE ledger SET delta = 0.5",
        "DELETE FROM ledger",
        "INSERT INTO ledger SELECT * FROM ledger",
        "INSERT OR REPLACE INTO ledger (rowid, identity, dataset, epsilon, delta, created, version)"
        " SELECT rowid, identity, dataset, 9.0, delta, created, version FROM ledger",
    ],
)
def test_debits_and_budget_cannot_be_changed_by_ordinary_statements(tmp_path: Path, sql: str) -> None:
    ledger = opened(tmp_path)
    ledger.debit(release())
    with pytest.raises(sqlite3.IntegrityError, match=r"a (debit|budget) stands"):
        statement(ledger.path, sql)
    assert opened(tmp_path).epsilon() == pytest.approx(0.9999, abs=1e-4)


@pytest.mark.parametrize(
    "sql",
    [
        f"UPDATE debits SET cost = '{SMALL}' WHERE number = 0",
        f"UPDATE debits SET cost = '{SMALL}' WHERE number = 1",
        "UPDATE debits SET purpose = 'another'",
        "UPDATE debits SET sensitivity = 0.5",
        "UPDATE debits SET unit = 'person'",
        "UPDATE debits SET time = 'then'",
        "UPDATE debits SET run = 'mine'",
        "UPDATE debits SET version = 'old'",
        "UPDATE debits SET link = 'x'",
        "UPDATE debits SET number = 1 - number + 10; UPDATE debits SET number = number - 10",
        "UPDATE ledger SET epsilon = 9.0",
        "UPDATE ledger SET created = 'then'",
    ],
)
def test_file_that_was_edited_without_its_triggers_is_refused_when_it_is_opened(tmp_path: Path, sql: str) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    ledger.debit(release(GaussianCost(5.0)))
    edited(ledger.path, *sql.split(";"))
    with pytest.raises(LedgerError, match="was changed by other means than a debit") as caught:
        DurableLedger.open(ledger.path)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("sql", ["DROP TRIGGER debits_stand", "CREATE TABLE more (number INTEGER)"])
def test_file_with_other_triggers_or_tables_is_refused(tmp_path: Path, sql: str) -> None:
    ledger = opened(tmp_path)
    statement(ledger.path, sql)
    with pytest.raises(LedgerError, match="has tables or triggers that were changed") as caught:
        opened(tmp_path)
    assert_one_sentence(caught.value)
    with pytest.raises(LedgerError, match="has tables or triggers that were changed"):
        ledger.debit(release())


def test_unit_of_a_release_is_kept_in_the_file_and_its_export(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(Release("sizes", GaussianCost(SIGMA), 2.0, unit="person"))
    ledger.debit(release())
    assert [one.unit for one in opened(tmp_path, epsilon=5.0).releases] == ["person", "row"]
    assert [one["unit"] for one in json.loads(ledger.to_json())["entries"]] == ["person", "row"]


@pytest.mark.parametrize("cost", [GaussianCost(1e4), SelectionCost(1e3, 0.5)])
def test_budget_without_delta_refuses_gaussian_noise(tmp_path: Path, cost: Cost) -> None:
    ledger = opened(tmp_path, epsilon=50.0, delta=0.0)
    with pytest.raises(BudgetExceeded, match="no amount of Gaussian noise suffices"):
        ledger.debit(release(cost))
    assert ledger.debit(release(RandomizedResponseCost(0.25, 3))) == 0


def test_file_that_lost_debits_or_was_replaced_or_is_gone_is_refused(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    edited(ledger.path, "DELETE FROM debits")
    with pytest.raises(LedgerError, match="lacks debits that were made"):
        ledger.debit(release())
    (tmp_path / "new").mkdir()
    opened(tmp_path / "new", epsilon=5.0).path.replace(ledger.path)
    with pytest.raises(LedgerError, match="was replaced by another one"):
        ledger.debit(release())
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="is gone; restore its newest copy"):
        ledger.debit(release())
    assert not ledger.path.exists()


def test_file_in_use_is_waited_for_and_then_refused_with_a_sentence(tmp_path: Path) -> None:
    ledger = opened(tmp_path, timeout=0.05)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match=r"was in use by other processes for 0\.05 s; try again") as caught:
        ledger.debit(release())
    assert_one_sentence(caught.value)
    other.close()
    assert ledger.debit(release()) == 0


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o555, 0o666), (0o777, 0o444)])
def test_file_or_folder_that_is_read_only_is_refused_but_can_be_looked_at(folder_mode: int, file_mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = opened(folder)
        ledger.debit(release())
        ledger.path.chmod(file_mode)
        folder.chmod(folder_mode)
        with ordinary_user():
            with pytest.raises(LedgerError, match="written; allow writing to the file and to its folder") as caught:
                opened(folder)
            shown = DurableLedger.open(ledger.path)
            assert len(shown.releases) == 1
            with pytest.raises(LedgerError, match="written; allow writing"):
                shown.debit(release(GaussianCost(1000.0)))
        assert_one_sentence(caught.value)
        folder.chmod(0o777)


def test_ledger_in_a_read_only_folder_is_not_made() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with ordinary_user(), pytest.raises(LedgerError) as caught:
            opened(folder)
        assert_one_sentence(caught.value)
        folder.chmod(0o777)
        assert list(folder.iterdir()) == []


def test_file_has_a_rollback_journal_and_commits_wait_for_the_disk(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    with _connect(ledger.path, ledger.timeout) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA


def test_full_disk_refuses_the_debit_and_room_allows_it_again(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    long = Release("x" * 60_000, GaussianCost(SIGMA), 1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size + 8192, limits[1]))
    try:
        with pytest.raises(LedgerError, match="the disk") as caught:
            ledger.debit(long)
        assert_one_sentence(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert opened(tmp_path, epsilon=5.0).releases == ()
    assert ledger.debit(long) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dataset": ""}, "dataset"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_wrong_argument_is_refused_and_no_file_is_made(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        opened(tmp_path, **change)
    assert list(tmp_path.iterdir()) == []


def test_copy_of_a_file_that_another_program_gave_a_write_ahead_log_holds_every_debit(tmp_path: Path) -> None:
    """Entries in such a log are not in the file that people copy."""
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    statement(ledger.path, "PRAGMA journal_mode = WAL")
    ledger.debit(release())
    assert sorted(one.name for one in tmp_path.iterdir()) == [ledger.path.name]
    (tmp_path / "copy").mkdir()
    copied = tmp_path / "copy" / ledger.path.name
    copied.write_bytes(ledger.path.read_bytes())
    assert len(opened(tmp_path / "copy", epsilon=5.0).releases) == 2
    with closing(sqlite3.connect(copied)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_debit_while_another_program_reads_through_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0, timeout=0.0)
    ledger.debit(release())
    reader = sqlite3.connect(ledger.path, isolation_level=None)
    reader.execute("PRAGMA journal_mode = WAL")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM debits").fetchall()
    with pytest.raises(LedgerError, match="in use by other processes"):
        ledger.debit(release())
    reader.close()
    assert ledger.debit(release()) == 1


def test_sensitivity_of_minus_zero_is_read_back_as_what_was_hashed(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.debit(Release("constant rows", GaussianCost(SIGMA), -0.0))  # SQLite keeps no sign of zero
    assert DurableLedger.open(ledger.path).releases == ledger.releases


def test_debit_that_is_deleted_from_the_middle_counts_for_who_read_it_and_is_noticed_by_the_next(
    tmp_path: Path,
) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    for _ in range(3):
        ledger.debit(release())
    spent = ledger.epsilon()
    edited(ledger.path, "DELETE FROM debits WHERE number = 1")
    assert ledger.epsilon() == spent
    assert ledger.debit(release()) == 3
    with pytest.raises(LedgerError, match="lacks debits that were made"):
        DurableLedger.open(ledger.path)
