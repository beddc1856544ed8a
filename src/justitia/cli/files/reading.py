"""Tables in files: CSV and Parquet, read column by column.

Public columns are typed by what they hold. Columns of text (keys, and the sensitive attribute) are read entry by entry
as they are written, so that no person's value changes how another one's is read.

A CSV is split into fields once, by Python's own reader, and only the fields of public columns go on to be typed. What
stands in a sensitive column is thus never decoded strictly, measured against a limit, or parsed into anything.

Guarantee
---------
* Whether a table can be read depends on its first line, on how many fields its rows have, and on its public columns.
* :meth:`Table.private` makes each text from one entry and the type of its column; what cannot be read is None.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import importlib.util
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.preprocessing.number_formats import NumberFormat
from justitia.privacy.columns import INTERRUPTS, columns_of, read_each
from justitia.rows.files import frames
from justitia.rows.parquet import RowFiles

PARQUET = (".parquet", ".pq")
_OTHER_FORMATS = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".sav", ".dta")
#: Handler for bytes that are no text in the encoding of a file: they are kept as halves of surrogate pairs, which text
#: cannot hold, and written back as they were.
KEPT_BYTES = "justitia-kept-bytes"
#: The longest field that Python's reader accepts on every system.
_LONGEST_FIELD = 2**31 - 1
_CODE = re.compile(r"\s*0[0-9]+\s*")
_SEPARATORS = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ",", "space": " "}


@dataclass(frozen=True)
class Table:
    """A file, how to read it, and the names of its columns, each of which it has once.

    Of several files, or one that is read a few rows at a time, only :meth:`parts` is read.
    """

    path: Path
    columns: tuple[str, ...]
    separator: str = ","
    encoding: str = "utf-8-sig"
    files: RowFiles | None = field(default=None, repr=False)

    @classmethod
    def streamed(cls, data: Path) -> Table:
        """Parquet files that are read a few rows at a time."""
        files = RowFiles.open(data)
        return cls(data, _once(data, files.names), files=files)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet rather than CSV."""
        return self.files is not None or self.path.suffix.lower() in PARQUET

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse the first name that is no column, with the nearest one that is."""
        for name in names:
            if name not in self.columns:
                raise no_such("column", name, self.columns, place=shown_path(self.path))

    def public(self, names: Sequence[str], written: NumberFormat | None = None) -> pd.DataFrame:
        """These columns, typed, in this order; no other column is parsed into anything.

        Codes such as 00501 stay text, and so do numbers where they are not ``written`` as programs write them.
        """
        unique = list(dict.fromkeys(names))
        plain = written is None or written.is_plain
        frame = _public_parquet(self.path, unique) if self.is_parquet else _typed(self, unique, plain=plain)
        return frame[list(names)]

    def parts(self, name: str) -> Iterator[pd.Series]:
        """One public column, typed, a few rows at a time where the file is read so."""
        parts = iter([self.public([name])]) if self.files is None else frames(self.files, [name])
        return (part[name] for part in parts)

    def raw(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns of a CSV as they are written; bytes that are no text are kept (:data:`KEPT_BYTES`)."""
        return pd.DataFrame(_rows(self, names), columns=list(names), dtype=object)

    def text(self, names: Sequence[str]) -> pd.DataFrame:
        """These public columns as text without surrounding space; None where nothing is written."""
        return pd.DataFrame({name: pd.Series(one, dtype=object) for name, one in self._texts(names).items()})

    def private(self, names: Sequence[str]) -> dict[str, list[str | None]]:
        """The same of private columns: None, too, for whatever cannot be read.

        Raises
        ------
        Refusal
            For a Parquet file where there is no pyarrow: polars refuses the whole column for one entry that is no text.
        """
        if self.is_parquet and not _has_pyarrow():
            raise Refusal(f"reading the attribute in {shown_path(self.path)} needs pyarrow; run pip install pyarrow.")
        return self._texts(names)

    def _texts(self, names: Sequence[str]) -> dict[str, list[str | None]]:
        if not self.is_parquet:
            rows = _rows(self, names)
            return {name: read_each(as_text, (row[place] for row in rows)) for place, name in enumerate(names)}
        return {name: read_each(as_text, self._entries(name)) for name in names}

    def _entries(self, name: str) -> Iterable[Any]:
        if self.files is None:
            return _entries_of(_parquet_column(self.path, name))
        return itertools.chain.from_iterable(_entries_of(part) for part in self.files.tables([name]))


