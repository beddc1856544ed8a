"""A new notion and a new base are one class each: they pass the shared contracts, and a fit uses them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from new_base import FrequencyTable
from new_notion import BenefitParity

from justitia import LagrangianDualClassifier, MomentsPlan, PostProcessingPlan, measure
from justitia.datasets import make_synthetic
from justitia.metrics.exact import violation

pytestmark = pytest.mark.usefixtures("quick_fits")

DATA = make_synthetic(3000, groups=("a", "b"), n_features=3, random_state=1)
NEW = make_synthetic(3000, groups=("a", "b"), n_features=3, random_state=2)


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
