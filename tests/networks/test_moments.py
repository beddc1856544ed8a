"""The moments engine by hand: gaps, weights and steps; its queries, when it makes them, and what they cost."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from moments_setting import (
    GROUPS,
    PLAN,
    RELEASES,
    WEIGHT,
    Setting,
    every_notion,
    fit,
    gaps_by_hand,
    multipliers,
    open_vault,
    scores_of,
    setting,
    train,
)
from torch import Tensor, nn
from torch.nn import functional as F

import justitia.networks.moments.engine as moments_module
from asking import asked, opened
from justitia import MomentsPlan, PrivacyLedger
from justitia.networks.moments.engine import MomentsEngine
from justitia.networks.primal import PrimalSteps
from justitia.postprocessing import memberships as fitting
from justitia.postprocessing.run import sum_stddev
from justitia.privacy.ledger import BudgetExceeded
from justitia.privacy.mechanisms import Gaussian, SeededNoise, Unprotected
from justitia.privacy.vault import SensitiveVault

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


# Gaps and weights by hand


@pytest.mark.parametrize("n_groups", [2, 5])
@every_notion
def test_gap_without_privacy_is_the_gap_of_the_true_groups(notion: str, n_groups: int) -> None:
    some = setting(notion, epsilon=math.inf, n_groups=n_groups, weight=WEIGHT)
    some.engine.query_before(some.module, np.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    by_hand = gaps_by_hand(
        problem.notion, problem.notion.h_exact(scores, problem.y), problem.y, some.inside, problem.weight
    )
    gap = asked(some.engine, scores, 1)
    assert gap is not None
    assert np.allclose(gap, by_hand, atol=1e-6)


@pytest.mark.parametrize("n_groups", [2, 3])
@every_notion
def test_gap_is_that_of_the_hard_decisions_over_the_memberships(notion: str, n_groups: int) -> None:
    some = setting(notion, n_groups=n_groups)
    some.engine.query_before(some.module, np.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    assert some.engine._q is not None
    q = some.engine._q.numpy()
    by_hand = gaps_by_hand(problem.notion, problem.notion.h_exact(scores, problem.y), problem.y, q, problem.weight)
    gap = asked(some.engine, scores, 1)
    assert gap is not None
    assert np.allclose(gap, by_hand, atol=1e-5)


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@every_notion
def test_row_weights_give_the_gradient_of_the_constraint_over_the_memberships(notion: str, epsilon: float) -> None:
    some = setting(notion, epsilon=epsilon, weight=WEIGHT)
    engine, problem, lam = some.engine, some.problem, multipliers(some)
    engine.query_before(some.module, lam, 1)
    assert engine._q is not None
    params = list(some.module.parameters())

    h = problem.notion.h(some.module(engine.X).squeeze(1), engine.y).double()
    shares = engine.events.double() / engine.events.double().sum(0)
    inside = engine._q.double()[:, :, None] * engine.events.double()[:, None, :]
    constraint = (
        torch.from_numpy(lam) * ((inside / inside.sum(0) * h[:, None, None]).sum(0) - (shares * h[:, None]).sum(0))
    ).sum()
    expected = torch.autograd.grad(constraint, params)

    weights = engine.row_weights(lam, torch.arange(60))
    assert weights is not None
    h = problem.notion.h(some.module(engine.X).squeeze(1), engine.y)
    found = torch.autograd.grad((weights.float() * h).sum(), params)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def plain_steps(some: Setting, **options: Any) -> PrimalSteps:
    plan = replace(PLAN, optimizer="SGD", optimizer_options={"weight_decay": 0}, warmup_learning_rate=0.1, **options)
    return PrimalSteps(some.module, some.problem, plan, some.engine.generator)


def test_primal_step_with_row_weights_equals_a_step_written_by_hand() -> None:
    some = setting("equalized_odds", weight=WEIGHT)
    engine, lam = some.engine, multipliers(some)
    engine.query_before(some.module, lam, 1)
    batch = torch.tensor([3, 1, 41, 59, 17, 20, 22, 8])
    weights = engine.row_weights(lam, batch)
    assert weights is not None
    params = list(some.module.parameters())
    before = [p.detach().clone() for p in params]

    scores = some.module(engine.X[batch]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, engine.y[batch], weight=engine.weight[batch])
    # all rows are 60 / 8 times as many as the batch
    constraint = (60 / 8) * (weights.float() * torch.sigmoid(scores)).sum()
    gradient = torch.autograd.grad(loss + constraint, params)

    plain_steps(some).step(batch, weights)
    for p, old, slope in zip(params, before, gradient, strict=True):
        assert torch.allclose(p, old - 0.1 * slope, atol=1e-6)


def test_primal_steps_over_a_partition_average_to_the_step_over_all_rows() -> None:
    """So the constraint of a batch is an unbiased estimate of that of all rows."""
    lam = np.array([[1.5], [-0.7]])

    def moved(index: Tensor) -> Tensor:
        some = setting()
        some.engine.query_before(some.module, lam, 1)
        before = nn.utils.parameters_to_vector(some.module.parameters()).detach().clone()
        plain_steps(some).step(index, some.engine.row_weights(lam, index))
        return nn.utils.parameters_to_vector(some.module.parameters()).detach() - before

    parts = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(15)
    assert torch.allclose(torch.stack([moved(part) for part in parts]).mean(0), moved(torch.arange(60)), atol=1e-6)


def test_primal_step_adds_a_constraint_gradient_to_that_of_loss_and_weights() -> None:
    some, batch = setting(), torch.arange(20)
    params = list(some.module.parameters())
    before = nn.utils.parameters_to_vector(params).detach().clone()
    flat = torch.linspace(-1, 1, len(before), dtype=torch.float64)
    weights = torch.linspace(0, 0.1, 20, dtype=torch.float64)
    scores = some.module(some.engine.X[batch]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, some.engine.y[batch])
    loss = loss + 60 / 20 * (weights.float() * torch.sigmoid(scores)).sum()
    slope = torch.cat([part.flatten() for part in torch.autograd.grad(loss, params)])
    plain_steps(some).step(batch, weights, flat)
    after = nn.utils.parameters_to_vector(params).detach()
    assert torch.allclose(after, before - 0.1 * (slope + flat.float()), atol=1e-6)


def test_primal_step_without_constraint_is_a_plain_step() -> None:
    some, batch = setting(), torch.arange(20)
    params = list(some.module.parameters())
    before = [p.detach().clone() for p in params]
    loss = F.binary_cross_entropy_with_logits(some.module(some.engine.X[batch]).squeeze(1), some.engine.y[batch])
    gradient = torch.autograd.grad(loss, params)
    plain_steps(some).step(batch)
    for p, old, slope in zip(params, before, gradient, strict=True):
        assert torch.allclose(p, old - 0.1 * slope, atol=1e-7)


def test_row_weights_without_multipliers_are_zero() -> None:
    some = setting("equalized_odds")
    some.engine.query_before(some.module, np.zeros(1), 1)
    weights = some.engine.row_weights(np.zeros((2, 2)), torch.arange(60))
    assert weights is not None
    assert torch.equal(weights, torch.zeros(60))


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_gap_of_a_weight_of_two_is_that_of_the_row_twice(epsilon: float) -> None:
    """Given the memberships: the rows of the release count every row once."""
    some = setting("accuracy_parity", epsilon=epsilon, weight=1 + (np.arange(60) < 20).astype(np.float32))
    some.engine.query_before(some.module, np.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    assert some.engine._q is not None
    q, index = some.engine._q.numpy(), np.concatenate([np.arange(60), np.arange(20)])
    h = problem.notion.h_exact(scores, problem.y)[index]
    repeated = gaps_by_hand(problem.notion, h, problem.y[index], q[index], np.ones(80))
    gap = asked(some.engine, scores, 1)
    assert gap is not None
    assert np.allclose(gap, repeated, atol=1e-5)


@every_notion
def test_gap_right_after_a_check_without_noise_is_the_true_gap(notion: str) -> None:
    """The decisions are columns of the moments then, so their sums are right whatever the features say."""
    plan = replace(PLAN, ridge=0.0)
    some = setting(notion, plan=plan, n=300)
    quiet = replace(some.engine.plan, noise_moments=Gaussian(1e-9), noise_checks=Gaussian(1e-9))
    engine = MomentsEngine(quiet, some.problem, open_vault(some), tolerance=0.0, seed=1)
    engine.query_before(some.module, np.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    h = problem.notion.h_exact(scores, problem.y)
    by_hand = gaps_by_hand(problem.notion, h, problem.y, some.inside, problem.weight)
    gap = asked(engine, scores, quiet.check_rounds[0])
    assert gap is not None
    assert np.allclose(gap, by_hand, atol=0.01)


def test_sum_stddev_is_that_of_the_vaults_answers() -> None:
    """Of 20,000 noised sums per group, for two and five groups; within six standard errors, 3%."""
    for n_groups in (2, 5):
        vault = SensitiveVault(
            ["a", "b"],
            groups=GROUPS[:n_groups],
            ledger=PrivacyLedger(epsilon=math.inf, delta=1e-5),
            noise_source=SeededNoise(3),
        )
        answer = vault.group_sums(np.zeros((2, 20_000)), bound=0.7, noise=Gaussian(2.5), purpose="test")
        expected = sum_stddev(Gaussian(2.5), 0.7, n_groups)
        assert answer.std(1).tolist() == pytest.approx([expected] * n_groups, rel=0.03)
        rest = -answer.sum(0)
        assert float(rest.std()) == pytest.approx(expected, rel=0.03)
    assert sum_stddev(Unprotected(), 1.0, 2) == 0.0


def gaps_with_a_sample(monkeypatch: pytest.MonkeyPatch, *, rows: int, corrections: int) -> Any:
    monkeypatch.setattr(moments_module, "FIT_ROWS", rows)
    monkeypatch.setattr(fitting, "CORRECTIONS", corrections)
    some = setting(n=2000)
    some.engine.query_before(some.module, np.zeros(1), 1)
    assert [release.purpose for release in some.ledger.releases] == ["moments"]
    gap = asked(some.engine, scores_of(some.module, some.problem.X), 1)
    assert gap is not None
    return gap


def test_fit_of_memberships_on_a_public_sample_is_corrected_to_that_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = gaps_with_a_sample(monkeypatch, rows=2000, corrections=0)
    off = [
        float(np.abs(gaps_with_a_sample(monkeypatch, rows=700, corrections=times) - whole).max()) for times in (0, 1, 2)
    ]
    assert off[1] < 0.3 * off[0]
    assert off[2] < 0.003


def test_dual_step_on_a_public_sample_uses_nearly_the_gaps_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    some = setting(n=2000)
    some.engine.query_before(some.module, np.zeros(1), 1)
    scores = scores_of(some.module, some.problem.X)
    all_rows = asked(some.engine, scores, 1)
    assert some.engine.dual_rows(1) == slice(None)
    monkeypatch.setattr(moments_module, "DUAL_ROWS", 1000)
    samples = [some.engine.dual_rows(1) for _ in range(40)]
    assert all(len(rows) == 1000 for rows in samples)
    assert some.engine.dual_rows(PLAN.check_rounds[0]) == slice(None)
    gaps = np.stack([asked(some.engine, scores[rows], 1, rows) for rows in samples])
    assert np.allclose(gaps.mean(0), all_rows, atol=0.01)
    assert float(gaps.std(0).max()) > 0


# Queries, when they are made, and what they cost


def test_engine_queries_nothing_during_the_warm_up() -> None:
    some = setting()
    lam = np.zeros((2, 1))
    opened(some.engine)
    some.engine.query_before(some.module, lam, 0)
    assert some.engine.row_weights(lam, torch.arange(5)) is None
    assert some.engine.constraint(some.module, lam, torch.arange(5)) is None
    assert asked(some.engine, scores_of(some.module, some.problem.X), 0) is None
    assert some.engine.state() == {}
    assert some.ledger.releases == ()


def test_loop_releases_moments_after_the_warm_up_and_decisions_at_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    some = setting()
    releases: list[int] = []
    monkeypatch.setattr(some.engine, "dual_rows", lambda _: releases.append(len(some.ledger.releases)) or slice(None))
    train(some)
    # After the steps of rounds 0 to 6; checks follow rounds 2 and 4.
    assert PLAN.check_rounds == (2, 4)
    assert releases == [0, 1, 1, 2, 2, 3, 3]
    assert [release.purpose for release in some.ledger.releases] == RELEASES


def test_warm_up_and_first_release_do_not_depend_on_the_notion_or_the_tolerance(people: Any, make: Any) -> None:
    histories = [
        fit(make(engine="moments", module=[4], plan=PLAN, **changes), people)
        .history_.loc[0, ["loss", "accuracy"]]
        .tolist()
        for changes in ({}, {"notion": "accuracy_parity"}, {"tolerance": 0.3}, {"epsilon": math.inf})
    ]
    assert histories == [histories[0]] * 4


@pytest.mark.parametrize("checks", [0, 1, 4])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_ledger_after_fit_holds_what_the_plan_announced(people: Any, make: Any, checks: int, epsilon: float) -> None:
    plan = replace(PLAN, checks=checks)
    announced = plan.calibrate(epsilon, 1e-5, n=len(people.y))
    model = fit(make(engine="moments", plan=plan, epsilon=epsilon), people)
    assert Counter(model.ledger_.costs()) == announced.costs() == model.plan_.costs()
    assert [release.purpose for release in model.ledger_.releases] == ["moments"] + ["decisions"] * checks
    assert announced.epsilon(1e-5) == pytest.approx(epsilon, rel=1e-4)
    assert model.certificate_.epsilon == pytest.approx(epsilon, rel=1e-4)
    assert model.certificate_.epsilon <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("checks", [1, 3, 4])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_calibrated_plan_splits_the_budget_as_its_share_says(share: float, checks: int) -> None:
    plan = replace(PLAN, checks=checks, share_moments=share).calibrate(1.0, 1e-5, n=100)
    first, each = (1 / noise.noise_multiplier**2 for noise in (plan.noise_moments, plan.noise_checks))
    assert first / (first + checks * each) == pytest.approx(share)
    assert first + checks * each == pytest.approx(0.2681**2, rel=1e-3)  # mu of (1, 1e-5)


def test_plan_without_checks_spends_everything_on_the_moments() -> None:
    plan = replace(PLAN, checks=0, share_moments=0.3).calibrate(1.0, 1e-5, n=100)
    assert [release.purpose for release in plan.releases()] == ["moments"]
    assert plan.noise_moments.noise_multiplier == pytest.approx(3.731, rel=1e-3)


def test_calibration_returns_a_new_plan_and_leaves_the_old_one_without_noise() -> None:
    calibrated = PLAN.calibrate(1.0, 1e-5, n=100)
    assert PLAN.noise_moments is None
    assert calibrated == calibrated.calibrate(1.0, 1e-5, n=100) == PLAN.calibrate(1.0, 1e-5, n=5000)
    with pytest.raises(ValueError, match=r"This plan has no noise yet; call plan\.calibrate"):
        PLAN.costs()


def test_check_rounds_are_as_many_as_asked_for_distinct_and_between_first_and_last() -> None:
    for rounds in range(1, 60):
        for checks in range(rounds):
            plan = MomentsPlan(rounds=rounds, checks=checks)
            found = plan.check_rounds
            assert len(set(found)) == len(found) == checks
            assert all(1 <= k < rounds for k in found)
            duals = {one.k for one in plan.schedule(10) if one.dual}
            assert set(found) <= duals


def test_sensitivities_in_the_ledger_are_those_of_bounded_rows(people: Any, make: Any) -> None:
    model = fit(make(engine="moments", plan=PLAN), people)
    first, *checks = [release.sensitivity for release in model.ledger_.releases]
    assert first == pytest.approx(math.sqrt(2), rel=1e-12)
    assert all(0 <= sensitivity <= first for sensitivity in checks)


def test_fit_within_a_ledger_that_cannot_pay_is_refused_before_anything_is_asked(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        make(engine="moments", plan=PLAN).fit(people.X, people.y, sensitive_features=people.a, ledger=ledger)
    assert ledger.releases == ()
