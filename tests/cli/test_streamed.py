"""Commands on folders of Parquet files, read a few rows at a time, by one process and by two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from running import Run, assert_refused, income, read

USUAL = ("--target", "income", "--groups", "Female,Male", "--drop", "age", "--seed", "1", "--out", "streamed")


@pytest.fixture
def folder(here: Path) -> Path:
    table = income(600, seed=4).assign(id=range(600))
    parts = here / "people"
    parts.mkdir()
    for k, part in enumerate((table[:100], table[100:])):
        part.to_parquet(parts / f"{k}.parquet", index=False)
        (here / "public").mkdir(exist_ok=True)
        part.drop(columns="sex").to_parquet(here / "public" / f"{k}.parquet", index=False)
    table[["id", "sex"]].sample(frac=1.0, random_state=0).to_parquet(here / "sex.parquet", index=False)
    return parts


def test_train_predict_and_tradeoff_read_a_folder(run: Run, folder: Path, here: Path) -> None:
    trained = run("train", folder, *USUAL, "--sensitive", "sex", "--positive", "<=50K", "--json")
    assert trained.exit_code == 0, trained.output
    facts = read(here / "streamed" / "training.json")
    assert (facts["rows"], facts["columns"], facts["positive"], facts["data"]) == (600, 5, "<=50K", "people")
    decided = run("predict", "streamed", folder, "--key", "id", "--out", "decisions.csv")
    assert decided.exit_code == 0, decided.output
    table = pd.read_csv(here / "decisions.csv")
    assert table["id"].tolist() == list(range(600))
    assert set(table["decision"]) == {"<=50K", ">50K"}
    curve = run("tradeoff", folder, *USUAL[:-1], "streamed-curve", "--sensitive", "sex", "--tolerances", "0,0.2")
    assert curve.exit_code == 0, curve.output


def test_files_may_type_the_attribute_each_in_its_own_way(run: Run, folder: Path, here: Path) -> None:
    table = pd.read_parquet(folder / "1.parquet")
    table.assign(sex=range(500)).to_parquet(folder / "1.parquet", index=False)  # numbers, where 0.parquet has text
    trained = run("train", folder, *USUAL, "--sensitive", "sex", "--small-groups")
    assert trained.exit_code == 0, trained.output
    (here / "second").mkdir()
    for name in ("0", "1"):
        pd.read_parquet(folder / f"{name}.parquet")[["id", "sex"]].to_parquet(here / "second" / f"{name}.parquet")
    joined = ("--sensitive-file", "second", "--key", "id", "--small-groups")
    trained = run("train", here / "public", *USUAL, *joined, "--overwrite")
    assert trained.exit_code == 0, trained.output


def test_train_makes_a_network_of_a_folder(run: Run, folder: Path, here: Path) -> None:
    (here / "short.toml").write_text("warmup_steps = 20\nrounds = 4\nchecks = 1\n")
    words = ("--sensitive", "sex", "--hidden", "4", "--plan", "short.toml")
    trained = run("train", folder, *USUAL, *words)
    assert trained.exit_code == 0, trained.output
    assert read(here / "streamed" / "training.json")["rows"] == 600


def test_plan_counts_files_and_forecasts_a_fit_from_public_columns_alone(run: Run, folder: Path) -> None:
    planned = run("plan", folder, "--target", "income", "--features", "hours,work", "--workers", "2", "--json")
    assert planned.exit_code == 0, planned.output
    facts = json.loads(planned.stdout)
    assert facts["rows"] == 600
    found = facts["forecast"]
    assert (found["sample"], found["passes"], found["workers"]) == (600, 13, 2)
    assert 0 < found["seconds"] <= found["processor_seconds"]
    assert json.loads(run("plan", folder, "--target", "income", "--json").stdout)["forecast"] is None


#: Read by every process when it starts: small blocks and a small sample; a worker dies, hard, at its first check.
DIES = """
import multiprocessing, os, pathlib, signal
from justitia.postprocessing.decisions import DecisionRows
from justitia.rows import files, parquet
files.BLOCK = parquet.BLOCK = 128
files.SAMPLE = 300
rows = DecisionRows.__call__
def die(*arguments):
    if multiprocessing.parent_process() is not None and not pathlib.Path("died").exists():
        pathlib.Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rows(*arguments)
DecisionRows.__call__ = die
"""


def test_two_workers_join_an_attribute_in_a_file_of_its_own_and_go_on_where_one_was_killed(
    folder: Path, here: Path
) -> None:
    (here / "dies").mkdir()
    (here / "dies" / "sitecustomize.py").write_text(DIES, encoding="utf-8")
    words = ("train", "public/*.parquet", *USUAL, "--sensitive-file", "sex.parquet", "--key", "id", "--workers", "2")
    paths = os.pathsep.join([str(here / "dies"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "justitia", *words, "--checkpoint", "run"],
        capture_output=True,
        text=True,
        cwd=here,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (here / "died").exists()
    assert "error" not in done.stderr
    assert done.stdout.count("TRAINED  streamed") == 1
    assert read(here / "streamed" / "training.json")["rows"] == 600
    debits = [json.loads(line)["purpose"] for line in (here / "run" / "ledger.jsonl").read_text().splitlines()]
    assert debits == ["sizes", "moments", *["decisions"] * 4]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "people", *USUAL, "--sensitive", "nothing"), "no column 'nothing'"),
        (("train", "nowhere*.parquet", *USUAL, "--sensitive", "sex"), "expected Parquet files in 'nowhere*.parquet'"),
        (
            ("train", "people", *USUAL, "--sensitive", "sex", "--engine", "pf-ld"),
            "expected engine 'post-processing' or 'moments' where X is in files",
        ),
        (("audit", "people", *USUAL[:-2], "--sensitive", "sex"), "expected a file that is read at once"),
    ],
)
def test_wrong_options_for_files_get_one_sentence(
    run: Run, folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    assert_refused(run(*words), 2, sentence)
