"""Sensitive attribute before it reaches the vault: wrapped entries, names of columns in files, or another holder."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.columns import Column, Names, columns_of
from justitia.privacy.interface import Vault, VaultRequest

#: From the name of a column and its entries to labels.
Read = Callable[[str, Column], Column]


class Attribute:
    """The sensitive attribute of all rows, closed: code that passes it on cannot print, index, copy or store it.

    An error reporter that prints local variables would print a list or a frame. It prints this object as its number of
    rows.

    Attributes
    ----------
    names : tuple of str or None
        Public names of the columns; None where the container had none.

    Guarantee
    ---------
    * Its text form, length and names show public facts only. It cannot be iterated, indexed, pickled or copied.
    * Only :meth:`reveal_entries` gives out the entries; the vault and the metrics call it, through
      :func:`justitia.privacy.groups.read_columns`.
    """

    __slots__ = ("__columns", "names")

    def __init__(self, names: Names, columns: Sequence[Column]) -> None:
        self.names = names
        self.__columns = list(columns)

    @classmethod
    def from_container(cls, container: Any) -> Self:
        """Read a container, as :func:`justitia.privacy.groups.read_columns` describes.

        An Attribute is returned as it is, and so is what stands for one that is held elsewhere.

        Raises
        ------
        TypeError, ValueError
            For the kind of container, its shape, or the lengths of its columns; never for an entry.
        """
        return container if isinstance(container, cls | HeldElsewhere) else cls(*columns_of(container))  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self.__columns[0])

    def reveal_entries(self) -> tuple[Names, list[Column]]:
        """Names and entries, for the vault and the metrics."""
        return self.names, list(self.__columns)

    def __repr__(self) -> str:
        return f"<sensitive attribute of {len(self)} rows>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("an Attribute cannot be pickled or copied: it holds people's sensitive attributes.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


@dataclass(frozen=True, init=False)
class SensitiveColumns:
    """Which columns of files hold the attribute: names and places, no entry.

    Parameters
    ----------
    *columns : str
        Several are crossed.
    file : path or dataset, optional
        Files of their own that hold them, if they are not in those of the features.
    key : str, optional
        Name of the column that joins the two.
    read : callable, optional
        From the name of a column and an array of one entry to a list or array of one label, for example
        ``lambda name, entry: [{"M": "m", "F": "f"}[entry[0]]]``. It is called once per entry, in order. Where it raises
        or returns anything else, that entry is "not given" and nobody else's changes.

    Notes
    -----
    ``read`` is code of yours that sees the attribute. Nothing here undoes what it does besides returning a label: what
    it prints, logs or stores is not protected, and one that remembers entries can let one person's entry change
    another's label, which the certificate does not cover. Write it as a function of its arguments.

    Raises
    ------
    TypeError
        If names are no text, or ``read`` cannot be called with a name and an array.
    ValueError
        If one of ``file`` and ``key`` is missing.
    """

    columns: tuple[str, ...]
    file: Any
    key: str | None
    read: Read | None

    def __init__(self, *columns: str, file: Any = None, key: str | None = None, read: Read | None = None) -> None:
        if not columns or not all(isinstance(one, str) for one in columns):
            raise TypeError("expected the names of the sensitive columns, got none or others; pass them as text.")
        if (file is None) != (key is None):
            raise ValueError("expected file and key together, got one of them; name the column that joins.")
        if read is not None and not _takes_two(read):
            # a mistake here would otherwise make every entry "not given" without a word
            raise TypeError(
                "expected read to be a function of a column's name and an array of one entry, got "
                f"{type(read).__name__!r} that cannot be called so; pass lambda name, entry: [...], say."
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "read", read)

    @classmethod
    def from_name(cls, where: Any) -> SensitiveColumns:
        """What users pass as ``sensitive_features`` beside files: a name, or this.

        Raises
        ------
        TypeError
            If it is something else.
        """
        if isinstance(where, cls):
            return where
        if isinstance(where, str):
            return cls(where)
        raise TypeError(
            "expected sensitive_features to be the name of a column where X is in files, got "
            f"{type(where).__name__!r}; pass a name, or SensitiveColumns(name, file=..., key=...)."
        )

    @property
    def shown(self) -> str:
        """The name of the second file, for people."""
        return Path(str(self.file)).name if isinstance(self.file, str | Path) else "the second file"


def _takes_two(read: Any) -> bool:
    """Whether a callable accepts two arguments; one whose signature Python does not know is believed to."""
    if not callable(read):
        return False
    try:
        inspect.signature(read).bind("", ())
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class HeldElsewhere(ABC):
    """Stands in the place of ``sensitive_features`` where another party holds the attribute: public facts, no entry.

    :class:`justitia.custodian.Custodian` is the one that asks over a network.
    """

    #: Name of the column with the ids that the holder knows, where rows are in files.
    column: str | None = None

    @abstractmethod
    def open(self, request: VaultRequest) -> Vault:
        """A vault that sends its queries to the holder."""

    def with_ids(self, ids: Iterable[Sequence[Any]], rows: int, *, person: bool) -> Self:
        """The same holder, for rows with these public ids, which come in parts."""
        raise NotImplementedError

    def measured(self, truth: NDArray[np.int64], decided: NDArray[np.int64], **options: Any) -> Any:  # noqa: ARG002
        """A private measurement made by the holder; None if it has to be a query of the vault."""
        return None


class AttributeStream:
    """The sensitive attribute of rows in files, closed like an :class:`Attribute` and read a few rows at a time.

    Parameters
    ----------
    names : tuple of str
        Public names of the columns.
    rows : int
        How many rows there are, a public number.
    parts : callable
        Gives the columns of the next rows, again and again in the same order; entry by entry as
        :mod:`justitia.privacy.columns` reads them.

    Guarantee
    ---------
    * As many rows as were announced come out, whatever the entries are.
    """

    __slots__ = ("__parts", "_rows", "names")

    def __init__(self, names: Names, rows: int, parts: Callable[[], Iterator[list[Column]]]) -> None:
        self.names, self._rows = names, rows
        self.__parts = parts

    def __len__(self) -> int:
        return self._rows

    def reveal_entries(self) -> Iterator[list[Column]]:
        """The columns of the next rows; only the vault calls this."""
        return self.__parts()

    def __repr__(self) -> str:
        return f"<sensitive attribute of {len(self)} rows>"

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = Attribute._refuse


__all__: Sequence[str] = ["Attribute", "AttributeStream", "HeldElsewhere", "SensitiveColumns"]
