"""``justitia monitor``: measurements of one model over time against a limit, with planned false alarms and budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from justitia.cli import options
from justitia.cli.command import Commands
from justitia.cli.commands.measure import DecisionColumns, read_decisions
from justitia.cli.errors import ALERT, OK, Refusal, shown_path
from justitia.cli.files.attribute import Groups, Where, find_attribute, read_bins, read_groups
from justitia.cli.files.reading import Table, open_table
from justitia.cli.output import fields_text, print_result, print_warnings, staged_file
from justitia.monitor import PEOPLE, SCORES, Monitor, MonitorEntry
from justitia.notions import NOTIONS
from justitia.privacy.vault import INFER
from justitia.report.monitor_page import monitor_page

CREATE = """
$ justitia monitor create months --limit 0.1 --planned 12 \\
    --people same --epsilon 1 --window 3 --sensitive sex \\
    --groups Female,Male --reference hired.csv --watch points
"""
ADD = """
$ justitia monitor add nights hired.csv --decision hired \\
    --sensitive sex --groups Female,Male --when 2026-03-01
"""
SHOW = """
$ justitia monitor show nights --out nights.html
"""


@click.group("monitor", cls=Commands)
def monitor() -> None:
    """Measure one model over time against a limit, and alert.

    The number of measurements is planned. Over all of them the probability of a false alarm and the budget are what was
    planned. 'add' and 'show' leave with exit code 5 if there is an alert.
    """


@monitor.command("create", example=CREATE)
@click.argument("folder", type=options.FILE)
@click.option("--name", default="model", show_default=True, help="Public name of the model.")
@click.option("--limit", type=float, required=True, help="Alert if the violation is above it.")
@click.option("--planned", type=int, required=True, help="Number of measurements.")
@click.option(
    "--people",
    type=click.Choice(PEOPLE),
    required=True,
    help="Whether each measurement is about new individuals, or all may be about the same.",
)
@click.option(
    "--epsilon",
    type=float,
    default=1.0,
    show_default=True,
    help="Budget of one measurement of new individuals, or of a window of the same individuals.",
)
@options.delta
@click.option("--window", type=int, help="Consecutive measurements that share epsilon; by default all planned ones.")
@click.option(
    "--notion",
    type=click.Choice(sorted(NOTIONS)),
    metavar="NAME",
    default="demographic_parity",
    show_default=True,
    help="What is measured, such as equalized_odds.",
)
@click.option(
    "--false-alarms", type=float, default=0.05, show_default=True, help="Probability of any alert within the limit."
)
@click.option("--reference", type=options.FILE, help="Rows of the training data, to compare public columns with.")
@click.option("--watch", multiple=True, metavar="COLUMN", help="Public column of it whose drift is watched.")
@click.option("--score", metavar="COLUMN", help="Column of it with scores, watched too.")
@options.attribute
@options.as_json
def create(
    folder: Path, reference: Path | None, watch: tuple[str, ...], score: str | None, as_json: bool, **settings: Any
) -> None:
    """Make FOLDER for a new monitor; limit, number of measurements and budget are fixed from then on."""
    where = Where.from_options(settings)
    if (reference is None) != (not watch and score is None):
        raise Refusal("expected --reference beside --watch or --score, got one without the other; name both.")
    columns: dict[str, Any] = {}
    scores = None
    if reference is not None:
        table = open_table(reference, where.separator, where.encoding)
        columns = _public_columns(table, watch, [*where.sensitive, *_keys(where)])
        scores = None if score is None else _public_columns(table, [score], where.sensitive)[score]
    if folder.exists():
        raise Refusal(f"{shown_path(folder)} exists; choose a new name for the folder.")
    made = Monitor.create(folder, groups=_groups_of(where), reference=columns, reference_scores=scores, **settings)
    rules = {"budget": made.settings.budget_sentence, "rule": made.settings.alarm_sentence}
    print_result({"folder": folder, **rules}, f"Made: {folder}\n{fields_text(rules)}", as_json=as_json)


@monitor.command("add", example=ADD)
@click.argument("folder", type=options.FILE)
@click.argument("data", type=options.FILE)
@click.option("--decision", required=True, metavar="COLUMN", help="Column with decisions.")
@options.target
@click.option("--positive-decision", metavar="VALUE", help="The decision's positive value, if it is not the target's.")
@click.option("--score", metavar="COLUMN", help="Column with scores, if the monitor watches them.")
@click.option("--when", metavar="NAME", help="Public name of the period; by default the present time.")
@options.attribute
@options.as_json
def add(folder: Path, data: Path, when: str | None, as_json: bool, **settings: Any) -> int:
    """Measure the decisions in DATA (CSV or Parquet) as the next measurement of FOLDER; code 5 is an alert."""
    held = _open(folder)
    where = Where.from_options(settings)
    columns = DecisionColumns(**{name: settings.pop(name, None) for name in DecisionColumns.__dataclass_fields__})
    public = read_decisions(data, where, columns)
    if public.task.kind != "binary":
        raise Refusal(f"expected decisions between two values for a monitor, got {public.task.describe()}.")
    if not _same_groups(held.settings.groups, public.groups):
        raise Refusal(f"expected the groups of the monitor in {shown_path(folder)}, got other ones; name the same.")
    table = open_table(data, where.separator, where.encoding)
    watched = [name for name in held.settings.columns if name != SCORES]
    hidden = find_attribute(where, table).hidden()
    features = _public_columns(table, watched, [*hidden, *_keys(where)])
    with print_warnings() as warnings:
        entry = held.add(
            public.decided,
            sensitive_features=public.sensitive,
            y_true=None if columns.target is None else public.y,
            features=features,
            scores=public.scores,
            when=when,
            person=public.person,
            pos_label=1,
        )
    facts = {"folder": folder, **entry.to_dict(), "warnings": warnings}
    print_result(facts, _sentence(entry, held), as_json=as_json)
    return ALERT if entry.alerts else OK


@monitor.command("show", example=SHOW)
@click.argument("folder", type=options.FILE)
@click.option("--out", type=options.FILE, help="HTML page to write.")
@options.overwrite
@options.as_json
def show(folder: Path, out: Path | None, overwrite: bool, as_json: bool) -> int:
    """Show the newest measurements of FOLDER, its budget and its rule; code 5 if the newest one is an alert."""
    held = _open(folder)
    facts = held.to_dict()
    if out is not None:
        with staged_file(out, overwrite=overwrite) as stage:
            stage.write_text(monitor_page(facts), encoding="utf-8")
    entries = held.entries
    lines = [_sentence(entry, held) for entry in reversed(entries[-10:])] or ["No measurement yet."]
    alerts = [entry.when for entry in entries if entry.alerts]
    text = fields_text(
        {
            "measurements": f"{len(entries)} of {held.settings.planned} planned",
            "alerts": ", ".join(alerts) or "none",
            "epsilon": f"{facts['epsilon_spent']:.4g} of {facts['epsilon_total']:.4g} of a person",
            "budget": facts["budget"],
            "rule": facts["rule"],
        }
    )
    print_result(facts | {"page": out}, "\n".join([*lines, text]), as_json=as_json)
    return ALERT if entries and entries[-1].alerts else OK


def _open(folder: Path) -> Monitor:
    try:
        return Monitor(folder)
    except FileNotFoundError as error:
        raise Refusal(str(error)) from None


def _groups_of(where: Where) -> Groups:
    """The public list of groups, from the options alone.

    Raises
    ------
    Refusal
        If there is none.
    """
    columns = tuple(where.sensitive)
    known = columns and tuple(where.groups) != (INFER,)
    groups = read_groups(where.groups, columns, tuple(map(read_bins, where.bins))) if known else None
    if groups is None:
        raise Refusal("expected --sensitive and --groups with the public list of groups, got none; name both.")
    return groups


def _same_groups(held: Any, given: Groups) -> bool:
    """Whether these groups are the monitor's, which may have been made without the name of a column."""
    return bool(held == given or (len(given) == 1 and [held] == list(given.values())))


def _keys(where: Where) -> list[str]:
    return [name for name in (where.key, where.person) if name is not None]


def _public_columns(table: Table, names: Any, hidden: Any) -> dict[str, Any]:
    """Columns of a table, none of which is sensitive."""
    found: dict[str, Any] = {}
    for name in names:
        if name in hidden:
            raise Refusal(f"the column {name!r} is sensitive, key or id and cannot be public, too; name another one.")
    table.check_columns(names)
    for name in names:
        found[name] = [value for part in table.parts(name) for value in part.tolist()]
    return found


def _sentence(entry: MonitorEntry, held: Monitor) -> str:
    """One line: verdict first."""
    word = "ALERT" if entry.alerts else "ok"
    if entry.violation is None:
        return f"{word:6} {entry.when}: {entry.answer}"
    gap, least, most, limit = (
        f"{100 * (one or 0.0):.1f}" for one in (entry.violation, entry.at_least, entry.at_most, held.settings.limit)
    )
    why = ["above the limit" if one == "limit" else one for one in entry.alerts]
    return (
        f"{word:6} {entry.when}: gap {gap} points [{least}, {most}], limit {limit}{'; ' if why else ''}{', '.join(why)}"
    )
