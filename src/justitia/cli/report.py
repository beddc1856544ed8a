"""``justitia report``: one page for those who have to sign."""

from __future__ import annotations

from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.facts import CURVE, FACTS, MEASUREMENT, load_model, read_json
from justitia.cli.output import staged_file, tell
from justitia.cli.teaching import Command
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

    They show what the folder holds: the training, the private measurement if 'justitia evaluate' made one, and the
    curve if it is the chosen point of one. Nothing in them is exact about groups.
    """
    fitted, _ = load_model(model)
    made = build_report(
        fitted,
        measurement=read_json(model / MEASUREMENT),
        curve=read_json(model / CURVE),
        facts=read_json(model / FACTS) or {},
    )
    card = out.with_suffix(".md")
    for file, text in ((out, made.html()), (card, made.markdown())):
        with staged_file(file) as stage:
            stage.write_text(text, encoding="utf-8")
    tell({"report": out, "card": card}, f"Report: {out}\nModel card: {card}", as_json=as_json)
