"""Processes that are killed while they debit lose answers, never debits. ``make crash-test`` kills 500."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

KILLS = int(os.environ.get("JUSTITIA_KILLS", "40"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_processes_leave_every_answer_its_debit_and_the_budget_whole() -> None:
    # In memory where there is such a folder: a killed process does not take the system's memory of the file with it.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        script = Path(__file__).with_name("crash.py")
        run = subprocess.run(
            [sys.executable, script, folder, str(KILLS)], capture_output=True, text=True, check=True, timeout=3600
        )
    found = json.loads(run.stdout)
    assert found["kills"] == KILLS
    assert found["failures"] == 0, run.stderr
    assert found["answers_without_a_debit"] == 0
    assert found["answers_that_share_a_number"] == 0
    assert found["debits_beyond_the_budget"] == 0
    assert found["files_used_up"] == found["files"]  # the budget was reached, so it could have been exceeded
    assert found["answers"] > 0
