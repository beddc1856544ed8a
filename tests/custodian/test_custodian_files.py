"""Rows in files with a custodian: the same bits as with the attribute in a file, one debit, rows sent in parts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, Caller, N, make_folder, opened, served

from justitia import DurableLedger, LagrangianDualClassifier, PostProcessingPlan, measure
from justitia.cli import cli
from justitia.custodian import Custodian, connection, remote
from justitia.custodian.populations import ledger_file
from justitia.privacy.mechanisms import SeededNoise
from justitia.rows.parquet import RowFiles

PEOPLE = "/v1/populations/people/cohorts"
#: Of rows with the same id, which are one person's, the attribute is the same.
WHO = [f"q{row // 2}" for row in range(N)]
COLUMNS = {"id": (IDS, LABELS), "who": (WHO, [LABELS[row - row % 2] for row in range(N)])}


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rows are outside the sample, and rows and ids are sent in parts."""
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    monkeypatch.setattr("justitia.rows.files.SAMPLE", 100)
    monkeypatch.setattr("justitia.rows.files.BLOCK", 64)
    monkeypatch.setattr(remote, "PART", 1500)
    monkeypatch.setattr(connection, "PAUSES", (0.0,) * 5)


def holder_folder(folder: Path, column: str) -> Path:
    labels = dict(zip(*COLUMNS[column], strict=True))
    return make_folder(folder, list(labels.values()), ids=list(labels), epsilon=8.0)


def rows_file(folder: Path, column: str) -> Path:
    DATA.X.assign(y=DATA.y, id=IDS, who=WHO, sex=COLUMNS[column][1]).to_parquet(folder / "rows.parquet", index=False)
    return folder / "rows.parquet"


def files(path: Path, **how: Any) -> RowFiles:
    return RowFiles.open(path, features=tuple(DATA.X.columns), **how)


def model(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA, "groups": ["a", "b"], "random_state": 3}
    return LagrangianDualClassifier(**usual | {"plan": PostProcessingPlan(checks=1)} | options)


def debits(folder: Path) -> int:
    return len(DurableLedger.open(ledger_file(folder, "people")).releases)


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise
@pytest.mark.parametrize(("column", "workers"), [("id", 1), ("who", 1), ("id", 2)])
def test_fit_on_files_is_the_same_with_a_custodian_as_with_the_attribute_in_them(
    column: str, workers: int, tmp_path: Path
) -> None:
    first, path = holder_folder(tmp_path / "holder", column), rows_file(tmp_path, column)
    ledger = shutil.copy(ledger_file(first, "people"), tmp_path / "ledger")  # its name is part of the noise
    local = DurableLedger(ledger, dataset="people", epsilon=8.0, delta=DELTA)
    person = column if column == "who" else None
    here = model(noise_seed=11).fit(files(path), "y", sensitive_features="sex", person=person, ledger=local)
    with served(first, SeededNoise(11)) as url:
        held = Custodian(url, population="people", ids=column)
        there = model().fit(files(path, workers=workers), "y", sensitive_features=held, person=person)
    assert np.array_equal(there.decision_function(DATA.X), here.decision_function(DATA.X))
    assert there.dual_.equals(here.dual_)
    assert there.certificate_.unit == here.certificate_.unit == ("row" if person is None else "person")
    assert debits(first) == len(local.releases) == 2
    assert [one.sensitivity for one in there.ledger_.releases] == [one.sensitivity for one in local.releases]


class Losing:
    """Loses the answer of every other request after it was given."""

    def __init__(self, pool: Any) -> None:
        self._pool, self._sent = pool, 0

    def request(self, *words: Any, **more: Any) -> Any:
        found = self._pool.request(*words, **more)
        self._sent += 1
        if self._sent % 2:
            raise connection.urllib3.exceptions.ProtocolError("lost")
        return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise
