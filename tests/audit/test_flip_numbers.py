"""Flip one attribute of a fit on a numeric target: nothing public changes, and answers move within the sensitivity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from recording import Outcome, People, largest_movements, make_people, problems, recorded
from sklearn.linear_model import LinearRegression

from justitia import LagrangianDualRegressor, PostProcessingPlan, tradeoff

NOTIONS = ("demographic_parity", "mean_parity", "equal_error")
#: In units of the rates of a target with about ten units between its ends.
TOLERANCES = {"demographic_parity": 0.02, "mean_parity": 0.05, "equal_error": 0.05}


def make(people: People, notion: str, **options: Any) -> LagrangianDualRegressor:
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


def facts(model: LagrangianDualRegressor, people: People) -> dict[str, Any]:
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


def run(people: People, notion: str, answers: Any = None, **options: Any) -> Outcome:
    def call() -> tuple[Any, dict[str, Any]]:
        model = make(people, notion, **options)
        given: dict[str, Any] = {"person": people.ids, "sample_weight": people.weights}
        passed = {name: value for name, value in given.items() if value is not None}
        model.fit(people.X, numbers(people), sensitive_features=list(people.labels), **passed)
        return model, facts(model, people)

    return recorded(call, answers)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("notion", NOTIONS)
def test_one_flipped_attribute_is_hidden_in_a_fit(notion: str, groups: int, missing: bool) -> None:
    people = make_people(groups, missing=missing)
    first = run(people, notion)
    assert [one.purpose for one in first.releases] == ["moments", "decisions", "decisions"]
    moved: dict[str, float] = {}
    for person, label in ((3, "b"), (4, "a"), (5, None)):
        second = run(people.with_label(person, label), notion, first.noisy)
        assert problems(first, second) == []
        for purpose, share in largest_movements(first, second).items():
            moved[purpose] = max(moved.get(purpose, 0.0), share)
    assert moved["moments"] > 0.5  # the runs did differ inside the boundary
    assert moved["decisions"] > 0.01


@pytest.mark.parametrize("notion", NOTIONS)
def test_rows_of_one_person_and_weights_are_hidden_together(notion: str) -> None:
    people = replace(
        make_people(2, missing=False),
        ids=tuple(i // 2 for i in range(240)),
        weights=tuple(1.0 + i % 3 for i in range(240)),
    )
    first = run(people, notion)
    second = run(people.with_labels(7, None), notion, first.noisy)
    assert problems(first, second) == []


@pytest.mark.parametrize("notion", NOTIONS)
def test_whatever_the_attribute_is_the_same_answers_give_the_same_fit(notion: str) -> None:
    people = make_people(2, missing=False)
    first = run(people, notion)
    for labels in ((None,) * 240, ("a",) * 240, ("secret", 7.5, float("nan"), ()) * 60):
        second = run(replace(people, labels=labels), notion, first.noisy)
        assert problems(first, second, neighbours=False) == []


def test_longest_row_of_a_check_of_levels_attains_the_sensitivity() -> None:
    people = make_people(2, missing=False)
    first, most = run(people, "demographic_parity"), 0.0
    order = np.argsort(first.model.predict(people.X))
    for person in (*order[:2], *order[-2:]):
        label = "b" if people.labels[person] == "a" else "a"
        second = run(people.with_label(int(person), label), "demographic_parity", first.noisy)
        most = max(most, largest_movements(first, second)["decisions"])
    assert 0.99 < most <= 1


def test_curve_of_tolerances_is_hidden_too() -> None:
    people = make_people(2, missing=False)

    def call(labels: tuple[Any, ...]) -> Any:
        def curve() -> tuple[Any, dict[str, Any]]:
            found = tradeoff(
                make(people, "demographic_parity"),
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
