"""Interface of an engine that takes part in Algorithm 1."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from justitia.privacy.interface import Vault
from justitia.training.lagrangian import Problem
from justitia.training.method import ALL_ROWS, Array, Engine, Rows


class PrimalDualEngine(Engine):
    """An engine of Algorithm 1: the constraint's part of a primal step, and the dual step.

    Multipliers, scores and answers are arrays; what enters a primal step is tensors. ``generator`` is the source of
    public randomness, and orders the mini-batches.
    """

    def __init__(self, problem: Problem, vault: Vault, *, tolerance: float | None, seed: int = 0) -> None:
        super().__init__(problem, vault, tolerance=tolerance, seed=seed)
        self.generator = torch.Generator().manual_seed(seed)
        #: Features, labels, weights and events of the problem as tensors that share its memory.
        self.X, self.y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        self.weight, self.events = torch.from_numpy(problem.weight), torch.from_numpy(problem.events)

    @property
    def half(self) -> float:
        """How far each group may be from the population, so that no two differ by more than the tolerance."""
        return self.tolerance / 2

    def row_weights(self, lam: Array, batch: Tensor) -> Tensor | None:
        """(m,) public weights of h in the constraint of line 4, for the rows of the batch; None for nothing."""
        del lam, batch
        return None

    def constraint(self, module: nn.Module, lam: Array, batch: Tensor) -> Tensor | None:
        """What the constraint adds to the gradient in line 4 besides, flat; None for nothing."""
        del module, lam, batch
        return None

    def watched(self, k: int) -> Rows:
        """Rows that the dual step of round k looks at: everybody, unless said otherwise."""
        del k
        return ALL_ROWS

    @abstractmethod
    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Lines 5 and 6: the multipliers after the k-th dual step."""

    def compares(self, k: int) -> bool:
        """Whether the averaged weights after round k may become the result; otherwise the last ones do."""
        del k
        return False

    def excess(self, scores: Array, seen: Rows = ALL_ROWS) -> float:
        """How far these scores are beyond the tolerance, told without a question; only for engines that compare."""
        del scores, seen
        return 0.0
