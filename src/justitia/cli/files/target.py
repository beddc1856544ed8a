"""The target column of a file: two values, several classes, or numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.files.reading import Table
from justitia.metrics.targets import FEW_VALUES
from justitia.preprocessing.number_formats import NumberFormat
from justitia.preprocessing.tables import MOST_CLASSES, TASKS
from justitia.tasks import NUMBER, Task

Label = str | int | float | bool
AUTO, CLASSES = TASKS[:2]


def read_target(
    table: Table,
    target: str,
    positive: str | None = None,
    classes: Sequence[Label] | None = None,
    *,
    task: str = AUTO,
    written: NumberFormat | None = None,
) -> tuple[NDArray[Any], tuple[Label, ...]]:
    """The target as codes 0, 1, ... and the values that they stand for; or as numbers, and no values.

    Parameters
    ----------
    positive : str, optional
        The positive one of two values; by default the later in order.
    classes : sequence, optional
        Values of the target, if a model has fixed them; empty for numbers.
    task : {"auto", "classes", "number"}
    written : NumberFormat, optional
        How numbers are written, if not as programs write them.

    Raises
    ------
    Refusal
        If rows have no target, or it is not as the task says, or the task would have to be guessed.
    """
    if classes is None and task != NUMBER.kind:
        classes = _classes(_distinct(table, target, written), target, positive, task)
    elif task == NUMBER.kind and positive is not None:
        raise Refusal("expected --positive with a target that has two values, got --task number; leave one out.")
    if classes is None or not len(classes):
        return _numbers(table, target, written), ()
    return _codes(table, target, classes), tuple(classes)


def target_task(
    table: Table, target: str, positive: str | None, task: str, written: NumberFormat | None = None
) -> Task:
    """What kind of target a column is, from its values; a column of numbers is read as far as that shows it.

    Raises
    ------
    Refusal
        As :func:`read_target`.
    """
    if task == NUMBER.kind:
        if positive is not None:
            raise Refusal("expected --positive with a target that has two values, got --task number; leave one out.")
        return NUMBER
    found = _classes(_distinct(table, target, written), target, positive, task)
    return Task.of_classes(found) if found else NUMBER


def task_of(classes: Sequence[Label]) -> Task:
    """The kind of a target that has these values; none are numbers."""
    return Task.of_classes(classes) if len(classes) else NUMBER


def _distinct(table: Table, target: str, written: NumberFormat | None) -> list[Label]:
    """Different values in order; of many numbers, more than may be classes."""
    found: set[Label] = set()
    rows = 0
    for values in table.parts(target):
        rows += len(values)
        found |= {_label(one) for one in pd.unique(values.dropna())}
        if len(found) > FEW_VALUES and all(_is_number(one) for one in found):
            break
    if not rows:
        raise Refusal(f"{shown_path(table.path)} has no rows below its first line; add rows.")
    if written is not None and not written.is_plain and len(found) > 2:
        texts = {str(one) for values in _parts(table, target, written) for one in pd.unique(values.dropna())}
        numbers = written.numbers(texts)
        if np.isfinite(numbers).all():
            found = {_label(one) for one in numbers}
    try:
        return sorted(found)
    except TypeError:  # text and numbers
        return sorted(found, key=str)


def _classes(labels: list[Label], target: str, positive: str | None, task: str) -> list[Label]:
    """Values that are classes, of two the positive one last; none if the target is a number."""
    listed = ", ".join(map(str, labels[:3])) + (", ..." if len(labels) > 3 else "")
    if len(labels) < 2:
        raise Refusal(
            f"expected two values in the column {target!r}, got {len(labels)} ({listed}); write a column that has two."
        )
    if len(labels) == 2:
        return _two_classes(labels, target, positive)
    if positive is not None:
        raise Refusal(
            f"expected --positive with a target that has two values, got {target!r}, which has more ({listed}); leave "
            "it out."
        )
    are_numbers = all(_is_number(one) for one in labels)
    if are_numbers and task == AUTO:
        if len(labels) > FEW_VALUES:
            return []
        raise Refusal(
            f"the column {target!r} has {len(labels)} different numbers ({listed}), which may be classes or a "
            "quantity; pass --task classes or --task number."
        )
    if len(labels) > MOST_CLASSES:
        advice = "pass --task number, or merge classes" if are_numbers else "merge rare ones"
        raise Refusal(f"expected at most {MOST_CLASSES} classes in the column {target!r}, got more; {advice}.")
    return labels if len({type(one) for one in labels}) == 1 else [str(one) for one in labels]


def _two_classes(labels: list[Label], target: str, positive: str | None) -> list[Label]:
    """Negative and positive value of a target."""
    if positive is None or str(labels[1]).strip() == positive.strip():
        return labels
    if str(labels[0]).strip() == positive.strip():
        return labels[::-1]
    raise no_such("value", positive, [str(one) for one in labels], place=f"the target {target!r}")


def _codes(table: Table, target: str, classes: Sequence[Label]) -> NDArray[np.int64]:
    """Place of each row's value among the classes, which are compared as text."""
    known = [str(one).strip() for one in classes]
    places: dict[Label, int] = {}
    parts = [np.empty(0, dtype=np.int64)]
    for values in table.parts(target):
        codes, entries = pd.factorize(values, use_na_sentinel=True)
        found = []
        for one in map(_label, entries):
            text = str(one).strip()
            if one not in places and text not in known:
                raise no_such("class", text, sorted(known), place=f"the model, but in the target {target!r}")
            found.append(places.setdefault(one, known.index(text)))
        parts.append(np.array([*found, -1], dtype=np.int64)[codes])
    coded = np.concatenate(parts)
    _check_given(table, target, coded >= 0)
    return coded


def _numbers(table: Table, target: str, written: NumberFormat | None) -> NDArray[np.float64]:
    """A finite number for each row."""
    parts = [np.empty(0)]
    for values in _parts(table, target, written):
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            parts.append(values.to_numpy(dtype=np.float64))
            continue
        codes, entries = pd.factorize(values, use_na_sentinel=True)
        texts = [one if isinstance(one, str) else str(one) for one in entries]
        found = (NumberFormat() if written is None else written).numbers(texts)
        if np.isnan(found).any():
            raise Refusal(
                f"expected numbers in the column {target!r}, got text; pass --task classes, or --decimal and "
                "--thousands as they are written."
            )
        parts.append(np.append(found, np.nan)[codes])
    numbers = np.concatenate(parts)
    _check_given(table, target, np.isfinite(numbers))
    return numbers


def _parts(table: Table, target: str, written: NumberFormat | None) -> Iterable[pd.Series]:
    """The column, as text where numbers of a CSV are not written as programs write them."""
    return table.parts(target) if table.files is not None else [table.public([target], written)[target]]


def _check_given(table: Table, target: str, given: NDArray[np.bool_]) -> None:
    if not given.all():
        absent = int((~given).sum())
        raise Refusal(f"{absent} rows of {shown_path(table.path)} have no {target!r}; remove or complete them.")
    if not len(given):
        raise Refusal(f"{shown_path(table.path)} has no rows below its first line; add rows.")


def _is_number(value: Label) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _label(value: Any) -> Label:
    """A value of the target as a plain Python value; a whole number is the same with and without ".0"."""
    plain: Any = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    return plain if isinstance(plain, str | int | float | bool) else str(plain)


__all__ = ["AUTO", "CLASSES", "Label", "read_target", "target_task", "task_of"]
