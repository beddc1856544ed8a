"""Errors that carry no private values.

An error keeps the frames that it passed through, with all their local variables, and error reporters print those. Where
the attribute is read, or something exact is made of it, whatever is raised (Ctrl-C too) leaves without them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import pandas as pd

from justitia.privacy.attribute import Attribute, SensitiveColumns

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OTHER_INDEX = (
    "expected sensitive_features to have the index of the rows that it is passed with, got another index; bring its "
    "rows into their order, or pass sensitive_features.to_numpy() to go by position."
)
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
    """Make a function to which ``sensitive_features`` is handed closed, so that none of its frames holds it open.

    Arguments that the function does not take are refused here, in a frame that has let go of them: one of them may be
    the attribute, by position or under a name with a slip.
    """
    parameters = inspect.signature(function).parameters
    name = getattr(function, "__name__", "this function")

    @functools.wraps(function)
    def sealed(*args: P.args, **kwargs: P.kwargs) -> T:
        if refusal := _refusal(name, parameters, len(args), list(kwargs)):
            del args, kwargs
            raise TypeError(refusal)
        if not names_columns(kwargs.get("sensitive_features")):
            try:
                same_rows = has_index_of(kwargs["sensitive_features"], [*args, *kwargs.values()])
                if same_rows:
                    kwargs["sensitive_features"] = closed_attribute(kwargs["sensitive_features"])
            except BaseException:
                kwargs.clear()
                raise
            if not same_rows:
                kwargs.clear()
                raise ValueError(_OTHER_INDEX)
        return function(*args, **kwargs)

    return sealed


def features_only(method: Callable[P, T]) -> Callable[P, T]:
    """Make a method of prediction that says why the attribute is no argument of it."""
    most = len(inspect.signature(method).parameters)

    @functools.wraps(method)
    def closed(*args: P.args, **kwargs: P.kwargs) -> T:
        unknown = [name for name in kwargs if name != "X"]
        if unknown or len(args) > most:
            came = repr(unknown[0]) if unknown else "one argument more"
            del args, kwargs
            raise TypeError(
                f"expected features alone in {method.__name__}, got {came}; the sensitive attribute is read in fit and "
                f"is never an input at prediction: call {method.__name__}(X)."
            )
        return method(*args, **kwargs)

    return closed


def _refusal(name: str, parameters: Mapping[str, inspect.Parameter], given: int, named: Sequence[str]) -> str | None:
    """What is wrong with the number and the names of arguments; nothing if a function takes them."""
    kinds = [one.kind for one in parameters.values()]
    by_place = [one for one, kind in zip(parameters, kinds, strict=True) if kind in _BY_PLACE]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and given > len(by_place):
        most = [one for one in by_place if one != "self"]
        return (
            f"expected {name}({', '.join(most)}, ...) and all else by name, got {given - len(by_place)} more; name it."
        )
    unknown = [one for one in named if one not in parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        near = difflib.get_close_matches(unknown[0], parameters, n=1)
        advice = (
            f"did you mean {near[0]!r}?"
            if near
            else f"it takes {', '.join(one for one in parameters if one != 'self')}."
        )
        return f"{name}() got an unexpected keyword argument {unknown[0]!r}; {advice}"
    return None


def names_columns(where: object) -> bool:
    """Whether there is nothing to close: nothing was passed, or where the attribute is in files."""
    return where is None or isinstance(where, str | SensitiveColumns)


@forgets_locals
def has_index_of(attribute: object, others: Iterable[object]) -> bool:
    """Whether pandas objects of equal lengths have one index; otherwise rows by position are not what was meant.

    An index is public, and nobody is named here. The caller raises, whose frame has let go of the attribute.
    """
    own = [index for index in map(_index, _columns(attribute)) if index is not None]
    theirs = [index for index in map(_index, others) if index is not None]
    return not any(len(one) == len(index) and not one.equals(index) for index in theirs for one in own)


def _columns(attribute: object) -> list[object]:
    return list(attribute.values()) if isinstance(attribute, Mapping) else [attribute]


def _index(container: object) -> pd.Index | None:
    return container.index if isinstance(container, pd.Series | pd.DataFrame) else None


@forgets_locals
def closed_attribute(container: object) -> Attribute:
    """:meth:`Attribute.from_container`, whose errors are about the container and hold none of its entries."""
    return Attribute.from_container(container)


__all__ = ["closed_attribute", "features_only", "forget_locals", "forgets_locals", "has_index_of", "sealing"]
