"""What each command prints at width 80, writes, and says as JSON."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import ROWS, Run, income, read

from justitia import DurableLedger, LagrangianDualClassifier, PrivacyLedger
from justitia.cli.commands.compare import part_of
from justitia.privacy.accounting import gaussian_mu
from justitia.report import Report, build_report

TRAIN = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0")
SECRET = ("--target", "income", "--sensitive-file", "secret.csv", "--key", "id")


def masked(text: str) -> str:
    """Text whose numbers are N: what is left has to be the same on every machine."""
    return re.sub(r"[+-]?\d+(,\d{3})*(\.\d+)?(e-\d+)?", "N", text)


def squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def assert_narrow(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 80


def parsed(result: Any) -> Any:
    assert result.exit_code in {0, 4}, result.output
    return json.loads(result.stdout)


# --- train


def test_train_prints_what_was_learned_and_what_it_cost(run: Run) -> None:
    result = run("train", "income.csv", *TRAIN, "--tolerance", "0.05", "--epsilon", "50", "--out", "m")
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    facts = read(Path("m/training.json"))
    assert squeezed(result.stdout).splitlines()[:8] == [
        "Trained: m",
        "data 400 rows, 4 features of income.csv",
        "target income; '>50K' is the positive answer",
        "groups Female, Male (given)",
        "base LGBMClassifier, mean of 5 fits that leave out a part of the rows",
        "each",
        "notion demographic_parity; tolerance: 0.05",
        f"accuracy {facts['training_accuracy']:.3f} on the training rows, AUC {facts['training_auc']:.3f}",
    ]
    assert "(50, 1e-05)-differentially private" in " ".join(result.stdout.split())
    assert result.stdout.endswith("Next: justitia evaluate m OTHER-PEOPLE.csv\n")


def test_train_writes_a_model_that_python_loads_and_facts(run: Run, here: Path) -> None:
    assert run("train", "income.csv", *TRAIN, "--positive", "<=50K", "--out", "deep/m").exit_code == 0
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


def test_warnings_of_the_library_are_told_once_on_the_standard_error(run: Run) -> None:
    result = run("train", "income.csv", *TRAIN, "--epsilon", "0.01", "--out", "m", "--json")
    sentences = parsed(result)["warnings"]
    assert any("and no smaller violation can be held" in one for one in sentences)
    assert result.stderr.count("no smaller violation") == 1
    assert_narrow(result.stderr)


def test_train_without_privacy_says_so_and_tells_no_exact_violation(run: Run, here: Path) -> None:
    result = run("train", "income.csv", *TRAIN, "--epsilon", "inf", "--out", "m")
    assert "No privacy guarantee: epsilon is infinite." in result.stdout
    assert "noised answers" not in result.stdout
    assert json.loads((here / "m" / "training.json").read_text())["noisy_violation"] is None
    assert (
        parsed(run("train", "income.csv", *TRAIN, "--epsilon", "inf", "--out", "n", "--json"))["certificate"]["epsilon"]
        == "infinity"
    )


def test_second_file_joined_by_its_key_trains_the_model_that_one_file_does(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from justitia.privacy.mechanisms import SeededNoise

    monkeypatch.setattr("justitia.privacy.door.SystemNoise", lambda: SeededNoise(0))
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


# --- evaluate


EVALUATED = """
Measured: N rows of test.csv, N groups; accuracy N.
Counts and rates are noised; bounds hold noise and sampling, at N.

selection_rate (population N)
group rows rate, bounds gap to population, bounds
Female N N [N, N] N [N, N]
Male N N [N, N] N [N, N]

violation, demographic_parity: N [N, N]
demographic_parity: below N at N confidence.

