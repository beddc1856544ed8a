"""Plan of engine ``pf-ld-as-published``: the paper's schedule, its noise, and what its accountant claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from torch import Tensor

from justitia._validate import check_choice, check_int, check_nonnegative, check_positive
from justitia.networks.pf_ld_as_published.accountant import published_epsilon, published_noise
from justitia.networks.plan import Round, TrainingPlan
from justitia.notions import READINGS, FairnessNotion, Reading
from justitia.privacy.certificate import rounded_up
from justitia.privacy.mechanisms import Unprotected
from justitia.training.plan import NO_NOISE, PlannedRelease


@dataclass(frozen=True, kw_only=True)
class PFLDAsPublishedPlan(TrainingPlan):
    """PF-LD exactly as published, for comparison; without noise and clipping it is F-LD, Algorithm 1.

    The paper states C_p and C_d; the other defaults but the step size are in the range of the authors' public scripts
    (facts only: none of their code is used), one setting for all datasets.
    ``docs/paper.md`` says how the paper is read.

    Parameters
    ----------
    warmup_epochs : int
        Epochs of plain training before the first constrained one.
    epochs : int
        T.
    h : "score" or "probability"
        What ``h(z) = M(z)`` is where a notion averages decisions: the network's output before the sigmoid, whose range
        is unbounded as the paper says, or after it, between 0 and 1. Accuracy parity averages the loss in both.
    noise_by : "multipliers" or "lambda_max"
        Which line of Theorem 1's proof gives the sensitivity of the primal step: the last but one, with the multipliers
        of the moment, which are public by then, or the last, with their upper limit.
    loss_dual_step : float
        As ``dual_step``, for a notion whose h is the loss: its gaps are an order smaller than those of scores.
    C_p, C_d : float
        Primal and dual clipping bounds (the paper uses 10 and 5).
    absolute : "sign" or "elementwise"
        How ``|grad mu(B_P) - grad mu(B_G)|`` in Equation 10 is read: the subgradient of Algorithm 1, line 4, or
        literally the element-wise absolute value, which is not a descent direction.
    batches : "alike" or "remainder"
        What becomes of rows that do not fill a batch: all batches of a pass get one size, at most ``batch_size``, or
        the last one is smaller. Its Delta_p, C_p over the size of a group in it, can exceed all others together.
    dual_noise_ratio : float
        sigma_d / sigma_p, on which the paper is silent. The dual step takes all rows, so without a larger sigma_d it
        would use up nearly the whole budget.
    sigma_p, sigma_d : float, optional
        Noise multipliers, set by ``calibrate``; 0 means no noise and no clipping.
    claim : mapping, optional
        What the paper's accountant says these multipliers cost; set by ``calibrate``.
    """

    warmup_steps: int = 0
    warmup_epochs: int = 50
    batch_size: int = 512
    optimizer_options: Mapping[str, Any] = field(default_factory=lambda: {"weight_decay": 1e-4})
    warmup_learning_rate: float = 1e-3
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-3
    dual_step: float = 0.003
    loss_dual_step: float = 0.5
    averaging: float = 1.0
    epochs: int = 50
    h: Reading = "score"
    noise_by: Literal["multipliers", "lambda_max"] = "multipliers"
    C_p: float = 10.0
    C_d: float = 5.0
    absolute: Literal["sign", "elementwise"] = "sign"
    batches: Literal["alike", "remainder"] = "alike"
    dual_noise_ratio: float = 10.0
    sigma_p: float | None = None
    sigma_d: float | None = None
    claim: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("epochs", self.epochs, at_least=1)
        check_int("warmup_epochs", self.warmup_epochs, at_least=0)
        check_choice("h", self.h, READINGS)
        check_choice("noise_by", self.noise_by, ("multipliers", "lambda_max"))
        check_positive("loss_dual_step", self.loss_dual_step)
        check_positive("C_p", self.C_p)
        check_positive("C_d", self.C_d)
        check_positive("dual_noise_ratio", self.dual_noise_ratio)
        check_choice("batches", self.batches, ("alike", "remainder"))
        check_choice("absolute", self.absolute, ("sign", "elementwise"))
        for name in ("sigma_p", "sigma_d"):
            if getattr(self, name) is not None:
                check_nonnegative(name, getattr(self, name))

    def schedule(self, n: int) -> tuple[Round, ...]:
        """Plain epochs, then T epochs of all mini-batches once (line 3), each followed by a dual step (line 5)."""
        steps = self._batches(n)
        plain = self.warmup_steps + self.warmup_epochs * steps
        epochs = tuple(Round(k, steps, dual=True) for k in range(1, self.epochs + 1))
        return (Round(0, plain, dual=False), *epochs) if plain else epochs

    def batch_rows(self, n: int) -> int:
        """One size for all batches of a pass, or the largest that leaves a remainder."""
        return math.ceil(n / self._batches(n)) if self.batches == "alike" else super().batch_rows(n)

    def _batches(self, n: int) -> int:
        """Mini-batches of one pass over n rows."""
        return math.ceil(n / self.batch_size)

    def widths(self, inputs: int) -> tuple[int, int]:
        """Two thirds and one half of the number of inputs."""
        return max(1, 2 * inputs // 3), max(1, inputs // 2)

    def step_for(self, notion: FairnessNotion, k: int) -> float:
        """Step size s_k of this notion's k-th dual step."""
        first = self.loss_dual_step if notion.reads_labels_in == "h" else self.dual_step
        return first / (1 + self.dual_decay * k)

    def primal_sensitivity(self, lam: Tensor, sizes: Tensor) -> float:
        r"""Delta_p of Theorem 1 for multipliers (G, K) and the batch's group terms of these sizes (G, K).

        A row that moves from one group to another changes two terms of one event:

        .. math:: \frac{C_p \lambda_{k_1}}{|B_{G_{k_1}}|-1} + \frac{C_p \lambda_{k_2}}{|B_{G_{k_2}}|-1}
            \le \frac{2 C_p \lambda^{max}}{\min_i |B_{G_i}|-1}
        """
        if self.noise_by == "lambda_max":
            return 2 * self.C_p * self.lambda_max / (int(sizes.min()) - 1)
        terms = self.C_p * lam / (sizes - 1)
        return float(terms.topk(min(2, len(terms)), dim=0).values.sum(0).max())

    def releases(self) -> tuple[PlannedRelease, ...]:
        """The published method computes with the exact attribute: one release that costs everything."""
        if self.sigma_p is None or self.sigma_d is None:
            raise ValueError(NO_NOISE)
        return (PlannedRelease("exact attribute, read by the printed method", Unprotected(), 1),)

    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """Noise by the paper's moments accountant (Theorem 5), which claims (epsilon, delta)."""
        if math.isinf(epsilon):
            return replace(self, sigma_p=0.0, sigma_d=0.0, claim=None)
        schedule: dict[str, Any] = {
            "epochs": self.epochs,
            "batches_per_epoch": self._batches(n),
            "sample_rate": min(1.0, self.batch_size / n),
        }
        sigma_p = published_noise(**schedule, epsilon=epsilon, delta=delta, dual_ratio=self.dual_noise_ratio)
        sigma_d = self.dual_noise_ratio * sigma_p
        claimed = published_epsilon(**schedule, sigma_p=sigma_p, sigma_d=sigma_d, delta=delta)
        statement = f"({rounded_up(claimed)}, {rounded_up(delta)}) by the moments accountant of the paper's Theorem 5"
        claim = {"epsilon": claimed, "delta": delta, "statement": statement}
        return replace(self, sigma_p=sigma_p, sigma_d=sigma_d, claim=claim)
