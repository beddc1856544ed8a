"""Processes that fit in one checkpoint folder at once, and die there: ``python racing.py FOLDER KILLS``.

Three workers fit the same model in one folder until each has it; whoever finds the folder in use tries again. Each
writes the number and the purpose of a debit to a log of its own, to the disk, before it goes on to the answer, and the
epsilon of its certificate. At random moments one is killed and replaced. A folder with a model, or whose run died at
its first question, makes room for the next one.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from justitia import LagrangianDualClassifier, PFLDPlan
from justitia.privacy.ledger import BudgetExceeded, LedgerError, PrivacyLedger, Release

WORKERS, BUDGET, DELTA = 3, 8.0, 1e-5
PLAN = PFLDPlan(warmup_steps=20, private_steps=3, public_steps=2, batch_size=64, warmup_learning_rate=0.02)
RELEASES = 7


def model() -> LagrangianDualClassifier:
    return LagrangianDualClassifier(
        epsilon=BUDGET, delta=DELTA, groups=["f", "m"], engine="pf-ld", plan=PLAN, random_state=0, noise_seed=0
    )


def fit(folder: Path) -> LagrangianDualClassifier:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=120) > 0).astype(np.int64)
    a = np.where(X[:, 1] + 0.5 * X[:, 0] > 0, "f", "m")
    return model().fit(X, y, sensitive_features=a, checkpoint=folder)


def ledger_of(folder: Path) -> PrivacyLedger:
    return PrivacyLedger(epsilon=BUDGET, delta=DELTA, journal=folder / "ledger.jsonl")


def work(folder: Path, log: Path) -> None:
    """Fit until there is a model, or none can be had any more."""
    with log.open("w", encoding="utf-8") as file:

        def write(*facts: object) -> None:
            file.write(json.dumps(facts) + "\n")
            file.flush()
            os.fsync(file.fileno())

        sound = PrivacyLedger.debit

        def debit(self: Any, release: Release) -> int:
            number = sound(self, release)
            time.sleep(0.005)  # room for a kill between a debit and its answer
            write("debit", number, release.purpose)
            return number

        PrivacyLedger.debit = debit  # type: ignore[method-assign]
        while True:
            try:
                write("certificate", fit(folder).certificate_.epsilon)
            except LedgerError as error:
                if "is in use by" not in str(error):
                    raise
                write("in use")
                time.sleep(0.02)
            except BudgetExceeded as error:
                if "stopped before its first answer was saved" not in str(error):
                    raise
                write("first question")
                return
            else:
                return


def start(folder: Path, log: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(folder, log)
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, the parent must not run on in a child
        traceback.print_exc()
    finally:
        os._exit(code)


def verdict(folder: Path, logs: list[Path]) -> dict[str, int]:
    """What is wrong with a folder after the last of its workers has gone."""
    ledger = ledger_of(folder)
    purposes = [one.purpose for one in ledger.releases]
    lines = [json.loads(line) for log in logs if log.exists() for line in log.read_text("utf-8").split("\n")[:-1]]
    debits = [(number, purpose) for kind, *rest in lines if kind == "debit" for number, purpose in [rest]]
    certified = [line[1] for line in lines if line[0] == "certificate"]
    return {
        "answers": len(debits),
        "answers_that_share_a_number": len(debits) - len({number for number, _ in debits}),
        "answers_without_a_debit": sum(purposes[number : number + 1] != [purpose] for number, purpose in debits),
        "debits": len(purposes),
        "folders_beyond_the_budget": int(len(purposes) > RELEASES or ledger.epsilon() > BUDGET * (1 + 1e-9)),
        "models": len(certified),
        "certificates_that_say_less": sum(epsilon < ledger.epsilon() for epsilon in certified),
        "found_in_use": sum(line[0] == "in use" for line in lines),
    }


def race(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Rounds of one folder each until so many workers were killed; the sum of the verdicts."""
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own is shared by forked processes, and one that is killed may hold it
    fit(folder / "warm-up")  # what is slow the first time is done before the workers are forked
    chance, total = random.Random(seed), {"kills": 0, "folders": 0, "failures": 0}
    while total["kills"] < kills:
        run = folder / f"{total['folders']}"
        logs = [folder / f"{total['folders']}-{k}.log" for k in range(WORKERS)]
        alive, settled = {start(run, log) for log in logs}, False
        while alive and total["kills"] < kills and not settled:
            time.sleep(chance.uniform(0.0, 0.06))
            victim = chance.choice(sorted(alive))
            alive.remove(victim)
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            settled = os.WIFEXITED(status)  # it had ended by itself
            total["failures"] += settled and os.WEXITSTATUS(status) != 0
            total["kills"] += os.WIFSIGNALED(status)
            if not settled:
                logs.append(folder / f"{total['folders']}-{len(logs)}.log")
                alive.add(start(run, logs[-1]))
        for child in alive:
            _, status = os.waitpid(child, 0)
            total["failures"] += os.waitstatus_to_exitcode(status) != 0
        total["folders"] += 1
        for name, count in verdict(run, logs).items():
            total[name] = total.get(name, 0) + count
    return total


if __name__ == "__main__":
    print(json.dumps(race(Path(sys.argv[1]), int(sys.argv[2]), seed=int(sys.argv[2]))))
