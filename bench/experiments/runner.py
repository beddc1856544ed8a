"""One resumable, parallel runner: a run is a list of cells, and every fit leaves one row in a CSV file.

A row is keyed by everything that determines it, so a run that was killed continues where it stopped and a finished run
ends in seconds. Only the parent process writes. A cell that fails is reported in the column ``error``, does not stop
the rest, and is tried again by the next run.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from csv import writer
from dataclasses import asdict, dataclass, field
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

import pandas as pd
from tqdm.auto import tqdm

#: What numerical libraries read to decide on their number of threads.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: Raise by one when the meaning of a stored number changes, so that no old row is taken for a new one.
PROTOCOL = 2
#: Version of the library that the first results were recorded under; part of every key. It stays as it is whatever the
#: version of the package, since a change of a default is in the recipe and a change of meaning in PROTOCOL.
RECORDED_VERSION = "0.1.0"


#: Names in the recipes of committed results, which were recorded before plans and engines were renamed. The longer ones
#: come first.
RECORDED_NAMES = {
    "PFLDAsPublishedPlan": "PrintedPlan",
    "PFLDPlan": "GradientsPlan",
    "PostProcessingPlan": "PluginPlan",
    "'pf-ld-as-published'": "'printed'",
    "'pf-ld'": "'gradients'",
    "'post-processing'": "'plugin'",
}


@dataclass(frozen=True)
class Cell:
    """One fit: what is fitted on which rows, and with which settings.

    Parameters
    ----------
    experiment, dataset, notion, method : str
    fold, seed : int
        Test fold, and the seed of the public shuffle that makes the folds.
    epsilon : float
        Privacy budget asked for; infinite for methods without privacy.
    split : "test" or "inner"
        Rows measured on: the test fold, or an inner fold of the training rows of fold 0, for choosing settings.
    settings : mapping
        What differs from the method's own settings.
    recipe : str
        The estimator with all of its parameters as text, so that a changed default is a new result.
    """

    experiment: str
    dataset: str
    notion: str
    method: str
    fold: int
    seed: int = 0
    epsilon: float = 1.0
    split: str = "test"
    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""

    @property
    def label(self) -> str:
        """The cell in a few words, for the progress bar."""
        settings = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return " ".join(part for part in (self.dataset, self.method, settings, f"fold {self.fold}") if part)

    @property
    def identity(self) -> dict[str, Any]:
        """What a reader of the CSV file tells this cell by."""
        facts = asdict(self)
        del facts["recipe"]
        return facts | {"settings": json.dumps(facts["settings"], sort_keys=True), "epsilon": float(self.epsilon)}

    @property
    def key(self) -> str:
        """Hash of everything that determines the result; the order of the settings does not matter."""
        recipe = self.recipe
        for today, recorded in RECORDED_NAMES.items():
            recipe = recipe.replace(today, recorded)
        return _digest(self.identity | {"recipe": recipe, "version": RECORDED_VERSION, "protocol": PROTOCOL})[:16]

    @property
    def noise_seed(self) -> int:
        """Seed of this cell's noise: its own for every cell, the same whenever the table is made again."""
        return int(_digest(self.identity)[:8], 16)


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


#: Fits one cell and returns its measures. Runs in a worker process, so it is a function of a module.
Work = Callable[[Cell], Mapping[str, Any]]

IDENTITY = ("experiment", "dataset", "notion", "method", "fold", "seed", "epsilon", "split", "settings")


# ------------------------------------------------------------------ the file


def read_rows(path: Path) -> pd.DataFrame:
    """Complete rows of a result file; half a line at its end, left by a kill, is not one of them."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    complete = text[: text.rfind("\n") + 1]
    if not complete:
        return pd.DataFrame(columns=["key", *IDENTITY, "error"])
    kinds: Any = {"key": str, "error": str, "settings": str}
    rows = pd.read_csv(io.StringIO(complete), dtype=kinds)
    rows["error"] = rows["error"].fillna("")
    return rows


def read_results(path: Path) -> pd.DataFrame:
    """Rows without an error, the newest of each cell: what tables and figures are made from."""
    rows = read_rows(path).drop_duplicates(list(IDENTITY), keep="last")
    return rows[rows["error"] == ""].drop(columns="error").reset_index(drop=True)


@contextmanager
def _opened(path: Path, columns: Sequence[str]) -> Iterator[TextIO]:
    """The file, locked for this run, with its header and without half a line at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8", newline="\n") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another run is writing {path.name}; wait until it has finished.") from None
        file.seek(0)
        text = file.read()
        complete = text[: text.rfind("\n") + 1]
        os.ftruncate(file.fileno(), len(complete.encode()))
        file.seek(0, os.SEEK_END)
        header = ",".join(columns)
        if not complete:
            _write(file, columns)
        elif complete.split("\n", 1)[0] != header:
            raise ValueError(
                f"expected {path.name} to have the columns {header}, got {complete.split(chr(10), 1)[0]}; "
                "move the file away and run again."
            )
        yield file


