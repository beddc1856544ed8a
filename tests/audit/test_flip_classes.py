"""Flip one attribute and compare: targets with several classes, several notions, ratios, quotas, strata, precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recording import People, distances, estimator, make_people, problems, run
from sklearn.linear_model import LogisticRegression

from justitia import PostProcessingPlan
from justitia.notions import FairnessNotion

PLAN = PostProcessingPlan(checks=2)
OPTIONS: dict[str, Any] = {"engine": "post-processing", "plan": PLAN, "tolerance": 0.0, "base": LogisticRegression()}
CLASSES = ("demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity")
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


@pytest.mark.parametrize("notion", CLASSES)
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
