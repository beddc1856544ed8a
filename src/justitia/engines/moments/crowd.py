"""Engine ``moments`` on rows that are not in memory: a network is trained on a public sample, everybody is asked about.

Moments and checks are sums over everybody, and memberships are fitted on the sample until their sums over everybody
agree with the answers. Memberships are a function of a row: those of rows outside the sample are computed when a pass
needs them, and dropped. What they say of everybody's decisions differs from what they say of the sample's; that
difference is public, is measured at each check, and is added to the gaps of the sample from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from justitia.engines.crowds import Crowd, CrowdEverybody, decision_table, population_means_of, rates_of
from justitia.engines.moments.engine import MomentsEngine, with_prefix
from justitia.engines.moments.everybody import Everybody
from justitia.engines.moments.public_rows import PublicRows
from justitia.engines.moments.shard import Check, NetworkShard
from justitia.privacy.interface import Vault
from justitia.privacy.rows import ArrayRows, DenseSource
from justitia.privacy.shards import Drawn
from justitia.training.engine import EVERYBODY
from justitia.training.lagrangian import Problem, population_means, row_bound
from justitia.training.ranks import Message, Ranks


class NetworkCrowd(Crowd[NetworkShard]):
    """Everybody, seen by networks from rank 0.

    Parameters
    ----------
    inputs : int
        Number of features.
    written : callable
        What lets the other ranks make a network of this shape.
    """

    def __init__(
        self, shard: NetworkShard, ranks: Ranks, inputs: int, written: Callable[[nn.Module, Tensor], Message]
    ) -> None:
        super().__init__(shard, ranks)
        self.inputs, self._written = inputs, written

    def learn(self, rows: PublicRows, module: nn.Module, X: Tensor) -> Tensor:
        """Use this network for the moments; (width,) sums of public rows."""
        width, beside = rows.width, X[:, self.inputs :]
        message = {"name": "learn", "numbers": width, "learned": rows.numbers(), "width": width, "beside": beside}
        message |= (
            {"network": weights_of(module)} | self._written(module, X[:, : self.inputs]) if self.ranks.size > 1 else {}
        )
        self.ranks.tell(message)
        return self.ranks.add(self.shard.learn(rows, width, module, beside)).double() * self.shard.row_step

    def judge(self, module: nn.Module, decided: Tensor, membership: Tensor) -> Tensor:
        """(2, 2, G + 1): see :meth:`NetworkShard.judge`."""
        shape = (2, 2, len(membership))
        message: Message = {"network": weights_of(module), "decided": decided, "membership": membership}
        self.ranks.tell({"name": "judge", "numbers": int(np.prod(shape))} | message)
        return self.ranks.add(self.shard.judge(**message)).double().view(shape) * self.shard.weight_step

    def recall(self, checks: list[Check]) -> None:
        """Tell everybody the checks of a run that is resumed."""
        self.ranks.tell({"name": "recall", "numbers": 1, "checks": [one.message() for one in checks]})
        self.ranks.add(self.shard.recall(checks))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights as they are now."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class CrowdMomentsEngine(MomentsEngine):
    """The moments engine where the problem is a sample of a crowd.

    Guarantee
    ---------
    * As for :class:`MomentsEngine`: the vault is asked once for the moments and once per check, about everybody.
    """

    def __init__(self, plan: Any, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._crowd: NetworkCrowd = problem.crowd
        self._module: nn.Module | None = None
        self._everybodys_total: Tensor | None = None  # of the rows that are asked about next
        self._checks: list[Check] = []
        self._shift: Tensor | None = None  # (G, K): gaps of everybody less those of the sample, by the memberships

    def ask_before(self, module: nn.Module, lam: Tensor, k: int) -> None:
        """As in memory; the network decides about everybody at the next check."""
        self._module = module
        super().ask_before(module, lam, k)

    def _drawn(self) -> Drawn | None:
        return self._crowd.shard.drawn()

    def _public_rows(self, module: nn.Module) -> PublicRows:
        rows = super()._public_rows(module)
        self._everybodys_total = self._crowd.learn(rows, module, self.problem.X)
        if self._checks:
            self._crowd.recall(self._checks)
        return rows

    def _moment_rows(self, rows: PublicRows) -> DenseSource:
        if self._crowd.in_sample:
            self._everybodys_total = super()._total(rows)
        return self._crowd.moment_rows(self.vault.n_groups, rows.width)

    def _everybody(self) -> Everybody:
        return CrowdEverybody(self._crowd, self._columns, len(self.problem), self.plan.micro_batch)

    def _total(self, rows: DenseSource) -> Tensor:
        del rows
        assert self._everybodys_total is not None  # noqa: S101 - counted before it is asked
        return self._everybodys_total

    def _row_bound(self) -> float:
        return super()._row_bound() if self._crowd.in_sample else self._crowd.heaviest_row(self.problem.notion)

    def _check(self, scores: Tensor) -> None:
        assert self._module is not None  # noqa: S101 - given before each round
        notion, decided = self.problem.notion, (scores > 0).to(torch.uint8)
        if self._crowd.in_sample:
            rows = self._decided(scores, EVERYBODY)
            table = decision_table(
                notion, population_means(notion.h_exact(scores, self.problem.y), self.problem.events)
            )
            bound = row_bound(rows)
            self._everybodys_total = super()._total(ArrayRows(rows.double().numpy()))
        else:
            table = self._judged(scores, decided)
            rows = self.problem.weight[:, None] * table[self.problem.y.long(), decided.long()].float()
            bound = self._crowd.shard.facts.heaviest * float(table.norm(dim=-1).max())
        check = Check(weights_of(self._module), decided, table)
        asked = self._crowd.decision_rows(self.vault.n_groups, **check.message())
        self._checks.append(check)
        self._decisions.append(rows.to(torch.float32))
        self._learn(asked, bound, self.plan.noise_checks, "decisions")

    def _judged(self, scores: Tensor, decided: Tensor) -> Tensor:
        """(2, 2, K) what everybody's decisions add to sums; how far the gaps of the sample are off is kept."""
        assert self._module is not None  # noqa: S101
        assert self._weights is not None  # noqa: S101 - moments are asked for first
        notion = self.problem.notion
        judged = self._crowd.judge(self._module, decided, self._weights)
        means, groups = population_means_of(notion, judged[:, :, -1]), judged[:, :, :-1]
        sample = super().gap(scores)
        assert sample is not None  # noqa: S101
        self._shift = torch.from_numpy(rates_of(notion, groups.numpy())) - means - sample
        table = decision_table(notion, means)
        self._everybodys_total = (judged[:, :, -1:] * table).sum((0, 1))
        return table

    def gap(self, scores: Tensor, seen: Tensor | slice = EVERYBODY) -> Tensor | None:
        """Gaps of the sample, with what it is off."""
        found = super().gap(scores, seen)
        return found if found is None or self._shift is None else found + self._shift

    def state(self) -> dict[str, Tensor]:
        """As in memory, and what lets all ranks decide again as at the checks."""
        saved = super().state()
        if self._shift is not None:
            saved["shift"] = self._shift
        for j, check in enumerate(() if self._crowd.in_sample else self._checks):
            saved |= {f"check.{j}.decided": check.decided, f"check.{j}.table": check.table}
            saved |= {f"check.{j}.network.{name}": value for name, value in check.network.items()}
        return saved

    def restore(self, state: dict[str, Tensor], *, lost: int) -> None:
        """As in memory."""
        super().restore(state, lost=lost)
        self._shift = state.get("shift")
        self._checks = []
        while f"check.{len(self._checks)}.table" in state:
            here = f"check.{len(self._checks)}."
            network = with_prefix(state, f"{here}network.")
            self._checks.append(Check(network, state[f"{here}decided"], state[f"{here}table"]))


__all__ = ["CrowdMomentsEngine", "NetworkCrowd"]
