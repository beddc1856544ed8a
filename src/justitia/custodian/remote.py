"""Client of a custodian: stands in the place of ``sensitive_features`` where another party holds the attribute."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from justitia.custodian.connection import Connection, Receipts, read_key
from justitia.custodian.remote_vault import PART, Cohort, Places, RemoteVault
from justitia.custodian.wire import measurement_from_json
from justitia.exceptions import BudgetExceeded
from justitia.metrics.margins import margins
from justitia.metrics.measurement import Measurement
from justitia.notions import NOTIONS, get_notion, notion_name
from justitia.privacy.accounting import Cost, GaussianCost, gaussian_mu
from justitia.privacy.attribute import HeldElsewhere
from justitia.privacy.certificate import Certificate
from justitia.privacy.groups import public_groups
from justitia.privacy.joining import key_text
from justitia.privacy.keys import new_name
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.persons import Persons
from justitia.privacy.shards import Alone, Together


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
        self._places: Places | None = None
        self.connection = Connection(url, read_key(key_file), **tls)
        self._receipts = Receipts(None if receipts is None else Path(receipts), self.population)
        self._cohorts: dict[bool, Cohort] = {}
        self._known: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._ids) if self._places is None else self._places.rows[self._places.rank]

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

    def enrolled(self, ids: Iterable[Sequence[Any]], *, person: bool) -> str:
        """Send the ids of one process's rows, a few at a time; return the custodian's name for them."""
        found = self._sent(ids, person=person)
        return "" if found is None else found.name

    def _sent(self, ids: Iterable[Sequence[Any]], *, person: bool) -> Cohort | None:
        parts = [self._made(person=person, ids=part) for part in self._parts(ids)]
        if len(parts) < 2:
            return parts[0] if parts else None
        return self._made(person=person, cohorts=[part.name for part in parts])

    def placed(self, names: Sequence[str], rows: Sequence[int], *, rank: int, person: bool) -> Self:
        """The same custodian, for rows of several processes under the custodian's names for them."""
        found = copy(self)
        found._places, found._cohorts = Places(tuple(names), tuple(rows), rank, person), {}
        return found

    def cohort(self, *, person: bool) -> Cohort:
        """The custodian's cohort of all rows, in their order."""
        if person not in self._cohorts:
            names = () if self._places is None else self._places.names
            found = None if names else self._sent([self._ids], person=person)
            self._cohorts[person] = found or self._made(person=person, cohorts=[name for name in names if name])
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

    def open(
        self,
        *,
        groups: Any,
        epsilon: float,
        ledger: PrivacyLedger,
        n: int,
        person: Any,
        features: Iterable[str],
        noise_seed: int | None,
        missing_marker: Hashable,
        together: Together | None = None,
    ) -> RemoteVault:
        """A vault that queries the custodian.

        Raises
        ------
        ValueError
            If an argument asks for what a custodian does not offer, or the groups differ from the registered ones.
        """
        self._check(groups, epsilon, n, person=person, noise_seed=noise_seed, missing_marker=missing_marker)
        shared = sorted(set(self.columns) & {str(name) for name in features})
        if shared:
            raise ValueError(
                f"the column {shared[0]!r} is both a feature and what the custodian holds; drop it from X."
            )
        places = Places(("",), (n,), 0, person is not None) if self._places is None else self._places
        return RemoteVault(self, ledger, places, Alone(n) if together is None else together)

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
        if person is not None and Persons.of(person).digest != self.cohort(person=True).persons:
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
        grouped = asked["person"] is not None if self._places is None else self._places.person
        path = f"/v1/cohorts/{self.cohort(person=grouped).name}/measure"
        if asked["ledger"] is not None:  # the caller's own ledger, once the custodian has the ids and can afford it
            cost = GaussianCost(1 / gaussian_mu(asked["epsilon"], asked["delta"]))
            self.check_afford({cost: 1})
            asked["ledger"].debit(Release("group rates", cost, math.sqrt(2)))
        answer, headers = self.connection.post(path, text, "application/json")
        found = measurement_from_json(answer)
        signed = self.signed(found.certificate, self.received(answer, headers))
        return replace(found, certificate=signed, crossed=margins(tuple(self.groups), self.columns))

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
        pairs = [(cost.noise_multiplier, count) for cost, count in costs.items() if isinstance(cost, GaussianCost)]
        if len(pairs) != len(costs):
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
