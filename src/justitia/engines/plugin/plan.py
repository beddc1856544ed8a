"""The plan of engine ``plugin``: what it asks, how often, and how its budget is split."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from justitia._validate import check_int, check_nonnegative, check_rate
from justitia.engines.plugin.engine import PluginEngine
from justitia.privacy.costs import gaussian_mu
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected
from justitia.training.lagrangian import Problem
from justitia.training.plan import NO_NOISE, Plan, PlannedRelease, check_noise

#: Relative room for the rounding of costs that are added up again.
ROUND_OFF = 1e-12


@dataclass(frozen=True, kw_only=True)
class PluginPlan(Plan):
    """Noised sums of public rows once, then noised sums of the current decisions a few times.

    Parameters
    ----------
    checks : int
        How often the sums of the current decisions are asked for; the dual is solved again after each.
    share_moments : float
        Share of the budget (in mu^2) for the first release; the checks divide the rest evenly.
    ridge : float
        Ridge of the memberships, in units of the variance of the noise.
    trust : float
        How wrong the rates under the memberships are taken to be before any check: the prior standard deviation that
        the known noise of the checks is weighed against.
    least : float
        Smallest tolerance where none is given.
    dead_zone : float
        Tolerance where none is given, in standard errors of the difference of two groups' rates: sampling and noise.
    micro_batch : int
        Rows whose columns are held in memory at once; bounds memory and never changes the answer.
    noise_moments, noise_checks : Gaussian or Unprotected, optional
        Set by ``calibrate``.
    """

    shares_answers: ClassVar[bool] = True

    checks: int = 4
    share_moments: float = 0.5
    ridge: float = 0.05
    trust: float = 0.02
    least: float = 0.01
    dead_zone: float = 1.0
    micro_batch: int = 65_536
    noise_moments: Noise | None = None
    noise_checks: Noise | None = None

    def __post_init__(self) -> None:
        for name in ("noise_moments", "noise_checks"):
            check_noise(name, getattr(self, name))
        check_int("checks", self.checks, at_least=0)
        check_int("micro_batch", self.micro_batch, at_least=1)
        check_rate("share_moments", self.share_moments)
        if self.checks and self.share_moments == 1:
            raise ValueError("expected share_moments below 1 where checks are to be paid for, got 1; use checks=0.")
        for name in ("ridge", "trust", "least", "dead_zone"):
            check_nonnegative(name, getattr(self, name))

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Moments once, decisions at every check."""
        if self.noise_moments is None or self.noise_checks is None:
            raise ValueError(NO_NOISE)
        moments = PlannedRelease("moments", self.noise_moments, 1)
        checks = PlannedRelease("decisions", self.noise_checks, self.checks)
        return (moments, checks) if self.checks else (moments,)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        del n
        if math.isinf(epsilon):
            return replace(self, noise_moments=Unprotected(), noise_checks=Unprotected())
        return self._with_noise((1 + ROUND_OFF) / gaussian_mu(epsilon, delta))

    def _with_noise(self, scale: float) -> Self:
        """The moments get their share of mu^2 = 1/scale^2, each check an equal part of the rest."""
        first = self.share_moments if self.checks else 1.0
        each = (1 - first) / max(self.checks, 1)
        checks = Gaussian(scale / math.sqrt(each)) if self.checks else Gaussian(scale)
        return replace(self, noise_moments=Gaussian(scale / math.sqrt(first)), noise_checks=checks)

    def engine(self, problem: Problem, vault: Vault, **public: Any) -> PluginEngine:
        """The engine that carries this plan out; that of a crowd, where the problem is a sample of one."""
        if problem.crowd is not None:
            from justitia.engines.plugin.crowd import CrowdEngine  # noqa: PLC0415 - which needs the plan

            return CrowdEngine(self, problem, vault, **public)
        return PluginEngine(self, problem, vault, **public)
