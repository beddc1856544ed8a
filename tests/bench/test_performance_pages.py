"""Sections of the documentation that benchmarks fill: their text, and committed pages that show committed results."""

import json
from pathlib import Path

import pytest

from bench.performance import billion, rivals
from bench.performance.pages import (
    ABSENT,
    ROOT,
    SECTIONS,
    by_groups,
    fill,
    fits,
    load,
    simulated,
    targets,
    timing,
    users,
    write,
)

PAGE = "before\n<!-- results: {} -->\nold\n<!-- end of results -->\nafter\n"
FITS = [
    {
        "rows": 1_000_000,
        "workers": 1,
        "pass_seconds": 60.4,
        "pass_processor_seconds": 25.04,
        "processor_seconds": 110.0,
        "forecast": 113.2,
    }
    | {"peak_bytes": 2**30, "load": [1.6, 0.3]},
    {"rows": 1_000_000, "workers": 2, "pass_seconds": 31.0, "processor_seconds": 118.0, "forecast": 113.2}
    | {"peak_bytes": 2**30, "load": [1.0, 1.0]},
    {"rows": 4_000_000, "workers": 1, "pass_seconds": 1234.5, "processor_seconds": 410.0, "forecast": 342.0}
    | {"peak_bytes": 1.5 * 2**30, "load": [2.0, 4.1]},
]
LOAD = {"clients": 3, "seconds": 90, "cores": 2, "answers": 1200, "debits": 1200, "receipts": 1200, "refused": 0}
LOAD |= {"spent_epsilon": 0.25, "budget_epsilon": 5.0, "p50_seconds": 0.5, "p99_seconds": 0.75}
LOAD |= {"per_second_in_each_half": [14.0, 12.5], "memory_mb_at_start_quarter_half_end": [400, 410, 420, 1430]}
USERS = {"people": 45222, "same_bits": True, "files_of_the_custodian_that_the_trainer_can_open": []}
USERS |= {"in_the_trainers_memory": [], "in_the_trainers_files": ["codes"], "in_the_custodians_memory": ["codes"]}
USERS |= {"seconds_in_memory": 9.5, "seconds_with_a_custodian": 10.0}
USERS |= {"processor_seconds_of_trainer_and_custodian": [9.0, 0.25]}
STEP = {"registered": [1.0, 0.5], "unlisted": [1.0, 0.45], "silent": [1.0, 0.55], "stranger": [1.0, 0.5]}
STEP |= {"by_chance": [0.4, 0.6]}


def test_section_of_a_page_is_replaced_and_the_rest_is_kept() -> None:
    assert fill(PAGE.format("a"), "a", "new") == PAGE.format("a").replace("old", "new")


@pytest.mark.parametrize("page", ["no section", PAGE.format("a") * 2])
def test_page_without_exactly_one_such_section_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"expected one section 'a' in the page, got [02]"):
        fill(page, "a", "new")


def test_table_of_fits_has_one_line_per_fit() -> None:
    head, rule, *lines = fits(FITS).splitlines()
    assert head.startswith("| rows | processes | seconds in passes | processor microseconds per row in passes |")
    assert lines[0].startswith("| 1,000,000 | 1 | 60 | 25.0 | 110 |")
    assert rule == "| " + " | ".join(["---:"] * 8) + " |"
    assert lines[2] == "| 4,000,000 | 1 | 1,234 | - | 410 | 342 | 1.50 GB | 4.1 |"


def test_targets_that_are_missed_are_marked() -> None:
    ratios = [
        {"name": "speed", "value": 1.987, "relation": ">=", "target": 1.7, "passed": True},
        {"name": "memory", "value": 1.3, "relation": "<=", "target": 1.2, "passed": False},
    ]
    lines = targets(ratios).splitlines()[2:]
    assert lines == ["| speed | 1.99 | at least 1.7 | yes |", "| memory | 1.30 | at most 1.2 | **no** |"]


