"""The sensitive attribute: options that say where it is, its public facts, and the only code that reads it.

Public are the names of the columns of both files, the cut points, the list of groups if it is given, and the key column
of the data file, in which every row has its own key. Private are all values of a sensitive column, in whichever file it
is, and all rows of the second file: how many there are, and which keys they have.

Whether a person gave their attribute is a part of it. So someone without a row in the second file counts as "not
given", like someone whose entry is empty. If the second file shares no key with the data, all rows are "not given" and
no message says so. Of several rows with one key the first counts, so that a person's label depends on that person
alone.

Guarantee
---------
* No row of the second file and no value of a sensitive column changes whether anything here fails, what the message
  says, or the shape of the result. (A row that breaks the table, such as one with an unquoted separator, does: see
  "Limits" in docs/cli.md.)
* Each person's label is made from that person's own entry.
"""

from __future__ import annotations

import bisect
import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.files.reading import Table, as_text, is_several, open_table
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.bins import Bins
from justitia.privacy.columns import Column, read_each
from justitia.privacy.frames import forgets_locals
from justitia.privacy.vault import INFER

if TYPE_CHECKING:
    from justitia.custodian import Custodian

Groups = dict[str, list[str]]
_WHOLE = re.compile(r"^([+-]?[0-9]+)\.0+$")


# -- Options


@dataclass(frozen=True)
class CustodianOptions:
    """Address and population of a custodian, and files with key, authority, certificate and receipts."""

    url: str
    population: str
    key_file: Path | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    receipts: Path | None = None

    def open(self, ids: Sequence[str | None] | str) -> Custodian:
        """The client for rows with these ids; where rows are in files, ``ids`` is the name of their column."""
        try:
            from justitia.custodian import Custodian  # noqa: PLC0415 - an extra
            from justitia.custodian.connection import KEY, KEY_FILE  # noqa: PLC0415
        except ImportError:
            raise Refusal("--custodian needs more packages; run pip install 'justitia[custodian]'.") from None
        if self.key_file is None and not {KEY, KEY_FILE} & set(os.environ):
            raise Refusal(
                f"expected the key of a custodian's client, got none; pass --custodian-key, or set {KEY_FILE}."
            )
        tls: dict[str, Any] = {"ca_file": self.ca_file, "certificate": self.certificate}
        files: dict[str, Any] = {"key_file": self.key_file, "receipts": self.receipts}
        return Custodian(self.url, population=self.population, ids=ids, **files, **tls)


@dataclass(frozen=True)
class Where:
    """What the options say about the attribute: in which file and columns it is, or which custodian holds it."""

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

    @classmethod
    def from_options(cls, values: dict[str, Any]) -> Where:
        """Take them out of a command's options."""
        url, population = values.pop("custodian", None), values.pop("population", None)
        names = ("custodian_key", "custodian_ca", "custodian_certificate", "receipts")
        files = [values.pop(name, None) for name in names]
        if url is None and (population, *files) != (None,) * 5:
            raise Refusal("expected --custodian URL beside --population and its files, got none; name the address.")
        if url is not None and population is None:
            raise Refusal("expected the name of the custodian's population, got none; pass --population NAME.")
        custodian = None if url is None else CustodianOptions(url, population, *files)
        own = {name: values.pop(name) for name in cls.__dataclass_fields__ if name in values}
        return cls(**own, custodian=custodian)


# -- Public facts


