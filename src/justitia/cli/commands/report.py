"""``justitia report``: report and model card of a saved model."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import click

from justitia._files import MOST_JSON, read_bounded
from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.commands.evaluate import in_units
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.measurement_log import HIDDEN_FIELDS, log_facts, newest_measurement, rows_digest
from justitia.cli.files.metadata import CURVE, load_model, read_json
from justitia.cli.output import check_file, print_result
from justitia.persistence.folder import MODEL
from justitia.privacy.durable_ledger import DurableLedger
from justitia.report import build_report
from justitia.report.build import page_path
from justitia.report.wording import notions_of, task_of

EXAMPLE = """
$ justitia report model --out report.html
$ justitia report model --title Loans --positive-means 'loan granted' \\
    --out loans.html
"""


@click.command("report", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.option(
    "-o", "--out", type=options.FILE, default=Path("report.html"), show_default=True, help="HTML file to write."
)
@click.option("--title", metavar="TEXT", help="Of the report.")
@click.option("--positive-means", metavar="TEXT", help="What a positive decision means in words.")
@click.option(
    "--about",
    type=options.FILE,
    help="TOML with owner, purpose, version, ... and what an approval states; docs/reports.md lists the fields.",
)
@options.limits
@click.option(
    "--ledger", type=options.FILE, help="The ledger that paid for everything; without it the log may be incomplete."
)
@options.overwrite
@options.as_json
def report(
    model: Path,
    out: Path,
    title: str | None,
    positive_means: str | None,
    about: Path | None,
    ledger: Path | None,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Write a report about MODEL (HTML), a model card (Markdown) and the facts (JSON).

    They show the contents of the folder: the training, every private measurement of 'justitia evaluate' and 'justitia
    compare', the newest of 'evaluate' in full, and the curve if the model is a point of one. No number about groups is
    exact. Fields that --about does not state stay visibly empty.

    The page begins with a verdict on --limit and --limit-ratio, by default those of 'justitia evaluate' or 'justitia
    train'.
    """
    limits = options.LimitOptions.from_options(settings)
    fitted, facts = load_model(model)
    task = task_of(fitted)
    limits.check(task, in_units=in_units(task, notions_of(fitted)))
    opened = None if ledger is None else DurableLedger.open(ledger)
    stated = _read_about(about) | {
        name: value for name, value in (("title", title), ("positive_means", positive_means)) if value is not None
    }
    page = page_path(out)
    for file in (page, page.with_suffix(".md"), page.with_suffix(".json")):
        check_file(file, overwrite=overwrite, inputs=(about, ledger))
    public = {name: value for name, value in facts.items() if name not in HIDDEN_FIELDS}
    # The file that describes the model contains the digests of its other files.
    digest = hashlib.sha256(read_bounded(model / MODEL, MOST_JSON)).hexdigest()
    made = build_report(
        fitted,
        measurement=newest_measurement(model),
        curve=_read_curve(model, fitted.tolerance),
        facts=public | {"model_digest": digest, "data_digest": rows_digest(facts)},
        about=stated,
        measurement_log=log_facts(model, facts, fitted.certificate_),
        limit=limits.limit,
        limit_ratio=limits.limit_ratio,
        favorable=limits.favorable,
        ledger=opened,
    )
    page = made.write(out, overwrite=overwrite)
    card, data = page.with_suffix(".md"), page.with_suffix(".json")
    text = f"Report: {page}\nModel card: {card}\nFacts: {data}"
    print_result({"report": page, "card": card, "facts": data}, text, as_json=as_json)


def _read_about(file: Path | None) -> dict[str, Any]:
    """Fields that users state in a TOML file.

    Raises
    ------
    Refusal
        If the file cannot be read as TOML.
    """
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise Refusal(f'{shown_path(file)} is no TOML; expected lines such as owner = "Credit risk".') from None


def _read_curve(folder: Path, tolerance: float | None) -> dict[str, Any] | None:
    """The curve that this model is a point of: its copy in the folder, or that of the parent folder."""
    own = read_json(folder / CURVE)
    around = folder.resolve().parent / CURVE
    if own is not None or tolerance is None or not around.is_file():
        return own
    found = read_json(around) or {}
    points = found.get("points") or []
    place = next((k for k, one in enumerate(points) if one.get("tolerance") == tolerance), None)
    named = folder.resolve().name == f"tolerance-{tolerance:g}"
    return found | {"chosen": place} if named and place is not None else None
