"""Plan of engine ``moments``: what it releases, how often, and how its budget is split."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from justitia._validate import check_int, check_nonnegative, check_rate
from justitia.networks.plan import Round, TrainingPlan, rounds_of
from justitia.privacy.mechanisms import Mechanism, Unprotected
from justitia.training.plan import (
    STRICT_BELOW,
    PlannedRelease,
    budget_scale,
    calibrated,
    check_noise,
    moments_and_checks,
)

#: Purpose of the release of a fit without privacy.
REVEALED = "exact attribute, no privacy asked for"
#: Below STRICT_BELOW a tolerance gets a larger penalty, up to 1 + STRICT times as large at 0.
STRICT = 3.0
#: Inputs up to which the penalty follows the number of rows alone; beyond, it grows with their number.
USUAL_INPUTS = 50
#: Optimizers whose step is several times faster as one operation, and options that rule it out.
FUSED, EXCLUSIVE = {"Adam", "AdamW"}, {"fused", "foreach", "differentiable"}


def wide(inputs: int) -> float:
    """How many times larger the penalty is for many inputs."""
    return max(1.0, inputs / USUAL_INPUTS)


@dataclass(frozen=True, kw_only=True)
class MomentsPlan(TrainingPlan):
    """Noised sums of public rows once, then noised sums of the model's own decisions a few times; all else is free.

    Parameters
    ----------
    rounds : int
        Dual steps; they release nothing.
    public_steps : int
        Primal steps of a round.
    checks : int
        How often the sums of the current decisions are released, at even distances.
    share_moments : float
        Share of the budget (in mu^2) for the first release; the checks divide the rest evenly.
    ridge : float
        Ridge of the memberships, in units of the variance of the noise.
    dead_zone : float
        Tolerance where none is given, in standard deviations of the known noise of a gap.
    penalty : float
        L2 penalty of the weights, times the square root of the number of rows; larger for more than
        ``USUAL_INPUTS`` inputs; ``optimizer_options`` may name another.
    damping : float
        How much of the last gaps beyond the tolerance is added to the multipliers in primal steps.
    candidates : int
        The last rounds whose averaged weights are compared: the latest that meets the tolerance is the result, or else
        the nearest to it; 0 takes the last ones.
    tolerance : float, optional
        Set by ``at_tolerance``.
    noise_moments, noise_checks : Gaussian or Unprotected, optional
        Set by ``calibrate``.
    """

    small_samples: ClassVar[bool] = True
    shares_answers: ClassVar[bool] = True

    warmup_steps: int = 600
    batch_size: int = 2048
    averaging: float = 0.01
    held_out: float = 0.1
    dual_step: float = 1.0
    dual_decay: float = 0.02
    rounds: int = 200
    public_steps: int = 10
    checks: int = 4
    share_moments: float = 0.5
    ridge: float = 0.05
    dead_zone: float = 3.0
    penalty: float = 0.5
    damping: float = 1.0
    candidates: int = 50
    tolerance: float | None = None
    noise_moments: Mechanism | None = None
    noise_checks: Mechanism | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("noise_moments", "noise_checks"):
            check_noise(name, getattr(self, name))
        for name in ("rounds", "public_steps"):
            check_int(name, getattr(self, name), at_least=1)
        for name in ("checks", "candidates"):
            check_int(name, getattr(self, name), at_least=0)
        if self.checks >= self.rounds:
            raise ValueError(f"expected fewer checks than rounds ({self.rounds}), got {self.checks}; ask less often.")
        check_rate("share_moments", self.share_moments)
        if self.checks and self.share_moments == 1:
            raise ValueError("expected share_moments below 1 where checks are to be paid for, got 1; use checks=0.")
        for name in ("ridge", "dead_zone", "penalty", "damping"):
            check_nonnegative(name, getattr(self, name))
        if self.tolerance is not None:
            check_nonnegative("tolerance", self.tolerance)

    def options_at(self, n: int, inputs: int) -> dict[str, Any]:
        """The L2 penalty, where the optimizer knows one and nothing else is said; Adam as one fused operation."""
        known = inspect.signature(getattr(torch.optim, self.optimizer)).parameters
        penalty = {"weight_decay": self.penalty_used * wide(inputs) / math.sqrt(n)} if "weight_decay" in known else {}
        fused = {"fused": True} if self.optimizer in FUSED and not self.optimizer_options.keys() & EXCLUSIVE else {}
        return penalty | fused | dict(self.optimizer_options)

    def at_tolerance(self, tolerance: float | None) -> Self:
        """The plan for a tolerance that was given."""
        return replace(self, tolerance=tolerance)

    @property
    def penalty_used(self) -> float:
        """The penalty at the plan's tolerance: the stricter, the larger.

        A tolerance is meant for new rows, and what holds for training rows holds the less for others the more freely
        the weights were fitted to them.
        """
        strict = 0.0 if self.tolerance is None else max(0.0, 1 - self.tolerance / STRICT_BELOW)
        return self.penalty * (1 + STRICT * strict)

    def following(self, tolerance: float) -> Self:
        """The second half of the rounds, with the step sizes they have in the whole plan."""
        rounds = math.ceil(self.rounds / 2)
        done = self.rounds - rounds
        return replace(
            self,
            tolerance=tolerance,
            warmup_steps=0,
            rounds=rounds,
            checks=min(self.checks, rounds - 1),
            learning_rate=self.learning_rate_at(done / self.rounds),
            dual_step=self.dual_step_at(done),
            dual_decay=self.dual_decay / (1 + self.dual_decay * done),
        )

    def schedule(self, _n: int) -> tuple[Round, ...]:
        """Warm-up, then rounds on the memberships."""
        return rounds_of(self.warmup_steps, self.rounds, self.public_steps)

    @property
    def check_rounds(self) -> tuple[int, ...]:
        """Rounds after which the sums of the current decisions are released."""
        return tuple(round(self.rounds * j / (self.checks + 1)) for j in range(1, self.checks + 1))

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Moments once, decisions at every check; without noise, the attribute itself."""
        moments_noise, checks_noise = calibrated(self.noise_moments), calibrated(self.noise_checks)
        if moments_noise.is_exact:
            return (PlannedRelease(REVEALED, moments_noise, 1),)
        moments = PlannedRelease("moments", moments_noise, 1)
        checks = PlannedRelease("decisions", checks_noise, self.checks)
        return (moments, checks) if self.checks else (moments,)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:  # noqa: ARG002 - other plans need it
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        if math.isinf(epsilon):
            return replace(self, noise_moments=Unprotected(), noise_checks=Unprotected())
        moments, checks = moments_and_checks(budget_scale(epsilon, delta), self.share_moments, self.checks)
        return replace(self, noise_moments=moments, noise_checks=checks)
