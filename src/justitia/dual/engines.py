"""What each engine asks the vault: ``gradients`` (the repaired PF-LD) and ``printed`` (PF-LD as published).

An engine answers two questions of the loop: what the constraint adds to a primal step (line 4 of Algorithm 1), and how
large the violation is (line 5). ``gradients`` sees only noised sums. ``printed`` has the vault reveal the attribute,
which its certificate states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from justitia.dual.clipping import minimise_error_bound
from justitia.dual.engine import EVERYBODY, Engine, calibrated
from justitia.dual.gradients import Layout, ScoreRows, find_layout, score_rows
from justitia.dual.lagrangian import (
    Problem,
    ascend,
    ascend_printed,
    centred_rows,
    group_weights,
    population_weights,
    row_bound,
    usable_sizes,
)
from justitia.dual.moments import MomentsEngine
from justitia.dual.plan import TrainingPlan
from justitia.dual.plans import GradientsPlan, MomentsPlan, PrintedPlan
from justitia.notions import FairnessNotion
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected
from justitia.privacy.vault import SensitiveVault

#: Rows whose public gradients are looked at for their means and norms; their number is a matter of speed only.
PUBLIC_SAMPLE = 4096
#: A bound that no gradient reaches.
UNCLIPPED = 1e12
#: "auto" never clips more than all but this share of the rows.
LEAST_UNCLIPPED = 0.1


def h_slope(notion: FairnessNotion, scores: Tensor, y: Tensor) -> Tensor:
    """(n,): derivative of h with respect to the score, so that grad h_i = h'(s_i) grad s_i."""
    with torch.enable_grad():
        s = scores.detach().requires_grad_()
        return torch.autograd.grad(notion.h(s, y).sum(), s)[0]


