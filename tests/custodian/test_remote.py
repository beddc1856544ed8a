"""Training and measuring against a custodian: the numbers are those in memory, paid at its ledger, and certified."""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, N, copied_ledger, frame, make_folder, served
from sklearn.base import clone

from justitia import (
    BudgetExceeded,
    DurableLedger,
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    MomentsPlan,
    PostProcessingPlan,
    PrivacyLedger,
    measure,
    private_search,
    tradeoff,
)
from justitia.custodian import Custodian, connection, remote
from justitia.custodian.connection import Connection, read_key
from justitia.exceptions import LedgerError
from justitia.metrics.exact import rates_by_group
from justitia.postprocessing.solver import PostProcessing
from justitia.privacy.interface import VaultRequest
from justitia.privacy.mechanisms import Gaussian, SeededNoise
from justitia.privacy.vault import local_vault, open_vault

MOMENTS = MomentsPlan(warmup_steps=5, rounds=2, public_steps=2, checks=1, batch_size=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "holder")


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trainer.key"
    file.write_text(KEYS["trainer"] + "\n")
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY_FILE", str(file))


def model(**options: Any) -> LagrangianDualClassifier:
    settings = {
        "epsilon": 2.0,
        "delta": DELTA,
        "groups": ["a", "b"],
        "random_state": 0,
        "plan": PostProcessingPlan(checks=2),
    }
    return LagrangianDualClassifier(**(settings | options))


def local_ledger(folder: Path, tmp_path: Path) -> DurableLedger:
    return DurableLedger(copied_ledger(folder, tmp_path / "copy.ledger"), dataset="people", epsilon=5.0, delta=DELTA)


def promised(fitted: LagrangianDualClassifier) -> str:
    """What a certificate promises, whatever of: a custodian speaks of its answers, and not of what was trained."""
    _, found, rest = fitted.certificate_.statement.partition(" would be ")
    assert found
    return rest


@pytest.mark.parametrize("options", [{}, {"module": (4,), "plan": MOMENTS}], ids=["post-processing", "moments"])
@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_fit_against_a_custodian_gives_the_same_model_as_in_memory(
    options: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    ledger = local_ledger(folder, tmp_path)
    here = model(noise_seed=7, **options).fit(DATA.X, DATA.y, sensitive_features=frame(LABELS), ledger=ledger)
    with served(folder, SeededNoise(7)) as url:
        there = model(**options).fit(DATA.X, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS))
    np.testing.assert_array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert there.history_.equals(here.history_)
    for name in ("epsilon", "delta", "spent_epsilon", "releases", "groups"):
        assert getattr(there.certificate_, name) == getattr(here.certificate_, name)
    assert promised(here) in there.certificate_.statement
    assert url in there.certificate_.custodian
    assert there.certificate_.receipt["number"] == len(ledger.releases) - 1
    DurableLedger.open(folder / "populations" / "people.ledger").verify(there.certificate_.receipt)
    assert "custodian" in str(there.certificate_)


