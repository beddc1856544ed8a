"""``justitia tradeoff``: train models for a grid of tolerances on one budget."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from justitia._files import foreign_entry
from justitia._validate import check_nonnegative
from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal
from justitia.cli.files.metadata import CURVE
from justitia.cli.files.public_rows import hash_rows
from justitia.cli.files.rows import LabelledRows
from justitia.cli.files.streamed import StreamedRows
from justitia.cli.goal import GoalOptions
from justitia.cli.output import (
    check_outside,
    ignore_interrupts,
    json_text,
    print_result,
    print_warnings,
    staged_folder,
    table_text,
    warn,
    wrap,
)
from justitia.cli.training import (
    check_tolerances,
    fit_arguments,
    make_estimator,
    read_training_rows,
    save_model,
    save_or_rescue,
)
from justitia.curve import Tradeoff
from justitia.curve import tradeoff as train_curve
from justitia.engines import engine_of
from justitia.persistence.folder import foreign_in_model, has_required_keys

EXAMPLE = """
$ justitia tradeoff income.csv --target income --sensitive sex \\
    --groups Female,Male --tolerances 0,0.02,0.1 --choose 0.05 --out curve
"""
TABLE = "tradeoff.csv"


@click.command("tradeoff", cls=Command, example=EXAMPLE)
@options.training
@click.option(
    "--tolerances",
    type=options.numbers,
    default="0,0.01,0.02,0.03,0.05,0.08,0.12,0.2",
    show_default=True,
    metavar="0,0.05",
    help="Points of the curve.",
)
@click.option("--choose", type=float, metavar="VIOLATION", help="Mark the most accurate point within this violation.")
@options.ledger
@options.out("Folder for the curve and one model per point.")
@options.as_json
def tradeoff(
    data: Path,
    tolerances: list[float],
    choose: float | None,
    out: Path,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train models on DATA along a grid of tolerances, all for the price of one.

    Accuracy and violation are those on training data; the violation is a noisy estimate. To inspect the whole curve and
    to choose a point costs nothing more.
    """
    if choose is not None:
        check_nonnegative("--choose", choose)
    goal = GoalOptions.from_options(settings)
    if goal.ratio is not None:
        raise Refusal("expected a curve of tolerances, got --ratio; leave it out, or use 'justitia train'.")
    rows = read_training_rows(data, settings)
    ledger = options.LedgerOptions.from_options(settings)
    model = make_estimator(rows, settings, goal)
    check_tolerances(engine_of(settings["engine"], settings["hidden"]), tolerances if goal.are_shares else ())
    check_outside(out, ledger=ledger.file)
    given = fit_arguments(rows, goal)
    folder = staged_folder(out, overwrite=overwrite, marker=CURVE, foreign=foreign_in_curve)
    with ExitStack() as until_saved, folder as stage, print_warnings() as warnings:
        opened = ledger.open(model.delta)
        curve = train_curve(model, **given, tolerances=tolerances, ledger=opened)
        until_saved.enter_context(ignore_interrupts())
        target = settings["target"]
        sketch = hash_rows(rows, target).sketch.to_dict() if isinstance(rows, LabelledRows) else None
        chosen = None if choose is None else curve.models.index(curve.choose(choose))
        public: dict[str, Any] = {"target": target, "sketch": sketch}
        facts = save_or_rescue(lambda place: _save_curve(curve, rows, place, chosen, **public), stage, out)
    if choose is not None and facts["points"][facts["chosen"]]["noisy_violation"] > choose:
        warn(f"no point has a noisy violation of at most {choose:g}; the strictest one is marked.")
    result = {"out": out, **facts, "certificate": curve.certificate.to_dict(), "warnings": warnings}
    print_result(result, _text(facts, curve, out), as_json=as_json)


def _save_curve(
    curve: Tradeoff, rows: LabelledRows | StreamedRows, folder: Path, chosen: int | None, **public: Any
) -> dict[str, Any]:
    """Write one folder per point; the chosen one gets a copy of the curve."""
    points = [
        {
            "tolerance": None if math.isnan(row["tolerance"]) else row["tolerance"],
            **{name: row[name] for name in ("accuracy", "auc", "r2") if name in row},
            "noisy_violation": row["noisy_violation"],
        }
        for row in curve.table.to_dict("records")
    ]
    facts = {"points": points, "chosen": chosen}
    folder.mkdir()
    names = [f"tolerance-{model.tolerance:g}" for model in curve.models]
    for name, model in zip(names, curve.models, strict=True):
        save_model(model, rows, folder / name, **public)
    for place in (folder, *([] if chosen is None else [folder / names[chosen]])):
        (place / CURVE).write_text(json_text(facts), encoding="utf-8")
    curve.table.to_csv(folder / TABLE, index=False)
    return facts | {"models": names}


def foreign_in_curve(folder: Path) -> Path | None:
    """First entry of a curve's folder, or of its models' folders, that this command did not write."""
    models = [one for one in sorted(folder.glob("tolerance-*")) if one.is_dir() and not one.is_symlink()]
    inside = (foreign_in_model(one) for one in models)
    return foreign_entry(folder, lambda one: one in models or _is_curve(one)) or next(filter(None, inside), None)


def _is_curve(path: Path) -> bool:
    if path.name != TABLE or not path.is_file():
        return path.name == CURVE and has_required_keys(path)
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline().startswith("tolerance,")


def _text(facts: dict[str, Any], curve: Tradeoff, out: Path) -> str:
    names = {"accuracy": "accuracy", "auc": "AUC", "r2": "R2"}
    shown = [name for name in names if not math.isnan(facts["points"][0].get(name, math.nan))]
    # The last column is a bar of half a character per hundredth of violation; of means, the longest has 30.
    largest = max(point["noisy_violation"] for point in facts["points"])
    unit = 50 if largest <= 1 else 30 / largest
    rows = [
        (
            "*" if place == facts["chosen"] else "",
            f"{point['tolerance']:g}",
            *(f"{point[name]:.3f}" for name in shown),
            f"{point['noisy_violation']:.3f}",
            ("#" * min(30, round(unit * point["noisy_violation"]))).ljust(30),
        )
        for place, point in enumerate(facts["points"])
    ]
    table = table_text(("", "tolerance", *map(names.__getitem__, shown), "violation", ""), rows, left=1)
    chosen = facts["chosen"]
    last = "" if chosen is None else f"* chosen: {out / facts['models'][chosen]}"
    lines = [f"Curve: {out}, one model per line in its folders", table, wrap(curve.certificate.statement)]
    lines += [wrap(one) for one in curve.certificate.remarks]
    return "\n".join([*lines, *([last] if last else [])])
