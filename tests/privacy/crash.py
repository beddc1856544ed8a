"""Kill processes while they debit one ledger, and look at what is left: ``python crash.py FOLDER KILLS``.

Four workers debit the same file as fast as they can. Each writes the number of a debit and its purpose to a log of its
own, to the disk, after ``debit`` has returned: the log is what an observer has seen. At random moments, also while the
file is being made, one of them is killed and replaced. A file whose budget is used up makes room for the next one.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from justitia.privacy.accounting import GaussianCost, epsilon_spent
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.ledger import BudgetExceeded, Release

WORKERS, DEBITS = 4, 200
COST, DELTA = GaussianCost(30.0), 1e-5
BUDGET = epsilon_spent({COST: DEBITS}, DELTA)


def open_ledger(path: Path) -> DurableLedger:
    return DurableLedger(path, dataset="people", epsilon=BUDGET, delta=DELTA, timeout=600.0)


def work(path: Path, log: Path) -> None:
    """Debit until the budget is used up."""
    ledger = open_ledger(path)
    with log.open("w", encoding="utf-8") as file:
        for k in range(10 * DEBITS):
            purpose = f"{log.stem}.{k}"
            try:
                number = ledger.debit(Release(purpose, COST, 1.0))
            except BudgetExceeded:
                return
            file.write(f"{number} {purpose}\n")
            file.flush()
            os.fsync(file.fileno())


def start(path: Path, log: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(path, log)
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, the parent must not run on in a child
        traceback.print_exc()
    finally:
        os._exit(code)


def verdict(path: Path, logs: list[Path]) -> dict[str, int]:
    """What is wrong with a file after the last of its workers has gone."""
    releases = open_ledger(path).releases
    lines = [line for log in logs if log.exists() for line in log.read_text("utf-8").split("\n")[:-1]]
    seen = {int(number): purpose for number, purpose in (line.split() for line in lines)}
    lost = [n for n, purpose in seen.items() if n >= len(releases) or releases[n].purpose != purpose]
    return {
        "answers": len(lines),
        "answers_that_share_a_number": len(lines) - len(seen),
        "answers_without_a_debit": len(lost),
        "debits": len(releases),
        "debits_beyond_the_budget": max(0, len(releases) - DEBITS),
    }


def torture(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Rounds of one file each until so many workers were killed; the sum of the verdicts."""
    chance, total = random.Random(seed), {"kills": 0, "files": 0, "files_used_up": 0, "failures": 0}
    while total["kills"] < kills:
        path = folder / f"{total['files']}.ledger"
        logs = [folder / f"{total['files']}-{k}.log" for k in range(WORKERS)]
        alive = {start(path, log) for log in logs}
        used_up = False
        while alive and total["kills"] < kills and not used_up:
            time.sleep(chance.uniform(0.0, 0.1))
            victim = chance.choice(sorted(alive))
            alive.remove(victim)
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            used_up = os.WIFEXITED(status)  # it had ended by itself
            total["failures"] += used_up and os.WEXITSTATUS(status) != 0
            total["kills"] += os.WIFSIGNALED(status)
            if not used_up:
                logs.append(folder / f"{total['files']}-{len(logs)}.log")
                alive.add(start(path, logs[-1]))
        for child in alive:  # the last round's workers go on to the end of the budget
            _, status = os.waitpid(child, 0)
            total["failures"] += os.waitstatus_to_exitcode(status) != 0
        total["files"] += 1
        total["files_used_up"] += len(open_ledger(path).releases) == DEBITS
        for name, count in verdict(path, logs).items():
            total[name] = total.get(name, 0) + count
    return total


if __name__ == "__main__":
    print(json.dumps(torture(Path(sys.argv[1]), int(sys.argv[2]), seed=int(sys.argv[2]))))
