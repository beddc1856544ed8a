"""A fit on Parquet files, by number of rows and of processes: ``python -m benchmarks.files [--quick]``.

Made-up people with 50 features and three groups, in files of a million rows. Each fit runs in a process of its own (or
in several, under torchrun's launcher); peak memory is that of the largest process. A busy machine moves all of it, so
its load is kept beside the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks.ratios import Ratio, report, table
from benchmarks.scale import made_up
from justitia import LagrangianDualClassifier

ROWS, QUICK_ROWS = (1_000_000, 4_000_000, 16_000_000), (250_000, 1_000_000)
FILE_ROWS, GROUP_ROWS = 1_000_000, 131_072
MOST_BYTES = 1.5 * 2**30


def write(folder: Path, rows: int) -> None:
    """Files of at most a million rows; the same million again and again, which no pass can notice."""
    X, y, groups = made_up(min(rows, FILE_ROWS))
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    people = pa.table(columns | {"y": y, "group": groups})
    for k in range(-(-rows // FILE_ROWS)):
        part = people.slice(0, min(FILE_ROWS, rows - k * FILE_ROWS))
        parquet.write_table(part, folder / f"{k:03}.parquet", row_group_size=GROUP_ROWS)


def one_fit(folder: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak memory of this process."""
    import torch  # noqa: PLC0415
    from torch import distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    model = LagrangianDualClassifier("equalized_odds", groups=(0, 1, 2), random_state=0, progress=False)
    begun = time.perf_counter()
    model.fit(str(folder), "y", sensitive_features="group")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }


def fit(folder: Path, workers: int) -> dict[str, Any]:
    """One fit in so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)] if workers > 1 else []
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, *launcher, "-m", "benchmarks.files", "--folder", str(folder), "--to", place]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})  # noqa: S603 - our own module
        found = [json.loads(one.read_text()) for one in Path(place).iterdir()]
    return {
        "workers": workers,
        "seconds": max(one["seconds"] for one in found),
        "processor_seconds": sum(one["processor_seconds"] for one in found),
        "peak_bytes": max(one["peak_bytes"] for one in found),
        "load": os.getloadavg()[0],
    }


def measured(rows: int, workers: tuple[int, ...]) -> list[dict[str, Any]]:
    """Fits of so many rows."""
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), rows)
        found = [{"rows": rows} | fit(Path(place), number) for number in workers]
    for one in found:
        print(
            f"{rows:,} rows, {one['workers']} workers: {one['seconds']:.0f} s, {one['processor_seconds']:.0f} s of "
            f"processors, peak {one['peak_bytes'] / 2**20:.0f} MB, load {one['load']:.1f}"
        )
    return found


def ratios_of(found: list[dict[str, Any]]) -> list[Ratio]:
    """Memory that stays, time that is linear, and what several processes cost and save."""
    alone = [one for one in found if one["workers"] == 1]
    few, many = alone[0], alone[-1]
    name = f"{many['rows']:,} rows / {few['rows']:,} rows"
    ratios = [
        Ratio(f"peak memory, {name}", many["peak_bytes"] / few["peak_bytes"], "<=", 1.2, 1),
        Ratio("peak memory / 1.5 GB", many["peak_bytes"] / MOST_BYTES, "<=", 1.0, 1),
        Ratio(f"time of a fit, {name}", many["seconds"] / few["seconds"], "<=", 1.1 * many["rows"] / few["rows"], 1),
    ]
    for one in found:
        if one["workers"] > 1:
            same = next(other for other in alone if other["rows"] == one["rows"])
            label = f"{one['workers']} processes / one, {one['rows']:,} rows"
            used, taken = (one[key] / same[key] for key in ("processor_seconds", "seconds"))
            ratios.append(Ratio(f"processor time, {label}", used, "<=", 1.15, 1))
            ratios.append(Ratio(f"time of the whole fit, {label}", taken, "<=", 1.0, 1))
    return ratios


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one process")
    parser.add_argument("--output", type=Path, default=Path("results/files.json"))
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.folder is not None:
        (options.to / f"{os.getpid()}.json").write_text(json.dumps(one_fit(options.folder)))
        return 0
    sizes = QUICK_ROWS if options.quick else ROWS
    several = () if options.quick else (2,)
    found = [one for rows in sizes for one in measured(rows, (1, *(several if rows == sizes[-1] else ())))]
    ratios = ratios_of(found)
    print(table(ratios))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    facts = json.loads(report(ratios, quick=options.quick)) | {"fits": found}
    options.output.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(one.passed for one in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
