"""The privacy part of a report as a record for OpenDP's public registry of differential-privacy deployments.

Names and order of the fields are those of the registry's records in 2026 (``opendp/deployments-registry-data``). What
only people can tell is left empty, and ``status`` stays "Draft".
"""

from __future__ import annotations

import math
from typing import Any

from justitia.privacy.ledger import Certificate
from justitia.report.about import About

DESCRIPTION = "A classifier that treats groups alike; the attribute that tells groups apart is protected."
TUNING = "None that reads the attribute outside the ledger is known to this package."
UNPROTECTED = (
    "Features, labels, ids of persons, the list of groups, the number of rows, all settings, and everything that is "
    "computed from these alone: accuracy, AUC, confusion and calibration of everybody, the base model."
)


def record_of(certificate: Certificate, about: About, title: str, created: str | None, version: str) -> dict[str, Any]:
    """Plain data, as the registry's YAML files have it.

    Parameters
    ----------
    certificate : Certificate
        Of the training run.
    title, created, version : str
        Of the report and of this package.
    """
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
                "description": DESCRIPTION,
                "publication_date": None if created is None else created[:10],
                "data_product_sector": about.get("sector"),
            },
            "dp_flavor": _flavor(certificate),
            "privacy_loss": _loss(certificate),
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
                "mechanisms": _mechanisms(certificate, version),
                "justification": None,
            },
            "resources": {"sources": None, "registry_authors": []},
        },
    }


def _flavor(certificate: Certificate) -> dict[str, Any]:
    finite = math.isfinite(certificate.epsilon) and not certificate.reproduction
    return {
        "name": "Approximate DP" if finite else None,
        "input_metric": "number of "
        + ("persons" if certificate.unit == "person" else "rows")
        + " whose attribute differs",
        "bound_on_input_distance": "1",
        "output_measure": "(epsilon, delta)-closeness" if finite else None,
        "bound_on_output_distance": None,
        "data_domain": "public rows, each with one label of a sensitive attribute or none",
        "unprotected_quantities": UNPROTECTED,
    }


def _loss(certificate: Certificate) -> dict[str, Any]:
    finite = math.isfinite(certificate.epsilon) and not certificate.reproduction
    return {
        "privacy_unit": f"the sensitive attribute of one {certificate.unit}",
        "privacy_unit_description": certificate.adjacency,
        "privacy_parameters": {"epsilon": certificate.epsilon, "delta": certificate.delta} if finite else {},
        "privacy_parameters_description": certificate.statement,
    }


def _mechanisms(certificate: Certificate, version: str) -> str:
    told = [f"{one['count']} x {one['mechanism']} ({one['purpose']})" for one in certificate.releases]
    asked = "; ".join(told) or "none"
    return (
        f"{asked}. Justitia {version}. Noise: {certificate.noise}. Sums are exact on a public grid, and noise is "
        "rounded to that grid, against floating-point errors. Running time and memory access are not covered."
    )
