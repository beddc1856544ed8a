"""Who trains and who holds the attribute, as two users: ``python -m bench.performance.two_users [--income]``, as root.

The custodian's user registers people and serves over TLS, with noise that can be drawn again. The trainer's user fits
against it, with the same settings as a fit in memory before. Then root looks into the trainer's files and memory for
entries of the attribute and for everybody's codes in whatever form, and into the custodian's memory, where they are.
Printed, and kept in ``results/custodian.json`` with ``--income``: whether results are the same to the last bit, the
time of both fits, and what was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import maximum_filter1d

HOLDER, TRAINER = 61001, 61002  # numbers of users that need no account
SEED, EPSILON = 7, 50.0
PIECE = 16 << 20
RESULTS = Path("results") / "custodian.json"
SENSITIVE, GROUPS = "attribute", ["a", "b"]


# -- other users


def as_user(user: int, words: Sequence[str]) -> list[str]:
    """A command of another user without privileges, who can enter the folder of this interpreter whoever owns it."""
    nothing = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    changed = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *nothing, *words]
    base = Path(sys.base_prefix)
    shut = [one for one in (*reversed(base.parents), base) if not one.stat().st_mode & stat.S_IXOTH]
    if not shut:
        return changed
    steps = (
        'mount --make-rprivate / && mount --bind "$1" "$3" && mount -t tmpfs -o mode=755 tmpfs "$2" && '
        'mkdir -p "$1" && mount --bind "$3" "$1" && shift 3 && exec "$@"'
    )
    spare = tempfile.mkdtemp()
    return ["unshare", "--mount", "sh", "-c", steps, "sh", str(base), str(shut[0]), spare, *changed]


def run_as(user: int, place: Path, *words: str) -> subprocess.Popen[str]:
    """Run this module as another user."""
    paths = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": paths, "HOME": str(place), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    command = as_user(user, [sys.executable, "-W", "ignore", "-m", "bench.performance.two_users", *words])
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=place, **pipes)  # noqa: S603 - this module


def said(process: subprocess.Popen[str]) -> Any:
    """The next line that a process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("another user's process has ended without an answer; its error is above.")
    return json.loads(line)


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End it afterwards."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


# -- what they do


def fitted(X: pd.DataFrame, y: pd.Series, repeats: int, **given: Any) -> dict[str, Any]:
    """The shortest time of some fits, by the clock and of the processor, and a digest of the first."""
    from justitia import LagrangianDualClassifier  # noqa: PLC0415 - only whom it concerns

    times, busy, digest, settings = [], [], "", {"noise_seed": given.pop("noise_seed", None)}
    for _ in range(repeats):
        model = LagrangianDualClassifier(epsilon=2.0, groups=GROUPS, random_state=0, **settings)
        begun, worked = time.monotonic(), time.process_time()
        model.fit(X, y, **given)
        times.append(time.monotonic() - begun)
        busy.append(time.process_time() - worked)
        digest = digest or hashlib.sha256(model.decision_function(X).tobytes()).hexdigest()
    model.save("model")
    return {"seconds": min(times), "processor": min(busy), "digest": digest}


def command(*words: str) -> None:
    """One of the custodian's."""
    from click.testing import CliRunner  # noqa: PLC0415

    from justitia.cli import cli  # noqa: PLC0415

    found = CliRunner().invoke(cli, ["custodian", *words])
    if found.exit_code:
        raise RuntimeError(found.output)


