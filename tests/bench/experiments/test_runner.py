"""The runner: keys, resuming, torn lines, failures, workers."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fake_fits import MEASURES, Counting, cells, fit, fit_or_die, fit_or_fail, lines

import justitia
from bench.experiments.records import add_record, provenance
from bench.experiments.runner import Cell, pending, read_results, read_rows, run


def go(todo: list[Cell], work: Any, path: Path, **options: Any) -> Any:
    return run(todo, work, path, measures=MEASURES, progress=False, **options)


def test_key_with_the_same_settings_in_another_order_is_the_same() -> None:
    one, other = cells(1, settings={"a": 1, "b": 2.5})[0], cells(1, settings={"b": 2.5, "a": 1})[0]
    assert one.key == other.key
    assert one.noise_seed == other.noise_seed


def test_key_of_a_known_cell_does_not_change_between_processes() -> None:
    assert cells(1, settings={"a": 1})[0].key == "e93c60df2751d8e1"


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "other"},
        {"dataset": "income"},
        {"notion": "equalized_odds"},
        {"method": "Z"},
        {"fold": 4},
        {"seed": 1},
        {"epsilon": 2.0},
        {"split": "inner"},
        {"settings": {"C_p": 1.0}},
        {"recipe": "PlainClassifier(epochs=31)"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_key_with_anything_else_that_matters_is_another(change: dict[str, Any]) -> None:
    cell = cells(1)[0]
    assert replace(cell, **change).key != cell.key


def test_key_under_another_version_of_the_library_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells(1)[0]
    before = cell.key
    monkeypatch.setattr(justitia, "__version__", "99")
    assert cell.key == before


@pytest.mark.parametrize("name", ["corners", "coverage", "monitor"])
def test_committed_results_have_the_keys_of_today(name: str) -> None:
    committed = read_rows(Path(__file__).parents[3] / "results" / f"{name}.csv")
    expected = {cell.key for cell in import_module(f"bench.experiments.{name}").cells(quick=False)}
    assert expected == set(committed["key"])


def test_run_writes_one_row_per_cell_and_returns_them_in_order(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    rows = go(list(reversed(cells(3))), fit, path)
    assert rows["fold"].tolist() == [2, 1, 0]
    assert rows["accuracy"].tolist() == [0.7, 0.6, 0.5]
    assert len(lines(path)) == 4
    assert read_results(path)["violation"].tolist() == [1 / 3, 1 / 4, 1 / 5]


def test_run_stopped_in_the_third_cell_continues_there(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    first = Counting(stop_at=3)
    with pytest.raises(KeyboardInterrupt):
        go(cells(5), first, path)
    assert len(lines(path)) == 3  # header and two rows
    second = Counting()
    rows = go(cells(5), second, path)
    assert (first.seen, second.seen) == ([0, 1, 2], [2, 3, 4])
    assert rows["accuracy"].tolist() == [0.5, 0.6, 0.7, 0.8, 0.9]


def test_run_again_from_a_complete_file_fits_nothing_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(3), fit, path)
    before, again = path.read_bytes(), Counting()
    go(cells(3), again, path)
    assert again.seen == []
    assert path.read_bytes() == before


def test_run_after_a_torn_last_line_fits_that_cell_again(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(3), fit, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert len(read_rows(path)) == 2
    again = Counting()
    go(cells(3), again, path)
    assert again.seen == [2]
    assert path.read_bytes() == whole


def test_run_with_a_failing_cell_reports_it_and_finishes_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.csv"
    rows = run(cells(3), fit_or_fail, path, measures=MEASURES)
    assert rows["error"].tolist() == ["", "ValueError: no solution, found", ""]
    assert len(lines(path)) == 4
    assert "ValueError: no solution, found" in capsys.readouterr().out
    assert read_results(path)["fold"].tolist() == [0, 2]


def test_run_after_a_failure_tries_that_cell_again_and_forgets_the_error(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(3), fit_or_fail, path)
    assert [cell.fold for cell in pending(cells(3), path)] == [1]
    again = Counting()
    rows = go(cells(3), again, path)
    assert again.seen == [1]
    assert rows["error"].tolist() == ["", "", ""]
    assert len(lines(path)) == 4


def test_run_with_a_changed_recipe_replaces_the_old_row(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(2), fit, path)
    again = Counting()
    go(cells(2, recipe="new"), again, path)
    assert again.seen == [0, 1]
    assert len(lines(path)) == 3


def test_run_of_some_cells_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(2), fit, path)
    go(cells(4)[3:], fit, path)
    assert read_results(path)["fold"].tolist() == [0, 1, 3]


def test_run_in_two_processes_gives_the_same_file_as_in_one(tmp_path: Path) -> None:
    serial, parallel = tmp_path / "serial.csv", tmp_path / "parallel.csv"
    one, two = go(cells(5), fit_or_fail, serial), go(cells(5), fit_or_fail, parallel, jobs=2)
    assert one.equals(two)
    assert serial.read_bytes() == parallel.read_bytes()


def test_run_with_a_worker_that_dies_reports_it_and_finishes_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    rows = go(cells(5), fit_or_die, path, jobs=2).set_index("fold")["error"]
    assert rows[1] == "a worker process ended abruptly, perhaps for lack of memory"
    # Its neighbour of that moment is lost with it, and no other.
    assert (rows != "").sum() <= 2
    assert rows[4] == ""


def test_run_beside_another_run_of_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(1), fit, path)
    with path.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match=re.escape("another run is writing toy.csv; wait until it has finished")):
            go(cells(2), fit, path)


def test_run_on_a_file_with_other_columns_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    path.write_text("key,colour\n1,red\n")
    with pytest.raises(ValueError, match=r"expected toy\.csv to have the columns key,experiment"):
        go(cells(1), fit, path)
    assert path.read_text() == "key,colour\n1,red\n"


def test_results_of_a_missing_file_are_empty(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none.csv").empty


def test_infinite_epsilon_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    go(cells(1, epsilon=float("inf")), fit, path)
    assert read_results(path)["epsilon"].tolist() == [float("inf")]


def test_record_of_two_runs_keeps_both_and_names_no_computer(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    for fitted in (3, 2):
        add_record(path, command="python -m bench.experiments toy", fitted=fitted, failed=0, seconds=90.0, jobs=2)
    record = json.loads((tmp_path / "toy.json").read_text())
    assert [one["cells_fitted"] for one in record["runs"]] == [3, 2]
    assert set(record["runs"][0]) == {
        *("command", "date", "processes", "cells_fitted", "cells_failed", "wall_seconds", "versions")
    }
    assert provenance(path).startswith("`python -m bench.experiments toy`, ")
    assert "3 minutes on 2 processes" in provenance(path)
    add_record(path, command="python -m bench.experiments toy", fitted=1, failed=0, seconds=60.0, jobs=1)
    assert "4 minutes on 1 or 2 processes" in provenance(path)


def test_record_of_one_run_in_this_process_alone_speaks_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    add_record(path, command="python -m bench.experiments toy", fitted=1, failed=0, seconds=60.0, jobs=1)
    assert "1 minutes on 1 process," in provenance(path)


SCRIPT = """
from pathlib import Path
from bench.experiments.runner import run
from fake_fits import MEASURES, cells, leave_a_name
if __name__ == "__main__":
    run(cells(2), leave_a_name, Path("toy.csv"), measures=MEASURES, jobs=2, progress=False)
"""


def test_killed_run_keeps_its_rows_and_its_workers_leave_with_it(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    workers.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[2])])
    environment = os.environ | {"WORKERS": str(workers), "PYTHONPATH": path}
    parent = subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=environment)
    wait_for(lambda: len(read_rows(tmp_path / "toy.csv")) == 1 and len(list(workers.iterdir())) > 0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    numbers = [int(worker.name) for worker in workers.iterdir()]
    wait_for(lambda: not any(alive(number) for number in numbers))
    found = run(cells(2), fit, tmp_path / "toy.csv", measures=MEASURES, progress=False)
    assert found["accuracy"].tolist() == [0.5, 0.6]


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    # A process that has ended stays in the table until somebody asks for its result.
    return "Z" not in Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0]
