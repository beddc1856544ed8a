"""Plan of engine ``pf-ld``: what it releases, how often, and how its budget is split."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from justitia._validate import check_fraction, check_int, check_positive, check_rate
from justitia.networks.plan import Round, TrainingPlan, rounds_of
from justitia.privacy.accounting import calibrate
from justitia.privacy.mechanisms import Gaussian, Mechanism, Unprotected
from justitia.training.plan import PlannedRelease, calibrated, check_noise


@dataclass(frozen=True, kw_only=True)
class PFLDPlan(TrainingPlan):
    """The repaired PF-LD: noised sizes once, then a noised group gradient and a noised violation per round.

    Parameters
    ----------
    private_steps : int
        Rounds; each releases one violation and one group gradient.
    public_steps : int
        Primal steps steered by one noised group gradient.
    memory : float
        Weight of the past in the running average of noised group gradients.
    share_sizes, share_violations, share_gradients : float
        How the budget (in mu^2) is split; they add up to 1.
    clip : float or "auto"
        C_p; "auto" minimises Theorem 6 for the repaired sum, with public norms and noised sizes. There is no C_d here:
        violations are sums of hard decisions less their mean, bounded by 1, and clipping those would only add bias.
    noise_sizes, noise_violations, noise_gradients : Gaussian or Unprotected, optional
        Set by ``calibrate``.
    """

    private_steps: int = 100
    public_steps: int = 10
    memory: float = 0.8
    held_out: float = 0.1
    share_sizes: float = 0.04
    share_violations: float = 0.16
    share_gradients: float = 0.80
    clip: float | Literal["auto"] = "auto"
    noise_sizes: Mechanism | None = None
    noise_violations: Mechanism | None = None
    noise_gradients: Mechanism | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("noise_sizes", "noise_violations", "noise_gradients"):
            check_noise(name, getattr(self, name))
        for name in ("private_steps", "public_steps"):
            check_int(name, getattr(self, name), at_least=1)
        check_fraction("memory", self.memory)
        for name in ("share_sizes", "share_violations", "share_gradients"):
            check_rate(name, getattr(self, name))
        total = self.share_sizes + self.share_violations + self.share_gradients
        if not math.isclose(total, 1.0, rel_tol=1e-6):
            raise ValueError(f"Expected budget shares that add up to 1; got {total:.4g}. Change one of the three.")
        if self.clip != "auto":
            check_positive("clip", self.clip)

    def schedule(self, _n: int) -> tuple[Round, ...]:
        """Warm-up, then rounds steered by one group gradient each."""
        return rounds_of(self.warmup_steps, self.private_steps, self.public_steps)

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Sizes once; a violation and a group gradient per round."""
        return (
            PlannedRelease("group sizes", calibrated(self.noise_sizes), 1),
            PlannedRelease("violation", calibrated(self.noise_violations), self.private_steps),
            PlannedRelease("group gradient", calibrated(self.noise_gradients), self.private_steps),
        )

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:  # noqa: ARG002 - other plans need it
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        if math.isinf(epsilon):
            return self._with_noise(None)
        scale = calibrate(lambda scale: self._with_noise(scale).costs(), epsilon, delta)
        return self._with_noise(scale)

    def _with_noise(self, scale: float | None) -> Self:
        """Each kind of release gets its share of mu^2 = 1/scale^2: count / sigma^2 = share / scale^2."""

        def noise(count: int, share: float) -> Mechanism:
            return Unprotected() if scale is None else Gaussian(scale * math.sqrt(count / share))

        return replace(
            self,
            noise_sizes=noise(1, self.share_sizes),
            noise_violations=noise(self.private_steps, self.share_violations),
            noise_gradients=noise(self.private_steps, self.share_gradients),
        )
