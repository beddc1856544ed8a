"""What a fit keeps (neither attribute nor memberships), and how an interrupted one is resumed."""

import gc
import json
import math
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from run_setting import classifier
from sklearn.linear_model import LogisticRegression

from dying import fit_and_die, fit_and_die_after_save
from justitia import LagrangianDualClassifier, LagrangianDualRegressor, PostProcessingPlan, tradeoff
from justitia.postprocessing.correction import Distillation
from justitia.postprocessing.regression import NumberRun
from justitia.postprocessing.solver import PostProcessingRun
from justitia.training.checkpoint import Checkpoint
from justitia.training.state_file import from_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise
every_epsilon = pytest.mark.parametrize("epsilon", [1.0, math.inf])
N_PRIME = 137  # no other table of these tests has so many rows
GROUPS = ("hidden one", "hidden two", "hidden three", "hidden four", "hidden five")
PLAN = PostProcessingPlan(checks=2)
Array = NDArray[Any]


def many_rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_PRIME, 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=N_PRIME) > 0).astype(int), rng.choice([*GROUPS, "?"], N_PRIME)


def five_groups(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"groups": GROUPS, "plan": PLAN, "missing_marker": "?", "tolerance": 0.0}
    return classifier(**usual | changes)


def contents(thing: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Everything reachable from ``thing`` through attributes and containers."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None):
        return
    seen.add(id(thing))
    yield thing
    inner: list[Any] = []
    if isinstance(thing, dict):
        inner = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = list(thing)
    elif not isinstance(thing, np.ndarray | pd.DataFrame):
        inner = list(getattr(thing, "__dict__", {}).values())
    for one in inner:
        yield from contents(one, seen)


def by_row(thing: Any) -> list[Any]:
    """What has as many entries as there are rows."""
    return [
        one
        for one in contents(thing)
        if (hasattr(one, "shape") and not isinstance(one, type) and N_PRIME in tuple(one.shape))
        or (isinstance(one, list | tuple) and len(one) == N_PRIME)
    ]


@every_epsilon
@pytest.mark.parametrize("base", [None, LogisticRegression()], ids=["default", "logistic"])
def test_fitted_estimator_holds_nothing_with_a_entry_per_row(epsilon: float, base: Any) -> None:
    X, y, a = many_rows()
    model = five_groups(epsilon=epsilon, base=base).fit(X, y, sensitive_features=a)
    assert not model.rule_.correction.is_zero
    assert by_row(vars(model)) == []
    assert by_row(pickle.loads(pickle.dumps(model))) == []


@every_epsilon
def test_models_of_a_curve_hold_nothing_with_a_entry_per_row(epsilon: float) -> None:
    X, y, a = many_rows()
    curve = tradeoff(five_groups(epsilon=epsilon), X, y, sensitive_features=a, tolerances=(0.0, 0.1, 0.3))
    assert by_row(curve) == []
    for one in curve.models:
        one.predict(X)
    assert by_row(pickle.loads(pickle.dumps(curve.models))) == []


def memberships_alive(monkeypatch: pytest.MonkeyPatch, fit: Any) -> int:
    """How many of the places that held memberships during a fit are there still."""
    noted: list[weakref.ref[Any]] = []
    use, distil = PostProcessingRun._use, Distillation.__init__

    def watched_use(run: PostProcessingRun, weights: Array) -> None:
        use(run, weights)
        noted.extend(weakref.ref(one) for one in (run, run._estimated().c))

    def watched_distil(made: Distillation, *args: Any) -> None:
        distil(made, *args)
        noted.append(weakref.ref(made))

    monkeypatch.setattr(PostProcessingRun, "_use", watched_use)
    monkeypatch.setattr(Distillation, "__init__", watched_distil)
    model = fit()
    gc.collect()
    assert len(noted) == 3
    assert model is not None
    return sum(one() is not None for one in noted)


@every_epsilon
def test_memberships_are_gone_from_memory_after_fit(monkeypatch: pytest.MonkeyPatch, epsilon: float) -> None:
    X, y, a = many_rows()
    made = five_groups(epsilon=epsilon)
    assert memberships_alive(monkeypatch, lambda: made.fit(X, y, sensitive_features=a)) == 0


def test_memberships_are_gone_from_memory_after_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, a = many_rows()
    made = five_groups()
    tolerances = (0.0, 0.1)
    found = memberships_alive(monkeypatch, lambda: tradeoff(made, X, y, sensitive_features=a, tolerances=tolerances))
    assert found == 0


def test_search_of_memory_would_find_memberships_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    original = PostProcessingRun._solve
    monkeypatch.setattr(PostProcessingRun, "_solve", lambda run, lam: (kept.append(run), original(run, lam))[1])
    X, y, a = many_rows()
    assert memberships_alive(monkeypatch, lambda: five_groups().fit(X, y, sensitive_features=a)) == 3
    kept.clear()


def test_pickle_holds_no_weights_of_memberships() -> None:
    """They live in the checkpoint alone, where a run may go on from."""
    X, y, a = many_rows()
    seen: list[Array] = []
    original = PostProcessingRun._use

    def note(run: PostProcessingRun, weights: Array) -> None:
        original(run, weights)
        seen.append(weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostProcessingRun, "_use", note)
        model = five_groups().fit(X, y, sensitive_features=a)
    (weights,) = seen
    text = pickle.dumps(model)
    assert all(number.tobytes() not in text for number in weights.astype(np.float64).flatten()[:20])
    shapes = {tuple(one.shape) for one in contents(vars(model)) if hasattr(one, "shape") and not isinstance(one, type)}
    assert tuple(weights.shape) not in shapes


def test_texts_of_a_fitted_model_name_no_rows_group() -> None:
    X, y, a = many_rows()
    model = five_groups().fit(X, y, sensitive_features=a)
    for text in (repr(model), str(model.rule_), repr(model.plan_), repr(model.rule_.correction)):
        assert str(a.tolist()) not in text
        assert text.count("hidden one") <= 1  # the public list
    assert all(np.ndim(value) == 0 for value in model.history_.to_numpy().ravel())
    assert model.history_.shape == (3, 6 + 2 * 5)


def test_decisions_do_not_take_the_attribute_and_depend_on_the_row_alone() -> None:
    X, y, a = many_rows()
    model = five_groups().fit(X, y, sensitive_features=a)
    alone = np.concatenate([model.decision_function(X[i : i + 1]) for i in range(20)])
    assert alone == pytest.approx(model.decision_function(X[:20]), abs=1e-9)


# Several classes, and numbers


def fit_target(target: str, epsilon: float = 40.0) -> Any:
    """A model of three classes or of a number, by the name of its notion."""
    X, _, a = many_rows()
    number = X[:, 0] + 0.5 * X[:, 1]
    usual: dict[str, Any] = {"groups": GROUPS, "plan": PLAN, "missing_marker": "?", "tolerance": 0.0}
    usual |= {"epsilon": epsilon, "random_state": 0, "noise_seed": 0}
    kind, notion = target.split(": ")
    if kind == "number":
        return LagrangianDualRegressor(notion, **usual).fit(X, number, sensitive_features=a)
    return LagrangianDualClassifier(notion, **usual).fit(X, np.digitize(number, [-0.5, 0.5]), sensitive_features=a)


every_target = pytest.mark.parametrize(
    "target",
    [
        *("classes: demographic_parity", "classes: equalized_odds", "classes: accuracy_parity"),
        *("number: demographic_parity", "number: mean_parity", "number: equal_error"),
    ],
)


def is_corrected(model: Any) -> bool:
    rule = model.rule_
    return len(rule.corrections) > 0 if isinstance(model, LagrangianDualRegressor) else not rule.correction.is_zero


@pytest.mark.parametrize("epsilon", [40.0, math.inf])  # so few rows are not corrected at a smaller one
@every_target
def test_models_of_every_target_hold_nothing_with_an_entry_per_row(target: str, epsilon: float, tmp_path: Path) -> None:
    model = fit_target(target, epsilon)
    assert is_corrected(model)
    assert by_row(vars(model)) == []
    assert by_row(pickle.loads(pickle.dumps(model))) == []
    assert by_row(vars(type(model).load(model.save(tmp_path / "model")))) == []


@every_target
def test_memberships_of_every_target_are_in_no_file_no_pickle_and_gone_from_memory(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[weakref.ref[Any]] = []
    released: list[Array] = []

    def watched(run: Any, weights: Array) -> None:
        originals[type(run)](run, weights)
        noted.extend(weakref.ref(one) for one in (run, run._memberships))
        released.append(weights.astype(np.float64).copy())

    originals = {kind: kind._use for kind in (PostProcessingRun, NumberRun)}
    for kind in originals:
        monkeypatch.setattr(kind, "_use", watched)
    model = fit_target(target)
    gc.collect()
    assert [one() is not None for one in noted] == [False] * len(noted)
    assert len(released) > 0
    content = {one.name: one.read_bytes() for one in model.save(tmp_path / "model").iterdir()}
    content["pickle"] = pickle.dumps(model)
    for weights in released:
        numbers = weights[np.abs(weights) > 0].ravel()[:50]
        assert len(numbers) > 10
        for text in content.values():
            assert all(number.tobytes() not in text for number in numbers)
            assert all(repr(float(number)).encode() not in text for number in numbers)
        shapes = {one.shape for one in contents(vars(model)) if isinstance(one, np.ndarray)}
        assert weights.shape not in shapes


# Interrupted and resumed


@every_epsilon
def test_checkpoint_holds_scores_of_the_base_and_no_memberships(tmp_path: Path, epsilon: float) -> None:
    X, y, a = many_rows()
    names: set[str] = set()
    original = Checkpoint.save

    def inspected(self: Checkpoint, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        state = from_bytes((self.folder / "state.npz").read_bytes())
        names.update(state["state"])
        assert len(state["state"].pop("eta")) == N_PRIME
        assert by_row(state) == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", inspected)
        five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a, checkpoint=tmp_path / "run")
    assert names == {
        *("eta", "answer", "history", "weights", "counted", "silence"),
        *("shift", "levels", "lams", "quota", "surprises", "variances", "checked"),
    }
    for file in (tmp_path / "run").iterdir():
        assert all(name.encode() not in file.read_bytes() for name in GROUPS)


def same(one: LagrangianDualClassifier, other: LagrangianDualClassifier, X: Any) -> bool:
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)
    pd.testing.assert_frame_equal(one.dual_, other.dual_, check_exact=True)
    return np.array_equal(one.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_run_resumed_after_every_save_equals_a_whole_one(people: Any, tmp_path: Path, notion: str) -> None:
    whole = classifier(notion=notion, tolerance=0.02).fit(people.X, people.y, sensitive_features=people.a)
    for saves in (1, 2, 3, 4, 5, 6):  # the first before anything was made of the answer
        folder = tmp_path / f"run {saves}"
        fit_and_die_after_save(classifier(notion=notion, tolerance=0.02), people, folder, saves=saves)
        resumed = classifier(notion=notion, tolerance=0.02)
        resumed.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)
        assert same(resumed, whole, people.X)


def test_lost_answer_is_not_queried_again_and_leaves_fewer_surprises(people: Any, tmp_path: Path) -> None:
    fit_and_die(classifier(), people, tmp_path / "run", at=3, answered=True)  # the second check
    runs: list[PostProcessingRun] = []
    original = PostProcessingRun._restore

    def note(run: PostProcessingRun, *args: Any, **kwargs: Any) -> None:
        runs.append(run)
        original(run, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostProcessingRun, "_restore", note)
        resumed = classifier().fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    assert [one.purpose for one in resumed.ledger_.releases] == ["moments", *["decisions"] * 4]
    assert len(runs[0]._surprises) == 3
    assert resumed.history_["round"].tolist() == [0, 1, 2, 3, 4]


def test_run_is_not_resumed_with_another_base(people: Any, tmp_path: Path) -> None:
    def made(C: float) -> LagrangianDualClassifier:
        return classifier(base=LogisticRegression(C=C))

    fit_and_die_after_save(made(1.0), people, tmp_path / "run", saves=2)
    with pytest.raises(ValueError, match="expected the base that the checkpoint was begun with") as caught:
        made(1e-4).fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="belongs to a run with other data or settings"):
        classifier().fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    made(1.0).fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")


def test_certificate_as_data_holds_nothing_by_row() -> None:
    X, y, a = many_rows()
    facts = json.loads(five_groups().fit(X, y, sensitive_features=a).certificate_.to_json())
    assert by_row(facts) == []
