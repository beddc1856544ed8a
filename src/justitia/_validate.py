"""Checks of arguments, with errors in one sentence: what was expected, what was passed, what to do.

Errors quote the value that was passed, so nothing that is computed from the sensitive attribute may be checked here.
"""

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise suggest the nearest one.

    Raises
    ------
    TypeError
        If `value` is not a string.
    ValueError
        If `value` is not one of `choices`.
    """
    names = tuple(choices)
    listed = ", ".join(map(repr, names))
    if not isinstance(value, str):
        raise TypeError(f"expected {name} to be one of {listed}; got {_described(value)}.")
    if value in names:
        return value
    nearest = difflib.get_close_matches(value.lower(), names, n=1, cutoff=0.5)
    advice = f"did you mean {nearest[0]!r}?" if nearest else f"choose one of {listed}."
    raise ValueError(f"no {name} {value!r}; {advice}")


def check_positive(name: str, value: object, *, allow_inf: bool = False) -> float:
    """Return `value` as a float if it is above 0 (and finite, unless `allow_inf`)."""
    number = _number(name, value)
    if number > 0 and (allow_inf or math.isfinite(number)):
        return number
    kind = "a number" if allow_inf else "a finite number"
    raise ValueError(f"expected {name} to be {kind} above 0, got {value!r}; pass, for example, {name}=1.0.")


def check_nonnegative(name: str, value: object, *, allow_inf: bool = False) -> float:
    """Return `value` as a float if it is at least 0 (and finite, unless `allow_inf`)."""
    number = _number(name, value)
    if number >= 0 and (allow_inf or math.isfinite(number)):
        return number
    kind = "a number" if allow_inf else "a finite number"
    raise ValueError(f"expected {name} to be {kind} of at least 0, got {value!r}; pass, for example, {name}=1.0.")


def check_rate(name: str, value: object) -> float:
    """Return `value` as a float if 0 < value <= 1."""
    number = _number(name, value)
    if 0 < number <= 1:
        return number
    raise ValueError(f"expected {name} to be above 0 and at most 1, got {value!r}; pass, for example, {name}=0.5.")


def check_fraction(name: str, value: object, *, example: float = 0.5) -> float:
    """Return `value` as a float if 0 <= value < 1."""
    number = _number(name, value)
    if 0 <= number < 1:
        return number
    raise ValueError(
        f"expected {name} to be at least 0 and below 1, got {value!r}; pass, for example, {name}={example}."
    )


def check_int(name: str, value: object, *, at_least: int) -> int:
    """Return `value` as an int if it is a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"expected {name} to be an int, got {_described(value)}; pass, for example, {name}={at_least}.")
    if int(value) >= at_least:
        return int(value)
    raise ValueError(f"expected {name} to be at least {at_least}, got {value!r}; pass, for example, {name}={at_least}.")


def check_same_length(**named: Any) -> int:
    """Return the common number of rows of the named arguments.

    Raises
    ------
    TypeError
        If an argument has no rows.
    ValueError
        If the numbers of rows differ.
    """
    lengths: dict[str, int] = {}
    for name, value in named.items():
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            lengths[name] = int(shape[0])
            continue
        if isinstance(value, str | bytes) or not hasattr(value, "__len__") or shape == ():
            raise TypeError(
                f"expected {name} to hold one entry per row, got {_described(value)}; pass a list or array."
            )
        lengths[name] = len(value)
    if len(set(lengths.values())) == 1:
        return next(iter(lengths.values()))
    came = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
    raise ValueError(f"expected the same number of rows everywhere, but {came}; pass one entry per row.")


def _number(name: str, value: object) -> float:
    """Return `value` as a float; booleans, text and NaN are mistakes here, never numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {_described(value)}; pass a float or an int.")
    if math.isnan(value):
        raise ValueError(f"expected {name} to be a number, got nan; pass a float or an int.")
    return float(value)


def _described(value: object) -> str:
    """Short values as they are, all others by their type only."""
    if value is None or isinstance(value, bool | int | float | complex):
        return repr(value)
    if isinstance(value, str):
        return f"the string {value!r}"
    return f"an object of type {type(value).__name__!r}"
