"""``justitia split``: hold people out for evaluation, by chance alone."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.copying import Rows
from justitia.cli.files.reading import open_table
from justitia.cli.output import check_file, staged_file, tell

EXAMPLE = """
$ justitia split income.csv --test 0.2 --seed 0
"""


@click.command("split", cls=Command, example=EXAMPLE)
@click.argument("data", type=options.FILE)
@click.option("--test", type=float, default=0.2, show_default=True, help="Share of rows to hold out.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the public draw.")
@options.reading
@options.overwrite
@options.as_json
def split(
    data: Path, test: float, seed: int, separator: str | None, encoding: str | None, overwrite: bool, as_json: bool
) -> None:
    """Write DATA's rows to two files, NAME-train and NAME-test, at random.

    Train on one and evaluate on the other: where everybody has one row, the people measured are then others than those
    trained on. Somebody with several rows may be in both files, and costs then add up. The draw looks at
    the number of rows only; rows are copied as they are, and who may not read DATA may not read the two files.
    """
    if not 0 < test < 1:
        raise Refusal(f"expected --test to be between 0 and 1, got {test:g}; pass 0.2 to hold out one row in five.")
    rows = Rows.of(open_table(data, separator, encoding))
    held = round(test * len(rows))
    if not 0 < held < len(rows):
        raise Refusal(f"{shown_path(data)} has {len(rows)} rows; a share of {test:g} leaves one of the files empty.")
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = {"train": sorted(order[held:].tolist()), "test": sorted(order[:held].tolist())}
    files = {name: data.with_name(f"{data.stem}-{name}{data.suffix}") for name in parts}
    for file in files.values():
        check_file(file, overwrite=overwrite, inputs=[data])
    for name, chosen in parts.items():
        with staged_file(files[name], overwrite=overwrite, inputs=[data], like=[data]) as stage:
            rows.write(chosen, stage)
    facts = {name: {"file": file, "rows": len(parts[name])} for name, file in files.items()}
    text = "\n".join(f"{file}: {len(parts[name]):,} rows" for name, file in files.items())
    tell(facts, text, as_json=as_json)
