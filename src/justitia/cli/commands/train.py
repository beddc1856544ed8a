"""``justitia train``: one model from one file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import numpy as np

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal
from justitia.cli.files.facts import FACTS, training_facts
from justitia.cli.files.looks import LEDGER, ROWS
from justitia.cli.files.people import People, read_people
from justitia.cli.files.public_rows import public_rows
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.output import (
    check_ledger_outside,
    facts_text,
    filled,
    json_text,
    staged_folder,
    tell,
    told_warnings,
    warn,
)
from justitia.cli.plan_file import read_plan
from justitia.estimator import LagrangianDualClassifier, check_parameters
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.vault import INFER
from justitia.saving.folder import MODEL, foreign_in_model

EXAMPLE = """
$ justitia train income.csv --target income --sensitive sex \\
    --groups Female,Male --notion equalized_odds --epsilon 1 --out model
"""
NO_GROUPS = (
    "expected the public list of groups, got none; pass --groups A,B, or --groups infer to read the list off the data, "
    "which does not protect it."
)
NOT_PROTECTED = "the list of groups is read off the data and is not protected; name it with --groups."


@click.command("train", cls=Command, example=EXAMPLE)
@click.argument("data", type=options.FILE)
@options.target
@options.attribute
@options.columns
@options.training
@click.option("--tolerance", type=float, help="Largest difference allowed between a group and the population.")
@options.ledger
@click.option("--out", type=options.FILE, required=True, help="Folder for the model.")
@options.overwrite
@options.as_json
def train(data: Path, tolerance: float | None, out: Path, overwrite: bool, as_json: bool, **settings: Any) -> None:
    """Train a classifier on DATA (CSV or Parquet) that treats groups alike.

    The sensitive column is removed from the features, read through noised answers alone, and never needed to predict.
    It may be in a file of its own (--sensitive-file, --key), so that those who prepare features never see it.
    """
    people = people_of(data, settings)
    ledger = LedgerOptions.taken(settings)
    model = unfitted(people, settings, tolerance=tolerance)
    check_ledger_outside(ledger.file, out)
    place = staged_folder(out, overwrite=overwrite, marker=MODEL, foreign=foreign_in_model)
    with place as stage, told_warnings() as warnings:
        opened = ledger.open(model.delta)
        model.fit(people.X, people.y, sensitive_features=people.labels, person=people.person, ledger=opened)
        written = save(
            model, people, stage, target=settings["target"], kept=kept_of(people, settings["target"], opened)
        )
    facts = {"model": out, **written, "certificate": model.certificate_.to_dict(), "warnings": warnings}
    tell(facts, _text(model, facts, out), as_json=as_json)


def people_of(data: Path, settings: dict[str, Any]) -> People:
    """The file, by the options of a command that trains."""
    if settings["target"] is None:
        raise Refusal("expected the name of the column to predict, got none; pass --target NAME.")
    people = read_people(
        data,
        settings.pop("where"),
        target=settings["target"],
        positive=settings.pop("positive"),
        features=settings.pop("features"),
        drop=settings.pop("drop"),
    )
    if people.attribute.groups is None:
        if not people.attribute.infer and math.isfinite(settings["epsilon"]):
            raise Refusal(NO_GROUPS)
        warn(NOT_PROTECTED)
    return people


def unfitted(people: People, settings: dict[str, Any], *, tolerance: float | None = None) -> LagrangianDualClassifier:
    """A model with the settings of the command line, which are checked before a ledger is opened."""
    model = LagrangianDualClassifier(
        settings["notion"],
        epsilon=settings["epsilon"],
        delta=settings["delta"],
        tolerance=tolerance,
        groups=INFER if people.attribute.infer else people.attribute.groups,
        engine=settings["engine"],
        module=settings["hidden"],
        plan=read_plan(settings["plan_file"], settings["engine"]),
        random_state=settings["seed"],
    )
    check_parameters(model)
    return model


def kept_of(people: People, target: str, ledger: DurableLedger | None) -> dict[str, Any]:
    """What later measurements need to tell whether the same people are looked at again."""
    identity = None if ledger is None else ledger.identity
    return {ROWS: public_rows(people, target).sketch.to_dict(), LEDGER: identity}


def save(
    model: LagrangianDualClassifier, people: People, folder: Path, *, target: str, kept: dict[str, Any]
) -> dict[str, Any]:
    """Write model, facts and what else is ``kept``; the model answers in the target's own words."""
    model.classes_ = np.array(people.classes)
    model.save(folder)
    facts = training_facts(model, people, target=target)
    (folder / FACTS).write_text(json_text(facts | kept), encoding="utf-8")
    return facts


def _text(model: LagrangianDualClassifier, facts: dict[str, Any], out: Path) -> str:
    certificate = model.certificate_
    violation = facts["noisy_violation"]
    asked = "as small as the noise allows" if model.tolerance is None else f"{model.tolerance:g}"
    lines = {
        "data": f"{facts['rows']:,} rows, {facts['columns']} features of {facts['data']}",
        "target": f"{facts['target']}; {facts['positive']!r} is the positive answer",
        "groups": f"{', '.join(certificate.groups)} ({certificate.groups_source})",
        "notion": f"{model.notion}; tolerance: {asked}",
        "accuracy": f"{facts['training_accuracy']:.3f} on the training rows",
        "violation": "" if violation is None else f"about {violation:.3f} there, by the last noised answers",
        "privacy": certificate.statement,
        "remarks": " ".join(certificate.remarks),
    }
    following = "" if math.isinf(certificate.epsilon) else f"Next: justitia evaluate {out} OTHER-PEOPLE.csv"
    return "\n".join([f"Trained: {out}", facts_text(lines), *([filled(following)] if following else [])])
