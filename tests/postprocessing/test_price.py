"""The price list of a fit: what a tolerance costs, from answers that were released already."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, MomentsPlan, PrivacyLedger, tradeoff
from justitia.datasets import make_synthetic
from justitia.persistence.folder import PRICE_COLUMNS
from justitia.postprocessing.price import FEW_TOLERANCES, TOLERANCES, price_sentence

DATA = make_synthetic(1500, random_state=0)
#: A number that differs between the groups of a feature, and its thirds.
_RNG = np.random.default_rng(0)
TABLE = _RNG.normal(size=(400, 3))
GROUP = np.where(TABLE[:, 1] + 0.5 * _RNG.normal(size=400) > 0, "f", "m")
NUMBER = TABLE[:, 0] + 0.8 * TABLE[:, 1] + np.where(TABLE[:, 1] > 0, 1.0, 0.2) * _RNG.normal(size=400)
CLASSES = np.array(["low", "middle", "top"])[np.digitize(NUMBER, [-0.6, 0.6])]
ENDS = ["violation", "violation_stderr", "corrected", "deployed"]


def fitted(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 4.0, "groups": DATA.groups, "base": LogisticRegression(), "random_state": 0}
    model = LagrangianDualClassifier(**usual | {"noise_seed": 0} | options)
    return model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fitted(tolerance=0.033)


def test_list_has_the_base_then_tolerances_from_loosest_to_strictest(model: LagrangianDualClassifier) -> None:
    table = model.price_
    assert list(table) == ["tolerance", "accuracy", "auc", "positive_rate", *ENDS]
    assert math.isnan(table["tolerance"][0])
    assert not table["corrected"][0]
    assert table["tolerance"][1:].is_monotonic_decreasing
    assert set(table["tolerance"][1:]) <= {0.033, *TOLERANCES}
    assert table.index[table["deployed"]].tolist() == table.index[table["tolerance"] == 0.033].tolist()


def test_every_violation_but_the_bases_is_the_tolerance(model: LagrangianDualClassifier) -> None:
    corrected = model.price_[model.price_["corrected"]]
    assert corrected["violation"].tolist() == pytest.approx(corrected["tolerance"].tolist(), abs=0.01)
    assert model.price_["violation"][0] > corrected["tolerance"].max()
    assert corrected["accuracy"].iloc[0] > corrected["accuracy"].iloc[-1] + 0.02


def test_deployed_row_is_the_last_row_of_the_history(model: LagrangianDualClassifier) -> None:
    (row,), last = model.price_[model.price_["deployed"]].to_dict("records"), model.history_.iloc[-1]
    assert row["accuracy"] == last["accuracy"]
    assert row["auc"] == last["auc"]
    assert row["violation_stderr"] == last["violation_error"]
    gaps = last[[name for name in model.history_ if name.startswith("noisy_gap")]]
    assert row["violation"] == pytest.approx(np.ptp(gaps.to_numpy(dtype=float)))


def test_rows_are_those_of_a_curve_on_the_same_answers(model: LagrangianDualClassifier) -> None:
    grid = [0.033, 0.05, 0.1]
    unfitted = LagrangianDualClassifier(**model.get_params(deep=False))
    curve = tradeoff(unfitted, DATA.X, DATA.y, sensitive_features=DATA.sensitive, tolerances=grid)
    for one, deployed in zip(curve.models, grid, strict=True):
        table = one.price_.set_index("tolerance")
        assert table.index[table["deployed"]].tolist() == [deployed]
        rows = curve.table.set_index("tolerance")["accuracy"]
        shared = sorted({deployed, 0.05, 0.1})
        assert table["accuracy"][shared].tolist() == pytest.approx(rows[shared].tolist(), abs=2e-3)


def test_list_queries_nothing_and_changes_nothing() -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    model = LagrangianDualClassifier(epsilon=4.0, groups=DATA.groups, base=LogisticRegression(), random_state=0)
    with_list = model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert [one.purpose for one in ledger.releases] == ["moments", *["decisions"] * 4]
    assert len(with_list.price_) > 5


def test_base_within_the_tolerance_is_the_deployed_model() -> None:
    table = fitted(tolerance=0.9).price_
    assert not table["corrected"][:2].any()
    assert table["deployed"].tolist().index(True) == 1
    assert table["accuracy"][0] == table["accuracy"][1]


def test_standard_error_grows_with_the_distance_from_checked_decisions(model: LagrangianDualClassifier) -> None:
    table = model.price_
    known = table.loc[table["deployed"], "violation_stderr"].item()
    assert (table["violation_stderr"] >= known).all()
    assert table["violation_stderr"][0] > known


@pytest.mark.parametrize(
    ("options", "tolerances"),
    [
        ({"ratio": 0.8}, 0),
        ({"at": "scores"}, len(FEW_TOLERANCES)),
        ({"notion": "predictive_parity", "tolerance": 0.02}, 3),
        ({"notion": ["demographic_parity", "equal_opportunity"], "tolerance": [0.05, 0.1]}, len(TOLERANCES)),
        ({"quota": 0.3, "tolerance": 0.05}, len(TOLERANCES)),
        ({"notion": "equalized_odds", "epsilon": math.inf}, len(TOLERANCES)),
    ],
)
def test_every_goal_has_a_list_of_bounded_length(options: dict[str, Any], tolerances: int) -> None:
    table = fitted(**options).price_
    assert table["deployed"].sum() == 1
    assert 2 <= len(table) <= tolerances + 2
    assert np.isfinite(table.drop(columns="tolerance").to_numpy(dtype=float)).all()


def test_rates_with_tolerances_of_their_own_keep_their_proportions() -> None:
    model = fitted(notion=["demographic_parity", "equal_opportunity"], tolerance=[0.05, 0.1])
    table = model.price_
    (deployed,) = table.index[table["deployed"]]
    assert table["tolerance"][deployed] == 0.1
    # the rate that is farthest beyond its tolerance has half of the tolerance, or all of it
    ratio = (table["violation"] / table["tolerance"])[table["corrected"] & (table["tolerance"] > 0.02)]
    assert all(min(abs(one - 0.5), abs(one - 1)) < 0.15 for one in ratio)


def test_classes_and_numbers_have_their_own_measures() -> None:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": ["f", "m"], "random_state": 0, "noise_seed": 0}
    classes = LagrangianDualClassifier(base=LogisticRegression(), tolerance=0.05, **usual)
    classes.fit(TABLE, CLASSES, sensitive_features=GROUP)
    assert list(classes.price_) == ["tolerance", "accuracy", *ENDS]
    for notion in ("demographic_parity", "mean_parity", "equal_error"):
        number = LagrangianDualRegressor(notion, base=LinearRegression(), **usual)
        number.fit(TABLE, NUMBER, sensitive_features=GROUP)
        table = number.price_
        assert list(table) == ["tolerance", "r2", "rmse", *ENDS]
        deviation = np.sqrt(np.mean((NUMBER - NUMBER.mean()) ** 2))
        assert (deviation * np.sqrt(1 - table["r2"])).tolist() == pytest.approx(table["rmse"].tolist())


def test_network_has_no_list() -> None:
    pytest.importorskip("torch")
    plan = MomentsPlan(warmup_steps=4, rounds=4, public_steps=1, checks=2, batch_size=64)
    model = fitted().set_params(engine="moments", base=None, plan=plan)
    model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert not hasattr(model, "price_")  # that of the earlier fit is gone, too
    assert price_sentence(model) == ""


def test_saved_list_comes_back_as_it_was(model: LagrangianDualClassifier, tmp_path: Path) -> None:
    loaded = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(loaded.price_, model.price_)
    assert any(list(model.price_) == names for names in PRICE_COLUMNS)
    assert "NaN" not in (tmp_path / "model" / "model.json").read_text()


@pytest.mark.parametrize(
    ("column", "value"), [("accuracy", "high"), ("deployed", 1.0), ("accuracy", None), ("violation", [0.1])]
)
def test_damaged_list_is_refused(model: LagrangianDualClassifier, tmp_path: Path, column: str, value: Any) -> None:
    folder = model.save(tmp_path / "model")
    facts = json.loads((folder / "model.json").read_text())
    facts["price"][column][0] = value
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="damaged"):
        LagrangianDualClassifier.load(folder)


def test_sentence_compares_base_deployed_and_a_looser_tolerance(model: LagrangianDualClassifier) -> None:
    sentence, table = price_sentence(model), model.price_.set_index("tolerance")
    base, deployed = model.price_.iloc[0], table.loc[0.033]
    assert f"uncorrected {base['accuracy']:.3f}, gap {100 * base['violation']:.1f} +- " in sentence
    assert f"corrected {deployed['accuracy']:.3f}, gap {100 * deployed['violation']:.1f} +- " in sentence
    assert f"at tolerance 0.08: {table.loc[0.08, 'accuracy']:.3f}" in sentence  # the first of at least twice 0.033


def test_sentence_without_privacy_is_empty() -> None:
    assert price_sentence(fitted(epsilon=math.inf)) == ""
