"""``justitia evaluate``: how a model treats groups of other people, measured privately."""

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
from justitia.cli.files.attribute import Groups, Where, groups_text
from justitia.cli.files.bins import read_bins
from justitia.cli.files.columns import Columns
from justitia.cli.files.looks import (
    Look,
    earlier_looks,
    joint_sentence,
    keep_measurement,
    shared_with,
    training_sketch,
    warn_trained_on,
)
from justitia.cli.files.metadata import (
    decisions,
    features_of,
    groups_from,
    groups_of,
    load_model,
    measurement_metadata,
    said_of,
)
from justitia.cli.files.public_rows import PublicRows, Sketch, public_rows
from justitia.cli.files.rows import Rows, read_rows
from justitia.cli.files.seen import SeenRows, read_seen
from justitia.cli.files.streamed import AT_ONCE, is_streamed
from justitia.cli.ledger_options import LedgerOptions
from justitia.cli.measurement_text import exact_text, measurement_text
from justitia.cli.output import json_text, staged_file, tell, told_warnings, warn
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.measure import Measurement, measure
from justitia.metrics.quality import public_quality
from justitia.notions import notion_name
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.vault import check_budget

EXAMPLE = """
$ justitia evaluate model test.csv --epsilon 0.5 --below 0.5
"""
NOT_PRIVATE = (
    "exact numbers about groups are not private: they tell about the people in DATA, and no ledger counts them. "
    "Nothing is written to the model's folder."
)


@dataclass(frozen=True)
class Judged:
    """A model, other people, its decisions about them, the public groups to compare, and whom it was trained on."""

    model: Any
    rows: Rows | SeenRows
    decided: NDArray[np.int64]
    groups: Groups
    notions: tuple[str, ...]
    target: str
    trained_on: Sketch | None = None

    def completed(self, where: Where) -> Where:
        """Options that leave the attribute open, by what these people were read with."""
        if where.sensitive:
            return where
        attribute = self.rows.attribute
        bins = tuple(str(one) for one in attribute.bins)
        cut = {one.column for one in attribute.bins}
        groups = groups_text({name: labels for name, labels in self.groups.items() if name not in cut})
        return replace(where, sensitive=attribute.columns, bins=bins, groups=where.groups or tuple(groups))

    def warn_of_training_rows(self, data: str, name: str) -> None:
        """Say so if these people are those of the training, as far as public rows tell."""
        if self.public.overlap(self.trained_on) == "shared":
            warn_trained_on(data, name)

    @cached_property
    def public(self) -> PublicRows:
        """Hashes of features and target."""
        return self.rows.public if isinstance(self.rows, SeenRows) else public_rows(self.rows, self.target)

    @property
    def accuracy(self) -> float:
        """Share of decisions that are right: public."""
        return float(np.mean(self.decided == self.rows.y))

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """What decisions are made from: public."""
        if isinstance(self.rows, SeenRows):
            return self.rows.scores
        scores: NDArray[np.float64] = self.model.predict_proba(self.rows.X)[:, 1]
        return scores

    @cached_property
    def base_scores(self) -> NDArray[np.float64] | None:
        """The same of the base, before the correction; None of a network."""
        if isinstance(self.rows, SeenRows):
            return self.rows.base_scores
        found: NDArray[np.float64] | None = self.model.base_proba(self.rows.X)
        return found

    @property
    def base_decided(self) -> NDArray[np.int64] | None:
        """Decisions of the base, at the same threshold."""
        base = self.base_scores
        return None if base is None else (base > self.model.rule_.threshold).astype(np.int64)

    def quality(self) -> dict[str, Any]:
        """Accuracy, AUC, confusion and calibration of the model, and of its base: public."""
        found = public_quality(self.rows.y, self.decided, self.scores)
        base = self.base_decided
        if base is not None:
            name = self.model.rule_.base.describe()
            found["before"] = {"name": name} | public_quality(self.rows.y, base, self.base_scores)
        return found

    def measure(self, **settings: Any) -> Measurement:
        """One noised answer about these people."""
        settings |= {"data": self.rows.files} if isinstance(self.rows, SeenRows) else {}
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
        """Exact rates by group: not private."""
        if isinstance(self.rows, SeenRows):
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
    """Measure how MODEL treats groups of the people in DATA.

    They should be other people than those of the training. Rates, gaps and the violation are released once, with
    noise that protects the attribute of any one row (with --person, of any one person), and with bounds that hold both
    noise and sampling error. Target, sensitive column, groups and --person are the training's unless given here.
    Of a model that corrects a base, the base's decisions are measured with the same noise, for comparison.

    Every measurement is kept in the model's folder. What it costs together with the training and with earlier ones is
    printed: costs add up for people whose public rows were looked at before.
    """
    ledger = LedgerOptions.taken(settings)
    judged = judge(model, data, settings)
    if exact and judged.rows.attribute.held is not None:
        raise Refusal("expected --exact where the attribute is in a file, got --custodian, who gives no exact number.")
    if exact:
        return _tell_exact(judged, model, ledger, out, as_json=as_json)
    check_budget(settings["epsilon"], settings["delta"])
    if out is not None and out.resolve().is_relative_to(model.resolve()):
        raise Refusal("the model's folder keeps every measurement by itself; choose an --out elsewhere, or none.")
    read = (data, settings["where"].sensitive_file, ledger.file)
    copy = nullcontext() if out is None else staged_file(out, overwrite=overwrite, inputs=read)
    with stage_beside(model / "measurement") as stage, copy as second, told_warnings() as warnings:
        opened = ledger.open(settings["delta"])
        found, kept = _looked(judged, model, opened, settings | {"threshold": below}, name=data.name)
        facts = measurement_metadata(found, judged.accuracy, data.name) | {"public": judged.quality()}
        if second is not None:
            second.write_text(json_text(facts), encoding="utf-8")
        file = keep_measurement(json_text(facts | kept), stage, model)
    written = {"model": model, "kept": file, "out": out, **facts, "warnings": warnings}
    tell(written, measurement_text(found, judged.accuracy, data.name), as_json=as_json)
    shown = all(verdict.answer == "below" for verdict in found.verdicts.values())
    return OK if shown else NOT_SHOWN


