"""Rows of one file for training and evaluation: features, a binary target, and the attribute, which stays closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.files.attribute import PublicAttribute, Where, find_attribute, read_attribute, read_ids
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.reading import Table, open_table
from justitia.cli.output import show_progress, truncate
from justitia.preprocessing.column_types import IGNORED, ColumnType, snake_case
from justitia.privacy.attribute import Attribute

Label = str | int | float | bool
#: Last words of a column that puts another one into groups: ``age_group`` is made of ``age``.
GROUPED = frozenset({"group", "groups", "cat", "category", "band", "bin", "bracket", "class", "range"})


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of one file with features, target and attribute.

    Attributes
    ----------
    table : Table
    X : DataFrame
        Public features, without target, attribute and key.
    y : array of 0 and 1
        Public target; 1 is the positive answer.
    classes : tuple
        What 0 and 1 are called in the file.
    attribute : PublicAttribute
        Public facts about the attribute.
    sensitive : Attribute
        The attribute itself, closed, on its way to the vault.
    person : list of str, optional
        Public ids, where people have several rows.
    columns, readings
        How the columns were to be read, and how they were.
    """

    table: Table
    X: pd.DataFrame = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)
    classes: tuple[Label, Label]
    attribute: PublicAttribute
    sensitive: Attribute = field(repr=False)
    person: list[str | None] | None = field(repr=False, default=None)
    columns: FeatureColumns = field(repr=False, default_factory=FeatureColumns)
    readings: tuple[ColumnType, ...] = field(repr=False, default=())

    def __len__(self) -> int:
        return len(self.y)


def read_rows(
    data: Path,
    where: Where,
    *,
    target: str,
    positive: str | None = None,
    classes: Sequence[Label] | None = None,
    columns: FeatureColumns | None = None,
    base_column: str | None = None,
) -> LabelledRows:
    """Read and check all public columns, then the attribute.

    Parameters
    ----------
    classes : sequence of two, optional
        Negative and positive value of the target, if a model has fixed them.
    columns : FeatureColumns, optional
        Which columns to use, by default all but target, attribute and key, and how to read them.
    base_column : str, optional
        A column of scores, which is a feature even if it is not named as one.
    """
    show_progress(f"reading {data.name}")
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([target])
    attribute = find_attribute(where, table)
    if target in attribute.columns:
        raise Refusal(f"the column {target!r} is both target and sensitive; name another one.")
    columns = FeatureColumns() if columns is None else columns
    names, related = feature_names(attribute, table, target, columns, base_column)
    y, known = read_target(table, target, positive, classes)
    person = None if attribute.person is None else read_ids(attribute.person, table, repeated=True)
    X, readings = columns.read(table, names)
    sensitive = read_attribute(attribute, table)
    show_progress("")
    return LabelledRows(table, X, y, known, attribute, sensitive, person, columns, (*readings, *related))


def _named_after(
    attribute: PublicAttribute, table: Table, target: str, columns: FeatureColumns, base_column: str | None
) -> tuple[ColumnType, ...]:
    """Columns that probably hold the attribute, by their names, such as ``sex-age`` beside the attribute ``sex``.

    A model must not get the attribute as an input, so they are not features unless an option names them. No column of a
    trained model is left out, because that was decided in training.
    """
    if columns.known is not None or columns.features is not None:
        return ()
    named = {*attribute.hidden(), target, *columns.drop, *columns.categorical, *columns.written.dates, base_column}
    found = []
    for name in table.columns:
        sensitive = None if name in named else related_column(name, attribute.columns)
        if sensitive is not None:
            says = f"named after the sensitive {truncate(sensitive, 14)!r}"
            doubt = (
                f"column {name!r} is named after the sensitive column {sensitive!r} and may reveal it, so it is not "
                f"used; pass --drop {name!r} if that is right, or name it in --features or --categorical to use it."
            )
            found.append(ColumnType(name, IGNORED, says=says, doubt=doubt))
    return tuple(found)


