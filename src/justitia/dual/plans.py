"""The three plans: what each engine asks, how often, and how its budget is split."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch

from justitia._validate import check_choice, check_fraction, check_int, check_nonnegative, check_positive, check_rate
from justitia.dual.plan import PlannedRelease, Round, TrainingPlan, rounds_of
from justitia.notions import FairnessNotion
from justitia.privacy.accounting import calibrate
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected
from justitia.privacy.renyi import printed_epsilon, printed_noise

#: A tolerance below this asks for a larger penalty, up to 1 + STRICT times as large at 0.
STRICT_BELOW, STRICT = 0.03, 3.0
#: Rows that are few for a constraint that reads labels, inputs beyond which no network has pieces, and which have them.
FEW, MOST_INPUTS = 20_000, 128
FEW_PEOPLE = {"nothing": "multilayer", "events": "piecewise", "h": "cross-fitted"}
#: Optimizers whose step is several times faster as one operation, and options that rule it out.
FUSED, EXCLUSIVE = {"Adam", "AdamW"}, {"fused", "foreach", "differentiable"}


@dataclass(frozen=True, kw_only=True)
class GradientsPlan(TrainingPlan):
    """The repaired PF-LD: noised sizes once, then a noised group gradient and a noised violation per round.

    Parameters
    ----------
    private_steps : int
        Rounds; each asks for one violation and one group gradient.
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
    share_sizes: float = 0.04
    share_violations: float = 0.16
    share_gradients: float = 0.80
    clip: float | Literal["auto"] = "auto"
    noise_sizes: Noise | None = None
    noise_violations: Noise | None = None
    noise_gradients: Noise | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def schedule(self, n: int) -> tuple[Round, ...]:
        """Warm-up, then rounds steered by one group gradient each."""
        del n
        return rounds_of(self.warmup_steps, self.private_steps, self.public_steps)

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Sizes once; a violation and a group gradient per round."""
        if self.noise_sizes is None or self.noise_violations is None or self.noise_gradients is None:
            raise ValueError("This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first.")
        return (
            PlannedRelease("group sizes", self.noise_sizes, 1),
            PlannedRelease("violation", self.noise_violations, self.private_steps),
            PlannedRelease("group gradient", self.noise_gradients, self.private_steps),
        )

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        del n
        if math.isinf(epsilon):
            return self._with_noise(None)
        scale = calibrate(lambda scale: self._with_noise(scale).costs(), epsilon, delta)
        return self._with_noise(scale)

    def _with_noise(self, scale: float | None) -> Self:
        """Each kind of release gets its share of mu^2 = 1/scale^2: count / sigma^2 = share / scale^2."""

        def noise(count: int, share: float) -> Noise:
            return Unprotected() if scale is None else Gaussian(scale * math.sqrt(count / share))

        return replace(
            self,
            noise_sizes=noise(1, self.share_sizes),
            noise_violations=noise(self.private_steps, self.share_violations),
            noise_gradients=noise(self.private_steps, self.share_gradients),
        )


@dataclass(frozen=True, kw_only=True)
class MomentsPlan(TrainingPlan):
    """Noised sums of public rows once, then noised sums of the model's own decisions a few times; all else is free.

    Parameters
    ----------
    rounds : int
        Dual steps; they ask nothing.
    public_steps : int
        Primal steps of a round.
    checks : int
        How often the sums of the current decisions are asked for, evenly spread over the rounds.
    share_moments : float
        Share of the budget (in mu^2) for the first release; the checks divide the rest evenly.
    ridge : float
        Ridge of the memberships, in units of the variance of the noise.
    dead_zone : float
        Tolerance where none is given, in standard deviations of the known noise of a gap.
    penalty : float
        L2 penalty of the weights, times the square root of the number of rows; ``optimizer_options`` may name another.
    damping : float
        How much of the last gaps beyond the tolerance is added to the multipliers in primal steps.
    candidates : int
        The last rounds whose averaged weights are compared: the latest that meets the tolerance is the result, or else
        the nearest to it; 0 takes the last ones.
    noise_moments, noise_checks : Gaussian or Unprotected, optional
        Set by ``calibrate``.
    """

    warmup_steps: int = 600
    batch_size: int = 2048
    averaging: float = 0.01
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
    noise_moments: Noise | None = None
    noise_checks: Noise | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def options_at(self, n: int) -> dict[str, Any]:
        """The L2 penalty, where the optimizer knows one and nothing else is said; Adam as one fused operation."""
        known = inspect.signature(getattr(torch.optim, self.optimizer)).parameters
        penalty = {"weight_decay": self.penalty / math.sqrt(n)} if "weight_decay" in known else {}
        fused = {"fused": True} if self.optimizer in FUSED and not self.optimizer_options.keys() & EXCLUSIVE else {}
        return penalty | fused | dict(self.optimizer_options)

    def at_tolerance(self, tolerance: float | None) -> Self:
        """The plan for a tolerance that was given.

        It is meant for people to come, and what holds for training people holds the less for others the more freely
        the weights were fitted to them: the stricter, the larger the penalty.
        """
        strict = 0.0 if tolerance is None else max(0.0, 1 - tolerance / STRICT_BELOW)
        return replace(self, penalty=self.penalty * (1 + STRICT * strict))

    def network(self, notion: FairnessNotion, *, n: int, inputs: int) -> str:
        """Where people are few it depends on where the constraint reads labels; what many teach, any network learns."""
        few = n <= FEW and inputs <= MOST_INPUTS
        return FEW_PEOPLE[notion.reads_labels_in] if few else super().network(notion, n=n, inputs=inputs)

    def second_half(self) -> Self:
        """The second half of the rounds, with the step sizes they have in the whole plan."""
        rounds = math.ceil(self.rounds / 2)
        done = self.rounds - rounds
        return replace(
            self,
            warmup_steps=0,
            rounds=rounds,
            checks=min(self.checks, rounds - 1),
            learning_rate=self.learning_rate_at(done / self.rounds),
            dual_step=self.dual_step_at(done),
            dual_decay=self.dual_decay / (1 + self.dual_decay * done),
        )

    def schedule(self, n: int) -> tuple[Round, ...]:
        """Warm-up, then rounds on the memberships."""
        del n
        return rounds_of(self.warmup_steps, self.rounds, self.public_steps)

    @property
    def check_rounds(self) -> tuple[int, ...]:
        """Rounds after which the current decisions are asked about."""
        return tuple(round(self.rounds * j / (self.checks + 1)) for j in range(1, self.checks + 1))

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Moments once, decisions at every check; without noise, the attribute itself."""
        if self.noise_moments is None or self.noise_checks is None:
            raise ValueError("This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first.")
        if isinstance(self.noise_moments, Unprotected):
            return (PlannedRelease("exact attribute, no privacy asked for", self.noise_moments, 1),)
        moments = PlannedRelease("moments", self.noise_moments, 1)
        checks = PlannedRelease("decisions", self.noise_checks, self.checks)
        return (moments, checks) if self.checks else (moments,)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """A new plan whose releases together cost (epsilon, delta); infinite epsilon means no noise at all."""
        del n
        if math.isinf(epsilon):
            return self._with_noise(None)
        return self._with_noise(calibrate(lambda scale: self._with_noise(scale).costs(), epsilon, delta))

    def _with_noise(self, scale: float | None) -> Self:
        """The moments get their share of mu^2 = 1/scale^2, each check an equal part of the rest."""
        if scale is None:
            return replace(self, noise_moments=Unprotected(), noise_checks=Unprotected())
        first = self.share_moments if self.checks else 1.0
        each = (1 - first) / max(self.checks, 1)
        checks = Gaussian(scale / math.sqrt(each)) if self.checks else Gaussian(scale)
        return replace(self, noise_moments=Gaussian(scale / math.sqrt(first)), noise_checks=checks)


