"""What was released, what it cost, and the certificate that says so."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import Cost, GaussianCost, UnboundedCost, delta_spent, epsilon_left, epsilon_spent
from justitia.privacy.certificate import (
    ADJACENCY,
    INFERRED,
    NOT_COVERED,
    ROUND_OFF,
    SEVERAL_ROWS,
    Certificate,
    Promise,
    json_ready,
    rounded_up,
)
from justitia.privacy.journal import opened_journal
from justitia.privacy.noise_grid import check_deliverable, largest_epsilon
from justitia.privacy.release import Release

__all__ = [
    "ADJACENCY",
    "INFERRED",
    "NOT_COVERED",
    "ROUND_OFF",
    "BudgetExceeded",
    "Certificate",
    "LedgerError",
    "PrivacyLedger",
    "Release",
    "accountant",
    "json_ready",
    "rounded_up",
    "summary",
]


class PrivacyLedger:
    """Append-only list of releases that refuses whatever would exceed the budget.

    Parameters
    ----------
    epsilon : float
        The budget. 0 allows no release at all; ``inf`` allows everything and the certificate says so.
    delta : float
        Probability mass of the guarantee that may fail, in [0, 1).
    journal : path, optional
        A file that receives every debit, flushed to disk, before its answer is computed. If it holds debits already
        (of an interrupted run, or of another ledger with the same journal), they count.

    Notes
    -----
    A ledger without a journal counts what passes through this object, from any thread of the process that made it.
    ``copy.copy``, ``copy.deepcopy`` and scikit-learn's ``clone`` give the same object. A pickle, or the copy that a
    forked process has, shows what was debited until then and refuses to debit: it could not tell the others. Searches
    with ``n_jobs`` above 1 need a :class:`~justitia.privacy.durable_ledger.DurableLedger`.

    Guarantee
    ---------
    * :meth:`debit` records the release before the caller computes anything, or raises and records nothing.
    * Threads that debit at once, and ledgers and processes with one journal, cannot together exceed the budget: the
      sum is taken and the debit recorded under one lock, after what others recorded has been read.
    * A copy of a ledger in memory in another process raises :class:`LedgerError` instead of a debit.
    """

    def __init__(self, *, epsilon: float, delta: float, journal: Path | str | None = None) -> None:
        if not (epsilon >= 0):
            raise ValueError(f"The budget epsilon must be a number of at least 0; got {epsilon!r}.")
        if not (0 <= delta < 1):
            raise ValueError(f"The budget delta must lie in [0, 1); got {delta!r}.")
        check_deliverable(float(epsilon), float(delta))
        self.budget_epsilon = float(epsilon)
        self.delta = float(delta)
        self._releases: list[Release] = []
        self._counts: Counter[Cost] = Counter()
        self._journal = None if journal is None else Path(journal).absolute()
        self._offset = 0  # how much of the journal is counted
        self._owner: int | None = os.getpid()  # the process in which it may debit, where it is in memory only
        self._renew_lock()
        if self._journal is not None:
            with self._reading():
                pass

    def check(self, costs: Mapping[Cost, int], *, purpose: str = "this plan") -> None:
        """Raise :class:`BudgetExceeded` if ``costs`` do not fit into what remains; records nothing."""
        self._check_owner()
        with self._reading():
            self._check(costs, purpose)

    @property
    def _in_memory(self) -> bool:
        """Whether other processes cannot see what is debited here."""
        return self._journal is None

    def _check_owner(self) -> None:
        """Refuse to debit a copy whose debits nobody else would count."""
        if self._in_memory and self._owner != os.getpid():
            raise LedgerError(
                "expected a ledger that this process made, or one in a file, got a copy of a ledger in memory, whose "
                "debits the original would not count; use n_jobs=1, or a DurableLedger, which processes share."
            )

    def _check(self, costs: Mapping[Cost, int], purpose: str) -> None:
        if not self._fits(self._counts + Counter(costs)):
            raise BudgetExceeded(self._refusal(costs, purpose))

    def _refusal(self, costs: Mapping[Cost, int], purpose: str) -> str:
        total = epsilon_spent(self._counts + Counter(costs), self.delta)
        would, budget = _told_apart(total, self.budget_epsilon)
        advice = "Use fewer or noisier releases, or raise epsilon."
        if self.delta == 0 and math.isinf(total):
            advice = "Without a delta no amount of Gaussian noise suffices: use randomized response, or a delta."
        return (
            f"{purpose!r} would bring epsilon to {would}; the budget is {budget} "
            f"(spent {epsilon_spent(self._counts, self.delta):.4g}). {advice}"
        )

    def _fits(self, counts: Counter[Cost]) -> bool:
        if self.budget_epsilon == 0 or math.isinf(self.budget_epsilon):
            return self.budget_epsilon > 0
        limit = self.budget_epsilon * (1 + ROUND_OFF)
        if _all_gaussian(counts):  # one evaluation of the closed form, where epsilon would take a search
            return delta_spent(counts, limit) <= self.delta * (1 + ROUND_OFF)
        return epsilon_spent(counts, self.delta) <= limit

    def debit(self, release: Release) -> int:
        """Record ``release`` and return its number, or raise :class:`BudgetExceeded` and record nothing."""
        self._check_owner()
        with self._lock:
            if self._journal is None:
                self._check({release.cost: 1}, release.purpose)
                self._append(release)
            else:
                self._debit_journal(self._journal, release)
            return len(self._releases) - 1

    def _debit_journal(self, path: Path, release: Release) -> None:
        if not path.exists():
            if self._offset:
                raise LedgerError(f"The journal {str(path)!r} is gone; restore its newest copy.")
            self._check({release.cost: 1}, release.purpose)  # a refusal makes no file
        with opened_journal(path, write=True) as journal:
            self._count(journal.lines(self._offset))
            self._check({release.cost: 1}, release.purpose)
            journal.append(release.to_json())
            self._count(journal.lines(self._offset))

    def _count(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._append(_read_line(line, self._journal))
            self._offset += len(line)

    def _append(self, release: Release) -> None:
        self._counts[release.cost] += 1  # first, so that an interruption in between counts too much, not too little
        self._releases.append(release)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Nobody debits meanwhile, and what others wrote to the journal is counted."""
        with self._lock:
            if self._journal is not None and self._journal.exists():
                with opened_journal(self._journal, write=False) as journal:
                    self._count(journal.lines(self._offset))
            yield

    @property
    def releases(self) -> tuple[Release, ...]:
        """Everything released so far, in order."""
        with self._reading():
            return tuple(self._releases)

    def costs(self) -> Mapping[Cost, int]:
        """How often each cost was charged."""
        with self._reading():
            return dict(self._counts)

    def own_releases(self) -> tuple[Release, ...]:
        """What this run released, in order; another run may share the budget, never the run."""
        return self.releases

    def own_costs(self) -> Counter[Cost]:
        """How often this run was charged each cost."""
        return Counter(release.cost for release in self.own_releases())

    def epsilon(self) -> float:
        """Epsilon spent so far, at this ledger's delta."""
        return epsilon_spent(self.costs(), self.delta)

    def remaining(self) -> float:
        """Epsilon of the costliest single Gaussian release that the budget still allows, at this ledger's delta."""
        return epsilon_left(self.costs(), self.budget_epsilon, self.delta)

    @property
    def identity(self) -> str:
        """What tells this ledger from others where it outlives the process; nothing for one in memory."""
        return ""

    def certificate(
        self,
        *,
        groups: tuple[str, ...] = (),
        groups_source: str = "given",
        noise: str = "",
        reproduction: bool = False,
        planned: int = 1,
        claim: Mapping[str, Any] | None = None,
        subject: str = "Every output of training",
    ) -> Certificate:
        """What can be said about everything recorded so far.

        Parameters
        ----------
        groups, groups_source, noise, claim
            As in :class:`Certificate`.
        reproduction : bool
            Whether the noise was seeded.
        planned : int
            How many releases were fixed in advance, before any answer was seen. If the ledger holds more than these,
            somebody chose to go on, and may have chosen to stop, after looking: then only the budget is promised.
        subject : str
            What the statement speaks of.
        """
        releases = self.releases
        counts = Counter(release.cost for release in releases)
        spent = epsilon_spent(counts, self.delta)
        fixed = len(releases) <= planned
        epsilon = spent if fixed else max(spent, self.budget_epsilon)
        epsilon = epsilon if epsilon <= largest_epsilon(self.delta) * (1 + ROUND_OFF) else math.inf
        unit = "row" if any(release.unit == "row" for release in releases) else "person"
        unit = unit if releases else "row"
        promise = Promise(
            epsilon, self.delta, spent, fixed=fixed, gaussian=_all_gaussian(counts), unit=unit, subject=subject
        )
        return Certificate(
            epsilon=epsilon,
            delta=self.delta,
            budget_epsilon=self.budget_epsilon,
            spent_epsilon=spent,
            statement=promise.statement(claim, reproduction=reproduction, groups_given=groups_source != INFERRED),
            accountant=accountant(counts),
            releases=summary(releases),
            noise=noise,
            groups=groups,
            groups_source=groups_source,
            unit=unit,
            reproduction=reproduction,
            claim=claim,
            adjacency=ADJACENCY[unit],
            not_covered=NOT_COVERED if unit == "person" else (*NOT_COVERED, SEVERAL_ROWS),
            receipt=self._receipt(len(releases)),
        )

    def _receipt(self, debits: int) -> Mapping[str, Any] | None:
        """What names this ledger's state after so many debits; none for one that is not kept in a file."""
        del debits
        return None

    # -- the lock: neither pickled nor copied, and a fork's child, where nobody would end it, gets a new one

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()
        _LEDGERS.add(self)

    def __copy__(self) -> Self:
        """The same ledger: a second count of one budget would be no budget."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same ledger, as above; scikit-learn's ``clone`` copies parameters in this way."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_owner")}
            return {name: value.copy() if isinstance(value, list | Counter) else value for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._owner = None  # a copy: what is in memory only, it may show and not debit
        self._renew_lock()


_LEDGERS: WeakSet[PrivacyLedger] = WeakSet()


def _renew_locks() -> None:
    for ledger in list(_LEDGERS):
        ledger._renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _told_apart(total: float, budget: float) -> tuple[str, str]:
    """Both numbers with four digits, or as many as it takes to see which is larger."""
    pairs = ((f"{total:.{digits}g}", f"{budget:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (f"{total:.4g}", f"{budget:.4g}"))


def _read_line(line: bytes, path: Path | None) -> Release:
    try:
        return Release.from_json(line.decode())
    except (ValueError, TypeError, KeyError):
        raise LedgerError(
            f"The journal {str(path)!r} holds a line that this version cannot read; restore its newest copy."
        ) from None


def _all_gaussian(counts: Mapping[Cost, int]) -> bool:
    return all(isinstance(cost, GaussianCost) for cost in counts)


def accountant(counts: Mapping[Cost, int]) -> str:
    """How the total of these costs is computed, as the certificate prints it."""
    if not counts:
        return "none needed: nothing was asked"
    if any(isinstance(cost, UnboundedCost) for cost in counts):
        return "none: an answer was given without noise"
    if _all_gaussian(counts):
        return "exact composition of Gaussian releases over all rows (mu-GDP)"
    return "privacy-loss distribution under substitution of one attribute"


def summary(releases: Sequence[Release]) -> tuple[dict[str, Any], ...]:
    """One entry per purpose and cost, in order of first appearance."""
    counts = Counter((release.purpose, release.mechanism, release.cost) for release in releases)
    return tuple(
        {
            "purpose": purpose,
            "mechanism": mechanism,
            "count": count,
            "noise_multiplier": getattr(cost, "noise_multiplier", None),
            "epsilon": getattr(cost, "epsilon", None),
        }
        for (purpose, mechanism, cost), count in counts.items()
    )
