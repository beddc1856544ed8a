"""Record and play: a whole ``fit`` twice with the same randomness and the same noised answers, one person's A changed.

The first run draws noise and keeps every exact and every noised answer. The second run keeps its own exact answers but
*receives* the noised answers of the first. Differential privacy of the composition then needs two things, and
:func:`problems` checks both: everything public is the same in both runs, and at every release the exact answers are no
further apart than the ledger says.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import pickle
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from justitia import LagrangianDualClassifier, PFLDPlan
from justitia.datasets import make_synthetic
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import Release
from justitia.privacy.mechanisms import NoiseSource, SeededNoise
from justitia.privacy.vault import SensitiveVault
from justitia.training.same_rows import FITS

SMALL_PLAN = PFLDPlan(private_steps=4, public_steps=2, warmup_steps=5, batch_size=64, averaging=0.5)


class Recorder(NoiseSource):
    """Seeded noise that keeps every exact answer and every noised one."""

    description = "recorded"

    def __init__(self) -> None:
        self.exact: list[Array] = []
        self.noisy: list[Array] = []
        self._seeded = SeededNoise(20)

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """The same sample of people in every run."""
        return self._seeded.words(size, release=release, stream=stream)

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
        """Record and answer."""
        self.exact.append(exact.copy())
        self.noisy.append(self.answer(exact, std, release))
        return self.noisy[-1].copy()

    def answer(self, exact: Array, std: float, release: int) -> Array:
        """The noised answer this source gives."""
        return self._seeded.add_gaussian(exact, std, release=release)


class Player(Recorder):
    """Gives the noised answers of an earlier run, whatever the exact ones are now."""

    def __init__(self, answers: Sequence[Array]) -> None:
        super().__init__()
        self._answers = list(answers)

    def answer(self, exact: Array, std: float, release: int) -> Array:
        """The earlier run's answer; past its end, or for another shape, zeros that the comparison will report."""
        place = len(self.noisy)
        fits = place < len(self._answers) and self._answers[place].shape == exact.shape
        return self._answers[place] if fits else np.zeros_like(exact)


@dataclass(frozen=True)
class People:
    """A small public table and everybody's label; ids where a person has several rows, weights where rows have any."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    labels: tuple[Any, ...]
    groups: tuple[str, ...]
    ids: tuple[Any, ...] | None = None
    weights: tuple[float, ...] | None = None

    def with_labels(self, person: Any, label: Any) -> People:
        """The neighbour in which the label of every row of one person, by id, is another."""
        pairs = zip(self.labels, self.ids or (), strict=True)
        return replace(self, labels=tuple(label if one == person else held for held, one in pairs))

    def with_label(self, person: int, label: Any) -> People:
        """The neighbour in which one person's label is another."""
        return replace(self, labels=(*self.labels[:person], label, *self.labels[person + 1 :]))


def make_people(n_groups: int, *, missing: bool, n: int = 240) -> People:
    """A table of n rows, in which every seventh label is missing if asked for."""
    groups = ("a", "b", "c", "d", "e")[:n_groups]
    data = make_synthetic(n, groups=groups, n_features=3, random_state=1)
    labels = tuple(None if missing and i % 7 == 0 else label for i, label in enumerate(data.sensitive))
    return People(data.X, data.y.to_numpy(), labels, groups)


@dataclass(frozen=True)
class Outcome:
    """What one run asked, what the exact answers were, everything it made public, and its last public weights."""

    releases: tuple[Release, ...]
    exact: tuple[Array, ...]
    noisy: tuple[Array, ...]
    public: dict[str, Any]
    omega: Array
    model: LagrangianDualClassifier


