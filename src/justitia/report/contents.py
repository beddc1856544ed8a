"""Everything that page and card say, as plain data: public facts of a fitted model and numbers that were noised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any

import pandas as pd

from justitia.engines import engine_of
from justitia.estimator import LagrangianDualClassifier
from justitia.networks.multilayer import widths_of
from justitia.notions import FairnessNotion
from justitia.privacy.accounting import GaussianCost, epsilon_spent
from justitia.privacy.ledger import Certificate, rounded_up
from justitia.report.formatting import ENGINES, NOTIONS, bounds, listed, number, plain_name, short, tolerance_sentence
from justitia.report.inputs import Curve, MeasurementInput
from justitia.training.history import Column, names_of

#: Most rounds that a chart and its table show; a longer history is thinned evenly.
MOST_ROUNDS = 100
#: Facts that the model itself tells; and those that are exact if there is no noise.
TOLD, NOISED = frozenset({"groups", "classes", "positive"}), frozenset({"noisy_violation"})
#: Facts with a place of their own on the page, by the names they may come under.
KNOWN = {
    "title": ("title",),
    "accuracy": ("accuracy", "training_accuracy", "training accuracy", "public_accuracy"),
    "command": ("command", "command_line", "command line"),
    "created": ("created",),
    "version": ("version", "justitia_version", "justitia version", "justitia"),
}


@dataclass(frozen=True)
class Spending:
    """One kind of release: how often, with which noise, and its part of the budget."""

    purpose: str
    mechanism: str
    count: int
    noise_multiplier: float | None
    alone: float | None
    share: float | None


@dataclass(frozen=True)
class Contents:
    """What one report says.

    Guarantee
    ---------
    * Made of what ``fit`` and ``measure`` released and of public facts: no function here takes an attribute.
    * If the certificate has no finite epsilon, numbers by group of training people are exact, and none is kept:
      ``multipliers``, ``curve``, remarks and the noisy violation are left out.
    * ``history`` and ``columns`` have what is public or noised, by the status of each column.
    """

    title: str
    notion: str
    notion_words: str
    groups: tuple[str, ...]
    events: tuple[str, ...]
    classes: tuple[str, ...]
    tolerance: float | None
    tolerance_words: str
    certificate: Certificate
    accuracy: float | None
    accuracy_source: str
    history: pd.DataFrame
    columns: tuple[Column, ...]
    rounds: int
    last_gaps: tuple[tuple[str, float], ...]
    multipliers: pd.DataFrame | None
    spending: tuple[Spending, ...]
    measured: MeasurementInput | None
    measured_exact: bool
    curve: Curve | None
    about: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    snippet: str
    command: str | None
    created: str | None
    version: str

    @property
    def private(self) -> bool:
        """Whether training had a privacy guarantee."""
        return math.isfinite(self.certificate.epsilon)


def read_contents(
    model: LagrangianDualClassifier,
    measured: MeasurementInput | None,
    curve: Curve | None,
    facts: Mapping[str, Any],
) -> Contents:
    """What a report on this model says."""
    own, others = _sorted_facts(facts)
    private = math.isfinite(model.certificate_.epsilon)
    certificate = model.certificate_.without_exact_remarks()
    columns = tuple(column for column in model.history_columns_ if column.released)
    name = notion_name(model)
    accuracy, accuracy_source = _accuracy(own.get("accuracy"), model.history_)
    return Contents(
        title=str(own.get("title") or "Model report"),
        notion=name,
        notion_words=NOTIONS.get(name, "a notion of the user's own"),
        groups=tuple(str(group) for group in model.dual_.index),
        events=tuple(str(event) for event in model.dual_.columns),
        classes=tuple(str(label) for label in model.classes_),
        tolerance=model.tolerance,
        tolerance_words=tolerance_sentence(model.tolerance, engine_of(model.engine, model.module)),
        certificate=certificate,
        accuracy=accuracy,
        accuracy_source=accuracy_source,
        history=_thinned(model.history_[names_of(columns)]),
        columns=columns,
        rounds=len(model.history_),
        last_gaps=_last_gaps(model.history_, columns),
        multipliers=model.dual_ if private else None,
        spending=spending(certificate),
        measured=measured if measured is None or measured.private else None,
        measured_exact=measured is not None and not measured.private,
        curve=curve if private else None,
        about=_about(model, {n: v for n, v in others.items() if private or n not in NOISED}),
        settings=_settings(model),
        snippet=_snippet(model, name),
        command=None if own.get("command") is None else short(own["command"]),
        created=None if own.get("created") is None else short(own["created"]),
        version=str(own.get("version") or metadata.version("justitia")),
    )


def _sorted_facts(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts with a place of their own, and the others that say something."""
    own = {
        place: next(facts[name] for name in names if name in facts)
        for place, names in KNOWN.items()
        if any(name in facts for name in names)
    }
    taken = {name for names in KNOWN.values() for name in names}
    others = {str(name): value for name, value in facts.items() if name not in taken | TOLD}
    return own, {name: value for name, value in others.items() if value is not None and value != []}


