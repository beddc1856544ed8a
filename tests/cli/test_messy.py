"""Six messy files: each trains or is refused in one sentence, and the table of columns is right."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import Run, assert_refused, read, refused

from justitia.cli.files.rows import related_column

WORDS = ("--target", "y", "--sensitive", "sex", "--groups", "f,m", "--seed", 0)


def people(rows: int, seed: int = 0, *, positives: float = 0.4) -> pd.DataFrame:
    """A number that leans towards the target, the target, and the attribute."""
    draw = np.random.default_rng(seed)
    y = np.arange(rows) < positives * rows
    amount = (draw.normal(2000 + 1500 * y, 900)).round(2).clip(100)
    return pd.DataFrame({"amount": amount, "y": np.where(y, "yes", "no"), "sex": draw.choice(["f", "m"], rows)})


def german(folder: Path) -> None:
    """Semicolons, decimal commas, points between thousands, latin-1, days first, a gap in words, quoted line ends."""
    table = people(300)
    table["betrag"] = [f"{one:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".") for one in table.amount]
    table["ort"] = np.where(table.index % 3 == 0, "Köln", "Zürich")
    table["datum"] = [f"{1 + row % 28:02d}.{1 + row % 12:02d}.2024" for row in range(300)]
    table["einkommen"] = ["n.a." if row % 50 == 0 else str(1000 + 7 * (row % 90)) for row in range(300)]
    table["notiz"] = [f"Kunde rief am Tag {row} an,\nund sprach lange über den Antrag." for row in range(300)]
    table.drop(columns="amount").to_csv(folder / "data.csv", sep=";", index=False, encoding="latin-1")


def american(folder: Path) -> None:
    """Identifiers, zip codes with leading zeros, commas between thousands, dates with slashes, booleans, a constant."""
    table = people(300)
    table["customerId"] = [f"C-{row * 7919 % 100_003:06d}" for row in range(300)]
    table["row"] = range(1, 301)
    table["amount"] = [f"{one:,.2f}" for one in table.amount]
    table["zip"] = [f"{501 + row % 9:05d}" for row in range(300)]
    table["opened"] = [f"{1 + row % 12}/{1 + row % 28}/2023" for row in range(300)]
    table["owner"] = table.index % 4 == 0
    table["bank"] = "First"
    table.to_csv(folder / "data.csv", index=False)


def zips(folder: Path) -> None:
    """Ten thousand zip codes and one percent of positive answers."""
    table = people(12_000, positives=0.01)
    table["zip"] = 10_000 + np.arange(12_000) % 10_000
    table.to_csv(folder / "data.csv", index=False)


def swiss(folder: Path) -> None:
    """Apostrophes between thousands."""
    table = people(300)
    table["amount"] = [f"{one:,.0f}".replace(",", "'") for one in table.amount + 1000]
    table.to_csv(folder / "data.csv", index=False)


def dated(folder: Path) -> None:
    """ISO dates with a time, dates as whole numbers, one level in words among numbers."""
    table = people(300)
    start = dt.datetime(2024, 1, 31, 8, 30)
    table["seen"] = [(start + dt.timedelta(hours=5 * row)).isoformat(sep=" ") for row in range(300)]
    table["day"] = [int((start + dt.timedelta(days=row % 60)).strftime("%Y%m%d")) for row in range(300)]
    table["score"] = ["about nine" if row == 7 else str(row % 30) for row in range(300)]
    table.to_csv(folder / "data.csv", index=False)


def apart(folder: Path) -> None:
    """The attribute in a file of its own, by e-mail addresses, which are the key."""
    table = people(300).assign(mail=[f"person{row}@example.org" for row in range(300)])
    table.drop(columns="sex").to_csv(folder / "data.csv", index=False)
    table[["mail", "sex"]][::-1].to_csv(folder / "sex.csv", index=False)


GERMAN = ("--separator", ";", "--encoding", "latin-1", "--decimal", ",", "--thousands", ".")
SLASHES = ("--thousands", ",", "--date", "opened=%m/%d/%Y", "--drop", "bank")
FILES = {
    "german": (german, GERMAN, "betrag number, ort category, datum date, einkommen number, notiz text"),
    "american": (
        american,
        SLASHES,
        "amount number, customerId identifier, row identifier, zip category, opened date, owner number, bank ignored",
    ),
    "zips": (zips, ("--categorical", "zip"), "amount number, zip category"),
    "swiss": (swiss, ("--thousands", "'"), "amount number"),
    "dated": (
        dated,
        ("--date", "day=%Y%m%d", "--drop", "score", "--drop", "amount"),
        "seen date, day date, score ignored, amount ignored",
    ),
    "apart": (apart, ("--sensitive-file", "sex.csv", "--key", "mail"), "amount number"),
}


@pytest.mark.parametrize(("write", "words", "kinds"), list(FILES.values()), ids=list(FILES))
def test_messy_file_is_read_as_its_table_says_in_training_and_after_it(
    run: Run, here: Path, write: Callable[[Path], None], words: tuple[str, ...], kinds: str
) -> None:
    write(here)
    planned = run("plan", "data.csv", *WORDS[:6], *words, "--json")
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["positive"] == "yes"
    made = run("train", "data.csv", *WORDS, *words, "--out", "m")
    assert made.exit_code == 0, made.output
    facts = read(here / "m" / "training.json")
    listed = ", ".join(f"{one['name']} {one['kind']}" for one in facts["read_as"])
    assert listed == kinds
    assert [one["name"] for one in json.loads(planned.stdout)["columns"]] == [
        one["name"] for one in facts["read_as"] if one.get("says") != "left out"
    ]
    for name, kind in (one.split() for one in kinds.split(", ")):
        assert f"{name} " in made.stdout
        assert kind in made.stdout
    # Separator, encoding, marks and formats are the model's from now on.
    decided = run("predict", "m", "data.csv", "--out", "d.csv")
    assert decided.exit_code == 0, decided.output
    joined = ("--sensitive-file", "sex.csv") if "--key" in words else ()  # the key is the training's
    measured = run("evaluate", "m", "data.csv", *joined)
    assert measured.exit_code == 0, measured.output


def test_file_written_otherwise_than_the_training_s_is_read_as_its_options_say(run: Run, here: Path) -> None:
    german(here)
    assert run("train", "data.csv", *WORDS, *GERMAN, "--out", "m").exit_code == 0
    pd.read_csv("data.csv", sep=";", encoding="latin-1", dtype=str).to_csv("plain.csv", index=False)
    refused(run, here, ("predict", "m", "plain.csv", "--encoding", "utf-8"), "pass --separator ','")
    decided = run("predict", "m", "plain.csv", "--encoding", "utf-8", "--separator", ",")
    assert decided.stdout == run("predict", "m", "data.csv").stdout


@pytest.mark.parametrize(
    ("write", "words", "part"),
    [
        (german, GERMAN[:2], "not text in the encoding asked for; pass --encoding latin-1"),
        (german, GERMAN[:4], "column 'betrag' holds numbers written as '"),
        (german, (), "pass --separator ';'"),
        (american, (), "--thousands ','"),
        (american, SLASHES[:2], "column 'opened' holds dates such as '1/1/2023'; say how with --date 'opened="),
        (swiss, (), '--thousands "\'"'),
        (dated, (), "column 'score' holds numbers, but also 'about nine'"),
        (dated, ("--drop", "score", "--date", "seen=%d/%m/%Y"), "column 'seen' holds dates as %d/%m/%Y, but also"),
        (dated, ("--date", "soon"), "expected --date to be a format such as"),
        (dated, ("--decimal", ",", "--thousands", ","), "two different marks"),
        (dated, ("--decimal", ";"), "no decimal ';'"),
    ],
    ids=lambda part: getattr(part, "__name__", str(part)),  # the same in every process
)
def test_messy_file_is_refused_in_one_sentence_before_anything_is_spent(
    run: Run, here: Path, write: Callable[[Path], None], words: tuple[str, ...], part: str
) -> None:
    write(here)
    refused = run("train", "data.csv", *WORDS, *words, "--ledger", "people.ledger", "--out", "m")
    assert_refused(refused, 2, part)
    assert not (here / "m").exists()


def test_plan_warns_of_what_train_would_refuse_and_of_what_it_leaves_out(run: Run, here: Path) -> None:
    american(here)
    shown = run("plan", "data.csv", *WORDS[:6])
    assert shown.exit_code == 0
    text = " ".join(shown.stderr.split())
    for part in ("'opened' holds dates", "'customerId' has 300 different entries in 300 rows", "'bank' is constant"):
        assert part in text


def amounts(folder: Path, mark: str) -> None:
    """Whole amounts from 250 to 10,000, with a mark between thousands."""
    table = people(300).assign(amount=[f"{250 * (1 + row % 40):,}".replace(",", mark) for row in range(300)])
    table.to_csv(folder / "data.csv", index=False)


def test_plan_for_commas_between_thousands_gives_a_hint_that_reads_the_amounts(run: Run, here: Path) -> None:
    amounts(here, ",")
    text = " ".join(run("plan", "data.csv", *WORDS[:6]).stderr.split())
    assert "written as '1,000'" in text
    assert "pass --thousands ',' if that is 1000, pass --decimal ',' if it is 1, or" in text
    planned = run("plan", "data.csv", *WORDS[:6], "--thousands", ",", "--json")
    assert json.loads(planned.stdout)["columns"][0]["says"] == "250 to 10000"
    assert planned.stderr == ""


@pytest.mark.parametrize(
    ("mark", "words", "right"),
    [
        (",", ("--decimal", ","), "--thousands ',' instead of --decimal ','"),
        (".", (), "--decimal ',' --thousands '.'"),
    ],
    ids=["comma", "point"],
)
def test_amounts_that_are_read_a_thousand_times_too_small_are_warned_of(
    run: Run, here: Path, mark: str, words: tuple[str, ...], right: str
) -> None:
    amounts(here, mark)
    part = f"every {mark!r} in it has three digits after it, as in '1{mark}000': if it stands between thousands, pass"
    shown = run("plan", "data.csv", *WORDS[:6], *words)
    assert f"{part} {right} to read 250 to 10000." in " ".join(shown.stderr.split())
    people(300).assign(amount=[str(250 * (1 + row % 40)) for row in range(300)]).to_csv("plain.csv", index=False)
    assert run("train", "plain.csv", *WORDS, "--out", "m").exit_code == 0
    for command in (("predict", "m", "data.csv"), ("evaluate", "m", "data.csv")):
        assert part in " ".join(run(*command, *words).stderr.split())
    meant = {",": ("--thousands", ","), ".": ("--decimal", ",", "--thousands", ".")}[mark]
    assert run("predict", "m", "data.csv", *meant).stdout == run("predict", "m", "plain.csv").stdout


@pytest.mark.parametrize("number", ["{:.3f}", "{:.4f}", "{:.0f}"])
def test_numbers_of_a_program_are_not_taken_for_thousands(run: Run, here: Path, number: str) -> None:
    table = people(300)
    table.assign(amount=[number.format(0.001 * row) for row in range(300)]).to_csv(here / "data.csv", index=False)
    assert "thousands" not in run("plan", "data.csv", *WORDS[:6]).stderr


def test_plan_without_the_name_of_the_sensitive_column_reads_no_column(run: Run, here: Path) -> None:
    american(here)
    shown = run("plan", "data.csv", "--target", "y", "--groups", "f,m", "--json")
    assert json.loads(shown.stdout)["columns"] == []


@pytest.mark.parametrize("named", [(), ("--features", "amount,customerId")], ids=["left out", "named"])
def test_identifiers_are_in_no_file_of_a_model_even_if_they_are_named(
    run: Run, here: Path, named: tuple[str, ...]
) -> None:
    american(here)
    words = SLASHES[:2] if named else SLASHES
    made = run("train", "data.csv", *WORDS, *words, *named, "--out", "m")
    assert made.exit_code == 0, made.output
    assert not any(b"C-0" in file.read_bytes() for file in (here / "m").iterdir())
    kept = read(here / "m" / "training.json")["read_as"]
    assert not named or {"name": "customerId", "kind": "category"}.items() <= kept[1].items()


def test_column_that_has_other_values_than_in_training_is_refused(run: Run, here: Path) -> None:
    swiss(here)
    assert run("train", "data.csv", *WORDS, "--thousands", "'", "--out", "m").exit_code == 0
    people(20).assign(amount="much").to_csv(here / "other.csv", index=False)
    assert_refused(
        run("predict", "m", "other.csv"), 2, "expected numbers in column 'amount', as in training, got 'much'"
    )


# --- columns that are named after the attribute


@pytest.mark.parametrize(
    ("name", "sensitive", "related"),
    [
        ("sex-age", "sex", True),
        ("sex_age", "sex", True),
        ("Sex and status", "sex", True),
        ("personalStatusSex", "SEX", True),
        ("Essex", "sex", False),
        ("sexton", "sex", False),
        ("age", "age_group", True),
        ("age_cat", "age", True),
        ("wage", "age", False),
        ("status", "marital status", False),
        ("marital-status", "marital status", True),
    ],
)
def test_column_is_named_after_the_attribute_if_its_words_are(name: str, sensitive: str, related: bool) -> None:
    assert related_column(name, [sensitive]) == (sensitive if related else None)


def test_column_named_after_the_attribute_is_no_feature_unless_it_is_named(run: Run, here: Path) -> None:
    table = people(300)
    table["sex-age"] = [f"{sex} {20 + row % 3}" for row, sex in enumerate(table["sex"])]
    table.to_csv(here / "data.csv", index=False)
    table.to_parquet(here / "data.parquet")
    sentence = "column 'sex-age' is named after the sensitive column 'sex' and may reveal it, so it is not used; pass"
    planned = run("plan", "data.csv", *WORDS[:6], "--json")
    assert [(one["name"], one["kind"]) for one in json.loads(planned.stdout)["columns"]] == [
        ("amount", "number"),
        ("sex-age", "ignored"),
    ]
    for words in (("data.csv",), ("data.parquet", "--stream")):
        made = run("train", *words, *WORDS, "--out", "m", "--overwrite")
        assert made.exit_code == 0, made.output
        assert sentence in " ".join(made.stderr.split())
        assert read(here / "m" / "model.json")["feature_names"] == ["amount"]
        assert run("predict", "m", "data.csv").exit_code == 0
    kept = (("--features", "amount,sex-age"), ("--categorical", "sex-age"))
    for words, names in (
        (kept[0], ["amount", "sex-age"]),
        (kept[1], ["amount", "sex-age"]),
        (("--drop", "sex-age"), ["amount"]),
    ):
        made = run("train", "data.csv", *WORDS, *words, "--out", "m", "--overwrite")
        assert made.exit_code == 0, made.output
        assert "named after" not in made.stderr
        assert read(here / "m" / "model.json")["feature_names"] == names


def test_column_named_after_the_attribute_is_left_out_alike_whatever_is_in_the_attribute(run: Run, here: Path) -> None:
    outcomes = []
    for entry in ("f", "m", "", "other"):
        table = people(300).assign(**{"sex-age": np.arange(300) % 7})
        table.loc[5, "sex"] = entry
        table.to_csv(here / "data.csv", index=False)
        shown = run("plan", "data.csv", *WORDS[:6], "--json")
        outcomes.append((shown.exit_code, shown.stdout, shown.stderr))
    assert len(set(outcomes)) == 1
