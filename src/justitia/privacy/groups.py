"""Group codes: the list of groups, and the code of each row from what users pass as `sensitive_features`.

This module handles the sensitive attribute A. Only the way into the vault (training) and the metrics
(evaluation) may call :func:`encode` and :func:`infer_groups`; nothing else reads their results.

Guarantee
---------
* No function here raises, warns or changes shape because of a *value* of A: errors speak of the container,
  the number of rows and columns, and the public list of groups only.
* A value that is missing, unknown or odd gets the code of "not given", which is one more group.
* The code of a row depends on that row's own entries and on public things.

:func:`infer_groups` is the exception by purpose: the list it returns shows which values occur, so a training
run that is to be private names its groups instead.
"""

import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.bins import Range, range_of, ranges_of
from justitia.privacy.columns import INTERRUPTS, Column, Names, read_each
from justitia.privacy.interface import Groups

#: Types whose values hash and compare as Python defines it, so that they can be looked up as they are.
_PLAIN = {str, int, float, bool, bytes, type(None)}
#: Said where a list of groups would have to be read off files.
GROUPS_OF_FILES = "expected the public list of groups where rows are read from files, got none; name the groups."


def read_columns(sensitive_features: Any) -> tuple[Names, list[Column]]:
    """Read one or several columns of labels, whatever they are stored in.

    Parameters
    ----------
    sensitive_features : Attribute, Series, DataFrame, array, list, or dict of columns
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
    if isinstance(sensitive_features, HeldElsewhere):
        raise TypeError(
            "expected the attribute itself, got a custodian, who gives noised answers only; use fit, tradeoff, "
            "private_search or measure with it."
        )
    return Attribute.from_container(sensitive_features).reveal_entries()


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
    if not isinstance(groups, Mapping):
        return _checked_labels(groups, "groups", at_least=2)
    by_name: dict[str | None, Any] = dict(zip(map(str, groups), groups.values(), strict=True))
    wanted = list(names if names and None not in names else by_name)
    if not by_name or set(wanted) != set(by_name):
        raise ValueError(
            f"expected groups for the columns {wanted} of sensitive_features, got them for {list(by_name)}; "
            "pass one list of labels per column."
        )
    levels = []
    for column in wanted:
        what = f"groups[{column!r}]"
        levels.append(_checked_labels(by_name[column], what, at_least=1))
    crossed = levels[0] if len(levels) == 1 else tuple(itertools.product(*levels))
    return _checked_labels(crossed, "groups", at_least=2)


def _checked_labels(labels: Any, what: str, *, at_least: int) -> Groups:
    if isinstance(labels, str | bytes | set | frozenset) or not isinstance(labels, Iterable):
        raise TypeError(f"expected {what} to be a list of labels, got {type(labels).__name__!r}; pass them in order.")
    checked = tuple(map(_label, labels))
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
        if value is None or bool(value != value) or not bool(value == value):  # noqa: PLR0124
            return None
        hash(value)
        label: Hashable = value
    except INTERRUPTS:
        raise
    except BaseException:  # noqa: BLE001 - whatever is wrong with a value, it means "not given"
        return None
    return label


#: Whether "not given" is one more group, or the caller states that every row has one of the listed groups.
MISSING = ("allowed", "none")


def encode(columns: Sequence[Column], groups: Groups, missing_marker: Any = None) -> NDArray[np.int64]:
    """Code of each row's group: 0 to G-1 as listed in `groups`, G for "not given".

    Labels are equal as Python hashes them: 1, 1.0, True and numpy's 1 are one label. Where labels are ranges
    (:class:`~justitia.Bins`), a number has the label of the range it is in. A row with any of its
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
    listed: set[Hashable] = set()
    for group in groups:
        parts = group if isinstance(group, tuple) else (group,)
        if 1 < len(columns) != len(parts):
            raise ValueError(
                f"expected groups with one label for each of the {len(columns)} columns of sensitive_features, got "
                "others; pass a dict {column: labels} or tuples of labels."
            )
        listed.update(parts)
    marker = _label(missing_marker)
    if marker is not None and marker in listed:
        raise ValueError(f"expected groups without the missing marker {missing_marker!r}, got it listed; leave it out.")
    lookup = dict(zip(groups, range(len(groups)), strict=True))
    # By column, the ranges of numbers that its labels stand for; empty where labels are looked up as they are.
    parts_of = [
        [group[k] if isinstance(group, tuple) and len(columns) > 1 else group for group in groups]
        for k in range(len(columns))
    ]
    ranges = [ranges_of(labels) for labels in parts_of]
    if any(ranges):
        columns = [
            _in_ranges(column, own, marker) if own else column for column, own in zip(columns, ranges, strict=True)
        ]
    codes = np.full(len(columns[0]), len(groups), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a comparison that warns would reveal a value
        for row, value in enumerate(columns[0] if len(columns) == 1 else zip(*columns, strict=True)):
            try:
                # A plain value is its own label; None and NaN are in no list of groups.
                plain = type(value) in _PLAIN or (len(columns) > 1 and _PLAIN.issuperset(map(type, value)))
                codes[row] = lookup.get(value if plain else _label(value), len(groups))
            except INTERRUPTS:
                raise
            except BaseException:  # noqa: BLE001 - an equality test that fails means "not given", too
                codes[row] = len(groups)
    return codes


def _in_ranges(column: Column, ranges: Sequence[Range], marker: Hashable | None) -> Column:
    """The range of each number of a column, each by itself; None for what is missing or no number. Never raises."""
    found = np.full(len(column), None, dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in encode
        for row, value in enumerate(column):
            try:
                label = _label(value)
                found[row] = None if label is None or label == marker else range_of(label, ranges)
            except INTERRUPTS:
                raise
            except BaseException:  # noqa: BLE001 - what is no number is "not given"
                found[row] = None
    return found


def infer_groups(columns: Sequence[Column], missing_marker: Any = None) -> Groups:
    """Sorted distinct labels; for several columns, the crossing of the labels observed in each.

    This list is a fact about A and is not private. It is for evaluation and for runs without a privacy
    promise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in encode
        levels = [_in_sorted_order(_distinct(column, _label(missing_marker))) for column in columns]
    return tuple(levels[0]) if len(levels) == 1 else tuple(itertools.product(*levels))


def _distinct(column: Column, marker: Hashable | None) -> list[Hashable]:
    seen: dict[Hashable, None] = {}

    def remember(value: Any) -> None:
        label = _label(value)
        if label is not None and label != marker:
            seen.setdefault(label)

    read_each(remember, column)  # a label that cannot be compared with the others is none
    return list(seen)


def _in_sorted_order(labels: list[Any]) -> list[Hashable]:
    try:
        return sorted(labels)
    except INTERRUPTS:
        raise
    except BaseException:  # noqa: BLE001 - labels of several types, mostly
        return sorted(labels, key=lambda label: (type(label).__name__, _shown(label, str)))


def group_names(groups: Groups, *, names: Sequence[str | None] = ()) -> tuple[str, ...]:
    """Printable names: "F" for one column, "sex=F & race=B" for crossed columns with names, "F & B" without.

    Labels that would print alike, such as 1 and "1", are printed as Python writes them.
    """
    printed: list[str] = []
    for show in (str, repr):
        printed.clear()
        for group in groups:
            if not isinstance(group, tuple):
                printed.append(_shown(group, show))
            elif len(names) != len(group) or None in names:
                printed.append(" & ".join(_shown(part, show) for part in group))
            else:
                pairs = zip(names, group, strict=True)
                printed.append(" & ".join(f"{name}={_shown(part, show)}" for name, part in pairs))
        if len(set(printed)) == len(printed):
            break
    return tuple(printed)


def _shown(label: Any, show: Callable[[Any], str]) -> str:
    try:
        return str(show(label))
    except INTERRUPTS:
        raise
    except BaseException:  # noqa: BLE001 - a label that cannot be printed is named by its type
        return f"<{type(label).__name__}>"