@dataclass(frozen=True)
class CutPoints:
    """Public cut points that turn a numeric column, such as age, into groups; a value equal to a cut is above it.

    Guarantee
    ---------
    * The list of groups follows from the cut points alone. An entry that is not a number is "not given".
    """

    column: str
    cuts: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the groups, from the lowest: "age<25", "25<=age<60", "age>=60"."""
        return tuple(map(str, Bins(self.cuts, self.column)))

    def assign(self, values: Iterable[Any]) -> list[str | None]:
        """The group of each value, each by itself."""
        labels = self.labels
        return [
            None if number is None else labels[bisect.bisect_right(self.cuts, number)]
            for number in read_each(_number, values)
        ]

    def __str__(self) -> str:
        return f"{self.column}={','.join(f'{cut:.12g}' for cut in self.cuts)}"


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def read_bins(text: str) -> CutPoints:
    """Cut points from a text such as ``age=25,60``."""
    column, _, listed = text.partition("=")
    cuts = [_number(one) for one in listed.split(",")]
    numbers = [cut for cut in cuts if cut is not None and math.isfinite(cut)]
    if not column.strip() or len(numbers) < len(cuts) or numbers != sorted(set(numbers)):
        raise Refusal(f"expected --bins to be a column and rising numbers, such as 'age=25,60', got {text!r}.")
    return CutPoints(column.strip(), tuple(numbers))


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
    bins : tuple of CutPoints
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
    bins: tuple[CutPoints, ...] = ()
    groups: Groups | None = None
    infer: bool = False
    missing: str | None = None
    person: str | None = None
    held: HeldElsewhere | None = field(default=None, repr=False)

    def hidden(self) -> set[str | None]:
        """Columns of the data file that are not features: the attribute, the key and the ids."""
        return {*self.columns, self.key, self.person} - {None}


def find_attribute(where: Where, data: Table, *, streamed: bool = False) -> PublicAttribute:
    """Check the names of columns, cut points and groups against the first lines of the files.

    Parameters
    ----------
    streamed : bool
        Whether no row may be read yet, not even the ids that are sent to a custodian.

    Raises
    ------
    Refusal
        If a column is missing, a key is needed, or groups and bins do not fit the columns.
    """
    if where.custodian is not None:
        return _find_at_custodian(where, where.custodian, data, streamed=streamed)
    if (where.sensitive_file is None) != (where.key is None):
        lacking = "--key" if where.key is None else "--sensitive-file"
        raise Refusal(f"expected --sensitive-file and --key together, got no {lacking}; name the column that joins.")
    file = None if where.sensitive_file is None else _open_attribute_file(where.sensitive_file, where, data)
    columns = tuple(where.sensitive)
    if not columns and file is not None:
        columns = tuple(name for name in file.columns if name != where.key)
    if not columns:
        raise Refusal("expected the name of the sensitive column, got none; pass --sensitive NAME.")
    (data if file is None else file).check_columns(columns)
    if len(set(columns)) < len(columns):
        raise Refusal("expected every sensitive column once, got one twice; leave one --sensitive out.")
    if file is not None and file.files is not None:
        file.files.check((), (*columns, where.key or ""))
    bins = tuple(map(read_bins, where.bins))
    for one in bins:
        if one.column not in columns:
            raise no_such("sensitive column", one.column, columns, place="--bins")
    infer = tuple(where.groups) == (INFER,)
    groups = None if infer else read_groups(where.groups, columns, bins)
    person = where.person or None
    data.check_columns([] if person is None else [person])
    check_not_sensitive(columns, key=where.key, person=person)
    return PublicAttribute(columns, file, where.key, bins, groups, infer, where.missing, person)


def _open_attribute_file(path: Path, where: Where, data: Table) -> Table:
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


def _find_at_custodian(where: Where, options: CustodianOptions, data: Table, *, streamed: bool) -> PublicAttribute:
    """The facts that a custodian publishes, for the rows whose ids are in a column of the data."""
    given = [name for name in ("sensitive", "sensitive_file", "groups", "bins", "missing") if getattr(where, name)]
    if given:
        raise Refusal(
            f"expected --custodian without --{given[0].replace('_', '-')}, because the custodian has it; leave it out."
        )
    if where.key is None:
        raise Refusal("expected the column of ids that the custodian knows, got none; pass --key COLUMN.")
    if where.person not in (None, where.key):
        raise Refusal(f"expected --person {where.key}, the ids that the custodian knows, got another column; name it.")
    data.check_columns([where.key])
    ids = where.key if streamed else read_ids(where.key, data, repeated=bool(where.person))
    held = options.open(ids)
    both = [name for name in held.columns if name in data.columns]
    if both:
        raise Refusal(
            f"the column {both[0]!r}, which the custodian holds, is in {shown_path(data.path)}, too; remove it."
        )
    parts = zip(*(one if isinstance(one, tuple) else (one,) for one in held.groups), strict=True)
    groups = {name: list(dict.fromkeys(one)) for name, one in zip(held.columns, parts, strict=True)}
    return PublicAttribute(held.columns, key=where.key, groups=groups, person=where.person or None, held=held)


def check_not_sensitive(columns: Sequence[str], **public: str | None) -> None:
    """Refuse a sensitive column in a public place, because keys and ids are printed without noise."""
    for place, name in public.items():
        if name in columns:
            raise Refusal(f"the column {name!r} is sensitive and cannot be --{place}, which is public; name another.")


def read_groups(texts: Sequence[str], columns: Sequence[str], bins: Sequence[CutPoints]) -> Groups | None:
    """Groups from texts: ``Female,Male`` for one column, ``sex=Female,Male`` for one of several, and those of bins."""
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
        labels = list(map(str.strip, next(csv.reader([listed], skipinitialspace=True), [])))
        if not labels:
            raise Refusal(f"expected the names of the groups of {name.strip()!r}, got none; pass --groups A,B.")
        found[name.strip()] = labels
    ordered: Groups = {}
    for name in columns:
        if found and name not in found:
            raise Refusal(f"expected the groups of every sensitive column, got none of {name!r}; add --groups for it.")
        ordered[name] = found.get(name, [])
    return ordered if found else None


def groups_text(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Groups as the option --groups gives them."""
    texts = []
    for name, labels in groups.items():
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(labels)
        texts.append(f"{name}={line.getvalue()}")
    return texts


