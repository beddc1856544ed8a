"""Attacks on one person's attribute: replayed answers of the mechanism, whole fits, and many people in one run.

Each run gives a row of numbers; :mod:`justitia.audit.statistics` tells what the rows of both neighbours prove.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.audit.questions import noise_scale
from justitia.audit.replay import (
    Canary,
    Codes,
    Floats,
    Recording,
    Replay,
    WatchedClassifier,
    labels,
    make_replay,
    movement_rows,
    neutral,
    replay_of,
)
from justitia.audit.workers import Work, in_parallel
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise

#: People whose predictions a black-box attacker sees, the canary among them.
SEEN = 9
#: Public rows whose margins stand for a correction, besides those seen.
PROBES = 64
#: Replays that one task of a worker process does.
TASK = 100


@dataclass(frozen=True)
class Randomness:
    """Where the noise of each run comes from: as in the model, or, for an audit that can be repeated, from a seed."""

    noise_seed: int | None
    seed: int | None

    def seed_of(self, run: int) -> int | None:
        """A seed fixed in the model is fixed in every run of the audit too, which is how the audit finds it."""
        if self.noise_seed is not None:
            return self.noise_seed
        return None if self.seed is None else (self.seed << 32) + run

    def source(self, run: int) -> NoiseSource:
        """Of a replay."""
        seed = self.seed_of(run)
        return SystemNoise() if seed is None else SeededNoise(seed)


def mechanism_statistics(
    recording: Recording,
    canary: Canary,
    runs: int,
    random: Randomness,
    *,
    jobs: int,
    progress: bool | None,
    copies: int = 1,
) -> tuple[Floats, Floats]:
    """(runs, questions) log likelihood ratios of the noised answers under either neighbour."""
    work = Replays(make_replay(recording, canary).copied(copies), random, copies)
    return both_neighbours(work, runs, jobs=jobs, progress=progress, copies=copies)


def both_neighbours(
    work: Work, runs: int, *, jobs: int, progress: bool | None, task: int = TASK, copies: int = 1
) -> tuple[Floats, Floats]:
    """(runs, d) what runs of either neighbour give; even calls are of the first, odd ones of the second."""
    calls = 2 * math.ceil(runs / copies)
    tasks = [range(start, min(start + task, calls)) for start in range(0, calls, task)]
    both = np.concatenate(list(in_parallel(work, tasks, jobs=jobs, progress=progress)))
    first, second = (both[part::2].reshape(-1, both.shape[-1])[:runs] for part in (0, 1))
    return first, second


@dataclass(frozen=True, eq=False)
class Replays:
    """Replays of the questions that one fit asked."""

    replay: Replay
    random: Randomness
    copies: int

    def __call__(self, task: range) -> Floats:
        """(calls, copies, questions) log likelihood ratios."""
        found = (self.replay.answers(call % 2, self.random.source(call), self.copies) for call in task)
        return np.stack([self.replay.log_ratios(answers) for answers in found])


@dataclass(frozen=True, eq=False)
class Fits:
    """Whole fits on either neighbour with the same public randomness, and what an attacker reads off each."""

    parameters: dict[str, Any]
    X: Any
    y: Any
    neighbours: tuple[Codes, Codes]
    n_groups: int
    random: Randomness
    attack: str
    seen: NDArray[np.int64]

    def __call__(self, task: range) -> Floats:
        """(fits, d) everything that is released, the scores of the people seen, or the ratio of all answers."""
        return np.stack([self._run(run) for run in task])

    def _run(self, run: int) -> Floats:
        kind = WatchedClassifier if self.attack == "trajectory" else LagrangianDualClassifier
        model = kind(**self.parameters | {"noise_seed": self.random.seed_of(run)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(self.X, self.y, sensitive_features=labels(self.neighbours[run % 2], self.n_groups))
        if isinstance(model, WatchedClassifier):
            return self._ratio(model)
        if self.attack == "predictions":
            return np.asarray(model.decision_function(self.X)[self.seen], dtype=np.float64)
        return released_numbers(model, self.X, self.seen)

    def _ratio(self, model: WatchedClassifier) -> Floats:
        """(2,) log likelihood ratio of all noised answers to this run's own questions, and how many there were."""
        watched = model.watched_
        budget = (model.ledger_.budget_epsilon, model.ledger_.delta)
        replay = replay_of(watched.questions, self.neighbours, self.n_groups, budget)
        return np.array([replay.log_ratios([one[None] for one in watched.answers]).sum(), len(watched.questions)])


