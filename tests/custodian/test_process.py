"""The custodian as a process of its own: TLS and certificates, a trainer that holds nothing, kill -9 at any moment."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from service_fixtures import DATA, IDS, KEYS, LABELS, Caller, make_folder, opened, served

from justitia import DurableLedger, measure
from justitia.cli import cli
from justitia.cli.files.attribute import CustodianOptions
from justitia.custodian import Custodian, connection
from justitia.custodian.records import Records
from justitia.custodian.settings import self_signed

KILLS = int(os.environ.get("JUSTITIA_KILLS", "8"))


def command(*words: Any) -> str:
    found = CliRunner().invoke(cli, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.stdout


@contextmanager
def process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-m", "justitia", "custodian", "serve", str(folder)])
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)


def reachable(port: int) -> None:
    for _ in range(600):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the service does not answer")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def commands_of_the_page() -> list[list[str]]:
    """The words of the first block of the section."""
    page = (Path(__file__).parents[2] / "docs" / "custodian.md").read_text(encoding="utf-8")
    block = page.partition("## Four commands")[2].partition("```text\n")[2].partition("```")[0]
    return [shlex.split(line.removeprefix("$ justitia ")) for line in block.replace("\\\n", " ").splitlines()]


def test_four_commands_of_the_page_lead_from_two_files_to_a_model_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    DATA.X.assign(y=DATA.y, id=IDS).to_csv("features.csv", index=False)
    pd.DataFrame({"id": IDS[::-1], "group": LABELS[::-1]}).to_csv("attribute.csv", index=False)
    init, register, serve, train = commands_of_the_page()
    assert serve == ["custodian", "serve", "holder"]
    command(*init)
    port, settings = free_port(), Path("holder/custodian.toml")  # the page's may be taken on this machine
    settings.write_text(settings.read_text().replace("8787", str(port)).replace("page_port = 8788", "page_port = 0"))
    command(*register)
    with process(Path(serve[2])):
        reachable(port)
        output = command(*(word.replace("8787", str(port)) for word in train))
    assert "differentially private" in output
    held = json.loads(Path("model/model.json").read_text())
    assert f"custodian at https://127.0.0.1:{port}" in json.dumps(held)
    assert "clients: trainer" in command("custodian", "audit", "holder")
    kept = b"".join(path.read_bytes() for path in Path("model").rglob("*") if path.is_file())
    assert Path("trainer.key").read_bytes().strip() not in kept
    command("custodian", "retire", "holder", "--population", "people")
    assert not Path("holder/populations/people.attribute").exists()
    assert "retired" in command("custodian", "audit", "holder")


def test_client_without_the_certificate_that_is_asked_for_does_not_get_past_the_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "client"):
        pem, private = self_signed("127.0.0.1")
        (tmp_path / f"{name}.pem").write_bytes(pem)
        (tmp_path / f"{name}.key").write_bytes(private)
        (tmp_path / f"{name}-both.pem").write_bytes(pem + private)
    monkeypatch.setattr(connection, "PAUSES", (0.0,))
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    own = {"tls_certificate": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}
    with served(make_folder(tmp_path / "holder"), client_ca=str(tmp_path / "client.pem"), **own) as plain:
        url, ca = plain.replace("http:", "https:"), tmp_path / "server.pem"
        with pytest.raises(ConnectionError):
            _ = Custodian(url, population="people", ids=IDS, ca_file=ca).facts
        certificate: dict[str, Any] = {
            "certificate": tmp_path / "client.pem",
            "certificate_key": tmp_path / "client.key",
        }
        with pytest.raises(ConnectionError):  # an authority that did not sign the custodian's
            _ = Custodian(url, population="people", ids=IDS, ca_file=tmp_path / "client.pem", **certificate).facts
        holder = Custodian(url, population="people", ids=IDS, ca_file=ca, **certificate)
        assert measure(DATA.y, DATA.y, sensitive_features=holder, epsilon=0.5).certificate.custodian
        both = CustodianOptions(url, "people", ca_file=ca, certificate=tmp_path / "client-both.pem")
        assert both.open(IDS).facts["population"] == "people"  # as the command line has it, in one file


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_custodian_killed_at_any_moment_answers_no_debit_twice_and_nothing_without_a_debit() -> None:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    script = Path(__file__).parent / "crash.py"
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = subprocess.run([sys.executable, script, folder, str(KILLS)], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["answers"] > 0
    for name in ("answered_twice_with_other_noise", "answers_without_a_debit", "refused_otherwise"):
        assert found[name] == 0, found
    assert found["debits_under_one_name"] == 1
    assert found["debits_without_answer_or_receipt"] <= 4 * KILLS  # one of each client


def test_records_are_one_file_but_while_a_service_holds_them(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    records, log = Records(folder), Path(f"{Records(folder).path}-wal")
    assert len(records.clients()) == len(KEYS)
    assert not log.exists()
    with opened(folder):
        assert len(records.clients()) == len(KEYS)
        assert log.exists()
    assert not log.exists()


def test_debit_without_an_answer_is_never_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "holder")
    rows = np.ones((len(IDS), 2))

    def dies(*_: Any) -> str:
        raise KeyboardInterrupt

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        with monkeypatch.context() as patch:
            patch.setattr(Records, "put_answer", dies)
            with pytest.raises(KeyboardInterrupt):
                ask.sums(cohort, rows)
    with opened(folder) as service:
        ask = Caller(service)
        assert [ask.sums(cohort, rows).status for _ in range(2)] == [410, 410]
        assert ask.sums(cohort, rows, request="anew").status == 200
    assert len(DurableLedger.open(folder / "populations" / "people.ledger").releases) == 2


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="memory is read as a file")
def test_memory_of_a_trainer_and_what_it_is_sent_hold_no_entry_of_the_attribute(tmp_path: Path) -> None:
    entry = "what somebody told about themselves"
    folder = make_folder(tmp_path / "holder", [entry if k % 7 == 0 else label for k, label in enumerate(LABELS)])
    assert entry.encode() in (folder / "populations" / "people.attribute").read_bytes()
    data = tmp_path / "features.csv"
    DATA.X.assign(y=DATA.y, id=IDS).to_csv(data, index=False)
    with served(folder) as url:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", Path(__file__).parent / "trainer.py", url, data, entry[::-1]],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"JUSTITIA_CUSTODIAN_KEY": KEYS["trainer"]},
        )
    assert run.stdout.splitlines() == ["2 False", f"True {len(entry)}"]
