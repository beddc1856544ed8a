"""Request and response schemas of the HTTP interface, and the OpenAPI 3.1 document made of them.

Requests are checked against these types to the letter before anything is looked up. The service takes its routes from
:data:`OPERATIONS`, so that no route exists that the document does not describe. No response but an answer with noise
holds a number by group.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from justitia.custodian.errors import invalid_input
from justitia.custodian.wire import ARROW
from justitia.metrics.rates import METRICS
from justitia.notions import NOTIONS

JSON, TEXT = "application/json", "text/plain"
#: Response header with the receipt of an answer.
RECEIPT = "justitia-receipt"

# The negative lookahead is needed because in Python, though not in JSON Schema, $ also matches before a final newline.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:-]+(?!\n)$")]
Names = Annotated[list[Name], msgspec.Meta(max_length=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]
# Terminals and pages print purposes: no control character, no line end, nothing invisible or that changes the direction
# of the text.
_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
Sentence = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=rf"^{_PRINTABLE}+(?!\n)$")]


# -- requests


class SumsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters for noisy sums of public rows over each group; the body holds ``part`` of ``parts``."""

    request: Name
    purpose: Sentence
    bound: Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # 0 where all decisions are equal
    noise_multiplier: Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
    part: Annotated[int, msgspec.Meta(ge=0, le=99_999)] = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1

    def digest(self, cohort: str) -> str:
        """Hash of all but the part and the request id: the same for every part of one query."""
        return _digest(cohort, self.purpose, self.bound, self.noise_multiplier, self.parts)


class MeasureRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A private measurement of decisions and, where they are sent, of another model's decisions and of scores."""

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
        """Raise :class:`RequestError` for an unknown notion or metric."""
        for what, names, known in (("notions", self.notions, NOTIONS), ("metrics", self.metrics, METRICS)):
            if any(name not in known for name in names):
                raise invalid_input(
                    f"expected {what} among {', '.join(sorted(known))}, got another one; check its name."
                )

    def digest(self, cohort: str) -> str:
        """Hash of everything but the request id."""
        return _digest(cohort, msgspec.json.encode(msgspec.structs.replace(self, request="")))


class CohortRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ordered ids, or cohorts to concatenate; with ``person``, an id may have several rows."""

    ids: list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]] = []
    cohorts: Annotated[list[Name], msgspec.Meta(max_length=1000)] = []
    person: bool = False


class FactsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Optional queries about a population: how often a plan fits into the budget, and the link of a receipt."""

    plan: Annotated[str, msgspec.Meta(description="a Plan, as JSON")] | None = None
    receipt: Count | None = None


class CertificateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the client states in a certificate: how many answers it planned, and what it made of them."""

    planned: Count = 1
    subject: Annotated[str, msgspec.Meta(max_length=100, pattern=rf"^{_PRINTABLE}*(?!\n)$")] = (
        "Every output of training"
    )


class PlanCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Releases of a plan: pairs of noise multiplier and count."""

    costs: list[tuple[Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)], Annotated[int, msgspec.Meta(ge=1, le=10**6)]]]


