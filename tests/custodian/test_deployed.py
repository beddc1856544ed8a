"""The service as the unit and the container run it: another user, nothing writable but its folder, a graceful end."""

import json
import os
import shutil
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
from urllib.parse import urlencode

import numpy as np
import pytest
from service_fixtures import DATA, IDS, KEYS, make_folder, served

from bench.performance.two_users import HOLDER, as_user
from justitia import DurableLedger, measure
from justitia.custodian import Custodian
from justitia.custodian.populations import ledger_file
from justitia.custodian.wire import ARROW, to_stream

DEPLOY = Path(__file__).parents[2] / "deploy"
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid")
    or os.geteuid() != 0
    or any(shutil.which(name) is None for name in ("unshare", "setpriv", "findmnt")),
    reason="only root has namespaces and other users' processes",
)
READ_ONLY = (
    "mount --make-rprivate / && for place in $(findmnt -rno TARGET); do "
    'mount -o remount,bind,ro "$place" 2> /dev/null; done; '
    'mount --bind "$1" "$1" && mount -o remount,bind,rw "$1" && cd "$1" && shift && exec "$@"'
)


def deployed(folder: Path, *words: str) -> list[str]:
    """A command of the custodian's user, to whom everything but a folder is read only."""
    inside = as_user(HOLDER, [sys.executable, "-W", "ignore", *words])
    return ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder), *inside]


@contextmanager
def running(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    words = deployed(folder, "-m", "justitia", "custodian", "serve", str(folder))
    with subprocess.Popen(words, env=os.environ | {"HOME": "/nonexistent"}, **pipes) as process:
        try:
            for _ in range(600):
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None
                time.sleep(0.1)
            yield process
        finally:
            process.terminate()


def half_sent(port: int, path: str, body: bytes, **query: Any) -> socket.socket:
    """A request of which the last half of the body has not come yet."""
    one = socket.create_connection(("127.0.0.1", port))
    head = {"Host": "127.0.0.1", "Authorization": f"Bearer {KEYS['trainer']}", "Content-Length": len(body)}
    lines = [f"POST {path}?{urlencode(query)} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items()), "Connection: close"]
    one.sendall("\r\n".join([*lines, f"Content-Type: {ARROW}", "", ""]).encode() + body[: len(body) // 2])
    return one


@needs_root
def test_service_of_another_user_writes_to_its_folder_alone_and_ends_after_the_request_that_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    place = Path(tempfile.mkdtemp())  # pytest's own folders are shut to other users
    place.chmod(0o755)
    folder = make_folder(place / "holder")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (folder / "custodian.toml").write_text(f"port = {port}\npage_port = 0\n")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, HOLDER, HOLDER)
    outside = str(place / "outside")
    tried = f"import pathlib; pathlib.Path('inside').touch(); pathlib.Path({outside!r}).touch()"
    found = subprocess.run(deployed(folder, "-c", tried), capture_output=True, text=True, check=False)
    assert f"Read-only file system: {outside!r}" in found.stderr
    with running(folder, port) as process:
        held: dict[str, Any] = {"population": "people", "ids": IDS, "receipts": tmp_path / "receipts"}
        holder = Custodian(f"http://127.0.0.1:{port}", **held)
        measure(DATA.y, DATA.y, sensitive_features=holder, epsilon=0.5)
        shutil.copytree(folder, place / "old")
        asked = {"request": "last", "purpose": "stop", "bound": 1, "noise_multiplier": 20}
        body = to_stream(np.ones((len(IDS), 2)))
        with half_sent(port, f"/v1/cohorts/{holder.cohort(person=False).name}/sums", body, **asked) as one:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            one.sendall(body[len(body) // 2 :])
            answer = b"".join(iter(lambda: one.recv(1 << 16), b""))
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"justitia-receipt" in answer
    assert len(DurableLedger.open(ledger_file(folder, "people")).releases) == 2
    log = (folder / "audit.jsonl").read_text()
    assert [json.loads(line)["what"] for line in log.splitlines()][-1] == "sums"
    assert not any(secret in said + log for secret in (*KEYS.values(), "p17", "Bearer"))
    shutil.copytree(folder, place / "backup")
    with served(place / "backup") as url:  # the newest copy: whoever has receipts goes on
        measure(DATA.y, DATA.y, sensitive_features=Custodian(url, **held), epsilon=0.5)
    with served(place / "old") as url, pytest.raises(RuntimeError, match="put back"):
        measure(DATA.y, DATA.y, sensitive_features=Custodian(url, **held), epsilon=0.5)
    shutil.rmtree(place)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own check")
def test_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (DEPLOY / "custodian.service").read_text()
    assert "ExecStart=/opt/justitia/bin/justitia custodian serve /var/lib/custodian" in text
    unit = tmp_path / "custodian.service"
    unit.write_text(text.replace("/opt/justitia/bin/justitia", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]  # of 100 points of exposure
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0 or "unrecognized option" in found.stderr  # before version 250
