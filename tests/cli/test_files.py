"""Files that commands write and replace: only their own, open to nobody new, and every look at people is kept."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from running import Run, assert_refused, income, read

from justitia import DurableLedger, LagrangianDualClassifier
from justitia.cli.files.measurement_log import measurement_files

TRAIN = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0")
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def text_of(result: Any) -> str:
    return " ".join(result.output.split())


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def left_alone(run: Run, here: Path, words: tuple[Any, ...], *parts: str) -> None:
    """Refused in one sentence: no file is touched, nothing is spent."""
    before = contents(here)
    assert_refused(run(*words), 2, *parts)
    assert contents(here) == before
    assert DurableLedger.open("people.ledger").releases == ()


# --- folders


#: Files of others under names that are ours, and JSON of others.
OURS_BY_NAME = ("training.json", "tradeoff.json", "measurement-001.json", "weights.safetensors")


@pytest.mark.parametrize(
    "name", ["notes.txt", "people.ledger", ".hidden", "plots/gap.png", "measurement.json", *OURS_BY_NAME]
)
def test_train_over_a_folder_with_a_foreign_file_is_refused_before_anything_is_spent(
    run: Run, here: Path, name: str
) -> None:
    (here / "model" / name).parent.mkdir(exist_ok=True)
    (here / "model" / name).write_text("mine")
    words = ("train", "income.csv", *TRAIN, "--ledger", "people.ledger", "--overwrite", "--out", "model")
    left_alone(run, here, words, f"'model' holds '{name.partition('/')[0]}', which this command did not write")


def test_train_over_a_model_json_of_another_program_is_refused(run: Run, here: Path) -> None:
    Path("theirs").mkdir()
    Path("theirs/model.json").write_text('{"format": 1, "layers": []}')
    words = ("train", "income.csv", *TRAIN, "--ledger", "people.ledger", "--overwrite", "--out", "theirs")
    left_alone(run, here, words, "'theirs' holds 'model.json', which this command did not write")


@pytest.mark.parametrize("place", ["notes.txt", "tolerance-0/notes.txt", "tolerance-mine/notes.txt", "tradeoff.csv"])
def test_tradeoff_over_a_curve_with_a_foreign_file_is_refused(run: Run, here: Path, place: str) -> None:
    (here / "curve" / place).parent.mkdir(exist_ok=True)
    (here / "curve" / place).write_text("mine")
    words = ("tradeoff", "income.csv", *TRAIN, "--ledger", "people.ledger", "--overwrite", "--out", "curve")
    left_alone(run, here, words, f"'curve' holds '{place}', which this command did not write")


def test_tradeoff_over_its_own_curve_with_measurements_replaces_it(run: Run, here: Path) -> None:
    assert run("evaluate", "curve/tolerance-0", "test.csv").exit_code == 0
    words = ("tradeoff", "income.csv", *TRAIN, "--tolerances", "0.3", "--overwrite", "--out", "curve")
    assert run(*words).exit_code == 0
    assert sorted(one.name for one in (here / "curve").iterdir()) == ["tolerance-0.3", "tradeoff.csv", "tradeoff.json"]
    assert not [one for one in here.iterdir() if one.name.startswith(".") or "kept" in one.name]


@pytest.mark.parametrize("command", ["train", "tradeoff"])
@pytest.mark.parametrize("how", ["inside", "dotted", "linked file", "linked folder", "new"])
def test_ledger_inside_out_is_refused_and_stays(run: Run, here: Path, command: str, how: str) -> None:
    out = {"train": "model", "tradeoff": "curve"}[command]
    inside = here / out / "x.ledger"
    if how != "new":
        DurableLedger(inside, dataset="people", epsilon=3.0, delta=1e-5)
    ledger = {"dotted": f"curve/../{out}/x.ledger", "linked file": "l.ledger", "linked folder": "l/x.ledger"}.get(how)
    if how.startswith("linked"):
        (here / str(ledger).split("/", maxsplit=1)[0]).symlink_to(inside if how == "linked file" else here / out)
    words = ("--ledger", ledger or inside, "--ledger-name", "people", "--ledger-epsilon", "3")
    left_alone(
        run,
        here,
        (command, "income.csv", *TRAIN, "--overwrite", "--out", out, *words),
        f"expected a ledger outside '{out}'",
    )


@pytest.mark.parametrize("command", ["train", "tradeoff"])
def test_out_that_is_a_link_is_refused(run: Run, here: Path, command: str) -> None:
    Path("link").symlink_to("model" if command == "train" else "curve")
    words = (command, "income.csv", *TRAIN, "--ledger", "people.ledger", "--overwrite", "--out", "link")
    left_alone(run, here, words, "'link' is a symbolic link")
    assert Path("link").is_symlink()


def test_file_put_into_out_during_training_is_kept(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = LagrangianDualClassifier.fit

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        Path("model/notes.txt").write_text("mine")
        return sound(self, *args, **options)

    monkeypatch.setattr(LagrangianDualClassifier, "fit", slow)
    result = run("train", "income.csv", *TRAIN, "--overwrite", "--out", "model")
    assert result.exit_code == 0
    (kept,) = here.glob("model.kept-*")
    assert (kept / "notes.txt").read_text() == "mine"
    assert kept.name in text_of(result).replace(" ", "")


@posix
def test_folder_that_was_closed_to_others_stays_closed_when_it_is_replaced(run: Run) -> None:
    Path("model").chmod(0o700)
    assert run("train", "income.csv", *TRAIN, "--overwrite", "--out", "model").exit_code == 0
    assert mode_of("model") == 0o700


# --- copies of rows


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
@pytest.mark.parametrize("name", ["income.csv", "income.csv.gz", "income.parquet"])
def test_split_keeps_the_permissions_of_the_source_from_the_first_byte(
    run: Run, here: Path, mode: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from justitia.cli.commands.split import RawRows

    frame = pd.read_csv("income.csv")
    if name.endswith("parquet"):
        frame.to_parquet(name)
    else:
        frame.to_csv(name, index=False)
    Path(name).chmod(mode)
    mode = (mode & ~current_umask()) | 0o600
    seen: list[int] = []
    sound = RawRows.write

    def watched(self: RawRows, chosen: Any, file: Path) -> None:
        seen.extend([mode_of(file), mode_of(file.parent)])
        sound(self, chosen, file)

    monkeypatch.setattr(RawRows, "write", watched)
    assert run("split", name).exit_code == 0
    assert seen == [mode, 0o700] * 2
    made = [one for one in here.iterdir() if "-train" in one.name or "-test" in one.name]
    assert [mode_of(one) for one in made] == [mode] * 2
    rows = [len(pd.read_parquet(one) if name.endswith("parquet") else pd.read_csv(one)) for one in made]
    assert sum(rows) == len(frame)


@pytest.mark.parametrize("part", ["train", "test"])
def test_split_over_existing_files_is_refused_without_overwrite(run: Run, here: Path, part: str) -> None:
    Path(f"income-{part}.csv").write_text("mine")
    left_alone(run, here, ("split", "income.csv"), f"'income-{part}.csv' exists; pass --overwrite to replace it")
    assert run("split", "income.csv", "--overwrite").exit_code == 0


@posix
def test_secret_file_of_a_dataset_is_for_its_owner_alone(run: Run) -> None:
    words = ("datasets", "write", "synthetic", "--rows", "50")
    assert run(*words, "--out", "x.csv", "--sensitive-file", "s.csv").exit_code == 0
    assert mode_of("s.csv") == 0o600
    assert mode_of("x.csv") == 0o666 & ~current_umask()
    assert run(*words, "--out", "both.csv").exit_code == 0
    assert mode_of("both.csv") == 0o600


def current_umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_dataset_over_existing_files_or_itself_is_refused(run: Run, here: Path) -> None:
    words = ("datasets", "write", "synthetic", "--rows", "50", "--out")
    left_alone(run, here, (*words, "income.csv"), "'income.csv' exists; pass --overwrite")
    left_alone(run, here, (*words, "x.csv", "--sensitive-file", "secret.csv"), "'secret.csv' exists; pass --overwrite")
    left_alone(run, here, (*words, "x.csv", "--sensitive-file", "./x.csv"), "expected two files, got one name")
    assert run(*words, "people.csv", "--overwrite").exit_code == 0


# --- other outputs


def test_predict_never_replaces_what_it_reads_and_asks_before_it_replaces_anything(run: Run, here: Path) -> None:
    Path("linked.csv").symlink_to("income.csv")
    words = ("predict", "model", "new.csv", "--out")
    left_alone(run, here, (*words, "new.csv", "--overwrite"), "'new.csv' is an input of this command")
    left_alone(run, here, (*words, "model/../new.csv", "--overwrite"), "is an input of this command")
    left_alone(run, here, (*words, "model/model.json", "--overwrite"), "is an input of this command")
    left_alone(run, here, (*words, "linked.csv", "--overwrite"), "'linked.csv' is not an ordinary file")
    left_alone(run, here, (*words, "income.csv"), "'income.csv' exists; pass --overwrite")
    assert run(*words, "d.csv").exit_code == 0
    assert run(*words, "d.csv", "--overwrite").exit_code == 0


@posix
def test_predict_with_a_key_of_a_closed_file_writes_a_closed_file(run: Run) -> None:
    Path("new.csv").chmod(0o600)
    assert run("predict", "model", "new.csv", "--key", "id", "--out", "d.csv").exit_code == 0
    assert mode_of("d.csv") == 0o600


@posix
def test_closed_file_that_is_replaced_stays_closed(run: Run) -> None:
    Path("d.csv").touch(mode=0o600)
    assert run("predict", "model", "new.csv", "--out", "d.csv", "--overwrite").exit_code == 0
    assert mode_of("d.csv") == 0o600


def test_evaluate_out_never_replaces_what_is_read_and_asks_before_it_replaces_anything(run: Run, here: Path) -> None:
    words = ("evaluate", "model", "test.csv", "--ledger", "people.ledger", "--out")
    left_alone(run, here, (*words, "test.csv", "--overwrite"), "'test.csv' is an input of this command")
    left_alone(run, here, (*words, "people.ledger", "--overwrite"), "'people.ledger' is an input of this command")
    left_alone(run, here, (*words, "income.csv"), "'income.csv' exists; pass --overwrite")
    left_alone(run, here, (*words, "model/m.json"), "the model's folder keeps every measurement by itself")
    assert run(*words, "m.json").exit_code == 0
    assert read(here / "m.json")["people"] == 300


def test_report_replaces_its_own_pages_and_no_others(run: Run, here: Path) -> None:
    words = ("report", "model", "--overwrite", "--out", "r.html")
    assert run(*words).exit_code == 0
    left_alone(run, here, ("report", "model", "--out", "r.html"), "'r.html' exists; pass --overwrite")
    assert run(*words).exit_code == 0
    Path("r.md").write_text("# My notes\n")
    left_alone(run, here, words, "'r.md' exists and is no report of this package")
    Path("mine.html").write_text("<!doctype html>mine")
    left_alone(run, here, (*words[:-1], "mine.html"), "'mine.html' exists and is no report")
    left_alone(run, here, ("report", "model", "--out", "new.md"), "expected a folder or a name that ends in .html")


# --- every measurement is kept, and costs add up


def remarks(folder: Path) -> list[str]:
    return [read(one)["certificate"]["remarks"][-1] for one in measurement_files(folder)]


def test_evaluate_on_the_training_rows_warns_and_adds_all_costs(run: Run, here: Path) -> None:
    results = [run("evaluate", "model", "income.csv") for _ in range(3)]
    assert all("rows that the model was trained on" in text_of(one) for one in results)
    assert [one.name for one in measurement_files(here / "model")] == [f"measurement-00{n}.json" for n in (1, 2, 3)]
    first, second, third = remarks(here / "model")
    # mu of (1, 1e-5) is 0.2681; k measurements have sqrt(k) times that.
    assert first.startswith("Together with the other certificate, costs added")
    assert "(1.466, 1e-05)-differentially" in first
    assert "(1.835, 1e-05)-differentially" in second
    assert third.startswith("Together with the 3 other certificates, costs of all of them added")
    assert "(2.155, 1e-05)-differentially" in third
    assert third.endswith("provided that these releases and their costs were fixed before the first.")


def test_evaluate_twice_on_other_rows_adds_the_two_measurements_alone(run: Run, here: Path) -> None:
    first = run("evaluate", "model", "test.csv")
    assert "warning" not in first.stderr
    assert "rows of 'test.csv' were, or may have been, measured before" in text_of(run("evaluate", "model", "test.csv"))
    assert remarks(here / "model")[0].endswith("one row in each, provided that nobody is in both.")
    assert "(1, 1e-05)" in remarks(here / "model")[0]
    assert "costs of 1 of them added" in remarks(here / "model")[1]
    assert "(1.466, 1e-05)" in remarks(here / "model")[1]
    income(300, 7).to_csv("third.csv", index=False)
    assert run("evaluate", "model", "third.csv").exit_code == 0
    assert "(1.466, 1e-05)" in remarks(here / "model")[2]  # of those who were measured twice


def test_compare_on_the_training_rows_says_whose_bounds_do_not_hold(run: Run) -> None:
    sentence = "rows of {data!r} are rows that {model!r} was trained on; the bounds are for rows that were not"
    both = ("model", "curve/tolerance-0")
    mixed = run("compare", *both, "--data", "income.csv")
    assert all(sentence.format(data="income.csv", model=one) in text_of(mixed) for one in both)
    words = ("compare", "model", "--data", "test.csv", "--method", "uncorrected", "--train")
    assert "was trained on" not in text_of(run(*words, "income.csv"))
    method = run(*words, "test.csv")
    assert sentence.format(data="test.csv", model="(uncorrected)") in text_of(method)
    assert sentence.format(data="test.csv", model="model") not in text_of(method)


def test_compare_is_kept_in_every_model_with_the_price_of_the_whole_table(run: Run, here: Path) -> None:
    done = run("compare", "model", "./model", "curve/tolerance-0", "--data", "test.csv", "--epsilon", 1, "--json")
    found = json.loads(done.stdout)
    assert [one["kept"] for one in found["models"]] == [
        "model/measurement-001.json",
        "curve/tolerance-0/measurement-001.json",
    ]
    for folder in ("model", "curve/tolerance-0"):
        kept = read(here / folder / "measurement-001.json")
        assert kept["compared"] == ["model", "curve/tolerance-0"]
        assert round(kept["certificate"]["epsilon"], 3) == 1.0  # the price of both models: the same people paid it
        assert sum(one["count"] for one in kept["certificate"]["releases"]) == 2
        assert list(kept["violations"]) == ["demographic_parity"]
    assert any(one.startswith("model: Together with the other certificate") for one in found["statements"])
    # The next measurement of the same rows adds it: mu of (1, 1e-5) is 0.2681, and two have sqrt(2) times that.
    again = run("evaluate", "model", "test.csv")
    assert "measured before (measurement 1 of the model)" in text_of(again)
    assert "(1.466, 1e-05)" in remarks(here / "model")[1]
    # So does a comparison after it; the page shows what evaluate measured, and the newest sum.
    assert "measured before (measurement 1, 2 of 'model')" in text_of(run("compare", "model", "--data", "test.csv"))
    assert "(1.835, 1e-05)" in remarks(here / "model")[2]
    assert run("report", "model", "--out", "r.html").exit_code == 0
    facts = read(here / "r.json")
    assert [one["name"] for one in facts["looks"]] == ["training", "1", "2", "3"]
    assert facts["looks"][1]["cost"].endswith(", for 2 models")
    assert facts["measurement"]["certificate"]["remarks"] == [remarks(here / "model")[1]]
    for page in ("r.html", "r.md"):
        text = " ".join((here / page).read_text().replace("\\", "").split())
        assert "(1.835, 1e-05)" in text
        assert "measured 3 times. The page shows the newest that is not part of a comparison of models." in text


def test_compare_with_a_ledger_is_kept_with_its_receipt(run: Run, here: Path) -> None:
    ledger = ("--ledger", "new.ledger", "--ledger-name", "test people", "--ledger-epsilon", 3)
    assert run("compare", "model", "--data", "test.csv", *ledger).exit_code == 0
    first = read(here / "model" / "measurement-001.json")["certificate"]
    assert run("evaluate", "model", "test.csv", *ledger[:2]).exit_code == 0
    second = read(here / "model" / "measurement-002.json")["certificate"]
    assert first["receipt"]["ledger"] == second["receipt"]["ledger"] is not None
    assert "(3, 1e-05)" in second["remarks"][-1]  # that ledger's budget, once


def test_compare_stops_before_it_spends_where_an_earlier_cost_is_not_known(run: Run, here: Path) -> None:
    (here / "model" / "measurement-001.json").write_text('{"people": 3}')
    ledger = ("--ledger", "new.ledger", "--ledger-name", "test people", "--ledger-epsilon", 3)
    done = run("compare", "curve/tolerance-0", "model", "--data", "test.csv", *ledger)
    assert done.exit_code == 2
    assert "what it cost is not known" in text_of(done)
    assert not (here / "new.ledger").exists()
    assert measurement_files(here / "curve" / "tolerance-0") == []


def test_part_of_the_training_rows_in_another_order_and_format_is_noticed(run: Run) -> None:
    old, new = pd.read_csv("income.csv"), pd.read_csv("test.csv")
    mixed = pd.concat([new, old[5:40]]).sample(frac=1, random_state=0)
    mixed[["sex", "income", "work", "gain", "education", "hours"]].to_parquet("mixed.parquet")
    result = run("evaluate", "model", "mixed.parquet")
    assert "rows of 'mixed.parquet' are rows that the model was trained on" in text_of(result)


def test_model_without_facts_adds_the_costs_since_nobody_knows_who_was_trained_on(run: Run, here: Path) -> None:
    (here / "model" / "training.json").unlink()
    result = run("evaluate", "model", "test.csv", "--target", "income", "--sensitive", "sex")
    assert "does not show whether rows of 'test.csv' were used for training" in text_of(result)
    assert "(1.466, 1e-05)" in remarks(here / "model")[0]


def test_evaluate_on_a_ledger_that_did_not_pay_for_the_training_adds_both(run: Run, here: Path) -> None:
    assert run("evaluate", "model", "income.csv", "--ledger", "people.ledger").exit_code == 0
    assert "(1.466, 1e-05)" in remarks(here / "model")[0]


def test_measurement_that_was_damaged_stops_the_next_one_before_it_is_paid(run: Run, here: Path) -> None:
    assert run("evaluate", "model", "test.csv").exit_code == 0
    facts = (here / "model" / "measurement-001.json").read_text()
    (here / "model" / "measurement-001.json").write_text(facts.replace('"certificate"', '"certificat"', 1))
    left_alone(run, here, ("evaluate", "model", "test.csv", "--ledger", "people.ledger"), "what it cost is not known")


def test_report_shows_the_newest_measurement_and_their_number(run: Run, here: Path) -> None:
    assert run("evaluate", "model", "test.csv").exit_code == 0
    assert run("report", "model", "--out", "r.html").exit_code == 0
    assert "newest of" not in Path("r.md").read_text(encoding="utf-8")
    assert run("evaluate", "model", "income.csv").exit_code == 0
    assert run("report", "model", "--out", "r.html", "--overwrite").exit_code == 0
    for page in ("r.html", "r.md"):
        text = Path(page).read_text(encoding="utf-8")
        assert "This is the newest of 2 measurements" in text
        assert "400 rows of evaluation data" in text
        assert "public_rows" not in text


# --- reproduce


def test_reproduce_runs_nothing_of_the_folder_it_is_started_in(run: Run, here: Path) -> None:
    (here / "bench" / "experiments").mkdir(parents=True)
    (here / "src" / "justitia").mkdir(parents=True)
    (here / "bench" / "__init__.py").touch()
    (here / "bench" / "experiments" / "__init__.py").touch()
    (here / "bench" / "experiments" / "__main__.py").write_text("EXPERIMENTS, ALIASES = {'mine': 1}, {}\n")
    assert "mine" not in run("reproduce", "--list").stdout
    assert run("reproduce", "--list", "--checkout", ".").stdout == "mine\n"
    assert_refused(run("reproduce", "--list", "--checkout", "model"), 2, "'model' is not a checkout of justitia")
