"""How the processes of one fit exchange bytes: through torch's process group, or through sockets they were given.

The sockets are pairs that the launcher makes before it starts the processes (``socket.socketpair``). They have no
address, so nothing listens and no other process can connect: whoever holds an end was given it by the launcher.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist

_LENGTH = struct.Struct("<Q")


class Links(ABC):
    """Collective operations between the processes of one fit; all of them call the same ones in the same order.

    Attributes
    ----------
    rank, size : int
        Of this process, and how many there are.

    Notes
    -----
    RuntimeError or OSError means that another process is gone.
    """

    rank: int
    size: int

    @abstractmethod
    def broadcast(self, content: bytes) -> bytes:
        """The content that rank 0 passes."""

    @abstractmethod
    def reduce(self, numbers: Tensor) -> Tensor:
        """Sum of whole numbers (int64) over all ranks, on rank 0; unspecified elsewhere."""

    @abstractmethod
    def gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, on rank 0; nothing elsewhere."""

    @abstractmethod
    def all_gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks."""


class GroupLinks(Links):
    """The processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def broadcast(self, content: bytes) -> bytes:
        """The content that rank 0 passes."""
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0)
        shared = _tensor(content) if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(shared, 0)
        return shared.numpy().tobytes()

    def reduce(self, numbers: Tensor) -> Tensor:
        """Sum over all ranks, on rank 0."""
        total = numbers.clone()
        dist.reduce(total, 0)
        return total

    def gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, on rank 0."""
        mine, rooms, sizes = self._rooms(content)
        dist.gather(mine, rooms if self.rank == 0 else None, 0)
        return _cut(rooms, sizes) if self.rank == 0 else []

    def all_gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks."""
        mine, rooms, sizes = self._rooms(content)
        dist.all_gather(rooms, mine)
        return _cut(rooms, sizes)

    def _rooms(self, content: bytes) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The content, padded to the longest of all ranks, and as much room for each of theirs."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(content)]))
        longest = max(int(size) for size in sizes)
        rooms = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
        return _tensor(content.ljust(longest, b"\0")), rooms, sizes


def _cut(rooms: Sequence[Tensor], sizes: Sequence[Tensor]) -> list[bytes]:
    return [room[: int(size)].numpy().tobytes() for room, size in zip(rooms, sizes, strict=True)]


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


class SocketLinks(Links):
    """Processes that hold the ends of socket pairs: rank 0 one per other rank, the others one each.

    Parameters
    ----------
    rank : int
    ends : sequence of socket
        On rank 0 those to ranks 1, 2, ..., elsewhere the one to rank 0.
    size : int
        Of all processes.
    """

    def __init__(self, rank: int, size: int, ends: Sequence[socket.socket]) -> None:
        if len(ends) != (size - 1 if rank == 0 else 1):
            raise ValueError(f"expected one socket per process that rank {rank} of {size} speaks to, got {len(ends)}.")
        self.rank, self.size, self._ends = rank, size, list(ends)

    def broadcast(self, content: bytes) -> bytes:
        """The content that rank 0 passes."""
        with self._complete():
            if self.rank:
                return _receive(self._ends[0])
            for end in self._ends:
                _send(end, content)
            return content

    def reduce(self, numbers: Tensor) -> Tensor:
        """Sum over all ranks, on rank 0."""
        with self._complete():
            if self.rank:
                _send(self._ends[0], numbers.numpy().tobytes())
                return numbers
            total = numbers.clone()
            for end in self._ends:
                total += torch.frombuffer(bytearray(_receive(end)), dtype=torch.int64)
            return total

    def gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, on rank 0."""
        with self._complete():
            if self.rank:
                _send(self._ends[0], content)
                return []
            return [content, *(_receive(end) for end in self._ends)]

    def all_gather(self, content: bytes) -> list[bytes]:
        """The contents of all ranks."""
        contents = self.gather(content)
        with self._complete():
            if self.rank:
                return [_receive(self._ends[0]) for _ in range(self.size)]
            for end in self._ends:
                for one in contents:
                    _send(end, one)
            return contents

    def close(self) -> None:
        """Close all ends; the other processes notice."""
        for end in self._ends:
            end.close()

    @contextmanager
    def _complete(self) -> Iterator[None]:
        """Close everything if an operation is not completed.

        An interrupt (Ctrl-C) may leave half a message behind, and whatever is sent after it would be misread.
        """
        try:
            yield
        except BaseException:
            self.close()
            raise


def _send(end: socket.socket, content: bytes) -> None:
    end.sendall(_LENGTH.pack(len(content)))
    end.sendall(content)


def _receive(end: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    return bytes(_exactly(end, length))


def _exactly(end: socket.socket, length: int) -> bytearray:
    content, got = bytearray(length), 0
    while got < length:
        more = end.recv_into(memoryview(content)[got:])
        if not more:
            raise ConnectionError("the other end is closed")
        got += more
    return content


__all__ = ["GroupLinks", "Links", "SocketLinks"]
