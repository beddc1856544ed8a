"""Monitoring of one model over time: private measurements against a limit, a budget per period, and public drift.

The number of measurements is planned, and so are the budget and the probability of a false alarm. Everything is kept in
one folder that only this user can open: settings, one line of JSON per measurement, and the ledgers.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from justitia._files import make_file, read_object, staged_file
from justitia._validate import check_choice
from justitia.exceptions import BudgetExceeded, LedgerError
from justitia.metrics.drift import ColumnReference, Drift
from justitia.metrics.measure import measure
from justitia.metrics.measurement import Measurement
from justitia.notions import notion_name
from justitia.privacy.accounting import GaussianCost, epsilon_spent, gaussian_epsilon, gaussian_mu
from justitia.privacy.attribute import Attribute
from justitia.privacy.certificate import rounded_up
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.file_lock import LockedFile, sync_folder
from justitia.privacy.frames import protects_attribute
from justitia.privacy.vault import check_budget

SETTINGS, LINES, LEDGERS = "monitor.json", "measurements.jsonl", "ledgers"
#: Whether each measurement is about people who are in no other one, or all may be about the same people.
PEOPLE = ("new", "same")
#: Name of the scores among the columns whose drift is watched.
SCORES = "scores"
_SCHEMA = 1
_OWNER = 0o600
#: Seconds to wait for another process that adds a measurement.
_TIMEOUT = 600.0


@dataclass(frozen=True)
class MonitorSettings:
    """What was fixed when a monitor was made.

    Attributes
    ----------
    name : str
        Public name of the model.
    limit : float
        Violations above it are to be noticed.
    notion : str
    groups : list or dict
        The public list, as for :func:`~justitia.measure`.
    planned : int
        Number of measurements, over which false alarms are controlled.
    people : {"new", "same"}
    epsilon, delta : float
        Budget of one measurement about new people; of any ``window`` consecutive ones about the same people.
    window : int
    false_alarms : float
        Probability of any alert about the limit while it is kept, at most; and the same for alerts about drift.
    columns : dict
        Reference distribution of each public column whose drift is watched.
    """

    name: str
    limit: float
    notion: str
    groups: Any
    planned: int
    people: str
    epsilon: float
    delta: float
    window: int
    false_alarms: float
    columns: Mapping[str, ColumnReference] = field(default_factory=dict)
    schema: int = _SCHEMA

    def __post_init__(self) -> None:
        check_choice("people", self.people, PEOPLE)
        check_budget(self.epsilon, self.delta)
        notion_name(self.notion)
        if not self.name or not self.name.isprintable():
            raise ValueError(f"expected name to be text on one line, got {self.name!r}; choose another one.")
        if not 0 < self.limit < 1:
            raise ValueError(f"expected a limit between 0 and 1, got {self.limit!r}.")
        if math.isinf(self.epsilon):
            raise ValueError("expected a finite epsilon, got an infinite one; choose a budget.")
        for name in ("planned", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"expected {name} to be a whole number of at least 1, got {value!r}.")
        if not 0 < self.false_alarms <= 0.5:
            raise ValueError(f"expected false_alarms above 0 and at most 0.5, got {self.false_alarms!r}.")

    @property
    def level(self) -> float:
        """Probability of a false alarm at one measurement: each has an equal part of the whole."""
        return self.false_alarms / self.planned

    @property
    def drift_level(self) -> float:
        """The same of one column at one measurement."""
        return self.level / max(1, len(self.columns))

    @property
    def epsilon_each(self) -> float:
        """Epsilon of one measurement."""
        if self.people == "new":
            return self.epsilon
        return gaussian_epsilon(gaussian_mu(self.epsilon, self.delta) / math.sqrt(self.window), self.delta)

    @property
    def epsilon_total(self) -> float:
        """Epsilon for one person after all planned measurements."""
        if self.people == "new":
            return self.epsilon
        return epsilon_spent({GaussianCost(1 / gaussian_mu(self.epsilon_each, self.delta)): self.planned}, self.delta)

    @property
    def budget_sentence(self) -> str:
        """Which budget a person has, and on what condition."""
        total, delta = rounded_up(self.epsilon_total), rounded_up(self.delta)
        if self.people == "new":
            return (
                f"Every measurement is about new people and has a ledger of its own: epsilon {total} at delta {delta} "
                "for everyone, provided that nobody is in two measurements."
            )
        return (
            f"All measurements may be about the same people, so their costs add up: epsilon {rounded_up(self.epsilon)} "
            f"in any {self.window} consecutive measurements, and {total} after all {self.planned}, at delta {delta}."
        )

    @property
    def alarm_sentence(self) -> str:
        """The rule for false alarms, and why it holds."""
        return (
            f"Equal alpha spending: each of {self.planned} planned measurements alerts if its one-sided lower bound at "
            f"confidence {1 - self.level:.6g} is above {self.limit:g}. While the true violation stays at or below the "
            f"limit, the probability of any such alert is at most {self.false_alarms:g}, the sum of the probabilities "
            "of the single ones, however they depend on each other."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> MonitorSettings:
        """Inverse of :meth:`to_dict`."""
        columns = {
            name: ColumnReference(one["rows"], tuple(one["values"]), tuple(one["shares"]))
            for name, one in facts["columns"].items()
        }
        return MonitorSettings(**{**facts, "columns": columns})


@dataclass(frozen=True)
class MonitorEntry:
    """One measurement.

    Attributes
    ----------
    number : int
        From 1.
    when : str
    people : int
        Public number of rows.
    violation, at_least, at_most : float or None
        Noisy estimate, and its one-sided bounds at the confidence of one measurement; None without enough evidence.
    answer : {"above", "below", "not enough evidence", "lost"}
        "lost" where the process ended after the debit and before the result was kept.
    drift : dict
        Of each watched column: stability index, distance, probability, and whether it is an alert.
    receipt : dict
        Of the ledger.
    """

    number: int
    when: str
    people: int
    violation: float | None
    at_least: float | None
    at_most: float | None
    answer: str
    drift: Mapping[str, Mapping[str, Any]]
    receipt: Mapping[str, Any] | None

    @property
    def alerts(self) -> tuple[str, ...]:
        """Names of the alerts: "limit", and "drift of ..." for columns."""
        own = ("limit",) if self.answer == "above" else ()
        return (*own, *(f"drift of {name}" for name, one in self.drift.items() if one["alert"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"alerts": list(self.alerts)}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> MonitorEntry:
        """Inverse of :meth:`to_dict`."""
        return MonitorEntry(**{one.name: facts[one.name] for one in fields(MonitorEntry)})


class Monitor:
    """Measurements of one model over time, in one folder.

    Parameters
    ----------
    folder : path
        Made by :meth:`create`.

    Guarantee
    ---------
    * Each measurement is one :func:`~justitia.measure`, debited from a durable ledger before it is computed; alerts and
      files are made of its noisy result and of public columns, and hold no entry of the attribute.
    * About the same people, any ``window`` consecutive measurements cost at most epsilon, and all planned ones
      ``MonitorSettings.epsilon_total``; a further one is refused. About new people, each costs epsilon.
    * While the true violation is at or below the limit, any alert about it has at most the planned probability, where
      bounds of single measurements hold at their confidence (union bound over the planned measurements).

    Examples
    --------
    >>> from justitia import Monitor
    >>> monitor = Monitor.create("monitor", limit=0.1, groups=["a", "b"], planned=180, people="new")  # doctest: +SKIP
    >>> entry = monitor.add(decisions, sensitive_features=attribute)  # doctest: +SKIP
    >>> entry.alerts  # doctest: +SKIP
    ()
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / SETTINGS
        if not path.is_file():
            raise FileNotFoundError(
                f"expected the folder of a monitor, got {str(folder)!r} without {SETTINGS}; make one with "
                "Monitor.create, or 'justitia monitor create'."
            )
        facts = read_object(path)
        if facts.get("schema") != _SCHEMA:
            raise ValueError(f"expected a monitor of version {_SCHEMA} in {str(folder)!r}, got another; upgrade.")
        try:
            self.settings = MonitorSettings.from_dict(facts)
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"expected the settings of a monitor in {str(path)!r}, got other data; restore them."
            ) from None

    @classmethod
    def create(
        cls,
        folder: Path | str,
        *,
        limit: float,
        groups: Any,
        planned: int,
        people: str,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        window: int | None = None,
        notion: str = "demographic_parity",
        false_alarms: float = 0.05,
        name: str = "model",
        reference: Any = None,
        reference_scores: Any = None,
    ) -> Monitor:
        """Make the folder of a new monitor.

        Parameters
        ----------
        limit : float
            Alerts are about violations above it.
        groups : sequence of labels, or dict {column: labels}
            The public list of groups.
        planned : int
            Number of measurements.
        people : {"new", "same"}
            Whether each measurement is about people who are in no other one, or all may be about the same people.
        epsilon, delta : float
            Budget of one measurement about new people; of any ``window`` consecutive ones about the same people.
        window : int, optional
            By default all planned measurements.
        notion : str
        false_alarms : float
            Probability of any alert while the limit is kept.
        name : str
            Public name of the model.
        reference : DataFrame or dict of columns, optional
            Public features of the rows that the model was trained on: their drift is watched. Their distributions are
            stored as they are, so a column that ``groups`` names as sensitive is refused.
        reference_scores : array-like, optional
            Scores of the same rows.

        Raises
        ------
        FileExistsError
            If there is such a folder.
        """
        given = _columns(reference, reference_scores)
        _refuse_sensitive(given, groups if isinstance(groups, Mapping) else ())
        columns = {column: ColumnReference.from_values(column, values) for column, values in given.items()}
        settings = MonitorSettings(
            name=name,
            limit=float(limit),
            notion=notion,
            groups=_plain_groups(groups),
            planned=planned,
            people=people,
            epsilon=float(epsilon),
            delta=float(delta),
            window=planned if window is None else window,
            false_alarms=float(false_alarms),
            columns=columns,
        )
        text = json.dumps(settings.to_dict(), indent=2) + "\n"
        place = Path(folder)
        place.mkdir(mode=0o700)
        (place / LEDGERS).mkdir(mode=0o700)
        make_file(place / LINES, mode=_OWNER)
        with staged_file(place / SETTINGS, mode=_OWNER) as stage:
            stage.write_text(text, encoding="utf-8")
        sync_folder(place)
        return cls(place)

    # -- measurements

    @protects_attribute
    def add(
        self,
        y_pred: Any,
        *,
        sensitive_features: Any,
        y_true: Any = None,
        features: Any = None,
        scores: Any = None,
        when: str | None = None,
        person: Any = None,
        missing_marker: Any = None,
        pos_label: Any = None,
        noise_seed: int | None = None,
    ) -> MonitorEntry:
        """Measure the decisions of one period, and keep the result.

        Parameters
        ----------
        y_pred, sensitive_features, y_true, person, missing_marker, pos_label, noise_seed
            As for :func:`~justitia.measure`.
        features, scores : optional
            Public columns and scores of the same rows; those that the monitor watches are needed.
        when : str, optional
            Public name of the period; by default the present time.

        Raises
        ------
        ValueError
            If the monitor watches a column that has the name of a sensitive one, whose distribution would be exact.
        BudgetExceeded
            If all planned measurements were made.
        LedgerError
            If an earlier process ended after the debit of this measurement: it is recorded as lost, and the next call
            makes the next one.
        """
        sensitive_features = Attribute.from_container(sensitive_features)
        settings, name = self.settings, datetime.now(UTC).isoformat(timespec="seconds") if when is None else when
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"expected when to be text on one line, got {when!r}.")
        given = _columns(features, scores)
        _refuse_sensitive(settings.columns, getattr(sensitive_features, "names", ()))
        lacking = [column for column in settings.columns if column not in given]
        if lacking:
            raise ValueError(
                f"expected the column {lacking[0]!r}, which the monitor watches, got none; pass it among features or "
                "scores."
            )
        found = {column: one.drift(column, given[column]) for column, one in settings.columns.items()}
        with self._locked() as file:
            entries = _read_lines(file.read(), self.folder)
            number = len(entries) + 1
            if number > settings.planned:
                raise BudgetExceeded(
                    f"All {settings.planned} planned measurements of {settings.name!r} were made; false alarms and "
                    "budget are controlled over these. Make a new monitor."
                )
            if any(one.when == name for one in entries):
                raise ValueError(f"there is a measurement of {name!r} already; pass another name for the period.")
            ledger = self._ledger(number)
            if len(ledger.own_releases()) > 0:
                lost = MonitorEntry(number, name, 0, None, None, None, "lost", {}, ledger.receipt())
                _append(file, lost)
                raise LedgerError(
                    f"Measurement {number} of {settings.name!r} was debited and its result was not kept, because the "
                    "process ended; it is recorded as lost. Call again for the next one."
                )
            measured = measure(
                y_true,
                y_pred,
                sensitive_features=sensitive_features,
                groups=_groups(settings.groups),
                notion=settings.notion,
                epsilon=settings.epsilon_each,
                delta=settings.delta,
                confidence=1 - settings.level,
                threshold=settings.limit,
                person=person,
                missing_marker=missing_marker,
                pos_label=pos_label,
                ledger=ledger,
                noise_seed=noise_seed,
            )
            entry = self._entry(number, name, measured, found, ledger)
            _append(file, entry)
        return entry

    def _entry(
        self, number: int, when: str, measured: Measurement, drift: Mapping[str, Drift], ledger: DurableLedger
    ) -> MonitorEntry:
        (verdict,), level = measured.verdicts.values(), self.settings.drift_level
        numbers = [measured.violation.estimate, verdict.at_least, verdict.at_most]
        violation, at_least, at_most = (value if math.isfinite(value) else None for value in numbers)
        columns = {column: asdict(one) | {"alert": one.alert(level)} for column, one in drift.items()}
        receipt = ledger.receipt()
        return MonitorEntry(
            number, when, measured.people, violation, at_least, at_most, verdict.answer, columns, receipt
        )

    def _ledger(self, number: int) -> DurableLedger:
        """The ledger that pays for this measurement, under a run of its own."""
        settings = self.settings
        new = settings.people == "new"
        path = self.folder / LEDGERS / (f"{number:06d}.ledger" if new else "people.ledger")
        dataset = f"{settings.name}, measurement {number}" if new else settings.name
        return DurableLedger(
            path, dataset=dataset, epsilon=settings.epsilon_total, delta=settings.delta, run=f"measurement {number}"
        )

    def _locked(self) -> LockedFile:
        try:
            return LockedFile(self.folder / LINES, os.O_RDWR, timeout=_TIMEOUT)
        except TimeoutError:
            raise LedgerError(f"Another process adds a measurement to {str(self.folder)!r}; try again.") from None

    # -- results

    @property
    def entries(self) -> tuple[MonitorEntry, ...]:
        """All measurements so far."""
        return tuple(_read_lines((self.folder / LINES).read_bytes(), self.folder))

    @property
    def alerts(self) -> tuple[MonitorEntry, ...]:
        """Measurements with an alert."""
        return tuple(one for one in self.entries if one.alerts)

    def spent(self) -> float:
        """Epsilon that the measurements so far have cost one person at most."""
        paths = sorted((self.folder / LEDGERS).glob("*.ledger"))
        return max((DurableLedger.open(path).epsilon() for path in paths), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Settings, rules and measurements as plain data, for JSON and for the page."""
        settings = self.settings
        shown = {key: value for key, value in settings.to_dict().items() if key not in ("columns", "schema")}
        return shown | {
            "columns": list(settings.columns),
            "confidence_each": 1 - settings.level,
            "drift_level": settings.drift_level,
            "epsilon_each": settings.epsilon_each,
            "epsilon_total": settings.epsilon_total,
            "epsilon_spent": self.spent(),
            "budget": settings.budget_sentence,
            "rule": settings.alarm_sentence,
            "measurements": [one.to_dict() for one in self.entries],
        }

    def __repr__(self) -> str:
        made = len(self.entries)
        return f"Monitor({str(self.folder)!r}, {made} of {self.settings.planned} measurements)"


def _append(file: LockedFile, entry: MonitorEntry) -> None:
    """Add a line, to the disk; half a line of a killed process makes room for it."""
    content = file.read()
    file.write(json.dumps(entry.to_dict()).encode() + b"\n", at=content.rfind(b"\n") + 1)


def _read_lines(content: bytes, folder: Path) -> list[MonitorEntry]:
    found = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            entry = MonitorEntry.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError):
            entry = None
        if entry is None or entry.number != number:
            raise ValueError(
                f"expected measurement {number} in line {number} of {str(folder / LINES)!r}, got other data; restore."
            )
        found.append(entry)
    return found


def _columns(features: Any, scores: Any) -> dict[str, Any]:
    """Public columns by name."""
    if features is None:
        found: dict[str, Any] = {}
    elif isinstance(features, pd.DataFrame | Mapping):
        found = {str(name): features[name] for name in features}
    else:
        raise TypeError(
            f"expected a data frame or a dict of columns, got {type(features).__name__}; columns need names."
        )
    if scores is not None:
        if SCORES in found:
            raise ValueError(f"expected no column {SCORES!r} beside scores, got one; rename it.")
        found[SCORES] = scores
    return found


def _refuse_sensitive(watched: Iterable[str], sensitive: Iterable[Any]) -> None:
    """Refuse to watch a sensitive column: distributions and drift of watched columns are exact."""
    shared = {str(name) for name in sensitive if name is not None} & set(watched)
    if shared:
        raise ValueError(
            f"the column {min(shared)!r} is sensitive, and a monitor stores the exact distribution of what it watches; "
            "make a monitor whose reference does not have it."
        )


def _plain_groups(groups: Any) -> Any:
    """The list of groups as JSON has it."""
    if isinstance(groups, Mapping):
        return {str(name): list(labels) for name, labels in groups.items()}
    if isinstance(groups, str) or not isinstance(groups, Sequence) or not groups:
        raise ValueError("expected the public list of groups, got none; a list read off the data would tell about A.")
    return [list(one) if isinstance(one, tuple) else one for one in groups]


def _groups(plain: Any) -> Any:
    """Inverse of :func:`_plain_groups`."""
    return [tuple(one) if isinstance(one, list) else one for one in plain] if isinstance(plain, list) else plain


__all__ = ["Monitor", "MonitorEntry", "MonitorSettings"]
