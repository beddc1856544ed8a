"""Engine post-processing on the command line: base models, thresholds and what is printed about them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import Run, assert_refused, read

from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.cli.options import BASES
from justitia.metrics.planning import PublicCounts, expected_tolerance
from justitia.notions import get_notion

TRAIN = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0")


@pytest.fixture
def scored(here: Path) -> pd.DataFrame:
    """The training file and the new rows with the probability of a model of somebody's."""
    for name in ("income.csv", "new.csv", "test.csv"):
        table = pd.read_csv(name)
        table.assign(score=(1 / (1 + np.exp(-table["hours"]))).round(4)).to_csv(f"scored-{name}", index=False)
    return pd.read_csv("scored-income.csv")


@pytest.mark.parametrize(
    ("words", "engine"),
    [((), "post-processing"), (("--hidden", "4"), "moments"), (("--engine", "pf-ld"), "pf-ld")],
)
def test_engine_is_by_the_rule_unless_it_is_named(run: Run, here: Path, words: tuple[str, ...], engine: str) -> None:
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    assert LagrangianDualClassifier.load(here / "m").engine == engine
    assert ("base" in read(here / "m" / "training.json")) == (engine == "post-processing")
    planned = json.loads(run("plan", "--rows", "1000", *words, "--json").stdout)
    assert planned["engine"] == engine


@pytest.mark.parametrize("name", [name for name in BASES if name != "linear"])
def test_base_by_name_is_trained_kept_and_predicts_from_its_folder(run: Run, here: Path, name: str) -> None:
    words = ("--base", name, "--tolerance", "1", "--out", "m", "--json")  # so that noise decides nothing
    result = run("train", "income.csv", *TRAIN, *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["base"].endswith("average of 5 cross-fitted models")
    found = run("predict", "m", "new.csv", "--json")
    assert found.exit_code == 0, found.output
    decided = [one["decision"] for one in json.loads(found.stdout)["decisions"]]
    assert np.mean(np.array(decided) == pd.read_csv("income.csv")["income"]) > 0.6


def test_column_of_scores_is_the_base_and_a_feature_whether_named_or_not(
    run: Run, here: Path, scored: pd.DataFrame
) -> None:
    words = ("--base-column", "score", "--features", "hours,work", "--tolerance", "1", "--out", "m")
    result = run("train", "scored-income.csv", *TRAIN, *words)
    assert result.exit_code == 0, result.output
    assert "base scores in column 'score'" in " ".join(result.stdout.split())
    model = LagrangianDualClassifier.load(here / "m")
    assert list(model.feature_names_in_) == ["hours", "work", "score"]
    # nothing to correct at this tolerance, so decisions are those of the column after its calibration
    p = model.rule_.calibration(scored["score"].to_numpy())
    assert (model.predict(scored[model.feature_names_in_]) == np.where(p > 0.5, ">50K", "<=50K")).all()


def test_column_of_scores_is_needed_to_predict_and_to_evaluate(run: Run, here: Path, scored: pd.DataFrame) -> None:
    assert run("train", "scored-income.csv", *TRAIN, "--base-column", "score", "--out", "m").exit_code == 0
    assert run("predict", "m", "scored-new.csv").exit_code == 0
    assert run("evaluate", "m", "scored-test.csv").exit_code == 0
    assert_refused(run("predict", "m", "new.csv"), 2, "no column 'score' in 'new.csv'")
    assert_refused(run("evaluate", "m", "test.csv"), 2, "no column 'score' in 'test.csv'")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--base-column", "skore"), "no column 'skore' in 'scored-income.csv'; did you mean 'score'?"),
        (("--base-column", "sex"), "'sex' is target, key or sensitive and cannot be a feature"),
        (("--base-column", "income"), "'income' is target, key or sensitive and cannot be a feature"),
        (("--base-column", "score", "--drop", "score"), "cannot be both --base-column and dropped"),
        (("--base-column", "score", "--base", "logistic"), "expected --base or --base-column, got both"),
        (("--base-column", "hours"), "expected one probability between 0 and 1 per row"),
        (("--base", "lightgb"), "no base 'lightgb'; did you mean 'lightgbm'?"),
        (("--base", "lightgbm", "--engine", "moments"), "expected engine 'post-processing' beside --base"),
        (("--threshold", "0.3", "--hidden", "4"), "got 'moments', which trains a network"),
        (("--engine", "post-processing", "--hidden", "4"), "expected --hidden with an engine that trains a network"),
        (("--threshold", "1.5"), "expected threshold to be a number between 0 and 1, got 1.5"),
    ],
)
def test_base_that_cannot_be_used_gives_one_sentence_before_anything_is_spent(
    run: Run, here: Path, scored: pd.DataFrame, words: tuple[str, ...], part: str
) -> None:
    ledger = (here / "people.ledger").read_bytes()
    result = run("train", "scored-income.csv", *TRAIN, *words, "--out", "m", "--ledger", "people.ledger")
    assert_refused(result, 2, part)
    assert (here / "people.ledger").read_bytes() == ledger
    assert not (here / "m").exists()


