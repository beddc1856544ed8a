"""The contract of every engine: its queries, what they cost, what it keeps, and what leaves it."""

import copy
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from engine_cases import (
    ENGINES,
    Case,
    People,
    calls_watched,
    every_engine,
    fit,
    model,
    network_engines,
    opened,
    people,
    private_engines,
    revealing_engines,
    same_tree,
)
from torch import Tensor, nn

from audit import recording
from dying import fit_and_die, fit_and_die_after_save
from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.engines import PLANS
from justitia.networks.method import rehearse
from justitia.privacy.accounting import GaussianCost
from justitia.privacy.ledger import BudgetExceeded, Release
from justitia.privacy.mechanisms import SeededNoise
from justitia.training.state_file import from_bytes, to_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few people, large noise: fit says so
    pytest.mark.usefixtures("quick_fits"),
]
every_notion = pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])


def purposes(ledger: PrivacyLedger) -> list[str]:
    return [release.purpose for release in ledger.releases]


def test_contract_cases_hold_every_engine() -> None:
    assert list(ENGINES) == list(PLANS)


# Its queries


@every_engine
@every_notion
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_contract_ledger_holds_what_the_plan_announced(case: Case, notion: str, epsilon: float) -> None:
    fitted = fit(model(case, notion=notion, epsilon=epsilon), people())
    assert Counter(fitted.ledger_.costs()) == fitted.plan_.costs()
    assert Counter(purposes(fitted.ledger_)) == {one.purpose: one.count for one in fitted.plan_.releases()}
    assert fitted.certificate_.spent_epsilon == fitted.plan_.epsilon(1e-5) == fitted.ledger_.epsilon()
    assert math.isinf(fitted.certificate_.epsilon) == (case.reveals or math.isinf(epsilon))


@every_engine
def test_contract_nothing_but_training_queries_the_vault(case: Case) -> None:
    some = opened(case, people())
    some.run.preflight()
    some.state()
    assert some.ledger.releases == ()
    some.train()
    spent, run = some.ledger.releases, some.run
    run.gap(run.scores())
    run.fitted()
    run.deployed_scores()
    run.gap_noise()
    run.violation_stddev()
    run.distance()
    run.diagnostics()
    assert run.tolerance >= 0.0
    some.state()
    assert some.ledger.releases == spent


@every_engine
def test_contract_run_that_has_queried_nothing_has_no_diagnostics(case: Case) -> None:
    assert opened(case, people()).run.diagnostics() == []


@every_engine
@every_notion
def test_contract_queries_are_made_where_the_engine_says(case: Case, notion: str) -> None:
    some = opened(case, people(), notion=notion)
    with calls_watched(some) as queries:
        some.train()
    assert {purpose: call for call, _, purpose in queries} == case.queries
    assert Counter(purpose for _, _, purpose in queries) == {one.purpose: one.count for one in some.plan.releases()}


@every_engine
def test_contract_when_it_queries_depends_neither_on_answers_nor_on_the_attribute(case: Case) -> None:
    these = people()
    others = [these, replace(these, a=[None] * 90), replace(these, a=["f"] * 90), these.flipped(3, "x")]
    schedules = []
    for number, one in enumerate(others):
        some = opened(case, one, source=SeededNoise(number))
        with calls_watched(some) as queries:
            some.train()
        schedules.append(queries)
    assert schedules == [schedules[0]] * 4


@every_engine
def test_contract_budget_that_does_not_suffice_is_refused_before_the_first_query(case: Case) -> None:
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    ledger.debit(Release("something else", GaussianCost(2.0), 1.0))
    made = model(case)
    with pytest.raises(BudgetExceeded):
        fit(made, people(), ledger=ledger)
    assert purposes(ledger) == ["something else"]
    assert not hasattr(made, "module_")
    assert not hasattr(made, "rule_")


# Interrupted and resumed


def same(one: Any, other: Any, these: People) -> bool:
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)
    pd.testing.assert_frame_equal(one.dual_, other.dual_, check_exact=True)
    return np.array_equal(one.decision_function(these.X), other.decision_function(these.X))


def paid(fitted: LagrangianDualClassifier, case: Case) -> bool:
    """Whether the ledger holds every planned release once; an attribute that was revealed may be read again."""
    held, planned = Counter(fitted.ledger_.costs()), fitted.plan_.costs()
    return set(held) == set(planned) if case.reveals else held == planned


@every_engine
def test_contract_run_that_stops_after_every_round_gives_the_result_of_a_whole_one(case: Case, tmp_path: Path) -> None:
    these, folder = people(), tmp_path / "run"
    fit_and_die_after_save(model(case), these, folder, saves=2)  # before the first round, and after it
    for _ in range(case.later_saves):
        fit_and_die_after_save(model(case), these, folder, saves=1)
    resumed, whole = fit(model(case), these, checkpoint=folder), fit(model(case), these)
    assert same(resumed, whole, these)
    assert paid(resumed, case)
    if not case.reveals:
        assert resumed.certificate_ == whole.certificate_


@private_engines
def test_contract_resumed_run_debits_what_a_whole_one_debits(case: Case, tmp_path: Path) -> None:
    fit_and_die_after_save(model(case), people(), tmp_path / "run", saves=2)
    resumed = fit(model(case), people(), checkpoint=tmp_path / "run")
    assert Counter(resumed.ledger_.costs()) == resumed.plan_.costs()


