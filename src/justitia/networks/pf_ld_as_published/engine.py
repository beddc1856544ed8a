"""Engine ``pf-ld-as-published``: PF-LD as published, line by line.

The vault reveals the attribute to it, which its certificate states.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from justitia.networks.engine import PrimalDualEngine
from justitia.networks.pf_ld.engine import shares
from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan
from justitia.networks.row_gradients import ModuleLayout, find_layout, h_slope, score_rows
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Gaussian
from justitia.privacy.rows import FactoredRows
from justitia.privacy.vault import local_vault
from justitia.training.lagrangian import Problem, ascend_as_published
from justitia.training.method import ALL_ROWS, Array, Rows


class PFLDAsPublishedEngine(PrimalDualEngine):
    """PF-LD as published (Equations 10 and 13 with the sensitivities of Theorems 1 and 2); without noise it is F-LD.

    The attribute is revealed to this engine, because its noise scale, its signs and its denominators are functions of
    the exact attribute; ``docs/proofs.md`` shows what that means for the published guarantee.
    """

    plan: PFLDAsPublishedPlan

    def __init__(self, plan: PFLDAsPublishedPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._h = problem.notion.h_read_as(plan.h)
        self._draws = 0
        self._layout: ModuleLayout | None = None
        self._gap: Array | None = None

    def query_before(self, _module: nn.Module, _lam: Array, k: int) -> None:
        """Read the attribute, once.

        Section 7 divides both sensitivities by the fraction of rows whose attribute is given, since group sizes shrink
        by it; sizes here count those rows alone, and are that much smaller already.
        """
        if k > 0:
            return
        revealed = local_vault(self.vault).reveal(purpose="exact attribute, read by the printed method")
        codes = torch.from_numpy(revealed)
        inside = torch.nn.functional.one_hot(codes, self.vault.n_groups + 1)[:, :-1].double()
        # (n, G, K): row i's weight in the group term D_G of group a and event k
        self._terms = inside[:, :, None] * self.events.double()[:, None, :]

    def constraint(self, module: nn.Module, lam: Array, batch: Tensor) -> Tensor | None:
        """Equation 10: ``lambda^T |grad mu(B_P) - clip(grad mu(B_G))| + N(0, sigma_p^2 Delta_p^2 I)``."""
        if not lam.any():
            return None  # the term is 0 whatever the attribute: there is nothing to protect yet
        plan, terms, multipliers = self.plan, self._terms[batch], torch.from_numpy(lam)
        sizes = (terms > 0).sum(0)
        if plan.sigma_p and int(sizes.min()) <= 1:
            return None  # Delta_p is infinite; the authors' script skips such a batch as well
        y = self.y[batch]
        self._layout = self._layout or find_layout(module, self.X)
        scores, rows = score_rows(module, self.X[batch], self._layout)
        rows = rows.scaled(h_slope(self._h, scores, y).numpy())
        h = self._h(scores, y).double()
        population, group = shares(self.events[batch].double()), shares(terms)
        signs = (population * h[:, None]).sum(0) - (group * h[:, None, None]).sum(0)
        norms = torch.from_numpy(rows.norms()).clamp_min(1e-30)
        clip = (plan.C_p / norms).clamp_max(1.0).double() if plan.sigma_p else torch.ones(len(h))
        present = (terms.sum(0) > 0).double()
        # (m, G, K): weight of row i's gradient in grad mu(B_P) - clip(grad mu(B_G)) of each constraint
        parts = (population[:, None, :] - group * clip[:, None, None]) * present
        if plan.absolute == "sign":
            exact = _summed(rows, (parts * (multipliers * signs.sign())).sum((1, 2)).to(scores.dtype))
        else:
            each = [_summed(rows, part.to(scores.dtype)).abs() for part in parts.flatten(1).T]
            exact = (multipliers.flatten()[:, None] * torch.stack(each)).sum(0)
        return torch.from_numpy(self._noised(exact.numpy(), plan.sigma_p, plan.primal_sensitivity(multipliers, sizes)))

    def query_after(self, _module: nn.Module, scores: Array, _k: int) -> None:
        """Equation 13: ``|mu(D_P) - mu^{C_d}(D_G)| + N(0, sigma_d^2 Delta_d^2 I)``."""
        plan = self.plan
        h = self._h(torch.from_numpy(scores), self.y).detach().double()
        clipped = h.clamp(-plan.C_d, plan.C_d) if plan.sigma_d else h
        group = shares(self._terms)
        mu_p = (shares(self.events.double()) * h[:, None]).sum(0)
        mu_g = (group * clipped[:, None, None]).sum(0)
        present = self._terms.sum(0) > 0
        smallest = int((self._terms > 0).sum(0).min())
        sensitivity = math.sqrt(2) * plan.C_d / max(smallest - 1, 1)
        violation = torch.where(present, (mu_p - mu_g).abs(), torch.zeros_like(mu_g))
        self._gap = self._noised(violation.numpy(), plan.sigma_d, sensitivity)

    def gap(self, _scores: Array, _rows: Rows = ALL_ROWS) -> Array | None:
        """The last noised violation."""
        return self._gap

    def _noised(self, exact: Array, sigma: float | None, sensitivity: float) -> Array:
        """Adds N(0, sigma^2 Delta^2 I)."""
        if not sigma:
            return exact
        self._draws += 1  # numbered apart from the ledger's releases, so that a seeded source repeats none of them
        source = local_vault(self.vault).noise_source
        return Gaussian(sigma).add_noise(exact, sensitivity=sensitivity, source=source, release=2**32 + self._draws)

    def state(self) -> dict[str, Any]:
        """How many times noise was drawn, so that a seeded source never repeats itself."""
        return {"draws": self._draws}

    def restore(self, state: dict[str, Any], _lost: int) -> None:
        """Continue counting; answers here cost nothing beyond the attribute itself, so none is lost."""
        self._draws = state["draws"]

    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Lines 5 and 6 as published."""
        step = self.plan.step_for(self.problem.notion, k)
        return ascend_as_published(lam, gap - self.half, step=step, limit=self.plan.lambda_max)


def _summed(rows: FactoredRows, c: Tensor) -> Tensor:
    """Sum of ``c_i * row_i``, in double precision from here on."""
    return torch.from_numpy(rows.weighted_sum(c.numpy())).double()
