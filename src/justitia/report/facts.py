"""Facts of a report as JSON, with a record for OpenDP's public registry of differential-privacy deployments.

Names and order of the record's fields are those of the registry in 2026 (``opendp/deployments-registry-data``). Fields
that only people can fill in are left empty, and ``status`` stays "Draft".
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from justitia.privacy.ledger import Certificate
from justitia.report.contents import Contents, not_promised
from justitia.report.formatting import known
from justitia.report.inputs import About
from justitia.report.verdict import verdict_of

#: Kind of the file, by which an earlier report is recognised.
KIND = "report of a model by justitia"
DESCRIPTION = "A {} that treats groups alike; the attribute that tells groups apart is protected."
TUNING = "None that reads the attribute outside the ledger is known to this package."
UNPROTECTED = (
    "Features, labels, ids of persons, the list of groups, the number of rows, all settings, and everything that is "
    "computed from these alone: {} over all rows, the base model."
)
#: Public quality of a model, by kind of target.
PUBLIC_QUALITY = {
    "binary": "accuracy, AUC, confusion and calibration",
    "classes": "accuracy and confusion",
    "number": "R2 and errors",
}


def report_facts(contents: Contents) -> dict[str, Any]:
    """Everything that the page shows, without its charts."""
    measured = None
    if contents.measured is not None:
        measured = plain(asdict(contents.measured) | {"certificate": contents.measured.certificate.to_dict()})
    return {
        "kind": KIND,
        "version": contents.version,
        "title": contents.title,
        "created": contents.created,
        "stated": {**dict(contents.stated.rows), **contents.stated.given},
        "digests": dict(contents.digests),
        "trained": dict(contents.about),
        "features": dict(contents.features),
        "task": contents.task,
        "notion": contents.notion,
        "groups": list(contents.groups),
        "classes": list(contents.classes),
        "tolerance": contents.tolerance,
        "limits": asdict(contents.limits),
        "verdict": plain(asdict(verdict_of(contents))),
        "approval": dict(contents.stated.approval),
        "prices": plain([asdict(one) for one in contents.prices]),
        "proxies": plain([asdict(one) for one in contents.proxies]),
        "training": _training(contents),
        "measurement": measured,
        "curve": None if contents.curve is None else asdict(contents.curve),
        "log_complete": contents.log_complete,
        "looks": [asdict(one) for one in contents.measurement_log],
        "looks_say": list(contents.log_notes),
        "multipliers": None if contents.multipliers is None else contents.multipliers.to_dict(),
        "spending": [asdict(one) for one in contents.spending] if contents.private else [],
        "certificate": contents.certificate.to_dict(),
        "not_promised": list(not_promised(contents)),
        "settings": dict(contents.settings),
        "command": contents.command,
        "registry": registry_record(
            contents.certificate,
            contents.stated,
            contents.title,
            contents.created,
            contents.version,
            task=contents.task,
        ),
    }


def _training(contents: Contents) -> dict[str, Any]:
    """Public quality on training rows."""
    if contents.task == "number":
        return {"r2": contents.r2, "rounds": contents.rounds}
    return {"accuracy": contents.accuracy, "auc": contents.auc, "rounds": contents.rounds}


def plain(value: Any) -> Any:
    """Plain data for JSON; numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not known(value) else value


def registry_record(
    certificate: Certificate,
    about: About,
    title: str,
    created: str | None,
    version: str,
    *,
    task: str = "binary",
) -> dict[str, Any]:
    """Record in the form of the registry's YAML files.

    Parameters
    ----------
    certificate : Certificate
        Certificate of the training run.
    title, created, version : str
        Title and date of the report, and version of this package.
    task : {"binary", "classes", "number"}
        Kind of target.
    """
    finite = math.isfinite(certificate.epsilon) and not certificate.reproduction
    unit = "persons" if certificate.unit == "person" else "rows"
    releases = [f"{one['count']} x {one['mechanism']} ({one['purpose']})" for one in certificate.releases]
    return {
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": {
                "name": title,
                "data_curators": [about.get("owner")] if about.get("owner") else [],
                "intended_use": about.get("purpose"),
                "data_product_type": "Machine learning model",
                "data_product_region": about.get("region"),
                "description": DESCRIPTION.format("regressor" if task == "number" else "classifier"),
                "publication_date": None if created is None else created[:10],
                "data_product_sector": about.get("sector"),
            },
            "dp_flavor": {
                "name": "Approximate DP" if finite else None,
                "input_metric": f"number of {unit} whose attribute differs",
                "bound_on_input_distance": "1",
                "output_measure": "(epsilon, delta)-closeness" if finite else None,
                "bound_on_output_distance": None,
                "data_domain": "public rows, each with one label of a sensitive attribute or none",
                "unprotected_quantities": UNPROTECTED.format(PUBLIC_QUALITY[task]),
            },
            "privacy_loss": {
                "privacy_unit": f"the sensitive attribute of one {certificate.unit}",
                "privacy_unit_description": certificate.adjacency,
                "privacy_parameters": {"epsilon": certificate.epsilon, "delta": certificate.delta} if finite else {},
                "privacy_parameters_description": certificate.statement,
            },
            "model": {
                "model_name": "Central",
                "actors": None,
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Training on noised sums, decisions, multipliers, this report.",
                "composition": certificate.accountant,
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": TUNING,
                "mechanisms": f"{'; '.join(releases) or 'none'}. Justitia {version}. Noise: {certificate.noise}. Sums "
                "are exact on a public grid, and noise is rounded to that grid, against floating-point errors. Running "
                "time and memory access are not covered.",
                "justification": None,
            },
            "resources": {"sources": None, "registry_authors": []},
        },
    }
