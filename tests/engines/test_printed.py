"""Algorithm 1 and Equations 10 and 13 replayed in numpy; the limits of both engines; missing values."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asking import asked, opened
from justitia.engines import GradientsPlan, PrintedPlan
from justitia.engines.gradients.engine import GradientsEngine
from justitia.engines.printed.engine import PrintedEngine
from justitia.notions import DemographicParity, EqualizedOdds, FairnessNotion
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.vault import SensitiveVault
from justitia.training.algorithm import train
from justitia.training.lagrangian import Problem
from justitia.training.plan import TrainingPlan
from justitia.training.run import Trained

Floats = NDArray[np.float64]

ROWS = np.array(
    [
        [1.0, -0.4],
        [0.2, 0.9],
        [-1.1, 0.3],
        [0.8, 1.2],
        [-0.6, -0.7],
        [1.4, 0.5],
        [-0.3, 0.6],
        [0.9, -1.3],
        [-1.5, 0.1],
        [0.4, 0.2],
        [-0.8, 1.1],
        [0.1, -0.9],
    ]
)
LABELS = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
GROUP = ["a", "a", "b", "a", "b", "a", "b", "a", "b", "b", "b", "a"]
UNEVEN = ["a", "a", "b", "a", "b", "a", "b", "b", "b", "b", "b", "b"]  # multipliers do not cancel over the groups
START = np.array([0.3, -0.5, 0.1])  # two weights and the bias


class KnownNoise(NoiseSource):
    """Standard normal draws that a replay can write down, and a record of the scales asked for."""

    description = "known draws"

    def __init__(self) -> None:
        self.scales: list[float] = []

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return np.full(size, 2**63, dtype=np.uint64)

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
        self.scales.append(std)
        return exact + std * torch.from_numpy(known_draws(release, exact.numel())).reshape(exact.shape)


def known_draws(release: int, size: int) -> Floats:
    return np.asarray(np.cos(7.0 * release + np.arange(size)))


def make_problem(notion: FairnessNotion | None = None) -> Problem:
    y = torch.from_numpy(LABELS)
    return Problem(torch.from_numpy(ROWS), y, torch.ones_like(y), notion or DemographicParity())


def make_vault(group: list[str] | list[str | None], noise: NoiseSource | None = None) -> SensitiveVault:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    return SensitiveVault(group, groups=["a", "b"], ledger=ledger, noise_source=noise or KnownNoise())


def make_model() -> nn.Linear:
    model = nn.Linear(2, 1).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(START[None, :2]))
        model.bias.copy_(torch.from_numpy(START[2:]))
    return model


def flat(model: nn.Module) -> list[float]:
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def public(seed: int = 0) -> dict[str, Any]:
    """What every engine takes besides data: no tolerance, and the public generator."""
    return {"tolerance": 0.0, "generator": torch.Generator().manual_seed(seed)}


def run(plan: TrainingPlan, model: nn.Module, vault: SensitiveVault, *, seed: int = 0) -> Trained:
    problem = make_problem()
    return train(model, problem, plan, plan.engine(problem, vault, **public(seed)))


PRINTED = PrintedPlan(
    optimizer="SGD",
    learning_rate=0.8,
    final_learning_rate=0.8,
    batch_size=6,
    epochs=2,
    dual_step=1.5,
    lambda_max=0.12,
    C_p=0.2,
    C_d=0.45,
    sigma_p=0.3,
    sigma_d=0.05,
)


# --- the paper's two equations, line by line


@dataclass
class Replay:
    """Algorithm 1 with the private updates, for one logistic layer and demographic parity of two groups."""

    sigma_p: float
    sigma_d: float
    draws: int = 0

    def noise(self, sigma: float, sensitivity: float, size: int) -> Floats:
        self.draws += 1
        return sigma * sensitivity * known_draws(2**32 + self.draws, size)

    def primal(self, theta: Floats, lam: Floats, batch: NDArray[np.int64]) -> Floats:
        """Equation 10 (without noise: line 4 of Algorithm 1)."""
        Z, y = np.column_stack([ROWS, np.ones(12)])[batch], LABELS[batch]
        inside = np.array(GROUP)[batch] == np.array([["a"], ["b"]])
        p = 1 / (1 + np.exp(-Z @ theta))
        grad_h = (p * (1 - p))[:, None] * Z
        size = np.linalg.norm(grad_h, axis=1)[:, None]
        clipped = grad_h / np.maximum(1, size / PRINTED.C_p) if self.sigma_p else grad_h
        step = ((p - y)[:, None] * Z).mean(0)
        for i in (0, 1):
            sign = np.sign(p.mean() - p[inside[i]].mean())
            step = step + lam[i] * sign * (grad_h.mean(0) - clipped[inside[i]].mean(0))
        if self.sigma_p:
            sensitivity = 2 * PRINTED.C_p * PRINTED.lambda_max / (inside.sum(1).min() - 1)
            step = step + self.noise(self.sigma_p, sensitivity, 3)
        return np.asarray(theta - 0.8 * step)

    def dual(self, theta: Floats, lam: Floats) -> Floats:
        """Equation 13 (without noise: line 5 of Algorithm 1), and line 6."""
        h = 1 / (1 + np.exp(-np.column_stack([ROWS, np.ones(12)]) @ theta))
        clipped = np.minimum(h, PRINTED.C_d) if self.sigma_d else h
        inside = np.array(GROUP) == np.array([["a"], ["b"]])
        violation = np.array([abs(h.mean() - clipped[inside[i]].mean()) for i in (0, 1)])
        if self.sigma_d:
            violation = violation + self.noise(self.sigma_d, math.sqrt(2) * PRINTED.C_d / (6 - 1), 2)
        return np.clip(lam + 1.5 * violation, 0.0, PRINTED.lambda_max)


@pytest.mark.parametrize(("sigma_p", "sigma_d"), [(0.3, 0.05), (0.0, 0.0)], ids=["PF-LD", "F-LD"])
def test_printed_two_epochs_are_the_paper_equations_in_numpy(sigma_p: float, sigma_d: float) -> None:
    order = torch.Generator().manual_seed(2)
    replay, theta, lam, seen = Replay(sigma_p, sigma_d), START, np.zeros(2), []
    for _ in range(2):
        rows = torch.randperm(12, generator=order).numpy()
        for batch in (rows[:6], rows[6:]):
            theta = replay.primal(theta, lam, batch)
        lam = replay.dual(theta, lam)
        seen.append(lam)
    model = make_model()
    trained = run(replace(PRINTED, sigma_p=sigma_p, sigma_d=sigma_d), model, make_vault(GROUP), seed=2)
    assert flat(model) == pytest.approx(theta.tolist(), abs=1e-12)
    assert trained.lam[:, 0].tolist() == pytest.approx(lam.tolist(), abs=1e-12)
    assert [np.ravel(row["multiplier"]).tolist() for row in trained.history] == [
        pytest.approx(one.tolist(), abs=1e-12) for one in seen
    ]
    assert seen[0].min() > 0  # the second epoch had something to steer


def test_printed_last_batch_shorter_than_the_others_is_used() -> None:
    noise, plan = KnownNoise(), replace(PRINTED, batch_size=8, epochs=1)
    run(plan, make_model(), make_vault(GROUP, noise), seed=2)
    assert len(noise.scales) == 2 + 1  # two batches, one dual step


def test_printed_some_attributes_missing_scales_noise_by_one_over_r() -> None:
    # Four of twelve did not tell: r = 2/3; four members of each group remain.
    group = [None, "a", None, "a", "b", "a", "b", "a", None, "b", "b", None]
    noise, problem = KnownNoise(), make_problem()
    engine = PrintedEngine(PRINTED, problem, make_vault(group, noise), **public())
    opened(engine)
    engine.constraint(make_model(), torch.zeros(2, 1, dtype=torch.float64), torch.arange(12))
    asked(engine, torch.zeros(12, dtype=torch.float64))
    assert noise.scales == pytest.approx(
        [0.3 * (2 * 0.2 * 0.12 / 3) * 1.5, 0.05 * (math.sqrt(2) * 0.45 / 3) * 1.5], rel=1e-12
    )


def test_printed_some_attributes_missing_compares_given_groups_with_everybody() -> None:
    group = [None, "a", None, "a", "b", "a", "b", "a", None, "b", "b", None]
    engine = PrintedEngine(replace(PRINTED, sigma_p=0.0, sigma_d=0.0), make_problem(), make_vault(group), **public())
    opened(engine)
    scores = torch.linspace(-1.0, 1.2, 12, dtype=torch.float64)
    h = torch.sigmoid(scores)
    gap = asked(engine, scores)
    assert gap is not None
    expected = [abs(h.mean() - h[[1, 3, 5, 7]].mean()), abs(h.mean() - h[[4, 6, 9, 10]].mean())]
    assert gap[:, 0].tolist() == pytest.approx([float(one) for one in expected])


def test_printed_elementwise_reading_is_the_absolute_value_of_each_entry() -> None:
    lam = torch.tensor([[0.1], [0.05]], dtype=torch.float64)
    plan = replace(PRINTED, absolute="elementwise", sigma_p=0.0, sigma_d=0.0)
    engine = PrintedEngine(plan, make_problem(), make_vault(GROUP), **public())
    opened(engine)
    Z = np.column_stack([ROWS, np.ones(12)])
    p = 1 / (1 + np.exp(-Z @ START))
    grad_h = (p * (1 - p))[:, None] * Z
    inside = np.array(GROUP) == np.array([["a"], ["b"]])
    expected = sum(0.1 / (1 + i) * np.abs(grad_h.mean(0) - grad_h[inside[i]].mean(0)) for i in (0, 1))
    gradient = engine.constraint(make_model(), lam, torch.arange(12))
    assert gradient is not None
    assert gradient.tolist() == pytest.approx(np.asarray(expected).tolist(), abs=1e-12)
    assert min(gradient.tolist()) >= 0.0


def test_printed_group_without_members_adds_nothing_when_no_noise_is_asked_for() -> None:
    plan = replace(PRINTED, sigma_p=0.0, sigma_d=0.0)
    engine = PrintedEngine(plan, make_problem(), make_vault(["a"] * 12), **public())
    opened(engine)
    gradient = engine.constraint(make_model(), torch.ones(2, 1, dtype=torch.float64), torch.arange(12))
    assert gradient is not None
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    gap = asked(engine, torch.linspace(-1.0, 1.0, 12, dtype=torch.float64))
    assert gap is not None
    assert gap[:, 0].tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


# --- limits


def plain_training(steps: int, rate: float) -> list[float]:
    model, problem = make_model(), make_problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(problem.X)[:, 0], problem.y).backward()
        optimizer.step()
    return flat(model)


EXACT = GradientsPlan(
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
    [(replace(PRINTED, batch_size=12, lambda_max=0.0, sigma_p=0.0, sigma_d=0.0), 2), (EXACT, 4)],
    ids=["printed", "gradients"],
)
def test_lambda_max_zero_is_plain_training(plan: TrainingPlan, steps: int) -> None:
    model = make_model()
    trained = run(replace(plan, lambda_max=0.0), model, make_vault(GROUP))
    assert flat(model) == pytest.approx(plain_training(steps, 0.8), abs=1e-9)
    assert trained.lam.tolist() == [[0.0], [0.0]]


def exact_dual(rounds: int) -> tuple[list[float], list[float]]:
    """Signed Lagrangian dual by autograd: a plain step, then (dual step on hard decisions, primal step) each round."""
    model, problem, lam = make_model(), make_problem(), torch.zeros(2, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    inside = [torch.tensor([g == a for g in UNEVEN]) for a in ("a", "b")]

    def gaps(h: Tensor) -> Tensor:
        return torch.stack([h[rows].mean() - h.mean() for rows in inside])

    for k in range(rounds + 1):
        scores = model(problem.X)[:, 0]
        if k > 0:
            lam = (lam + 1.5 * gaps((scores.detach() > 0).double())).clamp(-5.0, 5.0)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, problem.y)
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
    lam = torch.tensor([[0.5, -0.2], [-0.4, 0.3]], dtype=torch.float64)
    terms = []
    for factors in ([1.0], [3.0], [1.0, 3.0]):
        engine = GradientsEngine(replace(EXACT, memory=0.75), problem, make_vault(GROUP), **public())
        opened(engine)
        for factor in factors:
            engine.ask_before(model, factor * lam, k)
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

    def events(self, y: Tensor) -> Tensor:
        return torch.stack([torch.ones_like(y), y], dim=1)


@pytest.mark.parametrize("notion", [EqualizedOdds(), OverlappingEvents()], ids=["disjoint", "overlapping"])
def test_gradients_no_noise_two_events_is_the_gradient_of_the_lagrangian(notion: FairnessNotion) -> None:
    problem, model = make_problem(notion), make_model()
    lam = torch.tensor([[0.5, -0.2], [-0.4, 0.3]], dtype=torch.float64)
    h = torch.sigmoid(model(problem.X)[:, 0])
    terms = []
    for a, name in enumerate("ab"):
        inside = torch.tensor([g == name for g in UNEVEN])
        for k, event in enumerate(problem.events.T.bool()):
            terms.append(lam[a, k] * (h[inside & event].mean() - h[event].mean()))
    parts = torch.autograd.grad(torch.stack(terms).sum(), list(model.parameters()))
    expected = torch.cat([part.flatten() for part in parts])
    engine = GradientsEngine(EXACT, problem, make_vault(UNEVEN), **public())
    opened(engine)
    engine.ask_before(model, lam, 1)
    ours = engine.constraint(model, lam, torch.arange(12))
    assert ours is not None
    assert ours.tolist() == pytest.approx(expected.tolist(), abs=1e-9)


def test_gradients_one_row_that_is_not_finite_leaves_the_others_alone() -> None:
    problem = make_problem()
    X = problem.X.clone()
    X[3] = math.inf
    broken = replace(problem, X=X)
    engine = GradientsEngine(EXACT, broken, make_vault(UNEVEN), **public())
    opened(engine)
    lam = torch.tensor([[0.5], [-0.4]], dtype=torch.float64)
    engine.ask_before(make_model(), lam, 1)
    gradient = engine.constraint(make_model(), lam, torch.arange(12))
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0.01


def test_gradients_first_round_without_multipliers_adds_nothing() -> None:
    engine = GradientsEngine(EXACT, make_problem(), make_vault(GROUP), **public())
    opened(engine)
    engine.ask_before(make_model(), torch.zeros(2, 1, dtype=torch.float64), 0)
    assert engine.constraint(make_model(), torch.zeros(2, 1, dtype=torch.float64), torch.arange(4)) is None
