"""The OpenAPI document: valid, complete, and true of every response."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from service_fixtures import IDS, Caller, N, make_folder, opened
from starlette.routing import Route

from justitia.custodian import errors
from justitia.custodian.app import App
from justitia.custodian.errors import RequestError
from justitia.custodian.schemas import openapi

FOUND = openapi("0")


def replies(path: str, method: str) -> dict[str, Any]:
    return dict(FOUND["paths"][path][method]["responses"])


def conforms(body: Any, content: dict[str, Any]) -> None:
    Draft202012Validator(content["schema"] | {"components": FOUND["components"]}).validate(body)


def test_document_is_valid_openapi_and_has_every_route(tmp_path: Path) -> None:
    OpenAPIV31SpecValidator(FOUND).validate()
    with opened(make_folder(tmp_path / "holder")) as service:
        app = App(service)
        served = json.loads(Caller(service)("GET", "/openapi.json", client=None).body)
    routes = {(one.path, method) for one in app.routes.routes if isinstance(one, Route) for method in one.methods or ()}
    described = {(path, method.upper()) for path, ways in FOUND["paths"].items() for method in ways}
    assert routes - {(path, "HEAD") for path, _ in routes} == described
    assert served["paths"] == FOUND["paths"]


def test_every_error_of_the_service_has_a_described_status() -> None:
    statuses = {one.status for one in vars(errors).values() if isinstance(one, RequestError)}
    statuses |= {errors.invalid_input("").status, errors.not_found("").status, errors.missing_role("").status}
    statuses |= {errors.too_large("").status, 402, 415}
    operations = [operation for path in FOUND["paths"].values() for operation in path.values()]
    assert statuses | {200} == {int(status) for operation in operations for status in operation["responses"]}


def test_answers_are_as_described(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        plan = json.dumps({"costs": [[10.0, 2]]})
        rows = np.ones((N, 2))
        cohort = ask.cohort()
        fetched = {
            "/v1/populations/{name}": ask("GET", "/v1/populations/people", plan=plan, receipt=0),
            "/v1/populations/{name}/ledger": ask("GET", "/v1/populations/people/ledger", client="reader"),
            "/healthz": ask("GET", "/healthz"),
        }
        sent = {
            "/v1/cohorts/{name}/sums": ask.sums(cohort, rows[:9], parts=2),
            "/v1/populations/{name}/cohorts": ask(
                "POST", "/v1/populations/people/cohorts", json.dumps({"ids": IDS, "person": True}).encode()
            ),
        }
    assert fetched["/v1/populations/{name}"].facts["fits"] > 0
    for method, found in (("get", fetched), ("post", sent)):
        for path, reply in found.items():
            conforms(reply.facts, replies(path, method)[str(reply.status)]["content"]["application/json"])
