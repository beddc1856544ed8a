"""Populations as the service has them: the register, the ledger, and the vaults of cohorts.

One :class:`~justitia.DurableLedger` per population pays for whatever is asked of its people, by any client, through any
cohort.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import sqlite3
import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from justitia.custodian.records import Client, Cohort, Population, Records, now
from justitia.custodian.refusals import LOST, Refused, unknown
from justitia.custodian.settings import private_file, private_folder
from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import Cost
from justitia.privacy.attribute import Attribute
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.file_lock import LockedFile, sync_folder
from justitia.privacy.groups import public_groups
from justitia.privacy.joining import Digests
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.register import Register, persons_of
from justitia.privacy.vault import SensitiveVault, check_budget

#: Vaults of cohorts that are kept, newest first; others are made again.
KEPT_VAULTS = 16
#: Seconds between two looks at which populations were retired by another process.
POLL = 0.5
#: Seconds that a 'register' or 'retire' waits for another one.
_PATIENCE = 300.0
_ATTRIBUTE = ".attribute"


def folder_of(root: Path) -> Path:
    """Where attributes and ledgers are."""
    return private_folder(root / "populations")


def ledger_file(root: Path, name: str) -> Path:
    """The ledger of a population."""
    return folder_of(root) / f"{name}.ledger"


def register_file(root: Path, name: str) -> Path:
    """The attribute of a population, until it is retired."""
    return folder_of(root) / f"{name}{_ATTRIBUTE}"


def spool_folder(root: Path) -> Path:
    """Where rows of requests wait until all parts of their request have come."""
    return private_folder(root / "spool")


def spooled(root: Path, client: str, request: str) -> Path:
    """Where the rows of one request wait."""
    return spool_folder(root) / hashlib.sha256(f"{client}/{request}".encode()).hexdigest()


def check_name(name: str) -> str:
    """Refuse what is no name of a population."""
    if not name or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name):
        raise ValueError(f"expected a name of letters, digits, '-' and '_' for the population, got {name!r}.")
    return name


@contextmanager
def _registering(root: Path, timeout: float) -> Iterator[None]:
    """Only one process at a time registers or retires: a claim that is found was left by one that was killed."""
    try:
        lock = LockedFile(private_file(root / "register.lock"), os.O_CREAT | os.O_RDWR, timeout=timeout)
    except TimeoutError:
        raise ValueError(f"another 'register' or 'retire' works in {str(root)!r}; wait for its end.") from None
    with lock:
        yield


def register(
    root: Path, records: Records, name: str, people: Register, *, groups: object, epsilon: float, delta: float
) -> Population:
    """Take people in: attribute, list of groups and budget are fixed from now on.

    The name is claimed first, together with the name of the file that will be written, so that whatever a killed
    process leaves behind is found and deleted by the next :func:`register`, :func:`retire` or service. The attribute
    has its final name once all of it is on the disk, and the population exists from the last step on.

    Raises
    ------
    ValueError
        If the name is taken or is no name, or groups or budget cannot be used.
    """
    check_name(name)
    check_budget(epsilon, delta)
    if math.isinf(epsilon):
        raise ValueError("expected a finite epsilon for people whom a custodian holds, got none; choose a budget.")
    listed = public_groups(groups, names=people.names)
    if not all(isinstance(part, str) for one in listed for part in (one if isinstance(one, tuple) else (one,))):
        raise ValueError("expected groups as text, which is how the attribute is kept, got others; write them as text.")
    population = Population(name, people.names, tuple(listed), float(epsilon), float(delta), len(people), now())
    draft = folder_of(root) / f".{name}.{uuid.uuid4().hex}.draft"
    with _registering(root, _PATIENCE):
        _drop_claims(root, records)
        if records.population(name) is None and _is_stray(root, name):
            raise ValueError(
                f"there are files of a population {name!r} that the records do not know; restore the newest records, "
                f"delete them with 'justitia custodian retire --population {name}', or choose another name."
            )
        records.claim(name, draft.name)
        try:
            people.write(private_file(draft))
            draft.replace(register_file(root, name))
            ledger = DurableLedger(ledger_file(root, name), dataset=name, epsilon=epsilon, delta=delta)
            ledger.path.chmod(0o600)
            sync_folder(folder_of(root))
            records.put_population(population)
        except BaseException:
            _drop_claims(root, records)
            raise
    return population


def retire(root: Path, records: Records, name: str) -> bool:
    """Delete the attribute of a population, its cohorts, stored answers and waiting rows; ledger and receipts stay.

    A service that runs notices within about a second, and forgets the attribute. What a registration that did not
    finish has left under the name is deleted too. A second call does all of it again.

    Returns
    -------
    bool
        False if there is nothing of this name.

    Raises
    ------
    ValueError
        If another process kept the records in use, so that deleted rows may still be in their file.
    """
    with _registering(root, _PATIENCE):
        known = records.population(name) is not None
        found = known or name in records.claims() or _is_stray(root, name)
        _drop_claims(root, records)
        requests = records.retire(name) if known else []
        register_file(root, name).unlink(missing_ok=True)
        if not known:
            _drop_unused_ledger(root, name)
        sync_folder(folder_of(root))
        for own in requests:
            shutil.rmtree(spooled(root, *own), ignore_errors=True)
    if found:
        records.scrub()
    return found


def recover(root: Path, records: Records) -> None:
    """Delete what processes that were killed have left: unfinished registrations, attributes of retired people."""
    try:
        with _registering(root, 0.0):
            _drop_claims(root, records)
            for one in records.populations():
                if one.retired is not None:
                    register_file(root, one.name).unlink(missing_ok=True)
    except ValueError:
        return  # a register or retire that runs does the same


def strays(root: Path, records: Records) -> list[str]:
    """Names whose attribute is in the folder though they are not registered, or are retired."""
    held = {one.name for one in records.populations() if one.retired is None}
    files = {path.name.removesuffix(_ATTRIBUTE) for path in folder_of(root).glob(f"*{_ATTRIBUTE}")}
    return sorted((files | set(records.claims())) - held)


def _is_stray(root: Path, name: str) -> bool:
    return register_file(root, name).exists() or ledger_file(root, name).exists()


def _drop_claims(root: Path, records: Records) -> None:
    """Delete the files of registrations that did not finish, and then their claims; who calls holds the lock."""
    for name, draft in records.claims().items():
        (folder_of(root) / Path(draft).name).unlink(missing_ok=True)
        register_file(root, name).unlink(missing_ok=True)
        _drop_unused_ledger(root, name)
        sync_folder(folder_of(root))
        records.drop_claim(name)


def _drop_unused_ledger(root: Path, name: str) -> None:
    """Delete a ledger under which nothing was debited; one with debits, or one that cannot be read, stays."""
    path = ledger_file(root, name)
    with suppress(LedgerError):
        if path.exists() and not DurableLedger.open(path).releases:
            path.unlink()


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
        self._forgotten = False

    def forget(self) -> None:
        """Overwrite and drop the attribute, after the question that is being answered."""
        with self.lock:
            self._forgotten = True
            for vault in self._vaults.values():
                vault.forget()
            self._vaults.clear()
            self._register.forget()

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
        if self._forgotten:
            raise unknown("population")
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
            if self._forgotten:  # its vault was made before and is empty now
                raise unknown("population")
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
    """All populations that are not retired, opened when they are first asked about.

    A thread notices those that another process retires, and forgets their attribute.
    """

    def __init__(self, root: Path, records: Records, noise_source: NoiseSource) -> None:
        self._root, self._records, self._source = root, records, noise_source
        self._open: dict[str, People] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    def people(self, name: str, among: Collection[str]) -> People:
        """One of them.

        Parameters
        ----------
        among : collection of str
            Names that whoever asks may use.

        Raises
        ------
        Refused
            If there is none; a retired one is none, and so is one that whoever asks may not use.
        """
        known = self.forget_retired()
        if name not in known or name not in among:
            raise unknown("population")
        with self._lock:
            if name not in self._open:
                self._open[name] = People(self._root, known[name], self._records, self._source)
                self._start()
            return self._open[name]

    def forget_retired(self) -> dict[str, Population]:
        """Forget the attribute of people who were retired; those who were not, by name."""
        known = {one.name: one for one in self._records.populations() if one.retired is None}
        with self._lock:
            retired = [self._open.pop(name) for name in self._open.keys() - known.keys()]
        for one in retired:
            one.forget()
        return known

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._watch is not None:
            self._watch.join()

    def _start(self) -> None:
        if self._watch is None:
            self._watch = threading.Thread(target=self._notice, daemon=True, name="retired populations")
            self._watch.start()

    def _notice(self) -> None:
        while not self._closed.wait(POLL):
            with suppress(sqlite3.Error, OSError):  # a question meets the same error, and is refused with it
                self.forget_retired()


__all__ = [
    "People",
    "Populations",
    "check_name",
    "digests",
    "folder_of",
    "ledger_file",
    "recover",
    "register",
    "register_file",
    "retire",
    "run_name",
    "spool_folder",
    "spooled",
    "strays",
]
