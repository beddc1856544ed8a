"""Decisions of rows near the line by a public coin: a hash of the row, so that each row keeps its decision."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier
from justitia.learners.base import Inputs
from justitia.learners.calibration import Calibration
from justitia.metrics.exact import violation
from justitia.persistence.onnx import to_onnx
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.correction import Correction, Rule

KEY = bytes(range(16))
WIDTH = 0.1
#: The group is a feature, and the other feature says much about the label of one group and little about the other's.
_RNG = np.random.default_rng(0)
N = 3000
GROUP = _RNG.integers(0, 2, N)
SIGNAL = _RNG.normal(size=N)
LABEL = (_RNG.random(N) < 1 / (1 + np.exp(-np.where(GROUP == 1, 4 * SIGNAL, 0.8 * SIGNAL - 0.3)))).astype(int)
TABLE = pd.DataFrame({"signal": SIGNAL, "home": GROUP, "both": SIGNAL * GROUP})


def fitted(seed: int = 0, **options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"tolerance": 0.01, "groups": [0, 1], "base": LogisticRegression(), "randomize": WIDTH}
    model = LagrangianDualClassifier("equalized_odds", random_state=seed, noise_seed=seed, **usual | options)
    return model.fit(TABLE, LABEL, sensitive_features=GROUP)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fitted()


def test_toss_is_the_keyed_hash_of_the_row() -> None:
    row = np.array([[1.5, -2.0]], dtype=np.float32)
    digest = hashlib.blake2b(row.tobytes(), key=KEY, digest_size=8).digest()
    assert Coin(WIDTH, KEY).toss(row)[0] == int.from_bytes(digest, "little") / 2**64


def test_tosses_are_uniform_and_differ_between_keys() -> None:
    rows = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
    first, second = (Coin.from_seed(WIDTH, seed).toss(rows) for seed in (0, 1))
    assert kstest(first, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert first.tolist() == Coin.from_seed(0.3, 0).toss(rows).tolist()


def test_equal_rows_get_equal_tosses_whatever_the_sign_of_zero() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0]], dtype=np.float32)
    assert np.ptp(Coin(WIDTH, KEY).toss(rows)) == 0


class _Given:
    """A base that gives every row this probability."""

    def __init__(self, p: float) -> None:
        self.p = p

    def predict(self, inputs: Inputs) -> NDArray[np.float64]:
        return np.full(len(inputs.numbers), self.p)


@pytest.mark.parametrize(("p", "share"), [(0.44, 0.0), (0.475, 0.25), (0.5, 0.5), (0.52, 0.7), (0.56, 1.0)])
def test_share_of_positive_decisions_rises_linearly_within_the_band(p: float, share: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 2)).astype(np.float32)
    base: Any = _Given(p)
    rule = Rule(base, Calibration(1.0, 1.0, 0.0), Correction(), 0.5, coin=Coin(WIDTH, KEY))
    assert np.mean(rule.margin(Inputs(rows, rows)) > 0) == pytest.approx(share, abs=0.012)


def test_decision_depends_on_the_row_alone(model: LagrangianDualClassifier, tmp_path: Path) -> None:
    all_rows = model.predict(TABLE)
    order = np.random.default_rng(0).permutation(N)
    assert model.predict(TABLE.iloc[order]).tolist() == all_rows[order].tolist()
    each = [model.predict(TABLE.iloc[[i]])[0] for i in range(40)]
    assert each == all_rows[:40].tolist()
    twice = model.predict(pd.concat([TABLE, TABLE]))
    assert twice.tolist() == [*all_rows, *all_rows]
    assert LagrangianDualClassifier.load(model.save(tmp_path / "model")).predict(TABLE).tolist() == all_rows.tolist()


def test_container_does_not_matter() -> None:
    model = LagrangianDualClassifier(groups=[0, 1], base=LogisticRegression(), randomize=0.3, random_state=0)
    model.fit(TABLE.to_numpy(), LABEL, sensitive_features=GROUP)
    expected = model.predict(TABLE.to_numpy()).tolist()
    assert model.predict(TABLE.to_numpy().tolist()).tolist() == expected
    assert model.predict(np.asfortranarray(TABLE.to_numpy())).tolist() == expected


def test_probabilities_are_on_the_side_of_the_decision(model: LagrangianDualClassifier) -> None:
    assert ((model.predict_proba(TABLE)[:, 1] > 0.5) == model.predict(TABLE)).all()


def test_other_seed_tosses_other_coins_and_the_same_seed_the_same(model: LagrangianDualClassifier) -> None:
    again, other = fitted(), fitted(seed=1)
    assert again.rule_.coin == model.rule_.coin
    assert other.rule_.coin != model.rule_.coin
    assert again.predict(TABLE).tolist() == model.predict(TABLE).tolist()


def test_equalized_odds_where_the_group_is_a_feature_is_met_better_with_a_coin() -> None:
    def gap(model: LagrangianDualClassifier) -> float:
        predicted = model.predict(TABLE)
        return violation(LABEL, predicted, sensitive_features=GROUP, notion="equalized_odds", groups=[0, 1])

    def mean_gap(width: float) -> float:
        return float(np.mean([gap(fitted(seed, randomize=width, tolerance=0.0)) for seed in range(8)]))

    assert mean_gap(WIDTH) < 0.6 * mean_gap(0.0)


def test_width_zero_is_no_coin() -> None:
    model = fitted(randomize=0.0)
    assert model.rule_.coin is None
    assert not any("coin" in remark for remark in model.certificate_.remarks)


def test_certificate_says_how_many_decisions_the_coin_makes(model: LagrangianDualClassifier) -> None:
    (sentence,) = (one for one in model.certificate_.remarks if "coin" in one)
    share = float(re.findall(r"about ([\d.]+)% of decisions", sentence)[0]) / 100
    others = [fitted_rule(model, seed).predict(TABLE) for seed in range(30)]
    differ = np.mean(np.ptp(others, axis=0) > 0)
    assert 0.5 * share < differ < share + 0.1


def fitted_rule(model: LagrangianDualClassifier, seed: int) -> LagrangianDualClassifier:
    """The same model with another coin."""
    made = copy.deepcopy(model)
    made.rule_.coin = Coin.from_seed(WIDTH, 1000 + seed)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {"randomize": 1.5},
        {"randomize": -0.1},
        {"quota": 0.3},
        {"at": "scores"},
        {"tolerance": None, "ratio": 0.8},
        {"notion": "predictive_parity"},
        {"engine": "moments", "base": None},
    ],
)
def test_what_a_coin_does_not_go_with_is_refused(options: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"groups": [0, 1], "randomize": WIDTH}
    with pytest.raises(ValueError, match="randomize"):
        LagrangianDualClassifier(**usual | options).fit(TABLE, LABEL, sensitive_features=GROUP)


def test_coin_among_several_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="3 classes"):
        LagrangianDualClassifier(groups=[0, 1], randomize=WIDTH).fit(TABLE, np.arange(N) % 3, sensitive_features=GROUP)


def test_export_of_a_coin_to_onnx_is_refused(model: LagrangianDualClassifier, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="hash"):
        to_onnx(model, tmp_path / "model.onnx")


@pytest.mark.parametrize(("name", "value"), [("key", "00"), ("key", "no hex"), ("width", 2.0), ("width", "wide")])
def test_damaged_coin_is_refused(model: LagrangianDualClassifier, tmp_path: Path, name: str, value: Any) -> None:
    folder = model.save(tmp_path / "model")
    facts = json.loads((folder / "model.json").read_text())
    facts["rule"]["coin"][name] = value
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="damaged"):
        LagrangianDualClassifier.load(folder)
