"""``justitia measure``: private measurement of the decisions in a file, whoever made them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.commands.evaluate import check_limit
from justitia.cli.errors import NOT_SHOWN, OK, Refusal
from justitia.cli.files.attribute import Groups, Where, find_attribute, read_attribute, read_ids
from justitia.cli.files.metadata import measurement_metadata
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.streamed import is_streamed, place_of
from justitia.cli.files.target import AUTO, Label, read_target, task_of
from justitia.cli.goal import IN_UNITS
from justitia.cli.measurement_text import bias_audit_csv, measurement_text
from justitia.cli.output import json_text, print_result, print_warnings, staged_file
from justitia.metrics.means import NUMBER_NOTIONS
from justitia.metrics.measure import Measurement
from justitia.metrics.measure import measure as measure_decisions
from justitia.metrics.quality import class_quality, number_quality, public_quality
from justitia.privacy.attribute import Attribute, HeldElsewhere, SensitiveColumns
from justitia.privacy.vault import check_budget
from justitia.rows.parquet import RowFiles
from justitia.tasks import Task

EXAMPLE = """
$ justitia measure hired.csv --decision hired --target qualified \\
    --score points --sensitive sex --groups Female,Male --csv audit.csv
"""


@click.command("measure", cls=Command, example=EXAMPLE)
@click.argument("data", type=options.FILE)
@click.option("--decision", required=True, metavar="COLUMN", help="Column with decisions or predicted numbers.")
@options.target
@options.task
@click.option("--positive-decision", metavar="VALUE", help="The decision's positive value, if it is not the target's.")
@click.option("--score", metavar="COLUMN", help="Column with scores, larger for the positive decision.")
@click.option(
    "--before", metavar="COLUMN", help="Decisions or numbers of another model on the same rows, to compare with."
)
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
    with noise that protects the attribute of any one row (with --person, of any one person). Their bounds cover noise
    and sampling error. Without --target only decisions are compared, and scores have no AUC.

    Decisions may be among several classes: every class then has its rates. Of predicted numbers, distributions are
    compared (Kolmogorov-Smirnov distance), or means (mean_parity) and mean squared errors (equal_error).
    """
    ledger = options.LedgerOptions.from_options(settings)
    where = Where.from_options(settings)
    columns = DecisionColumns(**{name: settings.pop(name) for name in DecisionColumns.__dataclass_fields__})
    public = read_decisions(data, where, columns, stream=settings["stream"], task=settings.pop("task"))
    check_budget(settings["epsilon"], settings["delta"])
    notions = _chosen_notions(settings, columns, public.task)
    check_limit(settings["below"], public.task, notions)
    files = {"audit": settings["audit"], "out": settings["out"]}
    with ExitStack() as stack, print_warnings() as warnings:
        read = (data, where.sensitive_file, ledger.file)
        stages = {
            name: stack.enter_context(staged_file(file, overwrite=settings["overwrite"], inputs=read))
            for name, file in files.items()
            if file is not None
        }
        found = measure_decisions(
            None if columns.target is None else public.names(public.y),
            public.names(public.decided),
            sensitive_features=public.sensitive,
            groups=public.groups,
            person=public.person,
            data=public.files,
            notion=notions,
            scores=public.scores,
            before=None if public.before is None else public.names(public.before),
            threshold=settings["below"],
            **({"pos_label": 1} if public.task.kind == "binary" else {"task": public.task.kind}),
            ledger=ledger.open(settings["delta"]),
            epsilon=settings["epsilon"],
            delta=settings["delta"],
            confidence=settings["confidence"],
            reference=settings["reference"],
        )
        facts = _facts(found, public, data.name, columns)
        contents = {"audit": lambda: bias_audit_csv(found), "out": lambda: json_text(facts)}
        for name, stage in stages.items():
            stage.write_text(contents[name](), encoding="utf-8")
    result = {"data": data, **files, **facts, "warnings": warnings}
    print_result(result, measurement_text(found, facts.get("accuracy"), data.name, facts.get("r2")), as_json=as_json)
    return OK if all(verdict.answer == "below" for verdict in found.verdicts.values()) else NOT_SHOWN


def _chosen_notions(settings: dict[str, Any], columns: DecisionColumns, task: Task) -> list[str]:
    """Notions that are measured: as given, or the default.

    Raises
    ------
    Refusal
        If an option or a notion does not fit the decisions.
    """
    if task.kind != "binary":
        for name, given in (("--score", columns.score), ("--csv", settings["audit"])):
            if given is not None:
                raise Refusal(
                    f"expected decisions between two values with {name}, got {task.describe()}; leave it out."
                )
    labelled = columns.target is not None
    also = {"binary": "equalized_odds", "classes": "accuracy_parity", "number": "equal_error"}[task.kind]
    notions = list(settings["notions"]) or ["demographic_parity", *([also] if labelled else [])]
    alone = ("demographic_parity", "mean_parity") if task.kind == "number" else ("demographic_parity",)
    for name in notions:
        if task.kind == "number" and name not in NUMBER_NOTIONS:
            raise Refusal(f"expected a notion of numbers ({', '.join(NUMBER_NOTIONS)}), got {name}.")
        if task.kind != "number" and name in IN_UNITS:
            raise Refusal(
                f"expected numbers for {name}, got {task.describe()}; choose another notion, or --task number."
            )
        if not labelled and name not in alone:
            raise Refusal(f"expected --target for {name!r}, got none; without labels only decisions are compared.")
    return notions


