"""A fit on Parquet files, by number of rows and of processes: ``python -m bench.performance.scale [--rows 1 4 16]``.

Made-up rows with 50 features and three groups, in files of a million rows. Each fit runs in a process of its own, which
starts the workers; peak memory is that of the largest process, processor seconds are those of all. A busy machine makes
all slower, processor seconds least, so its load is kept beside the numbers. Beside them stands what nobody can do
without: one plain model of LightGBM, fitted on the public sample, that predicts all rows. Sizes that are not asked for
keep the numbers that the file of results has.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from bench.performance.people import made_up
from bench.performance.ratios import Ratio, report, table
from justitia import LagrangianDualClassifier, PostProcessingPlan

MILLION = 1_000_000
#: Millions of rows, and from how many on two processes are tried, too: of fewer, the start of a process, which is part
#: of its first pass, would be much of what is measured.
ROWS, SHARED = (1.0, 4.0, 16.0), 4.0
GROUP_ROWS = 131_072
MOST_BYTES = 1.2 * 2**30
#: Targets: microseconds of a processor per row in passes, processor seconds of a fit of 16 million rows.
MOST_MICROSECONDS, MOST_SECONDS = 26.0, 450.0


def write(folder: Path, rows: int) -> None:
    """Files of at most a million rows; the same million again and again, which no pass can notice."""
    X, y, groups = made_up(min(rows, MILLION))
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    people = pa.table(columns | {"y": y, "group": groups})
    parquet.write_table(people, folder / "000.parquet", row_group_size=GROUP_ROWS)
    for k in range(1, rows // MILLION):
        (folder / f"{k:03}.parquet").hardlink_to(folder / "000.parquet")
    if rows > MILLION and rows % MILLION:
        parquet.write_table(people.slice(0, rows % MILLION), folder / "rest.parquet", row_group_size=GROUP_ROWS)


def one_forecast(folder: Path) -> dict[str, float]:
    """Seconds of a processor that a fit will take, and that saying so takes."""
    from justitia.postprocessing.forecast import forecast  # noqa: PLC0415
    from justitia.rows.parquet import RowFiles  # noqa: PLC0415 - the command itself starts quickly

    begun = time.process_time()
    files = RowFiles.open(folder)
    features = tuple(name for name in files.names if name.startswith("x"))
    found = forecast(files, "y", features, PostProcessingPlan())
    took = time.process_time() - begun
    return {
        "forecast": found.seconds,
        "forecast_takes": took,
        "forecast_bytes": found.memory,
        "disk_bytes": found.disk,
    }


def one_plain(folder: Path) -> dict[str, float]:
    """Processor seconds of one plain LightGBM on the public sample, and of its prediction of all rows."""
    import numpy as np  # noqa: PLC0415 - the command itself starts quickly
    from lightgbm import LGBMClassifier  # noqa: PLC0415

    from justitia.rows.files import stride  # noqa: PLC0415
    from justitia.rows.parquet import RowFiles  # noqa: PLC0415

    begun = time.process_time()
    files = RowFiles.open(folder)
    every, names = stride(len(files)), [name for name in files.names if name.startswith("x")]
    X, y = [], []
    for first, rows in files.blocks([*names, "y"]):
        some = rows.take(np.arange(-first % every, len(rows), every))
        X.append(np.column_stack([some.column(name).to_numpy() for name in names]))
        y.append(some.column("y").to_numpy())
    model = LGBMClassifier(n_jobs=1, verbosity=-1).fit(np.concatenate(X), np.concatenate(y))
    learned = time.process_time() - begun
    for _, rows in files.blocks(names):
        model.booster_.predict(np.column_stack([rows.column(name).to_numpy() for name in names]), num_threads=1)
    return {"plain_fit": learned, "plain_predict": time.process_time() - begun - learned}


def one_fit(folder: Path, workers: int) -> dict[str, float]:
    """Seconds, seconds in passes, processor seconds and peak memory of a fit with so many workers."""
    from justitia.rows.files import FileRows  # noqa: PLC0415
    from justitia.rows.parquet import RowFiles  # noqa: PLC0415

    warnings.simplefilter("ignore")
    in_passes, used, each = 0.0, 0.0, FileRows._each

    def timed(self: FileRows, *arguments: Any, **options: Any) -> list[Any]:
        nonlocal in_passes, used
        start, processor = time.perf_counter(), time.process_time()
        found = each(self, *arguments, **options)
        in_passes += time.perf_counter() - start
        used += time.process_time() - processor
        return found

    FileRows._each = timed  # type: ignore[method-assign]
    model = LagrangianDualClassifier("equalized_odds", groups=(0, 1, 2), random_state=0, progress=False)
    begun = time.perf_counter()
    model.fit(RowFiles.open(folder, workers=workers), "y", sensitive_features="group")
    seconds = time.perf_counter() - begun
    # A fit ends its workers and waits for them, so they are among the children that are counted.
    driver, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "seconds": seconds,
        "pass_seconds": in_passes,
        "pass_processor_seconds": used + children.ru_utime + children.ru_stime,  # workers do nothing but passes
        "processor_seconds": sum(one.ru_utime + one.ru_stime for one in (driver, children)),
        "peak_bytes": max(driver.ru_maxrss, children.ru_maxrss) * 1024,
    }


def fit(folder: Path, workers: int) -> dict[str, Any]:
    """One fit with so many workers, in a process of its own."""
    load = os.getloadavg()[0]
    found = _apart(one_fit, folder, workers)
    return {"workers": workers} | found | {"load": [round(load, 1), round(os.getloadavg()[0], 1)]}


def _apart(work: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """What a process of its own finds."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read when it starts
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    process = context.Process(target=_put, args=(found, work, arguments))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("expected the process to finish, got one that failed; it has said why.")
    return found.get()  # type: ignore[no-any-return]


