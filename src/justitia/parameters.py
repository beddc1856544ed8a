"""What the parameters of an estimator have to be, told without looking at data."""

from __future__ import annotations

import copy
import numbers
from dataclasses import replace
from typing import TypeVar

from sklearn.base import BaseEstimator

from justitia._validate import check_choice, check_int, check_nonnegative
from justitia.engines import default_plan, engine_of, warn_of_old_name
from justitia.notions import FairnessNotion, get_notion
from justitia.postprocessing.plan import AT, PostProcessingPlan
from justitia.privacy.door import check_budget, named_groups
from justitia.training.plan import Plan

Model = TypeVar("Model", bound=BaseEstimator)


def check_parameters(model: BaseEstimator) -> tuple[FairnessNotion, Plan]:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notion, plan = get_notion(model.notion), plan_of(model)
    check_budget(model.epsilon, model.delta)
    named_groups(model.groups, float(model.epsilon))
    if model.tolerance is not None:
        check_nonnegative("tolerance", model.tolerance)
    if model.preprocess is not None:
        check_choice("preprocess", model.preprocess, ("auto",))
    if model.noise_seed is not None:
        check_int("noise_seed", model.noise_seed, at_least=0)
    if not (model.progress is None or isinstance(model.progress, bool)):
        raise TypeError(f"expected progress to be True, False or None, got {type(model.progress).__name__!r}.")
    _check_decisions(model, plan)
    if isinstance(plan, PostProcessingPlan):
        plan = replace(plan, at=check_choice("at", model.at, AT))
    return notion, plan


def plan_of(model: BaseEstimator) -> Plan:
    """The plan that was passed, or the default one of the engine."""
    engine = engine_of(model.engine, model.module)
    warn_of_old_name(model.engine)
    default = default_plan(engine)
    plan = default if model.plan is None else model.plan
    if not isinstance(plan, type(default)):
        raise TypeError(
            f"expected a {type(default).__name__} for engine {engine!r}, got {type(plan).__name__}; "
            "pass a plan of that kind, or none."
        )
    return plan


def _check_decisions(model: BaseEstimator, plan: Plan) -> None:
    """What only one kind of engine understands."""
    network = plan.trains_network
    if network and (model.base is not None or model.threshold != 0.5 or model.class_weight is not None):
        raise ValueError(
            "expected engine 'post-processing' where base, threshold or class_weight is given, got one that trains a "
            "network; leave engine and module out."
        )
    if network and model.at != "decision":
        raise ValueError(
            f"expected at='decision' with an engine that trains a network, got {model.at!r}; leave engine and module "
            "out."
        )
    if not network and model.module is not None:
        raise ValueError(
            "expected no module with engine 'post-processing', got one; pass it as base, or use engine 'moments'."
        )
    threshold = model.threshold
    if not (isinstance(threshold, numbers.Real) and 0 < float(threshold) < 1):
        raise ValueError(f"expected threshold to be a number between 0 and 1, got {threshold!r}.")
    if threshold != 0.5 and model.class_weight is not None:
        raise ValueError("expected threshold or class_weight, got both; costs of errors set the threshold.")


def unfitted(model: Model) -> Model:
    """A model with the same parameters; unlike scikit-learn's clone it leaves a fitted base fitted."""
    parameters = model.get_params(deep=False)
    parameters["random_state"] = copy.deepcopy(parameters["random_state"])
    fresh: Model = type(model)(**parameters)
    return fresh
