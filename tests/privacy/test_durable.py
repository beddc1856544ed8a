"""A ledger in a file: costs survive it, the budget outlives the process, and it exports what it holds."""

import copy
import json
import math
import pickle
import threading
from pathlib import Path
from typing import Any, get_args

import pytest
from ledger_files import SIGMA, inserted, opened, release

from justitia import BudgetExceeded, DurableLedger, PrivacyLedger
from justitia.exceptions import LedgerError
from justitia.privacy.accounting import (
    COST_KINDS,
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    cost_from_dict,
    cost_to_dict,
)
from justitia.privacy.ledger import Release
from justitia.privacy.vault import SensitiveVault

SAMPLES: list[Cost] = [
    GaussianCost(0.1 + 0.2),
    GaussianCost(1 / 3 + 20),
    RandomizedResponseCost(math.pi / 10, 3),
    SelectionCost(20 / 3, 0.1, 1 / 9),
    UnboundedCost(),
]


# --- costs in files


def test_samples_hold_every_class_of_cost() -> None:
    assert {type(cost) for cost in SAMPLES} == set(get_args(Cost)) == set(COST_KINDS.values())


@pytest.mark.parametrize("cost", SAMPLES)
def test_cost_through_json_is_the_same_to_the_last_bit(cost: Cost) -> None:
    assert cost_from_dict(json.loads(json.dumps(cost_to_dict(cost)))) == cost


@pytest.mark.parametrize("facts", [{}, {"kind": "magic"}, {"kind": "gaussian"}, {"kind": "gaussian", "sigma": 1.0}])
def test_cost_of_unknown_data_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        cost_from_dict(facts)


@pytest.mark.parametrize("cost", SAMPLES)
def test_composition_over_a_reloaded_ledger_equals_composition_in_memory(tmp_path: Path, cost: Cost) -> None:
    memory = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    for k in range(3):
        opened(tmp_path, epsilon=math.inf).debit(release(cost))
        memory.debit(release(cost))
        assert opened(tmp_path, epsilon=math.inf).epsilon() == memory.epsilon()
        assert opened(tmp_path, epsilon=math.inf).costs() == {cost: k + 1}


def test_mixture_over_a_reloaded_ledger_equals_the_one_in_memory(tmp_path: Path) -> None:
    memory, durable = PrivacyLedger(epsilon=20.0, delta=1e-5), opened(tmp_path, epsilon=20.0)
    for cost in SAMPLES[1:4]:
        memory.debit(release(cost))
        durable.debit(release(cost))
    assert opened(tmp_path, epsilon=20.0).epsilon() == memory.epsilon()
    assert opened(tmp_path, epsilon=20.0).releases == memory.releases


# --- the budget


def test_budget_outlives_the_object_and_numbers_go_on(tmp_path: Path) -> None:
    assert opened(tmp_path, epsilon=2.0).debit(release()) == 0
    again = opened(tmp_path, epsilon=2.0)
    assert again.debit(release()) == 1
    assert [one.purpose for one in again.releases] == ["violation", "violation"]
    assert again.epsilon() == pytest.approx(1.465, abs=1e-3)


def test_full_budget_refuses_with_what_remains_and_what_was_asked(tmp_path: Path) -> None:
    opened(tmp_path, epsilon=1.2).debit(release())
    with pytest.raises(BudgetExceeded) as refusal:
        opened(tmp_path, epsilon=1.2).debit(release(purpose="check"))
    assert str(refusal.value) == (
        "'check' would bring epsilon to 1.465; the budget is 1.2 (spent 0.9999). "
        "Use fewer or noisier releases, or raise epsilon. "
        "This request alone costs epsilon 0.9999; what remains of 'people' pays for 0.6001."
    )
    assert len(opened(tmp_path, epsilon=1.2).releases) == 1


