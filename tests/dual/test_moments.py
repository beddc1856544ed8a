"""The moments engine: what it asks and when, gaps and weights by hand, limits, checkpoints, and what it keeps."""

import gc
import json
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import justitia.dual.moments as moments_module
from justitia import GradientsPlan, LagrangianDualClassifier, MomentsPlan, PrivacyLedger
from justitia.dual.checkpoint import Checkpoint
from justitia.dual.engines import make_engine
from justitia.dual.lagrangian import Problem, row_bound
from justitia.dual.loop import Run, train
from justitia.dual.moments import MomentsEngine, noise_spread
from justitia.network import multilayer
from justitia.notions import NOTIONS, FairnessNotion
from justitia.privacy.accounting import UnboundedCost
from justitia.privacy.ledger import BudgetExceeded
from justitia.privacy.mechanisms import Gaussian, SeededNoise, Unprotected
from justitia.privacy.vault import SensitiveVault

PLAN = MomentsPlan(warmup_steps=8, rounds=6, public_steps=2, checks=2, batch_size=64, warmup_learning_rate=0.02)
RELEASES = ["moments", "decisions", "decisions"]
GROUPS = ("a", "b", "c", "d", "e")
WEIGHT = torch.linspace(2, 1, 60)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so
every_notion = pytest.mark.parametrize("notion", list(NOTIONS))


@dataclass(frozen=True)
class Setting:
    """A problem, its attribute, a network and an engine that has asked nothing yet."""

    problem: Problem
    labels: list[Any]
    module: nn.Module
    engine: MomentsEngine
    ledger: PrivacyLedger

    @property
    def inside(self) -> Tensor:
        """(n, G): who is in which group."""
        names = GROUPS[: self.engine.vault.n_groups]
        return torch.tensor([[float(label == name) for name in names] for label in self.labels]).double()


