"""Where no tolerance is given and noise is large, the correction promises less and costs little accuracy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_setting import PLAN, Setting, classifier, setting

from justitia import PostProcessingPlan
from justitia.exceptions import NoisyEstimateWarning
from justitia.training.diagnostics import constant_accuracy, weighted_accuracy


class _Bar:
    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self) -> None: ...


def trained(**changes: Any) -> Setting:
    some = setting(**changes)
    some.run.train(lambda *_: _Bar())
    return some


def lost(some: Setting) -> float:
    """Accuracy that the correction costs, out of fold."""
    scores, base = some.run.scores(), some.run.base_scores()
    return weighted_accuracy(some.problem, base) - weighted_accuracy(some.problem, scores)


#: So little that it matters for these rows.
MOST_LOST = 0.005
SMALL: dict[str, Any] = {
    "tolerance": None,
    "epsilon": 0.29,
    "n": 2000,
    "plan": replace(PLAN, dead_zone=0.0, most_lost=MOST_LOST),
}


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
@pytest.mark.parametrize("epsilon", [0.05, 0.29])
def test_small_budget_costs_little_accuracy_and_never_more_than_one_decision_for_all(
    notion: str, epsilon: float
) -> None:
    some = trained(notion=notion, **SMALL | {"epsilon": epsilon})
    base = some.run.base_scores()
    least = min(weighted_accuracy(some.problem, base), constant_accuracy(some.problem, base))
    assert lost(some) <= MOST_LOST
    assert weighted_accuracy(some.problem, some.run.scores()) >= least


def test_correction_without_the_limit_costs_more_and_the_limit_says_what_remains() -> None:
    free = trained(**SMALL | {"plan": replace(PLAN, dead_zone=0.0, most_lost=1.0)})
    some = trained(**SMALL)
    assert lost(free) > MOST_LOST >= lost(some)
    assert some.run.tolerance > free.run.tolerance
    assert some.run.worst(some.run.scores())[0] == pytest.approx(some.run.tolerance, abs=0.02)  # type: ignore[index]
    said = [one for one in some.run.diagnostics() if "does not allow correcting more" in one]
    assert [one.category for one in said] == [NoisyEstimateWarning]
    assert not any("does not allow correcting more" in one for one in free.run.diagnostics())


@pytest.mark.parametrize("changes", [{"tolerance": 0.0}, {"epsilon": 8.0}, {"tolerance": np.array([0.01])}])
def test_tolerance_that_is_given_or_a_larger_budget_is_not_touched(changes: dict[str, Any]) -> None:
    some = trained(**SMALL | changes)
    assert some.run._raised == 0.0
    assert lost(some) > MOST_LOST


def test_small_noise_beside_what_is_to_be_corrected_decides_where_the_budget_is_not_small() -> None:
    plan = replace(PLAN, dead_zone=0.0, least=0.0)
    few, many = (trained(tolerance=None, epsilon=0.5, n=n, plan=plan) for n in (60, 6000))
    assert few.run._spares_accuracy()
    assert not many.run._spares_accuracy()


def test_run_at_another_tolerance_is_not_limited() -> None:
    some = trained(**SMALL)
    follower = some.run.at(0.0)
    follower.train(lambda *_: _Bar())
    assert follower.tolerance == 0.0
    assert not any("does not allow correcting more" in one for one in follower.diagnostics())


def test_model_and_certificate_show_the_tolerance_in_force_and_the_sentence() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((1500, 3))
    y = (X[:, 0] + X[:, 1] + 0.5 * generator.standard_normal(1500) > 0).astype(int)
    group = np.where(X[:, 1] + 0.5 * generator.standard_normal(1500) > 0, "f", "m")
    model = classifier(epsilon=0.25, plan=PostProcessingPlan(dead_zone=0.0))
    with pytest.warns(NoisyEstimateWarning, match="does not allow correcting more"):
        model.fit(X, y, sensitive_features=group)
    assert any("does not allow correcting more" in one for one in model.certificate_.remarks)
    assert model.tolerance_ > 0.01
    assert model.plan_.small_budget
