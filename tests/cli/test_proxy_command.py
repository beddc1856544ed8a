"""``--proxy`` of the commands that train, and of plan and audit."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import Run, income, read, refused
from texts import TRAIN, parsed


@pytest.fixture
def guesses(here: Path) -> Path:
    """The table with a number and a word that follow the group in most rows."""
    table, random = income(400, 0).drop(columns="age"), np.random.default_rng(1)
    same, right = (table["sex"] == "Female").to_numpy(), random.random(400) < 0.8
    guess = np.where(right, same, random.random(400) < 0.5)
    table = table.assign(p_female=guess + 0.001 * random.random(400).round(2), title=np.where(guess, "Ms", "Mr"))
    table.to_csv("guessed.csv", index=False)
    (here / "parts").mkdir()
    table.to_parquet(here / "parts" / "0.parquet", index=False)
    return here


PROXIES = ("--proxy", "p_female", "--proxy", "title")


@pytest.mark.parametrize("data", ["guessed.csv", "parts"])
def test_train_takes_proxies_that_prediction_does_not_need(run: Run, guesses: Path, data: str) -> None:
    made = run("train", data, *TRAIN, *PROXIES, "--out", "m")
    assert made.exit_code == 0, made.output
    stored = "".join(one.read_text() for one in (guesses / "m").rglob("*.json") if one.name != "training.json")
    assert "p_female" not in stored
    facts = read(guesses / "m" / "training.json")
    assert facts["columns"] == 4
    assert run("predict", "m", "new.csv", "--key", "id", "--out", "decisions.csv").exit_code == 0
    assert len(pd.read_csv("decisions.csv")) == 400
    plain = run("train", data, *TRAIN, "--drop", "p_female,title", "--out", "plain", "--json")
    again = run("train", data, *TRAIN, *PROXIES, "--out", "m", "--overwrite", "--json")
    assert parsed(plain)["certificate"]["releases"] == parsed(again)["certificate"]["releases"]


def test_tradeoff_takes_a_proxy(run: Run, guesses: Path) -> None:
    made = run("tradeoff", "guessed.csv", *TRAIN, *PROXIES, "--tolerances", "0,0.2", "--out", "c")
    assert made.exit_code == 0, made.output


def test_plan_counts_no_proxy_as_a_feature(run: Run, guesses: Path) -> None:
    found = parsed(run("plan", "guessed.csv", *TRAIN[:6], *PROXIES, "--json"))
    assert [one["name"] for one in found["columns"]] == ["hours", "education", "gain", "work"]


def test_wrong_proxies_are_refused_before_any_budget_is_spent(run: Run, guesses: Path) -> None:
    words = ("train", "guessed.csv", *TRAIN, "--out", "m")
    refused(run, guesses, (*words, "--proxy", "nobody"), "nobody")
    refused(run, guesses, (*words, "--proxy", "sex"), "sex", "cannot be a --proxy")
    refused(run, guesses, (*words, "--proxy", "income"), "income", "cannot be a --proxy")
    both = ("--features", "hours,p_female", "--proxy", "p_female")
    refused(run, guesses, (*words, *both), "both a feature and a --proxy")
    numbers = ("train", "guessed.csv", "--target", "hours", "--task", "number", *TRAIN[2:], "--out", "m")
    refused(run, guesses, (*numbers, "--proxy", "p_female"), "no --proxy because the target has numbers")
    refused(run, guesses, (*words, "--hidden", "4", "--proxy", "p_female"), "post-processing")


def test_readings_of_columns_keep_no_proxy_for_prediction(run: Run, guesses: Path) -> None:
    assert run("train", "guessed.csv", *TRAIN, *PROXIES, "--out", "m").exit_code == 0
    facts = json.loads((guesses / "m" / "training.json").read_text())
    read_as = {one["name"]: one["kind"] for one in facts["read_as"]}
    assert "p_female" not in {name for name, kind in read_as.items() if kind == "number"}
