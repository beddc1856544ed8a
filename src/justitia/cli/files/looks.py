"""Every look at people through one model, its training and its measurements, and what they cost together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from justitia._files import make_file
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.metadata import FACTS, read_json
from justitia.cli.files.public_rows import PublicRows, Sketch, united
from justitia.metrics.composition import joint_statement
from justitia.privacy.ledger import Certificate

_NAME = re.compile(r"measurement-\d+\.json")
#: In training.json and in measurements: for the next look, not for readers.
ROWS, SHARED = "public_rows", "shared_with"
#: In measurements that are a part of a table: the names of all its models.
COMPARED = "compared"
UNSHOWN = frozenset({ROWS, SHARED})


@dataclass(frozen=True)
class Look:
    """One release about people: its certificate, a sketch of their public rows, and the earlier looks they are in.

    Attributes
    ----------
    name : str
        "training", or the number of the measurement.
    shared_with : tuple of str
        Names of earlier looks that these people are in, or may be in.
    """

    name: str
    certificate: Certificate
    sketch: Sketch | None
    shared_with: tuple[str, ...] = ()

    @property
    def ledger(self) -> str | None:
        """Which ledger paid, one's own or a custodian's; its certificate speaks of everything on it."""
        return (self.certificate.receipt or {}).get("ledger")

    def to_keep(self) -> dict[str, Any]:
        """What later looks need to know of this one, besides its certificate."""
        sketch = None if self.sketch is None else self.sketch.to_dict()
        return {ROWS: sketch, SHARED: list(self.shared_with)}


def measurement_files(folder: Path) -> list[Path]:
    """Measurements in a model's folder, the newest last."""
    return sorted((one for one in folder.iterdir() if _NAME.fullmatch(one.name)), key=_number)


def newest_measurement(folder: Path) -> dict[str, Any] | None:
    """The last measurement in a model's folder, with the number of its kind as ``measurements``.

    One of ``evaluate`` if there is any: ``compare`` shares its budget among several models and asks for one notion.
    """
    kept = [found for found in map(read_json, measurement_files(folder)) if found is not None]
    alone = [one for one in kept if not one.get(COMPARED)]
    listed = alone or kept
    return listed[-1] | {"measurements": len(listed)} if listed else None


def keep_measurement(text: str, stage: Path, folder: Path) -> Path:
    """Put a measurement beside the earlier ones, none of which is replaced, whoever measures at the same time."""
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


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def training_sketch(facts: Mapping[str, Any]) -> Sketch | None:
    """What a model's facts keep of the public rows that it was trained on."""
    return Sketch.from_dict(facts.get(ROWS))


def earlier_looks(folder: Path, certificate: Certificate) -> list[Look]:
    """The training and every measurement of it.

    Raises
    ------
    Refusal
        If a measurement cannot be read: what it cost is then not known.
    """
    facts = read_json(folder / FACTS) or {}
    looks = [Look("training", certificate, training_sketch(facts))]
    for file in measurement_files(folder):
        kept = read_json(file) or {}
        try:
            paid = Certificate.from_dict(kept["certificate"])
            shared = tuple(str(one) for one in kept[SHARED])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refusal(
                f"{shown_path(file)} is damaged, so what it cost is not known; put it back as it was, or pass --ledger "
                "and move it away."
            ) from None
        looks.append(Look(str(_number(file)), paid, Sketch.from_dict(kept.get(ROWS)), shared))
    return looks


def shared_with(rows: PublicRows, looks: Sequence[Look], data: str, model: str = "the model") -> tuple[str, ...]:
    """Looks that these people are in, or may be in; a warning says so."""
    found = {look.name: rows.overlap(look.sketch) for look in looks}
    if found["training"] == "shared":
        warn_trained_on(data, model)
    elif found["training"] == "unknown":
        warnings.warn(
            f"whether people of {data!r} were trained on cannot be told from the folder of {model}, so the costs of "
            "training and measurement are added.",
            stacklevel=2,
        )
    again = [name for name, how in found.items() if how != "apart" and name != "training"]
    if again:
        warnings.warn(
            f"people of {data!r} were, or may have been, measured before (measurement {', '.join(again)} of {model}); "
            "the costs of all looks at them add up.",
            stacklevel=2,
        )
    return tuple(name for name, how in found.items() if how != "apart")


def warn_trained_on(data: str, model: str) -> None:
    """Say what a measurement of the training's own people is worth."""
    warnings.warn(
        f"rows of {data!r} are rows that {model} was trained on: the bounds speak of new people and do not hold for "
        "these, and the costs of training and measurement add up.",
        stacklevel=3,
    )


def joint_sentence(looks: Sequence[Look], own: Look) -> str | None:
    """What the new look and the earlier ones cost together; None if one ledger counts them all.

    Looks that share people are in one lot, and so are looks paid by one ledger, whose last certificate speaks of all
    that it paid for. Costs of a lot are added, and the largest lot counts.
    """
    listed = [*looks, own]
    places = {look.name: place for place, look in enumerate(listed)}
    edges = [(places[look.name], places[name]) for look in listed for name in look.shared_with if name in places]
    edges += [
        (place, later)
        for place, look in enumerate(listed)
        for later in range(place + 1, len(listed))
        if look.ledger is not None and look.ledger == listed[later].ledger
    ]
    lots = united(edges, len(listed))
    mine = next(lot for lot in lots if places[own.name] in lot)
    after = [one for one in _paid(mine, listed) if one is not own.certificate]
    apart = [_paid(lot, listed) for lot in lots if lot is not mine]
    return joint_statement(own.certificate, after=after, apart=apart) if after or apart else None


def _paid(lot: set[int], looks: Sequence[Look]) -> list[Certificate]:
    """Certificates of a lot, of each ledger the last."""
    last = {looks[place].ledger or f"none {place}": looks[place].certificate for place in sorted(lot)}
    return list(last.values())
