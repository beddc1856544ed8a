"""The stress suite: what is right, people as they are described, and tables from rows that are made up."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.experiments.holds import claims as holds_claims
from bench.experiments.holds import markdown as holds_markdown
from bench.experiments.stress import MEASURES, cells, claims, markdown
from bench.experiments.stress_cases import CASES, Case
from bench.experiments.stress_data import Healthy, absurd_cells, silent_positives


def test_right_is_good_numbers_or_the_words() -> None:
    case = Case("some", good={"lost": (-1, 0.1)}, says="small|few")
    assert case.right({"lost": 0.05, "remarks": ""})
    assert not case.right({"lost": 0.2, "remarks": "all is well"})
    assert case.right({"lost": 0.2, "remarks": "with few people"})
    assert case.wanted() == 'accuracy lost at most 0.1, or a remark with "small or few"'


def test_people_are_as_they_are_described() -> None:
    generator = np.random.default_rng(0)
    people = Healthy(4000, 5, shares=(0.8, 0.2), positives=0.3).draw(4000, generator)
    assert people.X.shape == (4000, 5)
    assert people.y.mean() == pytest.approx(0.3, abs=0.03)
    assert (people.group == "g01").mean() == pytest.approx(0.2, abs=0.03)
    assert (absurd_cells(people, generator).X > 1e11).to_numpy().sum() == 4
    silent = silent_positives(people, generator).group.isna()
    assert silent[people.y == 0].sum() == 0
    assert silent[people.y == 1].mean() == pytest.approx(0.8, abs=0.05)


def made_up(**changed: Any) -> pd.DataFrame:
    rows = []
    for cell in cells(quick=True):
        measured: dict[str, Any] = dict.fromkeys(MEASURES, 0.0) | {"remarks": "", "over majority": 0.2}
        measured |= {"plain accuracy": 0.8} | changed
        rows.append(cell.identity | measured)
    return pd.DataFrame(rows)


def test_table_has_a_row_for_every_case_and_counts_what_is_right() -> None:
    results = made_up()
    text = markdown(results, results.head(0))
    assert text.count("\n") == len(CASES) + 1
    wrong = {name for name, case in CASES.items() if case.says and not case.good}
    every, alarms = claims(results)
    assert not every.confirmed
    assert all(name in every.numbers for name in wrong)
    assert alarms.confirmed
    assert not claims(made_up(remarks="something is wrong"))[1].confirmed


def test_what_was_asked_holds_up_to_chance() -> None:
    facts = {"dataset": "bank", "notion": "demographic_parity", "accuracy": 0.8, "expected": 0.04, "spread": 0.02}
    rows = [facts | {"settings": f'{{"tolerance": {t}}}', "violation": v} for t, v in ((0.02, 0.03), (0.05, 0.09))]
    rows.append(
        facts | {"settings": '{"at": "scores"}', "violation": 0.01, "distance": 0.05, "pooled": 0.03, "auc": 0.9}
    )
    results = pd.DataFrame(rows)
    held, distance = holds_claims(results)
    assert "1 of 2 cells (within one: 1), not Bank demographic parity at 0.05" in held.numbers
    assert distance.confirmed
    assert not holds_claims(results.assign(pooled=0.2))[1].confirmed
    assert "0.800 / 0.090" in holds_markdown(results)
