"""Inputs of a report as plain data, checked: measurement, trade-off curve, measurement log, and stated fields.

A measurement or curve is kept only if it is private. The measurement log lists the training and every measurement of
the model, with dates and costs.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from justitia._validate import check_choice, check_nonnegative
from justitia.curve import Tradeoff
from justitia.metrics.measurement import Measurement
from justitia.privacy.ledger import Certificate, rounded_up
from justitia.report.formatting import UNITS, among, listed, plain_name, points

#: Fields that people state, by their name in the file, and their label on the page.
FIELDS = {
    "owner": "Owner",
    "purpose": "Purpose",
    "population": "Population it is used for",
    "version": "Version",
    "monitoring_plan": "Monitoring plan",
    "human_oversight": "Human oversight",
}
#: What an approval states (SR 11-7, Annex IV of the EU's AI Act), by the name in the file, and the label on the page.
APPROVAL = {
    "materiality": "Materiality",
    "intended_uses": "Intended uses",
    "prohibited_uses": "Prohibited uses",
    "validation_findings": "Findings of the validation",
    "challenger": "Challenger model",
    "monitoring_triggers": "Triggers of a review",
    "conditions": "Conditions",
    "expires": "Approval expires",
    "decision": "Decision",
}
#: Further fields: meaning of the positive decision, title of the page, and fields of the registry.
OTHERS = ("positive_means", "title", "region", "sector")
#: Text of an empty field.
EMPTY = "not stated"
MEASUREMENT = "what Measurement.to_dict() gives"
CURVE = "a mapping with 'points' (each with tolerance, accuracy and noisy_violation) and 'chosen'"


@dataclass(frozen=True)
class GroupRate:
    """Noisy rate of one group with its bounds; None where there is not enough evidence."""

    metric: str
    group: str
    count: float
    rate: float | None
    lower: float
    upper: float
    gap: float | None
    gap_lower: float | None
    gap_upper: float | None
    evidence: str


@dataclass(frozen=True)
class LargestDifference:
    """Noisy violation or largest gap of one notion with its bounds.

    ``at_least`` and ``at_most`` are the one-sided bounds of a verdict, which only violations have. The difference is
    over all ``groups`` but those ``not_compared``.
    """

    notion: str
    estimate: float | None
    lower: float
    upper: float
    at_least: float | None = None
    at_most: float | None = None
    groups: int = 0
    not_compared: tuple[str, ...] = ()

    @property
    def among(self) -> str:
        """Number of groups that are compared, in words; empty if all are."""
        return among(self.groups, self.not_compared)


@dataclass(frozen=True)
class BeforeCorrection:
    """Rates and violations of the decisions before the correction, from the same noisy answer."""

    overall: Mapping[str, float]
    rates: tuple[GroupRate, ...]
    violations: tuple[LargestDifference, ...]
    distribution: Mapping[str, Any] | None = None

    def rate(self, metric: str, group: str) -> GroupRate:
        """The rate of one group."""
        return next(one for one in self.rates if (one.metric, one.group) == (metric, group))


@dataclass(frozen=True)
class MeasurementInput:
    """Private measurement on evaluation data.

    Accuracy, the file name and the number of measurements of this model are public; so is everything in ``public``:
    accuracy, AUC, confusion and calibration of the model and of its base model.
    """

    people: int
    confidence: float
    overall: Mapping[str, float]
    rates: tuple[GroupRate, ...]
    violations: tuple[LargestDifference, ...]
    largest_gaps: tuple[LargestDifference, ...]
    unknown_groups: tuple[str, ...]
    verdicts: tuple[str, ...]
    certificate: Certificate
    accuracy: float | None = None
    data: str | None = None
    measurements: int = 1
    created: str | None = None
    before: BeforeCorrection | None = None
    impact: Mapping[str, Any] | None = None
    scores: Mapping[str, Any] | None = None
    distribution: Mapping[str, Any] | None = None
    favorable: str = "positive"
    public: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether every number by group is noisy."""
        return math.isfinite(self.certificate.epsilon)


