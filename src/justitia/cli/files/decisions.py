"""A file of decisions that somebody made: labels, decisions and scores in public columns, and the attribute apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import (
    Groups,
    PublicAttribute,
    Where,
    find_attribute,
    read_attribute,
    read_person,
)
from justitia.cli.files.reading import Table, open_table
from justitia.cli.files.rows import Label, read_target
from justitia.cli.files.streamed import is_streamed, place_of
from justitia.privacy.attribute import Attribute, HeldElsewhere, SensitiveColumns
from justitia.rows.parquet import RowFiles

NO_GROUPS = "expected the public list of groups, got none; pass --groups A,B: a list read off the data tells about it."


@dataclass(frozen=True)
class Columns:
    """Names of the public columns of a file of decisions."""

    decision: str
    target: str | None = None
    score: str | None = None
    before: str | None = None
    positive: str | None = None
    positive_decision: str | None = None

    def all(self) -> list[str]:
        """Those that were named."""
        return [one for one in (self.decision, self.target, self.score, self.before) if one is not None]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Rows of a file of decisions.

    Attributes
    ----------
    y, decided : arrays of 0 and 1
        Public labels, which are the decisions where no target was named, and decisions.
    before : array of 0 and 1, or None
        Decisions of another model.
    scores : array or None
    groups : dict
        The public list.
    sensitive : Attribute, SensitiveColumns or HeldElsewhere
        The attribute itself, closed, on its way to the vault; or where it is in ``files``.
    person : list of str, or the name of a column of ``files``, optional
    files : RowFiles, optional
        Where rows are read a few at a time.
    """

    y: NDArray[np.int64] = field(repr=False)
    decided: NDArray[np.int64] = field(repr=False)
    before: NDArray[np.int64] | None = field(repr=False)
    scores: NDArray[np.float64] | None = field(repr=False)
    groups: Groups
    sensitive: Attribute | SensitiveColumns | HeldElsewhere = field(repr=False)
    person: list[str | None] | str | None = field(repr=False)
    files: RowFiles | None = field(repr=False, default=None)


def read_decisions(data: Path, where: Where, columns: Columns, *, stream: bool = False) -> Decisions:
    """Read and check everything public, then the attribute.

    Raises
    ------
    Refusal
        If a column is missing, sensitive and public at once, or not what it has to be.
    """
    streamed = is_streamed(data, asked=stream)
    table = Table.streamed(data) if streamed else open_table(data, where.separator, where.encoding)
    attribute, groups = _attribute(table, where, columns, streamed=streamed)
    decided, words = _two_valued(table, columns)
    y = decided if columns.target is None else read_target(table, columns.target, columns.positive)[0]
    before = None if columns.before is None else read_target(table, columns.before, classes=words)[0]
    scores = None if columns.score is None else _numbers(table, columns.score)
    if streamed:
        return Decisions(y, decided, before, scores, groups, place_of(attribute), attribute.person, table.files)
    person = read_person(attribute, table)
    return Decisions(y, decided, before, scores, groups, read_attribute(attribute, table), person)


def _attribute(table: Table, where: Where, columns: Columns, *, streamed: bool) -> tuple[PublicAttribute, Groups]:
    """Public facts about the attribute, which must not be one of the public columns."""
    table.check_columns(columns.all())
    attribute = find_attribute(where, table, streamed=streamed)
    shared = [name for name in columns.all() if name in attribute.hidden()]
    if shared:
        raise Refusal(f"the column {shared[0]!r} is sensitive, key or id and cannot be public, too; name another one.")
    if attribute.groups is None:
        raise Refusal(NO_GROUPS)
    return attribute, attribute.groups


def _two_valued(table: Table, columns: Columns) -> tuple[NDArray[np.int64], tuple[Label, Label]]:
    """Decisions, in words of their own or in those of the target."""
    if columns.target is None or columns.positive_decision is not None:
        return read_target(table, columns.decision, columns.positive_decision or columns.positive)
    classes = read_target(table, columns.target, columns.positive)[1]
    return read_target(table, columns.decision, classes=classes)


def _numbers(table: Table, name: str) -> NDArray[np.float64]:
    found = [np.empty(0)]
    for values in table.parts(name):
        if not pd.api.types.is_numeric_dtype(values) or values.isna().any():
            raise Refusal(f"expected a number in every row of {name!r}, got text or gaps; write a column of scores.")
        found.append(values.to_numpy(dtype=float))
    return np.concatenate(found)
