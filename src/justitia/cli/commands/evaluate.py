"""``justitia evaluate``: private measurement of a saved model on test rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from justitia._files import stage_beside
from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import NOT_SHOWN, OK, Refusal
from justitia.cli.files.attribute import Groups, Where, groups_text, read_bins
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.measurement_log import (
    LogRecord,
    add_measurement,
    find_shared,
    read_log,
    total_cost,
    warn_training_rows,
)
from justitia.cli.files.metadata import (
    FACTS,
    ROWS,
    facts_groups,
    load_model,
    measurement_metadata,
    model_features,
    model_groups,
    read_json,
)
from justitia.cli.files.public_rows import RowHashes, Sketch, hash_rows
from justitia.cli.files.rows import LabelledRows, read_rows
from justitia.cli.files.scored_rows import ModelOutputs, ScoredRows, model_outputs, read_scored_rows
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.goal import IN_UNITS, WITHIN_STRATA
from justitia.cli.measurement_text import exact_text, measurement_text, result_word
from justitia.cli.options import LedgerOptions, LimitOptions
from justitia.cli.output import json_text, print_result, print_warnings, staged_file, warn
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.measure import Measurement, measure
from justitia.metrics.quality import class_quality, number_quality, public_quality
from justitia.notions import DEFAULT_ENGINE_NOTIONS, NOTIONS, notion_name
from justitia.postprocessing.explain import changes
from justitia.privacy.vault import check_budget
from justitia.regressor import LagrangianDualRegressor
from justitia.tasks import Task

EXAMPLE = """
$ justitia evaluate model test.csv --epsilon 0.5 --below 0.5
"""
NOT_PRIVATE = (
    "exact numbers about groups are not private, and no ledger counts them. Nothing is written to the model's folder."
)


@dataclass(frozen=True)
class EvaluatedModel:
    """A model, rows to evaluate it on, and its decisions for them.

    Attributes
    ----------
    model : fitted classifier or regressor
    rows : LabelledRows or ScoredRows
    decided : array
        Codes of classes, or predicted numbers.
    groups : dict
        Public groups to compare.
    notions : tuple of str
    target : str
    trained_on : Sketch or None
        Summary of the training rows.
    """

    model: Any
    rows: LabelledRows | ScoredRows
    decided: NDArray[Any]
    groups: Groups
    notions: tuple[str, ...]
    target: str
    trained_on: Sketch | None = None

    def complete(self, where: Where) -> Where:
        """Fill in options about the attribute that were not given, by those that these rows were read with."""
        if where.sensitive:
            return where
        attribute = self.rows.attribute
        bins = tuple(str(one) for one in attribute.bins)
        cut = {one.column for one in attribute.bins}
        groups = groups_text({name: labels for name, labels in self.groups.items() if name not in cut})
        return replace(where, sensitive=attribute.columns, bins=bins, groups=where.groups or tuple(groups))

    def warn_training_rows(self, data: str, name: str) -> None:
        """Warn if training rows are among these rows."""
        if self.hashes.overlap(self.trained_on) == "shared":
            warn_training_rows(data, name)

    @cached_property
    def hashes(self) -> RowHashes:
        """Hashes of features and target."""
        return self.rows.public if isinstance(self.rows, ScoredRows) else hash_rows(self.rows, self.target)

    @property
    def accuracy(self) -> float | None:
        """Share of correct decisions, which is public; None of numbers."""
        return None if self.rows.task.kind == "number" else float(np.mean(self.decided == self.rows.y))

    @property
    def r2(self) -> float | None:
        """R2 of predicted numbers, which is public; None of decisions."""
        found = number_quality(self.rows.y, self.decided) if self.rows.task.kind == "number" else {}
        return found.get("r2")

    @cached_property
    def outputs(self) -> ModelOutputs:
        """Decisions, scores, and decisions and scores of the base."""
        rows = self.rows
        if isinstance(rows, ScoredRows):
            return rows.decided, rows.scores, rows.base_decided, rows.base_scores
        return model_outputs(self.model, rows.X)

    def quality(self) -> dict[str, Any]:
        """Public quality of the model and of its base: accuracy, AUC, confusion and calibration, or R2 and errors."""
        _, scores, base, base_scores = self.outputs
        found = self._quality(self.decided, scores)
        if base is not None:
            name = self.model.rule_.base.describe()
            found["before"] = {"name": name} | self._quality(base, base_scores)
            X = None if isinstance(self.rows, ScoredRows) else self.rows.X
            found["changes"] = changes(base, self.decided, X)
        return found

    def _quality(self, decided: NDArray[Any], scores: NDArray[np.float64] | None) -> dict[str, Any]:
        rows, kind = self.rows, self.rows.task.kind
        if kind == "number":
            return number_quality(rows.y, decided)
        return (
            public_quality(rows.y, decided, scores)
            if kind == "binary"
            else class_quality(rows.y, decided, rows.classes)
        )

    def measure(self, **settings: Any) -> Measurement:
        """One noisy measurement on these rows.

        Raises
        ------
        Refusal
            If scores are asked for that the model does not have.
        """
        settings |= {"data": self.rows.files} if isinstance(self.rows, ScoredRows) else {}
        labels, decisions = self.labels_and_decisions()
        return measure(
            labels,
            decisions,
            sensitive_features=self.rows.sensitive,
            person=self.rows.person,
            groups=self.groups,
            **measured_notions(self.notions),
            **self._task(),
            **settings,
        )

    def labels_and_decisions(self, decided: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Labels and decisions as they are measured: codes of two classes, names of more, or numbers."""
        chosen = self.decided if decided is None else decided
        if self.rows.task.kind != "classes":
            return self.rows.y, chosen
        names = np.array(self.rows.classes, dtype=object)
        return names[self.rows.y], names[chosen]

    def _task(self) -> dict[str, Any]:
        return {"pos_label": 1} if self.rows.task.kind == "binary" else {"task": self.rows.task.kind}

    def before(self) -> NDArray[Any] | None:
        """Decisions or predictions of the base, which the same answer measures; None if there is no base."""
        base = self.outputs[2]
        return None if base is None else self.labels_and_decisions(base)[1]

    def exact(self) -> dict[str, Any]:
        """Exact rates by group, which are not private."""
        if isinstance(self.rows, ScoredRows):
            raise Refusal(f"expected --exact with {AT_ONCE}")
        given: dict[str, Any] = {"sensitive_features": self.rows.sensitive, "groups": self.groups} | self._task()
        found = {}
        for notion in self.notions:
            if notion in DEFAULT_ENGINE_NOTIONS:
                raise Refusal(f"expected --exact with a notion of {', '.join(NOTIONS)}, got {notion}; pass --notion.")
            table = rates_by_group(*self.labels_and_decisions(), notion=notion, **given).reset_index()
            gap = violation(*self.labels_and_decisions(), notion=notion, **given)
            found[notion] = {"violation": gap, "by_group": table.to_dict("records")}
        return found


