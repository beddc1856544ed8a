"""What privacy costs in time and memory, as ratios: ``python -m bench.performance.speed [--quick] [--output FILE]``.

Every ratio compares two programs that ran in turn in the same process on one thread, so that a slow minute hits
both; each is the median over turns of the quotient within a turn. The network is the paper's for Income,
62-41-31-1 with ReLU.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from bench.performance.plugin import plugin_ratios
from bench.performance.ratios import Ratio, Step, compare, report, table
from justitia.networks.requirements import trainable
from justitia.networks.row_gradients import (
    ScoreRows,
    find_layout,
    score_rows,
)
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian
from justitia.privacy.vault import SensitiveVault

if TYPE_CHECKING:
    from justitia.privacy.rows import FactoredRows

BATCH, FEATURES, HIDDEN = 512, 62, (41, 31)
BOUND, NOISE_MULTIPLIER = 1.0, 100.0
CHUNK_ROWS, FEW_ROWS, MANY_ROWS = 8192, 20_000, 200_000


@dataclass(frozen=True, eq=False)
class Batch:
    """Public rows and labels, private groups, and the public weights of the group term."""

    X: Tensor
    y: Tensor
    groups: Tensor
    weights: Tensor

    @staticmethod
    def make() -> Batch:
        """Two groups and "not given", weighted as in one constraint of demographic parity."""
        generator = torch.Generator().manual_seed(0)
        X = torch.randn(BATCH, FEATURES, generator=generator)
        y, groups = (torch.rand(2, BATCH, generator=generator) < 0.4).long()
        return Batch(X, y.float(), groups, torch.tensor([0.5, -0.5, 0.0]).repeat(BATCH, 1) / BATCH)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    first, second = HIDDEN
    return nn.Sequential(
        nn.Linear(FEATURES, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
    )


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=1e-3)


# ------------------------------------------------------------------ the steps that are compared


def plain_step(batch: Batch) -> Step:
    module = network()
    optimizer = adam(module)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(module(batch.X).squeeze(1), batch.y).backward()
        optimizer.step()

    return step


class ReadyRows:
    """Rows already computed for the loss, handed to the vault as a source."""

    def __init__(self, rows: FactoredRows, index: NDArray[np.int64]) -> None:
        self.rows, self.index, self.width = rows, index, rows.width

    def __len__(self) -> int:
        return len(self.rows)

    def chunks(self) -> Iterator[tuple[NDArray[np.int64], FactoredRows]]:
        """All rows in one chunk."""
        yield self.index, self.rows


def through_vault(batch: Batch) -> Callable[[FactoredRows], Tensor]:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    vault = SensitiveVault(batch.groups.numpy(), groups=(0, 1), ledger=ledger)
    noise, index, weights = Gaussian(NOISE_MULTIPLIER), np.arange(BATCH), batch.weights.numpy()

    def ask(rows: FactoredRows) -> Tensor:
        source = ReadyRows(rows, index)
        return torch.from_numpy(vault.weighted_sum(source, weights, bound=BOUND, noise=noise, purpose="group gradient"))

    return ask


def private_step(batch: Batch, group_term: Callable[[FactoredRows], Tensor]) -> Step:
    """One private primal step: public loss gradient plus the clipped and noised group term."""
    module = network().eval()
    optimizer, layout, params = adam(module), find_layout(module, batch.X), trainable(module)
    gradient = torch.zeros(sum(p.numel() for p in params))
    for p, part in zip(params, gradient.split([p.numel() for p in params]), strict=True):
        p.grad = part.view(p.shape)

    @torch.no_grad()
    def step() -> None:
        scores, rows = score_rows(module, batch.X, layout)
        p = torch.sigmoid(scores)
        gradient.copy_(torch.from_numpy(rows.weighted_sum(((p - batch.y) / BATCH).numpy())))
        gradient.add_(group_term(rows.scaled((p * (1 - p)).numpy())))
        optimizer.step()

    return step


def opacus_step(batch: Batch, *, ghost: bool) -> Step:
    """Per-example clipping and noise on the loss, the step that Opacus offers."""
    import opacus  # type: ignore[import-untyped]  # noqa: PLC0415 - a development tool
    from opacus.utils import fast_gradient_clipping_utils as ghosts  # type: ignore[import-untyped]  # noqa: PLC0415

    wrappers, optimizers = opacus.grad_sample, opacus.optimizers
    options = {"noise_multiplier": NOISE_MULTIPLIER, "max_grad_norm": BOUND, "expected_batch_size": BATCH}
    if ghost:
        module = wrappers.GradSampleModuleFastGradientClipping(network(), max_grad_norm=BOUND, use_ghost_clipping=True)
        optimizer = optimizers.DPOptimizerFastGradientClipping(adam(module), **options)
        loss = ghosts.DPLossFastGradientClipping(module, optimizer, nn.BCEWithLogitsLoss())
    else:
        module = wrappers.GradSampleModule(network())
        optimizer, loss = optimizers.DPOptimizer(adam(module), **options), nn.BCEWithLogitsLoss()
    labels = batch.y.unsqueeze(1)

    def step() -> None:
        optimizer.zero_grad()
        loss(module(batch.X), labels).backward()
        optimizer.step()

    return step


def row_by_row_step(batch: Batch) -> Step:
    """The private primal step as scripts write it: one backward pass, clip and accumulation per row."""
    module = network()
    optimizer, params = adam(module), list(module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        scores = module(batch.X).squeeze(1)
        h = torch.sigmoid(scores)
        total = [torch.zeros_like(p) for p in params]
        for h_i, c in zip(h, batch.weights.gather(1, batch.groups.unsqueeze(1)), strict=True):
            h_i.backward(retain_graph=True)
            nn.utils.clip_grad_norm_(params, BOUND)
            for part, p in zip(total, params, strict=True):
                part.add_(c * p.grad)
            optimizer.zero_grad()
        cross_entropy(scores, batch.y).backward()
        for part, p in zip(total, params, strict=True):
            noise = torch.randn_like(part) * (BOUND * NOISE_MULTIPLIER / BATCH)
            p.grad = p.grad + part + noise
        optimizer.step()

    return step


# ------------------------------------------------------------------ measuring


def time_ratios(*, quick: bool) -> list[Ratio]:
    """Compare the steps of one batch; ours goes through the vault and its ledger."""
    batch, turns, few = Batch.make(), 15 if quick else 60, 2 if quick else 6
    plain, ours = plain_step(batch), private_step(batch, through_vault(batch))
    private = compare({"plain": plain, "ours": ours}, "plain", turns, inner=20)["ours"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns about its own hooks
        theirs = {"hooks": opacus_step(batch, ghost=False), "ghost": opacus_step(batch, ghost=True)}
        opacus = compare({"ours": ours, **theirs}, "ours", turns, inner=5)
    rows = compare({"rows": row_by_row_step(batch), "ours": repeated(ours, 50)}, "ours", few)
    return [
        Ratio("private primal step / plain step", private, "<=", 1.8, turns),
        Ratio("Opacus step (hooks) / private primal step", opacus["hooks"], ">=", 3.0, turns),
        Ratio("Opacus step (ghost clipping) / private primal step", opacus["ghost"], ">=", 1.0, turns),
        Ratio("one backward per row / private primal step", 50 * rows["rows"], ">=", 200.0, few),
    ]


def repeated(step: Step, times: int) -> Step:
    """A step so short that one call would measure the clock."""

    def many() -> None:
        for _ in range(times):
            step()

    return many


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def fill_up_to_peak() -> list[bytes]:
    """Ballast that brings the process back to its peak, so that any further need shows as a new peak."""
    ballast, peak = [], peak_bytes()
    while peak_bytes() <= peak + 2**20:
        ballast.append(b"\x01" * 2**18)
    return ballast


def stream(rows: int) -> int:
    """Bytes by which one clipped sum over all rows raises the peak of a fresh process above its data."""
    torch.set_num_threads(1)
    module = network().eval()
    X, c = torch.zeros(rows, FEATURES).uniform_(), np.ones(rows, dtype=np.float32)
    source = ScoreRows(module, X, chunk_rows=CHUNK_ROWS)
    ballast, before = fill_up_to_peak(), peak_bytes()
    total = np.zeros(source.width, dtype=np.float32)
    for index, part in source.chunks():
        total += part.weighted_sum(c[index] * np.minimum(BOUND / part.norms(), 1.0))
    growth = peak_bytes() - before
    del ballast  # kept until here
    return growth


def memory_ratio(*, quick: bool) -> Ratio:
    """Peak memory of ten times the rows over that of the rows, the data apart."""
    turns = 1 if quick else 3

    def growth(rows: int) -> float:
        command = [sys.executable, "-m", "bench.performance.speed", "--stream", str(rows)]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(turns)]  # noqa: S603 - our own module
        return statistics.median(int(run.stdout) for run in runs)

    name = f"peak memory of a step, {MANY_ROWS:,} rows / {FEW_ROWS:,} rows"
    return Ratio(name, growth(MANY_ROWS) / growth(FEW_ROWS), "<=", 1.5, turns)


def plain_fit(X: Tensor, y: Tensor, *, epochs: int = 30, batch: int = 256) -> nn.Module:
    """Train the paper's network the usual way."""
    torch.manual_seed(0)
    sizes = (X.shape[1], *HIDDEN)
    module = nn.Sequential(
        nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]), nn.ReLU(), nn.Linear(sizes[2], 1)
    )
    optimizer = adam(module)
    for _ in range(epochs):
        for index in torch.randperm(len(X)).split(batch):
            optimizer.zero_grad()
            cross_entropy(module(X[index]).squeeze(1), y[index]).backward()
            optimizer.step()
    return module


