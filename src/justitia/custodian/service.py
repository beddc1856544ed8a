"""Service logic of the custodian, without HTTP: facts, cohorts, and queries that are debited and answered.

A query goes through these steps, each on the disk before the next begins: it is debited; it is computed; its answer and
receipt are stored, and its request id is bound to it; the answer is returned. The id of a query that comes in several
parts is bound when the first arrives. Queries that come at once share the writes to the disk, and each waits for them.
If the process is killed after the debit, the debit stays, and nothing is ever computed again under it. If it is killed
after the answer was stored, the same request gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from msgspec import UNSET, UnsetType

from justitia.custodian.errors import (
    ANSWER_LOST,
    REQUEST_ID_REUSED,
    RequestError,
    invalid_input,
    missing_role,
    not_found,
    too_large,
)
from justitia.custodian.populations import LoadedPopulation, Populations, recover, request_spool, spool_folder
from justitia.custodian.records import AuditLog, Client, CohortRecord, NewAnswer, Records
from justitia.custodian.schemas import (
    CohortResponse,
    FactsResponse,
    MeasureRequest,
    PartsResponse,
    PlanCosts,
    SumsRequest,
)
from justitia.custodian.settings import ServiceSettings, private_file, private_folder
from justitia.custodian.wire import SpooledRows, from_stream, measurement_to_json, to_stream, wrong_rows
from justitia.metrics.measure import measure
from justitia.privacy.accounting import Cost, GaussianCost, gaussian_mu
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.attribute import HeldElsewhere
from justitia.privacy.certificate import ADJACENCY, Certificate
from justitia.privacy.file_lock import LockedFile
from justitia.privacy.groups import group_names
from justitia.privacy.interface import RowFunction, Vault, VaultRequest
from justitia.privacy.keys import key_hash, same_hash
from justitia.privacy.mechanisms import Gaussian, Mechanism, NoiseSource, SystemNoise
from justitia.privacy.rows import DenseSource

#: Keeps two services from working in one folder.
LOCK = "custodian.lock"
#: The part of a certificate that the custodian cannot check: it knows neither plans nor models.
CLAIMED = (
    "The client, not the custodian, states that {answers} planned before the first, and what was made of them: "
    "{subject!r}."
)
#: Bytes that a smaller part counts as, because every file takes a block on the disk.
_MIN_PART_BYTES = 4096
#: Name of a client, and its id for a request.
RequestId = tuple[str, str]


class _BoundQuery(NamedTuple):
    """A request id, the hash of its query, and digest and size of its body where that came in one part."""

    request: RequestId
    digest: str
    part: tuple[str, int] | None


class Answer(NamedTuple):
    """Numbers with noise, and the receipt of their debit as JSON."""

    body: bytes
    receipt: str


def require_role(client: Client, *roles: str) -> None:
    """Raise :class:`RequestError` unless the client has one of these roles; the error names the first."""
    if not set(roles) & set(client.roles):
        raise missing_role(roles[0])


class Service:
    """All answers of one custodian.

    Parameters
    ----------
    folder : path
        The custodian's folder; no other process serves it.
    settings : ServiceSettings
    noise_source : NoiseSource, optional
        The operating system's, except in tests.

    Guarantee
    ---------
    * A response, beyond the noise of an answer, is a function of what clients sent, of the ledger and of public facts:
      no attribute changes whether a request is answered, how, in how many bytes, or what it costs.
    * A debit is answered at most once, and every answer has a debit, whenever the process is killed.
    """

    def __init__(self, folder: Path, settings: ServiceSettings, noise_source: NoiseSource | None = None) -> None:
        self.folder, self.settings = folder, settings
        try:
            self._lock_file = LockedFile(private_file(folder / LOCK), os.O_CREAT | os.O_RDWR, timeout=0.0)
        except TimeoutError:
            raise ValueError(f"another service works in {str(folder)!r}; stop it first.") from None
        self.records, self.log = Records(folder), AuditLog(folder)
        self._noise_source = noise_source if noise_source is not None else SystemNoise()
        self._populations = Populations(folder, self.records, self._noise_source)
        recover(folder, self.records)
        for request in self.records.abandoned():
            self._delete_request(request)
        spooled = {request_spool(folder, *request) for request in self.records.unanswered()}
        for place in set(spool_folder(folder).iterdir()) - spooled:
            shutil.rmtree(place, ignore_errors=True)  # of a process that was killed after its answer was stored
        self._lock = threading.Lock()
        self._request_locks: WeakValueDictionary[RequestId, threading.Lock] = WeakValueDictionary()
        self.records.keep_open()

    def close(self) -> None:
        """Release the folder."""
        self._populations.close()
        self.records.close()
        self._lock_file.close()

    def client(self, key: str | None) -> Client | None:
        """The owner of a key; it is looked up each time, so that keys change without a restart."""
        hashed = key_hash(key or "")
        # The look-up is by hash: its time shows at most how a hash begins, from which no key follows.
        found = [client for client in self.records.clients_with(hashed) if same_hash(client.hash, hashed)]
        return found[0] if found and key else None

    # -- public facts

    def facts(
        self, client: Client, name: str, plan: PlanCosts | None = None, receipt: int | None = None
    ) -> FactsResponse:
        """Public facts about a population; with a plan, how often it fits in; with a receipt's number, its link."""
        population = self._populations.get(name, client.populations)
        facts, ledger = population.facts, population.ledger
        receipts, head = self.records.head(name)
        fits: int | UnsetType = UNSET
        if plan is not None:
            costs: Counter[Cost] = Counter()
            for multiplier, count in plan.costs:
                costs[GaussianCost(multiplier)] += count
            fits = population.count_fits(client, costs)
        return FactsResponse(
            custodian=self.settings.name,
            population=name,
            columns=facts.columns,
            groups=facts.groups,
            neighbours=ADJACENCY["row"],
            epsilon=facts.epsilon,
            delta=facts.delta,
            spent=ledger.epsilon(),
            left=ledger.remaining(),
            client_epsilon=client.epsilon,
            roles=client.roles,
            debits=len(ledger.releases),
            receipts=receipts,
            head=head,
            rows_at_once=self.settings.largest_body // 2,
            largest_width=self.settings.largest_width,
            fits=fits,
            link=UNSET if receipt is None else self.records.link(name, receipt),
        )

    def ledger(self, client: Client, name: str) -> Any:
        """All debits with their client and purpose, and the chain of receipts."""
        require_role(client, "read")
        population = self._populations.get(name, client.populations)
        entries = json.loads(population.ledger.to_json())
        return entries | {"receipts": [receipt | {"link": link} for receipt, link in self.records.receipts(name)]}

    def certificate(self, client: Client, name: str, *, planned: int, subject: str) -> Any:
        """The certificate of the population's ledger; it quotes the client's statement as the client's."""
        population = self._populations.get(name, client.populations)
        made = self._certificate(population, planned=planned, subject=f"Everything that was answered about {name!r}")
        answers = "1 answer was" if planned == 1 else f"{planned} answers were"
        return replace(made, statement=f"{made.statement} {CLAIMED.format(answers=answers, subject=subject)}").to_dict()

    def _certificate(self, population: LoadedPopulation, *, planned: int, subject: str) -> Certificate:
        names = group_names(population.facts.groups, names=population.facts.columns)
        noise: dict[str, Any] = {"noise": self._noise_source.description, "reproduction": self._noise_source.seeded}
        made = population.ledger.certificate(groups=names, planned=planned, subject=subject, **noise)
        return Certificate.from_dict(made.to_dict() | {"custodian": self.settings.name})

    # -- cohorts

    def make_cohort(
        self, client: Client, name: str, ids: Sequence[str], cohorts: Sequence[str] = (), *, person: bool = False
    ) -> CohortResponse:
        """Store a cohort: ordered ids, or cohorts of the same population one after the other.

        An id that is not registered, or whose attribute is missing, counts as "not given"; the response does not depend
        on it.
        """
        require_role(client, "measure", "train")
        population = self._populations.get(name, client.populations)
        parts = self._load_cohorts(client, cohorts, person=person)
        made, persons = population.make_cohort(
            client.name, ids, parts, max_rows=self.settings.largest_cohort, person=person
        )
        stored, limit = self.records.size_of_cohorts(client.name), self.settings.largest_spool
        if stored + len(made.digests) > limit and self.records.cohort(made.id, client.name) is None:
            raise too_large(f"cohorts of at most {limit} bytes together, 16 for each id")
        self.records.put_cohort(made, client.name)
        return CohortResponse(cohort=made.id, people=made.rows, **persons)

    def _load_cohorts(self, client: Client, names: Sequence[str], *, person: bool) -> list[CohortRecord]:
        """Cohorts to concatenate: their rows are counted before any is loaded, and each is loaded once."""
        if not person and len(set(names)) < len(names):
            raise invalid_input("expected each cohort once, got one twice; rows of one person need 'person'.")

        def found(*, with_digests: bool) -> dict[str, CohortRecord]:
            records = {
                name: self.records.cohort(name, client.name, with_digests=with_digests) for name in dict.fromkeys(names)
            }
            if None in records.values():
                raise not_found("cohort")
            return {name: cohort for name, cohort in records.items() if cohort is not None}

        sizes, limit = found(with_digests=False), self.settings.largest_cohort
        if sum(sizes[name].rows for name in names) > limit:
            raise too_large(f"cohorts of at most {limit} rows together")
        cohorts = found(with_digests=True)
        return [cohorts[name] for name in names]

    def _cohort(self, client: Client, name: str) -> tuple[CohortRecord, LoadedPopulation]:
        cohort = self.records.cohort(name, client.name)
        if cohort is None:
            raise not_found("cohort")
        return cohort, self._populations.get(cohort.population, client.populations)

    # -- queries

    def sums(
        self, client: Client, cohort_name: str, query: SumsRequest, body: bytes | bytearray
    ) -> Answer | PartsResponse:
        """Take one part of the rows; return the answer once all parts have arrived, and their number until then."""
        require_role(client, "train")
        cohort, population = self._cohort(client, cohort_name)
        if query.part >= query.parts:
            raise invalid_input("expected part to be below parts, got more; parts are counted from 0.")
        rows = from_stream(body, max_width=self.settings.largest_width)  # refuses a malformed body
        request, digest = (client.name, query.request), hashlib.sha256(body).hexdigest()
        with self._request_lock(request):
            stored = self._stored_answer(request, query.digest(cohort.id), query.parts, population)
            # Of a request in one part, nothing is recorded before its answer.
            parts = {} if stored is None and query.parts == 1 else self.records.parts(*request)
            if parts.get(query.part, digest) != digest:
                raise REQUEST_ID_REUSED
            if stored is not None:
                if query.part not in parts:
                    raise REQUEST_ID_REUSED
                return stored
            source: Floats | DenseSource
            if query.parts == 1:
                source = _checked_rows(rows, cohort.rows)
            else:
                if query.part not in parts:
                    self._spool_part(request, query.part, digest, body)
                arrived = len(parts | {query.part: digest})
                if arrived < query.parts:
                    return PartsResponse(arrived, query.parts)
                files = [request_spool(self.folder, *request) / str(part) for part in range(query.parts)]
                with self._before_debit(request):
                    source = SpooledRows.from_files(files, max_width=self.settings.largest_width, rows=cohort.rows)
            noise = Gaussian(query.noise_multiplier)

            def answer(debit: Callable[[], object]) -> bytes:
                vault = population.vault(cohort)
                debit()
                return to_stream(vault.group_sums(source, bound=query.bound, noise=noise, purpose=query.purpose))

            bound = _BoundQuery(request, query.digest(cohort.id), None if query.parts > 1 else (digest, len(body)))
            cost = GaussianCost(query.noise_multiplier)
            return self._debit_and_answer(bound, client, population, query.purpose, cost, answer)

    def measurement(self, client: Client, cohort_name: str, query: MeasureRequest) -> Answer:
        """A private measurement of labels and decisions, in the order of the cohort."""
        require_role(client, "measure", "train")
        query.check()
        cohort, population = self._cohort(client, cohort_name)
        lists = [one for one in (query.y_true, query.y_pred, query.before, query.scores) if one is not None]
        if {len(one) for one in lists} != {cohort.rows}:
            raise invalid_input(
                f"expected {cohort.rows} labels and decisions, in the order of the cohort, got other numbers."
            )
        if query.delta * cohort.rows >= 1:
            raise invalid_input("expected delta to be below 1 over the number of rows, got more; choose a smaller one.")
        request = (client.name, query.request)
        with self._request_lock(request):
            stored = self._stored_answer(request, query.digest(cohort.id), 1, population)
            if stored is not None:
                return stored
            try:
                cost = GaussianCost(1 / gaussian_mu(query.epsilon, query.delta))
            except ValueError as error:
                raise invalid_input(str(error)) from None

            def answer(debit: Callable[[], object]) -> bytes:
                if not population.can_afford(cost):
                    debit()  # refuses, before anything is computed
                found = measure(
                    query.y_true,
                    query.y_pred,
                    sensitive_features=InVault(PaidVault(population.vault(cohort), debit)),
                    groups=list(population.facts.groups),
                    notion=query.notions or None,
                    metrics=query.metrics or None,
                    before=query.before,
                    scores=query.scores,
                    score_bins=query.score_bins,
                    reference=query.reference,
                    epsilon=query.epsilon,
                    delta=query.delta,
                    confidence=query.confidence,
                    threshold=query.threshold,
                    pos_label=1,
                    ledger=population.ledger,
                )
                return measurement_to_json(found, self._certificate(population, planned=1, subject="This measurement"))

            bound = _BoundQuery(request, query.digest(cohort.id), ("", 0))
            return self._debit_and_answer(bound, client, population, "group rates", cost, answer)

    def _stored_answer(self, request: RequestId, query: str, parts: int, population: LoadedPopulation) -> Answer | None:
        """The stored answer of a request, if there is one; the id of one in parts is bound to this query from now on.

        Raises
        ------
        RequestError
            If the id was bound to another query, or was debited and never answered.
        """
        record = self.records.request(*request)
        if record is None:
            if population.was_debited(*request):
                raise ANSWER_LOST
            if parts > 1:
                self.records.put_request(*request, query, parts, population.facts.name)
            return None
        if record.query != query:
            raise REQUEST_ID_REUSED
        if record.answer is not None and record.receipt is not None:
            return Answer(record.answer, record.receipt)
        if record.receipt is not None or population.was_debited(*request):
            raise ANSWER_LOST
        return None

    def _debit_and_answer(
        self,
        query: _BoundQuery,
        client: Client,
        population: LoadedPopulation,
        purpose: str,
        cost: Cost,
        answer: Callable[[Callable[[], object]], bytes],
    ) -> Answer:
        """Debit, compute, store, return.

        Parameters
        ----------
        answer : callable
            Gets a function to call right before it queries the vault. From that call until the answer is stored, a
            retirement of the population waits; so everything public is computed before it.
        """
        request = query.request

        def facts() -> dict[str, Any]:
            ledger = population.ledger.known_receipt()  # with this query's debit, and perhaps later ones
            return {"ledger": ledger, "client": client.name, "custodian": self.settings.name}

        try:
            with ExitStack() as debiting:
                body = answer(lambda: debiting.enter_context(population.debiting(client, request[1], cost, purpose)))
                new = NewAnswer(*request, query.digest, population.facts.name, body, facts, query.part)
                receipt = self.records.put_answer(new)
        except (RequestError, ValueError) as error:
            if query.part is None and not population.was_debited(*request):
                self._delete_request(request)
            raise error if isinstance(error, RequestError) else invalid_input(str(error)) from None
        if query.part is None:
            shutil.rmtree(request_spool(self.folder, *request), ignore_errors=True)
        return Answer(body, receipt)

    @contextmanager
    def _before_debit(self, request: RequestId) -> Iterator[None]:
        """Checks that come before any debit: where one fails, the request id is free again."""
        try:
            yield
        except (RequestError, ValueError) as error:
            self._delete_request(request)
            raise error if isinstance(error, RequestError) else invalid_input(str(error)) from None

    def _spool_part(self, request: RequestId, part: int, digest: str, body: bytes | bytearray) -> None:
        size, limit = max(len(body), _MIN_PART_BYTES), self.settings.largest_spool
        if self.records.spooled_bytes(request[0]) + size > limit:
            raise too_large(f"at most {limit} bytes that wait for the rest of their request")
        folder = private_folder(request_spool(self.folder, *request))
        private_file(folder / str(part)).write_bytes(body)
        if not self.records.put_part(*request, part, digest, size):
            self._delete_request(request)
            raise not_found("cohort")

    def _delete_request(self, request: RequestId) -> None:
        self.records.delete_request(*request)
        shutil.rmtree(request_spool(self.folder, *request), ignore_errors=True)

    def _request_lock(self, request: RequestId) -> threading.Lock:
        """Lock of one request: the same one, sent twice at once, is answered once."""
        with self._lock:
            return self._request_locks.setdefault(request, threading.Lock())


