"""Engine ``pf-ld``: the repaired PF-LD.

Noised sizes once; one noised group gradient before the primal steps of a round and one noised violation after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from justitia.exceptions import Diagnostic
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.pf_ld.clipping import minimise_error_bound
from justitia.networks.pf_ld.plan import PFLDPlan
from justitia.networks.row_gradients import ScoreRows, h_slope
from justitia.postprocessing.run import sum_stddev
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Mechanism
from justitia.privacy.vault import local_vault
from justitia.training.diagnostics import unknown_group
from justitia.training.lagrangian import (
    Problem,
    ascend,
    centred_rows,
    group_weights,
    population_weights,
    row_bound,
    usable_sizes,
)
from justitia.training.method import ALL_ROWS, Array, Rows
from justitia.training.plan import calibrated

#: Rows whose public gradients give means and norms; their number is a matter of speed only.
PUBLIC_SAMPLE = 4096
#: A bound that no gradient reaches.
UNCLIPPED = 1e12
#: "auto" never clips more than all but this share of the rows.
LEAST_UNCLIPPED = 0.1


class PFLDEngine(PrimalDualEngine):
    """The repaired PF-LD: sums instead of means, signed multipliers, all rows in every answer.

    Guarantee
    ---------
    * A enters only through ``group_sums`` and ``weighted_sum`` of the vault; everything else here is a function of
      public data and of their noised answers.
    """

    plan: PFLDPlan

    def __init__(self, plan: PFLDPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._sizes: Array | None = None
        self._rows: ScoreRows | None = None
        self._term: Array | None = None
        self._gap: Array | None = None
        self._lost = 0

    def query_before(self, module: nn.Module, lam: Array, k: int) -> None:
        """Noised group sizes once; then one noised constraint gradient a round, averaged with the earlier ones."""
        if self._sizes is None:
            events = self.problem.events
            noise = calibrated(self.plan.noise_sizes)
            self._sizes = self.vault.group_sums(events, bound=row_bound(events), noise=noise, purpose="group sizes")
        if k == 0:  # all multipliers are 0: there is no gradient to query
            return
        if self._rows is None:
            self._rows = ScoreRows(module, self.X, scale=self._slope, chunk_rows=self.plan.micro_batch)
        rows = self._rows
        fresh = self._unless_lost(lambda: self._constraint_gradient(rows, lam))
        if fresh is not None:
            past = 0.0 if self._term is None else min(self.plan.memory, 1 - 1 / k)
            self._term = fresh if self._term is None else past * self._term + (1 - past) * fresh

    def query_after(self, _module: nn.Module, scores: Array, _k: int) -> None:
        """The noised sums of the hard decisions, less their mean, divided by noised sizes."""
        self._gap = self._unless_lost(lambda: self._noisy_gap(scores))

    def _noisy_gap(self, scores: Array) -> Array:
        problem = self.problem
        rows = centred_rows(problem.notion.h_exact(scores, problem.y), problem.events)
        noise = calibrated(self.plan.noise_violations)
        sums = self.vault.group_sums(rows, bound=row_bound(rows), noise=noise, purpose="violation")
        return np.clip(sums / usable_sizes(self.noisy_sizes, self.size_std), -1.0, 1.0)

    @property
    def noisy_sizes(self) -> Array:
        """(G, K): sizes of the groups within each event as released."""
        if self._sizes is None:
            raise RuntimeError("The group sizes have not been released.")
        return self._sizes

    @property
    def size_std(self) -> float:
        """Known standard deviation of a noised size."""
        bound = row_bound(self.problem.events) * self.vault.rows_per_person
        return sum_stddev(calibrated(self.plan.noise_sizes), bound, self.vault.n_groups)

    def _constraint_gradient(self, rows: ScoreRows, lam: Array) -> Array:
        r"""Noised gradient of :math:`\sum \lambda_{a,k} (\mu(D_{G_{a,k}}) - \mu(D_{P_k}))`.

        Each row is grad h_i minus a public mean of its event: the sum over a group then is the constraint's gradient
        itself, its rows are shorter than grad h_i, and so is the noise.
        """
        problem, plan = self.problem, self.plan
        noise = calibrated(plan.noise_gradients)
        omega = group_weights(lam, usable_sizes(self.noisy_sizes, self.size_std), problem.events)
        sample = torch.randperm(len(problem), generator=self.generator)[:PUBLIC_SAMPLE]
        some = rows.take(sample)
        some = some.zeroed(~np.isfinite(some.norms()))
        parts = shares(self.events[sample]).numpy().T
        means = torch.from_numpy(np.stack([some.weighted_sum(share) for share in parts]))
        member, centres = _centring(self.events, means)
        norms = torch.from_numpy(some.centred(member[sample].numpy(), centres.numpy()).norms()).double()
        answer = local_vault(self.vault).weighted_sum(
            rows.centred(member, centres),
            omega,
            bound=self._clip(norms, lam, omega, noise, sample, some.width),
            noise=noise,
            purpose="group gradient",
        )
        # What the centres took off the groups' means, less the population's means: public, and 0 for disjoint events.
        found: Array = answer + lam.sum(0) @ (centres - means).double().numpy()
        return found

    def _slope(self, scores: Tensor, index: Tensor) -> Tensor:
        return h_slope(self.problem.notion.h, scores, self.y[index])

    def _clip(self, norms: Tensor, lam: Array, omega: Array, noise: Mechanism, sample: Tensor, width: int) -> float:
        """C_p; "auto" minimises Theorem 6 with public norms, expected weights and the averaged noise."""
        if self.plan.clip != "auto":
            return self.plan.clip
        if noise.is_exact:
            return UNCLIPPED
        # In expectation over the noised sizes, row i carries sum_k e_ik sum_a |lambda_ak| / |D_P_k|.
        carried = population_weights(np.abs(lam), self.problem.events)[sample.numpy()] * (
            len(self.problem) / len(sample)
        )
        moved = float(np.ptp(omega, axis=1).max()) * self.vault.rows_per_person
        averaged = math.sqrt((1 - self.plan.memory) / (1 + self.plan.memory))
        slope = math.sqrt(width) * noise.stddev(1.0) * averaged * moved
        return max(
            minimise_error_bound(norms, torch.from_numpy(carried), slope), float(norms.quantile(LEAST_UNCLIPPED)), 1e-6
        )

    def constraint(self, _module: nn.Module, _lam: Array, _batch: Tensor) -> Tensor | None:
        """The running average of noised constraint gradients, whatever the batch."""
        return None if self._term is None else torch.from_numpy(self._term)

    def gap(self, _scores: Array, _rows: Rows = ALL_ROWS) -> Array | None:
        """The last answer about the decisions of all rows."""
        return self._gap

    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Signed ascent on the noised gap."""
        plan = self.plan
        return ascend(lam, gap, step=plan.dual_step_at(k), tolerance=self.half, limit=plan.lambda_max)

    def diagnostics(self) -> list[Diagnostic]:
        """Groups whose noised size could be noise alone."""
        if self._sizes is None:
            return []
        few = max(1.0, 2 * self.size_std)
        totals = self.noisy_sizes.sum(1).tolist()
        return [
            unknown_group(name, max(total, 0.0))
            for name, total in zip(self.vault.group_names, totals, strict=True)
            if total <= few
        ]

    def _unless_lost(self, query: Callable[[], Array]) -> Array | None:
        """The answer; None for one that an interrupted run has paid for and lost."""
        if self._lost:
            self._lost -= 1
            return None
        return query()

    def state(self) -> dict[str, Array]:
        """Noised sizes and the running average of noised group gradients."""
        parts = {"sizes": self._sizes, "term": self._term}
        return {name: part for name, part in parts.items() if part is not None}

    def restore(self, state: dict[str, Any], lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not queried again."""
        self._sizes, self._term, self._lost = state.get("sizes"), state.get("term"), lost


def shares(weights: Tensor) -> Tensor:
    """Weights of each term divided by their sum over rows, so that a sum over rows is a mean; 0 for an empty term."""
    return weights / weights.sum(0).clamp_min(1e-12)


def _centring(events: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Which centre each row is compared with: its event's mean, or one common centre if some row has several events."""
    inside = (events > 0).to(means.dtype)
    if bool((inside.sum(1) <= 1).all()):
        return inside, means
    return torch.ones(len(events), 1, dtype=means.dtype), means.mean(0, keepdim=True)
