"""Values that JSON lacks, written as objects with one key that names their type, and read again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from justitia.privacy.mechanisms import Gaussian, Unprotected


def plain(label: Any) -> str | int | float | bool:
    """A class label as JSON."""
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else refuse(value)


def refuse(value: Any) -> NoReturn:
    """Say that a value cannot be written."""
    raise TypeError(f"expected text, numbers and lists of them, got {type(value).__name__!r}, which JSON has not.")


def written(value: Any) -> Any:
    """A value as JSON: what JSON lacks becomes an object with one key that names its type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Gaussian | Unprotected):
        return {"noise": getattr(value, "noise_multiplier", None)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, list | tuple):
        items = [written(item) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {"mapping": [[written(key), written(item)] for key, item in value.items()]}
    return value


def read(value: Any) -> Any:
    """Inverse of :func:`written`."""
    if isinstance(value, list):
        return [read(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    readers: dict[str, Callable[[Any], Any]] = {
        "noise": lambda multiplier: Unprotected() if multiplier is None else Gaussian(multiplier),
        "float": float,
        "tuple": lambda items: tuple(read(item) for item in items),
        "mapping": lambda pairs: {read(key): read(item) for key, item in pairs},
    }
    return readers[kind](inner)
