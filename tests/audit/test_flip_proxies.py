"""Flip one attribute and compare: fits whose rows know a proxy of the group; and replay on neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from recording import People, distances, make_people, problems, run
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.audit import audit
from justitia.postprocessing.proxies import AveragedMemberships
from justitia.postprocessing.solver import PostProcessingRun

PLAN = PostProcessingPlan(checks=2)
OPTIONS: dict[str, Any] = {"engine": "post-processing", "plan": PLAN, "tolerance": 0.0, "base": LogisticRegression()}


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
