"""Processes that are killed while they debit lose answers, never debits. ``make crash-test`` kills 500."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

KILLS = int(os.environ.get("JUSTITIA_KILLS", "24"))
TESTS = Path(__file__).parents[1]
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def found_by(script: Path, kills: int) -> dict[str, int]:
    # In memory where there is such a folder: a killed process does not take the system's memory of the file with it.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = subprocess.run(
            [sys.executable, script, folder, str(kills)], capture_output=True, text=True, check=True, timeout=3600
        )
    found: dict[str, int] = json.loads(run.stdout)
    assert found["kills"] == kills
    assert found["failures"] == 0, run.stderr
    assert found["answers_without_a_debit"] == 0
    assert found["answers_that_share_a_number"] == 0
    assert found["answers"] > 0
    return found


@forks
def test_killed_processes_leave_every_answer_its_debit_and_the_budget_whole() -> None:
    found = found_by(TESTS / "privacy" / "crash.py", KILLS)
    assert found["debits_beyond_the_budget"] == 0
    assert found["files_used_up"] == found["files"]  # the budget was reached, so it could have been exceeded


@forks
def test_processes_that_race_and_die_in_one_checkpoint_folder_leave_the_budget_whole() -> None:
    found = found_by(TESTS / "racing.py", max(KILLS // 4, 10) if KILLS < 100 else KILLS)
    assert found["folders_beyond_the_budget"] == 0
    assert found["certificates_that_say_less"] == 0
    assert found["models"] > 0
    assert found["found_in_use"] > 0  # they met
