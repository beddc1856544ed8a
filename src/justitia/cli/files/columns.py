"""Feature columns of a file: which are used and how they are converted, by options or as a model was trained.

Everything here is public; sensitive columns are never among the columns that are inspected.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.reading import Table
from justitia.cli.output import table_text, text_width, truncate, warn
from justitia.preprocessing.column_types import (
    CATEGORY,
    DATE,
    IGNORED,
    NUMBER,
    ColumnType,
    convert_column,
    infer_types,
    thousands_warning,
)
from justitia.preprocessing.number_formats import NumberFormat

#: Fields of training.json: how each column was read, and how numbers were written.
COLUMNS, WRITTEN = "read_as", "written"
#: Columns that are listed one by one; of more, those that are left out or in doubt.
LISTED = 12
KIND_WORDS = {NUMBER: "numeric", CATEGORY: "categorical", DATE: "dates"}


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns are features, and how they are read.

    Attributes
    ----------
    features : sequence of str or None
        Columns to use; by default all that are useful as features.
    drop, categorical : sequence of str
        Columns to leave out, and columns whose entries are names of levels.
    written : NumberFormat
        Formats of numbers and dates.
    known : sequence of ColumnType or None
        How a model's columns were read; None inspects every column.
    proxy : sequence of str
        Columns that say something about the group, and are no features.
    """

    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    written: NumberFormat = field(default_factory=NumberFormat)
    known: tuple[ColumnType, ...] | None = None
    proxy: Sequence[str] = ()

    @classmethod
    def from_options(cls, values: dict[str, Any]) -> FeatureColumns:
        """Take them out of a command's options."""
        names = values.pop("features")
        return cls(
            None if names is None else tuple(names),
            tuple(itertools.chain.from_iterable(values.pop("drop"))),
            tuple(itertools.chain.from_iterable(values.pop("categorical"))),
            read_formats(values),
            proxy=tuple(dict.fromkeys(values.pop("proxy", ()))),
        )

    @classmethod
    def from_model(
        cls, facts: Mapping[str, Any], features: Sequence[str] | None, values: dict[str, Any]
    ) -> FeatureColumns:
        """As ``training.json`` says; options may give other formats of numbers and dates."""
        known = tuple(ColumnType.from_dict(one) for one in facts.get(COLUMNS) or ())
        return cls(features, written=read_formats(values, facts.get(WRITTEN) or {}), known=known)

    def inspect(self, table: Table, names: Sequence[str]) -> tuple[pd.DataFrame, tuple[ColumnType, ...]]:
        """These columns before conversion, and how each should be read."""
        frame = table.public(names, self.written)
        if self.known is not None:
            return frame, tuple(one for one in self.known if one.name in set(names))
        wanted = {*(self.features or ()), *self.written.dates}
        readings = infer_types(frame, self.written, wanted=wanted, categorical=self.categorical)
        found = dict(zip(names, readings, strict=True))
        for name, doubt in self._thousands_doubts(table, frame, readings).items():
            found[name] = replace(found[name], doubt=doubt)
        return frame, tuple(found.values())

    def _thousands_doubts(self, table: Table, frame: pd.DataFrame, readings: Sequence[ColumnType]) -> dict[str, str]:
        """Warning by column about numbers in a CSV whose decimal marks may be marks between thousands."""
        texts: dict[str, Any] = {}
        parsed: list[str] = []
        for one in readings:
            if one.kind == NUMBER and one.name in frame and not one.doubt:
                values = frame[one.name]
                if not pd.api.types.is_numeric_dtype(values):
                    texts[one.name] = values.dropna().unique()
                elif not table.is_parquet and _may_be_thousands(values):
                    parsed.append(one.name)
        if parsed:  # by pandas; only the file shows how they were written
            raw = table.raw(parsed)
            texts |= dict(zip(parsed, map(raw.__getitem__, parsed), strict=True))
        doubts = {}
        for name, entries in texts.items():
            doubt = thousands_warning(name, pd.unique(entries), self.written)
            if doubt:
                doubts[name] = doubt
        return doubts

    def read(self, table: Table, names: Sequence[str]) -> tuple[pd.DataFrame, tuple[ColumnType, ...]]:
        """Feature columns converted to the types that models use, and how each column was read.

        Raises
        ------
        Refusal
            If a column cannot be read without guessing, or no feature is left.
        """
        frame, readings = self.inspect(table, names)
        for one in readings:
            if one.refusal:
                raise Refusal(f"{shown_path(table.path)}: {one.refusal}")
        read = self.as_read(frame, readings)
        if self.known is not None:  # the caller warns about readings that are new
            for sentence in self._thousands_doubts(table, frame, readings).values():
                warn(sentence)
        if not len(read.columns):
            raise Refusal(f"{shown_path(table.path)} has no column left to learn from; check --features and --drop.")
        for name in self.drop:
            readings += (ColumnType(name, IGNORED, says="left out"),)
        for name in self.proxy:
            readings += (ColumnType(name, IGNORED, says="proxy of the group, in training only"),)
        return read, readings

    def read_proxies(self, table: Table) -> pd.DataFrame | None:
        """Proxies converted as features are; None without any.

        Raises
        ------
        Refusal
            If one cannot be read without guessing.
        """
        if not self.proxy:
            return None
        columns = replace(self, features=self.proxy, drop=(), known=None, proxy=())
        return columns.read(table, self.proxy)[0]

    def as_read(self, frame: pd.DataFrame, readings: Sequence[ColumnType] | None = None) -> pd.DataFrame:
        """Features of some rows, converted by these readings, or by those of the model."""
        read = dict(frame.items())
        for one in self.known or () if readings is None else readings:
            if one.name in read and one.is_feature:
                read[one.name] = convert_column(frame[one.name], one, self.written)
            else:
                read.pop(one.name, None)
        return pd.DataFrame(read, index=frame.index)

    def to_dict(self, readings: Sequence[ColumnType]) -> dict[str, Any]:
        """Facts from which later commands read other files in the same way."""
        return {COLUMNS: list(map(ColumnType.to_dict, readings)), WRITTEN: self.written.to_dict()}


