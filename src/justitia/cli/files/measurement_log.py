"""Measurement log of a model: its training and every measurement, which rows they used, and their total cost."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from justitia._files import make_file
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.metadata import FACTS, ROWS, read_json
from justitia.cli.files.public_rows import RowHashes, Sketch
from justitia.metrics.composition import joint_statement
from justitia.privacy.ledger import Certificate

_NAME = re.compile(r"measurement-\d+\.json")
#: Field of measurements: names of earlier ones with the same individuals. Reports leave it out.
SHARED = "shared_with"
#: Field of measurements that are a part of a comparison: the names of all its models.
COMPARED = "compared"
HIDDEN_FIELDS = frozenset({ROWS, SHARED})


@dataclass(frozen=True)
class LogRecord:
    """The training of a model, or one measurement of it.

    Attributes
    ----------
    name : str
        "training", or the number of the measurement.
    certificate : Certificate
    sketch : Sketch or None
        Summary of the public rows that were used; None if there is none.
    shared_with : tuple of str
        Names of earlier entries that used some of the same individuals, or may have.
    """

    name: str
    certificate: Certificate
    sketch: Sketch | None
    shared_with: tuple[str, ...] = ()

    @property
    def ledger(self) -> str | None:
        """The ledger that paid, local or a custodian's; its certificate covers everything on it."""
        return (self.certificate.receipt or {}).get("ledger")

    def to_dict(self) -> dict[str, Any]:
        """Fields that are stored besides the certificate."""
        return {ROWS: None if self.sketch is None else self.sketch.to_dict(), SHARED: list(self.shared_with)}


# -- Files


def measurement_files(folder: Path) -> list[Path]:
    """Measurements in a model's folder, the newest last."""
    return sorted((one for one in folder.iterdir() if _NAME.fullmatch(one.name)), key=_number)


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def newest_measurement(folder: Path) -> dict[str, Any] | None:
    """The newest measurement in a model's folder, with the number of its kind as ``measurements``.

    Measurements of ``evaluate`` come first, because ``compare`` divides its budget among several models and measures
    one notion.
    """
    kept = [found for found in map(read_json, measurement_files(folder)) if found is not None]
    alone = [one for one in kept if not one.get(COMPARED)]
    listed = alone or kept
    return listed[-1] | {"measurements": len(listed)} if listed else None


def add_measurement(text: str, stage: Path, folder: Path) -> Path:
    """Write a measurement beside the earlier ones; none is replaced, even if another process measures now."""
    draft = stage / "measurement.json"
    draft.write_text(text, encoding="utf-8")
    number = max((_number(one) for one in measurement_files(folder)), default=0)
    while True:
        number += 1
        target = folder / f"measurement-{number:03d}.json"
        try:
            make_file(target)
        except FileExistsError:
            continue
        return draft.replace(target)


def read_log(folder: Path, certificate: Certificate) -> list[LogRecord]:
    """The training of a model, which has this certificate, and every measurement of it.

    Raises
    ------
    Refusal
        If a measurement cannot be read, because its cost is then unknown.
    """
    facts = read_json(folder / FACTS) or {}
    log = [LogRecord("training", certificate, Sketch.from_dict(facts.get(ROWS)))]
    for file in measurement_files(folder):
        kept = read_json(file) or {}
        try:
            paid = Certificate.from_dict(kept["certificate"])
            shared = tuple(str(one) for one in kept[SHARED])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refusal(
                f"{shown_path(file)} is damaged, so what it cost is not known; restore it, or pass --ledger and move "
                "it away."
            ) from None
        log.append(LogRecord(str(_number(file)), paid, Sketch.from_dict(kept.get(ROWS)), shared))
    return log


def log_facts(folder: Path, facts: Mapping[str, Any], certificate: Certificate) -> list[dict[str, Any]]:
    """Facts of the training and of every measurement for a report, oldest first; digests are of public rows."""
    training = {name: facts.get(name) for name in ("created", "data", "rows")}
    found = [{"name": "training", "certificate": certificate.to_dict(), "digest": rows_digest(facts), **training}]
    for file in measurement_files(folder):
        kept = read_json(file) or {}
        name = str(_number(file))
        found.append(kept | {"name": name, "digest": rows_digest(kept), "shared_with": kept.get(SHARED)})
    return found


def rows_digest(facts: Mapping[str, Any]) -> str | None:
    """Digest of the public rows whose summary a file contains."""
    kept = facts.get(ROWS)
    return kept.get("digest") if isinstance(kept, dict) else None


# -- Rows that were used before, and what that costs


def find_shared(rows: RowHashes, log: Sequence[LogRecord], data: str, model: str = "the model") -> tuple[str, ...]:
    """Names of entries that used some of these individuals, or may have; warnings say so."""
    found = {entry.name: rows.overlap(entry.sketch) for entry in log}
    if found["training"] == "shared":
        warn_training_rows(data, model)
    elif found["training"] == "unknown":
        warnings.warn(
            f"the folder of {model} does not show whether rows of {data!r} were used for training, so the costs of "
            "training and measurement are added.",
            stacklevel=2,
        )
    again = [name for name, overlap in found.items() if overlap != "apart" and name != "training"]
    if again:
        warnings.warn(
            f"rows of {data!r} were, or may have been, measured before (measurement {', '.join(again)} of {model}); "
            "the costs of all these measurements add up.",
            stacklevel=2,
        )
    return tuple(name for name, overlap in found.items() if overlap != "apart")


def warn_training_rows(data: str, model: str) -> None:
    """Warn that training rows are measured."""
    warnings.warn(
        f"rows of {data!r} are rows that {model} was trained on; the bounds are for rows that were not and do not hold "
        "here, and the costs of training and measurement add up.",
        stacklevel=3,
    )


def total_cost(log: Sequence[LogRecord], own: LogRecord) -> str | None:
    """Sentence with the total cost of the new entry and the earlier ones; None if one ledger counts them all.

    Entries that share individuals belong together, and so do entries paid by one ledger, whose last certificate covers
    everything that it paid for. Costs of entries that belong together are added, and the largest sum counts.
    """
    entries = [*log, own]
    places = {entry.name: place for place, entry in enumerate(entries)}
    edges = [(places[entry.name], places[name]) for entry in entries for name in entry.shared_with if name in places]
    edges += [
        (place, later)
        for place, entry in enumerate(entries)
        for later in range(place + 1, len(entries))
        if entry.ledger is not None and entry.ledger == entries[later].ledger
    ]
    parts = connected_parts(edges, len(entries))
    mine = next(part for part in parts if places[own.name] in part)
    after = [one for one in _certificates(mine, entries) if one is not own.certificate]
    apart = [_certificates(part, entries) for part in parts if part is not mine]
    return joint_statement(own.certificate, after=after, apart=apart) if after or apart else None


def connected_parts(edges: Sequence[tuple[int, int]], number: int) -> list[set[int]]:
    """Connected components of a graph with the vertices 0 .. number - 1."""
    parts = [{place} for place in range(number)]
    for edge in edges:
        joined = [part for part in parts if part & set(edge)]
        parts = [part for part in parts if part not in joined] + [set().union(*joined)]
    return parts


def _certificates(part: set[int], entries: Sequence[LogRecord]) -> list[Certificate]:
    """Certificates of some entries, of each ledger the last."""
    last = {entries[place].ledger or f"none {place}": entries[place].certificate for place in sorted(part)}
    return list(last.values())
