"""The command evaluate."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import Run, read
from texts import TRAIN, assert_narrow, parsed

from justitia import LagrangianDualClassifier


def masked(text: str) -> str:
    """Text whose numbers are N: what is left has to be the same on every machine."""
    return re.sub(r"[+-]?\d+(,\d{3})*(\.\d+)?(e-\d+)?", "N", text)


# --- evaluate


EVALUATED = """
PASS gap N points (N% bounds N to N), limit N points
before correction N points
accuracy N%; epsilon N for this measurement

Measured: N rows of test.csv, N groups.
Counts and rates are noisy; bounds cover noise and sampling error, at N confidence.

selection_rate (population N%)
group rows rate, bounds gap to population, points
Female N N% [N, N] N [N, N]
Male N N% [N, N] N [N, N]

violation, demographic_parity: N points [N, N]
demographic_parity: below N at N confidence; the one-sided upper bound is N.
smallest impact ratio of selection_rate: not enough evidence at N confidence
to call it below or above N; it is between N and N, each bound for itself.
rows without a group: about N +- N
decisions before, demographic_parity: N points [N, N]

This measurement is (N, N)-differentially private in the sensitive
attribute of any one row.
Together with the other certificate: (N, N)-differentially private in the
sensitive attribute of everybody in either dataset, with at most one row in
each, provided that nobody is in both.
"""


def test_evaluate_prints_rates_with_bounds_and_a_verdict(run: Run, here: Path) -> None:
    result = run("evaluate", "model", "test.csv", "--epsilon", "30", "--below", "0.9")
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    assert " ".join(masked(result.stdout).split()) == " ".join(EVALUATED.split())
    facts = read(here / "model" / "measurement-001.json")
    assert facts["people"] == 300
    assert facts["verdicts"]["demographic_parity"]["answer"] == "below"
    assert facts["verdicts"]["demographic_parity"]["at_most"] < 0.9
    assert {row["group"] for row in facts["by_group"]} == {"Female", "Male"}
    assert {row["group"] for row in facts["before"]["by_group"]} == {"Female", "Male"}
    assert sum(facts["public"]["confusion"].values()) == 300
    assert facts["public"]["before"]["name"]


@pytest.mark.parametrize("below", ["0.0001", "0"])
def test_evaluate_that_does_not_show_the_claim_has_its_own_exit_code(run: Run, below: str) -> None:
    result = run("evaluate", "model", "test.csv", "--epsilon", "30", "--below", below)
    assert result.exit_code == 4
    assert "violation, demographic_parity" in result.stdout


def test_evaluate_exact_warns_and_writes_nothing(run: Run, here: Path) -> None:
    result = run("evaluate", "model", "test.csv", "--exact", "--json")
    assert "exact numbers about groups are not private" in " ".join(result.stderr.split())
    assert not list((here / "model").glob("measurement*"))
    found = parsed(result)
    model, frame = LagrangianDualClassifier.load("model"), pd.read_csv("test.csv")
    chosen = model.predict(frame[model.feature_names_in_]) == ">50K"
    rates = pd.Series(chosen).groupby(frame["sex"]).mean()
    assert found["exact"]["demographic_parity"]["violation"] == pytest.approx(np.ptp(rates))
    assert found["private"] is False
    text = run("evaluate", "model", "test.csv", "--exact").stdout
    assert text.startswith("EXACT, not private")
    assert_narrow(text)


def test_evaluate_on_the_ledger_of_the_training_adds_up(run: Run) -> None:
    words = ("--ledger", "people.ledger", "--epsilon", "1")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    found = parsed(run("evaluate", "m", "test.csv", *words, "--json"))
    assert 1.3 < found["certificate"]["spent_epsilon"] < 1.6
    assert found["certificate"]["epsilon"] == 3.0  # the budget: the measurement was chosen after the training
    assert not any("either dataset" in one for one in found["certificate"]["remarks"])


def test_evaluate_several_notions_at_once(run: Run) -> None:
    words = ("--notion", "demographic_parity", "--notion", "equalized_odds", "--epsilon", "9")
    assert set(parsed(run("evaluate", "model", "test.csv", *words, "--json"))["violations"]) == {
        "demographic_parity",
        "equalized_odds",
    }
