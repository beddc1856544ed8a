"""The custodian as a process of its own: TLS and certificates, a trainer that holds nothing, kill -9 at any moment."""

import datetime as dt
import ipaddress
import json
import os
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from holding import DATA, IDS, KEYS, LABELS, Caller, make_folder, opened, served

from justitia import DurableLedger, measure
from justitia.cli import cli
from justitia.custodian import Custodian, connection
from justitia.custodian.records import Records

KILLS = int(os.environ.get("JUSTITIA_KILLS", "8"))


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """One that signs itself, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))
    return pem, private


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


def test_four_commands_lead_from_two_files_to_a_model_over_tls_with_client_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = DATA.X.assign(y=DATA.y, id=IDS)
    table.to_csv("features.csv", index=False)
    pd.DataFrame({"id": IDS[::-1], "sex": LABELS[::-1]}).to_csv("attribute.csv", index=False)
    command("custodian", "init", "holder", "--client", "trainer", "--key-file", "trainer.key")
    people = ("--population", "people", "--id", "id", "--sensitive", "sex", "--groups", "a,b", "--epsilon", 3)
    command("custodian", "register", "holder", "attribute.csv", *people)
    (pem, key), (own, own_key) = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    port = free_port()
    lines = [
        f"port = {port}",
        "page_port = 0",
        f'tls_certificate = "{pem}"',
        f'tls_key = "{key}"',
        f'client_ca = "{own}"',
    ]
    Path("holder/custodian.toml").write_text("\n".join(lines))
    url, tls = f"https://127.0.0.1:{port}", {"ca_file": pem, "key_file": "trainer.key"}
    both = tmp_path / "client-both.pem"
    both.write_bytes(own.read_bytes() + own_key.read_bytes())
    monkeypatch.setattr(connection, "PAUSES", (0.0,))
    with process(Path("holder")):
        reachable(port)
        with pytest.raises(ConnectionError):
            _ = Custodian(url, population="people", ids=IDS, **tls).facts  # no certificate, no handshake
        holder = Custodian(url, population="people", ids=IDS, certificate=own, certificate_key=own_key, **tls)
        measure(DATA.y, DATA.y, sensitive_features=holder, epsilon=0.5)
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--custodian-ca", pem)
        asked = (
            *asked,
            "--custodian-key",
            "trainer.key",
            "--custodian-certificate",
            both,
            "--receipts",
            "receipts.jsonl",
        )
        told = command("train", "features.csv", "--target", "y", *asked, "--seed", 0, "--epsilon", 1, "--out", "model")
        found = command("evaluate", "model", "features.csv", *asked, "--epsilon", 0.5, "--json")
    assert "differentially private" in told
    assert json.loads(found)["certificate"]["custodian"].startswith("custodian at https://")
    assert "asked by trainer" in command("custodian", "audit", "holder")
    kept = b"".join(path.read_bytes() for path in Path("model").rglob("*") if path.is_file())
    assert Path("trainer.key").read_bytes().strip() not in kept
    command("custodian", "retire", "holder", "--population", "people")
    assert not Path("holder/populations/people.attribute").exists()
    assert "retired" in command("custodian", "audit", "holder")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_custodian_killed_at_any_moment_answers_no_debit_twice_and_nothing_without_a_debit() -> None:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    script = Path(__file__).parent / "crash.py"
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = subprocess.run([sys.executable, script, folder, str(KILLS)], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["answers"] > 0
    for name in ("told_twice_with_other_noise", "answers_without_a_debit", "refused_otherwise"):
        assert found[name] == 0, found
    assert found["debits_under_one_name"] == 1
    assert found["debits_without_answer_or_receipt"] <= KILLS


def test_debit_without_an_answer_is_never_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "holder")
    rows = np.ones((len(IDS), 2))

    def dies(*_: Any) -> str:
        raise KeyboardInterrupt

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        with monkeypatch.context() as patch:
            patch.setattr(Records, "keep_answer", dies)
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
