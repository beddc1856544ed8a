"""Populations: registration, retirement, and the loaded state of each (attribute, ledger, vaults of cohorts).

One :class:`~justitia.DurableLedger` per population is debited for every answer about it, to any client, through any
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
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from justitia.custodian.errors import ANSWER_LOST, RequestError, invalid_input, not_found, too_large
from justitia.custodian.records import Client, CohortRecord, Population, Records, now
from justitia.custodian.settings import private_file, private_folder
from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.privacy.accounting import Cost
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.file_lock import LockedFile, sync_folder
from justitia.privacy.groups import public_groups
from justitia.privacy.joining import Digests
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.register import Register, check_once, digests_of, persons_of
from justitia.privacy.vault import SensitiveVault, check_budget

#: Vaults that a population keeps for its most recently used cohorts, and rows of all of them; others are made again.
#: A vault takes two bytes for each row. Making it takes longer than an answer, so one is kept for each of many clients.
MAX_VAULTS, MAX_VAULT_ROWS = 1024, 64_000_000
#: Seconds between two checks of which populations another process has retired.
POLL_SECONDS = 0.5
#: Seconds that a 'register' or 'retire' waits for another one.
_LOCK_TIMEOUT = 300.0
_ATTRIBUTE = ".attribute"


def populations_folder(root: Path) -> Path:
    """Folder with attributes and ledgers."""
    return private_folder(root / "populations")


def ledger_file(root: Path, name: str) -> Path:
    """File with the ledger of a population."""
    return populations_folder(root) / f"{name}.ledger"


def attribute_file(root: Path, name: str) -> Path:
    """File with the attribute of a population, until it is retired."""
    return populations_folder(root) / f"{name}{_ATTRIBUTE}"


def spool_folder(root: Path) -> Path:
    """Folder with the rows of requests whose other parts have not arrived yet."""
    return private_folder(root / "spool")


def request_spool(root: Path, client: str, request: str) -> Path:
    """Folder with the rows of one request."""
    return spool_folder(root) / hashlib.sha256(f"{client}/{request}".encode()).hexdigest()


def check_name(name: str) -> str:
    """Raise ValueError for what cannot be the name of a population."""
    if not name or not all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name):
        raise ValueError(f"expected a name of letters, digits, '-' and '_' for the population, got {name!r}.")
    return name


@contextmanager
def _registration_lock(root: Path, timeout: float) -> Iterator[None]:
    """Only one process at a time registers or retires; so a claim found under the lock is of a killed process."""
    try:
        lock = LockedFile(private_file(root / "register.lock"), os.O_CREAT | os.O_RDWR, timeout=timeout)
    except TimeoutError:
        raise ValueError(f"another 'register' or 'retire' works in {str(root)!r}; wait for its end.") from None
    with lock:
        yield


def register(
    root: Path,
    records: Records,
    name: str,
    attribute: Register,
    *,
    groups: object,
    epsilon: float,
    delta: float,
    source: str = "",
    keep_until: str = "",
) -> Population:
    """Register a population; its attribute, list of groups and budget never change afterwards.

    The name is claimed first, together with the name of the file that will be written, so that whatever a killed
    process leaves behind is found and deleted by the next :func:`register`, :func:`retire` or service. The attribute
    gets its final file name once all of it is on the disk, and the population exists from the last step on.

    Parameters
    ----------
    source, keep_until : str
        For the page and the audit: where the attribute was read, and the date after which to retire it.

    Raises
    ------
    ValueError
        If the name is taken or is no name, or groups or budget cannot be used.
    """
    check_name(name)
    check_budget(epsilon, delta)
    if math.isinf(epsilon):
        raise ValueError("expected a finite epsilon for a population of a custodian, got none; choose a budget.")
    listed = public_groups(groups, names=attribute.names)
    if not all(isinstance(part, str) for one in listed for part in (one if isinstance(one, tuple) else (one,))):
        raise ValueError("expected groups as text, as the attribute is stored, got others; write them as text.")
    population = Population(
        name,
        attribute.names,
        tuple(listed),
        float(epsilon),
        float(delta),
        len(attribute),
        now(),
        source=source,
        keep_until=keep_until,
    )
    draft = populations_folder(root) / f".{name}.{uuid.uuid4().hex}.draft"
    with _registration_lock(root, _LOCK_TIMEOUT):
        _delete_unfinished(root, records)
        if records.population(name) is None and _has_files(root, name):
            raise ValueError(
                f"there are files of a population {name!r} that the records do not know; restore the newest records, "
                f"delete them with 'justitia custodian retire --population {name}', or choose another name."
            )
        records.claim(name, draft.name)
        try:
            attribute.write(private_file(draft))
            draft.replace(attribute_file(root, name))
            ledger = DurableLedger(ledger_file(root, name), dataset=name, epsilon=epsilon, delta=delta)
            ledger.path.chmod(0o600)
            sync_folder(populations_folder(root))
            records.put_population(population)
        except BaseException:
            _delete_unfinished(root, records)
            raise
    return population


def retire(root: Path, records: Records, name: str) -> bool:
    """Delete the attribute of a population, its cohorts, stored answers and spooled rows; ledger and receipts stay.

    A running service notices within about a second, and forgets the attribute. Files that an unfinished registration
    has left under the name are deleted too. A second call does all of it again.

    Returns
    -------
    bool
        False if nothing has this name.

    Raises
    ------
    ValueError
        If another process kept the records in use, so that deleted rows may still be in their file.
    """
    with _registration_lock(root, _LOCK_TIMEOUT):
        known = records.population(name) is not None
        found = known or name in records.claims() or _has_files(root, name)
        _delete_unfinished(root, records)
        requests = records.retire(name) if known else []
        attribute_file(root, name).unlink(missing_ok=True)
        if not known:
            _delete_unused_ledger(root, name)
        sync_folder(populations_folder(root))
        for own in requests:
            shutil.rmtree(request_spool(root, *own), ignore_errors=True)
    if found:
        records.scrub()
    return found


def recover(root: Path, records: Records) -> None:
    """Delete what killed processes have left: unfinished registrations, attributes of retired populations."""
    try:
        with _registration_lock(root, 0.0):
            _delete_unfinished(root, records)
            for one in records.populations():
                if one.retired is not None:
                    attribute_file(root, one.name).unlink(missing_ok=True)
    except ValueError:
        return  # a running register or retire does the same


def unfinished(root: Path, records: Records) -> list[str]:
    """Names whose attribute or claim exists though no population of this name is registered, or it is retired."""
    registered = {one.name for one in records.populations() if one.retired is None}
    files = {path.name.removesuffix(_ATTRIBUTE) for path in populations_folder(root).glob(f"*{_ATTRIBUTE}")}
    return sorted((files | set(records.claims())) - registered)


def _has_files(root: Path, name: str) -> bool:
    return attribute_file(root, name).exists() or ledger_file(root, name).exists()


def _delete_unfinished(root: Path, records: Records) -> None:
    """Delete the files of unfinished registrations, and then their claims; the caller holds the lock."""
    for name, draft in records.claims().items():
        (populations_folder(root) / Path(draft).name).unlink(missing_ok=True)
        attribute_file(root, name).unlink(missing_ok=True)
        _delete_unused_ledger(root, name)
        sync_folder(populations_folder(root))
        records.drop_claim(name)


def _delete_unused_ledger(root: Path, name: str) -> None:
    """Delete a ledger without debits; one with debits, or one that cannot be read, stays."""
    path = ledger_file(root, name)
    with suppress(LedgerError):
        if path.exists() and not DurableLedger.open(path).releases:
            path.unlink()


class LoadedPopulation:
    """A population that a running service has loaded: its attribute, its ledger, and vaults of recent cohorts.

    Parameters
    ----------
    noise_source : NoiseSource
        Source of noise; tests pass one that can be drawn again.
    """

    def __init__(self, root: Path, facts: Population, records: Records, noise_source: NoiseSource) -> None:
        self.facts, self._records, self._noise_source = facts, records, noise_source
        self._register = Register.read(attribute_file(root, facts.name)).listed(facts.groups)
        path = ledger_file(root, facts.name)
        self.ledger = DurableLedger(path, dataset=facts.name, epsilon=facts.epsilon, delta=facts.delta)
        self._check_receipts()
        self.ledger.keep_open()
        self._lock = threading.Condition()
        self._answering = 0
        self._client_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._vault_lock = threading.Lock()
        self._vaults: OrderedDict[str, SensitiveVault] = OrderedDict()
        self._client_ledgers: dict[str, tuple[float, PrivacyLedger]] = {}
        self._runs = {run for run, _ in self.ledger.releases_by_run()}
        self._forgotten = False

    def _check_receipts(self) -> None:
        """Raise LedgerError if the ledger is older than the receipts: one of the two files was restored from a copy."""
        try:
            receipts = self._records.receipts(self.facts.name)
        except ValueError as error:
            raise LedgerError(str(error)) from None
        if receipts:
            self.ledger.verify(receipts[-1][0]["ledger"])

    def forget(self) -> None:
        """Overwrite and drop the attribute, after the queries that are being answered."""
        with self._lock:
            self._forgotten = True
            while self._answering:
                self._lock.wait()
            for vault in self._vaults.values():
                vault.forget()
            self._vaults.clear()
            self._register.forget()
        self.close()

    def close(self) -> None:
        """Close the ledger's file."""
        self.ledger.close()

    # -- cohorts and vaults

    def make_cohort(
        self, client: str, ids: Sequence[str], parts: Sequence[CohortRecord], *, max_rows: int, person: bool
    ) -> tuple[CohortRecord, dict[str, Any]]:
        """The cohort of these ids, or of the concatenated ``parts``; and public facts about its persons.

        The name of a cohort is a hash of its client and of its ids in their order. So a client that sends the ids
        again, or sends them in parts and joins those, gets the same cohort, and no client can tell from a name whether
        another one sent the same ids. No id is looked up here.

        Parameters
        ----------
        client : str
            Name of the client whose cohort it is.
        max_rows : int
            Limit on the rows of a cohort.
        person : bool
            Whether an id may have several rows, which are then protected together.

        Raises
        ------
        RequestError
            For ids that are missing or repeat, for too many rows, and for parts of another population.
        """
        if any(one.population != self.facts.name for one in parts):
            raise not_found("cohort")
        rows = len(ids) + sum(one.rows for one in parts)
        if not 0 < rows <= max_rows or (ids and parts):
            raise too_large(f"between 1 and {max_rows} ids, or cohorts of so many,")
        try:
            digests = np.concatenate([cohort_digests(one) for one in parts]) if parts else digests_of(ids)
            if not person:
                check_once(digests)
        except ValueError as error:
            raise invalid_input(str(error)) from None
        content = digests.tobytes()
        name = hashlib.sha256(f"{self.ledger.identity}/{client}/{person}/".encode() + content).hexdigest()[:32]
        cohort = CohortRecord(name, self.facts.name, rows, content, person)
        if not person:
            return cohort, {}
        persons = persons_of(digests)
        return cohort, {"rows_each": persons.rows_each, "persons": persons.digest}

    def vault(self, cohort: CohortRecord) -> SensitiveVault:
        """The vault of a cohort, which debits the population's ledger; one thread at a time makes one."""
        with self._vault_lock:
            if self._forgotten:
                raise not_found("population")
            if cohort.id in self._vaults:
                self._vaults.move_to_end(cohort.id)
                return self._vaults[cohort.id]
            loaded = self._records.cohort(cohort.id, with_digests=True)
            if loaded is None:  # retired meanwhile
                raise not_found("cohort")
            digests = cohort_digests(loaded)
            vault = SensitiveVault(
                self._register.cohort(digests),
                groups=self.facts.groups,
                ledger=self.ledger,
                people=persons_of(digests) if loaded.person else None,
                noise_source=self._noise_source,
            )
            self._vaults[cohort.id] = vault
            rows = sum(len(one) for one in self._vaults.values())
            while len(self._vaults) > MAX_VAULTS or (rows > MAX_VAULT_ROWS and len(self._vaults) > 1):
                rows -= len(self._vaults.popitem(last=False)[1])
            return vault

    # -- budgets

    def was_debited(self, client: str, request: str) -> bool:
        """Whether anything was debited under this request id of this client."""
        return _run_name(client, request) in self._runs

    @contextmanager
    def debiting(self, client: Client, request: str, cost: Cost, purpose: str) -> Iterator[None]:
        """Hold the population while the vault debits and answers one request; other clients' requests may run beside.

        Both budgets are checked before: the client's own, which its other requests cannot debit meanwhile, and the
        population's, which the debit checks again. Whatever happens inside, the request id is used up unless the
        ledger's file shows that nothing was debited.

        Raises
        ------
        RequestError
            If a budget is used up, with the message of the ledger.
        """
        run = _run_name(client.name, request)
        with self._client_lock(client), self._ledger_errors(), self.ledger.running(run):
            own = self._begin(client, run, cost, purpose)
            try:
                yield
            except (RequestError, ValueError, BudgetExceeded, LedgerError, OSError, sqlite3.Error):
                if self._nothing_debited():
                    self._runs.discard(run)  # the id is free again
                    own = None
                raise
            finally:
                if own is not None:
                    own._append(Release(purpose, cost, 0.0))  # what may have been debited counts
                with self._lock:
                    self._answering -= 1
                    self._lock.notify_all()

    def _begin(self, client: Client, run: str, cost: Cost, purpose: str) -> PrivacyLedger | None:
        """Check that a request may be debited, and use up its id; returns the ledger of the client's own budget."""
        with self._lock:
            if self._forgotten:  # its vault was made before and is empty now
                raise not_found("population")
            if run in self._runs:
                raise ANSWER_LOST
            own = self._client_ledger(client)
            self.ledger.check_known({cost: 1}, purpose=purpose)
            if own is not None:
                own.check({cost: 1}, purpose=purpose)
            self._runs.add(run)  # before anything else can happen
            self._answering += 1
            return own

    def _client_lock(self, client: Client) -> AbstractContextManager[object]:
        """Lock that requests of one client with a budget of its own hold one after the other."""
        if client.epsilon is None:
            return nullcontext()
        with self._lock:
            return self._client_locks[client.name]

    @staticmethod
    @contextmanager
    def _ledger_errors() -> Iterator[None]:
        try:
            yield
        except BudgetExceeded as error:
            raise RequestError(402, "budget", str(error)) from None

    def _nothing_debited(self) -> bool:
        """Whether the ledger's file has no debit under the present request; one that cannot be read may have."""
        try:
            return not self.ledger.own_releases()
        except (LedgerError, OSError):
            return False

    def can_afford(self, cost: Cost) -> bool:
        """Whether the population's budget allows a cost; a client's own budget is checked when it is debited."""
        with self._lock:
            return _fits(self.ledger, {cost: 1}, 1)

    def count_fits(self, client: Client, costs: dict[Cost, int]) -> int:
        """How many times these costs fit into what client and population have left, up to 1024."""
        with self._lock:
            ledgers = [one for one in (self.ledger, self._client_ledger(client)) if one is not None]
            low, high = 0, 1025
            while high - low > 1:
                middle = (low + high) // 2
                fits = all(_fits(one, costs, middle) for one in ledgers)
                low, high = (middle, high) if fits else (low, middle)
            return low

    def _client_ledger(self, client: Client) -> PrivacyLedger | None:
        """Ledger of the client's own budget with all of its debits; None if it has no budget of its own."""
        if client.epsilon is None:
            return None
        budget, own = self._client_ledgers.get(client.name, (None, None))
        if own is None or budget != client.epsilon:
            own = PrivacyLedger(epsilon=client.epsilon, delta=self.facts.delta)
            for run, release in self.ledger.releases_by_run():
                if run.rpartition("/")[0] == client.name:
                    own._append(release)  # what was debited counts, whatever the budget is now
            self._client_ledgers[client.name] = (client.epsilon, own)
        return own


