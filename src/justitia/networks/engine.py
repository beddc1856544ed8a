"""Interface of the engines of Algorithm 1: what an engine queries around the primal steps of a round, and what follows.

`justitia.networks.run` has the loop. An engine says what the constraint adds to a primal step (line 4) and makes the
dual step (lines 5 and 6); the engines differ in what they query for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from justitia.exceptions import Diagnostic
from justitia.privacy.interface import Vault
from justitia.training.lagrangian import Problem
from justitia.training.method import ALL_ROWS, Array, Rows


class PrimalDualEngine(ABC):
    """An engine of Algorithm 1: the constraint's part of a primal step, and the dual step.

    Only :meth:`query_before` and :meth:`query_after` query the vault, and so spend. All else is a function of public
    data and of the answers that these two have kept. Multipliers, scores and answers are arrays; what enters a primal
    step is tensors.

    Parameters
    ----------
    plan : TrainingPlan
        Calibrated.
    problem : Problem
        The public rows that the network is trained on.
    vault : Vault
    tolerance : float, optional
        Largest difference between two groups that is allowed; None leaves it to the engine.
    seed : int
        Of public randomness.

    Attributes
    ----------
    generator : torch.Generator
        Of public randomness; it also orders the mini-batches.
    save_answers : callable
        Called when the first answer is there, before anything is made of it, which takes time.
    """

    plan: Any

    def __init__(self, plan: Any, problem: Problem, vault: Vault, *, tolerance: float | None, seed: int = 0) -> None:
        self.plan, self.problem, self.vault, self.seed = plan, problem, vault, seed
        self.given = 0.0 if tolerance is None else float(tolerance)
        self.save_answers: Callable[[], object] = lambda: None
        self.generator = torch.Generator().manual_seed(seed)
        #: Features, labels, weights and events of the problem as tensors that share its memory.
        self.X, self.y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        self.weight, self.events = torch.from_numpy(problem.weight), torch.from_numpy(problem.events)

    # -- a round of Algorithm 1 -----------------------------------------------------------------------------------

    @abstractmethod
    def query_before(self, module: nn.Module, lam: Array, k: int) -> None:
        """Query what the primal steps of round k need; k = 0 is what is queried once, before everything."""

    def row_weights(self, _lam: Array, _batch: Tensor) -> Tensor | None:
        """(m,) public weights of h in the constraint of line 4, for the rows of the batch; None for nothing."""
        return None

    def constraint(self, _module: nn.Module, _lam: Array, _batch: Tensor) -> Tensor | None:
        """What the constraint adds to the gradient in line 4 besides, flat; None for nothing."""
        return None

    def dual_rows(self, _k: int) -> Rows:
        """Rows whose scores the dual step of round k uses; by default all."""
        return ALL_ROWS

    @abstractmethod
    def query_after(self, module: nn.Module, scores: Array, k: int) -> None:
        """Query what the dual step of round k needs, about the scores of the rows that it uses."""

    @abstractmethod
    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:
        """(G, K) noised violations of the scores of these rows, by the last answers; None if there are none."""

    @abstractmethod
    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Lines 5 and 6: the multipliers after the k-th dual step."""

    # -- the result -----------------------------------------------------------------------------------------------

    def compares(self, _k: int) -> bool:
        """Whether the averaged weights after round k may become the result; otherwise the last ones do."""
        return False

    def excess(self, _scores: Array, _rows: Rows = ALL_ROWS) -> float:
        """How far these scores are beyond the tolerance, without a query; only for engines that compare."""
        return 0.0

    @property
    def half(self) -> float:
        """How far each group may be from the population, so that no two differ by more than the given tolerance."""
        return self.given / 2

    @property
    def tolerance(self) -> float:
        """The largest difference between two groups that is allowed."""
        return self.given

    def gap_noise(self, _share: float) -> float:
        """Standard deviation of the difference of two groups in this share of the rows; infinite if unknown."""
        return math.inf

    def violation_stddev(self) -> float:
        """Standard error, noise and sampling, of an estimated violation; NaN where it is not known."""
        return math.nan

    def preflight(self) -> list[Diagnostic]:
        """Warnings before the first query, from public numbers."""
        return []

    def diagnostics(self) -> list[Diagnostic]:
        """Warnings after training, from public and noised numbers."""
        return []

    # -- later runs -----------------------------------------------------------------------------------------------

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Noised answers that a resumed run needs, as plain values and arrays."""

    @abstractmethod
    def restore(self, state: dict[str, Any], lost: int) -> None:
        """Continue from ``state``; the next ``lost`` answers were paid for by the earlier run and are gone."""

    def at(self, tolerance: float) -> Self:
        """An engine on the same answers with this tolerance, which queries nothing; where the plan shares answers."""
        raise TypeError(f"{type(self).__name__} has no answers that a model of tolerance {tolerance} could share.")