@dataclass(frozen=True)
class CurvePoint:
    """One model of a trade-off curve: its tolerance, public accuracy (or R2) and AUC, and noisy violation."""

    tolerance: float | None
    accuracy: float
    violation: float | None
    auc: float | None = None


@dataclass(frozen=True)
class Curve:
    """Models along a grid of tolerances, the index of the chosen one, and what their accuracy is called."""

    points: tuple[CurvePoint, ...]
    chosen: int | None
    quality: str = "accuracy"
    in_points: bool = True


def read_measurement(source: Mapping[str, Any] | Measurement | None) -> MeasurementInput | None:
    """Read a measurement from plain data.

    Raises
    ------
    ValueError, TypeError
        If it does not have the form of :meth:`~justitia.metrics.measurement.Measurement.to_dict`.
    """
    if source is None:
        return None
    facts: Any = source.to_dict() if isinstance(source, Measurement) else source
    if not isinstance(facts, Mapping):
        raise TypeError(f"expected measurement to be {MEASUREMENT}, got {type(source).__name__!r}; pass that mapping.")
    try:
        return MeasurementInput(
            people=int(facts["people"]),
            confidence=_number(facts["confidence"]),
            overall={str(name): _number(value) for name, value in facts["overall"].items()},
            rates=tuple(_rate(row) for row in facts["by_group"]),
            violations=_largest(facts, "violations"),
            largest_gaps=_largest(facts, "largest_gaps"),
            unknown_groups=tuple(str(name) for name in facts["unknown_groups"]),
            verdicts=tuple(str(one["sentence"]) for one in facts["verdicts"].values()),
            certificate=Certificate.from_dict(facts["certificate"]),
            accuracy=_optional(facts.get("accuracy")),
            data=None if facts.get("data") is None else str(facts["data"]),
            measurements=int(facts.get("measurements", 1)),
            created=None if facts.get("created") is None else str(facts["created"]),
            before=_before(facts.get("before")),
            impact=_checked(facts.get("impact"), "by_group", "ratio_to", "compared_with", "four_fifths"),
            scores=_checked(facts.get("scores"), "by_group", "compared_with", "calibration", "curve"),
            distribution=_checked(facts.get("distribution"), "by_group", "compared_with", "curve"),
            favorable=str(facts.get("favorable_decision", "positive")),
            public=dict(facts.get("public") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"expected measurement to be {MEASUREMENT}, got something else ({_reason(error)}); measure again."
        ) from None


def _before(facts: Any) -> BeforeCorrection | None:
    if facts is None:
        return None
    overall = {str(name): _number(value) for name, value in facts["overall"].items()}
    distribution = _checked(facts.get("distribution"), "by_group", "compared_with", "curve")
    rates = tuple(_rate(row) for row in facts["by_group"])
    return BeforeCorrection(overall, rates, _largest(facts, "violations"), distribution)


def _checked(facts: Any, *names: str) -> Mapping[str, Any] | None:
    """A part of a measurement that is shown as it is, after a check that it has these keys."""
    if facts is None:
        return None
    for name in names:
        _ = facts[name]
    found: Mapping[str, Any] = facts
    return found


def _rate(row: Mapping[str, Any]) -> GroupRate:
    values: dict[str, Any] = {name: str(row[name]) for name in ("metric", "group", "evidence")}
    values |= {name: _number(row[name]) for name in ("count", "lower", "upper")}
    values |= {name: _optional(row[name]) for name in ("rate", "gap", "gap_lower", "gap_upper")}
    return GroupRate(**values)


def _largest(facts: Mapping[str, Any], kind: str) -> tuple[LargestDifference, ...]:
    """Violations or largest gaps of a measurement."""
    groups = len({str(row["group"]) for row in facts["by_group"]})
    return tuple(
        LargestDifference(
            notion=str(name),
            estimate=_optional(one["estimate"]),
            lower=_number(one["lower"]),
            upper=_number(one["upper"]),
            at_least=_optional(one.get("at_least")),
            at_most=_optional(one.get("at_most")),
            groups=groups,
            not_compared=not_compared(facts, name),
        )
        for name, one in facts[kind].items()
    )


def not_compared(facts: Mapping[str, Any], notion: str) -> tuple[str, ...]:
    """Groups that the violation of a notion leaves out; older versions list them once for all notions."""
    listed = facts["violations"][notion].get("not_compared", facts.get("unknown_groups", ()))
    return tuple(str(group) for group in listed)


def read_curve(source: Mapping[str, Any] | Tradeoff | None, model: object) -> Curve | None:
    """Read a trade-off curve from plain data, or from a :class:`~justitia.Tradeoff` that may contain ``model``.

    None if there is no curve, or if its certificate has no finite epsilon, because its violations are exact then. Plain
    data have no certificate; they belong to the model's own training.

    Raises
    ------
    ValueError, TypeError
        If it is neither.
    """
    if source is None or (isinstance(source, Tradeoff) and math.isinf(source.certificate.epsilon)):
        return None
    facts: Any = _curve_facts(source, model) if isinstance(source, Tradeoff) else source
    if not isinstance(facts, Mapping):
        raise TypeError(f"expected curve to be {CURVE}, got {type(source).__name__!r}; pass that mapping.")
    try:
        found = tuple(
            CurvePoint(
                tolerance=_optional(one["tolerance"]),
                accuracy=_number(one["r2"] if "r2" in one else one["accuracy"]),
                violation=_optional(one["noisy_violation"]),
                auc=_optional(one.get("auc")),
            )
            for one in facts["points"]
        )
        chosen = None if facts.get("chosen") is None else int(facts["chosen"])
        quality = "R2" if any("r2" in one for one in facts["points"]) else "accuracy"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"expected curve to be {CURVE}, got something else ({_reason(error)}).") from None
    if chosen is not None and not 0 <= chosen < len(found):
        raise ValueError(f"expected 'chosen' to be the place of one of {len(found)} points, got {chosen}.")
    notion = getattr(source.models[0] if isinstance(source, Tradeoff) else model, "notion", None)
    in_points = not (isinstance(notion, str) and notion in UNITS)
    return Curve(found, chosen, quality, in_points) if found else None


