"""Two machines that fit together, and ranks that are killed: ``python machines.py FOLDER KILLS`` prints what happened.

A machine is a network namespace with an agent of torchrun in it, or an agent on loopback where those are not allowed.
At random moments a rank is killed (``kill -9``); torchrun starts all ranks again, and the run goes on from its
checkpoint. What came of a run is compared with the same run in one process that lost the same answers.
"""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from machine_rank import DIES, LEDGER, SLOW, fit, ledger_of, main
from people_files import FEW, digest, files, people, write, write_parts
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from justitia import DurableLedger
from justitia.inputs import public_sample
from justitia.privacy.vault import SensitiveVault

FORK = multiprocessing.get_context("fork")
SCRIPT = Path(__file__).with_name("machine_rank.py")
#: Ranks on each machine, and where their rows are cut.
EACH, CUTS = 1, [500]
#: Passes of a run, and seconds that each of them waits.
PASSES, SLOWLY = 9, 0.1
PURPOSES = ["moments", "decisions", "decisions"]

#: Ranks that are started again meet in a new store; in the old one they would find addresses of those that are gone.
FRESH = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Machine:
    """How a command is started there, its address, and the interface that has it."""

    prefix: tuple[str, ...]
    address: str
    interface: str


LOOPBACK = (Machine((), "127.0.0.1", "lo"), Machine((), "127.0.0.1", "lo"))


@contextlib.contextmanager
def namespaces() -> Iterator[tuple[Machine, Machine] | None]:
    """Two network namespaces joined by a cable; None where they are not allowed."""
    mark = os.getpid() % 10_000
    names = [f"machine{mark}{side}" for side in "ab"]
    cables = [f"cable{mark}{side}" for side in "ab"]
    addresses = ["10.213.7.1", "10.213.7.2"]
    commands = [["netns", "add", name] for name in names]
    commands += [["link", "add", cables[0], "type", "veth", "peer", "name", cables[1]]]
    for name, cable, address in zip(names, cables, addresses, strict=True):
        commands += [
            ["link", "set", cable, "netns", name],
            ["-n", name, "address", "add", f"{address}/24", "dev", cable],
            ["-n", name, "link", "set", cable, "up"],
            ["-n", name, "link", "set", "lo", "up"],
        ]
    try:
        try:
            for words in commands:
                subprocess.run(["ip", *words], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            yield None
            return
        made = zip(names, addresses, cables, strict=True)
        one, other = (Machine(("ip", "netns", "exec", name), address, cable) for name, address, cable in made)
        yield one, other
    finally:
        with contextlib.suppress(OSError):
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def agents(machines: tuple[Machine, Machine], folder: Path) -> list[subprocess.Popen[bytes]]:
    """An agent of torchrun on each machine; they meet at the first one."""
    port, meeting, words = free_port(), uuid.uuid4().hex, []
    for first, machine in zip((1, 0), machines, strict=True):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(EACH)]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{machines[0].address}:{port}"]
        torchrun += ["--rdzv-conf", f"is_host={first}", "--rdzv-id", meeting, "--local-addr", machine.address]
        torchrun += ["--max-restarts", "3"]
        words.append([*machine.prefix, *torchrun, str(SCRIPT), str(folder)])
    log = (folder / "agents.log").open("wb")
    slow = FRESH | {SLOW: str(SLOWLY)}
    environments = [os.environ | slow | {"GLOO_SOCKET_IFNAME": one.interface} for one in machines]
    return [
        subprocess.Popen(line, env=given, stdout=log, stderr=log)
        for line, given in zip(words, environments, strict=True)
    ]


def with_ledger(folder: Path) -> Path:
    """The folder of a run, with a copy of the ledger that all runs begin with."""
    folder.mkdir()
    shutil.copy(folder.parent / LEDGER, folder)
    return folder


def run(machines: tuple[Machine, Machine], folder: Path, chance: random.Random | None = None) -> Any:
    """One run, in which a rank is killed at a moment that is left to chance. What came of it."""
    with_ledger(folder)
    both = agents(machines, folder)
    killed = ""
    try:
        if chance is not None:
            killed = kill_one(folder, both, chance)
        for one in both:
            one.wait(300)
    finally:
        for one in both:
            if one.poll() is None:
                one.kill()
                one.wait()
    return verdict(folder, killed)


def kill_one(folder: Path, both: list[subprocess.Popen[bytes]], chance: random.Random) -> str:
    """Kill a rank of the first attempt in one of its passes, or soon after; which, and when."""
    rank, passes, wait = chance.randrange(2 * EACH), chance.randint(1, PASSES), chance.uniform(0.0, 2 * SLOWLY)
    while all(one.poll() is None for one in both):
        begun = [one for one in folder.glob(f"{rank}-*.passes") if len(one.read_text().splitlines()) >= passes]
        if begun:
            time.sleep(wait)
            os.kill(int(begun[0].stem.partition("-")[2]), signal.SIGKILL)
            return f"rank {rank}, {wait:.2f} s after the begin of pass {passes}"
        time.sleep(0.005)
    return ""


