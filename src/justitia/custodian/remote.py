"""Client of a custodian: stands in the place of ``sensitive_features`` where another party holds the attribute."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.custodian.connection import Connection, Receipts, read_key
from justitia.custodian.wire import ARROW, from_stream, measurement_from_json, to_stream
from justitia.exceptions import BudgetExceeded
from justitia.metrics.measurement import Measurement, column_margins
from justitia.notions import NOTIONS, get_notion, notion_name
from justitia.privacy.accounting import Cost, GaussianCost, gaussian_mu, gaussian_multipliers
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.attribute import HeldElsewhere
from justitia.privacy.bounding import check_bound, with_norm_rounding
from justitia.privacy.certificate import Certificate
from justitia.privacy.groups import group_names, public_groups
from justitia.privacy.interface import RowFunction, Vault, VaultRequest
from justitia.privacy.joining import key_text
from justitia.privacy.keys import new_name
from justitia.privacy.ledger import Release
from justitia.privacy.mechanisms import Gaussian, Mechanism
from justitia.privacy.persons import Persons
from justitia.privacy.rows import DenseSource

#: Bytes of rows in one request, unless the custodian accepts less.
PART = 8 << 20
#: Numbers in a row that a custodian of version 1.0 accepts, which does not say so.
OLD_WIDTH = 4096


class Cohort(NamedTuple):
    """The custodian's name for ordered ids, the maximum rows per person, and a digest of which rows are whose."""

    name: str
    rows_each: int
    persons: str


