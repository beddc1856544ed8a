"""Each threat of docs/custodian.md, tried on the service over HTTP without a network."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from service_fixtures import IDS, KEYS, LABELS, Caller, N, make_folder, opened

from justitia import DurableLedger
from justitia.custodian.limits import RateLimiter
from justitia.custodian.records import Client, Records
from justitia.custodian.wire import from_stream, to_stream
from justitia.privacy.keys import key_hash, new_key

ROWS = np.random.default_rng(0).normal(size=(N, 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


def releases(folder: Path) -> int:
    return len(DurableLedger.open(folder / "populations" / "people.ledger").releases)


def test_same_request_gets_the_stored_answer_and_another_body_is_refused(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        first = ask.sums(cohort, ROWS)
        assert first.status == 200
        again = ask.sums(cohort, ROWS)
        assert (again.body, again.headers["justitia-receipt"]) == (first.body, first.headers["justitia-receipt"])
        for other in ({"bound": 2.0}, {"noise_multiplier": 1.0}, {"purpose": "else"}):
            assert ask.sums(cohort, ROWS, **other).status == 409
        assert ask.sums(cohort, ROWS + 1).status == 409
        assert ask.sums(ask.cohort(IDS[::-1]), ROWS).status == 409
        assert releases(folder) == 1
        fresh = ask.sums(cohort, ROWS, request="r2")
        assert fresh.body != first.body
        assert len(fresh.body) == len(first.body)
    with opened(folder) as service:  # after a restart
        assert Caller(service).sums(cohort, ROWS).body == first.body
    assert releases(folder) == 2


def test_overlapping_cohorts_and_several_clients_spend_one_budget(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder", epsilon=1.0)
    with opened(folder) as service:
        ask = Caller(service)
        statuses = []
        for k in range(8):
            ids = IDS[k : k + 50]
            reply = ask.sums(ask.cohort(ids), ROWS[: len(ids)], request=f"r{k}", noise_multiplier=8.0)
            statuses.append(reply.status)
        spent = service._populations.get("people", ("people",)).ledger.epsilon()
        reply = ask.sums(ask.cohort(IDS[:9]), ROWS[:9], request="last", noise_multiplier=8.0)
    assert statuses.count(200) == releases(folder) > 0
    assert reply.status == 402
    assert "would bring epsilon" in reply.facts["error"]
    assert spent <= 1.0


def test_budget_of_one_client_ends_before_that_of_the_population(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder", epsilon=5.0, own=0.5)
    for _ in range(2):  # a restart counts what was spent
        with opened(folder) as service:
            ask = Caller(service)
            found = [ask.sums(ask.cohort(), ROWS, request=f"r{k}", noise_multiplier=12.0).status for k in range(4)]
    assert found == [200, 200, 402, 402]
    assert releases(folder) == 2


def test_unknown_unlisted_and_missing_people_look_alike(tmp_path: Path) -> None:
    replies = []
    for place, labels, ids in (
        ("known", LABELS, IDS),
        ("unlisted", ["no such group", *LABELS[1:]], IDS),
        ("silent", [None, *LABELS[1:]], IDS),
        ("unknown", LABELS, ["somebody else", *IDS[1:]]),
        ("fewer", LABELS[1:], IDS[1:]),  # the number of registered people is not shown either
    ):
        with opened(make_folder(tmp_path / place, labels, ids=ids)) as service:
            ask = Caller(service)
            cohort = ask("POST", "/v1/populations/people/cohorts", json.dumps({"ids": IDS}).encode())
            name = cohort.facts["cohort"]
            sums = ask.sums(name, ROWS)
            facts = ask("GET", "/v1/populations/people").facts
            del facts["head"]  # a hash with the time in it
            replies.append((cohort.status, len(cohort.body), sums.status, len(sums.body), json.dumps(facts)))
    assert len(set(replies)) == 1


@pytest.mark.parametrize("ids", [["p1", "p1"], ["1", "1.0"], ["a", ""], [], ["a", None], ["x" * 201], "p1"])
def test_ids_that_repeat_or_are_none_are_refused(ids: Any, folder: Path) -> None:
    with opened(folder) as service:
        reply = Caller(service)("POST", "/v1/populations/people/cohorts", json.dumps({"ids": ids}).encode())
    assert reply.status in {413, 422}
    assert "p1" not in reply.facts["error"]


def arrow(column: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([column], names=["row"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def lists(values: Any, kind: Any, width: int = 2) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(values, kind), width)


BOMB = lists(np.zeros(2 * 400_000), pa.float64())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"\0" * 1000, 422),
        (to_stream(ROWS)[:-200], 422),
        (to_stream(ROWS[:-1]), 422),
        (to_stream(np.zeros((N, 5000))), 413),
        (arrow(pa.array([1.0] * N)), 422),
        (arrow(lists([1] * 2 * N, pa.int64())), 422),
        (arrow(lists([1.0] * 2 * N, pa.float32())), 422),
        (arrow(lists([None, 1.0] * N, pa.float64())), 422),
        (arrow(BOMB, compression="zstd"), 422),
        (arrow(BOMB, compression="lz4"), 422),
    ],
)
def test_bodies_that_are_no_rows_are_refused_and_cost_nothing(body: bytes, status: int, folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), body).status == status
        assert ask.sums(ask.cohort(), ROWS).status == 200  # the request id is free again
    assert releases(folder) == 1


def test_rows_that_are_not_finite_count_as_zero(folder: Path) -> None:
    odd = ROWS.copy()
    odd[:5] = [[np.nan, 1], [np.inf, 0], [-np.inf, np.nan], [1e308, 1e308], [5e-324, -0.0]]
    with opened(folder) as service:
        ask = Caller(service)
        reply = ask.sums(ask.cohort(), odd, noise_multiplier=2.0)
    assert np.isfinite(from_stream(reply.body, max_width=2)).all()


def test_compressed_large_endless_and_slow_bodies_are_refused(folder: Path) -> None:
    with opened(folder, largest_body=10_000, seconds_per_request=0.2) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        assert ask.sums(cohort, ROWS, headers={"content-encoding": "gzip"}).status == 415
        assert ask.sums(cohort, ROWS, headers={"content-length": "99999999"}).status == 413
        assert ask.sums(cohort, [b"x" * 6000] * 5).status == 413
        assert ask.sums(cohort, [b"x"]).status == 408
        assert ask.sums(cohort, ROWS).status == 200


def test_keys_roles_and_names_decide_who_is_answered(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        assert ask("GET", "/v1/populations/people", client=None).status == 401
        assert ask("GET", "/v1/populations/people", client="not a key").status == 401
        assert ask.sums(cohort, ROWS, client="analyst").status == 403
        assert ask.sums(cohort, ROWS, client="reader").status == 403
        assert ask("GET", "/v1/populations/people/ledger").status == 403
        assert ask("GET", "/v1/populations/people/ledger", client="reader").status == 200
        nobody = ask("GET", "/v1/populations/nobody")
        assert (nobody.status, ask.sums("0" * 32, ROWS).status) == (404, 404)
        key = new_key()
        Records(folder).put_client(
            Client("trainer", ("train",), None, key_hash(key), ("people",))
        )  # rotated, no restart
        assert ask("GET", "/v1/populations/people").status == 401
        assert ask("GET", "/v1/populations/people", client=key).status == 200
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not [one for one in (*KEYS.values(), key) if one.encode() in kept]


def test_files_of_a_custodian_are_closed_to_others(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        ask.sums(ask.cohort(), ROWS, parts=2)
        modes = {path.name: path.stat().st_mode & 0o077 for path in folder.rglob("*") if path.parent == folder}
        inside = {path: path.stat().st_mode & 0o077 for path in (folder / "populations").iterdir()}
    assert not any(modes.values()), modes
    assert not any(inside.values()), inside


def test_requests_beyond_the_rate_wait_for_time_to_pass() -> None:
    seconds = [0.0]
    rate = RateLimiter(2, clock=lambda: seconds[0])
    assert [rate.allows("a"), rate.allows("a"), rate.allows("a"), rate.allows("b")] == [True, True, False, True]
    seconds[0] = 30.0
    assert [rate.allows("a"), rate.allows("a")] == [True, False]


def test_two_services_do_not_work_in_one_folder(folder: Path) -> None:
    with opened(folder), pytest.raises(ValueError, match="another service"), opened(folder):
        pass


def test_receipts_follow_one_another_and_name_what_the_ledger_holds(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        receipts = [
            json.loads(ask.sums(ask.cohort(), ROWS, request=f"r{k}").headers["justitia-receipt"]) for k in range(3)
        ]
        chain = service.records.receipts("people")
        kept = ask("GET", "/v1/populations/people/ledger", client="reader").facts
    assert [one["number"] for one in receipts] == [0, 1, 2]
    assert [one["previous"] for one in receipts] == ["", receipts[0]["link"], receipts[1]["link"]]
    assert [link for _, link in chain] == [one["link"] for one in receipts]
    assert [entry["run"] for entry in kept["entries"]] == ["trainer/r0", "trainer/r1", "trainer/r2"]
    assert kept["receipts"][-1]["link"] == receipts[-1]["link"]


@pytest.mark.parametrize(
    ("error", "status"), [(OSError("a secret path"), 503), (RuntimeError("somebody is in b"), 500)]
)
def test_unexpected_errors_reveal_nothing(
    error: Exception, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        monkeypatch.setattr("justitia.custodian.populations.SensitiveVault.group_sums", fails)
        reply = ask.sums(cohort, ROWS)
        log = json.dumps(service.log.last())
    assert reply.status == status
    assert str(error) not in reply.body.decode() + log
