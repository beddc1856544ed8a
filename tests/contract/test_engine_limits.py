"""The contract of every engine at its limits: without noise it is not private, without multipliers plain training."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_cases import Case, Opened, People, network, network_engines, opened, people
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.notions import Array, FairnessNotion, decision


class Overlapping(FairnessNotion):
    """A user's notion whose events share rows: as many positive decisions in all groups, and among those with y = 1."""

    name = "overlapping"
    event_names = ("all", "y=1")

    def events(self, y: Array) -> Array:
        return np.stack([np.ones_like(y), y], axis=1)

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(scores)

    def h_exact(self, scores: Array, y: Array) -> Array:
        return decision(scores)


NOTIONS = ["demographic_parity", "equalized_odds", "accuracy_parity", Overlapping()]
every_notion = pytest.mark.parametrize("notion", NOTIONS, ids=lambda notion: getattr(notion, "name", notion))


def by_hand(case: Case, some: Opened, these: People, *, lambda_max: float) -> tuple[nn.Module, Tensor]:
    """Algorithm 1 on all rows with the attribute itself."""
    module, plan, problem = network(), some.plan, some.problem
    soft_h = problem.notion.h_read_as(getattr(plan, "h", "probability"))
    inside = torch.tensor([[float(label == group) for group in these.groups] for label in these.a], dtype=torch.float64)
    X, y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
    events = torch.from_numpy(problem.events).double()
    optimizer = plan.make_optimizer(list(module.parameters()), n=len(problem), inputs=problem.X.shape[1])
    schedule = plan.schedule(len(problem))
    done, total = 0, sum(one.steps for one in schedule if one.k)
    lam = torch.zeros(3, events.shape[1], dtype=torch.float64)

    def differences(h: Tensor) -> Tensor:
        rows = events * h.double()[:, None]
        group = (inside.T @ rows) / (inside.T @ events)
        return group - rows.sum(0) / events.sum(0)

    for this in schedule:
        for _ in range(this.steps):
            rate = plan.learning_rate_at(done / total) if this.k else plan.warmup_learning_rate
            for group in optimizer.param_groups:
                group["lr"] = rate
            scores = module(X).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(scores, y)
            loss = loss + (lam * case.term(differences(soft_h(scores, y)))).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += this.k > 0
        if this.dual and this.k >= case.first_dual:
            with torch.no_grad():
                scores = module(X).squeeze(1)
                soft = soft_h(scores, y)
                hard = torch.from_numpy(problem.notion.h_exact(scores.numpy(), problem.y))
            gap = case.violation(differences(soft), differences(hard))
            lam = (lam + plan.dual_step_at(this.k) * gap).clamp(case.lowest * lambda_max, lambda_max)
    return module, lam


def scores_of(module: nn.Module, X: Array) -> Array:
    with torch.no_grad():
        scores: Array = module(torch.from_numpy(X)).squeeze(1).numpy()
    return scores


@network_engines
@every_notion
def test_contract_without_noise_and_clipping_it_is_the_algorithm_that_is_not_private(
    case: Case, notion: str | FairnessNotion
) -> None:
    these = people()
    some = opened(case, these, plan=case.exact, notion=notion, epsilon=math.inf)
    trained = some.train()
    module, lam = by_hand(case, some, these, lambda_max=case.exact.lambda_max)
    assert float(lam.abs().max()) > 0.1
    np.testing.assert_allclose(trained.lam, lam.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(some.run.scores(), scores_of(module, some.problem.X), rtol=1e-3, atol=1e-3)


@network_engines
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_contract_without_multipliers_it_is_plain_training(case: Case, epsilon: float) -> None:
    these = people()
    some = opened(case, these, plan=replace(case.exact, lambda_max=0.0), epsilon=epsilon)
    trained = some.train()
    module, _ = by_hand(case, some, these, lambda_max=0.0)
    assert not trained.lam.any()
    np.testing.assert_allclose(some.run.scores(), scores_of(module, some.problem.X), rtol=1e-3, atol=1e-3)