def run(
    people: People, *, answers: Sequence[Array] | None = None, stored: Path | None = None, **options: Any
) -> Outcome:
    """One fit; with ``answers`` it receives those instead of noised answers of its own.

    With ``stored`` rows are written to that file, and read from it.
    """
    source = Recorder() if answers is None else Player(answers)
    FITS.forget()  # its warning is given once per process, and every run is to be the first
    settings: dict[str, Any] = {"epsilon": 4.0, "module": (4,), "engine": "pf-ld", "plan": SMALL_PLAN}
    if options.get("engine") == "post-processing":
        settings["module"] = None
    model = LagrangianDualClassifier(groups=people.groups, progress=False, **settings | {"random_state": 3} | options)
    weighted_sum, asked = SensitiveVault.weighted_sum, [np.empty(0)]
    FITS.forget()  # no run is warned of an earlier one

    def watched(vault: SensitiveVault, values: Any, weights: Array, **rest: Any) -> Array:
        asked.append(weights)
        return weighted_sum(vault, values, weights, **rest)

    with (
        warnings.catch_warnings(record=True) as caught,
        pytest.MonkeyPatch.context() as patch,
        printed_lines() as printed,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of earlier tests, collected meanwhile
        patch.setattr("justitia.privacy.vault.SystemNoise", lambda: source)
        patch.setattr(SensitiveVault, "weighted_sum", watched)
        given: dict[str, Any] = {"person": people.ids, "sample_weight": people.weights}
        if stored is None:
            model.fit(people.X, people.y, sensitive_features=list(people.labels), **given)
        else:
            people.X.assign(label=people.y, group=list(people.labels)).to_parquet(stored, index=False)
            model.fit(stored, "label", sensitive_features="group")
    public = _public(model, people, [str(one.message) for one in caught]) | {"printed lines": printed.getvalue()}
    return Outcome(model.ledger_.releases, tuple(source.exact), tuple(source.noisy), public, asked[-1], model)


@contextlib.contextmanager
def printed_lines() -> Iterator[io.StringIO]:
    """Everything logged at any level or written to the terminal's output."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(text):
            yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _public(model: LagrangianDualClassifier, people: People, sentences: list[str]) -> dict[str, Any]:
    """Everything that leaves ``fit``, in a form that compares with ``==``."""
    return {
        "purposes": [release.purpose for release in model.ledger_.releases],
        "costs": [release.cost for release in model.ledger_.releases],
        "sensitivities": [release.sensitivity for release in model.ledger_.releases],
        "weights": _weights(model),
        "scores": model.decision_function(people.X).tolist(),
        "history": model.history_.to_csv(),
        "multipliers": model.dual_.to_csv(),
        "certificate": model.certificate_.to_json(),
        "plan": repr(model.plan_),
        "attributes": sorted(vars(model)),
        "warnings": sentences,
    }


def _weights(model: LagrangianDualClassifier) -> list[Any]:
    """All numbers of a network, or the three parts of a rule."""
    if hasattr(model, "module_"):
        return [p.tolist() for p in model.module_.state_dict().values()]
    rule = model.rule_
    return [pickle.dumps(rule.base), rule.calibration, pickle.dumps((rule.correction, rule.levels)), rule.threshold]


def distances(first: Outcome, second: Outcome) -> list[tuple[Release, float]]:
    """Each release of the first run with the distance between the exact answers of both."""
    pairs = zip(first.releases, first.exact, second.exact, strict=True)
    return [(release, float(np.linalg.norm(one - other))) for release, one, other in pairs]


def problems(first: Outcome, second: Outcome) -> list[str]:
    """Every way in which two neighbouring runs break the promise; an empty list means that it holds."""
    shapes = [[tuple(answer.shape) for answer in outcome.exact] for outcome in (first, second)]
    found = [f"{name} depend on A" for name, value in first.public.items() if second.public[name] != value]
    if shapes[0] != shapes[1] or len(first.exact) != len(first.releases):
        return [*found, "the number or the shapes of the answers depend on A, or an answer was given without noise"]
    for number, (release, distance) in enumerate(distances(first, second)):
        allowed = release.sensitivity
        if not distance <= allowed:
            found.append(f"release {number}, {release.purpose!r}, moves by {distance:.4g}, allowed are {allowed:.4g}")
    return found


def largest_movements(first: Outcome, second: Outcome) -> dict[str, float]:
    """For each purpose the largest distance, as a share of the recorded sensitivity."""
    found: dict[str, float] = {}
    for release, distance in distances(first, second):
        share = distance / release.sensitivity if release.sensitivity > 0 else math.nan
        found[release.purpose] = max(found.get(release.purpose, 0.0), share)
    return found