def _checked_rows(rows: Floats, expected: int) -> Floats:
    """These rows, or :class:`RequestError` where they are not as many as a cohort has."""
    if len(rows) != expected:
        raise wrong_rows(expected, len(rows))
    return rows


class InVault(HeldElsewhere):
    """In the place of ``sensitive_features``: a vault that is open already."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def open(self, _: VaultRequest) -> Vault:
        """That vault."""
        return self._vault


class PaidVault(Vault):
    """A vault that calls ``pay`` right before its one answer.

    Parameters
    ----------
    vault : Vault
    pay : callable
        Raises :class:`RequestError`, or holds the population until the answer is stored.
    """

    __slots__ = ("_pay", "_vault")

    def __init__(self, vault: Vault, pay: Callable[[], object]) -> None:
        super().__init__(vault.groups, vault.group_names, vault.column_names)
        self._vault, self._pay = vault, pay

    def __len__(self) -> int:
        return len(self._vault)

    @property
    def rows_per_person(self) -> int:
        """Of the vault."""
        return self._vault.rows_per_person

    @property
    def persons_digest(self) -> str:
        """Of the vault."""
        return self._vault.persons_digest

    @property
    def spent(self) -> Counter[Cost]:
        """Of the vault, which answers for others, too."""
        return self._vault.spent

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Do nothing: ``pay`` checks the budgets of population and client, while no other request can debit them."""

    def group_sums(
        self, values: Floats | DenseSource | RowFunction, *, bound: float, noise: Mechanism, purpose: str
    ) -> Array:
        """(G, d): the vault's answer."""
        self._pay()
        return self._vault.group_sums(values, bound=bound, noise=noise, purpose=purpose)

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """Of the vault."""
        return self._vault.certificate(planned=planned, claim=claim, subject=subject)


__all__ = ["Answer", "Service", "require_role"]
