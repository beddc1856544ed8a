"""Many clients at once on one custodian: ``python -m bench.performance.custodian [--seconds 300] [--clients 50]``.

A service in a process of its own, on this machine only; clients are threads here that ask small questions as fast as
they are answered. Printed, and kept in ``results/custodian.json``: answers per second in each half, p50 and p99, memory
over time, whether every answer has its debit, and how busy the machine was, which moves all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from justitia.custodian.connection import Connection
from justitia.custodian.populations import ledger_file, register
from justitia.custodian.records import Client, Records
from justitia.custodian.settings import CONFIG, private_folder
from justitia.custodian.wire import ARROW, to_stream
from justitia.privacy.attribute import Attribute
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.keys import key_hash, new_key, new_name
from justitia.privacy.register import Register

RESULTS = Path("results") / "custodian.json"
PEOPLE, WIDTH, NOISE = 2000, 8, 2000.0


def make(folder: Path, port: int, clients: int) -> list[str]:
    """A population and so many keys."""
    private_folder(folder)
    lines = [f"port = {port}", "page_port = 0", "requests_per_minute = 1000000"]
    (folder / CONFIG).write_text("\n".join(lines), encoding="utf-8")
    records = Records(folder)
    labels = np.array(["a" if k % 3 else "b" for k in range(PEOPLE)], dtype=object)
    people = Register.from_rows([str(k) for k in range(PEOPLE)], Attribute(("group",), [labels]))
    register(folder, records, "people", people, groups=["a", "b"], epsilon=5.0, delta=1e-6)
    keys = [new_key() for _ in range(clients)]
    for k, key in enumerate(keys):
        records.put_client(Client(f"client-{k}", ("train",), None, key_hash(key), ("people",)))
    return keys


def ask(url: str, key: str, until: float, times: list[float], refused: list[str]) -> None:
    """One client's questions until the time is over."""
    connection = Connection(url, key)
    ids = json.dumps({"ids": [str(k) for k in range(PEOPLE)]}).encode()
    answer, _ = connection.post("/v1/populations/people/cohorts", ids, "application/json")
    cohort = json.loads(answer)["cohort"]
    body = to_stream(np.random.default_rng(0).normal(size=(PEOPLE, WIDTH)))
    while time.monotonic() < until:
        begun = time.monotonic()
        asked = {"request": new_name(), "purpose": "load", "bound": 1.0, "noise_multiplier": NOISE}
        try:
            connection.post(f"/v1/cohorts/{cohort}/sums", body, ARROW, **asked)
            times.append(time.monotonic() - begun)
        except RuntimeError as error:
            refused.append(type(error).__name__)
            return


def memory(process: int) -> float:
    """Megabytes that a process has in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_seconds(process: int) -> float:
    """Processor time that a process has used, in user and system mode."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """Memory of a process, looked at so many times in equal steps."""

    def __init__(self, process: int, seconds: float, looks: int = 60) -> None:
        super().__init__(daemon=True)
        self._process, self._each, self._looks = process, seconds / looks, looks
        self.megabytes = [memory(process)]

    def run(self) -> None:
        """Look."""
        for _ in range(self._looks):
            time.sleep(self._each)
            self.megabytes.append(memory(self._process))


def load(folder: Path, *, seconds: float, clients: int) -> dict[str, Any]:
    """What was seen."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys, busy = make(folder, port, clients), os.getloadavg()[0]
    words = [sys.executable, "-m", "justitia", "custodian", "serve", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as service:  # noqa: S603 - this package's own command
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(1200):
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            used = -processor_seconds(service.pid)
            watch = Watch(service.pid, seconds)
            watch.start()
            times: list[float] = []
            refused: list[str] = []
            until = time.monotonic() + seconds
            threads = [threading.Thread(target=ask, args=(url, key, until, times, refused)) for key in keys]
            for thread in threads:
                thread.start()
            time.sleep(seconds / 2)
            half = len(times)
            for thread in threads:
                thread.join()
            watch.join()
            used += processor_seconds(service.pid)
        finally:
            service.send_signal(signal.SIGTERM)
    ledger = DurableLedger.open(ledger_file(folder, "people"))
    return {
        "clients": clients,
        "seconds": seconds,
        "answers": len(times),
        "debits": len(ledger.releases),
        "receipts": len(Records(folder).receipts("people")),
        "refused": len(refused),
        "spent_epsilon": round(ledger.epsilon(), 4),
        "budget_epsilon": ledger.budget_epsilon,
        "per_second_in_each_half": (round(2 * half / seconds, 1), round(2 * (len(times) - half) / seconds, 1)),
        "p50_seconds": round(float(np.quantile(times, 0.5)), 3),
        "p99_seconds": round(float(np.quantile(times, 0.99)), 3),
        "processor_ms_of_the_service_per_answer": round(1e3 * used / max(len(times), 1), 2),
        "memory_mb_at_start_quarter_half_end": [round(watch.megabytes[k]) for k in (0, 15, 30, 60)],
        "memory_mb_largest": round(max(watch.megabytes)),
        "load_average_before_and_after": (round(busy, 1), round(os.getloadavg()[0], 1)),
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=50)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = load(Path(folder) / "holder", seconds=chosen.seconds, clients=chosen.clients)
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(kept | {"load": found}, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