def verdict(folder: Path, killed: str) -> Any:
    """What a run left: its result, and what is wrong with ledger and answers."""
    purposes = [one.purpose for one in DurableLedger.open(folder / LEDGER).releases]
    lines = (folder / "log.jsonl").read_text().splitlines() if (folder / "log.jsonl").exists() else []
    told = [json.loads(line) for line in lines]
    answers = [one[1:] for one in told if one[0] == "answer"]
    came = [json.loads(one.read_text()) for one in sorted(folder.glob("rank-*.json"))]
    return {
        "killed": killed,
        "attempts": len(list(folder.glob("*.passes"))) // (2 * EACH),
        "debits": purposes,
        "answers": answers,
        "without_debit": sum(purposes[number : number + 1] != [what] for number, what in answers),
        "paid_twice": len(answers) - len({number for number, _ in answers}),
        "resumed": [one[1:] for one in told if one[0] == "resumed"],
        "ranks": came,
    }


class Killed(BaseException):
    """Stands for a process that dies."""


@cache
def alone(whole: Path, lost: int | None = None) -> Any:
    """The same run in one process; with ``lost``, the answer to that debit was on its way when it died."""
    folder = with_ledger(whole.with_name(f"alone-{lost}"))
    if lost is not None:
        sound = SensitiveVault.group_sums

        def group_sums(self: Any, *args: Any, **asked: Any) -> Any:
            number = len(self._ledger.own_releases())
            answer = sound(self, *args, **asked)
            if number == lost:
                raise Killed
            return answer

        SensitiveVault.group_sums = group_sums  # type: ignore[method-assign]
        try:
            with contextlib.suppress(Killed):
                fit(folder, files(whole))
        finally:
            SensitiveVault.group_sums = sound  # type: ignore[method-assign]
    return digest(fit(folder, files(whole)), people())


def prepared(folder: Path) -> Path:
    """People in one file, and in one per rank; the one. And a ledger, whose name is part of seeded noise."""
    ledger_of(folder)
    write_parts(people(), folder / "parts", CUTS)
    return write(people(), folder / "whole.parquet")


def crash(folder: Path, kills: int) -> Any:
    """A run that is left alone, and one for each kill; what was wrong, and what was seen."""
    whole, chance = prepared(folder), random.Random(kills)
    with namespaces() as made:
        machines = LOOPBACK if made is None else made
        undisturbed = run(machines, folder / "undisturbed")
        runs = [run(machines, folder / f"kill{k}", chance) for k in range(kills)]
    for one in (undisturbed, *runs):
        one["wrong"] = wrong(one, whole)
    return {"namespaces": made is not None, "undisturbed": undisturbed, "runs": runs}


def wrong(one: Any, whole: Path) -> list[str]:
    """What should not be in a verdict."""
    found = [name for name in ("without_debit", "paid_twice") if one[name]]
    lost = [number for saved, debits in one["resumed"] for number in range(saved, debits)]
    if lost == [0]:
        said = [came.get("refused", "") for came in one["ranks"]]
        right = one["debits"] == PURPOSES[:1] and len(said) == 2 and all("the debit stands" in one for one in said)
    else:
        expected = {"digest": alone(whole, *lost), "rounds": len(PURPOSES)}
        right = one["debits"] == PURPOSES and [came | expected for came in one["ranks"]] == one["ranks"]
        right = right and len(one["ranks"]) == 2
    return found + ([] if right else ["result"])


def once(folder: Path) -> Any:
    """Two agents of torchrun on loopback whose ranks are forked, so that nothing is imported twice; one rank dies."""
    whole, place, port = prepared(folder), with_ledger(folder / "once"), free_port()
    os.environ |= FRESH | {"GLOO_SOCKET_IFNAME": "lo", DIES: "1:judge:3"}

    def agent(first: bool) -> None:
        config = LaunchConfig(
            min_nodes=2,
            max_nodes=2,
            nproc_per_node=EACH,
            run_id="once",
            rdzv_backend="c10d",
            rdzv_endpoint=f"127.0.0.1:{port}",
            rdzv_configs={"is_host": first},
            local_addr="127.0.0.1",
            start_method="fork",
            max_restarts=3,
        )
        elastic_launch(config, main)(place)

    both = [FORK.Process(target=agent, args=(first,)) for first in (True, False)]
    for one in both:
        one.start()
    for one in both:
        one.join(120)
        if one.is_alive():
            one.kill()
    found = verdict(place, "rank 1 in a pass between two answers")
    return found | {"wrong": wrong(found, whole)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # few people, large noise
    torch.set_num_threads(1)
    public_sample.SAMPLE = FEW
    print(json.dumps(crash(Path(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else once(Path(sys.argv[1]))))
