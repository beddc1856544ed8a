"""The facts of a report as plain data, for programs: what page and card say, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from justitia.report.contents import Contents
from justitia.report.formatting import known
from justitia.report.inputs import MeasurementInput
from justitia.report.promises import not_promised
from justitia.report.registry import record_of

#: By this a file is recognised as ours.
KIND = "report of a model by justitia"


def report_facts(contents: Contents) -> dict[str, Any]:
    """Everything on the page but its pictures."""
    return {
        "kind": KIND,
        "version": contents.version,
        "title": contents.title,
        "created": contents.created,
        "stated": {**dict(contents.stated.rows), **contents.stated.given},
        "digests": dict(contents.digests),
        "trained": dict(contents.about),
        "features": dict(contents.features),
        "notion": contents.notion,
        "groups": list(contents.groups),
        "classes": list(contents.classes),
        "tolerance": contents.tolerance,
        "training": {"accuracy": contents.accuracy, "auc": contents.auc, "rounds": contents.rounds},
        "measurement": None if contents.measured is None else _measurement(contents.measured),
        "curve": None if contents.curve is None else asdict(contents.curve),
        "looks": [asdict(one) for one in contents.looks],
        "looks_say": list(contents.looks_say),
        "multipliers": None if contents.multipliers is None else contents.multipliers.to_dict(),
        "spending": [asdict(one) for one in contents.spending] if contents.private else [],
        "certificate": contents.certificate.to_dict(),
        "not_promised": list(not_promised(contents)),
        "settings": dict(contents.settings),
        "command": contents.command,
        "registry": record_of(
            contents.certificate, contents.stated, contents.title, contents.created, contents.version
        ),
    }


def _measurement(measured: MeasurementInput) -> dict[str, Any]:
    facts = asdict(measured) | {"certificate": measured.certificate.to_dict()}
    cleaned: dict[str, Any] = plain(facts)
    return cleaned


def plain(value: Any) -> Any:
    """Numbers that JSON has, and None for the others."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not known(value) else value
