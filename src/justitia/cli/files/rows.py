"""Rows of one file as training and evaluation need them: features, a two-valued target, and the attribute apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.files.attribute import PublicAttribute, Where, find_attribute, read_attribute, read_person
from justitia.cli.files.columns import Columns
from justitia.cli.files.reading import Table, open_table
from justitia.cli.output import doing, shortened
from justitia.preprocessing.column_types import IGNORED, ColumnType, snake_case
from justitia.privacy.attribute import Attribute

Label = str | int | float | bool
#: Last words of a column that puts another one into groups: ``age_group`` is made of ``age``.
GROUPED = frozenset({"group", "groups", "cat", "category", "band", "bin", "bracket", "class", "range"})


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one file.

    Attributes
    ----------
    table : Table
    X : DataFrame
        Public features: neither target nor attribute nor key.
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
    columns: Columns = field(repr=False, default_factory=Columns)
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
    columns: Columns | None = None,
    base_column: str | None = None,
) -> Rows:
    """Read and check everything public, then the attribute.

    Parameters
    ----------
    classes : sequence of two, optional
        Negative and positive value of the target, if a model has fixed them.
    columns : Columns, optional
        Which ones to use, by default all but target, attribute and key, and how to read them.
    base_column : str, optional
        A column of scores, which is a feature whether it is named among them or not.
    """
    doing(f"reading {data.name}")
    table = open_table(data, where.separator, where.encoding)
    table.check_columns([target])
    attribute = find_attribute(where, table)
    if target in attribute.columns:
        raise Refusal(f"the column {target!r} is both target and sensitive; name another one.")
    columns = Columns() if columns is None else columns
    related = named_after(attribute, table, target, columns, base_column)
    names = feature_names(table, hidden_names(attribute, target, related), columns, base_column)
    y, known = read_target(table, target, positive, classes)
    person = read_person(attribute, table)
    X, readings = columns.read(table, names)
    sensitive = read_attribute(attribute, table)
    doing("")
    return Rows(table, X, y, known, attribute, sensitive, person, columns, (*readings, *related))


def hidden_names(attribute: PublicAttribute, target: str, related: Sequence[ColumnType]) -> set[str]:
    """Columns of the data file that are no features."""
    return {*attribute.hidden(), target, *(one.name for one in related)}


def named_after(
    attribute: PublicAttribute, table: Table, target: str, columns: Columns, base_column: str | None = None
) -> tuple[ColumnType, ...]:
    """Columns that probably hold the attribute, by their names, such as ``sex-age`` beside the attribute ``sex``.

    A model must not get the attribute as an input, so they are no features unless an option names them. Of a model's
    own columns none is left out: that was settled in training.
    """
    if columns.known is not None:
        return ()
    settled = {*attribute.hidden(), target, *columns.drop, *(columns.features or ()), *columns.categorical}
    settled |= {*columns.written.dates, *([] if base_column is None else [base_column])}
    open_names = [name for name in table.columns if columns.features is None and name not in settled]
    found = {name: related_column(name, attribute.columns) for name in open_names}
    return tuple(_left_out(name, sensitive) for name, sensitive in found.items() if sensitive is not None)


def related_column(name: str, sensitive: Sequence[str]) -> str | None:
    """The sensitive column whose name is a part of this one's, word by word; None if there is none.

    ``sex`` is a part of ``Sex and status`` and of ``sexAge``, not of ``Essex``. ``age_group`` counts as ``age``.
    """
    words = snake_case(name).split("_")
    for column in sensitive:
        own = snake_case(column).split("_")
        plain = own[:-1] if len(own) > 1 and own[-1] in GROUPED else own
        if any(plain) and any(words[at : at + len(plain)] == plain for at in range(len(words))):
            return column
    return None


def _left_out(name: str, sensitive: str) -> ColumnType:
    return ColumnType(
        name,
        IGNORED,
        says=f"named after the sensitive {shortened(sensitive, 14)!r}",
        doubt=f"column {name!r} is named after the sensitive column {sensitive!r} and may tell it, so it is not used; "
        f"pass --drop {name!r} if that is right, or name it in --features or --categorical to use it.",
    )


def feature_names(table: Table, hidden: set[str], columns: Columns, base_column: str | None = None) -> list[str]:
    """Columns that may be features; a hidden one that is asked for is refused."""
    scores = [] if base_column is None else [base_column]
    features, drop = columns.features, columns.drop
    dated = [name for name in columns.written.dates if name]
    table.check_columns([*(features or ()), *drop, *columns.categorical, *dated, *scores])
    asked = [name for name in (*(features or ()), *columns.categorical, *dated, *scores) if name in hidden]
    if asked:
        raise Refusal(f"the column {asked[0]!r} is target, key or sensitive and cannot be a feature; leave it out.")
    if base_column in drop:
        raise Refusal(f"the column {base_column!r} cannot be both --base-column and dropped; leave it out of --drop.")
    chosen = dict.fromkeys([*(features or table.columns), *scores])
    names = [name for name in chosen if name not in hidden and name not in drop]
    if not names:
        raise Refusal(f"{shown_path(table.path)} has no column left to learn from; check --features and --drop.")
    return names


def read_target(
    table: Table, target: str, positive: str | None = None, classes: Sequence[Label] | None = None
) -> tuple[NDArray[np.int64], tuple[Label, Label]]:
    """The target as 0 and 1, and what they are called.

    Raises
    ------
    Refusal
        If rows have no target, or there are not two values.
    """
    places: dict[Label, int] = {}
    parts = [np.empty(0, dtype=np.int32)]
    for values in table.parts(target):
        codes, entries = pd.factorize(values, use_na_sentinel=True)
        found = [places.setdefault(_plain(one), len(places)) for one in entries]
        parts.append(np.array([*found, -1], dtype=np.int32)[codes])
    coded = np.concatenate(parts)
    absent = int((coded < 0).sum())
    if absent:
        raise Refusal(f"{absent} rows of {shown_path(table.path)} have no {target!r}; remove or complete them.")
    if not len(coded):
        raise Refusal(f"{shown_path(table.path)} has no rows below its first line; expected people.")
    known = _classes(_sorted(places), target, positive, classes)
    return np.array([_text(one) == _text(known[1]) for one in places], dtype=np.int64)[coded], known


def _classes(
    found: list[Label], target: str, positive: str | None, classes: Sequence[Label] | None
) -> tuple[Label, Label]:
    return _known(found, target, positive) if classes is None else _of_model(found, target, classes)


def _sorted(values: Any) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


def _plain(value: Any) -> Label:
    plain: Any = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return plain if isinstance(plain, str | int | float | bool) else str(plain)


def _text(value: Label) -> str:
    return str(value).strip()


def _known(found: list[Label], target: str, positive: str | None) -> tuple[Label, Label]:
    if len(found) != 2:
        listed = ", ".join(str(one) for one in found[:3]) + (", ..." if len(found) > 3 else "")
        raise Refusal(
            f"expected two values in the column {target!r}, got {len(found)} ({listed}); write a column that has two."
        )
    if positive is None:
        return found[0], found[1]
    for one, other in (found, found[::-1]):
        if _text(other) == positive.strip():
            return one, other
    raise no_such("value", positive, [str(one) for one in found], place=f"the target {target!r}")


def _of_model(found: list[Label], target: str, classes: Sequence[Label]) -> tuple[Label, Label]:
    known = {_text(one) for one in classes}
    for value in found:
        if _text(value) not in known:
            raise no_such("class", _text(value), sorted(known), place=f"the model, but in the target {target!r}")
    return classes[0], classes[1]
