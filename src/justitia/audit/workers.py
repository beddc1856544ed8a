"""Runs of an attack in this process or in several, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm.auto import tqdm

Work = Callable[[range], NDArray[np.float64]]


def in_parallel(
    work: Work, tasks: Sequence[range], *, jobs: int, progress: bool | None
) -> Iterator[NDArray[np.float64]]:
    """What ``work`` gives for each task, in their order; the bar counts runs and is shown in a terminal by default."""
    shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    with tqdm(total=sum(map(len, tasks)), disable=not shown, unit="run", desc="audit") as bar:
        for task, part in zip(tasks, _each(work, tasks, jobs), strict=True):
            bar.update(len(task))
            yield part


def _each(work: Work, tasks: Sequence[range], jobs: int) -> Iterator[NDArray[np.float64]]:
    if jobs == 1:
        yield from map(work, tasks)
        return
    # Spawned, not forked: a fork copies threads of libraries in whatever state they are. The work is sent once to each.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(work,)) as pool:
        yield from pool.map(_do, tasks)


_WORK: list[Work] = []


def _start(work: Work) -> None:
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    _WORK.append(work)


def _do(task: range) -> NDArray[np.float64]:
    return _WORK[0](task)
