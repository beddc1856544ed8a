"""``justitia monitor``: verdict first, alerts as exit codes and JSON, and nothing sensitive among public columns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import assert_refused, invoke

from justitia import Monitor

GROUPS = ("--sensitive", "sex", "--groups", "a,b")
PLAN = ("--limit", 0.1, "--planned", 5, "--people", "new")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, gap, moved in (("same", 0.0, 0.0), ("unfair", 0.4, 0.0), ("moved", 0.0, 2.0)):
        sex = rng.choice(["a", "b"], 2000)
        hired = (rng.uniform(size=2000) < np.where(sex == "a", 0.5, 0.5 - gap)).astype(int)
        rows = {"hired": hired, "sex": sex, "income": rng.normal(moved, 1, 2000), "points": rng.uniform(size=2000)}
        pd.DataFrame(rows).to_csv(f"{name}.csv", index=False)
    return tmp_path


def create(*words: Any) -> Any:
    return invoke("monitor", "create", "nights", *PLAN, *GROUPS, *words)


def add(data: str, *words: Any) -> Any:
    return invoke("monitor", "add", "nights", data, "--decision", "hired", *GROUPS, *words)


def test_alerts_are_exit_codes_and_json_and_the_page_shows_them(here: Path) -> None:
    watched = ("--reference", "same.csv", "--watch", "income", "--score", "points")
    assert create(*watched).exit_code == 0
    names = ("--score", "points")
    found = [add(f"{name}.csv", *names, "--when", name) for name in ("same", "unfair", "moved")]
    assert [one.exit_code for one in found] == [0, 5, 5]
    assert found[0].stdout.startswith("ok ")
    assert found[1].stdout.startswith("ALERT")
    assert "limit 10.0; above the limit" in found[1].stdout
    assert "drift of income" in found[2].stdout
    again = add("unfair.csv", *names, "--when", "again", "--json")
    assert json.loads(again.stdout)["alerts"] == ["limit"]
    shown = invoke("monitor", "show", "nights", "--out", "nights.html")
    assert shown.exit_code == 5
    assert "4 of 5 planned" in shown.stdout
    assert "unfair" in (here / "nights.html").read_text(encoding="utf-8")
    facts = json.loads(invoke("monitor", "show", "nights", "--json").stdout)
    assert [one["alerts"] for one in facts["measurements"]] == [[], ["limit"], ["drift of income"], ["limit"]]
    assert add("same.csv", *names).exit_code == 0
    assert_refused(add("same.csv", *names), 3, "All 5 planned measurements")


def test_sensitive_columns_are_not_watched_and_groups_stay_the_same(here: Path) -> None:
    for words in (("--watch", "sex"), ("--score", "sex")):
        assert_refused(create("--reference", "same.csv", *words), 2, "'sex' is sensitive")
    assert not (here / "nights").exists()
    assert create("--reference", "same.csv", "--watch", "income").exit_code == 0
    wrong = invoke(
        "monitor", "add", "nights", "same.csv", "--decision", "hired", "--sensitive", "sex", "--groups", "a,c"
    )
    assert_refused(wrong, 2, "expected the groups of the monitor")
    crossed = ("--sensitive", "income", "--groups", "a,b")
    hidden = invoke("monitor", "add", "nights", "same.csv", "--decision", "hired", *crossed)
    assert_refused(hidden, 2, "expected the groups of the monitor")
    assert Monitor(here / "nights").entries == ()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--watch", "income"), "expected --reference beside --watch"),
        (("--reference", "same.csv"), "expected --reference beside --watch"),
        (("--window", "0"), "window to be a whole number"),
        (("--reference", "same.csv", "--watch", "nothing"), "'nothing'"),
    ],
)
def test_wrong_settings_are_one_sentence(words: tuple[str, ...], part: str, here: Path) -> None:
    assert_refused(create(*words), 2, part)
    assert not (here / "nights").exists()


def test_groups_are_needed_and_a_folder_is_not_replaced(here: Path) -> None:
    inferred = invoke("monitor", "create", "nights", *PLAN, "--sensitive", "sex", "--groups", "infer")
    assert_refused(inferred, 2, "expected --sensitive and --groups")
    assert_refused(invoke("monitor", "show", "nights"), 2, "expected the folder of a monitor")
    (here / "nights").mkdir()
    assert_refused(create(), 2, "exists")
