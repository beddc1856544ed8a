"""A holder for the sensitive attribute on its way to the vault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Self

from justitia.privacy.columns import Column, Names, columns_of


class Attribute:
    """Everybody's sensitive attribute, closed: who passes it on can neither print, index, copy nor store it.

    A plain list or frame that waits in a local variable is printed by whatever reports an error with the variables of
    its frames. This object is printed as its number of rows.

    Guarantee
    ---------
    * Its text form, length and names show public facts only. It cannot be iterated, indexed, pickled or copied.
    * Only :meth:`unsealed` gives out the entries; the vault and the metrics call it, through
      :func:`justitia.privacy.groups.read_columns`.
    """

    __slots__ = ("__columns", "_names")

    def __init__(self, names: Names, columns: Sequence[Column]) -> None:
        self._names = names
        self.__columns = list(columns)

    @classmethod
    def of(cls, container: Any) -> Self:
        """Read a container, as :func:`justitia.privacy.groups.read_columns` describes; an Attribute is returned as is.

        Raises
        ------
        TypeError, ValueError
            For the kind of container, its shape, or the lengths of its columns; never for an entry.
        """
        return container if isinstance(container, cls) else cls(*columns_of(container))

    @property
    def names(self) -> Names:
        """Public names of the columns; None where the container had none."""
        return self._names

    def __len__(self) -> int:
        return len(self.__columns[0])

    def unsealed(self) -> tuple[Names, list[Column]]:
        """Names and entries, for the vault and the metrics."""
        return self._names, list(self.__columns)

    def __repr__(self) -> str:
        return f"<sensitive attribute of {len(self)} rows>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("an Attribute cannot be pickled or copied: it holds people's sensitive attributes.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


class AttributeStream:
    """Everybody's sensitive attribute, closed like an :class:`Attribute`, where it is read a few rows at a time.

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

    __slots__ = ("__parts", "_names", "_rows")

    def __init__(self, names: Names, rows: int, parts: Callable[[], Iterator[list[Column]]]) -> None:
        self._names, self._rows = names, rows
        self.__parts = parts

    @classmethod
    def of_tables(cls, names: Sequence[str], rows: int, tables: Callable[[], Iterator[Any]]) -> Self:
        """The attribute in Arrow tables, each of which has these columns in this order."""
        return cls(tuple(names), rows, lambda: (columns_of(table)[1] for table in tables()))

    @property
    def names(self) -> Names:
        """Public names of the columns."""
        return self._names

    def __len__(self) -> int:
        return self._rows

    def unsealed(self) -> Iterator[list[Column]]:
        """The columns of the next rows, for the vault."""
        return self.__parts()

    def __repr__(self) -> str:
        return f"<sensitive attribute of {len(self)} rows>"

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = Attribute._refuse


__all__: Sequence[str] = ["Attribute", "AttributeStream"]
