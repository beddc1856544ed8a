"""Two machines: the same bits as one process, and ranks that are killed. ``make crash-test`` kills ten."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("machines.py")
KILLS = int(os.environ.get("JUSTITIA_KILLS", "0"))


def machines(*words: Any) -> Any:
    """What ``machines.py`` printed."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_rank_that_is_killed_between_answers_is_started_again_and_the_model_is_that_of_one_process(
    tmp_path: Path,
) -> None:
    found = machines(tmp_path)
    assert found["wrong"] == []
    assert found["attempts"] == 2
    assert found["resumed"] == [[0, 0], [2, 2]]
    assert found["answers"] == [[0, "moments"], [1, "decisions"], [2, "decisions"]]


@pytest.mark.skipif(not KILLS, reason="make crash-test")
def test_ranks_killed_at_random_moments_on_two_machines_leave_every_answer_its_debit(tmp_path: Path) -> None:
    found = machines(tmp_path, KILLS)
    assert [one["wrong"] for one in (found["undisturbed"], *found["runs"])] == [[]] * (KILLS + 1)
    assert found["undisturbed"]["attempts"] == 1
    assert all(one["attempts"] == 2 for one in found["runs"])
