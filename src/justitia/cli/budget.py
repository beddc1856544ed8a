"""``justitia budget``: make, look at and export a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.output import tell
from justitia.cli.teaching import Commands
from justitia.privacy.durable import DurableLedger

CREATE = """
$ justitia budget create people-2026.ledger --name people-2026 --epsilon 3
"""
SHOW = """
$ justitia budget show people.ledger
"""
EXPORT = """
$ justitia budget export people.ledger --out people-ledger.json
"""


@click.group("budget", cls=Commands)
def budget() -> None:
    """A privacy budget in a file: what a dataset's people may be asked in all.

    One file per dataset of people. Pass it as --ledger to train, tradeoff, evaluate and compare: each debits it
    before it gives an answer, and refuses what the budget does not allow.
    """


@budget.command("create", example=CREATE)
@click.argument("ledger", type=options.FILE)
@click.option("--name", required=True, help="Public name of these people; other names are refused later.")
@click.option("--epsilon", type=float, required=True, help="Total budget; it is fixed from now on.")
@options.delta
@options.as_json
def create(ledger: Path, name: str, epsilon: float, delta: float, as_json: bool) -> None:
    """Make the file LEDGER with a fixed total budget."""
    if ledger.exists():
        raise Refusal(f"{shown_path(ledger)} exists; look at it with 'justitia budget show', or choose another file.")
    _tell(DurableLedger(ledger, dataset=name, epsilon=epsilon, delta=delta), as_json=as_json)


@budget.command("show", example=SHOW)
@click.argument("ledger", type=options.FILE)
@options.as_json
def show(ledger: Path, as_json: bool) -> None:
    """Show what was spent, on what, and what remains."""
    _tell(_open(ledger), as_json=as_json)


@budget.command("export", example=EXPORT)
@click.argument("ledger", type=options.FILE)
@click.option("--out", type=options.FILE, required=True, help="JSON file to write.")
@options.as_json
def export(ledger: Path, out: Path, as_json: bool) -> None:
    """Write all entries and totals as JSON."""
    held = _open(ledger)
    held.export(out)
    tell({"out": out, "entries": len(held.releases)}, f"{len(held.releases)} entries in {out}", as_json=as_json)


def _open(ledger: Path) -> DurableLedger:
    if not ledger.exists():
        raise Refusal(f"there is no ledger {shown_path(ledger)}; make one with 'justitia budget create'.")
    return DurableLedger.open(ledger)


def _tell(ledger: DurableLedger, *, as_json: bool) -> None:
    tell(json.loads(ledger.to_json()) if as_json else {}, ledger.describe(), as_json=as_json)
