"""A budget that outlives the process: one SQLite file per dataset, debited before every answer.

Each operation opens a connection of its own, so that none crosses a fork, and so that nothing is held while noise is
drawn. :mod:`justitia.privacy.ledger_file` says how the file is made and written.
"""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import Cost, epsilon_spent
from justitia.privacy.ledger import PrivacyLedger, accountant, json_ready, rounded_up, summary
from justitia.privacy.ledger_file import (
    SCHEMA,
    Header,
    check_file,
    check_sound,
    check_writable,
    connection_to,
    entry_of,
    insert_entry,
    journal_of,
    link,
    make_file,
    new_header,
    read_entries,
    read_header,
    release_of,
)
from justitia.privacy.receipts import Head, check_receipt, make_receipt
from justitia.privacy.release import Release


class DurableLedger(PrivacyLedger):
    """A :class:`PrivacyLedger` in a file: every fit, curve and retry on the same people debits the same total.

    Parameters
    ----------
    path : path
        The file; created if there is none. One file per dataset of people, kept as long as their attribute is.
    dataset : str
        Public name of the dataset; a file of another one is refused.
    epsilon, delta : float
        The budget. It is fixed when the file is made; other numbers are refused later.
    timeout : float
        Seconds to wait for other processes.
    run : str, optional
        Public name of this run, for :meth:`own_releases`; by default a fresh one.
    writable : bool
        False allows a file that can only be read; a debit then fails.

    Notes
    -----
    The file holds purposes, costs, times, run names and versions: nothing derived from the attribute.

    Guarantee
    ---------
    * :meth:`debit` returns after the debit is on the disk, or raises; a crash can lose an answer, never a debit.
    * A debit is one exclusive transaction over all entries: processes that debit at once cannot together exceed the
      budget.
    * Whatever is wrong with the file raises :class:`LedgerError` before an answer is computed. Each entry holds a hash
      of itself and of all before it, checked when entries are read: one that was changed without making all that follow
      anew is noticed, and what was made anew is noticed by :meth:`verify` with a receipt kept elsewhere. Entries that
      this object has read are not read again: they count as they were, and whoever opens the file next notices.

    Examples
    --------
    >>> from justitia import DurableLedger
    >>> ledger = DurableLedger("hospital.ledger", dataset="hospital-2026", epsilon=3.0, delta=1e-5)  # doctest: +SKIP
    >>> model.fit(X, y, sensitive_features=a, ledger=ledger)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: Path | str,
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        timeout: float = 60.0,
        run: str | None = None,
        writable: bool = True,
    ) -> None:
        super().__init__(epsilon=epsilon, delta=delta)
        if not isinstance(dataset, str) or not dataset:
            raise ValueError(
                f"expected dataset to be a name, got {dataset!r}; pass a public one such as 'people-2026'."
            )
        if not 0 <= timeout < math.inf:
            raise ValueError(f"expected timeout to be a finite number of seconds, got {timeout!r}.")
        self.path = Path(path).absolute()
        self.dataset = dataset
        self.timeout = float(timeout)
        self.run = uuid.uuid4().hex if run is None else str(run)
        self._runs: list[str] = []
        self._check_path()
        if not self.path.exists():
            make_file(self.path, new_header(dataset, self.budget_epsilon, self.delta), timeout=self.timeout)
        with self._connection() as connection:
            header = self._checked(read_header(connection, self.path))
            self._identity, self._links = header.identity, [link("", header)]
            check_sound(connection, self.path)
            if writable:
                check_writable(connection)
            connection.execute("BEGIN")  # what follows sees one state of the file
            self._read(connection)

    @classmethod
    def open(cls, path: Path | str, *, timeout: float = 60.0) -> Self:
        """The ledger that is in this file, with the dataset and the budget that the file names; to look at it, say."""
        file = Path(path).absolute()
        check_file(file)
        with connection_to(file, timeout) as connection:
            header = read_header(connection, file)
        budget = header.epsilon, header.delta
        return cls(file, dataset=header.dataset, epsilon=budget[0], delta=budget[1], timeout=timeout, writable=False)

    @property
    def identity(self) -> str:
        """A name that no other ledger file has."""
        return self._identity

    def for_run(self, run: str) -> DurableLedger:
        """The same file under the name of this run, whose earlier debits then count as its own."""
        return DurableLedger(
            self.path,
            dataset=self.dataset,
            epsilon=self.budget_epsilon,
            delta=self.delta,
            timeout=self.timeout,
            run=run,
        )

    # -- the interface of PrivacyLedger

    @property
    def _in_memory(self) -> bool:
        return False

    def debit(self, release: Release) -> int:
        """Record ``release`` on the disk and return its number, or raise and record nothing.

        Raises
        ------
        BudgetExceeded
            If the budget does not allow it together with all debits of all processes.
        LedgerError
            If the file cannot be used.
        """
        with self._lock:
            with self._connection() as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._read(connection)
                fits = self._fits(self._counts + Counter({release.cost: 1}))
                if fits:
                    entry = entry_of(release, len(self._releases), self.run)
                    own_link = link(self._links[-1], entry)
                    insert_entry(connection, entry, own_link)
                    connection.execute("COMMIT")
            if not fits:
                raise BudgetExceeded(self._refusal({release.cost: 1}, release.purpose))
            self._take(release, self.run, own_link)
            return entry.number

    def _take(self, release: Release, run: str, own_link: str) -> None:
        self._runs.append(run)
        self._links.append(own_link)
        self._append(release)  # last: what is not in the list yet is read again

    def _refusal(self, costs: Mapping[Cost, int], purpose: str) -> str:
        alone = epsilon_spent(costs, self.delta)
        left = super().remaining()
        return (
            f"{super()._refusal(costs, purpose)} This request alone costs epsilon {alone:.4g}; what remains of "
            f"{self.dataset!r} pays for {left:.4g}."
        )

    def own_releases(self) -> tuple[Release, ...]:
        """What was released under the name of this run, in order."""
        with self._fresh():
            pairs = zip(self._releases, self._runs, strict=True)
            return tuple(release for release, run in pairs if run == self.run)

    def releases_by_run(self) -> tuple[tuple[str, Release], ...]:
        """Everything released so far, in order, with the name of its run."""
        with self._fresh():
            return tuple(zip(self._runs, self._releases, strict=True))

    # -- receipts

    @property
    def head(self) -> Head:
        """The state of the file now; whoever keeps it elsewhere notices a file that was put back or rewritten."""
        with self._fresh():
            return Head(len(self._releases), self._links[-1])

    def receipt(self) -> dict[str, Any]:
        """:attr:`head` and the ledger's identity as plain data, for :meth:`verify`; certificates hold one too."""
        return self._receipt(self.head.debits)

    def _receipt(self, debits: int) -> dict[str, Any]:
        return make_receipt(self._identity, Head(debits, self._links[debits]))

    def verify(self, receipt: Mapping[str, Any]) -> None:
        """Raise :class:`LedgerError` unless this file holds what it held when ``receipt`` was made.

        Parameters
        ----------
        receipt : mapping
            From :meth:`receipt`, or ``certificate.receipt``.
        """
        with self._fresh():
            check_receipt(receipt, identity=self._identity, links=self._links, path=self.path)

    # -- what people read

    def to_json(self) -> str:
        """All entries and the totals as JSON text; an infinite number is the word "infinity"."""
        with self._fresh() as connection:
            entries = [entry for entry, _ in read_entries(connection, self.path, self._links[:1])]
            counts = Counter(release.cost for release in self._releases)
        exported = {
            "schema": SCHEMA,
            "ledger": self._identity,
            "dataset": self.dataset,
            "receipt": self._receipt(len(entries)),
            "budget_epsilon": self.budget_epsilon,
            "delta": self.delta,
            "spent_epsilon": epsilon_spent(counts, self.delta),
            "remaining_epsilon": super().remaining(),
            "accountant": accountant(counts),
            "entries": [entry._asdict() | {"cost": json.loads(entry.cost)} for entry in entries],
        }
        return json.dumps(json_ready(exported), indent=2)

    def export(self, path: Path | str) -> Path:
        """Write :meth:`to_json` to ``path``, which must not be there yet.

        Opening the ledger's own file by other means would, on POSIX, also drop the locks that SQLite holds on it.
        """
        target = Path(path).absolute()
        text = self.to_json() + "\n"
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise FileExistsError(
                f"expected a file that is not there yet, got {str(path)!r}; choose a new name."
            ) from None
        return target

    def describe(self) -> str:
        """What was spent, on what, and what remains, as text."""
        with self._fresh():
            releases, runs = list(self._releases), set(self._runs)
        debits = _counted(len(releases), "debit")
        lines = [
            f"Ledger of {self.dataset!r} in {self.path}",
            f"  budget     epsilon {self.budget_epsilon:.4g} at delta {rounded_up(self.delta)}",
            f"  spent      epsilon {rounded_up(self.epsilon())}: {debits} of {_counted(len(runs), 'run')}",
            f"  remaining  epsilon {self.remaining():.4g} for one more Gaussian release",
        ]
        if releases:
            lines.append(f"  {'count':>6}  {'noise':>9}  mechanism: purpose")
        for entry in summary(releases):
            noise = entry["noise_multiplier"] or entry["epsilon"]
            shown = "none" if noise is None else f"{noise:.4g}"
            purpose = _on_one_line(entry["purpose"])
            lines.append(f"  {entry['count']:>6}  {shown:>9}  {entry['mechanism']}: {purpose}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"DurableLedger({str(self.path)!r}, dataset={self.dataset!r}, epsilon={self.budget_epsilon!r})"

    # -- the file

    def _check_path(self) -> None:
        if self.path.exists():
            check_file(self.path)
        elif not self.path.parent.is_dir():
            raise LedgerError(f"The folder {str(self.path.parent)!r} does not exist; make it, or choose another file.")
        elif journal_of(self.path).exists() and not self.path.exists():  # nobody made it between the two looks
            raise LedgerError(
                f"The ledger {str(self.path)!r} is gone but its journal is there; restore the ledger's newest copy."
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with connection_to(self.path, self.timeout) as connection:
            yield connection

    @contextmanager
    def _fresh(self) -> Iterator[sqlite3.Connection]:
        """A connection, after what other processes recorded has been read."""
        with self._lock, self._connection() as connection:
            connection.execute("BEGIN")
            self._read(connection)
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._fresh():
            yield

    def _checked(self, header: Header) -> Header:
        asked = {"dataset": self.dataset, "epsilon": self.budget_epsilon, "delta": self.delta}
        for name, came in asked.items():
            held = getattr(header, name)
            if held != came:
                raise LedgerError(
                    f"The ledger {str(self.path)!r} was made with {name}={held!r}, got {came!r}; pass {held!r}, or "
                    "choose another file for other people."
                )
        return header

    def _read(self, connection: sqlite3.Connection) -> None:
        """Take up the entries that are new since the last look; entries are only ever added."""
        header = read_header(connection, self.path)
        if header.identity != self._identity:
            raise LedgerError(f"The ledger {str(self.path)!r} was replaced by another one while in use; restore it.")
        if link("", header) != self._links[0]:
            raise LedgerError(
                f"The ledger {str(self.path)!r} was given another budget or name while in use; restore it."
            )
        known = len(self._releases)
        del self._runs[known:], self._links[known + 1 :]  # of a debit that was interrupted on its way into memory
        for entry, own_link in read_entries(connection, self.path, self._links):
            self._take(release_of(entry, self.path), entry.run, own_link)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _on_one_line(text: str) -> str:
    """A purpose, which may come from another machine, without characters that move the cursor or end the line."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
