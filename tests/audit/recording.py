"""Record and play: one call twice with the same randomness and the same noisy answers, one person's A changed.

The first run draws noise and keeps every exact and every noisy answer. The second run keeps its own exact answers but
*receives* the noisy answers of the first. Differential privacy of the composition then needs two things, and
:func:`problems` checks both: everything public is the same in both runs, and at every release the exact answers are no
further apart than the ledger says.

Everything that these tests replace inside the library is replaced by :func:`playing`, and nowhere else.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from justitia import DurableLedger, LagrangianDualClassifier, PFLDPlan, PrivacyLedger
from justitia.cli import cli
from justitia.datasets import make_synthetic
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import Release
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise
from justitia.privacy.rows import DenseSource
from justitia.privacy.vault import SensitiveVault
from justitia.training.same_rows import FITS

SMALL_PLAN = PFLDPlan(private_steps=4, public_steps=2, warmup_steps=5, batch_size=64, averaging=0.5)
#: Clocks and names of runs are not about people.
TIME = "2026-01-01T00:00:00+00:00"
#: Debited before the fits that it pays for: it has no answer of its own.
SELECTION = "search over candidates"


class Recorder(NoiseSource):
    """Seeded noise that keeps every debit, every exact answer and every noisy one."""

    description = "recorded"

    def __init__(self) -> None:
        self.debits: list[Release] = []
        #: Of each answer the number of debits before it: an answer belongs to the last of them.
        self.paid: list[int] = []
        self.exact: list[Array] = []
        self.noisy: list[Array] = []
        #: Public rows of each sum over groups, public weights of each weighted sum; kept if they are asked for.
        self.queries: list[Array] = []
        self._seeded = SeededNoise(20)

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """The same words in every run."""
        return self._seeded.words(size, release=release, stream=stream)

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
        """Record and answer."""
        self.paid.append(len(self.debits))
        self.exact.append(exact.copy())
        self.noisy.append(self.answer(exact, std, release))
        return self.noisy[-1].copy()

    def answer(self, exact: Array, std: float, release: int) -> Array:
        """The noisy answer this source gives."""
        return self._seeded.add_gaussian(exact, std, release=release)


class Player(Recorder):
    """Gives the noisy answers of an earlier run, whatever the exact ones are now."""

    def __init__(self, answers: Sequence[Array]) -> None:
        super().__init__()
        self._answers = list(answers)

    def answer(self, exact: Array, std: float, release: int) -> Array:
        """The earlier run's answer; past its end, or for another shape, zeros that the comparison will report."""
        place = len(self.noisy)
        fits = place < len(self._answers) and self._answers[place].shape == exact.shape
        return self._answers[place] if fits else np.zeros_like(exact)


def all_rows(vault: SensitiveVault, values: Any) -> Array:
    """Public rows of a query, which may be an array, a source of dense rows or a function of blocks."""
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, DenseSource):
        return np.concatenate([rows for _, rows in values.dense()])
    assert vault._rows is not None
    return np.concatenate(list(vault._rows.map(values)))


