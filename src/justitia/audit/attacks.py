"""Attacks on one person's attribute: replayed answers of the mechanism, whole fits, and many people in one run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.audit.replay import (
    Canary,
    Codes,
    Floats,
    Recording,
    Replay,
    labels,
    make_replay,
    movement_rows,
    neutral,
    noise_scale,
)
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise

#: People whose predictions a black-box attacker sees, the canary among them.
SEEN = 9
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
    recording: Recording, canary: Canary, runs: int, random: Randomness, *, jobs: int, progress: bool | None
) -> tuple[Floats, Floats]:
    """(runs, questions) log likelihood ratios of the noised answers under either neighbour."""
    replay = make_replay(recording, canary)
    tasks = [range(start, min(start + TASK, 2 * runs)) for start in range(0, 2 * runs, TASK)]
    parts = list(_in_parallel(partial(_replayed, replay, random), tasks, jobs=jobs, progress=progress, unit="replays"))
    both = np.concatenate(parts)
    return both[::2], both[1::2]


def _replayed(replay: Replay, random: Randomness, task: range) -> Floats:
    """Even runs are of the first neighbour, odd ones of the second."""
    return np.stack([replay.run(run % 2, random.source(run)) for run in task])


@dataclass(frozen=True, eq=False)
class Fits:
    """Whole fits on either neighbour with the same public randomness, and what an attacker reads off each."""

    parameters: dict[str, Any]
    X: Any
    y: Any
    neighbours: tuple[Codes, Codes]
    n_groups: int
    random: Randomness
    seen: NDArray[np.int64] | None

    def run(self, run: int) -> Floats:
        """Everything that is released, or only the scores of the people seen, flat."""
        chosen = self.parameters | {"noise_seed": self.random.seed_of(run)}
        model = LagrangianDualClassifier(**chosen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(self.X, self.y, sensitive_features=labels(self.neighbours[run % 2], self.n_groups))
        if self.seen is not None:
            return np.asarray(model.decision_function(self.X)[self.seen], dtype=np.float64)
        return released_numbers(model)


def released_numbers(model: LagrangianDualClassifier) -> Floats:
    """Weights, multipliers and history of a fitted model as one vector; what is missing counts as 0."""
    weights = [value.detach().double().flatten().numpy() for value in model.module_.state_dict().values()]
    history = model.history_.select_dtypes("number").to_numpy(dtype=np.float64)
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
    predictions: bool,
    jobs: int,
    progress: bool | None,
) -> tuple[Floats, Floats]:
    """(runs, d) what whole fits release under either neighbour."""
    n_groups = len(recording.names) - 1
    one, other = recording.codes.copy(), recording.codes.copy()
    one[canary.person], other[canary.person] = canary.here, canary.there
    seen = nearest(recording.model, X, canary.person) if predictions else None
    parameters = neutral(recording.model, n_groups, 0)
    fits = Fits(parameters, X, y, (one, other), n_groups, random, seen)
    found = _in_parallel(fits.run, range(2 * runs), jobs=jobs, progress=progress, unit="fits")
    both = np.stack(list(found))
    return both[::2], both[1::2]


def nearest(model: LagrangianDualClassifier, X: Any, person: int) -> NDArray[np.int64]:
    """The person and those with the most similar public features."""
    features = model._features(X, reset=False).double().flatten(1)
    distances = (features - features[person]).norm(dim=1)
    return np.asarray(distances.argsort()[:SEEN])


def most_unusual(model: LagrangianDualClassifier, X: Any) -> int:
    """The person whose public features lie furthest from everybody's mean."""
    features = model._features(X, reset=False).double().flatten(1)
    return int((features - features.mean(0)).norm(dim=1).argmax())


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
    replay = make_replay(replace(recording, codes=base), Canary(int(people[0]), canary.here, canary.there))
    rows = [movement_rows(question, people, canary, replay.n_groups) for question in recording.questions]
    # Before noise, the answer lies half of everybody's movement above the base, on average over the coins.
    half = [question.sample_rate * row.sum(0) / 2 for question, row in zip(recording.questions, rows, strict=True)]
    known = tuple(one + other for one, other in zip(replay.known, half, strict=True))
    answers = replace(replay, neighbours=(base, mixed), known=known).answers(1, random.source(0))
    weights = [noise_scale(question) ** -2 for question in recording.questions]
    scores = torch.stack([w * (r @ a) for w, r, a in zip(weights, rows, answers, strict=True)]).sum(0).numpy()
    order = scores.argsort()
    quarter = max(1, len(people) // 4)
    right = int(heads[order[-quarter:]].sum() + (~heads[order[:quarter]]).sum())
    return 2 * quarter, right


def _in_parallel(
    work: Callable[[Any], Floats], tasks: Sequence[Any], *, jobs: int, progress: bool | None, unit: str
) -> Iterator[Floats]:
    shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    with tqdm(total=len(tasks), disable=not shown, unit=f" x {unit}", desc="audit") as bar:
        for part in _each(work, tasks, jobs):
            bar.update()
            yield part


def _each(work: Callable[[Any], Floats], tasks: Sequence[Any], jobs: int) -> Iterator[Floats]:
    if jobs == 1:
        yield from map(work, tasks)
        return
    # Spawned, not forked: a fork copies torch's threads in whatever state they are.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        yield from pool.map(work, tasks)


def _start_worker() -> None:
    torch.set_num_threads(1)
