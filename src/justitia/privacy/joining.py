"""Sensitive attribute of rows in files: columns beside the features, or a second file that is joined by key.

Keys of the data are public. Rows of the second file are private: how many there are, their keys, and their entries. A
row of the data without one there is "not given"; of several rows with one key the first counts.

Guarantee
---------
* Nothing in the second file changes whether the join succeeds, or the label of any row but that with the same key.
* A function of the user that makes labels of entries is called with one entry at a time; where it fails, that entry is
  "not given" (:func:`justitia.privacy.columns.read_with`).
* Keys are compared by 128 bits of a hash of their text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.attribute import AttributeStream, HeldElsewhere, SensitiveColumns
from justitia.privacy.columns import INTERRUPTS, Column, columns_of, read_with
from justitia.privacy.frames import forgets_locals

#: So many keys of the data are looked up in one pass over the second file.
KEYS_AT_ONCE = 2_000_000
_WHOLE = re.compile(r"^\+?(-?[0-9]+)\.0+$")
_BYTES = 16
#: Gives the parts of a table, again and again in the same order.
Tables = Callable[[], Iterator[Any]]
Digests = NDArray[np.bytes_]


class Files(Protocol):
    """Rows in files."""

    def __len__(self) -> int: ...

    def tables(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Arrow tables of the rows from start to stop, each with the types of its own file.

        To join tables of several files would bring their columns to one type, if there is one: an entry that sets the
        type of its file's column would decide about the entries of other files.
        """


