"""The processes of one fit: a single one, or those of a process group that somebody has started.

This library starts no process group: it asks whether there is one (``torchrun``, Ray, Slurm and the like start it).
Rank 0 debits, adds noise and trains; the others add up their rows when they are told to. There is one broadcast and one
reduce per pass over the rows, never one per batch, so that uneven shards do not wait for each other. Messages are
tensors and plain values, read as data and never as code.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributed as dist

from justitia.privacy.rows import DenseSource
from justitia.privacy.shards import Together

Message = dict[str, Any]
#: Names of messages: a fault ends the fit, the fit is done, and what went wrong.
STOP, DONE, WHY = "stop", "done", "why"
#: The name of a message that asks for the attribute of the sample, where no privacy was asked for.
REVEAL = "reveal"


class LostRank(RuntimeError):
    """Another process of the group is gone, or has stopped with a fault."""


class Ranks:
    """One process, alone."""

    rank, size = 0, 1

    def tell(self, message: Message) -> Message:
        """Broadcast from rank 0; everybody gets the message of rank 0."""
        return message

    def add(self, numbers: Tensor) -> Tensor:
        """Sum of whole numbers (int64) over all ranks, for rank 0; the others get zeros."""
        return numbers

    def fail(self, numbers: int, sentence: str) -> None:
        """Take part in a sum with nothing, and say why."""
        del numbers
        raise ValueError(sentence)

    def gather(self, message: Message) -> list[Message]:
        """The messages of all ranks, for all ranks; small ones only."""
        return [message]

    def collect(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, for rank 0."""
        return [content]


class ManyRanks(Ranks):
    """The processes of torch's default group, over gloo."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._why = ""
        self._pending = 0
        self.bytes_sent = 0

    def tell(self, message: Message) -> Message:
        """Broadcast from rank 0; a sum of as many numbers as the message says follows."""
        content = _written(message) if self.rank == 0 else b""
        size = torch.tensor([len(content)])
        with _not_lost():
            dist.broadcast(size, 0)
            shared = _tensor(content) if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(shared, 0)
        self.bytes_sent += int(size)
        told = _read(shared)
        self._pending = int(told.get("numbers", 0))
        return told

    def add(self, numbers: Tensor) -> Tensor:
        """Sum over all ranks for rank 0.

        Raises
        ------
        ValueError
            On rank 0, in the words of a rank that could not do its part.
        """
        return self._add(numbers, failed=False)

    def fail(self, numbers: int, sentence: str) -> None:
        """Take part in a sum with nothing, and say why."""
        self._why = sentence
        self._add(torch.zeros(numbers, dtype=torch.int64), failed=True)

    def _add(self, numbers: Tensor, *, failed: bool) -> Tensor:
        total = torch.cat([numbers, torch.tensor([int(failed)])])
        with _not_lost():
            dist.reduce(total, 0)
        self._pending = 0
        self.bytes_sent += total.numel() * 8
        if self.rank:
            return torch.zeros_like(numbers)
        if total[-1]:
            self.tell({"name": WHY})
            reasons = [one["why"] for one in self.gather({"why": self._why}) if one["why"]]
            raise ValueError(reasons[0])
        return total[:-1]

    def explain(self) -> None:
        """Tell rank 0 what went wrong here, if anything did."""
        self.gather({"why": self._why})

    def gather(self, message: Message) -> list[Message]:
        """The messages of all ranks, for all ranks."""
        return [_read(_tensor(one)) for one in self._everybodys(_written(message))]

    def collect(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, for rank 0."""
        found = self._everybodys(content, only_first=True)
        return found if self.rank == 0 else []

    def _everybodys(self, content: bytes, *, only_first: bool = False) -> list[bytes]:
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with _not_lost():
            dist.all_gather(sizes, torch.tensor([len(content)]))
            longest = max(int(size) for size in sizes)
            mine = _tensor(content.ljust(longest, b"\0"))
            rooms = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
            if only_first:
                dist.gather(mine, rooms if self.rank == 0 else None, 0)
            else:
                dist.all_gather(rooms, mine)
        self.bytes_sent += longest
        return [room[: int(size)].numpy().tobytes() for room, size in zip(rooms, sizes, strict=True)]

    def stop(self, sentence: str) -> None:
        """End the others' work after a fault on rank 0, if they can still be reached."""
        with contextlib.suppress(LostRank, ValueError):
            if self._pending:
                self.fail(self._pending, sentence)
            self.tell({"name": STOP, "why": sentence})


def ranks_of() -> Ranks:
    """The processes of this fit."""
    grouped = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return ManyRanks() if grouped else Ranks()


@contextlib.contextmanager
def _not_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        raise LostRank(
            "another process of this run is gone, or does not answer; what was debited stays debited: start again with "
            "the same checkpoint, which asks nothing twice."
        ) from None


def _written(message: Message) -> bytes:
    content = io.BytesIO()
    torch.save(message, content)
    return content.getvalue()


def _read(content: Tensor) -> Message:
    message: Message = torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)
    return message


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


class Place(Together):
    """Where a vault has a part of the rows, among the ranks.

    Parameters
    ----------
    ranks : Ranks
    rows : int
        Of all ranks.
    """

    def __init__(self, ranks: Ranks, rows: int) -> None:
        self._ranks, self._rows = ranks, rows

    @property
    def rows(self) -> int:
        """How many rows there are on all ranks."""
        return self._rows

    def begin(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Tell the others that the answer is paid for, and what to add up."""
        self._ranks.tell(getattr(source, "message", {}) | {"bound": bound, "step": step})

    def add(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum over all ranks, for rank 0."""
        total: NDArray[np.int64] = self._ranks.add(torch.from_numpy(steps)).numpy()
        return total

    def gather(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tell the others that no privacy was asked for, and gather the codes of all ranks."""
        self._ranks.tell({"name": REVEAL, "numbers": len(codes)})
        return self.add(codes)


__all__ = ["DONE", "REVEAL", "STOP", "WHY", "LostRank", "ManyRanks", "Message", "Place", "Ranks", "ranks_of"]
