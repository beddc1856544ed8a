"""The contract of every learner: what a session may do with it, network or rule."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from engine_cases import Case, every_engine, hidden_bar, learner_of, opened, people
from sklearn.linear_model import LogisticRegression
from torch import nn

from justitia.learners.base import CrossFitted
from justitia.notions import get_notion
from justitia.training.lagrangian import Problem

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


def public_problem(notion: str = "demographic_parity") -> Problem:
    these = people()
    y = these.y.astype(np.float32)
    return Problem(these.X.astype(np.float32), y, np.ones_like(y), get_notion(notion))


@every_engine
def test_contract_check_accepts_what_can_be_trained_and_changes_nothing(case: Case) -> None:
    problem = public_problem()
    learner = learner_of(case.plan, problem.X)
    state, before = torch.get_rng_state(), pickle.dumps(learner)
    learner.check(problem, case.plan)
    assert torch.equal(torch.get_rng_state(), state)
    assert pickle.dumps(learner) == before


@every_engine
def test_contract_shape_is_the_same_again_and_other_for_another_learner(case: Case) -> None:
    problem = public_problem()
    one, again = (repr(learner_of(case.plan, problem.X).shape()) for _ in range(2))
    assert one == again
    other = learner_of(case.plan, problem.X, nn.Linear(3, 1))
    if not hasattr(other, "module"):
        other.base = CrossFitted(LogisticRegression())  # type: ignore[attr-defined]
    assert repr(other.shape()) != one


@every_engine
def test_contract_prepare_keeps_rows_labels_and_notion(case: Case) -> None:
    problem = public_problem()
    learner = learner_of(case.plan, problem.X)
    found = learner.prepare(problem, case.plan, hidden_bar)
    assert len(found) == len(problem)
    assert np.array_equal(found.y, problem.y)
    assert np.array_equal(found.weight, problem.weight)
    assert found.notion is problem.notion
    assert found.eta is None or (found.eta.shape == problem.y.shape and bool(((found.eta > 0) & (found.eta < 1)).all()))


@every_engine
def test_contract_training_leaves_a_history_multipliers_and_scores(case: Case) -> None:
    some = opened(case, people(), notion="equalized_odds")
    trained = some.train()
    assert trained.lam.shape == (3, 2)
    rounds = [row["round"] for row in trained.history]
    assert rounds == sorted(set(rounds))
    assert all({"loss", "accuracy", "auc", "noisy_gap", "multiplier"} <= row.keys() for row in trained.history)
    scores = some.scores()
    assert scores.shape == some.problem.y.shape
    assert bool(np.isfinite(scores).all())


@every_engine
def test_contract_follower_starts_like_the_learner_and_leaves_it_alone(case: Case) -> None:
    some = opened(case, people())
    some.train()
    before = some.scores().copy()
    follower: Any = some.learner.follower()
    assert type(follower) is type(some.learner)
    assert repr(follower.shape()) == repr(some.learner.shape())
    assert np.array_equal(follower.scores(some.problem), before)
    if hasattr(follower, "module"):
        for parameter in follower.module.parameters():
            parameter.data.add_(1.0)
    else:
        follower.lam = follower.lam + 1.0
        follower.c = copy.copy(follower.c) + 1.0
    assert np.array_equal(some.scores(), before)
    assert not np.array_equal(follower.scores(some.problem), before)
