"""The contract of every method and its runs: what a session may do with them, network or rule."""

import pickle

import numpy as np
import pytest
import torch
from engine_cases import Case, every_engine, hidden_bar, method_of, opened, people, problem_of, vault_of
from sklearn.linear_model import LogisticRegression
from torch import nn

from justitia import PrivacyLedger
from justitia.learners.base import CrossFitted
from justitia.networks.method import NetworkMethod
from justitia.postprocessing.solver import PostProcessing

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows, large noise: fit says so
    pytest.mark.usefixtures("quick_fits"),
]


@every_engine
def test_contract_check_accepts_what_can_be_trained_and_changes_nothing(case: Case) -> None:
    method = method_of(case.plan, problem_of(people()))
    state, before = torch.get_rng_state(), pickle.dumps(method)
    method.check()
    assert torch.equal(torch.get_rng_state(), state)
    assert pickle.dumps(method) == before


@every_engine
def test_contract_shape_is_the_same_again_and_other_for_another_method(case: Case) -> None:
    problem = problem_of(people())
    one, again = (repr(method_of(case.plan, problem).shape()) for _ in range(2))
    assert one == again
    other = method_of(case.plan, problem, nn.Linear(3, 1))
    if isinstance(other, PostProcessing):
        other.base = CrossFitted(LogisticRegression())
    assert repr(other.shape()) != one


@every_engine
def test_contract_prepare_keeps_rows_labels_and_notion(case: Case) -> None:
    problem = problem_of(people(), "accuracy_parity")
    method = method_of(case.plan, problem)
    method.prepare(hidden_bar)
    found = method.problem
    assert found.rows == len(found) == len(problem)
    assert np.array_equal(found.y, problem.y)
    assert np.array_equal(found.weight, problem.weight)
    assert found.notion is problem.notion


@every_engine
def test_contract_training_leaves_a_history_multipliers_and_scores(case: Case) -> None:
    some = opened(case, people(), notion="equalized_odds")
    trained = some.train()
    assert trained.lam.shape == (3, 2)
    rounds = [row["round"] for row in trained.history]
    assert rounds == sorted(set(rounds))
    assert all({"loss", "accuracy", "auc", "noisy_gap", "multiplier"} <= row.keys() for row in trained.history)
    scores = some.run.scores()
    assert scores.shape == some.problem.y.shape
    assert bool(np.isfinite(scores).all())


@every_engine
def test_contract_runs_of_one_method_do_not_change_each_other(case: Case) -> None:
    some = opened(case, people())
    before = pickle.dumps(some.method.module) if isinstance(some.method, NetworkMethod) else b""
    first = some.train()
    scores = some.run.scores().copy()
    vault = vault_of(people(), some.method, PrivacyLedger(epsilon=np.inf, delta=1e-5))
    again = some.method.run(some.plan, vault, tolerance=0.0)
    second = again.train(hidden_bar)
    assert np.array_equal(first.lam, second.lam)
    assert np.array_equal(again.scores(), scores)
    assert np.array_equal(some.run.scores(), scores)
    assert not isinstance(some.method, NetworkMethod) or pickle.dumps(some.method.module) == before


@every_engine
def test_contract_run_at_another_tolerance_queries_nothing_and_leaves_the_first_alone(case: Case) -> None:
    some = opened(case, people())
    trained = some.train()
    before, spent = some.run.scores().copy(), some.ledger.releases
    if not case.plan.shares_answers:
        with pytest.raises(TypeError):
            some.run.at(0.5)
        return
    follower = some.run.at(0.5)
    assert type(follower) is type(some.run)
    assert np.array_equal(follower.scores(), before)
    assert follower.tolerance == 0.5
    follower.train(hidden_bar, start=trained.lam)
    assert not np.array_equal(follower.scores(), before)
    assert np.array_equal(some.run.scores(), before)
    assert some.run.tolerance == 0.0
    assert some.ledger.releases == spent
