"""A curve of tolerances on one budget."""

import math
from typing import Any

import numpy as np
import pytest

from justitia import BudgetExceeded, LagrangianDualClassifier, MomentsPlan, PrivacyLedger, Tradeoff, tradeoff
from justitia.datasets import make_synthetic
from justitia.exceptions import DeprecatedNameWarning, NoisyEstimateWarning
from justitia.metrics.exact import violation

pytestmark = pytest.mark.usefixtures("quick_fits")

DATA = make_synthetic(3000, random_state=0)
GRID = (0.0, 0.05, 0.3)


def unfitted(**parameters: Any) -> LagrangianDualClassifier:
    plan = MomentsPlan(warmup_steps=200, rounds=100, public_steps=5, checks=2, batch_size=512, dual_step=1.0)
    defaults: dict[str, Any] = {"groups": DATA.groups, "engine": "moments", "plan": plan, "random_state": 0}
    return LagrangianDualClassifier(**(defaults | {"noise_seed": 2} | parameters))


def curve(model: LagrangianDualClassifier, **parameters: Any) -> Tradeoff:
    options = {"sensitive_features": DATA.sensitive, "tolerances": GRID} | parameters
    return tradeoff(model, DATA.X, DATA.y, **options)


@pytest.fixture(scope="module")
def made() -> Tradeoff:
    return curve(unfitted())


def exact(model: LagrangianDualClassifier) -> float:
    decided = model.predict(DATA.X)
    return violation(
        DATA.y, decided, sensitive_features=DATA.sensitive, notion="demographic_parity", groups=DATA.groups
    )


def test_curve_costs_what_its_strictest_model_costs(made: Tradeoff) -> None:
    alone = unfitted(tolerance=0.0).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert made.certificate.epsilon == alone.certificate_.epsilon <= 1.0
    assert made.certificate.releases == alone.certificate_.releases
    assert all(model.certificate_ == made.certificate for model in made.models)
    assert len({id(model.ledger_) for model in made.models}) == 1


def test_first_model_is_the_one_that_fit_alone_gives(made: Tradeoff) -> None:
    alone = unfitted(tolerance=0.0).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert np.array_equal(made.models[0].decision_function(DATA.X), alone.decision_function(DATA.X))


def test_larger_tolerances_are_more_accurate_and_less_alike(made: Tradeoff) -> None:
    assert made.table["tolerance"].tolist() == list(GRID)
    assert made.table["accuracy"].is_monotonic_increasing
    assert made.table["noisy_violation"].is_monotonic_increasing
    assert [exact(model) for model in made.models] == pytest.approx(made.table["noisy_violation"], abs=0.03)


def test_every_model_is_fitted_on_its_own(made: Tradeoff) -> None:
    assert [model.tolerance for model in made.models] == list(GRID)
    assert made.models[0].module_ is not made.models[1].module_
    held = made.models[0].plan_.held_rows(len(DATA.y))
    assert len(held) == len(DATA.y) // 10
    right = [np.asarray(model.predict(DATA.X) == DATA.y)[held].mean() for model in made.models]
    assert right == pytest.approx(made.table["accuracy"].tolist(), abs=1e-6)
    assert 0 < made.standard_error < 0.2
    with pytest.warns(DeprecatedNameWarning):
        assert made.spread == made.standard_error


def test_choose_takes_the_most_accurate_model_within_the_violation(made: Tradeoff) -> None:
    strict, middle, _ = made.table["noisy_violation"]
    assert made.choose(1.0).tolerance == 0.3
    assert made.choose(middle).tolerance == 0.05
    assert made.choose(strict / 2).tolerance == 0.0  # none is within: the strictest
    assert made.choose(middle, deviations=1e9).tolerance == 0.0


def test_order_and_repetition_of_the_tolerances_do_not_matter() -> None:
    one, other = curve(unfitted(), tolerances=(0.1, 0.0, 0.1)), curve(unfitted(), tolerances=[0.0, 0.1])
    assert one.table.equals(other.table)


def test_model_itself_is_left_alone() -> None:
    model = unfitted(tolerance=0.7)
    curve(model, tolerances=(0.0,))
    assert model.tolerance == 0.7
    assert not hasattr(model, "module_")


def test_without_privacy_the_curve_says_so() -> None:
    made = curve(unfitted(epsilon=math.inf), tolerances=(0.0, 0.3))
    assert made.certificate.epsilon == math.inf


def test_budget_that_is_too_small_is_refused_before_anything_is_asked() -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        curve(unfitted(), ledger=ledger)
    assert not ledger.releases


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerances": ()}, "expected at least one tolerance, got none"),
        ({"tolerances": (-0.1,)}, "tolerances"),
        ({"tolerances": (math.nan,)}, "tolerances"),
        ({"sample_weight": [1.0]}, "sample_weight"),
    ],
)
def test_wrong_input_is_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curve(unfitted(), **change)


def test_tolerances_that_are_no_sequence_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected tolerances to be a sequence of numbers, got 0\.1"):
        curve(unfitted(), tolerances=0.1)


def test_noise_that_drowns_the_groups_is_said_before_anything_is_asked() -> None:
    ledger = PrivacyLedger(epsilon=0.01, delta=1e-5)
    with pytest.raises(NoisyEstimateWarning):  # warnings are errors here
        curve(unfitted(epsilon=0.01), ledger=ledger)
    assert not ledger.releases


def test_other_engines_and_other_estimators_are_refused() -> None:
    with pytest.raises(ValueError, match="expected engine 'post-processing' or 'moments', got 'pf-ld'"):
        curve(LagrangianDualClassifier(engine="pf-ld"))
    with pytest.raises(TypeError, match="got 'str'"):
        curve("model")  # type: ignore[arg-type]


def test_points_that_follow_promise_what_the_first_one_does_however_short_their_schedule(people: Any) -> None:
    plan = MomentsPlan(warmup_steps=20, rounds=4, public_steps=2, checks=3, batch_size=64)  # the second half has one
    model = LagrangianDualClassifier(epsilon=8.0, groups=["f", "m"], plan=plan, module=(4,), random_state=0)
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    curve = tradeoff(model, people.X, people.y, sensitive_features=people.a, tolerances=(0.05, 0.1, 0.2), ledger=ledger)
    assert {one.certificate_.epsilon for one in curve.models} == {ledger.epsilon()}
    assert {one.certificate_.statement for one in curve.models} == {curve.certificate.statement}
