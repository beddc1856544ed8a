"""Plans: public numbers that fix a training run and know what it costs before any data is seen.

A plan is frozen. ``calibrate`` returns a new plan whose noise fits a budget; ``costs`` says what the ledger will hold
after ``fit``, and ``fit`` checks that it does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from justitia._validate import (
    check_choice,
    check_fraction,
    check_int,
    check_nonnegative,
    check_positive,
    check_rate,
)
from justitia.privacy.accounting import Cost, epsilon_spent
from justitia.privacy.costs import gaussian_mu
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected
from justitia.training.engine import Engine
from justitia.training.lagrangian import Problem

#: Optimizers of torch that step on ordinary dense gradients, without a closure.
OPTIMIZERS = tuple(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and name not in {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
)


#: Rows of a hold-out at least.
FEWEST_HELD = 100
#: Relative room for the rounding of costs that are added up again.
ROUND_OFF = 1e-12
#: Said of a plan that does not know its price yet.
NO_NOISE = "This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first."


def check_noise(name: str, noise: object) -> None:
    """Refuse what ``calibrate`` does not set."""
    if not (noise is None or isinstance(noise, Gaussian | Unprotected)):
        raise TypeError(
            f"expected {name} to be set by calibrate, got an object of type {type(noise).__name__!r}; leave it out."
        )
    if isinstance(noise, Gaussian):
        check_positive(f"the noise multiplier of {name}", noise.noise_multiplier)


def budget_scale(epsilon: float, delta: float) -> float:
    """1 / mu of Gaussian releases that together cost (epsilon, delta); a hair more, for the rounding of their sum."""
    return (1 + ROUND_OFF) / gaussian_mu(epsilon, delta)


def moments_and_checks(scale: float, share: float, checks: int) -> tuple[Gaussian, Gaussian]:
    """Noise of a first release that gets a share of mu^2 = 1/scale^2, and of checks that divide the rest evenly."""
    first = share if checks else 1.0
    each = (1 - first) / checks if checks else 1.0
    return Gaussian(scale / math.sqrt(first)), Gaussian(scale / math.sqrt(each))


@dataclass(frozen=True)
class PlannedRelease:
    """One kind of question a run will ask, how often, and with which noise."""

    purpose: str
    noise: Noise
    count: int

    @property
    def cost(self) -> Cost:
        """Price of one such release."""
        return self.noise.cost()


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
class Plan(ABC):
    """Public numbers that fix a fit: what it asks, how often, and what that costs."""

    #: Whether models of other tolerances can be made of the answers of one.
    shares_answers: ClassVar[bool] = False

    @abstractmethod
    def releases(self) -> tuple[PlannedRelease, ...]:
        """Every question this run will ask of A."""

    @abstractmethod
    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """A new plan whose releases together cost at most (epsilon, delta)."""

    @abstractmethod
    def engine(self, problem: Problem, vault: Vault, **public: Any) -> Engine:
        """The engine that carries this plan out; ``public`` are the keyword arguments of :class:`Engine`."""

    def costs(self) -> Counter[Cost]:
        """What the ledger will hold after ``fit``."""
        counts: Counter[Cost] = Counter()
        for release in self.releases():
            counts[release.cost] += release.count
        return counts

    def epsilon(self, delta: float) -> float:
        """What this plan costs."""
        return epsilon_spent(self.costs(), delta)

    def at_tolerance(self, tolerance: float | None) -> Self:
        """The plan for a tolerance that was given; the same, unless said otherwise."""
        del tolerance
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for reports and saved models."""
        return asdict(self)

    def following(self, tolerance: float) -> Self:
        """The plan of a model that is made of this one's answers, with another tolerance; it asks nothing."""
        return self.at_tolerance(tolerance)


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

    def held_rows(self, n: int) -> Tensor:
        """Positions of the rows that are held out, of n; public, and the same for every run."""
        count = int(self.held_out * n)
        if count < FEWEST_HELD:
            return torch.empty(0, dtype=torch.long)
        return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:count].sort().values

    def make_optimizer(self, params: list[nn.Parameter], *, n: int, inputs: int) -> torch.optim.Optimizer:
        """The optimizer of line 4 for a run over n rows with so many inputs."""
        make = getattr(torch.optim, self.optimizer)
        optimizer: torch.optim.Optimizer = make(params, lr=self.warmup_learning_rate, **self.options_at(n, inputs))
        return optimizer

    def widths(self, inputs: int) -> tuple[int, int] | None:
        """Hidden widths of the default network for so many inputs; None leaves them to the number of rows."""
        del inputs
        return None

    def options_at(self, n: int, inputs: int) -> dict[str, Any]:
        """Its keyword arguments for n rows with so many inputs."""
        del n, inputs
        return dict(self.optimizer_options)

    def learning_rate_at(self, progress: float) -> float:
        """Rate when ``progress`` (0 to 1) of the steps after the warm-up are done."""
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * progress

    def dual_step_at(self, k: int) -> float:
        """Step size s_k of the k-th dual step."""
        return self.dual_step / (1 + self.dual_decay * k)
