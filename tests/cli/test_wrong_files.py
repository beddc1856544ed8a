"""Wrong input through the command line: one sentence, the right exit code, nothing spent and nothing left behind."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from running import Run, assert_refused, names, read, refused

from justitia import DurableLedger, LagrangianDualClassifier

TRAIN = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male")
SECRET = ("--target", "income", "--sensitive-file", "secret.csv", "--key", "id", "--groups", "sex=Female,Male")


def test_wrong_separator_is_recognised_and_named(run: Run, here: Path) -> None:
    pd.read_csv("income.csv").to_csv("semi.csv", sep=";", index=False)
    words = ("train", "semi.csv", *TRAIN, "--out", "m")
    text = refused(run, here, words, "expected columns separated by ',' in 'semi.csv', got a single column")
    assert "pass --separator ';'" in text
    assert run(*words, "--separator", ";").exit_code == 0


@pytest.mark.parametrize("separator", ["tab", "\t", "\\t"])
def test_separator_tab_has_three_names(run: Run, separator: str) -> None:
    pd.read_csv("income.csv").to_csv("tabs.csv", sep="\t", index=False)
    assert "pass --separator 'tab'" in run("split", "tabs.csv").stderr
    assert run("split", "tabs.csv", "--separator", separator).exit_code == 0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--target", "incme", "--sensitive", "sex"), ("no column 'incme' in 'income.csv'; did you mean 'income'?",)),
        (("--target", "income", "--sensitive", "gender"), ("no column 'gender' in 'income.csv'",)),
        (("--target", "income", "--sensitive", "SEX"), ("no column 'SEX' in 'income.csv'; did you mean 'sex'?",)),
        (("--target", "income"), ("expected the name of the sensitive column, got none; pass --sensitive NAME.",)),
        (("--sensitive", "sex"), ("expected the name of the column to predict, got none; pass --target NAME.",)),
        (("--target", "sex", "--sensitive", "sex"), ("the column 'sex' is both target and sensitive",)),
        ((*TRAIN, "--person", "sex"), ("the column 'sex' is sensitive and cannot be --person, which is public",)),
        ((*TRAIN, "--drop", "hour"), ("no column 'hour' in 'income.csv'; did you mean 'hours'?",)),
        ((*TRAIN, "--features", "hours,sex"), ("the column 'sex' is target, key or sensitive",)),
        ((*TRAIN, "--drop", "hours,education,gain,work"), ("has no column left to learn from",)),
        ((*TRAIN, "--positive", "50K"), ("no value '50K' in the target 'income'; did you mean '>50K'?",)),
        (("--target", "hours", "--sensitive", "sex", "--task", "classes"), ("expected at most 20 classes",)),
        ((*TRAIN, "--notion", "equalised_odds"), ("no notion 'equalised_odds'; did you mean 'equalized_odds'?",)),
        ((*TRAIN, "--engine", "moment"), ("no engine 'moment'; did you mean 'moments'?",)),
        ((*TRAIN, "--epsilon", "-1"), ("expected epsilon to be a number of at least 0, got -1.0",)),
        ((*TRAIN, "--epsilon", "much"), ("'much' is not a valid float",)),
        ((*TRAIN, "--delta", "0"), ("delta=0 rules out Gaussian noise",)),
        ((*TRAIN, "--tolerance", "-0.1"), ("expected tolerance to be a finite number of at least 0",)),
        ((*TRAIN, "--tolerence", "0.1"), ("No such option", "--tolerance")),
        ((*TRAIN, "--hidden", "ten"), ("expected whole numbers of at least 1, such as 20,10, got 'ten'",)),
        ((*TRAIN, "--groups", "Other"), ("the groups of 'sex' are named twice",)),
        ((*TRAIN[:4], "--groups", "Female"), ("expected at least 2 labels in groups, got 1",)),
        ((*TRAIN[:4], "--sensitive", "work", "--groups", "a,b"), ("expected --groups to say of which column",)),
        ((*TRAIN[:4], "--sensitive", "work", "--groups", "sex=a,b"), ("got none of 'work'; add --groups for it.",)),
        ((*TRAIN[:4], "--bins", "age=25"), ("no sensitive column 'age' in --bins",)),
        ((*TRAIN[:4], "--bins", "sex=60,25"), ("expected --bins to be a column and rising numbers",)),
        ((*TRAIN[:4], "--bins", "sex"), ("expected --bins to be a column and rising numbers",)),
        ((*TRAIN, "--key", "id"), ("expected --sensitive-file and --key together, got no --sensitive-file",)),
        ((*TRAIN, "--plan", "none.toml"), ("cannot use 'none.toml': no such file or directory; check the name.",)),
        ((*TRAIN, "--ledger-name", "x"), ("expected --ledger FILE beside --ledger-name",)),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else "",
)
def test_wrong_words_of_train_give_one_sentence(
    run: Run, here: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    frame = pd.read_csv("income.csv")
    frame.assign(gain=[f"level {row % 3}" for row in range(len(frame))]).to_csv("income.csv", index=False)
    text = refused(run, here, ("train", "income.csv", *words, "--out", "m"), *parts)
    assert text.count("error: ") == 1


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("none.csv", None, "cannot use 'none.csv': no such file or directory; check the name."),
        ("empty.csv", b"", "'empty.csv' is empty"),
        ("head.csv", b"income,sex,hours\n", "'head.csv' has no rows below its first line"),
        (
            "ragged.csv",
            b"income,sex,hours\nyes,f,1\nno,m,2,3,4\n",
            "some rows do not have the fields of its first line",
        ),
        ("long.csv", b"income,sex,hours\nyes,f,1,9\nno,m,2,9\n", "some rows do not have the fields of its first line"),
        ("latin.csv", "income,sex,h\xf6he\nja,f,1\n".encode("latin-1"), "is not text in the encoding asked for"),
        ("table.xlsx", b"PK", "expected a CSV or Parquet file, got 'table.xlsx'; export it as CSV first."),
        ("table.parquet", b"PAR1 no", "'table.parquet' is not a Parquet file that can be read"),
        ("gaps.csv", b"income,sex,hours\nyes,f,1\n,m,2\nno,f,2\n", "1 rows of 'gaps.csv' have no 'income'"),
        ("one.csv", b"income,sex,hours\nyes,f,1\nyes,m,2\n", "expected two values in the column 'income', got 1 (yes)"),
    ],
)
def test_file_that_cannot_be_used_gives_one_sentence(
    run: Run, here: Path, name: str, content: bytes | None, part: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    refused(run, here, ("train", name, *TRAIN, "--out", "m"), part)


def test_file_that_may_not_be_read_gives_one_sentence(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("justitia.cli.files.reading.open", forbidden, raising=False)
    refused(run, here, ("train", "income.csv", *TRAIN, "--out", "m"), "cannot use 'income.csv': permission denied")


def test_folder_in_the_place_of_a_file_gives_one_sentence(run: Run, here: Path) -> None:
    Path("folder").mkdir()
    refused(run, here, ("train", "folder", *TRAIN, "--out", "m"), "expected Parquet files in 'folder', got none")
    refused(run, here, ("split", "folder", "--test", "0.5"), "cannot use 'folder': is a directory")


# --- the second file


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda table: table.rename(columns={"id": "ID"}), ("no column 'id' in 'secret.csv'; did you mean 'ID'?",)),
        (lambda table: table.assign(hours=1), ("the sensitive column 'hours' is in 'features.csv', too",)),
    ],
    ids=["no key", "in both"],
)
def test_secret_file_that_does_not_fit_gives_one_sentence(
    run: Run, here: Path, change: Any, parts: tuple[str, ...]
) -> None:
    change(pd.read_csv("secret.csv").drop(columns="age")).to_csv("secret.csv", index=False)
    refused(run, here, ("train", "features.csv", *SECRET, "--out", "m"), *parts)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda table: pd.concat([table, table[:3]]), "3 rows of 'features.csv' repeat a 'id' of an earlier row"),
        (lambda table: table.assign(id=table["id"].mask(table.index < 4)), "4 rows of 'features.csv' have no 'id'"),
    ],
    ids=["repeated", "missing"],
)
def test_data_with_wrong_keys_is_refused_with_public_numbers(run: Run, here: Path, change: Any, part: str) -> None:
    pd.read_csv("secret.csv").drop(columns="age").to_csv("secret.csv", index=False)
    change(pd.read_csv("features.csv")).to_csv("features.csv", index=False)
    refused(run, here, ("train", "features.csv", *SECRET, "--out", "m"), part)


def test_individuals_without_a_row_in_the_secret_file_are_not_given_and_not_counted_aloud(run: Run, here: Path) -> None:
    pd.read_csv("secret.csv").drop(columns="age")[:150].to_csv("secret.csv", index=False)
    result = run("train", "features.csv", *SECRET, "--small-groups", "--out", "m")  # whatever the noise
    assert result.exit_code == 0
    assert not re.search(r"(?<![\d.])[12]50(?!\d)", result.output)


# --- models and folders


def test_model_of_a_newer_version_gives_one_sentence(run: Run, here: Path) -> None:
    facts = read(here / "model" / "model.json")
    (here / "model" / "model.json").write_text(json.dumps(facts | {"format": 99}))
    for words in (("predict", "model", "new.csv"), ("evaluate", "model", "test.csv"), ("report", "model")):
        text = refused(run, here, words, "'model' has model format 99; this version reads format")
        assert "load it with the version of justitia that saved it." in text


@pytest.mark.parametrize("words", [("predict", "mode", "new.csv"), ("evaluate", "mode", "test.csv")])
def test_model_folder_that_is_not_there_gives_one_sentence(run: Run, here: Path, words: tuple[str, ...]) -> None:
    refused(run, here, words, "there is no model folder 'mode'")


def test_model_folder_that_is_none_or_damaged_gives_one_sentence(run: Run, here: Path) -> None:
    Path("empty").mkdir()
    refused(run, here, ("predict", "empty", "new.csv"), "'empty' is not a saved model: it has no model.json.")
    assert run("train", "income.csv", *TRAIN, "--hidden", "4", "--out", "network").exit_code == 0
    (here / "network" / "weights.safetensors").write_bytes(b"\0" * 9)
    refused(run, here, ("predict", "network", "new.csv"), "the weights of 'network' are damaged")
    (here / "curve" / "tolerance-0" / "training.json").write_text("[")
    refused(run, here, ("predict", "curve/tolerance-0", "new.csv"), "training.json' is damaged")


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes of POSIX")
@pytest.mark.parametrize("name", ["model.json", "training.json", "measurement-001.json", "base-1.txt", "tradeoff.json"])
def test_file_of_a_model_folder_that_never_ends_is_refused_and_not_read(run: Run, here: Path, name: str) -> None:
    file = here / "model" / name
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")
    before = names(here)
    assert_refused(run("report", "model"), 2, f"model/{name}' to be a regular file, got a link")
    file.unlink()
    os.mkfifo(file)
    assert_refused(run("report", "model"), 2, f"model/{name}' to be a regular file, got a device, pipe or folder")
    assert names(here) == before


@pytest.mark.parametrize("name", ["model.json", "training.json", "measurement-001.json"])
@pytest.mark.parametrize("depth", [50, 100_000])
def test_json_of_a_model_folder_that_is_nested_deeply_is_refused(run: Run, here: Path, name: str, depth: int) -> None:
    (here / "model" / name).write_text('{"a":' * depth + "1" + "}" * depth)
    for words in (("evaluate", "model", "test.csv"), ("report", "model")):
        refused(run, here, words, f"model/{name}' to be nested at most 32 levels deep, got more")
    (here / "deep.json").write_text('{"a":' * depth + "1" + "}" * depth)
    verify = ("budget", "verify", "people.ledger", "--receipt", "deep.json")
    refused(run, here, verify, "'deep.json' to be nested at most 32 levels deep, got more")


def test_predict_without_a_column_of_the_training_suggests_the_nearest(run: Run, here: Path) -> None:
    pd.read_csv("new.csv").rename(columns={"hours": "hour"}).to_csv("new.csv", index=False)
    refused(run, here, ("predict", "model", "new.csv"), "no column 'hours' in 'new.csv'; did you mean 'hour'?")


def test_evaluate_with_another_target_value_gives_one_sentence(run: Run, here: Path) -> None:
    frame = pd.read_csv("test.csv")
    frame.assign(income=frame["income"].str.replace("K", "k")).to_csv("test.csv", index=False)
    refused(run, here, ("evaluate", "model", "test.csv"), "no class '<=50k' in the model, but in the target 'income'")


def test_out_that_exists_is_not_replaced_without_overwrite(run: Run, here: Path) -> None:
    words = ("train", "income.csv", *TRAIN, "--out")
    refused(run, here, (*words, "model"), "'model' exists, and privacy was paid for it; pass --overwrite")
    refused(run, here, (*words, "curve"), "'curve' exists and was not made by this command")
    refused(run, here, (*words, "new.csv"), "'new.csv' exists and was not made by this command")
    assert run(*words, "model", "--overwrite").exit_code == 0


def test_out_below_a_file_is_refused_before_anything_is_asked(run: Run, here: Path) -> None:
    refused(
        run, here, ("train", "income.csv", *TRAIN, "--out", "new.csv/m"), "cannot use 'new.csv", "choose another place"
    )
    refused(run, here, ("evaluate", "model", "test.csv", "--out", "new.csv/m.json"), "cannot use 'new.csv")
    refused(run, here, ("predict", "model", "new.csv", "--out", "model"), "'model' is a folder")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("train", "income.csv", *TRAIN, "--out", "m"), "'m'"),
        (("evaluate", "model", "test.csv"), "'model/measurement'"),
    ],
)
def test_no_permission_to_write_is_refused_before_anything_is_asked(
    run: Run, here: Path, words: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("justitia._files.tempfile.mkdtemp", lambda **place: forbidden(place["dir"]))
    refused(
        run, here, words, f"cannot use {named}: permission denied; change its permissions, or choose another place."
    )


def test_disk_that_fills_up_leaves_no_half_written_model(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", "weights.safetensors")

    monkeypatch.setattr(Path, "write_bytes", full)
    before = names(here)
    result = run("train", "income.csv", *TRAIN, "--out", "m", "--ledger", "people.ledger")
    assert_refused(result, 2, "no space left on device; make room")
    assert names(here) == before
    assert len(DurableLedger.open("people.ledger").releases) > 0  # what was asked stays debited


# --- ledgers


def test_budget_that_is_used_up_is_refused_with_what_remains(run: Run, here: Path) -> None:
    words = ("train", "income.csv", *TRAIN, "--epsilon", "5", "--out", "m", "--ledger", "people.ledger")
    text = refused(run, here, words, "the budget is 3 (spent 0)", code=3)
    assert "what remains of 'people' pays for 3" in text


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--ledger", "people.ledger", "--ledger-name", "others"), "was made with dataset='people', got 'others'"),
        (("--ledger", "people.ledger", "--ledger-epsilon", "9"), "was made with epsilon=3.0, got 9.0"),
        (("--ledger", "people.ledger", "--delta", "1e-6"), "was made with delta=1e-05, got 1e-06"),
        (("--ledger", "income.csv"), "income.csv"),
    ],
)
def test_ledger_of_others_is_refused_with_its_own_exit_code(
    run: Run, here: Path, words: tuple[str, ...], part: str
) -> None:
    refused(run, here, ("train", "income.csv", *TRAIN, "--out", "m", *words), part, code=3)


def test_ledger_that_is_not_there_needs_a_name_and_a_budget(run: Run, here: Path) -> None:
    words = ("train", "income.csv", *TRAIN, "--out", "m", "--ledger", "no.ledger")
    refused(run, here, words, "there is no ledger 'no.ledger' yet; make it with 'justitia budget create'")
    refused(run, here, ("budget", "show", "no.ledger"), "there is no ledger 'no.ledger'")


# --- plans and everything else


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("checkss = 3\n", "no setting 'checkss' in the plan of engine 'post-processing'; did you mean 'checks'?"),
        ("noise_moments = 1.0\n", "no setting 'noise_moments'"),
        ("checks = -1\n", "expected checks to be at least 0, got -1"),
        ("checks = 'many'\n", "expected checks to be an int"),
        ("checks: 3\n", "'wrong.toml' is not TOML"),
    ],
)
def test_plan_that_is_wrong_gives_one_sentence(run: Run, here: Path, text: str, part: str) -> None:
    Path("wrong.toml").write_text(text)
    refused(run, here, ("train", "income.csv", *TRAIN, "--out", "m", "--plan", "wrong.toml"), part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("plan",), "expected a file, or the number of rows"),
        (("plan", "income.csv"), "expected the name of the target column in DATA"),
        (("plan", "--rows", "100", "--groups", "1"), "expected at least two groups, got '1'"),
        (("plan", "--rows", "100", "--positives", "1.5"), "expected --positives to be a share between 0 and 1"),
        (("split", "income.csv", "--test", "1.5"), "expected --test to be between 0 and 1, got 1.5"),
        (("split", "income.csv", "--test", "0.0001"), "leaves one of the files empty"),
        (
            ("evaluate", "model", "test.csv", "--exact", "--ledger", "people.ledger"),
            "expected --exact without --ledger",
        ),
        (("evaluate", "model", "test.csv", "--confidence", "0.2"), "expected a confidence of at least 0.5"),
        (("tradeoff", "income.csv", *TRAIN, "--tolerances", "a", "--out", "c"), "expected numbers, such as 0,0.05"),
        (("tradeoff", "income.csv", *TRAIN, "--choose", "-1", "--out", "c"), "expected --choose to be a finite number"),
        (
            ("tradeoff", "income.csv", *TRAIN, "--engine", "pf-ld", "--out", "c"),
            "expected engine 'post-processing'",
        ),
        (("reproduce", "tabel2"), "no table or figure 'tabel2'; did you mean 'table2'?"),
        (("completion", "bsh"), "no shell 'bsh'; did you mean 'bash'?"),
    ],
)
def test_wrong_words_of_other_commands_give_one_sentence(
    run: Run, here: Path, words: tuple[str, ...], part: str
) -> None:
    refused(run, here, words, part)


def test_reproduce_without_a_checkout_says_that_it_needs_one(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("justitia.cli.commands.reproduce.__file__", str(here / "a" / "b" / "c" / "d.py"))
    refused(run, here, ("reproduce", "table2"), "needs a checkout of justitia")


def test_unexpected_error_shows_its_type_and_not_its_text(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("Female")

    monkeypatch.setattr(LagrangianDualClassifier, "fit", broken)
    text = refused(run, here, ("train", "income.csv", *TRAIN, "--out", "m"), "unexpected KeyError", code=1)
    assert "Female" not in text
    monkeypatch.setenv("JUSTITIA_TRACEBACK", "1")
    assert "Female" in run("train", "income.csv", *TRAIN, "--out", "m").stderr


def test_model_from_python_is_evaluated_with_a_target_and_a_sensitive_column(run: Run, here: Path) -> None:
    (here / "model" / "training.json").unlink()
    refused(run, here, ("evaluate", "model", "test.csv"), "does not say what it predicts; pass --target NAME.")
    words = ("evaluate", "model", "test.csv", "--target", "income", "--sensitive", "sex")
    assert run(*words).exit_code == 0
    shutil.rmtree(here / "curve")


def test_sensitive_column_as_a_key_is_refused_wherever_keys_are_printed(run: Run, here: Path) -> None:
    joined = ("--target", "income", "--sensitive-file", "secret.csv", "--key", "id", "--sensitive", "id")
    refused(run, here, ("train", "features.csv", *joined, "--out", "m"), "'id' is sensitive and cannot be --key")
    refused(run, here, ("predict", "model", "test.csv", "--key", "sex"), "'sex' is sensitive and cannot be --key")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_sensitive_column_that_is_there_twice_is_refused_and_is_no_feature(run: Run, here: Path, form: str) -> None:
    table = pd.read_csv("income.csv")
    if form == "csv":
        twice = pd.concat([table, table[["sex"]]], axis=1)
        twice.to_csv("twice.csv", index=False)
    else:
        columns = [pa.array(table[name]) for name in (*table, "sex")]
        parquet.write_table(pa.Table.from_arrays(columns, [*table, "sex"]), "twice.parquet")
    words = ("train", f"twice.{form}", *TRAIN, "--out", "m")
    refused(run, here, words, f"'twice.{form}' has the column 'sex' twice; rename or remove one of them.")
