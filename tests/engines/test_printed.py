"""Algorithm 1 and Equations 10 and 13 replayed in numpy; the limits of both engines; missing values."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from printed_cases import (
    GROUP,
    LABELS,
    PRINTED,
    ROWS,
    START,
    Floats,
    KnownNoise,
    Silent,
    flat,
    known_draws,
    make_model,
    make_problem,
    make_vault,
    plain_training,
    public,
    run,
)
from torch import nn

from asking import asked, opened
from justitia.engines import PrintedPlan
from justitia.engines.printed.engine import PrintedEngine
from justitia.notions import AccuracyParity, DemographicParity, EqualizedOdds
from justitia.training.lagrangian import Problem

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
