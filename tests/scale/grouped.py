"""Fits in several processes, for ``test_ranks.py``: ``python grouped.py SCENARIO FOLDER`` prints what came of them.

Processes are forked here, where nothing else runs, and are connected by pipes.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from justitia.networks.moments.shard import NetworkShard
from justitia.postprocessing.shard import ScoredShard
from justitia.scale import data as scale_data
from justitia.training.ranks import ManyRanks, working_as
from people_files import FEATURES, FEW, digest, files, integers, model, people, write, write_parts
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from justitia import PostProcessingPlan
from justitia.preprocessing import public_sample
from justitia.privacy.vault import SensitiveVault

WORK = multiprocessing.get_context("fork")
Rank = Callable[[int], Any]


def in_group(size: int, rank_work: Rank, *, wait: float = 300.0) -> list[Any]:
    """What each rank's work returned, or its error; None for a rank that was killed."""
    results = WORK.Manager().dict()
    pairs = [WORK.Pipe() for _ in range(1, size)]
    ends = {(0, place): near for place, (near, _) in enumerate(pairs, 1)}
    ends |= {(place, 0): far for place, (_, far) in enumerate(pairs, 1)}

    def run(rank: int) -> None:
        for (owner, _), end in ends.items():  # a forked process has the ends of all others, too
            if owner != rank:
                end.close()
        pipes = [end for (owner, _), end in ends.items() if owner == rank]
        try:
            with working_as(ManyRanks(rank, size, pipes)):
                results[rank] = rank_work(rank)
        except Exception as error:  # noqa: BLE001 - shown by the test
            results[rank] = f"{type(error).__name__}: {error}"

    processes = [WORK.Process(target=run, args=(rank,)) for rank in range(size)]
    for one in processes:
        one.start()
    for end in ends.values():  # or the end of a process that is gone would stay open here
        end.close()
    for one in processes:
        one.join(wait)
        if one.is_alive():
            one.kill()
            one.join()
    return [results.get(rank) for rank in range(size)]


def bits(folder: Path) -> Any:
    """Digests of the same fit, and of its exact sums: in one process and in several, with shards of all kinds.

    By engine and notion; with a sample that has everybody, in memory as well.
    """
    table = people()
    whole = write(table, folder / "whole.parquet")
    splits = {2: write_parts(table, folder / "even", [600]), 4: write_parts(table, folder / "odd", [7, 7, 900])}
    found: dict[str, list[Any]] = {}
    for engine, notion, weight, sample, sizes in CASES:
        public_sample.SAMPLE = sample

        def fit(where: Any, rank: int = 0, case: Any = (engine, notion, weight)) -> list[str]:
            engine, notion, weight = case
            given: dict[str, Any] = {"sensitive_features": "sex", "sample_weight": weight}
            X, y = where, "label"
            if where is None:
                X, y = table[list(FEATURES)], table["label"]
                given = {name: None if column is None else table[column] for name, column in given.items()}
            with integers() as sums:
                made = model(notion, engine).fit(X, y, **given)
            return [digest(made, table), "" if rank else hashlib.sha256(b"".join(sums)).hexdigest()]

        alone = [fit(files(whole)), fit(files(folder / "odd")), *([fit(None)] if sample > len(table) else [])]
        for size in sizes:
            alone += in_group(size, lambda rank, paths=splits[size], fit=fit: fit(files(paths[rank], own=True), rank))
        found[f"{engine}, {notion}, {sample}"] = alone
    return found


#: Engine, notion, weights, rows of the sample, processes.
CASES = (
    ("post-processing", "equalized_odds", "weight", FEW, (2, 4)),
    ("post-processing", "demographic_parity", None, FEW, (2,)),
    ("post-processing", "accuracy_parity", None, 2000, (2,)),
    ("moments", "demographic_parity", "weight", FEW, (2, 4)),
    ("moments", "equalized_odds", None, FEW, (2,)),
    ("moments", "accuracy_parity", None, FEW, (2,)),
    ("moments", "equalized_odds", "weight", 2000, (4,)),
    ("moments", "accuracy_parity", None, 2000, (2,)),
)


def shared(folder: Path) -> Any:
    """Two ranks that see the same files divide their blocks; persons are counted over all of them."""
    table = people(40_000)
    whole = files(write(table, folder / "whole.parquet", row_group_size=9_000))
    made = model("demographic_parity", plan=PostProcessingPlan(checks=1))

    def fit(rank: int = 0) -> str:
        return digest(made.fit(whole, "label", sensitive_features="sex", person="who"), table[:500])

    return [fit(), *in_group(2, fit)]


