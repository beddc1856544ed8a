"""The contract of every ledger: in memory, with a journal, in a file of its own.

A new ledger joins with one line of :data:`LEDGERS`.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from justitia import BudgetExceeded, Certificate, DurableLedger, PrivacyLedger
from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    delta_spent,
    epsilon_spent,
)
from justitia.privacy.ledger import Release
from justitia.privacy.mechanisms import Gaussian, SeededNoise
from justitia.privacy.vault import SensitiveVault

DELTA = 1e-5
FULL, WEAK = GaussianCost(3.731), GaussianCost(20.0)  # nearly epsilon 1, and a little
MIXED: tuple[Cost, ...] = (WEAK, RandomizedResponseCost(0.1, 3), WEAK, SelectionCost(30.0, 0.5))
Make = Callable[..., PrivacyLedger]


def in_memory(folder: Path, **budget: Any) -> PrivacyLedger:
    del folder
    return PrivacyLedger(**budget)


def with_journal(folder: Path, **budget: Any) -> PrivacyLedger:
    return PrivacyLedger(**budget, journal=folder / "journal")


def in_a_file(folder: Path, **budget: Any) -> PrivacyLedger:
    return DurableLedger(folder / "ledger", dataset="people", **budget)


@dataclass(frozen=True)
class Kind:
    """How a ledger is opened, in a folder; whether opening it again there finds its debits; whether it has receipts."""

    make: Make
    lasts: bool
    receipts: bool = False


LEDGERS = {
    "in memory": Kind(in_memory, lasts=False),
    "with a journal": Kind(with_journal, lasts=True),
    "durable": Kind(in_a_file, lasts=True, receipts=True),
}
every_ledger = pytest.mark.parametrize("kind", LEDGERS.values(), ids=LEDGERS)
lasting_ledgers = pytest.mark.parametrize(
    "kind", [kind for kind in LEDGERS.values() if kind.lasts], ids=[name for name in LEDGERS if LEDGERS[name].lasts]
)


def release(cost: Cost = WEAK, purpose: str = "violation", unit: str = "row") -> Release:
    return Release(purpose, cost, 2.0, unit)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# Debits


@every_ledger
def test_contract_debits_are_numbered_and_kept_in_order(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=9.0, delta=DELTA)
    assert ledger.releases == ()
    assert ledger.epsilon() == 0.0
    made = [release(cost, f"purpose {i}") for i, cost in enumerate(MIXED)]
    assert [ledger.debit(one) for one in made] == [0, 1, 2, 3]
    assert ledger.releases == tuple(made) == ledger.own_releases()
    assert ledger.costs() == ledger.own_costs() == Counter(MIXED)
    assert ledger.epsilon() == epsilon_spent(Counter(MIXED), DELTA)
    assert (ledger.budget_epsilon, ledger.delta) == (9.0, DELTA)


class Watching(SeededNoise):
    """Keeps what the ledger held when noise was drawn."""

    def __init__(self, ledger: PrivacyLedger) -> None:
        super().__init__(0)
        self.ledger, self.held = ledger, list[tuple[str, ...]]()

    def about(self, *query: object) -> Any:
        return self

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        self.held.append(tuple(one.purpose for one in self.ledger.releases))
        return super().words(size, release=release, stream=stream)


@every_ledger
def test_contract_debit_comes_before_the_answer(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=9.0, delta=DELTA)
    elsewhere = kind.make(tmp_path, epsilon=9.0, delta=DELTA) if kind.lasts else ledger
    source = Watching(elsewhere)  # what somebody else would find if the process died here
    vault = SensitiveVault(["a", "b", None], groups=("a", "b"), ledger=ledger, noise_source=source)
    for purpose in ("first", "second"):
        vault.group_sums(np.ones(3), bound=1.0, noise=Gaussian(3.0), purpose=purpose)
    assert source.held[0] == ("first",)
    assert source.held[-1] == ("first", "second")


@every_ledger
def test_contract_debit_beyond_the_budget_is_refused_and_leaves_no_trace(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=1.0, delta=DELTA)
    ledger.debit(release())
    before, held = contents(tmp_path), ledger.releases
    for cost in (FULL, UnboundedCost(), RandomizedResponseCost(1.5, 2)):
        with pytest.raises(
            BudgetExceeded, match=r"'too much' would bring epsilon to .*; the budget is 1 \(spent 0\.\d+\)"
        ):
            ledger.debit(release(cost, "too much"))
    assert ledger.releases == held
    assert ledger.costs() == {WEAK: 1}
    assert contents(tmp_path) == before
    assert ledger.debit(release()) == 1  # what still fits is allowed


@every_ledger
def test_contract_vault_computes_nothing_that_the_ledger_refuses(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=0.1, delta=DELTA)
    source = Watching(ledger)
    vault = SensitiveVault(["a", "b", None], groups=("a", "b"), ledger=ledger, noise_source=source)
    with pytest.raises(BudgetExceeded):
        vault.group_sums(np.ones(3), bound=1.0, noise=Gaussian(1.0), purpose="sizes")
    assert source.held == []
    assert ledger.releases == ()


@every_ledger
def test_contract_check_records_nothing_and_counts_what_was_spent(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=1.0, delta=DELTA)
    ledger.check({WEAK: 20})
    ledger.debit(release(GaussianCost(4.0)))
    before = contents(tmp_path)
    ledger.check({WEAK: 1})
    with pytest.raises(BudgetExceeded, match="'this plan' would bring epsilon to"):
        ledger.check({WEAK: 20})
    assert contents(tmp_path) == before
    assert len(ledger.releases) == 1


@every_ledger
def test_contract_total_never_exceeds_the_budget_and_what_remains_fits(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=1.0, delta=DELTA)
    allowed = 0
    for cost in (*MIXED, *(WEAK,) * 40):
        try:
            ledger.debit(release(cost))
            allowed += 1
        except BudgetExceeded:
            assert epsilon_spent(Counter(ledger.costs()) + Counter([cost]), DELTA) > 1.0
        assert ledger.epsilon() <= 1.0 + 1e-9
    assert 4 < allowed == len(ledger.releases) < 44
    assert 0 <= ledger.remaining() < epsilon_spent({WEAK: 1}, DELTA)


@every_ledger
def test_contract_budget_of_nothing_and_of_everything(kind: Kind, tmp_path: Path) -> None:
    for name, epsilon in (("none", 0.0), ("all", math.inf)):
        (tmp_path / name).mkdir()
        ledger = kind.make(tmp_path / name, epsilon=epsilon, delta=DELTA)
        assert ledger.remaining() == epsilon
        for cost in (GaussianCost(1e6), UnboundedCost()):
            if epsilon:
                ledger.debit(release(cost))
            else:
                with pytest.raises(BudgetExceeded):
                    ledger.debit(release(cost))
    for wrong in (
        {"epsilon": -1.0, "delta": DELTA},
        {"epsilon": math.nan, "delta": DELTA},
        {"epsilon": 1.0, "delta": 1.0},
    ):
        (tmp_path / "wrong").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match="must"):
            kind.make(tmp_path / "wrong", **wrong)
        assert contents(tmp_path / "wrong") == {}


@every_ledger
def test_contract_what_is_handed_out_cannot_change_the_ledger(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=1.0, delta=DELTA)
    ledger.debit(release())
    costs: Any = ledger.costs()
    costs.clear()
    ledger.own_costs().clear()
    assert ledger.costs() == ledger.own_costs() == {WEAK: 1}
    assert isinstance(ledger.releases, tuple)


@every_ledger
def test_contract_threads_together_stay_within_the_budget(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, turn = kind.make(tmp_path, epsilon=0.6, delta=DELTA), threading.Event()

    def slow(costs: Any, epsilon: float) -> float:
        turn.wait(0.001)  # between the sum and the debit every other thread gets its turn
        return delta_spent(costs, epsilon)

    monkeypatch.setattr("justitia.privacy.ledger.delta_spent", slow)
    numbers: list[int] = []

    def debit_until_refused() -> None:
        try:
            numbers.extend(ledger.debit(release()) for _ in range(20))
        except BudgetExceeded:
            return

    threads = [threading.Thread(target=debit_until_refused) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.epsilon() <= 0.6
    with pytest.raises(BudgetExceeded):
        ledger.debit(release())
    assert sorted(numbers) == list(range(len(ledger.releases)))
    assert len(numbers) > 3


# What outlives the object


@lasting_ledgers
def test_contract_ledger_that_is_opened_again_holds_all_debits(kind: Kind, tmp_path: Path) -> None:
    first = kind.make(tmp_path, epsilon=2.0, delta=DELTA)
    made = [release(cost, f"purpose {i}", "person") for i, cost in enumerate(MIXED)]
    for one in made:
        first.debit(one)
    again = kind.make(tmp_path, epsilon=2.0, delta=DELTA)
    assert again.releases == tuple(made)
    assert again.epsilon() == first.epsilon()
    assert again.remaining() == first.remaining()
    assert again.debit(release(purpose="later")) == 4
    assert [one.purpose for one in first.releases][-1] == "later"  # and each sees the other's debits
    with pytest.raises(BudgetExceeded):
        first.debit(release(GaussianCost(2.0)))


# Certificates


@every_ledger
def test_contract_certificate_says_what_the_ledger_holds(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=2.0, delta=DELTA)
    for cost in MIXED:
        ledger.debit(release(cost))
    made = ledger.certificate(groups=("a", "b"), noise="some", planned=4)
    assert made.epsilon == made.spent_epsilon == ledger.epsilon()
    assert (made.delta, made.budget_epsilon) == (DELTA, 2.0)
    assert (made.groups, made.groups_source, made.noise, made.unit) == (("a", "b"), "given", "some", "row")
    assert sum(entry["count"] for entry in made.releases) == 4
    assert Counter(entry["mechanism"] for entry in made.releases) == Counter(
        ["gaussian", "randomized response", "best of several trials"]
    )
    assert made.statement.startswith("Every output of training is (")
    assert (made.receipt is not None) == kind.receipts
    assert Certificate.from_dict(json.loads(made.to_json())) == made


@every_ledger
def test_contract_certificate_of_more_than_was_planned_promises_the_budget(kind: Kind, tmp_path: Path) -> None:
    ledger = kind.make(tmp_path, epsilon=2.0, delta=DELTA)
    for _ in range(3):
        ledger.debit(release(unit="person"))
    fixed, adaptive = ledger.certificate(planned=3), ledger.certificate(planned=2)
    assert fixed.epsilon == ledger.epsilon() < 2.0
    assert adaptive.epsilon == 2.0
    assert adaptive.spent_epsilon == ledger.epsilon()
    assert fixed.unit == adaptive.unit == "person"
    assert "That is the ledger's budget" in adaptive.statement


@every_ledger
def test_contract_certificate_does_not_follow_later_debits_and_says_when_nothing_is_promised(
    kind: Kind, tmp_path: Path
) -> None:
    ledger = kind.make(tmp_path, epsilon=math.inf, delta=DELTA)
    empty = ledger.certificate()
    assert (empty.epsilon, empty.releases) == (0.0, ())
    ledger.debit(release(UnboundedCost()))
    assert (empty.epsilon, empty.releases) == (0.0, ())
    made = ledger.certificate()
    assert made.epsilon == math.inf
    assert made.statement.startswith("No privacy guarantee")


def test_contract_same_debits_cost_the_same_in_every_ledger(tmp_path: Path) -> None:
    found = []
    for name, kind in LEDGERS.items():
        (tmp_path / name).mkdir()
        ledger = kind.make(tmp_path / name, epsilon=2.0, delta=DELTA)
        for cost in MIXED:
            ledger.debit(release(cost))
        facts = ledger.certificate(planned=4).to_dict()
        facts.pop("receipt")
        found.append((ledger.epsilon(), ledger.remaining(), facts))
    assert found == [found[0]] * len(LEDGERS)
