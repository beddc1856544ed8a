"""The ledger: debits before answers, refusals in one sentence, threads, copies and forks."""

import copy
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ledgers import FULL, RESPONSE, SIGMA, UNBOUNDED, WEAK, forks, ledger, release
from sklearn.base import clone

from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    SelectionCost,
    delta_spent,
    epsilon_spent,
    gaussian_epsilon,
)
from justitia.privacy.ledger import BudgetExceeded, LedgerError, PrivacyLedger


def test_debit_within_the_budget_is_recorded_and_numbered() -> None:
    book = ledger(epsilon=2.0)
    assert [book.debit(release(purpose=name)) for name in ("first", "second")] == [0, 1]
    assert [entry.purpose for entry in book.releases] == ["first", "second"]
    assert book.costs() == {FULL: 2}
    assert book.epsilon() == pytest.approx(gaussian_epsilon(math.sqrt(2) / SIGMA, 1e-5))


def test_debit_over_the_budget_is_refused_and_records_nothing() -> None:
    book = ledger()
    book.debit(release())
    with pytest.raises(BudgetExceeded):
        book.debit(release())
    assert len(book.releases) == 1
    assert book.costs() == {FULL: 1}


def test_debit_over_the_budget_is_refused_in_the_words_of_one_voice() -> None:
    book = ledger()
    book.debit(release(purpose="group sizes"))
    with pytest.raises(BudgetExceeded) as refusal:
        book.debit(release())
    assert str(refusal.value) == (
        "'check round 3' would bring epsilon to 1.465; the budget is 1 (spent 0.9999). "
        "Use fewer or noisier releases, or raise epsilon."
    )


def test_debit_just_over_the_budget_is_refused_with_digits_that_show_it() -> None:
    with pytest.raises(BudgetExceeded, match=r"would bring epsilon to 1\.00004; the budget is 1 \(spent 0\)"):
        ledger().debit(release(GaussianCost(3.7305)))


def test_debit_that_is_refused_leaves_room_for_a_smaller_one() -> None:
    book = ledger()
    with pytest.raises(BudgetExceeded):
        book.debit(release(GaussianCost(1.0)))
    assert book.debit(release(GaussianCost(10.0))) == 0


def test_debit_that_exceeds_the_budget_by_round_off_only_is_allowed() -> None:
    exact = epsilon_spent({FULL: 1}, 1e-5)
    ledger(epsilon=exact * (1 - 5e-10)).debit(release())
    with pytest.raises(BudgetExceeded):
        ledger(epsilon=exact * (1 - 5e-9)).debit(release())


@pytest.mark.parametrize("cost", [FULL, WEAK, RESPONSE, UNBOUNDED, GaussianCost(1e9)])
def test_budget_of_zero_allows_no_release_however_noisy(cost: Cost) -> None:
    book = ledger(epsilon=0.0)
    with pytest.raises(BudgetExceeded):
        book.debit(release(cost))
    assert book.releases == ()


@pytest.mark.parametrize("cost", [FULL, WEAK, RESPONSE, UNBOUNDED])
def test_infinite_budget_allows_everything(cost: Cost) -> None:
    book = ledger(epsilon=math.inf)
    for _ in range(3):
        book.debit(release(cost))
    assert book.costs() == {cost: 3}


def test_unbounded_release_within_a_finite_budget_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="would bring epsilon to inf; the budget is 50"):
        ledger(epsilon=50.0).debit(release(UNBOUNDED))


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, -math.inf])
def test_budget_that_is_no_number_of_at_least_zero_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"The budget epsilon must be a number of at least 0; got (-0\.1|nan|-inf)\."):
        ledger(epsilon=epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_delta_outside_zero_and_one_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=r"The budget delta must lie in \[0, 1\); got "):
        ledger(delta=delta)


def test_releases_handed_out_cannot_change_the_ledger() -> None:
    book = ledger()
    book.debit(release())
    assert isinstance(book.releases, tuple)
    costs = dict(book.costs())
    costs.clear()
    handed = book.costs()
    assert isinstance(handed, dict)
    handed.clear()
    assert (len(book.releases), book.costs()) == (1, {FULL: 1})
    with pytest.raises(AttributeError):
        book.releases = ()  # type: ignore[misc]


def test_ledger_has_no_way_to_take_a_release_back() -> None:
    public = {name for name in vars(PrivacyLedger) if not name.startswith("_")}
    reading = {
        "check",
        "releases",
        "costs",
        "own_releases",
        "own_costs",
        "epsilon",
        "remaining",
        "certificate",
        "identity",
    }
    assert public == reading | {"debit"}


def test_check_of_a_plan_that_fits_records_nothing(tmp_path: Path) -> None:
    book = ledger(journal=tmp_path / "journal")
    book.check({FULL: 1})
    assert (book.releases, book.epsilon()) == ((), 0.0)
    assert not (tmp_path / "journal").exists()


