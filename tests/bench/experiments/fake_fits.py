"""Fits that take no time; in a module of their own, so that worker processes can import them."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.experiments.runner import Cell

MEASURES = ("accuracy", "violation")


def cells(n: int, **changes: Any) -> list[Cell]:
    return [Cell("toy", "bank", "demographic_parity", "CLF", fold, **changes) for fold in range(n)]


def fit(cell: Cell) -> Mapping[str, Any]:
    return {"accuracy": 0.5 + cell.fold / 10, "violation": 1 / (3 + cell.fold)}


def fit_or_fail(cell: Cell) -> Mapping[str, Any]:
    if cell.fold == 1:
        raise ValueError("no\nsolution, found")
    return fit(cell)


def fit_or_die(cell: Cell) -> Mapping[str, Any]:
    if cell.fold == 1:
        os._exit(3)
    return fit(cell)


def leave_a_name(cell: Cell) -> Mapping[str, Any]:
    """Write the worker's process number next to the results; the second cell then takes for ever."""
    Path(os.environ["WORKERS"], str(os.getpid())).touch()
    if cell.fold:
        time.sleep(600)
    return fit(cell)


class Counting:
    """Counts its calls, and stops the run at one of them as Ctrl-C would."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.seen: list[int] = []
        self.stop_at = stop_at

    def __call__(self, cell: Cell) -> Mapping[str, Any]:
        self.seen.append(cell.fold)
        if len(self.seen) == self.stop_at:
            raise KeyboardInterrupt
        return fit(cell)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
