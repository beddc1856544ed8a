"""Data frames of Ray Data: every block of the dataset is a task, and encoded blocks stay in Ray's object store.

The dataset is materialised once, in its own order. Tasks are pure, so Ray may repeat one whose worker is lost; it makes
objects that were lost with a node again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import ray

from justitia.rows.frames import RESULT, Frame, Kept, KeptBlock, Outcome, Part, Work, answered, computed, part_of

#: How often Ray repeats a task whose worker or node is lost.
RETRIES = 5


class RayFrame(Frame):
    """A ``ray.data.Dataset``; rows are numbered by block, and by their order there."""

    engine = "Ray"

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        # Ray may run what the rows are made of, to see their columns
        self.names = tuple(map(str, computed(self.engine, frame.columns) or ()))
        self._public: list[str] = []
        self._private: list[str] = []
        self._blocks: list[Any] = []

    def select(self, public: Sequence[str], private: Sequence[str]) -> None:
        """Use these columns from now on, of the rows as they are now."""
        self._public, self._private = list(public), list(private)
        wanted = [*public, *private]
        try:
            self._blocks = _blocks_of(self._frame.select_columns(wanted))
            return
        except Exception:  # noqa: BLE001, S110 - perhaps a block lacks a column, which the first pass says in one sentence
            pass
        found = self._frame.map_batches(present, fn_args=(wanted,), batch_format=None, batch_size=None)
        self._blocks = computed(self.engine, lambda: _blocks_of(found))

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What the task returns for every block."""
        return _computed(self._tasks(on_partition, task))

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> RayBlocks:
        """Encoded blocks, in Ray's object store."""
        return RayBlocks(self._tasks(blocks_of_partition, task))

    def _tasks(self, call: Callable[..., Outcome], task: Any) -> list[Any]:
        remote, shared = ray.remote(max_retries=RETRIES)(call), ray.put(task)
        return [remote.remote(shared, k, one, self._public, self._private) for k, one in enumerate(self._blocks)]

    def with_columns(self, work: Work, features: list[str], like: Mapping[str, Any]) -> Any:
        """The dataset with more columns; all others pass as they are."""
        return self._frame.map_batches(
            add_columns,
            fn_kwargs={"work": work, "features": features, "like": like},
            batch_format=None,
            batch_size=None,
        )

    def close(self) -> None:
        """Drop the materialised blocks."""
        self._blocks = []


class RayBlocks(Kept):
    """Encoded blocks in Ray's object store; they go with the last reference to them."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What the task returns for every block of the dataset."""
        remote, shared = ray.remote(max_retries=RETRIES)(on_blocks), ray.put(task)
        return _computed([remote.remote(shared, one) for one in self._kept])

    def close(self) -> None:
        """Drop them."""
        self._kept = []


def on_partition(task: Callable[[int, Iterable[Part]], Any], k: int, table: Any, public: Any, private: Any) -> Outcome:
    """In a worker: a task on a block of the dataset."""
    return answered(lambda: task(k, [part_of(table, public, private)]))


def blocks_of_partition(task: Any, k: int, table: Any, public: Any, private: Any) -> Outcome:
    """In a worker: the encoded blocks of a block of the dataset."""
    return answered(lambda: list(task(k, [part_of(table, public, private)])))


def on_blocks(task: Callable[[Iterable[KeptBlock]], Any], kept: Outcome) -> Outcome:
    """In a worker: a task on encoded blocks, or the error with which they were to be made."""
    return answered(task, kept[1]) if kept[0] == RESULT else kept


def present(table: Any, wanted: list[str]) -> Any:
    """In a worker: those of the wanted columns that a block has."""
    if hasattr(table, "iloc"):
        return table[[name for name in wanted if name in table.columns]]
    return table.select([name for name in wanted if name in table.column_names])


def add_columns(table: Any, work: Work, features: list[str], like: Any) -> Any:
    """In a worker: a block with more columns."""
    import pyarrow as pa  # noqa: PLC0415 - what Ray's blocks are made of

    if hasattr(table, "iloc"):
        return table.assign(**(work(table[features]) if len(table) else like))
    added = work(table.select(features).to_pandas()) if len(table) else like
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    return table


def _blocks_of(dataset: Any) -> list[Any]:
    """References to the blocks of a dataset in the order of its rows."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True  # otherwise in the order in which tasks end
    try:
        return [block for bundle in dataset.materialize().iter_internal_ref_bundles() for block in bundle.block_refs]
    finally:
        options.preserve_order = before


def _computed(tasks: list[Any]) -> list[Outcome]:
    found: list[Outcome] = computed("Ray", lambda: ray.get(tasks))
    return found


__all__ = ["RayFrame"]
