"""Flip one attribute: classes, numbers, strata, proxies and other goals; in files, by persons, and in other calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import planted
import pytest
from numpy.typing import NDArray
from recording import (
    SELECTION,
    Outcome,
    People,
    distances,
    estimator,
    fitted_facts,
    largest_movements,
    make_people,
    problems,
    recorded,
    run,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from justitia import (
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    PostProcessingPlan,
    SensitiveColumns,
    measure,
    private_search,
    tradeoff,
)
from justitia.audit import audit
from justitia.notions import FairnessNotion
from justitia.postprocessing.proxies import AveragedMemberships
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy.arrays import Array
from justitia.report import build_report
from justitia.rows import files
from justitia.rows.parquet import RowFiles

quiet = pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")

# Several classes, and other goals


PLAN = PostProcessingPlan(checks=2)
OPTIONS: dict[str, Any] = {"engine": "post-processing", "plan": PLAN, "tolerance": 0.0, "base": LogisticRegression()}
CLASS_NOTIONS = ("demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity")
TWO_CLASSES: list[dict[str, Any]] = [
    {"notion": ["demographic_parity", "equal_opportunity"], "tolerance": [0.02, 0.03]},
    {"notion": "equalized_odds", "tolerance": {"y=0": 0.1}},
    {"ratio": 0.8, "tolerance": None},
    {"quota": 0.3},
    {"notion": "predictive_parity"},
    {"costs": [[0, 1], [3, 0]]},
]


def of_three_classes(n_groups: int = 2, *, missing: bool = False) -> People:
    """The label of :func:`make_people` with a third class where a feature is large."""
    people = make_people(n_groups, missing=missing)
    return replace(people, y=np.where(people.X.iloc[:, 0] > 0.5, 2, people.y))


def flips(people: People) -> list[tuple[int, Any]]:
    """One row of each class to another group, and one to "not given"."""
    rows = [int(np.flatnonzero(people.y == label)[3]) for label in np.unique(people.y)]
    moved = [(row, next(one for one in people.groups if one != people.labels[row])) for row in rows]
    return [*moved, (rows[0], None)]


def assert_hidden_and_reached(people: People, **options: Any) -> None:
    """Nothing public moves with one row, and the row that moves an answer most moves it by the sensitivity."""
    first = run(people, queries=True, **options)
    assert Counter(first.public["purposes"]) == {"moments": 1, "decisions": 2}
    for person, label in flips(people):
        assert problems(first, run(people.with_label(person, label), answers=first.noisy, **options)) == []
    for number in (0, len(first.queries) - 1):
        person = int(np.linalg.norm(first.queries[number], axis=1).argmax())
        here, there = people.groups[:2]
        one, other = (run(people.with_label(person, name), answers=first.noisy, **options) for name in (here, there))
        assert problems(one, other) == []
        release, distance = distances(one, other)[number]
        assert distance >= 0.99 * release.sensitivity > 0


@pytest.mark.parametrize("notion", CLASS_NOTIONS)
@pytest.mark.parametrize(("n_groups", "missing"), [(2, False), (4, True)])
def test_fit_of_classes_hides_one_row_and_reaches_the_sensitivity(notion: str, n_groups: int, missing: bool) -> None:
    assert_hidden_and_reached(of_three_classes(n_groups, missing=missing), **OPTIONS | {"notion": notion})


@pytest.mark.parametrize("options", TWO_CLASSES, ids=str)
def test_fit_with_another_goal_hides_one_row_and_reaches_the_sensitivity(options: dict[str, Any]) -> None:
    assert_hidden_and_reached(make_people(2, missing=False), **OPTIONS | options)


@pytest.mark.parametrize(
    "options", [{"quota": {2: 0.2}}, {"class_weight": "balanced"}, {"notion": ["accuracy_parity", "equal_opportunity"]}]
)
def test_fit_of_classes_with_another_goal_hides_one_row(options: dict[str, Any]) -> None:
    assert_hidden_and_reached(of_three_classes(), **OPTIONS | options)


@pytest.mark.parametrize("classes", [2, 3])
def test_fit_within_public_strata_hides_one_row(classes: int) -> None:
    people = make_people(2, missing=True) if classes == 2 else of_three_classes(missing=True)
    strata = (people.X.iloc[:, 1] > 0).to_numpy()

    def fit(model: Any, some: People) -> None:
        model.fit(some.X, some.y, sensitive_features=list(some.labels), strata=strata)

    assert_hidden_and_reached(people, fit=fit, **OPTIONS | {"notion": "conditional_demographic_parity"})


def test_checks_of_classes_are_bounded_by_centred_indicators() -> None:
    """A row of a check is an indicator less the rates of everybody: shorter than the square root of two."""
    people = of_three_classes()
    first = run(people, queries=True, **OPTIONS)
    rows = first.queries[-1]
    assert rows.shape == (len(people.y), 3)
    assert rows.sum(1) == pytest.approx(np.zeros(len(rows)), abs=1e-6)
    longest = float(np.linalg.norm(rows, axis=1).max())
    assert longest < 2**0.5
    assert first.releases[-1].sensitivity == pytest.approx(2**0.5 * longest, rel=1e-5)


def test_notion_of_a_user_is_about_two_classes() -> None:
    class Mine(FairnessNotion):
        name, event_names = "mine", ("all",)

        def events(self, y: Any) -> Any:
            return np.ones_like(y)[:, None]

        def h_exact(self, scores: Any, y: Any) -> Any:
            return (scores > 0).astype(scores.dtype)

    people = of_three_classes()
    model = estimator(people, **OPTIONS | {"notion": Mine()})
    with pytest.raises(ValueError, match="expected a notion for 3 classes, got 'mine', which is about two"):
        model.fit(people.X, people.y, sensitive_features=list(people.labels))


# Proxies of the group


def proxy_of(people: People) -> np.ndarray[Any, Any]:
    """Public and fixed: the labels of the table before any of them is flipped, as others might guess them."""
    codes = {name: k for k, name in enumerate(people.groups)}
    return np.array([float(codes.get(label, 0)) for label in people.labels])


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("missing", [False, True])
def test_fit_with_a_proxy_hides_one_row_and_reaches_the_sensitivity(
    notion: str, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    people, used = make_people(2, missing=missing), []
    proxy, sound = proxy_of(people), PostProcessingRun._use

    def use(self: PostProcessingRun, weights: Any) -> None:
        sound(self, weights)
        used.append(isinstance(self._memberships, AveragedMemberships))

    monkeypatch.setattr(PostProcessingRun, "_use", use)

    def fit(model: Any, some: People) -> None:
        model.fit(some.X, some.y, sensitive_features=list(some.labels), proxy=proxy)

    options = OPTIONS | {"notion": notion}
    first = run(people, queries=True, fit=fit, **options)
    assert Counter(first.public["purposes"]) == {"moments": 1, "decisions": 2}
    moved = [(3, "b" if people.labels[3] == "a" else "a"), (8, None)]
    for person, label in moved:
        assert problems(first, run(people.with_label(person, label), answers=first.noisy, fit=fit, **options)) == []
    for number in (0, len(first.queries) - 1):
        person = int(np.linalg.norm(first.queries[number], axis=1).argmax())
        one, other = (
            run(people.with_label(person, name), answers=first.noisy, fit=fit, **options) for name in people.groups[:2]
        )
        assert problems(one, other) == []
        release, distance = distances(one, other)[number]
        assert distance >= 0.99 * release.sensitivity > 0
    assert all(used)


def test_replay_on_neighbours_with_a_proxy_proves_no_more_than_the_certificate_says() -> None:
    people = make_people(2, missing=False)
    model = LagrangianDualClassifier(groups=people.groups, **OPTIONS)
    labels = np.array(people.labels, dtype=object)
    given = {"sensitive_features": labels, "proxy": proxy_of(people)}
    found = audit(model, people.X, people.y, **given, runs=200, seed=1, progress=False)
    assert not found.exceeded
    assert found.epsilon == pytest.approx(1.0, abs=0.01)


# Numbers

NUMBERS = ("demographic_parity", "mean_parity", "equal_error")
#: In units of the rates of a target with about ten units between its ends.
TOLERANCES = {"demographic_parity": 0.02, "mean_parity": 0.05, "equal_error": 0.05}


def regressor(people: People, notion: str, **options: Any) -> LagrangianDualRegressor:
    usual: dict[str, Any] = {
        "notion": notion,
        "epsilon": 4.0,
        "tolerance": TOLERANCES[notion],
        "groups": people.groups,
        "plan": PostProcessingPlan(checks=2, levels=7),
        "base": LinearRegression(),
        "random_state": 3,
        "progress": False,
    }
    return LagrangianDualRegressor(**usual | options)


def numbers(people: People) -> NDArray[np.float64]:
    """A public target that leans on the features."""
    X = people.X.to_numpy(dtype=float)
    return 3 * X[:, 0] + X[:, 1] + np.sin(np.arange(len(X)))


def number_facts(model: LagrangianDualRegressor, people: People) -> dict[str, Any]:
    """Everything that leaves ``fit``, in a form that compares with ``==``."""
    return {
        "predictions": model.predict(people.X).tolist(),
        "base": model.base_predict(people.X).tolist(),
        "history": model.history_.to_csv(),
        "multipliers": model.dual_.to_csv(),
        "certificate": model.certificate_.to_json(),
        "numbers": (model.tolerance_, model.distance_, model.bounds_),
        "plan": repr(model.plan_),
        "attributes": sorted(vars(model)),
    }


def number_fit(people: People, notion: str, answers: Any = None, **options: Any) -> Outcome:
    def call() -> tuple[Any, dict[str, Any]]:
        model = regressor(people, notion, **options)
        given: dict[str, Any] = {"person": people.ids, "sample_weight": people.weights}
        passed = {name: value for name, value in given.items() if value is not None}
        model.fit(people.X, numbers(people), sensitive_features=list(people.labels), **passed)
        return model, number_facts(model, people)

    return recorded(call, answers)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("notion", NUMBERS)
def test_one_flipped_attribute_is_hidden_in_a_fit(notion: str, groups: int, missing: bool) -> None:
    people = make_people(groups, missing=missing)
    first = number_fit(people, notion)
    assert [one.purpose for one in first.releases] == ["moments", "decisions", "decisions"]
    moved: dict[str, float] = {}
    for person, label in ((3, "b"), (4, "a"), (5, None)):
        second = number_fit(people.with_label(person, label), notion, first.noisy)
        assert problems(first, second) == []
        for purpose, share in largest_movements(first, second).items():
            moved[purpose] = max(moved.get(purpose, 0.0), share)
    assert moved["moments"] > 0.5  # the runs did differ inside the boundary
    assert moved["decisions"] > 0.01


@pytest.mark.parametrize("notion", NUMBERS)
def test_rows_of_one_person_and_weights_are_hidden_together(notion: str) -> None:
    people = replace(
        make_people(2, missing=False),
        ids=tuple(i // 2 for i in range(240)),
        weights=tuple(1.0 + i % 3 for i in range(240)),
    )
    first = number_fit(people, notion)
    second = number_fit(people.with_labels(7, None), notion, first.noisy)
    assert problems(first, second) == []


@pytest.mark.parametrize("notion", NUMBERS)
def test_whatever_the_attribute_is_the_same_answers_give_the_same_fit(notion: str) -> None:
    people = make_people(2, missing=False)
    first = number_fit(people, notion)
    for labels in ((None,) * 240, ("a",) * 240, ("secret", 7.5, float("nan"), ()) * 60):
        second = number_fit(replace(people, labels=labels), notion, first.noisy)
        assert problems(first, second, neighbours=False) == []


def test_longest_row_of_a_check_of_levels_attains_the_sensitivity() -> None:
    people = make_people(2, missing=False)
    first, most = number_fit(people, "demographic_parity"), 0.0
    order = np.argsort(first.model.predict(people.X))
    for person in (*order[:2], *order[-2:]):
        label = "b" if people.labels[person] == "a" else "a"
        second = number_fit(people.with_label(int(person), label), "demographic_parity", first.noisy)
        most = max(most, largest_movements(first, second)["decisions"])
    assert 0.99 < most <= 1


def test_curve_of_tolerances_is_hidden_too() -> None:
    people = make_people(2, missing=False)

    def call(labels: tuple[Any, ...]) -> Any:
        def curve() -> tuple[Any, dict[str, Any]]:
            found = tradeoff(
                regressor(people, "demographic_parity"),
                people.X,
                numbers(people),
                sensitive_features=list(labels),
                tolerances=(0.02, 0.2),
            )
            return found, {"table": found.table.to_csv()}

        return curve

    first = recorded(call(people.labels))
    second = recorded(call(people.with_label(3, None).labels), first.noisy)
    assert problems(first, second) == []


# All kinds of target, every way in

#: What is fitted: settings of a classifier, or the notion of a regressor.
CLASSES: dict[str, dict[str, Any]] = {
    "classes": {"notion": "equalized_odds"},
    "two notions": {"notion": ["demographic_parity", "accuracy_parity"], "tolerance": [0.02, 0.1]},
    "ratio": {"ratio": 0.8, "tolerance": None},
    "quota": {"quota": {2: 0.2}},
}
in_files = pytest.mark.parametrize("name", [*CLASSES, *NUMBERS])
kinds = pytest.mark.parametrize("name", ["classes", "strata", "demographic_parity"])
WEIGHTS = tuple(1.0 + i % 3 for i in range(240))
#: Persons of two rows, and one of sixty, of which two count.
IDS = tuple("busy" if i < 60 else f"person {i // 2}" for i in range(240))


def people_of(name: str, *, missing: bool = True) -> People:
    """Public labels of three classes; of two where a ratio would take long, and for a regressor, which reads none."""
    two = name in (*NUMBERS, "ratio")
    return make_people(2, missing=missing) if two else of_three_classes(missing=missing)


def target_of(name: str, people: People) -> Any:
    return numbers(people) if name in NUMBERS else people.y


def model_of(name: str, people: People, **options: Any) -> Any:
    if name in NUMBERS:
        return regressor(people, name, **options)
    own = {"notion": "conditional_demographic_parity"} if name == "strata" else CLASSES[name]
    return estimator(people, **OPTIONS | own | options)


def strata_of(name: str, people: People) -> dict[str, Any]:
    """Public strata, where the notion is within them."""
    return {"strata": (people.X.iloc[:, 1] > 0).to_numpy()} if name == "strata" else {}


def facts_of(name: str, model: Any, people: People) -> dict[str, Any]:
    return number_facts(model, people) if name in NUMBERS else fitted_facts(model, people)


def fitted(
    name: str,
    people: People,
    answers: Sequence[Array] | None = None,
    *,
    build: Callable[[list[Any]], Any] = list,
    queries: bool = False,
    **options: Any,
) -> Outcome:
    """One fit in memory, with the attribute in the container that ``build`` makes."""

    def call() -> tuple[Any, dict[str, Any]]:
        model = model_of(name, people, **options)
        given: dict[str, Any] = {"person": people.ids, "sample_weight": people.weights} | strata_of(name, people)
        passed = {key: value for key, value in given.items() if value is not None}
        model.fit(people.X, target_of(name, people), sensitive_features=build(list(people.labels)), **passed)
        return model, facts_of(name, model, people)

    return recorded(call, answers, queries=queries)


def fitted_on_files(
    folder: Path, name: str, people: People, answers: Sequence[Array] | None = None, *, apart: bool = False
) -> Outcome:
    """One fit on a Parquet file with the attribute in it, or in a second one whose rows are in another order."""
    rows = people.X.assign(label=target_of(name, people), id=[f"p{row}" for row in range(len(people.y))])
    given: dict[str, Any] = {}
    if people.ids is not None:
        rows, given = rows.assign(who=people.ids, weight=people.weights), {"person": "who", "sample_weight": "weight"}
    private = pd.DataFrame({"group": pd.Series(list(people.labels), dtype=object), "id": rows["id"]})
    if apart:
        private[::-1].to_parquet(folder / "private.parquet", index=False, row_group_size=100)
        where: Any = SensitiveColumns("group", file=folder / "private.parquet", key="id")
    else:
        rows, where = rows.drop(columns="id").assign(group=private["group"]), "group"
    rows.to_parquet(folder / "rows.parquet", index=False, row_group_size=100)

    def call() -> tuple[Any, dict[str, Any]]:
        model = model_of(name, people)
        model.fit(RowFiles.open(folder / "rows.parquet"), "label", sensitive_features=where, **given)
        return model, facts_of(name, model, people)

    return recorded(call, answers)


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three rows is in the sample, and passes read four blocks."""
    monkeypatch.setattr(files, "SAMPLE", 80)
    monkeypatch.setattr(files, "BLOCK", 64)


