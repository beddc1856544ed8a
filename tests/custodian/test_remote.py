"""Training and measuring against a custodian: the same numbers as in memory, paid at its ledger, named in certificates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holding import DATA, DELTA, IDS, KEYS, LABELS, N, copied_ledger, frame, make_folder, served

from justitia import BudgetExceeded, DurableLedger, LagrangianDualClassifier, MomentsPlan, PluginPlan, PrivacyLedger
from justitia import measure, private_search, tradeoff
from justitia.custodian import Custodian
from justitia.privacy.errors import LedgerError
from justitia.privacy.mechanisms import SeededNoise

MOMENTS = MomentsPlan(warmup_steps=20, rounds=5, public_steps=2, checks=2, batch_size=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trainer.key"
    file.write_text(KEYS["trainer"] + "\n")
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY_FILE", str(file))


def model(**options: Any) -> LagrangianDualClassifier:
    settings = {"epsilon": 2.0, "delta": DELTA, "groups": ["a", "b"], "random_state": 0, "plan": PluginPlan(checks=2)}
    return LagrangianDualClassifier(**(settings | options))


def local_ledger(folder: Path, tmp_path: Path) -> DurableLedger:
    return DurableLedger(copied_ledger(folder, tmp_path / "copy.ledger"), dataset="people", epsilon=5.0, delta=DELTA)


@pytest.mark.parametrize("options", [{}, {"module": (4,), "plan": MOMENTS}], ids=["plugin", "moments"])
@pytest.mark.filterwarnings("ignore:the noise in the rates")
@pytest.mark.filterwarnings("ignore:even groups")
def test_fit_against_a_custodian_gives_the_same_model_as_in_memory(
    options: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    ledger = local_ledger(folder, tmp_path)
    here = model(noise_seed=7, **options).fit(DATA.X, DATA.y, sensitive_features=frame(LABELS), ledger=ledger)
    with served(folder, SeededNoise(7)) as url:
        there = model(**options).fit(DATA.X, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS))
    np.testing.assert_array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert there.history_.equals(here.history_)
    for name in ("epsilon", "delta", "spent_epsilon", "releases", "statement", "groups"):
        assert getattr(there.certificate_, name) == getattr(here.certificate_, name)
    assert url in there.certificate_.custodian
    assert there.certificate_.receipt["number"] == len(ledger.releases) - 1
    DurableLedger.open(folder / "populations" / "people.ledger").verify(there.certificate_.receipt)
    assert "custodian" in str(there.certificate_)
