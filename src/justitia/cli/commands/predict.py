"""``justitia predict``: decisions for new people, without their attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.files.attribute import check_apart
from justitia.cli.files.columns import Columns
from justitia.cli.files.metadata import features_of, load_model
from justitia.cli.files.reading import Table, open_table
from justitia.cli.output import check_file, staged_file, tell
from justitia.estimator import LagrangianDualClassifier

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
@options.overwrite
@options.as_json
def predict(
    model: Path,
    data: Path,
    key: str | None,
    out: Path | None,
    separator: str,
    encoding: str,
    overwrite: bool,
    as_json: bool,
    **formats: Any,
) -> None:
    """Decide about the people in DATA with a saved MODEL.

    The sensitive attribute is not an input: if DATA holds it, it is not read. Each row gets a decision and the
    probability of the positive answer.
    """
    fitted, facts = load_model(model)
    read = (data, *model.iterdir())
    if out is not None:
        check_file(out, overwrite=overwrite, inputs=read)
    table = open_table(data, separator, encoding)
    if key is not None:
        table.check_columns([key])
        check_apart(facts.get("sensitive") or (), key=key)
    columns = Columns.of_model(facts, features_of(fitted), formats)
    found = decided(fitted, table, columns, key)
    if out is not None:
        with staged_file(out, overwrite=overwrite, inputs=read, like=[data]) as stage:
            found.to_csv(stage, index=False)
    share = float((found["decision"] == fitted.classes_[1]).mean())
    told: dict[str, Any] = {"rows": len(found), "positive": fitted.classes_[1], "positive_share": share, "out": out}
    if as_json:
        tell(told | ({} if out else {"decisions": found.to_dict("records")}), "", as_json=True)
    elif out is None:
        click.echo(found.to_csv(index=False), nl=False)
    else:
        click.echo(f"{len(found):,} decisions in {out}; {share:.1%} are {fitted.classes_[1]}.")


def decided(model: LagrangianDualClassifier, table: Table, columns: Columns, key: str | None) -> pd.DataFrame:
    """Decision and probability of each row, beside its key or its number; other columns are not read."""
    names = table.columns if columns.features is None else columns.features
    table.check_columns(names)
    X, _ = columns.read(table, list(names))
    rows = pd.Series(range(1, len(X) + 1), name="row") if key is None else table.text([key])[key]
    probability = model.predict_proba(X)[:, 1]
    return pd.DataFrame({rows.name: rows, "decision": model.predict(X), "probability": probability.round(6)})
