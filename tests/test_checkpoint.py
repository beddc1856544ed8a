"""Interrupted and resumed: nothing is asked twice, no debit is lost, no noise is drawn again."""

import json
import math
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dying import Killed, fit_and_die, fit_and_die_after_save
from justitia import DurableLedger, LagrangianDualClassifier, PrintedPlan, PrivacyLedger
from justitia.dual.checkpoint import LOCK_FILE, open_folder
from justitia.privacy.accounting import GaussianCost
from justitia.privacy.ledger import BudgetExceeded, LedgerError, Release
from justitia.privacy.vault import SensitiveVault

# One run of the small plan: group sizes; then three times a violation and a group gradient.
RELEASES = ["group sizes", *(["violation", "group gradient"] * 3)]


def fit(model: LagrangianDualClassifier, people: Any, folder: Path | None) -> LagrangianDualClassifier:
    return model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)


def journal(folder: Path, model: Any) -> list[str]:
    ledger = PrivacyLedger(epsilon=model.epsilon, delta=model.delta, journal=folder / "ledger.jsonl")
    return [release.purpose for release in ledger.releases]


def test_fit_with_checkpoint_equals_fit_without(people: Any, make: Any, tmp_path: Path) -> None:
    with_folder, without = fit(make(), people, tmp_path / "run"), fit(make(), people, None)
    assert np.array_equal(with_folder.decision_function(people.X), without.decision_function(people.X))
    assert with_folder.certificate_ == without.certificate_
    assert journal(tmp_path / "run", with_folder) == RELEASES


@pytest.mark.parametrize("saves", [1, 2, 3, 4, 5])
def test_resume_after_a_save_continues_the_same_trajectory(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], saves: int
) -> None:
    fit_and_die_after_save(make(), people, tmp_path / "run", saves=saves)
    resumed = fit(make(), people, tmp_path / "run")
    assert noise_numbers == list(range(7))
    whole = fit(make(), people, None)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))
    pd.testing.assert_frame_equal(resumed.history_, whole.history_, check_exact=True)
    pd.testing.assert_frame_equal(resumed.dual_, whole.dual_, check_exact=True)
    assert resumed.certificate_ == whole.certificate_


@pytest.mark.parametrize("at", [2, 3, 4, 5, 6, 7])
def test_resume_after_a_lost_answer_keeps_the_debit_and_asks_the_rest(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=True)
    assert journal(folder, model) == RELEASES[:at]
    assert not hasattr(model, "module_")
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    # Without the first violation all multipliers are 0, and so is what a person can move: that answer needs no noise.
    assert noise_numbers == [number for number in range(7) if (at, number) != (2, 2)]
    assert model.certificate_.epsilon == pytest.approx(8.0, abs=1e-6)
    assert np.isfinite(model.decision_function(people.X)).all()


@pytest.mark.parametrize("at", [2, 3, 5, 7])
def test_resume_after_dying_before_the_debit_equals_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=False)
    assert journal(folder, model) == RELEASES[: at - 1]
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == list(range(7))
    whole = fit(make(), people, None)
    assert np.array_equal(model.decision_function(people.X), whole.decision_function(people.X))


def test_resume_after_two_deaths_asks_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=3, answered=True)
    fit_and_die(model, people, folder, at=2, answered=True)
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == list(range(7))


def test_resume_after_a_lost_answer_and_a_death_right_after_resuming_asks_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    """The state is the one from before the lost answer, and must go on to say so."""
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=2, answered=True)
    fit_and_die_after_save(model, people, folder, saves=1)
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == [0, 1, 3, 4, 5, 6]  # all multipliers are 0 in the round of number 2


def test_resume_run_that_died_at_its_first_question_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=1, answered=True)
    with pytest.raises(BudgetExceeded, match="stopped before its first answer was saved, and the debit stands"):
        fit(model, people, folder)
    assert journal(folder, model) == ["group sizes"]