def _may_be_thousands(values: pd.Series) -> bool:
    """Whether numbers could be amounts such as 1.500 with a point between thousands.

    This is a cheap test before the file is read again: each number is whole, or at least 1, below 1000, and has no more
    than three decimals.
    """
    if not pd.api.types.is_float_dtype(values):
        return False
    numbers = values.dropna().to_numpy(dtype=np.float64)
    fractions = numbers[numbers != np.floor(numbers)]
    thousandths = fractions * 1000
    small = (np.abs(fractions) >= 1) & (np.abs(fractions) < 1000)
    return bool(len(numbers) and (small & (np.abs(thousandths - np.round(thousandths)) < 1e-6)).all())


def read_formats(values: dict[str, Any], recorded: Mapping[str, Any] | None = None) -> NumberFormat:
    """Formats of numbers and dates by a command's options, and by a model's facts where those say nothing."""
    known = recorded or {}
    decimal, thousands = values.pop("decimal", None), values.pop("thousands", None)
    dates = dict(known.get("dates") or {})
    for text in values.pop("dates", ()):
        name, equals, form = text.rpartition("=")  # COLUMN=FORMAT, or a format for all
        if "%" not in form:
            raise Refusal(f"expected --date to be a format such as 'opened=%d/%m/%Y', got {text!r}.")
        dates[name.strip() if equals else ""] = form.strip()
    return NumberFormat(
        decimal=known.get("decimal", ".") if decimal is None else decimal,
        thousands=known.get("thousands", "") if thousands is None else thousands,
        dates=dates,
    )


def warn_about(readings: Sequence[ColumnType]) -> None:
    """Print a warning for each column whose reading is doubtful."""
    for one in readings:
        if one.refusal or one.doubt:
            warn(one.refusal or one.doubt)


def columns_text(readings: Sequence[ColumnType], *, verbose: bool = False) -> str:
    """How columns are read: a table of all columns, or of many columns their number by kind and those in doubt."""
    used = [one for one in readings if one.is_feature]
    head = f"How columns are read ({len(used)} of {len(readings)} are features):"
    listed = readings
    if len(readings) > LISTED and not verbose:
        kinds = ", ".join(
            f"{count} {KIND_WORDS[kind]}" for kind, count in Counter(one.kind for one in used).most_common()
        )
        head = f"Columns: {kinds}; --verbose lists them."
        listed = [one for one in readings if one.doubt or not one.is_feature]
        if not listed:
            return head
    rows = [(truncate(one.name, 24), one.kind, truncate(one.says, text_width() - 42)) for one in listed]
    return f"{head}\n{table_text(('column', 'read as', 'what is in it'), rows, left=3)}"
