"""Errors that carry no private values.

An error keeps the frames that it passed through, with all their local variables, and error reporters print those. Where
the attribute is read, or something exact is made of it, whatever is raised (Ctrl-C too) leaves without them.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

import pandas as pd

from justitia.privacy.attribute import Attribute, SensitiveColumns

P = ParamSpec("P")
T = TypeVar("T")


def forgets_locals(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function whose errors say where they came from, and hold no variable of it or of what it called."""

    @functools.wraps(function)
    def closed(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            forget_locals(error)
            raise

    return closed


def forget_locals(error: BaseException) -> None:
    """Empty the frames of an error, and of those that it came from, as far as they have ended."""
    known: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in known:
            known.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += [one.__cause__, one.__context__]


def sealing(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function to which ``sensitive_features`` is handed closed, so that none of its frames holds it open."""

    @functools.wraps(function)
    def sealed(*args: P.args, **kwargs: P.kwargs) -> T:
        if not names_columns(kwargs.get("sensitive_features")):
            try:
                check_index(kwargs["sensitive_features"], [*args, *kwargs.values()])
                kwargs["sensitive_features"] = closed_attribute(kwargs["sensitive_features"])
            except BaseException:
                kwargs.clear()
                raise
        return function(*args, **kwargs)

    return sealed


def names_columns(where: object) -> bool:
    """Whether there is nothing to close: nothing was passed, or where the attribute is in files."""
    return where is None or isinstance(where, str | SensitiveColumns)


def check_index(attribute: object, others: Iterable[object]) -> None:
    """Refuse pandas objects of equal lengths and different indices: rows go by position, which is not what was meant.

    An index is public, and names nobody here.

    Raises
    ------
    ValueError
        If the indices differ.
    """
    own = [index for index in map(_index, _columns(attribute)) if index is not None]
    for index in (index for index in map(_index, others) if index is not None):
        if any(len(one) == len(index) and not one.equals(index) for one in own):
            raise ValueError(
                "expected sensitive_features to have the index of the rows that it is passed with, got another index; "
                "bring its rows into their order, or pass sensitive_features.to_numpy() to go by position."
            )


def _columns(attribute: object) -> list[object]:
    return list(attribute.values()) if isinstance(attribute, Mapping) else [attribute]


def _index(container: object) -> pd.Index | None:
    return container.index if isinstance(container, pd.Series | pd.DataFrame) else None


@forgets_locals
def closed_attribute(container: object) -> Attribute:
    """:meth:`Attribute.of`, whose errors are about the container and hold none of its entries."""
    return Attribute.of(container)


__all__ = ["check_index", "closed_attribute", "forget_locals", "forgets_locals", "sealing"]
