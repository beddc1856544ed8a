"""Progress bars: of steps, and of passes over rows."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm


def progress_bar(shown: bool | None, total: int, name: str, **look: Any) -> tqdm[Any]:
    """A progress bar; with None only in a terminal."""
    if shown is None:
        shown = sys.stderr is not None and sys.stderr.isatty()
    return tqdm(total=total, disable=not shown, desc=name, **{"unit": "step"} | look)


class Passes:
    """A bar for each pass over the rows of a process, which is gone when the pass is done.

    Parameters
    ----------
    shown : bool, optional
        As for :func:`progress_bar`.
    """

    def __init__(self, shown: bool | None) -> None:
        self._shown = shown
        self._begun = 0

    def __call__(self, rows: int) -> tqdm[Any]:
        """The bar of the next pass."""
        self._begun += 1
        look = {"unit": "row", "unit_scale": True, "leave": False}
        return progress_bar(self._shown, rows, f"pass {self._begun}", **look)


__all__ = ["Passes", "progress_bar"]