def test_resume_finished_run_asks_nothing_and_gives_the_same_model(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    first = fit(make(), people, tmp_path / "run")
    again = fit(make(), people, tmp_path / "run")
    assert len(noise_numbers) == 7
    assert journal(tmp_path / "run", again) == RELEASES
    assert np.array_equal(again.decision_function(people.X), first.decision_function(people.X))
    assert again.certificate_ == first.certificate_
    pd.testing.assert_frame_equal(again.history_, first.history_, check_exact=True)


def test_resume_without_random_state_goes_on_from_the_saved_weights(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die_after_save(make(random_state=None), people, tmp_path / "run", saves=2)
    model = fit(make(random_state=None), people, tmp_path / "run")
    assert journal(tmp_path / "run", model) == RELEASES


@pytest.mark.parametrize("engine", ["gradients", "printed"])
def test_resume_without_noise_equals_the_whole_run(people: Any, make: Any, tmp_path: Path, engine: str) -> None:
    plans = {"gradients": make().plan, "printed": PrintedPlan(epochs=3, batch_size=64)}
    usual = {"epsilon": math.inf, "engine": engine, "plan": plans[engine], "noise_seed": None}
    fit_and_die_after_save(make(**usual), people, tmp_path / "run", saves=2)
    resumed = fit(make(**usual), people, tmp_path / "run")
    whole = fit(make(**usual), people, None)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 9.0},
        {"tolerance": 0.1},
        {"notion": "equalized_odds"},
        {"groups": ["m", "f"]},
        {"module": [3]},
        {"noise_seed": None},
        {"missing_marker": "?"},
        {"engine": "printed", "plan": PrintedPlan(epochs=1)},
    ],
    ids=str,
)
def test_resume_folder_of_another_run_is_refused(people: Any, make: Any, tmp_path: Path, changes: Any) -> None:
    folder = tmp_path / "run"
    fit_and_die_after_save(make(), people, folder, saves=2)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    model = make(**changes)
    with pytest.raises(ValueError, match="belongs to a run with other data or settings; choose another") as caught:
        fit(model, people, folder)
    assert "\n" not in str(caught.value)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert not hasattr(model, "classes_")


