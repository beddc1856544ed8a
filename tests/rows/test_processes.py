"""Worker processes that pipes connect: results in order, and what happens when a process is gone."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from justitia.rows.processes import WorkerPool, _Worker


class Part:
    """One part of the rows, as a worker holds it."""

    def __init__(self, number: int) -> None:
        self.number, self.loaded = number, 0

    def load(self, by: int) -> None:
        self.loaded = by

    def total(self, numbers: Any) -> Any:
        return numbers * self.number + self.loaded

    def content(self) -> bytes:
        return bytes([self.number]) * (300_000 * self.number)  # more than a pipe has room for, and nothing

    def refuse(self) -> None:
        raise ValueError(f"expected more room, part {self.number} got less.\nsecret = 3")

    def break_down(self) -> None:
        raise ZeroDivisionError

    def process(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerPool]:
    pool = WorkerPool([Part(number) for number in range(3)])
    yield pool
    pool.close()


@pytest.fixture
def pool(shared: WorkerPool) -> WorkerPool:
    shared.each("load", 5, keeps=True)
    return shared


def kill(pool: WorkerPool, part: int) -> None:
    os.kill(pool.one(part, "process"), signal.SIGKILL)


def test_results_of_all_parts_come_in_order_and_each_is_reported(pool: WorkerPool) -> None:
    done: list[int] = []
    assert pool.each("content", done=done.append) == [Part(number).content() for number in range(3)]
    assert done == [0, 1, 2]
    assert len({*pool.each("process"), os.getpid()}) == 4


def test_whole_numbers_come_back_exact_beyond_what_a_float_holds(pool: WorkerPool) -> None:
    found = pool.each("total", np.array([2**60 + 1, -3]))
    assert sum(found).tolist() == [3 * (2**60 + 1) + 15, -9 + 15]


def test_part_that_refuses_is_quoted_by_class_and_first_line_after_all_have_answered(pool: WorkerPool) -> None:
    with pytest.raises(ValueError, match="expected more room, part 0 got less") as caught:
        pool.each("refuse")
    assert "secret" not in str(caught.value)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pool.one(1, "break_down")
    assert pool.each("total", 0) == [5, 5, 5]


def test_worker_that_was_killed_is_replaced_and_repeats_what_changed_its_part(pool: WorkerPool) -> None:
    before = pool.each("process")
    kill(pool, 1)
    assert pool.each("total", 10) == [5, 15, 25]
    after = pool.each("process")
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]
    kill(pool, 2)
    assert pool.one(2, "total", 1) == 7


def test_worker_that_is_killed_again_and_again_ends_the_call(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    original = _Worker.send

    def send_and_kill(self: _Worker, message: bytes) -> None:
        self._process.kill()
        self._process.join()
        original(self, message)

    with monkeypatch.context() as patch:
        patch.setattr(_Worker, "send", send_and_kill)
        with pytest.raises(RuntimeError, match="killed several times"):
            pool.one(0, "process")
    assert pool.each("total", 0) == [5, 5, 5]


def test_interrupted_message_ends_its_worker_so_that_no_half_of_it_is_misread(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pool.one(0, "process")
    worker = pool._workers[0]
    assert worker is not None

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(worker._pipe), "recv", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.one(0, "total", 1)
    assert pool.one(0, "total", 2) == 5
    assert pool.one(0, "process") != before


def test_what_cannot_be_sent_is_refused_in_one_sentence(pool: WorkerPool) -> None:
    with pytest.raises(ValueError, match="cannot be pickled") as caught:
        pool.each("total", lambda x: x)
    assert "\n" not in str(caught.value)