def _write(file: TextIO, values: Sequence[Any]) -> None:
    """One line in one piece, on disk before the next cell is counted as done."""
    line = io.StringIO()
    writer(line, lineterminator="\n").writerow(values)
    file.write(line.getvalue())
    file.flush()
    os.fsync(file.fileno())


def _tidy(path: Path, columns: Sequence[str]) -> None:
    """One row per cell, in a fixed order, so that a finished file does not depend on who finished first."""
    rows = read_rows(path).drop_duplicates(list(IDENTITY), keep="last").sort_values(list(IDENTITY), kind="stable")
    fresh = path.with_suffix(".tmp")
    rows[list(columns)].to_csv(fresh, index=False, lineterminator="\n")
    fresh.replace(path)


# ------------------------------------------------------------------ the work


def _attempt(work: Work, cell: Cell) -> dict[str, Any]:
    try:
        return dict(work(cell)) | {"error": ""}
    except Exception as error:  # noqa: BLE001 - whatever one cell raises must not stop the others
        return {"error": _one_line(error)}


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


#: Cells with what became of them, in the order in which they finish.
Results = Generator[tuple[Cell, dict[str, Any]], None, None]


def _serial(cells: Sequence[Cell], work: Work, show: Callable[[str], object]) -> Results:
    for cell in cells:
        show(cell.label)
        yield cell, _attempt(work, cell)


def _start_worker() -> None:
    # Ctrl-C is the parent's business: it stops the workers once its file is in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    # A parent that was killed cannot stop its workers, and they would wait for its next cell for ever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pooled(cells: Sequence[Cell], work: Work, show: Callable[[str], object], jobs: int) -> Results:
    """Results as they arrive. No more cells are handed out than there are workers, so a stop loses only those."""
    waiting, running = list(reversed(cells)), dict[Future[dict[str, Any]], Cell]()
    others = set(active_children())
    pool = _new_pool(jobs)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                try:
                    running[pool.submit(_attempt, work, waiting[-1])] = waiting[-1]
                except BrokenProcessPool:  # a worker died; what it was doing is reported below
                    pool = _new_pool(jobs)
                else:
                    waiting.pop()
            show(" | ".join(cell.label for cell in running.values()))
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                failure = future.exception()
                yield running.pop(future), future.result() if failure is None else {"error": _lost(failure)}
    except BaseException:  # Ctrl-C above all: what the workers are at is lost, and nobody waits for it
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(active_children()) - others:
            worker.terminate()
        raise
    pool.shutdown()


def _lost(failure: BaseException) -> str:
    if isinstance(failure, BrokenProcessPool):
        return "a worker process ended abruptly, perhaps for lack of memory"
    return _one_line(failure)


def _new_pool(jobs: int) -> ProcessPoolExecutor:
    # Spawned, not forked: a fork copies torch's threads in whatever state they are.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker)


def pending(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """Cells without a good row in the file, in the given order."""
    rows = read_rows(path)
    done = set(rows.loc[rows["error"] == "", "key"])
    return [cell for cell in cells if cell.key not in done]


def run(
    cells: Sequence[Cell],
    work: Work,
    path: Path,
    *,
    measures: Sequence[str],
    jobs: int = 1,
    progress: bool = True,
) -> pd.DataFrame:
    """Do what is not in the file yet, one row per cell, and return the rows of ``cells`` in their order.

    Parameters
    ----------
    cells : sequence of Cell
        Long ones first, if there are several workers.
    work : callable
        Measures one cell; a function of a module if ``jobs`` is more than 1.
    path : Path
        The CSV file.
    measures : sequence of str
        Names of what ``work`` returns, the columns after the cell's own.
    jobs : int
        Worker processes; 1 does the work in this one.

    Raises
    ------
    RuntimeError
        If another run holds the file.
    ValueError
        If the file has other columns.
    """
    columns = ["key", *IDENTITY, *measures, "error"]
    # Workers inherit it, torch and BLAS read it when they load: with more threads they would slow each other down.
    os.environ.update(dict.fromkeys(THREADS, "1"))
    with _opened(path, columns) as file:
        todo = pending(cells, path)
        with tqdm(total=len(cells), initial=len(cells) - len(todo), unit="fit", disable=not progress) as bar:
            show = bar.set_description_str
            with closing(_serial(todo, work, show) if jobs == 1 else _pooled(todo, work, show, jobs)) as results:
                for cell, found in results:
                    facts = {"key": cell.key, **cell.identity, **found}
                    _write(file, [facts.get(name, "") for name in columns])
                    bar.update()
                    if found["error"] and progress:
                        bar.write(f"failed: {cell.notion} {cell.label}: {found['error']}")
        if todo:
            _tidy(path, columns)
    rows = read_rows(path).drop_duplicates("key", keep="last").set_index("key")
    return rows.loc[[cell.key for cell in cells]].reset_index()