def _put(found: Any, work: Callable[..., dict[str, float]], arguments: tuple[Any, ...]) -> None:
    found.put(work(*arguments))


def measured(rows: int, workers: tuple[int, ...]) -> list[dict[str, Any]]:
    """Fits of so many rows, in one process and in several."""
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), rows)
        forecast = _apart(one_forecast, Path(place)) | _apart(one_plain, Path(place))
        found = [{"rows": rows} | fit(Path(place), number) | forecast for number in workers]
    for one in found:
        print(
            f"{rows:,} rows, {one['workers']} workers: {one['seconds']:.0f} s ({one['pass_seconds']:.0f} s in passes), "
            f"{1e6 * one['pass_processor_seconds'] / rows:.1f} microseconds of processors per row in passes, "
            f"{one['processor_seconds']:.0f} s of processors (forecast {one['forecast']:.0f}), peak "
            f"{one['peak_bytes'] / 2**20:.0f} MB, load {one['load']}",
            flush=True,
        )
    return found


def ratios_of(found: list[dict[str, Any]]) -> list[Ratio]:
    """Memory that stays, time that is linear, a forecast that holds, and what several processes cost and save."""
    alone = [one for one in found if one["workers"] == 1]
    few, many = alone[0], alone[-1]
    name = f"{many['rows']:,} rows / {few['rows']:,} rows"
    linear = many["processor_seconds"] / few["processor_seconds"]
    exponent = math.log(linear) / math.log(many["rows"] / few["rows"]) if many is not few else 1.0
    each = max(1e6 * one["pass_processor_seconds"] / one["rows"] for one in alone)
    off = many["processor_seconds"] / many["forecast"]
    room = many["peak_bytes"] / many["forecast_bytes"]
    plain = many["processor_seconds"] / (many["plain_fit"] + many["plain_predict"])
    ratios = [
        Ratio(f"peak memory, {name}", many["peak_bytes"] / few["peak_bytes"], "<=", 1.2, 1),
        Ratio("peak memory / 1.2 GB", max(one["peak_bytes"] for one in alone) / MOST_BYTES, "<=", 1.0, 1),
        Ratio("processor microseconds per row in passes, one process", each, "<=", MOST_MICROSECONDS, 1),
        Ratio(f"exponent of processor time, {name}", exponent, "<=", 1.0, 1),
        Ratio(f"processor time / forecast, {many['rows']:,} rows", max(off, 1 / off), "<=", 1.3, 1),
        Ratio(f"peak memory / forecast, {many['rows']:,} rows", max(room, 1 / room), "<=", 1.3, 1),
        Ratio(f"processor time / one plain fit and prediction, {many['rows']:,} rows", plain, "<=", 5.0, 1),
    ]
    if many["rows"] == 16 * MILLION:
        ratios.append(Ratio("processor seconds, 16,000,000 rows", many["processor_seconds"], "<=", MOST_SECONDS, 1))
    shared = [one for one in found if one["workers"] > 1]
    for one in shared:
        same = next(other for other in alone if other["rows"] == one["rows"])
        label = f"{one['workers']} processes / one, {one['rows']:,} rows"
        used, faster = one["processor_seconds"] / same["processor_seconds"], same["pass_seconds"] / one["pass_seconds"]
        ratios.append(Ratio(f"processor time, {label}", used, "<=", 1.15, 1))
        ratios.append(Ratio(f"speed of passes, {label}", faster, ">=", 1.7, 1))
    return ratios


def kept(output: Path, rows: set[int]) -> list[dict[str, Any]]:
    """Fits of other sizes that the file of results has."""
    found = json.loads(output.read_text())["fits"] if output.exists() else []
    return [one for one in found if one["rows"] not in rows and "plain_fit" in one]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.scale", description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=ROWS, metavar="MILLIONS", help="1, 4 and 16 as it is")
    parser.add_argument("--workers", type=int, nargs="+", help="1 and, from 4 million rows on, 2 as it is")
    parser.add_argument("--output", type=Path, default=Path("results/scale.json"))
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for millions in options.rows:
        rows = int(millions * MILLION)
        new = measured(rows, tuple(options.workers or ((1, 2) if millions >= SHARED else (1,))))
        found = sorted([*kept(options.output, {rows}), *new], key=lambda one: (one["rows"], one["workers"]))
        ratios = ratios_of(found)
        facts = json.loads(report(ratios, quick=False)) | {"fits": found}
        options.output.write_text(json.dumps(facts, indent=2) + "\n")
    print(table(ratios))
    return 0 if all(one.passed for one in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
