"""How long a fit on files will take: a trial on its first rows, with the same code. Nothing private is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from justitia.engines.moments.public_rows import PublicRows
from justitia.engines.plugin.correction import ROWS, Distillation
from justitia.engines.plugin.plan import PluginPlan
from justitia.engines.plugin.shard import ScoredShard, represented
from justitia.engines.shards import Facts
from justitia.inputs.encoding import TabularEncoder
from justitia.inputs.files import BLOCK, RowFiles
from justitia.inputs.public_sample import Block, Columns, OwnRows, stride
from justitia.learners.base import PARTS
from justitia.learners.default import default_base

#: Trees of the trial, twice: what is left is the time of one tree, and what does not depend on their number.
FEW, MORE = 4, 12


@dataclass(frozen=True)
class Forecast:
    """What a fit will do, in seconds of one processor.

    Attributes
    ----------
    rows, sample, passes : int
        Rows in all, rows of the public sample, and passes over everybody.
    learning, scoring, passing : float
        Seconds for the model of the label and the correction, for scoring everybody, and for all passes.
    """

    rows: int
    sample: int
    passes: int
    learning: float
    scoring: float
    passing: float

    @property
    def seconds(self) -> float:
        """Of the whole fit."""
        return self.learning + self.scoring + self.passing

    @property
    def rows_per_second(self) -> float:
        """That one pass reads."""
        return self.rows * self.passes / max(self.passing, 1e-9)

    def shared(self, workers: int) -> float:
        """Seconds of the clock with so many processes, each on a processor of its own."""
        return self.learning + (self.scoring + self.passing) / workers


def forecast(files: RowFiles, target: str, features: tuple[str, ...], plan: PluginPlan) -> Forecast:
    """Try a pass over the first block, and a few trees on it.

    Raises
    ------
    ValueError
        If the files cannot be read, or have no rows.
    """
    columns = Columns(features, target)
    files.check(columns.all)
    n = len(files)
    if not n:
        raise ValueError(f"expected rows in {files.shown}, got none; pass files with rows.")
    few = min(n, BLOCK)
    sample = -(-n // stride(n))
    (_, table), *_ = files.blocks(columns.all, 0, few)
    frame = Block(0, table).frame(features)
    encoder = TabularEncoder().fit(frame)
    numbers = encoder.transform(frame)
    y = np.arange(few) % 2  # any labels will do
    estimator = default_base(sample).estimator
    trees = estimator.get_params()["n_estimators"]  # at most
    model, tree, fixed = _trees(estimator, numbers, y)
    learning = PARTS * 0.8 * sample * (fixed + tree * trees) / few + _correcting(numbers, y) * min(sample, ROWS) / few
    predicting = _seconds(lambda: model.predict_proba(numbers)) / (few * MORE)
    scoring = predicting * trees * PARTS * n
    passes = 5 + 2 * plan.checks
    own = OwnRows(files, columns, 0, few, 0, few)
    one = _pass(ScoredShard(own, Facts(None), encoder.transform), numbers, y)
    return Forecast(n, sample, passes, learning, scoring, passes * one * n / few)


def _correcting(numbers: NDArray[np.float32], y: Any) -> float:
    """Seconds of a correction that is learned from these rows, at most as many as one is."""
    some = numbers[:ROWS]
    eta = np.full(len(some), 0.5)
    c = np.column_stack([y[: len(some)], 1.0 - y[: len(some)]])  # any columns will do
    return _seconds(lambda: Distillation(some, eta, c, np.array([1.0, -1.0]), 2 * eta - 1)) * len(numbers) / len(some)


def _trees(estimator: Any, numbers: NDArray[np.float32], y: Any) -> tuple[Any, float, float]:
    """A model, and seconds of one tree and of everything else."""
    times, model = [], None
    for trees in (FEW, MORE):
        model = clone(estimator).set_params(n_estimators=trees)
        times.append(_seconds(lambda model=model: model.fit(numbers, y)))  # type: ignore[misc]
    tree = max(times[1] - times[0], 0.0) / (MORE - FEW)
    return model, tree, max(times[0] - FEW * tree, 0.0)


def _pass(shard: ScoredShard, numbers: NDArray[np.float32], y: Any) -> float:
    """Seconds of one pass over the rows of a shard: memberships of both labels, and sums."""
    eta = np.full(len(y), 0.5)
    learned = PublicRows(represented(eta), torch.from_numpy(numbers), torch.from_numpy(y).float(), chunk_rows=BLOCK)
    width = learned.width
    shard.score(learned, width, lambda *_: eta.copy(), eta)
    membership, multiplied = torch.zeros(3, width, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    return _seconds(lambda: shard.judge(membership, multiplied, 0.5))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


__all__ = ["Forecast", "forecast"]
