"""Attacks on one person's attribute: replayed queries, whole fits, and many people at once in one run.

Each run gives a row of numbers; :mod:`justitia.audit.statistics` turns the rows of both neighbours into a bound.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm.auto import tqdm

from justitia.audit.replay import (
    Canary,
    Codes,
    Floats,
    Model,
    Recording,
    RecordsQueries,
    Replay,
    kind_of,
    labels_from_codes,
    make_replay,
    movement_rows,
    neutral_parameters,
    noise_scale,
    recording_kind,
    replay_queries,
)
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise
from justitia.regressor import LagrangianDualRegressor

#: Function from a range of runs to (runs, ..., d) numbers; it is sent to worker processes.
Work = Callable[[range], Floats]
#: Rows whose predictions a black-box attacker sees, the canary among them.
VISIBLE_ROWS = 9
#: Further public rows whose margins represent a correction.
PROBES = 64
#: Replays per task of a worker process.
TASK = 100


@dataclass(frozen=True)
class Randomness:
    """Noise of each run: as the model has it or, for a repeatable audit, from a seed."""

    noise_seed: int | None
    seed: int | None

    def seed_for(self, run: int) -> int | None:
        """Seed of one run; a noise seed of the model is used in every run, so that the audit finds the repetition."""
        if self.noise_seed is not None:
            return self.noise_seed
        return None if self.seed is None else (self.seed << 32) + run

    def source(self, run: int) -> NoiseSource:
        """Noise source of one replay."""
        seed = self.seed_for(run)
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
    """(runs, queries): log likelihood ratios of the noisy answers, for either neighbour."""
    work = ReplayRuns(make_replay(recording, canary).copied(copies), random, copies)
    return both_neighbours(work, runs, jobs=jobs, progress=progress, copies=copies)


def both_neighbours(
    work: Work, runs: int, *, jobs: int, progress: bool | None, task: int = TASK, copies: int = 1
) -> tuple[Floats, Floats]:
    """(runs, d): numbers of the runs of either neighbour; even calls are of the first, odd ones of the second."""
    calls = 2 * math.ceil(runs / copies)
    tasks = [range(start, min(start + task, calls)) for start in range(0, calls, task)]
    both = np.concatenate(of_one_width(list(run_tasks(work, tasks, jobs=jobs, progress=progress))))
    first, second = (both[part::2].reshape(-1, both.shape[-1])[:runs] for part in (0, 1))
    return first, second


def of_one_width(parts: list[Floats]) -> list[Floats]:
    """Numbers of runs with zeros at the end, so that all have as many: a regressor's levels are fewer in some runs."""
    width = max(one.shape[-1] for one in parts)
    return [np.pad(one, [(0, 0)] * (one.ndim - 1) + [(0, width - one.shape[-1])]) for one in parts]


@dataclass(frozen=True, eq=False)
class ReplayRuns:
    """Replays of the queries of one fit."""

    replay: Replay
    random: Randomness
    copies: int

    def __call__(self, task: range) -> Floats:
        """(calls, copies, queries): log likelihood ratios."""
        found = (self.replay.answers(call % 2, self.random.source(call), self.copies) for call in task)
        return np.stack([self.replay.log_ratios(answers) for answers in found])


@dataclass(frozen=True, eq=False)
class FitRuns:
    """Whole fits on either neighbour with the same public randomness, and the numbers that an attacker reads."""

    kind: type[Model]
    parameters: dict[str, Any]
    X: Any
    y: Any
    columns: Mapping[str, Any]
    neighbours: tuple[Codes, Codes]
    n_groups: int
    random: Randomness
    attack: str
    visible: NDArray[np.int64]

    def __call__(self, task: range) -> Floats:
        """(fits, d): all released numbers, the scores of the visible rows, or the ratio of all answers, by attack."""
        return np.concatenate(of_one_width([self._run(run)[None] for run in task]))

    def _run(self, run: int) -> Floats:
        model: Any = self.kind(**self.parameters | {"noise_seed": self.random.seed_for(run)})
        labels = labels_from_codes(self.neighbours[run % 2], self.n_groups)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(self.X, self.y, sensitive_features=labels, **self.columns)
        if isinstance(model, RecordsQueries):
            return self._ratio(model)
        if self.attack == "predictions":
            return outputs(model, self.X)[self.visible].ravel()
        return released_numbers(model, self.X, self.visible)

    def _ratio(self, model: Any) -> Floats:
        """(2,): log likelihood ratio of all noisy answers to this run's own queries, and their number."""
        vault = model.recording_vault_
        budget = (model.ledger_.budget_epsilon, model.ledger_.delta)
        replay = replay_queries(vault.queries, self.neighbours, self.n_groups, budget)
        return np.array([replay.log_ratios([one[None] for one in vault.answers]).sum(), len(vault.queries)])


