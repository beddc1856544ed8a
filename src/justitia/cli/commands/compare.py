"""``justitia compare``: private measurement of several models on the same rows, in one table."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import click
import numpy as np
from numpy.typing import NDArray

from justitia._files import stage_beside
from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.commands.evaluate import EvaluatedModel, load_and_predict
from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import Where
from justitia.cli.files.columns import FeatureColumns, read_formats, warn_about
from justitia.cli.files.measurement_log import (
    COMPARED,
    LogRecord,
    add_measurement,
    find_shared,
    read_log,
    total_cost,
)
from justitia.cli.files.metadata import measurement_metadata
from justitia.cli.files.public_rows import hash_rows
from justitia.cli.files.rows import LabelledRows, read_rows
from justitia.cli.files.scored_rows import ModelOutputs, ScoredRows, read_scored_rows
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.goal import GoalOptions
from justitia.cli.output import json_text, print_result, print_warnings, table_text, truncate, wrap
from justitia.cli.training import fit_arguments, make_estimator
from justitia.engines import MOMENTS, OLD_NAMES, PF_LD, POST_PROCESSING
from justitia.learners.base import Inputs
from justitia.learners.calibration import calibrate_target
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.metrics.bounds import Interval
from justitia.metrics.measurement import Measurement
from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.tables import public_seed
from justitia.privacy.accounting import gaussian_epsilon, gaussian_mu
from justitia.privacy.ledger import ROUND_OFF, Certificate, PrivacyLedger
from justitia.privacy.vault import check_budget
from justitia.regressor import LagrangianDualRegressor
from justitia.tasks import BINARY, Task
from justitia.training.diagnostics import decided

UNCORRECTED = "uncorrected"
METHOD = options.OneOf("method", (UNCORRECTED, POST_PROCESSING, MOMENTS, PF_LD), renamed=OLD_NAMES)
EXAMPLE = """
$ justitia compare model curve/tolerance-0 --data test.csv --epsilon 1
$ justitia compare model --method uncorrected --train income.csv \\
    --data test.csv
"""


@click.command("compare", cls=Command, example=EXAMPLE)
@click.argument("models", type=options.FILE, nargs=-1)
@click.option("--data", type=options.FILE, required=True, help="Rows to measure on; not those of the training.")
@click.option("--method", "methods", type=METHOD, multiple=True, help="A method to train now.")
@click.option("--train", "train_file", type=options.FILE, help="Rows to train methods on.")
@click.option("--method-epsilon", type=float, default=1.0, show_default=True, help="Privacy budget of each method.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the public randomness of methods.")
@click.option("--notion", type=options.MEASURED_NOTION, metavar="NAME", help="By default that of the first model.")
@options.epsilon(1.0, "Privacy budget of the whole table.")
@options.delta
@options.ledger
@options.target
@options.task
@options.attribute
@options.formats
@options.stream
@options.as_json
def compare(models: tuple[Path, ...], data: Path, notion: str | None, as_json: bool, **settings: Any) -> None:
    """Measure several saved MODELS, and methods trained now, on the same rows.

    The budget is divided evenly, so more models mean more noise in each violation. Accuracy, or R2 of predicted
    numbers, is public and exact.
    Methods are trained on the rows of --train, each at the price of --method-epsilon; their total cost is printed below
    the table. 'uncorrected' is the default base without a correction; it costs nothing.

    The folder of each saved model keeps its measurement, with the cost of the whole table.
    """
    ledger = options.LedgerOptions.from_options(settings)
    settings["where"] = Where.from_options(settings)
    check_budget(settings["epsilon"], settings["delta"])
    folders: dict[Path, Path] = {}
    for model in models:
        folders.setdefault(model.resolve(), model)  # one model under two names is one model
    saved = {str(one): _SavedModel(one, load_and_predict(one, data, dict(settings))) for one in folders.values()}
    evaluated = {name: one.evaluated for name, one in saved.items()}
    check_same_task(evaluated)
    chosen = notion or (next(iter(evaluated.values())).notions[0] if evaluated else "demographic_parity")
    training = PrivacyLedger(epsilon=math.inf, delta=settings["delta"])
    with ExitStack() as stack, print_warnings() as warnings:
        # What can fail comes before the first release: to read earlier costs, and to make room for one more file.
        stages = {name: stack.enter_context(stage_beside(one.folder / "measurement")) for name, one in saved.items()}
        shared = {
            name: find_shared(one.evaluated.hashes, one.log, data.name, repr(name)) for name, one in saved.items()
        }
        methods = _train_methods(evaluated, data, chosen, training, settings)
        for name, trained in methods.items():
            trained.warn_training_rows(data.name, repr(name))
        evaluated |= methods
        each = part_of(settings["epsilon"], settings["delta"], len(evaluated))
        opened = ledger.open(settings["delta"]) or PrivacyLedger(epsilon=settings["epsilon"], delta=settings["delta"])
        budget = {"epsilon": each, "delta": settings["delta"], "ledger": opened}
        found = {name: replace(one, notions=(chosen,)).measure(**budget) for name, one in evaluated.items()}
        kept, statements = {}, [_table_certificate(opened, len(evaluated)).statement]
        for name, one in saved.items():
            price = _table_certificate(opened, len(evaluated), found[name].certificate)
            entry = LogRecord("new", price, one.evaluated.hashes.sketch, shared[name])
            total = total_cost(one.log, entry)
            if total is not None:
                price = replace(price, remarks=(total,))
            statements += [f"{name}: {sentence}" for sentence in price.remarks]
            quality = (one.evaluated.accuracy, data.name, one.evaluated.r2)
            facts = measurement_metadata(replace(found[name], certificate=price), *quality)
            facts |= {"public": one.evaluated.quality(), COMPARED: list(evaluated)} | entry.to_dict()
            kept[name] = add_measurement(json_text(facts), stages[name], one.folder)
    if training.releases:
        # Which methods are trained is fixed before the first, so that the sum of their costs holds.
        subject = "Everything that methods learned from --train"
        statements.append(training.certificate(planned=len(training.releases), subject=subject).statement)
    rows = [_row(name, one, found[name], kept.get(name)) for name, one in evaluated.items()]
    facts = {"data": data, "notion": chosen, "models": rows, "statements": statements, "warnings": warnings}
    print_result(facts, _text(facts), as_json=as_json)


def check_same_task(evaluated: dict[str, EvaluatedModel]) -> None:
    """Refuse models of different kinds of targets in one table."""
    kinds = {one.rows.task.kind for one in evaluated.values()}
    if len(kinds) > 1:
        raise Refusal(f"expected models of one kind of target, got {' and '.join(sorted(kinds))}; compare them apart.")


@dataclass(frozen=True)
class _SavedModel:
    """A saved model, its decisions for the rows, and its measurement log."""

    folder: Path
    evaluated: EvaluatedModel

    @cached_property
    def log(self) -> list[LogRecord]:
        return read_log(self.folder, self.evaluated.model.certificate_)


def _table_certificate(ledger: PrivacyLedger, models: int, own: Certificate | None = None) -> Certificate:
    """Certificate of the whole table, which used the same rows; with the groups of one model's measurement."""
    names = ("groups", "groups_source", "noise", "reproduction")
    facts: dict[str, Any] = {} if own is None else {name: getattr(own, name) for name in names}
    return ledger.certificate(planned=models, subject="This table", **facts)


