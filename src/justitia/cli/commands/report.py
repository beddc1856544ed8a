"""``justitia report``: one page for those who have to sign."""

from __future__ import annotations

from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.files.looks import UNSHOWN, newest_measurement
from justitia.cli.files.metadata import load_model
from justitia.cli.output import check_file, tell
from justitia.cli.page_facts import digest_of, folder_curve, folder_looks, model_digest, read_about
from justitia.report import build_report
from justitia.report.build import page_path

EXAMPLE = """
$ justitia report model --out report.html
$ justitia report model --title Loans --positive-means 'loan granted' \\
    --out loans.html
"""


@click.command("report", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.option("-o", "--out", type=options.FILE, default=Path("report.html"), show_default=True, help="Page to write.")
@click.option("--title", metavar="TEXT", help="Of the page.")
@click.option("--positive-means", metavar="TEXT", help="What a positive decision means in words.")
@click.option(
    "--about",
    type=options.FILE,
    help="TOML with owner, purpose, population, version, monitoring_plan, human_oversight.",
)
@options.overwrite
@options.as_json
def report(
    model: Path,
    out: Path,
    title: str | None,
    positive_means: str | None,
    about: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a page about MODEL (HTML, opens anywhere), a model card (Markdown) and the facts (JSON).

    They show what the folder holds: the training, every private measurement of 'justitia evaluate' and 'justitia
    compare', the newest of 'evaluate' in full, and the curve if it is a point of one. Nothing in them is exact about
    groups. What nobody states with --about stays visibly empty.
    """
    fitted, facts = load_model(model)
    stated = read_about(about, title=title, positive_means=positive_means)
    page = page_path(out)
    for file in (page, page.with_suffix(".md"), page.with_suffix(".json")):
        check_file(file, overwrite=overwrite, inputs=(about,))
    public = {name: value for name, value in facts.items() if name not in UNSHOWN}
    made = build_report(
        fitted,
        measurement=newest_measurement(model),
        curve=folder_curve(model, fitted.tolerance),
        facts=public | {"model_digest": model_digest(model), "data_digest": digest_of(facts)},
        about=stated,
        looks=folder_looks(model, facts, fitted.certificate_),
    )
    page = made.write(out, overwrite=overwrite)
    card, data = page.with_suffix(".md"), page.with_suffix(".json")
    text = f"Report: {page}\nModel card: {card}\nFacts: {data}"
    tell({"report": page, "card": card, "facts": data}, text, as_json=as_json)
