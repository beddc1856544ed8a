"""``justitia plan``: what can be promised, before any privacy is spent."""

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
from justitia.cli.files.columns import Columns, columns_text, warn_of
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.rows import feature_names, hidden_names, named_after, read_target
from justitia.cli.files.streamed import is_streamed
from justitia.cli.output import fields_text, filled, table_text, tell
from justitia.cli.plan_file import command_plan
from justitia.engines import engine_of
from justitia.metrics.planning import (
    PublicCounts,
    expected_tolerance,
    expected_upper_bound,
    preflight_warnings,
    rate_noise,
)
from justitia.notions import FairnessNotion, get_notion
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
#: Sizes of a group that the table speaks of, as far as there are so many people.
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
def plan(data: Path | None, where: Where, tolerance: float | None, as_json: bool, **settings: Any) -> None:
    """Say what a training run will ask, what it costs, and how precisely a violation can be held and measured.

    Only public numbers are needed: how many rows, positive answers and groups (--groups takes their number, too). With
    DATA, rows and positive answers are counted in its target column. With --sensitive, which says what not to look at,
    it also shows how the other columns are read. The sensitive column is not read. Of Parquet files that are
    read a few rows at a time, a trial on the first rows of --features says how long a fit will take.
    """
    check_budget(settings["epsilon"], settings["delta"])
    columns = Columns.taken(settings)
    counts, readings = _looked_at(data, where, columns, settings)
    engine = engine_of(settings["engine"], settings["hidden"])
    base = command_plan(settings["plan_file"], engine, small_groups=settings["small_groups"])
    made = base.at_tolerance(tolerance).calibrate(settings["epsilon"], settings["delta"], n=counts.rows)
    notion = get_notion(settings["notion"])
    facts: dict[str, Any] = {
        "rows": counts.rows,
        "positives": counts.positives,
        "positive": counts.positive,
        "groups": counts.groups,
        "notion": notion.name,
        "engine": engine,
        "epsilon": made.epsilon(settings["delta"]),
        "delta": settings["delta"],
        "releases": _releases(made, settings["delta"]),
        "precision": [_precision(size, counts, made, notion, settings) for size in _sizes(counts)],
        "tolerance": tolerance,
        "expected_tolerance": expected_tolerance(counts, made, notion) if tolerance is None else None,
        "outlook": preflight_warnings(counts, made, notion, tolerance),
        "columns": [one.to_dict() for one in readings],
        "forecast": _forecast(data, made, columns.features or (), settings),
    }
    warn_of(readings)
    table = f"{columns_text(readings)}\n\n" if readings else ""
    tell(facts, table + _text(facts), as_json=as_json)


def _looked_at(
    data: Path | None, where: Where, columns: Columns, settings: dict[str, Any]
) -> tuple[PublicCounts, tuple[ColumnType, ...]]:
    """Public numbers, and how columns are read where it is said which one not to look at."""
    if data is None:
        return _counts(_number(where, None), settings), ()
    if settings["target"] is None:
        raise Refusal("expected the name of the target column in DATA, got none; pass --target NAME.")
    if is_streamed(data, asked=settings["stream"] or settings["workers"] > 1):
        return _counted(data, settings["target"], settings["positive"], _number(where, None)), ()
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([settings["target"]])
    y, (_, positive) = read_target(table, settings["target"], settings["positive"])
    if not where.sensitive and where.sensitive_file is None:
        return PublicCounts(len(y), int(y.sum()), _number(where, None), str(positive)), ()
    counted = len(where.groups) == 1 and where.groups[0].strip().isdecimal()
    attribute = find_attribute(replace(where, groups=()) if counted else where, table)
    related = named_after(attribute, table, settings["target"], columns)
    names = feature_names(table, hidden_names(attribute, settings["target"], related), columns)
    counts = PublicCounts(len(y), int(y.sum()), _number(where, attribute.groups), str(positive))
    return counts, (*columns.look(table, names)[1], *related)


