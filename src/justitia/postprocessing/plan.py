"""The plan of engine ``post-processing``: what it asks, how often, and how its budget is split."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from justitia._validate import check_choice, check_fraction, check_int, check_nonnegative, check_rate
from justitia.privacy.mechanisms import Gaussian, Mechanism, Unprotected
from justitia.training.plan import Plan, PlannedRelease, budget_scale, calibrated, check_noise, moments_and_checks

#: Below this epsilon the correction spares accuracy where no tolerance is given.
SMALL_EPSILON = 0.3
#: Where a constraint can hold.
AT = ("decision", "scores")


@dataclass(frozen=True, kw_only=True)
class PostProcessingPlan(Plan):
    """Noised sums of public rows once, then noised sums of the current decisions a few times.

    Before them, if a share of the budget is set aside for it, noised sizes of the groups: a run that they say cannot
    work stops there with ``ValueError``, and the rest is not spent.

    Parameters
    ----------
    checks : int
        How often the sums of the current decisions are asked for; the dual is solved again after each.
    share_sizes : float
        Share of the budget (in mu^2) for sizes of the groups; 0 asks for none.
    share_moments : float
        Share of the rest for the moments; the checks divide what is left evenly.
    ridge : float
        Ridge of the memberships, in units of the variance of the noise.
    trust : float
        How wrong the rates under the memberships are taken to be before any check: the prior standard deviation that
        the known noise of the checks is weighed against.
    least : float
        Smallest tolerance where none is given.
    dead_zone : float
        Tolerance where none is given, in standard errors of the difference of two groups' rates: sampling and noise.
    most_lost : float
        Accuracy, out of fold, that the correction of classes may cost where no tolerance is given and the budget is
        small, or the noise of differences between groups exceeds what is to be corrected; 1 is any.
    small_budget : bool
        Set by ``calibrate``: whether epsilon is below 0.3.
    at : {"decision", "scores"}
        Where the constraint holds; set by the estimator.
    levels : int
        Quantiles of the score where it holds with ``at="scores"``.
    micro_batch : int
        Rows whose columns are held in memory at once; bounds memory and never changes the answer.
    noise_sizes, noise_moments, noise_checks : Gaussian or Unprotected, optional
        Set by ``calibrate``.
    """

    shares_answers: ClassVar[bool] = True

    checks: int = 4
    share_sizes: float = 0.0
    share_moments: float = 0.5
    ridge: float = 0.05
    trust: float = 0.1
    least: float = 0.01
    dead_zone: float = 1.0
    # Three points are promised on new rows; half a point is for chance and for what learning the correction costs.
    most_lost: float = 0.025
    small_budget: bool = False
    at: str = "decision"
    levels: int = 19
    micro_batch: int = 65_536
    noise_sizes: Mechanism | None = None
    noise_moments: Mechanism | None = None
    noise_checks: Mechanism | None = None

    def __post_init__(self) -> None:
        for name in ("noise_sizes", "noise_moments", "noise_checks"):
            check_noise(name, getattr(self, name))
        check_int("checks", self.checks, at_least=0)
        check_choice("at", self.at, AT)
        check_int("levels", self.levels, at_least=1)
        check_int("micro_batch", self.micro_batch, at_least=1)
        check_rate("share_moments", self.share_moments)
        check_fraction("share_sizes", self.share_sizes, example=0.05)
        if self.checks and self.share_moments == 1:
            raise ValueError("expected share_moments below 1 where checks are to be paid for, got 1; use checks=0.")
        for name in ("ridge", "trust", "least", "dead_zone", "most_lost"):
            check_nonnegative(name, getattr(self, name))

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Sizes once if they are wanted, moments once, decisions at every check."""
        sizes = () if self.noise_sizes is None else (PlannedRelease("sizes", self.noise_sizes, 1),)
        moments = PlannedRelease("moments", calibrated(self.noise_moments), 1)
        checks = PlannedRelease("decisions", calibrated(self.noise_checks), self.checks)
        return (*sizes, moments, checks) if self.checks else (*sizes, moments)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:  # noqa: ARG002 - other plans need it
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        if math.isinf(epsilon):
            exact = Unprotected()
            return replace(self, small_budget=False, noise_sizes=None, noise_moments=exact, noise_checks=exact)
        scale = budget_scale(epsilon, delta)
        sizes = Gaussian(scale / math.sqrt(self.share_sizes)) if self.share_sizes else None
        rest = scale / math.sqrt(1 - self.share_sizes)
        moments, checks = moments_and_checks(rest, self.share_moments, self.checks)
        small = epsilon < SMALL_EPSILON
        return replace(self, small_budget=small, noise_sizes=sizes, noise_moments=moments, noise_checks=checks)
