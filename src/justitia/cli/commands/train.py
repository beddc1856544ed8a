"""``justitia train``: train one model on one file."""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import OK
from justitia.cli.files.columns import columns_text
from justitia.cli.files.public_rows import hash_rows
from justitia.cli.files.rows import LabelledRows
from justitia.cli.output import (
    check_outside,
    fields_text,
    ignore_interrupts,
    print_result,
    print_warnings,
    staged_folder,
    wrap,
)
from justitia.cli.training import make_estimator, read_training_rows, save_model, save_or_rescue
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
    help="Folder to save to after every release; the same command resumes from it. --seed is then 0 by default.",
)
@options.out("Folder for the model.")
@options.as_json
def train(
    data: Path,
    tolerance: float | None,
    checkpoint: Path | None,
    out: Path,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Train a classifier on DATA (CSV or Parquet) that treats groups alike.

    The sensitive column is not a feature: training reads it through noisy statistics only, and prediction does not need
    it. It may be in a file of its own (--sensitive-file, --key), so that those who prepare features never see it.

    The command prints how columns are read; 'justitia plan' shows it before any budget is spent.

    DATA may be a folder of Parquet files, or a pattern such as 'part-*.parquet': these are read a few rows at a time,
    by --workers processes.
    """
    if checkpoint is not None and settings["seed"] is None:
        settings["seed"] = 0  # a run that goes on has to draw the same public numbers
    rows = read_training_rows(data, settings)
    ledger = options.LedgerOptions.from_options(settings)
    model = make_estimator(rows, settings, tolerance=tolerance)
    check_outside(out, ledger=ledger.file, checkpoint=checkpoint)
    target = settings["target"]
    folder = staged_folder(out, overwrite=overwrite, marker=MODEL, foreign=foreign_in_model)
    with ExitStack() as until_saved, folder as stage, print_warnings() as warnings:
        opened = ledger.open(model.delta)
        model.fit(
            rows.X,
            rows.y,
            sensitive_features=rows.sensitive,
            person=rows.person,
            ledger=opened,
            checkpoint=checkpoint,
        )
        until_saved.enter_context(ignore_interrupts())
        sketch = hash_rows(rows, target).sketch.to_dict() if isinstance(rows, LabelledRows) else None
        facts = save_or_rescue(partial(save_model, model, rows, target=target, sketch=sketch), stage, out)
    facts = {"model": out, **facts, "certificate": model.certificate_.to_dict(), "warnings": warnings}
    table = f"{columns_text(rows.readings)}\n\n" if isinstance(rows, LabelledRows) else ""
    print_result(facts, table + _text(model, facts, out), as_json=as_json)
    return OK


def _text(model: LagrangianDualClassifier, facts: dict[str, Any], out: Path) -> str:
    certificate = model.certificate_
    threshold = facts.get("threshold", 0.5)
    if model.tolerance is not None:
        tolerance = f"{model.tolerance:g}"
    elif facts["tolerance"] is None:
        tolerance = "one standard error of the difference between the two smallest groups"
    else:
        tolerance = f"{facts['tolerance']:.3g} (default)"
    diagnostics = ""
    for one in certificate.remarks:
        if one not in facts["warnings"]:
            diagnostics += f"{one[:1].upper()}{one[1:]} "
    lines = {
        "data": f"{facts['rows']:,} rows, {facts['columns']} features of {facts['data']}",
        "target": f"{facts['target']}; {facts['positive']!r} is the positive answer",
        "groups": f"{', '.join(certificate.groups)} ({certificate.groups_source})",
        "base": facts.get("base", "") + ("" if threshold == 0.5 else f"; positive above {threshold:g}"),
        "notion": f"{model.notion}; tolerance: {tolerance}",
        "accuracy": f"{facts['training_accuracy']:.3f} on training data, AUC {facts['training_auc']:.3f}",
        "violation": ""
        if facts["noisy_violation"] is None
        else f"{facts['noisy_violation']:.3f} on training data "
        "(noisy estimate); 'justitia evaluate' measures it on other data",
        "privacy": certificate.statement,
        "remarks": diagnostics.strip(),
    }
    text = [f"Trained: {out}", fields_text(lines)]
    if math.isfinite(certificate.epsilon):
        text.append(wrap(f"Next: justitia evaluate {quote(str(out))} TEST.csv"))
    return "\n".join(text)
