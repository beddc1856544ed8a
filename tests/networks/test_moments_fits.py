"""Whole fits of the moments engine: without privacy, for every notion and number of groups, any module."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from moments_setting import (
    GROUPS,
    PLAN,
    Own,
    every_notion,
    fit,
    seeded,
    setting,
    with_dropout,
)
from torch import nn

from justitia import LagrangianDualClassifier
from justitia.notions import NOTIONS
from justitia.privacy.accounting import UnboundedCost

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


# Without privacy


def test_infinite_epsilon_reads_the_exact_attribute_once_and_the_certificate_says_so(people: Any, make: Any) -> None:
    model = fit(make(engine="moments", plan=PLAN, epsilon=math.inf, noise_seed=None), people)
    assert [release.purpose for release in model.ledger_.releases] == ["exact attribute, no privacy asked for"]
    assert model.ledger_.costs() == Counter({UnboundedCost(): 1}) == model.plan_.costs()
    assert model.certificate_.epsilon == math.inf
    assert model.certificate_.statement == "No privacy guarantee: epsilon is infinite."
    assert "exact attribute, no privacy asked for" in str(model.certificate_)


def test_infinite_epsilon_gives_the_same_model_whatever_the_noise_seed(people: Any, make: Any) -> None:
    one, other = (fit(make(engine="moments", plan=PLAN, epsilon=math.inf, noise_seed=s), people) for s in (1, 2))
    assert np.array_equal(one.decision_function(people.X), other.decision_function(people.X))
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)


# All notions, any number of groups


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@every_notion
def test_fit_for_every_notion_and_number_of_groups(notion: str, n_groups: int) -> None:
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(90, 3)), rng.integers(0, n_groups + 1, 90)
    y = (X[:, 0] > 0).astype(int)
    labels = [None if code == n_groups else GROUPS[code] for code in codes]
    model = LagrangianDualClassifier(
        notion, engine="moments", plan=PLAN, groups=GROUPS[:n_groups], random_state=0, module=(4,)
    ).fit(X, y, sensitive_features=labels)
    assert model.dual_.shape == (n_groups, len(NOTIONS[notion].event_names))
    assert np.isfinite(model.dual_.to_numpy()).all()
    assert np.abs(model.dual_.to_numpy()).max() <= PLAN.lambda_max
    assert np.isfinite(model.decision_function(X)).all()
    gaps = model.history_[[one.name for one in model.history_columns_ if one.kind == "noisy_gap"]].iloc[1:-1].to_numpy()
    assert np.isfinite(gaps).all()
    assert np.abs(gaps).max() <= 1.0 + 1e-9
    assert model.certificate_.epsilon == pytest.approx(1.0, rel=1e-4)


def test_fit_for_intersections_of_two_attributes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    table = pd.DataFrame({"sex": rng.choice(["F", "M"], 90), "race": rng.choice(["B", "W", None], 90)})
    model = LagrangianDualClassifier(
        engine="moments",
        plan=PLAN,
        groups={"sex": ["F", "M"], "race": ["B", "W"]},
        random_state=0,
    ).fit(X, (X[:, 0] > 0).astype(int), sensitive_features=table)
    assert list(model.dual_.index) == ["sex=F & race=B", "sex=F & race=W", "sex=M & race=B", "sex=M & race=W"]
    assert np.isfinite(model.dual_.to_numpy()).all()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("labels", [[None] * 120, ["f"] * 120, ["f"] + ["m"] * 119, ["?"] * 60 + ["f", "m"] * 30])
def test_fit_with_missing_or_lonely_groups_works(people: Any, make: Any, labels: list[Any], epsilon: float) -> None:
    model = make(engine="moments", plan=PLAN, epsilon=epsilon)
    model.fit(people.X, people.y, sensitive_features=labels)
    assert np.isfinite(model.decision_function(people.X)).all()
    assert np.isfinite(model.dual_.to_numpy()).all()


def test_rows_without_attribute_weigh_nothing_in_the_gaps() -> None:
    """Without noise the gap of the groups is that of those who answered."""
    some = setting(epsilon=math.inf)
    some.engine.query_before(some.module, np.zeros(1), 1)
    silent = torch.tensor([i for i, label in enumerate(some.labels) if label is None])
    lam = np.ones((2, 1))
    weights = some.engine.row_weights(lam, silent)
    assert weights is not None
    assert np.allclose(weights.numpy(), -2 / 60)


@pytest.mark.parametrize(
    "network",
    [seeded(Own), seeded(lambda: nn.Linear(3, 1)), seeded(with_dropout)],
    ids=["no last linear layer", "logistic regression", "dropout"],
)
def test_fit_with_a_module_of_the_users_own(people: Any, make: Any, network: nn.Module) -> None:
    before = [p.detach().clone() for p in network.parameters()]
    one, other = (fit(make(engine="moments", plan=PLAN, module=network), people) for _ in range(2))
    assert np.array_equal(one.decision_function(people.X), other.decision_function(people.X))
    assert all(torch.equal(p, old) for p, old in zip(network.parameters(), before, strict=True))
    assert not any(part._forward_pre_hooks for part in one.module_.modules())


def test_fit_on_images() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 1, 6, 6)).astype(np.float32)
    y, a = (X[:, 0, 0, 0] > 0).astype(int), np.where(X[:, 0, 1, 1] > 0, "a", "b")
    network = seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)))
    model = LagrangianDualClassifier(
        engine="moments", plan=PLAN, module=network, groups=["a", "b"], preprocess=None, random_state=0
    ).fit(X, y, sensitive_features=a)
    assert np.isfinite(model.decision_function(X)).all()


def test_fit_on_more_features_than_rows() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 150))
    y, a = (X[:, 0] > 0).astype(int), np.where(X[:, 1] > 0, "a", "b")
    model = LagrangianDualClassifier(engine="moments", plan=PLAN, module=(4,), groups=["a", "b"], random_state=0)
    assert np.isfinite(model.fit(X, y, sensitive_features=a).decision_function(X)).all()


def test_fit_does_not_depend_on_how_many_rows_are_computed_at_once_beyond_round_off(people: Any, make: Any) -> None:
    one, other = (fit(make(engine="moments", plan=replace(PLAN, micro_batch=m)), people) for m in (4096, 50))
    assert np.allclose(one.decision_function(people.X), other.decision_function(people.X), atol=1e-3)


def test_fit_with_other_noise_gives_another_model_and_with_the_same_noise_the_same(people: Any, make: Any) -> None:
    plan = replace(PLAN, warmup_steps=60)  # enough for decisions that differ between groups
    one, same, other = (fit(make(engine="moments", plan=plan, tolerance=0.05, noise_seed=s), people) for s in (1, 1, 2))
    assert np.array_equal(one.decision_function(people.X), same.decision_function(people.X))
    assert not np.array_equal(one.dual_, other.dual_)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_fit_without_multipliers_does_not_depend_on_the_attribute(people: Any, make: Any, epsilon: float) -> None:
    """lambda^max = 0 is plain training, whatever the answers were."""
    model = make(engine="moments", plan=replace(PLAN, lambda_max=0.0), epsilon=epsilon)
    one = fit(model, people).decision_function(people.X)
    model.fit(people.X, people.y, sensitive_features=people.a[::-1])
    assert np.array_equal(model.decision_function(people.X), one)


def test_fit_with_a_tolerance_of_one_never_moves_a_multiplier(people: Any, make: Any) -> None:
    model = fit(make(engine="moments", plan=PLAN, tolerance=1.0), people)
    assert (model.dual_.to_numpy() == 0).all()


def test_dead_zone_far_beyond_the_noise_never_moves_a_multiplier(people: Any, make: Any) -> None:
    model = fit(make(engine="moments", plan=replace(PLAN, dead_zone=1e6)), people)
    assert (model.dual_.to_numpy() == 0).all()
    moved = fit(make(engine="moments", plan=PLAN), people)
    assert np.abs(moved.dual_.to_numpy()).max() > 0


def hard_gap(model: Any, people: Any) -> float:
    decisions = model.predict(people.X)
    return float(abs(decisions[people.a == "f"].mean() - decisions[people.a == "m"].mean()))


@pytest.mark.parametrize("epsilon", [50.0, math.inf])
def test_fit_brings_the_gap_of_the_decisions_down(people: Any, make: Any, epsilon: float) -> None:
    changes: dict[str, Any] = {
        "rounds": 40,
        "public_steps": 3,
        "learning_rate": 0.03,
        "dual_step": 1.0,
        "averaging": 0.2,
    }
    plan = replace(PLAN, warmup_steps=60, **changes)
    plain = fit(make(engine="moments", plan=replace(plan, lambda_max=0.0), epsilon=epsilon), people)
    steered = fit(make(engine="moments", plan=plan, epsilon=epsilon), people)
    assert hard_gap(plain, people) > 0.3
    assert hard_gap(steered, people) < 0.15
