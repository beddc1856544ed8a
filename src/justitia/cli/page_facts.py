"""What a page is made of, from a model's folder: every look, digests, the curve, and what people state."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

from justitia._files import MOST_JSON, read_bounded
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.looks import ROWS, SHARED, measurement_files
from justitia.cli.files.metadata import CURVE, read_json
from justitia.persistence.folder import MODEL
from justitia.privacy.ledger import Certificate


def folder_looks(folder: Path, facts: dict[str, Any], certificate: Certificate) -> list[dict[str, Any]]:
    """Facts of the training and of every measurement, oldest first; digests are of public rows alone."""
    training = {name: facts.get(name) for name in ("created", "data", "rows")}
    found = [{"name": "training", "certificate": certificate.to_dict(), "digest": digest_of(facts), **training}]
    for file in measurement_files(folder):
        kept = read_json(file) or {}
        name = str(int(file.stem.partition("-")[2]))
        found.append(kept | {"name": name, "digest": digest_of(kept), "shared_with": kept.get(SHARED)})
    return found


def digest_of(facts: dict[str, Any]) -> str | None:
    """Of the public rows that a file kept a sketch of."""
    kept = facts.get(ROWS)
    return kept.get("digest") if isinstance(kept, dict) else None


def model_digest(folder: Path) -> str:
    """Of the file that describes the model and holds the digests of its other files."""
    return hashlib.sha256(read_bounded(folder / MODEL, MOST_JSON)).hexdigest()


def folder_curve(folder: Path, tolerance: float | None) -> dict[str, Any] | None:
    """The curve that this model is a point of: its copy in the folder, or that of the folder around it."""
    own = read_json(folder / CURVE)
    around = folder.resolve().parent / CURVE
    if own is not None or tolerance is None or not around.is_file():
        return own
    found = read_json(around) or {}
    points = found.get("points") or []
    place = next((k for k, one in enumerate(points) if one.get("tolerance") == tolerance), None)
    named = folder.resolve().name == f"tolerance-{tolerance:g}"
    return found | {"chosen": place} if named and place is not None else None


def read_about(file: Path | None, **given: str | None) -> dict[str, Any]:
    """Fields of a small TOML file, and those given as options, which win.

    Raises
    ------
    Refusal
        If the file cannot be read as TOML.
    """
    stated: dict[str, Any] = {}
    if file is not None:
        try:
            stated = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise Refusal(f'{shown_path(file)} is no TOML; expected lines such as owner = "Credit risk".') from None
    return stated | {name: value for name, value in given.items() if value is not None}