def _train_methods(
    evaluated: dict[str, EvaluatedModel], data: Path, notion: str, total: PrivacyLedger, settings: dict[str, Any]
) -> dict[str, EvaluatedModel]:
    """Train the methods that options name, and predict for the same rows as the models."""
    methods = list(dict.fromkeys(settings["methods"]))
    if not methods:
        return {}
    if settings["train_file"] is None:
        raise Refusal("expected a file to train methods on, got none; pass --train FILE.")
    first = next(iter(evaluated.values()), None)
    target = settings["target"] or (None if first is None else first.target)
    if target is None:
        raise Refusal("expected the name of the column to predict, got none; pass --target NAME.")
    where = settings["where"] if first is None else first.complete(settings["where"])
    if is_streamed(settings["train_file"], asked=False):
        raise Refusal(f"expected --train with {AT_ONCE}")
    fresh = FeatureColumns(written=read_formats(dict(settings)))
    task = settings["task"] if first is None or first.rows.task.kind == "binary" else first.rows.task.kind
    rows = read_rows(
        settings["train_file"], where, target=target, positive=settings["positive"], columns=fresh, task=task
    )
    warn_about(rows.readings)
    if rows.attribute.groups is None:
        raise Refusal("expected the public list of groups, got none; pass --groups.")
    same = replace(fresh, features=tuple(str(name) for name in rows.X), known=rows.readings)
    public: dict[str, Any] = {"target": target, "classes": rows.classes, "columns": same}
    streamed = is_streamed(data, asked=settings["stream"])
    others = None if streamed else read_rows(data, where, **public)
    found = {}
    trained_on = hash_rows(rows, target).sketch
    for name in methods:
        model = _fit_method(name, rows, notion, settings, total)
        seen = others or read_scored_rows(data, where, partial(_outputs, model), **public)
        decided = seen.decided if isinstance(seen, ScoredRows) else _outputs(model, seen.X)[0]
        found[f"({name})"] = EvaluatedModel(model, seen, decided, rows.attribute.groups, (notion,), target, trained_on)
    return found


