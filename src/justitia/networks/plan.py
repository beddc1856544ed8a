"""Plans of the engines that train a network: the schedule of Algorithm 1, its optimizer and its step sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from justitia._validate import check_choice, check_fraction, check_int, check_nonnegative, check_positive, check_rate
from justitia.training.plan import Plan

#: Optimizers of torch that step on ordinary dense gradients, without a closure.
OPTIMIZERS = tuple(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and name not in {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
)
#: Rows of a hold-out at least.
FEWEST_HELD = 100


@dataclass(frozen=True)
class Round:
    """One pass of line 2 of Algorithm 1: its number, its primal steps, and whether a dual step follows."""

    k: int
    steps: int
    dual: bool


def rounds_of(warmup: int, last: int, steps: int) -> tuple[Round, ...]:
    """Round 0, then ``last`` equal ones; a dual step after the last would steer nothing."""
    return (Round(0, warmup, dual=True), *(Round(k, steps, dual=k < last) for k in range(1, last + 1)))


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """What the plan of an engine of Algorithm 1 has: the public part of training.

    Parameters
    ----------
    warmup_steps : int
        Plain primal steps before the first dual step, while all multipliers are zero (round 0 of Algorithm 1).
    batch_size : int
        Rows of a primal step.
    optimizer : str
        Name of a class in ``torch.optim`` for line 4 of Algorithm 1.
    optimizer_options : mapping
        Its keyword arguments besides the learning rate.
    warmup_learning_rate, learning_rate, final_learning_rate : float
        Rate of the warm-up; rate after it, falling linearly to the final one.
    dual_step, dual_decay : float
        Step sizes of the dual ascent, s_k = dual_step / (1 + dual_decay * k).
    lambda_max : float
        Largest absolute multiplier, lambda^max.
    averaging : float
        Rate of the running average of the weights that ``fit`` returns; 1 returns the last weights.
    held_out : float
        Share of the rows, a public sample, that primal steps leave out: accuracy, AUC and loss in history and curve are
        theirs. Fewer than ``FEWEST_HELD`` rows are not held out; then those numbers are of rows learned from.
    micro_batch : int
        Rows whose gradients are held in memory at once; bounds memory and never changes the answer.
    """

    trains_network: ClassVar[bool] = True
    #: Whether small samples get a default network of their own (:mod:`justitia.networks.default`).
    small_samples: ClassVar[bool] = False

    warmup_steps: int = 800
    batch_size: int = 512
    optimizer: str = "Adam"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    warmup_learning_rate: float = 2e-3
    learning_rate: float = 1e-3
    final_learning_rate: float = 2e-5
    dual_step: float = 0.2
    dual_decay: float = 0.0
    lambda_max: float = 5.0
    averaging: float = 0.003
    held_out: float = 0.0
    micro_batch: int = 4096

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "batch_size", "micro_batch"):
            check_int(name, getattr(self, name), at_least=0 if name == "warmup_steps" else 1)
        for name in ("warmup_learning_rate", "learning_rate", "dual_step"):
            check_positive(name, getattr(self, name))
        for name in ("final_learning_rate", "dual_decay", "lambda_max"):
            check_nonnegative(name, getattr(self, name))
        check_rate("averaging", self.averaging)
        check_fraction("held_out", self.held_out)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)

    @abstractmethod
    def schedule(self, n: int) -> tuple[Round, ...]:
        """The rounds of Algorithm 1 over n rows; round 0 is the warm-up."""

    def batch_rows(self, n: int) -> int:
        """Rows of a primal step over n rows."""
        return min(self.batch_size, n)

    def held_rows(self, n: int) -> NDArray[np.int64]:
        """Positions of the rows that are held out, of n; public, and the same for every run."""
        count = int(self.held_out * n)
        if count < FEWEST_HELD:
            return np.empty(0, dtype=np.int64)
        return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:count].sort().values.numpy()

    def make_optimizer(self, params: list[nn.Parameter], *, n: int, inputs: int) -> torch.optim.Optimizer:
        """The optimizer of line 4 for a run over n rows with so many inputs."""
        make = getattr(torch.optim, self.optimizer)
        optimizer: torch.optim.Optimizer = make(params, lr=self.warmup_learning_rate, **self.options_at(n, inputs))
        return optimizer

    def widths(self, _inputs: int) -> tuple[int, int] | None:
        """Hidden widths of the default network for so many inputs; None leaves them to the number of rows."""
        return None

    def options_at(self, _n: int, _inputs: int) -> dict[str, Any]:
        """Its keyword arguments for n rows with so many inputs."""
        return dict(self.optimizer_options)

    def learning_rate_at(self, progress: float) -> float:
        """Rate when ``progress`` (0 to 1) of the steps after the warm-up are done."""
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * progress

    def dual_step_at(self, k: int) -> float:
        """Step size s_k of the k-th dual step."""
        return self.dual_step / (1 + self.dual_decay * k)
