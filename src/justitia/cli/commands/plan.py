"""``justitia plan``: releases, cost and precision of a training run, before any budget is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.commands.train import listed_notions
from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import Groups, Where, find_attribute
from justitia.cli.files.columns import FeatureColumns, columns_text, warn_about
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.rows import feature_names
from justitia.cli.files.streamed import is_streamed
from justitia.cli.files.target import read_target
from justitia.cli.goal import GoalOptions
from justitia.cli.options import command_plan
from justitia.cli.output import fields_text, print_result, table_text, wrap
from justitia.engines import engine_of
from justitia.metrics.planning import (
    PublicCounts,
    expected_tolerance,
    expected_upper_bounds,
    number_noise,
    number_upper_bounds,
    preflight_warnings,
    rate_noise,
    tolerance_for_limit,
)
from justitia.postprocessing.forecast import forecast
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.preprocessing.column_types import ColumnType
from justitia.privacy.accounting import epsilon_spent
from justitia.privacy.vault import check_budget
from justitia.rows.parquet import RowFiles
from justitia.tasks import BINARY, NUMBER, Task
from justitia.training.plan import Plan

EXAMPLE = """
$ justitia plan --rows 36000 --positives 0.25 --groups 2 --epsilon 1
$ justitia plan income.csv --target income --sensitive sex \\
    --groups Female,Male --notion equalized_odds --epsilon 0.5