def cohort_digests(cohort: CohortRecord) -> Digests:
    """Digests of the ids of a cohort, in its order."""
    return np.frombuffer(cohort.digests, dtype="S16")


def _fits(ledger: PrivacyLedger, costs: dict[Cost, int], times: int) -> bool:
    try:
        ledger.check({cost: times * count for cost, count in costs.items()})
    except BudgetExceeded:
        return False
    return True


def _run_name(client: str, request: str) -> str:
    """Name of a request in the ledger."""
    return f"{client}/{request}"


class Populations:
    """All populations that are not retired, each loaded when it is first queried.

    A thread notices those that another process retires, and forgets their attribute.
    """

    def __init__(self, root: Path, records: Records, noise_source: NoiseSource) -> None:
        self._root, self._records, self._noise_source = root, records, noise_source
        self._loaded: dict[str, LoadedPopulation] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    def get(self, name: str, allowed: Collection[str]) -> LoadedPopulation:
        """The population of this name.

        Parameters
        ----------
        allowed : collection of str
            Names that the client may use.

        Raises
        ------
        RequestError
            If there is none, if it is retired, or if the client may not use it: all three look alike.
        """
        if name not in self.forget_retired() or name not in allowed:
            raise not_found("population")
        with self._lock:
            if name not in self._loaded:
                facts = self._records.population(name)
                if facts is None or facts.retired is not None:  # since a moment ago
                    raise not_found("population")
                self._loaded[name] = LoadedPopulation(self._root, facts, self._records, self._noise_source)
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._watch, daemon=True, name="retired populations")
                    self._watcher.start()
            return self._loaded[name]

    def forget_retired(self) -> set[str]:
        """Forget the attribute of retired populations; return the names of the others."""
        known = self._records.live_populations()
        with self._lock:
            retired = [self._loaded.pop(name) for name in self._loaded.keys() - known]
        for one in retired:
            one.forget()
        return known

    def close(self) -> None:
        """End the thread, and close the ledgers."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join()
        for one in self._loaded.values():
            one.close()

    def _watch(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            with suppress(sqlite3.Error, OSError):  # a request meets the same error, and is refused with it
                self.forget_retired()


__all__ = [
    "LoadedPopulation",
    "Populations",
    "attribute_file",
    "check_name",
    "cohort_digests",
    "ledger_file",
    "populations_folder",
    "recover",
    "register",
    "request_spool",
    "retire",
    "spool_folder",
    "unfinished",
]
