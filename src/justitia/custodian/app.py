"""The service over HTTP: JSON for facts, Arrow IPC streams for rows, a receipt in the header of every answer."""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from importlib import metadata
from itertools import count
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from justitia.custodian import questions
from justitia.custodian.description import OPERATIONS, RECEIPT, Operation, description
from justitia.custodian.limits import Answers, Memory, Rate, Reserved, json_memory, read_body
from justitia.custodian.records import Client
from justitia.custodian.refusals import (
    NO_KEY,
    NO_LEDGER,
    OTHER_HOST,
    TOO_OFTEN,
    TWO_LENGTHS,
    UNEXPECTED,
    Refused,
    not_allowed,
)
from justitia.custodian.replies import Health, Refusal
from justitia.custodian.service import Answer, Service
from justitia.custodian.settings import is_loopback
from justitia.custodian.wire import ARROW
from justitia.exceptions import LedgerError

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Wrong keys per minute from one address.
_WRONG_KEYS = 30
#: Requests of one client that wait or are answered.
_AT_ONCE = 32
#: Bytes of memory for the requests of one client, where bodies are not larger than usual.
_MEMORY = 512 << 20
#: Entries of lists beside those of people: names of fields, notions, metrics.
_FEW = 100
Told = tuple[Any, dict[str, Any]]


class App:
    """Routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        settings = service.settings
        self._rate = Rate(settings.requests_per_minute)
        self._strangers = Rate(_WRONG_KEYS)
        each = max(_MEMORY, 2 * settings.largest_body)
        self._memory = Memory(each=each, most=2 * each)
        self.answers = Answers(_AT_ONCE)
        self._numbers = count(1)
        self.started = time.time()
        routes = [Route(one.path, self._route(one), methods=[one.method]) for one in OPERATIONS]
        handlers: Any = {HTTPException: _not_there}
        self.routes = Starlette(routes=routes, exception_handlers=handlers)
        self.asgi = checked_headers(self.routes, allowed_hosts(settings.hosts, settings.host))

    # -- one way in, one way out

    def _route(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        handler = getattr(self, f"_{operation.name}")
        return self._checked(operation.name, handler) if operation.refusals else handler

    def _checked(
        self, what: str, handler: Callable[[Client, Request, Reserved], Awaitable[Told]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route: key, rate, answer or refusal; a line of the audit log when it begins, and one when it ends."""

        async def route(request: Request) -> Response:
            client, facts = None, {"name": request.path_params.get("name", ""), "number": next(self._numbers)}
            try:
                client = await self.client(request)
                await self._log_begin(what, client, request, facts["number"])
                with self._memory.of(client.name) as memory:
                    told, more = await handler(client, request, memory)
                status, response = 200, _response(told)
                facts |= more
            except Exception as error:  # noqa: BLE001 - the one place where all of them end; no text of theirs is told
                refusal = _as_refusal(error)
                status, response = refusal.status, _refusal(refusal)
                facts["refused"] = refusal.kind
            if client is None and status == TOO_OFTEN.status:
                self.service.log.count(what, status)  # no line each: a stranger could fill the disk
                return response
            facts["client"] = "" if client is None else client.name
            try:
                await run_in_threadpool(lambda: self.service.log.write(what, status, **facts))
            except OSError:
                return _refusal(NO_LEDGER)  # nothing is told without its line; an answer is kept until there is room
            return response

        return route

    async def client(self, request: Request) -> Client:
        """Whose key came with a request.

        Raises
        ------
        Refused
            If there is none that is valid, or if it came too often.
        """
        address = "" if request.client is None else request.client.host
        client = await run_in_threadpool(self.service.client, _key(request))
        if client is None:
            raise NO_KEY if self._strangers.allows(address) else TOO_OFTEN
        if not self._rate.allows(client.name):
            raise TOO_OFTEN
        return client

    async def _log_begin(self, what: str, client: Client, request: Request, number: int) -> None:
        """So that a crash has an author; a path has no query, and so no purpose."""
        length = request.headers.get("content-length", "")
        facts = {"client": client.name, "path": request.url.path, "length": length, "number": number}
        await run_in_threadpool(lambda: self.service.log.begin(what, **facts))

    async def _body(self, request: Request, memory: Reserved) -> bytearray:
        settings = self.service.settings
        return await read_body(request, memory, largest=settings.largest_body, seconds=settings.seconds_per_request)

    # -- routes

    async def _facts(self, client: Client, request: Request, memory: Reserved) -> Told:
        del memory
        asked = questions.read_query(dict(request.query_params), questions.Facts)
        plan = None if asked.plan is None else questions.read_json(asked.plan.encode(), questions.Plan)
        name = request.path_params["name"]
        return await self.answers.get(client.name, lambda: self.service.facts(client, name, plan, asked.receipt)), {}

    async def _ledger(self, client: Client, request: Request, memory: Reserved) -> Told:
        del memory
        name = request.path_params["name"]
        return await self.answers.get(client.name, lambda: self.service.ledger(client, name)), {}

    async def _certificate(self, client: Client, request: Request, memory: Reserved) -> Told:
        del memory
        asked = questions.read_query(dict(request.query_params), questions.Certificate)
        given: dict[str, Any] = {"planned": asked.planned, "subject": asked.subject}
        name = request.path_params["name"]
        return await self.answers.get(client.name, lambda: self.service.certificate(client, name, **given)), {}

    async def _cohort(self, client: Client, request: Request, memory: Reserved) -> Told:
        body = await self._body(request, memory)
        memory.take(json_memory(body, texts=True, most=self.service.settings.largest_cohort + _FEW))
        name = request.path_params["name"]

        def made() -> Any:
            asked = questions.read_json(body, questions.Cohort)
            return self.service.make_cohort(client, name, asked.ids, asked.cohorts, person=asked.person)

        told = await self.answers.get(client.name, made)
        return told, {"cohort": told.cohort, "people": told.people}

    async def _sums(self, client: Client, request: Request, memory: Reserved) -> Told:
        asked = questions.read_query(dict(request.query_params), questions.Sums)
        body = await self._body(request, memory)
        name = request.path_params["name"]
        told = await self.answers.get(client.name, lambda: self.service.sums(client, name, asked, body))
        facts = {"request": asked.request, "purpose": asked.purpose, "noise_multiplier": asked.noise_multiplier}
        return told, facts | {"part": asked.part, "parts": asked.parts, "answered": isinstance(told, Answer)}

    async def _measure(self, client: Client, request: Request, memory: Reserved) -> Told:
        body = await self._body(request, memory)
        memory.take(json_memory(body, texts=False, most=4 * self.service.settings.largest_cohort + _FEW))
        name = request.path_params["name"]

        def measured() -> Any:
            asked = questions.read_json(body, questions.Measure)
            return asked, self.service.measured(client, name, asked)

        asked, told = await self.answers.get(client.name, measured)
        return told, {"request": asked.request, "purpose": "group rates", "epsilon": asked.epsilon, "answered": True}

    async def _metrics(self, client: Client, request: Request, memory: Reserved) -> Told:
        """Counts since the start and budgets, for monitoring; nothing by group."""
        del request, memory
        if "read" not in client.roles:
            raise not_allowed("read")
        return await self.answers.get(client.name, lambda: self._counts(client)), {}

    async def _health(self, request: Request) -> Response:
        """Whether the service answers."""
        del request
        return _response(Health())

    async def _openapi(self, request: Request) -> Response:
        """The description of the interface."""
        del request
        return _response(description(metadata.version("justitia")))

    def _counts(self, client: Client) -> str:
        lines = [f"justitia_uptime_seconds {time.time() - self.started:.0f}"]
        for (what, status), requests in sorted(self.service.log.counts.items()):
            lines.append(f'justitia_requests_total{{what="{what}",status="{status}"}} {requests}')
        for population in self.service.records.populations():
            if population.name not in client.populations:
                continue
            receipts, _ = self.service.records.head(population.name)
            lines.append(f'justitia_answers_total{{population="{population.name}"}} {receipts}')
            lines.append(f'justitia_budget_epsilon{{population="{population.name}"}} {population.epsilon:g}')
        return "\n".join(lines) + "\n"


