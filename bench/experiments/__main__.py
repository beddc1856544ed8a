"""``python -m bench.experiments NAME``: make one table or figure of the evaluation, or redraw all from the results."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch

from bench.experiments.audit import AUDIT
from bench.experiments.bases import BASES, SYNTHETIC
from bench.experiments.census import CENSUS
from bench.experiments.choose import CHOOSE
from bench.experiments.clipping_figures import C_D, C_P
from bench.experiments.corners import CORNERS
from bench.experiments.coverage import COVERAGE
from bench.experiments.experiment import Experiment
from bench.experiments.folds import dataset
from bench.experiments.frontier import FRONTIER
from bench.experiments.holds import HOLDS
from bench.experiments.inside import INSIDE
from bench.experiments.last_step import LAST_STEP
from bench.experiments.layouts import LAYOUTS
from bench.experiments.measure import MEASURE, SIMULATED
from bench.experiments.methods import METHODS, estimated_seconds
from bench.experiments.missing import MISSING
from bench.experiments.monitor import MONITOR
from bench.experiments.number_places import DRAWN
from bench.experiments.number_rules import NUMBER_RULES
from bench.experiments.page import fill, pages
from bench.experiments.pareto import PARETO
from bench.experiments.price import PRICE
from bench.experiments.proxies import PROXIES, PROXIES_INNER
from bench.experiments.reasons import REASONS
from bench.experiments.records import add_record
from bench.experiments.repeats import REPEATS
from bench.experiments.reproduce_paper import reproduce as reproduce_paper
from bench.experiments.rules import PLUGIN_RULES, RULES
from bench.experiments.runner import Cell, pending, read_results, run
from bench.experiments.scores import SCORES
from bench.experiments.steps import STEPS
from bench.experiments.stress import STRESS
from bench.experiments.table2 import TABLE2
from bench.experiments.target_bounds import TARGET_BOUNDS
from bench.experiments.target_methods import TARGET_METHODS
from bench.experiments.targets import TARGETS
from bench.experiments.theorems import THEOREMS_6_AND_7
from bench.experiments.tradeoffs import TRADEOFFS
from bench.experiments.trial import TRIAL
from justitia.datasets import DatasetUnavailable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
#: Quick results never mix with the committed ones, nor do those of ``paper``.
QUICK, PAPER = ROOT / "out" / "quick", ROOT / "out" / "paper"
PAGES = pages(ROOT)

OF_THE_PAPER = (TABLE2, TRADEOFFS, C_P, C_D, MISSING, THEOREMS_6_AND_7, PARETO)
HOW_AND_WHY = (
    *(CHOOSE, STEPS, REASONS, SCORES, RULES, PLUGIN_RULES, LAYOUTS, NUMBER_RULES, LAST_STEP, BASES, INSIDE),
    PROXIES_INNER,
)
BOUNDS = (MEASURE, COVERAGE, CORNERS, TARGET_BOUNDS)
BEYOND_IT = (
    *(FRONTIER, REPEATS, PRICE, CENSUS, *BOUNDS, AUDIT, TRIAL, STRESS, HOLDS, TARGETS),
    *(PROXIES, MONITOR),
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (*OF_THE_PAPER, *HOW_AND_WHY, *BEYOND_IT)}
#: Figures that are drawn from another figure's fits.
ALIASES = {"clipped": "c_p"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a cell failed."""
    options = _parser().parse_args(arguments)
    if options.name == "figures":
        redraw(RESULTS if options.out is None else options.out)
        return 0
    if options.name == "paper":
        return _guarded(
            lambda: reproduce_paper(
                options.out or (QUICK / "paper" if options.quick else PAPER), quick=options.quick, jobs=options.jobs
            )
        )
    experiment = EXPERIMENTS[ALIASES.get(options.name, options.name)]
    folder = options.out or (QUICK if options.quick else RESULTS)
    command = f"python -m bench.experiments {options.name}{' --quick' if options.quick else ''}"
    only = frozenset(options.method or ())
    command += "".join(f" --method '{name}'" for name in sorted(only))
    return _guarded(
        lambda: reproduce(experiment, folder, quick=options.quick, jobs=options.jobs, command=command, only=only)
    )


