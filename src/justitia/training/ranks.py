"""The processes of one fit on rows in files: a single one, or worker processes connected to the first by pipes.

Rank 0 debits, adds noise and trains; the workers add up their rows when rank 0 sends them a message. There is one
message and one sum per pass over the rows. Messages are arrays and plain values, read as data and never as code, and
travel through socket pairs that only these processes have: nothing listens on a port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.rows import DenseSource
from justitia.privacy.shards import Together
from justitia.training import state_file

Message = dict[str, Any]
Steps = NDArray[np.int64]
#: Names of messages: a fault ends the fit, and the fit is done.
STOP, DONE = "stop", "done"
#: The name of a message that asks for the attribute of the sample, where no privacy was asked for.
REVEAL = "reveal"


class LostRank(RuntimeError):
    """Another process of the run is gone."""


class Ranks:
    """One process, alone."""

    rank, size = 0, 1

    def tell(self, message: Message) -> Message:
        """Broadcast from rank 0; every rank gets the message of rank 0."""
        return message

    def add(self, numbers: Steps) -> Steps:
        """Sum of whole numbers over all ranks, for rank 0; the others get zeros."""
        return numbers

    def fail(self, sentence: str) -> None:
        """Take part in a sum with nothing, and say why."""
        raise ValueError(sentence)

    def gather(self, message: Message) -> list[Message]:
        """The messages of all ranks, for all ranks."""
        return [message]

    def collect(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, for rank 0."""
        return [content]


class ManyRanks(Ranks):
    """Rank 0 with a pipe to each worker, or a worker with its pipe to rank 0.

    Parameters
    ----------
    rank : int
    size : int
        Number of processes.
    pipes : sequence of Connection
        On rank 0 one per worker, in order of their ranks; on a worker its only one.
    """

    def __init__(self, rank: int, size: int, pipes: Sequence[Connection]) -> None:
        if len(pipes) != (1 if rank else size - 1):
            raise ValueError(f"expected one pipe per process that rank {rank} of {size} talks to, got {len(pipes)}.")
        self.rank, self.size, self._pipes = rank, size, tuple(pipes)
        self.bytes_sent = 0

    def tell(self, message: Message) -> Message:
        """Broadcast from rank 0."""
        if self.rank:
            found: Message = state_file.from_bytes(self._receive(self._pipes[0]))
            return found
        content = state_file.to_bytes(message)
        for pipe in self._pipes:
            self._send(pipe, content)
        return message

    def add(self, numbers: Steps) -> Steps:
        """Sum over all ranks for rank 0.

        Raises
        ------
        ValueError
            On rank 0, in the words of the first worker that could not do its part; the others have done theirs.
        """
        if self.rank:
            self._send(self._pipes[0], state_file.to_bytes({"numbers": numbers}))
            return np.zeros_like(numbers)
        replies = [state_file.from_bytes(self._receive(pipe)) for pipe in self._pipes]
        for reply in replies:
            if "why" in reply:
                raise ValueError(reply["why"])
        return numbers + sum(reply["numbers"] for reply in replies)  # type: ignore[no-any-return]

    def fail(self, sentence: str) -> None:
        """Answer a message that asks for a sum with the reason why there is none."""
        self._send(self._pipes[0], state_file.to_bytes({"why": sentence}))

    def gather(self, message: Message) -> list[Message]:
        """The messages of all ranks, for all ranks."""
        if self.rank:
            self._send(self._pipes[0], state_file.to_bytes(message))
            return list(self.tell({})["all"])
        found = [message, *(state_file.from_bytes(self._receive(pipe)) for pipe in self._pipes)]
        self.tell({"all": found})
        return found

    def collect(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, for rank 0."""
        if self.rank:
            self._send(self._pipes[0], content)
            return []
        return [content, *(self._receive(pipe) for pipe in self._pipes)]

    def stop(self, sentence: str) -> None:
        """End the work of the others after a fault on rank 0, if they can still be reached."""
        with contextlib.suppress(LostRank):
            self.tell({"name": STOP, "why": sentence})

    def _send(self, pipe: Connection, content: bytes) -> None:
        with self._complete():
            pipe.send_bytes(content)
        self.bytes_sent += len(content)

    def _receive(self, pipe: Connection) -> bytes:
        with self._complete():
            return pipe.recv_bytes()

    @contextlib.contextmanager
    def _complete(self) -> Iterator[None]:
        """Close all pipes if a message is not sent or received completely.

        An interrupt (Ctrl-C) may leave half a message in a pipe, and whatever is sent after it would be misread.
        """
        try:
            yield
        except (EOFError, OSError):
            self._close()
            raise LostRank(
                "another process of this run is gone; what was debited stays debited: start again with the same "
                "checkpoint, which asks nothing twice."
            ) from None
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


_RANKS: ContextVar[Ranks | None] = ContextVar("ranks", default=None)


@contextlib.contextmanager
def working_as(ranks: Ranks) -> Iterator[None]:
    """Fits inside are carried out by these processes."""
    token = _RANKS.set(ranks)
    try:
        yield
    finally:
        _RANKS.reset(token)


def ranks_of() -> Ranks:
    """The processes of this fit: those of :func:`working_as`, or this one alone."""
    return _RANKS.get() or Ranks()


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
        """Send the others what to add up; the answer is paid for."""
        self._ranks.tell(getattr(source, "message", {}) | {"bound": bound, "step": step})

    def add(self, steps: Steps) -> Steps:
        """Sum over all ranks, for rank 0."""
        return self._ranks.add(steps)

    def gather(self, codes: Steps) -> Steps:
        """Tell the others that no privacy was asked for, and gather the codes of all ranks."""
        self._ranks.tell({"name": REVEAL, "numbers": len(codes)})
        return self._ranks.add(codes)


__all__ = ["DONE", "REVEAL", "STOP", "LostRank", "ManyRanks", "Message", "Place", "Ranks", "ranks_of", "working_as"]
