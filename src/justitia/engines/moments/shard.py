"""The rows of one process in engine ``moments``: what networks say of them, computed when it is needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from justitia.engines.moments.public_rows import FrozenNetwork, PublicRows
from justitia.engines.shards import Encode, Facts, Piece, Shard, ShardRows, memberships_of, whole
from justitia.inputs.public_sample import OwnRows
from justitia.networks.requirements import as_scores
from justitia.privacy.noise_grid import to_nearest
from justitia.privacy.rows import placed_chunks
from justitia.training.ranks import Message

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Check:
    """Decisions that were asked about.

    Attributes
    ----------
    network : dict
        Weights of the network that decided.
    decided : Tensor
        Its decisions in the sample, 0 or 1.
    table : Tensor (2, 2, K)
        What they add to a group's sums, by label and decision.
    """

    network: Weights
    decided: Tensor
    table: Tensor

    def message(self) -> Message:
        """As plain values."""
        return {"network": self.network, "decided": self.decided, "table": self.table}


class NetworkShard(Shard):
    """The rows of one process, and networks that say something of them; nothing is kept for each row.

    Parameters
    ----------
    read : callable, optional
        From a message of rank 0 to a network without weights.
    """

    def __init__(
        self, rows: OwnRows, facts: Facts, encode: Encode, read: Callable[[Message], nn.Module] | None = None
    ) -> None:
        super().__init__(rows, facts, encode)
        self._read = read
        self._frozen: FrozenNetwork | None = None
        self._module: nn.Module | None = None
        self._beside = torch.empty(0, 0)
        self._checks: list[Check] = []

    def public(self, job: Message) -> Tensor:
        """Sums of public rows, what memberships say of decisions, or checks that are known already."""
        match job["name"]:
            case "learn":
                assert self._read is not None  # noqa: S101 - of a process that is sent messages
                module = _loaded(self._read(job), job["network"])
                return self.learn(PublicRows.from_numbers(job["learned"]), job["width"], module, job["beside"])
            case "judge":
                return self.judge(job["network"], job["decided"], job["membership"])
            case "recall":
                return self.recall([Check(**one) for one in job["checks"]])
            case name:
                raise ValueError(f"expected a message of this version of justitia, got {name!r}; use one everywhere.")

    def learn(self, learned: PublicRows, width: int, module: nn.Module, beside: Tensor) -> Tensor:
        """Use this network for the moments; (width,) sums of public rows.

        Parameters
        ----------
        beside : Tensor (rows of the sample, any)
            Columns that the network has been given besides the features.
        """
        self.learned, self.width, self._beside = learned, width, beside
        self._module, self._frozen = copy.deepcopy(module).eval(), FrozenNetwork(module, torch.empty(0, 0))
        self._checks.clear()
        total = torch.zeros(width, dtype=torch.int64)
        for rows in self.moments():
            total += whole(rows.double(), self.row_step)
        return total

    def recall(self, checks: list[Check]) -> Tensor:
        """Checks of a run that is resumed."""
        self._checks = checks
        return torch.zeros(1, dtype=torch.int64)

    def moments(self) -> Iterator[Tensor]:
        """(m, width): public rows."""
        return (self._moments_of(piece, self._inputs(piece)) for piece in self.pieces())

    def _moments_of(self, piece: Piece, X: Tensor) -> Tensor:
        assert self.learned is not None  # noqa: S101 - learned before
        assert self._frozen is not None  # noqa: S101
        rows = self.learned.of(self._frozen.of(X), X, torch.from_numpy(self.labels(piece.block)))
        return rows.placed(piece.block.first, torch.arange(len(X)))

    def _inputs(self, piece: Piece) -> Tensor:
        """What the network reads: features, and what it was given besides."""
        X = torch.from_numpy(piece.numbers)
        return torch.cat([X, self._beside[piece.places]], dim=1) if self._beside.shape[1] else X

    def columns(self) -> Iterator[Tensor]:
        """(m, d): public rows of the moments and of every check so far."""
        networks = [self._with(one.network) for one in self._checks]
        for piece in self.pieces():
            yield self._columns_of(piece, networks)

    def _columns_of(self, piece: Piece, networks: list[nn.Module]) -> Tensor:
        X = self._inputs(piece)
        parts = [self._moments_of(piece, X)]
        for check, network in zip(self._checks, networks, strict=True):
            decided = self._decide(network, X, piece, check.decided)
            parts.append(self.of_table(piece.block, decided, check.table))
        return torch.cat(parts, dim=1)

    @property
    def scale(self) -> Tensor:
        """(d,): 1 for the moments, the size of a row for checks."""
        sizes = [self.facts.heaviest * float(one.table.abs().max()) for one in self._checks]
        powers = [2.0 ** max(0, torch.tensor(size).log2().ceil().item()) for size in sizes]
        parts = [torch.full((one.table.shape[-1],), p) for one, p in zip(self._checks, powers, strict=True)]
        return torch.cat([super().scale, *(part.double() for part in parts)])

    def _with(self, weights: Weights) -> nn.Module:
        """The network with other weights."""
        assert self._module is not None  # noqa: S101 - learned before
        twin = copy.deepcopy(self._module)
        twin.load_state_dict(weights)
        return twin

    def _decide(self, network: nn.Module, X: Tensor, piece: Piece, in_sample: Tensor) -> Tensor:
        """(m,): decisions; those of the sample as rank 0 has made them."""
        decided = torch.zeros(len(X), dtype=torch.bool)
        if len(piece.drawn) < len(X):
            assert self.learned is not None  # noqa: S101 - learned before
            with torch.no_grad():
                for places, numbers in placed_chunks(piece.block.first, len(X), self.learned.places):
                    who = torch.from_numpy(numbers)
                    decided[who[places]] = as_scores(network(X[who]), len(who))[places] > 0
        decided[torch.from_numpy(piece.drawn)] = in_sample[piece.places].bool()
        return decided

    def judge(self, network: Weights, decided: Tensor, membership: Tensor) -> Tensor:
        """Weights by label, decision and group that the memberships say, and by label and decision: (2, 2, G + 1)."""
        groups = membership.shape[0] - 1
        total = torch.zeros(2, 2, groups + 1, dtype=torch.int64)
        deciding, networks = self._with(network), [self._with(one.network) for one in self._checks]
        for piece in self.pieces():
            q = memberships_of(membership, self._columns_of(piece, networks))[:, :-1]
            y = torch.from_numpy(self.labels(piece.block)).bool()
            taken = self._decide(deciding, self._inputs(piece), piece, decided)
            weight = torch.from_numpy(self.weights(piece.block))[:, None]
            weighted = torch.cat([q, torch.ones(len(q), 1)], dim=1) * weight
            columns = torch.from_numpy(to_nearest(weighted.numpy(), self.weight_step))
            for label in (0, 1):
                for d in (0, 1):
                    total[label, d] += columns[(y == bool(label)) & (taken == bool(d))].sum(0).long()
        return total.flatten()

    def decision_rows(self, message: Message) -> ShardRows:
        """What these decisions add to a group's sums; from now on memberships are a function of them, too."""
        check = Check(**{name: message[name] for name in ("network", "decided", "table")})
        self._checks.append(check)

        def parts() -> Iterator[Tensor]:
            network = self._with(check.network)
            for piece in self.pieces():
                decided = self._decide(network, self._inputs(piece), piece, check.decided)
                yield self.of_table(piece.block, decided, check.table)

        return ShardRows(parts, len(self.rows), check.table.shape[-1], message)


def _loaded(module: nn.Module, weights: Weights) -> nn.Module:
    try:
        module.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(
            "expected the same module in every process, got another shape; pass one of that shape."
        ) from None
    return module


__all__ = ["Check", "NetworkShard"]