def _guarded(work: Callable[[], int]) -> int:
    """The exit code of ``work``; an error that a user can mend is one sentence."""
    try:
        return work()
    except KeyboardInterrupt:
        print("\nStopped; the same command continues from here.", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1


HELP = "what to make; 'paper' is Table 2's PF-LD beside the paper, 'figures' redraws everything without fitting"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.experiments", description=__doc__)
    names = [*EXPERIMENTS, *ALIASES, "paper", "figures"]
    parser.add_argument("name", choices=names, help=HELP)
    parser.add_argument("--quick", action="store_true", help="a small version, written to out/quick")
    methods = [*METHODS, *TARGET_METHODS]
    parser.add_argument("--method", choices=methods, action="append", help="fit cells of this method only; repeatable")
    parser.add_argument("--jobs", type=_at_least_one, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--out", type=Path, help="folder for the results; the committed ones by default")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of processes of at least 1, got {text!r}.")
    return int(text)


def reproduce(
    experiment: Experiment, folder: Path, *, quick: bool, jobs: int, command: str, only: Collection[str] = ()
) -> int:
    """Fit what is missing, of some methods only if asked; write table or pictures, print a summary; 1 if a cell failed.

    Table, pictures and summary are about all results at hand.
    """
    torch.set_num_threads(1)
    path = folder / f"{experiment.name}.csv"
    wanted = [cell for cell in experiment.cells(quick=quick) if not only or cell.method in only]
    cells = available(wanted)
    todo = pending(cells, path)
    print(forecast(experiment.name, len(cells), todo, jobs), file=sys.stderr)
    start = time.perf_counter()
    rows = run(cells, experiment.work, path, measures=experiment.measures, jobs=jobs)
    failed = int((rows["error"] != "").sum())
    if todo:
        seconds = time.perf_counter() - start
        add_record(path, command=command, fitted=len(todo), failed=failed, seconds=seconds, jobs=jobs)
    print(experiment.publish(read_results(path), folder))
    for claim in experiment.claims(read_results(path)):
        print(str(claim).replace("**", ""))
    lost = failed + len(wanted) - len(cells)
    if lost:
        print(f"{lost} of {len(wanted)} cells failed; the same command tries them again.", file=sys.stderr)
    return int(lost > 0)


def available(cells: Sequence[Cell]) -> list[Cell]:
    """Cells whose dataset can be had; the others are reported once per dataset."""
    usable = {SIMULATED, SYNTHETIC, *DRAWN}
    for name in dict.fromkeys(cell.dataset for cell in cells if cell.dataset not in usable):
        try:
            dataset(name)
        except DatasetUnavailable as error:
            print(error, file=sys.stderr)
        else:
            usable.add(name)
    return [cell for cell in cells if cell.dataset in usable]


def forecast(name: str, total: int, todo: Sequence[Cell], jobs: int) -> str:
    """How much is left, and roughly how long it takes."""
    seconds = sum(estimated_seconds(cell) for cell in todo if cell.method in METHODS) / jobs
    about = f", about {seconds / 60:.0f} minutes" if seconds >= 60 else ""
    return f"{name}: {total} cells, {total - len(todo)} of them done{about}"


#: Its table is a summary of one experiment.
README = ROOT / "README.md"


def redraw(results: Path, pages: Sequence[Path] = (*PAGES, README)) -> None:
    """Every table and picture from the results at hand, and the pages that show them."""
    for experiment in EXPERIMENTS.values():
        rows = read_results(results / f"{experiment.name}.csv")
        if len(rows):
            experiment.publish(rows, results)
            print(f"{experiment.name}: {', '.join(experiment.figures) or 'table'}", file=sys.stderr)
    for page in pages:
        link = os.path.relpath(results, page.parent)
        page.write_text(fill(page.read_text(encoding="utf-8"), EXPERIMENTS, results, link=link), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