@private_engines
def test_contract_answer_that_was_paid_for_and_lost_is_not_paid_for_again(case: Case, tmp_path: Path) -> None:
    these = people()
    planned = purposes(fit(model(case), these).ledger_)
    for at in range(1, len(planned) + 1):
        folder = tmp_path / f"run {at}"
        fit_and_die(model(case), these, folder, at=at, answered=True)
        journal = PrivacyLedger(epsilon=8.0, delta=1e-5, journal=folder / "ledger.jsonl")
        assert purposes(journal) == planned[:at]
        if at == 1:  # without its first answer a run cannot go on, and says so
            with pytest.raises(BudgetExceeded, match="the debit stands"):
                fit(model(case), these, checkpoint=folder)
            assert purposes(journal) == planned[:1]
        else:
            resumed = fit(model(case), these, checkpoint=folder)
            assert purposes(resumed.ledger_) == planned
            assert np.isfinite(resumed.decision_function(these.X)).all()


# What it keeps


@every_engine
def test_contract_state_comes_back_from_a_file(case: Case) -> None:
    some = opened(case, people())
    some.train()
    state = some.state()
    assert state
    assert same_tree(from_bytes(to_bytes(state)), state)


@every_engine
def test_contract_state_that_was_restored_is_the_state_and_queries_nothing(case: Case) -> None:
    some, twin = opened(case, people()), opened(case, people())
    some.train()
    state = some.state()
    twin.restore(copy.deepcopy(state))
    assert twin.ledger.releases == ()
    assert same_tree(twin.state(), state)


@private_engines
def test_contract_state_is_the_same_for_a_neighbour_with_the_same_answers(case: Case) -> None:
    states = []
    source = recording.Recorder()
    for these in (people(), people().flipped(3, "x"), replace(people(), a=[None] * 90)):
        some = opened(case, these, source=source)
        some.train()
        states.append(some.state())
        source = recording.Player(source.noisy)
    assert all(same_tree(one, states[0]) for one in states)


# What leaves it


@private_engines
@pytest.mark.parametrize("notion", ["demographic_parity", "accuracy_parity"])  # all of them in tests/audit/test_flip.py
def test_contract_neighbours_with_the_same_answers_make_the_same_things_public(case: Case, notion: str) -> None:
    these = recording.make_people(3, missing=True, n=120)
    options: dict[str, Any] = {"engine": case.name, "plan": case.plan, "notion": notion}
    first = recording.run(these, **options)
    moved = 0.0
    for row, label in ((3, "c"), (11, None), (7, "a")):
        second = recording.run(these.with_label(row, label), answers=first.noisy, **options)
        assert recording.problems(first, second) == []
        moved = max(moved, *recording.largest_movements(first, second).values())
    assert moved > 0.1


@revealing_engines
def test_contract_engine_that_reveals_promises_nothing(case: Case) -> None:
    fitted = fit(model(case), people())
    assert fitted.certificate_.epsilon == math.inf
    assert fitted.certificate_.statement.startswith("No privacy guarantee")
    assert {column.status for column in fitted.history_columns_ if column.group} == {"exact"}


@private_engines
def test_contract_sentences_are_made_of_public_and_noised_numbers(case: Case) -> None:
    """A group without rows is questioned, with the same words for neighbours with the same answers."""
    these = recording.make_people(2, missing=True, n=120)
    these = replace(these, groups=("a", "b", "nobody"))
    options: dict[str, Any] = {"engine": case.name, "plan": case.plan, "epsilon": 40.0, "tolerance": 0.0}
    first = recording.run(these, **options)
    warned = first.public["warnings"]
    assert any("'nobody'" in sentence for sentence in warned)
    assert all(not re.search(r"\n", sentence) for sentence in warned)
    for label in ("b", "nobody", None):
        second = recording.run(these.with_label(3, label), answers=first.noisy, **options)
        assert second.public["warnings"] == warned
        assert second.model.certificate_.remarks == first.model.certificate_.remarks


@every_engine
def test_contract_noise_is_that_of_the_seed_and_of_no_other(case: Case) -> None:
    these = people()
    one, again, other = (fit(model(case, noise_seed=seed), these) for seed in (0, 0, 1))
    assert same(one, again, these)
    assert not np.array_equal(one.decision_function(these.X), other.decision_function(these.X))


# Its network


class Tied(nn.Module):
    """One layer used twice, one that is not used, one that is not trained, and scores of shape (m,)."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.unused, self.frozen = (
            nn.Linear(3, 3),
            nn.Linear(2, 2),
            nn.Linear(3, 3).requires_grad_(requires_grad=False),
        )
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, X: Tensor) -> Tensor:
        scores: Tensor = self.frozen(self.twice(self.twice(X).tanh())).tanh() @ self.scale
        return scores


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 1),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.3), nn.Linear(6, 1)),
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 1, bias=False)),
    "group norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(2, 6), nn.Linear(6, 1)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(4, 1)),
    "tied": Tied,
}


@network_engines
@pytest.mark.parametrize("name", MODULES)
def test_contract_module_that_can_be_rehearsed_can_be_trained(case: Case, name: str) -> None:
    torch.manual_seed(0)
    module, these = MODULES[name](), people()
    X, y = torch.tensor(these.X, dtype=torch.float32), torch.tensor(these.y, dtype=torch.float32)
    rehearse(module, X, y, case.plan)
    before = copy.deepcopy(module.state_dict())
    fitted = fit(model(case, module=module, notion="equalized_odds"), these)
    assert np.isfinite(fitted.decision_function(these.X)).all()
    assert Counter(fitted.ledger_.costs()) == fitted.plan_.costs()
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
