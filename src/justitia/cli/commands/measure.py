"""``justitia measure``: how decisions in a file treat groups, whoever made them, measured privately."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from justitia.cli import options
from justitia.cli.bias_audit import bias_audit_csv
from justitia.cli.command import Command
from justitia.cli.errors import NOT_SHOWN, OK, Refusal
from justitia.cli.files.decisions import Columns, Decisions, read_decisions
from justitia.cli.files.metadata import measurement_metadata
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.measurement_text import measurement_text
from justitia.cli.output import json_text, staged_file, tell, told_warnings
from justitia.metrics.measure import Measurement
from justitia.metrics.measure import measure as measured
from justitia.metrics.quality import public_quality
from justitia.privacy.vault import check_budget

EXAMPLE = """
$ justitia measure hired.csv --decision hired --target qualified \\
    --score points --sensitive sex --groups Female,Male --csv audit.csv
"""


@click.command("measure", cls=Command, example=EXAMPLE)
@click.argument("data", type=options.FILE)
@click.option("--decision", required=True, metavar="COLUMN", help="Column with the decisions; it has two values.")
@options.target
@click.option("--positive-decision", metavar="VALUE", help="The decision's positive value, if its words are its own.")
@click.option("--score", metavar="COLUMN", help="Column with scores, larger for the positive decision.")
@click.option("--before", metavar="COLUMN", help="Decisions of another model about the same people, to compare with.")
@options.attribute
@options.stream
@options.custodian
@options.reference
@options.notions("demographic_parity, with --target equalized_odds, too")
@options.epsilon(1.0, "Privacy budget of this measurement.")
@options.delta
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of all bounds.")
@options.below
@options.ledger
@click.option("--csv", "audit", type=options.FILE, help="Table of a bias audit (New York City's Local Law 144).")
@click.option("--out", type=options.FILE, help="JSON file with the measurement.")
@options.overwrite
@options.as_json
def measure(data: Path, as_json: bool, **settings: Any) -> int:
    """Measure how decisions in DATA (CSV or Parquet) treat groups, whoever made them.

    Decisions, target and scores are public columns. Rates, ratios, gaps and score metrics by group are released once,
    with noise that protects the attribute of any one row (with --person, of any one person), and with bounds that hold
    both noise and sampling error. Without --target only decisions are compared, and scores have no AUC.
    """
    ledger = LedgerOptions.taken(settings)
    columns = Columns(**{name: settings.pop(name) for name in Columns.__dataclass_fields__})
    public = read_decisions(data, settings["where"], columns, stream=settings["stream"])
    check_budget(settings["epsilon"], settings["delta"])
    notions = _notions(settings["notions"], columns)
    asked = {one: settings[one] for one in ("epsilon", "delta", "confidence", "reference")}
    files = {"audit": settings["audit"], "out": settings["out"]}
    with ExitStack() as stack, told_warnings() as warnings:
        read = (data, settings["where"].sensitive_file, ledger.file)
        stages = {
            name: stack.enter_context(staged_file(file, overwrite=settings["overwrite"], inputs=read))
            for name, file in files.items()
            if file is not None
        }
        found = measured(
            None if columns.target is None else public.y,
            public.decided,
            sensitive_features=public.sensitive,
            groups=public.groups,
            person=public.person,
            data=public.files,
            notion=notions,
            scores=public.scores,
            before=public.before,
            threshold=settings["below"],
            pos_label=1,
            ledger=ledger.open(settings["delta"]),
            **asked,
        )
        facts = _facts(found, public, data.name, columns)
        contents = {"audit": lambda: bias_audit_csv(found), "out": lambda: json_text(facts)}
        for name, stage in stages.items():
            stage.write_text(contents[name](), encoding="utf-8")
    told = {"data": data, **files, **facts, "warnings": warnings}
    tell(told, measurement_text(found, facts["accuracy"], data.name), as_json=as_json)
    return OK if all(verdict.answer == "below" for verdict in found.verdicts.values()) else NOT_SHOWN


def _notions(given: Sequence[str], columns: Columns) -> list[str]:
    notions = list(given) or ["demographic_parity", *(["equalized_odds"] if columns.target is not None else [])]
    if columns.target is None and notions != ["demographic_parity"]:
        raise Refusal(f"expected --target for {notions[-1]!r}, got none; without labels only decisions are compared.")
    return notions


def _facts(found: Measurement, public: Decisions, data: str, columns: Columns) -> dict[str, Any]:
    quality = public_quality(public.y, public.decided, public.scores) if columns.target is not None else {}
    if columns.target is not None and public.before is not None:
        quality["before"] = {"name": columns.before} | public_quality(public.y, public.before)
    named = {"decision": columns.decision, "target": columns.target, "score": columns.score}
    return measurement_metadata(found, quality.get("accuracy"), data) | {"public": quality, "columns": named}
