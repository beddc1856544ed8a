"""Fits with a checkpoint."""

from pathlib import Path
from typing import Any

from justitia import LagrangianDualClassifier, PrivacyLedger

# One run of the small plan: group sizes; then three times a violation and a group gradient.
RELEASES = ["group sizes", *(["violation", "group gradient"] * 3)]


def fit(model: LagrangianDualClassifier, people: Any, folder: Path | None) -> LagrangianDualClassifier:
    return model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)


def journal(folder: Path, model: Any) -> list[str]:
    ledger = PrivacyLedger(epsilon=model.epsilon, delta=model.delta, journal=folder / "ledger.jsonl")
    return [release.purpose for release in ledger.releases]
