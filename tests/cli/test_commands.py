"""All other commands: what they print and write."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import ROWS, Run, assert_refused, read
from texts import TRAIN, assert_narrow, parsed

from justitia import DurableLedger, LagrangianDualClassifier, PrivacyLedger
from justitia.cli.commands.compare import UncorrectedModel, part_of
from justitia.datasets import make_synthetic
from justitia.privacy.accounting import GaussianCost, gaussian_mu
from justitia.privacy.ledger import Release
from justitia.report import Report, build_report

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
    assert "no point has a noisy violation of at most 0; the strictest one is marked." in " ".join(
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
        "uncorrected",
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
    assert "Everything that methods learned from --train is (1, 1e-05)" in " ".join(result.stdout.split())
    found = parsed(run(*words, "--json"))["models"]
    assert [one["model"] for one in found] == ["model", "(uncorrected)", "(moments)"]
    assert [round(one["epsilon"], 3) for one in found] == [1.0, 0.0, 1.0]
    alone = (
        "compare",
        *["--method", "post-processing", "--train", "income.csv", "--data", "test.csv", "--target", "income"],
    )
    assert "pass --groups" in run(*alone, "--sensitive", "sex").stderr
    assert "to train methods on, got none" in run("compare", "--method", "uncorrected", "--data", "test.csv").stderr
    assert "at least one model" in run("compare", "--data", "test.csv").stderr


def test_compare_trains_no_rival_method(run: Run) -> None:
    result = run("compare", "--method", "fermi", "--train", "income.csv", "--data", "test.csv")
    assert_refused(result, 2, "uncorrected, post-processing, moments, pf-ld")


def test_uncorrected_method_decides_as_the_base_below_the_default_engine() -> None:
    data = make_synthetic(600, random_state=0)
    corrected = LagrangianDualClassifier(groups=data.groups, random_state=3)
    corrected.fit(data.X, data.y, sensitive_features=data.sensitive)
    uncorrected = UncorrectedModel(seed=3).fit(data.X, data.y)
    base = corrected.base_proba(data.X)
    assert base is not None
    assert (uncorrected.predict(data.X) == (base > 0.5)).all()
    assert uncorrected.certificate_.epsilon == 0


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_of_a_budget_compose_to_it(parts: int) -> None:
    each = part_of(1.0, 1e-5, parts)
    assert np.sqrt(parts) * gaussian_mu(each, 1e-5) == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-6)
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    assert ledger.epsilon() == 0


# --- plan


PLANNED = """\
Plan from public numbers; no budget was spent.
  rows       36,000 in 2 groups; 9,000 have the positive answer
  training   demographic_parity, engine post-processing
  tolerance  about 0.01 between two groups, if they are of equal sizes
  budget     epsilon 1 at delta 1e-05, all of it:
  release    times  noise  epsilon alone
  sizes          1  16.68          0.195
  moments        1  5.413          0.665
  decisions      4  10.83          0.665

How precise, by the number of rows in a group:
    rows  noise of its rate  measured violation of 0
     100              0.044                    0.110
     300              0.015                    0.059
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
    words += ("--sensitive", "sex", "--small-groups", "--out", "m")
    printed = parsed(run("train", *words, "--epsilon", "0.1", "--json"))["warnings"]
    assert sentence.split("the noise in")[0] == printed[0].split("the noise in")[0]


def test_plan_of_the_other_engines_lists_what_they_ask(run: Run) -> None:
    found = parsed(run("plan", "--rows", "1000", "--engine", "pf-ld", "--json"))
    assert [(one["purpose"], one["count"]) for one in found["releases"]] == [
        ("group sizes", 1),
        ("violation", 100),
        ("group gradient", 100),
    ]
    printed = run("plan", "--rows", "1000", "--engine", "pf-ld-as-published")
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
    assert "  synthetic         any         5  a, b; made up, needs no download" in listed.splitlines()
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


