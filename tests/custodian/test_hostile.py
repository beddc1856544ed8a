"""What a client may try at the joints: other clients' cohorts, edges of numbers and budgets, bad moments."""

import json
import os
import shutil
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from service_fixtures import DATA, IDS, KEYS, LABELS, Caller, N, make_folder, opened, served

from justitia import DurableLedger, LagrangianDualClassifier, MomentsPlan
from justitia.custodian import Custodian
from justitia.custodian.populations import attribute_file, ledger_file, register, retire
from justitia.custodian.records import Client, Records
from justitia.custodian.service import Service
from justitia.custodian.wire import from_stream
from justitia.privacy.attribute import Attribute
from justitia.privacy.keys import key_hash
from justitia.privacy.register import Register, digests_of

ROWS = np.random.default_rng(0).normal(size=(N, 2))
Y = [0, 1] * (N // 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


def entries(folder: Path) -> tuple[Any, ...]:
    return DurableLedger.open(ledger_file(folder, "people")).releases_by_run()


def measured(ask: Caller, cohort: str, **change: Any) -> Any:
    body = {"request": "m", "y_true": Y, "y_pred": Y, "epsilon": 0.1} | change
    client = body.pop("client", "trainer")
    return ask("POST", f"/v1/cohorts/{cohort}/measure", json.dumps(body).encode(), client=client)


def test_cohort_of_another_client_is_unknown_whether_or_not_it_is_there(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        mine, theirs = ask.cohort(IDS[:5]), ask.cohort(IDS[:5], client="analyst")
        assert mine != theirs
        refused = [measured(ask, name, client="analyst") for name in (mine, "0" * 32)]
        joined = ask("POST", "/v1/populations/people/cohorts", json.dumps({"cohorts": [theirs]}).encode())
        assert refused[0].body == refused[1].body
        assert [one.status for one in (*refused, joined)] == [404, 404, 404]
        assert ask.sums(theirs, ROWS[:5]).status == 404


ODD: list[dict[str, Any]] = [
    *({"bound": value} for value in (-1e-300, -1, "inf", "nan", 1e308)),
    *({"noise_multiplier": value} for value in (0, -5, "inf", "nan", 1e308, "")),
    *({"request": value} for value in ("", "r\n", "a/b", "ü", "x" * 101, "\x00")),
    *({"parts": value} for value in (0, -1, 10**6, "1.5")),
    {"part": 1},
    {"purpose": ""},
    {"purpose": "x" * 201},
    *({"purpose": f"a{one}b"} for one in ("\n", "\r", "\x1b[2J", "\x00", "\x7f", "\x9b", "\u2028", "\u202e", "\u200b")),
    {"purpose": "a\n"},
    {"client": "analyst", "other": "field"},
]


@pytest.mark.parametrize("change", ODD, ids=str)
def test_numbers_and_names_at_the_edge_are_refused_and_cost_nothing(change: dict[str, Any], folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), ROWS, **change).status == 422
    assert entries(folder) == ()


def test_bound_of_nothing_is_what_decisions_that_are_all_alike_have(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        for number, bound in enumerate((0, "-0.0", "1e-400")):
            found = ask.sums(ask.cohort(), ROWS, bound=bound, request=f"r{number}")
            assert (from_stream(found.body, max_width=9) == 0).all()
    assert len(entries(folder)) == 3


@pytest.mark.parametrize(("width", "status"), [(1, 200), (4096, 200), (4097, 413), (10**6, 413)])
def test_widths_up_to_the_limit_are_answered(width: int, status: int, folder: Path) -> None:
    kind = pa.schema([("row", pa.list_(pa.float64(), width))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind) as writer:
        writer.write_batch(pa.record_batch([pa.array([[1.0] * width] * 3, kind.field(0).type)], schema=kind))
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(IDS[:3]), bytes(sink.getvalue())).status == status


def test_width_of_nothing_is_refused(folder: Path) -> None:
    kind = pa.schema([("row", pa.list_(pa.float64(), 0))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kind) as writer:
        writer.write_batch(pa.record_batch([pa.array([[]] * 3, kind.field(0).type)], schema=kind))
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(IDS[:3]), bytes(sink.getvalue())).status == 422


@pytest.mark.parametrize(
    "change",
    [{"y_true": [0] * N, "notions": ["equalized_odds"]}, {"notions": ["equalized_odds"] * 2}, {"delta": 1e-300}],
)
def test_measurement_refused_late_leaves_id_and_both_budgets_as_they_were(change: Any, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder", own=0.5)
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        for _ in range(9):  # each would cost a fifth of the client's own budget
            assert measured(ask, cohort, **change).status == 422
        assert measured(ask, cohort, epsilon=0.49).status == 200
    assert len(entries(folder)) == 1


def test_answer_whose_line_cannot_be_written_to_the_log_is_returned_once_it_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        write = os.write
        with monkeypatch.context() as patch:
            # as a disk does that is full once the answer is kept
            patch.setattr(
                os, "write", lambda file, line: write(file, line[: len(line) // (2 if b"status" in line else 1)])
            )
            assert ask.sums(cohort, ROWS).status == 503
        assert ask.sums(cohort, ROWS).status == 200
        assert service.log.last()[0]["status"] == 200  # on a line of its own behind the one that was cut
    assert len(entries(folder)) == 1


@pytest.mark.parametrize("error", [OSError("disk is full"), sqlite3.OperationalError("database or disk is full")])
def test_error_before_the_debit_leaves_the_request_to_be_sent_again(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        with monkeypatch.context() as patch:
            patch.setattr(DurableLedger, "debit", fails)
            assert ask.sums(cohort, ROWS).status == 503
        assert ask.sums(cohort, ROWS).status == 200
    assert len(entries(folder)) == 1


def test_plan_with_equal_noise_in_two_places_adds_up(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        plans = [json.dumps({"costs": costs}) for costs in ([[10.0, 4]], [[10.0, 1], [10.0, 3]], [[10.0, 1]])]
        fits = [ask("GET", "/v1/populations/people", plan=plan).facts["fits"] for plan in plans]
    assert fits[0] == fits[1] == fits[2] // 4 > 0


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_plan_that_a_client_announces_costs_what_the_ledger_holds_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced, check = [], Custodian.check_afford
    monkeypatch.setattr(Custodian, "check_afford", lambda own, costs: (announced.append(costs), check(own, costs)))
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    plan = MomentsPlan(warmup_steps=5, rounds=2, public_steps=2, checks=1, batch_size=64)
    model = LagrangianDualClassifier(epsilon=2.0, groups=["a", "b"], random_state=0, plan=plan, module=(4,))
    with served(folder) as url:
        model.fit(DATA.X, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS))
    assert announced == [Counter(release.cost for _, release in entries(folder))]


def test_plan_that_fits_n_times_is_answered_n_times_and_not_once_more(tmp_path: Path) -> None:
    for place, options in (("population", {"epsilon": 0.5}), ("client", {"own": 0.5})):
        folder = make_folder(tmp_path / place, **options)  # type: ignore[arg-type]
        with opened(folder) as service:
            ask = Caller(service)
            plan = json.dumps({"costs": [[20.0, 1]]})
            fits = ask("GET", "/v1/populations/people", plan=plan).facts["fits"]
            cohort = ask.cohort(IDS[:3])
            asked = {"noise_multiplier": 20.0}
            statuses = [ask.sums(cohort, ROWS[:3], request=f"r{k}", **asked).status for k in range(fits + 2)]
            left = ask("GET", "/v1/populations/people", plan=plan).facts["fits"]
        assert statuses == [200] * fits + [402] * 2
        assert (left, len(entries(folder))) == (0, fits)


def test_own_budget_that_was_raised_and_lowered_counts_everything(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        found = []
        for k, epsilon in enumerate((0.5, 2.0, 2.0, 0.5)):
            allowed = Client("trainer", ("train",), epsilon, key_hash(KEYS["trainer"]), ("people",))
            Records(folder).put_client(allowed)
            found.append(ask.sums(cohort, ROWS, request=f"r{k}", noise_multiplier=12.0).status)
    assert found == [200, 200, 200, 402]


def test_same_request_at_once_is_debited_once(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort, told = ask.cohort(), []
        threads = [threading.Thread(target=lambda: told.append(ask.sums(cohort, ROWS))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {(one.status, one.body, one.headers["justitia-receipt"]) for one in told} == {
        (200, told[0].body, told[0].headers["justitia-receipt"])
    }
    assert len(entries(folder)) == 1


def test_request_id_of_one_population_is_not_anothers(folder: Path) -> None:
    people = Register.from_rows(IDS, Attribute(("sex",), [np.array([*LABELS, None], dtype=object)[:-1]]))
    records = Records(folder)
    register(folder, records, "others", people, groups=["a", "b"], epsilon=1.0, delta=1e-6)
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), ROWS).status == 200
        other = ask("POST", "/v1/populations/others/cohorts", json.dumps({"ids": IDS}).encode()).facts["cohort"]
        assert ask.sums(other, ROWS).status == 409
        joined = ask("POST", "/v1/populations/people/cohorts", json.dumps({"cohorts": [other]}).encode())
        assert joined.status == 404
    assert len(entries(folder)) == 1


def retired(service: Service) -> None:
    """As the command does, from another process."""
    retire(service.folder, Records(service.folder), "people")


def test_population_retired_between_queries_is_unknown_and_leaves_the_memory(folder: Path) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        assert ask.sums(cohort, ROWS).status == 200
        assert ask.sums(cohort, ROWS[:9], request="half", parts=2).status == 200
        retired(service)
        assert ask("GET", "/v1/populations/nobody").status == 404  # any question
        assert service._populations._loaded == {}
        assert [ask.sums(cohort, ROWS).status, ask("GET", "/v1/populations/people").status] == [404, 404]
        assert service.records.cohort(cohort, "trainer") is None
    with opened(folder):
        assert not list((folder / "spool").iterdir())
    assert len(entries(folder)) == 1


def test_population_retired_during_a_query_leaves_debit_and_receipt_and_no_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as service:
        ask = Caller(service)
        cohort, keep = ask.cohort(), Records.put_answer

        def late(records: Records, *given: Any) -> str:
            retired(service)
            return keep(records, *given)

        monkeypatch.setattr(Records, "put_answer", late)
        assert ask.sums(cohort, ROWS).status == 200
        assert ask.sums(cohort, ROWS).status == 404
        assert service.records.request("trainer", "r1")[2] is None  # type: ignore[index]
        assert len(service.records.receipts("people")) == len(entries(folder)) == 1


@pytest.mark.parametrize("running", [True, False])
def test_ledger_put_back_beside_newer_receipts_is_noticed_by_the_service(
    running: bool, folder: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.ledger"
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, ROWS)
        shutil.copy(ledger_file(folder, "people"), old)
        ask.sums(cohort, ROWS, request="r2")
        if running:
            shutil.copy(old, ledger_file(folder, "people"))
            assert ask.sums(cohort, ROWS, request="r3").status == 503
    shutil.copy(old, ledger_file(folder, "people"))
    with opened(folder) as service:
        assert Caller(service).sums(cohort, ROWS, request="r3").status == 503


def test_receipts_put_back_beside_a_newer_ledger_answer_no_debit_again(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    with opened(folder) as service:
        cohort = Caller(service).cohort()
    shutil.copytree(folder, old)
    with opened(folder) as service:
        assert Caller(service).sums(cohort, ROWS).status == 200
    shutil.copy(old / "custodian.sqlite", folder / "custodian.sqlite")
    with opened(folder) as service:
        assert Caller(service).sums(cohort, ROWS).status == 410
    assert len(entries(folder)) == 1


def test_many_small_parts_and_many_cohorts_are_refused_before_the_disk_is_full(folder: Path) -> None:
    with opened(folder, largest_spool=5 * 4096) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        found = [ask.sums(cohort, ROWS[:1], request=f"r{k}", parts=9).status for k in range(7)]
        assert found == [200] * 5 + [413] * 2
        bodies = [json.dumps({"ids": [*IDS[k:], *IDS[:k]]}).encode() for k in range(5)]
        made = [ask("POST", "/v1/populations/people/cohorts", body).status for body in bodies]
        assert made == [200] * 4 + [413]
        assert ask("POST", "/v1/populations/people/cohorts", bodies[0]).status == 200  # it is there


@pytest.mark.parametrize("epsilon", [np.inf, np.nan, 0.0, -1.0])
def test_budget_that_is_no_budget_is_refused_at_registration(epsilon: float, folder: Path) -> None:
    people = Register.from_rows(IDS, Attribute(("sex",), [np.array([*LABELS, None], dtype=object)[:-1]]))
    with pytest.raises(ValueError, match="epsilon"):
        register(folder, Records(folder), "others", people, groups=["a", "b"], epsilon=epsilon, delta=1e-6)
    assert not attribute_file(folder, "others").exists()


def test_unknown_unlisted_and_silent_people_reach_the_vault_as_one_object() -> None:
    labels = np.array(["a", "b", None, "no such group", 7, float("nan"), None], dtype=object)[:-1]
    people = Register.from_rows(list("123456"), Attribute(("sex",), [labels])).listed(("a", "b"))
    _, (found,) = people.cohort(digests_of(["1", "2", "3", "4", "5", "6", "somebody else"])).reveal_entries()
    assert list(found[:2]) == ["a", "b"]
    assert len({id(one) for one in found[2:]}) == 1
    assert {type(one) for one in found} == {str}
