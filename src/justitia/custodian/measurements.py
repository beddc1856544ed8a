"""A private measurement as JSON, and back: numbers to the last bit."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from justitia.metrics.bounds import NoisyRates
from justitia.metrics.measurement import Measurement
from justitia.metrics.rates import NoisyCells
from justitia.metrics.scores import NoisyScores, ScoreFacts
from justitia.privacy.certificate import Certificate


def measurement_bytes(found: Measurement, certificate: Certificate) -> bytes:
    """What the client makes the same measurement of."""
    told = {
        "people": found.people,
        "groups": found.groups,
        "rate_names": found.rate_names,
        "questions": {name: list(places) for name, places in found.questions.items()},
        "labelled": found.labelled,
        "noisy": _plain(found.noisy),
        "noisy_before": _plain(found.noisy_before),
        "noisy_scores": _plain(found.noisy_scores),
        "reference": found.reference,
        "confidence": found.confidence,
        "certificate": certificate.to_dict(),
        "threshold": found.threshold,
    }
    return json.dumps(told).encode()


def read_measurement(body: bytes) -> Measurement:
    """Inverse of :func:`measurement_bytes`.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    try:
        told: dict[str, Any] = json.loads(body)
        return Measurement(
            people=told["people"],
            groups=tuple(told["groups"]),
            rate_names=tuple(told["rate_names"]),
            questions={name: tuple(places) for name, places in told["questions"].items()},
            labelled=told["labelled"],
            noisy=_read(NoisyRates, told["noisy"]),
            noisy_before=None if told["noisy_before"] is None else _read(NoisyRates, told["noisy_before"]),
            noisy_scores=None if told["noisy_scores"] is None else _scores(told["noisy_scores"]),
            reference=told["reference"],
            confidence=told["confidence"],
            certificate=Certificate.from_dict(told["certificate"]),
            threshold=told["threshold"],
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise ValueError("expected a measurement from the custodian, got other data; is this its address?") from None


def _plain(value: Any) -> Any:
    if isinstance(value, ScoreFacts):
        value = replace(value, rest=value.rest[:0])  # one number per row, which rows are made of and nothing is read of
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if value is None or isinstance(value, int) else float(value)


def _read(kind: Any, told: dict[str, Any]) -> Any:
    return kind(**{name: np.array(value) if isinstance(value, list) else value for name, value in told.items()})


def _scores(told: dict[str, Any]) -> NoisyScores:
    parts = {"cells": _read(NoisyCells, told["cells"]), "facts": _read(ScoreFacts, told["facts"])}
    found: NoisyScores = _read(NoisyScores, told | parts)
    return found


__all__ = ["measurement_bytes", "read_measurement"]
