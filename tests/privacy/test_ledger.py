import copy
import json
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    delta_spent,
    epsilon_spent,
    gaussian_epsilon,
)
from justitia.privacy.file_lock import LockedFile
from justitia.privacy.ledger import BudgetExceeded, Certificate, LedgerError, PrivacyLedger, Release

# One Gaussian release with this multiplier costs epsilon 0.9999 at delta 1e-5 (mu = 0.2680).
SIGMA = 3.731
FULL, WEAK = GaussianCost(SIGMA), GaussianCost(10 * SIGMA)
RESPONSE, UNBOUNDED = RandomizedResponseCost(0.25, 3), UnboundedCost()


def release(cost: Cost = FULL, purpose: str = "check round 3") -> Release:
    return Release(purpose, cost, 2.0)


def ledger(epsilon: float = 1.0, delta: float = 1e-5, journal: Path | None = None) -> PrivacyLedger:
    return PrivacyLedger(epsilon=epsilon, delta=delta, journal=journal)


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


def test_copies_and_pickles_of_a_ledger_hold_its_debits_and_count_on_their_own() -> None:
    book = ledger(epsilon=5.0)
    book.debit(release())
    for twin in (copy.copy(book), copy.deepcopy(book), pickle.loads(pickle.dumps(book))):
        twin.debit(release(WEAK))
        assert twin.costs() == {FULL: 1, WEAK: 1}
        assert book.costs() == {FULL: 1}


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


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_debits_leaves_the_child_a_ledger_that_works() -> None:
    book, held, done = ledger(), threading.Event(), threading.Event()

    def hold() -> None:
        with book._reading():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: book.debit(release())) == 0
    finally:
        done.set()
        thread.join()


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
    monkeypatch.setattr("justitia.privacy.journal.TIMEOUT", 0.05)
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


def spent_on(cost: Cost, copies: int, delta: float) -> float:
    book = ledger(epsilon=math.inf, delta=delta)
    for _ in range(copies):
        book.debit(release(cost))
    return book.epsilon()


@pytest.mark.parametrize("copies", [1, 4, 10])
def test_copies_of_a_gaussian_release_add_up_in_squares(copies: int) -> None:
    assert spent_on(FULL, copies, 1e-5) == pytest.approx(gaussian_epsilon(math.sqrt(copies) / SIGMA, 1e-5))


def test_four_copies_cost_as_much_as_one_with_half_the_noise() -> None:
    assert spent_on(FULL, 4, 1e-5) == pytest.approx(spent_on(GaussianCost(SIGMA / 2), 1, 1e-5))


@pytest.mark.parametrize("copies", [1, 4, 10])
def test_copies_of_randomized_response_at_delta_zero_add_up(copies: int) -> None:
    assert spent_on(RESPONSE, copies, 0.0) == pytest.approx(0.25 * copies)


def test_copies_of_randomized_response_at_a_delta_cost_more_with_each() -> None:
    costs = [spent_on(RESPONSE, n, 1e-5) for n in (1, 2, 10)]
    assert costs[0] < costs[1] < costs[2] <= 2.5


@pytest.mark.parametrize("copies", [1, 3])
def test_copies_of_an_unprotected_release_cost_infinity(copies: int) -> None:
    assert spent_on(UNBOUNDED, copies, 1e-5) == math.inf


def test_different_releases_cost_what_their_composition_says() -> None:
    book = ledger(epsilon=50.0)
    for cost in (FULL, RESPONSE, FULL, GaussianCost(2.0)):
        book.debit(release(cost))
    together: dict[Cost, int] = {FULL: 2, RESPONSE: 1, GaussianCost(2.0): 1}
    assert book.costs() == together
    mu = math.sqrt(2 / SIGMA**2 + 1 / 4)
    assert gaussian_epsilon(mu, 1e-5) < book.epsilon() == epsilon_spent(together, 1e-5)
    assert book.epsilon() <= gaussian_epsilon(mu, 1e-5) + 0.25


@pytest.mark.parametrize("cost", [FULL, WEAK, RESPONSE, UNBOUNDED])
@pytest.mark.parametrize("sensitivity", [0.0, math.sqrt(2) / 3, math.inf])
def test_release_survives_its_journal_line(cost: Cost, sensitivity: float) -> None:
    entry = Release("a 'purpose'\nwith a line break, and \u00fc", cost, sensitivity)
    assert "\n" not in entry.to_json()
    assert Release.from_json(entry.to_json()) == entry


def test_release_keeps_its_unit_and_refuses_what_is_none() -> None:
    entry = Release("sizes", FULL, 2.0, unit="person")
    assert Release.from_json(entry.to_json()) == entry
    assert Release("sizes", FULL, 2.0).unit == "row"
    with pytest.raises(ValueError, match=r"expected unit to be 'row' or 'person', got 'house'\."):
        Release("sizes", FULL, 2.0, unit="house")
    with pytest.raises(ValueError, match=r"expected a sensitivity of at least 0, got nan\."):
        Release("sizes", FULL, math.nan)


