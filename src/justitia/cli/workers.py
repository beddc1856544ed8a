"""``--workers N``: the command once more in N processes that this one starts, connects and ends.

The processes are connected by socket pairs that they inherit. Nothing listens on a port, and nothing that another
process could have sent is read.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from justitia.cli.errors import INTERRUPTED, UNEXPECTED, Refusal
from justitia.cli.output import warn

#: Set in the processes that were started here: which of them it is, and the numbers of the files it has inherited.
STARTED = "JUSTITIA_WORKER"
#: Exit code of a process that has lost another one.
LOST = 75
#: Seconds that it waits for its end.
PATIENCE = 3.0
#: Seconds that the others have to notice that a process failed, before they are stopped.
NOTICE = 1.0
#: Seconds that a process has to clean up when it is stopped; a finished model may be on its way to the disk.
ENDING = 30.0
#: So often are processes with a checkpoint started again.
RESTARTS = 3


def starts_workers(workers: int) -> bool:
    """Whether this process is to start others instead of working itself."""
    if workers > 1 and os.name != "posix":
        raise Refusal("expected Linux or macOS for --workers, whose processes inherit sockets; leave out --workers.")
    return workers > 1 and STARTED not in os.environ


def run_workers(workers: int, *, resumes: bool) -> int:
    """Run this command in several processes; the exit code of the first.

    Parameters
    ----------
    resumes : bool
        Whether processes that are started again go on from a checkpoint: then they are, where one was killed.
    """
    context = click.get_current_context()
    words = [str(one) for one in context.meta.get("justitia.words", [])]
    for left in range(RESTARTS if resumes else 0, -1, -1):
        code = _launched(workers, words)
        if code is not None:
            return code
        if left:
            warn("a process of this run was killed; all are started again and go on from the checkpoint.")
    raise Refusal("a process of this run was killed; what was debited stays debited, and nothing was written.")


def _launched(workers: int, words: Sequence[str]) -> int | None:
    """The exit code of the processes; None if one was killed."""
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as held:
        # Nobody writes to this pipe. The processes see its end when this one is gone, however it was ended.
        watched, alive = os.pipe()
        held.callback(os.close, alive)
        held.callback(os.close, watched)
        try:
            with ExitStack() as given:  # ends are closed here once they are handed over, or no process would be missed
                pairs = [socket.socketpair() for _ in range(1, workers)]
                for end in (end for pair in pairs for end in pair):
                    given.enter_context(end)
                for rank in range(workers):
                    ends = [near for near, _ in pairs] if rank == 0 else [pairs[rank - 1][1]]
                    processes.append(_started(words, rank, workers, watched, [end.fileno() for end in ends]))
            while any(one.poll() is None for one in processes) and not any(one.returncode for one in processes):
                time.sleep(0.1)
            _wait(processes, NOTICE if any(one.returncode for one in processes) else 0)
        finally:
            _end(processes)
    codes = {rank: one.returncode for rank, one in enumerate(processes) if one.returncode}
    return outcome(codes) if codes else 0


def _started(words: Sequence[str], rank: int, size: int, watched: int, ends: list[int]) -> subprocess.Popen[bytes]:
    # ``-m`` alone would import from the current folder first, which the command ``justitia`` does not do.
    safe = ["-P"] if {"", str(Path.cwd())}.isdisjoint(sys.path) else []
    facts = {"rank": rank, "size": size, "watched": watched, "ends": ends}
    given = {STARTED: json.dumps(facts), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return subprocess.Popen(  # noqa: S603 - this command again
        [sys.executable, *safe, "-m", "justitia", *words],
        env=os.environ | given,
        pass_fds=(watched, *ends),
        start_new_session=True,  # Ctrl-C in a terminal reaches this process alone, which then stops the others
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    until = time.monotonic() + seconds
    for one in processes:
        with suppress(subprocess.TimeoutExpired):
            one.wait(max(until - time.monotonic(), 0))


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop the processes that are left, politely at first; an interrupt while this waits stops them at once."""
    try:
        for one in processes:
            one.terminate()  # does nothing to one that has ended
        _wait(processes, ENDING)
    finally:
        for one in processes:
            one.kill()
            one.wait()


def outcome(codes: Mapping[int, int]) -> int | None:
    """The exit code of a run by those of processes that failed: the first one's; None if one was killed.

    The first one has said why. Where one was killed, the launcher stops the others, whose ends are among these codes.
    """
    code = codes.get(0, next(iter(codes.values()), UNEXPECTED))
    killed = any(one < 0 and -one not in {signal.SIGTERM, signal.SIGINT} for one in codes.values())
    return None if code < 0 or code == LOST or (code == INTERRUPTED and killed) else code


@contextmanager
def joined() -> Iterator[int]:
    """Meet the processes that were started with this one; its rank."""
    if STARTED not in os.environ:
        yield 0
        return
    from justitia.training.ranks import LostRank  # noqa: PLC0415 - takes long

    with _inherited(json.loads(os.environ[STARTED])) as rank:
        try:
            yield rank
        except LostRank:
            time.sleep(PATIENCE if rank else 0)  # if rank 0 has just refused, its exit code is the one that counts
            sys.exit(LOST)  # whoever started this says why
        except (click.ClickException, ValueError, TypeError, RuntimeError):
            if rank == 0:
                raise
            sys.exit(0)  # rank 0 says why


@contextmanager
def _inherited(facts: Mapping[str, Any]) -> Iterator[int]:
    """The rank of this process, connected by the sockets that the launcher gave it."""
    from justitia.training.ranks import ManyRanks, working_as  # noqa: PLC0415 - takes long

    os.set_inheritable(facts["watched"], False)  # noqa: FBT003 - takes no name
    threading.Thread(target=_leave_with_launcher, args=(facts["watched"], facts["rank"]), daemon=True).start()
    with ExitStack() as held:
        pipes = [held.enter_context(Connection(number)) for number in facts["ends"]]
        for number in facts["ends"]:
            os.set_inheritable(number, False)  # noqa: FBT003
        with working_as(ManyRanks(facts["rank"], facts["size"], pipes)):
            yield facts["rank"]


def _leave_with_launcher(watched: int, rank: int) -> None:
    """End this process when the one that started it is gone, even if that one was killed.

    The first process goes first. If it lost another one at the same time, its clean-up after that could be cut short by
    the signal, and a half-written folder would be left.
    """
    os.read(watched, 1)
    time.sleep(NOTICE if rank else 0)
    with suppress(ProcessLookupError):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)  # as Ctrl-C: it cleans up
    time.sleep(ENDING)
    os._exit(LOST)


__all__ = ["joined", "outcome", "run_workers", "starts_workers"]
