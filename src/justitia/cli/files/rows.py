"""Rows of one file for training and evaluation: features, the target, and the attribute, which stays closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.attribute import PublicAttribute, Where, find_attribute, read_attribute, read_ids
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.target import AUTO, Label, read_target, task_of
from justitia.cli.output import show_progress, truncate
from justitia.preprocessing.column_types import IGNORED, ColumnType, snake_case
from justitia.privacy.attribute import Attribute
from justitia.tasks import Task

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
    y : array
        Public target: codes 0, 1, ... of the classes, of two 1 is the positive answer; or numbers.
    classes : tuple
        What the codes are called in the file; empty for numbers.
    attribute : PublicAttribute
        Public facts about the attribute.
    sensitive : Attribute
        The attribute itself, closed, on its way to the vault.
    person : list of str, optional
        Public ids, where people have several rows.
    proxy : DataFrame, optional
        Public columns that say something about the group.
    columns, readings
        How the columns were to be read, and how they were.
    """

    table: Table
    X: pd.DataFrame = field(repr=False)
    y: NDArray[Any] = field(repr=False)
    classes: tuple[Label, ...]
    attribute: PublicAttribute
    sensitive: Attribute = field(repr=False)
    person: list[str | None] | None = field(repr=False, default=None)
    proxy: pd.DataFrame | None = field(repr=False, default=None)
    columns: FeatureColumns = field(repr=False, default_factory=FeatureColumns)
    readings: tuple[ColumnType, ...] = field(repr=False, default=())

    def __len__(self) -> int:
        return len(self.y)

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        return task_of(self.classes)

    @property
    def labels(self) -> NDArray[Any]:
        """The target as models learn it: codes of two classes, names of more, or numbers."""
        return np.array(self.classes)[self.y] if self.task.kind == "classes" else self.y

    def public_column(self, name: str) -> pd.Series:
        """A public column of the file, whether or not it is a feature."""
        return self.X[name] if name in self.X else self.table.text([name])[name]


def read_rows(
    data: Path,
    where: Where,
    *,
    target: str,
    positive: str | None = None,
    classes: Sequence[Label] | None = None,
    columns: FeatureColumns | None = None,
    base_columns: Sequence[str] = (),
    task: str = AUTO,
) -> LabelledRows:
    """Read and check all public columns, then the attribute.

    Parameters
    ----------
    classes : sequence, optional
        Values of the target, of two the positive one last, if a model has fixed them; empty for numbers.
    task : {"auto", "classes", "number"}
        What the target is, if no model has fixed it.
    columns : FeatureColumns, optional
        Which columns to use, by default all but target, attribute and key, and how to read them.
    base_columns : sequence of str
        Columns of scores, which are features even if they are not named as such; ``CLASS=COLUMN`` of several classes.
    """
    show_progress(f"reading {data.name}")
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([target])
    attribute = find_attribute(where, table)
    if target in attribute.columns:
        raise Refusal(f"the column {target!r} is both target and sensitive; name another one.")
    columns = FeatureColumns() if columns is None else columns
    names, related = feature_names(attribute, table, target, columns, column_names(base_columns, table.columns))
    y, known = read_target(table, target, positive, classes, task=task, written=columns.written)
    person = None if attribute.person is None else read_ids(attribute.person, table, repeated=True)
    X, readings = columns.read(table, names)
    proxy = columns.read_proxies(table)
    sensitive = read_attribute(attribute, table)
    show_progress("")
    return LabelledRows(table, X, y, known, attribute, sensitive, person, proxy, columns, (*readings, *related))


def _named_after(
    attribute: PublicAttribute, table: Table, target: str, columns: FeatureColumns, base_columns: Sequence[str]
) -> tuple[ColumnType, ...]:
    """Columns that probably hold the attribute, by their names, such as ``sex-age`` beside the attribute ``sex``.

    A model must not get the attribute as an input, so they are not features unless an option names them. No column of a
    trained model is left out, because that was decided in training.
    """
    if columns.known is not None or columns.features is not None:
        return ()
    named = {*attribute.hidden(), target, *columns.drop, *columns.categorical, *columns.written.dates, *base_columns}
    named |= {*columns.proxy}
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


def check_proxies(columns: FeatureColumns, hidden: set[str], table: Table) -> None:
    """Refuse a proxy that is no public column, or is a feature.

    Raises
    ------
    Refusal
        For the first of them.
    """
    table.check_columns(columns.proxy)
    for name in columns.proxy:
        if name in hidden:
            raise Refusal(f"the column {name!r} is target, key or sensitive and cannot be a --proxy; leave it out.")
        if name in (columns.features or ()):
            raise Refusal(f"the column {name!r} cannot be both a feature and a --proxy; leave it out of --features.")


def column_names(given: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Names of columns of scores, without the classes before them."""
    return [one if one in columns else one.rpartition("=")[2] for one in given]


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
    attribute: PublicAttribute, table: Table, target: str, columns: FeatureColumns, base_columns: Sequence[str] = ()
) -> tuple[list[str], tuple[ColumnType, ...]]:
    """Columns that may be features, and columns that are none because they are named after the attribute.

    Raises
    ------
    Refusal
        If an option names a hidden column, or no column is left.
    """
    related = _named_after(attribute, table, target, columns, base_columns)
    hidden = {*attribute.hidden(), target, *map(attrgetter("name"), related)}
    named = [*(columns.features or ()), *columns.categorical, *filter(None, columns.written.dates), *base_columns]
    table.check_columns([*named, *columns.drop])
    for name in named:
        if name in hidden:
            raise Refusal(f"the column {name!r} is target, key or sensitive and cannot be a feature; leave it out.")
    for name in base_columns:
        if name in columns.drop:
            raise Refusal(f"the column {name!r} cannot be both --base-column and dropped; leave it out of --drop.")
    check_proxies(columns, hidden, table)
    hidden |= {*columns.drop, *columns.proxy}
    chosen = dict.fromkeys([*(columns.features or table.columns), *base_columns])
    names = [name for name in chosen if name not in hidden]
    if not names:
        raise Refusal(f"{shown_path(table.path)} has no column left to learn from; check --features and --drop.")
    return names, related
