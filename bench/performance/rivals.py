"""Fits and predictions of rivals beside ours: ``python -m bench.performance.rivals [--rows 1000000] [--timeout 600]``.

Equalized odds at epsilon 1 on Income and on made-up rows with 50 features and three groups. Every method runs in a
process of its own with one thread, one after the other in one run; each fits, and predicts the rows that it has learned
from. Shown are processor seconds as ratios to one plain LightGBM with its default settings, which runs first and last,
so that its two times show how steady the machine was. A fit that takes longer than the timeout, of processor time, is
ended and reported as such. Kept in ``results/rivals.json``; ``bench.performance.pages rivals`` fills the section of
``docs/speed.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path("results/rivals.json")
NOTION, INCOME, MADE_UP = "equalized_odds", "income", "made_up"
PLAIN, OURS, REDUCTION = "LightGBM", "Justitia", "ExponentiatedGradient"
#: Methods of the evaluation, with the settings that were chosen for them there.
RECIPES = ("LinearPost", "FairGBM", "DP-FERMI", "RaCO-DP")
METHODS = (PLAIN, OURS, REDUCTION, *RECIPES, PLAIN)
NAMES = {
    OURS: "Justitia, ε = 1",
    REDUCTION: "ExponentiatedGradient over LightGBM (fairlearn), no privacy",
    "LinearPost": "LinearPost, no privacy",
    "FairGBM": "FairGBM, no privacy",
    "DP-FERMI": "DP-FERMI, ε = 1",
    "RaCO-DP": "RaCO-DP, ε = 1",
}
#: X, y, groups of all rows, names of the groups.
Rows = tuple[Any, Any, Any, tuple[Any, ...]]


def load(rows: int) -> Rows:
    """Income where no rows are asked for, or made-up ones."""
    import pandas as pd  # noqa: PLC0415 - the command itself starts quickly

    if not rows:
        from justitia import datasets  # noqa: PLC0415

        data = datasets.load(INCOME, progress=False)
        return data.X, data.y.to_numpy(), data.sensitive.to_numpy(), tuple(data.groups)
    from bench.performance.people import made_up  # noqa: PLC0415

    X, y, groups = made_up(rows)
    return pd.DataFrame(X).add_prefix("x"), y, groups, (0, 1, 2)


class Encoded:
    """A model of numbers behind the encoder that our models use; with a constraint it is also handed the groups."""

    def __init__(self, model: Any, *, constrained: bool) -> None:
        from justitia.preprocessing.encoding import TabularEncoder  # noqa: PLC0415

        self._encoder, self._model, self._constrained = TabularEncoder(), model, constrained

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> None:
        """Encode and learn."""
        more = {"sensitive_features": sensitive_features} if self._constrained else {}
        self._model.fit(self._encoder.fit_transform(X), y, **more)

    def predict(self, X: Any) -> Any:
        """Encode and predict."""
        return self._model.predict(self._encoder.transform(X))


def made(method: str, groups: tuple[Any, ...]) -> Any:
    """An estimator that has not learned yet."""
    from lightgbm import LGBMClassifier  # noqa: PLC0415

    plain = LGBMClassifier(n_jobs=1, verbosity=-1, random_state=0)
    if method == PLAIN:
        return Encoded(plain, constrained=False)
    if method == REDUCTION:
        from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient  # noqa: PLC0415

        return Encoded(ExponentiatedGradient(plain, EqualizedOdds(difference_bound=0.01)), constrained=True)
    if method == OURS:
        from justitia import LagrangianDualClassifier  # noqa: PLC0415

        return LagrangianDualClassifier(NOTION, epsilon=1.0, groups=groups, random_state=0, progress=False)
    from bench.experiments.methods import METHODS as KNOWN  # noqa: PLC0415
    from bench.experiments.methods import Request  # noqa: PLC0415

    return KNOWN[method].make(Request(groups, NOTION, 0), **KNOWN[method].settings)


def one(method: str, rows: int) -> dict[str, float]:
    """Processor seconds of a fit and of the fastest of three predictions, and peak memory of this process."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y, groups, names = load(rows)
    model = made(method, names)
    before = _peak()
    learned = _seconds(lambda: model.fit(X, y, sensitive_features=groups))
    predicted = min(_seconds(lambda: model.predict(X)) for _ in range(3))
    return {"rows": len(y), "fit": learned, "predict": predicted, "peak_bytes": _peak(), "data_bytes": before}


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(method: str, rows: int, timeout: float) -> dict[str, Any]:
    """One method in a process of its own, which the system ends after so many seconds of a processor."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (round(timeout), round(timeout) + 5))

    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "bench.performance.rivals", "--one", method, "--rows", str(rows)]
    load = os.getloadavg()[0]
    done = subprocess.run(  # noqa: S603 - our own module; nothing here has threads
        command, check=False, capture_output=True, text=True, env=os.environ | threads, preexec_fn=limit
    )
    found: dict[str, Any] = {"method": method, "data": MADE_UP if rows else INCOME, "load": round(load, 1)}
    if done.returncode in {-24, -9}:  # SIGXCPU, or SIGKILL right after it
        return found | {"rows": rows, "timeout": timeout}
    if done.returncode:
        return found | {"rows": rows, "failed": done.stderr.strip().splitlines()[-1][:200]}
    return found | json.loads(done.stdout.splitlines()[-1])


def with_ratios(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, each with the ratio of its times to the mean of the plain model's."""
    plain = [run for run in found if run["method"] == PLAIN]
    mean = {step: statistics.mean(run[step] for run in plain) for step in ("fit", "predict")}
    ratios = [{f"{step}_ratio": run[step] / mean[step] for step in mean if step in run} for run in found]
    return [run | ratio for run, ratio in zip(found, ratios, strict=True)]