@dataclass(frozen=True, kw_only=True)
class PrintedPlan(TrainingPlan):
    """PF-LD exactly as printed, for comparison; without noise and clipping it is F-LD, Algorithm 1.

    Parameters
    ----------
    epochs : int
        T.
    C_p, C_d : float
        Primal and dual clipping bounds (the paper uses 10 and 5).
    absolute : "sign" or "elementwise"
        How ``|grad mu(B_P) - grad mu(B_G)|`` in Equation 10 is read: the subgradient of Algorithm 1, line 4, or
        literally the element-wise absolute value, which is not a descent direction.
    dual_noise_ratio : float
        sigma_d / sigma_p, on which the paper is silent. The dual step takes all rows, so without a larger sigma_d it
        would use up nearly the whole budget.
    sigma_p, sigma_d : float, optional
        Noise multipliers, set by ``calibrate``; 0 means no noise and no clipping.
    claim : mapping, optional
        What the paper's accountant says these multipliers cost; set by ``calibrate``.
    """

    warmup_steps: int = 0
    batch_size: int = 256
    averaging: float = 1.0
    epochs: int = 50
    C_p: float = 10.0
    C_d: float = 5.0
    absolute: Literal["sign", "elementwise"] = "sign"
    dual_noise_ratio: float = 10.0
    sigma_p: float | None = None
    sigma_d: float | None = None
    claim: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("epochs", self.epochs, at_least=1)
        check_positive("C_p", self.C_p)
        check_positive("C_d", self.C_d)
        check_positive("dual_noise_ratio", self.dual_noise_ratio)
        check_choice("absolute", self.absolute, ("sign", "elementwise"))

    def schedule(self, n: int) -> tuple[Round, ...]:
        """T epochs of all mini-batches once (line 3), each followed by a dual step (line 5)."""
        batches = math.ceil(n / self.batch_size)
        epochs = tuple(Round(k, batches, dual=True) for k in range(1, self.epochs + 1))
        return (Round(0, self.warmup_steps, dual=False), *epochs) if self.warmup_steps else epochs

    def releases(self) -> tuple[PlannedRelease, ...]:
        """The printed method computes with the exact attribute: one release that costs everything."""
        return (PlannedRelease("exact attribute, read by the printed method", Unprotected(), 1),)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """Noise by the paper's moments accountant (Theorem 5), which claims (epsilon, delta)."""
        if math.isinf(epsilon):
            return replace(self, sigma_p=0.0, sigma_d=0.0, claim=None)
        schedule: dict[str, Any] = {
            "epochs": self.epochs,
            "batches_per_epoch": math.ceil(n / self.batch_size),
            "sample_rate": min(1.0, self.batch_size / n),
        }
        sigma_p = printed_noise(**schedule, epsilon=epsilon, delta=delta, dual_ratio=self.dual_noise_ratio)
        sigma_d = self.dual_noise_ratio * sigma_p
        claimed = printed_epsilon(**schedule, sigma_p=sigma_p, sigma_d=sigma_d, delta=delta)
        statement = f"({claimed:.4g}, {delta:.4g}) by the moments accountant of the paper's Theorem 5"
        claim = {"epsilon": claimed, "delta": delta, "statement": statement}
        return replace(self, sigma_p=sigma_p, sigma_d=sigma_d, claim=claim)


#: The plan an engine starts from when none is given.
DEFAULT_PLANS: dict[str, TrainingPlan] = {
    "moments": MomentsPlan(),
    "gradients": GradientsPlan(),
    "printed": PrintedPlan(),
}