def test_what_remains_fits_and_a_little_more_does_not(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.debit(release(GaussianCost(6.0)))
    mu_left = math.sqrt(1 / 3.7306**2 - 1 / 36)
    with pytest.raises(BudgetExceeded):
        ledger.check({GaussianCost(0.999 / mu_left): 1})
    ledger.check({GaussianCost(1.001 / mu_left): 1})


def test_two_objects_on_one_file_share_the_total(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.debit(release())
    with pytest.raises(BudgetExceeded):
        other.debit(release())
    assert other.costs() == one.costs() == {GaussianCost(SIGMA): 1}
    assert (len(one.own_releases()), len(other.own_releases())) == (1, 0)


def test_threads_on_one_object_together_stay_within_the_budget(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    cost = GaussianCost(SIGMA * math.sqrt(10))  # ten of them fit

    def work() -> None:
        for _ in range(4):
            try:
                ledger.debit(release(cost))
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.costs() == opened(tmp_path).costs() == {cost: 10}


def test_debit_is_in_the_file_before_the_vault_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, seen = opened(tmp_path), []
    from justitia.privacy.mechanisms import Gaussian, SystemNoise

    def words(self: Any, size: int, **_: Any) -> Any:
        seen.append(len(DurableLedger.open(ledger.path).releases))
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemNoise, "words", words)
    vault = SensitiveVault(["a", "b"], groups=["a", "b"], ledger=ledger)
    import numpy as np

    with pytest.raises(KeyboardInterrupt):
        vault.group_sums(np.ones((2, 1)), bound=1.0, noise=Gaussian(SIGMA), purpose="sizes")
    assert seen == [1]


def test_thousands_of_entries_are_read_once_and_composed_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, cost = opened(tmp_path), GaussianCost(1000.0)
    inserted(ledger, json.dumps(cost_to_dict(cost)), 2000)
    assert ledger.debit(release(cost)) == 2000
    read: list[Release] = []
    monkeypatch.setattr(PrivacyLedger, "_append", lambda self, one: read.append(one))
    assert ledger.costs() == {cost: 2001}
    assert read == []


def test_infinite_budget_and_unprotected_release_are_kept_as_they_are(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=math.inf)
    ledger.debit(Release("a look", UnboundedCost(), math.inf))
    assert opened(tmp_path, epsilon=math.inf).releases[0].sensitivity == math.inf
    assert json.loads(ledger.to_json())["entries"][0]["sensitivity"] == "infinity"


# --- copies, export, description


def test_copy_and_pickle_see_the_same_file(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    for twin in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        ledger.debit(release())
        assert twin.costs() == ledger.costs()


def test_export_holds_entries_and_totals_and_nothing_else_is_overwritten(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=2.0)
    ledger.debit(release(purpose="sizes"))
    facts = json.loads(ledger.export(tmp_path / "ledger.json").read_text())
    assert facts["dataset"] == "people"
    assert facts["spent_epsilon"] == ledger.epsilon()
    assert facts["remaining_epsilon"] == ledger.remaining()
    (entry,) = facts["entries"]
    assert entry["purpose"] == "sizes"
    assert cost_from_dict(entry["cost"]) == GaussianCost(SIGMA)
    assert entry["run"] == ledger.run
    assert {"time", "version", "number", "sensitivity"} <= set(entry)
    before = ledger.path.read_bytes()
    for taken in (ledger.path, tmp_path / "ledger.json"):
        with pytest.raises(FileExistsError, match="expected a file that is not there yet"):
            ledger.export(taken)
    assert ledger.path.read_bytes() == before


def test_description_says_budget_spent_and_remaining(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=2.0)
    ledger.debit(release(purpose="sizes"))
    ledger.debit(release(GaussianCost(20.0), purpose="gradient"))
    lines = DurableLedger.open(ledger.path).describe().splitlines()
    assert lines[0] == f"Ledger of 'people' in {ledger.path}"
    assert lines[1] == "  budget     epsilon 2 at delta 1e-05"
    assert lines[2].endswith("2 debits of 1 run")
    assert lines[3].startswith("  remaining  epsilon 1.")
    assert lines[5:] == [
        "       1      3.731  gaussian: sizes",
        "       1         20  gaussian: gradient",
    ]


def test_folder_that_cannot_be_written_is_named_and_no_ledger_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", forbidden)
    with pytest.raises(LedgerError, match=r"people.ledger' cannot be made here: Permission denied; choose another"):
        DurableLedger(tmp_path / "people.ledger", dataset="people", epsilon=1.0, delta=1e-5)
