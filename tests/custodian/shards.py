"""Fits on files against a custodian, in one process and in several: ``python shards.py FOLDER``.

Processes are forked here, where nothing else runs. The service runs in one of them, with noise that hears rows as
those of a fit on files do, so that its numbers are those of the same fit with the attribute in a file.
"""

import json
import multiprocessing
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from service_fixtures import KEYS, make_folder, served

sys.path.insert(0, str(Path(__file__).parents[1] / "scale"))
from grouped import die_at, in_group
from justitia.postprocessing.shard import ScoredShard
from people_files import FEW, GROUPS, digest, files, model, people, write, write_parts

from justitia import DurableLedger, PostProcessingPlan, measure
from justitia.custodian import Custodian, connection, remote, remote_vault
from justitia.custodian.populations import ledger_file
from justitia.preprocessing import public_sample
from justitia.privacy.mechanisms import SeededNoise

EPSILON = 8.0
#: Numbers of processes, and where rows are cut; one of four has no row.
SPLITS: dict[str, Any] = {"id": ((1, []), (4, [7, 7, 500])), "who": ((2, [300]),)}
TABLE = people(700)
PLAN = PostProcessingPlan(checks=1)
PERSONS = TABLE.assign(sex=TABLE.groupby("who")["sex"].transform("first"))


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """The address of a service in a process of its own."""
    here, there = multiprocessing.Pipe()

    def run() -> None:
        with served(folder, SeededNoise(11)) as url:
            there.send(url)
            there.recv()

    running = multiprocessing.get_context("fork").Process(target=run)
    running.start()
    try:
        yield here.recv()
    finally:
        here.send("end")
        running.join()


def holder(folder: Path, table: Any, key: str) -> Path:
    named = table.drop_duplicates(key)
    return make_folder(folder, named["sex"].tolist(), ids=named[key].tolist(), groups=GROUPS, epsilon=EPSILON)


def debits(folder: Path) -> int:
    return len(DurableLedger.open(ledger_file(folder, "people")).releases)


def asked(url: str, key: str = "id") -> Custodian:
    return Custodian(url, population="people", ids=key)


def fit(paths: list[Path], table: Any, held: Custodian, person: str | None, rank: int) -> str:
    made = model(plan=PLAN, noise_seed=None)
    where = files(paths[rank], own=True) if len(paths) > 1 else files(paths[0])
    made.fit(where, "label", sensitive_features=held, person=person)
    return f"{digest(made, table)} {made.certificate_.unit}"


def bits(folder: Path) -> Any:
    """Digests of the same fit with the attribute in the files, and with a custodian in one, two and four processes."""
    found: dict[str, Any] = {}
    for key, table in (("id", TABLE), ("who", PERSONS)):
        place = folder / key
        whole = write(table, place / "whole.parquet")
        public = table.drop(columns="sex")
        first = holder(place / "holder", table, key)
        ledger = shutil.copy(ledger_file(first, "people"), place / "ledger")
        local = DurableLedger(ledger, dataset="people", epsilon=EPSILON, delta=1e-5)
        person = key if key == "who" else None
        made = model(plan=PLAN).fit(files(whole), "label", sensitive_features="sex", person=person, ledger=local)
        digests, paid = [digest(made, table)], [len(local.releases)]
        for size, cuts in SPLITS[key]:
            paths = write_parts(public, place / f"public{size}", cuts)
            copied = Path(shutil.copytree(first, place / f"holder{size}"))
            with service(copied) as url:
                work = partial(fit, paths, table, asked(url, key), person)
                digests += [work(0)] if size == 1 else in_group(size, work)
            paid.append(debits(copied))
        found[key] = {"digests": digests, "debits": paid}
    return found


def lost(folder: Path) -> Any:
    """Every other answer is lost, a rank dies in the middle of sending, ids repeat: debits of each."""
    paths = write_parts(TABLE.drop(columns="sex"), folder / "parts", [300])
    found: dict[str, Any] = {}
    with service(holder(folder / "holder", TABLE, "id")) as url:

        def lossy(rank: int, *, losing: bool = False, key: str = "id", place: Path | None = None) -> Any:
            held = asked(url, key)
            if losing:
                held.connection._pool = Losing(held.connection._pool)  # type: ignore[assignment]
            made = model(plan=PLAN, noise_seed=None, epsilon=1.0)
            made.fit(files(paths[rank], own=True), "label", sensitive_features=held, checkpoint=place)
            return made.certificate_.receipt["number"]

        found["losing"] = in_group(2, lambda rank: lossy(rank, losing=True)), debits(folder / "holder")

        def dying(rank: int) -> Any:
            if rank == 1:
                die_at(ScoredShard, "moment_rows", 1)
            return lossy(rank, place=None if rank else folder / "run")

        found["dead"] = in_group(2, dying), debits(folder / "holder")
        found["twice"] = in_group(2, lambda rank: lossy(rank, key="who")), debits(folder / "holder")
        public = files(folder / "parts")
        seen = measure(
            "label", "label", data=public, sensitive_features=asked(url), epsilon=0.5, pos_label="yes", threshold=0.5
        )
        found["measured"] = len(seen.groups), debits(folder / "holder")
    return found


class Losing:
    """Loses the answer of every other request after it was given."""

    def __init__(self, pool: Any) -> None:
        self._pool, self._sent = pool, 0

    def request(self, *words: Any, **more: Any) -> Any:
        found = self._pool.request(*words, **more)
        self._sent += 1
        if self._sent % 2:
            raise connection.urllib3.exceptions.ProtocolError("lost")
        return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # few people, large noise
    public_sample.SAMPLE = FEW
    remote_vault.PART = 8 * 3000
    remote.PART = 3000
    connection.PAUSES = (0.0,) * 5  # type: ignore[assignment]
    os.environ["JUSTITIA_CUSTODIAN_KEY"] = KEYS["trainer"]
    place = Path(sys.argv[1])
    print(json.dumps({"bits": bits(place / "bits"), "lost": lost(place / "lost")}))
