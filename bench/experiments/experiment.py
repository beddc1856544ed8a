"""What an experiment is: its cells, how one is measured, what is made of the results, and what the paper claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pandas as pd

from bench.experiments.folds import MEASURES, measure
from bench.experiments.runner import Cell, Work


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether our numbers bear it out, and those numbers."""

    sentence: str
    confirmed: bool
    numbers: str

    def __str__(self) -> str:
        return f"{self.sentence} **{'Confirmed' if self.confirmed else 'Not confirmed'}**: {self.numbers}."


class Cells(Protocol):
    """Lists the fits of an experiment, or of its quick form."""

    def __call__(self, *, quick: bool) -> list[Cell]:
        """The cells, long ones first."""
        ...


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Parameters
    ----------
    name : str
        Of its command and of its result files.
    cells : callable
        ``cells(quick=...)`` lists the fits.
    publish : callable
        ``publish(results, folder)`` writes tables or pictures from the results alone and returns text for the
        terminal.
    figures : tuple of str
        Names of the pictures that ``publish`` writes.
    claims : callable
        What the paper says about this table or figure, held against the results.
    methods : tuple of str
        Methods whose absence from the results the page points out.
    work, measures
        As in :func:`bench.experiments.runner.run`.
    table : callable
        The results as a table for the page, if there is one.
    summary : callable
        A small table of the results for the README, if there is one.
    """

    name: str
    cells: Cells
    publish: Callable[[pd.DataFrame, Path], str]
    figures: tuple[str, ...] = ()
    claims: Callable[[pd.DataFrame], list[Claim]] = lambda _: []
    methods: tuple[str, ...] = ()
    work: Work = measure
    table: Callable[[pd.DataFrame], str] = lambda _: ""
    measures: tuple[str, ...] = MEASURES
    summary: Callable[[pd.DataFrame], str] = lambda _: ""