def neighbours(people: People) -> list[People]:
    """One row to the other group, to "not given", and to a label that is no group."""
    other = {"a": "b", "b": "a"}
    return [people.with_label(4, other[people.labels[4]]), people.with_label(5, None), people.with_label(5, "no group")]


def assert_hidden(
    call: Callable[..., Outcome], people: People, others: Sequence[People], *, moves: float = 0.3
) -> Outcome:
    """Of neighbours, and of people of whom nothing is known or all are in one group."""
    first, moved = call(people), 0.0
    for other in others:
        second = call(other, first.noisy)
        assert problems(first, second) == []
        moved = max(moved, *largest_movements(first, second).values())
    assert moved > moves
    for labels in ((None,) * len(people.y), ("a",) * len(people.y)):
        second = call(replace(people, labels=labels), first.noisy)
        assert problems(first, second, neighbours=False) == []
        assert any(not np.array_equal(one, two) for one, two in zip(first.exact, second.exact, strict=True))
    return first


# Rows in files


@in_files
@pytest.mark.usefixtures("small_sample")
@quiet
def test_fit_on_files_hides_one_row(name: str, tmp_path: Path) -> None:
    people = people_of(name)
    first = assert_hidden(partial(fitted_on_files, tmp_path, name), people, neighbours(people))
    assert first.public["purposes"] == ["moments", "decisions", "decisions"]