class GradientsEngine(Engine):
    """The repaired PF-LD: sums instead of means, signed multipliers, all rows in every answer.

    Guarantee
    ---------
    * A enters only through ``group_sums`` and ``weighted_sum`` of the vault; everything else here is a function of
      public data and of their noised answers.
    """

    def __init__(self, plan: GradientsPlan, problem: Problem, vault: SensitiveVault, **public: Any) -> None:
        super().__init__(problem, vault, **public)
        self.plan = plan
        self._sizes: Tensor | None = None
        self._rows: ScoreRows | None = None
        self._term: Tensor | None = None
        self._lost = 0

    def open(self) -> None:
        """Noised group sizes, once; public constants from then on."""
        if self._sizes is None:
            events = self.problem.events
            noise = calibrated(self.plan.noise_sizes)
            self._sizes = self.vault.group_sums(events, bound=row_bound(events), noise=noise, purpose="group sizes")

    @property
    def noisy_sizes(self) -> Tensor:
        """(G, K): sizes of the groups within each event as released."""
        if self._sizes is None:
            raise RuntimeError("open() has not been called.")
        return self._sizes

    @property
    def size_std(self) -> float:
        """Known standard deviation of a noised size."""
        noise, blocks = calibrated(self.plan.noise_sizes), self.vault.n_groups + 1
        if isinstance(noise, Unprotected):
            return 0.0
        spread = noise.noise_multiplier * math.sqrt(2 * (1 - 1 / blocks)) * row_bound(self.problem.events)
        return spread * self.vault.rows_per_person

    def prepare(self, module: nn.Module, lam: Tensor, k: int) -> None:
        """One noised constraint gradient, averaged with the earlier ones; in round 0 all multipliers are 0: none."""
        if k == 0:
            return
        if self._rows is None:
            self._rows = ScoreRows(module, self.problem.X, scale=self._slope, chunk_rows=self.plan.micro_batch)
        rows = self._rows
        fresh = self._ask(lambda: self._constraint_gradient(rows, lam))
        if fresh is not None:
            past = 0.0 if self._term is None else min(self.plan.memory, 1 - 1 / k)
            self._term = fresh if self._term is None else past * self._term + (1 - past) * fresh

    def _constraint_gradient(self, rows: ScoreRows, lam: Tensor) -> Tensor:
        r"""Noised gradient of :math:`\sum \lambda_{a,k} (\mu(D_{G_{a,k}}) - \mu(D_{P_k}))`.

        Each row is grad h_i minus a public mean of its event: the sum over a group then is the constraint's gradient
        itself, its rows are shorter than grad h_i, and so is the noise.
        """
        problem, plan = self.problem, self.plan
        noise = calibrated(plan.noise_gradients)
        omega = group_weights(lam, usable_sizes(self.noisy_sizes, self.size_std), problem.events)
        sample = torch.randperm(len(problem), generator=self.generator)[:PUBLIC_SAMPLE]
        looked_at = rows.take(sample)
        looked_at = looked_at.zeroed(~torch.isfinite(looked_at.norms()))
        means = torch.stack([looked_at.weighted_sum(share) for share in _shares(problem.events[sample]).T])
        member, centres = _centring(problem.events, means)
        norms = looked_at.centred(member[sample], centres).norms().double()
        answer = self.vault.weighted_sum(
            rows.centred(member, centres),
            omega,
            bound=self._clip(norms, lam, omega, noise, sample, looked_at.width),
            noise=noise,
            purpose="group gradient",
        )
        # What the centres took off the groups' means, less the population's means: public, and 0 for disjoint events.
        return answer + lam.sum(0) @ (centres - means).double()

    def _slope(self, scores: Tensor, index: Tensor) -> Tensor:
        return h_slope(self.problem.notion, scores, self.problem.y[index])

    def _clip(self, norms: Tensor, lam: Tensor, omega: Tensor, noise: Noise, sample: Tensor, width: int) -> float:
        """C_p; "auto" minimises Theorem 6 with public norms, expected weights and the averaged noise."""
        if self.plan.clip != "auto":
            return self.plan.clip
        if isinstance(noise, Unprotected):
            return UNCLIPPED
        # In expectation over the noised sizes, row i carries sum_k e_ik sum_a |lambda_ak| / |D_P_k|.
        carried = population_weights(lam.abs(), self.problem.events)[sample] * (len(self.problem) / len(sample))
        spread = float((omega.max(1).values - omega.min(1).values).max()) * self.vault.rows_per_person
        averaged = math.sqrt((1 - self.plan.memory) / (1 + self.plan.memory))
        slope = math.sqrt(width) * noise.noise_multiplier * averaged * spread
        return max(minimise_error_bound(norms, carried, slope), float(norms.quantile(LEAST_UNCLIPPED)), 1e-6)

    def constraint(self, module: nn.Module, lam: Tensor, batch: Tensor) -> Tensor | None:
        """The running average of noised constraint gradients, whatever the batch."""
        del module, lam, batch
        return self._term

    def gap(
        self,
        scores: Tensor,
        k: int = 0,  # noqa: ARG002 - the same question in every round
        seen: Tensor | slice = EVERYBODY,  # noqa: ARG002 - of everybody
    ) -> Tensor | None:
        """Noised mu(D_G) - mu(D_P) of the hard decisions, divided by noised sizes."""
        problem = self.problem
        rows = centred_rows(problem.notion.h_exact(scores, problem.y), problem.events)
        bound = row_bound(rows)
        noise = calibrated(self.plan.noise_violations)
        sums = self._ask(lambda: self.vault.group_sums(rows, bound=bound, noise=noise, purpose="violation"))
        if sums is None:
            return None
        return (sums / usable_sizes(self.noisy_sizes, self.size_std)).clamp(-1.0, 1.0)

    def ascend(self, lam: Tensor, gap: Tensor, k: int) -> Tensor:
        """Signed ascent on the noised gap."""
        plan = self.plan
        return ascend(lam, gap, step=plan.dual_step_at(k), tolerance=self.tolerance, limit=plan.lambda_max)

    def remarks(self) -> list[str]:
        """Questions the name of every group whose noised size could be noise alone."""
        few = max(1.0, 2 * self.size_std)
        totals = self.noisy_sizes.sum(1).tolist()
        return [
            f"the noised size of group {name!r} is about {max(total, 0):.0f}: is its name right?"
            for name, total in zip(self.vault.group_names, totals, strict=True)
            if total <= few
        ]

    def _ask(self, question: Callable[[], Tensor]) -> Tensor | None:
        if self._lost:
            self._lost -= 1
            return None
        return question()

    def state(self) -> dict[str, Tensor]:
        """Noised sizes and the running average of noised group gradients."""
        parts = {"sizes": self._sizes, "term": self._term}
        return {name: part for name, part in parts.items() if part is not None}

    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not asked again."""
        self._sizes, self._term, self._lost = state.get("sizes"), state.get("term"), lost


class PrintedEngine(Engine):
    """PF-LD as printed (Equations 10 and 13 with the sensitivities of Theorems 1 and 2); without noise it is F-LD.

    The attribute is revealed to this engine, because its noise scale, its signs and its denominators are functions of
    the exact attribute; ``docs/privacy.md`` shows what that means for the printed guarantee.
    """

    def __init__(self, plan: PrintedPlan, problem: Problem, vault: SensitiveVault, **public: Any) -> None:
        super().__init__(problem, vault, **public)
        self.plan = plan
        self._draws = 0
        self._layout: Layout | None = None

    def open(self) -> None:
        """Read the attribute; r is the fraction of people who gave theirs (Section 7)."""
        codes = torch.from_numpy(self.vault.reveal(purpose="exact attribute, read by the printed method"))
        inside = torch.nn.functional.one_hot(codes, self.vault.n_groups + 1)[:, :-1].double()
        # (n, G, K): row i's weight in the group term D_G of group a and event k
        self._terms = inside[:, :, None] * self.problem.events.double()[:, None, :]
        self._given = max(float(inside.sum() / max(len(inside), 1)), 1e-12)

    def constraint(self, module: nn.Module, lam: Tensor, batch: Tensor) -> Tensor | None:
        """Equation 10: ``lambda^T |grad mu(B_P) - clip(grad mu(B_G))| + N(0, sigma_p^2 Delta_p^2 I)``."""
        plan, terms = self.plan, self._terms[batch]
        smallest = int((terms > 0).sum(0).min())
        if plan.sigma_p and smallest <= 1:
            return None  # Delta_p is infinite; the authors' script skips such a batch as well
        y = self.problem.y[batch]
        self._layout = self._layout or find_layout(module, self.problem.X)
        scores, rows = score_rows(module, self.problem.X[batch], self._layout)
        rows = rows.scaled(h_slope(self.problem.notion, scores, y))
        h = self.problem.notion.h(scores, y).double()
        population, group = _shares(self.problem.events[batch].double()), _shares(terms)
        signs = (population * h[:, None]).sum(0) - (group * h[:, None, None]).sum(0)
        clip = (
            (plan.C_p / rows.norms().clamp_min(1e-30)).clamp_max(1.0).double() if plan.sigma_p else torch.ones(len(h))
        )
        present = (terms.sum(0) > 0).double()
        # (m, G, K): weight of row i's gradient in grad mu(B_P) - clip(grad mu(B_G)) of each constraint
        parts = (population[:, None, :] - group * clip[:, None, None]) * present
        if plan.absolute == "sign":
            exact = rows.weighted_sum((parts * (lam * signs.sign())).sum((1, 2)).to(scores.dtype)).double()
        else:
            each = [rows.weighted_sum(part.to(scores.dtype)).abs().double() for part in parts.flatten(1).T]
            exact = (lam.flatten()[:, None] * torch.stack(each)).sum(0)
        return self._noised(exact, plan.sigma_p, 2 * plan.C_p * plan.lambda_max, smallest)

    def gap(
        self,
        scores: Tensor,
        k: int = 0,  # noqa: ARG002 - the same question in every round
        seen: Tensor | slice = EVERYBODY,  # noqa: ARG002 - of everybody
    ) -> Tensor | None:
        """Equation 13: ``|mu(D_P) - mu^{C_d}(D_G)| + N(0, sigma_d^2 Delta_d^2 I)``."""
        plan, problem = self.plan, self.problem
        h = problem.notion.h(scores, problem.y).detach().double()
        clipped = h.clamp(-plan.C_d, plan.C_d) if plan.sigma_d else h
        group = _shares(self._terms)
        mu_p = (_shares(problem.events.double()) * h[:, None]).sum(0)
        mu_g = (group * clipped[:, None, None]).sum(0)
        present = self._terms.sum(0) > 0
        smallest = int((self._terms > 0).sum(0).min())
        violation = torch.where(present, (mu_p - mu_g).abs(), torch.zeros_like(mu_g))
        return self._noised(violation, plan.sigma_d, math.sqrt(2) * plan.C_d, smallest)

    def _noised(self, exact: Tensor, sigma: float | None, numerator: float, smallest: int) -> Tensor:
        """Adds N(0, sigma^2 Delta^2 I) with Delta = numerator / (smallest - 1) / r (Theorems 1 and 2, Section 7)."""
        if not sigma:
            return exact
        delta = numerator / max(smallest - 1, 1) / self._given
        self._draws += 1  # numbered apart from the ledger's releases, so that a seeded source repeats none of them
        return Gaussian(sigma).add_noise(
            exact, sensitivity=delta, source=self.vault.noise_source, release=2**32 + self._draws
        )

    def state(self) -> dict[str, Tensor]:
        """How many times noise was drawn, so that a seeded source never repeats itself."""
        return {"draws": torch.tensor(self._draws)}

    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """Continue counting; answers here cost nothing beyond the attribute itself, so none is lost."""
        del lost
        self._draws = int(state["draws"])

    def ascend(self, lam: Tensor, gap: Tensor, k: int) -> Tensor:
        """Lines 5 and 6 as printed."""
        return ascend_printed(lam, gap - self.tolerance, step=self.plan.dual_step_at(k), limit=self.plan.lambda_max)


def _shares(weights: Tensor) -> Tensor:
    """Weights of each term divided by their sum over rows, so that a sum over rows is a mean; 0 for an empty term."""
    return weights / weights.sum(0).clamp_min(1e-12)


def _centring(events: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Which centre each row is compared with: its event's mean, or one common centre if some row has several events."""
    inside = (events > 0).to(means.dtype)
    if bool((inside.sum(1) <= 1).all()):
        return inside, means
    return torch.ones(len(events), 1, dtype=means.dtype), means.mean(0, keepdim=True)


def make_engine(plan: TrainingPlan, problem: Problem, vault: SensitiveVault, **public: Any) -> Engine:
    """The engine that carries out ``plan``; ``public`` are the keyword arguments of :class:`Engine`."""
    if isinstance(plan, MomentsPlan):
        return MomentsEngine(plan, problem, vault, **public)
    if isinstance(plan, GradientsPlan):
        return GradientsEngine(plan, problem, vault, **public)
    if isinstance(plan, PrintedPlan):
        return PrintedEngine(plan, problem, vault, **public)
    raise TypeError(f"Expected a MomentsPlan, GradientsPlan or PrintedPlan; got {type(plan).__name__}.")
