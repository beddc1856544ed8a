"""The printed engine's noised primal steps, recorded in one fit and taken again for either of two neighbours.

That engine asks the vault no noised question, so its own code is run again: Equation 10 at the weights, multipliers and
batch of each recorded step in which the canary takes part. The printed analysis covers an attacker who sees every step.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from justitia.audit.attacks import Randomness, both_neighbours
from justitia.audit.replay import Canary, Codes, Floats, Recording, Silent, labels, neutral, vault_of
from justitia.estimator import LagrangianDualClassifier
from justitia.networks.pf_ld_as_published.engine import PFLDAsPublishedEngine
from justitia.privacy.attribute import Attribute
from justitia.privacy.mechanisms import NoiseSource
from justitia.training.method import Array
from justitia.training.session import Session

#: Steps that are attacked, at most; more would only take longer.
STEPS = 12
#: Log likelihood ratio of a step that only one of the neighbours skips.
CERTAIN = 1e4


@dataclass(frozen=True, eq=False)
class Step:
    """What Equation 10 is computed from, besides the attribute."""

    module: nn.Module
    lam: Array
    batch: Tensor


class WatchedEngine(PFLDAsPublishedEngine):
    """The printed engine; it keeps its first steps in which one person takes part."""

    def watch(self, person: int) -> None:
        """Say whose steps to keep."""
        self.person, self.steps = person, list[Step]()

    def constraint(self, module: nn.Module, lam: Array, batch: Tensor) -> Tensor | None:
        """As in the engine."""
        constrained = bool(lam.any())  # before, the engine asks nothing
        if constrained and len(self.steps) < STEPS and bool((batch == self.person).any()):
            self.steps.append(Step(copy.deepcopy(module), lam.copy(), batch.clone()))
        return super().constraint(module, lam, batch)


class WatchedPrintedClassifier(LagrangianDualClassifier):
    """The estimator with an engine that keeps the steps of the person ``watched_``."""

    def _open(self, X: Any, y: Any, sensitive_features: Attribute, **given: Any) -> Session:
        session = super()._open(X, y, sensitive_features, **given)
        engine = _engine(WatchedEngine, session, session.vault)
        engine.watch(self.watched_)
        self.session_ = replace(session, engine=engine)
        return self.session_


def _engine(kind: Any, session: Session, vault: Any) -> Any:
    public = {"tolerance": session.engine.tolerance, "seed": session.engine.seed}
    return kind(session.plan, session.problem, vault, **public)


class Scales(Silent):
    """No noise; keeps the scale of the noise that was asked for."""

    def __init__(self) -> None:
        self.stds: list[float] = []

    def add_gaussian(self, exact: Floats, std: float, *, release: int) -> Floats:
        """``exact``."""
        self.stds.append(std)
        return super().add_gaussian(exact, std, release=release)


#: Exact answer and scale of the noise, or None for a step that is skipped.
Known = tuple[Tensor, float] | None


@dataclass(frozen=True, eq=False)
class PrintedReplay:
    """Both neighbours, the recorded steps, and what the attacker knows about each step under either neighbour."""

    steps: tuple[Step, ...]
    neighbours: tuple[Codes, Codes]
    n_groups: int
    plan: Any
    problem: Any
    known: tuple[tuple[Known, ...], tuple[Known, ...]]
    random: Randomness

    def __call__(self, task: range) -> Floats:
        """(runs, steps) log likelihood ratios."""
        return np.stack([self._run(run) for run in task])

    def _run(self, run: int) -> Floats:
        engine = self.engine(run % 2, self.random.source(run))
        answers = [engine.constraint(step.module, step.lam, step.batch) for step in self.steps]
        return np.array([log_ratio(*facts) for facts in zip(answers, *self.known, strict=True)])

    def engine(self, neighbour: int, source: NoiseSource) -> PFLDAsPublishedEngine:
        """The printed engine itself, on one of the neighbours."""
        vault = vault_of(self.neighbours[neighbour], self.n_groups, (math.inf, 0.0), source)
        engine = PFLDAsPublishedEngine(self.plan, self.problem, vault, tolerance=0.0)
        engine.ask_before(nn.Identity(), np.zeros(0), 0)
        return engine

    def with_known(self) -> PrintedReplay:
        """Compute what the attacker knows, by the engine's own code without noise."""
        known = []
        for neighbour in (0, 1):
            scales = Scales()
            engine = self.engine(neighbour, scales)
            answers = [engine.constraint(step.module, step.lam, step.batch) for step in self.steps]
            stds = iter(scales.stds)
            known.append(tuple(None if answer is None else (answer, next(stds)) for answer in answers))
        return replace(self, known=(known[0], known[1]))


def log_ratio(answer: Tensor | None, first: Known, second: Known) -> float:
    """Log likelihood ratio of a noised step, second neighbour against first; a skipped step has no answer."""
    if answer is None or first is None or second is None:
        return CERTAIN * ((answer is None) == (second is None)) - CERTAIN * ((answer is None) == (first is None))
    return _log_density(answer, *second) - _log_density(answer, *first)


def _log_density(answer: Tensor, mean: Tensor, std: float) -> float:
    return -0.5 * float((answer - mean).square().sum()) / std**2 - answer.numel() * math.log(std)


def printed_replay(
    recording: Recording, canary: Canary, X: Any, y: Any, random: Randomness, *, seed: int | None
) -> PrintedReplay:
    """Fit once more, keep the canary's steps, and compute what the attacker knows about each."""
    n_groups = len(recording.names) - 1
    model = WatchedPrintedClassifier(**neutral(recording.model, n_groups, seed or 0))
    model.watched_ = canary.person
    neighbours = recording.neighbours(canary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features=labels(neighbours[0], n_groups))
    session = model.session_
    steps: tuple[Step, ...] = tuple(session.engine.steps)  # type: ignore[attr-defined]
    return PrintedReplay(steps, neighbours, n_groups, session.plan, session.problem, ((), ()), random).with_known()


def printed_statistics(
    recording: Recording, canary: Canary, X: Any, y: Any, runs: int, random: Randomness, *, seed: int | None, **how: Any
) -> tuple[Floats, Floats]:
    """(runs, steps) log likelihood ratios of the noised primal steps under either neighbour."""
    return both_neighbours(printed_replay(recording, canary, X, y, random, seed=seed), runs, **how)
