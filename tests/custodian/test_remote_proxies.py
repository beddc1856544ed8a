"""Proxies of the group against a custodian: they are public rows of the client, and never sent by themselves."""

from pathlib import Path

import numpy as np
import pytest
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, N, copied_ledger, frame, make_folder, served

from justitia import DurableLedger, LagrangianDualClassifier, PostProcessingPlan
from justitia.custodian import Custodian
from justitia.privacy.mechanisms import SeededNoise


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_fit_with_a_proxy_against_a_custodian_gives_the_same_model_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer.key").write_text(KEYS["trainer"] + "\n")
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY_FILE", str(tmp_path / "trainer.key"))
    folder = make_folder(tmp_path / "holder")
    random = np.random.default_rng(2)
    proxy = np.where(random.random(N) < 0.8, DATA.sensitive == "a", random.random(N) < 0.5).astype(float)
    settings = {"epsilon": 2.0, "delta": DELTA, "groups": ["a", "b"], "random_state": 0}
    settings |= {"plan": PostProcessingPlan(checks=2), "progress": False}
    copied = copied_ledger(folder, tmp_path / "copy.ledger")
    ledger = DurableLedger(copied, dataset="people", epsilon=5.0, delta=DELTA)
    here = LagrangianDualClassifier(**settings, noise_seed=7)
    here.fit(DATA.X, DATA.y, sensitive_features=frame(LABELS), proxy=proxy, ledger=ledger)
    with served(folder, SeededNoise(7)) as url:
        holder = Custodian(url, population="people", ids=IDS)
        there = LagrangianDualClassifier(**settings).fit(DATA.X, DATA.y, sensitive_features=holder, proxy=proxy)
    np.testing.assert_array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert there.history_.equals(here.history_)
    assert there.certificate_.receipt["number"] == len(ledger.releases) - 1
