"""CSV and Parquet files, read column by column.

The type of a public column is inferred from its values. Columns of text (keys, and the sensitive attribute) are read
entry by entry, so that no person's value changes how another one's is read.

Python's own reader splits a CSV into fields, and only the fields of public columns are parsed further. Values of a
sensitive column are never decoded strictly, compared with a size limit, or parsed.

Guarantee
---------
* Whether a table can be read depends on its first line, on how many fields its rows have, and on its public columns.
* :meth:`Table.private` makes each text from one entry and the type of its column; an entry that cannot be read is None.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import importlib.util
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
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
#: Handler for bytes that are not text in the encoding of a file: they are kept as halves of surrogate pairs, which text
#: cannot contain, and written back unchanged.
KEPT_BYTES = "justitia-kept-bytes"
#: The longest field that Python's reader accepts on every system.
_LONGEST_FIELD = 2**31 - 1
_CODE = r"\s*0[0-9]+\s*"
_SEPARATORS = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ",", "space": " "}


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file: its path, its format, and the names of its columns, which are unique.

    Where ``files`` are given, rows are read a few at a time, and only :meth:`parts` and texts can be read.
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
        """Refuse the first name that is not a column, and suggest the nearest column."""
        for name in names:
            if name not in self.columns:
                raise no_such("column", name, self.columns, place=shown_path(self.path))

    def public(self, names: Sequence[str], written: NumberFormat | None = None) -> pd.DataFrame:
        """These columns with their types inferred, in this order; no other column is parsed.

        Codes such as 00501 stay text, and so do numbers where they are not ``written`` as programs write them.
        """
        unique = list(dict.fromkeys(names))
        if self.is_parquet:
            return _read_parquet(self.path, unique)[list(names)]
        return _infer_types(self, unique, plain=written is None or written.is_plain)[list(names)]

    def parts(self, name: str) -> Iterator[pd.Series]:
        """One public column with its type inferred, a few rows at a time where the file is read so."""
        for part in [self.public([name])] if self.files is None else frames(self.files, [name]):
            yield part[name]

    def raw(self, names: Sequence[str]) -> pd.DataFrame:
        """These columns of a CSV as they are written; bytes that are not text are kept (:data:`KEPT_BYTES`)."""
        return pd.DataFrame(_read_csv(self, names)[1], columns=list(names), dtype=object)

    def text(self, names: Sequence[str]) -> pd.DataFrame:
        """These public columns as text without surrounding space; None where nothing is written."""
        return pd.DataFrame({name: pd.Series(one, dtype=object) for name, one in self._texts(names).items()})

    def private(self, names: Sequence[str]) -> dict[str, list[str | None]]:
        """Private columns as text without surrounding space; None where nothing is written or nothing can be read.

        Raises
        ------
        Refusal
            For a Parquet file where there is no pyarrow: polars refuses the whole column for one entry that is no text.
        """
        if self.is_parquet and not _has_pyarrow():
            raise Refusal(f"reading the attribute in {shown_path(self.path)} needs pyarrow; run pip install pyarrow.")
        return self._texts(names)

    def _texts(self, names: Sequence[str]) -> dict[str, list[str | None]]:
        found: dict[str, list[str | None]] = {}
        if not self.is_parquet:
            rows = _read_csv(self, names)[1]
            for place, name in enumerate(names):
                found[name] = read_each(as_text, map(itemgetter(place), rows))
            return found
        for name in names:
            stored = [_parquet_column(self.path, name)] if self.files is None else self.files.tables([name])
            entries = itertools.chain.from_iterable(columns_of(part)[1][0] for part in stored)
            found[name] = read_each(as_text, entries)
        return found


def is_several(path: Path) -> bool:
    """Whether a path names a folder or a pattern of Parquet files."""
    return path.is_dir() or bool({*"*?["} & {*str(path)})


def open_table(path: Path | str, separator: str | None = None, encoding: str | None = None) -> Table:
    """Open a file and read the names of its columns.

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
    head = _once(file, list(map(str.strip, _read_csv(table, [])[0])))
    # pandas gives names to columns without one
    named = pd.read_csv(_as_bytes(table, [head]), nrows=0, index_col=False)
    return replace(table, columns=tuple(map(str, named)))


