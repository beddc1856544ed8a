"""The contract of every engine's plan: what is refused, and what calibration does."""

import copy
import math
import re
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from engine_cases import ENGINES, Case, every_engine, fit, model, people, private_engines

pytestmark = pytest.mark.usefixtures("quick_fits")


@every_engine
def test_contract_more_budget_is_less_noise_in_a_new_plan(case: Case) -> None:
    before = copy.deepcopy(case.plan)
    plans = [case.plan.calibrate(epsilon, 1e-5, n=90) for epsilon in (0.5, 1.0, 8.0)]
    noises = [case.noise(plan) for plan in plans]
    for more, less in pairwise(noises):
        assert all(one > other > 0 for one, other in zip(more, less, strict=True))
    assert not any(case.noise(case.plan.calibrate(math.inf, 1e-5, n=90)))
    assert case.plan == before
    assert all(type(plan) is type(case.plan) and plan != case.plan for plan in plans)
    assert plans[1].calibrate(1.0, 1e-5, n=90) == plans[1]
    assert plans[2].calibrate(1.0, 1e-5, n=90) == plans[1]


@private_engines
def test_contract_calibrated_plan_costs_its_budget_and_not_more(case: Case) -> None:
    for epsilon in (0.1, 1.0, 8.0):
        assert epsilon * (1 - 1e-6) < case.plan.calibrate(epsilon, 1e-5, n=90).epsilon(1e-5) <= epsilon


@every_engine
def test_contract_plan_without_noise_has_no_costs_yet(case: Case) -> None:
    with pytest.raises(ValueError, match=r"no noise yet; call plan.calibrate\(epsilon, delta, n=...\) first"):
        case.plan.costs()


@every_engine
def test_contract_plan_for_a_tolerance_is_the_same_for_the_same_tolerance_again(case: Case) -> None:
    once = case.plan.at_tolerance(0.0)
    assert once.at_tolerance(0.0) == once
    assert once.at_tolerance(None) == case.plan.at_tolerance(None)


#: Settings that hold no number of their own: what ``calibrate`` sets, and what torch checks in the rehearsal.
NOT_NUMBERS = re.compile("noise_|sigma_|small_budget|claim|optimizer|absolute|tolerance|clip$")


@every_engine
def test_contract_setting_out_of_its_range_is_refused_in_one_sentence(case: Case) -> None:
    numbers = [field.name for field in fields(case.plan) if not NOT_NUMBERS.match(field.name)]
    assert len(numbers) > 6
    for name in [*numbers, *(name for name in ("optimizer", "clip") if hasattr(case.plan, name))]:
        wrongs: tuple[Any, ...] = (-1, math.nan, "none of these", None)
        for wrong in wrongs:
            with pytest.raises((ValueError, TypeError)) as caught:
                replace(case.plan, **{name: wrong})
            sentence = str(caught.value)
            assert name in sentence, sentence
            assert "\n" not in sentence


@every_engine
def test_contract_noise_that_is_none_is_refused_in_one_sentence(case: Case) -> None:
    for name in [field.name for field in fields(case.plan) if re.match("noise_|sigma_", field.name)]:
        with pytest.raises((ValueError, TypeError), match=name):
            replace(case.plan, **{name: -1})  # type: ignore[arg-type]


@every_engine
def test_contract_name_or_plan_of_another_engine_is_refused_in_one_sentence(case: Case) -> None:
    with pytest.raises(ValueError, match=f"no engine '{case.name}s?x'; did you mean '{case.name}'"):
        fit(model(case, engine=f"{case.name}x"), people())
    for other in ENGINES.values():
        if other is not case:
            with pytest.raises(TypeError, match=f"expected a {type(case.plan).__name__} for engine '{case.name}'"):
                fit(model(case, plan=other.plan), people())


@every_engine
def test_contract_unknown_setting_is_refused_by_name(case: Case) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'warmup'"):
        type(case.plan)(warmup=3)  # type: ignore[call-arg]