This measurement is (N, N)-differentially private in the sensitive
attribute of any one row.
Together with the other certificate: (N, N)-differentially private in the
sensitive attribute of everybody in either dataset, with at most one row in
each, provided that nobody is in both.
"""


def test_evaluate_prints_rates_with_bounds_and_a_verdict(run: Run, here: Path) -> None:
    result = run("evaluate", "model", "test.csv", "--epsilon", "30", "--below", "0.9")
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    assert squeezed(masked(result.stdout)) == squeezed(EVALUATED)
    facts = read(here / "model" / "measurement-001.json")
    assert facts["people"] == 300
    assert facts["verdicts"] == {"demographic_parity": "demographic_parity: below 0.9 at 0.95 confidence."}
    assert {row["group"] for row in facts["by_group"]} == {"Female", "Male"}


@pytest.mark.parametrize("below", ["0.0001", "0"])
def test_evaluate_that_does_not_show_the_claim_has_its_own_exit_code(run: Run, below: str) -> None:
    result = run("evaluate", "model", "test.csv", "--epsilon", "30", "--below", below)
    assert result.exit_code == 4
    assert "violation, demographic_parity" in result.stdout


def test_evaluate_exact_warns_and_writes_nothing(run: Run, here: Path) -> None:
    result = run("evaluate", "model", "test.csv", "--exact", "--json")
    assert "exact numbers about groups are not private" in " ".join(result.stderr.split())
    assert not list((here / "model").glob("measurement*"))
    found = parsed(result)
    model, frame = LagrangianDualClassifier.load("model"), pd.read_csv("test.csv")
    chosen = model.predict(frame[model.feature_names_in_]) == ">50K"
    rates = pd.Series(chosen).groupby(frame["sex"]).mean()
    assert found["exact"]["demographic_parity"]["violation"] == pytest.approx(np.ptp(rates))
    assert found["private"] is False
    text = run("evaluate", "model", "test.csv", "--exact").stdout
    assert text.startswith("EXACT, not private")
    assert_narrow(text)


def test_evaluate_on_the_ledger_of_the_training_adds_up(run: Run) -> None:
    words = ("--ledger", "people.ledger", "--epsilon", "1")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    found = parsed(run("evaluate", "m", "test.csv", *words, "--json"))
    assert 1.3 < found["certificate"]["spent_epsilon"] < 1.6
    assert found["certificate"]["epsilon"] == 3.0  # the budget: the measurement was chosen after the training
    assert not any("either dataset" in one for one in found["certificate"]["remarks"])


def test_evaluate_several_notions_at_once(run: Run) -> None:
    words = ("--notion", "demographic_parity", "--notion", "equalized_odds", "--epsilon", "9")
    assert set(parsed(run("evaluate", "model", "test.csv", *words, "--json"))["violations"]) == {
        "demographic_parity",
        "equalized_odds",
    }


# --- tradeoff and compare


def test_tradeoff_writes_a_curve_a_model_per_point_and_marks_the_chosen(run: Run, here: Path) -> None:
    words = ("--tolerances", "0.2,0,0.05", "--choose", "1", "--out", "c", "--ledger", "people.ledger")
    result = run("tradeoff", "income.csv", *TRAIN, *words)
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    curve = read(here / "c" / "tradeoff.json")
    assert [point["tolerance"] for point in curve["points"]] == [0.0, 0.05, 0.2]
    best = max(range(3), key=lambda place: curve["points"][place]["accuracy"])
    assert curve["chosen"] == best
    name = ("tolerance-0", "tolerance-0.05", "tolerance-0.2")[best]
    assert f"* chosen: c/{name}" in result.stdout
    assert read(here / "c" / name / "tradeoff.json") == curve
    assert len(list((here / "c").glob("*/tradeoff.json"))) == 1
    assert LagrangianDualClassifier.load(here / "c" / name).tolerance == (0.0, 0.05, 0.2)[best]
    assert list(pd.read_csv(here / "c" / "tradeoff.csv")) == ["tolerance", "accuracy", "auc", "noisy_violation"]
    assert DurableLedger.open("people.ledger").epsilon() <= 1 + 1e-9


def test_tradeoff_without_a_point_within_the_violation_says_so(run: Run, here: Path) -> None:
    result = run("tradeoff", "income.csv", *TRAIN, "--tolerances", "0.5,0.9", "--choose", "0", "--out", "c")
    assert result.exit_code == 0
    assert "no point has a noised violation of at most 0; the strictest one is marked." in " ".join(
        result.stderr.split()
    )
    assert read(here / "c" / "tradeoff.json")["chosen"] == 0


def test_compare_divides_its_budget_over_the_models(run: Run) -> None:
    words = ("compare", "model", "curve/tolerance-0", "curve/tolerance-0.1", "--data", "test.csv")
    result = run(*words, "--epsilon", "2")
    assert result.exit_code == 0
    assert_narrow(result.stdout)
    assert result.stdout.splitlines()[0] == "Compared on test.csv, demographic_parity"
    assert "is (2, 1e-05)-differentially" in result.stdout
    found = parsed(run(*words, "--epsilon", "2", "--json"))
    assert [one["model"] for one in found["models"]] == ["model", "curve/tolerance-0", "curve/tolerance-0.1"]
    assert [one["tolerance"] for one in found["models"]] == [None, 0.0, 0.1]


def test_compare_trains_methods_and_says_what_they_cost(run: Run) -> None:
    words = (
        "compare",
        "model",
        "--method",
        "plain",
        "--method",
        "moments",
        "--train",
        "income.csv",
        "--data",
        "test.csv",
    )
    result = run(*words, "--seed", "0")
    assert result.exit_code == 0, result.output
    assert_narrow(result.stdout)
    assert "All that methods learned of the people of --train is (1, 1e-05)" in " ".join(result.stdout.split())
    found = parsed(run(*words, "--json"))["models"]
    assert [one["model"] for one in found] == ["model", "(plain)", "(moments)"]
    assert [round(one["epsilon"], 3) for one in found] == [1.0, 0.0, 1.0]
    alone = ("compare", "--method", "fermi", "--train", "income.csv", "--data", "test.csv", "--target", "income")
    assert "pass --groups" in run(*alone, "--sensitive", "sex").stderr
    assert "to train methods on, got none" in run("compare", "--method", "plain", "--data", "test.csv").stderr
    assert "at least one model" in run("compare", "--data", "test.csv").stderr


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_of_a_budget_compose_to_it(parts: int) -> None:
    each = part_of(1.0, 1e-5, parts)
    assert np.sqrt(parts) * gaussian_mu(each, 1e-5) == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-6)
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    assert ledger.epsilon() == 0


# --- plan


PLANNED = """\
Plan: nothing was read but public numbers, nothing was spent.
  rows       36,000 in 2 groups; 9,000 have the positive answer
  asked for  demographic_parity, engine plugin
  tolerance  about 0.01 between two groups, if they are of equal sizes
  budget     epsilon 1 at delta 1e-05, all of it:
  what is asked  times  noise  epsilon alone
  moments            1  5.276          0.684
  decisions          4  10.55          0.684

