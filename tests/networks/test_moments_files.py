"""The moments engine on rows in files: a network is trained on a public sample, and sums are over all rows."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from moments_setting import scores_of, setting

import justitia.networks.moments.engine as moments_module
import justitia.rows.files as files_module
from asking import asked
from dying import Killed, fit_and_die_after_save
from justitia import LagrangianDualClassifier, MomentsPlan
from justitia.privacy.vault import SensitiveVault
from justitia.rows.parquet import RowFiles
from justitia.training.checkpoint import Checkpoint

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise: fit says so

GROUPS = ("f", "m", "x")
FEATURES = ("a", "b", "c")
#: Rows of the sample in these tests, so that most rows are not in it.
FEW = 300
SHORT: dict[str, Any] = {"warmup_steps": 60, "batch_size": 64, "warmup_learning_rate": 0.02, "learning_rate": 0.01}
PLAN = MomentsPlan(**SHORT, rounds=6, public_steps=5, checks=2, candidates=3, penalty=0.02)
RELEASES = ["moments", "decisions", "decisions"]


def table(n: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(17)
    X = rng.normal(size=(n, 3)).round(3)
    place = np.argsort(np.argsort(X[:, 1] + rng.normal(size=n))) * 3 // n
    found = pd.DataFrame(X, columns=list(FEATURES))
    found["label"] = np.where(X[:, 0] + 0.7 * X[:, 1] + 0.8 * rng.normal(size=n) > 0, "yes", "no")
    found["sex"] = [None if i % 9 == 4 else GROUPS[code] for i, code in enumerate(place)]
    found["weight"] = np.linspace(1, 2, n).round(3)
    return found


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files_module, "SAMPLE", FEW)
    return write(table(), tmp_path / "rows.parquet")


def write(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_parquet(path, row_group_size=400)
    return path


def model(notion: str = "equalized_odds", **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 4.0, "groups": GROUPS, "tolerance": 0.02, "engine": "moments", "plan": PLAN}
    return LagrangianDualClassifier(notion, **usual | {"random_state": 3, "noise_seed": 11} | changes)


def fit(made: LagrangianDualClassifier, where: Path, *, workers: int = 1, **more: Any) -> LagrangianDualClassifier:
    given = {"sensitive_features": "sex", "sample_weight": "weight"} | more
    return made.fit(RowFiles.open(where, features=FEATURES, workers=workers), "label", **given)


def assert_same(one: LagrangianDualClassifier, other: LagrangianDualClassifier) -> None:
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)
    pd.testing.assert_frame_equal(one.dual_, other.dual_, check_exact=True)
    X = table()[list(FEATURES)]
    assert np.array_equal(one.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_ledger_holds_what_the_plan_announced(stored: Path, notion: str) -> None:
    fitted = fit(model(notion), stored)
    assert [one.purpose for one in fitted.ledger_.releases] == RELEASES
    assert Counter(fitted.ledger_.costs()) == fitted.plan_.costs()
    assert np.abs(fitted.dual_.to_numpy()).max() > 0


@pytest.mark.parametrize("notion", ["demographic_parity", "accuracy_parity"])
def test_fit_in_blocks_and_processes_of_any_number_is_the_same_to_the_last_bit(
    stored: Path, monkeypatch: pytest.MonkeyPatch, notion: str
) -> None:
    whole = fit(model(notion), stored)
    monkeypatch.setattr(files_module, "BLOCK", 256)
    assert_same(fit(model(notion), stored), whole)
    assert_same(fit(model(notion), stored, workers=2), whole)


def test_gaps_are_those_of_all_rows_and_not_of_the_sample(stored: Path) -> None:
    rows = table(12_000)
    where = write(rows, stored.parent / "many.parquet")
    plan = MomentsPlan(**SHORT, rounds=40, public_steps=5, checks=3, candidates=0, averaging=1.0)
    made = model("demographic_parity", epsilon=20.0, plan=plan, tolerance=0.2)
    fit(made, where, sample_weight=None)
    estimated = made.history_.filter(like="noisy_gap").iloc[-2].to_numpy()  # after the last there is no dual step
    decided = made.predict(rows[list(FEATURES)]) == "yes"
    exact = [decided[rows["sex"] == group].mean() - decided.mean() for group in GROUPS]
    assert np.ptp(exact) > 0.1
    assert np.abs(estimated - exact).max() < 0.04


def test_without_privacy_the_attribute_of_the_sample_is_revealed_once(stored: Path) -> None:
    fitted = fit(model(epsilon=math.inf, noise_seed=None), stored)
    assert [one.purpose for one in fitted.ledger_.releases] == ["exact attribute, no privacy asked for"]
    assert fitted.certificate_.epsilon == math.inf


class OnFiles:
    """A model whose fit takes a table's place from a file."""

    def __init__(self, made: LagrangianDualClassifier, where: Path) -> None:
        self.made, self.where = made, where
        self.X = self.y = self.a = None

    def fit(self, *_: Any, sensitive_features: Any = None, checkpoint: Any = None) -> LagrangianDualClassifier:
        return fit(self.made, self.where, checkpoint=checkpoint)


