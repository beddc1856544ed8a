"""Several classes and numbers against a custodian: the same models and measurements as in memory, or one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, copied_ledger, frame, make_folder, served

from justitia import (
    DurableLedger,
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    PostProcessingPlan,
    PrivacyLedger,
    measure,
)
from justitia.cli import cli
from justitia.custodian import Custodian
from justitia.privacy.mechanisms import SeededNoise

pytestmark = pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")

SCORE = DATA.X["x0"].to_numpy() + 0.3 * np.sin(np.arange(len(DATA.X)))
TARGETS: dict[str, Any] = {"classes": np.array(["low", "middle", "high"])[np.digitize(SCORE, [-0.5, 0.5])]}
TARGETS["number"] = SCORE
KINDS = {"classes": LagrangianDualClassifier, "number": LagrangianDualRegressor}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_key("trainer", tmp_path, monkeypatch)


def use_key(client: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / f"{client}.key"
    file.write_text(KEYS[client] + "\n")
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY_FILE", str(file))


def local_ledger(folder: Path, tmp_path: Path) -> DurableLedger:
    return DurableLedger(copied_ledger(folder, tmp_path / "copy.ledger"), dataset="people", epsilon=5.0, delta=DELTA)


def model(kind: str, **options: Any) -> Any:
    settings = {"epsilon": 2.0, "delta": DELTA, "groups": ["a", "b"], "random_state": 0, "tolerance": 0.2}
    return KINDS[kind](**settings, plan=PostProcessingPlan(checks=2), **options)


@pytest.mark.parametrize("kind", TARGETS)
def test_fit_of_classes_and_numbers_against_a_custodian_is_that_in_memory(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    here = model(kind, noise_seed=7).fit(
        DATA.X, TARGETS[kind], sensitive_features=frame(LABELS), ledger=local_ledger(folder, tmp_path)
    )
    with served(folder, SeededNoise(7)) as url:
        holder = Custodian(url, population="people", ids=IDS)
        there = model(kind).fit(DATA.X, TARGETS[kind], sensitive_features=holder)
    np.testing.assert_array_equal(there.predict(DATA.X), here.predict(DATA.X))
    assert there.history_.equals(here.history_)
    assert there.certificate_.releases == here.certificate_.releases
    assert url in there.certificate_.custodian


@pytest.mark.parametrize("kind", TARGETS)
def test_measurement_of_classes_and_numbers_against_a_custodian_is_that_in_memory(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    labels = TARGETS[kind]
    decided = np.roll(labels, 1)
    asked: dict[str, Any] = {"task": kind, "delta": DELTA, "threshold": 0.9}
    ledger = local_ledger(folder, tmp_path)
    here = measure(
        labels, decided, sensitive_features=frame(LABELS), groups=["a", "b"], ledger=ledger, noise_seed=3, **asked
    )
    with served(folder, SeededNoise(3)) as url:
        there = measure(labels, decided, sensitive_features=Custodian(url, population="people", ids=IDS), **asked)
    assert there.table.equals(here.table)
    assert there.violations == here.violations
    assert len(DurableLedger.open(folder / "populations" / "people.ledger").releases) == 1


@pytest.mark.parametrize("kind", TARGETS)
def test_client_that_may_only_measure_two_classes_gets_one_sentence_before_any_debit(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_key("analyst", tmp_path, monkeypatch)
    own = PrivacyLedger(epsilon=2.0, delta=DELTA)
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        with pytest.raises(PermissionError, match="with the role 'train', got 'measure'"):
            measure(TARGETS[kind], TARGETS[kind], sensitive_features=holder, task=kind, delta=DELTA, ledger=own)
    assert own.releases == ()
    assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_that_are_too_wide_for_the_custodian_are_refused_before_any_debit(kind: str, folder: Path) -> None:
    own = PrivacyLedger(epsilon=2.0, delta=DELTA)
    with served(folder, largest_width=3) as url:
        holder = Custodian(url, population="people", ids=IDS)
        with pytest.raises(ValueError, match="expected rows of at most 3 numbers for the custodian, got"):
            model(kind).fit(DATA.X, TARGETS[kind], sensitive_features=holder, ledger=own)
    assert own.releases == ()
    assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()


@pytest.mark.parametrize("kind", TARGETS)
def test_commands_of_classes_and_numbers_query_the_custodian(kind: str, folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    DATA.X.assign(y=TARGETS[kind], id=IDS).to_csv(rows, index=False)
    with served(folder) as url:
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--json")
        train = ("train", rows, "--target", "y", "--tolerance", 0.3, "--out", tmp_path / "model", "--small-groups")
        evaluate = ("evaluate", tmp_path / "model", rows, "--epsilon", 0.5)
        measured = ("measure", rows, "--decision", "y", "--epsilon", 0.5)
        for words in (train, evaluate, measured):
            found = CliRunner().invoke(cli, [str(word) for word in (*words, *asked)])
            assert found.exit_code == 0, found.output
            assert url in json.loads(found.stdout)["certificate"]["custodian"]
