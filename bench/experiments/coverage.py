"""Coverage of what auditors ask for: impact ratio, z, shortfall, Kolmogorov-Smirnov distance and binned AUC by group.

Each cell draws samples from a known population whose scores fall into ten public bins, notes what one release would
answer, and counts how often the bounds hold the truth, and how often the four-fifths verdict is wrong. The noisy
answers are drawn directly, many at once; a test holds them against ``justitia.measure``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import CONFIDENCE, EPSILONS, SIMULATED, SIZES, noise_scale
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia.metrics.bounds import NoisyRates
from justitia.metrics.impact import FOUR_FIFTHS, Comparison, impact_ratios, smallest_ratio_bounds
from justitia.metrics.quantiles import conservative, sidak_quantile
from justitia.metrics.rates import METRICS, Cells, QueryRows, make_rows
from justitia.metrics.scores import NoisyScores, ScoreBins, ScoreFacts

Array = NDArray[np.float64]

SIMULATIONS = 4000
#: Samples that are drawn together.
TOGETHER = 250
#: Selection rates by group, the reference first; at "boundary" the smallest ratio is four fifths.
RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "equal": {2: (0.3, 0.3), 5: (0.3,) * 5},
    "unequal": {2: (0.4, 0.3), 5: (0.4, 0.25, 0.3, 0.35, 0.45)},
    "boundary": {2: (0.35, 0.28), 5: (0.35, 0.35, 0.35, 0.35, 0.28)},
}
BINS, SELECTED = 10, 3
POSITIVE = 0.05 + 0.09 * np.arange(BINS)
QUANTITIES = ("ratio", "ratio_to_best", "shortfall", "z", "ks_distance", "auc")
#: What a quantity is called on the page, where that is not its name.
LABELS = {"auc": "binned AUC"}
MEASURES = (
    *(f"{name}_{what}" for name in QUANTITIES for what in ("holds", "told")),
    *("wrong_below", "wrong_above", "wrong_below_best", "wrong_above_best", "simulations"),
)


@dataclass(frozen=True)
class Population:
    """Groups with their expected numbers of people and their selection rates; the best-scored bins are selected.

    Attributes
    ----------
    sizes : array of shape (G,)
    selected : array of shape (G,)
    positive : array of shape (B,)
        Share of the positive label in each bin.
    """

    sizes: NDArray[np.int64]
    selected: Array
    positive: Array = field(default_factory=POSITIVE.copy)

    @property
    def bins(self) -> Array:
        """(G, B): share of a group's people in each bin."""
        low = np.repeat((1 - self.selected)[:, None] / (BINS - SELECTED), BINS - SELECTED, axis=1)
        high = np.repeat(self.selected[:, None] / SELECTED, SELECTED, axis=1)
        return np.concatenate([low, high], axis=1)

    @property
    def cells(self) -> Array:
        """(G, 2 B): share in each bin of label 0, then of label 1."""
        return np.concatenate([self.bins * (1 - self.positive), self.bins * self.positive], axis=1)

    @property
    def distances(self) -> Array:
        """True Kolmogorov-Smirnov distance of each group from the first."""
        above = np.cumsum(self.bins[:, ::-1], axis=1)
        return np.abs(above - above[0]).max(axis=1)

    @property
    def aucs(self) -> Array:
        """True binned AUC of each group: two people in one bin count one half."""
        negative, positive = self.cells[:, :BINS], self.cells[:, BINS:]
        rank = np.tril(np.ones((BINS, BINS)), -1) + np.eye(BINS) / 2
        ranked = np.einsum("gb,bc,gc->g", positive, rank, negative)
        return np.asarray(ranked / positive.sum(axis=1) / negative.sum(axis=1))


