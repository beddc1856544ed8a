"""Engine ``pf-ld-as-published`` in its limits: plain training, exact duals, events that overlap."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from as_published_cases import (
    GROUP,
    LABELS,
    PUBLISHED,
    ROWS,
    UNEVEN,
    flat,
    make_model,
    make_problem,
    make_vault,
    plain_training,
    public,
    run,
)
from torch import Tensor, nn

from asking import opened
from justitia.networks.pf_ld.engine import PFLDEngine
from justitia.networks.pf_ld.plan import PFLDPlan
from justitia.networks.plan import TrainingPlan
from justitia.notions import Array, DemographicParity, EqualizedOdds, FairnessNotion

EXACT = PFLDPlan(
    warmup_steps=1,
    optimizer="SGD",
    warmup_learning_rate=0.8,
    learning_rate=0.8,
    final_learning_rate=0.8,
    batch_size=12,
    dual_step=1.5,
    averaging=1.0,
    private_steps=3,
    public_steps=1,
    memory=0.0,
    clip=1e9,
).calibrate(math.inf, 1e-5, n=12)


@pytest.mark.parametrize(
    ("plan", "steps"),
    [(replace(PUBLISHED, batch_size=12, lambda_max=0.0, sigma_p=0.0, sigma_d=0.0), 2), (EXACT, 4)],
    ids=["pf-ld-as-published", "pf-ld"],
)
def test_lambda_max_zero_is_plain_training(plan: TrainingPlan, steps: int) -> None:
    model = make_model()
    trained = run(replace(plan, lambda_max=0.0), model, make_vault(GROUP))
    assert flat(model) == pytest.approx(plain_training(steps, 0.8), abs=1e-9)
    assert trained.lam.tolist() == [[0.0], [0.0]]


def exact_dual(rounds: int) -> tuple[list[float], list[float]]:
    """Signed Lagrangian dual by autograd: a plain step, then (dual step on hard decisions, primal step) each round."""
    model, X, y = make_model(), torch.from_numpy(ROWS), torch.from_numpy(LABELS)
    lam = torch.zeros(2, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    inside = [torch.tensor([g == a for g in UNEVEN]) for a in ("a", "b")]

    def gaps(h: Tensor) -> Tensor:
        return torch.stack([h[rows].mean() - h.mean() for rows in inside])

    for k in range(rounds + 1):
        scores = model(X)[:, 0]
        if k > 0:
            lam = (lam + 1.5 * gaps((scores.detach() > 0).double())).clamp(-5.0, 5.0)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, y)
        optimizer.zero_grad()
        (loss + (lam * gaps(torch.sigmoid(scores))).sum()).backward()
        optimizer.step()
    return flat(model), lam.tolist()


@pytest.mark.parametrize("clip", [1e9, "auto"])
def test_gradients_no_noise_and_no_clip_is_the_exact_signed_dual(clip: float) -> None:
    model = make_model()
    trained = run(replace(EXACT, clip=clip), model, make_vault(UNEVEN))
    theta, lam = exact_dual(3)
    assert flat(model) == pytest.approx(theta, abs=1e-9)
    assert trained.lam[:, 0].tolist() == pytest.approx(lam, abs=1e-9)
    assert abs(sum(lam)) > 0.1


@pytest.mark.parametrize(("k", "past"), [(2, 0.5), (8, 0.75)], ids=["plain mean at first", "memory later"])
def test_gradients_no_noise_running_average_weighs_past_and_present(k: int, past: float) -> None:
    problem, model = make_problem(EqualizedOdds()), make_model()
    lam = np.array([[0.5, -0.2], [-0.4, 0.3]])
    terms = []
    for factors in ([1.0], [3.0], [1.0, 3.0]):
        engine = PFLDEngine(replace(EXACT, memory=0.75), problem, make_vault(GROUP), **public())
        opened(engine)
        for factor in factors:
            engine.query_before(model, factor * lam, k)
        terms.append(engine.constraint(model, lam, torch.arange(12)))
    first, second, averaged = terms
    assert first is not None
    assert second is not None
    assert averaged is not None
    assert averaged.tolist() == pytest.approx((past * first + (1 - past) * second).tolist(), abs=1e-12)


class OverlappingEvents(DemographicParity):
    """Everybody, and once more those with the label 1: some rows belong to two events."""

    name = "overlapping"
    event_names = ("all", "y=1")

    def events(self, y: Array) -> Array:
        return np.stack([np.ones_like(y), y], axis=1)


@pytest.mark.parametrize("notion", [EqualizedOdds(), OverlappingEvents()], ids=["disjoint", "overlapping"])
def test_gradients_no_noise_two_events_is_the_gradient_of_the_lagrangian(notion: FairnessNotion) -> None:
    problem, model = make_problem(notion), make_model()
    lam = np.array([[0.5, -0.2], [-0.4, 0.3]])
    h = torch.sigmoid(model(torch.from_numpy(ROWS))[:, 0])
    terms = []
    for a, name in enumerate("ab"):
        inside = torch.tensor([g == name for g in UNEVEN])
        for k, event in enumerate(torch.from_numpy(problem.events.T).bool()):
            terms.append(float(lam[a, k]) * (h[inside & event].mean() - h[event].mean()))
    parts = torch.autograd.grad(torch.stack(terms).sum(), list(model.parameters()))
    expected = torch.cat([part.flatten() for part in parts])
    engine = PFLDEngine(EXACT, problem, make_vault(UNEVEN), **public())
    opened(engine)
    engine.query_before(model, lam, 1)
    ours = engine.constraint(model, lam, torch.arange(12))
    assert ours is not None
    assert ours.tolist() == pytest.approx(expected.tolist(), abs=1e-9)


def test_gradients_one_row_that_is_not_finite_leaves_the_others_alone() -> None:
    problem = make_problem()
    X = problem.X.copy()
    X[3] = math.inf
    broken = replace(problem, X=X)
    engine = PFLDEngine(EXACT, broken, make_vault(UNEVEN), **public())
    opened(engine)
    lam = np.array([[0.5], [-0.4]])
    engine.query_before(make_model(), lam, 1)
    gradient = engine.constraint(make_model(), lam, torch.arange(12))
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0.01


def test_gradients_first_round_without_multipliers_adds_nothing() -> None:
    engine = PFLDEngine(EXACT, make_problem(), make_vault(GROUP), **public())
    opened(engine)
    engine.query_before(make_model(), np.zeros((2, 1)), 0)
    assert engine.constraint(make_model(), np.zeros((2, 1)), torch.arange(4)) is None
