"""Ctrl-C, or a scheduler's SIGTERM, in the middle of training, in a process of its own."""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import justitia.__main__ as entry
from justitia import DurableLedger
from justitia.cli import cli, command
from justitia.cli.command import STOPPED

#: So many rounds that nobody waits for the last one.
LONG = "warmup_steps = 10\nrounds = 50000\npublic_steps = 1\nchecks = 1\nbatch_size = 64\n"


def start(words: list[str]) -> "subprocess.Popen[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "justitia", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_hears_interrupts,  # noqa: PLW1509 - one thread, and nothing else is done there
    )


def _hears_interrupts() -> None:
    """Also where the tests run in the background of a shell, which makes its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_training_leaves_its_debits_and_no_half_written_model(here: Path, sent: signal.Signals) -> None:
    (here / "long.toml").write_text(LONG)
    words = ["train", "income.csv", "--target", "income", "--sensitive", "sex", "--groups", "Female,Male"]
    words += [
        "--engine",
        "moments",
        "--hidden",
        "4",
        "--plan",
        "long.toml",
        "--ledger",
        "people.ledger",
        "--out",
        "late",
    ]
    before = {one.name for one in here.iterdir()}
    process = start(words)
    try:
        # The moments are asked for after the warm-up: from then on, training is in its middle.
        while not DurableLedger.open("people.ledger").releases and process.poll() is None:
            time.sleep(0.2)
        assert process.poll() is None, process.communicate()
        assert any(one.name.startswith(".late.") for one in here.iterdir())
        process.send_signal(sent)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.strip() == STOPPED
    assert {one.name for one in here.iterdir()} == before
    ledger = DurableLedger.open("people.ledger")
    assert [release.purpose for release in ledger.releases] == ["moments"]
    assert 0 < ledger.epsilon() < 1


def test_interrupt_while_a_command_is_imported_is_as_quiet_as_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", stopped)
    monkeypatch.delitem(cli.commands, "train", raising=False)
    result = CliRunner().invoke(cli, ["train", "data.csv", "--out", "m"])
    assert result.exit_code == 130
    assert result.stderr.strip() == STOPPED


def test_interrupt_before_the_command_line_is_there_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unfinished(types.ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "justitia.cli", Unfinished("justitia.cli"))
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