class FileAttribute:
    """Where the attribute of rows in files is: beside them, or in files of its own. It holds no entry.

    Parameters
    ----------
    where : SensitiveColumns
    files : Files
        With the rows of the data.
    second : Files, optional
        Those that hold the attribute, if it is not in the data.
    ranges : tuple of (int, int)
        Rows that one process reads at once; all rows by default.
    """

    def __init__(
        self,
        where: SensitiveColumns,
        files: Files,
        second: Files | None = None,
        ranges: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        self._where, self._files, self._second = where, files, second
        self.names = where.columns
        self.ranges = ((0, len(files)),) if ranges is None else ranges

    def __len__(self) -> int:
        return len(self._files)

    def check_keys(self) -> None:
        """Refuse keys that repeat in rows of different processes; each process finds those in its own rows.

        An entry of the second file that counted in two rows would move answers twice as far as the ledger records.

        Raises
        ------
        ValueError
        """
        key, files = self._where.key, self._files
        if self._second is not None and key is not None and len(self.ranges) > 1:
            _own(lambda: files.tables([key]), key, 0, 1)

    def stream(self, start: int, stop: int) -> AttributeStream:
        """The attribute of the rows from start to stop, closed."""
        where, files, second, names, rows = self._where, self._files, self._second, self.names, stop - start
        if second is None or where.key is None:
            return AttributeStream(
                names, rows, lambda: (_read(where, columns_of(one)[1]) for one in files.tables(names, start, stop))
            )
        key, theirs = [where.key], [where.key, *names]
        labels = join(names, where.key, rows, lambda: files.tables(key, start, stop), lambda: second.tables(theirs))
        return AttributeStream(names, rows, lambda: (_read(where, part) for part in _parts(labels, rows)))


class FrameAttribute:
    """Where the attribute of an engine's data frame is: in columns of its partitions, which workers read.

    It holds no entry.

    Parameters
    ----------
    where : SensitiveColumns
    rows : int
        How many rows the data frame has.
    """

    def __init__(self, where: SensitiveColumns, rows: int) -> None:
        self._where, self._rows = where, rows
        self.names = where.columns

    def __len__(self) -> int:
        return self._rows

    def stream(self, entries: Any) -> AttributeStream:
        """The attribute of some rows, closed; ``entries`` is an Arrow table or a pandas DataFrame of its columns."""
        return AttributeStream(self.names, len(entries), lambda: iter([_read(self._where, columns_of(entries)[1])]))


def held_for_files(held: HeldElsewhere, files: Files, person: str | None) -> HeldElsewhere:
    """A custodian for the rows of files, which it knows by the public ids in their column.

    Raises
    ------
    TypeError, ValueError
        If no column was named, or persons are in another one.
    """
    column = check_held(held, person)
    ids = (table.column(0).to_pylist() for table in files.tables([column]))
    return held.with_ids(ids, len(files), person=person is not None)


def check_held(held: HeldElsewhere, person: Any) -> str:
    """The column of a custodian's ids, where rows are in files; raises as :func:`held_for_files`."""
    if held.column is None:
        raise TypeError(
            "expected ids to be the name of a column where X is in files, got a list of them; pass ids='id', say."
        )
    if person not in (None, held.column):
        raise ValueError(f"expected the custodian's ids, {held.column!r}, in person, got another column; pass those.")
    return held.column


def _read(where: SensitiveColumns, columns: list[Column]) -> list[Column]:
    if where.read is None:
        return columns
    return [read_with(where.read, name, column) for name, column in zip(where.columns, columns, strict=True)]


@forgets_locals
def join(names: Sequence[str], key: str, rows: int, own_keys: Tables, theirs: Tables) -> list[Labels]:
    """Columns of the second file for each row of the data.

    Parameters
    ----------
    rows : int
        How many rows the data has.
    own_keys : callable
        Tables with the public keys of the data.
    theirs : callable
        Tables of the second file, with key and columns.

    Raises
    ------
    ValueError
        If keys of the data are missing or repeat.
    """
    labels = [Labels(rows) for _ in names]
    buckets = max(1, -(-rows // KEYS_AT_ONCE))
    for bucket in range(buckets):
        keys, places = _own(own_keys, key, bucket, buckets)
        open_ = np.ones(len(keys), dtype=np.bool_)
        for table in theirs():
            _, (found, *columns) = columns_of(table)
            digests, at = _digests(found, bucket, buckets)
            where = np.searchsorted(keys, digests)
            known = where < len(keys)
            known[known] = keys[where[known]] == digests[known]
            first = _first_time(where[known], open_)
            for label, column in zip(labels, columns, strict=True):
                label.put(places[where[known][first]], column[at[known][first]])
    return labels


def _first_time(where: NDArray[np.intp], open_: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Which of these lookups are the first of their key; they are closed."""
    _, first = np.unique(where, return_index=True)
    first = np.sort(first[open_[where[first]]])
    open_[where[first]] = False
    return first


def _own(tables: Tables, key: str, bucket: int, buckets: int) -> tuple[Digests, NDArray[np.int64]]:
    """Sorted digests of the data's keys in a bucket, and the rows that they are of."""
    digests, places, at = [], [], 0
    for table in tables():
        _, (entries,) = columns_of(table)
        if any(text is None for text in map(key_text, entries)):
            raise ValueError(f"expected a key in every row, got rows without {key!r}; give every row its key.")
        found, here = _digests(entries, bucket, buckets)
        digests.append(found)
        places.append(here + at)
        at += len(entries)
    keys = np.concatenate(digests) if digests else np.empty(0, dtype=f"S{_BYTES}")
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        raise ValueError(f"expected one row per {key!r}, got a key twice; keep one row of a person, or name persons.")
    return keys, (np.concatenate(places) if places else np.empty(0, dtype=np.int64))[order]


def _digests(entries: Column, bucket: int, buckets: int) -> tuple[Digests, NDArray[np.int64]]:
    """Digests of the keys that fall into a bucket, and where they are; an entry that is no key is left out."""
    texts = (None if text is None else key_digest(text) for text in map(key_text, entries))
    kept = [(at, one) for at, one in enumerate(texts) if one is not None and one[0] % buckets == bucket]
    found = np.frombuffer(b"".join(one for _, one in kept), dtype=f"S{_BYTES}")
    return found, np.array([at for at, _ in kept], dtype=np.int64)


def key_digest(text: str) -> bytes:
    """What stands for a key, given as text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def key_text(value: Any) -> str | None:
    """A key as keys are compared: a whole number is the same with and without ".0"; None for none. Never raises."""
    try:
        if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
            return None
        if isinstance(value, bytes):
            value = value.decode("utf-8")
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        return _WHOLE.sub(r"\1", text.strip()) or None
    except INTERRUPTS:
        raise
    except BaseException:  # noqa: BLE001 - a key that cannot be read is none
        return None


class Labels:
    """One column of labels, as small numbers and what they stand for."""

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros(rows, dtype=np.int32)
        self.known: list[Any] = [None]
        self._place: dict[Any, int] = {}

    def put(self, places: NDArray[np.int64], entries: Column) -> None:
        """Labels of these rows."""
        self.codes[places] = [self._code(entry) for entry in entries]

    def _code(self, entry: Any) -> int:
        try:
            # by its text: entries that are equal and read differently (0.0 and -0.0) are one person's each
            code = self._place.setdefault((type(entry), repr(entry)), len(self.known))
        except INTERRUPTS:
            raise
        except BaseException:  # noqa: BLE001 - what cannot be written down is kept by itself
            code = len(self.known)
        if code == len(self.known):
            self.known.append(entry)
        return code

    def take(self, rows: slice) -> Column:
        """Entries of these rows."""
        pool = np.fromiter(self.known, dtype=object, count=len(self.known))
        return pool[self.codes[rows]]


def _parts(labels: Sequence[Labels], rows: int) -> Iterator[list[Column]]:
    for start in range(0, rows, 65_536):
        yield [one.take(slice(start, min(start + 65_536, rows))) for one in labels]


__all__ = ["FileAttribute", "FrameAttribute", "check_held", "held_for_files", "join", "key_digest", "key_text"]
