"""``justitia split``: random split of a file into training and test rows."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.reading import KEPT_BYTES, Table, open_table
from justitia.cli.output import check_file, print_result, staged_file

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

    Train on one and evaluate on the other. If each person has one row, nobody is in both files; a person with several
    rows may be, and costs then add up. The draw depends on the number of rows only. Rows are copied unchanged, and
    users who may not read DATA may not read the two files.
    """
    if not 0 < test < 1:
        raise Refusal(f"expected --test to be between 0 and 1, got {test:g}; pass 0.2 to hold out one row in five.")
    rows = RawRows.read(open_table(data, separator, encoding))
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
    print_result(facts, text, as_json=as_json)


@dataclass(frozen=True)
class RawRows:
    """All rows of a file, to be copied without being interpreted."""

    table: Table
    content: Any = field(repr=False)

    @classmethod
    def read(cls, table: Table) -> RawRows:
        """Read the whole file.

        Raises
        ------
        Refusal
            For a Parquet file where there is no pyarrow.
        """
        if not table.is_parquet:
            return cls(table, table.raw(table.columns))
        if importlib.util.find_spec("pyarrow") is None:  # polars fails for one entry that is not text
            raise Refusal(f"copying rows of {shown_path(table.path)} needs pyarrow; run pip install pyarrow.")
        from pyarrow import parquet  # noqa: PLC0415 - optional

        return cls(table, parquet.read_table(table.path))

    def __len__(self) -> int:
        return len(self.content)

    def write(self, chosen: Sequence[int], file: Path) -> None:
        """Write these rows in the format of the file they come from."""
        if self.table.is_parquet:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            parquet.write_table(self.content.take(list(chosen)), file)
            return
        encoding = "utf-8" if self.table.encoding == "utf-8-sig" else self.table.encoding
        opened = gzip.open if self.table.path.suffix.lower() == ".gz" else open
        with opened(file, "wt", encoding=encoding, errors=KEPT_BYTES, newline="") as lines:
            # Python 3.11 quotes fields with characters of its own line end only, and a field may contain either.
            shortened = SimpleNamespace(write=lambda line: lines.write(line.removesuffix("\r\n") + "\n"))
            writer = csv.writer(shortened, delimiter=self.table.separator, lineterminator="\r\n")
            writer.writerow(self.table.columns)
            writer.writerows(self.content.iloc[list(chosen)].itertuples(index=False, name=None))
