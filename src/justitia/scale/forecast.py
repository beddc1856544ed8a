"""How long a fit on files will take: a trial on their first rows, with the same code. Nothing private is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.engines.shards import Facts
from justitia.learners.base import FOLDS, Inputs, cross_fit_folds
from justitia.learners.lightgbm_base import default_base
from justitia.postprocessing.correction import ROWS, Distillation
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.shard import ScoredShard
from justitia.postprocessing.solver import represented
from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.files import BLOCK, RowFiles
from justitia.preprocessing.public_sample import Block, Columns, OwnRows, stride


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


def forecast(files: RowFiles, target: str, features: tuple[str, ...], plan: PostProcessingPlan) -> Forecast:
    """Try passes over the first block, and learn one of the models of the label from as many rows as the fit will.

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
    few, sample = min(n, BLOCK), -(-n // stride(n))
    encoder, numbers, y = _first_rows(files, columns, sample)
    model, learning = _learning(numbers, y)
    learning += _correcting(numbers, y) * min(sample, ROWS) / len(numbers)
    block = numbers[:few]
    scoring = 0.0 if sample == n else FOLDS * _seconds(lambda: model.predict_proba(block)) * n / few
    shard = ScoredShard(OwnRows(files, columns, 0, few, 0, few), Facts(None), encoder.transform)
    whole, short = _passes(shard, block, y[:few])
    passing = ((4 + plan.checks) * whole + (1 + plan.checks) * short) * n / few
    return Forecast(n, sample, 5 + 2 * plan.checks, learning, scoring, passing)


def _first_rows(files: RowFiles, columns: Columns, rows: int) -> tuple[TabularEncoder, NDArray[np.float32], Any]:
    """An encoder, and so many rows with their labels as 0 and 1."""
    blocks = [Block(at, table) for at, table in files.blocks(columns.all, 0, rows)]
    encoder = TabularEncoder().fit(blocks[0].frame(columns.features))
    numbers = np.concatenate([encoder.transform(block.frame(columns.features)) for block in blocks])
    labels = np.concatenate([block.column(str(columns.target)) for block in blocks])
    y, _ = pd.factorize(labels)
    return encoder, numbers, (y == 1) if 0 < (y == 1).sum() < len(y) else np.arange(len(y)) % 2 == 1


def _learning(numbers: NDArray[np.float32], y: Any) -> tuple[Any, float]:
    """One of the models of the label, and seconds for all of them."""
    seen, unseen = next(iter(cross_fit_folds(y.astype(np.float64), 0)))
    weight, base, models = np.ones(len(y)), default_base(len(y)), []
    inputs = Inputs(numbers, numbers)
    took = _seconds(lambda: models.append(base.learn_fold(inputs, y, weight, seen, unseen, seed=0)[0]))
    return models[0], FOLDS * took


def _correcting(numbers: NDArray[np.float32], y: Any) -> float:
    """Seconds of a correction that is learned from these rows, at most as many as one is."""
    some = numbers[:ROWS]
    eta = np.full(len(some), 0.5)
    c = np.column_stack([y[: len(some)], 1.0 - y[: len(some)]])  # any columns will do
    return _seconds(lambda: Distillation(some, eta, c, np.array([1.0, -1.0]), 2 * eta - 1)) * len(numbers) / len(some)


def _passes(shard: ScoredShard, numbers: NDArray[np.float32], y: Any) -> tuple[float, float]:
    """Seconds of a pass that computes memberships of the rows of a shard, and of one that reads their labels."""
    eta = np.full(len(y), 0.5)
    labels = y.astype(np.float32)
    learned = PublicRows(represented(eta), numbers, labels, chunk_rows=BLOCK)
    width = learned.width
    shard.score(learned, width, lambda *_: eta.copy(), eta)
    membership, multiplied = np.zeros((3, width)), np.zeros((2, 2))
    by = {"membership": membership, "multiplied": multiplied, "threshold": 0.5, "table": np.zeros((2, 2, 2))}
    whole = _seconds(lambda: shard.judge(membership, multiplied, 0.5))
    return whole, _seconds(lambda: list(shard.decision_rows(by).dense()))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


__all__ = ["Forecast", "forecast"]
