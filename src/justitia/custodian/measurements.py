"""A private measurement as JSON, and back: numbers to the last bit."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np

from justitia.evaluation.intervals import NoisyRates
from justitia.evaluation.measurement import Measurement
from justitia.privacy.certificate import Certificate


def measurement_bytes(found: Measurement, certificate: Certificate) -> bytes:
    """What the client makes the same measurement of."""
    noisy = {one.name: _plain(getattr(found.noisy, one.name)) for one in fields(NoisyRates)}
    told = {
        "people": found.people,
        "groups": found.groups,
        "rate_names": found.rate_names,
        "questions": {name: list(places) for name, places in found.questions.items()},
        "noisy": noisy,
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
        noisy: dict[str, Any] = {
            name: np.array(value) if isinstance(value, list) else value for name, value in told["noisy"].items()
        }
        return Measurement(
            people=told["people"],
            groups=tuple(told["groups"]),
            rate_names=tuple(told["rate_names"]),
            questions={name: tuple(places) for name, places in told["questions"].items()},
            noisy=NoisyRates(**noisy),
            confidence=told["confidence"],
            certificate=Certificate.from_dict(told["certificate"]),
            threshold=told["threshold"],
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise ValueError("expected a measurement from the custodian, got other data; is this its address?") from None


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else float(value)


__all__ = ["measurement_bytes", "read_measurement"]