How precise, by the number of rows in a group:
    rows  noise of its rate  measured violation of 0
     100              0.043                    0.110
     300              0.014                    0.059
   1,000              0.004                    0.031
   3,000              0.001                    0.018
  10,000              0.000                    0.011
  18,000              0.000                    0.010
  Noise of its rate: standard deviation in training, in the smallest event.
  Measured violation of 0: upper bound at 0.95 that 'evaluate' would show with
  the same epsilon and as many rows if groups were treated alike.
"""


def test_plan_prints_noise_costs_and_precision_by_group_size(run: Run) -> None:
    assert run("plan", "--rows", "36000", "--positives", "0.25", "--groups", "2").stdout == PLANNED


def test_plan_of_a_file_counts_its_target_and_says_what_training_would_warn_of(run: Run) -> None:
    words = ("income.csv", "--target", "income", "--groups", "Female,Male", "--notion", "equalized_odds")
    found = parsed(run("plan", *words, "--epsilon", "0.1", "--json"))
    frame = pd.read_csv("income.csv")
    assert found["rows"] == ROWS
    assert found["positives"] == int((frame["income"] == ">50K").sum())
    assert found["epsilon"] == pytest.approx(0.1, rel=1e-3)
    (sentence,) = found["outlook"]
    told = parsed(run("train", *words, "--sensitive", "sex", "--epsilon", "0.1", "--out", "m", "--json"))["warnings"]
    assert sentence.split("the noise in")[0] == told[0].split("the noise in")[0]


def test_plan_of_the_other_engines_lists_what_they_ask(run: Run) -> None:
    found = parsed(run("plan", "--rows", "1000", "--engine", "gradients", "--json"))
    assert [(one["purpose"], one["count"]) for one in found["releases"]] == [
        ("group sizes", 1),
        ("violation", 100),
        ("group gradient", 100),
    ]
    printed = run("plan", "--rows", "1000", "--engine", "printed")
    assert printed.exit_code == 0
    assert "not known" in printed.stdout
    assert_narrow(printed.stdout)


# --- split, datasets, budget


def test_split_parts_are_the_whole_and_by_chance(run: Run, here: Path) -> None:
    result = run("split", "income.csv", "--test", "0.25", "--seed", "3")
    assert result.stdout == "income-train.csv: 300 rows\nincome-test.csv: 100 rows\n"
    whole = Path("income.csv").read_text().splitlines()
    parts = [Path(f"income-{name}.csv").read_text().splitlines() for name in ("train", "test")]
    assert [part[0] for part in parts] == [whole[0]] * 2
    assert sorted(parts[0][1:] + parts[1][1:]) == sorted(whole[1:])
    found = parsed(run("split", "income.csv", "--overwrite", "--json"))
    assert found["test"] == {
        "file": "income-test.csv",
        "rows": 80,
    }


def test_datasets_are_listed_and_one_is_written_in_two_files(run: Run, here: Path) -> None:
    listed = run("datasets", "list").stdout
    assert_narrow(listed)
    assert "  synthetic        any         5  a, b; made up, needs no download" in listed.splitlines()
    result = run("datasets", "write", "synthetic", "--rows", "50", "--out", "x.csv", "--sensitive-file", "s.csv")
    assert "--sensitive-file s.csv --key id" in result.stdout
    assert list(pd.read_csv("s.csv")) == ["id", "group"]
    assert "group" not in pd.read_csv("x.csv")


BUDGET = """\
Ledger of 'clinic' in FILE
  budget     epsilon 2 at delta 1e-05
  spent      epsilon 0: 0 debits of 0 runs
  remaining  epsilon 2 for one more Gaussian release
