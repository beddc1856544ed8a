"""``justitia compare``: several models in one table, measured on the same people."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from justitia._files import stage_beside
from justitia.cli import options
from justitia.cli.command import Command, OneOf
from justitia.cli.commands.evaluate import Judged, judge
from justitia.cli.errors import Refusal
from justitia.cli.files.columns import Columns, warn_of, written_by
from justitia.cli.files.looks import COMPARED, Look, earlier_looks, joint_sentence, keep_measurement, shared_with
from justitia.cli.files.metadata import measurement_metadata
from justitia.cli.files.public_rows import public_rows
from justitia.cli.files.rows import read_rows
from justitia.cli.files.seen import Said, SeenRows, read_seen
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.methods import METHODS, Recipe
from justitia.cli.output import filled, json_text, shortened, table_text, tell, told_warnings
from justitia.metrics.bounds import Interval
from justitia.metrics.measurement import Measurement
from justitia.privacy.accounting import gaussian_epsilon, gaussian_mu
from justitia.privacy.ledger import ROUND_OFF, Certificate, PrivacyLedger
from justitia.privacy.vault import check_budget

METHOD = OneOf("method", METHODS, renamed=options.RENAMED)
EXAMPLE = """
$ justitia compare model curve/tolerance-0 --data test.csv --epsilon 1
$ justitia compare model --method uncorrected --train income.csv \\
    --data test.csv
"""


@click.command("compare", cls=Command, example=EXAMPLE)
@click.argument("models", type=options.FILE, nargs=-1)
@click.option("--data", type=options.FILE, required=True, help="People to measure on; others than those trained on.")
@click.option("--method", "methods", type=METHOD, multiple=True, help="A method to train now.")
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
    those people is printed below the table. 'uncorrected' is the default base without a correction; it costs nothing.

    The folder of each saved model keeps its measurement, with what the whole table cost these people.
    """
    ledger = LedgerOptions.taken(settings)
    check_budget(settings["epsilon"], settings["delta"])
    folders: dict[Path, Path] = {}
    for model in models:
        folders.setdefault(model.resolve(), model)  # one model under two names is one model
    saved = {str(model): _Saved(model, judge(model, data, dict(settings))) for model in folders.values()}
    judged = {name: one.judged for name, one in saved.items()}
    chosen = notion or (next(iter(judged.values())).notions[0] if judged else "demographic_parity")
    training = PrivacyLedger(epsilon=math.inf, delta=settings["delta"])
    with ExitStack() as stack, told_warnings() as warnings:
        # What can fail comes before the first release: what earlier measurements cost, and room for one more.
        stages = {name: stack.enter_context(stage_beside(one.folder / "measurement")) for name, one in saved.items()}
        shared = {name: shared_with(one.judged.public, one.looks, data.name, repr(name)) for name, one in saved.items()}
        methods = _trained(judged, data, chosen, training, settings)
        for name, trained in methods.items():
            trained.warn_of_training_rows(data.name, repr(name))
        judged |= methods
        each = part_of(settings["epsilon"], settings["delta"], len(judged))
        opened = ledger.open(settings["delta"]) or PrivacyLedger(epsilon=settings["epsilon"], delta=settings["delta"])
        budget = {"epsilon": each, "delta": settings["delta"], "ledger": opened}
        found = {name: replace(one, notions=(chosen,)).measure(**budget) for name, one in judged.items()}
        kept, statements = {}, [_table_certificate(opened, len(judged)).statement]
        for name, one in saved.items():
            price = _table_certificate(opened, len(judged), found[name].certificate)
            look = one.look(price, shared[name])
            statements += [f"{name}: {sentence}" for sentence in look.certificate.remarks]
            facts = measurement_metadata(
                replace(found[name], certificate=look.certificate), one.judged.accuracy, data.name
            )
            facts |= {"public": one.judged.quality(), COMPARED: list(judged)} | look.to_keep()
            kept[name] = keep_measurement(json_text(facts), stages[name], one.folder)
    if training.releases:
        statements.append(_methods_statement(training))
    rows = [_row(name, one, found[name], kept.get(name)) for name, one in judged.items()]
    facts = {"data": data, "notion": chosen, "models": rows, "statements": statements, "warnings": warnings}
    tell(facts, _text(facts), as_json=as_json)


@dataclass(frozen=True)
class _Saved:
    """A saved model, the people it is judged on, and every earlier look at people through it."""

    folder: Path
    judged: Judged

    @cached_property
    def looks(self) -> list[Look]:
        return earlier_looks(self.folder, self.judged.model.certificate_)

    def look(self, price: Certificate, shared: tuple[str, ...]) -> Look:
        """The new look, whose certificate says what it costs together with the earlier ones."""
        own = Look("new", price, self.judged.public.sketch, shared)
        sentence = joint_sentence(self.looks, own)
        return own if sentence is None else replace(own, certificate=replace(price, remarks=(sentence,)))


def _table_certificate(ledger: PrivacyLedger, models: int, own: Certificate | None = None) -> Certificate:
    """The price of the whole table, which the same people paid; with the groups of one model's measurement."""
    names = ("groups", "groups_source", "noise", "reproduction")
    facts: dict[str, Any] = {} if own is None else {name: getattr(own, name) for name in names}
    return ledger.certificate(planned=models, subject="This table", **facts)


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


def _row(model: str, judged: Judged, found: Measurement, kept: Path | None) -> dict[str, Any]:
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
        "groups": len(found.groups),
        "groups_compared": len(found.groups) - len(found.not_compared()),
        "not_compared": list(found.not_compared()),
        "kept": kept,
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
    partly = [
        f"{one['model']}: the violation is the largest difference among {one['groups_compared']} of {one['groups']} "
        f"groups; without enough evidence: {', '.join(one['not_compared'])}."
        for one in facts["models"]
        if one["not_compared"]
    ]
    sentences = (*partly, *facts["statements"])
    return "\n".join(
        [f"Compared on {facts['data']}, {facts['notion']}", table_text(head, rows), *map(filled, sentences)]
    )
