"""``--workers N``: the command once more in N processes that torchrun's launcher starts, meets and ends."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import click

from justitia.cli.errors import UNEXPECTED, Refusal

#: Set in the processes that were started here.
STARTED = "JUSTITIA_WORKER"


def starts_workers(workers: int) -> bool:
    """Whether this process is to start others instead of working itself."""
    if workers > 1 and "RANK" in os.environ and STARTED not in os.environ:
        raise Refusal("expected --workers or torchrun, got both; leave out --workers.")
    return workers > 1 and STARTED not in os.environ


def run_workers(workers: int) -> int:
    """Run this command in several processes; the exit code of the first."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415 - takes long
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    context = click.get_current_context()
    words = [str(one) for one in context.meta.get("justitia.words", [])]
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    os.environ |= {STARTED: "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "justitia", *words)
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        code = codes.get(0, next(iter(codes.values()), UNEXPECTED))
        if code in range(1, 128):
            return int(code)  # it has said why
        raise Refusal(
            "a process of this run was killed; what was debited stays debited, and nothing was written."
        ) from None
    finally:
        os.environ.pop(STARTED, None)
    return 0


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
    except (click.ClickException, ValueError, TypeError, RuntimeError) as error:
        if rank == 0 or isinstance(error, LostRank):
            raise
        sys.exit(0)  # rank 0 says why
    finally:
        dist.destroy_process_group()


__all__ = ["joined", "run_workers", "starts_workers"]