def setting(
    notion: str = "demographic_parity",
    *,
    epsilon: float = 8.0,
    plan: MomentsPlan = PLAN,
    n: int = 60,
    n_groups: int = 2,
    weight: Tensor | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
) -> Setting:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=generator)
    y = (X[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0).float()
    codes = (X[:, 1] + torch.randn(n, generator=generator)).argsort().argsort() * (n_groups + 1) // n
    labels = [([*GROUPS[:n_groups], None])[int(code)] for code in codes]
    problem = Problem(X, y, torch.ones(n) if weight is None else weight, NOTIONS[notion]())
    module = seeded(lambda: multilayer(3, [4]))
    ledger = PrivacyLedger(epsilon=epsilon, delta=1e-5)
    vault = SensitiveVault(labels, groups=GROUPS[:n_groups], ledger=ledger, noise_source=SeededNoise(0))
    calibrated = plan.calibrate(epsilon, 1e-5, n=n)
    engine = make_engine(calibrated, problem, vault, tolerance=tolerance, generator=torch.Generator().manual_seed(1))
    assert isinstance(engine, MomentsEngine)
    return Setting(problem, labels, module, engine, ledger)


def scores_of(module: nn.Module, X: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = module(X).squeeze(1)
    return out


def multipliers(some: Setting) -> Tensor:
    shape = (some.engine.vault.n_groups, some.problem.events.shape[1])
    return torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def gaps_by_hand(notion: FairnessNotion, h: Tensor, y: Tensor, inside: Tensor, weight: Tensor) -> Tensor:
    """(G, K): weighted mean of h in each group and event less that of the whole event, one loop at a time."""
    events = notion.events(y)
    gaps = torch.zeros(inside.shape[1], events.shape[1], dtype=torch.float64)
    for a in range(inside.shape[1]):
        for k in range(events.shape[1]):
            everyone = [float(events[i, k] * weight[i]) for i in range(len(y))]
            group = [everyone[i] * float(inside[i, a]) for i in range(len(y))]
            population = sum(e * float(h[i]) for i, e in enumerate(everyone)) / sum(everyone)
            mean = sum(e * float(h[i]) for i, e in enumerate(group)) / sum(group)
            gaps[a, k] = mean - population
    return gaps


# Gaps and weights by hand


@pytest.mark.parametrize("n_groups", [2, 5])
@every_notion
def test_gap_without_privacy_is_the_gap_of_the_true_groups(notion: str, n_groups: int) -> None:
    some = setting(notion, epsilon=math.inf, n_groups=n_groups, weight=WEIGHT)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    by_hand = gaps_by_hand(
        problem.notion, problem.notion.h_exact(scores, problem.y), problem.y, some.inside, problem.weight
    )
    gap = some.engine.gap(scores, 1)
    assert gap is not None
    assert torch.allclose(gap, by_hand, atol=1e-6)


@pytest.mark.parametrize("n_groups", [2, 3])
@every_notion
def test_gap_is_that_of_the_hard_decisions_over_the_memberships(notion: str, n_groups: int) -> None:
    some = setting(notion, n_groups=n_groups)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    q = some.engine._q
    assert q is not None
    by_hand = gaps_by_hand(problem.notion, problem.notion.h_exact(scores, problem.y), problem.y, q, problem.weight)
    gap = some.engine.gap(scores, 1)
    assert gap is not None
    assert torch.allclose(gap, by_hand, atol=1e-5)


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@every_notion
def test_row_weights_give_the_gradient_of_the_constraint_over_the_memberships(notion: str, epsilon: float) -> None:
    some = setting(notion, epsilon=epsilon, weight=WEIGHT)
    engine, problem, lam = some.engine, some.problem, multipliers(some)
    engine.prepare(some.module, lam, 1)
    assert engine._q is not None
    params = list(some.module.parameters())

    h = problem.notion.h(some.module(problem.X).squeeze(1), problem.y).double()
    shares = problem.events.double() / problem.events.double().sum(0)
    inside = engine._q.double()[:, :, None] * problem.events.double()[:, None, :]
    constraint = (lam * ((inside / inside.sum(0) * h[:, None, None]).sum(0) - (shares * h[:, None]).sum(0))).sum()
    expected = torch.autograd.grad(constraint, params)

    weights = engine.row_weights(lam, torch.arange(60))
    assert weights is not None
    h = problem.notion.h(some.module(problem.X).squeeze(1), problem.y)
    found = torch.autograd.grad((weights.float() * h).sum(), params)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def plain_run(some: Setting, **options: Any) -> Run:
    plan = replace(PLAN, optimizer="SGD", optimizer_options={"weight_decay": 0}, warmup_learning_rate=0.1, **options)
    return Run(some.module, some.problem, plan, torch.Generator().manual_seed(0))


def test_primal_step_with_row_weights_equals_a_step_written_by_hand() -> None:
    some = setting("equalized_odds", weight=WEIGHT)
    engine, problem, lam = some.engine, some.problem, multipliers(some)
    engine.prepare(some.module, lam, 1)
    batch = torch.tensor([3, 1, 41, 59, 17, 20, 22, 8])
    weights = engine.row_weights(lam, batch)
    assert weights is not None
    params = list(some.module.parameters())
    before = [p.detach().clone() for p in params]

    scores = some.module(problem.X[batch]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, problem.y[batch], weight=problem.weight[batch])
    # all rows are 60 / 8 times as many as the batch
    constraint = (60 / 8) * (weights.float() * torch.sigmoid(scores)).sum()
    gradient = torch.autograd.grad(loss + constraint, params)

    plain_run(some).primal_step(batch, weights)
    for p, old, slope in zip(params, before, gradient, strict=True):
        assert torch.allclose(p, old - 0.1 * slope, atol=1e-6)


def test_primal_steps_over_a_partition_average_to_the_step_over_all_rows() -> None:
    """So the constraint of a batch is an unbiased estimate of that of all rows."""
    lam = torch.tensor([[1.5], [-0.7]], dtype=torch.float64)

    def moved(index: Tensor) -> Tensor:
        some = setting()
        some.engine.prepare(some.module, lam, 1)
        before = nn.utils.parameters_to_vector(some.module.parameters()).detach().clone()
        plain_run(some).primal_step(index, some.engine.row_weights(lam, index))
        return nn.utils.parameters_to_vector(some.module.parameters()).detach() - before

    parts = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(15)
    assert torch.allclose(torch.stack([moved(part) for part in parts]).mean(0), moved(torch.arange(60)), atol=1e-6)


def test_primal_step_adds_a_constraint_gradient_to_that_of_loss_and_weights() -> None:
    some, batch = setting(), torch.arange(20)
    params = list(some.module.parameters())
    before = nn.utils.parameters_to_vector(params).detach().clone()
    flat = torch.linspace(-1, 1, len(before), dtype=torch.float64)
    weights = torch.linspace(0, 0.1, 20, dtype=torch.float64)
    scores = some.module(some.problem.X[batch]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, some.problem.y[batch])
    loss = loss + 60 / 20 * (weights.float() * torch.sigmoid(scores)).sum()
    slope = torch.cat([part.flatten() for part in torch.autograd.grad(loss, params)])
    plain_run(some).primal_step(batch, weights, flat)
    after = nn.utils.parameters_to_vector(params).detach()
    assert torch.allclose(after, before - 0.1 * (slope + flat.float()), atol=1e-6)


def test_primal_step_without_constraint_is_a_plain_step() -> None:
    some, batch = setting(), torch.arange(20)
    params = list(some.module.parameters())
    before = [p.detach().clone() for p in params]
    loss = F.binary_cross_entropy_with_logits(some.module(some.problem.X[batch]).squeeze(1), some.problem.y[batch])
    gradient = torch.autograd.grad(loss, params)
    plain_run(some).primal_step(batch)
    for p, old, slope in zip(params, before, gradient, strict=True):
        assert torch.allclose(p, old - 0.1 * slope, atol=1e-7)


def test_row_weights_without_multipliers_are_zero() -> None:
    some = setting("equalized_odds")
    some.engine.prepare(some.module, torch.zeros(1), 1)
    weights = some.engine.row_weights(torch.zeros(2, 2, dtype=torch.float64), torch.arange(60))
    assert weights is not None
    assert torch.equal(weights, torch.zeros(60, dtype=torch.float64))


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_gap_of_a_weight_of_two_is_that_of_the_row_twice(epsilon: float) -> None:
    """Given the memberships: the rows of the release count everybody once."""
    some = setting("accuracy_parity", epsilon=epsilon, weight=1 + (torch.arange(60) < 20).float())
    some.engine.prepare(some.module, torch.zeros(1), 1)
    scores, problem, q = scores_of(some.module, some.problem.X), some.problem, some.engine._q
    assert q is not None
    index = torch.cat([torch.arange(60), torch.arange(20)])
    h = problem.notion.h_exact(scores, problem.y)[index]
    repeated = gaps_by_hand(problem.notion, h, problem.y[index], q[index], torch.ones(80))
    gap = some.engine.gap(scores, 1)
    assert gap is not None
    assert torch.allclose(gap, repeated, atol=1e-5)


@every_notion
def test_gap_right_after_a_check_without_noise_is_the_true_gap(notion: str) -> None:
    """The decisions are columns of the moments then, so their sums are right whatever the features say."""
    plan = replace(PLAN, ridge=0.0)
    some = setting(notion, plan=plan, n=300)
    quiet = replace(some.engine.plan, noise_moments=Gaussian(1e-9), noise_checks=Gaussian(1e-9))
    engine = MomentsEngine(
        quiet, some.problem, open_vault(some), tolerance=0.0, generator=torch.Generator().manual_seed(1)
    )
    engine.prepare(some.module, torch.zeros(1), 1)
    scores, problem = scores_of(some.module, some.problem.X), some.problem
    h = problem.notion.h_exact(scores, problem.y)
    by_hand = gaps_by_hand(problem.notion, h, problem.y, some.inside, problem.weight)
    gap = engine.gap(scores, quiet.check_rounds[0])
    assert gap is not None
    assert torch.allclose(gap, by_hand, atol=0.01)


def open_vault(some: Setting) -> SensitiveVault:
    """The same people, nothing spent, no limit."""
    names = GROUPS[: some.engine.vault.n_groups]
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    return SensitiveVault(some.labels, groups=names, ledger=ledger, noise_source=SeededNoise(0))


def test_noise_spread_is_the_spread_of_the_vaults_answers() -> None:
    """Of 20,000 noised sums per group, for two and five groups; within six standard errors, 3%."""
    for n_groups in (2, 5):
        vault = SensitiveVault(
            ["a", "b"],
            groups=GROUPS[:n_groups],
            ledger=PrivacyLedger(epsilon=math.inf, delta=1e-5),
            noise_source=SeededNoise(3),
        )
        answer = vault.group_sums(torch.zeros(2, 20_000), bound=0.7, noise=Gaussian(2.5), purpose="test")
        expected = noise_spread(Gaussian(2.5), 0.7, n_groups)
        assert answer.std(1).tolist() == pytest.approx([expected] * n_groups, rel=0.03)
        rest = -answer.sum(0)
        assert float(rest.std()) == pytest.approx(expected, rel=0.03)
    assert noise_spread(Unprotected(), 1.0, 2) == 0.0


def gaps_with_a_sample(monkeypatch: pytest.MonkeyPatch, *, rows: int, corrections: int) -> torch.Tensor:
    monkeypatch.setattr(moments_module, "FIT_ROWS", rows)
    monkeypatch.setattr(moments_module, "CORRECTIONS", corrections)
    some = setting(n=2000)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    assert [release.purpose for release in some.ledger.releases] == ["moments"]
    gap = some.engine.gap(scores_of(some.module, some.problem.X), 1)
    assert gap is not None
    return gap


def test_fit_of_memberships_on_a_public_sample_is_corrected_to_that_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = gaps_with_a_sample(monkeypatch, rows=2000, corrections=0)
    off = [
        float((gaps_with_a_sample(monkeypatch, rows=700, corrections=times) - whole).abs().max()) for times in (0, 1, 2)
    ]
    assert off[1] < 0.3 * off[0]
    assert off[2] < 0.003


def test_dual_step_on_a_public_sample_sees_nearly_the_gaps_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    some = setting(n=2000)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    scores = scores_of(some.module, some.problem.X)
    everybody = some.engine.gap(scores, 1)
    assert some.engine.watched(1) == slice(None)
    monkeypatch.setattr(moments_module, "WATCHED", 1000)
    samples = [some.engine.watched(1) for _ in range(40)]
    assert all(len(seen) == 1000 for seen in samples)
    assert some.engine.watched(PLAN.check_rounds[0]) == slice(None)
    gaps = torch.stack([some.engine.gap(scores[seen], 1, seen) for seen in samples])
    assert torch.allclose(gaps.mean(0), everybody, atol=0.01)
    assert float(gaps.std(0).max()) > 0


# What is asked, when, and what it costs


def test_engine_asks_nothing_during_the_warm_up() -> None:
    some = setting()
    lam = torch.zeros(2, 1, dtype=torch.float64)
    some.engine.open()
    some.engine.prepare(some.module, lam, 0)
    assert some.engine.row_weights(lam, torch.arange(5)) is None
    assert some.engine.constraint(some.module, lam, torch.arange(5)) is None
    assert some.engine.gap(scores_of(some.module, some.problem.X), 0) is None
    assert some.engine.state() == {}
    assert some.ledger.releases == ()


def test_loop_asks_for_the_moments_after_the_warm_up_and_for_decisions_at_the_checks() -> None:
    some = setting()
    asked: list[int] = []
    train(
        some.module,
        some.problem,
        some.engine.plan,
        some.engine,
        progress=lambda _: asked.append(len(some.ledger.releases)),
    )
    # After the steps of rounds 0 to 6; checks follow rounds 2 and 4.
    assert PLAN.check_rounds == (2, 4)
    assert asked == [0, 1, 1, 2, 2, 3, 3]
    assert [release.purpose for release in some.ledger.releases] == RELEASES


def test_warm_up_and_first_release_do_not_depend_on_the_notion_or_the_tolerance(people: Any, make: Any) -> None:
    histories = [
        fit(make(engine="moments", plan=PLAN, **changes), people).history_.loc[0, ["loss", "accuracy"]].tolist()
        for changes in ({}, {"notion": "accuracy_parity"}, {"tolerance": 0.3}, {"epsilon": math.inf})
    ]
    assert histories == [histories[0]] * 4


def fit(model: LagrangianDualClassifier, people: Any, folder: Path | None = None) -> LagrangianDualClassifier:
    return model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)


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
    gaps = model.history_.filter(like="noisy_gap").iloc[1:-1].to_numpy()
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


def test_people_who_did_not_give_theirs_weigh_nothing_in_the_gaps() -> None:
    """Without noise the gap of the groups is that of those who answered."""
    some = setting(epsilon=math.inf)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    silent = torch.tensor([i for i, label in enumerate(some.labels) if label is None])
    lam = torch.ones(2, 1, dtype=torch.float64)
    weights = some.engine.row_weights(lam, silent)
    assert weights is not None
    assert torch.allclose(weights.double(), torch.full((len(silent),), -2 / 60, dtype=torch.float64))


class Own(nn.Module):
    """A module of the user's own without a linear layer at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale = nn.Linear(3, 5), nn.Parameter(torch.ones(5))

    def forward(self, X: Tensor) -> Tensor:
        """(m,)."""
        return self.first(X).tanh() @ self.scale


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.3), nn.Linear(6, 1))


def seeded(make_one: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_one()


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


def test_fit_on_more_features_than_people() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 150))
    y, a = (X[:, 0] > 0).astype(int), np.where(X[:, 1] > 0, "a", "b")
    model = LagrangianDualClassifier(engine="moments", plan=PLAN, module=(4,), groups=["a", "b"], random_state=0)
    assert np.isfinite(model.fit(X, y, sensitive_features=a).decision_function(X)).all()


def test_fit_does_not_depend_on_how_many_rows_are_held_at_once_beyond_round_off(people: Any, make: Any) -> None:
    one, other = (fit(make(engine="moments", plan=replace(PLAN, micro_batch=m)), people) for m in (4096, 50))
    assert np.allclose(one.decision_function(people.X), other.decision_function(people.X), atol=1e-3)


def test_fit_with_other_noise_gives_another_model_and_with_the_same_noise_the_same(people: Any, make: Any) -> None:
    one, same, other = (
        fit(make(engine="moments", plan=PLAN, noise_seed=s), people).decision_function(people.X) for s in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


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


@pytest.mark.parametrize("epsilon", [100.0, math.inf])
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


# Interrupted and resumed


class Killed(BaseException):
    """Stands for a process that dies."""


def moments_model(make: Any, **changes: Any) -> LagrangianDualClassifier:
    model: LagrangianDualClassifier = make(**{"engine": "moments", "plan": PLAN, "module": (4,)} | changes)
    return model


def die_after_save(model: Any, people: Any, folder: Path, *, saves: int) -> None:
    done, original = 0, Checkpoint.save

    def save(self: Any, *args: Any) -> None:
        nonlocal done
        original(self, *args)
        done += 1
        if done == saves:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(Killed):
            fit(model, people, folder)


def die_at_question(model: Any, people: Any, folder: Path, *, at: int, answered: bool) -> None:
    """Die at the at-th question of this run: before its debit, or when it is paid for and the answer is on its way."""
    asked, original = 0, SensitiveVault.group_sums

    def ask(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        nonlocal asked
        asked += 1
        if asked < at:
            return original(self, *args, **kwargs)
        if answered:
            original(self, *args, **kwargs)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SensitiveVault, "group_sums", ask)
        with pytest.raises(Killed):
            fit(model, people, folder)


def journal(folder: Path) -> list[str]:
    return [json.loads(line)["purpose"] for line in (folder / "ledger.jsonl").read_text().splitlines()]


def assert_same(one: Any, other: Any, people: Any) -> None:
    assert np.array_equal(one.decision_function(people.X), other.decision_function(people.X))
    for name, value in one.module_.state_dict().items():
        assert torch.equal(value, other.module_.state_dict()[name])
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)
    pd.testing.assert_frame_equal(one.dual_, other.dual_, check_exact=True)
    assert one.certificate_ == other.certificate_


@pytest.fixture
def noise_numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Release numbers that noise was drawn for, in order."""
    numbers: list[int] = []
    original = SeededNoise.words

    def record(self: Any, size: int, *, release: int, stream: str = "noise") -> Any:
        numbers.extend([release] if stream != "more bits" else [])
        return original(self, size, release=release, stream=stream)

    monkeypatch.setattr(SeededNoise, "words", record)
    return numbers


@pytest.mark.parametrize("saves", range(1, 9))
def test_resume_between_any_two_rounds_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], saves: int
) -> None:
    die_after_save(moments_model(make), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make), people, tmp_path / "run")
    assert noise_numbers == [0, 1, 2]
    assert journal(tmp_path / "run") == RELEASES
    assert_same(resumed, fit(moments_model(make), people), people)


