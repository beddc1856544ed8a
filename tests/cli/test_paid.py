"""What was paid for is not lost: checkpoints, a full disk, a signal while saving; and whom saved files are open to."""

import os
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from running import Run, assert_refused, income, read

from justitia import DurableLedger, LagrangianDualClassifier
from justitia.cli import training
from justitia.cli.output import ignore_interrupts
from justitia.postprocessing.solver import PostProcessingRun

TRAIN = (
    "income.csv",
    "--target",
    "income",
    "--sensitive",
    "sex",
    "--groups",
    "Female,Male",
    "--ledger",
    "people.ledger",
)


def purposes(folder: Path) -> list[str]:
    return [one.purpose for one in DurableLedger.open(folder / "people.ledger").releases]


def test_training_that_is_stopped_goes_on_from_its_checkpoint_without_asking_again(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = PostProcessingRun._check, []

    def stopped(run: Any) -> None:
        real(run)
        asked.append(run)
        if len(asked) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(PostProcessingRun, "_check", stopped)
    words = ("train", *TRAIN, "--checkpoint", "half", "--out", "m")
    assert run(*words).exit_code == 130
    paid = purposes(here)
    assert not (here / "m").exists()
    made = run(*words)
    assert made.exit_code == 0, made.output
    assert purposes(here) == paid  # the answer of the last one was lost, and stays paid
    again = run(*words[:-1], "n")  # a run that has ended gives its model again
    assert again.exit_code == 0, again.output
    assert purposes(here) == paid
    assert read(here / "m" / "model.json")["dual"] == read(here / "n" / "model.json")["dual"]


def test_checkpoint_in_the_folder_of_the_model_is_refused(run: Run, here: Path) -> None:
    assert_refused(run("train", *TRAIN, "--checkpoint", "m/half", "--out", "m"), 2, "expected a --checkpoint apart")
    assert purposes(here) == []


@pytest.mark.parametrize("words", [("train",), ("tradeoff", "--tolerances", "0.1")], ids=["train", "tradeoff"])
def test_model_that_its_disk_has_no_room_for_is_kept_elsewhere(
    run: Run,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    words: tuple[str, ...],
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    real = LagrangianDualClassifier.save

    def save(model: LagrangianDualClassifier, folder: Path, **options: Any) -> Path:
        if Path(folder).absolute().is_relative_to(here):
            raise OSError(28, "No space left on device", str(folder))
        return real(model, folder, **options)

    monkeypatch.setattr(LagrangianDualClassifier, "save", save)
    message = assert_refused(
        run(*words, *TRAIN, "--out", "m"), 2, "no space left on device; the trained model is paid for"
    )
    (kept,) = elsewhere.iterdir()
    assert str(kept / "m") in message
    model = kept / "m" if words[0] == "train" else kept / "m" / "tolerance-0.1"
    assert LagrangianDualClassifier.load(model).certificate_.epsilon <= 1
    assert not (here / "m").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are POSIX's")
def test_signal_while_a_paid_model_is_saved_does_not_stop_it(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = training.training_metadata

    def signalled(*args: Any, **kwargs: Any) -> Any:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "training_metadata", signalled)
    made = run("train", *TRAIN, "--out", "m")
    assert made.exit_code == 0, made.output
    assert (here / "m" / "training.json").exists()


def test_handlers_are_as_they_were_after_what_may_not_be_stopped() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ignore_interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of this kind are POSIX's")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_all_files_of_a_model_are_open_to_the_same_users(run: Run, here: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert run("train", *TRAIN, "--out", "m").exit_code == 0
        assert run("evaluate", "m", "test.csv", "--out", "e.json").exit_code == 0
        assert run("report", "m", "--out", "r.html").exit_code == 0
    finally:
        os.umask(before)
    files = [*(here / "m").iterdir(), here / "e.json", here / "r.html", here / "r.md"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o666 & ~mask}
    assert stat.S_IMODE((here / "m").stat().st_mode) == 0o777 & ~mask


# --- a budget is not spent on a run that cannot work


@pytest.fixture
def lender(here: Path) -> Path:
    """Two thousand people, with their ages."""
    income(2000, 3).to_csv(here / "lender.csv", index=False)
    return here


def test_groups_of_other_names_than_those_of_the_data_cost_a_small_share(run: Run, lender: Path) -> None:
    words = ("lender.csv", "--target", "income", "--sensitive", "sex", "--ledger", "people.ledger", "--drop", "age")
    wrong = run("train", *words, "--groups", "female,male", "--out", "m")
    assert_refused(wrong, 2, "add up to about", "check the names of the groups")
    assert purposes(lender) == ["sizes"]
    assert DurableLedger.open(lender / "people.ledger").epsilon() < 0.2
    right = run("train", *words, "--groups", "Female,Male", "--out", "m")
    assert right.exit_code == 0, right.output
    assert purposes(lender) == ["sizes", "sizes", "moments", "decisions", "decisions"]


def test_unbinned_ages_are_refused_by_public_numbers_and_nothing_is_spent(run: Run, lender: Path) -> None:
    ages = ",".join(str(age) for age in range(20, 82))
    words = ("lender.csv", "--target", "income", "--sensitive", "age", "--groups", ages, "--drop", "sex")
    words += ("--ledger", "people.ledger", "--out", "m")
    assert_refused(run("train", *words), 2, "62 groups of 2,000 rows have about 32 rows each", "--bins")
    assert purposes(lender) == []
    made = run("train", *words, "--small-groups")
    assert made.exit_code == 0, made.output
    assert "sizes" not in purposes(lender)
