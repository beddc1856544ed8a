"""Several processes: the same bits, one sentence for a fault, no second debit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("grouped.py")


def grouped(scenario: str, folder: Path) -> Any:
    """What a scenario of ``grouped.py`` printed."""
    found = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, str(folder)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_fit_in_one_two_and_four_processes_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    found = grouped("bits", tmp_path)
    assert len(found["moments, demographic_parity, 300"]) == 2 + 2 + 4
    assert len(found["moments, equalized_odds, 2000"]) == 3 + 4  # in memory as well
    fits = {case: {made for made, _ in several} for case, several in found.items()}
    assert {case: len(made) for case, made in fits.items()} == dict.fromkeys(found, 1)
    assert len(set().union(*fits.values())) == len(found)
    sums = {case: {exact for _, exact in several} - {""} for case, several in found.items()}
    assert {case: len(exact) for case, exact in sums.items()} == dict.fromkeys(found, 1)


def test_processes_that_see_the_same_files_divide_their_rows_and_know_everybodys_persons(tmp_path: Path) -> None:
    found = grouped("shared", tmp_path)
    assert len(found) == 3
    assert len(set(found)) == 1


def test_rank_that_is_killed_costs_no_second_debit_and_the_run_resumes(tmp_path: Path) -> None:
    early, *late = grouped("killed", tmp_path)
    for one in (early, *late):
        assert one["first"][0].startswith("LostRank: another process of this run is gone")
        assert one["first"][1] is None
    assert (early["debits"], early["after"]) == (1, 1)  # its only answer is gone: nothing to resume from
    assert all("the debit stands" in said for said in early["second"])
    for one in late:
        assert (one["debits"], one["after"]) == (3, 3)
        assert one["second"] == [pytest.approx(4.0)] * 2


def test_run_that_was_killed_goes_on_to_the_model_of_one_process_that_lost_the_same_answers(tmp_path: Path) -> None:
    between, on_its_way = grouped("resumed", tmp_path)
    for one in (between, on_its_way):
        assert one["first"][0].startswith("LostRank: another process of this run is gone")
        assert one["first"][1] is None
        assert one["second"] == [one["alone"]] * 2
        assert (one["debits"], one["after"]) == (2, 3)
    assert between["alone"] != on_its_way["alone"]


def test_network_of_ones_own_is_the_same_in_two_processes_and_without_privacy(tmp_path: Path) -> None:
    found = grouped("modules", tmp_path)
    said = found.pop("differs")
    assert {name: len(set(digests)) for name, digests in found.items()} == dict.fromkeys(found, 1)
    assert len({digests[0] for digests in found.values()}) == len(found)
    assert all("the same module in every process" in one for one in said)


def test_base_of_ones_own_is_fitted_alike_by_every_process(tmp_path: Path) -> None:
    found = grouped("bases", tmp_path)
    said = found.pop("differs")
    assert {name: len(set(digests)) for name, digests in found.items()} == dict.fromkeys(found, 1)
    assert len({digests[0] for digests in found.values()}) == len(found)
    assert all("learns the same from the same rows in every process" in one for one in said)


def test_ranks_that_differ_are_told_so_before_anything_is_spent(tmp_path: Path) -> None:
    found = grouped("faults", tmp_path)
    assert found.pop("spent") == []
    said = {name: texts[0] for name, texts in found.items()}
    assert "expected a column 'b' in every file, got none in without.parquet" in said["column"]
    assert "8 bytes per row" in said["disk"]
    assert all("the same files, settings and version" in said[name] for name in ("type", "settings", "version"))
    assert all(one.partition(": ")[2] == two.partition(": ")[2] for one, two in found.values())


def test_shards_that_cannot_be_read_or_differ_get_one_sentence_and_no_second_debit(tmp_path: Path) -> None:
    found = grouped("shards", tmp_path)
    sentences = {
        "unreadable": "garbage.parquet cannot be read as Parquet",
        "copy": "expected the same files, settings and version",
        "spoiled": "expected 1.parquet to stay as it was when it was first read",
        "elsewhere": "expected the checkpoint of this run where its first process is",
    }
    for name, sentence in sentences.items():
        one, other = (said.partition(": ")[2] for said in found[name]["said"])
        assert one == other
        assert one.startswith(sentence)
    assert {name: one["debits"] for name, one in found.items()} == {
        "unreadable": 0,
        "copy": 0,
        "spoiled": 2,  # moments and a check, whose answer is lost
        "elsewhere": 0,
        "mended": 3,
    }
    assert found["mended"]["said"] == [pytest.approx(4.0)] * 2
