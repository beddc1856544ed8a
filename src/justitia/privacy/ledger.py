"""Privacy ledgers: every release is debited before it is computed, or refused.

:class:`PrivacyLedger` keeps its releases in memory, or in a journal with one line per debit that several ledgers and
processes may share. :class:`~justitia.privacy.durable_ledger.DurableLedger` keeps them in a file per dataset.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import (
    COST_KINDS,
    Cost,
    GaussianCost,
    UnboundedCost,
    delta_spent,
    epsilon_left,
    epsilon_spent,
)
from justitia.privacy.certificate import (
    ADJACENCY,
    INFERRED,
    NOT_COVERED,
    ROUND_OFF,
    SEVERAL_ROWS,
    Certificate,
    guarantee_statement,
    json_ready,
    rounded_up,
)
from justitia.privacy.file_lock import LockedFile, sync_folder
from justitia.privacy.noise_grid import check_deliverable, largest_epsilon

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

#: What the sensitivity of a release can be about.
UNITS = ("row", "person")
#: Seconds to wait for other processes, each of which locks a journal for as long as one debit takes.
JOURNAL_TIMEOUT = 60.0


@dataclass(frozen=True)
class Release:
    """One entry of a ledger: the purpose of a noised answer, its sensitivity and its cost.

    Parameters
    ----------
    unit : {"row", "person"}
        Whether the sensitivity is about the attribute of one row, or of all rows of one person.
    """

    purpose: str
    cost: Cost
    sensitivity: float
    unit: str = "row"

    def __post_init__(self) -> None:
        if not self.sensitivity >= 0:
            raise ValueError(f"expected a sensitivity of at least 0, got {self.sensitivity!r}.")
        if self.unit not in UNITS:
            raise ValueError(f"expected unit to be 'row' or 'person', got {self.unit!r}.")

    @property
    def mechanism(self) -> str:
        """Name of the mechanism, as the certificate shows it."""
        return self.cost.kind

    def to_json(self) -> str:
        """One line of the journal."""
        record = {"purpose": self.purpose, "mechanism": self.mechanism, "sensitivity": self.sensitivity}
        return json.dumps(record | {"unit": self.unit, "cost": asdict(self.cost)})

    @staticmethod
    def from_json(line: str) -> Release:
        """Inverse of :meth:`to_json`."""
        record = json.loads(line)
        cost = COST_KINDS[record["mechanism"]](**record["cost"])
        return Release(record["purpose"], cost, record["sensitivity"], record["unit"])


class _Journal:
    """The lines of a locked journal, which no other process or thread can read or append to meanwhile."""

    def __init__(self, file: LockedFile) -> None:
        self._file = file
        self._content = file.read()
        self._end = self._content.rfind(b"\n") + 1  # half a line is a debit whose answer was never computed

    def lines(self, offset: int) -> list[bytes]:
        """Complete lines from this position on, each with its end."""
        if offset > self._end:
            raise LedgerError(
                f"The journal {str(self._file.path)!r} lacks debits that were made; restore its newest copy."
            )
        return self._content[offset : self._end].splitlines(keepends=True)

    def append(self, line: str) -> None:
        """Add a line, to the disk; half a line at the end makes room for it."""
        added, start = line.encode() + b"\n", self._end
        self._file.write(added, at=start)
        if start == 0:  # the name of a new file is durable once its folder is
            sync_folder(self._file.path.parent)
        self._content = self._content[:start] + added
        self._end += len(added)


@contextmanager
def _opened_journal(path: Path, *, write: bool) -> Iterator[_Journal]:
    """The journal, created if it is to be written; waits while other processes have it locked.

    Raises
    ------
    LedgerError
        If others have it locked for long, or it cannot be locked.
    """
    flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
    try:
        file = LockedFile(path, flags, timeout=JOURNAL_TIMEOUT)
    except TimeoutError:
        raise LedgerError(
            f"The journal {str(path)!r} was in use by other processes for {JOURNAL_TIMEOUT:g} s; try again."
        ) from None
    with file:
        yield _Journal(file)


class PrivacyLedger:
    """Append-only list of releases that refuses whatever would exceed the budget.

    Parameters
    ----------
    epsilon : float
        The budget. 0 allows no release at all; ``inf`` allows everything and the certificate says so.
    delta : float
        Probability mass of the guarantee that may fail, in [0, 1).
    journal : path, optional
        A file to which every debit is appended, flushed to disk, before its answer is computed. Debits that are in it
        already (of an interrupted run, or of another ledger with the same journal) count.

    Notes
    -----
    A ledger without a journal counts what passes through this object, from any thread of the process that made it.
    ``copy.copy``, ``copy.deepcopy`` and scikit-learn's ``clone`` give the same object. A pickle, or the copy that a
    forked process has, shows what was debited until then and refuses to debit: the original would not count it.
    Searches with ``n_jobs`` above 1 need a :class:`~justitia.privacy.durable_ledger.DurableLedger`.

    Guarantee
    ---------
    * :meth:`debit` records the release before the caller computes anything, or raises and records nothing.
    * Threads that debit at once, and ledgers and processes with one journal, cannot together exceed the budget: the
      sum is taken and the debit recorded under one lock, after what others recorded has been read.
    * A copy of a ledger in memory in another process raises :class:`LedgerError` instead of a debit.
    """

    def _repr_html_(self) -> str:
        """For notebooks: how much is spent, and on what."""
        form: str = import_module("justitia.report.notebook").ledger_form(self)
        return form

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
        #: Whether other processes do not see the debits of this ledger.
        self._in_memory = journal is None
        self._renew_lock()
        if self._journal is not None:
            with self._reading():
                pass

    def check(self, costs: Mapping[Cost, int], *, purpose: str = "this plan") -> None:
        """Raise :class:`BudgetExceeded` if ``costs`` do not fit into what remains; records nothing."""
        with self._reading():
            self._check(costs, purpose)

    def _check(self, costs: Mapping[Cost, int], purpose: str) -> None:
        """Raise where costs do not fit, and in a copy, whose debits the original would not count."""
        if self._in_memory and self._owner != os.getpid():
            raise LedgerError(
                "expected a ledger that this process made, or one in a file, got a copy of a ledger in memory, whose "
                "debits the original would not count; use n_jobs=1, or a DurableLedger, which processes share."
            )
        if not self._fits(costs):
            raise BudgetExceeded(self._refusal(costs, purpose))

    def _refusal(self, costs: Mapping[Cost, int], purpose: str) -> str:
        total = epsilon_spent(self._counts + Counter(costs), self.delta)
        # Four digits, or as many as it takes to see which number is larger.
        budget = self.budget_epsilon
        digits = next((n for n in range(4, 18) if f"{total:.{n}g}" != f"{budget:.{n}g}"), 4)
        advice = "Use fewer or noisier releases, or raise epsilon."
        if self.delta == 0 and math.isinf(total):
            advice = "Without a delta no amount of Gaussian noise suffices: use randomized response, or a delta."
        return (
            f"{purpose!r} would bring epsilon to {total:.{digits}g}; the budget is {budget:.{digits}g} "
            f"(spent {epsilon_spent(self._counts, self.delta):.4g}). {advice}"
        )

    def _fits(self, costs: Mapping[Cost, int]) -> bool:
        """Whether the budget allows these costs together with what was debited."""
        return self._allows(self._counts + Counter(costs))

    def _allows(self, counts: Counter[Cost]) -> bool:
        """Whether the budget allows these costs in all."""
        if self.budget_epsilon == 0 or math.isinf(self.budget_epsilon):
            return self.budget_epsilon > 0
        limit = self.budget_epsilon * (1 + ROUND_OFF)
        if _all_gaussian(counts):  # one evaluation of the closed form, where epsilon would take a search
            return delta_spent(counts, limit) <= self.delta * (1 + ROUND_OFF)
        return epsilon_spent(counts, self.delta) <= limit

    def debit(self, release: Release) -> int:
        """Record ``release`` and return its number, or raise :class:`BudgetExceeded` and record nothing."""
        with self._lock:
            if self._journal is None:
                self._check({release.cost: 1}, release.purpose)
                self._append(release)
            else:
                if not self._journal.exists():
                    if self._offset:
                        raise LedgerError(f"The journal {str(self._journal)!r} is gone; restore its newest copy.")
                    self._check({release.cost: 1}, release.purpose)  # a refusal creates no file
                with _opened_journal(self._journal, write=True) as journal:
                    self._count_new(journal)
                    self._check({release.cost: 1}, release.purpose)
                    journal.append(release.to_json())
                    self._count_new(journal)
            return len(self._releases) - 1

    def _count_new(self, journal: _Journal) -> None:
        """Count the debits that this or another ledger has added to the journal."""
        for line in journal.lines(self._offset):
            try:
                release = Release.from_json(line.decode())
            except (ValueError, TypeError, KeyError):
                raise LedgerError(
                    f"The journal {str(self._journal)!r} holds a line that this version cannot read; restore its "
                    "newest copy."
                ) from None
            self._append(release)
            self._offset += len(line)

    def _append(self, release: Release) -> None:
        self._counts[release.cost] += 1  # first, so that an interruption in between counts too much, not too little
        self._releases.append(release)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the lock, after counting what others wrote to the journal."""
        with self._lock:
            if self._journal is not None and self._journal.exists():
                with _opened_journal(self._journal, write=False) as journal:
                    self._count_new(journal)
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
        """The releases of this run, in order; several runs may share the budget."""
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
        """A unique name where the ledger outlives the process; empty for one in memory."""
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
        """Certificate of everything recorded so far.

        Parameters
        ----------
        groups, groups_source, noise, claim
            As in :class:`Certificate`.
        reproduction : bool
            Whether the noise was seeded.
        planned : int
            How many releases were fixed in advance, before any answer was known. If the ledger has more than these,
            their number may depend on the answers, and only the budget is promised.
        subject : str
            Subject of the statement.
        """
        releases = self.releases
        counts: Counter[Cost] = Counter()
        unit = "person" if releases else "row"
        for release in releases:
            counts[release.cost] += 1
            unit = "row" if release.unit == "row" else unit
        spent = epsilon_spent(counts, self.delta)
        fixed = len(releases) <= planned
        epsilon = spent if fixed else max(spent, self.budget_epsilon)
        epsilon = epsilon if epsilon <= largest_epsilon(self.delta) * (1 + ROUND_OFF) else math.inf
        return Certificate(
            epsilon=epsilon,
            delta=self.delta,
            budget_epsilon=self.budget_epsilon,
            spent_epsilon=spent,
            statement=guarantee_statement(
                epsilon,
                self.delta,
                spent,
                fixed=fixed,
                gaussian=_all_gaussian(counts),
                unit=unit,
                subject=subject,
                claimed=bool(claim),
                reproduction=reproduction,
                groups_given=groups_source != INFERRED,
            ),
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

    def _receipt(self, _debits: int) -> Mapping[str, Any] | None:
        """Receipt of the state after so many debits; None for a ledger that is not kept in a file."""
        return None

    # -- The lock is neither pickled nor copied. A fork's child, in which no thread would release it, gets a new one.

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


def _all_gaussian(counts: Mapping[Cost, int]) -> bool:
    return set(map(type, counts)) <= {GaussianCost}


def accountant(counts: Mapping[Cost, int]) -> str:
    """How the total of these costs is computed, as the certificate shows it."""
    if not counts:
        return "none needed: nothing was asked"
    if UnboundedCost() in counts:
        return "none: an answer was given without noise"
    if _all_gaussian(counts):
        return "exact composition of Gaussian releases over all rows (mu-GDP)"
    return "privacy-loss distribution under substitution of one attribute"


def summary(releases: Sequence[Release]) -> tuple[dict[str, Any], ...]:
    """One entry per purpose and cost, in order of first appearance."""
    entries: dict[tuple[str, Cost], dict[str, Any]] = {}
    for release in releases:
        purpose, cost = release.purpose, release.cost
        new = {
            "purpose": purpose,
            "mechanism": cost.kind,
            "count": 0,
            "noise_multiplier": getattr(cost, "noise_multiplier", None),
            "epsilon": getattr(cost, "epsilon", None),
        }
        entries.setdefault((purpose, cost), new)["count"] += 1
    return tuple(entries.values())
