"""Rows in files and in several processes with a custodian: the same bits as with the attribute in a file, one debit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from service_fixtures import DATA, IDS, KEYS, Caller, make_folder, opened, served

from justitia import DurableLedger
from justitia.cli import cli
from justitia.custodian.populations import ledger_file

SCRIPT = Path(__file__).with_name("shards.py")
PEOPLE = "/v1/populations/people/cohorts"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What ``shards.py`` printed."""
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked")
    found = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("shards"))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_fit_on_files_is_the_same_with_a_custodian_and_however_many_processes_send_rows(sharded: Any) -> None:
    found = sharded["bits"]
    for key, unit, runs in (("id", "row", 1 + 4), ("who", "person", 2)):
        local, *others = found[key]["digests"]
        assert others == [f"{local} {unit}"] * runs
        assert set(found[key]["debits"]) == {2}
    assert found["id"]["digests"][0] != found["who"]["digests"][0]


def test_lost_answers_dead_processes_and_repeated_ids_cost_no_second_debit(sharded: Any) -> None:
    found = sharded["lost"]
    assert found["losing"] == [[1, 1], 2]  # a plan of two releases; the last receipt is number 1
    (first, second), debits = found["dead"]
    assert first.startswith("LostRank")
    assert second is None
    assert debits == 2
    said, debits = found["twice"]
    assert all("expected every id once" in one for one in said)
    assert debits == 2
    assert found["measured"] == [3, 3]


def test_cohort_sent_in_parts_is_the_cohort_sent_at_once(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)

        def made(**body: Any) -> Any:
            return ask("POST", PEOPLE, json.dumps(body).encode())

        parts = [made(ids=IDS[a:b]).facts["cohort"] for a, b in ((0, 7), (7, 200), (200, len(IDS)))]
        assert made(cohorts=parts).facts == made(ids=IDS).facts == {"cohort": ask.cohort(), "people": len(IDS)}
        assert made(cohorts=parts[::-1]).facts["cohort"] != ask.cohort()
        assert [made(cohorts=[parts[0], parts[0]]).status, made(cohorts=["nobody"]).status] == [422, 404]
        assert [made().status, made(ids=IDS[:1], cohorts=parts[:1]).status] == [413, 413]
        twice = made(cohorts=[parts[0], parts[0]], person=True).facts
        assert (twice["people"], twice["rows_each"]) == (14, 2)
        assert made(ids=IDS, person=True).facts["cohort"] != ask.cohort()


def test_command_trains_on_a_folder_of_parquet_against_a_custodian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    folder, rows = make_folder(tmp_path / "holder"), tmp_path / "rows"
    rows.mkdir()
    table = DATA.X.assign(y=DATA.y, id=IDS)
    for k, part in enumerate((table[:100], table[100:])):
        part.to_parquet(rows / f"{k}.parquet", index=False)
    with served(folder) as url:
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--seed", 0, "--small-groups", "--json")
        words = [str(one) for one in ("train", rows, "--target", "y", *asked, "--out", tmp_path / "model")]
        found = CliRunner().invoke(cli, words)
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["certificate"]["receipt"]["population"] == "people"
        wrong = CliRunner().invoke(cli, [*words, "--overwrite", "--person", "x0"])
        assert "expected --person id, the ids that the custodian knows" in " ".join(wrong.output.split())
        (rows / "1.parquet").unlink()
        table[50:].to_parquet(rows / "1.parquet", index=False)
        again = CliRunner().invoke(cli, [*words, "--overwrite"])
        assert "expected every id once" in " ".join(again.output.split())
        debits = len(DurableLedger.open(ledger_file(folder, "people")).releases)
        together = CliRunner().invoke(cli, [*words, "--overwrite", "--person", "id"])
        assert json.loads(together.stdout)["certificate"]["releases"], together.output
    assert len(DurableLedger.open(ledger_file(folder, "people")).releases) == 2 * debits
