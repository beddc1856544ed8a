"""One run at a time works in a checkpoint's folder, and on a shared ledger each finds what the others spent."""

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import RELEASES, fit, journal

from dying import Killed, fit_and_die
from justitia import DurableLedger, LagrangianDualClassifier
from justitia.privacy.accounting import GaussianCost, gaussian_mu
from justitia.privacy.ledger import BudgetExceeded, LedgerError, Release
from justitia.privacy.vault import SensitiveVault
from justitia.training.checkpoint import LOCK_FILE, open_folder

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
    with pytest.raises(ValueError, match="records debits that its ledger does not hold"):
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


def test_fit_that_another_process_outran_stops_at_the_debit_that_no_longer_fits(
    people: Any, make: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    def take_the_rest() -> None:
        multiplier = 1 / gaussian_mu(shared(tmp_path).remaining(), 1e-5)
        shared(tmp_path).debit(Release("another process", GaussianCost(multiplier * (1 + 1e-9)), 1.0))

    asked_during_fit(monkeypatch, take_the_rest, at=3)
    with pytest.raises(BudgetExceeded, match="the budget is 9"):
        make().fit(people.X, people.y, sensitive_features=people.a, ledger=shared(tmp_path))
    assert [one.purpose for one in shared(tmp_path).releases] == [*RELEASES[:2], "another process"]


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
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.npz"]
    with open_folder(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_FILE).exists()
        with pytest.raises(LedgerError, match="is in use by"):
            fit(make(), people, tmp_path / "run")
    fit(make(), people, tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.npz"]


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


def test_checkpoint_of_other_persons_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    """Noise was made for the rows that one person had then."""
    n = len(people.y)

    def grouped(ids: Any) -> LagrangianDualClassifier:
        given: dict[str, Any] = {"sensitive_features": people.a, "checkpoint": tmp_path / "run"}
        return make().fit(people.X, people.y, person=ids, **given)

    pairs, neighbours = np.arange(n) // 2, np.arange(n) % (n // 2)
    grouped(pairs)
    for other in (neighbours, None, np.arange(n)):
        with pytest.raises(ValueError, match="belongs to a run with other data or settings"):
            grouped(other)
    assert grouped([f"id {one}" for one in pairs]).certificate_.unit == "person"


def test_file_of_the_locks_name_that_is_not_ours_is_neither_written_nor_deleted(
    people: Any, make: Any, tmp_path: Path
) -> None:
    (tmp_path / LOCK_FILE).write_text("dependencies of another program\n")
    with pytest.raises(LedgerError, match="holds a file 'lock' that is not a checkpoint's"):
        fit(make(), people, tmp_path)
    assert (tmp_path / LOCK_FILE).read_text() == "dependencies of another program\n"
    assert [one.name for one in tmp_path.iterdir()] == [LOCK_FILE]


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
@pytest.mark.parametrize("name", [LOCK_FILE, "state.tmp"])
def test_links_in_a_checkpoint_folder_are_not_written_through(
    people: Any, make: Any, tmp_path: Path, name: str
) -> None:
    (tmp_path / "precious").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    if name == LOCK_FILE:
        with pytest.raises(OSError, match="lock"):
            fit(make(), people, tmp_path / "run")
    else:
        fit(make(), people, tmp_path / "run")
    assert (tmp_path / "precious").read_text() == ""
