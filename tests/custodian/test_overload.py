"""What one client, or a stranger, can take from the others: connections, memory, threads and time have limits.

Connections are made on this machine only.
"""

import gc
import json
import resource
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from service_fixtures import IDS, KEYS, Caller, N, make_folder, opened, served, serving

from justitia.custodian import app, limits
from justitia.custodian.connection import Connection
from justitia.custodian.errors import RequestError
from justitia.custodian.limits import AnswerQueue, json_memory
from justitia.custodian.records import Records
from justitia.custodian.service import Service
from justitia.custodian.settings import self_signed
from justitia.metrics.measure import MeasurementQuery

Y = [0, 1] * (N // 2)
ROWS = np.ones((N, 2))
#: All but its last line.
HALF = b"GET /v1/populations/people HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


OPEN: list[socket.socket] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No test leaves a connection behind."""
    yield
    for one in OPEN:
        one.close()
    OPEN.clear()


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    place = ("127.0.0.1", int(urlsplit(url).port or 0))
    OPEN.append(socket.create_connection(place, timeout=20, source_address=(source, 0)))
    return OPEN[-1]


def request(client: str, path: str, length: int | None = None, **headers: str) -> bytes:
    given = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {KEYS.get(client, client)}",
        "Connection": "close",
    } | headers
    if length is not None:
        given["Content-Length"] = str(length)
    lines = [f"{'GET' if length is None else 'POST'} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def received(one: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = b""
    try:
        while part := one.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


# -- connections


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("tls", "addresses"), [(False, 1), (True, 10)])
def test_client_is_answered_within_five_seconds_beside_600_connections_that_send_half_a_header(
    tls: bool, addresses: int, tmp_path: Path
) -> None:
    pem, private = self_signed("127.0.0.1")
    folder, given = make_folder(tmp_path / "holder"), {}
    (folder / "server.pem").write_bytes(pem)
    (folder / "server.key").write_bytes(private)
    if tls:
        given = {"tls_certificate": "server.pem", "tls_key": "server.key"}
    with many_files(), serving(folder, **given) as (url, process):
        for number in range(600):
            one = connected(url, f"127.0.0.{1 + number % addresses}")
            one.sendall(b"\x16\x03\x01" if tls else HALF)
        begun = time.monotonic()
        client = Connection(url, KEYS["trainer"], ca_file=folder / "server.pem" if tls else None)
        assert client.get("/v1/populations/people")["population"] == "people"
        assert time.monotonic() - begun < 5
        limit = next(line for line in Path(f"/proc/{process}/limits").read_text().splitlines() if "core file" in line)
    assert limit.split()[4:6] == ["0", "0"]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        HALF + b"\r\n" + HALF,  # a second request on the same connection
        request("nobody", "/v1/cohorts/x/sums", 10**6).replace(b"Connection: close\r\n", b"") + b"x",  # after a refusal
    ],
)
def test_connection_that_does_not_go_on_is_closed_whatever_trickles_in(
    sent: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.5)
    with served(folder) as url, connected(url) as one:
        one.sendall(sent)
        one.settimeout(0.1)
        begun, open_ = time.monotonic(), True
        while open_ and time.monotonic() - begun < 8:
            try:
                if sent:
                    one.sendall(b"x")
                open_ = one.recv(1 << 16) != b""
            except TimeoutError:
                continue
            except OSError:
                open_ = False
        assert not open_
        assert time.monotonic() - begun < 5


def test_address_has_so_many_connections_and_those_at_work_are_not_closed_for_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        begun.set()
        go_on.wait(20)
        return {"ok": True}

    monkeypatch.setattr(Service, "facts", slow)
    with served(folder, connections_per_address=4) as url:
        working = connected(url)
        working.sendall(request("trainer", "/v1/populations/people"))
        assert begun.wait(20)
        waiting = [connected(url) for _ in range(10)]
        time.sleep(0.5)
        for one in waiting:
            one.settimeout(0.2)
        still = 0
        for one in waiting:
            try:
                assert one.recv(1) == b""
            except TimeoutError:
                still += 1
        assert still == 3
        other = connected(url, "127.0.0.9")
        other.sendall(request("reader", "/metrics"))
        assert status(received(other)) == 200
        go_on.set()
        assert status(received(working)) == 200


# -- headers


@pytest.mark.parametrize("order", [1, -1])
def test_request_with_two_lengths_is_refused_and_the_connection_closed(order: int, folder: Path) -> None:
    lengths = ["Content-Length: 5", "Transfer-Encoding: chunked"][::order]
    head = request("trainer", "/v1/populations/people/cohorts", 0).replace(b"Connection: close\r\n", b"")
    head = head.replace(b"Content-Length: 0", "\r\n".join(lengths).encode())
    with served(folder) as url, connected(url) as one:
        one.sendall(head + b"0\r\n\r\n" + request("trainer", "/healthz"))
        reply = received(one)
    assert status(reply) == 400
    assert reply.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("settings", "host", "code"),
    [
        ({}, "127.0.0.1:8787", 200),
        ({}, "LOCALHOST", 200),
        ({}, "[::1]:8787", 200),
        ({}, "evil.example", 400),
        ({}, "127.0.0.1.evil.example:8787", 400),
        ({}, "", 400),
        ({"hosts": "hr.example, other.example"}, "hr.example:443", 200),
        ({"hosts": "hr.example"}, "evil.example", 400),
    ],
)
def test_other_hosts_are_refused_where_only_this_machine_connects(
    settings: dict[str, Any], host: str, code: int, folder: Path
) -> None:
    with opened(folder, **settings) as service:
        ask = Caller(service)
        for path in ("/v1/populations/people", "/healthz"):
            assert ask("GET", path, headers={"host": host}).status == code


def test_service_for_others_takes_any_host_unless_some_are_named() -> None:
    assert app.allowed_hosts("", "0.0.0.0") is None
    assert "hr.example" in (app.allowed_hosts("hr.example", "0.0.0.0") or ())


# -- memory


def test_bodies_beyond_the_memory_of_a_client_are_refused_and_others_are_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_MEMORY", 25_000)
    path = "/v1/cohorts/x/sums?request=r&purpose=p&bound=1&noise_multiplier=1"
    with served(folder, largest_body=10_000) as url:
        held = [connected(url) for _ in range(2)]
        for one in held:
            one.sendall(request("trainer", path, 10_000) + b"x" * 9_990)
        time.sleep(0.5)
        for client, code in (("trainer", 429), ("analyst", 404)):
            with connected(url) as one:
                one.sendall(request(client, path.replace("r&", f"{client}&"), 9_000) + b"x" * 9_000)
                reply = received(one)
            assert status(reply) == (code if client == "trainer" else 403)
            assert (b"retry-after" in reply) == (code == 429)
        for one in held:
            one.sendall(b"x" * 10)
            assert status(received(one)) in {404, 422}  # what they reserved is theirs until now
        with connected(url) as one:
            one.sendall(request("trainer", path, 9_000) + b"x" * 9_000)
            assert status(received(one)) in {404, 422}


def test_all_clients_together_have_a_limit_and_a_request_that_never_fits_is_too_large() -> None:
    memory = limits.MemoryLimiter(per_client=100, total=150)
    with memory.reservation("a") as one, memory.reservation("b") as two:
        one.take(100)
        two.take(50)
        for held, more, code in ((one, 1, 413), (two, 1, 503), (two, 51, 413), (memory.reservation("a"), 1, 429)):
            with pytest.raises(RequestError) as refused:
                held.take(more)
            assert refused.value.status == code
    with memory.reservation("c") as three:
        three.take(100)


@pytest.mark.parametrize(
    ("body", "texts", "held"),
    [
        (json.dumps({"ids": ["a"] * 50}), True, 50 * 50),
        (json.dumps({"ids": ["é" * 100] * 50}), True, 50 * (74 + 100)),
        (json.dumps({"ids": ["a" * 99 + "\U0001f600"] * 50}), True, 50 * (76 + 400)),
        (json.dumps({"scores": [0.5] * 50}), False, 50 * 32),
    ],
)
def test_memory_of_json_is_bounded_from_its_characters(body: str, texts: bool, held: int) -> None:
    assert json_memory(body.encode(), texts=texts, max_entries=60) >= held
    with pytest.raises(RequestError) as refused:
        json_memory(body.encode(), texts=texts, max_entries=40)
    assert refused.value.status == 413


def test_lists_that_are_too_long_are_refused_before_they_are_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder, largest_cohort=1000) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        monkeypatch.setattr("justitia.custodian.schemas.read_json", lambda *_: pytest.fail("it was decoded"))
        many = json.dumps({"ids": ["a"] * 1200}).encode()
        assert ask("POST", "/v1/populations/people/cohorts", many).status == 413
        many = json.dumps({"scores": [0] * 4200}).encode()
        assert ask("POST", f"/v1/cohorts/{cohort}/measure", many).status == 413


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cohorts that were loaded with their people."""
    found: list[str] = []
    cohort = Records.cohort

    def counted(self: Records, name: str, client: str | None = None, *, with_digests: bool = False) -> Any:
        found.extend([name] * with_digests)
        return cohort(self, name, client, with_digests=with_digests)

    monkeypatch.setattr(Records, "cohort", counted)
    return found


def test_cohort_that_is_named_many_times_is_refused_and_never_loaded(folder: Path, loads: list[str]) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        body = json.dumps({"cohorts": [ask.cohort()] * 700}).encode()
        reply = ask("POST", "/v1/populations/people/cohorts", body)
    assert (reply.status, loads) == (422, [])
    assert "once" in reply.facts["error"]


def test_rows_of_joined_cohorts_are_counted_before_any_is_loaded(folder: Path, loads: list[str]) -> None:
    with opened(folder, largest_cohort=N + 10) as service:
        ask = Caller(service)
        names = [ask.cohort(IDS[:200]), ask.cohort(IDS[100:])]
        path = "/v1/populations/people/cohorts"
        assert ask("POST", path, json.dumps({"cohorts": names}).encode()).status == 413
        assert ask("POST", path, json.dumps({"cohorts": names[:1] * 700, "person": True}).encode()).status == 413
        assert loads == []
        few = json.dumps({"ids": IDS[:5], "person": True}).encode()
        name = ask("POST", path, few).facts["cohort"]
        joined = ask("POST", path, json.dumps({"cohorts": [name] * 3, "person": True}).encode())
        assert joined.facts["people"] == 15  # three rows of each person
        assert loads == [name]


def test_body_of_a_refused_request_leaves_the_memory_with_its_reply(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[Any] = []

    class Body(bytearray):
        """One that can be watched."""

    async def read(*_: Any, **__: Any) -> Any:
        made = Body(b"x" * 1000)
        bodies.append(weakref.ref(made))
        return made

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, ROWS[:1], parts=2)
        monkeypatch.setattr(app, "read_body", read)
        monkeypatch.setattr("justitia.custodian.service.from_stream", lambda *_, **__: ROWS)
        gc.collect()
        gc.disable()
        try:
            statuses = [ask.sums(cohort, b"x", parts=2).status, ask.sums("0" * 32, b"x").status]
            assert (statuses, [one() for one in bodies]) == ([409, 404], [None, None])
        finally:
            gc.enable()


# -- threads


def in_thread(job: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(job()), daemon=True)
    thread.start()
    return thread, found


def test_measurement_is_prepared_while_others_query_the_same_population(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, values = threading.Event(), threading.Event(), MeasurementQuery.values

    def slow(question: MeasurementQuery) -> Any:
        begun.set()
        assert go_on.wait(20)
        return values(question)

    monkeypatch.setattr(MeasurementQuery, "values", slow)
    body = json.dumps({"request": "m", "y_true": Y, "y_pred": Y, "epsilon": 0.1}).encode()
    with opened(folder) as service:
        ask = Caller(service)
        cohort, other = ask.cohort(client="analyst"), ask.cohort()
        thread, measured = in_thread(lambda: ask("POST", f"/v1/cohorts/{cohort}/measure", body, client="analyst"))
        assert begun.wait(20)
        second, summed = in_thread(lambda: ask.sums(other, ROWS))
        second.join(10)
        assert [one.status for one in summed] == [200]
        go_on.set()
        thread.join(20)
        assert [one.status for one in measured] == [200]
        assert len(service.records.receipts("people")) == 2


def test_measurement_beyond_the_budget_is_refused_before_it_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MeasurementQuery, "values", lambda _: pytest.fail("it was prepared"))
    with opened(make_folder(tmp_path / "holder", epsilon=0.1)) as service:
        ask = Caller(service)
        body = json.dumps({"request": "m", "y_true": Y, "y_pred": Y, "epsilon": 0.5}).encode()
        assert ask("POST", f"/v1/cohorts/{ask.cohort()}/measure", body).status == 402


def test_client_with_many_slow_requests_waits_for_itself_and_others_are_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, facts = threading.Event(), Service.facts

    def slow(self: Service, client: Any, *given: Any) -> Any:
        if client.name == "trainer":
            go_on.wait(30)
        return facts(self, client, *given)

    monkeypatch.setattr(Service, "facts", slow)
    with served(folder) as url:
        asking = [connected(url) for _ in range(60)]
        for one in asking:
            one.sendall(request("trainer", "/v1/populations/people"))
        time.sleep(1)
        begun = time.monotonic()
        for client, path in (("analyst", "/v1/populations/people"), ("reader", "/metrics"), ("nobody", "/metrics")):
            with connected(url) as one:
                one.sendall(request(client, path))
                assert status(received(one)) == (401 if client == "nobody" else 200)
        assert time.monotonic() - begun < 5
        go_on.set()
        replies = [received(one) for one in asking]
    found = [status(reply) for reply in replies]
    assert (found.count(200), found.count(429)) == (32, 28)
    assert all(b"retry-after: 2" in reply for reply in replies if status(reply) == 429)


def test_answers_of_one_client_come_one_after_the_other_and_errors_reach_the_caller() -> None:
    import asyncio

    answers, running, most = AnswerQueue(3), [0], []

    def job() -> int:
        running[0] += 1
        most.append(running[0])
        time.sleep(0.05)
        running[0] -= 1
        return 1

    async def ask() -> list[Any]:
        jobs = [answers.run("a", job) for _ in range(4)]
        return await asyncio.gather(*jobs, answers.run("b", lambda: 1 / 0), return_exceptions=True)

    found = asyncio.run(ask())
    assert found[:3] == [1, 1, 1]
    assert [type(one) for one in found[3:]] == [RequestError, ZeroDivisionError]
    assert max(most) == 1
    assert asyncio.run(answers.run("a", lambda: 5)) == 5


# -- the audit log


def test_request_that_begins_has_a_line_before_its_body_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        monkeypatch.setattr(Service, "sums", lambda self, *_: lines.extend(self.log.last(1)) or 1 / 0)
        assert ask.sums(cohort, ROWS, headers={"content-length": "4000"}).status == 500
        end, begin = service.log.last(2)
    assert lines == [begin]
    assert (begin["client"], begin["length"], begin["path"]) == ("trainer", "4000", f"/v1/cohorts/{cohort}/sums")
    assert (begin["begun"], end["status"], end["number"]) == (True, 500, begin["number"])


def test_wrong_keys_beyond_their_rate_are_counted_and_leave_no_line(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        found = [ask("GET", "/v1/populations/people", client="nobody").status for _ in range(50)]
        lines = len(service.log.path.read_text().splitlines())
        counted = service.log.counts["facts", 429]
    assert (found.count(401), found.count(429), lines, counted) == (30, 20, 30, 20)


def test_wrong_keys_that_name_other_addresses_count_for_the_one_they_come_from(folder: Path) -> None:
    """A header says anything: with a name of its own, each wrong key would have a line in the log and a limit."""
    with served(folder) as url:
        found = []
        for number in range(50):
            one = connected(url)
            one.sendall(request("nobody", "/v1/populations/people", **{"X-Forwarded-For": f"10.0.0.{number}"}))
            found.append(status(received(one)))
    assert (found.count(401), found.count(429)) == (30, 20)


def test_tls_handshake_that_is_not_finished_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    pem, private = self_signed("127.0.0.1")
    (tmp_path / "server.pem").write_bytes(pem)
    (tmp_path / "server.key").write_bytes(private)
    own = {"tls_certificate": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}
    with served(make_folder(tmp_path / "holder"), **own) as url:
        with connected(url) as one:
            one.sendall(b"\x16\x03\x01")
            begun = time.monotonic()
            received(one)
            assert time.monotonic() - begun < 5
        context = ssl.create_default_context(cafile=tmp_path / "server.pem")
        with context.wrap_socket(connected(url), server_hostname="127.0.0.1") as one:
            one.sendall(request("reader", "/metrics"))
            assert status(received(one)) == 200
