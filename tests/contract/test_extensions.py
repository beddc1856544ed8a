"""A new notion, base or mechanism is one class each: it passes the shared contracts, and a fit uses it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from new_base import FrequencyTable
from new_mechanism import TwoPartyGaussian
from new_notion import BenefitParity

from justitia import LagrangianDualClassifier, MomentsPlan, PostProcessingPlan, measure
from justitia.datasets import make_synthetic
from justitia.metrics.exact import violation

pytestmark = pytest.mark.usefixtures("quick_fits")

DATA = make_synthetic(3000, groups=("a", "b"), n_features=3, random_state=1)
NEW = make_synthetic(3000, groups=("a", "b"), n_features=3, random_state=2)


class TwoPartyPlan(PostProcessingPlan):
    """The plan of the default engine with the noise of another mechanism, at the same cost."""

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> PostProcessingPlan:
        made = super().calibrate(epsilon, delta, n=n)
        noises = {
            name: TwoPartyGaussian(getattr(made, name).noise_multiplier) for name in ("noise_moments", "noise_checks")
        }
        return replace(made, **noises)


def fitted(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": DATA.groups, "random_state": 0, "noise_seed": 0}
    return LagrangianDualClassifier(**usual | options).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


def gap(model: LagrangianDualClassifier, notion: Any) -> float:
    """Exact, on rows that are new to the model."""
    given = {"sensitive_features": NEW.sensitive, "groups": NEW.groups, "notion": notion}
    return violation(NEW.y, model.predict(NEW.X), **given)


@pytest.mark.parametrize(
    "options",
    [
        {"plan": PostProcessingPlan(checks=2)},
        {
            "engine": "moments",
            "plan": MomentsPlan(warmup_steps=200, rounds=100, public_steps=5, checks=2, batch_size=512, dual_step=1.0),
        },
    ],
    ids=["post-processing", "moments"],
)
def test_new_notion_is_corrected_by_a_fit_and_measured(options: dict[str, Any]) -> None:
    loose, strict = (fitted(notion=BenefitParity(), tolerance=tolerance, **options) for tolerance in (0.9, 0.0))
    assert gap(strict, BenefitParity()) < 0.6 * gap(loose, BenefitParity())
    assert Counter(strict.ledger_.costs()) == strict.plan_.costs()
    assert strict.certificate_.spent_epsilon <= 8.0
    given: dict[str, Any] = {"sensitive_features": NEW.sensitive, "groups": NEW.groups, "epsilon": 8.0}
    found = measure(NEW.y, strict.predict(NEW.X), notion=BenefitParity(), noise_seed=0, **given)
    assert found.violation.estimate == pytest.approx(gap(strict, BenefitParity()), abs=0.02)
    assert "benefit_parity" in found.to_json()


def test_new_base_is_corrected_by_a_fit() -> None:
    loose, strict = (
        fitted(base=FrequencyTable(), tolerance=tolerance, plan=PostProcessingPlan(checks=2))
        for tolerance in (0.9, 0.0)
    )
    assert np.mean(loose.predict(NEW.X) == NEW.y) > 0.6
    assert gap(strict, "demographic_parity") < 0.5 * gap(loose, "demographic_parity")
    assert Counter(strict.ledger_.costs()) == strict.plan_.costs()


def test_new_mechanism_protects_the_releases_of_a_fit() -> None:
    loose, strict = (fitted(tolerance=tolerance, plan=TwoPartyPlan(checks=2)) for tolerance in (0.9, 0.0))
    assert {type(one.noise) for one in strict.plan_.releases()} == {TwoPartyGaussian}
    assert gap(strict, "demographic_parity") < 0.5 * gap(loose, "demographic_parity")
    assert Counter(strict.ledger_.costs()) == strict.plan_.costs()
    usual = fitted(tolerance=0.0, plan=PostProcessingPlan(checks=2))
    assert strict.certificate_.spent_epsilon == usual.certificate_.spent_epsilon <= 8.0
    assert strict.dual_.to_numpy().tolist() != usual.dual_.to_numpy().tolist()