@pytest.mark.parametrize("notion", ["demographic_parity", "mean_parity", "equal_error"])
@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
def test_fit_of_a_number_against_a_custodian_gives_the_same_model_as_in_memory(
    notion: str, folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"notion": notion, "epsilon": 2.0, "delta": DELTA, "groups": ["a", "b"]}
    made = LagrangianDualRegressor(**options, random_state=0, noise_seed=7, plan=PostProcessingPlan(checks=2))
    y = DATA.X.to_numpy(dtype=float).sum(1)
    here = made.fit(DATA.X, y, sensitive_features=frame(LABELS), ledger=local_ledger(folder, tmp_path))
    with served(folder, SeededNoise(7)) as url:
        there = clone(made).set_params(noise_seed=None)
        there.fit(DATA.X, y, sensitive_features=Custodian(url, population="people", ids=IDS))
    np.testing.assert_array_equal(there.predict(DATA.X), here.predict(DATA.X))
    assert there.history_.equals(here.history_)


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_rows_of_one_person_are_protected_together_as_in_memory(tmp_path: Path) -> None:
    who = [f"q{row // 2 if row < 250 else row}" for row in range(N)]
    labels_by_id = dict(zip(reversed(who), reversed(LABELS), strict=True))
    folder = make_folder(tmp_path / "holder", list(labels_by_id.values()), ids=list(labels_by_id))
    ledger, labels = local_ledger(folder, tmp_path), frame([labels_by_id[one] for one in who])
    asked: dict[str, Any] = {"threshold": 0.3, "delta": DELTA, "person": who}
    decided = (DATA.X["x0"] > 0).astype(int)
    here = model(noise_seed=7).fit(DATA.X, DATA.y, sensitive_features=labels, person=who, ledger=ledger)
    seen = measure(DATA.y, decided, sensitive_features=labels, groups=["a", "b"], ledger=ledger, noise_seed=7, **asked)
    with served(folder, SeededNoise(7)) as url:
        holder = Custodian(url, population="people", ids=who)
        with pytest.raises(ValueError, match="expected every id once, got one twice"):
            model().fit(DATA.X, DATA.y, sensitive_features=holder)
        there = model().fit(DATA.X, DATA.y, sensitive_features=holder, person=who)
        there_again = measure(DATA.y, decided, sensitive_features=holder, **asked)
    np.testing.assert_array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert promised(here) in there.certificate_.statement
    assert there.certificate_.unit == "person"
    assert there.certificate_.adjacency == here.certificate_.adjacency
    assert there_again.table.equals(seen.table)
    assert [one.sensitivity for one in there.ledger_.releases] == [one.sensitivity for one in ledger.releases[:-1]]


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_curve_and_search_on_tolerances_share_what_was_paid_at_the_custodian(folder: Path) -> None:
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        curve = tradeoff(model(epsilon=1.0), DATA.X, DATA.y, sensitive_features=holder, tolerances=(0.0, 0.2))
        paid = len(DurableLedger.open(folder / "populations" / "people.ledger").releases)
        found = private_search(
            model(epsilon=1.0), [{"tolerance": 0.0}, {"tolerance": 0.2}], DATA.X, DATA.y, sensitive_features=holder
        )
        with pytest.raises(ValueError, match="differ in tolerance only"):
            private_search(model(), [{"threshold": 0.4}], DATA.X, DATA.y, sensitive_features=holder)
    assert len(curve.models) == 2
    assert "custodian" in found.certificate.custodian
    assert len(DurableLedger.open(folder / "populations" / "people.ledger").releases) == 2 * paid


def test_measurement_by_a_custodian_equals_that_in_memory(folder: Path, tmp_path: Path) -> None:
    decided = (DATA.X["x0"] > 0).astype(int)
    asked: dict[str, Any] = {"notion": ["equalized_odds", "demographic_parity"], "threshold": 0.3, "delta": DELTA}
    ledger = local_ledger(folder, tmp_path)
    here = measure(
        DATA.y, decided, sensitive_features=frame(LABELS), groups=["a", "b"], ledger=ledger, noise_seed=3, **asked
    )
    with served(folder, SeededNoise(3)) as url:
        own = PrivacyLedger(epsilon=1.0, delta=DELTA)
        holder = Custodian(url, population="people", ids=IDS)
        there = measure(DATA.y, decided, sensitive_features=holder, ledger=own, **asked)
    assert there.table.equals(here.table)
    assert there.verdicts == here.verdicts
    assert own.epsilon() == pytest.approx(1.0)
    assert there.certificate.receipt is not None
    assert there.certificate.receipt["number"] == 0


@pytest.mark.parametrize("task", ["classes", "number"])
def test_classes_and_numbers_are_measured_through_the_custodians_vault(task: str, folder: Path, tmp_path: Path) -> None:
    column = DATA.X["x0"].to_numpy()
    predicted = np.array(["low", "middle", "high"])[np.digitize(column, [-0.5, 0.5])] if task == "classes" else column
    ledger = local_ledger(folder, tmp_path)
    given = {"sensitive_features": frame(LABELS), "groups": ["a", "b"], "ledger": ledger, "noise_seed": 3}
    here = measure(None, predicted, delta=DELTA, **given)
    with served(folder, SeededNoise(3)) as url:
        holder = Custodian(url, population="people", ids=IDS)
        there = measure(None, predicted, sensitive_features=holder, delta=DELTA)
    np.testing.assert_allclose(there.by_group, here.by_group, rtol=1e-9)
    assert there.violation.upper == pytest.approx(here.violation.upper)
    assert len(DurableLedger.open(folder / "populations" / "people.ledger").releases) == 1


