"""Commands that cannot mean what they say: one sentence before anything is spent."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from running import Run, invoke, read, refused

TRAIN = ("train", "income.csv", "--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--out", "m")
ASKED = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*TRAIN, "--epsilon", "1", "--epsilon", "2"), "expected --epsilon once, got it twice; leave one out."),
        ((*TRAIN, "--sensitive", "sex"), "expected every sensitive column once, got one twice"),
        ((*TRAIN[:6], "--groups", "", "--out", "m"), "expected the names of the groups of 'sex', got none"),
        ((*TRAIN, "--tolerance", "5"), "expected a tolerance of at most 1, got 5; 5% is written 0.05."),
        ((*TRAIN, "--hidden", "0"), "expected whole numbers of at least 1, such as 20,10, got '0'."),
        ((*TRAIN, "--checkpoint", "model"), "expected a --checkpoint of its own, got the model 'model'"),
        ((*TRAIN, "--stream"), "expected Parquet to be read a few rows at a time, got 'income.csv'"),
        ((*TRAIN, "--plan", "curve"), "cannot use 'curve': is a directory; name a file."),
        (("tradeoff", "income.csv", *ASKED, "--tolerances", "0,9", "--out", "m"), "expected a tolerance of at most 1"),
        (("evaluate", "model", "test.csv", "--below", "5"), "expected a limit of at most 1, got 5"),
        (("evaluate", "curve", "test.csv"), "'curve' is a curve; name one of its models, 'curve/tolerance-...'."),
        (("report", "curve"), "'curve' is a curve; name one of its models"),
        (("report", "model", "--at", "scores"), "No such option '--at'. (Did you mean one of: '--about', '--out'?) ("),
        (("predict", "model", "new.csv", "--out", "a", "--out", "b"), "expected --out once, got it twice"),
    ],
)
def test_command_that_cannot_work_is_refused(run: Run, here: Path, words: tuple[Any, ...], sentence: str) -> None:
    refused(run, here, words, sentence)


def test_flag_that_is_given_twice_is_no_mistake(run: Run) -> None:
    assert run("report", "model", "--json", "--json").exit_code == 0


@pytest.mark.parametrize("words", [("train", "twice.csv", *ASKED, "--out", "m"), ("split", "twice.csv")])
@pytest.mark.parametrize("name", ["hours", "sex", " sex "])
def test_column_that_a_file_has_twice_is_refused(run: Run, here: Path, name: str, words: tuple[Any, ...]) -> None:
    text = (here / "income.csv").read_text(encoding="utf-8")
    (here / "twice.csv").write_text(text.replace("education", name, 1), encoding="utf-8")
    refused(run, here, words, f"'twice.csv' has the column {name.strip()!r} twice; rename or remove one of them.")


def test_space_around_names_of_columns_is_no_part_of_them(run: Run, here: Path) -> None:
    table = pd.read_csv("income.csv")
    table.set_axis([f" {name} " for name in table], axis=1).to_csv("spaces.csv", index=False)
    trained = run("train", "spaces.csv", *ASKED, "--drop", "gain", "--out", "m")
    assert trained.exit_code == 0, trained.output
    assert [one["name"] for one in read(here / "m" / "training.json")["read_as"]][:3] == ["hours", "education", "work"]
    assert run("predict", "m", "new.csv", "--out", "d.csv").exit_code == 0


def test_folder_of_parquet_files_may_hold_the_attribute_of_rows_in_a_csv(run: Run, here: Path) -> None:
    secret = pd.read_csv("secret.csv")
    (here / "secret").mkdir()
    secret[:100].to_parquet("secret/a.parquet")
    secret[100:].to_parquet("secret/b.parquet")
    shared = ("--target", "income", "--key", "id", "--sensitive", "sex", "--groups", "Female,Male", "--json")
    found = []
    for file in ("secret", "secret.csv"):
        made = ("--epsilon", "inf", "--seed", "0", "--out", f"m-{file}")
        trained = run("train", "features.csv", *shared, *made, "--sensitive-file", file)
        assert trained.exit_code == 0, trained.output
        found.append((here / f"m-{file}" / "correction.safetensors").read_bytes())
    assert found[0] == found[1]
    for wrong, part in (("curve", "expected Parquet files in 'curve', got none"), ("nowhere", "cannot use 'nowhere'")):
        words = ("train", "features.csv", *shared, "--out", "m", "--sensitive-file", wrong)
        refused(run, here, words, part)


def test_measurement_without_noise_says_that_it_is_exact(run: Run) -> None:
    measured = run("evaluate", "model", "test.csv", "--epsilon", "inf")
    assert measured.exit_code == 0
    assert "Counts and rates are EXACT, not private; bounds cover sampling error, at 0.95" in measured.stdout


def test_custodian_without_a_key_names_the_option(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUSTITIA_CUSTODIAN_KEY", "JUSTITIA_CUSTODIAN_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    held = ("--custodian", "https://localhost:1", "--population", "people", "--key", "id", "--checkpoint", "half")
    words = ("train", "features.csv", "--target", "income", *held, "--out", "m")
    refused(invoke, here, words, "expected the key of a custodian's client, got none; pass --custodian-key")
