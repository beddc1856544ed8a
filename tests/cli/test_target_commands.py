"""Targets with several classes and numeric targets: every command on tables of 600 rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import Run, assert_refused, income, invoke, read, refused
from texts import assert_narrow, parsed

from justitia import LagrangianDualClassifier, LagrangianDualRegressor
from justitia.cli.files.metadata import load_model

WHO = ("--sensitive", "sex", "--groups", "Female,Male", "--seed", "0", "--epsilon", "4")
JOB, WAGE = ("--target", "job", *WHO), ("--target", "wage", *WHO)
LOOSE = ("--tolerance", "0.3")


def table(rows: int, seed: int) -> pd.DataFrame:
    """Features, an attribute, a target of three classes, a numeric one, and a rating from 1 to 5."""
    found, noise = income(rows, seed).drop(columns=["age", "income"]), np.random.default_rng(seed)
    skill = found["hours"] + 0.5 * found["education"] + noise.normal(size=rows)
    job = np.select([skill < -0.6, skill < 0.6], ["clerk", "craft"], "exec")
    return found.assign(job=job, wage=(20 + 4 * skill).round(2), stars=np.clip(np.round(3 + skill), 1, 5).astype(int))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    for name, seed in (("train", 0), ("test", 1)):
        rows = table(600, seed)
        for target in ("job", "wage", "stars"):
            others = [one for one in ("job", "wage", "stars") if one != target]
            rows.drop(columns=others).to_csv(folder / f"{target}-{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def models(made: Path) -> Path:
    """A model of classes and one of numbers, beside the tables."""
    for words in (("job", *JOB), ("wage", *WAGE)):
        trained = invoke("train", made / f"{words[0]}-train.csv", *words[1:], *LOOSE, "--out", made / words[0])
        assert trained.exit_code == 0, trained.output
    return made


@pytest.fixture
def there(models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(models)
    return models


# --- what a target is


def test_text_with_three_values_is_trained_as_classes(there: Path) -> None:
    model, facts = load_model(there / "job")
    assert isinstance(model, LagrangianDualClassifier)
    assert model.classes_.tolist() == facts["classes"] == ["clerk", "craft", "exec"]
    assert facts["task"] == "classes"
    assert 0.3 < facts["training_accuracy"] < 1
    assert facts["training_auc"] is None
    assert "positive" not in facts


def test_numbers_with_many_values_are_trained_as_a_number(there: Path) -> None:
    model, facts = load_model(there / "wage")
    wages = pd.read_csv("wage-train.csv")["wage"]
    assert isinstance(model, LagrangianDualRegressor)
    assert facts["task"] == "number"
    assert facts["bounds"] == [wages.min(), wages.max()]
    assert 0 < facts["training_r2"] < 1
    assert "classes" not in facts


def test_few_numbers_are_not_guessed_about(there: Path) -> None:
    words = ("train", "stars-train.csv", "--target", "stars", *WHO, *LOOSE)
    text = assert_refused(invoke(*words, "--out", "x"), 2, "pass --task classes or --task number")
    assert "the column 'stars' has 5 different numbers (1, 2, 3, ...)" in text
    for task, kind in (("classes", LagrangianDualClassifier), ("number", LagrangianDualRegressor)):
        trained = invoke(*words, "--task", task, "--out", f"stars-{task}")
        assert trained.exit_code == 0, trained.output
        assert isinstance(load_model(there / f"stars-{task}")[0], kind)
        assert invoke("evaluate", f"stars-{task}", "stars-test.csv").exit_code == 0


def test_text_of_a_training_names_classes_or_range(there: Path) -> None:
    for words, part in ((JOB, "target job; 3 classes: clerk, craft, exec"), (WAGE, "target wage; a number between")):
        shown = invoke("train", f"{words[1]}-train.csv", *words, *LOOSE, "--out", "shown", "--overwrite")
        assert shown.exit_code == 0, shown.output
        assert_narrow(shown.stdout)
        assert part in " ".join(shown.stdout.split())
        assert "positive" not in shown.stdout


def test_decimal_commas_of_a_numeric_target_are_read(there: Path) -> None:
    wages = pd.read_csv("wage-train.csv")
    wages.to_csv("comma.csv", index=False, sep=";", decimal=",")
    words = ("--separator", ";", "--decimal", ",", *LOOSE, "--out", "comma", "--json")
    trained = parsed(invoke("train", "comma.csv", *WAGE, *words))
    assert trained["bounds"] == [wages["wage"].min(), wages["wage"].max()]


# --- options


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--threshold", "0.4"), "expected no --threshold because the target has 3 classes"),
        (("--bounds", "0,1"), "expected no --bounds because the target has 3 classes"),
        (("--hidden", "5"), "expected engine 'post-processing' because the target has 3 classes"),
        (("--positive", "exec"), "expected --positive with a target that has two values"),
        (("--quota", "0.2"), "expected --quota CLASS=SHARE"),
        (("--quota", "chef=0.2"), "no class 'chef' in the target"),
        (("--quota", "exec=2"), "expected --quota to be a share between 0 and 1"),
        (("--costs", "0,1;1,0"), "expected 3 rows of 3 --costs, true class by decision, in the order clerk, craft"),
        (("--costs", "none.csv"), "expected --costs to be numbers such as 0,1;5,0 or a file"),
        (("--notion", "mean_parity"), "expected a notion of decisions because the target has 3 classes"),
        (("--notion", "predictive_equality"), "which is about two"),
        (("--notion", "conditional_demographic_parity"), "pass --stratum COLUMN"),
        (("--stratum", "work", "--notion", "demographic_parity"), "beside --stratum, got demographic_parity"),
        (("--stratum", "sex"), "the column 'sex' is sensitive, key or id and cannot be a public stratum"),
        (("--tolerance", "0.1", "--tolerance", "0.2"), "expected one --tolerance, or one for each of 1 notions, got 2"),
        (("--ratio", "0.8", "--tolerance", "0.1"), "expected --tolerance or --ratio, got both"),
        (("--ratio", "80"), "expected --ratio above 0 and at most 1, got 80"),
        (("--tolerance", "5"), "5% is written 0.05"),
        (("--base", "linear"), "expected --base linear for numbers and logistic for classes"),
        (("--base-column", "hours"), "expected --base-column CLASS=COLUMN for each of the classes clerk, craft, exec"),
    ],
)
def test_option_that_does_not_fit_classes_is_refused_before_any_budget_is_spent(
    run: Run, here: Path, made: Path, words: tuple[str, ...], part: str
) -> None:
    refused(run, here, ("train", made / "job-train.csv", *JOB, *words, "--out", "m"), part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--ratio", "0.8"), "expected no --ratio because the target has numbers"),
        (("--quota", "0.2"), "expected no --quota because the target has numbers"),
        (("--stratum", "work"), "expected no --stratum because the target has numbers"),
        (("--costs", "0,1;1,0"), "expected no --costs because the target has numbers"),
        (("--notion", "equalized_odds"), "expected a notion of numbers (demographic_parity, mean_parity, equal_error)"),
        (
            ("--notion", "mean_parity", "--notion", "equal_error"),
            "expected one --notion because the target has numbers",
        ),
        (("--engine", "moments"), "expected engine 'post-processing' because the target has numbers"),
        (("--base", "logistic"), "expected --base linear for numbers"),
        (("--bounds", "0,10"), "expected every y between 0 and 10"),
        (("--task", "classes"), "expected at most 20 classes in the column 'wage', got more; pass --task number"),
    ],
)
def test_option_that_does_not_fit_numbers_is_refused_before_any_budget_is_spent(
    run: Run, here: Path, made: Path, words: tuple[str, ...], part: str
) -> None:
    refused(run, here, ("train", made / "wage-train.csv", *WAGE, *words, "--out", "m"), part)


def test_several_notions_with_a_tolerance_each_are_trained_and_evaluated(there: Path) -> None:
    words = (
        "--notion",
        "demographic_parity",
        "--notion",
        "accuracy_parity",
        "--tolerance",
        "0.3",
        "--tolerance",
        "0.2",
    )
    facts = parsed(invoke("train", "job-train.csv", *JOB, *words, "--out", "both", "--json"))
    assert facts["notion"] == ["demographic_parity", "accuracy_parity"]
    model = load_model(there / "both")[0]
    assert model.tolerances_.tolist() == [0.3, 0.3, 0.3, 0.2]
    found = parsed(invoke("evaluate", "both", "job-test.csv", "--json"))
    assert list(found["violations"]) == ["demographic_parity", "accuracy_parity"]
    page = invoke("report", "both", "--out", "both.html")
    assert page.exit_code == 0, page.output
    assert "Accuracy parity: " in Path("both.md").read_text(encoding="utf-8")


def test_quota_costs_and_strata_reach_the_model(there: Path) -> None:
    costs = pd.DataFrame([[0, 1, 4], [1, 0, 1], [2, 1, 0]], ["exec", "craft", "clerk"], ["exec", "craft", "clerk"])
    costs.to_csv("costs.csv")
    words = ("--quota", "exec=0.2", "--costs", "costs.csv", "--stratum", "work", *LOOSE)
    trained = invoke("train", "job-train.csv", *JOB, *words, "--out", "quota")
    assert trained.exit_code == 0, trained.output
    model = load_model(there / "quota")[0]
    assert model.quota == {"exec": 0.2}
    assert np.asarray(model.costs).tolist() == [[0, 1, 2], [1, 0, 1], [4, 1, 0]]
    assert list(model.dual_) == [
        f"{work}: {job}" for work in ("private", "state") for job in ("clerk", "craft", "exec")
    ]
    assert "is not measured; demographic_parity of all rows is" in " ".join(
        invoke("evaluate", "quota", "job-test.csv").stderr.split()
    )


def test_ratio_and_quota_of_two_values_reach_the_model(run: Run, here: Path) -> None:
    two = ("--target", "income", *WHO, "--ratio", "0.8", "--quota", "0.3", "--out", "m")
    trained = run("train", "income.csv", *two)
    assert trained.exit_code == 0, trained.output
    assert "ratio: 0.8" in trained.stdout
    model = load_model(here / "m")[0]
    assert model.ratio == 0.8
    decided = run("predict", "m", "income.csv", "--json")
    assert parsed(decided)["positive_share"] == pytest.approx(0.3, abs=0.03)


def test_columns_of_scores_are_the_base_of_several_classes(there: Path) -> None:
    rows = pd.read_csv("job-train.csv")
    for place, job in enumerate(("clerk", "craft", "exec")):
        rows[f"p{place}"] = np.where(rows["job"] == job, 0.6, 0.2)
    rows.to_csv("scored.csv", index=False)
    base = [
        word for place, job in enumerate(("clerk", "craft", "exec")) for word in ("--base-column", f"{job}=p{place}")
    ]
    trained = invoke("train", "scored.csv", *JOB, *base, "--tolerance", "1", "--out", "columns", "--json")
    assert parsed(trained)["training_accuracy"] == 1.0
    assert parsed(invoke("predict", "columns", "scored.csv", "--json"))["shares"]["exec"] == pytest.approx(
        (rows["job"] == "exec").mean()
    )


# --- predict, evaluate, compare, tradeoff, plan


def test_predictions_have_columns_of_classes_or_numbers(there: Path) -> None:
    assert invoke("predict", "job", "job-test.csv", "--out", "jobs.csv", "--overwrite").exit_code == 0
    jobs = pd.read_csv("jobs.csv")
    names = ["probability[clerk]", "probability[craft]", "probability[exec]"]
    assert list(jobs) == ["row", "decision", *names]
    assert jobs[names].sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)
    written = invoke("predict", "wage", "wage-test.csv", "--out", "wages.csv", "--overwrite")
    assert written.exit_code == 0
    wages = pd.read_csv("wages.csv")
    assert list(wages) == ["row", "prediction"]
    assert written.stdout.startswith("600 predictions in wages.csv; their mean is")
    found = parsed(invoke("predict", "wage", "wage-test.csv", "--json"))
    assert found["mean_prediction"] == pytest.approx(wages["prediction"].mean())


def test_evaluation_of_classes_has_rates_and_quality_by_class(there: Path) -> None:
    shown = invoke("evaluate", "job", "job-test.csv")
    assert shown.exit_code == 0, shown.output
    assert_narrow(shown.stdout)
    found = read(sorted(Path("job").glob("measurement-*.json"))[-1])
    rates = [f"selection_rate[{job}]" for job in ("clerk", "craft", "exec")]
    assert list(found["overall"]) == rates
    assert sum(found["overall"].values()) == pytest.approx(1)
    assert found["before"] is not None
    public = found["public"]
    assert np.sum(public["table"]) == 600
    assert [one["label"] for one in public["by_class"]] == ["clerk", "craft", "exec"]
    assert public["accuracy"] == found["accuracy"] == pytest.approx(np.trace(public["table"]) / 600)


def test_evaluation_of_numbers_has_r2_distances_and_bounds(there: Path) -> None:
    shown = invoke("evaluate", "wage", "wage-test.csv", "--notion", "demographic_parity", "--notion", "mean_parity")
    assert shown.exit_code == 0, shown.output
    assert_narrow(shown.stdout)
    assert "(Kolmogorov-Smirnov distance)" in " ".join(shown.stdout.split())
    found = read(sorted(Path("wage").glob("measurement-*.json"))[-1])
    rows = pd.read_csv("wage-test.csv")
    predicted = load_model(there / "wage")[0].predict(rows.drop(columns=["wage", "sex"]))
    expected = 1 - np.mean((rows["wage"] - predicted) ** 2) / rows["wage"].var(ddof=0)
    assert found["r2"] == found["public"]["r2"] == pytest.approx(expected)
    assert "accuracy" not in found
    assert {one["group"] for one in found["distribution"]["by_group"]} == {"Female", "Male"}
    for one in found["violations"].values():
        assert one["lower"] <= one["estimate"] <= one["upper"]


def test_limit_in_units_of_the_target_is_for_means_alone(there: Path) -> None:
    words = ("evaluate", "wage", "wage-test.csv", "--below", "30")
    assert_refused(invoke(*words), 2, "expected a limit of at most 1, got 30")
    assert invoke(*words, "--notion", "mean_parity").exit_code == 0


def test_scores_of_classes_and_exact_notions_of_strata_are_refused(there: Path) -> None:
    assert_refused(invoke("evaluate", "job", "job-test.csv", "--scores"), 2, "expected a model of two classes")
    assert_refused(invoke("evaluate", "job", "job-test.csv", "--positive", "exec"), 2, "with a model of two classes")


def test_exact_numbers_of_classes_and_of_numbers_say_that_they_are_not_private(there: Path) -> None:
    for name, part in (("job", "accuracy"), ("wage", "R2")):
        shown = invoke("evaluate", name, f"{name}-test.csv", "--exact")
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.startswith(f"EXACT, not private; {part} ")


def test_curves_have_accuracy_of_classes_and_r2_of_numbers(there: Path) -> None:
    for name, words, column in (("job", JOB, "accuracy"), ("wage", WAGE, "r2")):
        made = invoke("tradeoff", f"{name}-train.csv", *words, "--tolerances", "0.1,0.4", "--out", f"curve-{name}")
        assert made.exit_code == 0, made.output
        assert_narrow(made.stdout)
        points = read(Path(f"curve-{name}") / "tradeoff.json")["points"]
        assert [point["tolerance"] for point in points] == [0.1, 0.4]
        assert all(0 < point[column] < 1 for point in points)
        reported = invoke("report", f"curve-{name}/tolerance-0.1", "--out", f"curve-{name}.html")
        assert reported.exit_code == 0, reported.output
    assert_refused(
        invoke("tradeoff", "job-train.csv", *JOB, "--ratio", "0.8", "--out", "x"), 2, "expected a curve of tolerances"
    )


def test_comparison_trains_methods_for_the_same_kind_of_target(there: Path) -> None:
    for name, quality in (("job", "accuracy"), ("wage", "r2")):
        words = (
            "--method",
            "uncorrected",
            "--method",
            "post-processing",
            "--train",
            f"{name}-train.csv",
            "--seed",
            "0",
        )
        found = parsed(invoke("compare", name, "--data", f"{name}-test.csv", "--epsilon", "8", *words, "--json"))
        rows = {one["model"]: one for one in found["models"]}
        assert list(rows) == [name, "(uncorrected)", "(post-processing)"]
        assert rows["(uncorrected)"][quality] > rows["(post-processing)"][quality]
        assert rows["(uncorrected)"]["violation"] > rows["(post-processing)"]["violation"]
    both = table(300, 2).drop(columns="stars")
    both.to_csv("both.csv", index=False)
    assert_refused(invoke("compare", "job", "wage", "--data", "both.csv"), 2, "expected models of one kind of target")


def test_plan_counts_rows_of_each_class_and_plans_for_numbers(there: Path) -> None:
    found = parsed(invoke("plan", "job-train.csv", "--target", "job", "--groups", "2", "--json"))
    assert found["by_class"] == pd.read_csv("job-train.csv")["job"].value_counts().to_dict()
    assert 0 < found["expected_tolerance"] < 1
    numbers = parsed(invoke("plan", "--rows", "20000", "--groups", "2", "--task", "number", "--json"))
    assert numbers["precision"][-1]["group"] == 10_000
    bounds = [one["measured_within"] for one in numbers["precision"]]
    assert bounds == sorted(bounds, reverse=True)
    assert 0 < bounds[-1] < 0.05


# --- measure


def test_decisions_among_classes_of_any_model_are_measured(there: Path) -> None:
    rows = pd.read_csv("job-test.csv")
    rows["decided"] = rows["job"].where(rows["hours"] > -1, "clerk")
    rows.to_csv("decided.csv", index=False)
    who = ("--sensitive", "sex", "--groups", "Female,Male", "--json")
    words = ("measure", "decided.csv", "--decision", "decided", "--target", "job")
    found = parsed(invoke(*words, *who))
    assert list(found["violations"]) == ["demographic_parity", "accuracy_parity"]
    assert found["accuracy"] == pytest.approx((rows["decided"] == rows["job"]).mean())
    alone = parsed(invoke("measure", "decided.csv", "--decision", "decided", *who))
    assert list(alone["violations"]) == ["demographic_parity"]
    assert_refused(invoke(*words, *who, "--csv", "audit.csv"), 2, "expected decisions between two values with --csv")
    assert_refused(invoke(*words, *who, "--notion", "equal_error"), 2, "expected numbers for equal_error")


def test_predicted_numbers_of_any_model_are_measured(there: Path) -> None:
    rows = pd.read_csv("wage-test.csv")
    rows.assign(guess=20 + 3 * rows["hours"]).to_csv("guessed.csv", index=False)
    who = ("--sensitive", "sex", "--groups", "Female,Male", "--json")
    words = ("measure", "guessed.csv", "--decision", "guess")
    found = parsed(invoke(*words, "--target", "wage", *who))
    assert list(found["violations"]) == ["demographic_parity", "equal_error"]
    assert found["r2"] < 1
    alone = parsed(invoke(*words, *who, "--notion", "mean_parity"))
    assert list(alone["overall"]) == ["mean_prediction"]
    assert_refused(invoke(*words, *who, "--notion", "equal_error"), 2, "expected --target for 'equal_error'")
    assert_refused(invoke(*words, *who, "--notion", "equalized_odds"), 2, "expected a notion of numbers")


# --- rows in files


@pytest.fixture
def parquet(there: Path) -> Any:
    pytest.importorskip("pyarrow")
    for target in ("job", "wage"):
        folder = there / f"{target}-files"
        if not folder.exists():
            folder.mkdir()
            rows = pd.read_csv(f"{target}-train.csv")
            rows[:300].to_parquet(folder / "a.parquet", index=False)
            rows[300:].to_parquet(folder / "b.parquet", index=False)
    return there


def test_classes_and_numbers_are_trained_and_evaluated_on_rows_in_files(parquet: Path) -> None:
    for name, words in (("job", JOB), ("wage", WAGE)):
        trained = invoke("train", f"{name}-files", *words, *LOOSE, "--out", f"{name}-streamed", "--overwrite", "--json")
        assert parsed(trained)["task"] == ("classes" if name == "job" else "number"), trained.output
        measured = invoke("evaluate", f"{name}-streamed", f"{name}-files", "--json")
        assert parsed(measured)["people"] == 600
        decided = invoke("predict", f"{name}-streamed", f"{name}-files", "--out", "p.csv", "--overwrite")
        assert decided.exit_code == 0, decided.output
        assert len(pd.read_csv("p.csv")) == 600
    assert_refused(
        invoke("train", "job-files", *JOB, "--stratum", "work", "--out", "x"), 2, "expected --stratum with a file"
    )


def test_json_of_every_command_is_json(there: Path) -> None:
    for words in (("evaluate", "job", "job-test.csv"), ("plan", "wage-train.csv", "--target", "wage")):
        assert isinstance(json.loads(invoke(*words, "--json").stdout), dict)


@pytest.mark.parametrize("words", [("job-train.csv", *JOB), ("wage-train.csv", *WAGE)], ids=["classes", "number"])
def test_audit_attacks_settings_of_classes_and_numbers(there: Path, words: tuple[str, ...]) -> None:
    pd.read_csv(there / words[0]).head(60).to_csv(there / "few.csv", index=False)
    found = invoke("audit", "few.csv", *words[1:], "--runs", "8", "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert (facts["private"], facts["exceeded"]) == (False, False)
