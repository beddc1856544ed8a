"""Forecast of how long a fit on files will take: a trial on their first rows, with the same code.

Nothing private is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.learners.base import Inputs, cross_fit_folds
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.postprocessing.correction import ROWS, Distillation
from justitia.postprocessing.decisions import ColumnSums, DecisionRows, DecisionRule, EvaluateDecisions, Gains
from justitia.postprocessing.features import PublicRows, base_scores
from justitia.postprocessing.memberships import ExpectedSums, Memberships
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.preprocessing.encoding import TabularEncoder
from justitia.rows.files import Columns, stored_bytes, stride
from justitia.rows.parquet import BLOCK, RowFiles
from justitia.rows.source import Block

#: Bytes of a process that has imported what a fit needs.
LIBRARIES = 300 * 2**20


@dataclass(frozen=True)
class Forecast:
    """What a fit will do, in seconds of one processor.

    Attributes
    ----------
    rows, sample, passes : int
        All rows, rows of the public sample, and passes over all rows.
    learning, scoring, passing : float
        Seconds for the base model and the correction, for reading, encoding and scoring all rows, and for the passes
        over the encoded rows.
    disk : int
        Bytes of temporary files.
    memory : int
        Bytes of the largest process, the driver, at most; workers hold less.
    """

    rows: int
    sample: int
    passes: int
    learning: float
    scoring: float
    passing: float
    disk: int
    memory: int

    @property
    def seconds(self) -> float:
        """Of the whole fit."""
        return self.learning + self.scoring + self.passing

    @property
    def rows_per_second(self) -> float:
        """That one pass over encoded rows computes."""
        return self.rows * self.passes / max(self.passing, 1e-9)

    def shared(self, workers: int) -> float:
        """Seconds of the clock with this many processes, each on a processor of its own."""
        return self.learning + (self.scoring + self.passing) / workers


def forecast(files: RowFiles, target: str, features: tuple[str, ...], plan: PostProcessingPlan) -> Forecast:
    """Try the passes on the first block, and fit one of the base models on as many rows as the fit will.

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
    few, sample, names = min(n, BLOCK), -(-n // stride(n)), list(features)
    tables = [table for _, table in files.blocks(columns.all, 0, sample)]
    encoder = TabularEncoder().fit(tables[0].select(names).to_pandas())
    numbers = np.concatenate([encoder.transform(table.select(names)) for table in tables])
    codes, _ = pd.factorize(np.concatenate([table.select([target]).to_pandas()[target].to_numpy() for table in tables]))
    y = (codes == 1) if 0 < (codes == 1).sum() < len(codes) else np.arange(len(codes)) % 2 == 1
    model, learning = _learning(numbers, y)
    learning += _distilling(numbers, y) * min(sample, ROWS) / len(numbers)
    reading = _seconds(lambda: [encoder.transform(t.select(names)) for _, t in files.blocks(names, 0, few)])
    each = _seconds(lambda: model.predict(numbers[:few], num_threads=1))
    predicting = 0.0 if sample == n else LightGBMBase(sample).deployed * each
    first, whole, short = _passes(numbers[:few], y[:few])
    passing = (first + (1 + plan.checks) * (whole + short)) * n / few
    width = numbers.shape[1]
    disk = 0 if sample == n else n * stored_bytes(width, scores=1, weighted=False)
    passes = 4 + 2 * plan.checks + (plan.share_sizes > 0)
    scoring = (2 * reading + predicting) * n / few
    return Forecast(n, sample, passes, learning, scoring, passing, disk, _memory(n, sample, width))


def _memory(n: int, sample: int, width: int) -> int:
    """Bytes of libraries, the sample (table, features, three copies of its public rows), a block, and all codes."""
    rows = 2 * 4 * (width + 4)  # a public row: one block of columns per label, in single precision
    return LIBRARIES + sample * (8 * width + 3 * rows + 256) + BLOCK * 6 * rows + 3 * n


def _learning(numbers: NDArray[np.float32], y: Any) -> tuple[Any, float]:
    """One of the base models, and seconds for all of them."""
    seen, unseen = next(iter(cross_fit_folds(y.astype(np.float64), 0)))
    base, boosters, inputs = LightGBMBase(len(y)), [], Inputs(numbers, numbers)
    data: list[Any] = []
    binning = _seconds(lambda: data.append(base.binned(inputs, y.astype(np.float64), np.ones(len(y)))))
    took = _seconds(lambda: boosters.append(base.learn_fold(data[0], seen, unseen)[0]))
    return boosters[0], binning + base.fits * took


def _distilling(numbers: NDArray[np.float32], y: Any) -> float:
    """Seconds of a correction that is distilled from these rows."""
    some = numbers[:ROWS]
    eta = np.full(len(some), 0.5)
    c = np.column_stack([y[: len(some)], 1.0 - y[: len(some)]])  # any columns will do
    return (
        _seconds(lambda: Distillation.of_two_classes(some, eta, c, np.array([1.0, -1.0]), 2 * eta - 1))
        * len(numbers)
        / len(some)
    )


def _passes(numbers: NDArray[np.float32], y: Any) -> tuple[float, float, float]:
    """Seconds of the passes before the first check, of one that computes memberships, and of one that finds decisions.

    The release of the moments takes about twice as long as a public sum of the same rows.
    """
    labels, ones = y.astype(np.float32), np.ones(len(y), dtype=np.float32)
    block = Block(0, numbers.reshape(len(y), -1), labels, ones, np.full(len(y), 0.5))
    rows = PublicRows.fit(base_scores, block)
    prices, gains, weights = np.zeros((1, 2, 2, 1)), Gains(np.array([0.5])), np.zeros((3, rows.width))
    rule = DecisionRule(Memberships(rows, weights), prices, gains, np.zeros(1), "trial")
    total = _seconds(lambda: ColumnSums(rows, 1.0).run(block))
    expected = _seconds(lambda: ExpectedSums(rows, weights, 18).run(block))
    whole = _seconds(lambda: EvaluateDecisions(rule, 1.0).run(block))
    return 3 * total + expected, whole, _seconds(lambda: DecisionRows(rule, np.zeros((1, 2, 2, 2)))(block))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


__all__ = ["Forecast", "forecast"]
