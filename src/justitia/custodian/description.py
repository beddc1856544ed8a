"""The interface as OpenAPI 3.1, made of the types that requests are checked by and replies are made of.

The service takes its routes from :data:`OPERATIONS`, so that there is none that is not described.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from justitia.custodian import questions, replies
from justitia.custodian.wire import ARROW

JSON, TEXT = "application/json", "text/plain"
RECEIPT = "justitia-receipt"
_REFUSALS = {
    400: "two lengths, or another host",
    401: "no valid key",
    402: "the budget of the population or of this client is used up",
    403: "the key has another role",
    404: "no such population or cohort for this key",
    408: "the body took too long",
    409: "the request id was used for another question",
    410: "debited before the service stopped, and never answered",
    413: "too large",
    415: "compressed",
    422: "not as described",
    429: "too often, or too much at once",
    500: "an error that nobody expected",
    503: "ledger, disk or memory cannot be used now",
}
_ALWAYS, _BODY, _PAID = (400, 401, 404, 422, 429, 500, 503), (408, 413, 415), (402, 403, 409, 410)


@dataclass(frozen=True)
class Operation:
    """One route.

    Attributes
    ----------
    name : str
        Of its handler, and in the audit log.
    told : tuple
        Kinds of content of a reply, each with its type; None for one that has no type here.
    query, body : type, optional
        What stands in the address, and in the body; :data:`ARROW` for rows.
    refusals : tuple of int
        Statuses of refusals; without any, no key is asked for.
    """

    name: str
    method: str
    path: str
    about: str
    told: tuple[tuple[str, Any], ...]
    query: Any = None
    body: Any = None
    refusals: tuple[int, ...] = _ALWAYS
    receipt: bool = False


_MADE = (*_ALWAYS, *_BODY, 403)
_ASKED = (*_ALWAYS, *_BODY, *_PAID)
OPERATIONS = (
    Operation("health", "GET", "/healthz", "whether the service answers", ((JSON, replies.Health),), refusals=()),
    Operation(
        "metrics",
        "GET",
        "/metrics",
        "counts and budgets, for monitoring; role read",
        ((TEXT, str),),
        refusals=(*_ALWAYS, 403),
    ),
    Operation("openapi", "GET", "/openapi.json", "this description", ((JSON, None),), refusals=()),
    Operation(
        "facts",
        "GET",
        "/v1/populations/{name}",
        "public facts; with plan, how often it fits in; with receipt, its link",
        ((JSON, replies.Facts),),
        query=questions.Facts,
    ),
    Operation(
        "cohort",
        "POST",
        "/v1/populations/{name}/cohorts",
        "ordered ids, or cohorts one after the other: the name of a cohort",
        ((JSON, replies.Made),),
        body=questions.Cohort,
        refusals=_MADE,
    ),
    Operation(
        "ledger",
        "GET",
        "/v1/populations/{name}/ledger",
        "who asked what, for what; role read",
        ((JSON, None),),
        refusals=(*_ALWAYS, 403),
    ),
    Operation(
        "certificate",
        "GET",
        "/v1/populations/{name}/certificate",
        "what the ledger can say",
        ((JSON, None),),
        query=questions.Certificate,
    ),
    Operation(
        "sums",
        "POST",
        "/v1/cohorts/{name}/sums",
        "rows in the cohort's order: noised sums by group, once all parts are there; role train",
        ((JSON, replies.Received), (ARROW, bytes)),
        query=questions.Sums,
        body=ARROW,
        refusals=_ASKED,
        receipt=True,
    ),
    Operation(
        "measure",
        "POST",
        "/v1/cohorts/{name}/measure",
        "labels and decisions in the cohort's order: a private measurement; role train or measure",
        ((JSON, None),),
        body=questions.Measure,
        refusals=_ASKED,
        receipt=True,
    ),
)
_TYPES = (questions.Cohort, questions.Measure, questions.Plan, replies.Facts, replies.Health, replies.Made)


def description(version: str) -> dict[str, Any]:
    """All routes, what they take, and what they answer or refuse."""
    types = (*_TYPES, replies.Received, replies.Refusal)
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Justitia custodian", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {"description": one.about, "content": {kind: _content(type_) for kind, type_ in one.told}}
    if one.receipt:
        told["headers"] = {RECEIPT: {"description": "of the debit, as JSON", "schema": {"type": "string"}}}
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.about,
        "parameters": [*_places(one.path), *_parameters(one.query)],
        "responses": {"200": told} | {str(status): _refusal(status) for status in sorted(one.refusals)},
        "security": [{"key": []}] if one.refusals else [],
    }
    if one.body is not None:
        kind = ARROW if one.body == ARROW else JSON
        content = {} if one.body == ARROW else {"schema": _reference(one.body)}
        found["requestBody"] = {"required": True, "content": {kind: content}}
    return found


def _content(kind: Any) -> dict[str, Any]:
    if kind is bytes:
        return {}
    if kind is str:
        return {"schema": {"type": "string"}}
    return {"schema": {"type": "object"} if kind is None else _reference(kind)}


def _reference(kind: Any) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _refusal(status: int) -> dict[str, Any]:
    return {"description": _REFUSALS[status], "content": {JSON: {"schema": _reference(replies.Refusal)}}}


def _places(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in names]


def _parameters(kind: Any) -> list[dict[str, Any]]:
    """The fields of a type, as they stand in an address."""
    if kind is None:
        return []
    _, found = msgspec.json.schema_components((kind,))
    fields = found[kind.__name__]
    needed = fields.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": schema}
        for name, schema in fields["properties"].items()
    ]


__all__ = ["OPERATIONS", "RECEIPT", "Operation", "description"]