def question(population: Population) -> tuple[QueryRows, ScoreFacts]:
    """QueryRows for the expected numbers of people, and public facts about the bins."""
    bins, label = np.tile(np.arange(BINS), 2), np.repeat([0, 1], BINS)
    kind = 2 * label + (bins >= BINS - SELECTED)
    totals = population.sizes @ population.cells
    cells = Cells(np.arange(2 * BINS), kind, kind, bins, totals)
    cuts = np.arange(BINS - 1) + 0.5
    made = ScoreBins(bins.astype(float), cuts, bins)
    rows = make_rows([METRICS["selection_rate"].over(cells.kind), *made.rates(cells)], totals)
    label, bins = rows.by_column(label), rows.by_column(bins)
    nothing = np.zeros(2 * BINS)
    facts = ScoreFacts(
        *(cuts, BINS // 2 - 1, label, bins, bins.astype(float), nothing),
        deviation=1.0,
        rest=nothing,
        reach=0.0,
    )
    return rows, facts


def answers(
    population: Population, epsilon: float, times: int, generator: np.random.Generator
) -> Iterator[tuple[NoisyRates, NoisyScores, Array]]:
    """What a release answers for many samples: selection rates and scores; and how many people are in each group."""
    rows, facts = question(population)
    n, shares = int(population.sizes.sum()), population.sizes / population.sizes.sum()
    scale = noise_scale(epsilon)
    for start in range(0, times, TOGETHER):
        many = min(TOGETHER, times - start)
        drawn = generator.multinomial(n, (shares[:, None] * population.cells).ravel(), size=many)
        exact = drawn.reshape(many, len(shares), -1)[:, :, np.argsort(rows.cell)].astype(float)
        blocks = np.concatenate([exact, np.zeros_like(exact[:, :1])], axis=1) @ rows.vectors  # nobody is "not given"
        noisy = blocks + scale * generator.standard_normal(blocks.shape)
        noisy += (blocks.sum(axis=1, keepdims=True) - noisy.sum(axis=1, keepdims=True)) / blocks.shape[1]
        read = QueryRows(rows.cell, rows.member, rows.value, exact.sum(axis=1), rows.vectors)
        cells = read.cells(noisy[:, :-1], scale**2)
        rest = np.zeros((many, len(shares)))
        scores = NoisyScores(cells, facts, rest, 0.0)
        yield cells.rates(rows.member[:1], rows.value[:1]), scores, exact.sum(axis=-1)


def coverage(population: Population, epsilon: float, times: int, seed: int) -> dict[str, float]:
    """How often each quantity is told, how often its bounds then hold for all groups, and how often verdicts err."""
    generator = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # samples in which no group is known have no smallest ratio
        parts = [_held(*one, population) for one in answers(population, epsilon, times, generator)]
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found: dict[str, float] = {}
    for name in QUANTITIES:
        told = table[f"{name}_told"]
        found[f"{name}_told"] = float(told.mean())
        found[f"{name}_holds"] = float(table[f"{name}_holds"][told].mean()) if told.any() else math.nan
    wrong = {name: float(table[name].mean()) for name in table if name.startswith("wrong")}
    return found | wrong | {"simulations": times}


def _held(noisy: NoisyRates, scores: NoisyScores, size: Array, population: Population) -> dict[str, Any]:
    rates, groups = population.selected, len(population.sizes)
    others = np.arange(groups) > 0
    together = sidak_quantile(CONFIDENCE, groups - 1)
    compared = Comparison.with_reference(noisy, 0)
    named, best = (impact_ratios(noisy, reference, CONFIDENCE) for reference in (0, None))
    highest = np.where(noisy.enough[..., 0], rates, -1).max(axis=-1, keepdims=True)
    z = np.abs(compared.z()[..., 0])
    sure = conservative(CONFIDENCE)
    lacking = [one[..., 0] for one in compared.shortfall(sidak_quantile(sure, groups - 1))]
    found = {
        **_holds("ratio", named, rates / rates[0], others),
        **_holds("ratio_to_best", best, rates / highest, others | ~others, least=2),
        **_holds("shortfall", lacking, size * (rates[0] - rates), others),
        **_holds("z", (z, z * 0, np.where(z > together, -1.0, 1.0)), 0 * rates, others),
        **_holds("ks_distance", scores.ks_distance(0, CONFIDENCE), population.distances, others),
        **_holds("auc", scores.binned_auc(CONFIDENCE), population.aucs, others | ~others),
    }
    if not np.array_equal(rates, np.full(groups, rates[0])):
        found["z_told"] = np.zeros_like(found["z_told"])  # rates differ: nothing to hold
    smallest = float(rates.min() / rates[0]), float(rates.min() / rates.max())
    for words, reference, truth in (("", 0, smallest[0]), ("_best", None, smallest[1])):
        at_least, at_most = smallest_ratio_bounds(noisy, reference, CONFIDENCE)
        found[f"wrong_below{words}"] = (at_most < FOUR_FIFTHS) & (truth >= FOUR_FIFTHS - 1e-9)
        found[f"wrong_above{words}"] = (at_least > FOUR_FIFTHS) & (truth <= FOUR_FIFTHS + 1e-9)
    return found


def _holds(name: str, bounds: Sequence[Array], truth: Array, groups: Any, least: int = 1) -> dict[str, Any]:
    """Whether all bounds that are told hold, and whether any is told, by sample.

    The only group that is known is the best of those that are, with a ratio of 1: that is no estimate, hence ``least``.
    """
    value, lower, upper = bounds
    known = ~np.isnan(value) & groups
    inside = (lower <= truth + 1e-9) & (truth <= upper + 1e-9)
    return {f"{name}_holds": (inside | ~known).all(axis=-1), f"{name}_told": known.sum(axis=-1) >= least}


def cells(*, quick: bool) -> list[Cell]:
    """The grid of simulations; quick: one epsilon."""
    return [
        Cell(
            "coverage",
            SIMULATED,
            "demographic_parity",
            f"{rates} rates",
            0,
            epsilon=epsilon,
            settings={"groups": groups, "sizes": sizes},
            recipe=f"{SIMULATIONS} simulations of {SIZES[sizes][groups]} at {RATES[rates][groups]}, bounds 5",
        )
        for groups in (2, 5)
        for sizes in SIZES
        for rates in RATES
        for epsilon in ((0.5,) if quick else EPSILONS)
    ]


def work(cell: Cell) -> dict[str, float]:
    """One cell of the grid."""
    groups, sizes = int(cell.settings["groups"]), str(cell.settings["sizes"])
    rates = RATES[cell.method.removesuffix(" rates")][groups]
    population = Population(np.array(SIZES[sizes][groups]), np.array(rates))
    return coverage(population, cell.epsilon, int(cell.recipe.split()[0]), cell.noise_seed)


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """The grid as a table."""
    labelled = results.assign(
        groups=setting(results, "groups").astype(int), sizes=setting(results, "sizes"), rate=results["method"]
    )
    order = {name: place for place, name in enumerate(SIZES)}
    columns = ["groups", "sizes", "rate", "epsilon"]
    table = labelled[[*columns, *MEASURES]]
    return table.sort_values(columns, key=lambda c: c.map(order) if c.name == "sizes" else c).reset_index(drop=True)


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def by_quantity(results: pd.DataFrame) -> pd.DataFrame:
    """Lowest, median and highest coverage of each quantity over the cells that tell it in nine of ten samples."""
    lines = []
    for name in QUANTITIES:
        known = results[results[f"{name}_told"] > 0.9]
        values = known[f"{name}_holds"]
        lines.append((_label(name), len(values), values.min(), values.median(), values.max()))
    return pd.DataFrame(lines, columns=["quantity", "cells", "lowest", "median", "highest"])


def markdown(results: pd.DataFrame) -> str:
    """The summary as a table of the page on measurement."""
    table = by_quantity(results)
    lines = ["| quantity | populations | lowest | median | highest |", "|---|---:|---:|---:|---:|"]
    told = [
        f"| {one.quantity} | {one.cells} | {one.lowest:.3f} | {one.median:.3f} | {one.highest:.3f} |"
        for one in table.itertuples(index=False)
    ]
    return "\n".join([*lines, *told, "", *_outside(results)])


def _outside(results: pd.DataFrame) -> list[str]:
    """A table of the populations whose coverage is not between 94 and 99%."""
    table = summarise(results)
    lines = []
    for name in QUANTITIES:
        values = table[f"{name}_holds"]
        far = table[(table[f"{name}_told"] > 0.9) & ~values.between(0.94, 0.99)]
        for where, cells in far.groupby(["groups", "sizes", "rate"], sort=False):
            epsilons = ", ".join(f"{one:g}" for one in cells["epsilon"])
            held = ", ".join(f"{one:.3f}" for one in cells[f"{name}_holds"])
            lines.append(f"| {_label(name)} | {' | '.join(map(str, where))} | {epsilons} | {held} |")
    if not lines:
        return ["Every population is between 94 and 99%."]
    return [
        "Not between 94 and 99%:",
        "",
        "| quantity | groups | rows in each | rates | ε | coverage |",
        "|---|---:|---|---|---|---|",
        *lines,
    ]


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The numbers."""
    del folder
    return "\n\n".join(one(results).round(3).to_string(index=False) for one in (by_quantity, summarise))


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is promised of the bounds, held against the simulations."""
    error = math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / results["simulations"].max())
    floor, ceiling = CONFIDENCE - 3 * error, 1 - CONFIDENCE + 3 * error
    found = []
    for name in QUANTITIES:
        values = results[results[f"{name}_told"] > 0.9][f"{name}_holds"]
        inside = values.between(0.94, 0.99)
        sentence = f"{_label(name)}: coverage is at least 95%, less three standard errors ({floor:.3f})."
        numbers = f"from {values.min():.3f} to {values.max():.3f}; {int(inside.sum())} of {len(values)} cells in 94-99%"
        found.append(Claim(sentence, bool((values >= floor).all()), numbers))
    boundary = results[results["method"] == "boundary rates"]
    wrong = boundary[["wrong_below", "wrong_above", "wrong_below_best", "wrong_above_best"]].max()
    sentence = (
        f"Four-fifths verdict at a ratio of 0.8: wrong in at most 5%, but for three standard errors ({ceiling:.3f})."
    )
    largest = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in wrong.items())
    numbers = f"{largest}, the largest of {len(boundary)} cells each, with a standard error of {error:.4f}"
    found.append(Claim(sentence, bool((wrong <= ceiling).all()), numbers))
    return found


COVERAGE = Experiment("coverage", cells, publish, (), claims, work=work, measures=MEASURES, table=markdown)
