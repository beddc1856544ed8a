"""``justitia predict``: decisions for new rows, without the attribute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import pandas as pd

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import check_not_sensitive
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.metadata import Model, load_model, model_features
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.streamed import is_streamed
from justitia.cli.output import check_file, print_result, staged_file, wrap
from justitia.regressor import LagrangianDualRegressor
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
    probability of the positive answer; of several classes, the probability of each; of a numeric target, the predicted
    number. A folder of Parquet files, or a pattern, is read a few rows at a time.
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
    summary = _Summary()
    summary.add(found)
    result: dict[str, Any] = summary.facts(fitted) | {"out": out}
    if as_json:
        print_result(result | ({} if out else {"decisions": found.to_dict("records")}), "", as_json=True)
    elif out is None:
        click.echo(found.to_csv(index=False), nl=False)
    else:
        click.echo(summary.text(fitted, out))


def _write_streamed(
    model: Model,
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
    summary = _Summary()
    with staged_file(out, overwrite=overwrite) as stage, stage.open("w", encoding="utf-8", newline="") as lines:
        for frame in frames(table.path, dict.fromkeys([*features, *([] if key is None else [key])])):
            rows = summary.rows
            ids = pd.Series(range(rows + 1, rows + len(frame) + 1), name="row") if key is None else frame[key]
            part = _decisions(model, columns.as_read(frame[features]), ids)
            part.to_csv(lines, index=False, header=rows == 0)
            summary.add(part)
    print_result(summary.facts(model) | {"out": out}, summary.text(model, out), as_json=as_json)


def _decisions(model: Model, X: pd.DataFrame, ids: pd.Series) -> pd.DataFrame:
    """Decision and probability, or predicted number, of each row, beside its key or its number."""
    if isinstance(model, LagrangianDualRegressor):
        return pd.DataFrame({ids.name: ids, "prediction": model.predict(X)})
    found, probability = pd.DataFrame({ids.name: ids, "decision": model.predict(X)}), model.predict_proba(X).round(6)
    if len(model.classes_) == 2:
        return found.assign(probability=probability[:, 1])
    return found.assign(**{f"probability[{name}]": probability[:, j] for j, name in enumerate(model.classes_)})


class _Summary:
    """Rows and decisions of each class, or sum of predicted numbers, over the parts of a file."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0.0
        self.decided: Counter[Any] = Counter()

    def add(self, part: pd.DataFrame) -> None:
        """Count one more part."""
        self.rows += len(part)
        if "prediction" in part:
            self.total += float(part["prediction"].sum())
        else:
            self.decided.update(part["decision"].tolist())

    def facts(self, model: Model) -> dict[str, Any]:
        """Public facts of all rows."""
        rows = max(self.rows, 1)
        if isinstance(model, LagrangianDualRegressor):
            return {"rows": self.rows, "mean_prediction": self.total / rows}
        shares = {label: self.decided[label] / rows for label in model.classes_.tolist()}
        if len(shares) > 2:
            return {"rows": self.rows, "shares": shares}
        positive = model.classes_[1]
        return {"rows": self.rows, "positive": positive, "positive_share": shares[model.classes_.tolist()[1]]}

    def text(self, model: Model, out: Path | None) -> str:
        """One sentence."""
        facts = self.facts(model)
        if "mean_prediction" in facts:
            return f"{self.rows:,} predictions in {out}; their mean is {facts['mean_prediction']:.6g}."
        if "shares" in facts:
            listed = ", ".join(f"{share:.1%} {label}" for label, share in facts["shares"].items())
            return wrap(f"{self.rows:,} decisions in {out}: {listed}.")
        return f"{self.rows:,} decisions in {out}; {facts['positive_share']:.1%} are {facts['positive']}."