def is_several(path: Path) -> bool:
    """Whether this names a folder or a pattern of Parquet files."""
    return path.is_dir() or any(mark in str(path) for mark in "*?[")


def open_table(path: Path | str, separator: str | None = None, encoding: str | None = None) -> Table:
    """Look at the names of a file's columns.

    Raises
    ------
    Refusal
        If the file cannot be read, or was written with another separator.
    """
    separator, encoding = "," if separator is None else separator, encoding or "utf-8"
    file, mark = Path(path), _SEPARATORS.get(separator, separator)
    if len(mark) != 1:
        raise Refusal(f"expected --separator to be one character or 'tab', got {separator!r}.")
    if file.suffix.lower() in _OTHER_FORMATS:
        raise Refusal(f"expected a CSV or Parquet file, got {shown_path(file)}; export it as CSV first.")
    plain = encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
    table = Table(file, (), mark, "utf-8-sig" if plain else encoding)
    if table.is_parquet:
        return Table(file, _once(file, _parquet_names(file)))
    head = _once(file, [name.strip() for name in _rows_at(table, [])[0]])
    return Table(file, _names(table, head), table.separator, table.encoding)


def _once(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names; one that repeats is refused: of two columns with one name the second would be a feature."""
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise Refusal(f"{shown_path(file)} has the column {twice[0]!r} twice; rename or remove one of them.")
    return tuple(names)


def _check_separator(file: Path, header: str, separator: str) -> None:
    for other, name in ((";", ";"), ("\t", "tab"), ("|", "|"), (",", ",")):
        if other != separator and other in header:
            raise Refusal(
                f"expected columns separated by {separator!r} in {shown_path(file)}, got a single column whose name "
                f"holds {other!r}; pass --separator {name!r}."
            )


def _kept_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end
    if isinstance(error, UnicodeEncodeError):
        codes = [ord(one) - 0xDC00 for one in error.object[error.start : error.end]]
        if all(0 <= code < 256 for code in codes):
            return bytes(codes), error.end
    raise error


codecs.register_error(KEPT_BYTES, _kept_bytes)


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Let fields be of any length; by default a single long one stops Python's reader."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _rows_at(table: Table, places: Sequence[int]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The first line of a CSV, and the fields at these places of all rows.

    Raises
    ------
    Refusal
        If some row has more or fewer fields than the first line.
    """
    opened = gzip.open if table.path.suffix.lower() == ".gz" else open
    picked: list[tuple[str, ...]] = []
    head: list[str] = []
    try:
        with (
            _long_fields(),
            opened(table.path, "rt", encoding=table.encoding, errors=KEPT_BYTES, newline="") as lines,
        ):
            rows = (row for row in csv.reader(lines, delimiter=table.separator) if row)
            head = next(rows, [])
            if len(head) == 1:
                _check_separator(table.path, head[0], table.separator)
            for row in rows:
                if len(row) != len(head):
                    raise _unlike_its_head(table.path)
                picked.append(tuple([row[place] for place in places]))
    except csv.Error:
        raise _unlike_its_head(table.path) from None
    except (UnicodeError, LookupError):
        raise _not_text(table.path) from None
    if not head:
        raise Refusal(f"{shown_path(table.path)} is empty; expected a line of column names and rows below it.")
    return head, picked


def _rows(table: Table, names: Sequence[str]) -> list[tuple[str, ...]]:
    return _rows_at(table, [table.columns.index(name) for name in names])[1]


def _names(table: Table, head: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns; pandas gives one to those without."""
    return tuple(str(name) for name in pd.read_csv(_as_bytes(table, [head]), nrows=0, index_col=False))


def _typed(table: Table, names: Sequence[str], *, plain: bool) -> pd.DataFrame:
    rows = _rows(table, names)
    content = _as_bytes(table, itertools.chain([names], rows))
    texts = {name: str for place, name in enumerate(names) if not plain or _holds_codes(row[place] for row in rows)}
    try:
        typed = pd.read_csv(content, index_col=False, low_memory=False, skip_blank_lines=False)
        content.seek(0)
        texts = {name: kind for name, kind in texts.items() if typed[name].dtype != bool}
        if not texts:
            return typed
        kept = pd.read_csv(content, index_col=False, skip_blank_lines=False, dtype=texts, usecols=list(texts))
        return typed.assign(**{name: kept[name] for name in texts})
    except ValueError:
        raise _unlike_its_head(table.path) from None


def _holds_codes(entries: Iterable[str]) -> bool:
    """Whether a column has whole numbers that begin with a zero, as zip codes do and amounts do not."""
    return any(_CODE.fullmatch(entry) for entry in entries)


def _as_bytes(table: Table, rows: Iterable[Sequence[str]]) -> io.BytesIO:
    """Public fields as a CSV for pandas to type; they have to be text."""
    content = io.StringIO(newline="")
    csv.writer(content, lineterminator="\r\n").writerows(rows)
    try:
        return io.BytesIO(content.getvalue().encode("utf-8"))
    except UnicodeEncodeError:
        raise _not_text(table.path) from None


def _unlike_its_head(path: Path) -> Refusal:
    """No line is named: which one it is could be about a sensitive value in it."""
    return Refusal(
        f"{shown_path(path)} cannot be read as CSV: some rows do not have the fields of its first line; check "
        "separator and quotes."
    )


def _not_text(path: Path) -> Refusal:
    return Refusal(f"{shown_path(path)} is not text in the encoding asked for; pass --encoding latin-1, say.")


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _parquet_names(file: Path) -> list[str]:
    file.open("rb").close()  # the operating system's own words for a file that cannot be read
    try:
        if _has_pyarrow():
            from pyarrow import parquet  # noqa: PLC0415 - optional

            return [str(name) for name in parquet.read_schema(file).names]
        import polars as pl  # noqa: PLC0415 - optional

        return list(pl.read_parquet_schema(file))
    except ImportError:
        raise Refusal(f"reading {shown_path(file)} needs pyarrow or polars; run pip install pyarrow.") from None
    except Exception:  # noqa: BLE001 - both libraries have errors of their own, which may quote the file
        raise Refusal(f"{shown_path(file)} is not a Parquet file that can be read; write it again.") from None


def _parquet_column(file: Path, name: str) -> Any:
    """A column of a Parquet file as pyarrow or polars holds it: nothing of it is converted yet."""
    try:
        if _has_pyarrow():
            from pyarrow import parquet  # noqa: PLC0415 - optional

            return parquet.read_table(file, columns=[name]).column(0)
        import polars as pl  # noqa: PLC0415 - optional

        return pl.read_parquet(file, columns=[name]).to_series()
    except Exception:  # noqa: BLE001 - as above
        raise Refusal(f"{shown_path(file)} is not a Parquet file that can be read; write it again.") from None


def _entries_of(column: Any) -> Iterable[Any]:
    return columns_of(column)[1][0]


def _public_parquet(file: Path, names: Sequence[str]) -> pd.DataFrame:
    stored = {name: _parquet_column(file, name) for name in names}
    try:
        return pd.DataFrame(
            {name: one.to_pylist() if hasattr(one, "to_pylist") else one.to_list() for name, one in stored.items()}
        )
    except INTERRUPTS:
        raise
    except BaseException:  # noqa: BLE001 - a date that Python has no room for, say; a panic is no Exception
        raise Refusal(f"{shown_path(file)} has public values that cannot be read; write it again.") from None


def as_text(value: Any) -> str | None:
    """What is written in a cell: "1" for 1 and 1.0 alike; None for nothing. What is no text raises."""
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    whole = isinstance(value, float) and value.is_integer()
    text = (str(int(value)) if whole else str(value)).strip()
    text.encode("utf-8")  # fails for bytes that were kept
    return text or None