def test_tables_of_simulated_rows_and_of_groups_have_one_line_per_fit() -> None:
    one = {"rows": 200_000_000, "seconds": 1234.5, "microseconds_per_row": 6.04, "peak_bytes": 2**30}
    assert simulated([one | {"largest_noisy_gap": [0.25, 0.01]}]).splitlines()[2:] == [
        "| 200,000,000 | 1,234 | 6.0 | 1.00 GB | 0.2500 / 0.0100 |"
    ]
    fit = {"groups": 5, "ratio": 1.5, "fit": 2.0, "distillation": 0.5}
    text = by_groups({"rows": 2000, "exponent": 0.987, "fits": [fit]})
    assert "| 5 | 1.50 | 0.25 |" in text
    assert text.endswith("2,000 rows. From five groups on, time grows with the power 0.99 of the groups.")


def test_rivals_have_a_line_each_and_say_what_timed_out() -> None:
    runs = [
        {"method": method, "data": rivals.MADE_UP, "rows": 3000, "fit": 2.0, "predict": 0.5}
        for method in rivals.METHODS
        if method not in {rivals.REDUCTION, "FairGBM"}
    ]
    runs.insert(1, {"method": rivals.REDUCTION, "data": rivals.MADE_UP, "rows": 3000, "timeout": 600.0})
    runs.insert(2, {"method": "FairGBM", "data": rivals.MADE_UP, "rows": 3000, "failed": "no memory"})
    lines = rivals.table(rivals.with_ratios(runs)).splitlines()
    assert lines[0] == "| method | fit, 3,000 made-up rows | predict |"
    assert lines[2:5] == [
        "| Justitia, ε = 1 | 1.0 | 1.0 |",
        "| ExponentiatedGradient over LightGBM (fairlearn), no privacy | over 10 minutes | - |",
        "| LinearPost, no privacy | 1.0 | 1.0 |",
    ]
    assert lines[5] == "| FairGBM, no privacy | failed | failed |"
    assert lines[-1].endswith("the longer of the two took 1.00 times the shorter.")


def test_tables_of_the_custodian_say_what_was_found() -> None:
    assert "| answers, debits, receipts | 1,200 / 1,200 / 1,200 |" in load(LOAD)
    assert "| 3 clients for 1.5 minutes, 2 cores |  |" in load(LOAD)
    assert "| entries or codes in the trainer's memory and files | codes |" in users(USERS)
    steps = dict.fromkeys(("cohort", "question", "look_up", "look_up_as_stored"), STEP)
    text = timing({"repeats": 80, "people": 100, "cohorts of 7": steps})
    assert "between 0.40 and 0.60" in text
    assert "| 7 | making the cohort | 0.45 | 0.55 | 0.50 |" in text


def test_forecast_is_a_line_through_the_two_largest_fits_of_one_process() -> None:
    rates = billion.Rates.of(FITS)
    assert rates.row == pytest.approx(100e-6)
    assert rates.once == pytest.approx(10.0)
    assert rates.peak == 1.5 * 2**30
    text = billion.section(rates, 10**9, 0.05)
    assert text.startswith("1,000,000,000 rows at 100.0 processor microseconds per row and 10 seconds once")
    assert "| 100 | 0.28 | 28 | 1.40 | 2.1 GB |" in text  # 10 + 1e5 / 100 seconds, on 100 cores


def test_section_without_results_says_so(tmp_path: Path) -> None:
    (tmp_path / "speed.md").write_text(PAGE.format("rivals"))
    assert write(["rivals"], tmp_path, tmp_path) == []
    assert (tmp_path / "speed.md").read_text() == PAGE.format("rivals").replace("old", ABSENT)


def test_pages_show_the_committed_results(tmp_path: Path) -> None:
    for page in {page for _, page, _ in SECTIONS.values()}:
        (tmp_path / page).write_text((ROOT / "docs" / page).read_text(encoding="utf-8"), encoding="utf-8")
    measured = [name for name, (file, _, _) in SECTIONS.items() if (ROOT / "results" / file).exists()]
    assert write(list(SECTIONS), ROOT / "results", tmp_path) == measured
    for page in {page for _, page, _ in SECTIONS.values()}:
        assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = json.loads(billion.SCALE.read_text(encoding="utf-8"))["fits"]
    assert billion.section(billion.Rates.of(found), billion.BILLION, billion.PRICE) in billion.PAGE.read_text("utf-8")