@contextlib.contextmanager
def playing(answers: Sequence[Array] | None = None, *, queries: bool = False) -> Iterator[Recorder]:
    """Everything that is asked inside is recorded; with ``answers``, answered with them instead of noise.

    With ``queries`` the public rows and weights of every question are kept too.
    """
    source = Recorder() if answers is None else Player(answers)
    FITS.forget()  # no run is warned of an earlier one

    def debited(sound: Callable[..., int]) -> Callable[..., int]:
        def debit(ledger: PrivacyLedger, release: Release) -> int:
            number = sound(ledger, release)
            source.debits.append(release)
            return number

        return debit

    def watched(sound: Callable[..., Array]) -> Callable[..., Array]:
        def ask(vault: SensitiveVault, values: Any, *weights: Array, **rest: Any) -> Array:
            if weights:
                source.queries.append(weights[0])
            else:
                source.queries.append(all_rows(vault, values).astype(np.float64))
            return sound(vault, values, *weights, **rest)

        return ask

    with pytest.MonkeyPatch.context() as patch:
        # Methods of the class: then it does not matter who makes an object of it, nor where.
        patch.setattr(SystemNoise, "words", lambda _, size, **names: source.words(size, **names))
        patch.setattr(
            SystemNoise, "add_gaussian", lambda _, exact, std, **names: source.add_gaussian(exact, std, **names)
        )
        for kind in (PrivacyLedger, DurableLedger):
            patch.setattr(kind, "debit", debited(kind.debit))
        for verb in ("group_sums", "weighted_sum") if queries else ():
            patch.setattr(SensitiveVault, verb, watched(getattr(SensitiveVault, verb)))
        patch.setattr("justitia.cli.files.metadata.now", lambda: TIME)
        yield source


@dataclass(frozen=True)
class Outcome:
    """What one call asked, the exact and noisy answers, everything that it made public, and what it returned."""

    releases: tuple[Release, ...]
    exact: tuple[Array, ...]
    noisy: tuple[Array, ...]
    public: dict[str, Any]
    model: Any
    queries: tuple[Array, ...]
    #: Whether each answer has a debit of its own, made before it, and each debit an answer.
    paired: bool


