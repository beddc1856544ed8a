"""Worker processes that pipes connect: results in order, and what happens when a process is gone."""

import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from justitia.rows.processes import WorkerPool, _Worker


class Part:
    """One part of the rows, as a worker holds it."""

    def __init__(self, number: int) -> None:
        self.number, self.loaded = number, 0
        self.progress: Callable[[int], object] = len

    def __getstate__(self) -> dict[str, Any]:
        return {"number": self.number, "loaded": self.loaded, "progress": len}

    def blocks(self, count: int) -> int:
        for _ in range(count):
            self.progress(10 + self.number)
        return count

    def one_block_then_gone(self, place: str) -> int:
        """The first worker of each part is killed after it has reported a block."""
        self.progress(10)
        if not (been := Path(f"{place}{self.number}")).exists():
            been.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.number

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

    def give_back(self, value: Any) -> Any:
        return value

    def unsendable(self) -> Any:
        return lambda: self.number

    def main_module(self) -> bool:
        return hasattr(sys.modules["__main__"], "__file__")  # of a script that multiprocessing has run again

    def load_once(self, place: str) -> None:
        """Works in the first worker alone."""
        if Path(place).exists():
            raise ValueError("expected room, got none.")
        Path(place).touch()


class OnlyHere:
    """Something that a worker cannot import."""

    __module__ = "a_module_of_the_driver"


class Empty:
    """A part without rows, which is as good as any other."""

    calls = 0

    def __len__(self) -> int:
        return 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


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


def test_results_of_all_parts_come_in_order(pool: WorkerPool) -> None:
    assert pool.each("content") == [Part(number).content() for number in range(3)]
    assert len({*pool.each("process"), os.getpid()}) == 4


def test_blocks_of_all_workers_are_reported_while_they_work(pool: WorkerPool) -> None:
    rows: list[int] = []
    assert pool.each("blocks", 5000, progress=rows.append) == [5000] * 3  # more than a pipe has room for
    assert sorted(rows) == [10] * 5000 + [11] * 5000 + [12] * 5000
    assert pool.each("blocks", 2) == [2] * 3  # nobody reads the reports
    assert pool.one(1, "blocks", 5000) == 5000


def test_worker_that_is_lost_among_its_reports_is_replaced(pool: WorkerPool, tmp_path: Path) -> None:
    rows: list[int] = []
    assert pool.each("one_block_then_gone", str(tmp_path / "been"), progress=rows.append) == [0, 1, 2]
    assert rows == [10] * 3  # a worker that replaces another one is not counted again


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
        patch.setattr(type(worker.pipe), "recv", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.one(0, "total", 1)
    assert pool.one(0, "total", 2) == 5
    assert pool.one(0, "process") != before


def test_what_cannot_be_sent_is_refused_in_one_sentence(pool: WorkerPool) -> None:
    with pytest.raises(ValueError, match="cannot be pickled") as caught:
        pool.each("total", lambda x: x)
    assert "\n" not in str(caught.value)


def test_what_a_worker_cannot_import_is_refused_in_one_sentence(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module: Any = types.ModuleType(OnlyHere.__module__)
    module.OnlyHere = OnlyHere
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ValueError, match="that worker processes can import") as caught:
        pool.each("give_back", OnlyHere())
    assert "\n" not in str(caught.value)
    assert pool.each("total", 0) == [5, 5, 5]
    assert capfd.readouterr().err == ""


def test_result_that_cannot_be_sent_back_is_an_error_and_not_a_dead_worker(pool: WorkerPool) -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        pool.one(2, "unsendable")
    assert pool.one(2, "total", 1) == 7


def test_worker_does_not_run_the_main_module_of_the_driver(pool: WorkerPool) -> None:
    main = sys.modules["__main__"]
    assert pool.each("main_module") == [False] * 3
    assert sys.modules["__main__"] is main


def test_call_that_is_interrupted_leaves_no_answer_for_the_next_one(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = WorkerPool._result, [0]

    def interrupted(self: WorkerPool, k: int, message: bytes) -> Any:
        calls[0] += 1
        if calls[0] == 2:  # the first worker has answered, answers of the others are on their way
            raise KeyboardInterrupt
        return original(self, k, message)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "_result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.each("total", 100)
    assert pool.each("total", 10) == [5, 15, 25]


def test_replacement_that_cannot_repeat_what_changed_its_part_ends_the_call(tmp_path: Path) -> None:
    pool = WorkerPool([Part(0)])
    pool.each("load_once", str(tmp_path / "done"), keeps=True)
    kill(pool, 0)
    with pytest.raises(ValueError, match="expected room, got none"):
        pool.each("process")
    pool.close()


def test_part_that_cannot_be_sent_is_refused_in_one_sentence() -> None:
    pool = WorkerPool([lambda: 1])
    with pytest.raises(ValueError, match="cannot be pickled") as caught:
        pool.each("__call__")
    assert "\n" not in str(caught.value)


def test_part_without_rows_keeps_its_state() -> None:
    pool = WorkerPool([Empty()])
    assert [pool.one(0, "count") for _ in range(3)] == [1, 2, 3]
    pool.close()
