"""Interfaces of what a fit trains: a method (its public part) and one run of it (what it asks the vault).

Two families implement them: :mod:`justitia.postprocessing` corrects a base model, :mod:`justitia.networks` trains a
network by Algorithm 1. A session knows nothing else of either.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from justitia.exceptions import Diagnostic
from justitia.privacy.interface import Vault
from justitia.training.checkpoint import Checkpoint
from justitia.training.diagnostics import (
    decision_diagnostics,
    public_scores,
    violation_diagnostics,
    weighted_accuracy,
)
from justitia.training.lagrangian import Problem, largest_gap

Array = NDArray[Any]
#: Positions of rows, or all of them.
Rows = NDArray[np.int64] | slice
ALL_ROWS = slice(None)
#: ``bar(total, name)`` gives a progress bar.
Bar = Callable[[int, str], "AbstractContextManager[tqdm[Any]]"]


def progress_bar(shown: bool | None, total: int, name: str, **options: Any) -> tqdm[Any]:
    """A progress bar, which is gone when the work is done; with None only in a terminal."""
    if shown is None:
        shown = sys.stderr is not None and sys.stderr.isatty()
    return tqdm(total=total, disable=not shown, desc=name, leave=False, **{"unit": "step"} | options)


def pass_bar(shown: bool | None, rows: int, name: str) -> tqdm[Any]:
    """The bar of one pass over rows."""
    return progress_bar(shown, rows, name, unit="row", unit_scale=True)


class AnswersRefuse(ValueError):
    """Noised answers show that a run cannot work. The session adds to its text what these answers have cost."""


@dataclass(frozen=True)
class Trained:
    """The result of training: multipliers, and a history of public or noised numbers."""

    lam: Array
    history: list[dict[str, Any]]


class Run(ABC):
    """One run of a method: its queries to the vault, and what follows from the answers.

    Only :meth:`train` queries the vault. All else is a function of public data and of the answers.

    Attributes
    ----------
    problem : Problem
        The public part of the data.
    vault : Vault
    """

    problem: Problem
    vault: Vault

    @abstractmethod
    def train(self, bar: Bar, *, start: Array | None = None, checkpoint: Checkpoint | None = None) -> Trained:
        """Carry the plan out; a run that follows another one starts from its multipliers."""

    @abstractmethod
    def at(self, tolerance: float) -> Self:
        """A run on the same answers with this tolerance; it queries nothing. Only where the plan shares answers."""

    @property
    @abstractmethod
    def tolerance(self) -> float:
        """The largest difference between two groups that is allowed."""

    @abstractmethod
    def fitted(self) -> Any:
        """The model that is deployed."""

    @abstractmethod
    def scores(self) -> Array:
        """(n,) scores of the training rows, positive is a positive decision; of classes (n, K), the largest decides."""

    def deployed_scores(self) -> Array:
        """(n,) scores of the training rows by the deployed model."""
        return self.scores()

    def base_scores(self) -> Array | None:
        """(n,) scores of the training rows without a constraint, where they are known."""
        return None

    def held_out(self) -> Rows:
        """Rows whose scores come from models that have not learned from them; by default all."""
        return ALL_ROWS

    @abstractmethod
    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:
        """(G, K) noised violations of the scores of these rows, by the last answers; None if there are none."""

    def worst(self, scores: Array, rows: Rows = ALL_ROWS) -> tuple[float, float] | None:
        """The noised violation of these scores that is farthest beyond what is allowed, and what is allowed."""
        gap = self.gap(scores, rows)
        return None if gap is None else (largest_gap(gap), self.tolerance)

    def gap_noise(self) -> float:
        """Standard deviation of the difference of two groups in the rows that are held out; infinite if unknown."""
        return math.inf

    def violation_stddev(self) -> float:
        """Standard error, noise and sampling, of an estimated violation; NaN where it is not known."""
        return math.nan

    def distance(self) -> float | None:
        """Largest noised difference between two groups' distributions of deployed scores, where these are alike."""
        return None

    def price(self) -> pd.DataFrame | None:
        """Quality against violation along a grid of tolerances, from answers that were released; None without one."""
        return None

    def public_scores(self, scores: Array, rows: Rows) -> dict[str, float]:
        """How good scores of these rows are, by public labels."""
        return public_scores(scores[rows], self.problem.y[rows], self.problem.weight[rows])

    def rate_names(self) -> tuple[str, ...]:
        """Names of the K rates that groups are compared by."""
        return tuple(self.problem.notion.event_names)

    def preflight(self) -> list[Diagnostic]:
        """Warnings before the first query, from public numbers."""
        return []

    def diagnostics(self) -> list[Diagnostic]:
        """Warnings after training, from public and noised numbers."""
        return []

    def learned_diagnostics(self) -> list[Diagnostic]:
        """Warnings about the deployed decisions, from public labels and noised gaps."""
        problem, scores, base, held = self.problem, self.deployed_scores(), self.base_scores(), self.held_out()
        learned = decision_diagnostics(problem, scores, None if base is None else weighted_accuracy(problem, base))
        worst = self.worst(scores[held], held)
        return learned + ([] if worst is None else violation_diagnostics(*worst, self.gap_noise()))


class Method(ABC):
    """The public part of what a fit trains; runs share it.

    Attributes
    ----------
    problem : Problem
    """

    problem: Problem

    @abstractmethod
    def check(self) -> None:
        """Raise ``ValueError`` for anything wrong that public rows show, before the first query."""

    @abstractmethod
    def shape(self) -> Any:
        """A public value whose text form differs between methods that cannot resume each other's run."""

    def goal_facts(self) -> tuple[Any, ...]:
        """Public values that say what is compared between groups; runs with others cannot resume each other."""
        return self.problem.notion.name, self.problem.notion.event_names

    @abstractmethod
    def prepare(self, bar: Bar) -> None:
        """Learn what is public and needs no query."""

    @abstractmethod
    def run(self, plan: Any, vault: Vault, *, tolerance: Any) -> Run:
        """One run of a calibrated plan; runs of one method do not change each other."""
