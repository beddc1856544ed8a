"""Retired people: what is left of them in the folder, and in the memory of a service that runs."""

import json
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from service_fixtures import IDS, KEYS, LABELS, Caller, make_folder, opened

from justitia import DurableLedger
from justitia.cli import cli
from justitia.custodian.populations import attribute_file, ledger_file, request_spool, retire
from justitia.custodian.records import CohortRecord, Population, Records
from justitia.custodian.remote import Custodian
from justitia.custodian.settings import private_folder, settings_text
from justitia.privacy.register import digests_of

#: An entry of the attribute that is in no list of groups, and so in the attribute's own file alone.
MARK = "what somebody told about themselves"
ROWS = np.full((len(IDS), 2), 0.7250183)


def marked_folder(place: Path) -> Path:
    folder = make_folder(place, [MARK if row % 3 == 0 else label for row, label in enumerate(LABELS)])
    (folder / "custodian.toml").write_text(settings_text("holder", tls=False).replace("8788", "0"))
    return folder


def traces(folder: Path, *secrets: bytes) -> list[str]:
    """Files with a digest of an id, an entry of the attribute, or one of these in them."""
    wanted = [MARK.encode(), *secrets]
    for one in digests_of(IDS):
        wanted += [bytes(one), bytes(one).hex().encode()]
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [path.name] if any(one in content for one in wanted) else []
    return found


def command(*words: Any) -> str:
    found = CliRunner().invoke(cli, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.stdout


def asked_much(ask: Caller) -> bytes:
    """Cohorts of all sizes, an answer, and half a request; the answer."""
    cohorts = [ask.cohort(IDS[: 1 + k]) for k in range(0, len(IDS), 7)]
    cohorts += [ask.cohort(IDS[k : k + 2]) for k in range(60)]
    assert len(set(cohorts)) == len(cohorts)
    whole = ask.cohort()
    answer = ask.sums(whole, ROWS)
    assert (answer.status, ask.sums(whole, ROWS[:9], request="half", parts=2).status) == (200, 200)
    return answer.body


def until(true: Callable[[], bool]) -> None:
    for _ in range(300):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within 30 s")


def test_retire_beside_a_service_leaves_no_digest_code_answer_or_row(tmp_path: Path) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        answer = asked_much(ask)
        secrets = (answer, ROWS[0].tobytes())
        assert "custodian.sqlite-wal" in traces(folder, *secrets)
        command("custodian", "retire", folder, "--population", "people")
        assert traces(folder, *secrets) == []
        assert not list((folder / "spool").iterdir())
        assert ask("GET", "/v1/populations/people").status == 404
        assert traces(folder, *secrets) == []
    assert traces(folder, *secrets) == []
    assert len(DurableLedger.open(ledger_file(folder, "people")).releases) == 1
    assert len(Records(folder).receipts("people")) == 1


def test_retire_beside_a_process_that_serves_leaves_nothing_and_the_process_answers_no_more(tmp_path: Path) -> None:
    folder, key = marked_folder(tmp_path / "holder"), tmp_path / "key"
    key.write_text(KEYS["trainer"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / "custodian.toml"
    settings.write_text(settings.read_text().replace("8787", str(port)))
    running = subprocess.Popen([sys.executable, "-m", "justitia", "custodian", "serve", folder])
    try:
        client = Custodian(f"http://127.0.0.1:{port}", population="people", ids=IDS, key_file=key)
        until(lambda: reached(client))
        name = client.cohort(person=False).name
        assert (folder / "custodian.sqlite-wal").stat().st_size > 0
        command("custodian", "retire", folder, "--population", "people")
        assert traces(folder) == []
        with pytest.raises(ValueError, match="there is no population"):
            client._facts()
        assert Records(folder).cohort(name) is None
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)
    assert traces(folder) == []


def reached(client: Custodian) -> bool:
    try:
        return bool(client._facts())
    except ConnectionError:
        return False


def test_service_overwrites_the_attribute_in_memory_before_the_next_query(tmp_path: Path) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), ROWS).status == 200
        people = service._populations._loaded["people"]
        (vault,) = people._vaults.values()
        keys, (labels,) = people._register._Register__keys, people._register._Register__columns  # type: ignore[attr-defined]
        codes = vault._SensitiveVault__codes._MemoryCodes__codes  # type: ignore[attr-defined]
        assert len(set(codes.tolist())) == 3
        retire(folder, Records(folder), "people")
        until(lambda: not service._populations._loaded)
        until(lambda: not people._vaults)
        assert len(set(codes.tolist())) == 1
        assert set(keys.tolist()) == {b""}
        assert set(labels.tolist()) == {None}
        assert len(people._register) == 0


