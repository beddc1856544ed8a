"""Group commit: threads share a commit, each returns after its own, and an interrupted one holds up no other."""

import threading
from collections.abc import Sequence

import pytest

from justitia.privacy.group_commit import GroupCommit


class Disk:
    """Commits that can be held up; what was committed, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def commit(self, items: Sequence[int]) -> list[int]:
        self.begun.release()
        self.go_on.acquire()
        if -1 in items:
            raise ValueError("refused")
        if -2 in items:
            raise KeyboardInterrupt
        self.batches.append(list(items))
        return [10 * item for item in items]


class Submitting(threading.Thread):
    """A thread that submits one item."""

    def __init__(self, group: GroupCommit[int, int], item: int) -> None:
        super().__init__()
        self.group, self.item, self.found = group, item, None
        self.start()

    def run(self) -> None:
        try:
            self.found: object = self.group.submit(self.item)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.found = type(error)


def submitted(group: GroupCommit[int, int], disk: Disk, *items: int) -> list[Submitting]:
    """Threads of these items, all of which wait: the first commits, or another one does."""
    threads = []
    for item in items:
        waiting = len(group._waiting)
        threads.append(Submitting(group, item))
        while len(group._waiting) == waiting and not disk.begun.acquire(timeout=0.01):
            pass
    return threads


def finish(disk: Disk, threads: list[Submitting], commits: int) -> list[object]:
    for _ in range(commits):
        disk.go_on.release()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    return [thread.found for thread in threads]


def test_items_that_come_during_a_commit_share_the_next_one() -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    threads = submitted(group, disk, 1, 2, 3, 4)
    assert all(thread.is_alive() for thread in threads)  # nothing is on the disk
    assert finish(disk, threads, 2) == [10, 20, 30, 40]
    assert disk.batches == [[1], [2, 3, 4]]
    assert finish(disk, submitted(group, disk, 5), 1) == [50]


def test_error_of_a_commit_is_raised_for_its_items_alone() -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    threads = submitted(group, disk, 1, 2, -1)
    assert finish(disk, threads, 2) == [10, ValueError, ValueError]
    assert finish(disk, submitted(group, disk, 3), 1) == [30]


@pytest.mark.parametrize("interrupted", [(-2, 1, 2), (1, -2, 2)])
def test_interrupted_commit_raises_for_its_items_and_later_ones_go_on(interrupted: tuple[int, ...]) -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    found = finish(disk, submitted(group, disk, *interrupted), 2)
    assert found == ([KeyboardInterrupt, 10, 20] if interrupted[0] == -2 else [10, KeyboardInterrupt, InterruptedError])
    assert finish(disk, submitted(group, disk, 3), 1) == [30]


def test_thread_that_is_interrupted_while_it_waits_leaves_no_item_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)
    (first,) = submitted(group, disk, 1)

    class Interrupted:
        def acquire(self) -> None:
            group._waiting[0].leads = True  # it was just told to commit what waits
            raise KeyboardInterrupt

        def release(self) -> None:
            raise AssertionError("nobody waits here")

    class Waiting(list):  # type: ignore[type-arg]
        def append(self, one: object) -> None:
            if one.item == 2:  # type: ignore[attr-defined]
                one.wake = Interrupted()  # type: ignore[attr-defined]
            super().append(one)

    monkeypatch.setattr(group, "_waiting", Waiting())
    second = Submitting(group, 2)
    second.join(timeout=30)
    assert second.found is KeyboardInterrupt
    assert not group._waiting
    assert finish(disk, [first], 1) == [10]
    assert finish(disk, submitted(group, disk, 3), 1) == [30]
    assert disk.batches == [[1], [3]]