def _fit_method(name: str, rows: LabelledRows, notion: str, settings: dict[str, Any], total: PrivacyLedger) -> Any:
    """A fitted model; its releases are also recorded on the ledger of all methods."""
    if name == UNCORRECTED:
        return UncorrectedModel(settings["seed"], rows.task).fit(rows.X, rows.y)
    own = PrivacyLedger(epsilon=settings["method_epsilon"], delta=settings["delta"])
    values = {"epsilon": own.budget_epsilon, "delta": settings["delta"], "seed": settings["seed"]}
    default = {"hidden": None, "plan_file": None, "base": None, "base_columns": (), "threshold": 0.5}
    goal = GoalOptions((notion,))
    model = make_estimator(rows, values | default | {"engine": name, "small_groups": True}, goal)  # as in Python
    model.fit(**fit_arguments(rows, goal), ledger=own)
    for release in own.releases:
        total.debit(release)
    return model


class UncorrectedModel:
    """The default base (LightGBM, calibrated) without a correction; it never reads the attribute.

    With the same seed its decisions are those of the base below engine "post-processing".

    Attributes
    ----------
    certificate_ : Certificate
        Epsilon 0.
    """

    def __init__(self, seed: int | None, task: Task = BINARY) -> None:
        self.seed, self.task = seed, task

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the target, codes of classes or numbers, from the features."""
        self._encoder = TabularEncoder().fit(X)
        label = np.asarray(y, dtype=np.float64)
        weight, self._base = np.ones(len(label)), LightGBMBase(len(label), self.task)
        inputs = Inputs(X, self._encoder.transform(X))
        raw = self._base.learn(inputs, label, weight, seed=public_seed(self.seed), progress=lambda _: None)
        self._calibration = calibrate_target(raw, label, weight, self.task)
        self.certificate_ = PrivacyLedger(epsilon=0.0, delta=0.0).certificate(groups_source="not asked")
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): the code of the most likely class, or the predicted number."""
        found = self._calibration(self._base.predict(Inputs(X, self._encoder.transform(X))))
        if self.task.kind == "number":
            return found
        return found.argmax(1) if self.task.kind == "classes" else (found > 0.5).astype(np.int64)


def _outputs(model: Any, X: Any) -> ModelOutputs:
    """Decisions of a method: codes of classes, or numbers. The table of models needs neither scores nor the base."""
    if isinstance(model, UncorrectedModel | LagrangianDualRegressor):
        return model.predict(X), None, None, None
    return decided(model.decision_function(X)), None, None, None


def part_of(epsilon: float, delta: float, parts: int) -> float:
    """Epsilon of one of several equal Gaussian releases that together cost (epsilon, delta)."""
    if not parts:
        raise Refusal("expected at least one model, got none.")
    if math.isinf(epsilon):
        return epsilon
    return gaussian_epsilon(gaussian_mu(epsilon, delta) / math.sqrt(parts), delta) * (1 - ROUND_OFF)


def _tolerance(model: Any) -> float | None:
    """The tolerance that was given; of several, the largest."""
    given = getattr(model, "tolerance", None)
    return None if given is None else float(np.max(given))


def _row(model: str, evaluated: EvaluatedModel, found: Measurement, kept: Path | None) -> dict[str, Any]:
    violation = found.violation
    return {
        "model": model,
        "trained_for": evaluated.notions[0],
        "tolerance": _tolerance(evaluated.model),
        "epsilon": evaluated.model.certificate_.epsilon,
        **({"accuracy": evaluated.accuracy} if evaluated.r2 is None else {"r2": evaluated.r2}),
        "violation": None if math.isnan(violation.estimate) else violation.estimate,
        "lower": violation.lower,
        "upper": violation.upper,
        "groups": len(found.groups),
        "groups_compared": len(found.groups) - len(found.not_compared()),
        "not_compared": list(found.not_compared()),
        "kept": kept,
    }


def _text(facts: dict[str, Any]) -> str:
    quality = "r2" if "r2" in facts["models"][0] else "accuracy"
    rows = [
        (
            truncate(str(one["model"]), 28),
            "-" if one["tolerance"] is None else f"{one['tolerance']:g}",
            f"{one['epsilon']:.3g}",
            f"{one[quality]:.3f}",
            str(Interval(math.nan if one["violation"] is None else one["violation"], one["lower"], one["upper"])),
        )
        for one in facts["models"]
    ]
    head = ("model", "tolerance", "epsilon", quality.replace("r2", "R2"), "violation, bounds")
    partly = [
        f"{one['model']}: the violation is the largest difference among {one['groups_compared']} of {one['groups']} "
        f"groups; without enough evidence: {', '.join(one['not_compared'])}."
        for one in facts["models"]
        if one["not_compared"]
    ]
    sentences = (*partly, *facts["statements"])
    return "\n".join([f"Compared on {facts['data']}, {facts['notion']}", table_text(head, rows), *map(wrap, sentences)])
