"""From what users pass as `sensitive_features` to one group code per row.

This module handles the sensitive attribute A. Only the way into the vault (training) and the metrics
(evaluation) may call :func:`encode` and :func:`infer_groups`; nothing else reads their results.

Guarantee
---------
* No function here raises, warns or changes shape because of a *value* of A: errors speak of the container,
  the number of rows and columns, and the public list of groups only.
* A value that is missing, unknown or odd gets the code of "not given", which is one more group.

:func:`infer_groups` is the exception by purpose: the list it returns tells which values occur, so a training
run that is to be private names its groups instead.
"""

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.object_]
Groups: TypeAlias = tuple[Hashable, ...]


def read_columns(sensitive_features: Any) -> tuple[tuple[str | None, ...], list[Column]]:
    """Read one or several columns of labels, whatever they are stored in.

    Parameters
    ----------
    sensitive_features : Series, DataFrame, array, list, or dict of columns
        A list is always one column; an entry that is itself a list or tuple is one label with several parts.

    Returns
    -------
    names : tuple of str or None
        None where the container has no column names.
    columns : list of object arrays of shape (n,)

    Raises
    ------
    TypeError
        If the container is not one of the above.
    ValueError
        If it has no column, more than two dimensions, or columns of different lengths.
    """
    if type(sensitive_features).__name__ == "Attribute":
        return sensitive_features.names, sensitive_features._c
    if isinstance(sensitive_features, Mapping):
        named = {str(name): _one_column(column) for name, column in sensitive_features.items()}
        columns = list(named.values())
        if len({len(column) for column in columns}) > 1:
            rows = ", ".join(f"{name!r} has {len(column)}" for name, column in named.items())
            raise ValueError(f"expected columns of the same length, but {rows}; pass one entry per row.")
        return _nonempty(tuple(named), columns)
    native = nw.from_native(sensitive_features, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        series = list(native.iter_columns())
        return _nonempty(tuple(str(one.name) for one in series), [_from_series(one) for one in series])
    if isinstance(native, nw.Series):
        return (str(native.name) if native.name not in (None, "") else None,), [_from_series(native)]
    columns = _unnamed_columns(sensitive_features)
    return _nonempty((None,) * len(columns), columns)


def _nonempty(names: tuple[str | None, ...], columns: list[Column]) -> tuple[tuple[str | None, ...], list[Column]]:
    if not columns:
        raise ValueError("expected sensitive_features to have at least one column, got none; pass the labels.")
    return names, columns


def _one_column(values: Any) -> Column:
    _, columns = read_columns(values)
    if len(columns) != 1:
        raise ValueError(
            f"expected each entry of sensitive_features to be one column, got {len(columns)}; "
            "pass a dict with one column per key."
        )
    return columns[0]


def _unnamed_columns(values: Any) -> list[Column]:
    if isinstance(values, list | tuple):
        return [np.fromiter(values, dtype=object, count=len(values))]
    if hasattr(values, "to_pylist"):
        return [_from_list(values.to_pylist, values)]
    if not hasattr(values, "__array__") or isinstance(values, np.generic):
        raise TypeError(
            "expected sensitive_features to be a Series, DataFrame, array, list or dict of columns, got "
            f"{type(values).__name__!r}; pass one label per row."
        )
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"expected sensitive_features to have 1 or 2 dimensions, got {array.ndim}; pass one column each."
        )
    table = array.astype(object)
    if isinstance(table, np.ma.MaskedArray):
        table = np.where(np.ma.getmaskarray(table), np.array(None), table.data)
    return [table] if table.ndim == 1 else list(table.T)


def _from_series(series: "nw.Series[Any]") -> Column:
    return _from_list(series.to_list, series)


def _from_list(to_list: Any, values: Any) -> Column:
    """Convert a whole column; a column with one value that Python cannot hold is converted entry by entry."""
    try:
        entries = to_list()
    except Exception:  # noqa: BLE001 - an error here would tell that an odd value exists
        entries = [_entry(values, i) for i in range(len(values))]
    return np.fromiter(entries, dtype=object, count=len(entries))


def _entry(values: Any, i: int) -> Any:
    try:
        entry = values[i]
        return entry.as_py() if hasattr(entry, "as_py") else entry
    except Exception:  # noqa: BLE001 - as above: an odd value is "not given"
        return None


def public_groups(groups: Any, *, names: Sequence[str | None] = ()) -> Groups:
    """Check the user's list of groups: the public knowledge of which labels there are.

    Parameters
    ----------
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        Labels of one column; or one tuple of labels per intersection of several columns; or the labels of
        each column, which are then crossed.
    names : sequence of str or None
        Names of the columns; a dict of groups is brought into this order.

    Returns
    -------
    tuple of labels
        For several columns each label is a tuple.

    Raises
    ------
    TypeError
        If `groups` is not such a list, or a label cannot be hashed.
    ValueError
        If labels repeat, a label means "missing", or there are fewer than two.
    """
    if isinstance(groups, Mapping):
        ordered = _in_order(groups, names)
        levels = [_checked_labels(ordered[column], f"groups[{column!r}]", at_least=1) for column in ordered]
        crossed = levels[0] if len(levels) == 1 else tuple(itertools.product(*levels))
        return _checked_labels(crossed, "groups", at_least=2)
    return _checked_labels(groups, "groups", at_least=2)


