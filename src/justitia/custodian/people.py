"""Populations as the service has them: the register, the ledger, and the vaults of cohorts.

One :class:`~justitia.DurableLedger` per population pays for whatever is asked of its people, by any client, through any
cohort.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from justitia.custodian.records import Client, Cohort, Population, Records, now
from justitia.custodian.refusals import LOST, Refused, unknown
from justitia.custodian.settings import private_file, private_folder
from justitia.privacy.accounting import Cost
from justitia.privacy.attribute import Attribute
from justitia.privacy.door import check_budget
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.errors import BudgetExceeded, LedgerError
from justitia.privacy.groups import public_groups
from justitia.privacy.joining import Digests
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.register import Register, persons_of
from justitia.privacy.vault import SensitiveVault

#: Vaults of cohorts that are kept, newest first; others are made again.
KEPT_VAULTS = 16


def folder_of(root: Path) -> Path:
    """Where attributes and ledgers are."""
    return private_folder(root / "populations")


def ledger_file(root: Path, name: str) -> Path:
    """The ledger of a population."""
    return folder_of(root) / f"{name}.ledger"


def register_file(root: Path, name: str) -> Path:
    """The attribute of a population, until it is retired."""
    return folder_of(root) / f"{name}.attribute"


def register(
    root: Path, records: Records, name: str, people: Register, *, groups: object, epsilon: float, delta: float
) -> Population:
    """Take people in: attribute, list of groups and budget are fixed from now on.

    Raises
    ------
    ValueError
        If the name is taken or is no name, or groups or budget cannot be used.
    """
    if not name or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name):
        raise ValueError(f"expected a name of letters, digits, '-' and '_' for the population, got {name!r}.")
    if records.population(name) is not None:
        raise ValueError(f"the population {name!r} is registered, or was; choose another name for other people.")
    check_budget(epsilon, delta)
    if math.isinf(epsilon):
        raise ValueError("expected a finite epsilon for people whom a custodian holds, got none; choose a budget.")
    listed = public_groups(groups, names=people.names)
    if not all(isinstance(part, str) for one in listed for part in (one if isinstance(one, tuple) else (one,))):
        raise ValueError("expected groups as text, which is how the attribute is kept, got others; write them as text.")
    people.write(private_file(register_file(root, name)))
    ledger = DurableLedger(ledger_file(root, name), dataset=name, epsilon=epsilon, delta=delta)
    ledger.path.chmod(0o600)
    population = Population(name, people.names, tuple(listed), float(epsilon), float(delta), len(people), now())
    records.put_population(population)
    return population


class People:
    """One population while the service runs.

    Parameters
    ----------
    noise_source : NoiseSource
        Where noise comes from; tests pass one that can be drawn again.
    """

    def __init__(self, root: Path, facts: Population, records: Records, noise_source: NoiseSource) -> None:
        self.facts, self._records, self._source = facts, records, noise_source
        self._register = Register.read(register_file(root, facts.name)).listed(facts.groups)
        path = ledger_file(root, facts.name)
        self.ledger = DurableLedger(path, dataset=facts.name, epsilon=facts.epsilon, delta=facts.delta)
        self._check_receipts()
        self.lock = threading.Lock()
        self._vaults: OrderedDict[str, SensitiveVault] = OrderedDict()
        self._own: dict[str, tuple[float, PrivacyLedger]] = {}
        self._runs = {run for run, _ in self.ledger.releases_by_run()}

    def _check_receipts(self) -> None:
        """Refuse a ledger that is older than the receipts beside it: one of the two was put back."""
        try:
            receipts = self._records.receipts(self.facts.name)
        except ValueError as error:
            raise LedgerError(str(error)) from None
        if receipts:
            self.ledger.verify(receipts[-1][0]["ledger"])

    def vault(self, cohort: Cohort) -> SensitiveVault:
        """The vault of a cohort; it debits the population's ledger."""
        if cohort.id in self._vaults:
            self._vaults.move_to_end(cohort.id)
            return self._vaults[cohort.id]
        whole = self._records.cohort(cohort.id, whole=True)
        if whole is None:  # retired meanwhile
            raise unknown("cohort")
        vault = SensitiveVault(
            self.attribute(whole),
            groups=self.facts.groups,
            ledger=self.ledger,
            people=persons_of(digests(whole)) if whole.person else None,
            noise_source=self._source,
        )
        self._vaults[cohort.id] = vault
        while len(self._vaults) > KEPT_VAULTS:
            self._vaults.popitem(last=False)
        return vault

    def attribute(self, cohort: Cohort) -> Attribute:
        """The attribute of a cohort, closed."""
        return self._register.cohort(digests(cohort))

    def was_debited(self, run: str) -> bool:
        """Whether anything was debited under the name of this request."""
        return run in self._runs

    @contextmanager
    def paying(self, client: Client, request: str, cost: Cost, purpose: str) -> Iterator[None]:
        """One debit within is that of this request; refused beforehand if client or population cannot pay.

        Raises
        ------
        Refused
            If the budget is used up, in the ledger's own words.
        """
        run = run_name(client.name, request)
        with self.lock:
            if self.was_debited(run):
                raise LOST
            own = self._budget_of(client)
            try:
                for ledger in (self.ledger, own):
                    if ledger is not None:
                        ledger.check({cost: 1}, purpose=purpose)
            except BudgetExceeded as error:
                raise Refused(402, "budget", str(error)) from None
            self.ledger.run = run
            self._runs.add(run)  # first: whatever happens from here on, this name is used up
            try:
                yield
            except (Refused, ValueError, BudgetExceeded, LedgerError, OSError, sqlite3.Error) as error:
                if self._nothing_debited():
                    self._runs.discard(run)  # the name is free again
                    own = None
                if isinstance(error, BudgetExceeded):
                    raise Refused(402, "budget", str(error)) from None
                raise
            finally:
                if own is not None:
                    own._append(Release(purpose, cost, 0.0))  # whatever may have been debited counts

    def can_pay(self, cost: Cost) -> bool:
        """Whether the population can; a client's own budget is checked when it is paid."""
        with self.lock:
            return _fits(self.ledger, {cost: 1}, 1)

    def _nothing_debited(self) -> bool:
        """Whether the ledger's file has nothing under the present name; what cannot be read may have."""
        try:
            return not self.ledger.own_releases()
        except (LedgerError, OSError):
            return False

    def times(self, client: Client, costs: dict[Cost, int]) -> int:
        """How many times these costs fit into what client and population have left, up to 1024."""
        with self.lock:
            ledgers = [one for one in (self.ledger, self._budget_of(client)) if one is not None]
            low, high = 0, 1025
            while high - low > 1:
                middle = (low + high) // 2
                fits = all(_fits(one, costs, middle) for one in ledgers)
                low, high = (middle, high) if fits else (low, middle)
            return low

    def _budget_of(self, client: Client) -> PrivacyLedger | None:
        """What the client has spent of its own budget; None if it has none."""
        if client.epsilon is None:
            return None
        budget, own = self._own.get(client.name, (None, None))
        if own is None or budget != client.epsilon:
            own = PrivacyLedger(epsilon=client.epsilon, delta=self.facts.delta)
            for run, release in self.ledger.releases_by_run():
                if run.rpartition("/")[0] == client.name:
                    own._append(release)  # what was debited counts, whatever the budget is now
            self._own[client.name] = (client.epsilon, own)
        return own