@pytest.mark.parametrize("saves", [1, 4, 7])
@pytest.mark.parametrize(
    "changes",
    [
        {"module": seeded(with_dropout)},
        {"module": seeded(Own)},
        {"notion": "equalized_odds", "tolerance": 0.02},
        {"plan": replace(PLAN, micro_batch=32, averaging=1.0, dead_zone=0.5)},
    ],
    ids=["dropout", "own module", "equalized odds", "small chunks"],
)
def test_resume_of_other_settings_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, changes: dict[str, Any], saves: int
) -> None:
    die_after_save(moments_model(make, **changes), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make, **changes), people, tmp_path / "run")
    assert_same(resumed, fit(moments_model(make, **changes), people), people)


@pytest.mark.parametrize("saves", [1, 2, 5])
def test_resume_without_privacy_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, saves: int
) -> None:
    usual = {"epsilon": math.inf, "noise_seed": None}
    die_after_save(moments_model(make, **usual), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make, **usual), people, tmp_path / "run")
    whole = fit(moments_model(make, **usual), people)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))


@pytest.mark.parametrize("at", [2, 3])
def test_check_that_was_paid_for_and_lost_is_not_asked_again(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    die_at_question(model, people, folder, at=at, answered=True)
    assert journal(folder) == RELEASES[:at]
    assert not hasattr(model, "module_")
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    assert np.isfinite(model.decision_function(people.X)).all()


def test_two_checks_lost_one_after_the_other_are_not_asked_again(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    die_at_question(model, people, folder, at=2, answered=True)
    die_at_question(model, people, folder, at=1, answered=True)
    assert journal(folder) == RELEASES
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]
    assert Counter(model.ledger_.costs()) == model.plan_.costs()


def test_lost_check_and_another_death_later_ask_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    die_at_question(model, people, folder, at=2, answered=True)
    die_after_save(model, people, folder, saves=1)
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_resume_after_dying_before_a_debit_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    die_at_question(model, people, folder, at=at, answered=False)
    fit(model, people, folder)
    assert noise_numbers == [0, 1, 2]
    assert_same(model, fit(moments_model(make), people), people)


@pytest.mark.parametrize("warmup_steps", [0, 8])
def test_resume_after_the_moments_were_lost_is_refused_in_one_sentence(
    people: Any, make: Any, tmp_path: Path, warmup_steps: int
) -> None:
    model, folder = moments_model(make, plan=replace(PLAN, warmup_steps=warmup_steps)), tmp_path / "run"
    die_at_question(model, people, folder, at=1, answered=True)
    for _ in range(2):
        with pytest.raises(BudgetExceeded) as caught:
            fit(model, people, folder)
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert "the debit stands" in sentence
        assert sentence.endswith("start again in another folder with a new budget.")
    assert journal(folder) == ["moments"]
    assert not hasattr(model, "module_")


def test_resume_after_the_last_check_needs_the_attribute_no_more(people: Any, make: Any, tmp_path: Path) -> None:
    """What is left of A in the folder is its noised answers: with everybody silent the run ends the same."""
    die_after_save(moments_model(make), people, tmp_path / "run", saves=7)
    resumed = moments_model(make)
    resumed.fit(people.X, people.y, sensitive_features=[None] * len(people.y), checkpoint=tmp_path / "run")
    assert_same(resumed, fit(moments_model(make), people), people)


def test_resume_of_a_finished_run_asks_nothing_and_gives_the_same_model(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    first = fit(moments_model(make), people, tmp_path / "run")
    again = fit(moments_model(make), people, tmp_path / "run")
    assert noise_numbers == [0, 1, 2]
    assert_same(again, first, people)


def test_resume_of_a_folder_of_another_plan_or_engine_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    die_after_save(moments_model(make), people, tmp_path / "run", saves=3)
    for changes in ({"plan": replace(PLAN, ridge=0.5)}, {"engine": "gradients", "plan": None}):
        with pytest.raises(ValueError, match="belongs to a run with other data or settings"):
            fit(moments_model(make, **changes), people, tmp_path / "run")


# Memberships are never kept


def contents(thing: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Everything reachable from ``thing`` through attributes and containers."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None):
        return
    seen.add(id(thing))
    yield thing
    inner: list[Any] = []
    if isinstance(thing, dict):
        inner = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = list(thing)
    elif not isinstance(thing, np.ndarray | pd.DataFrame):
        inner = list(getattr(thing, "__dict__", {}).values())
    for one in inner:
        yield from contents(one, seen)


def shapes(thing: Any) -> set[tuple[int, ...]]:
    """Shapes of everything in ``thing`` that has one, lists of lists of numbers included."""
    found = {tuple(one.shape) for one in contents(thing) if hasattr(one, "shape") and not isinstance(one, type)}
    for one in contents(thing):
        if isinstance(one, list | tuple) and one and isinstance(one[0], list | tuple):
            found.add((len(one), len(one[0])))
    return found


N_PRIME = 137  # no other table of these tests has so many rows


def many_people() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_PRIME, 3))
    return X, (X[:, 0] > 0).astype(int), rng.choice([*GROUPS, "?"], N_PRIME)


def five_groups(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"engine": "moments", "plan": PLAN, "groups": GROUPS, "module": (4,), "missing_marker": "?"}
    return LagrangianDualClassifier(**usual | {"random_state": 0, "noise_seed": 0} | changes)


FORBIDDEN = {(N_PRIME, 5), (N_PRIME, 6), (5, N_PRIME), (6, N_PRIME)}


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_fitted_estimator_holds_nothing_with_a_row_per_person(epsilon: float) -> None:
    X, y, a = many_people()
    model = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a)
    assert not [shape for shape in shapes(vars(model)) if N_PRIME in shape]
    assert not [shape for shape in shapes(pickle.loads(pickle.dumps(model))) if N_PRIME in shape]


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_memberships_are_gone_from_memory_after_fit(epsilon: float) -> None:
    X, y, a = many_people()
    model = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a)
    gc.collect()
    alive = {tuple(one.shape) for one in gc.get_objects() if type(one) is Tensor}
    assert not alive & FORBIDDEN
    assert model.n_features_in_ == 3


