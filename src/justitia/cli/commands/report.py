"""``justitia report``: one page for those who have to sign."""

from __future__ import annotations

from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.files.looks import UNSHOWN, newest_measurement
from justitia.cli.files.metadata import CURVE, load_model, read_json
from justitia.cli.output import check_file, tell
from justitia.report import build_report
from justitia.report.build import page_path

EXAMPLE = """
$ justitia report model --out report.html
"""


@click.command("report", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.option("-o", "--out", type=options.FILE, default=Path("report.html"), show_default=True, help="Page to write.")
@options.overwrite
@options.as_json
def report(model: Path, out: Path, overwrite: bool, as_json: bool) -> None:
    """Write a page about MODEL (HTML, opens anywhere) and a model card (Markdown) beside it.

    They show what the folder holds: the training, the newest private measurement of 'justitia evaluate', and the
    curve if it is the chosen point of one. Nothing in them is exact about groups.
    """
    fitted, facts = load_model(model)
    for file in (page_path(out), page_path(out).with_suffix(".md")):
        check_file(file, overwrite=overwrite)
    made = build_report(
        fitted,
        measurement=newest_measurement(model),
        curve=read_json(model / CURVE),
        facts={name: value for name, value in facts.items() if name not in UNSHOWN},
    )
    page = made.write(out)
    card = page.with_suffix(".md")
    tell({"report": page, "card": card}, f"Report: {page}\nModel card: {card}", as_json=as_json)
