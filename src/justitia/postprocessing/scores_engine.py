"""The plug-in engine with ``at="scores"``: the constraint holds at many thresholds, for the same releases.

The moments are those of the plug-in engine. A check asks for the indicators of all thresholds as one row per person,
whose norm is bounded like any other's; the dual is solved once per threshold, each a convex problem in a few numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from justitia.postprocessing.dual import Constraints, solve
from justitia.postprocessing.engine import PluginEngine
from justitia.postprocessing.known_noise import noise_spread
from justitia.postprocessing.levels import levels_of, moved_probability
from justitia.postprocessing.tolerance import weight_of_checks
from justitia.privacy.mechanisms import Unprotected
from justitia.training.engine import calibrated
from justitia.training.lagrangian import Problem, centred_rows, population_means, row_bound

if TYPE_CHECKING:
    from justitia.postprocessing.plan import PluginPlan
    from justitia.privacy.interface import Vault

Array = NDArray[np.float64]


class ScoresEngine(PluginEngine):
    """Closed-form duals at many thresholds on one set of memberships.

    Guarantee
    ---------
    * That of :class:`~justitia.postprocessing.engine.PluginEngine`: the same calls of ``group_sums``, with rows of T
      times as many columns and a bound on their norm.
    """

    levels: Array

    def __init__(self, plan: PluginPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._lams: Array | None = None  # (T, G, K)
        self._put_levels(levels_of(self._eta, problem.threshold, plan.levels))

    def solve(self, lam: Array) -> Array:
        """The multipliers at all thresholds; those where decisions are made are returned."""
        del lam
        if self._lams is None:  # levels of eta say where to look; those of the score are then evenly filled
            self._lams = self._solutions()
            self._put_levels(levels_of(self.probability(), self.problem.threshold, self.plan.levels))
        self._lams = self._solutions()
        decides: Array = self._lams[self._decides]
        return decides.copy()

    def _put_levels(self, levels: Array) -> None:
        """Other thresholds; multipliers are those of the nearest ones before."""
        if self._lams is not None:
            self._lams = self._lams[np.abs(self.levels - levels[:, None]).argmin(1)]
        self.levels, self._decides = levels, int(np.abs(levels - self.problem.threshold).argmin())

    def _solutions(self) -> Array:
        """(T, G, K): multipliers at all thresholds."""
        found: list[Array] = []
        allowed = self.allowed()
        for t, level in enumerate(self.levels):
            start = self._lams[t] if self._lams is not None else found[-1] if found else None
            start = None if start is None or not start.any() else start
            found.append(solve(2 * (self._eta - level), self._constraint_at(t), allowed, start))
        return np.stack(found)

    @property
    def multipliers(self) -> Array:
        """(T, G K): of every threshold."""
        if self._lams is None:
            raise ValueError("expected a solution, got none; call solve first.")
        return self._lams.reshape(len(self._lams), -1)

    def probability(self) -> Array:
        """(n,): the moved probability of the training rows."""
        margins = 2 * (self._eta - self.levels[:, None]) - self.multipliers @ self.multiplied().T
        return moved_probability(margins, self.levels)

    def scores(self, lam: Array) -> Array:
        """(n,): positive is a positive decision."""
        del lam
        return (2 * (self.probability() - self.problem.threshold)).astype(self.problem.y.dtype)

    def _at(self, scores: Array, t: int) -> Array:
        """(n,): scores whose sign is the decision at threshold t."""
        return scores - 2 * float(self.levels[t] - self.problem.threshold)

    def ask_after(self, scores: Array, k: int) -> None:
        """A check: the noised sums of everybody's decisions at all thresholds."""
        del k
        if not self.asks:
            return
        if self._lost:
            self._lost -= 1
            return
        problem, noise, sizes = self.problem, calibrated(self.plan.noise_checks), self.sizes
        at = [self._at(scores, t) for t in range(len(self.levels))]
        h = [problem.notion.h_exact(one, problem.y) for one in at]
        rows = np.concatenate([centred_rows(one, problem.events) for one in h], axis=1)
        bound = row_bound(rows)
        answer = self.vault.group_sums(rows.astype(np.float64), bound=bound, noise=noise, purpose="decisions")
        parts = np.split(answer, len(at), axis=1)
        means = [population_means(one, problem.events) for one in h]
        asked = np.stack([part / sizes + mean for part, mean in zip(parts, means, strict=True)])
        held = np.stack([self._used().rates((one > 0).astype(np.float64)) for one in at])
        self._surprises.append(asked - held)
        self._variances.append((noise_spread(noise, bound * self._each, self.vault.n_groups) / sizes) ** 2)

    def _constraint_at(self, t: int) -> Constraints:
        """The constraint at threshold t with what the checks have said."""
        used = self._used()
        if not self._surprises:
            return used
        weight = weight_of_checks(self.plan.trust, np.mean(self._variances, axis=0) / len(self._variances))
        return Constraints(used.c, used.b + weight * np.mean([one[t] for one in self._surprises], axis=0), used.weight)

    def _corrected(self) -> Constraints:
        return self._constraint_at(self._decides)

    def distance(self, scores: Array) -> float | None:
        """Largest noised difference between two groups over all thresholds: that of their scores' distributions."""
        if self._constraints is None:
            return None
        rates = [
            self._constraint_at(t).rates((self._at(scores, t) > 0).astype(np.float64)) for t in range(len(self.levels))
        ]
        return float(max(np.ptp(one, axis=0).max() for one in rates))

    def _population_rates(self) -> Array:
        """(K,): where sampling error is largest, some threshold is near."""
        return np.full(self.problem.events.shape[1], 0.5)

    @property
    def _sum_noise(self) -> float:
        """Noise of the moments and of checks whose rows are longer, taken together."""
        moments, checks = calibrated(self.plan.noise_moments), calibrated(self.plan.noise_checks)
        if isinstance(moments, Unprotected):
            return 0.0
        heaviest, groups = row_bound(self.problem.events) * self._each, self.vault.n_groups
        # indicators of evenly spaced quantiles, less their means: T / 3 is the mean square of the longest row
        longer = heaviest * math.sqrt(max(1.0, len(self.levels) / 3))
        known = noise_spread(moments, heaviest, groups) ** -2
        known += self.plan.checks * noise_spread(checks, longer, groups) ** -2
        return 1 / math.sqrt(known)

    def state(self) -> dict[str, Array]:
        """And the multipliers of every threshold, where the next solutions start."""
        saved = super().state()
        return saved if self._lams is None or not saved else saved | {"lams": self._lams, "levels": self.levels}

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Inverse of :meth:`state`."""
        super().restore(state, lost=lost)
        if "levels" in state:
            self._put_levels(state["levels"])
            self._lams = state["lams"]
