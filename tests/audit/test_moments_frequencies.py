"""Brute force: how often things happen to six people, and to their neighbours, with engine ``moments``."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn
from tqdm.auto import tqdm

from justitia import MomentsPlan, PrivacyLedger
from justitia.networks.moments.engine import MomentsEngine
from justitia.networks.run import NetworkRun
from justitia.notions import DemographicParity
from justitia.privacy.mechanisms import Gaussian, SeededNoise
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem
from justitia.training.method import Array

EPSILON, DELTA = 1.0, 0.02
RUNS = 160
SURE = 1e-4  # chance that a bound on a frequency is wrong
X6 = np.array([[-1.5], [-0.6], [-0.2], [0.3], [0.7], [1.6]], dtype=np.float32)
Y6 = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0], dtype=np.float32)
LABELS6 = ("a", "a", "b", "a", "b", "b")
PLACE = {"a": 0, "b": 1, None: 2}  # of a label's sums
TINY = MomentsPlan(
    warmup_steps=0,
    rounds=2,
    public_steps=1,
    checks=1,
    averaging=1.0,
    optimizer="SGD",
    optimizer_options={},
    learning_rate=0.5,
    dual_step=2.0,
).calibrate(EPSILON, DELTA, n=6)


class Tampered(SeededNoise):
    """Noise of another spread than the one asked for."""

    def __init__(self, seed: int, factor: float) -> None:
        super().__init__(seed)
        self._factor = factor

    def add_gaussian(self, exact: Any, std: float, *, release: int) -> Any:
        return super().add_gaussian(exact, self._factor * std, release=release)


@dataclass(frozen=True)
class Tiny:
    """What one run on six people leaves: its noised answers, what they were asked about, and its end."""

    sums: tuple[Array, Array]
    rows: tuple[Array, Array]
    gap: float
    multiplier: float
    scores: Array


def run_tiny(labels: Sequence[Any], seed: int, factor: float = 1.0) -> Tiny:
    problem = Problem(X6, Y6, np.ones(6, dtype=np.float32), DemographicParity())
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.fill_(0.4)
        module.bias.fill_(-0.05)
    ledger = PrivacyLedger(epsilon=EPSILON, delta=DELTA)
    vault = SensitiveVault(
        labels, groups=("a", "b"), ledger=ledger, noise_source=Tampered(seed, factor), source=problem.source
    )
    engine = MomentsEngine(TINY, problem, vault, tolerance=0.0, seed=0)
    trained = NetworkRun(module, TINY, engine).train(lambda total, name: tqdm(total=total, desc=name, disable=True))
    assert engine._rows is not None
    with torch.no_grad():
        scores = module(torch.from_numpy(X6)).squeeze(1).numpy()
    (moments,) = problem.source.map(engine._rows)
    rows = (moments.astype(np.float64), engine._checked[0].astype(np.float64))
    gap = trained.history[1]["noisy_gap"][0][0]
    return Tiny((engine._sums[0], engine._sums[1]), rows, gap, float(trained.lam[0, 0]), scores)


def evidence(one: Tiny, person: int, label: Any) -> float:
    """Log of how much likelier the answers are if everybody is as in LABELS6 than if this person's label is another.

    No function of the answers tells the two apart better (Neyman and Pearson).
    """
    total = 0.0
    for sums, rows, noise in zip(one.sums, one.rows, (TINY.noise_moments, TINY.noise_checks), strict=True):
        assert isinstance(noise, Gaussian)
        here = np.zeros_like(sums)
        for label_i, row in zip(LABELS6, rows, strict=True):
            here[PLACE[label_i]] += row
        towards = np.zeros_like(sums)
        towards[PLACE[LABELS6[person]]] += rows[person]
        towards[PLACE[label]] -= rows[person]
        std = noise.noise_multiplier * math.sqrt(2) * min(float(np.linalg.norm(rows, axis=1).max()), 1.0)
        total += float(((sums - here + towards / 2) * towards).sum()) / std**2
    return total


def upper(count: int, runs: int) -> float:
    """Clopper and Pearson's bound: a larger probability gives so few with a chance of at most SURE."""
    return 1.0 if count == runs else float(beta.ppf(1 - SURE, count + 1, runs - count))


def lower(count: int, runs: int) -> float:
    """Clopper and Pearson's bound from below."""
    return 0.0 if count == 0 else float(beta.ppf(SURE, count, runs - count + 1))


def broken_promises(here: Sequence[Tiny], there: Sequence[Tiny], person: int, label: Any) -> list[str]:
    """Events whose frequencies no (EPSILON, DELTA) mechanism can have."""
    views: dict[str, tuple[Callable[[Tiny], float], tuple[float, ...]]] = {
        "evidence": (lambda one: evidence(one, person, label), (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)),
        "multiplier": (lambda one: one.multiplier, (-0.2, 0.0, 0.2)),
        "gap": (lambda one: one.gap, (-0.1, 0.0, 0.1)),
        "decision": (lambda one: float(one.scores[person]), (0.0,)),
        "sum of decisions": (lambda one: float(one.sums[1][0, 0]), (-2.0, 0.0, 2.0)),
        "size": (lambda one: float(one.sums[0][0, 0]), (-2.0, 0.0, 2.0)),
    }
    found = []
    for name, (view, thresholds) in views.items():
        values = [np.array([view(one) for one in world]) for world in (here, there)]
        for threshold in thresholds:
            above = [int((each > threshold).sum()) for each in values]
            below = [len(each) - count for each, count in zip(values, above, strict=True)]
            for one, other in (above, above[::-1], below, below[::-1]):
                least, most = lower(one, len(here)), upper(other, len(here))
                if least > math.exp(EPSILON) * most + DELTA:
                    found.append(f"{name} {threshold}: at least {least:.3f} against at most {most:.3f}")
    return found


def with_label(person: int, label: Any) -> list[Any]:
    return [*LABELS6[:person], label, *LABELS6[person + 1 :]]


def test_frequencies_of_neighbours_are_within_the_promise() -> None:
    here = [run_tiny(LABELS6, seed) for seed in range(RUNS)]
    for block, (person, label) in enumerate([(0, "b"), (5, None)], start=1):
        there = [run_tiny(with_label(person, label), 10_000 * block + seed) for seed in range(RUNS)]
        assert broken_promises(here, there, person, label) == []


def test_frequencies_with_a_fifth_of_the_noise_break_the_promise() -> None:
    """The test above is able to fail."""
    here = [run_tiny(LABELS6, seed, 1 / 5) for seed in range(70)]
    there = [run_tiny(with_label(0, "b"), 10_000 + seed, 1 / 5) for seed in range(70)]
    assert any(problem.startswith("evidence") for problem in broken_promises(here, there, 0, "b"))


def test_tiny_runs_spend_their_whole_budget_and_differ_by_their_noise() -> None:
    assert TINY.epsilon(DELTA) == pytest.approx(EPSILON, rel=1e-4)
    one, again = run_tiny(LABELS6, 7), run_tiny(LABELS6, 7)
    assert np.array_equal(one.sums[0], again.sums[0])
    assert np.array_equal(one.scores, again.scores)
    assert len({float(run_tiny(LABELS6, seed).scores[0]) for seed in range(5)}) == 5