def _number(where: Where, groups: Groups | None) -> int:
    """Of the groups: by their names, or as it was given; 2 if nothing is said."""
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


def _counts(groups: int, settings: dict[str, Any]) -> PublicCounts:
    if settings["rows"] is None:
        raise Refusal("expected a file, or the number of rows; pass DATA --target NAME, or --rows N.")
    if not 0 < settings["positives"] < 1:
        raise Refusal(f"expected --positives to be a share between 0 and 1, got {settings['positives']:g}.")
    positives = min(max(1, round(settings["positives"] * settings["rows"])), settings["rows"] - 1)
    return PublicCounts(settings["rows"], positives, groups)


def _counted(data: Path, target: str, positive: str | None, groups: int) -> PublicCounts:
    """Rows and positive answers of files."""
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
    """How long a fit on files will take; None of rows in memory, of networks, and without names of public columns."""
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


def _time(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"about {found['seconds']:,.0f} s with {found['workers']} processor(s): {found['passes']} passes at "
        f"{found['rows_per_second']:,.0f} rows a second, a sample of {found['sample']:,} rows"
    )


def _releases(made: Plan, delta: float) -> list[dict[str, Any]]:
    """What is asked, how often, with which noise, and what it would cost alone."""
    return [
        {
            "purpose": one.purpose,
            "count": one.count,
            "noise_multiplier": one.noise.stddev(1.0),
            "epsilon_alone": _alone(one.cost, one.count, delta),
        }
        for one in made.releases()
    ]


def _alone(cost: Any, count: int, delta: float) -> float:
    return float(epsilon_spent({cost: count}, delta))


def _sizes(counts: PublicCounts) -> list[int]:
    """A group of each usual size, and one of an equal share."""
    return sorted({size for size in SIZES if size * 2 <= counts.rows} | {counts.rows // counts.groups})


def _precision(
    size: int, counts: PublicCounts, made: Plan, notion: FairnessNotion, settings: dict[str, Any]
) -> dict[str, Any]:
    """For a group of this many people: noise of its rate in training, and how a violation of 0 would be measured."""
    return {
        "group": size,
        "rate_noise": rate_noise(size, counts, made, notion),
        "measured_within": expected_upper_bound(size, counts, notion, settings["epsilon"], settings["delta"]),
    }


def _tolerance(given: float | None, expected: float | None) -> str:
    """What two groups may differ by, as far as public numbers tell."""
    if given is not None:
        return f"{given:g} between two groups"
    return "" if expected is None else f"about {expected:.2g} between two groups, if they are of equal sizes"


def _text(facts: dict[str, Any]) -> str:
    asked = [
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
    answer = "the positive answer" + ("" if facts["positive"] is None else f", {facts['positive']!r}")
    head = {
        "rows": f"{facts['rows']:,} in {facts['groups']} groups; {facts['positives']:,} have {answer}",
        "asked for": f"{facts['notion']}, engine {facts['engine']}",
        "tolerance": _tolerance(facts["tolerance"], facts["expected_tolerance"]),
        "time": _time(facts["forecast"]),
        "budget": f"epsilon {facts['epsilon']:.4g} at delta {facts['delta']:.4g}, all of it:",
    }
    lines = [
        "Plan: nothing was read but public numbers, nothing was spent.",
        fields_text(head),
        table_text(("what is asked", "times", "noise", "epsilon alone"), asked),
        "",
        "How precise, by the number of rows in a group:",
        table_text(("rows", "noise of its rate", "measured violation of 0"), precise, left=0),
        filled(
            "Noise of its rate: standard deviation in training, in the smallest event. Measured violation of 0: upper "
            "bound at 0.95 that 'evaluate' would show with the same epsilon and as many rows if groups were treated "
            "alike.",
            first="  ",
            indent=2,
        ),
    ]
    return "\n".join([*lines, *(filled(f"outlook: {one}", indent=9) for one in facts["outlook"])])
