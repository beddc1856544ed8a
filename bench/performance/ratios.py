"""Ratios of two programs that ran in turn: how they are measured, held against their targets, printed and kept."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

Step = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """One line of the table: ``value`` should be at most, or at least, ``target``."""

    name: str
    value: float
    relation: str
    target: float
    repetitions: int

    @property
    def passed(self) -> bool:
        """Whether the target is met."""
        return self.value <= self.target if self.relation == "<=" else self.value >= self.target


def compare(steps: dict[str, Step], base: str, turns: int, inner: int = 1) -> dict[str, float]:
    """Time of each step over the time of ``base``: the median, over turns, of the quotient within the turn."""
    quotients: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        seconds = {name: _seconds(step, inner) for name, step in steps.items()}
        if turn > 0:  # the first turn warms up
            for name in steps:
                quotients[name].append(seconds[name] / seconds[base])
    return {name: statistics.median(values) for name, values in quotients.items()}


def _seconds(step: Step, inner: int) -> float:
    start = time.perf_counter()
    for _ in range(inner):
        step()
    return time.perf_counter() - start


def table(ratios: list[Ratio]) -> str:
    lines = [f"{'ratio':<54}{'value':>9}  {'target':>8}"]
    for r in ratios:
        verdict = "pass" if r.passed else "FAIL"
        lines.append(f"{r.name:<54}{r.value:>9.2f}  {r.relation} {r.target:>5g}  {verdict}")
    return "\n".join(lines)


def report(ratios: list[Ratio], *, quick: bool) -> str:
    """JSON text: every ratio with its target, and what it was measured with."""
    lines = [{**asdict(r), "value": round(r.value, 3), "passed": r.passed} for r in ratios]
    facts = {"torch": torch.__version__, "threads": 1, "quick": quick}
    return json.dumps({**facts, "ratios": lines, "passed": all(r.passed for r in ratios)}, indent=2) + "\n"
