"""Vault of a client: sends public rows to a custodian in parts, and gets noisy sums and a receipt back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.custodian.connection import Connection
from justitia.custodian.wire import ARROW, from_stream, to_stream
from justitia.privacy.accounting import Cost
from justitia.privacy.arrays import Array, Floats, Index
from justitia.privacy.bounding import check_bound, with_norm_rounding
from justitia.privacy.certificate import Certificate
from justitia.privacy.groups import Groups, group_names
from justitia.privacy.interface import Vault
from justitia.privacy.keys import new_name
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.mechanisms import Gaussian, Noise
from justitia.privacy.rows import ArrayRows, DenseSource
from justitia.privacy.shards import Together

#: Bytes of rows in one request, unless the custodian accepts less.
PART = 8 << 20
#: Number of a part among those of all processes, and its rows.
Part = tuple[int, Array]


class Cohort(NamedTuple):
    """The custodian's name for ordered ids, the maximum rows per person, and a digest of which rows are whose."""

    name: str
    rows_each: int
    persons: str


class Places(NamedTuple):
    """Processes that have rows of one fit: the custodian's names for their ids, and how many rows each has."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    rank: int
    person: bool

    def parts(self, each: int) -> tuple[int, int]:
        """Number of the first part of this process, and of all parts, with ``each`` rows in a part."""
        counts = [max(1, math.ceil(rows / each)) for rows in self.rows]
        return sum(counts[: self.rank]), sum(counts)


class CustodianClient(Protocol):
    """What a vault needs of :class:`~justitia.custodian.Custodian`, which imports this module."""

    connection: Connection
    population: str
    progress: bool

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def groups(self) -> list[Any]: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def cohort(self, *, person: bool) -> Cohort: ...

    def check_afford(self, costs: Mapping[Cost, int]) -> None: ...

    def received(self, answer: bytes, headers: Mapping[str, str]) -> dict[str, Any]: ...

    def signed(self, certificate: Certificate, receipt: Mapping[str, Any] | None) -> Certificate: ...


class RemoteVault(Vault):
    """Queries a custodian, and keeps a ledger of its own.

    Where there are several processes, each sends its own rows as parts of one request of the first process. The
    custodian has all of them before it debits once, sums once and draws noise once, and only the first process gets the
    answer.

    Parameters
    ----------
    holder : Custodian
    ledger : PrivacyLedger
        This run's own ledger, debited before the custodian is queried; the custodian's ledger is the one that counts.
    places : Places
    together : Together
        The other processes.
    """

    __slots__ = ("_holder", "_last", "_ledger", "_places", "_spent", "_together")

    def __init__(self, holder: CustodianClient, ledger: PrivacyLedger, places: Places, together: Together) -> None:
        self._holder, self._ledger, self._places, self._together = holder, ledger, places, together
        self._last: Mapping[str, Any] | None = None
        self._spent: Counter[Cost] = Counter()

    def __len__(self) -> int:
        return self._places.rows[self._places.rank]

    @property
    def groups(self) -> Groups:
        """The public list of labels."""
        return tuple(self._holder.groups)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Their printable names."""
        return group_names(self.groups, names=self._holder.columns)

    @property
    def rows_per_person(self) -> int:
        """Maximum rows of one person, by the custodian's count; 1 where every id has one row."""
        return self._cohort.rows_each if self._places.person else 1

    @property
    def persons_digest(self) -> str:
        """Public digest of which rows are one person's; empty where a row is the unit of protection."""
        return self._cohort.persons if self._places.person else ""

    @property
    def _cohort(self) -> Cohort:
        return self._holder.cohort(person=self._places.person)

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Check both ledgers, and that the custodian accepts these ids, before anything is debited here."""
        self._ledger.check(costs)
        _ = self._cohort
        self._holder.check_afford(costs)

    @property
    def spent(self) -> Counter[Cost]:
        """How often each cost was debited by this vault from this run's own ledger."""
        return Counter(self._spent)

    def group_sums(self, values: Floats | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Array:
        """(G, d): noisy sums, which the custodian computes from the rows that are sent to it."""
        if not isinstance(noise, Gaussian):
            self._not_here("an answer without noise", "pass a finite epsilon")
        source = _rows_of(values)
        self._check_length(source)
        asked = {"request": new_name(), "purpose": purpose, "bound": repr(check_bound(bound))}
        asked |= {"noise_multiplier": repr(float(noise.noise_multiplier))}
        most = min(PART, int(self._holder.facts["rows_at_once"]))
        job = {"asked": asked, "cohort": self._cohort.name, "each": max(1, most // (8 * source.width))}
        unit = "person" if self._places.person else "row"
        sensitivity = math.sqrt(2) * with_norm_rounding(bound, source.width) * self.rows_per_person
        self._ledger.debit(Release(purpose, noise.cost(), sensitivity, unit))
        self._spent[noise.cost()] += 1
        self._together.begin(_RowsWithMessage(source, job), bound=bound, step=0.0)
        last = self._send(source, job, but_last=True)
        self._together.add(_nothing(source))  # all other parts have arrived
        answer, headers = self._post(last, job)
        self._last = self._holder.received(answer, headers)
        return from_stream(answer, max_width=2**31 - 1).copy()

    def contribute(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Send the rows of this process, as parts of the request of the first one."""
        del bound, step
        self._check_length(source)
        self._send(source, _message(source))
        self._together.add(_nothing(source))

    def _send(self, source: DenseSource, job: Mapping[str, Any], *, but_last: bool = False) -> Part:
        """Send all parts of these rows, one after the other; return the last, which is not sent if ``but_last``."""
        first, _ = self._places.parts(job["each"])
        bar = tqdm(total=len(self), disable=not self._holder.progress, unit="row", desc=job["asked"]["purpose"])
        last: Part | None = None
        with bar:
            for number, rows in enumerate(_regrouped(source, job["each"]), start=first):
                if last is not None:
                    self._post(last, job)
                last = (number, rows)
                bar.update(len(rows))
        assert last is not None  # noqa: S101 - there is one part at least
        if not but_last:
            self._post(last, job)
        return last

    def _post(self, part: Part, job: Mapping[str, Any]) -> tuple[bytes, Mapping[str, str]]:
        number, rows = part
        _, parts = self._places.parts(job["each"])
        path = f"/v1/cohorts/{job['cohort']}/sums"
        return self._holder.connection.post(path, to_stream(rows), ARROW, **job["asked"], part=number, parts=parts)

    def _check_length(self, source: DenseSource) -> None:
        if len(source) != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got {len(source)}.")

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """The certificate of the custodian's ledger, about all answers about this population so far."""
        del claim
        path = f"/v1/populations/{self._holder.population}/certificate"
        facts = self._holder.connection.get(path, planned=planned, subject=subject)
        return self._holder.signed(Certificate.from_dict(facts), self._last)

    def __repr__(self) -> str:
        return f"RemoteVault(n={len(self)}, groups={list(self.group_names)})"


def _rows_of(values: Floats | DenseSource) -> DenseSource:
    if not isinstance(values, np.ndarray):
        return values
    return ArrayRows(values[:, None] if values.ndim == 1 else values)


def _regrouped(source: DenseSource, each: int) -> Iterator[Array]:
    """The same rows, ``each`` at a time."""
    held: list[Array] = []
    size, begun = 0, False
    for _, rows in source.dense():
        held.append(rows.astype(np.float64, copy=False))
        size += len(rows)
        while size >= each:
            joined = np.concatenate(held)
            yield joined[:each]
            held, size = [joined[each:]], size - each
            begun = True
    if size or not begun:
        yield np.concatenate([np.empty((0, source.width)), *held])


class _RowsWithMessage:
    """Rows, and the message that makes other processes send theirs."""

    def __init__(self, source: DenseSource, job: dict[str, Any]) -> None:
        self._source = source
        self.message = _message(source) | job

    def __len__(self) -> int:
        return len(self._source)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self._source.width

    def dense(self) -> Iterator[tuple[Index, Floats]]:
        """Yield ``(positions, rows)``."""
        return self._source.dense()


def _message(source: DenseSource) -> dict[str, Any]:
    return dict(getattr(source, "message", {}))


def _nothing(source: DenseSource) -> NDArray[np.int64]:
    """Zeros that a process adds instead of a sum, which the custodian computes; a fault is reported with them."""
    return np.zeros(int(_message(source).get("numbers", 0)), dtype=np.int64)


__all__ = ["PART", "Cohort", "Places", "RemoteVault"]