def fit_ratio() -> Ratio:
    """Whole private fit on Income over the plain network's fit."""
    import pandas as pd  # noqa: PLC0415 - the other ratios need neither data nor estimator

    from justitia import LagrangianDualClassifier, datasets  # noqa: PLC0415

    data = datasets.load("income", progress=False)
    encoded = pd.get_dummies(data.X, dtype=float).to_numpy()
    X = torch.from_numpy((encoded - encoded.mean(0)) / (encoded.std(0) + 1e-12)).float()
    y = torch.tensor(data.y.to_numpy(), dtype=torch.float32)

    def private_fit() -> object:
        model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, engine="pf-ld", module=HIDDEN, random_state=0)
        return model.fit(data.X, data.y, sensitive_features=data.sensitive)

    turns = 2  # after one turn each that warms up
    ratio = compare({"private": private_fit, "plain": lambda: plain_fit(X, y)}, "plain", turns)["private"]
    return Ratio("private fit on Income / plain fit (30 epochs)", ratio, "<=", 4.0, turns)


def row_ratios(*, quick: bool) -> list[Ratio]:
    """Prediction of one row of a data frame: processor milliseconds, and over LightGBM's prediction of that row."""
    import pandas as pd  # noqa: PLC0415 - the other ratios need neither data nor estimator

    from bench.performance.people import made_up  # noqa: PLC0415
    from justitia import LagrangianDualClassifier  # noqa: PLC0415

    X, y, groups = made_up(5_000)
    people, group = pd.DataFrame(X).add_prefix("x"), pd.Series(groups, name="group")
    model = LagrangianDualClassifier("equalized_odds", groups=(0, 1, 2), random_state=0, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows
        model.fit(people, y, sensitive_features=group)
    row, numbers, booster = people.iloc[:1], model.encoder_.transform(people[:1]), model.rule_.base.models[0].booster_
    turns, inner = 5 if quick else 20, 50

    def milliseconds(step: Step) -> float:
        """Processor time: other programs lengthen a long step more than a short one."""
        each = []
        for _ in range(turns + 1):
            begun = time.process_time()
            for _ in range(inner):
                step()
            each.append(1e3 * (time.process_time() - begun) / inner)
        return statistics.median(each[1:])  # the first turn warms up

    ours = milliseconds(lambda: model.predict(row))
    ratio = ours / milliseconds(lambda: booster.predict(numbers, num_threads=1))
    return [
        Ratio("one row of a data frame, processor milliseconds", ours, "<=", 2.0, turns),
        Ratio("one row of a data frame / Booster.predict of it", ratio, "<=", 60.0, turns),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and no whole fit")
    parser.add_argument("--output", type=Path, default=Path("results/bench.json"))
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.stream is not None:
        print(stream(options.stream))
        return 0
    torch.set_num_threads(1)
    ratios = [*time_ratios(quick=options.quick), memory_ratio(quick=options.quick)]
    ratios += row_ratios(quick=options.quick)
    ratios += [] if options.quick else [fit_ratio(), *plugin_ratios()]
    print(table(ratios))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report(ratios, quick=options.quick))
    return 0 if all(r.passed for r in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
