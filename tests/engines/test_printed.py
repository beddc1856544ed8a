"""Algorithm 1 and Equations 10 and 13 replayed in numpy; the limits of both engines; missing values."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asking import asked, opened
from justitia.engines import GradientsPlan, PrintedPlan
from justitia.engines.gradients.engine import GradientsEngine
from justitia.engines.printed.engine import PrintedEngine
from justitia.notions import AccuracyParity, DemographicParity, EqualizedOdds, FairnessNotion
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


class Silent(NoiseSource):
    """No noise, and a record of the scales asked for."""

    description = "none"

    def __init__(self) -> None:
        self.scales: list[float] = []

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return np.full(size, 2**63, dtype=np.uint64)

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
        self.scales.append(std)
        return exact


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
    warmup_epochs=0,
    h="probability",
    noise_by="lambda_max",
    optimizer="SGD",
    optimizer_options={},
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

    plan: PrintedPlan
    draws: int = 0

    @property
    def sigma_p(self) -> float:
        return self.plan.sigma_p or 0.0

    @property
    def sigma_d(self) -> float:
        return self.plan.sigma_d or 0.0

    def read(self, scores: Floats) -> tuple[Floats, Floats]:
        """h and its derivative by the score."""
        p = np.asarray(1 / (1 + np.exp(-scores)))
        return (scores, np.ones_like(p)) if self.plan.h == "score" else (p, p * (1 - p))

    def sensitivity(self, lam: Floats, sizes: NDArray[np.int64]) -> float:
        """Theorem 1, its last line or the one before."""
        if self.plan.noise_by == "lambda_max":
            return float(2 * self.plan.C_p * self.plan.lambda_max / (sizes.min() - 1))
        return float((self.plan.C_p * lam / (sizes - 1)).sum())

    def noise(self, sigma: float, sensitivity: float, size: int) -> Floats:
        self.draws += 1
        return sigma * sensitivity * known_draws(2**32 + self.draws, size)

    def primal(self, theta: Floats, lam: Floats, batch: NDArray[np.int64]) -> Floats:
        """Equation 10 (without noise: line 4 of Algorithm 1)."""
        Z, y = np.column_stack([ROWS, np.ones(12)])[batch], LABELS[batch]
        inside = np.array(GROUP)[batch] == np.array([["a"], ["b"]])
        p = 1 / (1 + np.exp(-Z @ theta))
        h, slope = self.read(Z @ theta)
        grad_h = slope[:, None] * Z
        size = np.linalg.norm(grad_h, axis=1)[:, None]
        clipped = grad_h / np.maximum(1, size / PRINTED.C_p) if self.sigma_p else grad_h
        step = ((p - y)[:, None] * Z).mean(0)
        for i in (0, 1):
            sign = np.sign(h.mean() - h[inside[i]].mean())
            step = step + lam[i] * sign * (grad_h.mean(0) - clipped[inside[i]].mean(0))
        if self.sigma_p and lam.any():
            step = step + self.noise(self.sigma_p, self.sensitivity(lam, inside.sum(1)), 3)
        return np.asarray(theta - 0.8 * step)

    def dual(self, theta: Floats, lam: Floats) -> Floats:
        """Equation 13 (without noise: line 5 of Algorithm 1), and line 6."""
        h, _ = self.read(np.column_stack([ROWS, np.ones(12)]) @ theta)
        clipped = np.clip(h, -PRINTED.C_d, PRINTED.C_d) if self.sigma_d else h
        inside = np.array(GROUP) == np.array([["a"], ["b"]])
        violation = np.array([abs(h.mean() - clipped[inside[i]].mean()) for i in (0, 1)])
        if self.sigma_d:
            violation = violation + self.noise(self.sigma_d, math.sqrt(2) * PRINTED.C_d / (6 - 1), 2)
        return np.clip(lam + 1.5 * violation, 0.0, PRINTED.lambda_max)


READINGS = ({"h": "probability", "noise_by": "lambda_max"}, {"h": "score", "noise_by": "multipliers"})


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading["h"])
@pytest.mark.parametrize(("sigma_p", "sigma_d"), [(0.3, 0.05), (0.0, 0.0)], ids=["PF-LD", "F-LD"])
def test_printed_two_epochs_are_the_paper_equations_in_numpy(
    reading: dict[str, Any], sigma_p: float, sigma_d: float
) -> None:
    order = torch.Generator().manual_seed(2)
    plan = replace(PRINTED, **reading, sigma_p=sigma_p, sigma_d=sigma_d)
    replay, theta, lam, seen = Replay(plan), START, np.zeros(2), []
    for _ in range(2):
        rows = torch.randperm(12, generator=order).numpy()
        for batch in (rows[:6], rows[6:]):
            theta = replay.primal(theta, lam, batch)
        lam = replay.dual(theta, lam)
        seen.append(lam)
    model = make_model()
    trained = run(plan, model, make_vault(GROUP), seed=2)
    assert flat(model) == pytest.approx(theta.tolist(), abs=1e-12)
    assert trained.lam[:, 0].tolist() == pytest.approx(lam.tolist(), abs=1e-12)
    assert [np.ravel(row["multiplier"]).tolist() for row in trained.history] == [
        pytest.approx(one.tolist(), abs=1e-12) for one in seen
    ]
    assert seen[0].min() > 0  # the second epoch had something to steer


@dataclass(frozen=True)
class ByHand:
    """Five people whose feature is their score; multipliers are 1/2 for the two in 'a' and 1/4 for the three in 'b'."""

    reading: Literal["score", "probability"]
    features: tuple[float, ...]
    bounds: tuple[float, float]
    term: float
    primal: tuple[float, float]
    violation: tuple[float, float]


LOG3 = math.log(3)
BY_HAND = (
    # h = 1, 3 | 2, 6, 13, so is its gradient; means 5 | 2 | 7. Clipped at C_p = 4: means 2 | 10/3; at C_d = 5: 2 | 4.
    # Term: + 1/2 (5 - 2) - 1/4 (5 - 10/3). Delta_p: 4/2/1 + 4/4/2 by the multipliers, 2 * 4 * 0.75 / 1 by their limit.
    ByHand("score", (1.0, 3.0, 2.0, 6.0, 13.0), (4.0, 5.0), 1.5 - 5 / 12, (2.5, 6.0), (3.0, 1.0)),
    # h = 3/4, 3/4 | 3/4, 1/4, 1/4, means 11/20 | 3/4 | 5/12; its gradient is +-g, g = 3/16 log 3 = 0.206, mean g/5.
    # Clipped at C_p = 0.1: means 0.1 | -0.1/3; h clipped at C_d = 1/2: 1/2 | 1/3.
    # Term: - 1/2 (g/5 - 0.1) + 1/4 (g/5 + 0.1/3). Delta_p: 0.1/2/1 + 0.1/4/2, or 2 * 0.1 * 0.75 / 1.
    ByHand(
        "probability",
        (LOG3, LOG3, LOG3, -LOG3, -LOG3),
        (0.1, 0.5),
        0.05 + 0.1 / 12 - 3 / 16 * LOG3 / 20,
        (0.0625, 0.15),
        (0.05, 13 / 60),
    ),
)


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: case.reading)
@pytest.mark.parametrize("noise_by", ["multipliers", "lambda_max"])
def test_printed_five_people_is_equations_10_and_13_worked_out_by_hand(case: ByHand, noise_by: Any) -> None:
    X = torch.tensor(case.features, dtype=torch.float64)[:, None]
    y = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    (C_p, C_d), noise = case.bounds, Silent()
    plan = replace(PRINTED, h=case.reading, noise_by=noise_by, C_p=C_p, C_d=C_d, lambda_max=0.75, dual_step=0.1)
    plan = replace(plan, sigma_p=2.0, sigma_d=0.1)
    problem = Problem(X, y, torch.ones_like(y), DemographicParity())
    engine = PrintedEngine(plan, problem, make_vault(list("aabbb"), noise), **public())
    opened(engine)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    lam = torch.tensor([[0.5], [0.25]], dtype=torch.float64)
    term = engine.constraint(model, lam, torch.arange(5))
    gap = asked(engine, X[:, 0])
    assert term is not None
    assert gap is not None
    assert term.tolist() == pytest.approx([case.term], rel=1e-12)
    assert gap[:, 0].tolist() == pytest.approx(case.violation, rel=1e-12)
    assert noise.scales == pytest.approx([2 * case.primal[noise_by == "lambda_max"], 0.1 * math.sqrt(2) * C_d])
    # Lines 5 and 6: lambda + 0.1 * violation, at most 0.75.
    expected = [min(0.75, 0.5 + 0.1 * case.violation[0]), 0.25 + 0.1 * case.violation[1]]
    assert engine.ascend(lam, gap, 1)[:, 0].tolist() == pytest.approx(expected, rel=1e-12)


def test_printed_sensitivity_by_multipliers_is_the_largest_move_between_two_groups_of_one_event() -> None:
    # C_p lambda / (size - 1) by group: 1, 1, 2 in the first event, 0, 3, 1 in the second.
    lam = torch.tensor([[1.0, 0.0], [2.0, 6.0], [3.0, 1.0]], dtype=torch.float64)
    sizes = torch.tensor([[3, 2], [5, 5], [4, 3]])
    assert replace(PRINTED, C_p=2.0, noise_by="multipliers").primal_sensitivity(lam, sizes) == pytest.approx(3 + 1)
    assert replace(PRINTED, C_p=2.0, lambda_max=9.0).primal_sensitivity(lam, sizes) == pytest.approx(2 * 2 * 9 / 1)


def test_printed_accuracy_parity_averages_the_loss_in_both_readings_and_takes_its_own_step() -> None:
    scores = torch.tensor([0.0, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, 0.0], dtype=torch.float64)
    notion, plan = AccuracyParity(), PrintedPlan(dual_step=0.5, loss_dual_step=0.2, dual_decay=1.0)
    expected = [math.log(2), math.log(1 + math.exp(2))]
    for reading in ("score", "probability"):
        assert notion.h_read_as(reading)(scores, y).tolist() == pytest.approx(expected)
    assert plan.step_for(notion, 1) == pytest.approx(0.1)
    assert plan.step_for(EqualizedOdds(), 1) == pytest.approx(0.25)


def test_printed_default_plan_trains_plainly_for_as_many_epochs_as_constrained() -> None:
    # The authors' schedule: batches of 512, 50 epochs and 50; widths two thirds and one half of the inputs.
    rounds = PrintedPlan().schedule(1000)
    assert [(one.k, one.steps, one.dual) for one in rounds[:2]] == [(0, 100, False), (1, 2, True)]
    assert len(rounds) == 51
    assert PrintedPlan().widths(15) == (10, 7)
    assert PrintedPlan().widths(1) == (1, 1)


def test_printed_plain_epochs_draw_no_noise_and_change_no_multiplier() -> None:
    noise, model = KnownNoise(), make_model()
    plan = replace(PRINTED, warmup_epochs=3, warmup_learning_rate=0.8, batch_size=12, epochs=1)
    trained = run(plan, model, make_vault(GROUP, noise))
    assert flat(model) == pytest.approx(plain_training(4, 0.8), abs=1e-9)
    assert [row["round"] for row in trained.history] == [0, 1]
    assert trained.history[0]["multiplier"] == [[0.0], [0.0]]
    assert len(noise.scales) == 1  # one dual step


def test_printed_last_batch_shorter_than_the_others_is_used() -> None:
    noise, plan = KnownNoise(), replace(PRINTED, batch_size=8, epochs=2)
    run(plan, make_model(), make_vault(GROUP, noise), seed=2)
    assert len(noise.scales) == 2 + 2  # two batches once the multipliers have left 0, two dual steps


def test_printed_some_attributes_missing_noise_is_that_of_the_groups_that_remain() -> None:
    # Four of twelve did not tell, a third of either group: four members remain, and their number carries the 1/r.
    group = [None, "a", None, "a", "b", "a", "b", "a", None, "b", "b", None]
    noise, problem = KnownNoise(), make_problem()
    engine = PrintedEngine(PRINTED, problem, make_vault(group, noise), **public())
    opened(engine)
    engine.constraint(make_model(), torch.ones(2, 1, dtype=torch.float64), torch.arange(12))
    asked(engine, torch.zeros(12, dtype=torch.float64))
    assert noise.scales == pytest.approx([0.3 * (2 * 0.2 * 0.12 / 3), 0.05 * (math.sqrt(2) * 0.45 / 3)], rel=1e-12)


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