def test_resume_with_other_people_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die_after_save(make(), people, tmp_path / "run", saves=2)
    with pytest.raises(ValueError, match="other data or settings"):
        make().fit(people.X[::-1], people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="other data or settings"):
        make().fit(people.X, 1 - people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")


def test_checkpoint_files_hold_neither_labels_nor_a_hash_of_them(people: Any, make: Any, tmp_path: Path) -> None:
    """Same noise, two attributes that differ: the fingerprint must not."""
    labels = people.a.astype(object)
    labels[3] = "zanzibar-7319"
    make().fit(people.X, people.y, sensitive_features=labels, checkpoint=tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.pt"]
    assert all(b"zanzibar" not in file.read_bytes() for file in (tmp_path / "run").iterdir())
    resumed = make().fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    assert len(resumed.ledger_.releases) == 7


# --- a checkpoint whose debits are in a durable ledger


def shared(folder: Path) -> DurableLedger:
    return DurableLedger(folder / "people.ledger", dataset="people", epsilon=9.0, delta=1e-5)


def test_interrupted_run_on_a_durable_ledger_goes_on_without_asking_twice(
    people: Any, make: Any, tmp_path: Path
) -> None:
    folder, ledger = tmp_path / "run", shared(tmp_path)
    ledger.debit(Release("something else", GaussianCost(100.0), 1.0))
    with pytest.MonkeyPatch.context() as patch:
        calls: list[int] = []
        original = SensitiveVault.weighted_sum

        def die(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            answer = original(self, *args, **kwargs)
            if len(calls) == 2:
                raise Killed
            return answer

        patch.setattr(SensitiveVault, "weighted_sum", die)
        with pytest.raises(Killed):
            make().fit(people.X, people.y, sensitive_features=people.a, ledger=ledger, checkpoint=folder)
    spent = len(shared(tmp_path).releases)
    assert 1 < spent < 1 + len(RELEASES)
    model = make().fit(people.X, people.y, sensitive_features=people.a, ledger=shared(tmp_path), checkpoint=folder)
    purposes = [one.purpose for one in shared(tmp_path).releases]
    assert Counter(purposes) == Counter(["something else", *RELEASES])
    assert Counter(one.purpose for one in model.ledger_.own_releases()) == Counter(RELEASES)


def test_checkpoint_and_ledger_that_do_not_belong_together_are_refused(people: Any, make: Any, tmp_path: Path) -> None:
    def again(**options: Any) -> None:
        make().fit(people.X, people.y, sensitive_features=people.a, **options)

    again(checkpoint=tmp_path / "own")
    with pytest.raises(ValueError, match="keeps its own ledger; resume it without ledger"):
        again(checkpoint=tmp_path / "own", ledger=shared(tmp_path))
    again(checkpoint=tmp_path / "run", ledger=shared(tmp_path))
    with pytest.raises(ValueError, match="debits a DurableLedger; pass that one as ledger"):
        again(checkpoint=tmp_path / "run")
    (tmp_path / "new").mkdir()
    with pytest.raises(ValueError, match="has seen debits that its ledger does not hold"):
        again(checkpoint=tmp_path / "run", ledger=shared(tmp_path / "new"))
    assert shared(tmp_path / "new").releases == ()


def test_another_process_that_debits_during_a_fit_is_not_taken_for_a_defect(
    people: Any, make: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    original = SensitiveVault.group_sums

    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        shared(tmp_path).debit(Release("another process", GaussianCost(100.0), 1.0))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(SensitiveVault, "group_sums", ask)
    make().fit(people.X, people.y, sensitive_features=people.a, ledger=shared(tmp_path))
    counts = Counter(one.purpose for one in shared(tmp_path).releases)
    assert counts == Counter([*RELEASES, *["another process"] * 4])


# --- one run at a time

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def asked_during_fit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, at: int) -> None:
    """Do something when the vault is asked for the at-th time."""
    asked: list[int] = []
    for name in ("group_sums", "weighted_sum"):
        original = getattr(SensitiveVault, name)

        def ask(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            asked.append(1)
            if len(asked) == at:
                act()
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(SensitiveVault, name, ask)


@pytest.mark.parametrize("durable", [False, True])
def test_second_run_in_a_folder_that_is_in_use_is_refused_and_asks_nothing(
    people: Any, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    refusals: list[str] = []

    def run() -> Any:
        more = {"ledger": shared(tmp_path)} if durable else {}
        return make().fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run", **more)

    def second() -> None:
        with pytest.raises(LedgerError) as caught:
            run()
        refusals.append(str(caught.value))

    asked_during_fit(monkeypatch, second, at=3)
    model = run()
    (sentence,) = refusals
    holder = f"process {os.getpid()} on {socket.gethostname()!r} since 20"
    assert sentence.startswith(f"The checkpoint in {str(tmp_path / 'run')!r} is in use by {holder}")
    assert sentence.endswith("; wait for its end, or choose another folder.")
    assert [one.purpose for one in model.ledger_.releases] == RELEASES
    assert model.certificate_.epsilon <= 8.0
    assert not (tmp_path / "run" / LOCK_FILE).exists()


def test_folder_is_free_after_a_run_that_ends_or_fails(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die(make(), people, tmp_path / "run", at=3, answered=True)
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.pt"]
    with open_folder(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_FILE).exists()
        with pytest.raises(LedgerError, match="is in use by"):
            fit(make(), people, tmp_path / "run")
    fit(make(), people, tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.pt"]


def test_folder_that_was_made_for_nothing_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(Killed), open_folder(tmp_path / "some" / "where"):
        raise Killed
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with open_folder(tmp_path / "mine" / "run"):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


@forks
def test_run_that_was_killed_leaves_its_folder_to_the_next(people: Any, make: Any, tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with open_folder(tmp_path / "run"):
            os.write(write, b"x")
            signal.pause()
    os.read(read, 1)
    try:
        with pytest.raises(LedgerError, match=f"is in use by process {child} on"):
            fit(make(), people, tmp_path / "run")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    assert json.loads((tmp_path / "run" / LOCK_FILE).read_text())["process"] == child
    assert journal(tmp_path / "run", fit(make(), people, tmp_path / "run")) == RELEASES


@forks
def test_fork_during_a_run_leaves_the_folder_to_the_parent_and_the_budget_whole(
    people: Any, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, codes = os.getpid(), []

    def fork() -> None:
        child = os.fork()
        if child:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            assert (tmp_path / "run" / LOCK_FILE).exists()
            with pytest.raises(LedgerError, match="is in use by"):
                fit(make(), people, tmp_path / "run")

    asked_during_fit(monkeypatch, fork, at=3)
    code = 1
    try:  # the child pays for one answer, and so the budget does not last for all of the parent's
        with pytest.raises((LedgerError, BudgetExceeded)) as caught:
            fit(make(), people, tmp_path / "run")
        code = 0 if "no longer holds the folder" in str(caught.value) else 1
    finally:
        if os.getpid() != parent:
            os._exit(code)
    assert codes == [0]
    assert isinstance(caught.value, BudgetExceeded)
    assert len(journal(tmp_path / "run", make())) == len(RELEASES)