def read_ids(column: str, data: Table, *, repeated: bool) -> list[str | None]:
    """Public ids or keys of all rows.

    Raises
    ------
    Refusal
        If some are missing, or repeat where they may not be ``repeated``.
    """
    ids = person_keys(data.text([column])[column])
    absent = sum(one is None for one in ids)
    if absent:
        raise Refusal(f"{absent} rows of {shown_path(data.path)} have no {column!r}; give every row its key.")
    again = len(ids) - len(set(ids))
    if again and not repeated:
        raise Refusal(
            f"{again} rows of {shown_path(data.path)} repeat a {column!r} of an earlier row; expected one row per "
            f"person, or pass --person {column} so that a person's rows are protected together."
        )
    return ids


def person_keys(texts: Iterable[str | None]) -> list[str | None]:
    """Keys as they are compared: a whole number is the same with and without ".0", each key by itself.

    Tools write the numbers of a column with a gap as 1.0 and 2.0.
    """
    return [None if text is None else _WHOLE.sub(r"\1", text) for text in texts]


# -- The attribute itself


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
    keys = read_ids(facts.key, data, repeated=facts.person == facts.key)
    return Attribute.from_container(_labels(facts, _joined_by_key(facts, facts.file, facts.key, keys)))


@forgets_locals
def read_registered(table: Table, where: Where, key: str) -> tuple[Groups, list[str | None], Attribute]:
    """Groups, ids and attribute of a population that a custodian registers; rows without an id are left out there.

    Raises
    ------
    Refusal
        For names of columns and groups; never for a row.
    """
    table.check_columns([key])
    facts = find_attribute(where, table)
    check_not_sensitive(facts.columns, id=key)
    if facts.groups is None:
        raise Refusal("expected the public list of groups, got none; pass --groups A,B.")
    found = table.private([key, *facts.columns])  # in one query, because rows of a database have no order
    return facts.groups, person_keys(found.pop(key)), Attribute.from_container(_labels(facts, found))


def _labels(facts: PublicAttribute, found: Mapping[str, list[str | None]]) -> dict[str, list[str | None]]:
    """The label of each entry, made from that entry alone."""
    labels = dict(found)
    for name, values in found.items():
        if facts.missing is not None:
            labels[name] = [None if one == facts.missing else one for one in values]
    for bins in facts.bins:
        if bins.column in found:
            labels[bins.column] = bins.assign(found[bins.column])
    return labels


def label_reader(facts: PublicAttribute) -> Callable[[str, Column], Column]:
    """Function from entries of a sensitive column to labels, each by itself; it can be sent to worker processes."""
    return partial(_read_labels, replace(facts, file=None, held=None))


def _read_labels(facts: PublicAttribute, name: str, entries: Column) -> Column:
    labels = _labels(facts, {name: read_each(as_text, entries)})[name]
    return np.fromiter(labels, dtype=object, count=len(labels))


def _joined_by_key(
    facts: PublicAttribute, file: Table, key: str, people: Sequence[str | None]
) -> dict[str, list[str | None]]:
    """Each person's entries; None for a person without a row."""
    theirs = person_keys(file.private([key])[key])
    place = {one: row for row, one in reversed(list(enumerate(theirs))) if one is not None}
    rows = [place.get(one) if one is not None else None for one in people]
    return {
        name: [None if row is None else column[row] for row in rows]
        for name, column in file.private(facts.columns).items()
    }
