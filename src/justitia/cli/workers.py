"""``--workers N``: the command once more in N processes that torchrun's launcher starts, meets and ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from justitia.cli.errors import INTERRUPTED, UNEXPECTED, Refusal
from justitia.cli.output import warn

#: Set in the processes that were started here.
STARTED = "JUSTITIA_WORKER"
#: Exit code of a process that has lost another one.
LOST = 75
#: Seconds that it waits for its end.
PATIENCE = 3.0
#: So often are processes with a checkpoint started again.
RESTARTS = 3


def starts_workers(workers: int) -> bool:
    """Whether this process is to start others instead of working itself."""
    if workers > 1 and "RANK" in os.environ and STARTED not in os.environ:
        raise Refusal("expected --workers or torchrun, got both; leave out --workers.")
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
    os.environ |= {STARTED: "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    try:
        for left in range(RESTARTS if resumes else 0, -1, -1):
            code = _launched(workers, words)
            if code is not None:
                return code
            if left:
                warn("a process of this run was killed; all are started again and go on from the checkpoint.")
    finally:
        os.environ.pop(STARTED, None)
    raise Refusal("a process of this run was killed; what was debited stays debited, and nothing was written.")


def _launched(workers: int, words: list[str]) -> int | None:
    """The exit code of the processes; None if one was killed."""
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415 - takes long
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    logging.disable(logging.CRITICAL)  # torchrun's own words
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,  # a refusal would be repeated: see run_workers
    )
    try:
        elastic_launch(config, sys.executable)("-m", "justitia", *words)
    except ChildFailedError as error:
        return outcome({rank: int(failure.exitcode) for rank, failure in error.failures.items()})
    except SignalException:
        raise KeyboardInterrupt from None
    return 0


def outcome(codes: Mapping[int, int]) -> int | None:
    """The exit code of a run by those of processes that failed: the first one's; None if one was killed.

    The first one has said why. Where one was killed, the launcher stops the others, whose ends are among these codes.
    """
    code = codes.get(0, next(iter(codes.values()), UNEXPECTED))
    killed = any(one < 0 and -one not in {signal.SIGTERM, signal.SIGINT} for one in codes.values())
    return None if code < 0 or code == LOST or (code == INTERRUPTED and killed) else code


@contextmanager
def joined(workers: int) -> Iterator[int]:
    """Meet the processes that were started with this one; its rank."""
    if workers <= 1 and "RANK" not in os.environ:
        yield 0
        return
    from torch import distributed as dist  # noqa: PLC0415

    from justitia.training.ranks import LostRank  # noqa: PLC0415

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        yield rank
    except LostRank as error:
        if STARTED in os.environ:
            time.sleep(PATIENCE if rank else 0)  # if rank 0 has just refused, its exit code is the one that counts
            sys.exit(LOST)  # whoever started this says why
        raise Refusal(str(error)) from None
    except (click.ClickException, ValueError, TypeError, RuntimeError):
        if rank == 0:
            raise
        sys.exit(0)  # rank 0 says why
    finally:
        dist.destroy_process_group()


__all__ = ["joined", "outcome", "run_workers", "starts_workers"]