def _curve_facts(curve: Tradeoff, model: object) -> dict[str, Any]:
    chosen = next((place for place, one in enumerate(curve.models) if one is model), None)
    return {"points": curve.table.to_dict("records"), "chosen": chosen}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return float(value)


def _optional(value: Any) -> float | None:
    found = None if value is None else _number(value)
    return None if found is None or math.isnan(found) else found


def _reason(error: Exception) -> str:
    return f"no {error.args[0]!r}" if isinstance(error, KeyError) and error.args else str(error)


@dataclass(frozen=True)
class LogEntry:
    """One entry of the measurement log: the training or a measurement, its data, date, cost and result.

    Field names are keys of the report's JSON.

    Attributes
    ----------
    same_people : tuple of str
        Names of earlier entries with the same people, or perhaps the same.
    models : int
        Number of models that the cost covers: several if ``justitia compare`` measured them in one table.
    remarks : tuple of str
        Sentences on the total cost together with earlier entries.
    """

    name: str
    created: str | None
    data: str | None
    rows: int | None
    digest: str | None
    cost: str
    found: str
    same_people: tuple[str, ...] = ()
    models: int = 1
    remarks: tuple[str, ...] = ()
    ledger: str | None = None


def read_log(sources: Sequence[Mapping[str, Any]]) -> tuple[LogEntry, ...]:
    """Read the measurement log from the facts of training and measurements, oldest first.

    Each has ``certificate``, and may have ``name``, ``created``, ``data``, ``people`` or ``rows``, ``digest``,
    ``violations``, ``by_group``, ``confidence``, ``verdicts``, ``shared_with`` and ``compared`` (the names of all
    models of a table).

    Raises
    ------
    ValueError
        If one has no certificate.
    """
    try:
        return tuple(_log_entry(number, one) for number, one in enumerate(sources))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(
            "expected measurement_log to be facts of training and measurements, got something else."
        ) from None


