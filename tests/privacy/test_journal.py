"""The journal of a ledger: one line per debit, shared by ledgers and processes, on the disk before the answer."""

import math
import os
import pickle
from pathlib import Path

import pytest
from ledgers import FULL, RESPONSE, SIGMA, UNBOUNDED, WEAK, forks, ledger, release

from justitia.privacy.accounting import (
    GaussianCost,
)
from justitia.privacy.file_lock import LockedFile
from justitia.privacy.ledger import BudgetExceeded, LedgerError, Release

# --- one journal, several ledgers


def test_two_ledgers_with_one_journal_share_the_total(tmp_path: Path) -> None:
    one, other = ledger(journal=tmp_path / "journal"), ledger(journal=tmp_path / "journal")
    one.debit(release())
    with pytest.raises(BudgetExceeded, match=r"would bring epsilon to 1\.465; the budget is 1 \(spent 0\.9999\)"):
        other.debit(release())
    assert other.releases == one.releases == (release(),)
    assert other.certificate() == one.certificate()
    assert pickle.loads(pickle.dumps(other)).costs() == {FULL: 1}


@forks
def test_processes_with_one_journal_together_stay_within_the_budget(tmp_path: Path) -> None:
    book = ledger(journal=tmp_path / "journal")
    cost = GaussianCost(SIGMA * math.sqrt(40))  # forty of them fit
    child = os.fork()
    if child == 0:  # it works against its parent, with the same object and with one of its own
        code = 1
        try:
            for each in (book, ledger(journal=tmp_path / "journal")):
                with pytest.raises(BudgetExceeded):
                    [each.debit(release(cost)) for _ in range(50)]
            code = 0
        finally:
            os._exit(code)
    with pytest.raises(BudgetExceeded):
        [book.debit(release(cost)) for _ in range(50)]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert book.costs() == ledger(journal=tmp_path / "journal").costs() == {cost: 40}


def test_journal_that_others_hold_is_waited_for_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("justitia.privacy.ledger.JOURNAL_TIMEOUT", 0.05)
    book = ledger(epsilon=5.0, journal=tmp_path / "journal")
    book.debit(release())
    with (
        LockedFile(tmp_path / "journal", os.O_RDWR, timeout=0),
        pytest.raises(LedgerError, match=r"was in use by other processes for 0\.05 s; try again\."),
    ):
        book.debit(release())
    assert book.debit(release()) == 1


@forks
def test_lock_of_a_parent_is_not_kept_by_its_child(tmp_path: Path) -> None:
    read, write = os.pipe()
    file = LockedFile(tmp_path / "file", os.O_RDWR | os.O_CREAT, timeout=0)
    child = os.fork()
    if child == 0:
        code = 0 if file.handle is None and not file.is_current() else 1
        os.read(read, 1)  # lives on while the parent lets go
        os._exit(code)
    try:
        with pytest.raises(TimeoutError):
            LockedFile(tmp_path / "file", os.O_RDWR, timeout=0)
        file.close()
        LockedFile(tmp_path / "file", os.O_RDWR, timeout=0).close()
    finally:
        os.write(write, b"x")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(read)
        os.close(write)
    assert code == 0


def test_journal_that_lost_lines_or_is_gone_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    book = ledger(epsilon=9.0, journal=path)
    book.debit(release())
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match=r"lacks debits that were made; restore its newest copy\."):
        book.debit(release())
    path.unlink()
    with pytest.raises(LedgerError, match=r"is gone; restore its newest copy\."):
        book.debit(release())
    assert not path.exists()
    assert book.costs() == {FULL: 1}
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(LedgerError, match="holds a line that this version cannot read"):
        book.debit(release())


def test_journal_is_only_read_when_it_is_opened(tmp_path: Path) -> None:
    """Half a line may be one that another process is writing."""
    path = tmp_path / "journal"
    path.write_text('{"purpose": "gro')
    assert ledger(journal=path).releases == ()
    assert path.read_text() == '{"purpose": "gro'


def test_journal_that_is_reopened_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = ledger(epsilon=2.0, journal=path)
    for cost in (FULL, WEAK, RESPONSE):
        first.debit(release(cost))
    second = ledger(epsilon=2.0, journal=path)
    assert second.releases == first.releases
    assert second.epsilon() == first.epsilon()
    with pytest.raises(BudgetExceeded):
        second.debit(release(GaussianCost(SIGMA / 2)))
    assert second.debit(release(WEAK)) == 3


def test_journal_holds_the_debit_before_the_ledger_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    book = ledger(journal=path)

    def power_cut(_: Release) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(book, "_append", power_cut)
    with pytest.raises(KeyboardInterrupt):
        book.debit(release())
    assert ledger(journal=path).releases == (release(),)


def test_journal_line_is_flushed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes_at_sync = tmp_path / "journal", []
    monkeypatch.setattr("os.fsync", lambda _: sizes_at_sync.append(path.stat().st_size))
    book, line = ledger(journal=path), len(release().to_json()) + 1
    book.debit(release())
    assert sizes_at_sync == [line, line]  # the file, then the folder that now holds its name
    book.debit(release(GaussianCost(100 * SIGMA)))
    assert len(sizes_at_sync) == 3  # a name that is there already needs no second sync
    assert sizes_at_sync[-1] == path.stat().st_size > line


def test_journal_that_cannot_be_written_stops_the_release(tmp_path: Path) -> None:
    book = ledger(journal=tmp_path / "no such folder" / "journal")
    with pytest.raises(FileNotFoundError):
        book.debit(release())
    assert book.releases == ()


@pytest.mark.parametrize("torn", [1, 20, len(release().to_json())])
def test_journal_with_half_a_line_at_its_end_drops_it_and_goes_on(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "journal"
    book = ledger(epsilon=9.0, journal=path)
    book.debit(release(purpose="whole"))
    with path.open("a") as file:
        file.write(release(purpose="half").to_json()[:torn])
    again = ledger(epsilon=9.0, journal=path)
    assert [entry.purpose for entry in again.releases] == ["whole"]
    again.debit(release(purpose="next"))
    assert [entry.purpose for entry in ledger(epsilon=9.0, journal=path).releases] == ["whole", "next"]


def test_journal_with_nothing_but_half_a_line_is_empty(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text('{"purpose": "gro')
    assert ledger(journal=tmp_path / "journal").releases == ()


def test_journal_receives_nothing_from_a_refused_release(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with pytest.raises(BudgetExceeded):
        ledger(journal=path).debit(release(UNBOUNDED))
    assert not path.exists()


def test_journal_over_its_budget_is_reopened_and_refuses_everything(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ledger(epsilon=5.0, journal=path).debit(release(GaussianCost(1.0)))
    book = ledger(epsilon=1.0, journal=path)
    assert book.epsilon() > 1.0
    with pytest.raises(BudgetExceeded):
        book.debit(release(GaussianCost(1000.0)))
