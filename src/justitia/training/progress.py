"""Progress bars: of steps, and of passes over rows."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm


def progress_bar(shown: bool | None, total: int, name: str, **options: Any) -> tqdm[Any]:
    """A progress bar, which is gone when the work is done; with None only in a terminal."""
    if shown is None:
        shown = sys.stderr is not None and sys.stderr.isatty()
    return tqdm(total=total, disable=not shown, desc=name, leave=False, **{"unit": "step"} | options)


def pass_bar(shown: bool | None, rows: int, name: str) -> tqdm[Any]:
    """The bar of one pass over rows."""
    return progress_bar(shown, rows, name, unit="row", unit_scale=True)


__all__ = ["pass_bar", "progress_bar"]