def _log_entry(number: int, facts: Mapping[str, Any]) -> LogEntry:
    certificate = Certificate.from_dict(facts["certificate"])
    rows = facts.get("people", facts.get("rows"))
    models = len(facts.get("compared") or ()) or 1
    if math.isinf(certificate.epsilon):
        cost = "no guarantee"
    else:
        cost = f"\N{GREEK SMALL LETTER EPSILON} {rounded_up(certificate.spent_epsilon)}"
        cost += " with all else on its ledger" if certificate.epsilon > certificate.spent_epsilon else ""
    stated = {name: None if facts.get(name) is None else str(facts[name]) for name in ("created", "data", "digest")}
    return LogEntry(
        **stated,
        name=str(facts.get("name", number)),
        rows=None if rows is None else int(rows),
        cost=cost + (f", for {models} models" if models > 1 else ""),
        found="" if math.isinf(certificate.epsilon) else _result_text(facts),
        same_people=tuple(str(one) for one in facts.get("shared_with") or ()),
        models=models,
        remarks=certificate.remarks,
        ledger=(certificate.receipt or {}).get("ledger"),
    )


def _result_text(facts: Mapping[str, Any]) -> str:
    """One-sided bounds of each violation, as a verdict uses them; the lower bound only if it is above 0."""
    parts = []
    for notion, one in (facts.get("violations") or {}).items():
        verdict, shares = (facts.get("verdicts") or {}).get(notion), notion not in UNITS
        if one["estimate"] is None:
            text = "not enough evidence"
        else:
            least, most = one.get("at_least"), one.get("at_most")
            most = one["upper"] if most is None else most
            limit = None if verdict is None else verdict["threshold"]
            text = f"at least {points(least, limit, in_points=shares)}, " if least else ""
            text += f"at most {points(most, limit, in_points=shares)}"
        which = among(len({str(row["group"]) for row in facts["by_group"]}), not_compared(facts, notion))
        text += f" {which}" if which else ""
        if verdict is not None:
            answer = {"below": "yes", "above": "no"}.get(verdict["answer"], verdict["answer"])
            text += f" (below {points(verdict['threshold'], in_points=shares)}? {answer})"
        parts.append(f"{plain_name(notion)}: {text}")
    return "; ".join(parts)


def log_sentences(log: Sequence[LogEntry], confidence: float | None) -> tuple[str, ...]:
    """Sentences on the confidence of several measurements together, and warnings about people measured twice."""
    measured = [one for one in log if one.name != "training"]
    alone = [one for one in measured if one.models == 1]
    shown = (
        "the newest" if len(alone) in {0, len(measured)} else "the newest that is not part of a comparison of models"
    )
    sentences = []
    if len(measured) > 1:
        together = 1 - len(measured) * (1 - (0.95 if confidence is None else confidence))
        level = f"at {together:.2f} confidence or more" if together > 0 else "at no confidence that can be stated"
        sentences.append(
            f"This model was measured {len(measured)} times. The page shows {shown}. The measurements are not "
            "pooled: each has its own rows, of the same people or of others. The bounds of each measurement hold for "
            f"that measurement alone; the bounds of all {len(measured)} hold together {level}. If "
            "measurements were repeated until the answer suited, that has to be disclosed."
        )
    for one in measured:
        again = [name for name in one.same_people if name != "training"]
        if again:
            sentences.append(
                f"Warning: measurement {one.name} includes, or may include, people of measurement {listed(again)}. "
                "Measuring the same people again gives no new evidence about sampling error, and the privacy cost adds "
                "up for them."
            )
        if "training" in one.same_people:
            sentences.append(
                f"Warning: measurement {one.name} includes, or may include, people of the training data. Its bounds "
                "are about new people and do not hold for these."
            )
    return tuple(sentences)


