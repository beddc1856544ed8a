"""``justitia compare``: several models in one table, measured on the same people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from justitia.cli import options
from justitia.cli.budgets import LedgerOptions
from justitia.cli.errors import Refusal
from justitia.cli.evaluate import Judged, judge
from justitia.cli.output import filled, shortened, table_text, tell, told_warnings
from justitia.cli.teaching import Command
from justitia.measuring.measurement import Interval
from justitia.opening import check_budget
from justitia.privacy.accounting import gaussian_epsilon, gaussian_mu
from justitia.privacy.ledger import ROUND_OFF, PrivacyLedger

EXAMPLE = """
$ justitia compare model curve/tolerance-0 --data test.csv --epsilon 1
"""


@click.command("compare", cls=Command, example=EXAMPLE)
@click.argument("models", type=options.FILE, nargs=-1, required=True)
@click.option("--data", type=options.FILE, required=True, help="People to measure on; others than those trained on.")
@click.option("--notion", type=options.NOTION, metavar="NAME", help="By default that of the first model.")
@options.epsilon(1.0, "Privacy budget of the whole table.")
@options.delta
@options.ledger
@options.target
@options.attribute
@options.as_json
def compare(models: tuple[Path, ...], data: Path, notion: str | None, as_json: bool, **settings: Any) -> None:
    """Measure several saved MODELS on the same people, in one table.

    The budget is divided evenly: the more models, the more noise in each violation. Accuracy is public and exact.
    """
    ledger = LedgerOptions.taken(settings)
    check_budget(settings["epsilon"], settings["delta"])
    judged = {model: judge(model, data, settings) for model in dict.fromkeys(models)}
    chosen = notion or next(iter(judged.values())).notions[0]
    each = part_of(settings["epsilon"], settings["delta"], len(judged))
    opened = ledger.open(settings["delta"]) or PrivacyLedger(epsilon=settings["epsilon"], delta=settings["delta"])
    with told_warnings() as warnings:
        rows = [
            _row(model, one, chosen, {"epsilon": each, "delta": settings["delta"], "ledger": opened})
            for model, one in judged.items()
        ]
    statement = opened.certificate(subject="This table, with whatever else is on its ledger,").statement
    facts = {"data": data, "notion": chosen, "models": rows, "statement": statement, "warnings": warnings}
    tell(facts, _text(facts), as_json=as_json)


def part_of(epsilon: float, delta: float, parts: int) -> float:
    """Epsilon of one of several equal Gaussian releases that together cost (epsilon, delta)."""
    if not parts:
        raise Refusal("expected at least one model, got none.")
    if math.isinf(epsilon):
        return epsilon
    return gaussian_epsilon(gaussian_mu(epsilon, delta) / math.sqrt(parts), delta) * (1 - ROUND_OFF)


def _row(model: Path, judged: Judged, notion: str, settings: dict[str, Any]) -> dict[str, Any]:
    found = Judged(judged.model, judged.people, judged.decided, judged.groups, (notion,)).measure(**settings)
    violation = found.violation
    return {
        "model": model,
        "trained_for": judged.notions[0],
        "tolerance": judged.model.tolerance,
        "epsilon": judged.model.certificate_.epsilon,
        "accuracy": judged.accuracy,
        "violation": None if math.isnan(violation.estimate) else violation.estimate,
        "lower": violation.lower,
        "upper": violation.upper,
    }


def _text(facts: dict[str, Any]) -> str:
    rows = [
        (
            shortened(str(one["model"]), 28),
            "-" if one["tolerance"] is None else f"{one['tolerance']:g}",
            f"{one['epsilon']:.3g}",
            f"{one['accuracy']:.3f}",
            str(Interval(math.nan if one["violation"] is None else one["violation"], one["lower"], one["upper"])),
        )
        for one in facts["models"]
    ]
    head = ("model", "tolerance", "epsilon", "accuracy", "violation, bounds")
    return "\n".join(
        [f"Compared on {facts['data']}, {facts['notion']}", table_text(head, rows), filled(facts["statement"])]
    )