def outputs(model: Model, X: Any) -> Floats:
    """(n,), or (n, K) of several classes: scores of a classifier or numbers that a regressor predicts."""
    scored = model.predict(X) if isinstance(model, LagrangianDualRegressor) else model.decision_function(X)
    return np.asarray(scored, dtype=np.float64)


def released_numbers(model: Model, X: Any, visible: NDArray[np.int64]) -> Floats:
    """Weights, multipliers and history of a fitted model as one vector; missing numbers count as 0.

    A base model with its correction differs in shape from run to run. Its margins on public rows, the visible ones and
    others evenly over the table, represent it; of a regressor, its predictions of them.
    """
    history = model.history_.select_dtypes("number").to_numpy(dtype=np.float64)
    if hasattr(model, "rule_"):
        scored = outputs(model, X)
        evenly = np.linspace(0, len(scored) - 1, min(PROBES, len(scored))).astype(np.int64)
        weights = [scored[visible].ravel(), scored[evenly].ravel()]
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
    columns: Mapping[str, Any],
) -> tuple[Floats, Floats]:
    """(runs, d): released numbers of whole fits on either neighbour."""
    n_groups, model = len(recording.names) - 1, recording.model
    fits = FitRuns(
        kind=recording_kind(model) if attack == "trajectory" else kind_of(model),
        parameters=neutral_parameters(model, n_groups, 0),
        X=X,
        y=y,
        columns=columns,
        neighbours=recording.neighbours(canary),
        n_groups=n_groups,
        random=random,
        attack=attack,
        visible=nearest(model, X, canary.person),
    )
    return both_neighbours(fits, runs, jobs=jobs, progress=progress, task=1)


def nearest(model: Model, X: Any, person: int) -> NDArray[np.int64]:
    """The person's row and the rows with the most similar public features."""
    features = _flat(model, X)
    return np.argsort(np.linalg.norm(features - features[person], axis=1), kind="stable")[:VISIBLE_ROWS]


def most_unusual(model: Model, X: Any) -> int:
    """Row whose public features are furthest from the mean of all rows."""
    features = _flat(model, X)
    return int(np.linalg.norm(features - features.mean(0), axis=1).argmax())


def _flat(model: Model, X: Any) -> NDArray[np.float64]:
    features = model._features(X, reset=False)
    return features.reshape(len(features), -1).astype(np.float64)


def one_run(
    recording: Recording, canary: Canary, canaries: Sequence[int], random: Randomness, *, seed: int | None
) -> tuple[int, int]:
    """Number of guesses, and of right guesses, about the independent coins of many people in one replay.

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
    replay = replay_queries(recording.queries, (base, base), n_groups, (ledger.budget_epsilon, ledger.delta))
    rows = [movement_rows(query, people, canary, n_groups) for query in recording.queries]
    # Averaged over the coins, the exact answer is the base plus half of the sum of all movements.
    half = [row.sum(0) / 2 for row in rows]
    noised = replace(replay, neighbours=(base, mixed)).answers(1, random.source(0))
    answers = [one[0] - known - middle for one, known, middle in zip(noised, replay.known, half, strict=True)]
    scales = [noise_scale(query) for query in recording.queries]
    moved = np.concatenate([row / scale for row, scale in zip(rows, scales, strict=True)], axis=1)
    visible = np.concatenate([answer / scale for answer, scale in zip(answers, scales, strict=True)])
    # The best linear guess of all coins at once: noise has variance 1 here, a coin 1/4.
    scores = np.linalg.solve(moved @ moved.T / 4 + np.eye(len(people)), moved @ visible)
    order = scores.argsort()
    quarter = max(1, len(people) // 4)
    right = int(heads[order[-quarter:]].sum() + (~heads[order[:quarter]]).sum())
    return 2 * quarter, right


def run_tasks(work: Work, tasks: Sequence[range], *, jobs: int, progress: bool | None) -> Iterator[NDArray[np.float64]]:
    """Results of ``work`` for each task, in order; the bar counts runs and is shown in a terminal by default."""
    shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    with tqdm(total=sum(map(len, tasks)), disable=not shown, unit="run", desc="audit") as bar:
        for task, part in zip(tasks, _each(work, tasks, jobs), strict=True):
            bar.update(len(task))
            yield part


def _each(work: Work, tasks: Sequence[range], jobs: int) -> Iterator[NDArray[np.float64]]:
    if jobs == 1:
        yield from map(work, tasks)
        return
    # Spawned, because a fork copies threads of libraries in an unknown state. Each process gets the work once.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(work,)) as pool:
        yield from pool.map(_do, tasks)


_WORK: list[Work] = []


def _start(work: Work) -> None:
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    _WORK.append(work)


def _do(task: range) -> NDArray[np.float64]:
    return _WORK[0](task)
