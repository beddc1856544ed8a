"""What one process of a run on two machines does, for ``machines.py``: ``torchrun ... machine_rank.py FOLDER``.

Rank 0 writes to a log what it resumes from (answers that were saved, and debits), and each answer that it has seen:
number of its debit, and purpose.
"""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from people_files import FEW, digest, files, model, people
from torch import distributed as dist

from justitia import DurableLedger, LagrangianDualClassifier
from justitia.inputs import public_sample
from justitia.inputs.public_sample import OwnRows
from justitia.postprocessing.shard import ScoredShard
from justitia.privacy.ledger import BudgetExceeded
from justitia.privacy.vault import SensitiveVault
from justitia.training.ranks import LostRank

#: Seconds that a pass waits, so that there are moments to be killed in; the rank and the pass that it dies in.
LEDGER = "ledger.db"
SLOW, DIES = "MACHINE_SLOW", "MACHINE_DIES"


def ledger_of(folder: Path) -> DurableLedger:
    """The durable ledger beside a checkpoint."""
    return DurableLedger(folder / LEDGER, dataset="people", epsilon=model().epsilon, delta=model().delta)


def fit(folder: Path, where: Any) -> LagrangianDualClassifier:
    """The fit, resumed if it has begun."""
    return model().fit(where, "label", sensitive_features="sex", ledger=ledger_of(folder), checkpoint=folder / "run")


def slowed(seconds: float, begun: Path) -> None:
    """Every pass over the rows leaves a line in a file, and waits before it begins."""
    plain = OwnRows.blocks

    def blocks(self: OwnRows, *names: Any) -> Iterator[Any]:
        with begun.open("a") as file:
            file.write("pass\n")
        time.sleep(seconds)
        yield from plain(self, *names)

    OwnRows.blocks = blocks  # type: ignore[method-assign]


def dying(folder: Path, name: str, count: int) -> None:
    """Kill this process, hard, at the so-manieth call of a pass; once."""
    method, calls = getattr(ScoredShard, name), [0]

    def counted(self: ScoredShard, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == count and not (folder / "died").exists():
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args)

    setattr(ScoredShard, name, counted)


def logged(folder: Path) -> None:
    """Write down what is resumed, and each answer that comes out of the vault."""
    state = folder / "run" / "state.pt"

    def tell(*facts: Any) -> None:
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    saved = torch.load(state, weights_only=True)["releases"] if state.exists() else 0
    tell("resumed", saved, len(ledger_of(folder).releases))
    sound = SensitiveVault.group_sums

    def group_sums(self: Any, *args: Any, **asked: Any) -> Any:
        number = len(self._ledger.own_releases())
        answer = sound(self, *args, **asked)
        tell("answer", number, asked["purpose"])
        return answer

    SensitiveVault.group_sums = group_sums  # type: ignore[method-assign]


def main(folder: Path) -> None:
    """Fit; what came of it is in ``rank-N.json``."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    begun = folder / f"{rank}-{os.getpid()}.passes"
    begun.touch()
    slowed(float(os.environ.get(SLOW, "0")), begun)
    who, name, count = os.environ.get(DIES, "-1:judge:1").split(":")
    if int(who) == rank:
        dying(folder, name, int(count))
    if rank == 0:
        logged(folder)
    try:
        made = fit(folder, files(folder.parent / "parts" / f"{rank}.parquet", own=True))
        came = {"digest": digest(made, people()), "rounds": len(made.history_), "epsilon": made.certificate_.epsilon}
    except BudgetExceeded as error:
        came = {"refused": str(error)}
    except LostRank:
        raise
    except RuntimeError as error:  # in the words of rank 0
        came = {"refused": str(error)}
    (folder / f"rank-{rank}.json").write_text(json.dumps(came))
    dist.barrier()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # few people, large noise
    torch.set_num_threads(1)
    public_sample.SAMPLE = FEW
    main(Path(sys.argv[1]))
