"""Data frames of Dask: every partition is a task, and blocks stay in the memory of the workers between passes.

With a ``distributed.Client`` tasks run on its workers; without one, in threads of this process. Tasks are pure, so Dask
may repeat one whose worker is lost; it computes the blocks of that worker again, from the data frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dask

from justitia.rows.frames import RESULT, Frame, Kept, KeptBlock, Outcome, Part, Work, answered, computed, part_of


class DaskFrame(Frame):
    """A ``dask.dataframe.DataFrame``; rows are numbered by partition, and by their order there."""

    engine = "Dask"

    def __init__(self, frame: Any) -> None:
        self._frame, self.names = frame, tuple(map(str, frame.columns))
        self._partitions: list[Any] = []
        self._public: list[str] = []
        self._private: list[str] = []

    def select(self, public: Sequence[str], private: Sequence[str]) -> None:
        """Use these columns from now on."""
        self._public, self._private = list(public), list(private)
        used = {*public, *private}
        # Dask's own selection would fail without a sentence in a partition that lacks a column.
        frame = self._frame if used == set(self.names) else self._frame[[*public, *private]]
        self._partitions = frame.to_delayed()

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return _computed(self._tasks(on_partition, task))

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> DaskBlocks:
        """Blocks of every partition, in the memory of the workers."""
        return DaskBlocks(computed(self.engine, lambda: list(dask.persist(*self._tasks(blocks_of_partition, task)))))

    def _tasks(self, call: Callable[..., Outcome], task: Any) -> list[Any]:
        one, shared = dask.delayed(call, pure=False), _shared(task)
        return [one(shared, k, table, self._public, self._private) for k, table in enumerate(self._partitions)]

    def with_columns(self, work: Work, features: list[str], like: Mapping[str, Any]) -> Any:
        """The data frame with more columns; its index and partitions stay."""
        rows = self._frame[features]  # alone: Dask writes the arguments of a function that fails to its log
        meta = rows._meta[[]].assign(**like)
        added = rows.map_partitions(new_columns, work, like, meta=meta)
        return self._frame.assign(**{name: added[name] for name in like})


class DaskBlocks(Kept):
    """Blocks in the memory of Dask's workers; they go with the last reference to them."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        one, shared = dask.delayed(on_blocks, pure=False), _shared(task)
        return _computed([one(shared, kept) for kept in self._kept])

    def close(self) -> None:
        """Drop them."""
        self._kept = []


def on_partition(task: Callable[[int, Iterable[Part]], Any], k: int, table: Any, public: Any, private: Any) -> Outcome:
    """In a worker: a task on a partition."""
    return answered(lambda: task(k, [part_of(table, public, private)]))


def blocks_of_partition(task: Any, k: int, table: Any, public: Any, private: Any) -> Outcome:
    """In a worker: the blocks of a partition."""
    return answered(lambda: list(task(k, [part_of(table, public, private)])))


def on_blocks(task: Callable[[Iterable[KeptBlock]], Any], kept: Outcome) -> Outcome:
    """In a worker: a task on blocks, or the error with which they were to be made."""
    return answered(task, kept[1]) if kept[0] == RESULT else kept


def new_columns(rows: Any, work: Work, like: Any) -> Any:
    """In a worker: the new columns of a partition, with its index."""
    return rows[[]].assign(**(work(rows) if len(rows) else like))


def _shared(task: Any) -> Any:
    """A task that is sent once and not once for every partition."""
    return dask.delayed(task, pure=False, traverse=False)


def _computed(tasks: list[Any]) -> list[Outcome]:
    return computed("Dask", lambda: list(dask.compute(*tasks)))


__all__ = ["DaskFrame"]
