"""Policy limits from the training to the report, and the favorable decision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from running import Run, assert_refused

from justitia import LagrangianDualClassifier, measure
from justitia.metrics.planning import PublicCounts, tolerance_for_limit
from justitia.report import build_report

TRAIN = ("train", "income.csv", "--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0")


def test_limits_of_the_training_are_tested_by_evaluate_and_judged_by_the_report(run: Run, here: Path) -> None:
    limits = ("--limit", "0.9", "--limit-ratio", "0.01")
    assert run(*TRAIN, *limits, "--out", "held").exit_code == 0
    facts = json.loads((here / "held/training.json").read_text("utf-8"))
    assert (facts["limit"], facts["limit_ratio"], facts["favorable"]) == (0.9, 0.01, None)
    assert run("evaluate", "held", "test.csv", "--epsilon", "30").exit_code == 0
    kept = json.loads((here / "held/measurement-001.json").read_text("utf-8"))
    assert kept["verdicts"]["demographic_parity"]["threshold"] == 0.9
    assert kept["public"]["changes"]["rows"] == 300
    assert run("report", "held", "--out", "held.html").exit_code == 0
    assert "<span>Met</span>" in (here / "held.html").read_text("utf-8")
    strict = run("report", "held", "--limit", "0.000001", "--out", "strict.html", "--json")
    assert strict.exit_code == 0
    assert json.loads((here / "strict.json").read_text("utf-8"))["verdict"]["state"] in {"not met", "inconclusive"}


def test_impact_ratio_that_is_not_shown_to_reach_its_limit_is_no_pass(run: Run, here: Path) -> None:
    limits = ("--limit", "0.9", "--limit-ratio", "1")
    assert run(*TRAIN, *limits, "--out", "held").exit_code == 0
    found = run("evaluate", "held", "test.csv", "--epsilon", "30")
    assert found.exit_code == 4
    assert found.stdout.split()[0] in {"INCONCLUSIVE", "FAIL"}
    assert "limit 1" in " ".join(found.stdout.split("\n\n")[0].split())
    errors = run("evaluate", "held", "test.csv", "--epsilon", "30", "--notion", "equalized_odds")
    assert errors.exit_code == 4
    assert "impact ratio not measured" in errors.stdout


def test_limits_of_a_model_saved_from_python_are_tested_and_reported(run: Run, here: Path) -> None:
    model = LagrangianDualClassifier.load(here / "model")
    model.save(here / "python", limit=0.000001, limit_ratio=0.8)
    loaded = LagrangianDualClassifier.load(here / "python")
    assert loaded.limits_ == {"limit": 0.000001, "limit_ratio": 0.8}
    loaded.save(here / "again", limit=0.5)
    assert LagrangianDualClassifier.load(here / "again").limits_ == {"limit": 0.5, "limit_ratio": 0.8}
    words = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--epsilon", "30")
    assert run("evaluate", "python", "test.csv", *words).exit_code == 4
    assert json.loads((here / "python/measurement-001.json").read_text("utf-8"))["limit"] == 0.000001
    assert build_report(loaded).contents.limits.ratio == 0.8
    with pytest.raises(ValueError, match="expected limit"):
        model.save(here / "none", limit=-1.0)
    assert not (here / "none").exists()


def test_below_is_the_limit_of_one_measurement(run: Run, here: Path) -> None:
    assert run(*TRAIN, "--limit", "0.9", "--out", "held").exit_code == 0
    assert run("evaluate", "held", "test.csv", "--epsilon", "30", "--below", "0").exit_code == 4
    assert json.loads((here / "held/measurement-001.json").read_text("utf-8"))["limit"] == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--limit", "5"), "5% is written 0.05"),
        (("--favourable", "maybe"), "maybe"),
    ],
)
def test_limit_that_says_nothing_is_refused_before_any_budget_is_spent(
    run: Run, here: Path, words: tuple[str, ...], part: str
) -> None:
    assert_refused(run(*TRAIN, *words, "--out", "none"), 2, part)
    assert not (here / "none").exists()


def test_favourable_decision_reaches_the_impact_ratio(run: Run, here: Path) -> None:
    assert run("evaluate", "model", "test.csv", "--epsilon", "30", "--favourable", "<=50K").exit_code == 0
    kept = json.loads((here / "model/measurement-001.json").read_text("utf-8"))
    assert (kept["favorable"], kept["favorable_decision"], kept["impact"]["rate"]) == (
        "<=50K",
        "negative",
        "negative_rate",
    )
    assert run("report", "model", "--out", "turned.html").exit_code == 0
    assert "the favourable decision is &lt;=50K" in (here / "turned.html").read_text("utf-8")


def test_report_on_the_shared_ledger_lists_everything_on_it(run: Run, here: Path) -> None:
    paid = ("--ledger", "people.ledger")
    assert run(*TRAIN, *paid, "--out", "held").exit_code == 0
    assert run("evaluate", "held", "test.csv", "--epsilon", "0.5", *paid).exit_code == 0
    assert run("report", "held", *paid, "--out", "held.html").exit_code == 0
    text = (here / "held.html").read_text("utf-8")
    assert "Everything on the ledger people" in text
    assert "This list may be incomplete" not in text
    assert run("report", "held", "--out", "alone.html").exit_code == 0
    assert "Measurements recorded in this folder" in (here / "alone.html").read_text("utf-8")


def test_plan_says_at_which_tolerance_a_limit_can_be_shown(run: Run) -> None:
    words = ("plan", "--rows", "44000", "--positives", "0.25", "--groups", "2", "--json")
    measured = ("--test-rows", "11000", "--test-epsilon", "0.5")
    found = json.loads(run(*words, *measured, "--limit", "0.05").stdout)["for_limit"]
    assert found == {"limit": 0.05, "rows": 11000, "epsilon": 0.5, "tolerance": 0.022}
    assert json.loads(run(*words, *measured, "--limit", "0.01").stdout)["for_limit"]["tolerance"] is None
    printed = " ".join(run(*words[:-1], *measured, "--limit", "0.05").stdout.split())
    assert printed.endswith(
        "To show a gap of at most 0.05 with 11,000 people at epsilon 0.5, 4 times out of 5, train at 0.022 or below."
    )


def test_gap_at_the_planned_tolerance_is_shown_four_times_out_of_five() -> None:
    """Measurements of new people whose gap is what the plan allows."""
    limit, n, epsilon, repetitions = 0.1, 2000, 1.0, 150
    counts = PublicCounts(n, n // 4, 2)
    gap = tolerance_for_limit(limit, n, counts, "demographic_parity", epsilon, 1e-5)
    assert gap is not None
    drawn, shown = np.random.default_rng(0), 0
    groups = np.where(np.arange(n) % 2 == 0, "a", "b")
    share = np.where(groups == "a", 0.35 + gap / 2, 0.35 - gap / 2)  # 0.8 right of 1/4 positive labels: 0.35 accepted
    for seed in range(repetitions):
        decided = (drawn.random(n) < share).astype(int)
        asked = {"sensitive_features": groups, "groups": ["a", "b"], "epsilon": epsilon, "noise_seed": seed}
        shown += measure(decided, decided, **asked).test(limit).answer == "below"
    assert 0.7 <= shown / repetitions <= 0.97