def test_lost_answers_stopped_sending_and_repeated_ids_cost_no_second_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = holder_folder(tmp_path / "holder", "id"), rows_file(tmp_path, "id")
    with served(folder) as url:
        losing = Custodian(url, population="people", ids="id")
        losing.connection._pool = Losing(losing.connection._pool)  # type: ignore[assignment]
        fitted = model(epsilon=1.0).fit(files(path), "y", sensitive_features=losing)
        assert fitted.certificate_.receipt["number"] == 1  # a plan of two releases; the last receipt is number 1
        assert debits(folder) == 2

        def stopped(*_: Any) -> Any:
            raise KeyboardInterrupt

        held, run = Custodian(url, population="people", ids="id"), tmp_path / "run"
        with monkeypatch.context() as patch:
            patch.setattr(remote, "to_stream", stopped)
            with pytest.raises(KeyboardInterrupt):
                model(epsilon=1.0).fit(files(path), "y", sensitive_features=held, checkpoint=run)
        assert debits(folder) == 2  # rows that did not all arrive are not debited
        repeated = Custodian(url, population="people", ids="who")
        with pytest.raises(ValueError, match="expected every id once"):
            model(epsilon=1.0).fit(files(path), "y", sensitive_features=repeated)
        assert debits(folder) == 2
        seen = measure(
            "y", "y", data=files(path), sensitive_features=Custodian(url, population="people", ids="id"), epsilon=0.5
        )
        assert (len(seen.groups), debits(folder)) == (2, 3)


def test_cohort_sent_in_parts_is_the_cohort_sent_at_once(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)

        def made(**body: Any) -> Any:
            return ask("POST", PEOPLE, json.dumps(body).encode())

        parts = [made(ids=IDS[a:b]).facts["cohort"] for a, b in ((0, 7), (7, 200), (200, len(IDS)))]
        assert made(cohorts=parts).facts == made(ids=IDS).facts == {"cohort": ask.cohort(), "people": len(IDS)}
        assert made(cohorts=parts[::-1]).facts["cohort"] != ask.cohort()
        assert [made(cohorts=[parts[0], parts[0]]).status, made(cohorts=["nobody"]).status] == [422, 404]
        assert [made().status, made(ids=IDS[:1], cohorts=parts[:1]).status] == [413, 413]
        twice = made(cohorts=[parts[0], parts[0]], person=True).facts
        assert (twice["people"], twice["rows_each"]) == (14, 2)
        assert made(ids=IDS, person=True).facts["cohort"] != ask.cohort()


def test_command_trains_on_a_folder_of_parquet_against_a_custodian(
    tmp_path: Path,
) -> None:
    folder, rows = make_folder(tmp_path / "holder"), tmp_path / "rows"
    rows.mkdir()
    table = DATA.X.assign(y=DATA.y, id=IDS)
    for k, part in enumerate((table[:100], table[100:])):
        part.to_parquet(rows / f"{k}.parquet", index=False)
    with served(folder) as url:
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--seed", 0, "--small-groups", "--json")
        words = [str(one) for one in ("train", rows, "--target", "y", *asked, "--out", tmp_path / "model")]
        found = CliRunner().invoke(cli, words)
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["certificate"]["receipt"]["population"] == "people"
        wrong = CliRunner().invoke(cli, [*words, "--overwrite", "--person", "x0"])
        assert "expected --person id, the ids that the custodian knows" in " ".join(wrong.output.split())
        (rows / "1.parquet").unlink()
        table[50:].to_parquet(rows / "1.parquet", index=False)
        again = CliRunner().invoke(cli, [*words, "--overwrite"])
        assert "expected every id once" in " ".join(again.output.split())
        debits = len(DurableLedger.open(ledger_file(folder, "people")).releases)
        together = CliRunner().invoke(cli, [*words, "--overwrite", "--person", "id"])
        assert json.loads(together.stdout)["certificate"]["releases"], together.output
    assert len(DurableLedger.open(ledger_file(folder, "people")).releases) == 2 * debits