def _looked(
    judged: Judged, model: Path, ledger: DurableLedger | None, settings: dict[str, Any], *, name: str
) -> tuple[Measurement, dict[str, Any]]:
    """One more look at people through a model, with what all looks cost together, and what to keep of it."""
    rows = judged.public
    looks = earlier_looks(model, judged.model.certificate_)
    shared = shared_with(rows, looks, name)
    asked = {one: settings[one] for one in ("epsilon", "delta", "confidence", "threshold", "reference")}
    scores = judged.scores if settings["scores"] else None
    found = judged.measure(**asked, before=judged.base_decided, scores=scores, ledger=ledger)
    own = Look("new", found.certificate, rows.sketch, shared)
    sentence = joint_sentence(looks, own)
    if sentence is not None:
        remarks = (*found.certificate.remarks, sentence)
        found = replace(found, certificate=replace(found.certificate, remarks=remarks))
    return found, own.to_keep()


def _tell_exact(judged: Judged, model: Path, ledger: LedgerOptions, out: Path | None, *, as_json: bool) -> int:
    if ledger.file is not None or out is not None:
        raise Refusal("expected --exact without --ledger and --out: exact numbers cost an infinite epsilon.")
    warn(NOT_PRIVATE)
    found = judged.exact()
    facts = {"model": model, "private": False, "accuracy": judged.accuracy, "exact": found}
    tell(facts, exact_text(found, judged.accuracy), as_json=as_json)
    return OK


def judge(model: Path, data: Path, settings: dict[str, Any]) -> Judged:
    """Load the model, read the people by its facts or by the options, and decide about them."""
    fitted, facts = load_model(model)
    target = settings.get("target") or facts.get("target")
    if target is None:
        raise Refusal("the model's folder does not say what it predicts; pass --target NAME.")
    where = _completed(settings["where"], facts)
    public: dict[str, Any] = {
        "target": target,
        "positive": settings.get("positive"),
        "classes": None if settings.get("positive") else fitted.classes_.tolist(),
        "columns": Columns.of_model(facts, features_of(fitted), settings),
    }
    rows: Rows | SeenRows
    if is_streamed(data, asked=settings["stream"]):
        rows = read_seen(data, where, lambda X: said_of(fitted, X), **public)
    else:
        rows = read_rows(data, where, **public)
    decided = rows.decided if isinstance(rows, SeenRows) else decisions(fitted, rows.X)
    groups = _groups(rows, fitted, facts)
    notions = tuple(settings.get("notions") or ()) or (_notion(fitted),)
    return Judged(fitted, rows, decided, groups, notions, target, training_sketch(facts))


def _notion(model: LagrangianDualClassifier) -> str:
    return notion_name(model.notion)


def _completed(where: Where, facts: dict[str, Any]) -> Where:
    """What the options leave open, by the facts of the training."""
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
    known = groups_from(facts, listed) or {}
    named = groups_text({name: labels for name, labels in known.items() if name not in cut})
    return replace(where, sensitive=tuple(listed), bins=bins, missing=missing, groups=tuple(where.groups or named))


def _groups(rows: Rows | SeenRows, model: LagrangianDualClassifier, facts: dict[str, Any]) -> Groups:
    columns = rows.attribute.columns
    return rows.attribute.groups or groups_from(facts, columns) or groups_of(model, columns)
