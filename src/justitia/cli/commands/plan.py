"""``justitia plan``: releases, cost and precision of a training run, before any budget is spent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal, no_such
from justitia.cli.files.attribute import Groups, Where, find_attribute
from justitia.cli.files.columns import FeatureColumns, columns_text, warn_about
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.rows import feature_names, read_target
from justitia.cli.files.streamed import is_streamed
from justitia.cli.options import command_plan
from justitia.cli.output import fields_text, print_result, table_text, wrap
from justitia.engines import engine_of
from justitia.metrics.planning import (
    PublicCounts,
    expected_tolerance,
    expected_upper_bound,
    preflight_warnings,
    rate_noise,
)
from justitia.notions import get_notion
from justitia.postprocessing.forecast import forecast
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.preprocessing.column_types import ColumnType
from justitia.privacy.accounting import epsilon_spent
from justitia.privacy.vault import check_budget
from justitia.rows.files import frames
from justitia.rows.parquet import RowFiles
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
@click.option("--rows", type=click.IntRange(min=2), help="Number of rows, without DATA.")
@click.option(
    "--positives", type=float, default=0.5, show_default=True, help="Share of positive answers, without DATA."
)
@options.attribute
@options.columns
@options.tolerance
@options.settings
@options.stream
@options.workers
@options.as_json
def plan(data: Path | None, tolerance: float | None, as_json: bool, **settings: Any) -> None:
    """Show the releases of a training run, their privacy cost, and how precisely gaps can be measured.

    Only public numbers are needed: how many rows, positive answers and groups (--groups takes their number, too). With
    DATA, rows and positive answers are counted in its target column. With --sensitive, which says which column not to
    read, it also shows how the other columns are read. For Parquet files that are read a few rows at a time, a trial on
    the first rows of --features estimates how long a fit will take.
    """
    check_budget(settings["epsilon"], settings["delta"])
    where = Where.from_options(settings)
    columns = FeatureColumns.from_options(settings)
    counts, readings = _count(data, where, columns, settings)
    engine = engine_of(settings["engine"], settings["hidden"])
    base = command_plan(settings["plan_file"], engine, small_groups=settings["small_groups"])
    made = base.at_tolerance(tolerance).calibrate(settings["epsilon"], settings["delta"], n=counts.rows)
    notion = get_notion(settings["notion"])
    releases = [
        {
            "purpose": one.purpose,
            "count": one.count,
            "noise_multiplier": one.noise.stddev(1.0),
            "epsilon_alone": float(epsilon_spent({one.noise.cost(): one.count}, settings["delta"])),
        }
        for one in made.releases()
    ]
    precision = [
        {
            "group": size,
            "rate_noise": rate_noise(size, counts, made, notion),  # in training
            "measured_within": expected_upper_bound(size, counts, notion, settings["epsilon"], settings["delta"]),
        }
        for size in sorted({size for size in SIZES if size * 2 <= counts.rows} | {counts.rows // counts.groups})
    ]
    facts: dict[str, Any] = {
        "rows": counts.rows,
        "positives": counts.positives,
        "positive": counts.positive,
        "groups": counts.groups,
        "notion": notion.name,
        "engine": engine,
        "epsilon": made.epsilon(settings["delta"]),
        "delta": settings["delta"],
        "releases": releases,
        "precision": precision,
        "tolerance": tolerance,
        "expected_tolerance": expected_tolerance(counts, made, notion) if tolerance is None else None,
        "outlook": preflight_warnings(counts, made, notion, tolerance),
        "columns": [one.to_dict() for one in readings],
        "forecast": _forecast(data, made, columns.features or (), settings),
    }
    warn_about(readings)
    table = f"{columns_text(readings)}\n\n" if readings else ""
    print_result(facts, table + _text(facts), as_json=as_json)


def _count(
    data: Path | None, where: Where, columns: FeatureColumns, settings: dict[str, Any]
) -> tuple[PublicCounts, tuple[ColumnType, ...]]:
    """Public numbers, and how columns are read if the options name the sensitive one, which is not read."""
    if data is None:
        if settings["rows"] is None:
            raise Refusal("expected a file, or the number of rows; pass DATA --target NAME, or --rows N.")
        if not 0 < settings["positives"] < 1:
            raise Refusal(f"expected --positives to be a share between 0 and 1, got {settings['positives']:g}.")
        positives = min(max(1, round(settings["positives"] * settings["rows"])), settings["rows"] - 1)
        return PublicCounts(settings["rows"], positives, _group_number(where, None)), ()
    if settings["target"] is None:
        raise Refusal("expected the name of the target column in DATA, got none; pass --target NAME.")
    if is_streamed(data, asked=settings["stream"] or settings["workers"] > 1):
        return _count_streamed(data, settings["target"], settings["positive"], _group_number(where, None)), ()
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([settings["target"]])
    y, (_, positive) = read_target(table, settings["target"], settings["positive"])
    if not where.sensitive and where.sensitive_file is None:
        return PublicCounts(len(y), int(y.sum()), _group_number(where, None), str(positive)), ()
    counted = len(where.groups) == 1 and where.groups[0].strip().isdecimal()
    attribute = find_attribute(replace(where, groups=()) if counted else where, table)
    names, related = feature_names(attribute, table, settings["target"], columns)
    counts = PublicCounts(len(y), int(y.sum()), _group_number(where, attribute.groups), str(positive))
    return counts, (*columns.inspect(table, names)[1], *related)


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


def _count_streamed(data: Path, target: str, positive: str | None, groups: int) -> PublicCounts:
    """Rows and positive answers of files that are read a few rows at a time."""
    table = Table.streamed(data)
    table.check_columns([target])
    found: Counter[Any] = Counter()
    for frame in frames(data, [target]):
        found.update(frame[target].tolist())
    labels = sorted(found, key=str)
    if len(labels) != 2:
        raise Refusal(f"expected two values in the column {target!r}, got {len(labels)}; write a column that has two.")
    chosen = [label for label in labels if str(label).strip() == positive] if positive else labels[1:]
    if not chosen:
        raise no_such("value", str(positive), [str(one) for one in labels], place=f"the target {target!r}")
    return PublicCounts(found.total(), found[chosen[0]], groups, str(chosen[0]))


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
        "processor_seconds": found.seconds,
        "seconds": found.shared(workers),
    }


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
    answer = "the positive answer" + ("" if facts["positive"] is None else f", {facts['positive']!r}")
    head = {
        "rows": f"{facts['rows']:,} in {facts['groups']} groups; {facts['positives']:,} have {answer}",
        "training": f"{facts['notion']}, engine {facts['engine']}",
        "tolerance": "",
        "time": "",
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
    lines = [
        "Plan from public numbers; no budget was spent.",
        fields_text(head),
        table_text(("release", "times", "noise", "epsilon alone"), releases),
        "",
        "How precise, by the number of rows in a group:",
        table_text(("rows", "noise of its rate", "measured violation of 0"), precise, left=0),
        wrap(
            "Noise of its rate: standard deviation in training, in the smallest event. Measured violation of 0: upper "
            "bound at 0.95 that 'evaluate' would show with the same epsilon and as many rows if groups were treated "
            "alike.",
            first="  ",
            indent=2,
        ),
    ]
    return "\n".join([*lines, *(wrap(f"warning: {one}", indent=9) for one in facts["outlook"])])
