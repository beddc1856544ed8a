"""``justitia datasets``: datasets of the evaluation as CSV files."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click
import pandas as pd

from justitia.cli import options
from justitia.cli.command import Commands
from justitia.cli.errors import Refusal
from justitia.cli.output import check_file, print_result, staged_file, table_text
from justitia.datasets import Dataset, load, make_synthetic

LIST = """
$ justitia datasets list
"""
WRITE = """
$ justitia datasets write synthetic --rows 2000 --out people.csv
$ justitia datasets write synthetic --rows 2000 --out features.csv \\
    --sensitive-file sex.csv
"""
SYNTHETIC = "synthetic"
#: Permissions of a file with the sensitive column, and of one without it.
OWN, PUBLIC = 0o600, 0o666
#: Public facts: rows, features, groups.
FACTS = {
    "bank": (11_162, 15, "age 25-60, other"),
    "m_bank3": (11_162, 15, "three age groups"),
    "m_bank5": (11_162, 15, "five age groups"),
    "income": (45_222, 50, "Female, Male"),
    "compas": (6_150, 9, "Female, Male"),
    "census": (299_285, 38, "Female, Male"),
    "census_race": (299_285, 38, "five races"),
    "occupation": (45_222, 32, "Female, Male"),
    "compas_score": (7_214, 8, "three races"),
    "communities": (1_993, 95, "two, by share of black people"),
    "hours": (45_222, 49, "Female, Male"),
    SYNTHETIC: (None, 5, "a, b; made up, needs no download"),
}


@click.group("datasets", cls=Commands)
def datasets() -> None:
    """List example datasets, or write one as CSV."""


@datasets.command("list", example=LIST)
@options.as_json
def list_(as_json: bool) -> None:
    """List the datasets that can be written."""
    facts = [{"name": name, "rows": n, "features": d, "groups": groups} for name, (n, d, groups) in FACTS.items()]
    rows = [(name, "any" if n is None else f"{n:,}", str(d), groups) for name, (n, d, groups) in FACTS.items()]
    numbers = table_text(("name", "rows", "features"), [row[:3] for row in rows]).splitlines()
    lines = zip(numbers, ["groups", *(row[3] for row in rows)], strict=True)
    print_result({"datasets": facts}, "\n".join(f"{line}  {groups}" for line, groups in lines), as_json=as_json)


@datasets.command("write", example=WRITE)
@click.argument("name", type=options.OneOf("dataset", list(FACTS)))
@click.option("--out", type=options.FILE, required=True, help="CSV file to write.")
@click.option(
    "--sensitive-file", type=options.FILE, help="Second file for the sensitive column, joined by the key 'id'."
)
@click.option("--rows", type=click.IntRange(min=1), default=4000, show_default=True, help="Of synthetic data.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of synthetic data.")
@options.overwrite
@options.as_json
def write(
    name: str, out: Path, sensitive_file: Path | None, rows: int, seed: int, overwrite: bool, as_json: bool
) -> None:
    """Write the dataset NAME as CSV: features, target, and the sensitive column.

    Files are downloaded once, checked, and kept in a cache (JUSTITIA_DATA names its folder). Only you can read the file
    with the sensitive column.
    """
    check_file(out, overwrite=overwrite)
    if sensitive_file is not None:
        if sensitive_file.resolve() == out.resolve():
            raise Refusal("expected two files, got one name for --out and --sensitive-file; rename one.")
        check_file(sensitive_file, overwrite=overwrite)
    data = make_synthetic(rows, random_state=seed) if name == SYNTHETIC else load(name)
    target, sensitive = str(data.y.name), str(data.sensitive.name)
    for file, frame in _frames(data, out, sensitive_file).items():
        mode = OWN if sensitive in frame else PUBLIC
        with staged_file(file, overwrite=overwrite, mode=mode) as stage:
            frame.to_csv(stage, index=False)
    facts: dict[str, Any] = {"out": out, "sensitive_file": sensitive_file, "rows": len(data.y), "target": target}
    facts |= {"sensitive": sensitive, "groups": list(data.groups)}
    print_result(facts, _next(facts), as_json=as_json)


def _frames(data: Dataset, out: Path, sensitive_file: Path | None) -> dict[Path, pd.DataFrame]:
    public = pd.concat([data.X, data.y], axis=1).reset_index(drop=True)
    attribute = data.sensitive.reset_index(drop=True)
    if sensitive_file is None:
        return {out: pd.concat([public, attribute], axis=1)}
    key = pd.Series(range(1, len(public) + 1), name="id")
    return {out: pd.concat([key, public], axis=1), sensitive_file: pd.concat([key, attribute], axis=1)}


def _next(facts: dict[str, Any]) -> str:
    groups = ",".join(facts["groups"])
    joined = (
        "" if facts["sensitive_file"] is None else f" --sensitive-file {quote(str(facts['sensitive_file']))} --key id"
    )
    return (
        f"{facts['out']}: {facts['rows']:,} rows\n"
        f"Next: justitia train {quote(str(facts['out']))} --target {facts['target']} \\\n"
        f"        --sensitive {facts['sensitive']}{joined} \\\n"
        f"        --groups '{groups}' --out model"
    )
