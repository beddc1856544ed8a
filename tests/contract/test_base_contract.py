"""The contract of every base of the default engine: probabilities of rows it has not learned from, and of new rows."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from new_base import FrequencyTable
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from justitia.learners.base import Base, CrossFitted, Fitted, Inputs, ScoreColumn, cross_fit_folds
from justitia.learners.lightgbm_base import MAX_TREES, LightGBMBase, default_base
from justitia.tasks import Task

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Public rows with labels."""

    inputs: Inputs
    y: Array


def rows(n: int = 200, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    chance = 1 / (1 + np.exp(-2 * X[:, 0]))
    y = (rng.uniform(size=n) < chance).astype(float)
    return Rows(Inputs(pd.DataFrame(X, columns=["u", "v"]).assign(score=chance), X.astype(np.float32)), y)


def logistic(table: Any) -> Array:
    found: Array = 1 / (1 + np.exp(-2 * np.asarray(table["u"])))
    return found


def fitted() -> Fitted:
    some = rows(seed=1)
    model = LogisticRegression().fit(some.inputs.table, np.where(some.y > 0, "yes", "no"))
    return Fitted(model, Task.of_classes(["no", "yes"]))


BASES: dict[str, Callable[[], Base]] = {
    "cross-fitted": lambda: CrossFitted(LogisticRegression()),
    "default": lambda: default_base(200),
    "fitted": fitted,
    "function": lambda: Fitted(logistic),
    "column": lambda: ScoreColumn("score"),
    "a user's": FrequencyTable,
}
every_base = pytest.mark.parametrize("make", BASES.values(), ids=BASES)


def learned(base: Base, some: Rows, *, seed: int = 0, weight: Any = None) -> Array:
    weights = np.ones(len(some.y)) if weight is None else weight
    return base.learn(some.inputs, some.y, weights, seed=seed, progress=lambda _: None)


@every_base
def test_contract_probabilities_are_one_number_between_0_and_1_per_row(make: Callable[[], Base]) -> None:
    base, some = make(), rows()
    for found in (learned(base, some), base.predict(some.inputs), base.predict(rows(7, seed=3).inputs)):
        assert found.dtype == np.float64
        assert found.ndim == 1
        assert ((found >= 0) & (found <= 1)).all()
    assert len(base.predict(rows(7, seed=3).inputs)) == 7


@every_base
def test_contract_probabilities_tell_the_label_of_rows_not_seen(make: Callable[[], Base]) -> None:
    base, new = make(), rows(500, seed=5)
    learned(base, rows())
    assert np.mean((base.predict(new.inputs) > 0.5) == (new.y > 0.5)) > 0.7


@every_base
def test_contract_the_same_seed_gives_the_same_probabilities(make: Callable[[], Base]) -> None:
    one, other = make(), make()
    assert np.array_equal(learned(one, rows()), learned(other, rows()))
    assert np.array_equal(one.predict(rows(9).inputs), other.predict(rows(9).inputs))


@every_base
def test_contract_learning_changes_neither_rows_nor_labels_nor_the_users_model(make: Callable[[], Base]) -> None:
    base, some = make(), rows()
    table, y = some.inputs.table.copy(), some.y.copy()
    given = getattr(base, "model", getattr(base, "estimator", None))
    before = copy.deepcopy(vars(given)) if hasattr(given, "__dict__") and not callable(given) else {}
    learned(base, some)
    pd.testing.assert_frame_equal(some.inputs.table, table)
    assert np.array_equal(some.y, y)
    assert set(before) == (set(vars(given)) if before else set())


@every_base
def test_contract_progress_counts_every_fit(make: Callable[[], Base]) -> None:
    base, some, done = make(), rows(), []
    base.learn(some.inputs, some.y, np.ones(len(some.y)), seed=0, progress=done.append)
    assert sum(done) == base.fits


@every_base
def test_contract_rows_are_scored_alone(make: Callable[[], Base]) -> None:
    base, new = make(), rows(20, seed=4)
    learned(base, rows())
    alone = [base.predict(new.inputs.take(np.array([i])))[0] for i in range(20)]
    assert base.predict(new.inputs) == pytest.approx(alone, abs=1e-12)


@every_base
def test_contract_base_survives_a_pickle_and_says_what_it_is(make: Callable[[], Base]) -> None:
    base = make()
    learned(base, rows())
    again = pickle.loads(pickle.dumps(base))
    assert np.array_equal(again.predict(rows(9).inputs), base.predict(rows(9).inputs))
    assert again.describe() == base.describe() != ""
    assert "\n" not in base.describe()


# What cross-fitting adds


def test_cross_fitted_row_is_scored_by_a_model_that_has_not_learned_from_it() -> None:
    """A model that knows its rows by heart knows nothing of the others: coins stay coins."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    coins = (np.arange(400) % 2).astype(float)
    some = Rows(Inputs(X, X.astype(np.float32)), coins)
    base = CrossFitted(DecisionTreeClassifier())
    assert np.mean((learned(base, some) > 0.5) == (coins > 0.5)) < 0.6
    assert np.mean((base.predict(some.inputs) > 0.5) == (coins > 0.5)) > 0.9


def test_cross_fitted_new_rows_get_the_mean_of_the_models() -> None:
    base, new = CrossFitted(LogisticRegression()), rows(9, seed=2)
    learned(base, rows())
    by_hand = np.mean([model.predict_proba(new.inputs.table)[:, 1] for model in base.models], axis=0)
    assert base.predict(new.inputs) == pytest.approx(by_hand)
    assert len(base.models) == base.fits == 5


@pytest.mark.parametrize(("positives", "models"), [(1, 1), (2, 2), (4, 4), (5, 5), (20, 5), (199, 1)])
def test_cross_fitted_parts_are_as_many_as_the_rarer_label_allows(positives: int, models: int) -> None:
    some = rows()
    y = (np.argsort(np.argsort(-some.inputs.numbers[:, 0])) < positives).astype(float)
    base = CrossFitted(LogisticRegression())
    found = learned(base, Rows(some.inputs, y))
    assert len(base.models) == models
    assert found[y > 0].mean() > found[y == 0].mean()


def test_cross_fitted_seed_that_is_not_set_is_the_public_one() -> None:
    one, same, other = (
        learned(CrossFitted(RandomForestClassifier(n_estimators=5)), rows(), seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    fixed = CrossFitted(RandomForestClassifier(n_estimators=5, random_state=7))
    learned(fixed, rows(), seed=1)
    assert {model.random_state for model in fixed.models} == {7}


def test_cross_fitted_weights_reach_the_models() -> None:
    some = rows()
    weight = np.where(some.y > 0, 9.0, 1.0)
    plain, weighted = (learned(CrossFitted(LogisticRegression()), some, weight=one) for one in (None, weight))
    assert weighted.mean() > plain.mean() + 0.1


def test_default_base_grows_with_the_number_of_rows_and_is_the_same_everywhere() -> None:
    sizes = [default_base(n).estimator.get_params() for n in (100, 10_000, 10**6)]
    assert [one["num_leaves"] for one in sizes] == sorted({one["num_leaves"] for one in sizes})
    assert all(one["deterministic"] and one["n_jobs"] == 1 for one in sizes)


def test_default_base_has_as_many_trees_as_the_rows_that_each_clone_has_not_seen_ask_for() -> None:
    some, noise = rows(), np.random.default_rng(0).permutation(rows().y)
    told, untold = LightGBMBase(len(some.y)), LightGBMBase(len(some.y))
    found = learned(told, some)
    untold.learn(some.inputs, noise, np.ones(len(noise)), seed=0, progress=lambda _: None)
    chosen = [{model.booster_.best_iteration for model in base.models} for base in (told, untold)]
    assert [len(one) for one in chosen] == [1, 1]  # one number for all clones
    assert chosen[1].pop() < chosen[0].pop() <= MAX_TREES
    parts = list(cross_fit_folds(some.y, 0))
    for model, (_, unseen) in zip(told.models, parts, strict=True):
        again = model.predict_proba(some.inputs.take(unseen).numbers)[:, 1]
        assert again == pytest.approx(found[unseen], abs=1e-12)
