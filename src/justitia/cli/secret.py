"""Where the sensitive attribute is, and the one place of the command line that reads it.

What is public here: the names of the sensitive columns, their cut points, the list of groups if it is given, the key
column of both files, and so how many rows and keys they have. What is private: every value of a sensitive column, in
whichever file it is.

Someone without a row in the secret file is "not given", like someone whose entry is empty, and nothing is said about
how many they are: whether a person told their attribute is part of it. Only a secret file that shares no key at all
with the data is refused, since it is the wrong file. Keys that repeat are refused in both files: the guarantee is about
one row per person. To say so looks at keys alone.

Guarantee
---------
* No value of a sensitive column changes whether anything here fails, what it says, or the shape of what it returns.
* Each person's label is made from that person's own entry.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from justitia.cli.bins import Bins, read_bins
from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.reading import Table, open_table

Groups = dict[str, list[str]]


@dataclass(frozen=True)
class Attribute:
    """Public facts about the sensitive attribute: its columns, its file, its groups.

    Attributes
    ----------
    columns : tuple of str
        Names of the sensitive columns; several are crossed.
    file : Table or None
        The file that holds them, if it is not that of the features.
    key : str or None
        Name of the column that joins the two files.
    bins : tuple of Bins
        Cut points of numeric columns.
    groups : dict or None
        Public list of the groups of each column; None reads it off the data, which does not protect the list.
    missing : str or None
        One more text that means "not given".
    """

    columns: tuple[str, ...]
    file: Table | None = None
    key: str | None = None
    bins: tuple[Bins, ...] = ()
    groups: Groups | None = None
    missing: str | None = None

    def hidden(self) -> set[str]:
        """Columns of the data file that are no features: the attribute and the key."""
        return {*self.columns, *([] if self.key is None else [self.key])}


@dataclass(frozen=True)
class Where:
    """What the options say about the attribute."""

    sensitive: Sequence[str] = ()
    sensitive_file: Path | None = None
    key: str | None = None
    bins: Sequence[str] = ()
    groups: Sequence[str] = ()
    missing: str | None = None
    separator: str = ","
    encoding: str = field(default="utf-8")


def find_attribute(where: Where, data: Table) -> Attribute:
    """Check the names of columns, cut points and groups against the first lines of the files.

    Raises
    ------
    Refusal
        If a column is missing, a key is needed, or groups and bins do not fit the columns.
    """
    if (where.sensitive_file is None) != (where.key is None):
        lacking = "--key" if where.key is None else "--sensitive-file"
        raise Refusal(f"expected --sensitive-file and --key together, got no {lacking}; name the column that joins.")
    file = None if where.sensitive_file is None else _secret_table(where.sensitive_file, where, data)
    columns = tuple(where.sensitive)
    if not columns and file is not None:
        columns = tuple(name for name in file.columns if name != where.key)
    if not columns:
        raise Refusal("expected the name of the sensitive column, got none; pass --sensitive NAME.")
    (data if file is None else file).check_columns(columns)
    bins = tuple(read_bins(text) for text in where.bins)
    for one in bins:
        if one.column not in columns:
            raise no_such("sensitive column", one.column, columns, place="--bins")
    groups = read_groups(where.groups, columns, bins)
    return Attribute(columns, file, where.key, bins, groups, where.missing)


def _secret_table(path: Path, where: Where, data: Table) -> Table:
    table = open_table(path, where.separator, where.encoding)
    if where.key is not None:
        data.check_columns([where.key])
        table.check_columns([where.key])
    both = [name for name in (where.sensitive or table.columns) if name in data.columns and name != where.key]
    if both:
        raise Refusal(
            f"the sensitive column {both[0]!r} is in {shown_path(data.path)}, too; remove it there, so that those who "
            "see features do not see it, or leave out --sensitive-file."
        )
    return table


def read_groups(texts: Sequence[str], columns: Sequence[str], bins: Sequence[Bins]) -> Groups | None:
    """``Female,Male`` for one column, ``sex=Female,Male`` for one of several; cut points name their groups."""
    found: Groups = {one.column: list(one.labels) for one in bins}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or (len(columns) == 1 and name.strip() != columns[0]):
            name, listed = columns[0], text
            if len(columns) > 1:
                raise Refusal(f"expected --groups to say of which column, such as '{columns[0]}=a,b', got {text!r}.")
        if name.strip() not in columns:
            raise no_such("sensitive column", name.strip(), columns, place="--groups")
        if name.strip() in found:
            raise Refusal(f"the groups of {name.strip()!r} are named twice; give --groups or --bins for it, once.")
        found[name.strip()] = [label.strip() for label in next(csv.reader([listed], skipinitialspace=True), [])]
    lacking = [name for name in columns if name not in found]
    if found and lacking:
        raise Refusal(
            f"expected the groups of every sensitive column, got none of {lacking[0]!r}; add --groups for it."
        )
    return {name: found[name] for name in columns} if found else None


def groups_text(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Groups as options would give them."""
    return [f"{name}={_joined(labels)}" for name, labels in groups.items()]


def _joined(labels: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(labels)
    return line.getvalue()


def read_attribute(attribute: Attribute, data: Table) -> pd.DataFrame:
    """Each row's attribute as text, one column per sensitive column, in the order of the data; None is "not given".

    Raises
    ------
    Refusal
        For keys that repeat, are missing, or do not join; never for a value of the attribute.
    """
    if attribute.file is None or attribute.key is None:
        found = data.text(attribute.columns)
    else:
        found = _joined_by_key(attribute, attribute.file, attribute.key, data)
    bins = {one.column: one for one in attribute.bins}
    labels = {
        name: bins[name].assign(found[name]) if name in bins else _without(found[name], attribute.missing)
        for name in attribute.columns
    }
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in labels.items()})


def _without(values: pd.Series, marker: str | None) -> list[str | None]:
    return [None if value is None or value == marker else value for value in values]


def _joined_by_key(attribute: Attribute, file: Table, key: str, data: Table) -> pd.DataFrame:
    ours, theirs = data.text([key])[key], file.text([key])[key]
    check_keys(ours, key, data)
    _check_repeated(theirs.dropna(), key, file)
    place = {name: row for row, name in enumerate(theirs) if name is not None}
    rows = [place.get(name) for name in ours]
    if all(row is None for row in rows):
        raise Refusal(
            f"no {key!r} of {shown_path(data.path)} is found in {shown_path(file.path)}; check that both files name "
            "people alike."
        )
    values = {name: file.text([name])[name].tolist() for name in attribute.columns}
    return pd.DataFrame(
        {
            name: pd.Series([None if row is None else column[row] for row in rows], dtype=object)
            for name, column in values.items()
        }
    )


def check_keys(keys: pd.Series, key: str, data: Table) -> None:
    """Refuse public keys that are missing or repeat."""
    absent = int(keys.isna().sum())
    if absent:
        raise Refusal(f"{absent} rows of {shown_path(data.path)} have no {key!r}; give every row its key.")
    _check_repeated(keys, key, data)


def _check_repeated(keys: pd.Series, key: str, table: Table) -> None:
    repeated = int(keys.duplicated().sum())
    if repeated:
        raise Refusal(
            f"{repeated} rows of {shown_path(table.path)} repeat a {key!r} of an earlier row; expected one row per "
            "person, which is what the guarantee counts."
        )