def killed(folder: Path) -> Any:
    """A rank dies at a pass; the run is started again in its folder. Debits, and what each attempt came to."""
    paths = write_parts(people(), folder / "parts", [500])
    found = []
    deaths = (
        ("post-processing", "moment_rows", 1),
        ("post-processing", "decision_rows", 2),
        ("moments", "decision_rows", 2),
    )
    for attempt, (engine, name, count) in enumerate(deaths):
        place = folder / f"run{attempt}"

        def fit(rank: int, place: Path = place, engine: str = engine) -> Any:
            made = model(engine=engine, noise_seed=None)
            made.fit(
                files(paths[rank], own=True), "label", sensitive_features="sex", checkpoint=place if rank == 0 else None
            )
            return made.certificate_.epsilon

        def dying(rank: int, fit: Rank = fit, kind: Any = SHARDS[engine], name: str = name, count: int = count) -> Any:
            if rank == 1:
                die_at(kind, name, count)
            return fit(rank)

        first = in_group(2, dying)
        debits = debits_in(place)
        second = in_group(2, fit)
        after = debits_in(place)
        found.append({"at": name, "first": first, "debits": debits, "second": second, "after": after})
    return found


class Killed(BaseException):
    """Stands for a process that dies."""


def resumed(folder: Path) -> Any:
    """A rank dies between two answers, or while one is on its way; the same losses in one process."""
    table = people()
    paths, whole = write_parts(table, folder / "parts", [500]), write(table, folder / "whole.parquet")

    def fit(where: Any, place: Path | None) -> str:
        return digest(model().fit(where, "label", sensitive_features="sex", checkpoint=place), table)

    def alone(place: Path, lost: int | None) -> str:
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
                fit(files(whole), place)
        finally:
            SensitiveVault.group_sums = sound  # type: ignore[method-assign]
        return fit(files(whole), place)

    found = []
    for name, count, lost in (("judge", 3, None), ("decision_rows", 1, 1)):
        place = folder / name

        def work(rank: int, place: Path = place) -> str:
            return fit(files(paths[rank], own=True), place)

        def dying(rank: int, work: Rank = work, name: str = name, count: int = count) -> Any:
            if rank == 1:
                die_at(ScoredShard, name, count)
            return work(rank)

        first, debits = in_group(2, dying), debits_in(place)
        second, after = in_group(2, work), debits_in(place)
        found.append({"first": first, "debits": debits, "second": second, "after": after})
        found[-1]["alone"] = alone(folder / f"alone-{name}", lost)
    return found


SHARDS: dict[str, Any] = {"post-processing": ScoredShard, "moments": NetworkShard}


def bases(folder: Path) -> Any:
    """A user's base that every process fits for itself, a function, and a base that learns something else each time."""
    table = people()
    paths = write_parts(table, folder / "parts", [500])

    def fit(where: Any, base: Any) -> str:
        return digest(model(base=base).fit(where, "label", sensitive_features="sex"), table)

    numbers = make_column_transformer(("passthrough", ["a", "b"]))
    chosen: dict[str, Any] = {
        "tree": make_pipeline(numbers, DecisionTreeClassifier(max_depth=3)),
        "regression": make_pipeline(numbers, LogisticRegression()),
        "function": lambda rows: 1 / (1 + np.exp(-rows["a"].to_numpy())),
    }
    found: dict[str, Any] = {}
    for name, base in chosen.items():
        both = in_group(2, lambda rank, base=base: fit(files(paths[rank], own=True), base))
        found[name] = [fit(files(folder / "parts"), base), *both]
    found["differs"] = in_group(
        2,
        lambda rank: fit(
            files(paths[rank], own=True), make_pipeline(numbers, DecisionTreeClassifier(max_depth=3 + rank))
        ),
    )
    return found


def modules(folder: Path) -> Any:
    """Networks of one's own, a network where no privacy is asked for, and one that differs between processes."""
    table = people()
    paths = write_parts(table, folder / "parts", [500])
    own = nn.Sequential(nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 1))

    def fit(where: Any, **changes: Any) -> str:
        made = model(engine="moments", **changes)
        return digest(made.fit(where, "label", sensitive_features="sex"), table)

    chosen: dict[str, Any] = {
        "a module": {"module": own},
        "a function": {"module": lambda inputs: nn.Sequential(nn.Linear(inputs, 1))},
        "widths": {"module": [5]},
        "no privacy": {"epsilon": float("inf")},
    }
    found: dict[str, Any] = {}
    for name, changes in chosen.items():
        alone = fit(files(folder / "parts"), **changes)
        found[name] = [
            alone,
            *in_group(2, lambda rank, changes=changes: fit(files(paths[rank], own=True), **changes)),
        ]
    wider = [own, nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, 1))]
    found["differs"] = in_group(2, lambda rank: fit(files(paths[rank], own=True), module=wider[rank]))
    return found


