"""``justitia compare``: several models in one table, measured on the same people."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from justitia.cli import options
from justitia.cli.command import Command, OneOf
from justitia.cli.commands.evaluate import Judged, judge
from justitia.cli.errors import Refusal
from justitia.cli.files.columns import Columns, warn_of, written_by
from justitia.cli.files.public_rows import public_rows
from justitia.cli.files.rows import read_rows
from justitia.cli.files.seen import Said, SeenRows, read_seen
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.methods import METHODS, Recipe
from justitia.cli.output import filled, shortened, table_text, tell, told_warnings
from justitia.evaluation.told import Interval
from justitia.privacy.accounting import gaussian_epsilon, gaussian_mu
from justitia.privacy.door import check_budget
from justitia.privacy.ledger import ROUND_OFF, PrivacyLedger

EXAMPLE = """
$ justitia compare model curve/tolerance-0 --data test.csv --epsilon 1
$ justitia compare model --method plain --train income.csv --data test.csv
"""


@click.command("compare", cls=Command, example=EXAMPLE)
@click.argument("models", type=options.FILE, nargs=-1)
@click.option("--data", type=options.FILE, required=True, help="People to measure on; others than those trained on.")
@click.option("--method", "methods", type=OneOf("method", METHODS), multiple=True, help="A method to train now.")
@click.option("--train", "train_file", type=options.FILE, help="People to train methods on.")
@click.option("--method-epsilon", type=float, default=1.0, show_default=True, help="Privacy budget of each method.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the public randomness of methods.")
@click.option("--notion", type=options.NOTION, metavar="NAME", help="By default that of the first model.")
@options.epsilon(1.0, "Privacy budget of the whole table.")
@options.delta
@options.ledger
@options.target
@options.attribute
@options.formats
@options.stream
@options.as_json
def compare(models: tuple[Path, ...], data: Path, notion: str | None, as_json: bool, **settings: Any) -> None:
    """Measure several saved MODELS, and methods trained now, on the same people.

    The budget is divided evenly: the more models, the more noise in each violation. Accuracy is public and exact.
    Methods are trained on the people of --train, each at the price of --method-epsilon: what all of them together cost
    those people is printed below the table.
    """
    ledger = LedgerOptions.taken(settings)
    check_budget(settings["epsilon"], settings["delta"])
    judged = {str(model): judge(model, data, dict(settings)) for model in dict.fromkeys(models)}
    chosen = notion or (next(iter(judged.values())).notions[0] if judged else "demographic_parity")
    training = PrivacyLedger(epsilon=math.inf, delta=settings["delta"])
    with told_warnings() as warnings:
        judged |= _trained(judged, data, chosen, training, settings)
        for model, one in judged.items():
            one.warn_of_training_rows(data.name, repr(model))
        each = part_of(settings["epsilon"], settings["delta"], len(judged))
        opened = ledger.open(settings["delta"]) or PrivacyLedger(epsilon=settings["epsilon"], delta=settings["delta"])
        budget = {"epsilon": each, "delta": settings["delta"], "ledger": opened}
        rows = [_row(model, one, chosen, budget) for model, one in judged.items()]
    statements = [opened.certificate(planned=len(judged), subject="This table").statement]
    if training.releases:
        statements.append(_methods_statement(training))
    facts = {"data": data, "notion": chosen, "models": rows, "statements": statements, "warnings": warnings}
    tell(facts, _text(facts), as_json=as_json)


def _methods_statement(training: PrivacyLedger) -> str:
    """What the methods cost together; which ones are trained is fixed before the first, so what they spend holds."""
    subject = "All that methods learned of the people of --train"
    return training.certificate(planned=len(training.releases), subject=subject).statement


def _trained(
    judged: dict[str, Judged], data: Path, notion: str, total: PrivacyLedger, settings: dict[str, Any]
) -> dict[str, Judged]:
    """The methods asked for, trained now and judged on the same people as the models."""
    methods = list(dict.fromkeys(settings["methods"]))
    if not methods:
        return {}
    if settings["train_file"] is None:
        raise Refusal("expected a file of people to train methods on, got none; pass --train FILE.")
    first = next(iter(judged.values()), None)
    target = settings["target"] or (None if first is None else first.target)
    if target is None:
        raise Refusal("expected the name of the column to predict, got none; pass --target NAME.")
    where = settings["where"] if first is None else first.completed(settings["where"])
    if is_streamed(settings["train_file"], asked=False):
        raise Refusal(f"expected --train with {AT_ONCE}")
    fresh = Columns(written=written_by(dict(settings)))
    rows = read_rows(settings["train_file"], where, target=target, positive=settings["positive"], columns=fresh)
    warn_of(rows.readings)
    if rows.attribute.groups is None:
        raise Refusal("expected the public list of groups, got none; pass --groups.")
    same = replace(fresh, features=tuple(str(name) for name in rows.X), known=rows.readings)
    people: dict[str, Any] = {"target": target, "classes": rows.classes, "columns": same}
    streamed = is_streamed(data, asked=settings["stream"])
    others = None if streamed else read_rows(data, where, **people)
    recipe = Recipe(notion, settings["method_epsilon"], settings["delta"], settings["seed"])
    found = {}
    trained_on = public_rows(rows, target).sketch
    for name in methods:
        model = recipe.fit(name, rows, total)
        seen = others or read_seen(data, where, partial(_said, model), **people)
        decided = seen.decided if isinstance(seen, SeenRows) else _decided(model, seen.X)
        found[f"({name})"] = Judged(model, seen, decided, rows.attribute.groups, (notion,), target, trained_on)
    return found


def _said(model: Any, X: Any) -> Said:
    """Of a method, decisions stand for scores, too: a table of models has none."""
    decided = _decided(model, X)
    return decided, decided.astype(np.float64), None


def _decided(model: Any, X: Any) -> NDArray[np.int64]:
    return np.asarray(model.predict(X), dtype=np.int64)


def part_of(epsilon: float, delta: float, parts: int) -> float:
    """Epsilon of one of several equal Gaussian releases that together cost (epsilon, delta)."""
    if not parts:
        raise Refusal("expected at least one model, got none.")
    if math.isinf(epsilon):
        return epsilon
    return gaussian_epsilon(gaussian_mu(epsilon, delta) / math.sqrt(parts), delta) * (1 - ROUND_OFF)


def _row(model: str, judged: Judged, notion: str, settings: dict[str, Any]) -> dict[str, Any]:
    found = replace(judged, notions=(notion,)).measure(**settings)
    violation = found.violation
    return {
        "model": model,
        "trained_for": judged.notions[0],
        "tolerance": getattr(judged.model, "tolerance", None),
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
        [f"Compared on {facts['data']}, {facts['notion']}", table_text(head, rows), *map(filled, facts["statements"])]
    )