def table(runs: list[dict[str, Any]]) -> str:
    """Ratios of all methods, in Markdown."""
    sizes = {run["data"]: run["rows"] for run in runs if "fit" in run}
    heads = {INCOME: f"Income, {sizes.get(INCOME, 0):,} rows", MADE_UP: f"{sizes.get(MADE_UP, 0):,} made-up rows"}
    shown = [data for data in (INCOME, MADE_UP) if data in sizes]
    lines = [
        "| method | " + " | ".join(f"fit, {heads[data]} | predict" for data in shown) + " |",
        "|---|" + "---:|---:|" * len(shown),
    ]
    for method, name in NAMES.items():
        cells = []
        for data in shown:
            run = next((one for one in runs if one["method"] == method and one["data"] == data), {})
            cells += [_cell(run, "fit"), _cell(run, "predict")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    plain = {data: [run for run in runs if run["method"] == PLAIN and run["data"] == data] for data in shown}
    steady = ", ".join(f"{max(r['fit'] for r in two) / min(r['fit'] for r in two):.2f}" for two in plain.values())
    return "\n".join(lines) + (
        f"\n\nProcessor time over that of one plain LightGBM, one thread, {NOTION.replace('_', ' ')}; the plain fit "
        f"ran twice, and the longer of the two took {steady} times the shorter."
    )


def _cell(run: dict[str, Any], step: str) -> str:
    if "timeout" in run:
        return f"over {run['timeout'] / 60:g} minutes" if step == "fit" else "-"
    return f"{run[f'{step}_ratio']:.1f}" if f"{step}_ratio" in run else "failed" if "failed" in run else "-"


def main(arguments: list[str] | None = None) -> None:
    """Measure, keep, print; or fill a page from what is kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.rivals", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="made-up rows; 0 for Income alone")
    parser.add_argument("--timeout", type=float, default=600.0, help="processor seconds of one method on one data set")
    parser.add_argument("--no-income", action="store_true", help="made-up rows alone")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        print(json.dumps(one(chosen.one, chosen.rows)))
        return
    runs: list[dict[str, Any]] = []
    sizes = ([] if chosen.no_income else [0]) + ([chosen.rows] if chosen.rows else [])
    for rows in sizes:
        found = []
        for method in METHODS:
            found.append(measured(method, rows, chosen.timeout))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        runs += with_ratios(found)
        chosen.output.write_text(json.dumps({"threads": 1, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
