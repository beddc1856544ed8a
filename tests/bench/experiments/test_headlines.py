"""Summaries for the pages, and ``paper``: from tiny result files to tables and sentences."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.experiments import headlines, reproduce_paper
from bench.experiments.__main__ import EXPERIMENTS, main
from bench.experiments.frontier import METHOD, NOT_PRIVATE
from bench.experiments.page import fill, pages
from bench.experiments.runner import Cell

IDENTITY = {"key": "k", "seed": 0, "split": "test", "settings": "{}", "error": ""}


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    pd.DataFrame([IDENTITY | {"experiment": name} | row for row in rows]).to_csv(folder / f"{name}.csv", index=False)


def curve(method: str, epsilon: float, fold: int, default: float, *, strict: float = 0.80) -> dict[str, Any]:
    """A default point, a strict one and the base model."""
    points = [[None, default, 0.05], [0.0, strict, 0.02], [1.0, 0.86, 0.30]]
    where = {"dataset": "bank", "notion": "demographic_parity", "method": method, "epsilon": epsilon, "fold": fold}
    return where | {"accuracy": default, "violation": 0.05, "floor": 0.03, "curve": json.dumps(points)}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = [curve(METHOD, epsilon, fold, 0.82) for epsilon in (1.0, math.inf) for fold in (0, 1)]
    rows += [curve(NOT_PRIVATE, math.inf, fold, 0.84, strict=0.83) for fold in (0, 1)]
    write(tmp_path, "frontier", rows)
    run = {"date": "2026-11-17", "cells_fitted": 6, "command": "x"}
    (tmp_path / "frontier.json").write_text(json.dumps({"results": "frontier.csv", "runs": [run, run]}))
    return tmp_path


def test_headline_has_the_base_the_default_the_paper_and_chance(results: Path) -> None:
    text = headlines.headline(results)
    row = "| Bank, demographic parity | 0.860 / 0.300 | 0.820 / 0.050 | 0.820 / 0.050 | 0.793 / 0.126 | 0.030 |"
    assert text.splitlines()[2] == row
    assert "from 0.300 to 0.050 on average" in text
    assert "costs 0.0000 of accuracy in the median row" in text


def test_losses_name_the_rows_where_a_rival_is_ahead_and_where_the_correction_is_expensive(results: Path) -> None:
    text = headlines.losses(results)
    assert "| LinearPost, whole curve | exactly | 1 of 1: Bank demographic parity (+0.0" in text
    assert text.endswith("costs more than 0.03 of accuracy in 1 of 1 rows: Bank demographic parity 0.040.")


def test_evaluations_of_test_rows_are_counted_by_date_and_file(results: Path) -> None:
    assert headlines.evaluations(results).splitlines()[2:] == ["| 2026-11-17 | `frontier.csv` | 2 | 12 |"]


def test_evaluations_leave_out_inner_splits(results: Path) -> None:
    rows = pd.read_csv(results / "frontier.csv").assign(split="inner", error="")
    rows.to_csv(results / "frontier.csv", index=False)
    assert headlines.evaluations(results) == headlines.ABSENT


def test_summaries_without_results_say_so(tmp_path: Path) -> None:
    for name, summary in headlines.SUMMARIES.items():
        assert "No results are committed" in summary(tmp_path), name


def test_ratios_have_their_target_and_whether_it_is_met(tmp_path: Path) -> None:
    ratios = [
        {"name": "default fit / base", "value": 1.234, "relation": "<=", "target": 1.5, "passed": True},
        {"name": "private step / plain step", "value": 2.3, "relation": "<=", "target": 1.8, "passed": False},
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"ratios": ratios}))
    first, second = (headlines.SUMMARIES[name](tmp_path) for name in ("speed_default", "speed_networks"))
    assert first.splitlines()[2:] == ["| default fit / base | 1.23 | at most 1.5 | yes |"]
    assert second.splitlines()[2:] == ["| private step / plain step | 2.30 | at most 1.8 | **no** |"]


def test_page_with_a_summary_is_found_and_filled(results: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "one.md"
    page.write_text("# One\n\n<!-- results: headline -->\n<!-- end of results -->\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    assert pages(tmp_path) == (page,)
    assert "| Bank, demographic parity |" in fill(page.read_text(), EXPERIMENTS, results, link="../results")


def test_page_keeps_sections_of_other_commands(tmp_path: Path) -> None:
    text = "<!-- results: scale -->\nmade by bench.performance\n<!-- end of results -->\n"
    assert fill(text, EXPERIMENTS, tmp_path, link="../results") == text


# --- paper


def work(cell: Cell) -> dict[str, float]:
    """Pretends to fit."""
    level = 0.79 + cell.fold / 100
    return {"accuracy": level, "violation": 0.1, "epsilon_spent": 1.0, "epsilon_claimed": 1.0, "seconds": 0.1}


def test_paper_has_published_and_rerun_numbers_side_by_side(tmp_path: Path, capsys: Any) -> None:
    assert reproduce_paper.reproduce(tmp_path, quick=True, jobs=1, works=(work, work)) == 0
    text = capsys.readouterr().out
    row = "|  | PF-LD [2 folds] | 0.793 (0.013) | 0.795 (0.005) | 0.126 (0.027) | 0.100 (0.000) |"
    assert row in text
    assert "|  | F-LD [2 folds] | - | 0.795 (0.005) | - | 0.100 (0.000) |" in text
    assert "in 1 of 2 cells. Farther away: Compas, demographic parity (+0.128 accuracy, +0.002 violation)." in text
    assert "| Bank | 0.25 | 0.790 (0.000) |" in text
    assert (tmp_path / "paper.md").read_text(encoding="utf-8").startswith("| data, notion | method |")
    assert (tmp_path / "figures" / "tradeoffs.svg").exists()


def test_paper_with_a_failed_fit_says_so_and_continues_later(tmp_path: Path, capsys: Any) -> None:
    def broken(cell: Cell) -> dict[str, float]:
        if cell.fold == 1:
            raise ValueError("no")
        return work(cell)

    assert reproduce_paper.reproduce(tmp_path, quick=True, jobs=1, works=(broken, work)) == 1
    assert "6 fits failed" in capsys.readouterr().err
    assert reproduce_paper.reproduce(tmp_path, quick=True, jobs=1, works=(work, work)) == 0


def test_paper_fits_table_and_figure_of_three_methods() -> None:
    table, figure = reproduce_paper.cells(quick=False)
    assert len(table) == 3 * 75
    assert {cell.method for cell in table} == {"CLF", "F-LD", "PF-LD printed"}
    assert {cell.method for cell in figure} == {"PF-LD printed"}


def test_paper_is_a_command_that_writes_beside_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}

    def note(folder: Path, **options: Any) -> int:
        called.update(options, folder=folder)
        return 0

    monkeypatch.setattr("bench.experiments.__main__.reproduce_paper", note)
    assert main(["paper", "--jobs", "1"]) == 0
    assert called["folder"].parts[-2:] == ("out", "paper")
    assert main(["paper", "--quick", "--jobs", "1"]) == 0
    assert (called["quick"], called["folder"].parts[-3:]) == (True, ("out", "quick", "paper"))
