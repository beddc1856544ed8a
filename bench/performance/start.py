"""Processor time of a start: ``python -m bench.performance.start [--quick] [--output FILE]``.

Each ratio is processor time over that of a bare interpreter or, where scikit-learn, pandas and LightGBM are needed
anyway, over that of importing these. Both start in turn as processes of their own, and the median of the quotients
counts, so that neither a busy machine nor a cold disk decides it. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.performance.ratios import Ratio, report, table
from justitia.cli.app import COMMANDS

BARE = "python -c pass"
LIBRARIES = "import of its libraries"
REFERENCES = {BARE: ("-c", "pass"), LIBRARIES: ("-c", "import lightgbm, pandas, sklearn.base")}
#: What is started, what it is compared with, and the largest ratio.
STARTS = {
    "import justitia": (("-c", "import justitia"), BARE, 3.0),
    "justitia --help": (("-m", "justitia", "--help"), BARE, 10.0),
    "LagrangianDualClassifier": (("-c", "from justitia import LagrangianDualClassifier"), LIBRARIES, 1.5),
}
#: Largest ratio of any command's help to the import of the libraries.
HELP_TARGET = 1.5


def processor_seconds(words: tuple[str, ...]) -> float:
    """Of one new interpreter, until it has ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def start_ratio(name: str, words: tuple[str, ...], reference: str, target: float, turns: int) -> Ratio:
    """Median of the quotients; the first turn fills the disk's cache and does not count."""
    quotients = [processor_seconds(words) / processor_seconds(REFERENCES[reference]) for _ in range(turns + 1)]
    return Ratio(f"{name} / {reference}", statistics.median(quotients[1:]), "<=", target, turns)


def slowest_help(turns: int) -> Ratio:
    """The help of every command in turn; the slowest counts."""
    found = [start_ratio(name, ("-m", "justitia", name, "--help"), LIBRARIES, HELP_TARGET, turns) for name in COMMANDS]
    name = f"justitia COMMAND --help, the slowest of {len(found)} / {LIBRARIES}"
    return replace(max(found, key=lambda one: one.value), name=name)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.start", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--output", type=Path, default=Path("results/start.json"))
    options = parser.parse_args(arguments)
    turns = 3 if options.quick else 15
    ratios = [start_ratio(name, *how, turns) for name, how in STARTS.items()]
    ratios.append(slowest_help(min(turns, 3)))
    print(table(ratios))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report(ratios, quick=options.quick))
    return 0 if all(r.passed for r in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
