"""Flip one attribute and compare: whatever is called, and however the attribute goes in.

Every test records one call, and plays it again with one row's attribute (or everybody's) changed and the noisy answers
of the first run. :func:`recording.problems` then finds whatever else differs, and exact answers that are further apart
than the ledger says.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import planted
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from recording import (
    SELECTION,
    SMALL_PLAN,
    Outcome,
    People,
    command,
    distances,
    estimator,
    fit_on_lists,
    fitted_facts,
    largest_movements,
    make_people,
    problems,
    recorded,
    run,
)
from sklearn.linear_model import LogisticRegression

from asking import with_plan
from bench.rivals.fermi import FermiClassifier, FermiPlan
from bench.rivals.histogram import HistogramClassifier, HistogramPlan
from justitia import (
    MomentsPlan,
    PostProcessingPlan,
    PrivacyLedger,
    SensitiveColumns,
    measure,
    private_search,
    tradeoff,
)
from justitia.metrics.scorer import private_scorer
from justitia.networks.multilayer import default_widths
from justitia.notions import NOTIONS
from justitia.postprocessing import memberships
from justitia.privacy.arrays import Array
from justitia.privacy.mechanisms import Gaussian
from justitia.privacy.persons import Persons
from justitia.privacy.rows import ArrayRows
from justitia.privacy.vault import SensitiveVault
from justitia.report import build_report
from justitia.rows import files
from justitia.rows.parquet import RowFiles


def rival(kind: Any, plan: Any, people: People, **options: Any) -> Any:
    small = {"module": (4,), "private_steps": 4, "public_steps": 2, "warmup_steps": 5, "batch_size": 64}
    settings = {"averaging": 0.5, "groups": people.groups, "epsilon": 4.0, "random_state": 3}
    return with_plan(kind, plan, **small | settings | options)


POST_PROCESSING = PostProcessingPlan(checks=2)
MOMENTS = MomentsPlan(warmup_steps=4, rounds=4, public_steps=1, checks=2, batch_size=64, averaging=0.5)
#: Options of :func:`recording.run`, and what is asked how often. The base reads public data alone: a quick one will do.
QUICK = {"base": LogisticRegression()}
ENGINES: dict[str, dict[str, Any]] = {
    "post-processing": {"engine": "post-processing", "plan": POST_PROCESSING, "tolerance": 0.0} | QUICK,
    "moments": {"engine": "moments", "plan": MOMENTS},
    "pf-ld": {"engine": "pf-ld", "plan": SMALL_PLAN},
    "fermi": {"make": partial(rival, FermiClassifier, FermiPlan)},
    "histogram": {"make": partial(rival, HistogramClassifier, HistogramPlan)},
}
PURPOSES = {
    "post-processing": {"moments": 1, "decisions": 2},
    "moments": {"moments": 1, "decisions": 2},
    "pf-ld": {"group sizes": 1, "violation": 4, "group gradient": 4},
    "fermi": {"group sizes": 1, "cross term": 4, "group gradient": 4},
    "histogram": {"group sizes": 1, "histogram of decisions": 4, "group gradient": 4},
}
OURS = ("post-processing", "moments", "pf-ld")
#: Rows that :func:`recording.make_people` makes.
N = 240
every_engine = pytest.mark.parametrize("engine", ENGINES)
our_engines = pytest.mark.parametrize("engine", OURS)


def flips(people: People) -> list[tuple[int, Any]]:
    """One row of each class to another group and to "not given", and one row without a group that is given one."""
    members = [
        next(i for i in np.flatnonzero(people.y == label).tolist()[3:] if people.labels[i] is not None)
        for label in (0, 1)
    ]
    moved = next(group for group in people.groups if group != people.labels[members[0]])
    silent = [i for i, given in enumerate(people.labels) if given is None]
    return [(members[0], moved), (members[1], None), *((i, people.groups[0]) for i in silent[:1])]


def wholly_other(people: People) -> dict[str, People]:
    """Not neighbours: with the same answers, everything public is the same still."""
    n = len(people.labels)
    labels: dict[str, tuple[Any, ...]] = {
        "everyone missing": (None,) * n,
        "one group": ("a",) * n,
        "one member": ("b", *("a",) * (n - 1)),
        "unknown labels": ("secret", 7.5, float("nan"), ()) * (n // 4),
    }
    return {name: replace(people, labels=these) for name, these in labels.items()}


def assert_flips_are_hidden(people: People, *, moves: float = 0.5, **options: Any) -> Outcome:
    first = run(people, **options)
    moved = 0.0
    for person, label in flips(people):
        second = run(people.with_label(person, label), answers=first.noisy, **options)
        assert problems(first, second) == []
        moved = max(moved, *largest_movements(first, second).values())
    assert moved > moves  # the runs did differ inside the boundary
    return first


# Every engine and notion


@dataclass(frozen=True)
class Exposed:
    """A row and the two labels between which a change moves one answer the furthest."""

    person: int
    here: Any
    there: Any


def most_exposed(first: Outcome, people: People) -> list[tuple[int, Exposed]]:
    """By the public rows or weights of each query."""
    names, found = [*people.groups, None], []
    for number, query in enumerate(first.queries):
        weighted = query.shape == (len(people.y), len(names)) and first.exact[number].ndim == 1
        if weighted:
            person = int(np.ptp(query, axis=1).argmax())
            here, there = names[int(query[person].argmin())], names[int(query[person].argmax())]
        else:
            person = int(np.linalg.norm(query, axis=1).argmax())
            here = people.labels[person]
            # Not the first group for a missing entry: with missing="none" the entry counts as that group already.
            there = next(name for name in (names if here is not None else names[1:]) if name != here)
        found.append((number, Exposed(person, here, there)))
    return found


@pytest.mark.parametrize(("n_groups", "missing"), [(2, False), (5, True)], ids=["2 groups", "5 groups, some missing"])
@pytest.mark.parametrize(
    ("engine", "notion"),
    # the rivals' methods do not have predictive equality
    [(engine, notion) for engine in ENGINES for notion in NOTIONS if engine in OURS or notion != "predictive_equality"],
)
def test_fit_hides_one_row_and_reaches_the_sensitivity_of_every_release(
    engine: str, notion: str, n_groups: int, missing: bool
) -> None:
    people, options = make_people(n_groups, missing=missing), ENGINES[engine] | {"notion": notion}
    if engine == "pf-ld":  # a bound that every gradient exceeds: one row moves the sum by exactly what clipping leaves
        options |= {"plan": replace(SMALL_PLAN, clip=1e-4)}
    elif engine not in OURS:
        options |= {"clip": 1e-4}
    first = run(people, queries=True, **options)
    assert Counter(first.public["purposes"]) == PURPOSES[engine]
    assert len({answer.tobytes() for answer in first.noisy}) == len(first.noisy)  # no noise twice
    assert Counter(first.model.ledger_.costs()) == first.model.plan_.costs()
    if engine in OURS:
        assert PURPOSES[engine] == {one.purpose: one.count for one in first.model.plan_.releases()}
    for person, label in flips(people):
        second = run(people.with_label(person, label), answers=first.noisy, **options)
        assert problems(first, second) == []
    last = {first.releases[number].purpose: (number, one) for number, one in most_exposed(first, people)}
    for number, one in last.values():
        here, there = (
            run(people.with_label(one.person, label), answers=first.noisy, **options) for label in (one.here, one.there)
        )
        assert problems(here, there) == problems(first, there) == []
        release, distance = distances(here, there)[number]
        assert release.sensitivity > 0
        assert distance >= 0.99 * release.sensitivity


@every_engine
def test_fit_on_wholly_other_labels_with_the_same_answers_makes_the_same_things_public(engine: str) -> None:
    people, options = make_people(2, missing=False), ENGINES[engine]
    first = run(people, **options)
    again = run(people, **options)
    assert problems(first, again) == []
    assert set(largest_movements(first, again).values()) == {0.0}
    for other in wholly_other(people).values():
        assert problems(first, run(other, answers=first.noisy, **options), neighbours=False) == []


@pytest.mark.parametrize("kind", ["everyone missing", "one group", "one member"])
@our_engines
def test_fit_of_lopsided_groups_hides_one_row(engine: str, kind: str) -> None:
    people, options = wholly_other(make_people(2, missing=False))[kind], ENGINES[engine]
    first = run(people, **options)
    for person, label in ((0, "a"), (0, None), (5, "b")):
        assert problems(first, run(people.with_label(person, label), answers=first.noisy, **options)) == []


#: Other settings of an engine.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "post-processing": [
        {"plan": replace(POST_PROCESSING, checks=0)},
        {"plan": replace(POST_PROCESSING, share_sizes=0.05)},
        {"plan": replace(POST_PROCESSING, checks=5, trust=0.5, ridge=1.0, micro_batch=50)},
        {"tolerance": None},
        {"tolerance": 0.3},
        {"base": None},
        {"threshold": 0.3},
        {"class_weight": "balanced"},
        {"at": "scores", "notion": "equalized_odds"},
        {"randomize": 0.2, "notion": "equalized_odds"},
        {"missing": "none"},
        {"missing": "none", "plan": replace(POST_PROCESSING, share_sizes=0.05), "notion": "equalized_odds"},
    ],
    "moments": [
        {"plan": replace(MOMENTS, checks=0), "tolerance": 0.05},
        {"plan": replace(MOMENTS, warmup_steps=0, rounds=6, checks=5), "tolerance": 0.05},
        {
            "plan": replace(MOMENTS, dead_zone=1.0, ridge=1.0, share_moments=0.1, micro_batch=50),
            "tolerance": 0.05,
        },
    ],
}


@pytest.mark.parametrize(
    ("engine", "options"), [(name, one) for name, some in SETTINGS.items() for one in some], ids=str
)
def test_fit_with_other_settings_hides_one_row(engine: str, options: dict[str, Any]) -> None:
    first = assert_flips_are_hidden(make_people(5, missing=True), moves=0.0, **ENGINES[engine] | options)
    assert len(first.releases) == sum(one.count for one in first.model.plan_.releases())


@pytest.mark.parametrize("labels", [None, "no group", 7.5, math.nan, (), "a"], ids=repr)
def test_fit_without_missing_counts_an_entry_that_is_no_group_as_the_first_group(labels: Any) -> None:
    """Nothing shows that it is none: no error, no warning, and the exact answers are those of the first group."""
    people, options = make_people(2, missing=False), ENGINES["post-processing"] | {"missing": "none"}
    first = run(people, queries=True, **options)
    for number, one in most_exposed(first, people):
        inside, other, moved = (
            run(people.with_label(one.person, label), answers=first.noisy, **options) for label in ("a", labels, "b")
        )
        assert problems(inside, other) == problems(first, other) == problems(first, moved) == []
        assert set(largest_movements(inside, other).values()) == {0.0}
        release, distance = distances(other, moved)[number]
        assert distance >= 0.99 * release.sensitivity > 0  # and a change of group still reaches the sensitivity


@pytest.mark.parametrize("notion", ["equalized_odds", "accuracy_parity"])
def test_fit_of_the_default_network_for_few_rows_hides_one_and_reaches_the_sensitivity(notion: str) -> None:
    """Its pieces end at quartiles of public features, and its networks learn from features and labels."""
    people, options = make_people(5, missing=True), ENGINES["moments"] | {"module": None, "notion": notion}
    first = run(people, queries=True, **options)
    assert first.model.module_[0].out_features > default_widths(len(people.y))[0]  # the pieces are there
    for person, label in flips(people):
        assert problems(first, run(people.with_label(person, label), answers=first.noisy, **options)) == []
    for number, one in most_exposed(first, people):
        second = run(people.with_label(one.person, one.there), answers=first.noisy, **options)
        assert problems(first, second) == []
        release, distance = distances(first, second)[number]
        assert distance >= 0.99 * release.sensitivity > 0


@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_of_memberships_on_a_public_sample_hides_one_row(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memberships are fitted on a sample where there are very many rows; the sums are over all of them still."""
    monkeypatch.setattr(memberships, "FIT_ROWS", 100)
    assert_flips_are_hidden(make_people(2, missing=True), **ENGINES[engine])


