"""The service over HTTP: JSON for facts, Arrow IPC streams for rows, a receipt in the header of every answer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from justitia.custodian import questions
from justitia.custodian.description import OPERATIONS, RECEIPT, Operation, description
from justitia.custodian.limits import Rate, read_body
from justitia.custodian.records import Client
from justitia.custodian.refusals import NO_KEY, NO_LEDGER, TOO_OFTEN, UNEXPECTED, Refused
from justitia.custodian.replies import Health, Refusal
from justitia.custodian.service import Answer, Service
from justitia.custodian.wire import ARROW
from justitia.privacy.errors import LedgerError

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Wrong keys per minute from one address.
_WRONG_KEYS = 30
Told = tuple[Any, dict[str, Any]]


class App:
    """Routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._rate = Rate(service.settings.requests_per_minute)
        self._strangers = Rate(_WRONG_KEYS)
        self.started = time.time()
        routes = [Route(one.path, self._route(one), methods=[one.method]) for one in OPERATIONS]
        handlers: Any = {HTTPException: _not_there}
        self.asgi = Starlette(routes=routes, exception_handlers=handlers)

    # -- one way in, one way out

    def _route(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        handler = getattr(self, f"_{operation.name}")
        return self._checked(operation.name, handler) if operation.refusals else handler

    def _checked(
        self, what: str, handler: Callable[[Client, Request], Awaitable[Told]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route: key, rate, answer or refusal, one line of the audit log."""

        async def route(request: Request) -> Response:
            client, facts = None, {"name": request.path_params.get("name", "")}
            try:
                client = await self._client(request)
                told, more = await handler(client, request)
                status, response = 200, _response(told)
                facts |= more
            except Exception as error:  # noqa: BLE001 - the one place where all of them end; no text of theirs is told
                refusal = _as_refusal(error)
                status, response = refusal.status, _refusal(refusal)
                facts["refused"] = refusal.kind
            facts["client"] = "" if client is None else client.name
            try:
                await run_in_threadpool(lambda: self.service.log.write(what, status, **facts))
            except OSError:
                return _refusal(NO_LEDGER)  # nothing is told without its line; an answer is kept until there is room
            return response

        return route

    async def _client(self, request: Request) -> Client:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        address = "" if request.client is None else request.client.host
        client = await run_in_threadpool(self.service.client, key.strip() if scheme.lower() == "bearer" else None)
        if client is None:
            raise NO_KEY if self._strangers.allows(address) else TOO_OFTEN
        if not self._rate.allows(client.name):
            raise TOO_OFTEN
        return client

    async def _body(self, request: Request) -> bytes:
        settings = self.service.settings
        return await read_body(request, largest=settings.largest_body, seconds=settings.seconds_per_request)

    # -- routes

    async def _facts(self, client: Client, request: Request) -> Told:
        asked = questions.read_query(dict(request.query_params), questions.Facts)
        plan = None if asked.plan is None else questions.read_json(asked.plan.encode(), questions.Plan)
        return await run_in_threadpool(self.service.facts, client, request.path_params["name"], plan, asked.receipt), {}

    async def _ledger(self, client: Client, request: Request) -> Told:
        return await run_in_threadpool(self.service.ledger, client, request.path_params["name"]), {}

    async def _certificate(self, client: Client, request: Request) -> Told:
        asked = questions.read_query(dict(request.query_params), questions.Certificate)
        given: dict[str, Any] = {"planned": asked.planned, "subject": asked.subject}
        name = request.path_params["name"]
        return await run_in_threadpool(lambda: self.service.certificate(client, name, **given)), {}

    async def _cohort(self, client: Client, request: Request) -> Told:
        asked = questions.read_json(await self._body(request), questions.Cohort)
        name = request.path_params["name"]
        made = await run_in_threadpool(
            lambda: self.service.make_cohort(client, name, asked.ids, asked.cohorts, person=asked.person)
        )
        return made, {"cohort": made.cohort, "people": made.people}

    async def _sums(self, client: Client, request: Request) -> Told:
        asked = questions.read_query(dict(request.query_params), questions.Sums)
        body = await self._body(request)
        told = await run_in_threadpool(self.service.sums, client, request.path_params["name"], asked, body)
        facts = {"request": asked.request, "purpose": asked.purpose, "noise_multiplier": asked.noise_multiplier}
        return told, facts | {"part": asked.part, "parts": asked.parts, "answered": isinstance(told, Answer)}

    async def _measure(self, client: Client, request: Request) -> Told:
        asked = questions.read_json(await self._body(request), questions.Measure)
        told = await run_in_threadpool(self.service.measured, client, request.path_params["name"], asked)
        return told, {"request": asked.request, "purpose": "group rates", "epsilon": asked.epsilon, "answered": True}

    async def _health(self, request: Request) -> Response:
        """Whether the service answers."""
        del request
        return _response(Health())

    async def _openapi(self, request: Request) -> Response:
        """The description of the interface."""
        del request
        return _response(description(metadata.version("justitia")))

    async def _metrics(self, request: Request) -> Response:
        """Counts since the start and budgets, for monitoring; nothing by group."""
        del request
        return PlainTextResponse(await run_in_threadpool(self._counts), headers=_HEADERS)

    def _counts(self) -> str:
        lines = [f"justitia_uptime_seconds {time.time() - self.started:.0f}"]
        for (what, status), count in sorted(self.service.log.counts.items()):
            lines.append(f'justitia_requests_total{{what="{what}",status="{status}"}} {count}')
        for population in self.service.records.populations():
            receipts, _ = self.service.records.head(population.name)
            lines.append(f'justitia_answers_total{{population="{population.name}"}} {receipts}')
            lines.append(f'justitia_budget_epsilon{{population="{population.name}"}} {population.epsilon:g}')
        return "\n".join(lines) + "\n"


def _as_refusal(error: Exception) -> Refused:
    """What is told instead: the text of an error that nobody expected may hold anything."""
    if isinstance(error, Refused):
        return error
    return NO_LEDGER if isinstance(error, LedgerError | OSError | sqlite3.Error) else UNEXPECTED


def _response(told: Any) -> Response:
    if isinstance(told, Answer):
        kind = "application/json" if told.body[:1] == b"{" else ARROW
        return Response(told.body, media_type=kind, headers=_HEADERS | {RECEIPT: told.receipt})
    return Response(msgspec.json.encode(told), media_type="application/json", headers=_HEADERS)


def _refusal(refusal: Refused) -> Response:
    body = msgspec.json.encode(Refusal(refusal.sentence, refusal.kind))
    more = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
    more |= {"retry-after": "60"} if refusal.status == 429 else {}
    return Response(body, refusal.status, _HEADERS | more, "application/json")


async def _not_there(request: Request, error: HTTPException) -> Response:
    del request
    return _refusal(Refused(error.status_code, "route", "expected an address of this service, got another one."))


__all__ = ["App"]
