"""``--workers``: nobody else can connect to its processes, and they end with the one that started them."""

import contextlib
import ipaddress
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import income, read

from justitia.cli.command import STOPPED

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets of a process are read from /proc")

WORDS = ("train", "people", "--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--drop", "age")
TWO = (*WORDS, "--seed", "1", "--out", "late", "--workers", "2")
KILLS = int(os.environ.get("JUSTITIA_KILLS", "0"))
#: Read by every process when it starts: blocks of 128 rows, and a sample that is smaller than the table.
SMALL_BLOCKS = """
from justitia.rows import files, parquet
files.BLOCK = parquet.BLOCK = 128
files.SAMPLE = 300
"""
#: Read by every process when it starts: a worker that is to compute decisions says so, and stays there.
STAYS = """
import os, pathlib, time
from justitia.postprocessing.decisions import EvaluateDecisions
def stay(*_):
    pathlib.Path("staying").touch()
    time.sleep(600)
EvaluateDecisions.run = stay
"""


@pytest.fixture
def folder(here: Path) -> Path:
    people = here / "people"
    people.mkdir()
    table = income(600, seed=4)
    table[:100].to_parquet(people / "0.parquet", index=False)
    table[100:].to_parquet(people / "1.parquet", index=False)
    return here


@contextlib.contextmanager
def started(*words: str, custom: str = "", options: tuple[str, ...] = ()) -> "Iterator[subprocess.Popen[str]]":
    """The command in a process of its own, in this folder; whatever of it is left at the end is killed."""
    Path("custom").mkdir()
    Path("custom/sitecustomize.py").write_text(SMALL_BLOCKS + custom, encoding="utf-8")
    paths = os.pathsep.join(["custom", *(one for one in sys.path if one)])
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "justitia", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
    )
    try:
        yield process
    finally:
        children = descendants(process.pid)
        process.kill()
        for one in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.communicate()


def descendants(pid: int) -> list[int]:
    """Processes that this one has started, and those that they have."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, listed.read_text().split()):
                found += [child, *descendants(child)]
    return found


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open."""
    found = set()
    for one in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.add(str(one.readlink()))
    return {name[8:-1] for name in found if name.startswith("socket:[")}


def listening() -> dict[str, str]:
    """Addresses that TCP sockets listen at, by the inode of the socket."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A":
                address, port = local.split(":")
                words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
                found[rest[5]] = f"{ipaddress.ip_address(b''.join(words))} {int(port, 16)}"
    return found


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str] | None" = None) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its exit code counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_two_workers_open_no_listening_socket_and_import_nothing_from_the_current_folder(folder: Path) -> None:
    (folder / "click.py").write_text("from pathlib import Path\nPath('imported').touch()\n", encoding="utf-8")
    most, heard = 0, set()
    with started(*TWO, options=("-P",)) as process:  # as the command justitia starts
        while process.poll() is None:
            family = [process.pid, *descendants(process.pid)]
            most = max(most, len(family))
            open_, at = set().union(*map(sockets_of, family)), listening()
            heard |= {at[inode] for inode in open_ & at.keys()}
            time.sleep(0.1)
        assert process.returncode == 0, process.communicate()
    assert most == 4  # the driver, two workers, and the process in which Python cleans up after them
    assert heard == set()
    assert read(folder / "late" / "training.json")["rows"] == 600
    assert not (folder / "imported").exists()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_driver_that_is_ended_leaves_no_worker_and_no_half_written_model(folder: Path, sent: signal.Signals) -> None:
    before = {one.name for one in folder.iterdir()} | {"custom", "staying"}
    with started(*TWO, custom=STAYS) as process:
        wait_for((folder / "staying").exists, process)
        workers = descendants(process.pid)
        assert len(workers) == 3  # with the process in which Python cleans up after them
        assert any(one.name.startswith(".late.") for one in folder.iterdir())
        process.send_signal(sent)
        try:
            stdout, stderr = process.communicate(timeout=40)  # to the end of what workers may write
            wait_for(lambda: all(map(is_gone, workers)))
        finally:
            for one in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
    assert stdout == ""
    assert (process.returncode, stderr.strip()) == ((130, STOPPED) if sent == signal.SIGTERM else (-9, ""))
    left = {one.name for one in folder.iterdir()} - before
    if sent == signal.SIGKILL:  # nobody is left to remove the hidden folder that was to become the model
        left -= {name for name in left if name.startswith(".late.") and not any((folder / name).iterdir())}
    assert left == set()


@pytest.mark.skipif(not KILLS, reason="make crash-test")
def test_workers_killed_at_random_moments_go_on_and_no_answer_is_paid_twice(folder: Path) -> None:
    chance = random.Random(KILLS)

    def run(name: str, kill_after: float | None) -> tuple[float, list[str]]:
        """Seconds that a run took, and purposes of its debits."""
        begun = time.monotonic()
        with started(*TWO[:-3], name, *TWO[-2:], "--checkpoint", f"{name}.run") as process:
            if kill_after is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(kill_after)
                workers = descendants(process.pid)  # none if they have ended already
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(workers), signal.SIGKILL) if workers else None
            stderr = process.communicate(timeout=300)[1]
        shutil.rmtree("custom")
        journal = folder / f"{name}.run" / "ledger.jsonl"
        debits = [json.loads(line)["purpose"] for line in journal.read_text().splitlines()]
        if process.returncode:  # sizes or moments were lost: nothing to go on from
            assert "the debit stands" in " ".join(stderr.split())
            assert debits in (expected[:1], expected[:2])
        else:
            assert read(folder / name / "training.json")["rows"] == 600
            assert debits == expected or not expected
        return time.monotonic() - begun, debits

    expected: list[str] = []
    seconds, expected = run("undisturbed", None)
    assert expected[:2] == ["sizes", "moments"]
    for k in range(KILLS):
        run(f"kill{k}", chance.uniform(0.2, 0.95) * seconds)


def test_refusal_of_two_workers_is_said_once_with_its_exit_code(folder: Path) -> None:
    with started(*TWO, "--epsilon", "-1") as process:
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    assert stdout == ""
    assert stderr.count("error:") == 1
