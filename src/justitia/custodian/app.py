"""HTTP application: JSON for facts, Arrow IPC streams for rows, and a receipt in the header of every answer.

Each request with a key passes one function (:meth:`App._route`): key, rate limit, audit log, handler, audit log. Every
exception ends there; the text of one that is no :class:`RequestError` is never sent, because it may hold anything.
"""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import metadata
from itertools import count
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from justitia.custodian import schemas
from justitia.custodian.batches import Batches
from justitia.custodian.errors import (
    INTERNAL_ERROR,
    INVALID_KEY,
    LEDGER_UNAVAILABLE,
    RATE_LIMITED,
    TWO_LENGTHS,
    UNKNOWN_HOST,
    RequestError,
)
from justitia.custodian.limits import (
    AnswerQueue,
    MemoryLimiter,
    MemoryReservation,
    RateLimiter,
    json_memory,
    read_body,
)
from justitia.custodian.records import Client
from justitia.custodian.service import Answer, Service, require_role
from justitia.custodian.settings import is_loopback
from justitia.custodian.wire import ARROW
from justitia.exceptions import LedgerError

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Invalid keys per minute from one address.
_INVALID_KEYS = 30
#: Requests of one client that wait or are being answered.
_REQUESTS_PER_CLIENT = 32
#: Bytes of memory for the requests of one client, unless the settings allow larger bodies.
_MEMORY = 512 << 20
#: Bytes of a body up to which a request counts as a small one.
_SMALL = 1 << 20
#: Entries of short lists (fields, notions, metrics) that a body may have beside its long ones.
_SHORT_LISTS = 100
#: What a handler returns: content of the response, and facts for the audit log.
Result = tuple[Any, dict[str, Any]]


class _Arrival(NamedTuple):
    """A request whose headers have arrived, its operation, and its number in the audit log."""

    what: str
    request: Request
    number: int


