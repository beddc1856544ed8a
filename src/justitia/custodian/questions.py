"""What clients may ask, as it is written in a request: checked to the letter before anything is looked up."""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any

import msgspec

from justitia.custodian.refusals import wrong
from justitia.metrics.rates import METRICS
from justitia.notions import NOTIONS

# The look ahead: in Python, though not in JSON Schema, $ is also before a newline at the end.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:-]+(?!\n)$")]
Names = Annotated[list[Name], msgspec.Meta(max_length=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]
# Purposes are printed in terminals and on pages: no control character, no line end, nothing that changes the direction
# of the text or is not seen.
_SHOWN = r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
Sentence = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=rf"^{_SHOWN}+(?!\n)$")]


class Sums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noised sums of public rows over each group; ``part`` of ``parts`` is what comes with this request."""

    request: Name
    purpose: Sentence
    bound: Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # 0 where decisions are all alike
    noise_multiplier: Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
    part: Annotated[int, msgspec.Meta(ge=0, le=99_999)] = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1

    def digest(self, cohort: str) -> str:
        """Of all but the part: the same for every request of one question."""
        return _digest(cohort, self.purpose, self.bound, self.noise_multiplier, self.parts)


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A private measurement of decisions; of another model's about the same people and of scores, if they are sent."""

    request: Name
    y_true: list[Annotated[int, msgspec.Meta(ge=0, le=1)]]
    y_pred: list[Annotated[int, msgspec.Meta(ge=0, le=1)]]
    epsilon: Annotated[float, msgspec.Meta(gt=0, le=50)] = 1.0
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-5
    notions: Names = []
    metrics: Names = []
    confidence: Annotated[float, msgspec.Meta(ge=0.5, lt=1)] = 0.95
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    before: list[Annotated[int, msgspec.Meta(ge=0, le=1)]] | None = None
    scores: list[float] | None = None
    score_bins: Annotated[int, msgspec.Meta(ge=2, le=100)] = 10
    reference: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None

    def check(self) -> None:
        """Refuse names that nothing has."""
        for name in self.notions:
            if name not in NOTIONS:
                raise wrong(f"expected notions among {', '.join(sorted(NOTIONS))}, got another one; check its name.")
        for name in self.metrics:
            if name not in METRICS:
                raise wrong(f"expected metrics among {', '.join(sorted(METRICS))}, got another one; check its name.")

    def digest(self, cohort: str) -> str:
        """Of everything but the request id."""
        return _digest(cohort, msgspec.json.encode(msgspec.structs.replace(self, request="")))


class Cohort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ordered ids of people, or cohorts that follow each other; with ``person``, an id may have several rows."""

    ids: list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]] = []
    cohorts: Annotated[list[Name], msgspec.Meta(max_length=1000)] = []
    person: bool = False


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What more to tell of a population: how often a plan (:class:`Plan`, as JSON) fits in, the link of a receipt."""

    plan: Annotated[str, msgspec.Meta(description="a Plan, as JSON")] | None = None
    receipt: Count | None = None


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs were planned, and what is certified."""

    planned: Count = 1
    subject: Annotated[str, msgspec.Meta(max_length=100, pattern=rf"^{_SHOWN}*(?!\n)$")] = "Every output of training"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a plan asks with which noise: pairs of noise multiplier and count."""

    costs: list[tuple[Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)], Annotated[int, msgspec.Meta(ge=1, le=10**6)]]]


def _digest(*facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def read_json(body: bytes | bytearray, kind: Any) -> Any:
    """One of the above from JSON.

    Raises
    ------
    Refused
        In one sentence that names the field, and no value.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(f"expected the fields of a {kind.__name__} as JSON, got others ({_reason(error)}).") from None


def read_query(values: dict[str, str], kind: Any) -> Any:
    """One of the above from the part of an address behind its question mark.

    Raises
    ------
    Refused
        As above.
    """
    try:
        found = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise wrong(f"expected the fields of {kind.__name__} in the address, got others ({_reason(error)}).") from None
    if any(isinstance(one, float) and not math.isfinite(one) for one in msgspec.structs.astuple(found)):
        raise wrong("expected finite numbers in the address, got others.")
    return found


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


__all__ = ["Certificate", "Cohort", "Facts", "Measure", "Plan", "Sums", "read_json", "read_query"]
