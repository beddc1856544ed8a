"""Requests of any shape are answered or refused, never with an error of the service; JUSTITIA_FUZZ=10000 sends more."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holding import IDS, Caller, N, make_folder, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from justitia.custodian.wire import to_stream

FUZZ = int(os.environ.get("JUSTITIA_FUZZ", "300"))
GOOD = to_stream(np.ones((N, 2)))
NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from(["1e9", "-1", "nan", "", "0x10", "1_0", "٣"]))
TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)


def broken(drawn: Any) -> bytes:
    """A good body, of which some bytes are others."""
    body = bytearray(GOOD[:600] + GOOD[-16:] if drawn(st.booleans()) else GOOD)
    for _ in range(drawn(st.integers(0, 4))):
        body[drawn(st.integers(0, min(len(body), 700) - 1))] = drawn(st.integers(0, 255))
    return bytes(body)


def as_json(strategy: Any) -> Any:
    return strategy.map(lambda value: json.dumps(value, default=str).encode())


NAME = st.sampled_from(["r1", "r2", "r3", "r4"]) | TEXT
SIZED = st.floats(0.5, 2000) | NUMBERS
LABELS = st.just([0, 1] * (N // 2)) | JSON
MEASURE = st.fixed_dictionaries(
    {"request": NAME, "y_true": LABELS, "y_pred": LABELS},
    optional={
        "epsilon": st.floats(0.01, 0.5) | NUMBERS,
        "delta": st.just(1e-6) | NUMBERS,
        "notions": st.just(["equalized_odds"]) | JSON,
        "metrics": st.just(["selection_rate"]) | JSON,
        "threshold": st.floats(0, 1) | NUMBERS,
    },
)
COHORT = st.fixed_dictionaries({"ids": st.lists(st.sampled_from(IDS) | TEXT, max_size=9) | JSON})
SUMS = st.fixed_dictionaries(
    {"request": NAME, "purpose": st.just("fuzz") | TEXT, "bound": SIZED, "noise_multiplier": SIZED},
    optional={"part": st.integers(0, 2) | NUMBERS, "parts": st.integers(1, 3) | NUMBERS, "extra": TEXT},
)
QUERIES = st.dictionaries(
    st.sampled_from(["request", "plan", "receipt", "planned", "subject"]),
    st.one_of(NUMBERS, TEXT, JSON.map(json.dumps)),
)
ROWS = st.one_of(st.just(GOOD), st.composite(broken)(), st.binary(max_size=200))
#: Method, place, body and query: mostly as they should be, now and then any.
REQUESTS = st.one_of(
    st.tuples(st.just("POST"), st.just("sums"), ROWS, SUMS),
    st.tuples(st.just("POST"), st.just("sums"), ROWS, SUMS),
    st.tuples(st.just("POST"), st.just("measure"), as_json(MEASURE), st.just({})),
    st.tuples(st.just("POST"), st.just("cohorts"), as_json(COHORT), st.just({})),
    st.tuples(st.just("GET"), st.sampled_from(["facts", "ledger", "certificate"]), st.just(b""), QUERIES),
    st.tuples(
        st.sampled_from(["GET", "POST", "PUT", "HEAD"]),
        st.sampled_from(["facts", "cohorts", "ledger", "certificate", "sums", "measure", "nowhere", "healthz"]),
        ROWS | as_json(JSON),
        QUERIES | SUMS,
    ),
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Caller, str]]:
    where = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    folder = tmp_path_factory.mktemp("fuzz") if where is None else where / f"justitia-fuzz-{os.getpid()}"
    with opened(make_folder(folder / "holder", epsilon=50.0)) as service:
        caller = Caller(service)
        yield caller, caller.cohort()
        statuses = {(what, status) for what, status in service.log.counts}
    shutil.rmtree(folder, ignore_errors=True)
    reached = {("sums", 200), ("measure", 200), ("cohort", 200), ("facts", 200), ("sums", 422)}
    assert reached <= statuses  # what is sent gets behind the first check


@settings(max_examples=FUZZ, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(asked=REQUESTS, client=st.sampled_from(["trainer", "trainer", "trainer", "reader", "nobody"]))
def test_any_request_is_answered_or_refused_in_one_sentence(
    ask: tuple[Caller, str], asked: tuple[str, str, bytes, dict[str, Any]], client: str
) -> None:
    method, place, body, query = asked
    caller, cohort = ask
    inside = {"facts": "", "cohorts": "/cohorts", "ledger": "/ledger", "certificate": "/certificate"}
    path = f"/v1/cohorts/{cohort}/{place}" if place not in inside else f"/v1/populations/people{inside[place]}"
    path = f"/{place}" if place in {"nowhere", "healthz"} else path
    safe = {name: str(value).encode("utf-8", "replace").decode() for name, value in query.items()}
    reply = caller(method, path, body, client=client, **safe)
    assert reply.status < 500
    if reply.status >= 400 and method != "HEAD":
        assert set(reply.facts) == {"error", "kind"}
        assert "\n" not in reply.facts["error"]