def test_scan_of_memory_would_find_memberships_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Tensor] = []
    original = MomentsEngine._use

    def keep(engine: MomentsEngine, q: Tensor) -> None:
        original(engine, q)
        kept.append(q)

    monkeypatch.setattr(MomentsEngine, "_use", keep)
    X, y, a = many_people()
    five_groups().fit(X, y, sensitive_features=a)
    gc.collect()
    assert {tuple(one.shape) for one in gc.get_objects() if type(one) is Tensor} & FORBIDDEN
    assert kept
    kept.clear()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_saved_model_holds_nothing_with_a_row_per_person(tmp_path: Path, epsilon: float) -> None:
    X, y, a = many_people()
    folder = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a).save(tmp_path / "model")
    assert sorted(file.name for file in folder.iterdir()) == ["model.json", "weights.safetensors"]
    facts = json.loads((folder / "model.json").read_text())
    assert not [shape for shape in shapes(facts) if N_PRIME in shape]
    assert not [one for one in contents(facts) if isinstance(one, list) and len(one) >= N_PRIME]
    assert not [shape for shape in shapes(load_file(folder / "weights.safetensors")) if N_PRIME in shape]
    loaded = LagrangianDualClassifier.load(folder)
    assert loaded.engine == "moments"
    assert isinstance(loaded.plan_, MomentsPlan)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_checkpoint_holds_public_decisions_but_no_memberships(tmp_path: Path, epsilon: float) -> None:
    X, y, a = many_people()
    found: set[tuple[int, ...]] = set()
    original = Checkpoint.save

    def look(self: Checkpoint, *args: Any) -> None:
        original(self, *args)
        state = torch.load(self.folder / "state.pt", weights_only=True)
        found.update(shapes(state))
        for name, value in state["engine"].items():
            if N_PRIME in value.shape:
                assert name.startswith("decisions.")
                assert len(value.unique()) <= 2  # a decision less the public mean, of demographic parity

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", look)
        five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a, checkpoint=tmp_path / "run")
    assert not found & FORBIDDEN
    assert ((N_PRIME, 1) in found) == math.isfinite(epsilon)


