"""``--person``: people with several rows, and the list of groups that has to be named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import invoke

from justitia.cli.errors import BAD_INPUT, OK

N = 120


@pytest.fixture
def several(tmp_path: Path) -> dict[str, Path]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=N)
    table = pd.DataFrame({"x": x, "z": generator.normal(size=N), "y": (x > 0).astype(int), "id": np.arange(N) // 4})
    table["group"] = np.where(generator.random(N) < 0.5, "a", "b")
    paths = {name: tmp_path / f"{name}.csv" for name in ("people", "features", "secret")}
    table.to_csv(paths["people"], index=False)
    table.drop(columns="group").to_csv(paths["features"], index=False)
    table.groupby("id")["group"].first().reset_index().to_csv(paths["secret"], index=False)
    (tmp_path / "plan.toml").write_text("rounds = 6\nwarmup_steps = 5\nchecks = 2\n")
    return paths | {"plan": tmp_path / "plan.toml", "out": tmp_path / "model"}


def trained(several: dict[str, Path], data: str, *words: str) -> Any:
    fixed = ["--target", "y", "--delta", "0.001", "--epsilon", "8", "--hidden", "4", "--plan", str(several["plan"])]
    return invoke("train", str(several[data]), *fixed, "--out", str(several["out"]), *words)


def test_train_without_groups_at_a_finite_epsilon_is_refused_and_writes_nothing(several: dict[str, Path]) -> None:
    done = trained(several, "people", "--sensitive", "group")
    assert done.exit_code == BAD_INPUT
    assert "expected the public list of groups, got none; pass --groups A,B" in " ".join(done.stderr.split())
    assert not several["out"].exists()


def test_train_with_groups_inferred_by_name_says_first_what_is_not_protected(several: dict[str, Path]) -> None:
    done = trained(several, "people", "--sensitive", "group", "--groups", "infer", "--json")
    assert done.exit_code == OK
    facts = json.loads(done.stdout)
    assert facts["certificate"]["statement"].startswith("Not protected: the list of groups")
    assert json.loads((several["out"] / "training.json").read_text())["groups"] == ["group=a,b"]
    assert json.loads((several["out"] / "model.json").read_text())["parameters"]["groups"] == "infer"


def test_train_with_persons_promises_to_persons_and_leaves_ids_out_of_the_features(several: dict[str, Path]) -> None:
    done = trained(several, "people", "--sensitive", "group", "--groups", "a,b", "--person", "id", "--json")
    assert done.exit_code == OK, done.stderr
    facts = json.loads(done.stdout)
    assert facts["certificate"]["unit"] == "person"
    assert (facts["columns"], facts["person"]) == (2, "id")
    measured = invoke("evaluate", str(several["out"]), str(several["people"]), "--delta", "0.001", "--json")
    assert measured.exit_code == OK, measured.stderr
    assert json.loads(measured.stdout)["certificate"]["unit"] == "person"
    by_row = invoke(
        "evaluate", str(several["out"]), str(several["people"]), "--delta", "0.001", "--person", "", "--json"
    )
    assert json.loads(by_row.stdout)["certificate"]["unit"] == "row"


def test_keys_that_repeat_are_refused_unless_they_name_persons(several: dict[str, Path]) -> None:
    joined = ["--sensitive-file", str(several["secret"]), "--key", "id", "--groups", "a,b"]
    refused = trained(several, "features", *joined)
    assert refused.exit_code == BAD_INPUT
    assert "or pass --person id so that a person's rows are protected together" in " ".join(refused.stderr.split())
    done = trained(several, "features", *joined, "--person", "id", "--json")
    assert done.exit_code == OK, done.stderr
    assert json.loads(done.stdout)["certificate"]["unit"] == "person"


@pytest.mark.parametrize(("column", "sentence"), [("idd", "did you mean 'id'?"), ("empty", "rows of")])
def test_ids_that_cannot_be_used_are_refused_in_one_sentence(
    several: dict[str, Path], column: str, sentence: str
) -> None:
    table = pd.read_csv(several["people"]).assign(empty=[None] * 3 + [1] * (N - 3))
    table.to_csv(several["people"], index=False)
    done = trained(several, "people", "--sensitive", "group", "--groups", "a,b", "--person", column)
    assert done.exit_code == BAD_INPUT
    assert sentence in done.stderr
    assert not several["out"].exists()


def test_compare_protects_people_with_all_their_rows(several: dict[str, Path]) -> None:
    files = ["--data", str(several["people"]), "--train", str(several["people"]), "--target", "y"]
    people = ["--sensitive", "group", "--groups", "a,b", "--person", "id", "--delta", "0.001"]
    done = invoke("compare", *files, *people, "--method", "uncorrected", "--method", "post-processing")
    assert done.exit_code == 0, done.output
    assert "of any one person" in " ".join(done.stdout.split())