def test_purposes_that_others_wrote_move_no_cursor_and_make_no_line_of_their_own(run: Run, here: Path) -> None:
    ledger = DurableLedger(here / "c.ledger", dataset="clinic", epsilon=2.0, delta=1e-5)
    ledger.debit(Release("a\x1b[2J\x9b\u202e\n     99  none", GaussianCost(50.0), 1.0))
    printed = run("budget", "show", "c.ledger").stdout
    assert r"a\u001b[2J\u009b\u202e\n     99" in printed
    as_json = run("budget", "show", "c.ledger", "--json").stdout
    assert parsed(run("budget", "show", "c.ledger", "--json"))["entries"][0]["purpose"].startswith("a\x1b[2J\x9b")
    assert all(one == "\n" or one.isprintable() for one in printed + as_json)


def test_budget_is_made_shown_and_exported(run: Run, here: Path) -> None:
    result = run("budget", "create", "c.ledger", "--name", "clinic", "--epsilon", "2")
    assert result.stdout == BUDGET.replace("FILE", str(here / "c.ledger"))
    assert run("budget", "create", "c.ledger", "--name", "clinic", "--epsilon", "2").exit_code == 2
    words = ("--ledger", "c.ledger", "--epsilon", "1.5")
    assert run("train", "income.csv", *TRAIN, *words, "--out", "m").exit_code == 0
    assert parsed(run("budget", "show", "c.ledger", "--json"))["spent_epsilon"] == pytest.approx(1.5, rel=1e-3)
    assert "moments" in run("budget", "show", "c.ledger").stdout
    assert run("budget", "export", "c.ledger", "--out", "c.json").exit_code == 0
    assert len(read(here / "c.json")["entries"]) == 4
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
    assert result.stdout == "c.ledger contains the 4 debits of the receipt, and 0 since.\n"
    assert parsed(run("budget", "verify", "c.ledger", "--receipt", "c.json", "--json"))["debits"] == 4
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
    assert result.stdout == "Report: pages/r.html\nModel card: pages/r.md\nFacts: pages/r.json\n"
    assert Path("pages/r.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert Path("pages/r.md").read_text(encoding="utf-8").startswith("# income from ")
    assert isinstance(asked["model"], LagrangianDualClassifier)
    assert asked["curve"] == curve
    assert asked["measurement"]["people"] == 300
    assert asked["facts"]["target"] == "income"
    assert [one["name"] for one in asked["measurement_log"]] == ["training", "1"]
    assert all(len(one["digest"]) == 64 for one in asked["measurement_log"])


def test_report_of_any_point_of_a_curve_shows_the_curve(run: Run) -> None:
    for place, name in enumerate(("curve/tolerance-0", "curve/tolerance-0.1")):
        assert run("report", name, "-o", f"{place}.html").exit_code == 0
        facts = read(Path(f"{place}.json"))
        assert facts["curve"]["chosen"] == place
        assert "no point of a curve" not in Path(f"{place}.html").read_text(encoding="utf-8")


def test_report_with_stated_fields_is_not_written_over_another_file(run: Run, here: Path) -> None:
    (here / "about.toml").write_text('owner = "Ann"\nversion = "1"\n', encoding="utf-8")
    words = (
        "report",
        "model",
        "-o",
        "r.html",
        "--about",
        "about.toml",
        "--title",
        "Loans",
        "--positive-means",
        "granted",
    )
    assert run(*words).exit_code == 0
    card = Path("r.md").read_text(encoding="utf-8")
    assert card.startswith("# Loans")
    assert "| Owner | Ann |" in card
    assert "(positive: granted)" in card
    assert_refused(run(*words), 2, "exists; pass --overwrite")
    assert run(*words, "--overwrite").exit_code == 0
    Path("r.md").write_text("# My notes", encoding="utf-8")
    assert_refused(run(*words, "--overwrite"), 2, "is no report of this package")
    (here / "about.toml").write_text("owner = Ann", encoding="utf-8")
    assert_refused(run(*words), 2, "is no TOML")
    (here / "about.toml").write_text('ownr = "Ann"', encoding="utf-8")
    assert_refused(run(*words, "--overwrite"), 2, "did you mean 'owner'")


def test_second_measurement_of_the_same_rows_is_on_the_page(run: Run) -> None:
    for _ in range(2):
        assert run("evaluate", "model", "test.csv").exit_code == 0
    assert run("report", "model", "-o", "r.html").exit_code == 0
    facts = read(Path("r.json"))
    assert [one["name"] for one in facts["looks"]] == ["training", "1", "2"]
    assert any("Warning: measurement 2 includes, or may include, people of" in one for one in facts["looks_say"])
