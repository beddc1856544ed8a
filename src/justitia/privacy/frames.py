"""Decorators that keep the sensitive attribute out of tracebacks.

An error keeps the stack frames that it passed through, with all their local variables, and error reporters print those.
Where the attribute is read, or an exact value is computed from it, whatever is raised (Ctrl-C too) leaves without them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

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
    """Decorator: errors keep the lines that they came from, and no local variable of the function or of its callees."""

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
    """Clear the frames of an error, and of its causes, as far as they have ended."""
    known: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in known:
            known.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += [one.__cause__, one.__context__]


def protects_attribute(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function gets ``sensitive_features`` wrapped in an Attribute, so that none of its frames shows it.

    Arguments that the function does not take are refused here, in a frame that has dropped them: one of them may be
    the attribute, by position or under a misspelt name.
    """
    parameters = inspect.signature(function).parameters
    name = getattr(function, "__name__", "this function")
    kinds = {one.kind for one in parameters.values()}
    by_place = [one.name for one in parameters.values() if one.kind in _BY_PLACE]
    any_place, any_name = inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds

    @functools.wraps(function)
    def protected(*args: P.args, **kwargs: P.kwargs) -> T:
        more = 0 if any_place else len(args) - len(by_place)
        unknown = [] if any_name else list(kwargs.keys() - parameters)
        if more > 0 or unknown:
            del args, kwargs
            raise TypeError(_refusal(name, list(parameters), by_place, more, sorted(unknown)))
        # No local variable for the attribute: this frame would show it.
        if not isinstance(kwargs.get("sensitive_features"), str | SensitiveColumns | None):
            try:
                same_rows = has_index_of(kwargs["sensitive_features"], [*args, *kwargs.values()])
                if same_rows:
                    kwargs["sensitive_features"] = _wrapped(kwargs["sensitive_features"])
            except BaseException:
                kwargs.clear()
                raise
            if not same_rows:
                kwargs.clear()
                raise ValueError(_OTHER_INDEX)
            shared = shared_name(kwargs["sensitive_features"], [*args, *kwargs.values()])
            if shared is not None:
                del args  # the public one among them may be the attribute
                kwargs.clear()
                raise ValueError(
                    f"the column {shared!r} is sensitive and is passed as a public one, too, which is not protected; "
                    "pass another column."
                )
        return function(*args, **kwargs)

    return protected


def features_only(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator for methods of prediction: the error for any other argument says why the attribute is not one."""
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


def _refusal(name: str, parameters: list[str], by_place: list[str], more: int, unknown: list[str]) -> str:
    """Message about arguments that a function does not take: so many by position, or these by name."""
    if more > 0:
        most = ", ".join(one for one in by_place if one != "self")
        return f"expected {name}({most}, ...) and all else by name, got {more} more; name it."
    near = difflib.get_close_matches(unknown[0], parameters, n=1)
    listed = ", ".join(one for one in parameters if one != "self")
    advice = f"did you mean {near[0]!r}?" if near else f"it takes {listed}."
    return f"{name}() got an unexpected keyword argument {unknown[0]!r}; {advice}"


@forgets_locals
def has_index_of(attribute: Any, others: Sequence[Any]) -> bool:
    """Whether pandas objects of equal lengths have one index; otherwise rows by position are not what was meant.

    An index is public. The caller raises, because its frame has dropped the attribute.
    """
    pandas = pd.Series | pd.DataFrame
    for column in attribute.values() if isinstance(attribute, Mapping) else [attribute]:
        for other in others:
            if not (isinstance(column, pandas) and isinstance(other, pandas)):
                continue
            if len(column) == len(other) and not column.index.equals(other.index):
                return False
    return True


def shared_name(attribute: Any, others: Sequence[Any]) -> str | None:
    """Name of a sensitive column that a public one (labels, weights, ids, strata) has too; None if there is none.

    What is computed from a Series keeps its name. Columns of X are compared where the vault is opened.
    """
    named = {one.name for one in others if isinstance(one, pd.Series)}
    found = [name for name in getattr(attribute, "names", ()) if name is not None and name in named]
    return found[0] if found else None


#: Its errors are about the container and have none of its entries.
_wrapped = forgets_locals(Attribute.from_container)


__all__ = ["features_only", "forget_locals", "forgets_locals", "has_index_of", "protects_attribute"]
