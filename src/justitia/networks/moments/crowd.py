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
from numpy.typing import NDArray
from torch import nn

from justitia.engines.crowds import Crowd, SampledMembershipFit, decision_table, population_means_of, rates_of
from justitia.networks.moments.engine import MomentsEngine, with_prefix
from justitia.networks.moments.shard import Check, NetworkShard
from justitia.networks.multilayer import widths_of
from justitia.networks.piecewise import SmallSampleNetwork
from justitia.networks.run import as_arrays
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.memberships import Everybody
from justitia.privacy.interface import Vault
from justitia.privacy.rows import ArrayRows, DenseSource
from justitia.privacy.shards import Drawn
from justitia.training.engine import ALL_ROWS, Array, Rows
from justitia.training.lagrangian import Problem, population_means, row_bound
from justitia.training.ranks import Message, Ranks


def network_crowd(shard: NetworkShard, ranks: Ranks, inputs: int, facts: Callable[[], Message]) -> NetworkCrowd:
    """All rows, as networks with so many features see them; ``facts`` are the public facts that workers need."""

    def written(module: nn.Module, X: Array) -> Message:
        small, widths = isinstance(module, SmallSampleNetwork), widths_of(module)
        shape = {"small": small, "X": X if small else X[:1], "widths": None if widths is None else widths[1:-1]}
        return facts() | {"shape": shape}

    return NetworkCrowd(shard, ranks, inputs, written)


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
        self, shard: NetworkShard, ranks: Ranks, inputs: int, written: Callable[[nn.Module, Array], Message]
    ) -> None:
        super().__init__(shard, ranks)
        self.inputs, self._written = inputs, written

    def learn(self, rows: PublicRows, module: nn.Module, X: Array) -> Array:
        """Use this network for the moments; (width,) sums of public rows."""
        width, beside = rows.width, X[:, self.inputs :]
        message = {"name": "learn", "numbers": width, "learned": rows.numbers(), "width": width, "beside": beside}
        message |= (
            {"network": weights_of(module)} | self._written(module, X[:, : self.inputs]) if self.ranks.size > 1 else {}
        )
        self.ranks.tell(message)
        return self.ranks.add(self.shard.learn(rows, width, module, beside)) * self.shard.row_step

    def judge(self, module: nn.Module, decided: Array, membership: Array) -> Array:
        """(2, 2, G + 1): see :meth:`NetworkShard.judge`."""
        shape = (2, 2, len(membership))
        message: Message = {"network": weights_of(module), "decided": decided, "membership": membership}
        self.ranks.tell({"name": "judge", "numbers": int(np.prod(shape))} | message)
        return self.ranks.add(self.shard.judge(**message)).reshape(shape) * self.shard.weight_step

    def recall(self, checks: list[Check]) -> None:
        """Tell everybody the checks of a run that is resumed."""
        self.ranks.tell({"name": "recall", "numbers": 1, "checks": [one.message() for one in checks]})
        self.ranks.add(self.shard.recall(checks))


def weights_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """A copy of the weights as they are now."""
    return {name: value.copy() for name, value in as_arrays(module.state_dict()).items()}


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
        self._everybodys_total: Array | None = None  # of the rows that are asked about next
        self._checks: list[Check] = []
        self._shift: Array | None = None  # (G, K): gaps of everybody less those of the sample, by the memberships

    def ask_before(self, module: nn.Module, lam: Array, k: int) -> None:
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
        return SampledMembershipFit(self._crowd, self._columns, len(self.problem), self.plan.micro_batch)

    def _total(self, rows: DenseSource) -> Array:
        del rows
        assert self._everybodys_total is not None  # noqa: S101 - counted before it is asked
        return self._everybodys_total

    def _row_bound(self) -> float:
        return super()._row_bound() if self._crowd.in_sample else self._crowd.heaviest_row(self.problem.notion)

    def _check(self, scores: Array) -> None:
        assert self._module is not None  # noqa: S101 - given before each round
        notion, decided = self.problem.notion, (scores > 0).astype(np.uint8)
        if self._crowd.in_sample:
            rows = self._decided(scores, ALL_ROWS)
            table = decision_table(
                notion, population_means(notion.h_exact(scores, self.problem.y), self.problem.events)
            )
            bound = row_bound(rows)
            self._everybodys_total = super()._total(ArrayRows(rows.astype(np.float64)))
        else:
            table = self._judged(scores, decided)
            rows = self.problem.weight[:, None] * table[self.problem.y.astype(int), decided.astype(int)].astype(
                np.float32
            )
            bound = self._crowd.shard.facts.heaviest * float(np.linalg.norm(table, axis=-1).max())
        check = Check(weights_of(self._module), decided, table)
        asked = self._crowd.decision_rows(self.vault.n_groups, **check.message())
        self._checks.append(check)
        self._decisions.append(rows.astype(np.float32))
        self._learn(asked, bound, self.plan.noise_checks, "decisions")

    def _judged(self, scores: Array, decided: Array) -> Array:
        """(2, 2, K) what everybody's decisions add to sums; how far the gaps of the sample are off is kept."""
        assert self._module is not None  # noqa: S101
        assert self._weights is not None  # noqa: S101 - moments are asked for first
        notion = self.problem.notion
        judged = self._crowd.judge(self._module, decided, self._weights)
        means, groups = population_means_of(notion, judged[:, :, -1]), judged[:, :, :-1]
        sample = super().gap(scores)
        assert sample is not None  # noqa: S101
        self._shift = rates_of(notion, groups) - means - sample
        table = decision_table(notion, means)
        self._everybodys_total = (judged[:, :, -1:] * table).sum((0, 1))
        return table

    def gap(self, scores: Array, seen: Rows = ALL_ROWS) -> Array | None:
        """Gaps of the sample, with what it is off."""
        found = super().gap(scores, seen)
        return found if found is None or self._shift is None else found + self._shift

    def state(self) -> dict[str, Array]:
        """As in memory, and what lets all ranks decide again as at the checks."""
        saved = super().state()
        if self._shift is not None:
            saved["shift"] = self._shift
        for j, check in enumerate(() if self._crowd.in_sample else self._checks):
            saved |= {f"check.{j}.decided": check.decided, f"check.{j}.table": check.table}
            saved |= {f"check.{j}.network.{name}": value for name, value in check.network.items()}
        return saved

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """As in memory."""
        super().restore(state, lost=lost)
        self._shift = state.get("shift")
        self._checks = []
        while f"check.{len(self._checks)}.table" in state:
            here = f"check.{len(self._checks)}."
            network = with_prefix(state, f"{here}network.")
            self._checks.append(Check(network, state[f"{here}decided"], state[f"{here}table"]))


__all__ = ["CrowdMomentsEngine", "NetworkCrowd"]