def _in_order(groups: Mapping[Any, Any], names: Sequence[str | None]) -> dict[str, Any]:
    by_name = {str(column): labels for column, labels in groups.items()}
    wanted = [name for name in names if name is not None] or list(by_name)
    if not by_name or set(wanted) != set(by_name):
        raise ValueError(
            f"expected groups for the columns {wanted} of sensitive_features, got them for {list(by_name)}; "
            "pass one list of labels per column."
        )
    return {name: by_name[name] for name in wanted}


def _checked_labels(labels: Any, what: str, *, at_least: int) -> Groups:
    if isinstance(labels, str | bytes | set | frozenset) or not isinstance(labels, Iterable):
        raise TypeError(f"expected {what} to be a list of labels, got {type(labels).__name__!r}; pass them in order.")
    checked = tuple(_label(label) for label in labels)
    if None in checked:
        raise ValueError(f"expected labels that can be hashed in {what}, got a missing one; leave out 'not given'.")
    if len(set(checked)) != len(checked):
        raise ValueError(f"expected each label in {what} once, got one twice; remove the repeated label.")
    if len(checked) < at_least:
        raise ValueError(f"expected at least {at_least} labels in {what}, got {len(checked)}; name every group.")
    return checked


def _label(value: Any) -> Hashable | None:
    """Return a label as a plain, hashable Python value; None if it is missing or odd. Never raises."""
    try:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, list | tuple):
            parts = tuple(_label(part) for part in value)
            return None if None in parts or not parts else parts if len(parts) > 1 else parts[0]
        # Only NaN, NaT and their like differ from themselves; pandas.NA raises when asked.
        if value is None or bool(value != value):  # noqa: PLR0124
            return None
        hash(value)
        label: Hashable = value
    except Exception:  # noqa: BLE001 - whatever is wrong with a value, it means "not given"
        return None
    return label


def _row_labels(columns: Sequence[Column]) -> Iterable[Any]:
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def encode(columns: Sequence[Column], groups: Groups, missing_marker: Any = None) -> NDArray[np.int64]:
    """Code of each row's group: 0 to G-1 as listed in `groups`, G for "not given".

    Labels are equal as Python hashes them: 1, 1.0, True and numpy's 1 are one label. A row with any of its
    columns missing is "not given", and so is a row with a label that is not listed.

    Parameters
    ----------
    columns : sequence of object arrays of shape (n,)
        As returned by :func:`read_columns`.
    groups : tuple of labels
        As returned by :func:`public_groups`.
    missing_marker : object
        One more value that means "not given", such as "?".

    Raises
    ------
    ValueError
        If the listed groups do not have one part per column, or hold the marker.
    """
    _check_parts(groups, len(columns), missing_marker)
    lookup = {group: code for code, group in enumerate(groups)}
    codes = (_code(label, lookup) for label in _row_labels(columns))
    return np.fromiter(codes, dtype=np.int64, count=len(columns[0]))


def _check_parts(groups: Groups, k: int, marker: Any) -> None:
    parts = {len(group) if isinstance(group, tuple) else 1 for group in groups}
    if k > 1 and parts != {k}:
        raise ValueError(
            f"expected groups with one label for each of the {k} columns of sensitive_features, got others; "
            "pass a dict {column: labels} or tuples of labels."
        )
    listed = itertools.chain.from_iterable(g if isinstance(g, tuple) else (g,) for g in groups)
    if _label(marker) is not None and _label(marker) in set(listed):
        raise ValueError(f"expected groups without the missing marker {marker!r}, got it listed; leave it out.")


def _code(value: Any, lookup: dict[Hashable, int]) -> int:
    unknown = len(lookup)
    try:
        label = _label(value)
        return unknown if label is None else lookup.get(label, unknown)
    except Exception:  # noqa: BLE001 - an equality test that fails means "not given", too
        return unknown


def infer_groups(columns: Sequence[Column], missing_marker: Any = None) -> Groups:
    """Sorted distinct labels; for several columns, the crossing of the labels observed in each.

    This list is a fact about A and is not private. It is for evaluation and for runs without a privacy
    promise.
    """
    marker = _label(missing_marker)
    seen = [{_label(value) for value in column} - {None, marker} for column in columns]
    levels = [_in_sorted_order(labels) for labels in seen]
    return tuple(levels[0]) if len(levels) == 1 else tuple(itertools.product(*levels))


def _in_sorted_order(labels: Iterable[Any]) -> list[Hashable]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))


def group_names(groups: Groups, *, names: Sequence[str | None] = ()) -> tuple[str, ...]:
    """Printable names: "F" for one column, "sex=F & race=B" for crossed columns with names, "F & B" without.

    Labels that would print alike, such as 1 and "1", are printed as Python writes them.
    """
    printed = tuple(_printed(group, names, str) for group in groups)
    return printed if len(set(printed)) == len(printed) else tuple(_printed(g, names, repr) for g in groups)


def _printed(group: Hashable, names: Sequence[str | None], show: Any) -> str:
    if not isinstance(group, tuple):
        return str(show(group))
    if len(names) != len(group) or None in names:
        return " & ".join(show(part) for part in group)
    return " & ".join(f"{name}={show(part)}" for name, part in zip(names, group, strict=True))