"""


def test_budget_is_made_shown_and_exported(run: Run, here: Path) -> None:
    result = run("budget", "create", "c.ledger", "--name", "clinic", "--epsilon", "2")
    assert result.stdout == BUDGET.replace("FILE", str(here / "c.ledger"))
    assert run("budget", "create", "c.ledger", "--name", "clinic", "--epsilon", "2").exit_code == 2
    words = ("--ledger", "c.ledger", "--epsilon", "1.5")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    assert parsed(run("budget", "show", "c.ledger", "--json"))["spent_epsilon"] == pytest.approx(1.5, rel=1e-3)
    assert "moments" in run("budget", "show", "c.ledger").stdout
    assert run("budget", "export", "c.ledger", "--out", "c.json").exit_code == 0
    assert len(read(here / "c.json")["entries"]) == 3
    refused = run("evaluate", "m", "test.csv", *words)
    assert refused.exit_code == 3
    assert "the budget is 2 (spent 1.5)" in " ".join(refused.stderr.split())


def test_budget_verifies_the_receipts_of_a_model_and_of_an_export(run: Run, here: Path) -> None:
    assert run("budget", "create", "c.ledger", "--name", "clinic", "--epsilon", "3").exit_code == 0
    made = (here / "c.ledger").read_bytes()
    words = ("--ledger", "c.ledger", "--epsilon", "1")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    assert run("budget", "export", "c.ledger", "--out", "c.json").exit_code == 0
    result = run("budget", "verify", "c.ledger", "--model", "m")
    assert result.stdout == "c.ledger holds the 3 debits of the receipt, and 0 since.\n"
    assert parsed(run("budget", "verify", "c.ledger", "--receipt", "c.json", "--json"))["debits"] == 3
    (here / "c.ledger").write_bytes(made)
    for source in (("--model", "m"), ("--receipt", "c.json")):
        refused = run("budget", "verify", "c.ledger", *source)
        assert refused.exit_code == 3
        assert "so it is an old copy" in " ".join(refused.stderr.split())
    assert run("train", "income.csv", *TRAIN, "--epsilon", "1", "--out", "other").exit_code == 0
    without = run("budget", "verify", "c.ledger", "--model", "other")
    assert "there is no receipt in" in " ".join(without.stderr.split())
    assert [without.exit_code, run("budget", "verify", "c.ledger").exit_code] == [2, 2]
    (here / "text").write_text("people")
    for file in ("text", "nowhere"):
        assert run("budget", "verify", "c.ledger", "--receipt", file).exit_code == 2


def test_ledger_is_made_on_the_way_if_it_has_a_name_and_a_budget(run: Run) -> None:
    words = ("--ledger", "n.ledger", "--ledger-name", "new", "--ledger-epsilon", "2")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    assert DurableLedger.open("n.ledger").dataset == "new"


# --- report


def test_report_is_made_of_what_the_folder_holds(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def build(model: Any, **given: Any) -> Report:
        asked.update(model=model, **given)
        return build_report(model, **given)

    monkeypatch.setattr("justitia.cli.commands.report.build_report", build)
    curve = read(here / "curve" / "tradeoff.json")
    chosen = ("curve/tolerance-0", "curve/tolerance-0.1")[curve["chosen"]]
    assert run("evaluate", chosen, "test.csv").exit_code == 0
    result = run("report", chosen, "-o", "pages/r.html")
    assert result.stdout == "Report: pages/r.html\nModel card: pages/r.md\n"
    assert Path("pages/r.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert Path("pages/r.md").read_text(encoding="utf-8").startswith("# income from ")
    assert isinstance(asked["model"], LagrangianDualClassifier)
    assert asked["curve"] == curve
    assert asked["measurement"]["people"] == 300
    assert asked["facts"]["target"] == "income"