def recorded(
    call: Callable[[], tuple[Any, Mapping[str, Any]]],
    answers: Sequence[Array] | None = None,
    *,
    queries: bool = False,
) -> Outcome:
    """One call, which returns its result and everything public about it in a form that compares with ``==``.

    An error of a run that receives answers is public as well; of one that does not, it is raised.
    """
    error, result, shown = "", None, {}
    with (
        playing(answers, queries=queries) as source,
        warnings.catch_warnings(record=True) as caught,
        printed_lines() as printed,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of earlier tests, collected meanwhile
        try:
            result, shown = call()
        except Exception as raised:
            if answers is None:
                raise
            error = "".join(traceback.format_exception_only(raised))
    releases = tuple(source.debits[number - 1] for number in source.paid if number)
    public = {
        "error": error,
        "purposes": [release.purpose for release in source.debits],
        "costs": [release.cost for release in source.debits],
        "sensitivities": [release.sensitivity for release in source.debits],
        "units": [release.unit for release in source.debits],
        "warnings": [str(one.message) for one in caught],
        "printed lines": printed.getvalue(),
        **shown,
    }
    due = [number for number, release in enumerate(source.debits, start=1) if release.purpose != SELECTION]
    return Outcome(
        releases,
        tuple(source.exact),
        tuple(source.noisy),
        public,
        result,
        tuple(source.queries),
        source.paid == due,
    )


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


# What is compared


def distances(first: Outcome, second: Outcome) -> list[tuple[Release, float]]:
    """Each release of the first run with the distance between the exact answers of both."""
    pairs = zip(first.releases, first.exact, second.exact, strict=True)
    return [(release, float(np.linalg.norm(one - other))) for release, one, other in pairs]


def problems(first: Outcome, second: Outcome, *, neighbours: bool = True) -> list[str]:
    """Every way in which two runs break the promise; an empty list means that it holds.

    Of runs that are not neighbours, everything but the distance of their exact answers.
    """
    shapes = [[answer.shape for answer in outcome.exact] for outcome in (first, second)]
    found = [f"{name} depend on A" for name, value in first.public.items() if second.public.get(name) != value]
    if set(second.public) != set(first.public):
        found.append("what is public depends on A")
    if shapes[0] != shapes[1] or not (first.paired and second.paired):
        return [*found, "the number or the shapes of the answers depend on A, or an answer was given without noise"]
    for number, (release, distance) in enumerate(distances(first, second) if neighbours else ()):
        limit = release.sensitivity
        if not distance <= limit:
            found.append(f"release {number}, {release.purpose!r}, moves by {distance:.4g}, allowed are {limit:.4g}")
    return found


def largest_movements(first: Outcome, second: Outcome) -> dict[str, float]:
    """For each purpose the largest distance, as a share of the recorded sensitivity."""
    found: dict[str, float] = {}
    for release, distance in distances(first, second):
        share = distance / release.sensitivity if release.sensitivity > 0 else math.nan
        found[release.purpose] = max(found.get(release.purpose, 0.0), share)
    return found


# People, and a fit on them


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


def estimator(people: People, **options: Any) -> LagrangianDualClassifier:
    """An unfitted classifier, of engine "pf-ld" unless said otherwise, that is quick on a few people."""
    settings: dict[str, Any] = {"epsilon": 4.0, "module": (4,), "engine": "pf-ld", "plan": SMALL_PLAN}
    if options.get("engine") == "post-processing":
        settings["module"] = None
    return LagrangianDualClassifier(
        **{"groups": people.groups, "progress": False, "random_state": 3} | settings | options
    )


def run(
    people: People,
    *,
    answers: Sequence[Array] | None = None,
    queries: bool = False,
    make: Callable[..., Any] = estimator,
    fit: Callable[[Any, People], Any] | None = None,
    **options: Any,
) -> Outcome:
    """One fit of what ``make`` makes of these options, by ``fit`` if the attribute is not to go in as a list."""

    def call() -> tuple[Any, dict[str, Any]]:
        model = make(people, **options)
        (fit_on_lists if fit is None else fit)(model, people)
        return model, fitted_facts(model, people)

    return recorded(call, answers, queries=queries)


def fit_on_lists(model: Any, people: People) -> None:
    """The attribute as a list."""
    given: dict[str, Any] = {"person": people.ids, "sample_weight": people.weights}
    passed = {name: value for name, value in given.items() if value is not None}
    model.fit(people.X, people.y, sensitive_features=list(people.labels), **passed)


def fitted_facts(model: Any, people: People) -> dict[str, Any]:
    """Everything that leaves ``fit``, in a form that compares with ``==``."""
    found = getattr(model, "feature_association_", None)
    return {
        "weights": _weights(model),
        "scores": model.decision_function(people.X).tolist(),
        "history": model.history_.to_csv(),
        "price": model.price_.to_csv() if hasattr(model, "price_") else None,
        "association": None if found is None else found.to_csv(),
        "multipliers": model.dual_.to_csv(),
        "certificate": model.certificate_.to_json(),
        "plan": repr(model.plan_),
        "attributes": sorted(vars(model)),
    }


def _weights(model: Any) -> list[Any]:
    """All numbers of a network, or the parts of a rule."""
    if hasattr(model, "module_"):
        return [p.tolist() for p in model.module_.state_dict().values()]
    rule = model.rule_
    kept = {name: part for name, part in vars(rule).items() if name not in ("base", "calibration")}
    return [pickle.dumps(rule.base), rule.calibration, pickle.dumps(kept)]


# Commands


def command(
    folder: Path, words: Sequence[str], files: Mapping[str, bytes], answers: Sequence[Array] | None = None
) -> Outcome:
    """One command beside these files, whose own files are removed again: exit code, output and files are public."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)
    before = {one for one in folder.rglob("*") if one.is_file()}

    def call() -> tuple[Any, dict[str, Any]]:
        with contextlib.chdir(folder):
            result = CliRunner().invoke(cli, list(words), terminal_width=80)
        return result, {"exit code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}

    outcome = recorded(call, answers)
    made = sorted({one for one in folder.rglob("*") if one.is_file()} - before)
    outcome.public["files"] = {one.relative_to(folder).as_posix(): one.read_bytes() for one in made}
    for one in made:
        one.unlink()
    for one in sorted({one.parent for one in made} - {folder}, reverse=True):
        if not any(one.iterdir()):
            one.rmdir()
    return outcome
