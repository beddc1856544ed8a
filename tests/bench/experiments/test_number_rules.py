"""Settings of the regressor: only training rows are seen, candidates change one thing, and gains are paired."""

import json

import numpy as np
import pandas as pd
import pytest

from bench.experiments import number_places, number_rules
from justitia.datasets import Dataset
from justitia.postprocessing import number_rows


def fits(settings: str, dataset: str, r2: list[float], violation: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"r2": r2, "violation": violation, "fold": range(len(r2))}).assign(
        settings=settings, dataset=dataset, notion="demographic_parity", epsilon=1.0, seed=0
    )


def test_places_hold_training_rows_of_the_first_fold_only(monkeypatch: pytest.MonkeyPatch) -> None:
    y = pd.Series(np.arange(100.0), name="y")
    sensitive = pd.Series(["a", "b"] * 50, name="group")
    data = Dataset("tiny", pd.DataFrame({"x": y}), y, sensitive, ("a", "b"), "Tiny.", task="number")
    monkeypatch.setattr(number_places, "dataset", lambda _: data)
    _, test = next(iter(data.folds(5)))
    seen = number_places.training_rows("tiny")
    assert len(seen.y) == 80
    assert not set(seen.y) & set(y.iloc[test])
    train, held_out = number_places.inner_split(seen, 0, 0)
    assert sorted([*train, *held_out]) == list(range(80))


def test_every_cell_is_an_inner_one() -> None:
    cells = number_rules.cells(quick=False)
    assert {cell.split for cell in cells} == {"inner"}
    assert len({cell.key for cell in cells}) == len(cells)


def test_a_candidate_changes_a_constant_for_its_own_fit_only() -> None:
    before = number_rows.KEPT
    with number_rules.changed({"KEPT": 0.99, "checks": 2}):
        assert number_rows.KEPT == 0.99
    assert before == number_rows.KEPT
    assert number_rules.plan_settings({"KEPT": 0.99, "checks": 2, "tolerance": 0.1}) == {"checks": 2}


def test_moving_along_the_curve_of_the_default_is_no_gain() -> None:
    looser = json.dumps(number_rules.LOOSER)
    results = pd.concat(
        [
            fits("{}", "communities", [0.3, 0.3], [0.10, 0.10]),
            fits(looser, "communities", [0.4, 0.4], [0.15, 0.15]),  # 0.1 for 0.05: a price of 2
            fits('{"KEPT": 0.8}', "communities", [0.3, 0.3], [0.06, 0.10]),  # better by 2 * 0.04 on one fold of two
            fits("{}", "hours", [0.2, 0.2], [0.10, 0.10]),
            fits('{"KEPT": 0.8}', "hours", [0.2, 0.2], [0.10, 0.10]),
        ]
    )
    assert number_rules.prices(results) == pytest.approx({"communities": 2.0, "hours": 1.0})
    table = number_rules.summarise(results).set_index("settings")
    assert table.loc[looser, "more"] == pytest.approx(0.0)
    assert table.loc['{"KEPT": 0.8}', "more"] == pytest.approx(0.02)  # 0.04 on Communities, 0 on Hours
    assert table.loc['{"KEPT": 0.8}', "error"] == pytest.approx(0.02)
    assert "| KEPT 0.8 | 0.300 / 0.080 | 0.200 / 0.100 |" in number_rules.markdown(results)
