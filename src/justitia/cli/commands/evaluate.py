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
    ROWS,
    facts_groups,
    load_model,
    measurement_metadata,
    model_features,
    model_groups,
)
from justitia.cli.files.public_rows import RowHashes, Sketch, hash_rows
from justitia.cli.files.rows import LabelledRows, read_rows
from justitia.cli.files.scored_rows import ScoredRows, model_outputs, read_scored_rows
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.measurement_text import exact_text, measurement_text
from justitia.cli.options import LedgerOptions
from justitia.cli.output import json_text, print_result, print_warnings, staged_file, warn
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.measure import Measurement, measure
from justitia.metrics.quality import public_quality
from justitia.notions import notion_name
from justitia.privacy.vault import check_budget

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
    model : fitted classifier
    rows : LabelledRows or ScoredRows
    decided : array of 0 and 1
    groups : dict
        Public groups to compare.
    notions : tuple of str
    target : str
    trained_on : Sketch or None
        Summary of the training rows.
    """

    model: Any
    rows: LabelledRows | ScoredRows
    decided: NDArray[np.int64]
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
    def accuracy(self) -> float:
        """Share of correct decisions, which is public."""
        return float(np.mean(self.decided == self.rows.y))

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """Public scores by which the model decides."""
        if isinstance(self.rows, ScoredRows):
            return self.rows.scores
        scores: NDArray[np.float64] = self.model.predict_proba(self.rows.X)[:, 1]
        return scores

    @cached_property
    def base_scores(self) -> NDArray[np.float64] | None:
        """Scores of the base model, before the correction; None for a network."""
        if isinstance(self.rows, ScoredRows):
            return self.rows.base_scores
        found: NDArray[np.float64] | None = self.model.base_proba(self.rows.X)
        return found

    @property
    def base_decided(self) -> NDArray[np.int64] | None:
        """Decisions of the base model at the same threshold."""
        base = self.base_scores
        return None if base is None else (base > self.model.rule_.threshold).astype(np.int64)

    def quality(self) -> dict[str, Any]:
        """Public accuracy, AUC, confusion matrix and calibration of the model and of its base."""
        found = public_quality(self.rows.y, self.decided, self.scores)
        base = self.base_decided
        if base is not None:
            name = self.model.rule_.base.describe()
            found["before"] = {"name": name} | public_quality(self.rows.y, base, self.base_scores)
        return found

    def measure(self, **settings: Any) -> Measurement:
        """One noisy measurement on these rows."""
        settings |= {"data": self.rows.files} if isinstance(self.rows, ScoredRows) else {}
        return measure(
            self.rows.y,
            self.decided,
            sensitive_features=self.rows.sensitive,
            person=self.rows.person,
            groups=self.groups,
            notion=list(self.notions),
            pos_label=1,
            **settings,
        )

    def exact(self) -> dict[str, Any]:
        """Exact rates by group, which are not private."""
        if isinstance(self.rows, ScoredRows):
            raise Refusal(f"expected --exact with {AT_ONCE}")
        given: dict[str, Any] = {"sensitive_features": self.rows.sensitive, "groups": self.groups, "pos_label": 1}
        found = {}
        for notion in self.notions:
            table = rates_by_group(self.rows.y, self.decided, notion=notion, **given).reset_index()
            gap = violation(self.rows.y, self.decided, notion=notion, **given)
            found[notion] = {"violation": gap, "by_group": table.to_dict("records")}
        return found


@click.command("evaluate", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.argument("data", type=options.FILE)
@options.notions("the model's")
@options.epsilon(1.0, "Privacy budget of this measurement.")
@options.delta
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of all bounds.")
@options.below
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

    Every measurement is kept in the model's folder. The command prints its total cost with the training and earlier
    measurements, because costs add up for individuals whose public rows were used before.
    """
    ledger = LedgerOptions.from_options(settings)
    settings["where"] = Where.from_options(settings)
    evaluated = load_and_predict(model, data, settings)
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
            threshold=below,
            reference=settings["reference"],
            before=evaluated.base_decided,
            scores=evaluated.scores if settings["scores"] else None,
            ledger=opened,
        )
        entry = LogRecord("new", found.certificate, evaluated.hashes.sketch, shared)
        total = total_cost(log, entry)
        if total is not None:
            remarks = (*found.certificate.remarks, total)
            found = replace(found, certificate=replace(found.certificate, remarks=remarks))
        facts = measurement_metadata(found, evaluated.accuracy, data.name) | {"public": evaluated.quality()}
        if second is not None:
            second.write_text(json_text(facts), encoding="utf-8")
        file = add_measurement(json_text(facts | entry.to_dict()), stage, model)
    result = {"model": model, "kept": file, "out": out, **facts, "warnings": warnings}
    print_result(result, measurement_text(found, evaluated.accuracy, data.name), as_json=as_json)
    shown = all(verdict.answer == "below" for verdict in found.verdicts.values())
    return OK if shown else NOT_SHOWN


def _print_exact(
    evaluated: EvaluatedModel, model: Path, ledger: LedgerOptions, out: Path | None, *, as_json: bool
) -> int:
    if ledger.file is not None or out is not None:
        raise Refusal("expected --exact without --ledger and --out, because exact numbers cost an infinite epsilon.")
    warn(NOT_PRIVATE)
    found = evaluated.exact()
    facts = {"model": model, "private": False, "accuracy": evaluated.accuracy, "exact": found}
    print_result(facts, exact_text(found, evaluated.accuracy), as_json=as_json)
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
        "classes": None if settings.get("positive") else fitted.classes_.tolist(),
        "columns": FeatureColumns.from_model(facts, model_features(fitted), settings),
    }
    rows: LabelledRows | ScoredRows
    if is_streamed(data, asked=settings["stream"]):
        rows = read_scored_rows(data, where, lambda X: model_outputs(fitted, X), **public)
    else:
        rows = read_rows(data, where, **public)
    decided = rows.decided if isinstance(rows, ScoredRows) else (fitted.decision_function(rows.X) > 0).astype(np.int64)
    columns = rows.attribute.columns
    groups = rows.attribute.groups or facts_groups(facts, columns) or model_groups(fitted, columns)
    notions = tuple(settings.get("notions") or ()) or (notion_name(fitted.notion),)
    return EvaluatedModel(fitted, rows, decided, groups, notions, target, Sketch.from_dict(facts.get(ROWS)))


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