def released_numbers(model: LagrangianDualClassifier, X: Any, seen: NDArray[np.int64]) -> Floats:
    """Weights, multipliers and history of a fitted model as one vector; what is missing counts as 0.

    The trees of a correction differ in shape from run to run. What they say of public rows, those seen and others
    evenly over the table, stands for them.
    """
    history = model.history_.select_dtypes("number").to_numpy(dtype=np.float64)
    if hasattr(model, "rule_"):
        margins = model.decision_function(X)
        spread = np.linspace(0, len(margins) - 1, min(PROBES, len(margins))).astype(np.int64)
        weights = [margins[seen], margins[spread]]
    else:
        weights = [value.detach().double().flatten().numpy() for value in model.module_.state_dict().values()]
    parts = [*weights, model.dual_.to_numpy(dtype=np.float64).ravel(), history.ravel()]
    return np.asarray(np.nan_to_num(np.concatenate(parts)))


def fit_statistics(
    recording: Recording,
    canary: Canary,
    X: Any,
    y: Any,
    runs: int,
    random: Randomness,
    *,
    attack: str,
    jobs: int,
    progress: bool | None,
) -> tuple[Floats, Floats]:
    """(runs, d) what whole fits release under either neighbour."""
    n_groups = len(recording.names) - 1
    fits = Fits(
        parameters=neutral(recording.model, n_groups, 0),
        X=X,
        y=y,
        neighbours=recording.neighbours(canary),
        n_groups=n_groups,
        random=random,
        attack=attack,
        seen=nearest(recording.model, X, canary.person),
    )
    return both_neighbours(fits, runs, jobs=jobs, progress=progress, task=1)


def nearest(model: LagrangianDualClassifier, X: Any, person: int) -> NDArray[np.int64]:
    """The person and those with the most similar public features."""
    features = _flat(model, X)
    return np.argsort(np.linalg.norm(features - features[person], axis=1), kind="stable")[:SEEN]


def most_unusual(model: LagrangianDualClassifier, X: Any) -> int:
    """The person whose public features lie furthest from everybody's mean."""
    features = _flat(model, X)
    return int(np.linalg.norm(features - features.mean(0), axis=1).argmax())


def _flat(model: LagrangianDualClassifier, X: Any) -> NDArray[np.float64]:
    features = model._features(X, reset=False)
    return features.reshape(len(features), -1).astype(np.float64)


def one_run(
    recording: Recording, canary: Canary, canaries: Sequence[int], random: Randomness, *, seed: int | None
) -> tuple[int, int]:
    """Guesses and right guesses about the independent coins of many people in one replay.

    Each of ``canaries`` is put into one of two groups by a coin; the people with the highest and the lowest scores,
    a quarter each, are guessed (Steinke, Nasr and Jagielski 2023).
    """
    people = np.asarray(canaries)
    coins = SystemNoise() if seed is None else SeededNoise((seed << 32) + 2**31)
    heads = coins.uniform(len(people), release=0, stream="coins") < 0.5
    base = recording.codes.copy()
    base[people] = canary.here
    mixed = base.copy()
    mixed[people[heads]] = canary.there
    ledger = recording.model.ledger_
    n_groups = len(recording.names) - 1
    replay = replay_of(recording.questions, (base, base), n_groups, (ledger.budget_epsilon, ledger.delta))
    rows = [movement_rows(question, people, canary, n_groups) for question in recording.questions]
    # Before noise, the answer lies half of everybody's movement above the base, on average over the coins.
    half = [row.sum(0) / 2 for row in rows]
    noised = replace(replay, neighbours=(base, mixed)).answers(1, random.source(0))
    answers = [one[0] - known - middle for one, known, middle in zip(noised, replay.known, half, strict=True)]
    scales = [noise_scale(question) for question in recording.questions]
    moved = np.concatenate([row / scale for row, scale in zip(rows, scales, strict=True)], axis=1)
    seen = np.concatenate([answer / scale for answer, scale in zip(answers, scales, strict=True)])
    # The best linear guess of all coins at once: noise has variance 1 here, a coin 1/4.
    scores = np.linalg.solve(moved @ moved.T / 4 + np.eye(len(people)), moved @ seen)
    order = scores.argsort()
    quarter = max(1, len(people) // 4)
    right = int(heads[order[-quarter:]].sum() + (~heads[order[:quarter]]).sum())
    return 2 * quarter, right