def test_history_holds_gaps_and_multipliers_by_group_and_nothing_by_person() -> None:
    X, y, a = many_people()
    history = five_groups().fit(X, y, sensitive_features=a).history_
    assert len(history) == PLAN.rounds + 1
    assert history.shape[1] == 3 + 2 * 5
    assert all(np.ndim(value) == 0 for value in history.to_numpy().ravel())


# Wrong settings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rounds": 0}, "expected rounds to be at least 1, got 0"),
        ({"rounds": 2.5}, "expected rounds to be an int"),
        ({"public_steps": 0}, "expected public_steps to be at least 1, got 0"),
        ({"warmup_steps": -1}, "expected warmup_steps to be at least 0, got -1"),
        ({"checks": -1}, "expected checks to be at least 0, got -1"),
        ({"checks": 1.0}, "expected checks to be an int"),
        ({"checks": 3, "rounds": 3}, r"expected fewer checks than rounds \(3\), got 3; ask less often"),
        ({"share_moments": 0.0}, "expected share_moments to be above 0 and at most 1, got 0.0"),
        ({"share_moments": 1.5}, "expected share_moments to be above 0 and at most 1, got 1.5"),
        ({"share_moments": math.nan}, "expected share_moments to be"),
        ({"share_moments": 1.0, "checks": 2}, "expected share_moments below 1 where checks are to be paid for, got 1"),
        ({"ridge": -0.1}, "expected ridge to be a finite number of at least 0, got -0.1"),
        ({"ridge": math.inf}, "expected ridge to be a finite number of at least 0, got inf"),
        ({"dead_zone": -1}, "expected dead_zone to be a finite number of at least 0, got -1"),
        ({"dead_zone": "wide"}, "expected dead_zone to be a number"),
        ({"micro_batch": 0}, "expected micro_batch to be at least 1, got 0"),
        ({"averaging": 0}, "expected averaging to be above 0 and at most 1, got 0"),
        ({"optimizer": "adam"}, "no optimizer 'adam'; did you mean 'Adam'"),
    ],
    ids=str,
)
def test_wrong_plan_is_refused_in_one_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        MomentsPlan(**wrong)
    assert "\n" not in str(caught.value)