def _key(request: Request) -> str | None:
    """The key that came with a request: as a token, or as the password that a browser asks for."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(given.strip(), validate=True).decode().partition(":")[2]
    except ValueError:  # neither base64 nor text
        return None


def allowed_hosts(named: str, listening: str) -> frozenset[str] | None:
    """Names that a request may give in its header Host; None for any.

    A service that listens on this machine only is known by the names of this machine, so that no page in a browser
    reaches it under a name of its own (DNS rebinding). One that others reach has a certificate for its names.

    Parameters
    ----------
    named : str
        The setting ``hosts``: further names, with commas between them.
    listening : str
        The setting ``host``.
    """
    more = {one.strip().lower() for one in named.split(",") if one.strip()}
    if not more and not is_loopback(listening):
        return None
    return frozenset({"127.0.0.1", "localhost", "[::1]", listening.lower(), *more})


def checked_headers(app: ASGIApp, hosts: frozenset[str] | None) -> ASGIApp:
    """Refuse a request with two lengths, or for another host, before any route."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers", [])
        names = {name for name, _ in headers}
        refusal = None
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = TWO_LENGTHS
        elif hosts is not None and not all(host in hosts for host in _hosts(headers)):
            refusal = OTHER_HOST
        if refusal is None:
            await app(scope, receive, send)
        else:
            await _refusal(refusal, close=True)(scope, receive, send)

    return checked


def _hosts(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Without their ports."""
    found = [value.decode("latin-1").strip().lower() for name, value in headers if name == b"host"]
    return [host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0] for host in found]


def forget(error: BaseException) -> None:
    """Let go of the frames that an error came through: they hold bodies, and some refusals are raised many times."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def _as_refusal(error: Exception) -> Refused:
    """What is told instead: the text of an error that nobody expected may hold anything."""
    forget(error)
    if isinstance(error, Refused):
        return error
    return NO_LEDGER if isinstance(error, LedgerError | OSError | sqlite3.Error) else UNEXPECTED


def _response(told: Any) -> Response:
    if isinstance(told, Answer):
        kind = "application/json" if told.body[:1] == b"{" else ARROW
        return Response(told.body, media_type=kind, headers=_HEADERS | {RECEIPT: told.receipt})
    if isinstance(told, str):
        return PlainTextResponse(told, headers=_HEADERS)
    return Response(msgspec.json.encode(told), media_type="application/json", headers=_HEADERS)


def _refusal(refusal: Refused, *, close: bool = False) -> Response:
    body = msgspec.json.encode(Refusal(refusal.sentence, refusal.kind))
    more = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
    more |= {} if refusal.pause is None else {"retry-after": str(refusal.pause)}
    more |= {"connection": "close"} if close else {}  # what follows on it may not be the next request
    return Response(body, refusal.status, _HEADERS | more, "application/json")


async def _not_there(request: Request, error: HTTPException) -> Response:
    del request
    return _refusal(Refused(error.status_code, "route", "expected an address of this service, got another one."))


__all__ = ["App", "allowed_hosts", "checked_headers", "forget"]