def _facts(found: Measurement, public: Decisions, data: str, columns: DecisionColumns) -> dict[str, Any]:
    quality: dict[str, Any] = {}
    if columns.target is not None:
        quality = public.quality(public.decided, public.scores)
        if public.before is not None:
            quality["before"] = {"name": columns.before} | public.quality(public.before)
    named = {"decision": columns.decision, "target": columns.target, "score": columns.score}
    facts = measurement_metadata(found, quality.get("accuracy"), data, quality.get("r2"))
    return facts | {"public": quality, "columns": named}


# -- The file of decisions


@dataclass(frozen=True)
class DecisionColumns:
    """Names of the public columns of a file of decisions."""

    decision: str
    target: str | None = None
    score: str | None = None
    before: str | None = None
    positive: str | None = None
    positive_decision: str | None = None


@dataclass(frozen=True, eq=False)
class Decisions:
    """Rows of a file of decisions.

    Attributes
    ----------
    y, decided : arrays
        Public labels, which are the decisions if there is no target, and decisions: codes of classes, or numbers.
    before : array or None
        Decisions of another model.
    scores : array or None
    groups : dict
        The public list.
    sensitive : Attribute, SensitiveColumns or HeldElsewhere
        The attribute itself, closed, on its way to the vault; or where it is in ``files``.
    person : list of str, name of a column of ``files``, optional
        Public ids, where people have several rows.
    files : RowFiles, optional
        Files whose rows are read a few at a time.
    classes : tuple
        What the codes are called; empty for numbers.
    """

    y: NDArray[Any] = field(repr=False)
    decided: NDArray[Any] = field(repr=False)
    before: NDArray[Any] | None = field(repr=False)
    scores: NDArray[np.float64] | None = field(repr=False)
    groups: Groups
    sensitive: Attribute | SensitiveColumns | HeldElsewhere = field(repr=False)
    person: list[str | None] | str | None = field(repr=False)
    files: RowFiles | None = field(repr=False, default=None)
    classes: tuple[Label, ...] = (0, 1)

    @property
    def task(self) -> Task:
        """What is measured."""
        return task_of(self.classes)

    def names(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Labels or decisions as they are measured: codes of two classes, names of more, or numbers."""
        return np.array(self.classes, dtype=object)[codes] if self.task.kind == "classes" else codes

    def quality(self, decided: NDArray[Any], scores: NDArray[np.float64] | None = None) -> dict[str, Any]:
        """Public quality of some decisions."""
        if self.task.kind == "number":
            return number_quality(self.y, decided)
        if self.task.kind == "classes":
            return class_quality(self.y, decided, self.classes)
        return public_quality(self.y, decided, scores)


def read_decisions(
    data: Path, where: Where, columns: DecisionColumns, *, stream: bool = False, task: str = AUTO
) -> Decisions:
    """Read and check all public columns, then the attribute.

    Raises
    ------
    Refusal
        If a column is missing, is both sensitive and public, or has values of the wrong kind.
    """
    streamed = is_streamed(data, asked=stream)
    table = Table.streamed(data) if streamed else open_table(data, where.separator, where.encoding)
    named = [one for one in (columns.decision, columns.target, columns.score, columns.before) if one is not None]
    table.check_columns(named)
    attribute = find_attribute(where, table, streamed=streamed)
    shared = [name for name in named if name in attribute.hidden()]
    if shared:
        raise Refusal(f"the column {shared[0]!r} is sensitive, key or id and cannot be public, too; name another one.")
    if attribute.groups is None:
        raise Refusal(
            "expected the public list of groups, got none; pass --groups A,B, because a list read off the data is not "
            "protected."
        )
    y, decided, before, values = _read_labels(table, columns, task)
    scores = None if columns.score is None else _read_numbers(table, columns.score)
    if streamed:
        held = (place_of(attribute), attribute.person, table.files)
        return Decisions(y, decided, before, scores, attribute.groups, *held, classes=values)
    person = None if attribute.person is None else read_ids(attribute.person, table, repeated=True)
    held_here = read_attribute(attribute, table)
    return Decisions(y, decided, before, scores, attribute.groups, held_here, person, classes=values)


def _read_labels(
    table: Table, columns: DecisionColumns, task: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, tuple[Label, ...]]:
    """Labels, decisions, decisions of another model, and the values that codes stand for."""
    # Decisions have the target's values, unless it is said otherwise.
    if columns.target is None or columns.positive_decision is not None:
        decided, values = read_target(table, columns.decision, columns.positive_decision or columns.positive, task=task)
        y = decided if columns.target is None else read_target(table, columns.target, columns.positive, task=task)[0]
    else:
        y, values = read_target(table, columns.target, columns.positive, task=task)
        decided = read_target(table, columns.decision, classes=values)[0]
    before = None if columns.before is None else read_target(table, columns.before, classes=values)[0]
    return y, decided, before, values


def _read_numbers(table: Table, name: str) -> NDArray[np.float64]:
    found = [np.empty(0)]
    for values in table.parts(name):
        if not pd.api.types.is_numeric_dtype(values) or values.isna().any():
            raise Refusal(f"expected a number in every row of {name!r}, got text or gaps; write a column of scores.")
        found.append(values.to_numpy(dtype=float))
    return np.concatenate(found)
