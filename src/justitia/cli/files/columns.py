"""How the columns of a file are read: by the options of a command, or as they were for a model.

Everything here is public: the sensitive columns are not among those that are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.reading import Table
from justitia.cli.output import shortened, table_text, warn
from justitia.preprocessing.column_types import (
    IGNORED,
    NUMBER,
    ColumnType,
    convert_column,
    infer_types,
    thousands_warning,
)
from justitia.preprocessing.number_formats import NumberFormat

#: In training.json: how each column was read, and how numbers were written.
COLUMNS, WRITTEN = "read_as", "written"


@dataclass(frozen=True)
class Columns:
    """Which columns are features, and how they are read.

    Attributes
    ----------
    features : sequence of str or None
        Columns to use; by default all that describe rows.
    drop, categorical : sequence of str
        Columns to leave out, and columns whose entries are names of levels.
    written : NumberFormat
        How numbers and dates are written.
    known : sequence of ColumnType or None
        How a model's columns were read; None looks at every column.
    """

    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    written: NumberFormat = field(default_factory=NumberFormat)
    known: tuple[ColumnType, ...] | None = None

    @classmethod
    def taken(cls, values: dict[str, Any]) -> Columns:
        """Take them out of a command's options."""
        names = values.pop("features")
        return cls(
            None if names is None else tuple(names),
            tuple(one for listed in values.pop("drop") for one in listed),
            tuple(one for listed in values.pop("categorical") for one in listed),
            written_by(values),
        )

    @classmethod
    def of_model(cls, facts: Mapping[str, Any], features: Sequence[str] | None, values: dict[str, Any]) -> Columns:
        """As ``training.json`` says; marks and formats may be those of another file. Nothing is known of others."""
        known = tuple(ColumnType.from_dict(one) for one in facts.get(COLUMNS) or ())
        recorded = facts.get(WRITTEN) or {}
        return cls(features, written=written_by(values, recorded), known=known)

    def look(self, table: Table, names: Sequence[str]) -> tuple[pd.DataFrame, tuple[ColumnType, ...]]:
        """These columns as typed by the file, and how each should be read."""
        frame = table.public(names, self.written)
        if self.known is not None:
            return frame, tuple(one for one in self.known if one.name in set(names))
        wanted = {*(self.features or ()), *self.written.dates}
        readings = infer_types(frame, self.written, wanted=wanted, categorical=self.categorical)
        doubts = self._thousands_doubts(table, frame, readings)
        return frame, tuple(replace(one, doubt=doubts.get(one.name, one.doubt)) for one in readings)

    def _thousands_doubts(self, table: Table, frame: pd.DataFrame, readings: Sequence[ColumnType]) -> dict[str, str]:
        """By column, what to say of numbers in a CSV whose decimal marks may stand between thousands."""
        numeric = [one.name for one in readings if one.kind == NUMBER and one.name in frame and not one.doubt]
        typed = [name for name in numeric if _may_be_thousands(frame[name])]
        texts = {
            name: frame[name].dropna().unique() for name in numeric if not pd.api.types.is_numeric_dtype(frame[name])
        }
        if typed and not table.is_parquet:  # pandas made numbers of these; how they were written is in the file
            raw = table.raw(typed)
            texts |= {name: raw[name].unique() for name in typed}
        found = {name: thousands_warning(name, entries, self.written) for name, entries in texts.items()}
        return {name: doubt for name, doubt in found.items() if doubt}

    def read(self, table: Table, names: Sequence[str]) -> tuple[pd.DataFrame, tuple[ColumnType, ...]]:
        """These columns as models read them, and how they were read; of a fresh file, features alone.

        Raises
        ------
        Refusal
            If a column cannot be read without guessing, or no feature is left.
        """
        frame, readings = self.look(table, names)
        for one in readings:
            if one.refusal:
                raise Refusal(f"{shown_path(table.path)}: {one.refusal}")
        read = self.as_read(frame, readings)
        if self.known is not None:  # what was in doubt in training was settled there
            for sentence in self._thousands_doubts(table, frame, readings).values():
                warn(sentence)
        if not len(read.columns):
            raise Refusal(f"{shown_path(table.path)} has no column left to learn from; check --features and --drop.")
        dropped = tuple(ColumnType(name, IGNORED, says="left out") for name in self.drop)
        return read, (*readings, *dropped)

    def as_read(self, frame: pd.DataFrame, readings: Sequence[ColumnType] | None = None) -> pd.DataFrame:
        """Features of some rows as models read them; as a model's columns were read unless said otherwise."""
        by_name = {one.name: one for one in (self.known or () if readings is None else readings)}
        kept = [name for name in frame.columns if name not in by_name or by_name[name].is_feature]
        read = {
            name: convert_column(frame[name], by_name[name], self.written) if name in by_name else frame[name]
            for name in kept
        }
        return pd.DataFrame(read, index=frame.index)

    def to_keep(self, readings: Sequence[ColumnType]) -> dict[str, Any]:
        """What later commands need to read other files alike."""
        return {COLUMNS: [one.to_dict() for one in readings], WRITTEN: self.written.to_dict()}


def _may_be_thousands(values: pd.Series) -> bool:
    """Whether numbers could be amounts such as 1.500 with a point between thousands: cheap, before a file is read.

    Each is whole, or at least 1, below 1000, and has no more than three decimals.
    """
    if not pd.api.types.is_float_dtype(values):
        return False
    numbers = values.dropna().to_numpy(dtype=np.float64)
    fractions = numbers[numbers != np.floor(numbers)]
    thousandths = fractions * 1000
    small = (np.abs(fractions) >= 1) & (np.abs(fractions) < 1000)
    return bool(len(numbers) and (small & (np.abs(thousandths - np.round(thousandths)) < 1e-6)).all())


def written_by(values: dict[str, Any], recorded: Mapping[str, Any] | None = None) -> NumberFormat:
    """How numbers and dates are written, by the options and, where they say nothing, by a model's facts."""
    known = recorded or {}
    decimal, thousands = values.pop("decimal", None), values.pop("thousands", None)
    dates = dict(known.get("dates") or {}) | dict(_date(one) for one in values.pop("dates", ()))
    marks = {
        "decimal": known.get("decimal", ".") if decimal is None else decimal,
        "thousands": known.get("thousands", "") if thousands is None else thousands,
    }
    return NumberFormat(**marks, dates=dates)


def _date(text: str) -> tuple[str, str]:
    """``COLUMN=FORMAT``, or a format for all."""
    name, equals, form = text.rpartition("=")
    if "%" not in form:
        raise Refusal(f"expected --date to be a format such as 'opened=%d/%m/%Y', got {text!r}.")
    return (name.strip() if equals else ""), form.strip()


def warn_of(readings: Sequence[ColumnType]) -> list[str]:
    """Say what somebody should look at; the sentences are returned, too."""
    said = [one.refusal or one.doubt for one in readings if one.refusal or one.doubt]
    for sentence in said:
        warn(sentence)
    return said


def columns_text(readings: Sequence[ColumnType]) -> str:
    """A table of all columns, for people."""
    rows = [(shortened(one.name, 24), one.kind, shortened(one.says, 38)) for one in readings]
    used = sum(one.is_feature for one in readings)
    head = f"How columns are read ({used} of {len(readings)} are features):"
    return f"{head}\n{table_text(('column', 'read as', 'what is in it'), rows, left=3)}"
