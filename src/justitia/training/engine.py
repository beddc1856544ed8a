"""Interface of an engine: what it asks of the vault, and what follows from the answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import Diagnostic
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Noise
from justitia.training.lagrangian import Problem

Array = NDArray[Any]
#: Positions of rows, or all of them.
Rows = NDArray[np.int64] | slice
#: The rows of a question about everybody.
ALL_ROWS = slice(None)


class AnswersRefuse(ValueError):
    """Noised answers say that a run cannot work. The session adds to its text what these answers have cost."""


class Engine(ABC):
    """What every engine has: two calls that ask, and what it says of the answers.

    Two calls may ask the vault, and so spend: :meth:`ask_before` and :meth:`ask_after`. All others are functions of
    public data and of the answers that these two have kept.

    Parameters
    ----------
    problem : Problem
        The public part of the data.
    vault : Vault
        The only way to the attribute.
    tolerance : float, optional
        Largest difference between two groups that is allowed; None leaves it to the engine.
    seed : int
        Of public randomness.
    """

    #: Thresholds of the scores that are held alike; None where decisions are.
    levels: NDArray[np.float64] | None = None

    def __init__(self, problem: Problem, vault: Vault, *, tolerance: float | None, seed: int = 0) -> None:
        self.problem = problem
        self.vault = vault
        self.tolerance = 0.0 if tolerance is None else float(tolerance)
        self.seed = seed
        #: Called with the engine when its first answer is there, before anything is made of it, which takes time.
        self.keep: Callable[[Engine], None] = lambda _: None

    @abstractmethod
    def ask_before(self, module: Any, lam: Array, k: int) -> None:
        """Ask what the primal steps of round k need; k = 0 is what is asked once, before everything."""

    @abstractmethod
    def ask_after(self, scores: Array, k: int) -> None:
        """Ask what the dual step of round k needs, about the scores of the rows that it looks at."""

    @abstractmethod
    def gap(self, scores: Array, seen: Rows = ALL_ROWS) -> Array | None:
        """(G, K) noised violations of the scores of the rows seen, by the last answers; None if there are none."""

    def allowed(self) -> float:
        """The largest difference between two groups that is allowed."""
        return self.tolerance

    def gap_noise(self, share: float) -> float:
        """Standard deviation of the difference of two groups in this share of the rows; infinite if it is not known."""
        del share
        return math.inf

    def violation_stddev(self) -> float:
        """Standard error, noise and sampling, of a violation that it tells; NaN where it is not known."""
        return math.nan

    def distance(self, scores: Array) -> float | None:
        """Largest noised difference between two groups' distributions of these scores; where there are levels."""
        del scores
        return None

    def outlook(self) -> list[Diagnostic]:
        """Sentences for the user before anything is asked, made from public numbers only."""
        return []

    def remarks(self) -> list[Diagnostic]:
        """Sentences for the user after training, made from public and noised numbers only."""
        return []

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """Noised answers that a resumed run needs."""

    @abstractmethod
    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Continue from ``state``; the next ``lost`` answers were paid for by the earlier run and are gone."""

    def at(self, tolerance: float) -> Self:
        """An engine on the same answers with this tolerance, which asks nothing; only where the plan shares answers."""
        raise TypeError(f"{type(self).__name__} has no answers that a model of tolerance {tolerance} could share.")


def calibrated(noise: Noise | None) -> Noise:
    """The noise of a plan that has been calibrated."""
    if noise is None:
        raise ValueError("This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first.")
    return noise
