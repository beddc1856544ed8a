"""Requests of any shape are answered or refused, never with an error of the service; JUSTITIA_FUZZ=10000 sends more."""

import json
import os
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


BODIES = st.one_of(
    st.binary(max_size=200),
    st.composite(broken)(),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"ids": st.lists(st.sampled_from(IDS[:20]) | TEXT, max_size=9)}).map(
        lambda value: json.dumps(value).encode()
    ),
    st.fixed_dictionaries(
        {"request": TEXT, "y_true": JSON, "y_pred": st.just([0, 1] * (N // 2))},
        optional={"epsilon": NUMBERS, "delta": NUMBERS, "notions": JSON, "threshold": NUMBERS, "metrics": JSON},
    ).map(lambda value: json.dumps(value, default=str).encode()),
)
QUERIES = st.dictionaries(
    st.sampled_from(["request", "purpose", "bound", "noise_multiplier", "part", "parts", "plan", "receipt", "planned"]),
    st.one_of(NUMBERS, TEXT, JSON.map(json.dumps)),
)
SOUND = st.fixed_dictionaries(
    {"request": TEXT.filter(bool), "purpose": st.just("fuzz"), "bound": NUMBERS, "noise_multiplier": NUMBERS},
    optional={"part": NUMBERS, "parts": NUMBERS},
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Caller, str]]:
    where = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    folder = tmp_path_factory.mktemp("fuzz") if where is None else where / f"justitia-fuzz-{os.getpid()}"
    with opened(make_folder(folder / "holder")) as service:
        caller = Caller(service)
        yield caller, caller.cohort()
    __import__("shutil").rmtree(folder, ignore_errors=True)


@settings(max_examples=FUZZ, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD"]),
    place=st.sampled_from(["facts", "cohorts", "ledger", "certificate", "sums", "measure", "nowhere", "healthz"]),
    body=BODIES,
    query=QUERIES | SOUND,
    client=st.sampled_from(["trainer", "trainer", "trainer", "reader", "nobody"]),
)
def test_any_request_is_answered_or_refused_in_one_sentence(
    ask: tuple[Caller, str], method: str, place: str, body: bytes, query: dict[str, Any], client: str
) -> None:
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