# Ways in for the attribute


@dataclass(frozen=True)
class Way:
    """A container or file that holds the attribute.

    Parameters
    ----------
    build : callable
        From labels to what is passed as ``sensitive_features``.
    odd : tuple
        Entries of one row that are no group.
    crossed : bool
        Whether there is a second column, whose entries alternate.
    """

    build: Callable[[list[Any]], Any]
    odd: tuple[Any, ...]
    crossed: bool = False

    def groups(self, people: People) -> Any:
        """As users name them."""
        return {"sex": list(people.groups), "half": ["u", "v"]} if self.crossed else people.groups


class Refuses:
    """Neither hashed nor compared nor printed."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __hash__ = __repr__ = __str__ = __bool__ = _refuse  # type: ignore[assignment]


def second_column(labels: Sequence[Any]) -> list[str]:
    return ["uv"[i % 2] for i in range(len(labels))]


def as_objects(labels: list[Any]) -> Any:
    return np.fromiter(labels, dtype=object, count=len(labels))


TEXTS = (None, "", "b\x00", "no group" * 1000)
ANYTHING = (*TEXTS, 7.5, math.nan, (), Refuses())
WAYS = {
    "list": Way(list, ANYTHING),
    "tuple": Way(tuple, ANYTHING),
    "ndarray of objects": Way(as_objects, ANYTHING),
    "ndarray of text": Way(lambda labels: np.array(["" if one is None else one for one in labels]), ("", "no group")),
    "Series": Way(lambda labels: pd.Series(as_objects(labels), dtype=object), ANYTHING),
    "Series of categories": Way(lambda labels: pd.Series(labels, dtype="category"), (None, "no group")),
    "polars": Way(lambda labels: pl.Series(labels, dtype=pl.String), TEXTS),
    "Arrow": Way(lambda labels: pa.array(labels, pa.string()), TEXTS),
    "DataFrame, crossed": Way(
        lambda labels: pd.DataFrame({"sex": as_objects(labels), "half": second_column(labels)}), ANYTHING, crossed=True
    ),
    "polars, crossed": Way(
        lambda labels: pl.DataFrame({"sex": pl.Series(labels, dtype=pl.String), "half": second_column(labels)}),
        TEXTS,
        crossed=True,
    ),
    "dict, crossed": Way(lambda labels: {"sex": labels, "half": second_column(labels)}, ANYTHING, crossed=True),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


def neighbours(people: People, way: Way) -> list[People]:
    """One row to the other group, to "not given", from it, and to whatever this container may hold."""
    other = {"a": "b", "b": "a"}
    changes = [(4, other[people.labels[4]]), (7, "a"), *((5, entry) for entry in way.odd)]
    assert people.labels[7] is None
    return [people.with_label(person, label) for person, label in changes]


def assert_hidden(
    call: Callable[[People, Sequence[Array] | None], Outcome], people: People, others: Sequence[People], moves: float
) -> Outcome:
    """Of neighbours."""
    first = call(people, None)
    moved = 0.0
    for other in others:
        second = call(other, first.noisy)
        assert problems(first, second) == []
        moved = max(moved, *largest_movements(first, second).values())
    assert moved > moves
    return first


@every_way
def test_fit_hides_one_row_whatever_the_attribute_is_in(way: Way) -> None:
    people = make_people(2, missing=True, n=120)
    options = ENGINES["post-processing"] | {"groups": way.groups(people)}

    def fit(model: Any, people: People) -> None:
        model.fit(people.X, people.y, sensitive_features=way.build(list(people.labels)))

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return run(people, answers=answers, fit=fit, **options)

    assert_hidden(call, people, neighbours(people, way), 0.3)


def measured(
    people: People,
    answers: Sequence[Array] | None,
    *,
    way: Way = WAYS["list"],
    texts: bool = True,
    targets: tuple[Any, Any] | None = None,
    **options: Any,
) -> Outcome:
    """A measurement of decisions that are the labels of the rows before; its texts take longer than itself.

    ``targets``: other labels and predictions.
    """

    def call() -> tuple[Any, dict[str, Any]]:
        given = {"sensitive_features": way.build(list(people.labels)), "groups": way.groups(people)}
        given |= {} if people.ids is None else {"person": people.ids}
        rows = (people.y, np.roll(people.y, 1)) if targets is None else targets
        found = measure(*rows, **{"epsilon": 3.0, "threshold": 0.1} | given | options)
        if not texts:
            return found, {}
        return found, {"text": str(found), "json": found.to_json(), "table": found.table.to_csv(), "repr": repr(found)}

    return recorded(call, answers)


@every_way
def test_measure_hides_one_row_whatever_the_attribute_is_in(way: Way) -> None:
    people = make_people(2, missing=True, n=120)
    first = assert_hidden(partial(measured, way=way), people, neighbours(people, way), 1 - 1e-8)
    assert not any(name in text for text in first.public.values() for name in ("SensitiveVault", "codes"))


@pytest.mark.parametrize("notion", [*sorted(NOTIONS), ["demographic_parity", "equalized_odds", "accuracy_parity"]])
def test_measure_hides_one_row_and_reaches_the_sensitivity_of_every_notion(notion: Any) -> None:
    people = make_people(3, missing=True, n=120)
    changes = [(1, "c"), (2, None), (7, "a"), (8, "no such group"), (9, "b"), (9, "a")]
    call = partial(measured, notion=notion)
    others = [people.with_label(*change) for change in changes]
    first = assert_hidden(call, people, others, 1 - 1e-8)  # unit rows: attained, but for the grid's rounding
    for other in wholly_other(people).values():
        second = call(other, first.noisy)
        assert problems(first, second, neighbours=False) == []
        assert not np.array_equal(second.exact[0], first.exact[0])


def test_measure_of_scores_and_a_second_model_has_rows_no_longer_than_the_ledger_says() -> None:
    """The row of whoever is farthest from the mean of their cell attains the bound; every other is shorter."""
    people = make_people(3, missing=True, n=120)
    scores = np.random.default_rng(0).standard_normal(len(people.y))
    options = {"scores": scores, "before": (scores > 0).astype(int), "reference": "b", "score_bins": 4}
    whole, first = (measured(people, None, texts=texts, **options) for texts in (True, False))
    shares = []
    for person, held in enumerate(people.labels):
        other = people.with_label(person, "c" if held == "a" else "a")
        second = measured(other, first.noisy, texts=person < 3, **options)
        assert problems(whole if person < 3 else first, second) == []
        shares += largest_movements(first, second).values()
    assert 1 - 1e-8 <= max(shares) <= 1
    assert min(shares) < 0.98


CLASS_LABELS = np.array(["low", "middle", "high"])[np.arange(120) * 7 % 3]
#: Only the last row is far from all others.
PREDICTIONS = np.append(np.sin(np.arange(119.0)), 4.0)
TARGETS: dict[str, tuple[tuple[Any, Any], dict[str, Any], tuple[float, float]]] = {
    # Labels and predictions, options, and the smallest and largest share of the sensitivity that a row attains.
    "classes": ((CLASS_LABELS, np.roll(CLASS_LABELS, 1)), {}, (1 - 1e-8, 1)),
    "odds": (
        (CLASS_LABELS, np.roll(CLASS_LABELS, 1)),
        {"notion": ["equalized_odds", "accuracy_parity"], "before": CLASS_LABELS},
        (1 - 1e-8, 1),
    ),
    "distribution": ((None, PREDICTIONS), {"levels": 4}, (0.95, 1)),
    "means": ((np.arange(120.0), PREDICTIONS), {"notion": ["mean_parity", "equal_error"]}, (0.3, 1)),
    "both": ((PREDICTIONS, -PREDICTIONS), {"notion": ["demographic_parity", "equal_error"], "levels": 3}, (0.6, 1)),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_measure_of_classes_and_numbers_hides_every_row_and_reaches_its_sensitivity(kind: str) -> None:
    targets, options, (least, most) = TARGETS[kind]
    people = make_people(3, missing=True, n=120)
    whole, first = (measured(people, None, texts=texts, targets=targets, **options) for texts in (True, False))
    shares = []
    for person, held in enumerate(people.labels):
        other = people.with_label(person, "c" if held == "a" else "a")
        texts = person < 2
        second = measured(other, first.noisy, texts=texts, targets=targets, **options)
        assert problems(whole if texts else first, second) == []
        shares += largest_movements(first, second).values()
    assert least <= min(shares)
    assert max(shares) <= most
    # Squared errors of the two kinds of numbers are largest in other rows, so no row is the farthest in every column.
    assert max(shares) > (0.85 if kind == "means" else 1 - 1e-8)


def test_measure_of_classes_and_numbers_shows_nothing_public_of_a_wholly_other_attribute() -> None:
    people = make_people(3, missing=True, n=120)
    for targets, options, _ in TARGETS.values():
        first = measured(people, None, targets=targets, **options)
        for other in wholly_other(people).values():
            assert problems(first, measured(other, first.noisy, targets=targets, **options), neighbours=False) == []


# Rows in files


def fit_on_files(folder: Path, model: Any, people: People, *, apart: bool, workers: int = 1) -> None:
    """From a Parquet file with the attribute in it, or in a second one whose rows are in another order."""
    rows = people.X.assign(label=people.y, id=row_keys(people))
    given: dict[str, Any] = {}
    if people.ids is not None:
        rows, given["person"] = rows.assign(who=people.ids), "who"
    if people.weights is not None:
        rows, given["sample_weight"] = rows.assign(weight=people.weights), "weight"
    private = pd.DataFrame({"group": as_objects(list(people.labels)), "id": rows["id"]})
    if apart:
        private[::-1].to_parquet(folder / "private.parquet", index=False, row_group_size=100)
        where: Any = SensitiveColumns("group", file=folder / "private.parquet", key="id")
    else:
        rows, where = rows.drop(columns="id").assign(group=private["group"]), "group"
    rows.to_parquet(folder / "rows.parquet", index=False, row_group_size=100)
    model.fit(RowFiles.open(folder / "rows.parquet", workers=workers), "label", sensitive_features=where, **given)


def row_keys(people: People) -> list[str]:
    return [f"p{row}" for row in range(len(people.y))]


#: Of rows in files; one option more than the engine has in memory.
FILE_FITS: dict[str, dict[str, Any]] = {
    "decision": ENGINES["post-processing"] | {"notion": "equalized_odds"},
    "scores": ENGINES["post-processing"] | {"at": "scores"},
    "sizes first": ENGINES["post-processing"] | {"plan": replace(POST_PROCESSING, share_sizes=0.05)},
    "nothing missing": ENGINES["post-processing"] | {"missing": "none"},
    "moments": ENGINES["moments"] | {"notion": "equalized_odds"},
}
FILE_PURPOSES = ["moments", "decisions", "decisions"]
beside_or_apart = pytest.mark.parametrize("apart", [False, True], ids=["beside the rows", "second file"])


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three rows is in the sample, and passes read four blocks."""
    monkeypatch.setattr(files, "SAMPLE", 80)
    monkeypatch.setattr(files, "BLOCK", 64)
    assert files.stride(N) == 3


