"""Two machines: the same bits as one process, and ranks that are killed. ``make crash-test`` kills ten."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("machines.py")
MANY = "JUSTITIA_KILLS" in os.environ


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


@pytest.mark.skipif(not MANY, reason="make crash-test")
def test_ten_ranks_killed_at_random_moments_on_two_machines_leave_every_answer_its_debit(tmp_path: Path) -> None:
    found = machines(tmp_path, 10)
    assert [one["wrong"] for one in (found["undisturbed"], *found["runs"])] == [[]] * 11
    assert found["undisturbed"]["attempts"] == 1
    assert sum(one["attempts"] > 1 for one in found["runs"]) > 5  # some may have been done by then
