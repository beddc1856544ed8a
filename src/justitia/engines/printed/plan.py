"""The plan of engine ``printed``: the paper's schedule, its noise, and what its accountant claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from justitia._validate import check_choice, check_int, check_nonnegative, check_positive
from justitia.engines.printed.accountant import printed_epsilon, printed_noise
from justitia.engines.printed.engine import PrintedEngine
from justitia.privacy.mechanisms import Unprotected
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem
from justitia.training.plan import NO_NOISE, PlannedRelease, Round, TrainingPlan


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
        for name in ("sigma_p", "sigma_d"):
            if getattr(self, name) is not None:
                check_nonnegative(name, getattr(self, name))

    def schedule(self, n: int) -> tuple[Round, ...]:
        """T epochs of all mini-batches once (line 3), each followed by a dual step (line 5)."""
        batches = math.ceil(n / self.batch_size)
        epochs = tuple(Round(k, batches, dual=True) for k in range(1, self.epochs + 1))
        return (Round(0, self.warmup_steps, dual=False), *epochs) if self.warmup_steps else epochs

    def releases(self) -> tuple[PlannedRelease, ...]:
        """The printed method computes with the exact attribute: one release that costs everything."""
        if self.sigma_p is None or self.sigma_d is None:
            raise ValueError(NO_NOISE)
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

    def engine(self, problem: Problem, vault: SensitiveVault, **public: Any) -> PrintedEngine:
        """The engine that carries this plan out."""
        return PrintedEngine(self, problem, vault, **public)