def hold(holder: str, repeats: str) -> None:
    """The custodian's user: fit in memory, register, serve; the attribute is in a file of its own."""
    from justitia import DurableLedger  # noqa: PLC0415
    from justitia.custodian.populations import ledger_file  # noqa: PLC0415
    from justitia.custodian.server import serve  # noqa: PLC0415
    from justitia.custodian.settings import ServiceSettings  # noqa: PLC0415
    from justitia.privacy.mechanisms import SeededNoise  # noqa: PLC0415

    folder, settings = Path(holder), Path("custodian.toml").read_text(encoding="utf-8")
    command("init", holder, "--client", "trainer", "--key-file", "trainer.key", "--population", "people")
    people = ["--population", "people", "--id", "id", "--sensitive", SENSITIVE, "--groups", ",".join(GROUPS)]
    command("register", holder, "attribute.csv", *people, "--epsilon", str(EPSILON))
    (folder / "custodian.toml").write_text(settings, encoding="utf-8")
    table, told = pd.read_parquet("features.parquet"), pd.read_csv("attribute.csv")
    copied = shutil.copy(ledger_file(folder, "people"), "copy.ledger")
    ledger = DurableLedger(Path(copied), dataset="people", epsilon=EPSILON, delta=1e-5)
    given = {"sensitive_features": told[[SENSITIVE]], "ledger": ledger, "noise_seed": SEED}
    print(json.dumps(fitted(table.drop(columns=["id", "y"]), table["y"], int(repeats), **given)), flush=True)
    serve(folder, ServiceSettings.read(folder), SeededNoise(SEED))


def train(url: str, holder: str, repeats: str) -> None:
    """The trainer's user."""
    from justitia.custodian import Custodian  # noqa: PLC0415

    table = pd.read_parquet("features.parquet")
    held = Custodian(url, population="people", ids=table["id"], key_file="trainer.key", ca_file="server.pem")
    found = fitted(table.drop(columns=["id", "y"]), table["y"], int(repeats), sensitive_features=held)
    opened = [str(path) for path in (Path(holder), *secret_files(Path(holder))) if os.access(path, os.R_OK)]
    print(json.dumps(found | {"opened": opened}), flush=True)
    input()  # root looks at this process


def secret_files(holder: Path) -> list[Path]:
    """Where the custodian's user has the attribute."""
    names = ("holder/populations/people.attribute", "holder/custodian.sqlite", "attribute.csv", "server.key")
    return [holder / name for name in names]


# -- what is looked for


