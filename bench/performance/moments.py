"""The moments engine on many rows and along a curve, as ratios: ``python -m bench.performance.moments [--quick]``.

A plain loop of the same number of steps, one fit against a curve, and millions of rows against fewer, each in a process
of its own. Nothing here is a test: a busy machine moves all of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from bench.performance.people import FEATURES, made_up
from bench.performance.ratios import Ratio, compare, report, table
from bench.performance.speed import adam, fill_up_to_peak, peak_bytes
from justitia import LagrangianDualClassifier, MomentsPlan, datasets, tradeoff
from justitia.networks.multilayer import default_widths, multilayer
from justitia.preprocessing.encoding import TabularEncoder

FEW_ROWS, MANY_ROWS = 1_000_000, 5_000_000
TOLERANCES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3)


def plain_loop(X: torch.Tensor, y: torch.Tensor, plan: MomentsPlan) -> None:
    """As many steps, batches and weights as a fit of the plan has, and nothing else."""
    torch.manual_seed(0)
    module = multilayer(X.shape[1], default_widths(len(X)))
    optimizer, order = adam(module), torch.empty(0, dtype=torch.long)
    for _ in range(plan.warmup_steps + plan.rounds * plan.public_steps):
        order = torch.randperm(len(X)) if len(order) == 0 else order
        batch, order = order[: plan.batch_size], order[plan.batch_size :]
        optimizer.zero_grad()
        cross_entropy(module(X[batch]).squeeze(1), y[batch]).backward()
        optimizer.step()


def income_ratios(*, turns: int) -> list[Ratio]:
    """One fit over the plain loop, and a curve of ten tolerances over one fit, on all of Income."""
    data = datasets.load("income", progress=False)
    X = torch.from_numpy(TabularEncoder().fit(data.X).transform(data.X))
    y = torch.tensor(data.y.to_numpy(), dtype=torch.float32)
    model = LagrangianDualClassifier(groups=data.groups, engine="moments", random_state=0, progress=False)
    plan = MomentsPlan()
    steps = {
        "plain": lambda: plain_loop(X, y, plan),
        "fit": lambda: model.fit(data.X, data.y, sensitive_features=data.sensitive),
        "curve": lambda: tradeoff(model, data.X, data.y, sensitive_features=data.sensitive, tolerances=TOLERANCES),
    }
    one = compare({name: steps[name] for name in ("plain", "fit")}, "plain", turns)["fit"]
    many = compare({name: steps[name] for name in ("fit", "curve")}, "fit", turns)["curve"]
    return [
        Ratio("fit on Income / plain loop of the same steps", one, "<=", 2.0, turns),
        Ratio("curve of ten tolerances / one fit", many, "<=", 6.0, turns),
    ]


def one_fit(rows: int) -> dict[str, float]:
    """Seconds of a fit, and the bytes per row by which it raises the peak of a process that holds the data."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y, groups = made_up(rows)
    model = LagrangianDualClassifier(
        "equalized_odds", groups=(0, 1, 2), engine="moments", random_state=0, progress=False
    )
    ballast, before = fill_up_to_peak(), peak_bytes()
    start = time.perf_counter()
    model.fit(X, y, sensitive_features=groups)
    seconds, growth = time.perf_counter() - start, peak_bytes() - before
    del ballast  # kept until here
    return {"seconds": seconds, "bytes_per_row": growth / rows}


def scale_ratios(few: int, many: int) -> list[Ratio]:
    """Time of many rows over that of fewer, and memory per row over that of the features."""
    found = {}
    for rows in (few, many):
        command = [sys.executable, "-m", "bench.performance.moments", "--rows", str(rows)]
        run = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own module
        found[rows] = json.loads(run.stdout)
        print(f"{rows:,} rows: {found[rows]['seconds']:.0f} s, {found[rows]['bytes_per_row']:.0f} bytes per row")
    times = found[many]["seconds"] / found[few]["seconds"]
    memory = found[many]["bytes_per_row"] / (4 * FEATURES)
    grows = found[many]["bytes_per_row"] / found[few]["bytes_per_row"]
    name = f"{many:,} rows / {few:,} rows"
    return [
        Ratio(f"time of a fit, {name}", times, "<=", 1.1 * many / few, 1),
        Ratio(f"memory per row, {name}", grows, "<=", 1.1, 1),
        Ratio(f"memory of a fit / memory of {FEATURES} features", memory, "<=", 3.0, 1),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.moments", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repetitions")
    parser.add_argument("--output", type=Path, default=Path("results/moments.json"))
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rows is not None:
        print(json.dumps(one_fit(options.rows)))
        return 0
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    few, many = (20_000, 100_000) if options.quick else (FEW_ROWS, MANY_ROWS)
    ratios = [*income_ratios(turns=1 if options.quick else 2), *scale_ratios(few, many)]
    print(table(ratios))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report(ratios, quick=options.quick))
    return 0 if all(r.passed for r in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
