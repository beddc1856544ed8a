"""A budget in a file: it outlives the object, is shared by processes, and refuses what it cannot vouch for."""

import copy
import json
import math
import os
import pickle
import resource
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from justitia import BudgetExceeded, DurableLedger, LedgerError, PrivacyLedger
from justitia.privacy.accounting import Cost, GaussianCost, RandomizedResponseCost, SelectionCost, UnboundedCost
from justitia.privacy.costs import COST_KINDS, cost_from_dict, cost_to_dict
from justitia.privacy.ledger import Certificate, Release
from justitia.privacy.ledger_file import Entry, link
from justitia.privacy.vault import SensitiveVault

SIGMA = 3.731  # one release costs epsilon 0.9999 at delta 1e-5
SAMPLES: list[Cost] = [
    GaussianCost(0.1 + 0.2),
    GaussianCost(1 / 3 + 20),
    RandomizedResponseCost(math.pi / 10, 3),
    SelectionCost(20 / 3, 0.1, 1 / 9),
    UnboundedCost(),
]


def release(cost: Cost | None = None, purpose: str = "violation") -> Release:
    return Release(purpose, GaussianCost(SIGMA) if cost is None else cost, 2.0)


def opened(folder: Path, **changes: Any) -> DurableLedger:
    facts: dict[str, Any] = {"dataset": "people", "epsilon": 1.0, "delta": 1e-5} | changes
    return DurableLedger(folder / "people.ledger", **facts)


