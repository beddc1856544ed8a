"""Registration of people: two at once, one that is killed in between, one that fails."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from service_fixtures import DELTA, IDS, LABELS, Caller, make_folder, opened

from justitia import DurableLedger
from justitia.cli import cli
from justitia.custodian.populations import attribute_file, ledger_file, register, retire, unfinished
from justitia.custodian.records import Records
from justitia.custodian.settings import private_file
from justitia.privacy.accounting import GaussianCost
from justitia.privacy.attribute import Attribute
from justitia.privacy.ledger import Release
from justitia.privacy.register import Register

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
RUNS = int(os.environ.get("JUSTITIA_KILLS", "8"))


def outcome(what: str, runs: int) -> Any:
    """What ``registering.py`` printed."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    script = Path(__file__).with_name("registering.py")
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = subprocess.run(
            [sys.executable, script, folder, what, str(runs)], capture_output=True, text=True, timeout=600, check=False
        )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def people(ids: Any = IDS, labels: Any = LABELS) -> Register:
    return Register.from_rows(ids, Attribute(("sex",), [np.array([*labels, None], dtype=object)[:-1]]))


def put(folder: Path, name: str = "people", **given: Any) -> None:
    asked: dict[str, Any] = {"groups": ["a", "b"], "epsilon": 5.0, "delta": DELTA} | given
    register(folder, Records(folder), name, people(), **asked)


@forks
def test_two_processes_that_register_at_once_never_mix_their_rows() -> None:
    found = outcome("race", RUNS)
    for one in found["same"]:  # one is refused, the other has its own people, number and budget
        assert one["codes"] == [0, 1], one
        assert one["held"] == [["people", True, True]]
        assert one["files"] == ["people.attribute", "people.ledger"]
    for one in found["other"]:
        assert one["codes"] == [0, 0], one
        assert one["held"] == [["others", True, True], ["people", True, True]]


@forks
def test_what_a_killed_registration_leaves_is_found_by_retire_the_service_and_the_next_one() -> None:
    found = outcome("kill", 1)
    assert sum(one["left"] for one in found["retire"].values()) >= 4  # it was killed late enough to leave something
    for cure in ("retire", "service"):
        for step, one in found[cure].items():
            assert one["code"] == -9
            registered = one["known"] and cure == "service"
            assert one["after"] == (["populations/people.attribute"] if registered else []), (cure, step)
    for step, one in found["register"].items():
        assert one["after"] == ["populations/people.attribute"], step
        assert one["people"] == [3000 if one["known"] else 2000], step


def test_threads_that_register_one_name_at_once_leave_one_population(tmp_path: Path) -> None:
    folder, said = make_folder(tmp_path / "holder"), []

    def work(size: int) -> None:
        try:
            taken = people(IDS[:size], LABELS[:size])
            register(folder, Records(folder), "others", taken, groups=["a", "b"], epsilon=float(size), delta=DELTA)
        except ValueError as error:
            said.append(str(error))

    threads = [threading.Thread(target=work, args=(size,)) for size in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = Records(folder).population("others")
    assert held is not None
    assert len(said) == 7
    assert all("'others' is registered, or was" in one for one in said)
    assert held.people == held.epsilon == len(Register.read(attribute_file(folder, "others")))
    assert DurableLedger.open(ledger_file(folder, "others")).budget_epsilon == held.epsilon


@pytest.mark.parametrize("step", ["write", "ledger", "record"])
def test_registration_that_fails_leaves_nothing_and_the_name_free(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "holder")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    owner, name = {
        "write": (Register, "write"),
        "ledger": (DurableLedger, "__init__"),
        "record": (Records, "put_population"),
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        with pytest.raises(OSError, match="disk is full"):
            put(folder, "others")
    kept = {path.name for path in (folder / "populations").iterdir()}
    assert kept == {"people.attribute", "people.ledger"}
    put(folder, "others")
    assert Records(folder).claims() == {}


def test_files_of_an_unknown_population_are_not_overwritten_but_named_and_deleted(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    (folder / "custodian.toml").touch()
    private_file(attribute_file(folder, "others")).write_bytes(b"left by an earlier version")
    with pytest.raises(ValueError, match="files of a population 'others' that the records do not know"):
        put(folder, "others")
    assert unfinished(folder, Records(folder)) == ["others"]
    with opened(folder):
        assert attribute_file(folder, "others").exists()  # records may have been restored from an old copy
    assert "others: files of a registration" in CliRunner().invoke(cli, ["custodian", "audit", str(folder)]).output
    gone = CliRunner().invoke(cli, ["custodian", "retire", str(folder), "--population", "others"])
    assert gone.exit_code == 0, gone.output
    assert not attribute_file(folder, "others").exists()
    again = CliRunner().invoke(cli, ["custodian", "retire", str(folder), "--population", "others"])
    assert again.exit_code == 2
    assert "there is no population 'others'" in again.output
    put(folder, "others")


def test_ledger_with_debits_of_an_unknown_population_is_never_deleted(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    path = ledger_file(folder, "others")
    DurableLedger(path, dataset="others", epsilon=5.0, delta=DELTA)
    retire(folder, Records(folder), "others")
    assert not path.exists()  # nothing was debited
    ledger = DurableLedger(path, dataset="others", epsilon=5.0, delta=DELTA)
    ledger.debit(Release("test", GaussianCost(10.0), 1.0))
    retire(folder, Records(folder), "others")
    assert len(DurableLedger.open(path).releases) == 1
    with pytest.raises(ValueError, match="that the records do not know"):
        put(folder, "others")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_of_a_custodian_are_open_to_nobody_else(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), np.ones((9, 2)), parts=2).status == 200
        assert list((folder / "spool").rglob("0"))
        for path in folder.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
