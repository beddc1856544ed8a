"""What is deployed of multipliers and memberships: trees that say t(x), alone or for any multipliers."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import justitia.engines.plugin.correction as module
from justitia.engines.plugin.correction import Correction, Distillation

Array = NDArray[np.float64]


def rows(n: int = 3000) -> tuple[NDArray[np.float32], Array, Array]:
    """Features, eta and two smooth columns c that they tell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    eta = 1 / (1 + np.exp(-X[:, 0]))
    first = 2 / (1 + np.exp(-X[:, 1] - 0.5 * X[:, 0]))
    return X.astype(np.float32), eta, np.column_stack([first, 2 - first])


LAM = np.array([0.3, -0.3])


@pytest.fixture(scope="module")
def made() -> Distillation:
    return Distillation(*rows(), LAM, 2 * rows()[1] - 1)


def told(correction: Correction) -> Array:
    numbers, eta, _ = rows()
    return correction(numbers, eta)


def leaves(correction: Correction) -> list[Array]:
    trees = correction.booster
    trees = trees.dump_model()["tree_info"]
    found = []
    for tree in trees:
        values: dict[int, float] = {}
        stack = [tree["tree_structure"]]
        while stack:
            node = stack.pop()
            if "leaf_value" in node:
                values[node.get("leaf_index", 0)] = node["leaf_value"]
            else:
                stack += [node["left_child"], node["right_child"]]
        found.append(np.array([values[j] for j in sorted(values)]))
    return found


def test_correction_of_the_multipliers_it_was_learned_from_is_close_to_its_target(made: Distillation) -> None:
    target = rows()[2] @ LAM
    error = told(made.correction(LAM)) - target
    assert np.sqrt((error**2).mean()) < 0.03 * target.std()


def test_correction_of_other_multipliers_is_close_to_theirs(made: Distillation) -> None:
    for lam in (np.array([-0.8, 0.8]), np.array([0.5, 0.2]), 0.01 * LAM):
        target = rows()[2] @ lam
        error = told(made.correction(lam)) - target
        assert np.sqrt((error**2).mean()) < 0.07 * np.sqrt((target**2).mean())


def test_leaves_of_a_sum_are_sums_of_leaves(made: Distillation) -> None:
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    parts = [leaves(made.correction(lam)) for lam in (one, other, 2 * one - 3 * other)]
    assert len(parts[0]) == module.TREES
    for first, second, both in zip(*parts, strict=True):
        assert both == pytest.approx(2 * first - 3 * second, abs=1e-9)
    whole = told(made.correction(2 * one - 3 * other))
    assert whole == pytest.approx(2 * told(made.correction(one)) - 3 * told(made.correction(other)), abs=1e-8)


def test_corrections_of_one_distillation_split_where_the_first_does(made: Distillation) -> None:
    def splits(correction: Correction) -> list[Any]:
        return correction.booster.trees_to_dataframe()[["split_feature", "threshold"]].dropna().to_numpy().tolist()

    assert splits(made.correction(LAM)) == splits(made.correction(np.array([0.1, 0.7])))


def test_correction_without_trees_is_zero_everywhere() -> None:
    assert not told(Correction()).any()
    assert Correction().booster is None


def test_correction_survives_a_pickle(made: Distillation) -> None:
    for lam in (LAM, np.array([0.1, 0.7])):
        correction = made.correction(lam)
        again = pickle.loads(pickle.dumps(correction))
        assert np.array_equal(told(again), told(correction))


def test_correction_holds_nothing_with_a_row_per_person(made: Distillation) -> None:
    for one in (made.correction(LAM), made.correction(np.array([0.1, 0.7]))):
        assert set(vars(one)) <= {"_text", "_leaves", "booster"}
        assert all(len(part) <= module.LEAVES for part in one._leaves or ())


def test_many_rows_are_learned_from_by_a_public_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 1000)
    numbers, eta, c = rows()
    found = Distillation(numbers, eta, c, LAM, 2 * eta - 1)
    assert len(found._c) == 1000
    target = c @ LAM
    assert np.sqrt(((told(found.correction(LAM)) - target) ** 2).mean()) < 0.15 * target.std()


def test_rows_near_the_line_are_learned_best() -> None:
    numbers, eta, c = rows()
    gain, target = 2 * eta - 1, c @ LAM
    missed = np.abs(told(Distillation(numbers, eta, c, LAM, gain).correction(LAM)) - target)
    equal = np.abs(told(Distillation(numbers, eta, c, LAM, np.full(len(eta), 9.0)).correction(LAM)) - target)
    near = np.abs(gain - target) < module.NEAR
    assert missed[near].mean() < 0.9 * equal[near].mean()