def measured_notions(notions: Sequence[str]) -> dict[str, Any]:
    """Arguments of a measurement that compares these notions.

    Precision is a metric. Rates within strata are not measured; those of all rows are, and a warning says so.
    """
    metrics: list[str] = ["precision_score"] if "predictive_parity" in notions else []
    found = [one for one in notions if one not in ("predictive_parity", WITHIN_STRATA)]
    if WITHIN_STRATA in notions:
        warn(f"{WITHIN_STRATA} is not measured; demographic_parity of all rows is. Measure each stratum for itself.")
        found = list(dict.fromkeys([*found, "demographic_parity"]))
    return ({"notion": found} if found else {}) | ({"metrics": metrics} if metrics else {})


@click.command("evaluate", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.argument("data", type=options.FILE)
@options.notions("the model's")
@options.epsilon(1.0, "Privacy budget of this measurement.")
@options.delta
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of all bounds.")
@options.below
@options.limits
@click.option(
    "--scores", is_flag=True, help="Score metrics by group, too: binned AUC, calibration, distances. More noise."
)
@options.reference
@click.option("--exact", is_flag=True, help="Exact numbers instead: NOT private.")
@options.ledger
@options.target
@options.attribute
@options.formats
@options.stream
@options.custodian
@click.option("--out", type=options.FILE, help="JSON file to write besides the one that the model's folder keeps.")
@options.overwrite
@options.as_json
def evaluate(
    model: Path,
    data: Path,
    below: float | None,
    exact: bool,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Measure how MODEL treats groups in DATA.

    DATA should contain no training rows. Rates, gaps and the violation are released once, with noise that protects the
    attribute of any one row (with --person, of any one person). Their bounds cover noise and sampling error. Target,
    sensitive column, groups and --person are those of the training unless given here. If the model corrects a base
    model, the decisions of the base are measured with the same noise, for comparison.

    --below, or --limit, is the limit that the measurement is held to, and --limit-ratio that of the impact ratio; by
    default those that were given to 'justitia train'. If there is one that is not shown to be met, the exit code is 4.

    Every measurement is kept in the model's folder. The command prints its total cost with the training and earlier
    measurements, because costs add up for individuals whose public rows were used before.
    """
    ledger = LedgerOptions.from_options(settings)
    given = LimitOptions.from_options(settings)
    settings["where"] = Where.from_options(settings)
    evaluated = load_and_predict(model, data, settings)
    stored = facts_of(model) or getattr(evaluated.model, "limits_", {})
    limits = given.or_those_of(stored) if below is None else replace(given, limit=below)
    limits.check(evaluated.rows.task, in_units=in_units(evaluated.rows.task, evaluated.notions))
    scores = evaluated.outputs[1] if settings["scores"] else None
    if settings["scores"] and scores is None:
        raise Refusal(f"expected a model of two classes with --scores, got {evaluated.rows.task.describe()}.")
    if exact and evaluated.rows.attribute.held is not None:
        raise Refusal("expected --exact where the attribute is in a file, got --custodian, who gives no exact number.")
    if exact:
        return _print_exact(evaluated, model, ledger, out, as_json=as_json)
    check_budget(settings["epsilon"], settings["delta"])
    if out is not None and out.resolve().is_relative_to(model.resolve()):
        raise Refusal("the model's folder keeps every measurement by itself; choose an --out elsewhere, or none.")
    read = (data, settings["where"].sensitive_file, ledger.file)
    copy = nullcontext() if out is None else staged_file(out, overwrite=overwrite, inputs=read)
    with stage_beside(model / "measurement") as stage, copy as second, print_warnings() as warnings:
        opened = ledger.open(settings["delta"])
        log = read_log(model, evaluated.model.certificate_)
        shared = find_shared(evaluated.hashes, log, data.name)
        found = evaluated.measure(
            epsilon=settings["epsilon"],
            delta=settings["delta"],
            confidence=settings["confidence"],
            threshold=limits.limit,
            favorable=limits.favorable_code(evaluated.rows.task),
            reference=settings["reference"],
            before=evaluated.before(),
            scores=scores,
            ledger=opened,
        )
        entry = LogRecord("new", found.certificate, evaluated.hashes.sketch, shared)
        total = total_cost(log, entry)
        if total is not None:
            remarks = (*found.certificate.remarks, total)
            found = replace(found, certificate=replace(found.certificate, remarks=remarks))
        facts = measurement_metadata(found, evaluated.accuracy, data.name, evaluated.r2)
        facts |= {"public": evaluated.quality(), **limits.to_dict()}
        if second is not None:
            second.write_text(json_text(facts), encoding="utf-8")
        file = add_measurement(json_text(facts | entry.to_dict()), stage, model)
    result = {"model": model, "kept": file, "out": out, **facts, "warnings": warnings}
    text = measurement_text(found, evaluated.accuracy, data.name, evaluated.r2, limits.limit_ratio)
    print_result(result, text, as_json=as_json)
    return OK if result_word(found, limits.limit_ratio) in ("PASS", "MEASURED") else NOT_SHOWN


def _print_exact(
    evaluated: EvaluatedModel, model: Path, ledger: LedgerOptions, out: Path | None, *, as_json: bool
) -> int:
    if ledger.file is not None or out is not None:
        raise Refusal("expected --exact without --ledger and --out, because exact numbers cost an infinite epsilon.")
    warn(NOT_PRIVATE)
    found = evaluated.exact()
    quality = {"accuracy": evaluated.accuracy} if evaluated.r2 is None else {"r2": evaluated.r2}
    facts = {"model": model, "private": False, **quality, "exact": found}
    print_result(facts, exact_text(found, evaluated.accuracy, evaluated.r2), as_json=as_json)
    return OK


def load_and_predict(model: Path, data: Path, settings: dict[str, Any]) -> EvaluatedModel:
    """Load a model, read rows by its facts or by the options, and predict their decisions."""
    fitted, facts = load_model(model)
    target = settings.get("target") or facts.get("target")
    if target is None:
        raise Refusal("the model's folder does not say what it predicts; pass --target NAME.")
    where = _complete(settings["where"], facts)
    public: dict[str, Any] = {
        "target": target,
        "positive": settings.get("positive"),
        "classes": _classes(fitted, settings.get("positive")),
        "columns": FeatureColumns.from_model(facts, model_features(fitted), settings),
    }
    rows: LabelledRows | ScoredRows
    if is_streamed(data, asked=settings["stream"]):
        rows = read_scored_rows(data, where, lambda X: model_outputs(fitted, X), **public)
    else:
        rows = read_rows(data, where, **public)
    decided = rows.decided if isinstance(rows, ScoredRows) else model_outputs(fitted, rows.X)[0]
    columns = rows.attribute.columns
    groups = rows.attribute.groups or facts_groups(facts, columns) or model_groups(fitted, columns)
    trained = fitted.notion if isinstance(fitted.notion, list | tuple) else [fitted.notion]
    notions = tuple(settings.get("notions") or ()) or tuple(map(notion_name, trained))
    return EvaluatedModel(fitted, rows, decided, groups, notions, target, Sketch.from_dict(facts.get(ROWS)))


def _classes(model: Any, positive: str | None) -> list[Any] | None:
    """Values of the target that a model has fixed; none of numbers, and None if an option names the positive one."""
    classes = [] if isinstance(model, LagrangianDualRegressor) else model.classes_.tolist()
    if positive and len(classes) != 2:
        raise Refusal("expected --positive with a model of two classes, got another one; leave it out.")
    return None if positive else classes


def in_units(task: Task, notions: Sequence[str]) -> bool:
    """Whether gaps are in units of the target, not shares."""
    return task.kind == "number" and bool(set(IN_UNITS) & set(notions))


def check_limit(below: float | None, task: Task, notions: Sequence[str]) -> None:
    """Refuse a limit that no difference of rates exceeds, because users who write 5 mean 5%."""
    LimitOptions(limit=below).check(task, in_units=in_units(task, notions))


def facts_of(model: Path) -> dict[str, Any]:
    """Facts of the training beside a model; none if it was saved from Python."""
    return read_json(model / FACTS) or {}


def _complete(where: Where, facts: dict[str, Any]) -> Where:
    """Fill in options about the attribute that were not given, by the facts of the training."""
    unsaid = [name for name in ("person", "separator", "encoding") if getattr(where, name) is None]
    trained: dict[str, Any] = {name: facts.get(name) for name in unsaid}
    where = replace(where, **trained)
    if (where.sensitive_file is not None or where.custodian is not None) and where.key is None:
        where = replace(where, key=facts.get("key"))
    if where.custodian is not None:
        return replace(where, person=where.person if where.person == where.key else None)
    if where.sensitive:
        return where
    listed: Sequence[str] = facts.get("sensitive") or ()
    bins = tuple(where.bins or facts.get("bins") or ())
    missing = where.missing or facts.get("missing")
    cut = {read_bins(one).column for one in bins}
    known = facts_groups(facts, listed) or {}
    named = groups_text({name: labels for name, labels in known.items() if name not in cut})
    return replace(where, sensitive=tuple(listed), bins=bins, missing=missing, groups=tuple(where.groups or named))
