"""Kill a custodian while it answers, and look at what is left: ``python crash.py FOLDER KILLS``.

A child answers several clients at once, which share commits, each of them one request after the other, and logs each
answer to the disk after it was returned. It is killed at random moments; in the next one each client sends its last
request again, as one whose connection was lost, and goes on.
"""

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from service_fixtures import IDS, N, make_folder

from justitia import DurableLedger
from justitia.custodian.errors import RequestError
from justitia.custodian.populations import ledger_file
from justitia.custodian.records import Client, Records
from justitia.custodian.schemas import SumsRequest
from justitia.custodian.service import Answer, Service
from justitia.custodian.settings import ServiceSettings
from justitia.custodian.wire import to_stream
from justitia.privacy.keys import key_hash

BODY = to_stream(np.ones((N, 2)))
CLIENTS = ("one", "two", "three", "four")


def work(folder: Path, logs: Path) -> None:
    service = Service(folder, ServiceSettings(page_port=0))
    threads = [threading.Thread(target=ask, args=(service, name, logs / name)) for name in CLIENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask(service: Service, name: str, log: Path) -> None:
    client = service.client(f"key of {name}")
    assert client is not None
    cohort = service.make_cohort(client, "people", IDS).cohort
    done = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    number = int(done[-1][0]) if done else 0
    with log.open("a", encoding="utf-8") as file:
        while True:
            try:
                answer = service.sums(client, cohort, SumsRequest(f"r{number}", "crash", 1.0, 400.0), BODY)
                assert isinstance(answer, Answer)
                line = f"{number} {hashlib.sha256(answer.body).hexdigest()}"
            except RequestError as refusal:
                line = f"{number} refused-{refusal.kind}"
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
            number += 1


def _has_answers(logs: Path) -> bool:
    return any(log.stat().st_size > 0 for log in logs.iterdir())


def torture(folder: Path, kills: int) -> dict[str, int]:
    make_folder(folder / "holder", epsilon=50.0)
    records = Records(folder / "holder")
    for name in CLIENTS:
        records.put_client(Client(name, ("train",), None, key_hash(f"key of {name}"), ("people",)))
    logs, chance = folder / "logs", random.Random(kills)
    logs.mkdir()
    for kill in range(kills):
        child = os.fork()
        if not child:
            try:
                work(folder / "holder", logs)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.02, 0.15))
        for _ in range(600 if kill == kills - 1 else 0):  # on a busy machine no child may have answered anything so far
            time.sleep(0 if _has_answers(logs) else 0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    texts = {log.name: log.read_text().splitlines() for log in logs.iterdir()}
    cut = {name: [line.split() for line in lines if len(line.split()) == 2] for name, lines in texts.items()}
    lines = [(f"{name}/r{number}", what) for name, found in cut.items() for number, what in found]
    outcomes: dict[str, set[str]] = {}
    for name, what in lines:
        outcomes.setdefault(name, set()).add(what)
    ledger = DurableLedger.open(ledger_file(folder / "holder", "people"))
    runs = Counter(run for run, _ in ledger.releases_by_run())
    receipts = Records(folder / "holder").receipts("people")
    for receipt, _ in receipts:
        ledger.verify(receipt["ledger"])
    answers = {name: what for name, what in outcomes.items() if not any(one.startswith("refused") for one in what)}
    kinds = {one for what in outcomes.values() for one in what if one.startswith("refused")}
    return {
        "answers": len(answers),
        "refused_otherwise": len(kinds - {"refused-lost"}),
        "lost": sum("refused-lost" in what for what in outcomes.values()),
        "answered_twice_with_other_noise": sum(len(what) > 1 for what in answers.values()),
        "answers_without_a_debit": sum(name not in runs for name in answers),
        "debits_under_one_name": max(runs.values()),
        "debits_without_answer_or_receipt": len(ledger.releases) - len(receipts),
        "receipts": len(receipts),
    }


if __name__ == "__main__":
    print(json.dumps(torture(Path(sys.argv[1]), int(sys.argv[2]))))
