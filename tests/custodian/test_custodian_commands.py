"""Commands with --custodian, and a fit against one that is stopped in the middle and goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from service_fixtures import DATA, DELTA, IDS, KEYS, make_folder, served

from justitia import BudgetExceeded, DurableLedger, LagrangianDualClassifier, MomentsPlan, PostProcessingPlan
from justitia.cli import cli
from justitia.custodian import Custodian
from justitia.custodian.populations import ledger_file
from justitia.postprocessing import memberships


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])


def debits(folder: Path) -> int:
    return len(DurableLedger.open(ledger_file(folder, "people")).releases)


def test_curve_its_evaluation_and_a_measurement_query_the_custodian(tmp_path: Path) -> None:
    folder, rows, curve = make_folder(tmp_path / "holder", epsilon=9.0), tmp_path / "rows.csv", tmp_path / "curve"
    decided = (DATA.X["x0"] > 0).astype(int)
    DATA.X.assign(y=DATA.y, id=IDS, decided=decided, points=DATA.X["x1"]).to_csv(rows, index=False)
    with served(folder) as url:
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--receipts", tmp_path / "receipts")

        def command(*words: Any, codes: tuple[int, ...] = (0,)) -> Any:
            found = CliRunner().invoke(cli, [str(word) for word in (*words, *asked, "--json")])
            assert found.exit_code in codes, found.output
            return json.loads(found.stdout)

        made = command("tradeoff", rows, "--target", "y", "--drop", "decided,points", "--out", curve, "--small-groups")
        judged = command("evaluate", curve / made["models"][0], rows, "--epsilon", 0.5)
        seen = command("measure", rows, "--decision", "decided", "--target", "y", "--score", "points", "--epsilon", 0.5)
        before = debits(folder)
        for words, sentence in (
            (("--sensitive", "sex"), "without --sensitive"),
            (("--groups", "a,b"), "without --groups"),
            (("--person", "x0"), "expected --person id"),
        ):
            said = CliRunner().invoke(cli, [str(w) for w in ("measure", rows, "--decision", "decided", *asked, *words)])
            assert said.exit_code == 2
            assert sentence in " ".join(said.output.split())
    assert all(url in one["certificate"]["custodian"] for one in (made, judged, seen))
    assert judged["certificate"]["remarks"] == []  # one ledger, the custodian's, counts training and measurement
    receipts = [json.loads(line)["number"] for line in (tmp_path / "receipts").read_text().splitlines()]
    assert receipts == list(range(before))
    assert debits(folder) == before


def test_rows_that_are_read_a_few_at_a_time_are_measured_by_the_custodian(tmp_path: Path) -> None:
    folder, rows = make_folder(tmp_path / "holder", epsilon=9.0), tmp_path / "rows"
    rows.mkdir()
    decided = (DATA.X["x0"] > 0).astype(int)
    DATA.X.assign(y=DATA.y, id=IDS, decided=decided).to_parquet(rows / "all.parquet", index=False)
    with served(folder) as url:
        asked = ("--custodian", url, "--population", "people", "--key", "id", "--json")
        train = ("train", rows, "--target", "y", "--drop", "decided", "--out", tmp_path / "model", "--small-groups")
        measure = ("measure", rows, "--decision", "decided", "--target", "y", "--epsilon", 0.5)
        evaluate = ("evaluate", tmp_path / "model", rows, "--epsilon", 0.5)
        for words, more in ((train, None), (measure, 1), (evaluate, 1)):
            before = debits(folder)
            found = CliRunner().invoke(cli, [str(word) for word in (*words, *asked)])
            assert found.exit_code in (0, 1), found.output
            assert url in json.loads(found.stdout)["certificate"]["custodian"]
            assert more is None or debits(folder) == before + more


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
@pytest.mark.parametrize("killed_at", [1, 2])
def test_fit_that_was_stopped_after_an_answer_goes_on_without_a_second_debit(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept, calls = make_folder(tmp_path / "holder"), Custodian.received, [0]

    def dies(self: Custodian, *words: Any) -> Any:
        calls[0] += 1
        if calls[0] == killed_at:
            raise KeyboardInterrupt
        return kept(self, *words)

    def fit(url: str) -> LagrangianDualClassifier:
        plan: dict[str, Any] = {"plan": PostProcessingPlan(checks=2), "random_state": 0}
        model = LagrangianDualClassifier(epsilon=2.0, delta=DELTA, groups=["a", "b"], **plan)
        holder = Custodian(url, population="people", ids=IDS)
        return model.fit(DATA.X, DATA.y, sensitive_features=holder, checkpoint=tmp_path / "run")

    with served(folder) as url:
        with monkeypatch.context() as patch:
            patch.setattr(Custodian, "received", dies)
            with pytest.raises(KeyboardInterrupt):
                fit(url)
        assert debits(folder) == killed_at
        if killed_at == 1:  # its only answer is gone: nothing to go on from
            with pytest.raises(BudgetExceeded, match="the debit stands"):
                fit(url)
            assert debits(folder) == 1
        else:
            assert fit(url).certificate_.receipt is not None
            assert debits(folder) == 3


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise
@pytest.mark.parametrize(
    "options", [{}, {"at": "scores"}, {"engine": "moments"}], ids=["post-processing", "scores", "moments"]
)
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "files"])
def test_fit_that_was_stopped_before_memberships_were_fitted_goes_on_from_its_answer(
    options: dict[str, Any], stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stored and "at" in options:
        pytest.skip("scores are held alike in memory alone")
    folder, fitted = make_folder(tmp_path / "holder"), memberships.fit_memberships
    plan = MomentsPlan(warmup_steps=20, rounds=3, checks=1) if "engine" in options else PostProcessingPlan(checks=1)
    DATA.X.assign(y=DATA.y, id=IDS).to_parquet(tmp_path / "rows.parquet", index=False)

    def dies(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def fit(url: str) -> LagrangianDualClassifier:
        model = LagrangianDualClassifier(
            epsilon=2.0, delta=DELTA, groups=["a", "b"], random_state=0, plan=plan, **options
        )
        holder = Custodian(url, population="people", ids="id" if stored else IDS)
        rows = (tmp_path / "rows.parquet", "y") if stored else (DATA.X, DATA.y)
        return model.fit(*rows, sensitive_features=holder, checkpoint=tmp_path / "run")

    with served(folder) as url:
        monkeypatch.setattr(memberships, "fit_memberships", dies)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                fit(url)
            assert debits(folder) == 1
        monkeypatch.setattr(memberships, "fit_memberships", fitted)
        assert sum(fit(url).plan_.costs().values()) == debits(folder) == 2
