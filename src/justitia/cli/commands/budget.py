"""``justitia budget``: create, show, export and verify a ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from justitia._files import read_object
from justitia.cli import options
from justitia.cli.command import Commands
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.output import print_result, staged_file
from justitia.privacy.durable_ledger import DurableLedger

CREATE = """
$ justitia budget create people-2026.ledger --name people-2026 --epsilon 3
"""
SHOW = """
$ justitia budget show people.ledger
"""
EXPORT = """
$ justitia budget export people.ledger --out people-ledger.json
"""
VERIFY = """
$ justitia budget export people.ledger --out kept.json
$ justitia budget verify people.ledger --receipt kept.json
"""


@click.group("budget", cls=Commands)
def budget() -> None:
    """Manage a privacy budget in a file: the total for all queries about a dataset.

    Use one file per dataset and pass it as --ledger to train, tradeoff, evaluate, measure and compare. Each debits it
    before it releases anything, and refuses a query that the budget does not allow.
    """


@budget.command("create", example=CREATE)
@click.argument("ledger", type=options.FILE)
@click.option("--name", required=True, help="Public name of the dataset; other names are refused later.")
@click.option("--epsilon", type=float, required=True, help="Total budget; it is fixed from now on.")
@options.delta
@options.as_json
def create(ledger: Path, name: str, epsilon: float, delta: float, as_json: bool) -> None:
    """Make the file LEDGER with a fixed total budget."""
    if ledger.exists():
        raise Refusal(f"{shown_path(ledger)} exists; show it with 'justitia budget show', or choose another file.")
    _print(DurableLedger(ledger, dataset=name, epsilon=epsilon, delta=delta), as_json=as_json)


@budget.command("show", example=SHOW)
@click.argument("ledger", type=options.FILE)
@options.as_json
def show(ledger: Path, as_json: bool) -> None:
    """Show every debit, the total spent, and what remains."""
    _print(_open(ledger), as_json=as_json)


@budget.command("export", example=EXPORT)
@click.argument("ledger", type=options.FILE)
@options.out("JSON file to write.")
@options.as_json
def export(ledger: Path, out: Path, overwrite: bool, as_json: bool) -> None:
    """Write all entries and totals as JSON."""
    opened = _open(ledger)
    with staged_file(out, overwrite=overwrite, inputs=(ledger,)) as stage:
        stage.write_text(opened.to_json() + "\n", encoding="utf-8")
    print_result(
        {"out": out, "entries": len(opened.releases)}, f"{len(opened.releases)} entries in {out}", as_json=as_json
    )


@budget.command("verify", example=VERIFY)
@click.argument("ledger", type=options.FILE)
@click.option("--model", type=options.FILE, help="Folder of a model whose certificate contains a receipt.")
@click.option("--receipt", type=options.FILE, help="JSON file: a receipt, a certificate, or an export of the ledger.")
@options.as_json
def verify(ledger: Path, model: Path | None, receipt: Path | None, as_json: bool) -> None:
    """Check whether LEDGER still contains the debits of a receipt.

    Its own chain of hashes is checked too. A file that was put back or rewritten since the receipt was made is refused.
    """
    if (model is None) == (receipt is None):
        raise Refusal("expected one of --model and --receipt; pass the folder of a model, or a file with a receipt.")
    source = receipt if model is None else model / "model.json"
    found = _receipt_in(Path(str(source)))
    opened = _open(ledger)
    opened.verify(found)
    head = opened.head
    text = f"{ledger} contains the {found['debits']} debits of the receipt, and {head.debits - found['debits']} since."
    print_result({"ledger": ledger, "receipt": found, "debits": head.debits, "head": head.hash}, text, as_json=as_json)


def _receipt_in(path: Path) -> Mapping[str, Any]:
    """The receipt in a JSON file, or in the certificate in it."""
    if not path.is_file():
        raise Refusal(f"there is no file {shown_path(path)}; pass a model, or a file with a receipt.")
    try:
        facts: Any = read_object(path)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise Refusal(f"expected JSON in {shown_path(path)}, got other text; pass a file with a receipt.") from None
    except ValueError as error:
        raise Refusal(str(error)) from None
    for name in ("certificate", "receipt"):
        facts = facts.get(name, facts) if isinstance(facts, dict) else facts
    if not isinstance(facts, dict) or "head" not in facts:
        raise Refusal(
            f"there is no receipt in {shown_path(path)}; only what was made with a ledger in a file has one: "
            "pass another model or file."
        )
    return facts


def _open(ledger: Path) -> DurableLedger:
    if not ledger.exists():
        raise Refusal(f"there is no ledger {shown_path(ledger)}; make one with 'justitia budget create'.")
    return DurableLedger.open(ledger)


def _print(ledger: DurableLedger, *, as_json: bool) -> None:
    print_result(json.loads(ledger.to_json()) if as_json else {}, ledger.describe(), as_json=as_json)
