"""What a fit by moments keeps (never the memberships), and the settings it refuses."""

import gc
import json
import math
import pickle
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from moments_setting import GROUPS, PLAN, fit, open_vault, setting
from safetensors.torch import load_file
from torch import Tensor

from asking import asked
from justitia import LagrangianDualClassifier, MomentsPlan, PFLDPlan
from justitia.networks.moments.engine import MomentsEngine
from justitia.training.checkpoint import Checkpoint
from justitia.training.lagrangian import row_bound
from justitia.training.state_file import from_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


# Memberships are never kept


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


def shapes(thing: Any) -> set[tuple[int, ...]]:
    """Shapes of everything in ``thing`` that has one, lists of lists of numbers included."""
    found = {tuple(one.shape) for one in contents(thing) if hasattr(one, "shape") and not isinstance(one, type)}
    for one in contents(thing):
        if isinstance(one, list | tuple) and one and isinstance(one[0], list | tuple):
            found.add((len(one), len(one[0])))
    return found


N_PRIME = 137  # no other table of these tests has so many rows


def many_rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_PRIME, 3))
    return X, (X[:, 0] > 0).astype(int), rng.choice([*GROUPS, "?"], N_PRIME)


def five_groups(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"engine": "moments", "plan": PLAN, "groups": GROUPS, "module": (4,), "missing_marker": "?"}
    return LagrangianDualClassifier(**usual | {"random_state": 0, "noise_seed": 0} | changes)


FORBIDDEN = {(N_PRIME, 5), (N_PRIME, 6), (5, N_PRIME), (6, N_PRIME)}


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_fitted_estimator_keeps_nothing_of_the_length_of_the_table(epsilon: float) -> None:
    X, y, a = many_rows()
    model = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a)
    assert not [shape for shape in shapes(vars(model)) if N_PRIME in shape]
    assert not [shape for shape in shapes(pickle.loads(pickle.dumps(model))) if N_PRIME in shape]


def memberships_alive(monkeypatch: pytest.MonkeyPatch, epsilon: float = 1.0) -> int:
    """How many of the places that held memberships during a fit are there still."""
    noted: list[weakref.ref[Any]] = []
    original = MomentsEngine._use

    def watched(engine: MomentsEngine, q: Any) -> None:
        original(engine, q)
        noted.extend(weakref.ref(one) for one in (engine, q, engine._q))

    monkeypatch.setattr(MomentsEngine, "_use", watched)
    X, y, a = many_rows()
    model = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a)
    gc.collect()
    assert len(noted) >= 3
    assert model.n_features_in_ == 3
    return sum(one() is not None for one in noted)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_memberships_are_gone_from_memory_after_fit(monkeypatch: pytest.MonkeyPatch, epsilon: float) -> None:
    assert memberships_alive(monkeypatch, epsilon) == 0
    alive = {tuple(one.shape) for one in gc.get_objects() if type(one) is Tensor}
    assert not alive & FORBIDDEN


