"""The commands train and predict."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import ROWS, Run, income, read
from texts import TRAIN, assert_narrow, parsed, squeezed

from justitia import LagrangianDualClassifier
from justitia.cli.output import show_progress

SECRET = ("--target", "income", "--sensitive-file", "secret.csv", "--key", "id")


# --- train


def test_train_prints_what_was_learned_and_what_it_cost(run: Run) -> None:
    result = run("train", "income.csv", *TRAIN, "--tolerance", "0.05", "--epsilon", "50", "--out", "m")
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    facts = read(Path("m/training.json"))
    made, table, _ = squeezed(result.stdout).split("\n\n")
    assert table.splitlines()[-1] == "work category 2 levels: state, private"
    assert made.splitlines()[:7] == [
        "TRAINED m",
        "data 400 rows, 4 features of income.csv",
        "target income; '>50K' is the positive answer",
        "groups Female, Male (given)",
        "base LGBMClassifier, average of 5 cross-fitted models",
        "notion demographic_parity; tolerance: 0.05",
        f"accuracy {facts['training_accuracy']:.3f} on training data, AUC {facts['training_auc']:.3f}",
    ]
    assert "(50, 1e-05)-differentially private" in " ".join(result.stdout.split())
    assert result.stdout.endswith("Next: justitia evaluate m TEST.csv\n")


def test_train_writes_a_model_that_python_loads_and_facts(run: Run, here: Path) -> None:
    words = ("--positive", "<=50K", "--epsilon", "50", "--out", "deep/m")  # next to no noise
    assert run("train", "income.csv", *TRAIN, *words).exit_code == 0
    model = LagrangianDualClassifier.load(here / "deep" / "m")
    assert model.classes_.tolist() == [">50K", "<=50K"]
    assert list(model.feature_names_in_) == ["hours", "education", "gain", "work"]
    facts = read(here / "deep" / "m" / "training.json")
    frame = pd.read_csv("income.csv")
    right = (model.predict(frame[model.feature_names_in_]) == frame["income"]).mean()
    assert 0.6 < facts["training_accuracy"] < right  # by models that have not learned from the row
    assert facts["sensitive"] == ["sex"]
    assert facts["groups"] == ["sex=Female,Male"]
    assert facts["command"].startswith("justitia train income.csv --target income")
    assert facts["rows"] == ROWS


def test_train_without_missing_says_so_in_the_certificate(run: Run, here: Path) -> None:
    words = ("--no-missing", "--n-jobs", "2", "--epsilon", "50", "--out", "m", "--json")
    found = parsed(run("train", "income.csv", *TRAIN, *words))
    assert "an entry that is missing or not listed counts as the first group" in found["certificate"]["adjacency"]
    assert LagrangianDualClassifier.load(here / "m").missing == "none"


@pytest.mark.parametrize("positive", [">50K", "<=50K"])
def test_positive_value_is_learned_whichever_it_is(run: Run, here: Path, positive: str) -> None:
    words = ("--positive", positive, "--epsilon", "50", "--out", "m")
    assert run("train", "income.csv", *TRAIN, *words).exit_code == 0
    found = parsed(run("predict", "m", "new.csv", "--json"))
    decided = [one["decision"] for one in found["decisions"]]
    assert found["positive"] == positive
    assert found["positive_share"] == pytest.approx(np.mean(np.array(decided) == positive))
    assert np.mean(np.array(decided) == pd.read_csv("income.csv")["income"]) > 0.6


def test_train_json_is_all_there_is_on_the_standard_output(run: Run) -> None:
    found = parsed(run("train", "income.csv", *TRAIN, "--out", "m", "--json"))
    assert found["certificate"]["epsilon"] <= 1
    assert found["model"] == "m"
    assert isinstance(found["warnings"], list)


def test_list_of_groups_read_off_the_data_is_said_not_to_be_protected(run: Run) -> None:
    words = ["infer" if word == "Female,Male" else word for word in TRAIN]
    result = run("train", "income.csv", *words, "--out", "m")
    assert "the list of groups is read off the data and is not protected" in " ".join(result.stderr.split())
    assert "read off the data, the list is not protected" in " ".join(result.stdout.split())
    assert "read off" not in run("train", "income.csv", *TRAIN, "--out", "m2").stderr
    assert run("evaluate", "m", "test.csv").exit_code == 0  # the names are in the facts


def test_warnings_of_the_library_are_printed_once_on_the_standard_error(run: Run) -> None:
    result = run("train", "income.csv", *TRAIN, "--epsilon", "0.01", "--small-groups", "--out", "m", "--json")
    sentences = parsed(result)["warnings"]
    assert any("and no smaller violation can be held" in one for one in sentences)
    assert result.stderr.count("no smaller violation") == 1
    assert_narrow(result.stderr)


def test_train_without_privacy_says_so_and_tells_no_exact_violation(run: Run, here: Path) -> None:
    result = run("train", "income.csv", *TRAIN, "--epsilon", "inf", "--out", "m")
    assert "No privacy guarantee: epsilon is infinite." in result.stdout
    assert "noisy estimate" not in result.stdout
    assert json.loads((here / "m" / "training.json").read_text())["noisy_violation"] is None
    assert (
        parsed(run("train", "income.csv", *TRAIN, "--epsilon", "inf", "--out", "n", "--json"))["certificate"]["epsilon"]
        == "infinity"
    )


def test_second_file_joined_by_its_key_trains_the_model_that_one_file_does(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from justitia.privacy.mechanisms import SeededNoise

    monkeypatch.setattr("justitia.privacy.vault.SystemNoise", lambda: SeededNoise(0))
    pd.read_csv("secret.csv").drop(columns="age").to_csv("secret.csv", index=False)
    words = ("--groups", "Female,Male", "--seed", "0")
    assert run("train", "features.csv", *SECRET, *words, "--out", "two").exit_code == 0
    assert run("train", "income.csv", *TRAIN, "--out", "one").exit_code == 0
    new = pd.read_csv("new.csv").drop(columns="id")
    first, second = (LagrangianDualClassifier.load(here / name).decision_function(new) for name in ("one", "two"))
    assert (first == second).all()


def test_several_columns_and_bins_are_crossed_and_evaluated(run: Run, here: Path) -> None:
    words = ("--groups", "sex=Female,Male", "--bins", "age=30,50", "--epsilon", "20")
    result = run("train", "features.csv", *SECRET, *words, "--out", "m", "--json")
    groups = parsed(result)["certificate"]["groups"]
    assert groups[0] == "sex=Female & age=age<30"
    assert len(groups) == 6
    found = run("evaluate", "m", "features.csv", "--sensitive-file", "secret.csv", "--key", "id", "--epsilon", "50")
    assert found.exit_code == 0, found.output
    assert_narrow(found.stdout)
    assert "6 groups" in found.stdout
    income(300, 3).to_csv("with-age.csv", index=False)
    assert "6 groups" in run("evaluate", "m", "with-age.csv").stdout


def test_parquet_is_read_like_csv(run: Run, here: Path) -> None:
    pd.read_csv("income.csv").to_parquet("income.parquet")
    assert run("train", "income.parquet", *TRAIN, "--out", "m").exit_code == 0
    assert run("split", "income.parquet").exit_code == 0
    assert len(pd.read_parquet("income-test.parquet")) == ROWS // 5
    assert pd.read_parquet("income-test.parquet").dtypes.equals(pd.read_parquet("income.parquet").dtypes)


# --- predict


def test_predict_writes_a_decision_for_every_row_without_the_attribute(run: Run, here: Path) -> None:
    assert run("predict", "model", "new.csv", "--key", "id", "--out", "d.csv").exit_code == 0
    found = pd.read_csv("d.csv")
    assert list(found) == ["id", "decision", "probability"]
    assert found["id"].tolist() == [f"p{row}" for row in range(ROWS)]
    model = LagrangianDualClassifier.load("model")
    new = pd.read_csv("new.csv")
    assert found["decision"].tolist() == model.predict(new[model.feature_names_in_]).tolist()
    shuffled = pd.read_csv("income.csv")[["sex", "work", "gain", "education", "hours"]]
    shuffled.assign(sex="?").to_csv("with-sex.csv", index=False)
    lines = run("predict", "model", "with-sex.csv").stdout.splitlines()
    assert lines[0] == "row,decision,probability"
    assert [line.split(",")[1] for line in lines[1:]] == found["decision"].tolist()


def test_progress_is_shown_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for place in (terminal, file):
        monkeypatch.setattr(sys, "stderr", place)
        show_progress("reading people.csv")
        show_progress("")
    assert terminal.getvalue() == "\r\x1b[Kreading people.csv ...\r\x1b[K"
    assert file.getvalue() == ""
