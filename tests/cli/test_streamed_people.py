"""Other people in folders of Parquet files: evaluate, compare, measure and predict read them a few rows at a time."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from running import Run, assert_refused, income, invoke

from justitia.rows import parquet as row_files

EXACT = ("--epsilon", "inf", "--json")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "BLOCK", 64)


@pytest.fixture
def people(here: Path) -> pd.DataFrame:
    """People in one file and in a folder."""
    table = income(300, 1).drop(columns="age")
    table["hired"] = table["hours"] > 0
    table.to_parquet(here / "one.parquet", index=False)
    (here / "many").mkdir()
    for k, part in enumerate((table[:130], table[130:])):
        part.to_parquet(here / "many" / f"{k}.parquet", index=False)
    return table


def facts_of(run: Run, *words: Any) -> dict[str, Any]:
    done = run(*words)
    assert done.exit_code in {0, 4}, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    # Ranges of features are listed for rows in memory only; counts of changed decisions are the same.
    found.get("public", {}).get("changes", {}).pop("by_feature", None)
    return {name: value for name, value in found.items() if name not in {"data", "kept", "created", "certificate"}}


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("more", [(), ("--scores",), ("--below", "0.5", "--positive", "<=50K")])
def test_evaluate_says_the_same_of_a_folder_and_of_one_file(run: Run, here: Path, more: tuple[str, ...]) -> None:
    kept = here / "model" / "measurement-001.json"
    from_one = facts_of(run, "evaluate", "model", "one.parquet", *EXACT, *more)
    sketch = json.loads(kept.read_text())["public_rows"]
    kept.unlink()
    assert facts_of(run, "evaluate", "model", "many", *EXACT, *more) == from_one
    assert json.loads(kept.read_text())["public_rows"] == sketch
    kept.unlink()
    assert facts_of(run, "evaluate", "model", "one.parquet", "--stream", *EXACT, *more) == from_one


@pytest.mark.usefixtures("people")
def test_compare_says_the_same_of_a_folder_and_of_one_file(run: Run, here: Path) -> None:
    words = ("compare", "model", "curve/tolerance-0", "--method", "uncorrected", "--train", "income.csv")
    words += ("--seed", 1, *EXACT)
    from_many = facts_of(run, *words, "--data", "many")
    for kept in here.glob("**/measurement-*.json"):
        kept.unlink()
    assert facts_of(run, *words, "--data", "one.parquet") == from_many


@pytest.mark.usefixtures("people")
def test_measure_says_the_same_of_a_folder_and_of_one_file(run: Run) -> None:
    words = ("--decision", "hired", "--positive-decision", "True", "--target", "income", "--score", "hours")
    words += ("--sensitive", "sex", "--groups", "Female,Male", *EXACT)
    assert facts_of(run, "measure", "many", *words) == facts_of(run, "measure", "one.parquet", *words)


def test_training_rows_are_noticed_in_a_folder(run: Run, here: Path) -> None:
    (here / "again").mkdir()
    pd.read_csv(here / "income.csv").to_parquet(here / "again" / "0.parquet", index=False)
    found = facts_of(run, "evaluate", "model", "again", *EXACT)
    assert any("rows that the model was trained on" in one for one in found["warnings"])


def test_predict_reads_files_as_the_training_read_its_csv(run: Run, here: Path) -> None:
    table = income(200, 5)[["hours", "work", "income", "sex"]]
    table["hours"] = [f"{one:.3f}".replace(".", ",") for one in table["hours"]]
    table["since"] = [f"{1 + row % 28:02}/03/20{10 + row % 9}" for row in range(len(table))]
    table.to_csv(here / "written.csv", index=False, sep=";")
    (here / "written").mkdir()
    table.to_parquet(here / "written" / "0.parquet", index=False)
    usual = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "1", "--out", "commas")
    made = invoke("train", "written.csv", *usual, "--separator", ";", "--decimal", ",", "--date", "since=%d/%m/%Y")
    assert made.exit_code == 0, made.output
    for data, out, more in (("written.csv", "csv.csv", ("--separator", ";")), ("written", "files.csv", ())):
        done = run("predict", "commas", data, "--out", out, *more)
        assert done.exit_code == 0, done.output
    assert (here / "files.csv").read_text() == (here / "csv.csv").read_text()


@pytest.mark.parametrize("entry", [b"\xff\xfe", b"", b"x" * 100_000, None])
def test_odd_entry_of_one_person_changes_nothing_public(run: Run, here: Path, people: pd.DataFrame, entry: Any) -> None:
    texts: list[Any] = [one.encode() for one in people["sex"]]
    texts[7] = entry
    stored = pa.Table.from_pandas(people, preserve_index=False)
    stored = stored.set_column(stored.schema.get_field_index("sex"), "sex", pa.array(texts, pa.binary()))
    (here / "odd").mkdir()
    parquet.write_table(stored, here / "odd" / "0.parquet")
    plain, odd = (facts_of(run, "evaluate", "model", data, "--epsilon", "1", "--json") for data in ("many", "odd"))
    for name in ("people", "accuracy", "public"):
        assert odd[name] == plain[name]
    assert odd.keys() == plain.keys()


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("evaluate", "model", "many", "--exact"), "expected --exact with a file that is read at once"),
        (("evaluate", "model", "test.csv", "--stream"), "expected Parquet to be read a few rows at a time"),
        (("evaluate", "model", "many", "--target", "hired"), "no class"),
        (
            ("compare", "--method", "uncorrected", "--train", "many", "--data", "many", "--target", "income"),
            "expected --train",
        ),
        (("measure", "many", "--decision", "work", "--sensitive", "sex"), "expected the public list of groups"),
        (("measure", "many", "--decision", "nothing", "--sensitive", "sex"), "no column 'nothing'"),
    ],
)
def test_wrong_options_get_one_sentence(run: Run, words: tuple[str, ...], sentence: str) -> None:
    assert_refused(run(*words), 2, sentence)
