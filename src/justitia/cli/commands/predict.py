"""``justitia predict``: decisions for new rows, without the attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import check_not_sensitive
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.metadata import load_model, model_features
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.streamed import is_streamed
from justitia.cli.output import check_file, print_result, staged_file
from justitia.estimator import LagrangianDualClassifier
from justitia.rows.files import frames

EXAMPLE = """
$ justitia predict model new.csv --key id --out decisions.csv
"""


@click.command("predict", cls=Command, example=EXAMPLE)
@click.argument("model", type=options.FILE)
@click.argument("data", type=options.FILE)
@click.option("--key", metavar="COLUMN", help="A column of DATA to copy beside the decisions, such as an id.")
@click.option("--out", type=options.FILE, help="CSV file to write; by default the standard output.")
@options.reading
@options.formats
@options.stream
@options.overwrite
@options.as_json
def predict(
    model: Path,
    data: Path,
    key: str | None,
    out: Path | None,
    separator: str | None,
    encoding: str | None,
    stream: bool,
    overwrite: bool,
    as_json: bool,
    **formats: Any,
) -> None:
    """Predict decisions for the rows of DATA with a saved MODEL.

    The sensitive attribute is not an input and is not read, even if DATA contains it. Each row gets a decision and the
    probability of the positive answer. A folder of Parquet files, or a pattern, is read a few rows at a time.
    """
    fitted, facts = load_model(model)
    read = (data, *model.iterdir())
    if out is not None:
        check_file(out, overwrite=overwrite, inputs=read)
    streamed = is_streamed(data, asked=stream)
    if streamed:
        table = Table.streamed(data)
    else:  # written like the file of the training unless options say otherwise
        separator = facts.get("separator") if separator is None else separator
        table = open_table(data, separator, facts.get("encoding") if encoding is None else encoding)
    if key is not None:
        table.check_columns([key])
        check_not_sensitive(facts.get("sensitive") or (), key=key)
    columns = FeatureColumns.from_model(facts, model_features(fitted), formats)
    if streamed:
        _write_streamed(fitted, table, columns, key, out, overwrite=overwrite, as_json=as_json)
        return
    names = table.columns if columns.features is None else columns.features
    table.check_columns(names)
    X, _ = columns.read(table, list(names))
    ids = pd.Series(range(1, len(X) + 1), name="row") if key is None else table.text([key])[key]
    found = _decisions(fitted, X, ids)
    if out is not None:
        with staged_file(out, overwrite=overwrite, inputs=read, like=[data]) as stage:
            found.to_csv(stage, index=False)
    share = float((found["decision"] == fitted.classes_[1]).mean())
    result: dict[str, Any] = {"rows": len(found), "positive": fitted.classes_[1], "positive_share": share, "out": out}
    if as_json:
        print_result(result | ({} if out else {"decisions": found.to_dict("records")}), "", as_json=True)
    elif out is None:
        click.echo(found.to_csv(index=False), nl=False)
    else:
        click.echo(f"{len(found):,} decisions in {out}; {share:.1%} are {fitted.classes_[1]}.")


def _write_streamed(
    model: LagrangianDualClassifier,
    table: Table,
    columns: FeatureColumns,
    key: str | None,
    out: Path | None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write decisions for rows in files, a few at a time."""
    if out is None:
        raise Refusal("expected --out where DATA is read a few rows at a time, got none; name a CSV file to write.")
    features = list(table.columns if columns.features is None else columns.features)
    table.check_columns(features)
    rows = positives = 0
    with staged_file(out, overwrite=overwrite) as stage, stage.open("w", encoding="utf-8", newline="") as lines:
        for frame in frames(table.path, dict.fromkeys([*features, *([] if key is None else [key])])):
            ids = pd.Series(range(rows + 1, rows + len(frame) + 1), name="row") if key is None else frame[key]
            part = _decisions(model, columns.as_read(frame[features]), ids)
            part.to_csv(lines, index=False, header=rows == 0)
            rows, positives = rows + len(part), positives + int((part["decision"] == model.classes_[1]).sum())
    share = positives / max(rows, 1)
    result = {"rows": rows, "positive": model.classes_[1], "positive_share": share, "out": out}
    print_result(result, f"{rows:,} decisions in {out}; {share:.1%} are {model.classes_[1]}.", as_json=as_json)


def _decisions(model: LagrangianDualClassifier, X: pd.DataFrame, ids: pd.Series) -> pd.DataFrame:
    """Decision and probability of each row, beside its key or its number."""
    probability = model.predict_proba(X)[:, 1]
    return pd.DataFrame({ids.name: ids, "decision": model.predict(X), "probability": probability.round(6)})
