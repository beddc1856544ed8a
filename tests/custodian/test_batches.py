"""One thread for the short work of many requests: own results, own errors, and an end when there is nothing to do."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from justitia.custodian import batches
from justitia.custodian.batches import Batches


def gathered(work: Batches[int], items: Sequence[int]) -> list[Any]:
    async def gather() -> list[Any]:
        return await asyncio.gather(*(work.run(item) for item in items), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(gather(), timeout=30))


def test_requests_that_wait_together_are_done_together_and_each_gets_its_own_result() -> None:
    seen: list[list[int]] = []
    go_on = threading.Event()

    def work(items: Sequence[int]) -> list[Any]:
        go_on.wait()
        seen.append(list(items))
        return [ValueError("odd") if item % 2 else 10 * item for item in items]

    threading.Timer(0.3, go_on.set).start()
    found = gathered(Batches(work, "work"), range(6))
    assert [one for one in found if isinstance(one, int)] == [0, 20, 40]
    assert [type(one) for one in found[1::2]] == [ValueError] * 3
    assert [item for items in seen for item in items] == list(range(6))
    assert len(seen) <= 2  # the first item may have been taken alone


def test_what_the_work_raises_is_raised_for_all_that_waited_and_later_ones_go_on() -> None:
    def work(items: Sequence[int]) -> list[int]:
        if 0 in items:
            raise OSError("the disk is full")
        return list(items)

    shared = Batches(work, "work")
    assert [type(one) for one in gathered(shared, [0])] == [OSError]
    assert gathered(shared, [1, 2]) == [1, 2]


def test_thread_ends_without_work_and_the_next_item_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "IDLE", 0.02)
    shared = Batches(lambda items: [threading.current_thread() for _ in items], "work")
    (first,) = gathered(shared, [1])
    first.join(timeout=30)
    assert not first.is_alive()
    (second,) = gathered(shared, [1])
    assert second is not first
