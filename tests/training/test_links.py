"""Processes that sockets connect: collective operations, and what becomes of them when a process is gone."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from justitia.training.links import SocketLinks
from justitia.training.ranks import LostRank, ManyRanks

Work = Callable[[SocketLinks], Any]


def links_of(size: int) -> list[SocketLinks]:
    pairs = [socket.socketpair() for _ in range(1, size)]
    first = SocketLinks(0, size, [near for near, _ in pairs])
    return [first, *(SocketLinks(rank, size, [far]) for rank, (_, far) in enumerate(pairs, 1))]


def in_each(size: int, work: Work) -> list[Any]:
    """What each process, here a thread, gets."""
    with ThreadPoolExecutor(size) as pool:
        made = links_of(size)
        found = list(pool.map(work, made))
    for one in made:
        one.close()
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_contents_of_all_ranks_come_in_order(size: int) -> None:
    contents = [bytes([rank]) * (300_000 * rank) for rank in range(size)]  # more than a socket holds, and nothing
    assert in_each(size, lambda links: links.all_gather(contents[links.rank])) == [contents] * size
    assert in_each(size, lambda links: links.gather(contents[links.rank])) == [contents, *([[]] * (size - 1))]
    assert in_each(size, lambda links: links.broadcast(contents[links.rank or 1])) == [contents[1]] * size


def test_sum_of_whole_numbers_is_exact_beyond_what_a_float_holds() -> None:
    numbers = torch.tensor([2**60 + 1, -3])
    first, *_ = in_each(3, lambda links: links.reduce(numbers))
    assert first.tolist() == [3 * 2**60 + 3, -9]
    assert numbers.tolist() == [2**60 + 1, -3]


def test_rank_that_is_gone_is_noticed_by_those_that_send_and_those_that_receive() -> None:
    first, second = links_of(2)
    second.close()
    with pytest.raises(LostRank, match="another process of this run is gone"):
        ManyRanks(first).collect(b"")
    first, second = links_of(2)
    first.close()
    with pytest.raises(LostRank, match="another process of this run is gone"):
        ManyRanks(second).collect(b"x" * 1_000_000)


def test_interrupted_operation_closes_its_sockets_so_that_no_half_message_is_misread() -> None:
    class Interrupting(socket.socket):
        def recv_into(self, *_: Any) -> int:
            raise KeyboardInterrupt

    near, far = socket.socketpair()
    first, second = SocketLinks(0, 2, [Interrupting(fileno=near.detach())]), SocketLinks(1, 2, [far])
    second.gather(b"half")
    with pytest.raises(KeyboardInterrupt):
        first.gather(b"")
    with pytest.raises(LostRank):
        ManyRanks(first).tell({"name": "stop"})
    with pytest.raises(LostRank):
        ManyRanks(second).tell({})
    second.close()


def test_wrong_number_of_sockets_is_refused() -> None:
    with pytest.raises(ValueError, match="one socket per process"):
        SocketLinks(0, 3, [])