def test_key_that_may_measure_and_not_train_measures_everything_as_in_memory(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "trainer.key").write_text(KEYS["analyst"])
    decided, base = (DATA.X["x0"] > 0).astype(int), (DATA.X["x1"] > 0).astype(int)
    asked: dict[str, Any] = {"scores": DATA.X["x0"], "before": base, "reference": "b", "delta": DELTA}
    ledger = local_ledger(folder, tmp_path)
    here = measure(
        DATA.y, decided, sensitive_features=frame(LABELS), groups=["a", "b"], ledger=ledger, noise_seed=3, **asked
    )
    with served(folder, SeededNoise(3)) as url:
        holder = Custodian(url, population="people", ids=IDS)
        there = measure(DATA.y, decided, sensitive_features=holder, **asked)
        with pytest.raises(PermissionError, match="role 'train'"):
            model(epsilon=1.0).fit(DATA.X, DATA.y, sensitive_features=holder)
    remote, known = there.to_dict(), here.to_dict()
    assert {"scores", "before"} & set(known)
    assert remote | {"certificate": 0} == known | {"certificate": 0}


def test_file_that_holds_no_key_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for content in (b"", b"two words", bytes(range(128, 160)), b"\x00\x01"):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(ValueError, match="expected the key of a custodian's client, got none"):
            Custodian("http://127.0.0.1:1", population="people", ids=IDS, key_file=tmp_path / "key")


@pytest.mark.parametrize(
    ("options", "given", "sentence"),
    [
        ({"epsilon": np.inf}, {}, "finite epsilon"),
        ({"noise_seed": 1}, {}, "noise_seed is not for those who ask"),
        ({"missing_marker": "?"}, {}, "missing_marker is not for those"),
        ({}, {"person": [*IDS[:-1], IDS[0]]}, "expected the custodian's ids in person"),
        ({"groups": ["a", "c"]}, {}, "groups that the custodian registered"),
        ({"engine": "pf-ld", "module": (4,), "plan": None}, {}, "expected engine 'post-processing' or 'moments'"),
        (
            {"engine": "pf-ld-as-published", "module": (4,), "plan": None},
            {},
            "expected engine 'post-processing' or 'moments'",
        ),
    ],
)
def test_what_a_custodian_does_not_give_is_refused_in_one_sentence_and_costs_nothing(
    options: dict[str, Any], given: dict[str, Any], sentence: str, folder: Path
) -> None:
    with served(folder) as url, pytest.raises(ValueError, match=sentence):
        model(**options).fit(DATA.X, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS), **given)
    assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()


def test_plan_that_the_custodian_cannot_afford_is_refused_before_any_query(tmp_path: Path) -> None:
    for place, options in (("poor", {"epsilon": 1.0}), ("own", {"own": 1.0})):
        folder = make_folder(tmp_path / place, **options)  # type: ignore[arg-type]
        with served(folder) as url, pytest.raises(BudgetExceeded, match="does not allow this plan"):
            model().fit(DATA.X, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS))
        assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()


@pytest.mark.parametrize("more", [{}, {"scores": DATA.X["x0"]}], ids=["rates", "scores"])
def test_what_the_custodian_refuses_is_not_debited_here(
    more: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostProcessing, "prepare", lambda *_: pytest.fail("a base was trained first"))
    own = DurableLedger(tmp_path / "own", dataset="mine", epsilon=9.0, delta=DELTA)
    with served(folder) as url:
        twice = Custodian(url, population="people", ids=[*IDS[:-1], IDS[0]])
        with pytest.raises(ValueError, match="expected every id once"):
            measure(DATA.y, DATA.y, sensitive_features=twice, ledger=own, **more)
        with pytest.raises(ValueError, match="expected every id once"):
            model(epsilon=2.0).fit(DATA.X, DATA.y, sensitive_features=twice, ledger=own)
        holder = Custodian(url, population="people", ids=IDS)
        with pytest.raises(BudgetExceeded, match="does not allow this plan"):
            measure(DATA.y, DATA.y, sensitive_features=holder, ledger=own, epsilon=8.0, **more)
    assert own.releases == ()
    assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, and nobody is decided for
