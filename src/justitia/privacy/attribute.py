"""A holder for the sensitive attribute on its way to the vault."""

from __future__ import annotations

from collections.abc import Sequence
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


__all__: Sequence[str] = ["Attribute"]
