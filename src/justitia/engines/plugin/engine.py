"""The plug-in engine: ask A for a handful of noised sums, and solve the dual in closed form.

0. If the plan has it, a small first release: sizes of the groups. A run that they say cannot work stops here.
1. One release: the sums of public rows (features, label and what the base says of the label) over each group. Soft
   memberships p(a | x, y) of largest entropy agree with them, as in engine ``moments``.
2. With p(y = 1 | x) of the base they give p(a, y | x), and the best rule under the constraint has a closed form whose
   unknowns are a few multipliers (:mod:`justitia.engines.plugin.dual`).
3. At each check the sums of the current decisions are released. What they say differs from what the memberships say;
   the difference, weighed by its known noise, goes into the constraint, and the dual is solved again.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from justitia.engines.moments.everybody import Everybody
from justitia.engines.moments.known_noise import LOUD, gap_spread, noise_spread, outlook_of
from justitia.engines.moments.memberships import memberships
from justitia.engines.moments.public_rows import PublicRows
from justitia.engines.plugin.checks import Checked, Seen, settled
from justitia.engines.plugin.dual import Constraints, constraints_of, kept_side, solve
from justitia.engines.plugin.ridges import ridges
from justitia.engines.plugin.sizes import ask_sizes
from justitia.engines.plugin.tolerance import default_tolerance, spread_of_rates, weight_of_checks
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Unprotected
from justitia.privacy.rows import ArrayRows, DenseSource, index_chunks
from justitia.training.engine import EVERYBODY, Engine, calibrated
from justitia.training.lagrangian import Problem, centred_rows, population_means, row_bound
from justitia.training.remarks import cell_remark, silence_remark, size_remarks

if TYPE_CHECKING:
    from justitia.engines.plugin.plan import PluginPlan

Array = NDArray[np.float64]
#: Variance of the noise times the number of features, per row, up to which memberships have weights of their own for
#: each label.
FEW = 0.005
#: Probabilities of one base differ by less, whatever machine they were computed on.
SAME_BASE = 1e-4


class PluginEngine(Engine):
    """Closed-form dual on maximum-entropy memberships.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault: for sizes if the plan has them, once for the moments and once
      per check; everything else here, a run that stops included, is a function of public data and of their noised
      answers.
    """

    def __init__(
        self,
        plan: PluginPlan,
        problem: Problem,
        vault: Vault,
        *,
        tolerance: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(problem, vault, tolerance=tolerance, generator=generator)
        if problem.eta is None:
            raise ValueError("expected a problem with eta, got none; learn a base first.")
        self.plan = plan
        self.asks = True
        self._given = tolerance is not None
        self._eta: Array = problem.eta.double().numpy()
        self.gain = 2 * (self._eta - problem.threshold)
        self._rows = PublicRows(
            self._represented, problem.X, problem.y, chunk_rows=plan.micro_batch, blocks=self._in_blocks()
        )
        self._everybody = self._make_everybody()
        self._answer: Tensor | None = None  # (G, width), noised: the moments
        self._weights: Tensor | None = None  # of the memberships
        self._constraints: Constraints | None = None
        self._surprises: list[Array] = []  # (G, K): what each check said beyond the memberships
        self._variances: list[Array] = []  # (G, K): of their known noise
        self._lam: Tensor | None = None  # (G, K): the last solution
        self._checked: list[Checked] = []
        self._sizes: Tensor | None = None  # (G, K), noised, by the memberships
        self._counted: Tensor | None = None  # (G,), noised, by the sums themselves
        self._silence: Tensor | None = None  # (2, 2): share of "not given" by label, and its noise
        self._lost = 0

    def _in_blocks(self) -> bool:
        """Whether what tells the groups apart may differ by label: where there are many rows for the noise."""
        noise = noise_spread(calibrated(self.plan.noise_moments), self._each, self.vault.n_groups)
        columns = math.prod(self.problem.X.shape[1:])
        return noise**2 * columns <= FEW * self.problem.rows

    def _make_everybody(self) -> Everybody:
        """Whose memberships are fitted."""
        return Everybody(self._rows.take, len(self.problem), self.plan.micro_batch)

    def _represented(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """What the base says of these rows: probability and log-odds."""
        eta = torch.from_numpy(self._eta)[index].float()
        return (2 * eta - 1)[:, None], torch.logit(eta)

    def ask_before(self, module: Any, lam: Tensor, k: int) -> None:
        """Sizes, if the plan has them, and the moments, once."""
        del module, lam
        if k or self._constraints is not None:
            return
        noise = calibrated(self.plan.noise_moments)
        if self._answer is None:
            if self.plan.noise_sizes is not None:
                n, share = self.problem.rows, self.plan.share_sizes
                ask_sizes(self.vault, self._size_rows(), self.plan.noise_sizes, n, share)
            moments = self.vault.group_sums(self._moment_rows(), bound=1.0, noise=noise, purpose="moments")
            self._answer = torch.from_numpy(moments)
            self.keep(self)
        answer, total = self._answer, self._total()
        sums = torch.cat([answer, (total - answer.sum(0))[None]])
        self._counted = self._rows.sizes(answer, total, self.problem.rows).sum(1)
        spread = noise_spread(noise, self._each, self.vault.n_groups)
        self._silence = self._rows.silence(answer, total, spread, self.problem.rows)
        rows, constant = self._everybody.sample(), self._rows.constants()
        ridge = ridges(answer, total, rows, constant, self.problem.rows, spread, self.plan.ridge)
        self._use(self._everybody.fit(sums, ridge=ridge))

    def _size_rows(self) -> DenseSource:
        """A one for everybody."""
        return ArrayRows(np.ones((len(self.problem), 1)))

    def _moment_rows(self) -> DenseSource:
        """Everybody's public rows."""
        return self._rows

    def _total(self) -> Tensor:
        """(width,): their sum."""
        return torch.stack([torch.from_numpy(part).double().sum(0) for _, part in self._rows.dense()]).sum(0)

    def _use(self, weights: Tensor) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""
        self._weights = weights
        problem = self.problem
        parts = [torch.from_numpy(part) for part in index_chunks(len(problem), self.plan.micro_batch)]
        q0, q1 = (
            torch.cat([memberships(weights, self._rows.take(part, label))[:, :-1] for part in parts]).double()
            for label in (0.0, 1.0)
        )
        own = torch.where(problem.y[:, None] > 0.5, q1, q0)
        self._sizes = (own.T @ problem.events.double()).clamp_min(1.0)
        weight = problem.weight.double().numpy()
        self._constraints = constraints_of(problem.notion, self._eta, q0.numpy(), q1.numpy(), weight)

    def ask_after(self, scores: Tensor, k: int) -> None:
        """A check: the noised sums of everybody's decisions, held against what the memberships say of them."""
        del k
        if not self.asks:
            return
        if self._lost:
            self._lost -= 1
            return
        noise = calibrated(self.plan.noise_checks)
        seen = self._seen(scores)
        answer = self.vault.group_sums(seen.rows, bound=seen.bound, noise=noise, purpose="decisions")
        told = answer / self.sizes.numpy() + seen.means.numpy()
        spread = noise_spread(noise, seen.bound * self._each, self.vault.n_groups) / self.sizes.numpy()
        self._surprises.append(told - seen.rates)
        self._variances.append(spread**2)
        if self._lam is not None:
            self._checked.append(Checked(self._lam.numpy(), told, spread**2))

    def settle(self, lam: Tensor) -> Tensor:
        """The last multipliers, or those of an earlier check where further ones have made the violation larger."""
        back = settled(self._checked, self.allowed()) if self.asks else None  # checks of a curve are of its first point
        if back is None:
            return lam
        self._surprises, self._variances = [self._surprises[back]], [self._variances[back]]
        self._lam, self._checked = torch.from_numpy(self._checked[back].lam), []
        return self._lam

    def _seen(self, scores: Tensor) -> Seen:
        """What the vault is asked about the decisions, and what the memberships say of them."""
        problem = self.problem
        h = problem.notion.h_exact(scores, problem.y)
        rows, means = centred_rows(h, problem.events), population_means(h, problem.events)
        rates = self._used().rates((scores > 0).double().numpy())
        return Seen(ArrayRows(rows.double().numpy()), row_bound(rows), means, rates)

    def solve(self, lam: Tensor) -> Tensor:
        """The multipliers, exactly; from where they were if they are not 0."""
        start = lam.numpy() if lam.any() else None
        self._lam = torch.from_numpy(solve(self.gain, self._corrected(), self.allowed(), start))
        return self._lam

    def correction(self, lam: Tensor) -> Array:
        """(n,): t = lambda . c of the training rows."""
        return self._used().correction(lam.numpy())

    def multiplied(self) -> Array:
        """(n, G K): the c that multipliers, which add up to 0, multiply, less what groups have in common."""
        c = self._used().c
        return (c - c.mean(1)[:, None]).reshape(len(c), -1)  # type: ignore[no-any-return]

    def scores(self, lam: Tensor) -> Tensor:
        """(n,): positive is a positive decision."""
        scores = kept_side(self.gain, self.gain - self.correction(lam))
        return torch.from_numpy(scores).to(self.problem.y.dtype)

    def gap(self, scores: Tensor, seen: Tensor | slice = EVERYBODY) -> Tensor | None:
        """Rates of the decisions by the memberships and all checks so far, less those of the population."""
        del seen
        if self._constraints is None:
            return None
        h = self.problem.notion.h_exact(scores, self.problem.y)
        rates = self._corrected().rates((scores > 0).double().numpy())
        return torch.from_numpy(rates) - population_means(h, self.problem.events)

    def allowed(self) -> float:
        """The largest difference between two groups that is allowed."""
        if self._given:
            return self.tolerance
        return default_tolerance(self.plan, self._population_rates(), self.sizes, self._sum_noise)

    def _population_rates(self) -> Tensor:
        """(K,): of everybody, by the base's decisions."""
        h = self.problem.notion.h_exact(torch.from_numpy(self.gain), self.problem.y)
        return population_means(h.to(self.problem.y.dtype), self.problem.events)

    def _used(self) -> Constraints:
        if self._constraints is None:
            raise ValueError("expected moments to have been asked for, got none; call ask_before first.")
        return self._constraints

    def _corrected(self) -> Constraints:
        """The constraint with what the checks have said."""
        used = self._used()
        if not self._surprises:
            return used
        weight = weight_of_checks(self.plan.trust, np.mean(self._variances, axis=0) / len(self._variances))
        return replace(used, b=used.b + weight * np.mean(self._surprises, axis=0))

    @property
    def sizes(self) -> Tensor:
        """(G, K): noised sizes of the groups in each event."""
        self._used()
        assert self._sizes is not None  # noqa: S101 - known with the constraints
        return self._sizes

    @property
    def _each(self) -> float:
        """One person moves a sum by as many rows; 1 where a row is what is protected."""
        return float(self.vault.rows_per_person)

    @property
    def _sum_noise(self) -> float:
        return gap_spread(self.plan, self._row_bound() * self._each, self.vault.n_groups)

    def _row_bound(self) -> float:
        """How much one row may count."""
        return row_bound(self.problem.events)

    def outlook(self) -> list[str]:
        """Says so if even groups of equal sizes are too small for the noise."""
        rows = self.problem.event_sizes * self.problem.rows / len(self.problem)
        size = float(rows[rows > 0].min() / self.vault.n_groups)
        return outlook_of(size, self._sum_noise / size, self.tolerance)

    def remarks(self) -> list[str]:
        """Silence that differs by label, small cells, groups that may not exist, and rates that are mostly noise."""
        if self._sizes is None or self._counted is None:
            return []
        found = [*silence_remark(self._silence), *self._cell_remark()]
        noise = (self._sum_noise / self.sizes).max(1).values
        few = max(1.0, 2 * noise_spread(calibrated(self.plan.noise_moments), self._each, self.vault.n_groups))
        few = -math.inf if isinstance(self.plan.noise_moments, Unprotected) else few
        return found + size_remarks(self.vault.group_names, self._counted, noise, few, max(self.tolerance, LOUD))

    def _cell_remark(self) -> list[str]:
        """Whether the smallest cell lets the constraint constrain."""
        a, k = divmod(int(self.sizes.argmin()), self.sizes.shape[1])
        cell = f"group {self.vault.group_names[a]!r}"
        cell += f" and {self.problem.notion.event_names[k]!r}" if self.sizes.shape[1] > 1 else ""
        return cell_remark(float(self.sizes[a, k]), cell, self.allowed(), self.violation_spread(), given=self._given)

    def violation_spread(self) -> float:
        """Of the two least known groups."""
        return spread_of_rates(self._population_rates(), self.sizes, self._sum_noise)

    def gap_noise(self, share: float) -> float:
        """Noise, of the two least known groups: everybody's decisions are out of fold."""
        del share
        return spread_of_rates(torch.zeros(self.sizes.shape[1]), self.sizes, self._sum_noise)

    def at(self, tolerance: float) -> Self:
        """An engine on the same answers with this tolerance; it asks nothing."""
        follower = copy.copy(self)
        follower.tolerance, follower._given, follower.asks = tolerance, True, False
        return follower

    def state(self) -> dict[str, Tensor]:
        """What the base says, weights of the memberships and what the checks have said; no memberships.

        Until these weights are known, the answer that they are made from.
        """
        eta = {"eta": torch.from_numpy(self._eta)}
        if self._weights is None or self._counted is None:
            return {} if self._answer is None else eta | {"answer": self._answer}
        saved = eta | {"weights": self._weights, "counted": self._counted}
        saved |= {} if self._silence is None else {"silence": self._silence}
        for j, (surprise, variance) in enumerate(zip(self._surprises, self._variances, strict=True)):
            saved |= {f"surprise.{j}": torch.from_numpy(surprise), f"variance.{j}": torch.from_numpy(variance)}
        for j, one in enumerate(self._checked):
            saved |= {f"lam.{j}": torch.from_numpy(one.lam), f"told.{j}": torch.from_numpy(one.told)}
        return saved

    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not asked again.

        Raises
        ------
        ValueError
            If the answers are about what another base says.
        """
        self._lost = lost
        if "eta" not in state:
            return
        if not np.allclose(state["eta"].numpy(), self._eta, rtol=0.0, atol=SAME_BASE):
            raise ValueError(
                "expected the base that the checkpoint was begun with, got one that says something else of the same "
                "rows; pass that base, or choose another folder."
            )
        self._answer = state.get("answer")
        if self._answer is not None:
            return
        self._use(state["weights"])
        self._counted, self._silence = state["counted"], state.get("silence")
        checks = range(sum(name.startswith("surprise.") for name in state))
        self._surprises = [state[f"surprise.{j}"].numpy() for j in checks]
        self._variances = [state[f"variance.{j}"].numpy() for j in checks]
        self._checked = [
            Checked(state[f"lam.{j}"].numpy(), state[f"told.{j}"].numpy(), variance)
            for j, variance in enumerate(self._variances)
            if f"lam.{j}" in state
        ]


__all__ = ["PluginEngine"]