@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_decisions_that_are_all_alike_are_checked_by_a_custodian_as_in_memory(
    engine: str, folder: Path, tmp_path: Path
) -> None:
    rare = (np.arange(N) % 20 == 7).astype(int)  # nobody is predicted to be one of these
    plan = {
        "post-processing": PostProcessingPlan(checks=1),
        "moments": MomentsPlan(warmup_steps=40, rounds=2, checks=1),
    }[engine]
    made: dict[str, Any] = {"engine": engine, "plan": plan, "epsilon": 2.0}
    here = model(**made, noise_seed=3).fit(
        DATA.X, rare, sensitive_features=frame(LABELS), ledger=local_ledger(folder, tmp_path)
    )
    with served(folder, SeededNoise(3)) as url:
        there = model(**made).fit(DATA.X, rare, sensitive_features=Custodian(url, population="people", ids=IDS))
    assert np.array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert not there.predict(DATA.X).any()


def test_client_notices_a_ledger_that_was_put_back(folder: Path, tmp_path: Path) -> None:
    kept, old = tmp_path / "receipts.jsonl", tmp_path / "old"
    asked: dict[str, Any] = {"epsilon": 0.5, "delta": DELTA}

    def ask(url: str) -> None:
        measure(DATA.y, DATA.y, sensitive_features=Custodian(url, population="people", ids=IDS, receipts=kept), **asked)

    with served(folder) as url:
        ask(url)
    shutil.copytree(folder, old)
    with served(folder) as url:
        ask(url)
    with served(old) as url, pytest.raises(LedgerError, match="put back"):
        ask(url)
    assert [json.loads(line)["number"] for line in kept.read_text().splitlines()[:2]] == [0, 1]


def test_answers_that_come_in_another_order_than_their_receipts_are_no_ledger_put_back(
    folder: Path, tmp_path: Path
) -> None:
    """Two threads may share one client; a service that counts from an earlier state is noticed all the same."""
    responses: list[Any] = []
    old = tmp_path / "old"
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(holder, "received", lambda answer, headers: responses.append((answer, headers)))
            patch.setattr(holder, "signed", lambda certificate, _: certificate)
            for number in range(3):
                measure(DATA.y, DATA.y, sensitive_features=holder, epsilon=0.5, delta=DELTA)
                if number == 1:
                    shutil.copytree(folder, old)
        for answer, headers in (responses[2], responses[0], responses[2]):
            holder.received(answer, headers)
    with served(old) as url:
        holder.connection = Connection(url, read_key(None))
        with pytest.raises(LedgerError, match="does not hold receipt 2, which it gave"):
            holder.received(*responses[1])


def test_file_that_holds_no_receipts_is_refused_in_one_sentence(tmp_path: Path) -> None:
    whole = json.dumps({"population": "people", "number": 0, "link": "x"})
    for line in (whole[:-9], "[]", "1", '{"number": 0}', '{"population": "people"}'):
        (tmp_path / "receipts").write_text(f"{whole}\n{line}\n")
        with pytest.raises(LedgerError, match="a line of JSON each, got another line"):
            Custodian("http://127.0.0.1:1", population="people", ids=IDS, receipts=tmp_path / "receipts")


def test_ids_of_any_kind_are_sent_as_they_are_compared() -> None:
    def sent(*ids: Any) -> list[str]:
        return Custodian("http://127.0.0.1:1", population="people", ids=ids)._ids

    assert sent(7, 7.0, np.int64(7), "7.0", " 7 ", b"7", torch.tensor(7), np.str_("7")) == ["7"] * 8
    for missing in (None, math.nan, pd.NA, pd.NaT, "", b"\xff"):
        with pytest.raises(ValueError, match="expected an id for every row"):
            sent("a", missing)


