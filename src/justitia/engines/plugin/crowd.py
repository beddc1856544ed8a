"""Engine ``plugin`` on rows that are not in memory: a public sample is solved, and passes over everybody correct it.

What is asked about groups is asked of everybody, a few rows at a time (:mod:`justitia.engines.plugin.shard`), in this
process or in several. What the memberships say of everybody's decisions differs from what they say of the sample's;
that difference is public, is measured by a pass at the multipliers of the moment, and goes into the constraint, as what
the checks say does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from justitia.engines.moments.everybody import Everybody
from justitia.engines.moments.public_rows import PublicRows
from justitia.engines.plugin.dual import Constraints, label_table
from justitia.engines.plugin.engine import PluginEngine, Seen
from justitia.engines.plugin.learner import RuleLearner
from justitia.engines.plugin.plan import PluginPlan
from justitia.engines.plugin.rates import decision_table, population_means_of, rates_of
from justitia.engines.plugin.shard import Score, Shard, ShardRows, product_bits
from justitia.inputs.public_sample import stride
from justitia.learners.inputs import Inputs
from justitia.privacy.interface import Vault
from justitia.privacy.questions import LANES
from justitia.privacy.rows import DenseSource
from justitia.training.lagrangian import Problem
from justitia.training.learner import Bar
from justitia.training.ranks import DONE, STOP, WHY, LostRank, ManyRanks, Message, Ranks

Array = NDArray[np.float64]
#: The name of a message that asks for the vaults to be opened.
OPEN = "open"


class Crowd:
    """Everybody, seen from rank 0.

    Parameters
    ----------
    shard : Shard
        The rows of this process.
    ranks : Ranks
    written : callable
        What is learned as a message for the other ranks.
    """

    def __init__(self, shard: Shard, ranks: Ranks, written: Callable[[RuleLearner], Message]) -> None:
        self.shard, self.ranks, self._written = shard, ranks, written
        self.n = shard.rows.n
        self._learner: RuleLearner | None = None

    @property
    def in_sample(self) -> bool:
        """Whether the sample has everybody."""
        return stride(self.n) == 1

    def follow(self, learner: RuleLearner) -> None:
        """Use the base of this learner from now on."""
        self._learner = learner

    def score(self, learned: PublicRows, eta: Array) -> Tensor:
        """Score everybody; (width,) sums of public rows."""
        assert self._learner is not None  # noqa: S101 - the learner prepares first
        width = learned.width
        message = {"name": "score", "learned": learned.numbers(), "width": width, "eta": torch.from_numpy(eta)}
        message |= self._written(self._learner) if self.ranks.size > 1 else {}
        self.ranks.tell(message | {"numbers": width})
        own = self.shard.score(learned, width, score_of(self._learner), eta)
        return self.ranks.add(own).double() * self.shard.row_step

    def expected(self, membership: Tensor) -> Tensor:
        """(C, d): sums of public rows under memberships."""
        self.ranks.tell({"name": "expected", "membership": membership, "numbers": membership.numel()})
        sums = self.ranks.add(self.shard.expected(membership)).double() * 4.0 ** -product_bits(self.n)
        return sums.view_as(membership)

    def judge(self, membership: Tensor, multiplied: Tensor, threshold: float) -> Tensor:
        """(2, 2, 2 G + 1): see :meth:`Shard.judge`."""
        shape = (2, 2, 2 * multiplied.shape[1] + 1)
        message = {"name": "judge", "membership": membership, "multiplied": multiplied, "threshold": threshold}
        self.ranks.tell(message | {"numbers": int(np.prod(shape))})
        own = self.shard.judge(membership, multiplied, threshold)
        return self.ranks.add(own).double().view(shape) * self.shard.weight_step

    def size_rows(self, groups: int) -> ShardRows:
        """A one for everybody, for the vault."""
        return self.shard.size_rows({"name": "sizes", "numbers": _numbers(groups, 1)})

    def moment_rows(self, groups: int, width: int) -> ShardRows:
        """Public rows for the vault."""
        return self.shard.moment_rows({"name": "moments", "numbers": _numbers(groups, width)})

    def decision_rows(self, groups: int, **public: Any) -> ShardRows:
        """What the decisions of the moment add to a group's sums."""
        numbers = _numbers(groups, public["table"].shape[-1])
        return self.shard.decision_rows({"name": "decisions", "numbers": numbers} | public)