@pytest.mark.parametrize("name", ["classes", "demographic_parity"])
@pytest.mark.usefixtures("small_sample")
@quiet
def test_fit_on_files_hides_all_rows_of_one_person_in_a_second_file(name: str, tmp_path: Path) -> None:
    people = by_persons(people_of(name, missing=False))
    call = partial(fitted_on_files, tmp_path, name, apart=True)
    first = assert_hidden(call, people, [people.with_labels(one, None) for one in ("busy", "person 50")], moves=0.1)
    assert {release.unit for release in first.releases} == {"person"}


# Persons and weights


def by_persons(people: People) -> People:
    label_of = dict(zip(IDS, people.labels, strict=True))
    return replace(people, ids=IDS, labels=tuple(label_of[one] for one in IDS), weights=WEIGHTS)


@pytest.mark.parametrize("name", ["classes", "strata", "quota", "mean_parity"])
@quiet
def test_fit_hides_all_rows_of_one_person(name: str) -> None:
    people = by_persons(people_of(name, missing=False))
    others = [people.with_labels(one, label) for one in ("busy", "person 50", "person 99") for label in ("b", None)]
    first = assert_hidden(partial(fitted, name), people, others, moves=0.1)
    assert {release.unit for release in first.releases} == {"person"}


@pytest.mark.parametrize("name", ["classes", "strata", "demographic_parity", "mean_parity"])
@quiet
def test_heaviest_row_of_a_weighted_check_attains_the_sensitivity(name: str) -> None:
    people = replace(people_of(name, missing=False), weights=WEIGHTS)
    first = fitted(name, people, queries=True)
    number = len(first.queries) - 1
    person = int(np.linalg.norm(first.queries[number], axis=1).argmax())
    one, other = (fitted(name, people.with_label(person, label), first.noisy) for label in ("a", "b"))
    assert problems(one, other) == []
    release, distance = distances(one, other)[number]
    assert WEIGHTS[person] == 3.0
    # Of a mean, the heaviest row need not be the one that is farthest from the mean of all.
    assert distance >= (0.99 if name != "mean_parity" else 0.9) * release.sensitivity > 0


