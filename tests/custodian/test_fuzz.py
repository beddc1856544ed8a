"""Requests made of the OpenAPI description, as it says and otherwise, and mutated rows; JUSTITIA_FUZZ=10000 sends more.

Each is answered or refused as described, never with an error of the service.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator
from service_fixtures import IDS, Caller, N, Reply, make_folder, opened

from justitia.custodian.schemas import OPERATIONS, openapi
from justitia.custodian.wire import to_stream

FUZZ = int(os.environ.get("JUSTITIA_FUZZ", "800"))
FOUND = openapi("0")
SCHEMAS = FOUND["components"]["schemas"]
GOOD = to_stream(np.ones((N, 2)))
TEXT = st.text(max_size=20)
NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from(["1e9", "-1", "nan", "", "0x10", "1_0", "٣", "r1\n"]))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
PAIR = st.tuples(*map(from_schema, SCHEMAS["Plan"]["properties"]["costs"]["items"]["prefixItems"]))
#: What a description does not say: ids that repeat, as many labels as people, rows that are affordable.
LIKELY = {
    "request": st.sampled_from([f"r{k}" for k in range(12)]),
    "ids": st.lists(st.sampled_from(IDS), max_size=9),
    "cohorts": st.just([]),
    "y_true": st.just([0, 1] * (N // 2)),
    "y_pred": st.just([1, 1] * (N // 2)),
    "before": st.just([0, 0, 1, 1] * (N // 4)),
    "scores": st.just([float(k % 7) for k in range(N)]) | st.just([0.5] * N),
    "score_bins": st.sampled_from([2, 10]),
    "reference": st.sampled_from([None, "a", "b", "b", "c"]),
    "epsilon": st.floats(0.01, 0.5),
    "delta": st.just(1e-6),
    "notions": st.just(["equalized_odds"]),
    "metrics": st.just([]),
    "confidence": st.just(0.95),
    "threshold": st.sampled_from([None, 0.1]),
    "bound": st.floats(0.5, 2000),
    "noise_multiplier": st.floats(5, 2000),
    "parts": st.just(1) | st.integers(1, 3),
    "part": st.just(0) | st.integers(0, 2),
    "plan": st.lists(PAIR, max_size=4).map(lambda costs: json.dumps({"costs": costs})),
    "receipt": st.integers(0, 3),
}


@st.composite
def fields(draw: Any, schemas: dict[str, Any], required: Any, likely: int) -> dict[str, Any]:
    """Values by name: as described and likely to be answered, only as described, or any."""
    found = {}
    for name, schema in schemas.items():
        if name in required or draw(st.booleans()):
            chance = draw(st.integers(0, 9))
            good = LIKELY.get(name, from_schema(schema)) if chance < likely else from_schema(schema)
            found[name] = draw(good if chance < max(9, likely) else JSON | NUMBERS)
    if draw(st.integers(0, 19)) == 0:
        found[draw(TEXT)] = draw(JSON)
    if found and draw(st.integers(0, 19)) == 0:
        del found[draw(st.sampled_from(sorted(found)))]
    return found


@st.composite
def rows(draw: Any) -> bytes:
    """A good body, of which some bytes may be others."""
    body = bytearray(GOOD[:600] + GOOD[-16:] if draw(st.integers(0, 3)) == 0 else GOOD)
    for _ in range(draw(st.sampled_from([0, 0, 1, 4]))):
        body[draw(st.integers(0, min(len(body), 700) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


@st.composite
def requests(draw: Any) -> tuple[Any, str, dict[str, str], bytes]:
    """An operation, the name in its path, its query and its body."""
    one = draw(st.sampled_from([*OPERATIONS, *(own for own in OPERATIONS if own.body is not None)]))
    described = FOUND["paths"][one.path][one.method.lower()]
    asked = [parameter for parameter in described["parameters"] if parameter["in"] == "query"]
    likely = draw(st.sampled_from([0, 8, 9, 10, 10]))
    schemas = {parameter["name"]: parameter["schema"] for parameter in asked}
    query = draw(fields(schemas, {parameter["name"] for parameter in asked if parameter["required"]}, likely))
    body = b""
    if "application/json" in described.get("requestBody", {}).get("content", {}):
        reference = described["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = SCHEMAS[reference.rpartition("/")[2]]
        sent = draw(fields(schema["properties"], schema.get("required", ()), likely))
        body = json.dumps(sent, default=str).encode()
    elif one.body is not None:
        body = draw(rows())
    if draw(st.integers(0, 19)) == 0:
        body = draw(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value, default=str).encode()))
    name = draw(st.sampled_from(["", "", "", "nobody", "../x", "é"]))
    return one, name, {key: as_text(value) for key, value in query.items()}, body


def as_text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Caller, str]]:
    where = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    folder = tmp_path_factory.mktemp("fuzz") if where is None else where / f"justitia-fuzz-{os.getpid()}"
    with opened(make_folder(folder / "holder", epsilon=50.0)) as service:
        caller = Caller(service)
        yield caller, caller.cohort()
        statuses = {(what, status) for what, status in service.log.counts}
    shutil.rmtree(folder, ignore_errors=True)
    reached = {("sums", 200), ("measure", 200), ("cohort", 200), ("facts", 200), ("sums", 422), ("measure", 422)}
    assert reached <= statuses  # what is sent gets behind the first check


def conforms(reply: Reply, described: dict[str, Any]) -> None:
    """A status that is described, with content of a described kind and shape."""
    content = described["responses"][str(reply.status)]["content"]
    schema = content[reply.headers["content-type"].split(";")[0]].get("schema")
    if schema and schema.get("type") != "string":
        Draft202012Validator(schema | {"components": FOUND["components"]}).validate(reply.facts)


@settings(max_examples=FUZZ, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    asked=requests(),
    method=st.sampled_from(["", "", "", "", "GET", "POST", "PUT", "HEAD"]),
    client=st.sampled_from(["trainer", "trainer", "trainer", "trainer", "reader", "nobody"]),
)
def test_any_request_is_answered_or_refused_as_openapi_says(
    ask: tuple[Caller, str], asked: tuple[Any, str, dict[str, str], bytes], method: str, client: str
) -> None:
    one, name, query, body = asked
    caller, cohort = ask
    own = {"name": name or (cohort if "cohorts/{" in one.path else "people")}
    reply = caller(method or one.method, one.path.format(**own), body, client=client, **query)
    assert reply.status < 500
    if reply.status >= 400 and method != "HEAD":
        assert set(reply.facts) == {"error", "kind"}
        assert "\n" not in reply.facts["error"]
    if method in {"", one.method} and "/" not in name:
        conforms(reply, FOUND["paths"][one.path][one.method.lower()])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as a file")
def test_service_that_is_sent_mutated_rows_stays_up_in_bounded_memory() -> None:
    """JUSTITIA_FUZZ=100000 sends as many."""
    script = Path(__file__).parent / "mutated.py"
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        run = subprocess.run([sys.executable, script, folder, str(FUZZ)], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["bodies"] == FUZZ
    assert set(found["statuses"]) <= {"200", "409", "413", "422"}
    assert found["good"] == 200
    assert found["peak_mb"] < 1000
