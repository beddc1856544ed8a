"""``justitia report``: one page for those who have to sign."""

from __future__ import annotations

from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.files.looks import UNSHOWN, newest_measurement
from justitia.cli.files.metadata import CURVE, load_model, read_json
from justitia.cli.output import tell
from justitia.report import build_report

EXAMPLE = """
$ justitia report model --out report.html
"""


@click.command("report", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.option("-o", "--out", type=options.FILE, default=Path("report.html"), show_default=True, help="Page to write.")
@options.as_json
def report(model: Path, out: Path, as_json: bool) -> None:
    """Write a page about MODEL (HTML, opens anywhere) and a model card (Markdown) beside it.

    They show what the folder holds: the training, the newest private measurement of 'justitia evaluate', and the
    curve if it is the chosen point of one. Nothing in them is exact about groups.
    """
    fitted, facts = load_model(model)
    made = build_report(
        fitted,
        measurement=newest_measurement(model),
        curve=read_json(model / CURVE),
        facts={name: value for name, value in facts.items() if name not in UNSHOWN},
    )
    page = made.write(out)
    card = page.with_suffix(".md")
    tell({"report": page, "card": card}, f"Report: {page}\nModel card: {card}", as_json=as_json)