def _numbers(groups: int, width: int) -> int:
    """How many whole numbers an answer of the vault is made of."""
    return (groups + 1) * width + LANES


def score_of(learner: RuleLearner) -> Score:
    """From a table and its numbers to p(y = 1 | x)."""

    def score(table: Any, numbers: NDArray[np.float32]) -> Array:
        return learner.calibration(learner.base.probability(Inputs(table, numbers)))

    return score


class CrowdLearner(RuleLearner):
    """A base and a correction that are learned from the sample."""

    def prepare(self, problem: Problem, plan: PluginPlan, bar: Bar) -> Problem:
        """As in memory; then everybody can be scored."""
        problem = super().prepare(problem, plan, bar)
        problem.crowd.follow(self)
        return problem


class _CrowdEverybody(Everybody):
    """Memberships are fitted on the sample, and corrected by passes over everybody."""

    def __init__(self, crowd: Crowd, rows: PublicRows, seen: int, chunk_rows: int) -> None:
        super().__init__(rows.take, crowd.n, chunk_rows)
        self._crowd, self._seen_rows = crowd, seen

    def sample(self) -> Tensor:
        """All rows of the sample."""
        return self._columns(torch.arange(self._seen_rows))

    def expected(self, weights: Tensor) -> Tensor:
        """A pass."""
        return self._crowd.expected(weights)