@pytest.mark.parametrize(
    ("cost", "name"),
    [(FULL, "gaussian"), (WEAK, "gaussian"), (RESPONSE, "randomized response"), (UNBOUNDED, "unprotected")],
)
def test_mechanism_of_a_release_is_named(cost: Cost, name: str) -> None:
    assert release(cost).mechanism == name


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


def certificate(
    epsilon: float = math.inf, *costs: Cost, claim: dict[str, object] | None = None, planned: int = 1
) -> Certificate:
    book = ledger(epsilon=epsilon)
    for cost in costs:
        book.debit(release(cost))
    return book.certificate(groups=("F", "M"), noise="operating system entropy", claim=claim, planned=planned)


@pytest.mark.parametrize("costs", [(), (FULL, FULL), (WEAK,), (RESPONSE, FULL), (UNBOUNDED,)])
def test_certificate_survives_plain_data_and_json(costs: tuple[Cost, ...]) -> None:
    for claim in (None, {"epsilon": 1.0, "delta": 1e-5, "statement": "(1, 1e-05) by Theorem 5"}):
        original = certificate(math.inf, *costs, claim=claim)
        assert Certificate.from_dict(original.to_dict()) == original
        assert Certificate.from_dict(json.loads(original.to_json())) == original


def test_certificate_of_plain_data_without_a_receipt_has_none() -> None:
    facts = certificate(2.0, FULL).to_dict()
    assert facts.pop("receipt") is None
    assert Certificate.from_dict(facts) == certificate(2.0, FULL)


def test_certificate_as_json_writes_infinity_as_a_word() -> None:
    facts = json.loads(certificate(math.inf, UNBOUNDED).to_json(), parse_constant=pytest.fail)
    assert (facts["epsilon"], facts["budget_epsilon"]) == ("infinity", "infinity")


def test_certificate_of_gaussian_releases_reads_as_written_here() -> None:
    assert str(certificate(2.0, FULL, FULL, planned=2)) == "\n".join(
        [
            "Every output of training is (1.466, 1e-05)-differentially private in the sensitive attribute of",
            "any one row.",
            "  neighbours:  two datasets that differ in the sensitive attribute of one row (to any other",
            "               group, or to 'not given'); features, labels, the list of group names and all",
            "               hyper-parameters are public",
            "  accountant:  exact composition of Gaussian releases over all rows (mu-GDP)",
            "  noise:       operating system entropy",
            "  groups:      F, M (given)",
            "  releases:    2 x check round 3 (gaussian, noise multiplier 3.731)",
            "  not covered: features X and labels Y are treated as public; what features and labels",
            "               themselves tell about the attribute; several people whose attributes change",
            "               together; running time and memory access of the machine that trains; choices made",
            "               by looking at other runs on the same people, unless those runs share this ledger;",
            "               exact numbers by group that somebody computes with the attribute; a person with",
            "               several rows, whose rows are each protected and together less; ids (person=)",
            "               change that",
        ]
    )


def test_certificate_of_mixed_releases_names_each_and_its_accountant() -> None:
    text = str(certificate(2.0, FULL, RESPONSE))
    assert "1 x check round 3 (gaussian, noise multiplier 3.731)" in " ".join(text.split())
    assert "1 x check round 3 (randomized response, epsilon 0.25)" in " ".join(text.split())
    assert "  accountant:  privacy-loss distribution under substitution of one attribute\n" in text


def test_certificate_of_an_unprotected_release_promises_nothing() -> None:
    text = str(certificate(math.inf, FULL, UNBOUNDED))
    assert text.startswith("No privacy guarantee: epsilon is infinite.\n")
    assert "  accountant:  none: an answer was given without noise\n" in text
    assert "1 x check round 3 (unprotected)" in " ".join(text.split())


def test_certificate_with_a_printed_claim_says_that_it_is_not_established() -> None:
    text = str(certificate(math.inf, UNBOUNDED, claim={"statement": "(1, 1e-05) by Theorem 5"}))
    assert text.startswith(
        "No privacy guarantee: epsilon is infinite. The printed analysis does not establish a guarantee.\n"
    )
    assert "  claim:       printed, not established: (1, 1e-05) by Theorem 5\n" in text


def test_certificate_does_not_follow_later_debits() -> None:
    book = ledger(epsilon=5.0)
    book.debit(release())
    before = book.certificate()
    book.debit(release())
    assert (before.releases[0]["count"], before.epsilon < book.epsilon()) == (1, True)
    assert before.statement.startswith("Every output of training is (0.9999, 1e-05)")


def test_certificate_of_an_empty_ledger_says_that_nothing_was_asked() -> None:
    empty = certificate(0.0)
    assert (empty.epsilon, empty.accountant) == (0.0, "none needed: nothing was asked")
