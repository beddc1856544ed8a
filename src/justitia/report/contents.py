"""Everything that page and card say, as plain data: public facts of a fitted model and numbers that were noised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pandas as pd

from justitia.engines import name_of
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.bounds import format_bound
from justitia.privacy.accounting import GaussianCost, epsilon_spent
from justitia.privacy.ledger import Certificate, rounded_up
from justitia.report.about import About
from justitia.report.formatting import NOTIONS, known, listed, number, plain_name, short, tolerance_sentence
from justitia.report.inputs import Curve, MeasurementInput
from justitia.report.looks import Look, looks_sentences
from justitia.report.trained import about, features, notion_name, plan_digest, settings, snippet
from justitia.training.history import Column, names_of

#: Most rounds that a chart and its table show; a longer history is thinned evenly.
MOST_ROUNDS = 100
#: Facts that the model itself tells; and those that are exact if there is no noise.
TOLD = frozenset({"columns", "groups", "classes", "positive", "base", "threshold", "tolerance"})
NOISED = frozenset({"noisy_violation"})
#: Facts with a place of their own on the page, by the names they may come under.
KNOWN = {
    "title": ("title",),
    "accuracy": ("accuracy", "training_accuracy"),
    "auc": ("auc", "training_auc"),
    "command": ("command",),
    "created": ("created",),
    "model_digest": ("model_digest",),
    "data_digest": ("data_digest",),
    "read_as": ("read_as",),
    "written": ("written",),
    "version": ("version", "justitia"),
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
      ``multipliers``, ``curve``, remarks, the noisy violation and a ``tolerance`` made of sizes of groups are left out.
    * ``history`` and ``columns`` have what is public or noised, by the status of each column.
    """

    title: str
    notion: str
    notion_words: str
    groups: tuple[str, ...]
    events: tuple[str, ...]
    classes: tuple[str, ...]
    tolerance: float | None
    tolerance_given: bool
    tolerance_words: str
    certificate: Certificate
    accuracy: float | None
    accuracy_source: str
    auc: float | None
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
    stated: About
    looks: tuple[Look, ...]
    looks_say: tuple[str, ...]
    joint: tuple[str, ...]
    features: tuple[tuple[str, str], ...]
    digests: tuple[tuple[str, str | None], ...]
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
    stated: About,
    looks: tuple[Look, ...],
) -> Contents:
    """What a report on this model says."""
    own, others = _sorted_facts(facts)
    private = math.isfinite(model.certificate_.epsilon)
    certificate = model.certificate_.without_exact_remarks()
    columns = tuple(column for column in model.history_columns_ if column.released)
    name = notion_name(model)
    accuracy, accuracy_source = _accuracy(own.get("accuracy"), model)
    given = model.tolerance is not None
    tolerance = float(model.tolerance_) if given or private else None
    return Contents(
        title=str(stated.get("title") or own.get("title") or "Model report"),
        notion=name,
        notion_words=NOTIONS.get(name, "a notion of the user's own"),
        groups=tuple(str(group) for group in model.dual_.index),
        events=tuple(str(event) for event in model.dual_.columns),
        classes=tuple(str(label) for label in model.classes_),
        tolerance=tolerance,
        tolerance_given=given,
        tolerance_words=tolerance_sentence(model.tolerance, tolerance, name_of(model.plan_)),
        certificate=certificate,
        accuracy=accuracy,
        accuracy_source=accuracy_source,
        auc=_auc(own.get("auc"), model.history_),
        history=_thinned(model.history_[names_of(columns)]),
        columns=columns,
        rounds=len(model.history_),
        last_gaps=_last_gaps(model.history_, columns),
        multipliers=model.dual_ if private else None,
        spending=spending(certificate),
        measured=measured if measured is None or measured.private else None,
        measured_exact=measured is not None and not measured.private,
        curve=curve if private else None,
        about=about(
            model, {n: v for n, v in others.items() if private or n not in NOISED}, stated.get("positive_means")
        ),
        stated=stated,
        looks=looks,
        looks_say=looks_sentences(looks, None if measured is None else measured.confidence),
        joint=looks[-1].remarks if looks and looks[-1].name != "training" else (),
        features=features(model, own.get("read_as") or ()),
        digests=(
            ("Model", own.get("model_digest")),
            ("Public rows of the training", own.get("data_digest")),
            ("Plan", plan_digest(model)),
        ),
        settings=settings(model),
        snippet=snippet(model, name),
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


def _accuracy(given: Any, model: LagrangianDualClassifier) -> tuple[float | None, str]:
    found = _last(model.history_, "accuracy")
    if isinstance(given, int | float) and not isinstance(given, bool) and given != found:
        return float(given), "on the training rows"
    return found, "not recorded" if found is None else _rows_of_last_round(model)


def _rows_of_last_round(model: LagrangianDualClassifier) -> str:
    if not hasattr(model, "rule_"):
        return "on the rows of the last training round"
    unseen = ", each scored by a model that has not learned from it" if model.rule_.base.fits else ""
    return f"on the training rows{unseen}"


def _auc(given: Any, history: pd.DataFrame) -> float | None:
    told = isinstance(given, int | float) and not isinstance(given, bool)
    found = float(given) if told else _last(history, "auc")
    return found if known(found) else None


def _last(history: pd.DataFrame, name: str) -> float | None:
    return float(history[name].iloc[-1]) if name in history and len(history) else None


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


def headline(contents: Contents) -> tuple[tuple[str, str, str], ...]:
    """The four numbers to read first: what, how much, in which sense."""
    violation, sense = _headline_violation(contents)
    tolerance = "by the noise" if contents.tolerance is None else f"{contents.tolerance:.4g}"
    whose = "asked for" if contents.tolerance_given else "by default"
    privacy = ("none", "seeded noise, for reproduction" if contents.certificate.reproduction else "no guarantee")
    if contents.private and not contents.certificate.reproduction:
        epsilon, delta = rounded_up(contents.certificate.epsilon), rounded_up(contents.certificate.delta)
        privacy = (
            f"\N{GREEK SMALL LETTER EPSILON} = {epsilon}",
            f"of training, \N{GREEK SMALL LETTER DELTA} = {delta}",
        )
    return (
        ("Accuracy", *_headline_accuracy(contents)),
        ("Violation", violation, sense),
        ("Tolerance", tolerance, f"largest difference between two groups that was allowed, {whose}"),
        ("Privacy", *privacy),
    )


def _headline_accuracy(contents: Contents) -> tuple[str, str]:
    """On evaluation people if it is known there."""
    measured = contents.measured
    if measured is None or measured.accuracy is None:
        return number(contents.accuracy), contents.accuracy_source
    return number(measured.accuracy), f"on {measured.people:,} rows of evaluation people"


def _headline_violation(contents: Contents) -> tuple[str, str]:
    """Of the model's own notion; another one is no substitute."""
    found = () if contents.measured is None else contents.measured.violations
    one = next((one for one in found if one.notion == contents.notion), None)
    if one is None:
        others = f"; measured: {listed(plain_name(other.notion) for other in found)}" if found else ""
        return "not measured", f"in {plain_name(contents.notion)}, for which it was trained{others}"
    if one.estimate is None:
        return "not known", "not enough evidence"
    which = f" {one.among}" if one.among else ""
    if one.at_most is None:
        return number(one.estimate), f"largest difference between two groups{which}, noised"
    most = format_bound(one.at_most, one.at_most if contents.tolerance is None else contents.tolerance)
    return f"\N{LESS-THAN OR EQUAL TO} {most}", f"largest difference between two groups{which}, one-sided bound"