def test_rows_in_several_parts_with_a_lost_answer_are_debited_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PART", 8 * 3 * 64)
    monkeypatch.setattr(connection, "PAUSES", (0.0,) * 5)
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        vault = holder.open(VaultRequest(None, 1.0, PrivacyLedger(epsilon=5.0, delta=DELTA), N))
        pool, sent = holder.connection._pool, []

        class Losing:
            def request(self, *words: Any, **more: Any) -> Any:
                found = pool.request(*words, **more)
                sent.append(words)
                if len(sent) % 2:
                    raise connection.urllib3.exceptions.ProtocolError("lost")
                return found

        holder.connection._pool = Losing()  # type: ignore[assignment]
        answer = vault.group_sums(np.ones((N, 3)), bound=2.0, noise=Gaussian(5.0), purpose="test")
        assert answer.shape == (2, 3)
    assert len(sent) >= 2 * (N // 64)
    assert len(DurableLedger.open(folder / "populations" / "people.ledger").releases) == 1
    assert "key" not in repr(holder) + repr(holder.connection)


@dataclass(frozen=True)
class Rows:
    """A row function, and a source of two blocks for it."""

    width: int
    widths: tuple[int, int] = (2, 2)
    rows: tuple[int, int] = (100, N - 100)

    def __call__(self, block: int) -> Any:
        return np.ones((self.rows[block], self.widths[block]))

    def map(self, function: Any) -> Any:
        return map(function, (0, 1))


@pytest.mark.parametrize(
    "rows",
    [Rows(2, (2, 3)), Rows(2, (2, 1)), Rows(2, rows=(100, N - 101)), Rows(2, rows=(100, 0))],
    ids=["wider", "narrower", "shorter", "much shorter"],
)
def test_rows_of_a_wrong_shape_are_refused_and_cost_nothing_at_the_custodian(rows: Rows, folder: Path) -> None:
    own = PrivacyLedger(epsilon=5.0, delta=DELTA)
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        vault = holder.open(VaultRequest(None, 1.0, own, N, source=rows))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"Expected|expected"):
            vault.group_sums(rows, bound=2.0, noise=Gaussian(5.0), purpose="test")
        assert DurableLedger.open(folder / "populations" / "people.ledger").releases == ()
        assert len(own.releases) == 1  # debited before rows were computed
        whole = Rows(2)
        answer = holder.open(VaultRequest(None, 1.0, own, N, source=whole)).group_sums(  # type: ignore[arg-type]
            whole, bound=2.0, noise=Gaussian(5.0), purpose="test"
        )
        assert answer.shape == (2, 2)
        alone = holder.open(VaultRequest(None, 1.0, own, N))
        with pytest.raises(ValueError, match="expected a row source"):
            alone.group_sums(whole, bound=2.0, noise=Gaussian(5.0), purpose="test")
    assert len(own.releases) == 2


def test_vault_of_a_custodian_is_not_taken_for_one_that_has_the_attribute(folder: Path) -> None:
    with served(folder) as url:
        holder = Custodian(url, population="people", ids=IDS)
        vault = open_vault(holder, VaultRequest(None, 1.0, PrivacyLedger(epsilon=5.0, delta=DELTA), N))
        assert (vault.groups, len(vault), vault.rows_per_person, vault.persons_digest) == (("a", "b"), N, 1, "")
        assert not any(hasattr(vault, name) for name in ("reveal", "weighted_sum", "randomized_labels", "forget"))
        with pytest.raises(ValueError, match="the attribute is with its holder"):
            local_vault(vault)


def test_methods_that_need_the_attribute_itself_are_refused_in_one_sentence(folder: Path) -> None:
    holder = Custodian("http://127.0.0.1:1", population="people", ids=IDS)  # nobody is asked
    with pytest.raises(TypeError, match="got a custodian, who gives noised answers only"):
        rates_by_group(DATA.y, DATA.y, sensitive_features=holder, groups=["a", "b"])
    DATA.X.assign(y=DATA.y).to_parquet(folder / "rows.parquet")
    with pytest.raises(TypeError, match="name of a column where X is in files"):
        model().fit(folder / "rows.parquet", "y", sensitive_features=holder)