def test_share_of_one_is_right_where_nothing_is_checked() -> None:
    assert MomentsPlan(checks=0, share_moments=1.0).checks == 0


def test_plan_of_another_engine_is_refused_in_one_sentence(people: Any, make: Any) -> None:
    for engine, plan in (("moments", GradientsPlan()), ("gradients", PLAN)):
        with pytest.raises(TypeError, match=rf"expected a \w+Plan for engine '{engine}', got \w+Plan") as caught:
            fit(make(engine=engine, plan=plan), people)
        assert "\n" not in str(caught.value)


def test_engine_of_a_plan_without_noise_is_refused_in_one_sentence() -> None:
    some = setting()
    with pytest.raises(ValueError, match="This plan has no noise yet; call plan") as caught:
        MomentsEngine(PLAN, some.problem, open_vault(some), tolerance=0.0, generator=torch.Generator())
    assert "\n" not in str(caught.value)


def test_decisions_that_are_all_alike_are_asked_about_with_no_sensitivity_and_change_nothing() -> None:
    some = setting(plan=replace(PLAN, ridge=0.0))
    some.engine.prepare(some.module, torch.zeros(1), 1)
    before = some.engine.gap(torch.ones(60), 1)
    after = some.engine.gap(torch.ones(60), PLAN.check_rounds[0])
    assert row_bound(torch.zeros(60, 1)) == 0.0
    assert [release.sensitivity for release in some.ledger.releases] == [pytest.approx(math.sqrt(2), rel=1e-9), 0.0]
    assert before is not None
    assert after is not None
    assert torch.equal(before, torch.zeros(2, 1, dtype=torch.float64))
    assert torch.equal(after, before)


