"""The custodian without a network: what a client with a key may ask, in the order in which it is paid and answered.

A question goes through these steps, each on the disk before the next begins: its id stands for it; it is debited; it is
computed; its answer and receipt are kept; it is told. Killed after the debit, the debit stays, and nothing is ever
computed again under it. Killed after the answer was kept, the same request gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec import UNSET, UnsetType

from justitia.custodian import questions
from justitia.custodian.cohorts import joined
from justitia.custodian.journal import AuditLog
from justitia.custodian.measurements import measurement_bytes
from justitia.custodian.people import People, Populations, recover, run_name, spool_folder, spooled
from justitia.custodian.records import Client, Cohort, Records
from justitia.custodian.refusals import LOST, OTHER_BODY, Refused, not_allowed, too_large, unknown, wrong
from justitia.custodian.replies import Facts, Made, Received
from justitia.custodian.settings import Settings, private_file, private_folder
from justitia.custodian.wire import SpooledRows, from_stream, to_stream
from justitia.metrics.measure import measure
from justitia.privacy.accounting import Cost, GaussianCost, gaussian_mu
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.attribute import HeldElsewhere
from justitia.privacy.certificate import ADJACENCY, Certificate
from justitia.privacy.file_lock import LockedFile
from justitia.privacy.groups import Groups, group_names
from justitia.privacy.interface import Vault
from justitia.privacy.keys import key_hash, same_hash
from justitia.privacy.mechanisms import Gaussian, Noise, NoiseSource, SystemNoise
from justitia.privacy.rows import DenseSource
from justitia.privacy.vault import SensitiveVault

#: Keeps two services from working in one folder.
LOCK = "custodian.lock"
#: The part of a certificate that the custodian cannot check: it knows neither plans nor models.
CLAIMED = (
    "The client, not the custodian, states that {answers} planned before the first, and what was made of them: "
    "{subject!r}."
)
#: What the smallest part counts as: every file takes a block.
_LEAST = 4096
_LOCK_FLAGS = os.O_CREAT | os.O_RDWR


class Service:
    """All answers of one custodian.

    Parameters
    ----------
    folder : path
        The custodian's folder; nobody else works in it.
    settings : Settings
    noise_source : NoiseSource, optional
        The operating system's, but for tests.

    Guarantee
    ---------
    * What a client is told, beyond noised answers, is a function of what clients sent, of the ledger and of public
      facts: no attribute changes whether a request is answered, how, in how many bytes, or what it costs.
    * A debit is answered at most once, and no answer has no debit, whenever the process is killed.
    """

    def __init__(self, folder: Path, settings: Settings, noise_source: NoiseSource | None = None) -> None:
        self.folder, self.settings = folder, settings
        try:
            self._lock_file = LockedFile(private_file(folder / LOCK), _LOCK_FLAGS, timeout=0.0)
        except TimeoutError:
            raise ValueError(f"another service works in {str(folder)!r}; stop it first.") from None
        self.records, self.log = Records(folder), AuditLog(folder)
        self._source = noise_source if noise_source is not None else SystemNoise()
        self._populations = Populations(folder, self.records, self._source)
        recover(folder, self.records)
        for own in self.records.abandoned():
            self._drop(own)
        waiting = {self._place(own) for own in self.records.unanswered()}
        for place in set(spool_folder(folder).iterdir()) - waiting:
            shutil.rmtree(place, ignore_errors=True)  # of a process that was killed after its answer was kept
        self._one = threading.Lock()
        self._making: WeakKeyDictionary[People, threading.Lock] = WeakKeyDictionary()
        self._busy: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
        self.records.hold()

    def close(self) -> None:
        """Leave the folder to others."""
        self._populations.close()
        self.records.close()
        self._lock_file.close()

    # -- who asks

    def client(self, key: str | None) -> Client | None:
        """Whose key this is; keys are read anew each time, so that they change without a restart."""
        hashed = key_hash(key or "")
        found = [client for client in self.records.clients() if same_hash(client.hash, hashed)]
        return found[0] if found and key else None

    # -- public facts

    def facts(self, client: Client, name: str, plan: questions.Plan | None = None, receipt: int | None = None) -> Facts:
        """Public facts of a population; with a plan, how often it fits in; with a receipt's number, its link."""
        people = self._populations.people(name, client.populations)
        facts, ledger = people.facts, people.ledger
        number, head = self.records.head(name)
        fits: int | UnsetType = UNSET
        if plan is not None:
            costs: Counter[Cost] = Counter()
            for multiplier, count in plan.costs:
                costs[GaussianCost(multiplier)] += count
            fits = people.times(client, costs)
        return Facts(
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
            receipts=number,
            head=head,
            rows_at_once=self.settings.largest_body // 2,
            fits=fits,
            link=UNSET if receipt is None else self.records.link(name, receipt),
        )

    def ledger(self, client: Client, name: str) -> Any:
        """What was asked, by whom, for what; with the chain of receipts."""
        _need(client, "read")
        people = self._populations.people(name, client.populations)
        entries = json.loads(people.ledger.to_json())
        return entries | {"receipts": [receipt | {"link": link} for receipt, link in self.records.receipts(name)]}

    def certificate(self, client: Client, name: str, *, planned: int, subject: str) -> Any:
        """What the population's ledger can say; what the client says of it is quoted as the client's words."""
        people = self._populations.people(name, client.populations)
        made = self._certificate(people, planned=planned, subject=f"Everything that was answered about {name!r}")
        answers = "1 answer was" if planned == 1 else f"{planned} answers were"
        return replace(made, statement=f"{made.statement} {CLAIMED.format(answers=answers, subject=subject)}").to_dict()

    def _certificate(self, people: People, *, planned: int, subject: str) -> Certificate:
        names = group_names(people.facts.groups, names=people.facts.columns)
        noise: dict[str, Any] = {"noise": self._source.description, "reproduction": self._source.seeded}
        made = people.ledger.certificate(groups=names, planned=planned, subject=subject, **noise)
        return Certificate.from_dict(made.to_dict() | {"custodian": self.settings.name})

    # -- cohorts

    def make_cohort(
        self, client: Client, name: str, ids: Sequence[str], cohorts: Sequence[str] = (), *, person: bool = False
    ) -> Made:
        """Ordered people; whoever is not registered, or has not told, is "not given", and nobody hears of it.

        Instead of ids, cohorts of the same population: their people, one cohort after the other.
        """
        if not {"train", "measure"} & set(client.roles):
            raise not_allowed("measure")
        people = self._populations.people(name, client.populations)
        parts = self._joining(client, cohorts, person=person)
        made, grouped = joined(people, client.name, ids, parts, most=self.settings.largest_cohort, person=person)
        held, most = self.records.size_of_cohorts(client.name), self.settings.largest_spool
        if held + len(made.digests) > most and self.records.cohort(made.id, client.name) is None:
            raise too_large(f"cohorts of at most {most} bytes together, 16 for each id")
        self.records.put_cohort(made, client.name)
        return Made(cohort=made.id, people=made.people, **grouped)

    def _joining(self, client: Client, names: Sequence[str], *, person: bool) -> list[Cohort]:
        """Cohorts to join: their rows are counted before any is loaded, and each is loaded once."""
        if not person and len(set(names)) < len(names):
            raise wrong("expected each cohort once, got one twice; rows of one person need 'person'.")

        def found(*, whole: bool) -> dict[str, Cohort]:
            held = {name: self.records.cohort(name, client.name, whole=whole) for name in dict.fromkeys(names)}
            if None in held.values():
                raise unknown("cohort")
            return {name: cohort for name, cohort in held.items() if cohort is not None}

        sizes, most = found(whole=False), self.settings.largest_cohort
        if sum(sizes[name].people for name in names) > most:
            raise too_large(f"cohorts of at most {most} rows together")
        cohorts = found(whole=True)
        return [cohorts[name] for name in names]

    def _cohort(self, client: Client, name: str) -> tuple[Cohort, People]:
        cohort = self.records.cohort(name, client.name)
        if cohort is None:
            raise unknown("cohort")
        return cohort, self._populations.people(cohort.population, client.populations)

    # -- questions

    def sums(
        self, client: Client, cohort_name: str, asked: questions.Sums, body: bytes | bytearray
    ) -> Answer | Received:
        """One part of the rows; the answer once all parts are there, and how many have come until then."""
        _need(client, "train")
        cohort, people = self._cohort(client, cohort_name)
        if asked.part >= asked.parts:
            raise wrong("expected part to be below parts, got more; parts are counted from 0.")
        rows = from_stream(body, widest=self.settings.largest_width)
        del rows
        own = (client.name, asked.request)
        with self._at_once(own):
            kept = self._known(own, asked.digest(cohort.id), asked.parts, people)
            digest = hashlib.sha256(body).hexdigest()
            parts = self.records.parts(*own)
            if parts.get(asked.part, digest) != digest:
                raise OTHER_BODY
            if kept is not None:
                if asked.part not in parts:
                    raise OTHER_BODY
                return kept
            if asked.part not in parts:
                self._keep_part(own, asked.part, digest, body)
            come = len(parts | {asked.part: digest})
            if come < asked.parts:
                return Received(come, asked.parts)
            files = [self._place(own) / str(part) for part in range(asked.parts)]
            source = self._checked(
                own, lambda: SpooledRows.of(files, widest=self.settings.largest_width, rows=cohort.people)
            )
            noise = Gaussian(asked.noise_multiplier)
            given: dict[str, Any] = {"bound": asked.bound, "noise": noise, "purpose": asked.purpose}

            def answer(pay: Callable[[], object]) -> bytes:
                vault = self._vault(people, cohort)
                pay()
                return to_stream(vault.group_sums(source, **given))

            return self._answered(own, client, people, asked.purpose, GaussianCost(asked.noise_multiplier), answer)

    def measured(self, client: Client, cohort_name: str, asked: questions.Measure) -> Answer:
        """A private measurement of labels and decisions, in the order of the cohort."""
        if not {"train", "measure"} & set(client.roles):
            raise not_allowed("measure")
        asked.check()
        cohort, people = self._cohort(client, cohort_name)
        lists = [one for one in (asked.y_true, asked.y_pred, asked.before, asked.scores) if one is not None]
        if {len(one) for one in lists} != {cohort.people}:
            raise wrong(
                f"expected {cohort.people} labels and decisions, in the order of the cohort, got other numbers."
            )
        if asked.delta * cohort.people >= 1:
            raise wrong("expected delta to be below 1 over the number of people, got more; choose a smaller one.")
        own = (client.name, asked.request)
        with self._at_once(own):
            kept = self._known(own, asked.digest(cohort.id), 1, people)
            if kept is not None:
                return kept

            cost = self._checked(own, lambda: GaussianCost(1 / gaussian_mu(asked.epsilon, asked.delta)))

            def answer(pay: Callable[[], object]) -> bytes:
                if not people.can_pay(cost):
                    pay()  # refuses, before anything is computed
                found = measure(
                    asked.y_true,
                    asked.y_pred,
                    sensitive_features=InVault(PaidVault(self._vault(people, cohort), pay)),
                    groups=list(people.facts.groups),
                    notion=asked.notions or None,
                    metrics=asked.metrics or None,
                    before=asked.before,
                    scores=asked.scores,
                    score_bins=asked.score_bins,
                    reference=asked.reference,
                    epsilon=asked.epsilon,
                    delta=asked.delta,
                    confidence=asked.confidence,
                    threshold=asked.threshold,
                    pos_label=1,
                    ledger=people.ledger,
                )
                return measurement_bytes(found, self._certificate(people, planned=1, subject="This measurement"))

            return self._answered(own, client, people, "group rates", cost, answer)

    def _known(self, own: tuple[str, str], question: str, parts: int, people: People) -> Answer | None:
        """The stored answer of this request; from now on its id stands for this question.

        Raises
        ------
        Refused
            If it stood for another one, or was debited and never answered.
        """
        held = self.records.request(*own)
        if held is None:
            if people.was_debited(run_name(*own)):
                raise LOST
            self.records.put_request(*own, question, parts, people.facts.name)
            return None
        if held.question != question:
            raise OTHER_BODY
        if held.answer is not None and held.receipt is not None:
            return Answer(held.answer, held.receipt)
        if held.receipt is not None or people.was_debited(run_name(*own)):
            raise LOST
        return None

    def _answered(
        self,
        own: tuple[str, str],
        client: Client,
        people: People,
        purpose: str,
        cost: Any,
        answer: Callable[[Callable[[], object]], bytes],
    ) -> Answer:
        """Debit, compute, keep, tell.

        Parameters
        ----------
        answer : callable
            Gets a function to call right before it asks the vault. From that call until the answer is kept, others who
            ask about the same people wait; so whatever is public is computed before it.
        """
        try:
            with ExitStack() as paying:
                body = answer(lambda: paying.enter_context(people.paying(client, own[1], cost, purpose)))
                facts = {"ledger": people.ledger.receipt(), "client": client.name, "custodian": self.settings.name}
                receipt = self.records.keep_answer(*own, people.facts.name, body, facts)
        except (Refused, ValueError) as error:
            if not people.was_debited(run_name(*own)):
                self._drop(own)
            raise error if isinstance(error, Refused) else wrong(str(error)) from None
        shutil.rmtree(self._place(own), ignore_errors=True)
        return Answer(body, receipt)

    def _vault(self, people: People, cohort: Cohort) -> SensitiveVault:
        """The vault of a cohort, made by one thread at a time."""
        with self._one:
            lock = self._making.setdefault(people, threading.Lock())
        with lock:
            return people.vault(cohort)

    def _checked(self, own: tuple[str, str], look: Callable[[], Any]) -> Any:
        """What can still be wrong before anything is debited; the request id is then free again."""
        try:
            return look()
        except (Refused, ValueError) as error:
            self._drop(own)
            raise error if isinstance(error, Refused) else wrong(str(error)) from None

    def _drop(self, own: tuple[str, str]) -> None:
        self.records.forget_request(*own)
        shutil.rmtree(self._place(own), ignore_errors=True)

    def _keep_part(self, own: tuple[str, str], part: int, digest: str, body: bytes | bytearray) -> None:
        size = max(len(body), _LEAST)
        if self.records.waiting(own[0]) + size > self.settings.largest_spool:
            raise too_large(f"at most {self.settings.largest_spool} bytes that wait for the rest of their request")
        place = private_folder(self._place(own))
        private_file(place / str(part)).write_bytes(body)
        if not self.records.put_part(*own, part, digest, size):
            self._drop(own)
            raise unknown("cohort")

    def _place(self, own: tuple[str, str]) -> Path:
        return spooled(self.folder, *own)

    def _at_once(self, own: tuple[str, str]) -> threading.Lock:
        """Held while one request is looked at: the same one, sent twice at once, is answered once."""
        with self._one:
            return self._busy.setdefault(own, threading.Lock())