class Custodian(HeldElsewhere):
    """The attribute of a population that a custodian holds, in the place of ``sensitive_features``.

    Parameters
    ----------
    url : str
        Address of the service; plain HTTP only on this machine.
    population : str
        Name under which the population is registered.
    ids : sequence, or str
        Public id of each row, in the order of X; where X is in files, the name of their column. An id that is not
        registered counts as "not given". Each id once, unless the same ids are passed as ``person``.
    key_file : path, optional
        File with this client's key; otherwise the environment has it (``JUSTITIA_CUSTODIAN_KEY_FILE``, or
        ``JUSTITIA_CUSTODIAN_KEY``).
    ca_file, certificate, certificate_key : path, optional
        For TLS: the authority of the custodian's certificate, and a client certificate where the custodian asks for
        one.
    receipts : path, optional
        File that keeps receipts: the next client that uses it notices a ledger that was restored from an old copy.
    progress : bool
        Show a progress bar while rows are sent.

    Guarantee
    ---------
    * The client holds no attribute, no noise seed and no exact sum, because none is ever sent to it.
    * A request that is sent again after a lost connection is debited once.

    Examples
    --------
    >>> from justitia import LagrangianDualClassifier
    >>> from justitia.custodian import Custodian
    >>> holder = Custodian("https://hr.example:8787", population="staff", ids=X.index)  # doctest: +SKIP
    >>> model = LagrangianDualClassifier(epsilon=1.0, groups=holder.groups)  # doctest: +SKIP
    >>> model.fit(X, y, sensitive_features=holder)  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        *,
        population: str,
        ids: Iterable[Any] | str,
        key_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        certificate: Path | str | None = None,
        certificate_key: Path | str | None = None,
        receipts: Path | str | None = None,
        progress: bool = False,
    ) -> None:
        tls: dict[str, Any] = {"ca_file": ca_file, "certificate": certificate, "certificate_key": certificate_key}
        self.population, self.progress = str(population), progress
        self.column = ids if isinstance(ids, str) else None
        self._ids = [] if isinstance(ids, str) else [_text(one) for one in ids]
        self._rows, self._person = len(self._ids), False  # of files: whether ids name persons
        self.connection = Connection(url, read_key(key_file), **tls)
        self._receipts = Receipts(None if receipts is None else Path(receipts), self.population)
        self._cohorts: dict[bool, Cohort] = {}
        self._known: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def facts(self) -> Mapping[str, Any]:
        """Public facts about the population, as of the first request."""
        if self._known is None:
            self._known = self._facts()
        return self._known

    def _facts(self, **query: Any) -> dict[str, Any]:
        newest = self._receipts.newest
        asked = query if newest is None else query | {"receipt": newest}
        found: dict[str, Any] = self.connection.get(f"/v1/populations/{self.population}", **asked)
        if newest is not None:
            self._receipts.check_link(newest, found.get("link"))
        return found

    @property
    def groups(self) -> list[Any]:
        """The public list of groups, fixed when the population was registered."""
        return [tuple(one) if isinstance(one, list) else one for one in self.facts["groups"]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Public names of the sensitive columns."""
        return tuple(self.facts["columns"])

    def with_ids(self, ids: Iterable[Sequence[Any]], rows: int, *, person: bool) -> Self:
        """The same custodian, for rows of files with these ids, which come in parts."""
        found = copy(self)
        found._rows, found._person = rows, person
        found._cohorts = {person: found._sent(ids, person=person)}
        return found

    def _sent(self, ids: Iterable[Sequence[Any]], *, person: bool) -> Cohort:
        """The custodian's cohort of these ids, which are sent as many at a time as it accepts."""
        parts = [self._made(person=person, ids=part) for part in self._parts(ids)]
        return parts[0] if len(parts) == 1 else self._made(person=person, cohorts=[part.name for part in parts])

    def cohort(self, *, person: bool) -> Cohort:
        """The custodian's cohort of all rows, in their order."""
        if person not in self._cohorts:
            self._cohorts[person] = self._sent([self._ids], person=person)
        return self._cohorts[person]

    def _made(self, *, person: bool, **people: Sequence[Any]) -> Cohort:
        body = json.dumps(people | {"person": person}).encode()
        path = f"/v1/populations/{self.population}/cohorts"
        answer = json.loads(self.connection.post(path, body, "application/json")[0])
        return Cohort(str(answer["cohort"]), int(answer.get("rows_each", 1)), str(answer.get("persons", "")))

    def _parts(self, ids: Iterable[Sequence[Any]]) -> Iterator[list[str]]:
        """Ids as text, as many at a time as the custodian accepts."""
        most, size = min(PART, int(self.facts["rows_at_once"])), 0
        held: list[str] = []
        for one in (_text(one) for part in ids for one in part):
            held.append(one)
            size += len(json.dumps(one)) + 2
            if size > most:
                yield held
                held, size = [], 0
        if held:
            yield held

    def open(self, request: VaultRequest) -> RemoteVault:
        """A vault that queries the custodian.

        Raises
        ------
        ValueError
            If the request needs what a custodian does not offer, or the groups differ from the registered ones.
        """
        if request.missing == "none":
            raise ValueError(
                "expected missing='allowed' where a custodian holds the attribute, got 'none'; the holder decides "
                "who has given it, so leave missing out."
            )
        private = {"noise_seed": request.noise_seed, "missing_marker": request.missing_marker}
        self._check(request.groups, request.epsilon, request.n, person=request.person, **private)
        shared = sorted(set(self.columns) & {str(name) for name in request.features})
        if shared:
            raise ValueError(
                f"the column {shared[0]!r} is both a feature and what the custodian holds; drop it from X."
            )
        return RemoteVault(self, request, person=request.person is not None or self._person)

    def _check(self, groups: Any, epsilon: float, n: int, *, person: Any, **private: Any) -> None:
        if n != len(self):
            named = "" if self.column is None else f"; ids={self.column!r} is the name of a column, which files have"
            raise ValueError(f"expected one id per row for the custodian, got {len(self)} for {n} rows{named}.")
        if math.isinf(epsilon):
            raise ValueError(
                "expected a finite epsilon with a custodian, got none: it gives no exact answer; pass one."
            )
        refused = [name for name, value in private.items() if value is not None]
        if refused:
            raise ValueError(
                f"{refused[0]} is not for those who ask a custodian: noise and labels are its own; drop it."
            )
        if groups is not None and public_groups(groups, names=self.columns) != tuple(self.groups):
            raise ValueError(
                f"expected the groups that the custodian registered, {self.groups}, got others; pass holder.groups."
            )
        if person is not None and Persons.from_ids(person).digest != self.cohort(person=True).persons:
            raise ValueError(
                "expected the custodian's ids in person, got ids that group rows otherwise; pass the same."
            )

    def measured(self, truth: NDArray[np.int64], decided: NDArray[np.int64], **asked: Any) -> Measurement | None:
        """One measurement by the custodian; None if it is too long for one request."""
        names = ("person", "noise_seed", "missing_marker")
        self._check(asked["groups"], asked["epsilon"], len(truth), **{name: asked[name] for name in names})
        numbers = {name: asked[name] for name in ("epsilon", "delta", "confidence", "threshold")}
        lists = {"notions": _notions(asked["notion"]), "metrics": _listed(asked["metrics"])}
        body = {"request": new_name(), "y_true": truth.tolist(), "y_pred": decided.tolist()} | numbers | lists
        more = {name: asked[name] for name in ("before", "scores", "reference") if asked[name] is not None}
        text = json.dumps(body | more | {"score_bins": asked["score_bins"]}).encode()
        if more and len(text) > 2 * int(self.facts["rows_at_once"]) and "train" in self.facts["roles"]:
            return None
        grouped = asked["person"] is not None or self._person
        path = f"/v1/cohorts/{self.cohort(person=grouped).name}/measure"
        if asked["ledger"] is not None:  # the caller's own ledger, once the custodian has the ids and can afford it
            cost = GaussianCost(1 / gaussian_mu(asked["epsilon"], asked["delta"]))
            self.check_afford({cost: 1})
            asked["ledger"].debit(Release("group rates", cost, math.sqrt(2)))
        answer, headers = self.connection.post(path, text, "application/json")
        found = measurement_from_json(answer)
        signed = self.signed(found.certificate, self.received(answer, headers))
        return replace(found, certificate=signed, crossed=column_margins(tuple(self.groups), self.columns))

    def received(self, answer: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """The receipt of an answer, checked and kept."""
        receipt = json.loads(headers.get("justitia-receipt", "{}"))
        if receipt.get("answer") != hashlib.sha256(answer).hexdigest():
            raise ValueError(
                "expected the receipt of this answer from the custodian, got another; is this its address?"
            )
        if not self._receipts.keep(receipt):
            self._facts()  # checks that the custodian still has the newest one
        return dict(receipt)

    def signed(self, certificate: Certificate, receipt: Mapping[str, Any] | None) -> Certificate:
        """A certificate of the custodian's ledger, with its address and the last receipt."""
        named = f"{certificate.custodian} at {self.connection.url}, population {self.population!r}"
        held = dict(certificate.receipt or {})
        if receipt is not None:
            held |= {name: receipt[name] for name in ("population", "number", "request", "link")}
        return replace(certificate, custodian=named, receipt=held)

    def check_afford(self, costs: Mapping[Cost, int]) -> None:
        """Raise :class:`~justitia.BudgetExceeded` if the custodian's budgets do not allow a plan."""
        pairs = gaussian_multipliers(costs)
        if pairs is None:
            raise ValueError("expected a plan whose releases are all Gaussian with a custodian, got others.")
        facts = self._facts(plan=json.dumps({"costs": pairs}))
        if facts["fits"] < 1:
            raise BudgetExceeded(
                f"the custodian's budget of {self.population!r} does not allow this plan: epsilon {facts['epsilon']:g} "
                f"with {facts['spent']:.4g} spent, {facts['left']:.4g} left for one answer"
                f"{_own_budget(facts['client_epsilon'])}. Use fewer or noisier releases."
            )

    def __repr__(self) -> str:
        return f"Custodian({self.connection.url!r}, population={self.population!r}, {self._ids_text()})"

    def _ids_text(self) -> str:
        return f"ids of {len(self)} rows" if self.column is None else f"ids={self.column!r}"


class RemoteVault(Vault):
    """Queries a custodian, and keeps a ledger of its own.

    Parameters
    ----------
    holder : Custodian
    request : VaultRequest
        Its ledger is this run's own, debited before the custodian is queried; the custodian's ledger is the one that
        counts.
    person : bool
        Whether ids name persons with several rows.
    """

    __slots__ = ("_holder", "_last", "_ledger", "_n", "_person", "_source", "_spent")

    def __init__(self, holder: Custodian, request: VaultRequest, *, person: bool) -> None:
        groups = tuple(holder.groups)
        super().__init__(groups, group_names(groups, names=holder.columns))
        self._holder, self._ledger, self._source = holder, request.ledger, request.source
        self._n, self._person = request.n, person
        self._last: Mapping[str, Any] | None = None
        self._spent: Counter[Cost] = Counter()

    def __len__(self) -> int:
        return self._n

    @property
    def rows_per_person(self) -> int:
        """Maximum rows of one person, by the custodian's count; 1 where every id has one row."""
        return self._cohort.rows_each if self._person else 1

    @property
    def persons_digest(self) -> str:
        """Public digest of which rows are one person's; empty where a row is the unit of protection."""
        return self._cohort.persons if self._person else ""

    @property
    def _cohort(self) -> Cohort:
        return self._holder.cohort(person=self._person)

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Check both ledgers, and that the custodian accepts these ids, before anything is debited here.

        Raises
        ------
        PermissionError
            If this client may not send rows.
        BudgetExceeded
            If a ledger does not allow these costs.
        """
        self._ledger.check(costs)
        roles = self._holder.facts["roles"]
        if "train" not in roles:
            raise PermissionError(
                f"expected a client of the custodian with the role 'train', got {', '.join(map(repr, roles))}; models, "
                "and measurements of several classes or of numbers, send rows, and only that role may."
            )
        _ = self._cohort
        self._holder.check_afford(costs)

    @property
    def spent(self) -> Counter[Cost]:
        """How often each cost was debited by this vault from this run's own ledger."""
        return Counter(self._spent)

    def group_sums(
        self, values: Floats | DenseSource | RowFunction, *, bound: float, noise: Mechanism, purpose: str
    ) -> Array:
        """(G, d): noised sums, computed by the custodian from the rows that are sent to it in parts."""
        if not isinstance(noise, Gaussian):
            raise ValueError("the custodian answers with Gaussian noise only; pass a finite epsilon.")
        rows = values[:, None] if isinstance(values, np.ndarray) and values.ndim == 1 else values
        width = rows.shape[1] if isinstance(rows, np.ndarray) else rows.width
        if not callable(rows) and len(rows) != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got {len(rows)}.")
        most = int(self._holder.facts.get("largest_width", OLD_WIDTH))
        if width > most:
            raise ValueError(
                f"expected rows of at most {most} numbers for the custodian, got {width}; use fewer features, merge "
                "classes, or ask the custodian for a larger largest_width."
            )
        if callable(rows) and self._source is None:
            raise ValueError("expected a row source for rows that are a function of blocks, got none; pass an array.")
        query = {"request": new_name(), "purpose": purpose, "bound": repr(check_bound(bound))}
        query |= {"noise_multiplier": repr(float(noise.noise_multiplier))}
        each = max(1, min(PART, int(self._holder.facts["rows_at_once"])) // (8 * width))
        path, parts = f"/v1/cohorts/{self._cohort.name}/sums", max(1, math.ceil(len(self) / each))
        sensitivity = math.sqrt(2) * with_norm_rounding(bound, width) * self.rows_per_person
        self._ledger.debit(Release(purpose, noise.cost(), sensitivity, "person" if self._person else "row"))
        self._spent[noise.cost()] += 1
        answer, headers, sent = b"", cast("Mapping[str, str]", {}), 0
        with tqdm(total=len(self), disable=not self._holder.progress, unit="row", desc=purpose) as bar:
            for number, part in enumerate(_parts_of(self._blocks(rows), each, width)):
                # The custodian answers the part that completes the request.
                post = self._holder.connection.post
                answer, headers = post(path, to_stream(part), ARROW, **query, part=number, parts=parts)
                bar.update(len(part))
                sent += len(part)
        if sent != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got {sent}.")
        self._last = self._holder.received(answer, headers)
        return from_stream(answer, max_width=2**31 - 1).copy()

    def _blocks(self, rows: Any) -> Iterator[Floats]:
        """The rows in order, a few at a time."""
        if isinstance(rows, np.ndarray):
            return iter([rows])
        if callable(rows):
            assert self._source is not None  # noqa: S101 - checked before the debit
            return iter(self._source.map(rows))
        return (part for _, part in rows.dense())

    def certificate(
        self,
        *,
        planned: int = 1,
        claim: dict[str, Any] | None = None,  # noqa: ARG002 - of engines that need a local vault
        subject: str = "Every output of training",
    ) -> Certificate:
        """The certificate of the custodian's ledger, about all answers about this population so far."""
        path = f"/v1/populations/{self._holder.population}/certificate"
        facts = self._holder.connection.get(path, planned=planned, subject=subject)
        return self._holder.signed(Certificate.from_dict(facts), self._last)

    def __repr__(self) -> str:
        return f"RemoteVault(n={len(self)}, groups={list(self.group_names)})"


def _parts_of(blocks: Iterable[Floats], each: int, width: int) -> Iterator[Array]:
    """The same rows, ``each`` at a time; one empty part if there are none."""
    held: list[Array] = []
    size, begun = 0, False
    for rows in blocks:
        if rows.shape != (len(rows), width):
            raise ValueError(f"Expected {width} columns in every row; got rows of shape {rows.shape}.")
        held.append(rows.astype(np.float64, copy=False))
        size += len(rows)
        while size >= each:
            joined = np.concatenate(held)
            yield joined[:each]
            held, size, begun = [joined[each:]], size - each, True
    if size or not begun:
        yield np.concatenate([np.empty((0, width)), *held])


def _text(one: Any) -> str:
    """An id as the text by which the custodian compares ids."""
    found = key_text(one.item() if hasattr(one, "item") else one)
    if found is None:
        raise ValueError("expected an id for every row, got rows without one; give every row its id.")
    return found


def _notions(notion: Any) -> list[str]:
    for one in _listed(notion):
        name = notion_name(one)
        if name not in NOTIONS or (not isinstance(one, str) and type(one) is not type(get_notion(name))):
            raise ValueError(
                f"expected notions that the custodian knows by name, got {name!r}; pass one of {sorted(NOTIONS)}."
            )
    return [notion_name(one) for one in _listed(notion)]


def _listed(values: Any) -> list[Any]:
    if values is None:
        return []
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


def _own_budget(epsilon: float | None) -> str:
    return "" if epsilon is None else f"; this client's own budget is {epsilon:g}"


__all__ = ["Custodian"]
