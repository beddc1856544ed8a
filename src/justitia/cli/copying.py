"""Copy some rows of a file to another one, as they are."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from justitia.cli.reading import KEPT_BYTES, Table


@dataclass(frozen=True)
class Rows:
    """All rows of a file; what they hold is copied and never looked at."""

    table: Table
    content: Any = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> Rows:
        """Read the whole file."""
        if not table.is_parquet:
            return cls(table, table.raw(table.columns))
        if importlib.util.find_spec("pyarrow") is not None:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            return cls(table, parquet.read_table(table.path))
        import polars as pl  # noqa: PLC0415 - optional

        return cls(table, pl.read_parquet(table.path))

    def __len__(self) -> int:
        return len(self.content)

    def write(self, chosen: Sequence[int], file: Path) -> None:
        """Write these rows in the format of the file they come from."""
        if not self.table.is_parquet:
            self._write_csv(chosen, file)
        elif hasattr(self.content, "write_parquet"):
            self.content[list(chosen)].write_parquet(file)
        else:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            parquet.write_table(self.content.take(list(chosen)), file)

    def _write_csv(self, chosen: Sequence[int], file: Path) -> None:
        """Fields with any line end are quoted: Python 3.11 quotes those with characters of its own line end alone."""
        encoding = "utf-8" if self.table.encoding == "utf-8-sig" else self.table.encoding
        with file.open("w", encoding=encoding, errors=KEPT_BYTES, newline="") as lines:
            shortened = SimpleNamespace(write=lambda line: lines.write(line.removesuffix("\r\n") + "\n"))
            writer = csv.writer(shortened, delimiter=self.table.separator, lineterminator="\r\n")
            writer.writerow(self.table.columns)
            writer.writerows(self.content.iloc[list(chosen)].itertuples(index=False, name=None))
