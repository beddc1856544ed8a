"""Algorithm 1 and Equations 10 and 13 replayed in numpy; the limits of both engines; missing values."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from as_published_cases import (
    GROUP,
    LABELS,
    PUBLISHED,
    ROWS,
    START,
    Floats,
    KnownNoise,
    flat,
    known_draws,
    make_model,
    make_problem,
    make_vault,
    plain_training,
    public,
    run,
)
from numpy.typing import NDArray

from asking import asked, opened
from justitia.networks.pf_ld_as_published.engine import PFLDAsPublishedEngine
from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan
from justitia.notions import AccuracyParity, EqualizedOdds

# --- the paper's two equations, line by line


@dataclass
class Replay:
    """Algorithm 1 with the private updates, for one logistic layer and demographic parity of two groups."""

    plan: PFLDAsPublishedPlan
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
        clipped = grad_h / np.maximum(1, size / PUBLISHED.C_p) if self.sigma_p else grad_h
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
        clipped = np.clip(h, -PUBLISHED.C_d, PUBLISHED.C_d) if self.sigma_d else h
        inside = np.array(GROUP) == np.array([["a"], ["b"]])
        violation = np.array([abs(h.mean() - clipped[inside[i]].mean()) for i in (0, 1)])
        if self.sigma_d:
            violation = violation + self.noise(self.sigma_d, math.sqrt(2) * PUBLISHED.C_d / (6 - 1), 2)
        return np.clip(lam + 1.5 * violation, 0.0, PUBLISHED.lambda_max)


READINGS = ({"h": "probability", "noise_by": "lambda_max"}, {"h": "score", "noise_by": "multipliers"})


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading["h"])
@pytest.mark.parametrize(("sigma_p", "sigma_d"), [(0.3, 0.05), (0.0, 0.0)], ids=["PF-LD", "F-LD"])
def test_as_published_two_epochs_are_the_paper_equations_in_numpy(
    reading: dict[str, Any], sigma_p: float, sigma_d: float
) -> None:
    order = torch.Generator().manual_seed(2)
    plan = replace(PUBLISHED, **reading, sigma_p=sigma_p, sigma_d=sigma_d)
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


def test_as_published_sensitivity_by_multipliers_is_the_largest_move_between_two_groups_of_one_event() -> None:
    # C_p lambda / (size - 1) by group: 1, 1, 2 in the first event, 0, 3, 1 in the second.
    lam = torch.tensor([[1.0, 0.0], [2.0, 6.0], [3.0, 1.0]], dtype=torch.float64)
    sizes = torch.tensor([[3, 2], [5, 5], [4, 3]])
    assert replace(PUBLISHED, C_p=2.0, noise_by="multipliers").primal_sensitivity(lam, sizes) == pytest.approx(3 + 1)
    assert replace(PUBLISHED, C_p=2.0, lambda_max=9.0).primal_sensitivity(lam, sizes) == pytest.approx(2 * 2 * 9 / 1)


def test_as_published_accuracy_parity_averages_the_loss_in_both_readings_and_takes_its_own_step() -> None:
    scores = torch.tensor([0.0, 2.0], dtype=torch.float64)
    y = torch.tensor([1.0, 0.0], dtype=torch.float64)
    notion, plan = AccuracyParity(), PFLDAsPublishedPlan(dual_step=0.5, loss_dual_step=0.2, dual_decay=1.0)
    expected = [math.log(2), math.log(1 + math.exp(2))]
    for reading in ("score", "probability"):
        assert notion.h_read_as(reading)(scores, y).tolist() == pytest.approx(expected)
    assert plan.step_for(notion, 1) == pytest.approx(0.1)
    assert plan.step_for(EqualizedOdds(), 1) == pytest.approx(0.25)


def test_as_published_default_plan_trains_plainly_for_as_many_epochs_as_constrained() -> None:
    # The authors' schedule: batches of 512, 50 epochs and 50; widths two thirds and one half of the inputs.
    rounds = PFLDAsPublishedPlan().schedule(1000)
    assert [(one.k, one.steps, one.dual) for one in rounds[:2]] == [(0, 100, False), (1, 2, True)]
    assert len(rounds) == 51
    assert PFLDAsPublishedPlan().widths(15) == (10, 7)
    assert PFLDAsPublishedPlan().widths(1) == (1, 1)


def test_as_published_plain_epochs_draw_no_noise_and_change_no_multiplier() -> None:
    noise, model = KnownNoise(), make_model()
    plan = replace(PUBLISHED, warmup_epochs=3, warmup_learning_rate=0.8, batch_size=12, epochs=1)
    trained = run(plan, model, make_vault(GROUP, noise))
    assert flat(model) == pytest.approx(plain_training(4, 0.8), abs=1e-9)
    assert [row["round"] for row in trained.history] == [0, 1]
    assert trained.history[0]["multiplier"] == [[0.0], [0.0]]
    assert len(noise.scales) == 1  # one dual step


@pytest.mark.parametrize(("n", "batches"), [(12, [6, 6]), (13, [5, 5, 3]), (8929, [497] * 17 + [480])])
def test_as_published_batches_of_a_pass_are_alike_and_none_is_a_small_remainder(n: int, batches: list[int]) -> None:
    plan = replace(PUBLISHED, batch_size=6 if n < 20 else 512)
    size = plan.batch_rows(n)
    assert [len(part) for part in torch.arange(n).split(size)] == batches
    assert plan.schedule(n)[0].steps == len(batches)
    assert replace(plan, batches="remainder").batch_rows(n) == plan.batch_size


def test_as_published_last_batch_shorter_than_the_others_is_used() -> None:
    noise, plan = KnownNoise(), replace(PUBLISHED, batches="remainder", batch_size=8, epochs=2)
    run(plan, make_model(), make_vault(GROUP, noise), seed=2)
    assert len(noise.scales) == 2 + 2  # two batches once the multipliers have left 0, two dual steps


def test_as_published_some_attributes_missing_noise_is_that_of_the_groups_that_remain() -> None:
    # Four of twelve did not tell, a third of either group: four members remain, and their number carries the 1/r.
    group = [None, "a", None, "a", "b", "a", "b", "a", None, "b", "b", None]
    noise, problem = KnownNoise(), make_problem()
    engine = PFLDAsPublishedEngine(PUBLISHED, problem, make_vault(group, noise), **public())
    opened(engine)
    engine.constraint(make_model(), np.ones((2, 1)), torch.arange(12))
    asked(engine, np.zeros(12))
    assert noise.scales == pytest.approx([0.3 * (2 * 0.2 * 0.12 / 3), 0.05 * (math.sqrt(2) * 0.45 / 3)], rel=1e-12)


def test_as_published_some_attributes_missing_compares_given_groups_with_everybody() -> None:
    group = [None, "a", None, "a", "b", "a", "b", "a", None, "b", "b", None]
    engine = PFLDAsPublishedEngine(
        replace(PUBLISHED, sigma_p=0.0, sigma_d=0.0), make_problem(), make_vault(group), **public()
    )
    opened(engine)
    scores = np.linspace(-1.0, 1.2, 12)
    h = 1 / (1 + np.exp(-scores))
    gap = asked(engine, scores)
    assert gap is not None
    expected = [abs(h.mean() - h[[1, 3, 5, 7]].mean()), abs(h.mean() - h[[4, 6, 9, 10]].mean())]
    assert gap[:, 0].tolist() == pytest.approx([float(one) for one in expected])


def test_as_published_elementwise_reading_is_the_absolute_value_of_each_entry() -> None:
    lam = np.array([[0.1], [0.05]])
    plan = replace(PUBLISHED, absolute="elementwise", sigma_p=0.0, sigma_d=0.0)
    engine = PFLDAsPublishedEngine(plan, make_problem(), make_vault(GROUP), **public())
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


def test_as_published_group_without_members_adds_nothing_when_no_noise_is_asked_for() -> None:
    plan = replace(PUBLISHED, sigma_p=0.0, sigma_d=0.0)
    engine = PFLDAsPublishedEngine(plan, make_problem(), make_vault(["a"] * 12), **public())
    opened(engine)
    gradient = engine.constraint(make_model(), np.ones((2, 1)), torch.arange(12))
    assert gradient is not None
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    gap = asked(engine, np.linspace(-1.0, 1.0, 12))
    assert gap is not None
    assert gap[:, 0].tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
