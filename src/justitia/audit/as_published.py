"""Replay of the noisy primal steps of engine ``pf-ld-as-published`` for either of two neighbours.

That engine sends the vault no noisy query, so its own code is run again: Equation 10 at the weights, multipliers and
batch of each recorded step in whose batch the canary is. The published analysis covers an attacker who sees every step.
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
from justitia.audit.replay import (
    Canary,
    Codes,
    Floats,
    NoNoise,
    Recording,
    labels_from_codes,
    make_vault,
    neutral_parameters,
)
from justitia.estimator import LagrangianDualClassifier
from justitia.networks.method import NetworkMethod
from justitia.networks.pf_ld_as_published.engine import PFLDAsPublishedEngine
from justitia.privacy.attribute import Attribute
from justitia.privacy.mechanisms import NoiseSource
from justitia.training.method import Array
from justitia.training.session import Session

#: Steps that are attacked, at most; more take longer and prove little more.
STEPS = 12
#: Log likelihood ratio of a step that only one of the neighbours skips.
CERTAIN = 1e4


@dataclass(frozen=True, eq=False)
class Step:
    """Inputs of Equation 10 besides the attribute."""

    module: nn.Module
    lam: Array
    batch: Tensor


class StepRecordingEngine(PFLDAsPublishedEngine):
    """The engine as published; it records its first steps whose batch holds one given row."""

    def record_steps_of(self, person: int) -> None:
        """Record the steps of this row from now on."""
        self.person, self.steps = person, list[Step]()

    def constraint(self, module: nn.Module, lam: Array, batch: Tensor) -> Tensor | None:
        """Record the step, then compute it as the engine does."""
        constrained = bool(lam.any())  # with all multipliers 0 the engine does not read the attribute
        if constrained and len(self.steps) < STEPS and bool((batch == self.person).any()):
            self.steps.append(Step(copy.deepcopy(module), lam.copy(), batch.clone()))
        return super().constraint(module, lam, batch)


class StepRecordingClassifier(LagrangianDualClassifier):
    """The estimator with an engine that records the steps of row ``recorded_row_``."""

    def _method(self, *public: Any) -> NetworkMethod:
        method = super()._method(*public)
        assert isinstance(method, NetworkMethod)  # noqa: S101 - this engine trains a network
        method.engine = StepRecordingEngine
        return method

    def _open(self, X: Any, y: Any, sensitive_features: Attribute, **given: Any) -> Session:
        self.session_ = super()._open(X, y, sensitive_features, **given)
        recording_engine(self.session_).record_steps_of(self.recorded_row_)
        return self.session_


def recording_engine(session: Session) -> StepRecordingEngine:
    """The engine of a session of the classifier above."""
    run: Any = session.run
    engine: StepRecordingEngine = run.engine
    return engine


class ScaleRecorder(NoNoise):
    """No noise; records the requested standard deviations."""

    def __init__(self) -> None:
        self.stds: list[float] = []

    def add_gaussian(self, exact: Floats, std: float, **_names: Any) -> Floats:
        """``exact``, unchanged."""
        self.stds.append(std)
        return exact


#: Exact answer and standard deviation of the noise; None for a step that is skipped.
Known = tuple[Tensor, float] | None


@dataclass(frozen=True, eq=False)
class StepReplay:
    """Recorded steps, both neighbours, and the exact answers and noise that the attacker knows for each."""

    steps: tuple[Step, ...]
    neighbours: tuple[Codes, Codes]
    n_groups: int
    plan: Any
    problem: Any
    known: tuple[tuple[Known, ...], tuple[Known, ...]]
    random: Randomness

    def __call__(self, task: range) -> Floats:
        """(runs, steps): log likelihood ratios."""
        return np.stack([self._run(run) for run in task])

    def _run(self, run: int) -> Floats:
        engine = self.engine(run % 2, self.random.source(run))
        answers = [engine.constraint(step.module, step.lam, step.batch) for step in self.steps]
        return np.array([log_ratio(*facts) for facts in zip(answers, *self.known, strict=True)])

    def engine(self, neighbour: int, source: NoiseSource) -> PFLDAsPublishedEngine:
        """The engine as published, on one of the neighbours."""
        vault = make_vault(self.neighbours[neighbour], self.n_groups, (math.inf, 0.0), source)
        engine = PFLDAsPublishedEngine(self.plan, self.problem, vault, tolerance=0.0)
        engine.query_before(nn.Identity(), np.zeros(0), 0)
        return engine

    def with_known(self) -> StepReplay:
        """Fill in what the attacker knows, with the engine's own code without noise."""
        known = []
        for neighbour in (0, 1):
            scales = ScaleRecorder()
            engine = self.engine(neighbour, scales)
            answers = [engine.constraint(step.module, step.lam, step.batch) for step in self.steps]
            stds = iter(scales.stds)
            known.append(tuple(None if answer is None else (answer, next(stds)) for answer in answers))
        return replace(self, known=(known[0], known[1]))


def log_ratio(answer: Tensor | None, first: Known, second: Known) -> float:
    """Log likelihood ratio of a noisy step, second neighbour against first; a skipped step has no answer."""
    if answer is None or first is None or second is None:
        return CERTAIN * ((answer is None) == (second is None)) - CERTAIN * ((answer is None) == (first is None))
    return _log_density(answer, *second) - _log_density(answer, *first)


def _log_density(answer: Tensor, mean: Tensor, std: float) -> float:
    return -0.5 * float((answer - mean).square().sum()) / std**2 - answer.numel() * math.log(std)


def record_steps(
    recording: Recording, canary: Canary, X: Any, y: Any, random: Randomness, *, seed: int | None
) -> StepReplay:
    """Fit once more, record the canary's steps, and compute what the attacker knows about each."""
    n_groups = len(recording.names) - 1
    model = StepRecordingClassifier(**neutral_parameters(recording.model, n_groups, seed or 0))
    model.recorded_row_ = canary.person
    neighbours = recording.neighbours(canary)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features=labels_from_codes(neighbours[0], n_groups))
    session = model.session_
    steps, problem = tuple(recording_engine(session).steps), session.method.problem
    return StepReplay(steps, neighbours, n_groups, session.plan, problem, ((), ()), random).with_known()


def as_published_statistics(
    recording: Recording, canary: Canary, X: Any, y: Any, runs: int, random: Randomness, *, seed: int | None, **how: Any
) -> tuple[Floats, Floats]:
    """(runs, steps): log likelihood ratios of the noisy primal steps, for either neighbour."""
    return both_neighbours(record_steps(recording, canary, X, y, random, seed=seed), runs, **how)
