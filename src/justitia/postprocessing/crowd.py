"""Engine ``post-processing`` for rows in files: a public sample is solved, and passes over all rows correct it.

What the memberships say of everybody's decisions differs from what they say of the sample's; that difference is public,
is measured by a pass at the multipliers of the moment, and goes into the constraint, as what the checks say does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines.crowds import Crowd, SampledMembershipFit, decision_table, population_means_of, rates_of
from justitia.learners.base import Inputs
from justitia.postprocessing.dual import Constraints, label_table
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.learner import RuleLearner
from justitia.postprocessing.memberships import Everybody
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.shard import Score, ScoredShard
from justitia.postprocessing.solver import PostProcessingEngine, Seen
from justitia.privacy.interface import Vault
from justitia.privacy.rows import DenseSource
from justitia.training.lagrangian import Problem
from justitia.training.learner import Bar
from justitia.training.ranks import Message, Ranks

Array = NDArray[np.float64]


class CrowdLearner(RuleLearner):
    """A base and a correction that are learned from the sample."""

    sample: Problem | None = None

    def prepare(self, problem: Problem, plan: PostProcessingPlan, bar: Bar) -> Problem:
        """As in memory; then everybody can be scored."""
        self.sample = super().prepare(problem, plan, bar)
        problem.crowd.follow(self)
        return self.sample


class ScoredCrowd(Crowd[ScoredShard]):
    """Everybody with what the base says of them, seen from rank 0.

    Parameters
    ----------
    written : callable
        What is learned as a message for the other ranks.
    """

    def __init__(self, shard: ScoredShard, ranks: Ranks, written: Callable[[CrowdLearner], Message]) -> None:
        super().__init__(shard, ranks)
        self._written = written
        self._learner: CrowdLearner | None = None

    def follow(self, learner: CrowdLearner) -> None:
        """Use the base of this learner from now on."""
        self._learner = learner

    def score(self, learned: PublicRows, eta: Array) -> Array:
        """Score everybody; (width,) sums of public rows."""
        assert self._learner is not None  # noqa: S101 - the learner prepares first
        width = learned.width
        message = {"name": "score", "learned": learned.numbers(), "width": width, "eta": eta}
        message |= self._written(self._learner) if self.ranks.size > 1 else {}
        self.ranks.tell(message | {"numbers": width})
        own = self.shard.score(learned, width, score_of(self._learner), eta)
        return self.ranks.add(own).astype(np.float64) * self.shard.row_step

    def judge(self, membership: Array, multiplied: Array, threshold: float) -> Array:
        """(2, 2, 2 G + 1): see :meth:`ScoredShard.judge`."""
        shape = (2, 2, 2 * multiplied.shape[1] + 1)
        message = {"name": "judge", "membership": membership, "multiplied": multiplied, "threshold": threshold}
        self.ranks.tell(message | {"numbers": int(np.prod(shape))})
        own = self.shard.judge(membership, multiplied, threshold)
        return self.ranks.add(own).reshape(shape) * self.shard.weight_step


def score_of(learner: RuleLearner) -> Score:
    """From a table and its numbers to p(y = 1 | x)."""

    def score(table: Any, numbers: NDArray[np.float32]) -> Array:
        return learner.calibration(learner.base.probability(Inputs(table, numbers)))

    return score


class CrowdEngine(PostProcessingEngine):
    """The plug-in engine where the problem is a sample of a crowd.

    Guarantee
    ---------
    * As for :class:`PostProcessingEngine`: the vault is asked once for the moments and once per check, about everybody.
    """

    def __init__(self, plan: PostProcessingPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        self._crowd: ScoredCrowd = problem.crowd
        super().__init__(plan, problem, vault, **public)
        self._everybodys_total = self._crowd.score(self._rows, self._eta)
        self._shift: Array | float = 0.0  # (G, K): rates of everybody less those of the sample, by the memberships

    def _make_everybody(self) -> Everybody:
        return SampledMembershipFit(self._crowd, self._rows.take, len(self.problem), self.plan.micro_batch)

    def _size_rows(self) -> DenseSource:
        return self._crowd.size_rows(self.vault.n_groups)

    def _moment_rows(self) -> DenseSource:
        return self._crowd.moment_rows(self.vault.n_groups, self._rows.width)

    def _total(self) -> Array:
        return super()._total() if self._crowd.in_sample else self._everybodys_total

    def _row_bound(self) -> float:
        return super()._row_bound() if self._crowd.in_sample else self._crowd.heaviest_row(self.problem.notion)

    def _use(self, weights: Array) -> None:
        super()._use(weights)
        if not self._crowd.in_sample:
            judged = self._judge(np.zeros(self._used().b.shape))
            events = label_table(self.problem.notion)[0]
            groups = self.vault.n_groups
            own = judged[:, :, groups : 2 * groups].sum(1)  # (2, G)
            self._sizes = np.maximum(own.T @ events, 1.0)

    def solve(self, lam: Array) -> Array:
        """The multipliers of the sample, with what passes and checks have said.

        Where nothing is asked, as in a curve, a pass at the multipliers is made for their own sake.
        """
        found = super().solve(lam)
        if not self.asks and not self._crowd.in_sample:
            self._judge(found)
            found = super().solve(found)
        return found

    def settle(self, lam: Array) -> Array:
        """Where it goes back, with a pass that tells how far the sample is off there."""
        found = super().settle(lam)
        if found is not lam and not self._crowd.in_sample:
            self._judge(found)
        return found

    def _seen(self, scores: Array) -> Seen:
        assert self._lam is not None  # noqa: S101 - solved before it is checked
        assert self._weights is not None  # noqa: S101
        if self._crowd.in_sample:
            here = super()._seen(scores)
            means, rates, bound = here.means, here.rates, here.bound
        else:
            judged = self._judge(self._lam)
            means, rates = population_means_of(self.problem.notion, judged[:, :, -1]), self._rates_of(judged)
            bound = 0.0
        table = decision_table(self.problem.notion, means)
        bound = bound or self._crowd.shard.facts.heaviest * float(np.linalg.norm(table, axis=-1).max())
        public = {"membership": self._weights, "multiplied": self._multiplied(self._lam), "table": table}
        rows = self._crowd.decision_rows(self.vault.n_groups, threshold=self.problem.threshold, **public)
        return Seen(rows, bound, means, rates)

    def _judge(self, lam: Array) -> Array:
        """What the memberships say of everybody's decisions; how far the sample is off goes into the constraint."""
        assert self._weights is not None  # noqa: S101
        judged = self._crowd.judge(self._weights, self._multiplied(lam), self.problem.threshold)
        decided = (self.gain > self._used().correction(lam)).astype(np.float64)
        self._shift = self._rates_of(judged) - self._used().rates(decided)
        return judged

    def _rates_of(self, judged: Array) -> Array:
        return rates_of(self.problem.notion, judged[:, :, : self.vault.n_groups])

    def _multiplied(self, lam: Array) -> Array:
        """(2, G): what p(a, y | x) is multiplied by in lambda . c."""
        events, _, change = label_table(self.problem.notion)
        sizes = self._used().sizes
        assert sizes is not None  # noqa: S101
        return (events * change[:, None]) @ (lam / sizes).T

    def _corrected(self) -> Constraints:
        found = super()._corrected()
        return found if self._crowd.in_sample else replace(found, b=found.b + self._shift)

    def state(self) -> dict[str, Array]:
        """How far the sample was off at the multipliers of the last pass, too."""
        return super().state() | {"shift": np.asarray(self._shift)}

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Continue from noised answers, and from what the last pass has said."""
        super().restore(state, lost=lost)
        self._shift = state["shift"]


__all__ = ["CrowdEngine", "CrowdLearner", "ScoredCrowd", "score_of"]