def digests(cohort: Cohort) -> Digests:
    """Of the ids of a cohort, in its order."""
    return np.frombuffer(cohort.digests, dtype="S16")


def _fits(ledger: PrivacyLedger, costs: dict[Cost, int], times: int) -> bool:
    try:
        ledger.check({cost: times * count for cost, count in costs.items()})
    except BudgetExceeded:
        return False
    return True


def run_name(client: str, request: str) -> str:
    """How the ledger names a request."""
    return f"{client}/{request}"


class Populations:
    """All populations that are not retired, opened when they are first asked about."""

    def __init__(self, root: Path, records: Records, noise_source: NoiseSource) -> None:
        self._root, self._records, self._source = root, records, noise_source
        self._open: dict[str, People] = {}
        self._lock = threading.Lock()

    def people(self, name: str) -> People:
        """One of them.

        Raises
        ------
        Refused
            If there is none; a retired one is none.
        """
        known = {one.name: one for one in self._records.populations() if one.retired is None}
        with self._lock:
            for retired in self._open.keys() - known.keys():
                del self._open[retired]  # their attribute leaves the memory, whoever is asked about
            facts = known.get(name)
            if facts is None:
                raise unknown("population")
            if name not in self._open:
                self._open[name] = People(self._root, facts, self._records, self._source)
            return self._open[name]


__all__ = ["People", "Populations", "digests", "folder_of", "ledger_file", "register", "register_file", "run_name"]
