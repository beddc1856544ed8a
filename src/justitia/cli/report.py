"""``justitia report``: one page for those who have to sign."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from justitia.cli import options
from justitia.cli.errors import Refusal
from justitia.cli.facts import CURVE, FACTS, MEASUREMENT, load_model, read_json
from justitia.cli.output import staged_file, tell
from justitia.cli.teaching import Command

EXAMPLE = """
$ justitia report model --out report.html
"""


def optional_module(name: str) -> ModuleType:
    """A part of justitia that this installation may lack."""
    try:
        return importlib.import_module(f"justitia.{name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("justitia"):
            raise Refusal(f"'justitia {name}' needs the package {error.name!r}; install it.") from None
        raise Refusal(f"this version of justitia has no {name}; upgrade it to use 'justitia {name}'.") from None


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
    build = optional_module("report").build_report
    made: Any = build(
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
