"""Reading of label columns: plain Python entries of any container, each read by itself.

This module handles the sensitive attribute A; only :class:`justitia.privacy.attribute.Attribute` and the command line's
readers of tables and of cut points call it.

Guarantee
---------
* What becomes of an entry depends on that entry and on the type of its column, never on another entry: no column is
  converted as a whole where one entry could fail or lend its type to the others.
* An entry that cannot be read, such as a date that Python has no room for or bytes that are no text, is None: "not
  given". It raises nothing, warns of nothing and prints nothing. Only an interrupt, such as Ctrl-C, passes through.
* Errors speak of the container, of names, and of the numbers of rows and columns.
"""

from __future__ import annotations

import datetime as dt
import operator
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.object_]
Names: TypeAlias = tuple[str | None, ...]

#: The only errors that may leave a function that reads an entry. Any other, a panic of another language's runtime
#: included, would reveal that some entry is odd.
INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)

#: A label made by a user's function is no larger than this, in bytes, and has at most so many parts.
LARGEST_LABEL, MOST_PARTS = 10_000, 64

_DAY = 86_400
_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (dt.date.min - _EPOCH).days, (dt.date.max - _EPOCH).days
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def read_each(read: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """``read(item)`` for each item; None for one that cannot be read, whatever goes wrong with it."""
    found: list[Any] = []
    for item in items:
        try:
            found.append(read(item))
        except INTERRUPTS:
            raise
        except BaseException:  # noqa: BLE001 - an error here would reveal that an odd value exists
            found.append(None)
    return found


def read_with(read: Callable[[str, Column], Any], name: str, entries: Column) -> Column:
    """Labels that a user's function makes of a column: it is called once per entry, in order, with that entry alone.

    Parameters
    ----------
    read : callable
        From the name of the column and an array of one entry to a container of one label.

    Guarantee
    ---------
    * As many labels come out as entries went in, each from one call with its own entry.
    * A call that fails, or returns anything but one small label that can be hashed, makes its own entry None, "not
      given". It raises nothing and warns of nothing; only Ctrl-C passes through.
    * What the function itself prints, stores or remembers from one call to the next is outside these guarantees.
    """
    found: Column = np.empty(len(entries), dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning would be about a value
        for at in range(len(entries)):
            try:
                alone: Column = np.empty(1, dtype=object)
                alone[0] = entries[at]
                found[at] = _one_label(read(name, alone))
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - an error here would reveal that an odd value exists
                found[at] = None
    return found


def _one_label(returned: Any) -> Any:
    """The only entry of a container, as a plain value; raises if that is not what came."""
    if type(returned) in (list, tuple) or (type(returned) is np.ndarray and returned.dtype == object):
        (label,) = returned
    else:
        _, ((label,),) = _columns_of(returned)
    label = _checked_label(label)
    hash(label)
    return label


def _checked_label(label: Any) -> Any:
    if isinstance(label, list | tuple):
        if len(label) > MOST_PARTS:
            raise ValueError("too many parts")
        return tuple(_checked_label(part) for part in label)
    if sys.getsizeof(label) > LARGEST_LABEL:
        raise ValueError("too large")
    return label


def columns_of(container: Any) -> tuple[Names, list[Column]]:
    """Names and entries of one or several columns of labels; see :func:`justitia.privacy.groups.read_columns`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning would be about a value
        names, columns = _columns_of(container)
        if not columns:
            raise ValueError("expected sensitive_features to have at least one column, got none; pass the labels.")
        for at, entries in enumerate(columns):
            columns[at] = np.fromiter(entries, dtype=object, count=len(entries))
        return names, columns


def _columns_of(container: Any) -> tuple[Names, list[Any]]:
    """Names of the columns, and the entries of each as a list."""
    if isinstance(container, Mapping):
        return _from_mapping(container)
    if isinstance(container, pd.api.extensions.ExtensionArray):
        container = pd.Series(container)  # as an array, integers with a gap would become floats
    native = nw.from_native(container, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        series = list(native.iter_columns())
        return tuple(str(one.name) for one in series), [_from_series(one) for one in series]
    if isinstance(native, nw.Series):
        name = str(native.name) if native.name not in (None, "") else None
        return (name,), [_from_series(native)]
    if hasattr(container, "to_pylist") and hasattr(container, "column_names"):  # a batch of Arrow's
        return tuple(map(str, container.column_names)), [_from_arrow(one) for one in container.columns]
    columns = _unnamed(container)
    return (None,) * len(columns), columns


def _from_mapping(container: Mapping[Any, Any]) -> tuple[Names, list[Any]]:
    named: dict[str, list[Any]] = {}
    for name, values in container.items():
        _, columns = _columns_of(values)
        if len(columns) != 1:
            raise ValueError(
                f"expected each entry of sensitive_features to be one column, got {len(columns)}; "
                "pass a dict with one column per key."
            )
        named[str(name)] = columns[0]
    if len(set(map(len, named.values()))) > 1:
        rows = ", ".join(f"{name!r} has {len(column)}" for name, column in named.items())
        raise ValueError(f"expected columns of the same length, but {rows}; pass one entry per row.")
    return tuple(named), list(named.values())


def _unnamed(values: Any) -> list[list[Any]]:
    if isinstance(values, list | tuple):
        return [list(values)]
    if hasattr(values, "to_pylist"):
        return [_from_arrow(values)]
    if not hasattr(values, "__array__") or isinstance(values, np.generic):
        raise TypeError(
            "expected sensitive_features to be a Series, DataFrame, array, list or dict of columns, got "
            f"{type(values).__name__!r}; pass one label per row."
        )
    return _from_array(values if isinstance(values, np.ndarray) else np.asarray(values))


def _from_array(array: NDArray[Any]) -> list[list[Any]]:
    if array.ndim not in (1, 2):
        raise ValueError(
            f"expected sensitive_features to have 1 or 2 dimensions, got {array.ndim}; pass one column each."
        )
    masked = _masked(np.ma.getmaskarray(array), array.ndim) if isinstance(array, np.ma.MaskedArray) else None
    table = np.asarray(array.data if isinstance(array, np.ma.MaskedArray) else array)
    columns = [table] if table.ndim == 1 else list(table.T)
    entries = [read_each(column.item, range(len(column))) for column in columns]
    if masked is None:
        return entries
    masks = [masked] if table.ndim == 1 else list(masked.T)
    return [
        [None if hidden else entry for entry, hidden in zip(column, mask, strict=True)]
        for column, mask in zip(entries, masks, strict=True)
    ]


def _masked(mask: NDArray[Any], ndim: int) -> NDArray[np.bool_]:
    """Whether anything of an entry is masked; the mask of an entry with fields has fields itself."""
    if mask.dtype.names is None:
        return np.asarray(mask.any(axis=tuple(range(ndim, mask.ndim))))
    fields = [_masked(mask[name], ndim) for name in mask.dtype.names]
    return np.asarray(np.any(np.stack(fields), axis=0))


def _from_series(series: nw.Series[Any]) -> list[Any]:
    native = series.to_native()
    if series.implementation.is_pandas():
        return _from_pandas(native)
    if series.implementation.is_polars():
        return _from_polars(native)
    if series.implementation.is_pyarrow():
        return _from_arrow(native)
    return read_each(series.__getitem__, range(len(series)))


def _from_arrow(array: Any) -> list[Any]:
    """Entries of an Arrow column: those of whole numbers, truth values and texts once for each value, then by its code.

    A value is its bytes here, so that texts that cannot be decoded are values like all others, and None.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is: the column is one of its own

    kind, types = array.type, pa.types
    known = types.is_integer, types.is_boolean, types.is_string, types.is_large_string
    values = kind.value_type if types.is_dictionary(kind) else kind
    if not any(one(values) for one in known):
        return read_each(operator.methodcaller("as_py"), array)
    coded = array if types.is_dictionary(kind) else array.dictionary_encode()
    found: list[Any] = []
    for chunk in coded.chunks if isinstance(coded, pa.ChunkedArray) else [coded]:
        labels = [*read_each(operator.methodcaller("as_py"), chunk.dictionary), None]
        codes = chunk.indices.cast(pa.int64(), safe=False).fill_null(-1).to_numpy(zero_copy_only=False)
        none = len(labels) - 1  # also of a code that has no value
        found += [labels[code] for code in np.where((codes < 0) | (codes > none), none, codes).tolist()]
    return found


def _from_pandas(series: Any) -> list[Any]:
    if isinstance(series, pd.MultiIndex):
        return read_each(series.__getitem__, range(len(series)))
    array = series.array
    if isinstance(array, pd.Categorical):
        labels = [*_from_pandas(array.categories), None]
        return [labels[code] for code in array.codes]  # the code of a missing entry is -1, the last
    stored = array.dtype
    if isinstance(stored, pd.ArrowDtype) or (isinstance(stored, pd.StringDtype) and stored.storage == "pyarrow"):
        return _from_arrow(array.__arrow_array__())
    return read_each(array.__getitem__, range(len(array)))


def _from_polars(series: Any) -> list[Any]:
    """Entries of a polars column.

    Whatever polars cannot convert is taken out beforehand: its panic would be printed, wherever it is caught.
    """
    import polars as pl  # noqa: PLC0415 - optional, and here it is: the column is one of its own

    kind = series.dtype
    if hasattr(pl, "BaseExtension") and isinstance(kind, pl.BaseExtension):
        return _from_polars(series.ext.storage())
    if isinstance(kind, pl.Categorical | pl.Enum):
        series, kind = series.cast(pl.String), pl.String()
    if isinstance(kind, pl.String):
        return read_each(_decoded, series.cast(pl.Binary).to_list())
    if isinstance(kind, pl.List | pl.Array):
        return [None if parts is None else _from_polars(parts) for parts in series]
    if kind.is_temporal():
        inside = series.to_physical().is_between(*_polars_range(kind))
        return list(series.zip_with(inside, pl.Series([None], dtype=kind)).to_list())
    if kind.is_numeric() or isinstance(kind, pl.Boolean | pl.Binary | pl.Null | pl.Object):
        return list(series.to_list())
    return [None] * len(series)  # records and maps cannot be hashed, so they are no labels


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8")


def _polars_range(kind: Any) -> tuple[int, int]:
    """First and last number behind a date or time that Python can hold."""
    import polars as pl  # noqa: PLC0415 - as above

    if isinstance(kind, pl.Date):
        return _FIRST_DAY, _LAST_DAY
    if isinstance(kind, pl.Time):
        return 0, _DAY * _PER_SECOND["ns"] - 1
    if isinstance(kind, pl.Duration):
        days = (-dt.timedelta.max.days, dt.timedelta.max.days)
    else:  # local time may be almost a day away from the stored one
        away = 0 if kind.time_zone is None else 1
        days = (_FIRST_DAY + away, _LAST_DAY + 1 - away)
    scale = _DAY * _PER_SECOND[kind.time_unit]
    return max(days[0] * scale, -(2**63)), min(days[1] * scale - 1, 2**63 - 1)
