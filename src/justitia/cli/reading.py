"""Tables in files: CSV and Parquet, read column by column.

Public columns are typed by what they hold. Columns of text (keys, and the sensitive attribute) are read entry by entry
as they are written, so that no person's value changes how another one's is read.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from justitia.cli.errors import Refusal, no_such, shown_path

PARQUET = (".parquet", ".pq")
_OTHER_FORMATS = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".sav", ".dta")
_SEPARATORS = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ",", "space": " "}


@dataclass(frozen=True)
class Table:
    """A file, how to read it, and the names of its columns."""

    path: Path
    columns: tuple[str, ...]
    separator: str = ","
    encoding: str = "utf-8-sig"

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet rather than CSV."""
        return self.path.suffix.lower() in PARQUET

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse the first name that is no column, with the nearest one that is."""
        for name in names:
            if name not in self.columns:
                raise no_such("column", name, self.columns, place=shown_path(self.path))

    def public(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns, typed, in this order; no other column is parsed into anything."""
        return _read(self, list(names))

    def raw(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns as they are written."""
        return _read(self, list(names), dtype=str, keep_default_na=False)

    def text(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns as text without surrounding space; None where nothing is written."""
        frame = self.raw(names)
        return pd.DataFrame({name: pd.Series([_as_text(v) for v in frame[name]], dtype=object) for name in names})


def open_table(path: Path | str, separator: str = ",", encoding: str = "utf-8") -> Table:
    """Look at the names of a file's columns.

    Raises
    ------
    Refusal
        If the file cannot be read, or was written with another separator.
    """
    file, mark = Path(path), _SEPARATORS.get(separator, separator)
    if len(mark) != 1:
        raise Refusal(f"expected --separator to be one character or 'tab', got {separator!r}.")
    if file.suffix.lower() in _OTHER_FORMATS:
        raise Refusal(f"expected a CSV or Parquet file, got {shown_path(file)}; export it as CSV first.")
    plain = encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
    table = Table(file, (), mark, "utf-8-sig" if plain else encoding)
    names = _parquet_names(file) if table.is_parquet else [str(name) for name in _read(table, None, nrows=0)]
    if not table.is_parquet:
        if len(names) == 1:
            _check_separator(file, names[0], mark)
        _check_fields(table, len(names))
    return Table(file, tuple(names), table.separator, table.encoding)


def _check_separator(file: Path, header: str, separator: str) -> None:
    for other, name in ((";", ";"), ("\t", "tab"), ("|", "|"), (",", ",")):
        if other != separator and other in header:
            raise Refusal(
                f"expected columns separated by {separator!r} in {shown_path(file)}, got a single column whose name "
                f"holds {other!r}; pass --separator {name!r}."
            )


def _check_fields(table: Table, width: int) -> None:
    """Every row has the fields of the first line; pandas would drop what is too much and make up what is missing."""
    unlike = _unlike_its_head(table.path)
    try:
        opened = gzip.open if table.path.suffix.lower() == ".gz" else open
        with opened(table.path, "rt", encoding=table.encoding, newline="") as lines:
            if any(len(row) != width for row in csv.reader(lines, delimiter=table.separator) if row):
                raise unlike
    except csv.Error:
        raise unlike from None
    except UnicodeDecodeError:
        raise _not_text(table.path) from None


def _unlike_its_head(path: Path) -> Refusal:
    """No line is named: which one it is could be about a sensitive value in it."""
    return Refusal(
        f"{shown_path(path)} cannot be read as CSV: some rows do not have the fields of its first line; check "
        "separator and quotes."
    )


def _not_text(path: Path) -> Refusal:
    return Refusal(f"{shown_path(path)} is not text in the encoding asked for; pass --encoding latin-1, say.")


def _read(table: Table, names: list[str] | None, **options: Any) -> pd.DataFrame:
    if table.is_parquet:
        return _read_parquet(table.path, names or [])
    options |= {"sep": table.separator, "encoding": table.encoding, "index_col": False, "low_memory": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: pd.DataFrame = pd.read_csv(table.path, usecols=names, **options)
    except (UnicodeDecodeError, LookupError):
        raise _not_text(table.path) from None
    except pd.errors.EmptyDataError:
        raise Refusal(
            f"{shown_path(table.path)} is empty; expected a line of column names and rows below it."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, ValueError):
        raise _unlike_its_head(table.path) from None
    return frame if names is None else frame[names]


def _parquet_names(file: Path) -> list[str]:
    file.open("rb").close()  # the operating system's own words for a file that cannot be read
    try:
        if importlib.util.find_spec("pyarrow") is not None:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            return [str(name) for name in parquet.read_schema(file).names]
        import polars as pl  # noqa: PLC0415 - optional

        return list(pl.read_parquet_schema(file))
    except ImportError:
        raise Refusal(f"reading {shown_path(file)} needs pyarrow or polars; run pip install pyarrow.") from None
    except Exception:  # noqa: BLE001 - both libraries have errors of their own, which may quote the file
        raise Refusal(f"{shown_path(file)} is not a Parquet file that can be read; write it again.") from None


def _read_parquet(file: Path, names: list[str]) -> pd.DataFrame:
    try:
        if importlib.util.find_spec("pyarrow") is not None:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            columns = {name: parquet.read_table(file, columns=[name]).column(0).to_pylist() for name in names}
        else:
            import polars as pl  # noqa: PLC0415 - optional

            columns = pl.read_parquet(file, columns=names).to_dict(as_series=False)
    except Exception:  # noqa: BLE001 - as above
        raise Refusal(f"{shown_path(file)} is not a Parquet file that can be read; write it again.") from None
    return pd.DataFrame({name: columns[name] for name in names})


def _as_text(value: Any) -> str | None:
    """What is written in a cell: "1" for 1 and 1.0 alike; None for nothing."""
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    whole = isinstance(value, float) and value.is_integer()
    return (str(int(value)) if whole else str(value)).strip() or None
