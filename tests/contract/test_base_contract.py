"""The contract of every base, of every kind of target: predictions of rows it has not learned from, and of new rows."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from new_base import FrequencyTable
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from justitia.learners import lightgbm_base
from justitia.learners.base import Base, CrossFitted, Fitted, Inputs, ScoreColumn, ScoreColumns, cross_fit_folds
from justitia.learners.lightgbm_base import PATIENCE, BaseSize, LightGBMBase
from justitia.tasks import BINARY, NUMBER, Task

Array = NDArray[np.float64]
#: As where rows are many.
ONE_MODEL = BaseSize(7, 0.06, 300, one_model=True)
YES_NO, LEVELS = Task.of_classes(["no", "yes"]), Task.of_classes(["high", "low", "medium"])


@dataclass(frozen=True)
class Rows:
    """Public rows with targets."""

    inputs: Inputs
    y: Array


def truth(table: Any, task: Task) -> Array:
    """P(y = 1 | x), probabilities of three classes, or E[y | x]."""
    u = np.asarray(table["u"])
    if task.kind == "number":
        return 10 + 3 * u
    logits = np.column_stack([0 * u, 2 * u] if task.kind == "binary" else [0 * u, 3 * u, -3 * u])
    shares: Array = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return shares[:, 1] if task.kind == "binary" else shares


def rows(n: int = 200, seed: int = 0, task: Task = BINARY) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    table = pd.DataFrame(X, columns=["u", "v"])
    found = truth(table, task)
    if task.kind == "number":
        y = found + rng.normal(size=n)
    elif task.kind == "binary":
        y = (rng.uniform(size=n) < found).astype(float)
    else:
        y = (rng.uniform(size=(n, 1)) > found.cumsum(1)[:, :2]).sum(1).astype(float)
    scores = found.reshape(n, -1)
    table = table.assign(**{f"score{k}": scores[:, k] for k in range(scores.shape[1])})
    return Rows(Inputs(table, X.astype(np.float32)), y)


def true_probability(table: Any) -> Array:
    return truth(table, BINARY)


def true_probabilities(table: Any) -> Array:
    return truth(table, LEVELS)


def true_mean(table: Any) -> Array:
    return truth(table, NUMBER)


def fitted(task: Task) -> Fitted:
    some = rows(seed=1, task=task)
    if task.kind == "number":
        return Fitted(LinearRegression().fit(some.inputs.table, some.y), task)
    return Fitted(LogisticRegression().fit(some.inputs.table, np.array(task.classes)[some.y.astype(int)]), task)


BASES: dict[str, Callable[[], Base]] = {
    "cross-fitted": lambda: CrossFitted(LogisticRegression()),
    "default": lambda: LightGBMBase(200),
    "one model": lambda: LightGBMBase(200, size=ONE_MODEL),
    "fitted": lambda: fitted(YES_NO),
    "function": lambda: Fitted(true_probability),
    "column": lambda: ScoreColumn("score0"),
    "a user's": FrequencyTable,
    "cross-fitted, classes": lambda: CrossFitted(LogisticRegression(), LEVELS),
    "default, classes": lambda: LightGBMBase(200, LEVELS),
    "one model, classes": lambda: LightGBMBase(200, LEVELS, size=ONE_MODEL),
    "fitted, classes": lambda: fitted(LEVELS),
    "function, classes": lambda: Fitted(true_probabilities, LEVELS),
    "columns, classes": lambda: ScoreColumns(["score0", "score1", "score2"], LEVELS),
    "a user's, classes": lambda: FrequencyTable(LEVELS),
    "cross-fitted, number": lambda: CrossFitted(LinearRegression(), NUMBER),
    "default, number": lambda: LightGBMBase(200, NUMBER),
    "one model, number": lambda: LightGBMBase(200, NUMBER, size=ONE_MODEL),
    "fitted, number": lambda: fitted(NUMBER),
    "function, number": lambda: Fitted(true_mean, NUMBER),
    "column, number": lambda: ScoreColumn("score0", NUMBER),
    "a user's, number": lambda: FrequencyTable(NUMBER),
}
every_base = pytest.mark.parametrize("make", BASES.values(), ids=BASES)


def learned(base: Base, some: Rows, *, seed: int = 0, weight: Any = None) -> Array:
    weights = np.ones(len(some.y)) if weight is None else weight
    return base.learn(some.inputs, some.y, weights, seed=seed, progress=lambda _: None)


@every_base
def test_contract_predictions_have_the_shape_and_range_of_the_task(make: Callable[[], Base]) -> None:
    base = make()
    some, new = rows(task=base.task), rows(7, seed=3, task=base.task)
    for found, n in ((learned(base, some), 200), (base.predict(some.inputs), 200), (base.predict(new.inputs), 7)):
        assert found.dtype == np.float64
        assert found.shape == base.task.prediction_shape(n)
        assert np.isfinite(found).all()
        if base.task.kind != "number":
            assert ((found >= 0) & (found <= 1)).all()
        if base.task.kind == "classes":
            assert found.sum(1) == pytest.approx(np.ones(n), abs=1e-12)


@every_base
def test_contract_predictions_tell_the_target_of_rows_not_seen(make: Callable[[], Base]) -> None:
    base = make()
    new = rows(500, seed=5, task=base.task)
    learned(base, rows(task=base.task))
    found = base.predict(new.inputs)
    if base.task.kind == "number":
        assert 1 - np.var(new.y - found) / np.var(new.y) > 0.7
    else:
        decided = found > 0.5 if base.task.kind == "binary" else found.argmax(1)
        assert np.mean(decided == new.y) > (0.7 if base.task.kind == "binary" else 0.6)


@every_base
def test_contract_the_same_seed_gives_the_same_predictions(make: Callable[[], Base]) -> None:
    one, other = make(), make()
    some, new = rows(task=one.task), rows(9, task=one.task)
    assert np.array_equal(learned(one, some), learned(other, some))
    assert np.array_equal(one.predict(new.inputs), other.predict(new.inputs))


@every_base
def test_contract_learning_changes_neither_rows_nor_targets_nor_the_users_model(make: Callable[[], Base]) -> None:
    base = make()
    some = rows(task=base.task)
    table, y = some.inputs.table.copy(), some.y.copy()
    given = getattr(base, "model", getattr(base, "estimator", None))
    before = copy.deepcopy(vars(given)) if hasattr(given, "__dict__") and not callable(given) else {}
    learned(base, some)
    pd.testing.assert_frame_equal(some.inputs.table, table)
    assert np.array_equal(some.y, y)
    assert set(before) == (set(vars(given)) if before else set())


@every_base
def test_contract_progress_counts_every_fit(make: Callable[[], Base]) -> None:
    base, done = make(), []
    some = rows(task=base.task)
    base.learn(some.inputs, some.y, np.ones(len(some.y)), seed=0, progress=done.append)
    assert sum(done) == base.fits


@every_base
def test_contract_rows_are_predicted_alone(make: Callable[[], Base]) -> None:
    base = make()
    new = rows(20, seed=4, task=base.task)
    learned(base, rows(task=base.task))
    alone = np.array([base.predict(new.inputs.take(np.array([i])))[0] for i in range(20)])
    assert base.predict(new.inputs) == pytest.approx(alone, abs=1e-12)


@every_base
def test_contract_base_survives_a_pickle_and_says_what_it_is(make: Callable[[], Base]) -> None:
    base = make()
    learned(base, rows(task=base.task))
    again = pickle.loads(pickle.dumps(base))
    new = rows(9, task=base.task)
    assert np.array_equal(again.predict(new.inputs), base.predict(new.inputs))
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


@pytest.mark.parametrize("task", [LEVELS, NUMBER], ids=["classes", "number"])
def test_cross_fitted_row_of_other_targets_is_predicted_by_a_model_that_has_not_learned_from_it(task: Task) -> None:
    X = np.random.default_rng(0).normal(size=(600, 2))
    dice = (np.arange(600) % 3).astype(float)
    some = Rows(Inputs(X, X.astype(np.float32)), dice)
    base = CrossFitted(DecisionTreeRegressor() if task is NUMBER else DecisionTreeClassifier(), task)

    def right(found: Array) -> Any:
        return np.mean((found.argmax(1) if found.ndim == 2 else found.round()) == dice)

    assert right(learned(base, some)) < 0.45
    assert right(base.predict(some.inputs)) > 0.75


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


@pytest.mark.parametrize("rare", [1, 2, 4, 5])
def test_cross_fitted_rare_class_is_known_to_every_model_and_others_keep_five_folds(rare: int) -> None:
    some = rows()
    y = some.y.copy()
    y[:rare] = 2.0
    base = CrossFitted(LogisticRegression(), LEVELS)
    found = learned(base, Rows(some.inputs, y))
    assert [model.classes_.tolist() for model in base.models] == [[0, 1, 2]] * 5
    assert found.shape == (200, 3)
    folds = list(cross_fit_folds(y, 0, LEVELS))
    assert np.array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(200))
    assert max(len(test) for _, test in folds) <= 41
    held_out = [int((y[test] == 2).sum()) for _, test in folds]
    assert sorted(held_out) == [0] * (5 - rare) + [1] * rare
    # A row is in the training part of its own fold only if it is the only one of its class.
    both = np.concatenate([np.intersect1d(train, test) for train, test in folds])
    assert both.tolist() == ([0] if rare == 1 else [])


def test_folds_of_classes_are_stratified_and_drawn_with_the_seed() -> None:
    y = np.repeat([0.0, 1.0, 2.0], [50, 30, 20])
    one, same, other = (list(cross_fit_folds(y, seed, LEVELS)) for seed in (1, 1, 2))
    assert [np.bincount(y[test].astype(int)).tolist() for _, test in one] == [[10, 6, 4]] * 5
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a[1], b[1]) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("n", "folds"), [(1, 1), (2, 2), (4, 4), (7, 5)])
def test_folds_of_few_numbers_are_as_many_as_rows(n: int, folds: int) -> None:
    found = list(cross_fit_folds(np.ones(n), 0, NUMBER))
    assert len(found) == folds
    assert sorted(np.concatenate([test for _, test in found]).tolist()) == list(range(n))


def test_folds_of_very_few_rows_of_classes_fit_on_every_class() -> None:
    for train, test in cross_fit_folds(np.array([0.0, 1.0, 2.0]), 0, LEVELS):
        assert train.tolist() == [0, 1, 2]
        assert len(test) == 1


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
    bases = [LightGBMBase(n) for n in (100, 10_000, 10**6)]
    leaves = [one.parameters["num_leaves"] for one in bases]
    assert leaves == sorted(set(leaves))
    assert all(one.parameters["deterministic"] and one.parameters["num_threads"] == 1 for one in bases)


def test_default_base_has_as_many_trees_as_the_rows_that_each_model_has_not_learned_from_need() -> None:
    some, noise = rows(), np.random.default_rng(0).permutation(rows().y)
    signal, none = LightGBMBase(len(some.y)), LightGBMBase(len(some.y))
    found = learned(signal, some)
    none.learn(some.inputs, noise, np.ones(len(noise)), seed=0, progress=lambda _: None)
    chosen = [{len(model.trees.trees) for model in base.models} for base in (signal, none)]
    assert [len(one) for one in chosen] == [1, 1]  # one number for all models
    assert chosen[1].pop() < chosen[0].pop() <= signal.size.most_trees
    parts = list(cross_fit_folds(some.y, 0))
    for model, (_, unseen) in zip(signal.models, parts, strict=True):
        again = model.predict_proba(some.inputs.take(unseen).numbers)[:, 1]
        assert again == pytest.approx(found[unseen], abs=1e-12)


@pytest.mark.parametrize("task", [BINARY, LEVELS, NUMBER], ids=["binary", "classes", "number"])
def test_default_base_of_many_rows_deploys_one_model_of_all_rows(task: Task, monkeypatch: Any) -> None:
    some, done = rows(task=task), []
    few = LightGBMBase(200, task)
    out_of_fold = learned(few, some)
    monkeypatch.setattr(lightgbm_base, "MOST_ROWS_OF_MEAN", 199)
    many = LightGBMBase(200, task)
    before = many.describe()
    assert np.array_equal(
        many.learn(some.inputs, some.y, np.ones(200), seed=0, progress=done.append), out_of_fold
    )  # the folds are the same
    assert (len(few.models), len(many.models), many.deployed) == (5, 1, 1)
    assert sum(done) == many.fits == 6
    assert many.describe() == before
    assert before.endswith(", one model of all rows")
    trees = len(few.models[0].trees.trees) // few.models[0].trees.sums
    data = lightgbm.Dataset(some.inputs.numbers, some.y)
    by_hand = lightgbm.train(many.parameters, data, num_boost_round=trees).predict(some.inputs.numbers)
    assert many.predict(some.inputs) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("n_jobs", [2, -1])
@pytest.mark.parametrize("task", [BINARY, LEVELS, NUMBER], ids=["binary", "classes", "number"])
def test_cross_fitted_models_are_the_same_whatever_n_jobs(task: Task, n_jobs: int) -> None:
    some, new = rows(task=task), rows(30, seed=3, task=task)
    forest = RandomForestRegressor if task is NUMBER else RandomForestClassifier
    for make in (
        lambda jobs: LightGBMBase(200, task, n_jobs=jobs, size=BaseSize(7, 0.06, 40, one_model=False)),
        lambda jobs: LightGBMBase(200, task, n_jobs=jobs, size=BaseSize(7, 0.06, 40, one_model=True)),
        lambda jobs: CrossFitted(forest(n_estimators=5), task, n_jobs=jobs),
    ):
        one, several = make(None), make(n_jobs)
        assert np.array_equal(learned(one, some), learned(several, some))
        assert np.array_equal(one.predict(new.inputs), several.predict(new.inputs))


@pytest.mark.parametrize("task", [LEVELS, NUMBER], ids=["classes", "number"])
def test_cross_fitted_weights_reach_the_models_of_other_targets(task: Task) -> None:
    some = rows(task=task)
    above = some.y > (10 if task is NUMBER else 1)
    for make in (lambda: CrossFitted(LinearRegression() if task is NUMBER else LogisticRegression(), task), None):
        bases = [LightGBMBase(200, task) if make is None else make() for _ in range(2)]
        plain, weighted = (learned(base, some, weight=one) for base, one in zip(bases, weights(above), strict=True))
        if task is NUMBER:
            assert weighted.mean() > plain.mean() + 0.1
        else:
            assert weighted[:, 2].mean() > plain[:, 2].mean() + 0.1


def weights(above: Any) -> tuple[Array, Array]:
    """Equal ones, and nine times as much for some rows."""
    return np.ones(len(above)), np.where(above, 9.0, 1.0)


@pytest.mark.parametrize("task", [BINARY, LEVELS, NUMBER], ids=["binary", "classes", "number"])
def test_default_base_chooses_trees_by_out_of_fold_loss(task: Task) -> None:
    """The same as LightGBM alone: add up the losses of the folds after each iteration that all have, take the least."""
    some, size = rows(task=task), BaseSize(7, 0.06, 300, one_model=False)
    base = LightGBMBase(len(some.y), task, size=size)
    found = learned(base, some)
    data = lightgbm.Dataset(some.inputs.numbers, some.y, params=base.parameters).construct()
    parts, staged, stopped = list(cross_fit_folds(some.y, 0, task)), [], []
    for train, test in parts:
        alone = lightgbm.train(base.parameters, data.subset(train), num_boost_round=300)
        stages = [alone.predict(some.inputs.numbers[test], num_iteration=j + 1) for j in range(300)]
        staged.append([loss(one, some.y[test], task) for one in stages])
        best = [int(np.argmin(staged[-1][: j + 1])) for j in range(300)]
        stopped.append(next((j + 1 for j in range(300) if j - best[j] >= PATIENCE), 300))
    total = np.sum([one[: min(stopped)] for one in staged], axis=0)
    assert {len(model.trees.trees) // model.trees.sums for model in base.models} == {int(np.argmin(total)) + 1}
    for model, (_, test) in zip(base.models, parts, strict=True):
        again = model.booster_.predict(some.inputs.numbers[test])
        assert again == pytest.approx(found[test], abs=1e-12)


def loss(found: Array, y: Array, task: Task) -> float:
    if task is NUMBER:
        return float(((found - y) ** 2).sum())
    if task is BINARY:
        return float(-np.log(np.where(y > 0.5, found, 1 - found)).sum())
    return float(-np.log(found[np.arange(len(y)), y.astype(int)]).sum())


def test_default_base_of_a_constant_number_predicts_it() -> None:
    some = rows(task=NUMBER)
    base = LightGBMBase(200, NUMBER)
    assert learned(base, Rows(some.inputs, np.full(200, 7.5))) == pytest.approx(np.full(200, 7.5))
    assert base.predict(some.inputs) == pytest.approx(np.full(200, 7.5))


@pytest.mark.parametrize("rare", [1, 3])
def test_default_base_reads_a_class_with_fewer_rows_than_folds(rare: int) -> None:
    some = rows()
    y = some.y.copy()
    y[:rare] = 2.0
    found = learned(LightGBMBase(200, LEVELS), Rows(some.inputs, y))
    assert found.sum(1) == pytest.approx(np.ones(200))
    assert found[:, 2].mean() < 0.1
