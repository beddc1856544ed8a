"""Everybody, where the rows of a fit are a public sample of them: passes of all processes, as rank 0 asks for them.

What is asked about groups is asked of everybody, a few rows at a time (:mod:`justitia.engines.shards`), in this process
or in several. Engines learn from the sample, and passes over everybody correct them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from justitia.engines.shards import Shard, ShardRows, product_bits
from justitia.notions import FairnessNotion
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.memberships import Everybody
from justitia.preprocessing.public_sample import stride
from justitia.privacy.interface import Vault
from justitia.privacy.rows import index_chunks
from justitia.training.ranks import DONE, REVEAL, STOP, LostRank, ManyRanks, Message, Ranks

Array = NDArray[np.float64]
#: The name of a message that asks for the vaults to be opened.
OPEN = "open"
Kind = TypeVar("Kind", bound=Shard)


class Crowd(Generic[Kind]):
    """Everybody, seen from rank 0.

    Parameters
    ----------
    shard : Shard
        The rows of this process.
    ranks : Ranks
    """

    def __init__(self, shard: Kind, ranks: Ranks) -> None:
        self.shard, self.ranks = shard, ranks
        self.n = shard.rows.n

    @property
    def in_sample(self) -> bool:
        """Whether the sample has everybody."""
        return stride(self.n) == 1

    def heaviest_row(self, notion: FairnessNotion) -> float:
        """How much one row may count in the sums of a notion."""
        return self.shard.facts.heaviest * float(np.linalg.norm(label_table(notion)[0], axis=1).max())

    def expected(self, membership: Array) -> Array:
        """(C, d): sums of columns under memberships."""
        self.ranks.tell({"name": "expected", "membership": membership, "numbers": membership.size})
        sums = self.ranks.add(self.shard.expected(membership)) * 4.0 ** -product_bits(self.n)
        return sums.reshape(membership.shape) * self.shard.scale

    def check_unchanged(self) -> None:
        """Refuse files that were changed, before the vault debits for a pass over them."""
        self.shard.rows.files.check_unchanged()

    def size_rows(self, groups: int) -> ShardRows:
        """A one for everybody, for the vault."""
        self.check_unchanged()
        return self.shard.size_rows({"name": "sizes", "numbers": _numbers(groups, 1)})

    def moment_rows(self, groups: int, width: int) -> ShardRows:
        """Public rows for the vault."""
        self.check_unchanged()
        return self.shard.moment_rows({"name": "moments", "numbers": _numbers(groups, width)})

    def decision_rows(self, groups: int, **public: Any) -> ShardRows:
        """What the decisions of the moment add to a group's sums."""
        self.check_unchanged()
        numbers = _numbers(groups, public["table"].shape[-1])
        return self.shard.decision_rows({"name": "decisions", "numbers": numbers} | public)


def _numbers(groups: int, width: int) -> int:
    """How many whole numbers an answer of the vault is made of."""
    return (groups + 1) * width


class SampledMembershipFit(Everybody):
    """Memberships are fitted on the sample, and corrected by passes over everybody."""

    def __init__(
        self, crowd: Crowd[Any], columns: Callable[[NDArray[np.int64]], NDArray[Any]], seen: int, chunk_rows: int
    ) -> None:
        super().__init__(columns, seen, chunk_rows)
        self._crowd, self._seen_rows, self._n = crowd, seen, crowd.n

    def sample(self) -> Array:
        """All rows of the sample."""
        return self._columns(np.arange(self._seen_rows))

    def expected(self, weights: Array) -> Array:
        """A pass."""
        return self._crowd.expected(weights)

    def _parts(self) -> Iterator[Array]:
        return (self._columns(part) for part in index_chunks(self._seen_rows, self._chunk_rows))


def rates_of(notion: FairnessNotion, shares: Array) -> Array:
    """(G, K): rates from (2, 2, G) sums of weights by label, decision and group."""
    events, without, change = label_table(notion)
    sizes = np.einsum("yk,yda->ak", events, shares)
    positive = events * (without + change)[:, None]
    sums = (events * without[:, None]).T @ shares[:, 0] + positive.T @ shares[:, 1]
    rates: Array = sums.T / np.maximum(sizes, 1e-9)
    return rates


def population_means_of(notion: FairnessNotion, cells: Array) -> Array:
    """(K,): means of the population from (2, 2) sums of weights by label and decision."""
    events, without, change = label_table(notion)
    h = np.stack([without, without + change], axis=1)  # (2, 2): by label and decision
    sizes = events.T @ cells.sum(1)
    return np.where(sizes > 0, events.T @ (cells * h).sum(1) / np.maximum(sizes, 1e-12), 0.0)


def decision_table(notion: FairnessNotion, means: Array) -> Array:
    """(2, 2, K): a centred public row of weight 1 by label and decision, in single precision as in memory."""
    events, without, change = (one.astype(np.float32) for one in label_table(notion))
    h = np.stack([without, without + change], axis=1)
    rows: Array = (events[:, None, :] * (h[:, :, None] - means.astype(h.dtype))).astype(np.float64)
    return rows


class Worker:
    """What every rank but the first does when it is told to.

    Parameters
    ----------
    shard : Shard
    opened : callable
        Opens the vault with the attribute of these rows.
    ranks : ManyRanks
    """

    def __init__(self, shard: Shard, opened: Callable[[], Vault], ranks: ManyRanks) -> None:
        self.shard, self.ranks, self._opened = shard, ranks, opened
        self._vault: Vault | None = None

    def do(self, job: Message) -> None:
        """One pass; what was added up goes to rank 0."""
        asked = {
            "sizes": self.shard.size_rows,
            "moments": self.shard.moment_rows,
            "decisions": self.shard.decision_rows,
        }
        if job["name"] == REVEAL:
            self._opened_vault.hand_over(self.shard.drawn())
        elif job["name"] in asked:
            rows = asked[job["name"]](job)
            self._opened_vault.contribute(rows, bound=job["bound"], step=job["step"])
        else:
            self.ranks.add(self._public(job))

    @property
    def _opened_vault(self) -> Vault:
        assert self._vault is not None  # noqa: S101 - rank 0 asks for it first
        return self._vault

    def _public(self, job: Message) -> NDArray[np.int64]:
        match job["name"]:
            case "open":
                self._vault = self._opened()
                return np.zeros(1, dtype=np.int64)
            case "weights":
                return self.shard.weight_sums(job["cap"])
            case "expected":
                return self.shard.expected(job["membership"])
            case _:
                return self.shard.public(job)


def serve(shard: Shard, opened: Callable[[], Vault], ranks: ManyRanks) -> Message:
    """Work until the end; the last message.

    Raises
    ------
    RuntimeError
        In the words of rank 0, if that stopped with a fault.
    """
    worker = Worker(shard, opened, ranks)
    while True:
        job = ranks.tell({})
        if job["name"] == STOP:
            raise RuntimeError(job["why"])
        if job["name"] == DONE:
            return job
        try:
            worker.do(job)
        except LostRank:
            raise
        except Exception as error:  # noqa: BLE001 - told to rank 0, which stops everybody
            ranks.fail((str(error) or type(error).__name__).splitlines()[0])


__all__ = ["OPEN", "Crowd", "SampledMembershipFit", "decision_table", "population_means_of", "rates_of", "serve"]