@pytest.mark.parametrize("saves", [1, 3, 5, 8])
def test_resumed_run_gives_the_model_of_the_whole_one(stored: Path, tmp_path: Path, saves: int) -> None:
    some = OnFiles(model(), stored)
    fit_and_die_after_save(some, some, tmp_path / "run", saves=saves)
    resumed = fit(model(), stored, checkpoint=tmp_path / "run")
    assert [one.purpose for one in resumed.ledger_.releases] == RELEASES
    assert_same(resumed, fit(model(), stored))


def test_check_that_was_paid_for_and_lost_is_not_queried_again(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = SensitiveVault.group_sums, []

    def die_at_the_second(vault: SensitiveVault, *args: Any, **kwargs: Any) -> Any:
        answer = original(vault, *args, **kwargs)
        calls.append(kwargs["purpose"])
        if len(calls) == 2:
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(SensitiveVault, "group_sums", die_at_the_second)
        with pytest.raises(Killed):
            fit(model(), stored, checkpoint=tmp_path / "run")
    resumed = fit(model(), stored, checkpoint=tmp_path / "run")
    assert [one.purpose for one in resumed.ledger_.releases] == RELEASES
    assert np.isfinite(resumed.dual_.to_numpy()).all()


def test_files_that_were_changed_are_noticed_before_the_next_debit(stored: Path, tmp_path: Path) -> None:
    original, saves = Checkpoint.save, []

    def change_files(checkpoint: Checkpoint, *args: Any) -> None:
        original(checkpoint, *args)
        saves.append(1)
        if len(saves) == 3:  # after the moments
            write(table(1499), stored)

    made = model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", change_files)
        with pytest.raises(ValueError, match="changed"):
            fit(made, stored, checkpoint=tmp_path / "run")
    assert len((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()) == 1


# The same passes serve rows in memory of which memberships are fitted on a part


def test_state_of_more_rows_than_memberships_are_fitted_on_has_the_networks_of_its_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def checked() -> Any:
        some = setting("equalized_odds", n=2000)
        some.engine.query_before(some.module, np.zeros(1), 1)
        scores = scores_of(some.module, some.problem.X)
        for k in some.engine.plan.check_rounds:
            some.engine.query_after(some.module, scores, k)
        return some

    assert checked().engine.state()["checks"] == []
    monkeypatch.setattr(moments_module, "FIT_ROWS", 700)
    some, twin = checked(), setting("equalized_odds", n=2000)
    state = some.engine.state()
    assert len(state["checks"]) == 2
    twin.engine.restore(state | {"weights": None}, 0)  # as if the run had stopped while memberships were fitted
    twin.engine.query_before(twin.module, np.zeros(1), 1)
    scores = scores_of(some.module, some.problem.X)
    assert np.allclose(asked(twin.engine, scores, 1), asked(some.engine, scores, 1), atol=0.01)
    assert twin.ledger.releases == ()