class CrowdEngine(PluginEngine):
    """The plug-in engine where the problem is a sample of a crowd.

    Guarantee
    ---------
    * As for :class:`PluginEngine`: the vault is asked once for the moments and once per check, about everybody.
    """

    def __init__(self, plan: PluginPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        self._crowd: Crowd = problem.crowd
        super().__init__(plan, problem, vault, **public)
        self._everybodys_total = self._crowd.score(self._rows, self._eta)
        self._shift: Array | float = 0.0  # (G, K): rates of everybody less those of the sample, by the memberships
        self._lam: Tensor | None = None

    def _make_everybody(self) -> Everybody:
        return _CrowdEverybody(self._crowd, self._rows, len(self.problem), self.plan.micro_batch)

    def _size_rows(self) -> DenseSource:
        return self._crowd.size_rows(self.vault.n_groups)

    def _moment_rows(self) -> DenseSource:
        return self._crowd.moment_rows(self.vault.n_groups, self._rows.width)

    def _total(self) -> Tensor:
        return super()._total() if self._crowd.in_sample else self._everybodys_total

    def _row_bound(self) -> float:
        if self._crowd.in_sample:
            return super()._row_bound()
        events = label_table(self.problem.notion)[0]
        return self._crowd.shard.facts.heaviest * float(np.linalg.norm(events, axis=1).max())

    def _use(self, weights: Tensor) -> None:
        super()._use(weights)
        if not self._crowd.in_sample:
            judged = self._judge(torch.zeros(self._used().b.shape, dtype=torch.float64))
            events = torch.from_numpy(label_table(self.problem.notion)[0])
            groups = self.vault.n_groups
            own = judged[:, :, groups : 2 * groups].sum(1)  # (2, G)
            self._sizes = (own.T @ events).clamp_min(1.0)

    def solve(self, lam: Tensor) -> Tensor:
        """The multipliers of the sample, with what passes and checks have said.

        Where nothing is asked, as in a curve, a pass at the multipliers is made for their own sake.
        """
        self._lam = super().solve(lam)
        if not self.asks and not self._crowd.in_sample:
            self._judge(self._lam)
            self._lam = super().solve(self._lam)
        return self._lam

    def _seen(self, scores: Tensor) -> Seen:
        assert self._lam is not None  # noqa: S101 - solved before it is checked
        assert self._weights is not None  # noqa: S101
        if self._crowd.in_sample:
            here = super()._seen(scores)
            means, rates, bound = here.means, here.rates, here.bound
        else:
            judged = self._judge(self._lam)
            means, rates = population_means_of(self.problem.notion, judged), self._rates_of(judged)
            bound = 0.0
        table = decision_table(self.problem.notion, means)
        bound = bound or self._crowd.shard.facts.heaviest * float(table.norm(dim=-1).max())
        public = {"membership": self._weights, "multiplied": self._multiplied(self._lam), "table": table}
        rows = self._crowd.decision_rows(self.vault.n_groups, threshold=self.problem.threshold, **public)
        return Seen(rows, bound, means, rates)

    def _judge(self, lam: Tensor) -> Tensor:
        """What the memberships say of everybody's decisions; how far the sample is off goes into the constraint."""
        assert self._weights is not None  # noqa: S101
        judged = self._crowd.judge(self._weights, self._multiplied(lam), self.problem.threshold)
        decided = (self.gain > self._used().correction(lam.numpy())).astype(np.float64)
        self._shift = self._rates_of(judged) - self._used().rates(decided)
        return judged

    def _rates_of(self, judged: Tensor) -> Array:
        return rates_of(self.problem.notion, judged[:, :, : self.vault.n_groups].numpy())

    def _multiplied(self, lam: Tensor) -> Tensor:
        """(2, G): what p(a, y | x) is multiplied by in lambda . c."""
        events, _, change = label_table(self.problem.notion)
        sizes = self._used().sizes
        assert sizes is not None  # noqa: S101
        return torch.from_numpy((events * change[:, None]) @ (lam.numpy() / sizes).T)

    def _corrected(self) -> Constraints:
        found = super()._corrected()
        return found if self._crowd.in_sample else replace(found, b=found.b + self._shift)

    def state(self) -> dict[str, Tensor]:
        """How far the sample was off at the multipliers of the last pass, too."""
        return super().state() | {"shift": torch.as_tensor(self._shift)}

    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """Continue from noised answers, and from what the last pass has said."""
        super().restore(state, lost=lost)
        self._shift = state["shift"].numpy()


class Worker:
    """What every rank but the first does when it is told to.

    Parameters
    ----------
    shard : Shard
    opened : callable
        Opens the vault with the attribute of these rows.
    ranks : ManyRanks
    read : callable
        From a message to what scores rows.
    """

    def __init__(
        self,
        shard: Shard,
        opened: Callable[[], Vault],
        ranks: ManyRanks,
        read: Callable[[Message], Score],
    ) -> None:
        self.shard, self.ranks, self._opened, self._read = shard, ranks, opened, read
        self._vault: Vault | None = None

    def do(self, job: Message) -> None:
        """One pass; what was added up goes to rank 0."""
        asked = {
            "sizes": self.shard.size_rows,
            "moments": self.shard.moment_rows,
            "decisions": self.shard.decision_rows,
        }
        if job["name"] in asked:
            rows = asked[job["name"]](job)
            assert self._vault is not None  # noqa: S101 - opened before
            self._vault.contribute(rows, **{name: job[name] for name in ("bound", "step", "seeded")})
        else:
            self.ranks.add(self._public(job))

    def _public(self, job: Message) -> Tensor:
        match job["name"]:
            case "open":
                self._vault = self._opened()
                return torch.zeros(1, dtype=torch.int64)
            case "weights":
                return self.shard.weight_sums(job["cap"])
            case "score":
                learned, score = PublicRows.from_numbers(job["learned"]), self._read(job)
                return self.shard.score(learned, job["width"], score, job["eta"].numpy())
            case "expected":
                return self.shard.expected(job["membership"])
            case "judge":
                return self.shard.judge(job["membership"], job["multiplied"], job["threshold"])
            case name:
                raise ValueError(f"expected a message of this version of justitia, got {name!r}; use one everywhere.")


def serve(shard: Shard, opened: Callable[[], Vault], ranks: ManyRanks, read: Callable[[Message], Score]) -> Message:
    """Work until the end; the last message.

    Raises
    ------
    RuntimeError
        In the words of rank 0, if that stopped with a fault.
    """
    worker = Worker(shard, opened, ranks, read)
    while True:
        job = ranks.tell({})
        if job["name"] == STOP:
            raise RuntimeError(job["why"])
        if job["name"] == DONE:
            return job
        if job["name"] == WHY:
            ranks.explain()
            continue
        try:
            worker.do(job)
        except LostRank:
            raise
        except Exception as error:  # noqa: BLE001 - told to rank 0, which stops everybody
            ranks.fail(int(job["numbers"]), (str(error) or type(error).__name__).splitlines()[0])


__all__ = ["OPEN", "Crowd", "CrowdEngine", "CrowdLearner", "score_of", "serve"]
