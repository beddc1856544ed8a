"""Where the sensitive attribute is, and the one place of the command line that reads it.

What is public here: the names of the columns of both files, the cut points, the list of groups if it is given, and the
key column of the data file, in which every row has a key of its own. What is private: every value of a sensitive
column, in whichever file it is, and all rows of the second file: how many there are, and which keys they have.

Whether a person told their attribute is part of it. So someone without a row in the second file is "not given", like
someone whose entry is empty; a second file that shares no key with the data makes everybody "not given", and nothing is
said about it. Of several rows with one key the first counts, so that a person's rows are about that person alone.

Guarantee
---------
* Nothing in the rows of the second file and no value of a sensitive column changes whether anything here fails, what it
  says, or the shape of what it returns. (A row that breaks the table, such as one with an unquoted separator, does: see
  "Limits" in docs/cli.md.)
* Each person's label is made from that person's own entry.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from justitia.cli.custodian_options import CustodianOptions
from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.files.bins import Bins, read_bins
from justitia.cli.files.reading import Table, as_text, is_several, open_table
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.columns import Column, read_each
from justitia.privacy.frames import forgets_locals
from justitia.privacy.vault import INFER

Groups = dict[str, list[str]]
_WHOLE = re.compile(r"^([+-]?[0-9]+)\.0+$")


@dataclass(frozen=True)
class PublicAttribute:
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
        Public list of the groups of each column; None if there is none.
    infer : bool
        Whether the list is to be read off the data, which does not protect it.
    missing : str or None
        One more text that means "not given".
    person : str or None
        Name of the column of the data with public ids, where people have several rows.
    held : HeldElsewhere or None
        The custodian that has the attribute, if it is in no file here.
    """

    columns: tuple[str, ...]
    file: Table | None = None
    key: str | None = None
    bins: tuple[Bins, ...] = ()
    groups: Groups | None = None
    infer: bool = False
    missing: str | None = None
    person: str | None = None
    held: HeldElsewhere | None = field(default=None, repr=False)

    def hidden(self) -> set[str]:
        """Columns of the data file that are no features: the attribute, the key and the ids."""
        return {*self.columns, *(name for name in (self.key, self.person) if name is not None)}


@dataclass(frozen=True)
class Where:
    """What the options say about the attribute."""

    sensitive: Sequence[str] = ()
    sensitive_file: Path | None = None
    key: str | None = None
    bins: Sequence[str] = ()
    groups: Sequence[str] = ()
    missing: str | None = None
    person: str | None = None
    separator: str | None = None
    encoding: str | None = None
    custodian: CustodianOptions | None = None


def find_attribute(where: Where, data: Table, *, streamed: bool = False) -> PublicAttribute:
    """Check the names of columns, cut points and groups against the first lines of the files.

    Parameters
    ----------
    streamed : bool
        Whether no row is to be read yet, not even the ids that a custodian is told.

    Raises
    ------
    Refusal
        If a column is missing, a key is needed, or groups and bins do not fit the columns.
    """
    if where.custodian is not None:
        return _held(where, where.custodian, data, streamed=streamed)
    if (where.sensitive_file is None) != (where.key is None):
        lacking = "--key" if where.key is None else "--sensitive-file"
        raise Refusal(f"expected --sensitive-file and --key together, got no {lacking}; name the column that joins.")
    file = None if where.sensitive_file is None else _attribute_table(where.sensitive_file, where, data)
    columns = tuple(where.sensitive)
    if not columns and file is not None:
        columns = tuple(name for name in file.columns if name != where.key)
    if not columns:
        raise Refusal("expected the name of the sensitive column, got none; pass --sensitive NAME.")
    holder = data if file is None else file
    holder.check_columns(columns)
    if len(set(columns)) < len(columns):
        raise Refusal("expected every sensitive column once, got one twice; leave one --sensitive out.")
    if file is not None and file.files is not None:
        file.files.check((), (*columns, where.key or ""))
    bins = tuple(read_bins(text) for text in where.bins)
    for one in bins:
        if one.column not in columns:
            raise no_such("sensitive column", one.column, columns, place="--bins")
    infer = tuple(where.groups) == (INFER,)
    groups = None if infer else read_groups(where.groups, columns, bins)
    person = where.person or None
    data.check_columns([] if person is None else [person])
    check_apart(columns, key=where.key, person=person)
    return PublicAttribute(columns, file, where.key, bins, groups, infer, where.missing, person)


def _held(where: Where, options: CustodianOptions, data: Table, *, streamed: bool) -> PublicAttribute:
    """The facts that a custodian tells, about the people whose ids are in a column of the data."""
    given = [name for name in ("sensitive", "sensitive_file", "groups", "bins", "missing") if getattr(where, name)]
    if given:
        raise Refusal(
            f"expected --custodian without --{given[0].replace('_', '-')}: the custodian has it; leave it out."
        )
    if where.key is None:
        raise Refusal("expected the column of ids that the custodian knows, got none; pass --key COLUMN.")
    if where.person not in (None, where.key):
        raise Refusal(f"expected --person {where.key}, the ids that the custodian knows, got another column; name it.")
    data.check_columns([where.key])
    held = options.open(where.key if streamed else _ids(where, where.key, data))
    both = [name for name in held.columns if name in data.columns]
    if both:
        raise Refusal(
            f"the column {both[0]!r}, which the custodian holds, is in {shown_path(data.path)}, too; remove it."
        )
    parts = zip(*(one if isinstance(one, tuple) else (one,) for one in held.groups), strict=True)
    groups = {name: list(dict.fromkeys(one)) for name, one in zip(held.columns, parts, strict=True)}
    return PublicAttribute(held.columns, key=where.key, groups=groups, person=where.person or None, held=held)


