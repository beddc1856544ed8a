"""Fits in memory, now and at an earlier commit: ``python -m bench.performance.before [--commit 65ebe9e] [--until X]``.

Seconds of processors of one fit, in processes of their own that take turns; the ratio is that of the least of all
turns, which a busy machine moves least. The commit is the one before sums of a vault became whole numbers of steps.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from pathlib import Path

from bench.performance.ratios import Ratio, report, table

COMMIT, ROWS, TURNS = "65ebe9e", 20_000, 5
ENGINES = ("plugin", "moments")


def one_fit(engine: str) -> float:
    """Processor seconds of a fit of whatever version is imported."""
    from justitia import LagrangianDualClassifier  # noqa: PLC0415
    from justitia.datasets import make_synthetic  # noqa: PLC0415

    warnings.simplefilter("ignore")
    data = make_synthetic(ROWS, n_features=20, random_state=0)
    model = LagrangianDualClassifier(groups=data.groups, engine=engine, random_state=0, progress=False)
    begun = time.process_time()
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    return time.process_time() - begun


def seconds(source: Path, engine: str) -> float:
    """The same, of a version in a process of its own."""
    here = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(source), str(here)])
    command = [sys.executable, "-m", "bench.performance.before", "--engine", engine]
    done = subprocess.run(  # noqa: S603 - our own module
        command,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout)


def extracted(commit: str, place: Path) -> Path:
    """The package as it was."""
    archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True)  # noqa: S603, S607
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(place / commit, filter="data")
    return place / commit / "src"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.before", description=__doc__)
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--until", help="another commit instead of what is here")
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--output", type=Path, default=Path("results/before.json"))
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.engine is not None:
        print(one_fit(options.engine))
        return 0
    found: dict[str, dict[str, list[float]]] = {engine: {"before": [], "now": []} for engine in options.engines}
    with tempfile.TemporaryDirectory() as place:
        later = Path("src").resolve() if options.until is None else extracted(options.until, Path(place))
        sources = {"before": extracted(options.commit, Path(place)), "now": later}
        for _ in range(options.turns):
            for engine, taken in found.items():
                for name, source in sources.items():
                    taken[name].append(round(seconds(source, engine), 3))
    ratios = [
        Ratio(
            f"fit in memory, {engine}, {options.until or 'now'} / {options.commit}",
            min(t["now"]) / min(t["before"]),
            "<=",
            1.05,
            options.turns,
        )
        for engine, t in found.items()
    ]
    print(table(ratios))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    facts = json.loads(report(ratios, quick=False)) | {"rows": ROWS, "processor_seconds": found}
    options.output.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(one.passed for one in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