def other_labels(people: People) -> list[People]:
    """Labels that have little to do with these, and that a file can hold."""
    names = ("everyone missing", "one group", "one member")
    odd = replace(people, labels=("no such group", "", None, "A") * (len(people.labels) // 4))
    return [odd, *(wholly_other(people)[name] for name in names)]


@beside_or_apart
@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_on_files_with_few_rows_hides_one_row(engine: str, apart: bool, tmp_path: Path) -> None:
    """All of them are in the sample."""
    people, options = make_people(2, missing=True), ENGINES[engine] | {"notion": "equalized_odds"}

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return run(people, answers=answers, fit=partial(fit_on_files, tmp_path, apart=apart), **options)

    first = assert_hidden(call, people, neighbours(people, Way(list, TEXTS)), 0.3)
    assert first.public["purposes"] == FILE_PURPOSES


@beside_or_apart
@pytest.mark.parametrize("name", FILE_FITS)
@pytest.mark.usefixtures("small_sample")
def test_fit_on_files_with_more_rows_than_the_sample_hides_one_row(name: str, apart: bool, tmp_path: Path) -> None:
    people = make_people(2, missing=True)

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return run(people, answers=answers, fit=partial(fit_on_files, tmp_path, apart=apart), **FILE_FITS[name])

    first = assert_hidden(call, people, neighbours(people, Way(list, TEXTS)), 0.3)
    assert first.public["purposes"] == ["sizes"] * (name == "sizes first") + FILE_PURPOSES
    assert Counter(first.model.ledger_.costs()) == first.model.plan_.costs()
    for other in other_labels(people):
        second = call(other, first.noisy)
        assert problems(first, second, neighbours=False) == []
        assert any(not np.array_equal(one, two) for one, two in zip(first.exact, second.exact, strict=True))


@pytest.mark.parametrize("name", FILE_FITS)
@pytest.mark.usefixtures("small_sample")
def test_fit_on_files_reaches_the_sensitivity_and_does_not_exceed_it(name: str, tmp_path: Path) -> None:
    """Rows outside the sample count as those in it do."""
    people, fit = make_people(2, missing=True), partial(fit_on_files, tmp_path, apart=False)
    first = run(people, queries=True, fit=fit, **FILE_FITS[name])
    assert {len(query) for query in first.queries} == {N}
    best: dict[str, float] = {}
    for number, one in most_exposed(first, people):
        second = run(people.with_label(one.person, one.there), answers=first.noisy, fit=fit, **FILE_FITS[name])
        assert problems(first, second) == []
        release, distance = distances(first, second)[number]
        best[release.purpose] = max(best.get(release.purpose, 0.0), distance / release.sensitivity)
    assert all(share > 0.99 for share in best.values()), best


@beside_or_apart
@pytest.mark.parametrize(
    ("name", "weighted"), [("decision", True), ("decision", False), ("scores", False), ("moments", True)]
)
@pytest.mark.usefixtures("small_sample")
def test_fit_on_files_hides_all_rows_of_one_person(name: str, weighted: bool, apart: bool, tmp_path: Path) -> None:
    people = grouped(weighted=weighted)

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return run(people, answers=answers, fit=partial(fit_on_files, tmp_path, apart=apart), **FILE_FITS[name])

    first = assert_hidden(call, people, other_persons(people), 0.1)
    assert {release.unit for release in first.releases} == {"person"}
    assert Counter(first.model.ledger_.costs()) == first.model.plan_.costs()


@pytest.mark.parametrize("name", ["decision", "moments"])
@pytest.mark.usefixtures("small_sample")
def test_fit_on_files_by_two_processes_is_that_by_one_and_hides_one_row(name: str, tmp_path: Path) -> None:
    """Workers return sums before noise; the same answers then make the same things public."""
    people, options = make_people(2, missing=True), FILE_FITS[name]
    first = run(people, fit=partial(fit_on_files, tmp_path, apart=True), **options)
    fit = partial(fit_on_files, tmp_path, apart=True, workers=2)
    other = people.with_label(4, {"a": "b", "b": "a"}[people.labels[4]])
    same, second = (run(one, answers=first.noisy, fit=fit, **options) for one in (people, other))
    assert problems(first, same) == problems(first, second) == []
    assert set(largest_movements(first, same).values()) == {0.0}
    assert max(largest_movements(first, second).values()) > 0.3


@pytest.mark.usefixtures("small_sample")
def test_fit_on_files_entries_of_the_second_file_that_are_absent_repeated_or_of_no_row_change_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = make_people(2, missing=True).with_label(5, None)
    fit = partial(fit_on_files, tmp_path, apart=True)
    first = run(people, fit=fit, **FILE_FITS["decision"])
    sound = pd.DataFrame.to_parquet

    def absent(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["id"] != "p5"]

    def repeated(table: pd.DataFrame) -> pd.DataFrame:  # of several the first counts, and p5's has no entry
        return pd.concat([table, table.assign(group="b")])

    def of_no_row(table: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([pd.DataFrame({"group": ["a"] * 300, "id": [None, "q", "p"] * 100}), table])

    for change in (absent, repeated, of_no_row):
        with monkeypatch.context() as patch:
            patch.setattr(
                pd.DataFrame,
                "to_parquet",
                lambda table, path, change=change, **how: sound(
                    change(table) if path.name == "private.parquet" else table, path, **how
                ),
            )
            second = run(people, answers=first.noisy, fit=fit, **FILE_FITS["decision"])
        assert problems(first, second) == []
        assert set(largest_movements(first, second).values()) == {0.0}


# Other calls that fit


def files_below(folder: Path) -> dict[str, bytes]:
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def fit_with_checkpoint(people: People, folder: Path) -> tuple[Any, dict[str, Any]]:
    model = estimator(people, **ENGINES["moments"])
    model.fit(people.X, people.y, sensitive_features=list(people.labels), checkpoint=folder / "checkpoint")
    return model, fitted_facts(model, people) | files_below(folder)


def fit_and_save(people: People, folder: Path) -> tuple[Any, dict[str, Any]]:
    model = estimator(people, engine="post-processing", plan=POST_PROCESSING, notion="equalized_odds")
    fit_on_lists(model, people)
    model.save(folder / "model")
    report = build_report(model)
    return model, fitted_facts(model, people) | files_below(folder) | {
        "html": report.html(),
        "markdown": report.markdown(),
    }


def fit_a_network_and_report(people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    model = estimator(people)
    fit_on_lists(model, people)
    report = build_report(model)
    return model, {"html": report.html(), "markdown": report.markdown()}


def curve(people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    given = {"sensitive_features": list(people.labels), "tolerances": (0.0, 0.1)}
    found = tradeoff(estimator(people, **ENGINES["post-processing"]), people.X, people.y, **given)
    return found, {"table": found.table.to_csv(), "models": [fitted_facts(one, people) for one in found.models]}


def search(people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    candidates = [{"module": (3,)}, {"module": (4,)}]
    model = estimator(people, **ENGINES["moments"])
    given: dict[str, Any] = {"sensitive_features": list(people.labels), "trials": 3.0}
    found = private_search(model, candidates, people.X, people.y, **given)
    return found, {"score": found.score, "parameters": found.parameters, **fitted_facts(found.model, people)}


def score(people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    model = LogisticRegression().fit(people.X, people.y)
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    scorer = private_scorer(groups=people.groups, ledger=ledger, epsilon=2.0)
    with sklearn.config_context(enable_metadata_routing=True):
        return model, {"score": scorer(model, people.X, people.y, sensitive_features=list(people.labels))}


CALLS = {
    "fit with a checkpoint": fit_with_checkpoint,
    "fit, save and report": fit_and_save,
    "fit a network and report": fit_a_network_and_report,
    "tradeoff": curve,
    "private_search": search,
    "private_scorer": score,
}


@pytest.mark.parametrize("name", CALLS)
def test_call_hides_one_row(name: str, tmp_path: Path) -> None:
    people, folders = make_people(2, missing=True, n=120), iter(range(100))

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return recorded(lambda: CALLS[name](people, folder), answers)

    first = assert_hidden(call, people, [people.with_label(*one) for one in flips(people)], 0.3)
    for other in wholly_other(people).values():
        assert problems(first, call(other, first.noisy), neighbours=False) == []
    shifted = call(
        people, [answer + np.linspace(0.0, 30.0, answer.size).reshape(answer.shape) for answer in first.noisy]
    )
    assert shifted.public != first.public  # the comparison sees what depends on answers
    assert (SELECTION in first.public["purposes"]) == (name == "private_search")


# Several rows of one person


ROWS_EACH = 3


def grouped(*, weighted: bool = False) -> People:
    """Persons of three rows with one label, and one with fifty, of which three count."""
    people = make_people(2, missing=True)
    n = len(people.y)
    ids = tuple("busy" if i < 50 else f"person {i // ROWS_EACH}" for i in range(n))
    label_of = dict(zip(ids, people.labels, strict=True))
    weights = tuple(np.random.default_rng(2).uniform(0.0, 4.0, n).tolist()) if weighted else None
    people = replace(people, ids=ids, labels=tuple(label_of[one] for one in ids), weights=weights)
    assert Persons.from_ids(ids).rows_each == ROWS_EACH
    return people


def other_persons(people: People) -> list[People]:
    """Some persons, each to every other label, and the one with more rows than count."""
    chosen = ("busy", "person 20", "person 33", "person 61")
    held = dict(zip(people.ids or (), people.labels, strict=True))
    labels = [(one, label) for one in chosen for label in (*people.groups, None) if label != held[one]]
    return [people.with_labels(*one) for one in labels]


@pytest.mark.parametrize(("notion", "weighted"), [("demographic_parity", True), ("equalized_odds", False)])
@our_engines
def test_fit_hides_all_rows_of_one_person(engine: str, notion: str, weighted: bool) -> None:
    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return run(people, answers=answers, **ENGINES[engine] | {"notion": notion})

    people = grouped(weighted=weighted)
    first = assert_hidden(call, people, other_persons(people), 0.1)
    assert {release.unit for release in first.releases} == {"person"}
    assert Counter(first.model.ledger_.costs()) == first.model.plan_.costs()


def exposed_persons(first: Outcome, people: People) -> list[str]:
    """The three persons whose rows are longest together at each query, and the one with more rows than count."""
    ids, counted, found = np.array(people.ids), Persons.from_ids(people.ids).counted, {"busy"}
    names = np.unique(ids)
    for query in first.queries:
        lengths = [np.linalg.norm(query[counted & (ids == name)].sum(0)) for name in names]
        found.update(names[np.argsort(lengths)[-3:]].tolist())
    return sorted(found)


@our_engines
def test_fit_reaches_the_sensitivity_for_persons_and_does_not_exceed_it(engine: str) -> None:
    """Three rows of equal length move together, so the sum moves three times as far as one of them."""
    people = grouped()
    people = replace(people, labels=tuple(people.groups[0] for _ in people.labels))
    options = ENGINES[engine] | {"epsilon": 30.0}
    if engine == "pf-ld":
        options |= {"plan": replace(SMALL_PLAN, clip=1e-4)}
    first = run(people, queries=True, **options)
    best: dict[str, float] = {}
    for person in exposed_persons(first, people):
        second = run(people.with_labels(person, people.groups[1]), answers=first.noisy, **options)
        assert problems(first, second) == []
        best = {name: max(best.get(name, 0.0), share) for name, share in largest_movements(first, second).items()}
    once = {"post-processing": ("moments",), "pf-ld": ("group sizes",), "moments": ("moments",)}[engine]
    assert all(best[name] > (0.999 if name == "group sizes" else 0.8) for name in once), best
    assert all(share > 0.5 for share in best.values()), best


def test_measure_hides_all_rows_of_one_person() -> None:
    people = grouped()
    assert_hidden(partial(measured, notion="equalized_odds", epsilon=4.0), people, other_persons(people), 0.5)


# Commands


IDS = [f"p{row}" for row in range(N)]
PLAN = b"warmup_steps = 5\nrounds = 4\npublic_steps = 1\nchecks = 2\nbatch_size = 64\n"
COMMON = ["--target", "y", "--groups", "a,b", "--seed", "3", "--plan", "plan.toml", "--hidden", "4"]
COMMANDS = {
    "train": ["train", "data.csv", *COMMON, "--epsilon", "4", "--out", "out"],
    "train, default engine": ["train", "data.csv", *COMMON[:6], "--epsilon", "4", "--out", "out"],
    "tradeoff": ["tradeoff", "data.csv", *COMMON, "--tolerances", "0,0.1", "--choose", "0.2", "--out", "out"],
    "evaluate": ["evaluate", "model", "data.csv", "--below", "0.2", "--scores", "--out", "out.json"],
    "measure": ["measure", "data.csv", "--decision", "y", "--score", "x1", "--groups", "a,b", "--csv", "a.csv"],
}
#: Options that say where the attribute is.
PLACES = {
    "one file": ["--sensitive", "sex"],
    "two files": ["--sensitive-file", "secret.csv", "--key", "id"],
}


def csv_files(people: People, place: str, *, without: str = "") -> dict[str, bytes]:
    """The table with the attribute in it, or beside a second file in another order, of all but ``without``."""
    labels = ["" if label is None else label for label in people.labels]
    public = people.X.assign(y=people.y)
    if place == "one file":
        return {"plan.toml": PLAN, "data.csv": csv_of(public.assign(sex=labels))}
    secret = pd.DataFrame({"id": IDS, "sex": labels})[::-1]
    data = csv_of(public.assign(id=IDS))
    return {"plan.toml": PLAN, "data.csv": data, "secret.csv": csv_of(secret[secret["id"] != without])}


def csv_of(table: pd.DataFrame) -> bytes:
    text = io.StringIO()
    table.to_csv(text, index=False)
    return text.getvalue().encode()


def trained(folder: Path, place: str, people: People) -> dict[str, bytes]:
    """The files of a model that every run of ``evaluate`` finds."""
    words = [*COMMANDS["train"][:-1], "model", *PLACES[place]]
    made = command(folder, words, csv_files(people, place))
    assert made.public["exit code"] == 0, made.public["stderr"]
    found: dict[str, bytes] = made.public["files"]
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", COMMANDS)
def test_command_hides_one_row_in_output_and_files(name: str, place: str, tmp_path: Path) -> None:
    people, words = make_people(2, missing=True), [*COMMANDS[name], *PLACES[place]]
    more = trained(tmp_path, place, people) if name == "evaluate" else {}

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return command(tmp_path, words, csv_files(people, place) | more, answers)

    odd = Way(list, ("", "no such group", 'odd, "quoted"; 1e999'))
    first = assert_hidden(call, people, neighbours(people, odd), 0.3)
    assert first.public["exit code"] in {0, 4}, first.public["stderr"]
    assert len(first.public["files"]) >= 1
    for labels in (("",) * N, ("b",) * N, ('odd, "quoted"; 1e999',) * N):
        second = call(replace(people, labels=labels), first.noisy)
        assert problems(first, second, neighbours=False) == []
        assert any(not np.array_equal(one, other) for one, other in zip(first.exact, second.exact, strict=True))


#: Public targets of other kinds, in the place of two values.
CLASS_TARGET = np.array(["low", "middle", "high"])
TARGET_WORDS = {"classes": ["--target", "y"], "number": ["--target", "y", "--bounds", "-9,9"]}
TARGET_COMMANDS = {
    "train": ["train", "data.csv", "--epsilon", "4", "--out", "out"],
    "tradeoff": ["tradeoff", "data.csv", "--tolerances", "0,0.1", "--choose", "0.2", "--out", "out"],
    "evaluate": ["evaluate", "model", "data.csv", "--below", "0.2", "--out", "out.json"],
    "measure": ["measure", "data.csv", "--decision", "y", "--out", "out.json"],
}


def other_target(people: People, kind: str) -> People:
    score = people.X["x0"].to_numpy() + 0.3 * np.sin(np.arange(len(people.X)))
    return replace(people, y=CLASS_TARGET[np.digitize(score, [-0.5, 0.5])] if kind == "classes" else score.round(3))


@pytest.mark.parametrize("kind", TARGET_WORDS)
@pytest.mark.parametrize("name", TARGET_COMMANDS)
def test_command_of_classes_and_numbers_hides_one_row_in_output_and_files(name: str, kind: str, tmp_path: Path) -> None:
    people = other_target(make_people(2, missing=True), kind)
    place, who = PLACES["two files"], ["--groups", "a,b", "--seed", "0", "--small-groups"]
    words = [*TARGET_COMMANDS[name], *place]
    more: dict[str, bytes] = {}
    if name in {"train", "tradeoff"}:
        words += [*TARGET_WORDS[kind], *who]
    elif name == "measure":
        words += who[:2]
    else:
        made = [*TARGET_COMMANDS["train"][:-1], "model", *place, *TARGET_WORDS[kind], *who]
        model = command(tmp_path, made, csv_files(people, "two files"))
        assert model.public["exit code"] == 0, model.public["stderr"]
        more = model.public["files"]

    def call(people: People, answers: Sequence[Array] | None) -> Outcome:
        return command(tmp_path, words, csv_files(people, "two files") | more, answers)

    odd = Way(list, ("", "no such group"))
    first = assert_hidden(call, people, neighbours(people, odd), 0.3)
    assert first.public["exit code"] in {0, 4}, first.public["stderr"]
    assert len(first.public["files"]) >= 1
    for labels in (("",) * N, ("b",) * N):
        assert problems(first, call(replace(people, labels=labels), first.noisy), neighbours=False) == []


def test_command_row_that_is_missing_in_the_second_file_is_like_one_without_an_entry(tmp_path: Path) -> None:
    people, words = make_people(2, missing=True), [*COMMANDS["train"], *PLACES["two files"]]
    first = command(tmp_path, words, csv_files(people.with_label(1, ""), "two files"))
    second = command(tmp_path, words, csv_files(people, "two files", without="p1"), first.noisy)
    assert problems(first, second) == []
    assert all(np.array_equal(one, other) for one, other in zip(first.exact, second.exact, strict=True))


def test_command_label_that_is_no_group_is_in_no_file_and_no_line_of_output(tmp_path: Path) -> None:
    secret, words = "Zzyzx-7f3a", [*COMMANDS["train"], *PLACES["two files"]]
    people = make_people(2, missing=True).with_label(1, secret).with_label(2, secret)
    outcome = command(tmp_path, words, csv_files(people, "two files")).public
    assert outcome["exit code"] == 0
    assert secret not in outcome["stdout"] + outcome["stderr"]
    assert not [name for name, content in outcome["files"].items() if secret.encode() in content]


def test_comparison_finds_a_command_that_counts_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = import_module("justitia.cli.training")
    sound = train.training_metadata

    def leaky(model: Any, people: Any, **rest: Any) -> dict[str, Any]:
        return sound(model, people, **rest) | {"given": int(pd.notna(people.sensitive.reveal_entries()[1][0]).sum())}

    monkeypatch.setattr(train, "training_metadata", leaky)
    people, words = make_people(2, missing=True), [*COMMANDS["train"], *PLACES["one file"]]
    first = command(tmp_path, words, csv_files(people, "one file"))
    second = command(tmp_path, words, csv_files(people.with_label(1, ""), "one file"), first.noisy)
    assert "files depend on A" in problems(first, second)


# The comparison finds what is wrong with an engine or a vault that is broken on purpose


def problems_of_flips(people: People | None = None, **options: Any) -> set[str]:
    """Of one row to the other group, and of whoever is most exposed at each release to "not given"."""
    people = make_people(2, missing=False) if people is None else people
    first = run(people, queries=True, **options)
    exposed = (
        {one.person for _, one in most_exposed(first, people)} if len(first.queries) == len(first.exact) else set()
    )
    other = {"a": "b", "b": "a"}[people.labels[planted.CHANGED]]
    changes = [(planted.CHANGED, other), *((person, None) for person in sorted(exposed))]
    found: set[str] = set()
    for person, label in changes:
        found.update(problems(first, run(people.with_label(person, label), answers=first.noisy, **options)))
    return found


@pytest.mark.parametrize("defect", planted.AT_THE_EDGE)
@every_engine
def test_comparison_finds_an_engine_that_is_broken(engine: str, defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people, options = make_people(2, missing=False), ENGINES[engine]
    other = people.with_label(planted.CHANGED, {"a": "b", "b": "a"}[people.labels[planted.CHANGED]])
    if sum(label == "a" for label in people.labels) % 2:  # so that the first run is the one that is not refused
        people, other = other, people
    plant, expected = planted.AT_THE_EDGE[defect]
    plant(monkeypatch)
    first = run(people, **options)
    found = problems(first, run(other, answers=first.noisy, **options))
    assert all(any(one.startswith(problem) for one in found) for problem in expected), found


@beside_or_apart
@pytest.mark.parametrize("defect", planted.AT_THE_EDGE)
@pytest.mark.usefixtures("small_sample")
def test_comparison_finds_a_fit_on_files_that_is_broken(
    defect: str, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people, fit = make_people(2, missing=False), partial(fit_on_files, tmp_path, apart=apart)
    other = people.with_label(planted.CHANGED, {"a": "b", "b": "a"}[people.labels[planted.CHANGED]])
    if sum(label == "a" for label in people.labels) % 2:
        people, other = other, people
    plant, expected = planted.AT_THE_EDGE[defect]
    plant(monkeypatch)
    first = run(people, fit=fit, **FILE_FITS["decision"])
    found = problems(first, run(other, answers=first.noisy, fit=fit, **FILE_FITS["decision"]))
    assert all(any(one.startswith(problem) for one in found) for problem in expected), found


@our_engines
def test_comparison_finds_nothing_in_a_sound_engine_and_the_missing_root_of_two(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems_of_flips(**ENGINES[engine]) == set()
    planted.without_root_of_two(monkeypatch)
    found = problems_of_flips(**ENGINES[engine])
    for purpose in set(PURPOSES[engine]) - {"group gradient"}:
        assert any(f"{purpose!r}, moves by" in problem for problem in found), found
    if engine == "pf-ld":
        assert "release 0, 'group sizes', moves by 1.414, allowed are 1" in found


@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_rows_longer_than_their_bound_are_shortened_by_the_vault_and_found_without_that(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        planted.half_the_bound(patch)
        assert problems_of_flips(**ENGINES[engine]) == set()
    planted.half_the_bound_and_no_guard(monkeypatch)
    found = problems_of_flips(**ENGINES[engine])
    assert all(any(f"{purpose!r}, moves by" in one for one in found) for purpose in PURPOSES[engine]), found


def test_source_that_gives_rows_twice_is_refused() -> None:
    class Twice(ArrayRows):
        def dense(self) -> Any:
            yield from super().dense()
            yield from super().dense()

    vault = SensitiveVault(["a", "b"], groups=("a", "b"), ledger=PrivacyLedger(epsilon=1.0, delta=1e-5))
    with pytest.raises(ValueError, match="once and in order"):
        vault.group_sums(Twice(np.ones((2, 1))), bound=1.0, noise=Gaussian(9.0), purpose="sums")


@pytest.mark.parametrize(
    ("plant", "clip"),
    [(planted.no_clipping, 0.01), (planted.negative_weights_ignored, 1e-4)],
    ids=["no clipping", "negative weights ignored"],
)
def test_comparison_finds_gradients_that_are_larger_than_recorded(
    plant: Any, clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = problems_of_flips(plan=replace(SMALL_PLAN, clip=clip))
    assert any("'group gradient', moves by" in problem for problem in found)


@pytest.mark.parametrize("plant", [planted.one_row_per_person, planted.all_rows_of_a_person])
@our_engines
def test_comparison_finds_persons_who_count_too_much(engine: str, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    people, options = grouped(), ENGINES[engine]
    first = run(people, **options)
    assert any(problems(first, run(other, answers=first.noisy, **options)) for other in other_persons(people))
