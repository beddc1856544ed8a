"""Processes that pipes connect: messages and sums, and what becomes of them when a process is gone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from justitia.training.ranks import LostRank, ManyRanks

Work = Callable[[ManyRanks], Any]


def ranks_of_pipes(size: int) -> tuple[list[ManyRanks], list[tuple[Connection, Connection]]]:
    pairs = [Pipe() for _ in range(1, size)]
    first = ManyRanks(0, size, [near for near, _ in pairs])
    return [first, *(ManyRanks(rank, size, [far]) for rank, (_, far) in enumerate(pairs, 1))], pairs


def in_each(size: int, work: Work) -> list[Any]:
    """What each process, here a thread, gets."""
    ranks, pairs = ranks_of_pipes(size)
    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(work, ranks))
    for end in (end for pair in pairs for end in pair):
        end.close()
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_contents_of_all_ranks_come_in_order(size: int) -> None:
    contents = [bytes([rank]) * (300_000 * rank) for rank in range(size)]  # more than a pipe has room for, and nothing
    messages: list[Any] = [{"of": rank, "sizes": (rank, None)} for rank in range(size)]
    assert in_each(size, lambda one: one.collect(contents[one.rank])) == [contents, *([[]] * (size - 1))]
    assert in_each(size, lambda one: one.gather(messages[one.rank])) == [messages] * size
    assert in_each(size, lambda one: one.tell(messages[one.rank])) == [messages[0]] * size


def test_sum_of_whole_numbers_is_exact_beyond_what_a_float_holds() -> None:
    numbers = np.array([2**60 + 1, -3])
    first, *_ = in_each(3, lambda one: one.add(numbers))
    assert first.tolist() == [3 * 2**60 + 3, -9]
    assert numbers.tolist() == [2**60 + 1, -3]


def test_worker_that_cannot_add_up_is_quoted_on_rank_0_after_all_have_answered() -> None:
    def work(one: ManyRanks) -> Any:
        if one.rank == 1:
            return one.fail("the disk is full.")
        try:
            one.add(np.array([1]))
        except ValueError as error:
            return str(error), one.tell({"name": "next"})["name"]
        return one.tell({})["name"] if one.rank else None

    ranks, _ = ranks_of_pipes(3)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, ranks)) == [("the disk is full.", "next"), None, "next"]


def test_rank_that_is_gone_is_noticed_by_those_that_send_and_those_that_receive() -> None:
    (first, _), ((_, far),) = ranks_of_pipes(2)
    far.close()
    with pytest.raises(LostRank, match="another process of this run is gone"):
        first.collect(b"")
    (_, second), ((near, _),) = ranks_of_pipes(2)
    near.close()
    with pytest.raises(LostRank, match="another process of this run is gone"):
        second.collect(b"x" * 1_000_000)


@pytest.mark.parametrize("interrupted", ["send_bytes", "recv_bytes"])
def test_interrupted_message_closes_the_pipes_so_that_no_half_of_it_is_misread(
    interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second), ((near, _),) = ranks_of_pipes(2)

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Connection, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.tell({"name": "weights"}) if interrupted == "send_bytes" else first.collect(b"")
    assert near.closed
    first.stop("interrupted")  # reaches nobody, and says nothing
    with pytest.raises(LostRank):
        first.tell({"name": "stop"})
    with pytest.raises(LostRank):
        second.tell({})


def test_message_that_is_no_data_is_refused_and_not_unpickled() -> None:
    (first, _), ((_, far),) = ranks_of_pipes(2)
    far.send({"numbers": [1]})  # what multiprocessing would unpickle
    with pytest.raises(ValueError, match="pickle"):
        first.add(np.array([1]))


def test_wrong_number_of_pipes_is_refused() -> None:
    with pytest.raises(ValueError, match="one pipe per process"):
        ManyRanks(0, 3, [])