# The penalty and the tolerance that are chosen where none is given


def test_penalty_falls_with_the_root_of_the_rows_and_gives_way_to_the_users() -> None:
    assert MomentsPlan().options_at(10_000)["weight_decay"] == pytest.approx(0.005)
    assert MomentsPlan(optimizer_options={"weight_decay": 0.1}).options_at(10_000)["weight_decay"] == 0.1
    assert MomentsPlan(optimizer="Rprop").options_at(10_000) == {}  # knows no penalty


def test_adam_is_fused_unless_the_users_options_rule_it_out() -> None:
    assert MomentsPlan().options_at(100)["fused"] is True
    for options in ({"foreach": True}, {"fused": False}, {"differentiable": True}):
        made = MomentsPlan(optimizer_options=options)
        assert made.options_at(100).get("fused", False) is False
        made.make_optimizer([torch.nn.Parameter(torch.zeros(2))], n=100)
    assert "fused" not in MomentsPlan(optimizer="RMSprop").options_at(100)


@pytest.mark.parametrize(("tolerance", "factor"), [(None, 1.0), (0.0, 4.0), (0.015, 2.5), (0.03, 1.0), (0.5, 1.0)])
def test_penalty_grows_as_a_given_tolerance_gets_stricter(tolerance: float | None, factor: float) -> None:
    assert MomentsPlan(penalty=0.2).at_tolerance(tolerance).penalty == pytest.approx(0.2 * factor)
    model = LagrangianDualClassifier(
        groups=["a", "b"], plan=replace(PLAN, penalty=0.2), tolerance=tolerance, random_state=0, noise_seed=0
    )
    some = setting()
    model.fit(some.problem.X.numpy(), some.problem.y.numpy(), sensitive_features=some.labels)
    assert model.plan_.penalty == pytest.approx(0.2 * factor)


def test_tolerance_where_none_is_given_is_two_standard_deviations_of_the_known_noise() -> None:
    some = setting(n=400)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    strict, loose = some.engine.at(0.0), some.engine.at(10.0)
    lam, gap = torch.zeros(2, 1, dtype=torch.float64), torch.full((2, 1), 0.5, dtype=torch.float64)
    noise = some.engine._gap_noise(some.engine._sizes)
    moved = {name: one.ascend(lam, gap, 1) for name, one in (("strict", strict), ("loose", loose))}
    assert torch.allclose(moved["strict"], PLAN.dual_step_at(1) * gap)
    assert torch.equal(moved["loose"], lam)
    given_none = MomentsEngine(
        some.engine.plan, some.problem, some.engine.vault, tolerance=None, generator=torch.Generator()
    )
    given_none._use(torch.nn.functional.pad(some.engine._q, (0, 1)))
    expected = PLAN.dual_step_at(1) * (gap - 2 * noise).clamp_min(0)
    assert torch.allclose(given_none.ascend(lam, gap, 1), expected)
    assert (noise > 0).all()


def test_second_half_of_a_plan_has_the_step_sizes_of_the_whole() -> None:
    whole = MomentsPlan(
        rounds=10, checks=2, learning_rate=1e-2, final_learning_rate=1e-4, dual_step=1.0, dual_decay=0.3
    )
    half = whole.second_half()
    assert (half.warmup_steps, half.rounds) == (0, 5)
    for k in range(1, 6):
        assert half.dual_step_at(k) == pytest.approx(whole.dual_step_at(5 + k))
        assert half.learning_rate_at(k / 5) == pytest.approx(whole.learning_rate_at((5 + k) / 10))
    assert MomentsPlan(rounds=1, checks=0).second_half().rounds == 1


