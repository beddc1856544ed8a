"""Copy some rows of a file to another one, as they are."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.reading import KEPT_BYTES, Table


@dataclass(frozen=True)
class Rows:
    """All rows of a file; what they hold is copied and never looked at."""

    table: Table
    content: Any = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> Rows:
        """Read the whole file.

        Raises
        ------
        Refusal
            For a Parquet file where there is no pyarrow.
        """
        if not table.is_parquet:
            return cls(table, table.raw(table.columns))
        if importlib.util.find_spec("pyarrow") is None:  # polars fails for one entry that is no text
            raise Refusal(f"copying rows of {shown_path(table.path)} needs pyarrow; run pip install pyarrow.")
        from pyarrow import parquet  # noqa: PLC0415 - optional

        return cls(table, parquet.read_table(table.path))

    def __len__(self) -> int:
        return len(self.content)

    def write(self, chosen: Sequence[int], file: Path) -> None:
        """Write these rows in the format of the file they come from."""
        if not self.table.is_parquet:
            self._write_csv(chosen, file)
        else:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            parquet.write_table(self.content.take(list(chosen)), file)

    def _write_csv(self, chosen: Sequence[int], file: Path) -> None:
        """Fields with any line end are quoted: Python 3.11 quotes those with characters of its own line end alone."""
        encoding = "utf-8" if self.table.encoding == "utf-8-sig" else self.table.encoding
        opened = gzip.open if self.table.path.suffix.lower() == ".gz" else open
        with opened(file, "wt", encoding=encoding, errors=KEPT_BYTES, newline="") as lines:
            shortened = SimpleNamespace(write=lambda line: lines.write(line.removesuffix("\r\n") + "\n"))
            writer = csv.writer(shortened, delimiter=self.table.separator, lineterminator="\r\n")
            writer.writerow(self.table.columns)
            writer.writerows(self.content.iloc[list(chosen)].itertuples(index=False, name=None))
