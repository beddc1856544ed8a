"""Serialisation of checkpoints: a tree of plain values and arrays as bytes, without pickle."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The member of the archive that holds everything but the arrays.
TREE = "tree"
#: Kinds of numbers that an array may hold.
NUMBERS = "biuf"


def to_bytes(tree: Any) -> bytes:
    """Dictionaries, lists, tuples, numbers, text, None and arrays of numbers, nested as one likes."""
    arrays: dict[str, NDArray[Any]] = {}
    written = json.dumps(_written(tree, arrays))
    arrays[TREE] = np.frombuffer(written.encode(), dtype=np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def from_bytes(content: bytes) -> Any:
    """Inverse of :func:`to_bytes`; nothing in the bytes is run as code.

    Raises
    ------
    ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile
        If the bytes are something else.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    tree = arrays.pop(TREE).tobytes().decode()
    return _read(json.loads(tree), arrays)


def _written(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in NUMBERS:
            raise TypeError(f"expected an array of numbers in a checkpoint, got one of {value.dtype}.")
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, dict):  # pairs, because keys need not be text
        return {"dict": [[_written(key, arrays), _written(one, arrays)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_written(one, arrays) for one in value]}
    if isinstance(value, list):
        return [_written(one, arrays) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"expected numbers, text and arrays in a checkpoint, got {type(value).__name__!r}.")


def _read(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_read(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "tuple":
        return tuple(_read(one, arrays) for one in content)
    if kind != "dict":
        raise ValueError(f"unknown kind {kind!r}")
    return {_read(key, arrays): _read(one, arrays) for key, one in content}