"""
#: Group sizes in the table of precision, as far as there are so many rows.
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


@click.command("plan", cls=Command, example=EXAMPLE)
@click.argument("data", type=options.FILE, required=False)
@options.target
@options.task
@click.option("--rows", type=click.IntRange(min=2), help="Number of rows, without DATA.")
@click.option(
    "--positives", type=float, default=0.5, show_default=True, help="Share of positive answers, without DATA."
)
@options.attribute
@options.columns
@options.proxy
@options.tolerance
@options.settings
@options.goal
@options.stream
@click.option(
    "--limit",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Gap that the model has to be shown to stay below; the plan then says which tolerance to train at.",
)
@click.option("--test-rows", type=click.IntRange(min=2), help="Rows of the measurement; by default a quarter of these.")
@click.option("--test-epsilon", type=float, help="Budget of the measurement; by default --epsilon.")
@options.workers
@options.verbose
@options.as_json
def plan(data: Path | None, tolerances: tuple[float, ...], verbose: bool, as_json: bool, **settings: Any) -> None:
    """Show the releases of a training run, their privacy cost, and how precisely gaps can be measured.

    Only public numbers are needed: how many rows, positive answers and groups (--groups takes their number, too). With
    DATA, rows and those of each value of the target are counted in its target column. With --sensitive, which says
    which column not to read, it also shows how the other columns are read. For Parquet files that are read a few rows
    at a time, a trial on the first rows of --features estimates how long a fit will take.
    """
    check_budget(settings["epsilon"], settings["delta"])
    goal = GoalOptions.from_options(settings, tolerances)  # rates within strata are planned as those of all rows
    tolerance = max(tolerances, default=None)
    where = Where.from_options(settings)
    columns = FeatureColumns.from_options(settings)
    counts, readings, task = _count(data, where, columns, settings)
    engine = engine_of(settings["engine"], settings["hidden"])
    base = command_plan(settings["plan_file"], engine, small_groups=settings["small_groups"])
    made = base.at_tolerance(tolerance).calibrate(settings["epsilon"], settings["delta"], n=counts.rows)
    goal.check_task(task, engine, settings | {"threshold": 0.5})
    releases = [
        {
            "purpose": one.purpose,
            "count": one.count,
            "noise_multiplier": one.noise.stddev(1.0),
            "epsilon_alone": float(epsilon_spent({one.noise.cost(): one.count}, settings["delta"])),
        }
        for one in made.releases()
    ]
    sizes = sorted({size for size in SIZES if size * 2 <= counts.rows} | {counts.rows // counts.groups})
    facts: dict[str, Any] = {
        "task": task.kind,
        "rows": counts.rows,
        "positives": counts.positives,
        "positive": counts.positive,
        "by_class": {str(label): rows for label, rows in zip(counts.classes, counts.by_class, strict=True)},
        "groups": counts.groups,
        "notion": goal.notion,
        "engine": engine,
        "epsilon": made.epsilon(settings["delta"]),
        "delta": settings["delta"],
        "releases": releases,
        "precision": _precision(sizes, counts, made, goal, settings),
        "tolerance": tolerance,
        "expected_tolerance": None,
        "for_limit": None,
        "outlook": [],
        "columns": [one.to_dict() for one in readings],
        "forecast": _forecast(data, made, columns.features or (), settings) if task.kind == "binary" else None,
    }
    if settings["limit"] is not None:
        facts["for_limit"] = _for_limit(counts, task, goal, settings)
    if task.kind != "number":
        notions = list(goal.notions)
        facts["outlook"] = preflight_warnings(counts, made, notions, tolerance)
        if tolerance is None:
            facts["expected_tolerance"] = expected_tolerance(counts, made, notions)
    warn_about(readings)
    table = f"{columns_text(readings, verbose=verbose)}\n\n" if readings else ""
    print_result(facts, table + _text(facts), as_json=as_json)


def _for_limit(counts: PublicCounts, task: Task, goal: GoalOptions, settings: dict[str, Any]) -> dict[str, Any]:
    """The largest tolerance with which a measurement is expected to show that the limit is met."""
    if task.kind == "number":
        raise Refusal("expected no --limit because the target has numbers, got one; leave it out.")
    rows = settings["test_rows"] or max(2, counts.rows // 4)
    epsilon = settings["epsilon"] if settings["test_epsilon"] is None else settings["test_epsilon"]
    check_budget(epsilon, settings["delta"])
    asked = (settings["limit"], rows, counts, list(goal.notions), epsilon, settings["delta"])
    return {"limit": settings["limit"], "rows": rows, "epsilon": epsilon, "tolerance": tolerance_for_limit(*asked)}


def _precision(
    sizes: Sequence[int], counts: PublicCounts, plan: Plan, goal: GoalOptions, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """Noise in training and bound of a measurement, by the size of a group."""
    budget = (settings["epsilon"], settings["delta"])
    if counts.positives or counts.by_class:
        notions = list(goal.notions)
        noise = [rate_noise(size, counts, plan, notions) for size in sizes]
        bounds = expected_upper_bounds(sizes, counts, notions, *budget)
    else:
        numbers = cast("PostProcessingPlan", plan)
        noise = [number_noise(size, counts, numbers, goal.notions[0]) for size in sizes]
        bounds = number_upper_bounds(sizes, counts, goal.notions[0], *budget)
    return [
        {"group": size, "rate_noise": one, "measured_within": bound}
        for size, one, bound in zip(sizes, noise, bounds, strict=True)
    ]


def _count(
    data: Path | None, where: Where, columns: FeatureColumns, settings: dict[str, Any]
) -> tuple[PublicCounts, tuple[ColumnType, ...], Task]:
    """Public numbers, how columns are read if the options name the sensitive one, which is not read, and the task."""
    task = settings["task"]
    if data is None:
        if settings["rows"] is None:
            raise Refusal("expected a file, or the number of rows; pass DATA --target NAME, or --rows N.")
        if not 0 < settings["positives"] < 1:
            raise Refusal(f"expected --positives to be a share between 0 and 1, got {settings['positives']:g}.")
        if task == NUMBER.kind:
            return PublicCounts(settings["rows"], 0, _group_number(where, None)), (), NUMBER
        positives = min(max(1, round(settings["positives"] * settings["rows"])), settings["rows"] - 1)
        return PublicCounts(settings["rows"], positives, _group_number(where, None)), (), BINARY
    if settings["target"] is None:
        raise Refusal("expected the name of the target column in DATA, got none; pass --target NAME.")
    if is_streamed(data, asked=settings["stream"] or settings["workers"] > 1):
        table = Table.streamed(data)
        table.check_columns([settings["target"]])
        counts, kind = _count_target(table, settings, columns, _group_number(where, None))
        return counts, (), kind
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([settings["target"]])
    if not where.sensitive and where.sensitive_file is None:
        counts, kind = _count_target(table, settings, columns, _group_number(where, None))
        return counts, (), kind
    counted = len(where.groups) == 1 and where.groups[0].strip().isdecimal()
    attribute = find_attribute(replace(where, groups=()) if counted else where, table)
    names, related = feature_names(attribute, table, settings["target"], columns)
    counts, kind = _count_target(table, settings, columns, _group_number(where, attribute.groups))
    return counts, (*columns.inspect(table, names)[1], *related), kind


def _count_target(
    table: Table, settings: dict[str, Any], columns: FeatureColumns, groups: int
) -> tuple[PublicCounts, Task]:
    """Rows of each class, or of numbers, and the task."""
    y, classes = read_target(
        table, settings["target"], settings["positive"], task=settings["task"], written=columns.written
    )
    if not classes:
        return PublicCounts(len(y), 0, groups), NUMBER
    by_class = np.bincount(y, minlength=len(classes)).tolist()
    return PublicCounts.of_classes(by_class, groups, classes), Task.of_classes(classes)


def _group_number(where: Where, groups: Groups | None) -> int:
    """Number of groups: of their names, or as it was given; 2 by default."""
    text = where.groups[0].strip() if len(where.groups) == 1 else ""
    if text.isdecimal():
        number = int(text)
    elif groups is not None:
        number = math.prod(len(labels) for labels in groups.values())
    else:
        number = len([one for one in text.split(",") if one.strip()]) if where.groups else 2
    if number < 2:
        raise Refusal(f"expected at least two groups, got {text!r}; name them, or pass their number.")
    return number


def _forecast(
    data: Path | None, made: Plan, features: Sequence[str], settings: dict[str, Any]
) -> dict[str, Any] | None:
    """Estimated time of a fit on files; None for rows in memory, for networks, and without --features."""
    asked = settings["stream"] or settings["workers"] > 1
    if data is None or not features or not isinstance(made, PostProcessingPlan) or not is_streamed(data, asked=asked):
        return None
    files, workers = RowFiles.open(data), settings["workers"]
    Table(data, files.names).check_columns(features)
    found = forecast(files, settings["target"], tuple(features), made)
    return {
        "sample": found.sample,
        "passes": found.passes,
        "rows_per_second": found.rows_per_second,
        "workers": workers,
        "disk_bytes": found.disk,
        "memory_bytes": found.memory,
        "processor_seconds": found.seconds,
        "seconds": found.shared(workers),
    }


def _noise_of(facts: dict[str, Any]) -> str:
    """What the noise of a rate is about."""
    if facts["task"] != "number":
        return "in the smallest event"
    return "at one level" if facts["notion"] == "demographic_parity" else "as a share of the target's range"


def _labels_text(facts: dict[str, Any]) -> str:
    """Rows by class in words."""
    if facts["task"] == "number":
        return "the target is a number"
    if facts["task"] == "classes":
        return ", ".join(f"{rows:,} {label}" for label, rows in facts["by_class"].items())
    answer = "the positive answer" + ("" if facts["positive"] is None else f", {facts['positive']!r}")
    return f"{facts['positives']:,} have {answer}"


def _text(facts: dict[str, Any]) -> str:
    releases = [
        (one["purpose"], str(one["count"]), f"{one['noise_multiplier']:.4g}", f"{one['epsilon_alone']:.3g}")
        for one in facts["releases"]
    ]
    precise = [
        (
            f"{one['group']:,}",
            "not known" if one["rate_noise"] is None else f"{one['rate_noise']:.3f}",
            f"{one['measured_within']:.3f}",
        )
        for one in facts["precision"]
    ]
    tolerance, expected, forecasted = facts["tolerance"], facts["expected_tolerance"], facts["forecast"]
    head = {
        "rows": f"{facts['rows']:,} in {facts['groups']} groups; {_labels_text(facts)}",
        "training": f"{listed_notions(facts['notion'])}, engine {facts['engine']}",
        "tolerance": "",
        "time": "",
        "room": "",
        "budget": f"epsilon {facts['epsilon']:.4g} at delta {facts['delta']:.4g}, all of it:",
    }
    if tolerance is not None:
        head["tolerance"] = f"{tolerance:g} between two groups"
    elif expected is not None:
        head["tolerance"] = f"about {expected:.2g} between two groups, if they are of equal sizes"
    if forecasted is not None:
        head["time"] = (
            f"about {forecasted['seconds']:,.0f} s with {forecasted['workers']} processor(s): {forecasted['passes']} "
            f"passes at {forecasted['rows_per_second']:,.0f} rows a second, a sample of {forecasted['sample']:,} rows"
        )
        disk, memory = forecasted["disk_bytes"], forecasted["memory_bytes"]
        head["room"] = (
            f"{disk / 2**20:,.0f} MB of temporary files on disk, at most about {memory / 2**20:,.0f} MB of memory"
        )
    lines = [
        "Plan from public numbers; no budget was spent.",
        fields_text(head),
        table_text(("release", "times", "noise", "epsilon alone"), releases),
        "",
        "How precise, by the number of rows in a group:",
        table_text(("rows", "noise of its rate", "measured violation of 0"), precise, left=0),
        wrap(
            f"Noise of its rate: standard deviation in training, {_noise_of(facts)}. Measured violation of 0: upper "
            "bound at 0.95 that 'evaluate' would show with the same epsilon and as many rows if groups were treated "
            "alike.",
            first="  ",
            indent=2,
        ),
    ]
    if facts["for_limit"] is not None:
        lines.append(wrap(limit_sentence(**facts["for_limit"])))
    return "\n".join([*lines, *(wrap(f"warning: {one}", indent=9) for one in facts["outlook"])])


def limit_sentence(limit: float, rows: int, epsilon: float, tolerance: float | None) -> str:
    """At which tolerance to train so that a measurement shows the limit."""
    measured = f"with {rows:,} people at epsilon {epsilon:g}"
    if tolerance is None:
        return (
            f"No tolerance is small enough to show a gap of at most {limit:g} {measured}, 4 times out of 5; measure "
            "more people, raise --test-epsilon, or choose a larger limit."
        )
    return f"To show a gap of at most {limit:g} {measured}, 4 times out of 5, train at {tolerance:.2g} or below."