@dataclass(frozen=True)
class Limits:
    """Policy limits: what a measurement has to show, whatever training aimed at.

    Attributes
    ----------
    gap : float, optional
        Largest difference between two groups.
    ratio : float, optional
        Smallest impact ratio.
    favorable : str, optional
        The favorable decision, by its label.
    """

    gap: float | None = None
    ratio: float | None = None
    favorable: str | None = None

    @classmethod
    def from_facts(
        cls,
        limit: Any,
        limit_ratio: Any,
        favorable: Any,
        measured: Mapping[str, Any] | None,
        facts: Mapping[str, Any],
    ) -> Limits:
        """As given, else those that the measurement was held to, else those of the training.

        Raises
        ------
        TypeError, ValueError
            If a limit is no number, or below 0.
        """
        tested: Mapping[str, Any] = next(iter(((measured or {}).get("verdicts") or {}).values()), {})
        others = (measured or {}, {"limit": tested.get("threshold")}, facts)
        found: dict[str, Any] = {"limit": limit, "limit_ratio": limit_ratio, "favorable": favorable}
        for name, given in found.items():
            if given is None:
                found[name] = next((one[name] for one in others if one.get(name) is not None), None)
        for name in ("limit", "limit_ratio"):
            if found[name] is not None:
                found[name] = check_nonnegative(name, found[name])
        favored = found["favorable"]
        return cls(found["limit"], found["limit_ratio"], None if favored is None else str(favored).strip())


@dataclass(frozen=True)
class PricePoint:
    """One line of the price list: a tolerance, what it costs and how far groups are apart then.

    ``quality`` is accuracy, or R2 of a number; ``measured`` are one-sided bounds on new people, where they are known.
    """

    tolerance: float | None
    quality: float
    violation: float
    stderr: float
    corrected: bool
    deployed: bool
    columns: Mapping[str, float]


def read_prices(table: pd.DataFrame | None) -> tuple[PricePoint, ...]:
    """The price list of a model; empty if it has none."""
    if table is None:
        return ()
    named = {"tolerance", "violation", "violation_stderr", "corrected", "deployed"}
    others = [str(name) for name in table.columns if name not in named]
    found = []
    for line in table.to_dict("records"):
        quality = line.get("accuracy", line.get("r2"))
        values = (quality, line.get("violation"))
        if any(one is None or not math.isfinite(one) for one in values):
            continue
        stderr = line.get("violation_stderr")
        found.append(
            PricePoint(
                tolerance=_optional(line.get("tolerance")),
                quality=_number(quality),
                violation=_number(line["violation"]),
                stderr=0.0 if stderr is None or not math.isfinite(stderr) else _number(stderr),
                corrected=bool(line.get("corrected", True)),
                deployed=bool(line.get("deployed", False)),
                columns={name: float(line[name]) for name in others if _is_number(line[name])},
            )
        )
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(float(value))


@dataclass(frozen=True)
class About:
    """Fields that people stated about the model; None where nobody did."""

    given: Mapping[str, str] = field(default_factory=dict)
    group_names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, facts: Mapping[str, Any] | None) -> About:
        """Read the fields from a mapping, such as a TOML file.

        Raises
        ------
        ValueError, TypeError
            If a name is not a field, or a value is not text.
        """
        if not isinstance(facts, Mapping | None):
            raise TypeError(f"expected about to be a mapping, got {type(facts).__name__!r}; pass fields as text.")
        given = dict(facts or {})
        names = given.pop("group_names", {})
        if not isinstance(names, Mapping):
            raise TypeError(f'expected group_names to be a table, got {type(names).__name__!r}; write GROUP = "words".')
        found = {
            check_choice("field of about", str(name), (*FIELDS, *APPROVAL, *OTHERS)): one for name, one in given.items()
        }
        for name, one in (*found.items(), *names.items()):
            if not isinstance(one, str):
                raise TypeError(f"expected {name!r} to be text, got {type(one).__name__!r}; put it in quotation marks.")
        stated, groups = (
            {str(name): " ".join(one.split()) for name, one in each.items() if one.strip()} for each in (found, names)
        )
        return cls(stated, groups)

    def get(self, name: str) -> str | None:
        """Value of one field, or None."""
        return self.given.get(name)

    @property
    def rows(self) -> tuple[tuple[str, str | None], ...]:
        """Every field with its label on the page."""
        return tuple((words, self.get(name)) for name, words in FIELDS.items())

    @property
    def approval(self) -> tuple[tuple[str, str | None], ...]:
        """Every field of the approval with its label on the page."""
        return tuple((words, self.get(name)) for name, words in APPROVAL.items())
