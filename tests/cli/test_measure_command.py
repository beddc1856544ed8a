"""The command measure: decisions of any model, from a file."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from running import Run, assert_refused, read
from texts import assert_narrow, parsed

WORDS = ("--decision", "hired", "--sensitive", "sex", "--groups", "Female,Male", "--epsilon", "20")
FULL = (*WORDS, "--target", "qualified", "--score", "points", "--reference", "Male")


def test_measure_tells_rates_ratios_and_scores_of_any_decisions(run: Run) -> None:
    result = run("measure", "hired.csv", *FULL)
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    found = parsed(run("measure", "hired.csv", *FULL, "--json"))
    frame = pd.read_csv("hired.csv")
    rates = frame.groupby("sex")["hired"].mean()
    (female,) = [line for line in found["impact"]["by_group"] if line["group"] == "Female"]
    assert female["impact_ratio"] == pytest.approx(rates["Female"] / rates["Male"], abs=0.15)
    assert found["public"]["accuracy"] == pytest.approx((frame["hired"] == frame["qualified"]).mean())
    assert found["scores"]["compared_with"] == "Male"
    assert set(found["violations"]) == {"demographic_parity", "equalized_odds"}


def test_measure_writes_the_table_of_a_bias_audit_and_the_measurement(run: Run, here: Path) -> None:
    words = ("measure", "hired.csv", *FULL, "--csv", "audit.csv", "--out", "found.json")
    assert run(*words).exit_code == 0
    with (here / "audit.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(one["table"], one["category"]) for one in lines] == [
        (table, group) for table in ("selection rate", "scoring rate") for group in ("Female", "Male", "not given")
    ]
    male = lines[1]
    assert (male["impact_ratio"], male["against_four_fifths"]) == ("1.000", "above")
    assert all(int(one["applicants"]) >= 0 for one in lines)
    assert read(here / "found.json")["columns"]["score"] == "points"
    assert_refused(run(*words), 2, "exists; pass --overwrite")


def test_measure_without_a_target_compares_decisions_alone(run: Run) -> None:
    found = parsed(run("measure", "hired.csv", *WORDS, "--json"))
    assert list(found["overall"]) == ["selection_rate"]
    assert found["accuracy"] is None
    assert_refused(run("measure", "hired.csv", *WORDS, "--notion", "equalized_odds"), 2, "expected --target for")


def test_measure_of_scores_without_a_target_has_no_auc_and_says_what_is_missing(run: Run) -> None:
    words = ("measure", "hired.csv", *WORDS, "--score", "points")
    text = run(*words).stdout
    assert_narrow(text)
    assert "AUC and calibration by group need labels: pass --target COLUMN." in text
    assert "binned AUC" not in text
    found = parsed(run(*words, "--json"))
    assert not [name for line in found["scores"]["by_group"] for name in line if "auc" in name]
    assert found["scores"]["calibration"] == []
    labelled = run("measure", "hired.csv", *FULL).stdout
    assert "binned AUC" in labelled
    assert "AUC of exact scores" in " ".join(labelled.split())


def test_measure_debits_the_ledger_and_stops_when_it_is_empty(run: Run) -> None:
    words = ("--decision", "hired", "--sensitive", "sex", "--groups", "Female,Male", "--ledger", "people.ledger")
    assert run("measure", "hired.csv", *words, "--epsilon", "2.9").exit_code == 0
    assert_refused(run("measure", "hired.csv", *words, "--epsilon", "2"), 3, "the budget is 3")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--decision", "hird", "--sensitive", "sex", "--groups", "F,M"), "did you mean 'hired'"),
        (("--decision", "hired", "--sensitive", "hired", "--groups", "F,M"), "cannot be public, too"),
        (("--decision", "hired", "--sensitive", "sex"), "expected the public list of groups"),
        ((*WORDS, "--score", "sex"), "cannot be public, too"),
        ((*WORDS, "--reference", "Femail"), "did you mean 'Female'"),
        ((*WORDS, "--target", "points"), "expected numbers in the column 'hired', got text"),
    ],
)
def test_wrong_columns_are_refused_in_one_sentence(run: Run, words: tuple[str, ...], part: str) -> None:
    assert_refused(run("measure", "hired.csv", *words), 2, part)


def test_violation_says_of_how_many_groups_it_speaks(run: Run) -> None:
    groups = ("--groups", "Female,Male,Other", "--epsilon", 8)
    words = ("measure", "hired.csv", "--decision", "hired", "--sensitive", "sex", *groups)
    lines = run(*words).stdout.splitlines()
    assert any(one.startswith("violation, ") for one in lines)
    assert all(one.endswith(" among 2 of 3 groups") for one in lines if one.startswith("violation, "))
    found = json.loads(run(*words, "--json").stdout)["violations"]["demographic_parity"]
    assert found["not_compared"] == ["Other"]
    measured = run("evaluate", "model", "test.csv", "--sensitive", "sex", *groups).stdout.splitlines()
    assert "among 2 of 3 groups" in next(one for one in measured if one.startswith("violation, "))
    table = run("compare", "model", "--data", "test.csv", "--sensitive", "sex", *groups)
    assert "model: the violation is the largest difference among 2 of 3 groups; without enough evidence: Other." in (
        " ".join(table.stdout.split())
    )
    (row,) = json.loads(run("compare", "model", "--data", "test.csv", "--sensitive", "sex", *groups, "--json").stdout)[
        "models"
    ]
    assert (row["groups"], row["groups_compared"], row["not_compared"]) == (3, 2, ["Other"])
