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
from justitia.cli.files.metadata import Model
from justitia.cli.files.public_rows import hash_rows
from justitia.cli.files.rows import LabelledRows
from justitia.cli.goal import GoalOptions
from justitia.cli.output import (
    check_outside,
    fields_text,
    ignore_interrupts,
    print_result,
    print_warnings,
    staged_folder,
    wrap,
)
from justitia.cli.training import fit_arguments, make_estimator, read_training_rows, save_model, save_or_rescue
from justitia.persistence.folder import MODEL, foreign_in_model
from justitia.postprocessing.price import price_sentence

EXAMPLE = """
$ justitia train income.csv --target income --sensitive sex \\
    --groups Female,Male --notion equalized_odds --epsilon 1 --out model
"""


@click.command("train", cls=Command, example=EXAMPLE)
@options.training
@options.tolerance
@options.limits
@options.workers
@options.ledger
@click.option(
    "--checkpoint",
    type=options.FILE,
    help="Folder to save to after every release; the same command resumes from it. --seed is then 0 by default.",
)
@options.out("Folder for the model.")
@options.verbose
@options.as_json
def train(
    data: Path,
    tolerances: tuple[float, ...],
    checkpoint: Path | None,
    out: Path,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Train a model on DATA (CSV or Parquet) that treats groups alike.

    The target has two values, up to 20 classes, or numbers; --task says which where its values do not.

    The sensitive column is not a feature: training reads it through noisy statistics only, and prediction does not need
    it. It may be in a file of its own (--sensitive-file, --key), so that those who prepare features never see it.

    The command prints how columns are read; 'justitia plan' shows it before any budget is spent.

    DATA may be a folder of Parquet files, or a pattern such as 'part-*.parquet': these are read a few rows at a time,
    by --workers processes.
    """
    if checkpoint is not None and settings["seed"] is None:
        settings["seed"] = 0  # a run that goes on has to draw the same public numbers
    goal = GoalOptions.from_options(settings, tolerances)
    limits = options.LimitOptions.from_options(settings)
    rows = read_training_rows(data, settings)
    limits.check(rows.task, in_units=not goal.are_shares)
    ledger = options.LedgerOptions.from_options(settings)
    model = make_estimator(rows, settings, goal)
    given = fit_arguments(rows, goal)
    check_outside(out, ledger=ledger.file, checkpoint=checkpoint)
    target = settings["target"]
    folder = staged_folder(out, overwrite=overwrite, marker=MODEL, foreign=foreign_in_model)
    with ExitStack() as until_saved, folder as stage, print_warnings() as warnings:
        opened = ledger.open(model.delta)
        model.fit(**given, ledger=opened, checkpoint=checkpoint)
        until_saved.enter_context(ignore_interrupts())
        sketch = hash_rows(rows, target).sketch.to_dict() if isinstance(rows, LabelledRows) else None
        facts = save_or_rescue(
            partial(save_model, model, rows, target=target, sketch=sketch, limits=limits), stage, out
        )
    facts = {"model": out, **facts, "certificate": model.certificate_.to_dict(), "warnings": warnings}
    table = f"\n\n{columns_text(rows.readings, verbose=verbose)}" if isinstance(rows, LabelledRows) else ""
    print_result(facts, _text(model, facts, out) + table + _next(model, out), as_json=as_json)
    return OK


def _text(model: Model, facts: dict[str, Any], out: Path) -> str:
    certificate = model.certificate_
    threshold = facts.get("threshold", 0.5)
    diagnostics = ""
    for one in certificate.remarks:
        if one not in facts["warnings"]:
            diagnostics += f"{one[:1].upper()}{one[1:]} "
    lines = {
        "data": f"{facts['rows']:,} rows, {facts['columns']} features of {facts['data']}",
        "target": f"{facts['target']}; {target_text(facts)}",
        "groups": f"{', '.join(certificate.groups)} ({certificate.groups_source})",
        "base": facts.get("base", "") + ("" if threshold == 0.5 else f"; positive above {threshold:g}"),
        "notion": f"{listed_notions(model.notion)}; {_allowed(model, facts)}",
        **_quality(facts),
        "violation": ""
        if facts["noisy_violation"] is None
        else f"{facts['noisy_violation']:{'.3g' if facts['task'] == 'number' else '.3f'}} on training data "
        "(noisy estimate); 'justitia evaluate' measures it on other data",
        "price": price_sentence(model),
        "privacy": certificate.statement,
        "remarks": diagnostics.strip(),
    }
    return "\n".join([wrap(f"TRAINED  {out}", indent=9), fields_text(lines)])


def _next(model: Model, out: Path) -> str:
    """The command that measures the model on other rows; none for a model that is not private."""
    if not math.isfinite(model.certificate_.epsilon):
        return ""
    return f"\n\n{wrap(f'Next: justitia evaluate {quote(str(out))} TEST.csv')}"


def target_text(facts: dict[str, Any]) -> str:
    """The kind of target in words."""
    if facts["task"] == "number":
        low, high = facts["bounds"]
        return f"a number between {low:g} and {high:g}"
    if facts["task"] == "classes":
        return f"{len(facts['classes'])} classes: {', '.join(map(str, facts['classes']))}"
    return f"{facts['positive']!r} is the positive answer"


def listed_notions(notion: Any) -> str:
    """A notion, or several."""
    return notion if isinstance(notion, str) else ", ".join(notion)


def _allowed(model: Model, facts: dict[str, Any]) -> str:
    """The tolerance or ratio in force."""
    if getattr(model, "ratio", None) is not None:
        return f"ratio: {model.ratio:g}"
    if isinstance(model.tolerance, list):
        return f"tolerances: {', '.join(f'{one:g}' for one in model.tolerance)}"
    if model.tolerance is not None:
        return f"tolerance: {model.tolerance:g}"
    if facts["tolerance"] is None:
        return "tolerance: one standard error of the difference between the two smallest groups"
    return f"tolerance: {facts['tolerance']:.3g} (default)"


def _quality(facts: dict[str, Any]) -> dict[str, str]:
    """R2, or accuracy and AUC of two classes, on training rows."""
    if facts["task"] == "number":
        return {"R2": f"{facts['training_r2']:.3f} on training data"}
    auc = "" if facts["training_auc"] is None else f", AUC {facts['training_auc']:.3f}"
    return {"accuracy": f"{facts['training_accuracy']:.3f} on training data{auc}"}