def die_at(kind: Any, name: str, count: int) -> None:
    """Kill this process, hard, at the so-manieth call of a pass."""
    method, calls = getattr(kind, name), [0]

    def counted(self: Any, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args)

    setattr(kind, name, counted)


def faults(folder: Path) -> Any:
    """What ranks say of a shard, settings or a version that differs, and of a full disk."""
    table = people()
    good = write_parts(table, folder / "good", [500])
    without = write(table[:500].drop(columns="b"), folder / "without.parquet")
    typed = write(table[:500].assign(b="text"), folder / "typed.parquet")
    unlabelled = write(table[:500].assign(label=None), folder / "unlabelled.parquet")
    found: dict[str, Any] = {}

    def fit(path: Any, place: Path, **changes: Any) -> Any:
        made = model(noise_seed=None, **changes)
        made.fit(files(path, own=True), "label", sensitive_features="sex", checkpoint=place)
        return "fitted"

    for name, other in (("column", without), ("type", typed), ("label", unlabelled)):
        found[name] = in_group(2, lambda rank, other=other: fit([good[0], other][rank], folder / f"checkpoint{rank}"))
    found["settings"] = in_group(2, lambda rank: fit(good[rank], folder / f"checkpoint{rank}", epsilon=1.0 + rank))

    def versions(rank: int) -> Any:
        scale_data.version = lambda _: f"0.{rank}"  # type: ignore[assignment]
        return fit(good[rank], folder / f"checkpoint{rank}")

    found["version"] = in_group(2, versions)

    def unreadable(rank: int) -> Any:
        if rank:
            full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
            tempfile.TemporaryFile = lambda **_: full  # type: ignore[assignment,misc]
        return fit(good[rank], folder / f"checkpoint{rank}")

    found["disk"] = in_group(2, unreadable)
    found["spent"] = [str(one) for one in folder.glob("checkpoint*/ledger.jsonl")]
    return found


def shards(folder: Path) -> Any:
    """Files that cannot be read or differ, and a checkpoint that is elsewhere: what ranks say, and debits so far."""
    table = people()
    paths = write_parts(table, folder / "parts", [500])
    garbage = folder / "garbage.parquet"
    garbage.write_bytes(b"PAR1 but not really")
    copies = [
        files(write(one, folder / f"copy{k}" / "all.parquet"))
        for k, one in enumerate((table, table.assign(town="north")))
    ]
    found: dict[str, Any] = {}

    def fit(where: Any, place: Path) -> Any:
        made = model(noise_seed=None).fit(where, "label", sensitive_features="sex", checkpoint=place)
        return made.certificate_.epsilon

    def told(name: str, work: Rank, place: Path = folder / "run") -> None:
        found[name] = {"said": in_group(2, work), "debits": debits_in(place)}

    own = [files(path, own=True) for path in paths]
    told("unreadable", lambda rank: fit(files(garbage, own=True) if rank else own[0], folder / "run"))
    told("copy", lambda rank: fit(copies[rank], folder / "run"))

    def spoiled(rank: int) -> Any:
        method = ScoredShard.decision_rows

        def spoiling(self: ScoredShard, message: Any) -> Any:
            paths[1].rename(folder / "kept")
            garbage.rename(paths[1])
            return method(self, message)

        if rank:
            ScoredShard.decision_rows = spoiling  # type: ignore[method-assign]
        return fit(own[rank], folder / "run")

    told("spoiled", spoiled)
    (folder / "kept").rename(paths[1])
    apart = [folder / "empty", folder / "run"]
    told("elsewhere", lambda rank: fit(own[rank], apart[rank]), folder / "empty")
    told("mended", lambda rank: fit(own[rank], folder / "run"))
    return found


def debits_in(place: Path) -> int:
    journal = place / "ledger.jsonl"
    return len(journal.read_text().splitlines()) if journal.exists() else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # few people, large noise
    torch.set_num_threads(1)
    public_sample.SAMPLE = FEW
    scenarios = {"bits": bits, "shared": shared, "killed": killed, "faults": faults, "shards": shards}
    scenarios |= {"modules": modules, "bases": bases, "resumed": resumed}
    print(json.dumps(scenarios[sys.argv[1]](Path(sys.argv[2]))))