class App:
    """Routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        settings = service.settings
        self._rate = RateLimiter(settings.requests_per_minute)
        self._invalid_key_rate = RateLimiter(_INVALID_KEYS)
        per_client = max(_MEMORY, 2 * settings.largest_body)
        self._memory = MemoryLimiter(per_client=per_client, total=2 * per_client)
        self.answers = AnswerQueue(_REQUESTS_PER_CLIENT)
        self._admissions: Batches[_Arrival] = Batches(self._admit, "admissions")
        self._log_lines: Batches[bytes] = Batches(service.log.append_durably, "audit log")
        self._numbers = count(1)
        self.started = time.time()
        routes = [Route(one.path, self._route(one), methods=[one.method]) for one in schemas.OPERATIONS]
        handlers: Any = {HTTPException: _no_route}
        self.routes = Starlette(routes=routes, exception_handlers=handlers)
        self.asgi = checked_headers(self.routes, allowed_hosts(settings.hosts, settings.host))

    def _route(self, operation: schemas.Operation) -> Callable[[Request], Awaitable[Response]]:
        """The route of an operation: key, rate, answer or error; a line of the audit log at its begin and its end."""
        what = operation.name
        handler: Callable[..., Awaitable[Any]] = getattr(self, f"_{what}")
        if not operation.errors:  # no key is needed
            return handler

        async def route(request: Request) -> Response:
            client, number = None, next(self._numbers)
            facts: dict[str, Any] = {"name": request.path_params.get("name", ""), "number": number}
            try:
                client = await self._admissions.run(_Arrival(what, request, number))
                with self._memory.reservation(client.name) as memory:
                    result, more = await handler(client, request, memory)
                status, response = 200, _response(result)
                facts |= more
            except Exception as error:  # noqa: BLE001 - the one place where all errors end; none of their text is sent
                refused = _as_request_error(error)
                status, response = refused.status, _error_response(refused)
                facts["refused"] = refused.kind
            if client is None and status == RATE_LIMITED.status:
                self.service.log.count(what, status)  # no line each, because a stranger could fill the disk
                return response
            facts["client"] = "" if client is None else client.name
            try:
                await self._log_lines.run(self.service.log.end(what, status, **facts))
            except OSError:
                # No response leaves without its line in the log; the answer is stored, and sent once there is room.
                return _error_response(LEDGER_UNAVAILABLE)
            return response

        return route

    async def client(self, request: Request) -> Client:
        """The owner of the key in a request.

        Raises
        ------
        RequestError
            If there is no valid key, or if there are too many requests.
        """
        return await run_in_threadpool(self._owner, request)

    def _owner(self, request: Request) -> Client:
        address = "" if request.client is None else request.client.host
        client = self.service.client(_key(request))
        if client is None:
            raise INVALID_KEY if self._invalid_key_rate.allows(address) else RATE_LIMITED
        if not self._rate.allows(client.name):
            raise RATE_LIMITED
        return client

    def _admit(self, arrivals: Sequence[_Arrival]) -> list[Client | Exception]:
        """The owner of the key of each request, or why it is refused; after their lines in the log.

        The lines are there before any body is read, so that a crash has an author. The path is logged without the
        query, which holds the purpose.
        """
        owners: list[Client | Exception] = []
        lines = []
        for what, request, number in arrivals:
            try:
                client = self._owner(request)
                length = request.headers.get("content-length", "")
                facts = {"client": client.name, "path": request.url.path, "length": length, "number": number}
                lines.append(self.service.log.begin(what, **facts))
                owners.append(client)
            except Exception as error:  # noqa: BLE001 - raised in the request's own route
                owners.append(error)
        try:
            if lines:
                self.service.log.append(lines)
        except OSError as error:
            return [error if isinstance(one, Client) else one for one in owners]
        return owners

    async def _body(self, request: Request, memory: MemoryReservation) -> bytearray:
        settings = self.service.settings
        return await read_body(request, memory, max_bytes=settings.largest_body, seconds=settings.seconds_per_request)

    # -- handlers, named after their operation

    async def _facts(self, client: Client, request: Request, _memory: MemoryReservation) -> Result:
        query = schemas.read_query(dict(request.query_params), schemas.FactsRequest)
        plan = None if query.plan is None else schemas.read_json(query.plan.encode(), schemas.PlanCosts)
        name = request.path_params["name"]
        found = await self.answers.run(client.name, lambda: self.service.facts(client, name, plan, query.receipt))
        # A client whose plan does not fit refuses its own fit, and sends nothing else about it.
        return found, {} if plan is None else {"fits": found.fits}

    async def _ledger(self, client: Client, request: Request, _memory: MemoryReservation) -> Result:
        name = request.path_params["name"]
        return await self.answers.run(client.name, lambda: self.service.ledger(client, name)), {}

    async def _certificate(self, client: Client, request: Request, _memory: MemoryReservation) -> Result:
        query = schemas.read_query(dict(request.query_params), schemas.CertificateRequest)
        name, stated = request.path_params["name"], {"planned": query.planned, "subject": query.subject}
        return await self.answers.run(client.name, lambda: self.service.certificate(client, name, **stated)), {}

    async def _cohort(self, client: Client, request: Request, memory: MemoryReservation) -> Result:
        body = await self._body(request, memory)
        limit = self.service.settings.largest_cohort + _SHORT_LISTS
        memory.take(json_memory(body, texts=True, max_entries=limit))
        name = request.path_params["name"]

        def make() -> Any:
            query = schemas.read_json(body, schemas.CohortRequest)
            return self.service.make_cohort(client, name, query.ids, query.cohorts, person=query.person)

        made = await self.answers.run(client.name, make)
        return made, {"cohort": made.cohort, "people": made.people}

    async def _sums(self, client: Client, request: Request, memory: MemoryReservation) -> Result:
        query = schemas.read_query(dict(request.query_params), schemas.SumsRequest)
        body = await self._body(request, memory)
        name = request.path_params["name"]
        small = query.parts == 1 and len(body) <= _SMALL
        result = await self.answers.run(client.name, lambda: self.service.sums(client, name, query, body), small=small)
        facts = {"request": query.request, "purpose": query.purpose, "noise_multiplier": query.noise_multiplier}
        return result, facts | {"part": query.part, "parts": query.parts, "answered": isinstance(result, Answer)}

    async def _measure(self, client: Client, request: Request, memory: MemoryReservation) -> Result:
        body = await self._body(request, memory)
        limit = 4 * self.service.settings.largest_cohort + _SHORT_LISTS
        memory.take(json_memory(body, texts=False, max_entries=limit))
        name = request.path_params["name"]

        def measure() -> Any:
            query = schemas.read_json(body, schemas.MeasureRequest)
            return query, self.service.measurement(client, name, query)

        query, result = await self.answers.run(client.name, measure, small=len(body) <= _SMALL)
        return result, {"request": query.request, "purpose": "group rates", "epsilon": query.epsilon, "answered": True}

    async def _metrics(self, client: Client, _request: Request, _memory: MemoryReservation) -> Result:
        """Counts since the start and budgets, for monitoring; nothing by group."""
        require_role(client, "read")
        return await self.answers.run(client.name, lambda: self._metrics_text(client)), {}

    async def _health(self, _request: Request) -> Response:
        return _response(schemas.HealthResponse())

    async def _openapi(self, _request: Request) -> Response:
        return _response(schemas.openapi(metadata.version("justitia")))

    def _metrics_text(self, client: Client) -> str:
        """Metrics in the text format of Prometheus, for the populations that the client's key is for."""
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
    """The key in a request: a bearer token, or the password that a browser asks for."""
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
        error = None
        if {b"content-length", b"transfer-encoding"} <= names:
            error = TWO_LENGTHS
        elif hosts is not None and not all(host in hosts for host in _hosts(headers)):
            error = UNKNOWN_HOST
        if error is None:
            await app(scope, receive, send)
        else:
            await _error_response(error, close=True)(scope, receive, send)

    return checked


def _hosts(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Values of the header Host, without their ports."""
    found = [value.decode("latin-1").strip().lower() for name, value in headers if name == b"host"]
    return [host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0] for host in found]


def drop_traceback(error: BaseException) -> None:
    """Let go of the frames that an error came through: they hold bodies, and some errors are raised many times."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def _as_request_error(error: Exception) -> RequestError:
    """The error that is sent for an exception."""
    drop_traceback(error)
    if isinstance(error, RequestError):
        return error
    return LEDGER_UNAVAILABLE if isinstance(error, LedgerError | OSError | sqlite3.Error) else INTERNAL_ERROR


def _response(result: Any) -> Response:
    if isinstance(result, Answer):
        kind = "application/json" if result.body[:1] == b"{" else ARROW
        return Response(result.body, media_type=kind, headers=_HEADERS | {schemas.RECEIPT: result.receipt})
    if isinstance(result, str):
        return PlainTextResponse(result, headers=_HEADERS)
    return Response(msgspec.json.encode(result), media_type="application/json", headers=_HEADERS)


def _error_response(error: RequestError, *, close: bool = False) -> Response:
    body = msgspec.json.encode(schemas.ErrorResponse(error.message, error.kind))
    more = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    more |= {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    more |= {"connection": "close"} if close else {}  # what follows on it may not be the next request
    return Response(body, error.status, _HEADERS | more, "application/json")


async def _no_route(_request: Request, error: HTTPException) -> Response:
    return _error_response(
        RequestError(error.status_code, "route", "expected an address of this service, got another one.")
    )


__all__ = ["App", "allowed_hosts", "checked_headers", "drop_traceback"]