def related_column(name: str, sensitive: Sequence[str]) -> str | None:
    """The sensitive column whose name is a part of this one's, word by word; None if there is none.

    ``sex`` is a part of ``Sex and status`` and of ``sexAge``, not of ``Essex``. ``age_group`` counts as ``age``.
    """
    for column in sensitive:
        own = snake_case(column)
        first, _, last = own.rpartition("_")
        part = first if first and last in GROUPED else own
        if part and f"_{part}_" in f"_{snake_case(name)}_":
            return column
    return None


def feature_names(
    attribute: PublicAttribute, table: Table, target: str, columns: FeatureColumns, base_column: str | None = None
) -> tuple[list[str], tuple[ColumnType, ...]]:
    """Columns that may be features, and columns that are none because they are named after the attribute.

    Raises
    ------
    Refusal
        If an option names a hidden column, or no column is left.
    """
    related = _named_after(attribute, table, target, columns, base_column)
    hidden = {*attribute.hidden(), target, *map(attrgetter("name"), related)}
    scores = [] if base_column is None else [base_column]
    named = [*(columns.features or ()), *columns.categorical, *filter(None, columns.written.dates), *scores]
    table.check_columns([*named, *columns.drop])
    for name in named:
        if name in hidden:
            raise Refusal(f"the column {name!r} is target, key or sensitive and cannot be a feature; leave it out.")
    if base_column in columns.drop:
        raise Refusal(f"the column {base_column!r} cannot be both --base-column and dropped; leave it out of --drop.")
    hidden |= {*columns.drop}
    chosen = dict.fromkeys([*(columns.features or table.columns), *scores])
    names = [name for name in chosen if name not in hidden]
    if not names:
        raise Refusal(f"{shown_path(table.path)} has no column left to learn from; check --features and --drop.")
    return names, related


def read_target(
    table: Table, target: str, positive: str | None = None, classes: Sequence[Label] | None = None
) -> tuple[NDArray[np.int64], tuple[Label, Label]]:
    """The target as 0 and 1, and the values that they stand for.

    Raises
    ------
    Refusal
        If rows have no target, or it does not have two values.
    """
    places: dict[Label, int] = {}
    parts = [np.empty(0, dtype=np.int32)]
    for values in table.parts(target):
        codes, entries = pd.factorize(values, use_na_sentinel=True)
        found = [places.setdefault(_label(one), len(places)) for one in entries]
        parts.append(np.array([*found, -1], dtype=np.int32)[codes])
    coded = np.concatenate(parts)
    absent = int((coded < 0).sum())
    if absent:
        raise Refusal(f"{absent} rows of {shown_path(table.path)} have no {target!r}; remove or complete them.")
    if not len(coded):
        raise Refusal(f"{shown_path(table.path)} has no rows below its first line; add rows.")
    try:
        labels = sorted(places)
    except TypeError:  # text and numbers
        labels = sorted(places, key=str)
    negative, positive_label = _two_classes(labels, target, positive) if classes is None else classes
    known = [str(negative).strip(), str(positive_label).strip()]
    answers = np.zeros(len(places), dtype=np.int64)
    for value in labels:
        text = str(value).strip()
        if text not in known:
            raise no_such("class", text, sorted(known), place=f"the model, but in the target {target!r}")
        answers[places[value]] = text == known[1]
    return answers[coded], (negative, positive_label)


def _label(value: Any) -> Label:
    """A value of the target as a plain Python value; a whole number is the same with and without ".0"."""
    plain: Any = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return plain if isinstance(plain, str | int | float | bool) else str(plain)


def _two_classes(labels: list[Label], target: str, positive: str | None) -> list[Label]:
    """Negative and positive value of a target."""
    if len(labels) != 2:
        listed = ", ".join(map(str, labels[:3])) + (", ..." if len(labels) > 3 else "")
        raise Refusal(
            f"expected two values in the column {target!r}, got {len(labels)} ({listed}); write a column that has two."
        )
    if positive is None or str(labels[1]).strip() == positive.strip():
        return labels
    if str(labels[0]).strip() == positive.strip():
        return labels[::-1]
    raise no_such("value", positive, [str(one) for one in labels], place=f"the target {target!r}")
