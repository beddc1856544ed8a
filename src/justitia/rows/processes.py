"""Pool of worker processes on this machine, connected by pipes: nothing listens on a port.

Worker k holds part k of the rows. A worker that dies is replaced: the new one repeats what had changed its part
(reading and encoding rows), and then the call that was lost. Calls are pure otherwise, so nothing is counted twice, and
since only the driver debits, nothing is debited twice. A worker does not import the caller's main module: a script
without ``if __name__ == "__main__"`` would run again in every worker, and debit again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

#: How often a worker is replaced within one call before the call fails.
REPLACEMENTS = 3
#: Errors that a worker passes on by their class; others become ``RuntimeError``.
KNOWN = {kind.__name__: kind for kind in (ValueError, TypeError, MemoryError)}
#: First entry of a message that says how many rows a worker has finished.
REPORT = "rows"
#: Environment of a worker: it imports nothing from the current folder, and does not compete with the others for cores.
ENVIRONMENT = {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


class WorkerPool:
    """One process for each part of the rows.

    Parameters
    ----------
    parts : sequence
        Picklable objects whose methods are called in the workers.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = list(parts)
        self._workers: list[_Worker | None] = [None] * len(parts)
        self._kept: dict[str, bytes] = {}  # the last call of each name that changed the parts

    def each(
        self, call: str, *arguments: Any, keeps: bool = False, progress: Callable[[int], object] = lambda _: None
    ) -> list[Any]:
        """Call a method of every part; results in order.

        Parameters
        ----------
        keeps : bool
            Whether the call changes the part: a worker that replaces another one repeats it.
        progress : callable
            Called with the number of rows of each block that a worker has finished; rows that a worker repeats in place
            of a lost one are not reported.

        Raises
        ------
        ValueError
            If something cannot be sent to a worker, or in the words of the first worker that refused.
        RuntimeError
            If workers die again and again.
        """
        message = _pickled((call, arguments))
        with self._ended_on_error():
            for k in range(len(self._parts)):
                with contextlib.suppress(_Lost):  # noticed again below
                    self._worker(k).send(message)
            self._show(progress)
            results = [self._result(k, message) for k in range(len(self._parts))]
            for outcome in results:
                if isinstance(outcome, BaseException):
                    raise outcome
        if keeps:
            self._kept[call] = message
        return results

    def _show(self, progress: Callable[[int], object]) -> None:
        """Pass on what workers report until each has answered or is gone."""
        working = {worker.pipe: worker for worker in self._workers if worker is not None and not worker.pipe.closed}
        while working:
            for pipe in wait(list(working)):
                rows = working[pipe].reported()  # type: ignore[index]
                if rows is None:
                    del working[pipe]  # type: ignore[arg-type]
                else:
                    progress(rows)

    def one(self, k: int, call: str, *arguments: Any) -> Any:
        """Call a method of one part."""
        message = _pickled((call, arguments))
        with self._ended_on_error():
            with contextlib.suppress(_Lost):
                self._worker(k).send(message)
            outcome = self._result(k, message)
            if isinstance(outcome, BaseException):
                raise outcome
        return outcome

    @contextlib.contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        """End all workers if a call fails, so that no later call is given an answer to this one."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _result(self, k: int, message: bytes) -> Any:
        """What worker k answers, or the error that it raised; it is replaced, and the call repeated, if it dies."""
        for attempt in range(REPLACEMENTS + 1):
            try:
                if attempt:
                    self._workers[k] = None
                    self._worker(k).send(message)
                return self._worker(k).receive()
            except _Lost:
                continue
        return RuntimeError(
            "a worker process was killed several times; what was debited stays debited. Use fewer workers if memory is "
            "short, and resume from the checkpoint if there is one."
        )

    def _worker(self, k: int) -> _Worker:
        worker = self._workers[k]
        if worker is None:
            worker = self._workers[k] = _Worker(self._parts[k])
            for message in self._kept.values():
                worker.send(message)
                outcome = worker.receive()
                if isinstance(outcome, BaseException):  # the disk is full now, say
                    raise outcome
        return worker

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            if worker is not None:
                worker.end()
        self._workers = [None] * len(self._parts)

    def __del__(self) -> None:
        self.close()


#: Said of what cannot be sent to a worker.
NOT_SENT = (
    "expected files, a base model and functions that can be sent to worker processes, got one that cannot be pickled "
    "(a lambda, say); define it in a module, or use one process."
)
#: Said of what a worker cannot import.
NOT_IMPORTED = (
    "expected a base model and functions of modules that worker processes can import, got one that they cannot (of "
    "the script itself, say); define it in a module, or use one process."
)


def _pickled(message: Any) -> bytes:
    try:
        return pickle.dumps(message)
    except Exception:  # noqa: BLE001 - a user's object may raise anything
        raise ValueError(NOT_SENT) from None


class _Lost(Exception):
    """A worker is gone."""


class _Worker:
    """A process that holds one part."""

    def __init__(self, part: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._answer: Any = None  # that came among reports
        self._process = context.Process(target=serve, args=(theirs, _pickled(part)), daemon=True)
        with theirs, _environment():
            self._process.start()

    def send(self, message: bytes) -> None:
        """Send a call."""
        with self._reached():
            self.pipe.send_bytes(message)

    def receive(self) -> Any:
        """The result of the call that was sent last, or the error that it raised."""
        with self._reached():
            found, self._answer = self._answer, None
            while found is None or found[0] == REPORT:
                found = self.pipe.recv()
        kind, value = found
        return value if kind == "result" else KNOWN.get(kind, RuntimeError)(value)

    def reported(self) -> int | None:
        """Rows of the block that the worker reports next; None if it has answered or is gone."""
        try:
            kind, value = found = self.pipe.recv()
        except (EOFError, OSError):  # noticed again when the answer is received
            return None
        if kind == REPORT:
            return int(value)
        self._answer = found
        return None

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            self.end()
            raise _Lost from None
        except BaseException:  # an interrupt may leave half a message in the pipe
            self.end()
            raise

    def end(self) -> None:
        """Kill the process; it holds nothing that is not computed again."""
        self.pipe.close()
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Environment of a worker, without a main module: it must not run the caller's script, and its debits, again."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    main = sys.modules["__main__"]
    os.environ.update(ENVIRONMENT)
    sys.modules["__main__"] = types.ModuleType("__main__")  # multiprocessing looks there for a script to run
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def serve(pipe: Connection, pickled: bytes) -> None:
    """Answer calls until the driver is gone. Errors leave with their first line only, without local variables."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C and ends this process
    # In the middle of a pass this process does not read its pipe, and would outlive a driver that was killed.
    threading.Thread(target=_end_with_driver, daemon=True).start()
    part: Any = None
    with contextlib.suppress(EOFError, OSError):  # the driver is gone
        while True:
            message = pipe.recv_bytes()
            try:
                part = pickle.loads(pickled) if part is None else part  # noqa: S301 - from the process that started this one
                call, arguments = pickle.loads(message)  # noqa: S301 - the same
            except Exception:  # noqa: BLE001 - an import may raise anything
                pipe.send(("ValueError", NOT_IMPORTED))
                continue
            if hasattr(part, "progress"):
                part.progress = lambda rows: pipe.send((REPORT, rows))
            pipe.send_bytes(_answer(part, call, arguments))


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _answer(part: Any, call: str, arguments: Sequence[Any]) -> bytes:
    """What a method returns, or the class and first line of the error that it raises."""
    try:
        return pickle.dumps(("result", getattr(part, call)(*arguments)))
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pickle.dumps(in_one_line(error))


def in_one_line(error: Exception) -> tuple[str, str]:
    """The class of an error, as far as the driver knows it, and the first line of its text."""
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in KNOWN), "RuntimeError")
    return kind, (str(error) or type(error).__name__).splitlines()[0]


__all__ = ["KNOWN", "WorkerPool", "in_one_line"]
