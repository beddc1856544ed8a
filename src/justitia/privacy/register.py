"""Register of a population's attribute by key, in a file of its own; a custodian opens it.

Keys are stored as 128 bits of a hash and sorted, so that neither the file nor a look-up shows by its shape who is
registered: whoever is not registered is "not given", found in the same steps as everyone else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from justitia.privacy.attribute import Attribute
from justitia.privacy.columns import Column
from justitia.privacy.frames import forgets_locals
from justitia.privacy.interface import Groups
from justitia.privacy.joining import Digests, key_digest, key_text
from justitia.privacy.persons import Persons

_KEY = "key"
#: Stands for "no label": a lone surrogate, which no text that was read from a file contains.
NO_LABEL = "\ud800"


def digests_of(keys: Iterable[Any]) -> Digests:
    """Digests of public keys, in their order.

    Raises
    ------
    ValueError
        If one is missing.
    """
    texts = [key_text(one) for one in keys]
    if any(text is None for text in texts):
        raise ValueError("expected an id for every row, got rows without one; give every row its id.")
    return np.array([key_digest(text) for text in texts if text is not None], dtype="S16")


def check_once(digests: Digests) -> None:
    """Refuse keys that are not unique."""
    if len(np.unique(digests)) != len(digests):
        raise ValueError(
            "expected every id once, got one twice; keep one row of a person, or name persons, so that a person's rows "
            "are protected together."
        )


def persons_of(digests: Digests) -> Persons:
    """Rows grouped by person, each key being one person."""
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))  # in order of appearance, as rows in memory are numbered
    return Persons.from_codes(number[inverse])


def _stored(label: Any) -> str | None:
    """A label as text; None for one that cannot be in a list of groups. Never raises."""
    text = label if isinstance(label, str) else key_text(label)
    try:
        return text if text is None or text.encode("utf-8") else None
    except UnicodeEncodeError:
        return None


class Register:
    """The attribute of a population by key, in an object that can be neither printed, indexed, copied nor pickled.

    Parameters
    ----------
    names : sequence of str
        Public names of the columns.
    keys : array of digests
        Sorted, each once.
    columns : sequence of object arrays
        Labels in that order: text, or None for "not given".
    unregistered : str, optional
        Label of keys that are not registered; None by default.

    Guarantee
    ---------
    * Only :meth:`cohort` gives out labels, wrapped in an Attribute, to be put into a vault.
    """

    __slots__ = ("__columns", "__keys", "_names", "_unregistered")

    def __init__(
        self, names: Iterable[str], keys: Digests, columns: Iterable[Column], unregistered: str | None = None
    ) -> None:
        self._names = tuple(names)
        self.__keys = keys
        self.__columns = list(columns)
        self._unregistered = unregistered

    @classmethod
    @forgets_locals
    def from_rows(cls, keys: Iterable[Any], attribute: Attribute) -> Self:
        """Register of the rows of a file; of several with one key the first counts, one without a key is left out."""
        names, columns = attribute.reveal_entries()
        texts = [key_text(one) for one in keys]
        kept = np.array([at for at, text in enumerate(texts) if text is not None], dtype=np.int64)
        digests = np.array([key_digest(text) for text in texts if text is not None], dtype="S16")
        unique, first = np.unique(digests, return_index=True)
        named = [f"column {k}" if name is None else name for k, name in enumerate(names)]
        return cls(named, unique, [column[kept[first]] for column in columns])

    def __len__(self) -> int:
        return len(self.__keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Public names of the columns."""
        return self._names

    @forgets_locals
    def listed(self, groups: Groups) -> Self:
        """The same keys, with one and the same text for every label that is not in ``groups``, and for missing ones.

        A cohort of it is then read in the same steps, whoever is registered, has given a label, and which one.
        """
        found = []
        for place, column in enumerate(self.__columns):
            own = {one[place] if isinstance(one, tuple) else one for one in groups}
            same = {one: one for one in own if isinstance(one, str)}  # one object for each label
            found.append(np.fromiter((same.get(one, NO_LABEL) for one in column), dtype=object, count=len(column)))
        return type(self)(self._names, self.__keys, found, NO_LABEL)

    @forgets_locals
    def cohort(self, digests: Digests) -> Attribute:
        """The attribute of these keys, in this order."""
        place: NDArray[np.intp] = np.searchsorted(self.__keys, digests)
        inside = np.minimum(place, len(self.__keys) - 1)
        known = self.__keys[inside] == digests if len(self.__keys) else np.zeros(len(digests), dtype=np.bool_)
        none = np.empty(len(digests), dtype=object)
        none.fill(self._unregistered)  # the same object each time, which numpy.full would copy
        found = [np.where(known, column[inside], none) if len(column) else none for column in self.__columns]
        return Attribute(self._names, found)

    def write(self, path: Path) -> None:
        """Write into an existing, empty file, which has its permissions already; on the disk when this returns."""
        pairs = zip(self._names, self.__columns, strict=True)
        columns = {name: pa.array([_stored(one) for one in column], pa.string()) for name, column in pairs}
        padded = [bytes(one).ljust(16, b"\0") for one in self.__keys]
        table = pa.table(
            {_KEY: pa.array(padded, pa.binary(16)), **{f"label {name}": one for name, one in columns.items()}}
        )
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        with path.open("rb+") as written:
            os.fsync(written.fileno())

    def forget(self) -> None:
        """Overwrite keys and labels, and drop them: no key is registered from now on."""
        self.__keys.fill(b"")
        for column in self.__columns:
            column.fill(None)
        self.__keys = self.__keys[:0].copy()
        self.__columns = [column[:0].copy() for column in self.__columns]

    @classmethod
    @forgets_locals
    def read(cls, path: Path) -> Self:
        """Inverse of :meth:`write`."""
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        keys = np.array(table.column(_KEY).to_pylist(), dtype="S16")
        names = [name.removeprefix("label ") for name in table.column_names if name != _KEY]
        columns = [np.array([*table.column(f"label {name}").to_pylist(), None], dtype=object)[:-1] for name in names]
        return cls(names, keys, columns)

    def __repr__(self) -> str:
        return f"<sensitive attribute of {len(self)} registered people>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a Register cannot be pickled or copied: it holds people's sensitive attributes.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


__all__ = ["Register", "check_once", "digests_of", "persons_of"]
