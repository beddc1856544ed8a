"""A folder of small files, a plan that trains in a blink, and a way to run a command in it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from running import ROWS, TINY, Run, income, invoke

from justitia import DurableLedger, Monitor
from justitia.cli import training
from justitia.datasets import make_synthetic
from justitia.training.plan import Plan


@pytest.fixture(scope="module", autouse=True)
def always_quick(quick_fits: None) -> None:
    """No test here is about the default base or the price list."""


@pytest.fixture(autouse=True)
def tiny_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plan of the user's, the plan of the tests."""
    real = training.command_plan

    def tiny(path: Path | None, engine: str, *, small_groups: bool) -> Plan:
        if path is not None or engine not in TINY:
            return real(path, engine, small_groups=small_groups)
        return replace(TINY[engine], share_sizes=0.0) if small_groups and engine == "post-processing" else TINY[engine]

    monkeypatch.setattr(training, "command_plan", tiny)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that examples name: tables, a secret file, models, a curve and a ledger."""
    folder = tmp_path_factory.mktemp("files")
    table = income(ROWS, 0)
    table.drop(columns="age").to_csv(folder / "income.csv", index=False)
    income(300, 1).drop(columns="age").to_csv(folder / "test.csv", index=False)
    numbered = table.assign(id=[f"p{row}" for row in range(ROWS)])
    numbered.drop(columns=["income", "sex", "age"]).to_csv(folder / "new.csv", index=False)
    numbered.drop(columns=["sex", "age"]).to_csv(folder / "features.csv", index=False)
    numbered[["id", "sex", "age"]][::-1].to_csv(folder / "secret.csv", index=False)
    other = income(300, 2)
    hired = {"points": other["hours"], "qualified": other["income"] == ">50K", "hired": other["hours"] > 0}
    other[["sex"]].assign(**hired).to_csv(folder / "hired.csv", index=False)
    people = make_synthetic(200, random_state=0)
    pd.concat([people.X, people.y, people.sensitive], axis=1).to_csv(folder / "people.csv", index=False)
    DurableLedger(folder / "people.ledger", dataset="people", epsilon=3.0, delta=1e-5)
    Monitor.create(folder / "nights", limit=0.9, groups=["Female", "Male"], planned=30, people="new")
    common = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", 0)
    made = invoke("train", folder / "income.csv", *common, "--out", folder / "model")
    assert made.exit_code == 0, made.output
    curve = ("--tolerances", "0,0.1", "--choose", "0.3", "--out", folder / "curve")
    made = invoke("tradeoff", folder / "income.csv", *common, *curve)
    assert made.exit_code == 0, made.output
    return folder


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them to work in."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here: Path) -> Run:
    return invoke
