"""``justitia train``: one model from one file."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Any

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import OK
from justitia.cli.files.columns import columns_text
from justitia.cli.files.rows import Rows
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.output import (
    check_apart,
    check_ledger_outside,
    fields_text,
    filled,
    staged_folder,
    tell,
    told_warnings,
    unhurried,
)
from justitia.cli.training import kept_of, rows_of, save, save_somewhere, unfitted
from justitia.cli.workers import joined, run_workers, starts_workers
from justitia.estimator import LagrangianDualClassifier
from justitia.persistence.folder import MODEL, foreign_in_model

EXAMPLE = """
$ justitia train income.csv --target income --sensitive sex \\
    --groups Female,Male --notion equalized_odds --epsilon 1 --out model
"""


@click.command("train", cls=Command, example=EXAMPLE)
@options.training
@options.tolerance
@options.workers
@options.ledger
@click.option(
    "--checkpoint",
    type=options.FILE,
    help="Folder to save to after every answer; the same command goes on from there. --seed is then 0 if not given.",
)
@options.out("Folder for the model.")
@options.as_json
def train(data: Path, workers: int, **settings: Any) -> int:
    """Train a classifier on DATA (CSV or Parquet) that treats groups alike.

    The sensitive column is removed from the features, read through noised answers alone, and never needed to predict.
    It may be in a file of its own (--sensitive-file, --key), so that those who prepare features never see it.

    How columns are read is printed; 'justitia plan' shows it before anything is spent.

    DATA may be a folder of Parquet files, or a pattern such as 'part-*.parquet': these are read a few rows at a time,
    by --workers processes.
    """
    if starts_workers(workers):
        return run_workers(workers, resumes=settings["checkpoint"] is not None)
    settings["stream"] = settings["stream"] or workers > 1
    if settings["checkpoint"] is not None and settings["seed"] is None:
        settings["seed"] = 0  # a run that goes on has to draw the same public numbers
    with joined() as rank:
        _train(data, rank, **settings)
    return OK


def _train(
    data: Path,
    rank: int,
    tolerance: float | None,
    checkpoint: Path | None,
    out: Path,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    rows = rows_of(data, settings)
    ledger = LedgerOptions.taken(settings)
    model = unfitted(rows, settings, tolerance=tolerance)
    if rank:
        model.fit(rows.X, rows.y, sensitive_features=rows.sensitive, person=rows.person, checkpoint=checkpoint)
        return
    check_ledger_outside(ledger.file, out)
    check_apart(checkpoint, out)
    place = staged_folder(out, overwrite=overwrite, marker=MODEL, foreign=foreign_in_model)
    with ExitStack() as until_saved, place as stage, told_warnings() as warnings:
        opened = ledger.open(model.delta)
        asked: dict[str, Any] = {"sensitive_features": rows.sensitive, "person": rows.person, "ledger": opened}
        model.fit(rows.X, rows.y, **asked, checkpoint=checkpoint)
        until_saved.enter_context(unhurried())
        facts = {"target": settings["target"], "kept": kept_of(rows, settings["target"])}
        written = save_somewhere(lambda folder: save(model, rows, folder, **facts), stage, out)
    facts = {"model": out, **written, "certificate": model.certificate_.to_dict(), "warnings": warnings}
    table = f"{columns_text(rows.readings)}\n\n" if isinstance(rows, Rows) else ""
    tell(facts, table + _text(model, facts, out), as_json=as_json)


def _text(model: LagrangianDualClassifier, facts: dict[str, Any], out: Path) -> str:
    certificate = model.certificate_
    violation = facts["noisy_violation"]
    lines = {
        "data": f"{facts['rows']:,} rows, {facts['columns']} features of {facts['data']}",
        "target": f"{facts['target']}; {facts['positive']!r} is the positive answer",
        "groups": f"{', '.join(certificate.groups)} ({certificate.groups_source})",
        "base": _base(facts),
        "notion": f"{model.notion}; tolerance: {_tolerance(model, facts)}",
        "accuracy": f"{facts['training_accuracy']:.3f} on the training rows, AUC {facts['training_auc']:.3f}",
        "violation": "" if violation is None else f"about {violation:.3f} there, by the last noised answers",
        "privacy": certificate.statement,
        "remarks": " ".join(one[:1].upper() + one[1:] for one in certificate.remarks if one not in facts["warnings"]),
    }
    following = "" if math.isinf(certificate.epsilon) else f"Next: justitia evaluate {quote(str(out))} OTHER-PEOPLE.csv"
    return "\n".join([f"Trained: {out}", fields_text(lines), *([filled(following)] if following else [])])


def _base(facts: dict[str, Any]) -> str:
    """What was corrected, if it was no network."""
    if "base" not in facts:
        return ""
    decided = "" if facts["threshold"] == 0.5 else f"; positive above {facts['threshold']:g}"
    return f"{facts['base']}{decided}"


def _tolerance(model: LagrangianDualClassifier, facts: dict[str, Any]) -> str:
    """The tolerance in force, and whether it was asked for."""
    if model.tolerance is not None:
        return f"{model.tolerance:g}"
    return "what chance allows" if facts["tolerance"] is None else f"{facts['tolerance']:.3g}, as none was given"