def _once(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Refuse a name that repeats, because the second of two columns with one name would be a feature."""
    for name in names:
        if name and names.count(name) > 1:
            raise Refusal(f"{shown_path(file)} has the column {name!r} twice; rename or remove one of them.")
    return tuple(names)


def _kept_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end
    if isinstance(error, UnicodeEncodeError):
        codes = [ord(one) - 0xDC00 for one in error.object[error.start : error.end]]
        if all(0 <= code < 256 for code in codes):
            return bytes(codes), error.end
    raise error


codecs.register_error(KEPT_BYTES, _kept_bytes)


def _read_csv(table: Table, names: Sequence[str]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The first line of a CSV, and the fields of these columns in all rows.

    Raises
    ------
    Refusal
        If some row has more or fewer fields than the first line.
    """
    opened = gzip.open if table.path.suffix.lower() == ".gz" else open
    places = list(map(table.columns.index, names))
    picked: list[tuple[str, ...]] = []
    head: list[str] = []
    limit = csv.field_size_limit(_LONGEST_FIELD)  # by default a single long field stops Python's reader
    try:
        with opened(table.path, "rt", encoding=table.encoding, errors=KEPT_BYTES, newline="") as lines:
            for row in csv.reader(lines, delimiter=table.separator):
                if not row:
                    continue
                if not head:
                    head = row
                    if len(head) == 1:
                        _check_separator(table.path, head[0], table.separator)
                elif len(row) != len(head):
                    raise _bad_rows(table.path)
                else:
                    picked.append(tuple(map(row.__getitem__, places)))
    except csv.Error:
        raise _bad_rows(table.path) from None
    except (UnicodeError, LookupError):
        raise _not_text(table.path) from None
    finally:
        csv.field_size_limit(limit)
    if not head:
        raise Refusal(f"{shown_path(table.path)} is empty; expected a line of column names and rows below it.")
    return head, picked


def _check_separator(file: Path, name: str, separator: str) -> None:
    """Refuse a single column whose name contains another usual separator."""
    for other, mark in ((";", ";"), ("\t", "tab"), ("|", "|"), (",", ",")):
        if other != separator and other in name:
            raise Refusal(
                f"expected columns separated by {separator!r} in {shown_path(file)}, got a single column whose name "
                f"contains {other!r}; pass --separator {mark!r}."
            )


def _infer_types(table: Table, names: Sequence[str], *, plain: bool) -> pd.DataFrame:
    rows = _read_csv(table, names)[1]
    content, raw = _as_bytes(table, [names, *rows]), pd.DataFrame(rows, columns=list(names), dtype=object)
    try:
        typed = pd.read_csv(content, index_col=False, low_memory=False, skip_blank_lines=False)
        texts: dict[str, type] = {}
        for name in names:
            # Whole numbers that begin with a zero are codes, such as zip codes, and stay text.
            is_text = not plain or raw[name].str.fullmatch(_CODE).any()
            if is_text and typed[name].dtype != bool:
                texts[name] = str
        if texts:
            content.seek(0)
            kept = pd.read_csv(content, index_col=False, skip_blank_lines=False, dtype=texts, usecols=list(texts))
            typed[list(texts)] = kept[list(texts)]
    except ValueError:
        raise _bad_rows(table.path) from None
    return typed


def _as_bytes(table: Table, rows: Iterable[Sequence[str]]) -> io.BytesIO:
    """Public fields, which have to be text, as a CSV that pandas can parse."""
    content = io.StringIO(newline="")
    csv.writer(content, lineterminator="\r\n").writerows(rows)
    try:
        return io.BytesIO(content.getvalue().encode("utf-8"))
    except UnicodeEncodeError:
        raise _not_text(table.path) from None


def _bad_rows(path: Path) -> Refusal:
    """Error that names no line, because which line it is could depend on a sensitive value in it."""
    return Refusal(
        f"{shown_path(path)} cannot be read as CSV: some rows do not have the fields of its first line; check "
        "separator and quotes."
    )


def _not_text(path: Path) -> Refusal:
    return Refusal(f"{shown_path(path)} is not text in the encoding asked for; pass --encoding latin-1, for example.")


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _parquet_names(file: Path) -> list[str]:
    file.open("rb").close()  # raises the operating system's error for a file that cannot be read
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
    """A column of a Parquet file as a pyarrow or polars object; no entry is converted yet."""
    try:
        if _has_pyarrow():
            from pyarrow import parquet  # noqa: PLC0415 - optional

            return parquet.read_table(file, columns=[name]).column(0)
        import polars as pl  # noqa: PLC0415 - optional

        return pl.read_parquet(file, columns=[name]).to_series()
    except Exception:  # noqa: BLE001 - as above
        raise Refusal(f"{shown_path(file)} is not a Parquet file that can be read; write it again.") from None


def _read_parquet(file: Path, names: Sequence[str]) -> pd.DataFrame:
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
    """The text of an entry: "1" for 1 and 1.0 alike; None for an empty one. Raises for what is not text."""
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    whole = isinstance(value, float) and value.is_integer()
    text = (str(int(value)) if whole else str(value)).strip()
    text.encode("utf-8")  # fails for bytes that were kept
    return text or None
