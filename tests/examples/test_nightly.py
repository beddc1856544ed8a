"""Ten nights of the nightly job against one ledger; on the next it stops with code 3, and the last model stays."""

import os
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest
from click.testing import CliRunner

from justitia import DurableLedger, LagrangianDualClassifier
from justitia.cli import cli

JOB = Path(__file__).parents[2] / "examples" / "nightly" / "ten_nights.sh"
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
def test_nightly_job_ends_with_code_3_when_its_budget_does_and_keeps_the_last_model(tmp_path: Path) -> None:
    place, program = str(tmp_path / "line"), tmp_path / "justitia"
    program.write_text(CLIENT.format(python=sys.executable, place=place))
    program.chmod(0o700)
    folder = tmp_path / "job"
    with Listener(place, "AF_UNIX") as listener:
        service = threading.Thread(target=answer, args=[listener], daemon=True)
        service.start()
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(JOB), str(folder), "500"], env=os.environ | path, capture_output=True, text=True, check=False
        )
        with Client(place) as line:
            line.send(None)  # that was all
        service.join()
    assert done.returncode == 3, done.stdout + done.stderr
    nights = done.stdout.splitlines()
    assert len(nights) == 11
    assert all("exit code 0" in line for line in nights[:-1])
    assert "exit code 3" in nights[-1]
    model = (folder / "model").resolve()
    assert model.name in nights[-2]
    assert model.name in nights[-1]  # the last one that worked stays in use
    assert LagrangianDualClassifier.load(model).certificate_.epsilon <= 2.05
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert "would bring epsilon to" in errors[0]
    for written in ("model-*", "report-*.html", "decisions-*.json"):
        assert len(list(folder.glob(written))) == 10
    ledger = DurableLedger.open(folder / "people.ledger")
    assert 1.9 < ledger.epsilon() <= 2.05
    assert len(ledger.releases) % 10 == 0  # the eleventh night paid for nothing
