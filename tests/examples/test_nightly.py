"""The nightly job with new people each night, until the monitor alerts; the last model then stays in use."""

import os
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest
from click.testing import CliRunner

from justitia import DurableLedger, Monitor
from justitia.cli import cli

JOB = Path(__file__).parents[2] / "examples" / "nightly" / "nights.sh"
NIGHTS = 3
#: Stands for the command in the scripts: hands its words to this process, where the libraries are imported already.
CLIENT = """#!{python} -IS
import sys
from multiprocessing.connection import Client
with Client({place!r}) as line:
    line.send(sys.argv[1:])
    code, out, err = line.recv()
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


def answer(listener: Listener) -> None:
    while True:
        with listener.accept() as line:
            words = line.recv()
            if words is None:
                return
            done = CliRunner().invoke(cli, words)
            line.send((done.exit_code, done.stdout, done.stderr))


@pytest.mark.skipif(os.name != "posix", reason="a script of a POSIX shell")
def test_nightly_job_pays_from_a_ledger_per_night_and_ends_with_an_alert(tmp_path: Path) -> None:
    place, program = str(tmp_path / "line"), tmp_path / "justitia"
    program.write_text(CLIENT.format(python=sys.executable, place=place))
    program.chmod(0o700)
    folder = tmp_path / "job"
    with Listener(place, "AF_UNIX") as listener:
        service = threading.Thread(target=answer, args=[listener], daemon=True)
        service.start()
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(JOB), str(folder), "500", str(NIGHTS)],
            env=os.environ | path,
            capture_output=True,
            text=True,
            check=False,
        )
        with Client(place) as line:
            line.send(None)  # that was all
        service.join()
    assert done.returncode == 5, done.stdout + done.stderr
    nights = done.stdout.splitlines()
    assert len(nights) == NIGHTS
    assert all("exit code 0" in line for line in nights[:-1])
    assert "exit code 5" in nights[-1]
    model = (folder / "model").resolve()
    assert model.name == f"model-night-{NIGHTS - 1}"  # the last one that worked stays in use
    assert model.name in nights[-1]
    assert not [line for line in done.stderr.splitlines() if line.startswith("error")]
    for written in ("model-*", "report-*.html"):
        assert len(list(folder.glob(written))) == NIGHTS - 1
    ledgers = [DurableLedger.open(path) for path in sorted((folder / "ledgers").glob("*.ledger"))]
    assert len(ledgers) == NIGHTS
    assert all(0.5 < ledger.epsilon() <= 1 for ledger in ledgers)  # new people pay for their own night
    monitor = Monitor(folder / "monitor")
    assert [bool(entry.alerts) for entry in monitor.entries] == [False] * (NIGHTS - 1) + [True]
    assert "drift of x0" in monitor.entries[-1].alerts
    assert monitor.spent() <= 0.5
    assert "drift of x0" in (folder / "monitor.html").read_text(encoding="utf-8")