def _digest(*facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def read_json(body: bytes | bytearray, kind: Any) -> Any:
    """Decode a request of type ``kind`` from JSON.

    Raises
    ------
    RequestError
        With one sentence that names the field, and no value.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_input(
            f"expected JSON with the fields that /openapi.json lists, got other data ({_reason(error)})."
        ) from None


def read_query(values: dict[str, str], kind: Any) -> Any:
    """Decode a request of type ``kind`` from the query parameters of a URL.

    Raises
    ------
    RequestError
        With one sentence that names the field, and no value.
    """
    try:
        found = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_input(
            f"expected the query parameters that /openapi.json lists, got others ({_reason(error)})."
        ) from None
    if any(isinstance(one, float) and not math.isfinite(one) for one in msgspec.structs.astuple(found)):
        raise invalid_input("expected finite numbers in the query parameters, got others.")
    return found


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


# -- responses


class FactsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Public facts about a population; ``fits`` if a plan was sent, ``link`` if the number of a receipt was."""

    custodian: str
    population: str
    columns: tuple[str, ...]
    groups: tuple[str | tuple[str, ...], ...]
    neighbours: str
    epsilon: float
    delta: float
    spent: float
    left: float
    client_epsilon: float | None
    roles: tuple[str, ...]
    debits: int
    receipts: int
    head: str
    rows_at_once: int
    largest_width: int
    fits: int | UnsetType = UNSET
    link: str | UnsetType | None = UNSET


class CohortResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Name and size of a cohort; with ``person``, the maximum rows per person and a digest of which rows are whose."""

    cohort: str
    people: int
    rows_each: int | UnsetType = UNSET
    persons: str | UnsetType = UNSET


class PartsResponse(msgspec.Struct, frozen=True):
    """How many parts of a query have arrived."""

    received: int
    parts: int


class HealthResponse(msgspec.Struct, frozen=True):
    """The service answers."""

    ok: bool = True


class ErrorResponse(msgspec.Struct, frozen=True):
    """One sentence for people, and one word for programs."""

    error: str
    kind: str


# -- OpenAPI

#: Names of the types in the published document, which stay as they are whatever the classes are called.
_SCHEMAS = {
    CohortRequest: "Cohort",
    MeasureRequest: "Measure",
    PlanCosts: "Plan",
    FactsResponse: "Facts",
    HealthResponse: "Health",
    CohortResponse: "Made",
    PartsResponse: "Received",
    ErrorResponse: "Refusal",
}
_ERRORS = {
    400: "two lengths, or another host",
    401: "no valid key",
    402: "the budget of the population or of this client is used up",
    403: "the key has another role",
    404: "no such population or cohort for this key",
    408: "the body took too long",
    409: "the request id was used for another query",
    410: "debited before the service stopped, and never answered",
    413: "too large",
    415: "compressed",
    422: "not as described",
    429: "too often, or too much at once",
    500: "an unexpected error",
    503: "ledger, disk or memory cannot be used now",
}
#: Errors of every route with a key, of those with a body, and of those that debit.
_COMMON, _BODY, _DEBIT = (400, 401, 404, 422, 429, 500, 503), (408, 413, 415), (402, 403, 409, 410)


@dataclass(frozen=True)
class Operation:
    """One route.

    Attributes
    ----------
    name : str
        Name of its handler, also in the audit log.
    responses : tuple
        Media types of a response, each with its type; None for one that has no type here.
    query, body : type, optional
        Types of query parameters and body; :data:`ARROW` for a body of rows.
    errors : tuple of int
        HTTP statuses of its errors; a route without any needs no key.
    receipt : bool
        Whether an answer carries a receipt.
    """

    name: str
    method: str
    path: str
    summary: str
    responses: tuple[tuple[str, Any], ...]
    query: Any = None
    body: Any = None
    errors: tuple[int, ...] = _COMMON
    receipt: bool = False


OPERATIONS = (
    Operation("health", "GET", "/healthz", "whether the service answers", ((JSON, HealthResponse),), errors=()),
    Operation(
        "metrics",
        "GET",
        "/metrics",
        "counts and budgets, for monitoring; role read",
        ((TEXT, str),),
        errors=(*_COMMON, 403),
    ),
    Operation("openapi", "GET", "/openapi.json", "this description", ((JSON, None),), errors=()),
    Operation(
        "facts",
        "GET",
        "/v1/populations/{name}",
        "public facts; with plan, how often it fits in; with receipt, its link",
        ((JSON, FactsResponse),),
        query=FactsRequest,
    ),
    Operation(
        "cohort",
        "POST",
        "/v1/populations/{name}/cohorts",
        "ordered ids, or cohorts one after the other: the name of a cohort",
        ((JSON, CohortResponse),),
        body=CohortRequest,
        errors=(*_COMMON, *_BODY, 403),
    ),
    Operation(
        "ledger",
        "GET",
        "/v1/populations/{name}/ledger",
        "debits by client and purpose, with receipts; role read",
        ((JSON, None),),
        errors=(*_COMMON, 403),
    ),
    Operation(
        "certificate",
        "GET",
        "/v1/populations/{name}/certificate",
        "the privacy guarantee for all debits so far",
        ((JSON, None),),
        query=CertificateRequest,
    ),
    Operation(
        "sums",
        "POST",
        "/v1/cohorts/{name}/sums",
        "rows in the cohort's order: noisy sums by group, once all parts are there; role train",
        ((JSON, PartsResponse), (ARROW, bytes)),
        query=SumsRequest,
        body=ARROW,
        errors=(*_COMMON, *_BODY, *_DEBIT),
        receipt=True,
    ),
    Operation(
        "measure",
        "POST",
        "/v1/cohorts/{name}/measure",
        "labels and decisions in the cohort's order: a private measurement; role train or measure",
        ((JSON, None),),
        body=MeasureRequest,
        errors=(*_COMMON, *_BODY, *_DEBIT),
        receipt=True,
    ),
)


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document: all routes, what they take, and what they return."""
    _, schemas = msgspec.json.schema_components(tuple(_SCHEMAS), ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _openapi_operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Justitia custodian", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {name: schemas[kind.__name__] | {"title": name} for kind, name in _SCHEMAS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _openapi_operation(one: Operation) -> dict[str, Any]:
    error = {JSON: {"schema": _schema(ErrorResponse)}}
    content = {media: {} if kind is bytes else {"schema": _schema(kind)} for media, kind in one.responses}
    answer: dict[str, Any] = {"description": one.summary, "content": content}
    if one.receipt:
        answer["headers"] = {RECEIPT: {"description": "of the debit, as JSON", "schema": {"type": "string"}}}
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [*path, *_query_parameters(one.query)],
        "responses": {"200": answer}
        | {str(status): {"description": _ERRORS[status], "content": error} for status in sorted(one.errors)},
        "security": [{"key": []}] if one.errors else [],
    }
    if one.body is not None:
        body = {ARROW: {}} if one.body == ARROW else {JSON: {"schema": _schema(one.body)}}
        found["requestBody"] = {"required": True, "content": body}
    return found


def _schema(kind: Any) -> dict[str, str]:
    if kind is None or kind is str:
        return {"type": "object" if kind is None else "string"}
    return {"$ref": f"#/components/schemas/{_SCHEMAS[kind]}"}


def _query_parameters(kind: Any) -> list[dict[str, Any]]:
    if kind is None:
        return []
    _, found = msgspec.json.schema_components((kind,))
    fields = found[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in fields.get("required", []), "schema": schema}
        for name, schema in fields["properties"].items()
    ]


__all__ = [
    "OPERATIONS",
    "RECEIPT",
    "CertificateRequest",
    "CohortRequest",
    "CohortResponse",
    "ErrorResponse",
    "FactsRequest",
    "FactsResponse",
    "HealthResponse",
    "MeasureRequest",
    "Operation",
    "PartsResponse",
    "PlanCosts",
    "SumsRequest",
    "openapi",
    "read_json",
    "read_query",
]
