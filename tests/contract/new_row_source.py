"""A row source that the library does not have, as a user would add it: one class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.rows.source import Block, IntArray, Pass, Predict, RowSource


class RetriedRows(RowSource):
    """Uneven blocks in a shuffled order. Each is computed twice, as after a fault, and the first result is dropped."""

    def __init__(
        self,
        X: NDArray[np.float32],
        y: NDArray[np.float32],
        weight: NDArray[np.float32],
        _block_rows: int = 0,
        proxy: NDArray[np.float32] | None = None,
    ) -> None:
        self.n, self.max_weight = len(y), float(weight.max())
        ends = sorted({0, 1, self.n // 7, self.n // 3, self.n - 5, self.n})
        cuts = [slice(a, b) for a, b in pairwise(ends)]
        self.blocks = [
            Block(one.start, X[one], y[one], weight[one], proxy=None if proxy is None else proxy[one]) for one in cuts
        ]

    def run(self, work: Pass) -> IntArray:
        total: Any = 0
        for place in np.random.default_rng(1).permutation(len(self.blocks)):
            block = self.blocks[place]
            work.run(replace(block, memo={}))
            total = total + work.run(block)
        return np.asarray(total)

    def map(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        return map(function, self.blocks)

    def score(self, predict: Predict, sample_scores: NDArray[np.float64]) -> None:
        ends = [block.first + len(block) for block in self.blocks]
        self.blocks = [
            replace(block, score=sample_scores[block.first : end], memo={})
            for block, end in zip(self.blocks, ends, strict=True)
        ]

    def read_codes(self, codes: Any) -> None:
        for block in self.blocks:
            codes.take(block.first, block.first + len(block))


def to_numbers(table: Any) -> NDArray[np.float32]:
    """Features of a table of numbers."""
    return np.asarray(table, dtype=np.float32)


def whole_block(block: Block) -> tuple[Any, ...]:
    """What is in a block."""
    return block.first, block.X, block.y, block.weight, block.score


class Failing:
    """A pass that fails in a sentence."""

    def run(self, block: Block) -> IntArray:
        raise ValueError(f"expected fewer rows, got a block at {block.first}.\nand more lines")


class Unreadable:
    """Group codes that cannot be read."""

    def take(self, first: int, stop: int) -> Any:
        raise ValueError("expected codes, got none.")


__all__ = ["Failing", "RetriedRows", "Unreadable", "to_numbers", "whole_block"]