def test_check_of_a_plan_that_does_not_fit_names_the_plan() -> None:
    with pytest.raises(BudgetExceeded, match=r"'this plan' would bring epsilon to 2\.\d+; the budget is 1 \(spent 0\)"):
        ledger().check({FULL: 4})


def test_check_counts_what_was_spent_before() -> None:
    book = ledger()
    book.debit(release())
    with pytest.raises(BudgetExceeded):
        book.check({FULL: 1})


# --- at delta 0 only a pure guarantee fits


@pytest.mark.parametrize("cost", [FULL, WEAK, GaussianCost(1e4), GaussianCost(1e200), SelectionCost(1e3, 0.5)])
@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-310])
def test_budget_without_delta_refuses_gaussian_noise_however_large_its_epsilon(cost: Cost, delta: float) -> None:
    book = ledger(epsilon=50.0, delta=delta)
    with pytest.raises(BudgetExceeded, match="would bring epsilon to inf"):
        book.debit(release(cost))
    with pytest.raises(BudgetExceeded):
        book.check({RESPONSE: 1, cost: 1})
    assert book.debit(release(RESPONSE)) == 0
    assert book.epsilon() == 0.25


def test_refusal_without_delta_does_not_advise_more_noise() -> None:
    with pytest.raises(
        BudgetExceeded, match="no amount of Gaussian noise suffices: use randomized response, or a delta"
    ):
        ledger(epsilon=50.0, delta=0.0).debit(release(FULL))


# --- threads, copies and forks


def in_parallel(work: Callable[[], None], threads: int) -> None:
    gate = threading.Barrier(threads)

    def begin() -> None:
        gate.wait()
        work()

    running = [threading.Thread(target=begin) for _ in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()


@pytest.mark.parametrize("in_file", [False, True])
def test_eight_threads_on_one_ledger_together_stay_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool
) -> None:
    def slow(costs: Mapping[Cost, int], epsilon: float) -> float:
        delta = delta_spent(costs, epsilon)
        time.sleep(0.001)  # between the sum and the debit every other thread gets its turn
        return delta

    monkeypatch.setattr("justitia.privacy.ledger.delta_spent", slow)
    book, numbers = ledger(epsilon=1.5, journal=tmp_path / "journal" if in_file else None), []

    def debit_until_refused() -> None:
        try:
            numbers.extend(book.debit(release(GaussianCost(10.0))) for _ in range(20))
        except BudgetExceeded:
            return

    in_parallel(debit_until_refused, 8)
    assert book.epsilon() <= 1.5
    with pytest.raises(BudgetExceeded):
        book.debit(release(GaussianCost(10.0)))
    assert sorted(numbers) == list(range(len(book.releases)))


def test_copies_of_a_ledger_are_the_ledger_itself() -> None:
    book = ledger(epsilon=5.0)
    for twin in (
        copy.copy(book),
        copy.deepcopy(book),
        clone(book, safe=False),
        copy.deepcopy({"ledger": book})["ledger"],
    ):
        assert twin is book


def test_pickle_of_a_ledger_in_memory_shows_its_debits_and_refuses_to_debit() -> None:
    book = ledger(epsilon=5.0)
    book.debit(release())
    twin = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(book))))
    for work in (lambda: twin.debit(release(WEAK)), lambda: twin.check({WEAK: 1})):
        with pytest.raises(LedgerError, match="got a copy of a ledger in memory"):
            work()
    assert twin.costs() == book.costs() == {FULL: 1}
    assert twin.epsilon() == book.epsilon()
    assert twin.certificate() == book.certificate()
    assert book.debit(release(WEAK)) == 1


def test_pickle_of_a_ledger_with_a_journal_debits_the_same_budget(tmp_path: Path) -> None:
    book = ledger(journal=tmp_path / "journal")
    twin = pickle.loads(pickle.dumps(book))
    twin.debit(release())
    with pytest.raises(BudgetExceeded):
        book.debit(release())


def in_child(work: Callable[[], object]) -> int:
    """Exit code of a forked child: 0 if the work is done."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_of_a_ledger_in_memory_shows_its_debits_and_refuses_to_debit() -> None:
    book = ledger(epsilon=5.0)
    book.debit(release())

    def refused() -> None:
        assert book.costs() == {FULL: 1}
        for work in (lambda: book.debit(release()), lambda: book.check({FULL: 1})):
            with pytest.raises(LedgerError, match="got a copy of a ledger in memory"):
                work()
        assert ledger().debit(release()) == 0  # one that the child made is its own

    assert in_child(refused) == 0
    assert book.debit(release()) == 1


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_debits_leaves_the_child_a_ledger_that_works(tmp_path: Path) -> None:
    books = ledger(), ledger(journal=tmp_path / "journal")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with books[0]._lock, books[1]._lock:
            held.set()
            done.wait()

    def work() -> None:
        assert books[0].costs() == {}
        books[1].debit(release())

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(work) == 0
    finally:
        done.set()
        thread.join()