def notion_name(model: LagrangianDualClassifier) -> str:
    """How tables call the notion."""
    return model.notion.name if isinstance(model.notion, FairnessNotion) else str(model.notion)


def _accuracy(given: Any, history: pd.DataFrame) -> tuple[float | None, str]:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given), "on the training rows"
    if "accuracy" in history and len(history):
        return float(history["accuracy"].iloc[-1]), "on the rows of the last training round"
    return None, "not recorded"


def _thinned(history: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_ROUNDS rows, first and last among them."""
    most, last = MOST_ROUNDS - 1, len(history) - 1
    return history if last <= most else history.iloc[[round(k * last / most) for k in range(MOST_ROUNDS)]]


def _last_gaps(history: pd.DataFrame, columns: Sequence[Column]) -> tuple[tuple[str, float], ...]:
    """Noised gaps of the last round that has them, by group (and event, if there are several)."""
    of_groups = [column for column in columns if column.kind == "noisy_gap"]
    known = history[[column.name for column in of_groups]].dropna(how="all")
    if known.empty:
        return ()
    several = len({column.event for column in of_groups}) > 1
    return tuple(
        (f"{one.event}, {one.group}" if several else str(one.group), float(known[one.name].iloc[-1]))
        for one in of_groups
    )


def spending(certificate: Certificate) -> tuple[Spending, ...]:
    """Where the budget went; shares of mu^2 if all of it went into Gaussian releases.

    For those the costs 1/sigma^2 add up to mu^2, so shares are exact; other costs do not add up, and have none.
    """
    entries = certificate.releases
    squares = [_square(entry) for entry in entries]
    total = sum(one for one in squares if one is not None)
    shares = [None if None in squares or one is None else one / total for one in squares]
    return tuple(
        Spending(
            purpose=str(entry["purpose"]),
            mechanism=str(entry["mechanism"]),
            count=int(entry["count"]),
            noise_multiplier=entry["noise_multiplier"],
            alone=_alone(entry, certificate.delta),
            share=share,
        )
        for entry, share in zip(entries, shares, strict=True)
    )


def _square(entry: Mapping[str, Any]) -> float | None:
    if entry["mechanism"] != "gaussian":
        return None
    return float(entry["count"] / entry["noise_multiplier"] ** 2)


def _alone(entry: Mapping[str, Any], delta: float) -> float | None:
    """Epsilon of these releases without the others; None where the certificate does not hold enough to tell."""
    if entry["mechanism"] == "gaussian":
        return epsilon_spent({GaussianCost(entry["noise_multiplier"]): entry["count"]}, delta)
    if entry["mechanism"] == "randomized response":
        return float(entry["epsilon"] * entry["count"])
    return math.inf if entry["mechanism"] == "unprotected" else None


def _about(model: LagrangianDualClassifier, others: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What was trained: the model's public side, then the facts that came with it."""
    widths = widths_of(model.module_)
    weights = sum(parameter.numel() for parameter in model.module_.parameters())
    network = type(model.module_).__name__ if widths is None else "-".join(str(width) for width in widths)
    rows = {
        "Decision": f"{model.classes_[1]} (positive) or {model.classes_[0]}",
        "Notion of fairness": f"{plain_name(notion_name(model))}: {NOTIONS.get(notion_name(model), 'the user’s own')}",
        "Groups": f"{listed(model.certificate_.groups)} ({model.certificate_.groups_source})",
        "Engine": ENGINES.get(engine_of(model.engine, model.module), ""),
        "Features": f"{model.n_features_in_}; the sensitive attribute is not among them",
        "Network": f"{network}, {weights:,} weights",
    }
    return (*rows.items(), *((_fact_name(name), _fact(name, value)) for name, value in others.items()))


def _fact_name(name: str) -> str:
    words = plain_name(name)
    return words[:1].upper() + words[1:]


def _fact(name: str, value: Any) -> str:
    counts = isinstance(value, int) and not isinstance(value, bool) and name in {"rows", "columns", "people"}
    return f"{value:,}" if counts else short(value)


def _settings(model: LagrangianDualClassifier) -> tuple[tuple[str, str], ...]:
    """Every public number of the run."""
    plan = model.plan_
    return tuple((field.name, short(_setting(getattr(plan, field.name)))) for field in fields(plan))


def _setting(value: Any) -> Any:
    return value.noise_multiplier if hasattr(value, "noise_multiplier") else value


def _snippet(model: LagrangianDualClassifier, notion: str) -> str:
    """The call that made this model, for whoever has its people."""
    seed = model.random_state if isinstance(model.random_state, int) else None
    options = {
        "epsilon": float(model.epsilon),
        "delta": float(model.delta),
        "tolerance": model.tolerance,
        "groups": _plain_groups(model.groups),
        "engine": engine_of(model.engine, model.module),
        "random_state": seed,
    }
    written = "".join(f"    {name}={_python(value)},\n" for name, value in options.items())
    return (
        f"model = LagrangianDualClassifier(\n    {notion!r},\n{written})\n"
        f"model.fit(X, y, sensitive_features=A)  # {model.n_features_in_} public features; A is private"
    )


def _plain_groups(groups: Any) -> Any:
    if groups is None or isinstance(groups, str | Mapping):
        return groups
    return [group.item() if hasattr(group, "item") else group for group in groups]


def _python(value: Any) -> str:
    return 'float("inf")' if isinstance(value, float) and math.isinf(value) else repr(value)


def headline(contents: Contents) -> tuple[tuple[str, str, str], ...]:
    """The four numbers to read first: what, how much, in which sense."""
    violation, sense = _headline_violation(contents)
    tolerance = "by the noise" if contents.tolerance is None else f"{contents.tolerance:.4g}"
    privacy = ("none", "seeded noise, for reproduction" if contents.certificate.reproduction else "no guarantee")
    if contents.private and not contents.certificate.reproduction:
        epsilon, delta = rounded_up(contents.certificate.epsilon), f"{contents.certificate.delta:.4g}"
        privacy = (f"\N{GREEK SMALL LETTER EPSILON} = {epsilon}", f"\N{GREEK SMALL LETTER DELTA} = {delta}")
    return (
        ("Accuracy", *_headline_accuracy(contents)),
        ("Violation", violation, sense),
        ("Tolerance asked", tolerance, "largest difference of a group to everybody"),
        ("Privacy", *privacy),
    )


def _headline_accuracy(contents: Contents) -> tuple[str, str]:
    """On evaluation people if it is known there."""
    measured = contents.measured
    if measured is None or measured.accuracy is None:
        return number(contents.accuracy), contents.accuracy_source
    return number(measured.accuracy), f"on {measured.people:,} rows of evaluation people"


def _headline_violation(contents: Contents) -> tuple[str, str]:
    """The model's own notion if it was measured, otherwise the first one that was."""
    found = () if contents.measured is None else contents.measured.violations
    one = next((one for one in found if one.notion == contents.notion), next(iter(found), None))
    if one is None:
        return "not measured", "on evaluation people, see below"
    if one.estimate is None:
        return "not known", "not enough evidence"
    of = "" if one.notion == contents.notion else f" in {plain_name(one.notion)}"
    return number(one.estimate), f"largest difference between two groups{of}, {bounds(one.lower, one.upper)}, noised"