# Damped multipliers, and which weights are kept


def test_last_gaps_beyond_the_tolerance_are_added_to_the_multipliers_of_primal_steps() -> None:
    some = setting("equalized_odds", plan=replace(PLAN, damping=0.5), tolerance=0.1)
    engine, lam, everybody = some.engine, multipliers(some), torch.arange(60)
    engine.prepare(some.module, lam, 1)
    gap = torch.tensor([[0.3, -0.05], [-0.2, 0.1]], dtype=torch.float64)
    by_hand = lam + 0.5 * torch.tensor([[0.2, 0.0], [-0.1, 0.0]], dtype=torch.float64)
    expected = engine.row_weights(by_hand, everybody)
    engine.ascend(lam, gap, 1)
    found = engine.row_weights(lam, everybody)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(("first", "pace"), [(0.4, 1.0), (0.1, 1.0), (0.05, 2.0), (0.001, 5.0), (0.0, 5.0)])
def test_small_first_gaps_set_a_faster_pace_for_steps_and_damping(first: float, pace: float) -> None:
    some = setting(plan=replace(PLAN, damping=0.5), tolerance=0.0)
    engine, everybody, zero = some.engine, torch.arange(60), torch.zeros(2, 1, dtype=torch.float64)
    engine.prepare(some.module, zero, 1)
    gap = torch.tensor([[first], [-first / 2]], dtype=torch.float64)
    assert torch.allclose(engine.ascend(zero, gap, 1), pace * PLAN.dual_step_at(1) * gap)
    assert torch.allclose(engine.ascend(zero, 4 * gap, 2), pace * PLAN.dual_step_at(2) * 4 * gap)  # the first decides
    pushed = engine.row_weights(zero, everybody)
    engine._last = None
    expected = engine.row_weights(pace * 0.5 * 4 * gap, everybody)
    assert pushed is not None
    assert expected is not None
    assert torch.allclose(pushed, expected)


def test_a_resumed_engine_and_the_points_of_a_curve_keep_the_pace() -> None:
    some = setting(tolerance=0.0)
    engine, zero = some.engine, torch.zeros(2, 1, dtype=torch.float64)
    engine.prepare(some.module, zero, 1)
    small = torch.tensor([[0.05], [-0.05]], dtype=torch.float64)
    engine.ascend(zero, small, 1)
    other = setting(tolerance=0.0)
    other.engine.restore(engine.state(), lost=0)
    other.engine._use(torch.nn.functional.pad(engine._q, (0, 1)))
    for one in (engine.at(0.0), other.engine):
        assert torch.allclose(one.ascend(zero, 4 * small, 2), 2 * PLAN.dual_step_at(2) * 4 * small)


def test_damped_multipliers_stay_within_their_limit() -> None:
    some = setting(plan=replace(PLAN, damping=100.0, lambda_max=0.3))
    engine, everybody = some.engine, torch.arange(60)
    engine.prepare(some.module, torch.zeros(1), 1)
    limit = torch.tensor([[0.3], [-0.3]], dtype=torch.float64)
    expected = engine.row_weights(limit, everybody)
    lam = engine.ascend(torch.zeros(2, 1, dtype=torch.float64), torch.tensor([[0.4], [-0.4]]).double(), 1)
    found = engine.row_weights(lam, everybody)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(("told", "best"), [([0.3, 0.1, 0.2], 1), ([0.2, 0.0, 0.0], 2), ([0.1, 0.2, 0.3], 0)])
def test_result_is_the_average_nearest_to_the_tolerance_and_the_latest_of_equals(
    monkeypatch: pytest.MonkeyPatch, told: list[float], best: int
) -> None:
    some = setting(plan=replace(PLAN, candidates=3, averaging=0.5))
    run, seen, answers = Run.keep_better, [], iter(told)
    monkeypatch.setattr(MomentsEngine, "excess", lambda *_, **__: next(answers))
    monkeypatch.setattr(Run, "keep_better", lambda self, *rest: (seen.append(self.average.clone()), run(self, *rest)))
    train(some.module, some.problem, some.engine.plan, some.engine)
    assert len(seen) == 3
    assert torch.equal(nn.utils.parameters_to_vector(some.module.parameters()), seen[best])
    assert not torch.equal(seen[best], seen[best - 1])


def test_comparing_averages_does_not_disturb_the_run_itself() -> None:
    histories = [
        train(some.module, some.problem, some.engine.plan, some.engine).history
        for some in (setting(plan=replace(PLAN, candidates=candidates)) for candidates in (0, 4))
    ]
    assert histories[0] == histories[1]


def test_excess_is_the_largest_gap_beyond_tolerance_and_known_noise() -> None:
    some = setting(tolerance=0.05, epsilon=200.0, n=600)
    some.engine.prepare(some.module, torch.zeros(1), 1)
    scores = some.problem.X[:, 1]  # what the groups differ in
    gap = some.engine.gap(scores)
    assert gap is not None
    beyond = (gap.abs() - 0.05 - some.engine._gap_noise(some.engine._sizes)).max()
    assert float(beyond) > 0
    assert some.engine.excess(scores) == pytest.approx(float(beyond))
    assert some.engine.excess(torch.full_like(scores, 3.0)) == 0.0