def patterns(table: pd.DataFrame, told: pd.Series, mark: str) -> dict[str, list[bytes]]:
    """What must not be in the trainer's memory: entries, ids beside groups, and stretches of everybody's codes."""
    codes = told.map({name: k for k, name in enumerate(GROUPS)}).fillna(len(GROUPS)).astype(int).to_numpy()
    kinds = ("i1", "<i2", "<i4", "<i8", "<f4", "<f8")
    middle = slice(len(codes) // 2, len(codes) // 2 + 200)
    stretches = [one[middle].astype(kind).tobytes() for one in (codes, codes == 0) for kind in kinds]
    beside = [f"{table['id'][row]},{told[row]}\n".encode() for row in range(100, 105)]
    return {"entries": [mark.encode(), mark.encode("utf-16-le")], "codes": stretches, "ids with groups": beside}


def found_in(content: Iterator[bytes], wanted: dict[str, list[bytes]]) -> list[str]:
    """Which kinds are in it."""
    left = dict(wanted)
    for part in content:
        left = {name: some for name, some in left.items() if not any(one in part for one in some)}
    return sorted(set(wanted) - set(left))


def memory_of(process: int) -> Iterator[bytes]:
    """Everything that a process has written to, a piece at a time; long runs of zeros are left out."""
    maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines()
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            ends, rights = line.split()[:2]
            low, high = (int(one, 16) for one in ends.split("-"))
            if not rights.startswith("rw") or high >= 1 << 47:
                continue
            before = b""
            for start in range(low, high, PIECE):
                memory.seek(start)
                try:
                    blocks = np.frombuffer(memory.read(min(PIECE, high - start)), dtype=np.uint8).reshape(-1, 64)
                except OSError:
                    break
                near = maximum_filter1d(blocks.any(1).astype(np.uint8), 33) > 0
                piece = before + blocks[near].tobytes()
                before = piece[-4096:]  # what is looked for may cross the border
                yield piece


def processor_seconds(process: int) -> float:
    """What a process has used so far."""
    user, system = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def files_of(place: Path) -> Iterator[bytes]:
    """All files below a folder."""
    yield from (path.read_bytes() for path in place.rglob("*") if path.is_file())


# -- all of it


def people_of(*, income: bool) -> tuple[pd.DataFrame, pd.Series]:
    """Features with id and label, and groups."""
    from justitia.datasets import load, make_synthetic  # noqa: PLC0415

    data = load("income") if income else make_synthetic(600, groups=GROUPS, n_features=3, random_state=1)
    ids = [f"p{k}" for k in range(len(data.y))]
    table = pd.DataFrame(data.X).reset_index(drop=True).assign(id=ids, y=np.asarray(data.y))
    names = dict(zip(sorted(set(data.sensitive)), GROUPS, strict=True))
    return table, pd.Series(data.sensitive).reset_index(drop=True).map(names)


def prepared(place: Path, port: int, table: pd.DataFrame, told: pd.Series) -> tuple[Path, Path]:
    """A folder for each user, with what is theirs and nothing else."""
    place.chmod(0o755)
    holder, trainer = place / "custodian", place / "trainer"
    for folder in (holder, trainer):
        folder.mkdir(mode=0o700)
        table.to_parquet(folder / "features.parquet", index=False)
    pd.DataFrame({"id": table["id"], SENSITIVE: told}).to_csv(holder / "attribute.csv", index=False)
    pem, key = holder / "server.pem", holder / "server.key"
    named = ["-subj", "/CN=custodian", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *named]
    subprocess.run([*made, "-days", "1"], check=True, capture_output=True)  # noqa: S603 - fixed words
    lines = [f"port = {port}", "page_port = 0", f'tls_certificate = "{pem}"', f'tls_key = "{key}"']
    (holder / "custodian.toml").write_text("\n".join(lines), encoding="utf-8")
    shutil.copy(pem, trainer)
    for folder, user in ((holder, HOLDER), (trainer, TRAINER)):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
            path.chmod(0o700 if path.is_dir() else 0o600)
    return holder, trainer


def trial(place: Path, *, income: bool = False, repeats: int = 1) -> dict[str, Any]:
    """What was seen."""
    table, groups = people_of(income=income)
    mark = f"told {secrets.token_hex(12)}"
    told = groups.mask(np.arange(len(groups)) % 50 == 3, mark)  # an entry that is in no list: "not given"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    holder, trainer = prepared(place, port, table, told)
    wanted = patterns(table, told, mark)
    with ending(run_as(HOLDER, holder, "hold", "holder", str(repeats))) as service:
        first = said(service)
        key = shutil.copy(holder / "trainer.key", trainer)
        os.chown(key, TRAINER, TRAINER)
        url = f"https://127.0.0.1:{port}"
        with ending(run_as(TRAINER, trainer, "train", url, str(holder), str(repeats))) as asking:
            before = processor_seconds(service.pid)
            second = said(asking)
            served = (processor_seconds(service.pid) - before) / repeats
            worked = second["processor"] + served
            return {
                "people": len(table),
                "same_bits": first["digest"] == second["digest"],
                "seconds_in_memory": round(first["seconds"], 2),
                "seconds_with_a_custodian": round(second["seconds"], 2),
                "times_as_long": round(second["seconds"] / first["seconds"], 2),
                "processor_seconds_in_memory": round(first["processor"], 2),
                "processor_seconds_of_trainer_and_custodian": (round(second["processor"], 2), round(served, 2)),
                "times_as_much_of_the_processor": round(worked / first["processor"], 2),
                "files_of_the_custodian_that_the_trainer_can_open": second["opened"],
                "in_the_trainers_memory": found_in(memory_of(asking.pid), wanted),
                "in_the_trainers_files": found_in(files_of(trainer), wanted),
                "in_the_custodians_memory": found_in(memory_of(service.pid), wanted),
            }


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in {"hold", "train"}:
        warnings.simplefilter("ignore")
        {"hold": hold, "train": train}[words[0]](*words[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--income", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = trial(Path(place), income=chosen.income, repeats=chosen.repeats)
    found["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found, indent=2))
    if chosen.income:
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(kept | {"two_users": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