def test_scan_of_memory_would_find_memberships_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    original = MomentsEngine._use

    def keep(engine: MomentsEngine, q: Any) -> None:
        original(engine, q)
        kept.extend([q, engine._q])

    monkeypatch.setattr(MomentsEngine, "_use", keep)
    found = memberships_alive(monkeypatch)
    assert found == len(kept) > 0
    assert {tuple(one.shape) for one in gc.get_objects() if type(one) is Tensor} & FORBIDDEN
    kept.clear()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_saved_model_keeps_nothing_of_the_length_of_the_table(tmp_path: Path, epsilon: float) -> None:
    X, y, a = many_rows()
    folder = five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a).save(tmp_path / "model")
    assert sorted(file.name for file in folder.iterdir()) == ["model.json", "weights.safetensors"]
    facts = json.loads((folder / "model.json").read_text())
    assert not [shape for shape in shapes(facts) if N_PRIME in shape]
    assert not [one for one in contents(facts) if isinstance(one, list) and len(one) >= N_PRIME]
    assert not [shape for shape in shapes(load_file(folder / "weights.safetensors")) if N_PRIME in shape]
    loaded = LagrangianDualClassifier.load(folder)
    assert loaded.engine == "moments"
    assert isinstance(loaded.plan_, MomentsPlan)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_checkpoint_holds_public_decisions_but_no_memberships(tmp_path: Path, epsilon: float) -> None:
    X, y, a = many_rows()
    found: set[tuple[int, ...]] = set()
    original = Checkpoint.save

    def look(self: Checkpoint, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        state = from_bytes((self.folder / "state.npz").read_bytes())
        found.update(shapes(state))
        engine = state["state"]["engine"]
        for value in engine.pop("checked", []):
            assert len(np.unique(value)) <= 2  # a decision less the public mean, of demographic parity
        assert not [shape for shape in shapes(engine) if N_PRIME in shape]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", look)
        five_groups(epsilon=epsilon).fit(X, y, sensitive_features=a, checkpoint=tmp_path / "run")
    assert not found & FORBIDDEN
    assert ((N_PRIME, 1) in found) == math.isfinite(epsilon)


def test_history_holds_gaps_and_multipliers_by_group_and_nothing_by_person() -> None:
    X, y, a = many_rows()
    history = five_groups().fit(X, y, sensitive_features=a).history_
    assert len(history) == PLAN.rounds + 1
    assert history.shape[1] == 6 + 2 * 5
    assert all(np.ndim(value) == 0 for value in history.to_numpy().ravel())


# Wrong settings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rounds": 0}, "expected rounds to be at least 1, got 0"),
        ({"rounds": 2.5}, "expected rounds to be an int"),
        ({"public_steps": 0}, "expected public_steps to be at least 1, got 0"),
        ({"warmup_steps": -1}, "expected warmup_steps to be at least 0, got -1"),
        ({"checks": -1}, "expected checks to be at least 0, got -1"),
        ({"checks": 1.0}, "expected checks to be an int"),
        ({"checks": 3, "rounds": 3}, r"expected fewer checks than rounds \(3\), got 3; ask less often"),
        ({"share_moments": 0.0}, "expected share_moments to be above 0 and at most 1, got 0.0"),
        ({"share_moments": 1.5}, "expected share_moments to be above 0 and at most 1, got 1.5"),
        ({"share_moments": math.nan}, "expected share_moments to be"),
        ({"share_moments": 1.0, "checks": 2}, "expected share_moments below 1 where checks are to be paid for, got 1"),
        ({"ridge": -0.1}, "expected ridge to be a finite number of at least 0, got -0.1"),
        ({"ridge": math.inf}, "expected ridge to be a finite number of at least 0, got inf"),
        ({"dead_zone": -1}, "expected dead_zone to be a finite number of at least 0, got -1"),
        ({"dead_zone": "wide"}, "expected dead_zone to be a number"),
        ({"micro_batch": 0}, "expected micro_batch to be at least 1, got 0"),
        ({"averaging": 0}, "expected averaging to be above 0 and at most 1, got 0"),
        ({"optimizer": "adam"}, "no optimizer 'adam'; did you mean 'Adam'"),
    ],
    ids=str,
)
def test_wrong_plan_is_refused_in_one_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        MomentsPlan(**wrong)
    assert "\n" not in str(caught.value)


def test_share_of_one_is_right_where_nothing_is_checked() -> None:
    assert MomentsPlan(checks=0, share_moments=1.0).checks == 0


def test_plan_of_another_engine_is_refused_in_one_sentence(people: Any, make: Any) -> None:
    for engine, plan in (("moments", PFLDPlan()), ("pf-ld", PLAN)):
        with pytest.raises(TypeError, match=rf"expected a \w+Plan for engine '{engine}', got \w+Plan") as caught:
            fit(make(engine=engine, plan=plan), people)
        assert "\n" not in str(caught.value)


def test_engine_of_a_plan_without_noise_is_refused_in_one_sentence() -> None:
    some = setting()
    with pytest.raises(ValueError, match="This plan has no noise yet; call plan") as caught:
        MomentsEngine(PLAN, some.problem, open_vault(some), tolerance=0.0)
    assert "\n" not in str(caught.value)


def test_decisions_that_are_all_alike_are_released_with_no_sensitivity_and_change_nothing() -> None:
    some = setting(plan=replace(PLAN, ridge=0.0))
    some.engine.query_before(some.module, np.zeros(1), 1)
    before = asked(some.engine, np.ones(60), 1)
    after = asked(some.engine, np.ones(60), PLAN.check_rounds[0])
    assert row_bound(np.zeros((60, 1))) == 0.0
    assert [release.sensitivity for release in some.ledger.releases] == [pytest.approx(math.sqrt(2), rel=1e-9), 0.0]
    assert before is not None
    assert after is not None
    assert np.array_equal(before, np.zeros((2, 1)))
    assert np.array_equal(after, before)