def test_query_that_waited_while_its_population_was_retired_is_refused_without_a_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        people = service._populations.get("people", ("people",))
        monkeypatch.setattr(service._populations, "get", lambda *_: people)  # found before they were retired
        people.forget()
        assert ask.sums(cohort, ROWS).status == 404
    assert not DurableLedger.open(ledger_file(folder, "people")).releases


def test_part_that_arrives_during_retirement_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kept = marked_folder(tmp_path / "holder"), Records.put_part

    def late(records: Records, *given: Any) -> Any:
        retire(folder, Records(folder), "people")
        return kept(records, *given)

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        monkeypatch.setattr(Records, "put_part", late)
        assert ask.sums(cohort, ROWS[:9], parts=2).status == 404
        assert not list((folder / "spool").iterdir())


def test_retire_that_was_killed_is_finished_by_the_next_one_or_by_the_service(tmp_path: Path) -> None:
    for cure in ("retire", "service"):
        folder = marked_folder(tmp_path / cure)
        Records(folder).retire("people")  # and killed before the attribute was deleted
        assert attribute_file(folder, "people").exists()
        if cure == "retire":
            command("custodian", "retire", folder, "--population", "people")
        else:
            with opened(folder):
                pass
        assert traces(folder) == []


def test_rows_of_an_answered_request_are_deleted_when_the_service_starts(tmp_path: Path) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        assert ask.sums(cohort, ROWS).status == 200
        assert ask.sums(cohort, ROWS[:9], request="half", parts=2).status == 200
    left, waits = request_spool(folder, "trainer", "r1"), request_spool(folder, "trainer", "half")
    left.mkdir()  # killed after the answer was kept, before its rows were deleted
    (left / "0").write_bytes(b"rows")
    with opened(folder):
        assert not left.exists()
        assert waits.exists()


def test_retire_reports_that_records_in_use_may_hold_deleted_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        Caller(service).cohort()
        reader = sqlite3.connect(folder / "custodian.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM cohorts").fetchall()
        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda path, **given: connect(path, **given | {"timeout": 0.1}))
        said = CliRunner().invoke(cli, ["custodian", "retire", str(folder), "--population", "people"])
        assert said.exit_code == 2
        assert "it may still hold what was deleted; run the command again" in " ".join(said.output.split())
        reader.close()
        command("custodian", "retire", folder, "--population", "people")
        assert traces(folder) == []


def test_deleted_rows_are_nowhere_in_the_file_however_they_were_moved_between_pages(tmp_path: Path) -> None:
    for seed in (0, 4):  # with secure_delete alone, some are left
        folder, chance = private_folder(tmp_path / str(seed)), random.Random(seed)
        records, secrets = Records(folder), set()
        records.keep_open()
        for name in ("people", "others"):
            records.put_population(Population(name, ("sex",), ("a", "b"), 1.0, 1e-5, 3, "2026-01-01T00:00:00+00:00"))
        for number in range(120):
            name, rows = chance.choice(("people", "others")), chance.choice((1, 1, 2, 2, 5, 9, 20, 60, 150))
            held = chance.randbytes(16 * rows)
            records.put_cohort(CohortRecord(f"{number}-{held[:8].hex()}", name, rows, held), "trainer")
            secrets |= {held[at : at + 8] for at in range(8, len(held), 16)} if name == "people" else set()
        retire(folder, records, "people")
        records.close()
        content = records.path.read_bytes()
        assert not {content[at : at + 8] for at in range(len(content))} & secrets


def test_audit_log_has_no_digest_of_an_id(tmp_path: Path) -> None:
    folder = marked_folder(tmp_path / "holder")
    with opened(folder) as service:
        asked_much(Caller(service))
    assert "audit.jsonl" not in traces(folder)
    assert json.loads((folder / "audit.jsonl").read_text().splitlines()[0])["what"] == "cohort"
