"""Measurement and curve as plain data: read, checked, and kept only if they are private."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from justitia.curve import Tradeoff
from justitia.metrics.measurement import Measurement
from justitia.privacy.ledger import Certificate
from justitia.report.formatting import among

MEASUREMENT = "what Measurement.to_dict() gives"
CURVE = "a mapping with 'points' (each with tolerance, accuracy and noisy_violation) and 'chosen'"


@dataclass(frozen=True)
class Rate:
    """A noisy rate of one group with its bounds; None where there is not enough evidence."""

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
class Largest:
    """A noisy violation or largest gap of one notion with its bounds.

    ``at_least`` and ``at_most`` are one-sided: what a verdict rests on. Only violations have them. It speaks of all
    ``groups`` but those ``not_compared``.
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
        """Of how many groups it speaks, if not of all."""
        return among(self.groups, self.not_compared)


@dataclass(frozen=True)
class Before:
    """The same rates and violations of the decisions before the correction, from the same noisy answer."""

    overall: Mapping[str, float]
    rates: tuple[Rate, ...]
    violations: tuple[Largest, ...]

    def rate(self, metric: str, group: str) -> Rate:
        """The rate of one group."""
        return next(one for one in self.rates if (one.metric, one.group) == (metric, group))


@dataclass(frozen=True)
class MeasurementInput:
    """A private measurement of evaluation people.

    Accuracy, the name of their file, and how many measurements of this model there are, are public; so is all in
    ``public``: accuracy, AUC, confusion and calibration of the model, and of its base.
    """

    people: int
    confidence: float
    overall: Mapping[str, float]
    rates: tuple[Rate, ...]
    violations: tuple[Largest, ...]
    largest_gaps: tuple[Largest, ...]
    unknown_groups: tuple[str, ...]
    verdicts: tuple[str, ...]
    certificate: Certificate
    accuracy: float | None = None
    data: str | None = None
    measurements: int = 1
    created: str | None = None
    before: Before | None = None
    impact: Mapping[str, Any] | None = None
    scores: Mapping[str, Any] | None = None
    public: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether every number by group was noised."""
        return math.isfinite(self.certificate.epsilon)


@dataclass(frozen=True)
class Point:
    """One model of a curve: what it was asked, its public accuracy and AUC, its noised violation."""

    tolerance: float | None
    accuracy: float
    violation: float | None
    auc: float | None = None


@dataclass(frozen=True)
class Curve:
    """Models along a grid of tolerances, and the place of the one that was chosen."""

    points: tuple[Point, ...]
    chosen: int | None


def read_measurement(source: Mapping[str, Any] | Measurement | None) -> MeasurementInput | None:
    """A measurement from its plain data.

    Raises
    ------
    ValueError, TypeError
        If it is not what :meth:`~justitia.metrics.measurement.Measurement.to_dict` gives.
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
            public=dict(facts.get("public") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"expected measurement to be {MEASUREMENT}, got something else ({_reason(error)}); measure again."
        ) from None


def _before(facts: Any) -> Before | None:
    if facts is None:
        return None
    overall = {str(name): _number(value) for name, value in facts["overall"].items()}
    return Before(overall, tuple(_rate(row) for row in facts["by_group"]), _largest(facts, "violations"))


def _checked(facts: Any, *names: str) -> Mapping[str, Any] | None:
    """A part of a measurement that is printed as it is, if it has these names."""
    if facts is None:
        return None
    for name in names:
        _ = facts[name]
    found: Mapping[str, Any] = facts
    return found


def _rate(row: Mapping[str, Any]) -> Rate:
    values: dict[str, Any] = {name: str(row[name]) for name in ("metric", "group", "evidence")}
    values |= {name: _number(row[name]) for name in ("count", "lower", "upper")}
    values |= {name: _optional(row[name]) for name in ("rate", "gap", "gap_lower", "gap_upper")}
    return Rate(**values)


def _largest(facts: Mapping[str, Any], kind: str) -> tuple[Largest, ...]:
    """Violations or largest gaps of a measurement, which leave out the same groups."""
    groups = len({str(row["group"]) for row in facts["by_group"]})
    return tuple(
        Largest(
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
    """Groups that the violation of a notion does not speak of; of older measurements, all with a rate not known."""
    listed = facts["violations"][notion].get("not_compared", facts.get("unknown_groups", ()))
    return tuple(str(group) for group in listed)


def read_curve(source: Mapping[str, Any] | Tradeoff | None, model: object) -> Curve | None:
    """A curve from its plain data, or from a :class:`~justitia.Tradeoff` of which ``model`` may be one.

    None if there is none, or if its certificate has no finite epsilon: its violations are exact then. Plain data have
    no certificate; they are those of the model's own training.

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
        points = tuple(
            Point(
                tolerance=_optional(one["tolerance"]),
                accuracy=_number(one["accuracy"]),
                violation=_optional(one["noisy_violation"]),
                auc=_optional(one.get("auc")),
            )
            for one in facts["points"]
        )
        chosen = None if facts.get("chosen") is None else int(facts["chosen"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"expected curve to be {CURVE}, got something else ({_reason(error)}).") from None
    if chosen is not None and not 0 <= chosen < len(points):
        raise ValueError(f"expected 'chosen' to be the place of one of {len(points)} points, got {chosen}.")
    return Curve(points, chosen) if points else None


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
