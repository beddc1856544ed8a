"""Data frames of Dask: every partition is a task, and blocks stay in the memory of the workers between passes.

With a ``distributed.Client`` tasks run on its workers; without one, in threads of this process. Tasks are pure, so Dask
may repeat one whose worker is lost; it computes the blocks of that worker again, from the data frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dask

from justitia.rows.frames import RESULT, Frame, Kept, KeptBlock, Outcome, Part, answered, engine_failed, part_of


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
        self._partitions = self._frame[[*public, *private]].to_delayed()

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return _computed([self._delayed(on_partition, task, k) for k in range(len(self._partitions))])

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> DaskBlocks:
        """Blocks of every partition, in the memory of the workers."""
        loaded = [self._delayed(blocks_of_partition, task, k) for k in range(len(self._partitions))]
        try:
            return DaskBlocks(list(dask.persist(*loaded)))
        except Exception as error:  # noqa: BLE001 - its text may hold values
            raise engine_failed(self.engine, error) from None

    def _delayed(self, call: Callable[..., Any], task: Any, k: int) -> Any:
        return dask.delayed(call, pure=False)(task, k, self._partitions[k], self._public, self._private)

    def with_columns(self, work: Callable[[Any], Mapping[str, Any]], features: list[str], like: Mapping[str, Any]) -> Any:
        """The data frame with more columns; its index and partitions stay."""
        meta = self._frame._meta.assign(**like)
        return self._frame.map_partitions(add_columns, work, features, like, meta=meta)


class DaskBlocks(Kept):
    """Blocks in the memory of Dask's workers; they go with the last reference to them."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return _computed([dask.delayed(on_blocks, pure=False)(task, one) for one in self._kept])

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


def add_columns(table: Any, work: Callable[[Any], Mapping[str, Any]], features: list[str], like: Any) -> Any:
    """In a worker: a partition with more columns."""
    return table.assign(**(work(table[features]) if len(table) else like))


def _computed(tasks: list[Any]) -> list[Outcome]:
    try:
        return list(dask.compute(*tasks))
    except Exception as error:  # noqa: BLE001 - its text may hold values
        raise engine_failed("Dask", error) from None


__all__ = ["DaskFrame"]