# Containers


class Refuses:
    """Neither hashed nor compared nor printed."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __hash__ = __repr__ = __str__ = __bool__ = _refuse  # type: ignore[assignment]


def crossed(labels: list[Any]) -> dict[str, Any]:
    return {"sex": labels, "half": ["uv"[i % 2] for i in range(len(labels))]}


@kinds
@quiet
def test_fit_hides_whatever_one_row_holds(name: str) -> None:
    people = people_of(name)
    odd = [people.with_label(5, entry) for entry in ("", 7.5, math.nan, (), Refuses(), "b" * 10_000)]
    assert_hidden(partial(fitted, name), people, odd)
    groups = {"sex": ["a", "b"], "half": ["u", "v"]}
    assert_hidden(partial(fitted, name, build=crossed, groups=groups), people, neighbours(people))


# Other calls


def files_below(folder: Path) -> dict[str, bytes]:
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def given_to(name: str, people: People) -> tuple[dict[str, Any], Any]:
    return {"sensitive_features": list(people.labels)} | strata_of(name, people), target_of(name, people)


def fit_with_checkpoint_and_save(name: str, people: People, folder: Path) -> tuple[Any, dict[str, Any]]:
    model, (given, y) = model_of(name, people), given_to(name, people)
    model.fit(people.X, y, checkpoint=folder / "checkpoint", **given)
    model.save(folder / "model")
    return model, facts_of(name, model, people) | files_below(folder)


def fit_and_report(name: str, people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    model, (given, y) = model_of(name, people), given_to(name, people)
    report = build_report(model.fit(people.X, y, **given))
    return model, {"html": report.html(), "markdown": report.markdown()}


def curve(name: str, people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    given, y = given_to(name, people)
    found = tradeoff(model_of(name, people), people.X, y, tolerances=(0.0, 0.1), **given)
    return found, {"table": found.table.to_csv(), "models": [facts_of(name, one, people) for one in found.models]}


def search(name: str, people: People, _: Path) -> tuple[Any, dict[str, Any]]:
    given, y = given_to(name, people)
    bases: list[Any] = [Ridge(), LinearRegression()] if name in NUMBERS else [LogisticRegression(C=c) for c in (0.1, 1)]
    found = private_search(model_of(name, people), [{"base": one} for one in bases], people.X, y, trials=3.0, **given)
    chosen = bases.index(found.parameters["base"])
    return found, {"score": found.score, "chosen": chosen, **facts_of(name, found.model, people)}


CALLS = {
    "checkpoint and save": fit_with_checkpoint_and_save,
    "report": fit_and_report,
    "tradeoff": curve,
    "private_search": search,
}


@kinds
@pytest.mark.parametrize("call", CALLS)
@quiet
def test_call_hides_one_row(name: str, call: str, tmp_path: Path) -> None:
    people, folders = people_of(name), iter(range(100))

    def made(people: People, answers: Sequence[Array] | None = None) -> Outcome:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return recorded(lambda: CALLS[call](name, people, folder), answers)

    first = assert_hidden(made, people, neighbours(people))
    assert (SELECTION in first.public["purposes"]) == (call == "private_search")
    shifted = made(
        people, [answer + np.linspace(0.0, 30.0, answer.size).reshape(answer.shape) for answer in first.noisy]
    )
    assert shifted.public != first.public  # the comparison sees what depends on answers


# Measurements of persons, and of rows in files


def measured(name: str, folder: Path, people: People, answers: Sequence[Array] | None = None) -> Outcome:
    """Of predictions that are the targets of the rows before; all of it is in a file."""
    y = target_of(name, people)
    rows = pd.DataFrame({"y": y, "predicted": np.roll(y, 1), "who": people.ids})
    rows["group"] = pd.Series(list(people.labels), dtype=object)
    rows.to_parquet(folder / "rows.parquet", index=False, row_group_size=100)
    notion = "equalized_odds" if name == "classes" else ["demographic_parity", "equal_error"]

    def call() -> tuple[Any, dict[str, Any]]:
        given: dict[str, Any] = {"groups": ["a", "b"], "notion": notion, "epsilon": 4.0, "person": "who"}
        given |= {"task": "classes" if name == "classes" else "number", "levels": 5}
        found = measure("y", "predicted", sensitive_features="group", data=folder / "rows.parquet", **given)
        return found, {"text": str(found), "json": found.to_json(), "table": found.table.to_csv()}

    return recorded(call, answers)


@pytest.mark.parametrize("name", ["classes", "mean_parity"])
@quiet
def test_measure_on_files_hides_all_rows_of_one_person(name: str, tmp_path: Path) -> None:
    people = by_persons(people_of(name, missing=False))
    others = [people.with_labels(one, label) for one in ("busy", "person 50") for label in ("b", None)]
    first = assert_hidden(partial(measured, name, tmp_path), people, others)
    assert {release.unit for release in first.releases} == {"person"}


# The comparison finds what is wrong


@pytest.mark.parametrize("defect", planted.AT_THE_EDGE)
@kinds
@quiet
def test_comparison_finds_a_fit_that_is_broken(name: str, defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people = people_of(name, missing=False)
    other = people.with_label(planted.CHANGED, {"a": "b", "b": "a"}[people.labels[planted.CHANGED]])
    if sum(label == "a" for label in people.labels) % 2:  # so that the first run is the one that is not refused
        people, other = other, people
    plant, expected = planted.AT_THE_EDGE[defect]
    plant(monkeypatch)
    first = fitted(name, people)
    found = problems(first, fitted(name, other, first.noisy))
    assert all(any(one.startswith(problem) for one in found) for problem in expected), found


@pytest.mark.parametrize("plant", [planted.without_root_of_two, planted.half_the_bound_and_no_guard])
@kinds
@quiet
def test_comparison_finds_rows_that_are_longer_than_the_ledger_says(
    name: str, plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = people_of(name, missing=False)
    plant(monkeypatch)
    first = fitted(name, people, queries=True)
    found = []
    for query in first.queries:
        person = int(np.linalg.norm(query, axis=1).argmax())
        here, there = (fitted(name, people.with_label(person, label), first.noisy) for label in ("a", "b"))
        found += problems(here, there)
    assert any("'moments', moves by" in one for one in found), found
    assert any("'decisions', moves by" in one for one in found), found