def _ids(where: Where, key: str, data: Table) -> list[str | None]:
    """Public ids of all rows."""
    ids = person_keys(data.text([key])[key])
    check_keys(ids, key, data, repeated=bool(where.person))
    return ids


def check_apart(columns: Sequence[str], **public: str | None) -> None:
    """Refuse a sensitive column in a public place: what is made of keys and ids is printed without noise."""
    for place, name in public.items():
        if name in columns:
            raise Refusal(f"the column {name!r} is sensitive and cannot be --{place}, which is public; name another.")


def _attribute_table(path: Path, where: Where, data: Table) -> Table:
    table = Table.streamed(path) if is_several(path) else open_table(path, where.separator, where.encoding)
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
        labels = [label.strip() for label in next(csv.reader([listed], skipinitialspace=True), [])]
        if not labels:
            raise Refusal(f"expected the names of the groups of {name.strip()!r}, got none; pass --groups A,B.")
        found[name.strip()] = labels
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


@forgets_locals
def read_attribute(facts: PublicAttribute, data: Table) -> Attribute:
    """Each row's attribute as text, one column per sensitive column, in the order of the data; None is "not given".

    Raises
    ------
    Refusal
        For keys of the data that repeat or are missing; never for a value of the attribute or a row of its file.
    """
    if facts.held is not None:
        return Attribute.from_container(facts.held)
    if facts.file is None or facts.key is None:
        return Attribute.from_container(_labels(facts, data.private(facts.columns)))
    keys = person_keys(data.text([facts.key])[facts.key])
    check_keys(keys, facts.key, data, repeated=facts.person == facts.key)
    return Attribute.from_container(_labels(facts, _joined_by_key(facts, facts.file, facts.key, keys)))


@forgets_locals
def read_registered(table: Table, where: Where, key: str) -> tuple[Groups, list[str | None], Attribute]:
    """Groups, ids and attribute of people whom a custodian takes in; whoever has no id is nobody.

    Raises
    ------
    Refusal
        For names of columns and groups; never for a row.
    """
    table.check_columns([key])
    facts = find_attribute(where, table)
    check_apart(facts.columns, id=key)
    if facts.groups is None:
        raise Refusal("expected the public list of groups, got none; pass --groups A,B.")
    found = table.private([key, *facts.columns])  # at once: rows of a database come in no order of their own
    return facts.groups, person_keys(found.pop(key)), Attribute.from_container(_labels(facts, found))


def _labels(facts: PublicAttribute, found: Mapping[str, list[str | None]]) -> dict[str, list[str | None]]:
    bins = {one.column: one for one in facts.bins}
    return {
        name: bins[name].assign(values) if name in bins else [None if one == facts.missing else one for one in values]
        for name, values in found.items()
    }


def label_reader(facts: PublicAttribute) -> Callable[[str, Column], Column]:
    """How entries of a sensitive column become labels where files are read a few rows at a time: each by itself."""

    def read(name: str, entries: Column) -> Column:
        labels = _labels(facts, {name: read_each(as_text, entries)})[name]
        return np.fromiter(labels, dtype=object, count=len(labels))

    return read


def _joined_by_key(
    facts: PublicAttribute, file: Table, key: str, people: Sequence[str | None]
) -> dict[str, list[str | None]]:
    """Each person's entries; None for whoever has no row."""
    theirs = person_keys(file.private([key])[key])
    place = {one: row for row, one in reversed(list(enumerate(theirs))) if one is not None}
    rows = [place.get(one) if one is not None else None for one in people]
    return {
        name: [None if row is None else column[row] for row in rows]
        for name, column in file.private(facts.columns).items()
    }


def person_keys(texts: Iterable[str | None]) -> list[str | None]:
    """Keys as they are compared: a whole number is the same with and without ".0", each key by itself.

    Tools write the numbers of a column with a gap as 1.0 and 2.0.
    """
    return [None if text is None else _WHOLE.sub(r"\1", text) for text in texts]


def read_person(facts: PublicAttribute, data: Table) -> list[str | None] | None:
    """The public id of each row's person; None where rows are what is protected."""
    if facts.person is None:
        return None
    ids = person_keys(data.text([facts.person])[facts.person])
    check_keys(ids, facts.person, data, repeated=True)
    return ids


def check_keys(keys: Sequence[str | None], key: str, data: Table, *, repeated: bool = False) -> None:
    """Refuse keys of the data, which are public, if they are missing, or repeat where they may not."""
    absent = sum(one is None for one in keys)
    if absent:
        raise Refusal(f"{absent} rows of {shown_path(data.path)} have no {key!r}; give every row its key.")
    again = len(keys) - len(set(keys))
    if again and not repeated:
        raise Refusal(
            f"{again} rows of {shown_path(data.path)} repeat a {key!r} of an earlier row; expected one row per "
            f"person, or pass --person {key} so that a person's rows are protected together."
        )
