"""What Algorithm 1 needs from an engine, whatever it asks of the vault."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Noise
from justitia.training.lagrangian import Problem

#: The rows of a question about everybody.
EVERYBODY = slice(None)


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
    generator : torch.Generator
        Public randomness, shared with the loop.
    """

    #: Thresholds of the scores that are held alike; None where decisions are.
    levels: NDArray[np.float64] | None = None

    def __init__(self, problem: Problem, vault: Vault, *, tolerance: float | None, generator: torch.Generator) -> None:
        self.problem = problem
        self.vault = vault
        self.tolerance = 0.0 if tolerance is None else float(tolerance)
        self.generator = generator
        #: Called with the engine when its first answer is there, before anything is made of it, which takes time.
        self.keep: Callable[[Engine], None] = lambda _: None

    @abstractmethod
    def ask_before(self, module: Any, lam: Tensor, k: int) -> None:
        """Ask what the primal steps of round k need; k = 0 is what is asked once, before everything."""

    @abstractmethod
    def ask_after(self, scores: Tensor, k: int) -> None:
        """Ask what the dual step of round k needs, about the scores of the rows that it looks at."""

    @abstractmethod
    def gap(self, scores: Tensor, seen: Tensor | slice = EVERYBODY) -> Tensor | None:
        """(G, K) noised violations of the scores of the rows seen, by the last answers; None if there are none."""

    def allowed(self) -> float:
        """The largest difference between two groups that is allowed."""
        return self.tolerance

    def gap_noise(self, share: float) -> float:
        """Standard deviation of the difference of two groups in this share of the rows; infinite if it is not known."""
        del share
        return math.inf

    def violation_spread(self) -> float:
        """Standard error, noise and sampling, of a violation that it tells; NaN where it is not known."""
        return math.nan

    def distance(self, scores: Tensor) -> float | None:
        """Largest noised difference between two groups' distributions of these scores; where there are levels."""
        del scores
        return None

    def outlook(self) -> list[str]:
        """Sentences for the user before anything is asked, made from public numbers only."""
        return []

    def remarks(self) -> list[str]:
        """Sentences for the user after training, made from public and noised numbers only."""
        return []

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Noised answers that a resumed run needs."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """Continue from ``state``; the next ``lost`` answers were paid for by the earlier run and are gone."""

    def at(self, tolerance: float) -> Self:
        """An engine on the same answers with this tolerance, which asks nothing; only where the plan shares answers."""
        raise TypeError(f"{type(self).__name__} has no answers that a model of tolerance {tolerance} could share.")


class PrimalDualEngine(Engine):
    """What Algorithm 1 needs besides: the constraint's part of a primal step, and the dual step."""

    @property
    def half(self) -> float:
        """How far each group may be from the population, so that no two differ by more than the tolerance."""
        return self.tolerance / 2

    def row_weights(self, lam: Tensor, batch: Tensor) -> Tensor | None:
        """(m,) public weights of h in the constraint of line 4, for the rows of the batch; None for nothing."""
        del lam, batch
        return None

    def constraint(self, module: nn.Module, lam: Tensor, batch: Tensor) -> Tensor | None:
        """What the constraint adds to the gradient in line 4 besides, flat; None for nothing."""
        del module, lam, batch
        return None

    def watched(self, k: int) -> Tensor | slice:
        """Rows that the dual step of round k looks at: everybody, unless said otherwise."""
        del k
        return EVERYBODY

    @abstractmethod
    def ascend(self, lam: Tensor, gap: Tensor, k: int) -> Tensor:
        """Lines 5 and 6: the multipliers after the k-th dual step."""

    def compares(self, k: int) -> bool:
        """Whether the averaged weights after round k may become the result; otherwise the last ones do."""
        del k
        return False

    def excess(self, scores: Tensor, seen: Tensor | slice = EVERYBODY) -> float:
        """How far these scores are beyond the tolerance, told without a question; only for engines that compare."""
        del scores, seen
        return 0.0


def calibrated(noise: Noise | None) -> Noise:
    """The noise of a plan that has been calibrated."""
    if noise is None:
        raise ValueError("This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first.")
    return noise
