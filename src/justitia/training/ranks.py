"""The processes of one fit: a single one, or several that somebody has started.

They are those of torch's process group (``torchrun``, Ray, Slurm and the like start it), or those that the command line
has started with sockets between them (:func:`linked`).
Rank 0 debits, adds noise and trains; the others add up their rows when they are told to. There is one broadcast and one
reduce per pass over the rows, never one per batch, so that uneven shards do not wait for each other. Messages are
tensors and plain values, read as data and never as code.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from justitia.privacy.bounding import bounded_rows
from justitia.privacy.questions import Heard, Listener, Question, RowDigest
from justitia.privacy.rows import DenseSource
from justitia.privacy.shards import Together
from justitia.training.links import GroupLinks, Links

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
    """Several processes.

    Parameters
    ----------
    links : Links, optional
        How they exchange bytes; through torch's default process group unless said otherwise.
    """

    def __init__(self, links: Links | None = None) -> None:
        self._links = GroupLinks() if links is None else links
        self.rank, self.size = self._links.rank, self._links.size
        self._why = ""
        self._pending = 0
        self.bytes_sent = 0

    def tell(self, message: Message) -> Message:
        """Broadcast from rank 0; a sum of as many numbers as the message says follows."""
        with _not_lost():
            shared = self._links.broadcast(_written(message) if self.rank == 0 else b"")
        self.bytes_sent += len(shared)
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
        with _not_lost():
            total = self._links.reduce(torch.cat([numbers, torch.tensor([int(failed)])]))
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
        content = _written(message)
        with _not_lost():
            found = self._links.all_gather(content)
        self.bytes_sent += max(map(len, found))
        return [_read(one) for one in found]

    def collect(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, for rank 0."""
        with _not_lost():
            found = self._links.gather(content)
        self.bytes_sent += max(map(len, found), default=len(content))
        return found

    def stop(self, sentence: str) -> None:
        """End the others' work after a fault on rank 0, if they can still be reached."""
        with contextlib.suppress(LostRank, ValueError):
            if self._pending:
                self.fail(self._pending, sentence)
            self.tell({"name": STOP, "why": sentence})


#: Between the processes that the command line has started.
_LINKS: ContextVar[Links | None] = ContextVar("links", default=None)


@contextlib.contextmanager
def linked(links: Links) -> Iterator[None]:
    """Fits inside are fits of the processes that these links connect."""
    token = _LINKS.set(links)
    try:
        yield
    finally:
        _LINKS.reset(token)


def ranks_of() -> Ranks:
    """The processes of this fit."""
    links = _LINKS.get()
    if links is not None:
        return ManyRanks(links)
    grouped = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return ManyRanks() if grouped else Ranks()


@contextlib.contextmanager
def _not_lost() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError):
        raise LostRank(
            "another process of this run is gone, or does not answer; what was debited stays debited: start again with "
            "the same checkpoint, which asks nothing twice."
        ) from None


def _written(message: Message) -> bytes:
    content = io.BytesIO()
    torch.save(message, content)
    return content.getvalue()


def _read(content: bytes) -> Message:
    message: Message = torch.load(io.BytesIO(content), weights_only=True)
    return message


class Place(Together):
    """Where a vault has a part of the rows, among the ranks.

    Parameters
    ----------
    ranks : Ranks
    rows : int
        Of all ranks.
    first : int
        Position of the first row here.
    """

    def __init__(self, ranks: Ranks, rows: int, first: int) -> None:
        self._ranks, self._rows, self._first = ranks, rows, first

    @property
    def rows(self) -> int:
        """How many rows there are on all ranks."""
        return self._rows

    def listener(self, question: Question, source: DenseSource, bound: float) -> Listener:
        """What hears rows wherever they are; all of them in order, as in memory, where rank 0 has them all."""
        whole = getattr(source, "whole", None)
        if whole is None or question.idle:
            return RowDigest(question, first=self._first)
        for _, rows in whole.dense():
            question.hear(bounded_rows(rows.detach().double(), bound))
        return Heard()

    def begin(self, source: DenseSource, *, bound: float, step: float, seeded: bool) -> None:
        """Tell the others that the answer is paid for, and what to add up."""
        asked, whole = getattr(source, "message", {}), getattr(source, "whole", None)
        self._ranks.tell(asked | {"bound": bound, "step": step, "seeded": seeded and whole is None})

    def add(self, steps: Tensor) -> Tensor:
        """Sum over all ranks, for rank 0."""
        return self._ranks.add(steps)

    def gather(self, codes: Tensor) -> Tensor:
        """Tell the others that no privacy was asked for, and gather the codes of all ranks."""
        self._ranks.tell({"name": REVEAL, "numbers": len(codes)})
        return self._ranks.add(codes)


__all__ = ["DONE", "REVEAL", "STOP", "WHY", "LostRank", "ManyRanks", "Message", "Place", "Ranks", "linked", "ranks_of"]
