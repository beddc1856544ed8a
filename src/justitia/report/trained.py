"""What was trained, in words: the model's public side, every setting, and the call that would train it again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from justitia.engines import name_of
from justitia.estimator import LagrangianDualClassifier
from justitia.notions import notion_name as named_notion
from justitia.preprocessing.encoding import CategoryColumn, NumberColumn
from justitia.report.formatting import ENGINES, NOTIONS, listed, plain_name, short

#: Facts that are called something else on the page.
NAMES = {
    "sensitive": "Sensitive attribute",
    "key": "Key that joins it",
    "person": "Ids of people",
    "noisy_violation": "Violation in training, noised",
}


def notion_name(model: LagrangianDualClassifier) -> str:
    """How tables call the notion."""
    return named_notion(model.notion)


def about(
    model: LagrangianDualClassifier, others: Mapping[str, Any], positive_means: str | None = None
) -> tuple[tuple[str, str], ...]:
    """What was trained: the model's public side, then the facts that came with it."""
    meaning = "" if positive_means is None else f": {positive_means}"
    rows = {
        "Decision": f"{model.classes_[1]} (positive{meaning}) or {model.classes_[0]}",
        "Notion of fairness": f"{plain_name(notion_name(model))}: {NOTIONS.get(notion_name(model), 'the user’s own')}",
        "Groups": f"{listed(model.certificate_.groups)} ({model.certificate_.groups_source})",
        "Engine": ENGINES.get(name_of(model.plan_), ""),
        "Features": f"{model.n_features_in_}; the sensitive attribute is not among them",
        **(_rule(model) if hasattr(model, "rule_") else {"Network": _network(model)}),
    }
    return (*rows.items(), *((_fact_name(name), _fact(name, value)) for name, value in others.items()))


def features(
    model: LagrangianDualClassifier, looked_at: Sequence[Mapping[str, Any]] = ()
) -> tuple[tuple[str, str], ...]:
    """Every public feature, and how it was read; then the columns of its file that are no features.

    Parameters
    ----------
    looked_at : sequence of mappings
        Name and kind of each column of the file, and what is in it.
    """
    if not hasattr(model, "encoder_"):
        return tuple((name, "a number, as it was given") for name in _names(model))
    seen = {str(one["name"]): ", ".join(filter(None, (one["kind"], one.get("says")))) for one in looked_at}
    used = {str(one.name): _how_read(one, seen.get(str(one.name), "number")) for one in model.encoder_.columns_}
    return tuple((used | {name: how for name, how in seen.items() if name not in used}).items())


def _names(model: LagrangianDualClassifier) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    return [f"column {place + 1}" for place in range(model.n_features_in_)] if given is None else [*map(str, given)]


def _how_read(column: NumberColumn | CategoryColumn, number: str) -> str:
    missing = "; one more column says where it is missing" if column.missing else ""
    if isinstance(column, NumberColumn):
        filled = f", gaps filled with the median {column.median:.6g}" if column.missing else ""
        return f"{number}{filled}{missing}"
    rest = ", rarer ones together" if column.other else ""
    few = f" ({', '.join(column.levels)})" if len(column.levels) <= 8 else ""
    return f"category of {len(column.levels)} levels{few}{rest}{missing}"


def plan_digest(model: LagrangianDualClassifier) -> str:
    """A name for the settings of the plan: equal plans have equal digests."""
    text = json.dumps([name_of(model.plan_), *settings(model)])
    return hashlib.sha256(text.encode()).hexdigest()


def _network(model: LagrangianDualClassifier) -> str:
    from justitia.networks.multilayer import widths_of  # noqa: PLC0415 - needs torch, which a network has

    widths = widths_of(model.module_)
    weights = sum(parameter.numel() for parameter in model.module_.parameters())
    name = type(model.module_).__name__ if widths is None else "-".join(str(width) for width in widths)
    return f"{name}, {weights:,} weights"


def _rule(model: LagrangianDualClassifier) -> dict[str, str]:
    rule = model.rule_
    return {
        "Base": rule.base.describe(),
        "Calibration of the base": rule.calibration.describe(),
        "Correction": rule.correction.describe(),
        "Decides above": f"{rule.threshold:.4g}",
    }


def _fact_name(name: str) -> str:
    words = NAMES.get(name, plain_name(name))
    return words[:1].upper() + words[1:]


def _fact(name: str, value: Any) -> str:
    counts = isinstance(value, int) and not isinstance(value, bool) and name == "rows"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if counts else short(value)


def settings(model: LagrangianDualClassifier) -> tuple[tuple[str, str], ...]:
    """Every public number of the run."""
    plan = model.plan_
    return tuple((field.name, short(_setting(getattr(plan, field.name)))) for field in fields(plan))


def _setting(value: Any) -> Any:
    return value.noise_multiplier if hasattr(value, "noise_multiplier") else value


def snippet(model: LagrangianDualClassifier, notion: str) -> str:
    """The call that made this model, for whoever has its people."""
    seed = model.random_state if isinstance(model.random_state, int) else None
    options = {
        "epsilon": float(model.epsilon),
        "delta": float(model.delta),
        "tolerance": model.tolerance,
        "groups": _plain_groups(model.groups),
        "engine": name_of(model.plan_),
        "random_state": seed,
    }
    if hasattr(model, "rule_"):
        options |= _decisions(model)
    written = "".join(f"    {name}={_python(value)},\n" for name, value in options.items())
    return (
        f"model = LagrangianDualClassifier(\n    {notion!r},\n{written})\n"
        f"model.fit(X, y, sensitive_features=A)  # {model.n_features_in_} public features; A is private"
    )


def _decisions(model: LagrangianDualClassifier) -> dict[str, Any]:
    """Arguments of engine "post-processing" that are not the default; a model cannot be written here."""
    base = model.rule_.base
    chosen: dict[str, Any] = {} if getattr(base, "encoded", False) else {"base": getattr(base, "name", ...)}
    chosen |= {} if float(model.threshold) == 0.5 else {"threshold": float(model.threshold)}
    return chosen | ({} if model.class_weight is None else {"class_weight": model.class_weight})


def _plain_groups(groups: Any) -> Any:
    if groups is None or isinstance(groups, str | Mapping):
        return groups
    return [group.item() if hasattr(group, "item") else group for group in groups]


def _python(value: Any) -> str:
    if value is ...:
        return "..."
    return 'float("inf")' if isinstance(value, float) and math.isinf(value) else repr(value)
