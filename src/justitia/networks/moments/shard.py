"""The rows of one process in engine ``moments``: what networks say of them, computed when it is needed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from justitia.engines.shards import Encode, Facts, Piece, Shard, ShardRows, memberships_of, whole
from justitia.networks.moments.frozen import FrozenNetwork
from justitia.networks.requirements import as_scores
from justitia.networks.run import as_tensors
from justitia.postprocessing.features import PublicRows
from justitia.preprocessing.public_sample import OwnRows
from justitia.privacy.noise_grid import to_nearest
from justitia.privacy.rows import placed_chunks
from justitia.training.ranks import Message

Array = NDArray[Any]
Weights = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Check:
    """Decisions that were asked about.

    Attributes
    ----------
    network : dict
        Weights of the network that decided.
    decided : ndarray
        Its decisions in the sample, 0 or 1.
    table : ndarray (2, 2, K)
        What they add to a group's sums, by label and decision.
    """

    network: Weights
    decided: Array
    table: Array

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
        self._beside: Array = np.empty((0, 0), dtype=np.float32)
        self._checks: list[Check] = []

    def public(self, job: Message) -> Array:
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

    def learn(self, learned: PublicRows, width: int, module: nn.Module, beside: Array) -> Array:
        """Use this network for the moments; (width,) sums of public rows.

        Parameters
        ----------
        beside : ndarray (rows of the sample, any)
            Columns that the network has been given besides the features.
        """
        self.learned, self.width, self._beside = learned, width, beside
        self._module, self._frozen = copy.deepcopy(module).eval(), FrozenNetwork(module, torch.empty(0, 0))
        self._checks.clear()
        total = np.zeros(width, dtype=np.int64)
        for rows in self.moments():
            total += whole(rows.astype(np.float64), self.row_step)
        return total

    def recall(self, checks: list[Check]) -> Array:
        """Checks of a run that is resumed."""
        self._checks = checks
        return np.zeros(1, dtype=np.int64)

    def moments(self) -> Iterator[Array]:
        """(m, width): public rows."""
        return (self._moments_of(piece, self._inputs(piece)) for piece in self.pieces())

    def _moments_of(self, piece: Piece, X: Array) -> Array:
        assert self.learned is not None  # noqa: S101 - learned before
        assert self._frozen is not None  # noqa: S101
        rows = self.learned.of(self._frozen.of(torch.from_numpy(X)), X, self.labels(piece.block))
        return rows.placed(piece.block.first, np.arange(len(X)))

    def _inputs(self, piece: Piece) -> Array:
        """What the network reads: features, and what it was given besides."""
        X = piece.numbers
        return np.concatenate([X, self._beside[piece.places]], axis=1) if self._beside.shape[1] else X

    def columns(self) -> Iterator[Array]:
        """(m, d): public rows of the moments and of every check so far."""
        networks = [self._with(one.network) for one in self._checks]
        for piece in self.pieces():
            yield self._columns_of(piece, networks)

    def _columns_of(self, piece: Piece, networks: list[nn.Module]) -> Array:
        X = self._inputs(piece)
        parts = [self._moments_of(piece, X)]
        for check, network in zip(self._checks, networks, strict=True):
            decided = self._decide(network, X, piece, check.decided)
            parts.append(self.of_table(piece.block, decided, check.table))
        return np.concatenate(parts, axis=1)

    @property
    def scale(self) -> Array:
        """(d,): 1 for the moments, the size of a row for checks."""
        sizes = [self.facts.heaviest * float(np.abs(one.table).max()) for one in self._checks]
        powers = [2.0 ** max(0.0, np.ceil(np.log2(size))) if size else 1.0 for size in sizes]
        parts = [np.full(one.table.shape[-1], p) for one, p in zip(self._checks, powers, strict=True)]
        return np.concatenate([super().scale, *parts])

    def _with(self, weights: Weights) -> nn.Module:
        """The network with other weights."""
        assert self._module is not None  # noqa: S101 - learned before
        twin = copy.deepcopy(self._module)
        twin.load_state_dict(as_tensors(weights))
        return twin

    def _decide(self, network: nn.Module, X: Array, piece: Piece, in_sample: Array) -> NDArray[np.bool_]:
        """(m,): decisions; those of the sample as rank 0 has made them."""
        decided = np.zeros(len(X), dtype=np.bool_)
        if len(piece.drawn) < len(X):
            assert self.learned is not None  # noqa: S101 - learned before
            with torch.no_grad():
                for places, who in placed_chunks(piece.block.first, len(X), self.learned.places):
                    scores = as_scores(network(torch.from_numpy(X[who])), len(who))
                    decided[who[places]] = (scores[places] > 0).numpy()
        decided[piece.drawn] = in_sample[piece.places].astype(np.bool_)
        return decided

    def judge(self, network: Weights, decided: Array, membership: Array) -> Array:
        """Weights by label, decision and group that the memberships say, and by label and decision: (2, 2, G + 1)."""
        groups = membership.shape[0] - 1
        total = np.zeros((2, 2, groups + 1), dtype=np.int64)
        deciding, networks = self._with(network), [self._with(one.network) for one in self._checks]
        for piece in self.pieces():
            q = memberships_of(membership, self._columns_of(piece, networks))[:, :-1]
            y = self.labels(piece.block) > 0.5
            taken = self._decide(deciding, self._inputs(piece), piece, decided)
            weight = self.weights(piece.block)[:, None]
            columns = to_nearest(np.concatenate([q, np.ones((len(q), 1))], axis=1) * weight, self.weight_step)
            for label in (0, 1):
                for d in (0, 1):
                    total[label, d] += columns[(y == bool(label)) & (taken == bool(d))].sum(0).astype(np.int64)
        return total.ravel()

    def decision_rows(self, message: Message) -> ShardRows:
        """What these decisions add to a group's sums; from now on memberships are a function of them, too."""
        check = Check(**{name: message[name] for name in ("network", "decided", "table")})
        self._checks.append(check)

        def parts() -> Iterator[Array]:
            network = self._with(check.network)
            for piece in self.pieces():
                decided = self._decide(network, self._inputs(piece), piece, check.decided)
                yield self.of_table(piece.block, decided, check.table)

        return ShardRows(parts, len(self.rows), check.table.shape[-1], message)


def _loaded(module: nn.Module, weights: Weights) -> nn.Module:
    try:
        module.load_state_dict(as_tensors(weights))
    except RuntimeError:
        raise ValueError(
            "expected the same module in every process, got another shape; pass one of that shape."
        ) from None
    return module


__all__ = ["Check", "NetworkShard"]