class Answer(NamedTuple):
    """Noised numbers, and the receipt of their debit as JSON."""

    body: bytes
    receipt: str


class InVault(HeldElsewhere):
    """Stands for people whose vault is open."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def open(self, **given: Any) -> Vault:
        """That vault."""
        del given
        return self._vault


class PaidVault(Vault):
    """A vault that pays right before its one answer.

    Parameters
    ----------
    vault : Vault
    pay : callable
        Refuses, or holds the population until the answer is kept.
    """

    __slots__ = ("_pay", "_vault")

    def __init__(self, vault: Vault, pay: Callable[[], object]) -> None:
        self._vault, self._pay = vault, pay

    def __len__(self) -> int:
        return len(self._vault)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Of the vault."""
        return self._vault.group_names

    @property
    def groups(self) -> Groups:
        """Of the vault."""
        return self._vault.groups

    @property
    def column_names(self) -> tuple[str, ...]:
        """Of the vault."""
        return self._vault.column_names

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
        """Nothing: the budgets of population and client are checked when it is paid, while nobody else pays."""

    def group_sums(self, values: Floats | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Array:
        """(G, d): the vault's answer."""
        self._pay()
        return self._vault.group_sums(values, bound=bound, noise=noise, purpose=purpose)

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """Of the vault."""
        return self._vault.certificate(planned=planned, claim=claim, subject=subject)


def _need(client: Client, role: str) -> None:
    if role not in client.roles:
        raise not_allowed(role)


__all__ = ["Answer", "Service"]