def statement(path: Path, *sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for one in sql:
        connection.execute(one)
    connection.close()


TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


def edited(path: Path, *sql: str) -> None:
    """Change the file as somebody who knows how: without its triggers, which are put back."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute(TRIGGERS).fetchall()
    for one in [*(f"DROP TRIGGER {name}" for name, _ in triggers), *sql, *(text for _, text in triggers)]:
        connection.execute(one)
    connection.close()


def inserted(ledger: DurableLedger, cost: str, count: int = 1) -> None:
    """Entries as a debit writes them, of another process that may know other costs."""
    connection, previous = sqlite3.connect(ledger.path), ledger.head.hash
    for number in range(count):
        entry = Entry(number, "violation", cost, 1.0, "row", "now", "run", "v")
        previous = link(previous, entry)
        connection.execute("INSERT INTO debits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*entry, previous))
    connection.commit()
    connection.close()


def assert_one_sentence(error: BaseException) -> None:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text


# --- costs in files


def test_samples_hold_every_class_of_cost() -> None:
    assert {type(cost) for cost in SAMPLES} == set(get_args(Cost)) == set(COST_KINDS.values())


@pytest.mark.parametrize("cost", SAMPLES)
def test_cost_through_json_is_the_same_to_the_last_bit(cost: Cost) -> None:
    assert cost_from_dict(json.loads(json.dumps(cost_to_dict(cost)))) == cost


@pytest.mark.parametrize("facts", [{}, {"kind": "magic"}, {"kind": "gaussian"}, {"kind": "gaussian", "sigma": 1.0}])
def test_cost_of_unknown_data_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        cost_from_dict(facts)


@pytest.mark.parametrize("cost", SAMPLES)
def test_composition_over_a_reloaded_ledger_equals_composition_in_memory(tmp_path: Path, cost: Cost) -> None:
    memory = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    for k in range(3):
        opened(tmp_path, epsilon=math.inf).debit(release(cost))
        memory.debit(release(cost))
        assert opened(tmp_path, epsilon=math.inf).epsilon() == memory.epsilon()
        assert opened(tmp_path, epsilon=math.inf).costs() == {cost: k + 1}


def test_mixture_over_a_reloaded_ledger_equals_the_one_in_memory(tmp_path: Path) -> None:
    memory, durable = PrivacyLedger(epsilon=20.0, delta=1e-5), opened(tmp_path, epsilon=20.0)
    for cost in SAMPLES[1:4]:
        memory.debit(release(cost))
        durable.debit(release(cost))
    assert opened(tmp_path, epsilon=20.0).epsilon() == memory.epsilon()
    assert opened(tmp_path, epsilon=20.0).releases == memory.releases


# --- the budget


def test_budget_outlives_the_object_and_numbers_go_on(tmp_path: Path) -> None:
    assert opened(tmp_path, epsilon=2.0).debit(release()) == 0
    again = opened(tmp_path, epsilon=2.0)
    assert again.debit(release()) == 1
    assert [one.purpose for one in again.releases] == ["violation", "violation"]
    assert again.epsilon() == pytest.approx(1.465, abs=1e-3)


def test_full_budget_refuses_with_what_remains_and_what_was_asked(tmp_path: Path) -> None:
    opened(tmp_path, epsilon=1.2).debit(release())
    with pytest.raises(BudgetExceeded) as refusal:
        opened(tmp_path, epsilon=1.2).debit(release(purpose="check"))
    assert str(refusal.value) == (
        "'check' would bring epsilon to 1.465; the budget is 1.2 (spent 0.9999). "
        "Use fewer or noisier releases, or raise epsilon. "
        "This request alone costs epsilon 0.9999; what remains of 'people' pays for 0.6001."
    )
    assert len(opened(tmp_path, epsilon=1.2).releases) == 1


def test_what_remains_fits_and_a_little_more_does_not(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.debit(release(GaussianCost(6.0)))
    mu_left = math.sqrt(1 / 3.7306**2 - 1 / 36)
    with pytest.raises(BudgetExceeded):
        ledger.check({GaussianCost(0.999 / mu_left): 1})
    ledger.check({GaussianCost(1.001 / mu_left): 1})


def test_two_objects_on_one_file_share_the_total(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.debit(release())
    with pytest.raises(BudgetExceeded):
        other.debit(release())
    assert other.costs() == one.costs() == {GaussianCost(SIGMA): 1}
    assert (len(one.own_releases()), len(other.own_releases())) == (1, 0)


def test_threads_on_one_object_together_stay_within_the_budget(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    cost = GaussianCost(SIGMA * math.sqrt(10))  # ten of them fit

    def work() -> None:
        for _ in range(4):
            try:
                ledger.debit(release(cost))
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.costs() == opened(tmp_path).costs() == {cost: 10}


def test_debit_is_in_the_file_before_the_vault_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, seen = opened(tmp_path), []
    from justitia.privacy.mechanisms import Gaussian, SystemNoise

    def words(self: Any, size: int, **_: Any) -> Any:
        seen.append(len(DurableLedger.open(ledger.path).releases))
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemNoise, "words", words)
    vault = SensitiveVault(["a", "b"], groups=["a", "b"], ledger=ledger)
    import torch

    with pytest.raises(KeyboardInterrupt):
        vault.group_sums(torch.ones(2, 1), bound=1.0, noise=Gaussian(SIGMA), purpose="sizes")
    assert seen == [1]


def test_thousands_of_entries_are_read_once_and_composed_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, cost = opened(tmp_path), GaussianCost(1000.0)
    inserted(ledger, json.dumps(cost_to_dict(cost)), 2000)
    assert ledger.debit(release(cost)) == 2000
    read: list[Release] = []
    monkeypatch.setattr(PrivacyLedger, "_append", lambda self, one: read.append(one))
    assert ledger.costs() == {cost: 2001}
    assert read == []


def test_infinite_budget_and_unprotected_release_are_kept_as_they_are(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=math.inf)
    ledger.debit(Release("a look", UnboundedCost(), math.inf))
    assert opened(tmp_path, epsilon=math.inf).releases[0].sensitivity == math.inf
    assert json.loads(ledger.to_json())["entries"][0]["sensitivity"] == "infinity"


# --- copies, export, description


def test_copy_and_pickle_see_the_same_file(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    for twin in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        ledger.debit(release())
        assert twin.costs() == ledger.costs()


def test_export_holds_entries_and_totals_and_nothing_else_is_overwritten(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=2.0)
    ledger.debit(release(purpose="sizes"))
    facts = json.loads(ledger.export(tmp_path / "ledger.json").read_text())
    assert facts["dataset"] == "people"
    assert facts["spent_epsilon"] == ledger.epsilon()
    assert facts["remaining_epsilon"] == ledger.remaining()
    (entry,) = facts["entries"]
    assert entry["purpose"] == "sizes"
    assert cost_from_dict(entry["cost"]) == GaussianCost(SIGMA)
    assert entry["run"] == ledger.run
    assert {"time", "version", "number", "sensitivity"} <= set(entry)
    before = ledger.path.read_bytes()
    for taken in (ledger.path, tmp_path / "ledger.json"):
        with pytest.raises(FileExistsError, match="expected a file that is not there yet"):
            ledger.export(taken)
    assert ledger.path.read_bytes() == before


def test_description_says_budget_spent_and_remaining(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=2.0)
    ledger.debit(release(purpose="sizes"))
    ledger.debit(release(GaussianCost(20.0), purpose="gradient"))
    lines = DurableLedger.open(ledger.path).describe().splitlines()
    assert lines[0] == f"Ledger of 'people' in {ledger.path}"
    assert lines[1] == "  budget     epsilon 2 at delta 1e-05"
    assert lines[2].endswith("2 debits of 1 runs")
    assert lines[3].startswith("  remaining  epsilon 1.")
    assert lines[5:] == [
        "       1      3.731  gaussian: sizes",
        "       1         20  gaussian: gradient",
    ]


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


SMALL = json.dumps(cost_to_dict(GaussianCost(1e9)))


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


def rewritten(path: Path) -> None:
    """Make the first debit cheap and all links anew, as somebody can who may write the file."""
    connection = sqlite3.connect(path)
    facts = connection.execute("SELECT * FROM ledger").fetchone()
    previous, sql = link("", facts), []
    for *fields, _ in connection.execute("SELECT * FROM debits ORDER BY number"):
        entry = Entry(*fields)._replace(cost=SMALL) if fields[0] == 0 else Entry(*fields)
        previous = link(previous, entry)
        sql.append(f"UPDATE debits SET cost = '{entry.cost}', link = '{previous}' WHERE number = {entry.number}")
    connection.close()
    edited(path, *sql)


def test_file_that_was_rewritten_as_a_whole_is_noticed_by_an_open_ledger_and_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    ledger.debit(release(GaussianCost(5.0)))
    receipt = ledger.receipt()
    rewritten(ledger.path)
    again = opened(tmp_path, epsilon=5.0)  # nothing else tells
    with pytest.raises(LedgerError, match="was changed by other means than a debit"):
        ledger.debit(release())
    with pytest.raises(
        LedgerError, match=r"does not begin with the 2 debits that it had when the receipt was made"
    ) as no:
        again.verify(receipt)
    assert_one_sentence(no.value)


def test_budget_that_was_raised_before_the_first_debit_is_noticed_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    receipt = ledger.receipt()
    edited(ledger.path, "UPDATE ledger SET epsilon = 9.0")
    with pytest.raises(LedgerError, match="was given another budget or name while in use"):
        ledger.debit(release())
    with pytest.raises(LedgerError, match="does not begin with the 0 debits"):
        DurableLedger.open(ledger.path).verify(receipt)


def test_old_copy_of_the_file_is_noticed_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    early, copied = ledger.receipt(), ledger.path.read_bytes()
    ledger.debit(release())
    late = ledger.receipt()
    ledger.verify(early)
    ledger.verify(late)
    ledger.path.write_bytes(copied)
    restored = opened(tmp_path, epsilon=5.0)
    restored.verify(early)
    with pytest.raises(LedgerError, match=r"holds 1 debits and had 2 when the receipt was made, so it is an old copy"):
        restored.verify(late)
    restored.debit(release(GaussianCost(50.0)))  # another second debit
    with pytest.raises(LedgerError, match="does not begin with the 2 debits") as caught:
        restored.verify(late)
    assert_one_sentence(caught.value)


def test_receipt_of_another_ledger_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ledger = opened(tmp_path)
    with pytest.raises(LedgerError, match="The receipt is not of the ledger"):
        ledger.verify(opened(tmp_path / "other").receipt())
    for data in ({}, {"ledger": "x", "debits": "1", "head": "y"}, ledger.receipt() | {"debits": -1}):
        with pytest.raises(LedgerError, match="Expected a receipt with 'ledger', 'debits' and 'head'") as caught:
            ledger.verify(data)
        assert_one_sentence(caught.value)


def test_certificate_holds_the_receipt_of_the_debits_that_it_lists(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    certificate = ledger.certificate()
    assert ledger.head == (1, certificate.receipt["head"])
    assert certificate.receipt == ledger.receipt() == json.loads(ledger.to_json())["receipt"]
    ledger.debit(release())
    kept = Certificate.from_dict(json.loads(certificate.to_json()))
    assert kept == certificate
    opened(tmp_path, epsilon=5.0).verify(kept.receipt)


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
    with opened(tmp_path)._connection() as connection:
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
    with sqlite3.connect(copied) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


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