def test_threshold_moves_decisions_and_is_said(run: Run) -> None:
    shares = []
    for threshold in ("0.3", "0.7"):
        words = ("--threshold", threshold, "--tolerance", "1", "--out", f"m{threshold}")
        result = run("train", "income.csv", *TRAIN, *words)
        assert f"positive above {threshold}" in " ".join(result.stdout.split())
        shares.append(json.loads(run("predict", f"m{threshold}", "new.csv", "--json").stdout)["positive_share"])
    assert shares[0] > shares[1] + 0.1


def test_tolerance_in_force_is_printed_unless_it_needs_exact_sizes(run: Run, here: Path) -> None:
    private = run("train", "income.csv", *TRAIN, "--out", "m")
    in_force = read(here / "m" / "training.json")["tolerance"]
    assert in_force > 0.01
    assert f"tolerance: {in_force:.3g} (default)" in " ".join(private.stdout.split())
    exact = run("train", "income.csv", *TRAIN, "--epsilon", "inf", "--out", "exact")
    assert "tolerance: one standard error" in " ".join(exact.stdout.split())
    assert read(here / "exact" / "training.json")["tolerance"] is None


def test_tolerance_that_a_plan_expects_is_the_one_of_training_with_equal_groups(run: Run) -> None:
    words = ("income.csv", "--target", "income", "--groups", "Female,Male")
    expected = json.loads(run("plan", *words, "--json").stdout)["expected_tolerance"]
    facts = json.loads(run("train", *words, "--sensitive", "sex", "--seed", "0", "--out", "m", "--json").stdout)
    assert facts["tolerance"] == pytest.approx(expected, rel=0.25)
    assert json.loads(run("plan", *words, "--tolerance", "0.1", "--json").stdout)["expected_tolerance"] is None
    assert "0.1 between two groups" in run("plan", *words, "--tolerance", "0.1").stdout


def test_expected_tolerance_without_noise_is_the_standard_error_of_a_difference() -> None:
    plan = PostProcessingPlan(least=0.0).calibrate(float("inf"), 1e-5, n=1000)
    counts = PublicCounts(rows=1000, positives=500, groups=2)
    parity = expected_tolerance(counts, plan, get_notion("demographic_parity"))
    assert parity == pytest.approx(np.sqrt(2 * 0.5 * 0.5 / 500))  # half of the decisions are positive
    odds = expected_tolerance(counts, plan, get_notion("equalized_odds"))
    assert odds == pytest.approx(np.sqrt(2 * 0.8 * 0.2 / 250))  # four of five are right, in cells of 250


def test_compare_trains_the_default_engine_by_name(run: Run) -> None:
    words = (
        "compare",
        *["--method", "post-processing", "--train", "income.csv", "--data", "test.csv", "--target", "income"],
    )
    result = run(*words, "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["models"]
    assert found["model"] == "(post-processing)"
    assert found["epsilon"] == pytest.approx(1.0, rel=1e-3)
