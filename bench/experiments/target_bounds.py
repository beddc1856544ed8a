"""Coverage of the private measurement's bounds for decisions among several classes and for numeric predictions.

Each cell draws samples from a known population, makes the query of :func:`justitia.measure` about each, adds the noise
of its release to the exact sums, and counts how often the bounds hold the truth. A test compares these answers with
those of ``justitia.measure``. The truth of a Kolmogorov-Smirnov distance is at the public levels of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import gamma, norm

from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import CONFIDENCE, SIMULATED, noise_scale
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia.metrics.bounds import NoisyRates, SecondMoments
from justitia.metrics.distribution import NoisyDistribution
from justitia.metrics.means import NumberQuery, means_by_name
from justitia.metrics.measure import MeasurementQuery
from justitia.metrics.quantiles import sidak_quantile
from justitia.metrics.rates import CLASS_NOTIONS, class_metrics

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SIMULATIONS = 400
#: Samples whose bounds are computed together.
TOGETHER = 50
EPSILONS = (0.5, 1.0)
#: Expected rows of each group.
SIZES: dict[str, tuple[int, ...]] = {
    "2 small": (150, 150),
    "2 uneven": (100, 3000),
    "5 uneven": (80, 200, 500, 1000, 3000),
}
#: Shares of the classes of a population, those of all groups first; the last group has the second where they differ.
CLASSES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "3 classes, unequal": ((0.5, 0.3, 0.2), (0.3, 0.4, 0.3)),
    "6 classes, equal": ((1 / 6,) * 6, (1 / 6,) * 6),
    "6 classes, rare": ((0.4, 0.25, 0.2, 0.1, 0.04, 0.01), (0.3, 0.3, 0.2, 0.1, 0.07, 0.03)),
}
#: Share of labels that are predicted; the others get a class at random.
RIGHT = 0.6
#: Equal rates differ by 0, and bounds of 0 are rounded.
SLACK = 1e-9
NUMBERS = ("normal, equal", "normal, unequal", "skewed", "tied")
#: Notions, with the populations in which each is measured. Errors do not depend on how predictions are distributed.
COMPARED = (
    ("demographic_parity", (*CLASSES, *NUMBERS)),
    ("equalized_odds", ("3 classes, unequal", "6 classes, rare")),
    ("accuracy_parity", ("6 classes, rare",)),
    ("mean_parity", ("normal, unequal", "skewed", "tied")),
    ("equal_error", ("normal, equal", "normal, unequal")),
)
MEASURES = ("known", "violation", "too_low", "too_high", "at_most", "largest_gap", "rates", "width", "simulations")


def answer(values: Array, group: Ints, groups: int, epsilon: float, generator: np.random.Generator) -> Array:
    """Noisy group sums of public rows, as the vault gives them: projected onto the public total."""
    exact = np.stack([values[group == a].sum(axis=0) for a in range(groups + 1)])  # the last: nobody is "not given"
    noisy = exact + noise_scale(epsilon) * generator.standard_normal(exact.shape)
    found: Array = noisy[:-1] + (exact.sum(axis=0) - noisy.sum(axis=0)) / (groups + 1)
    return found


@dataclass(frozen=True)
class Classes:
    """Groups with their expected sizes, and labels and decisions among several classes."""

    sizes: tuple[int, ...]
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    notion: str

    @cached_property
    def cells(self) -> Array:
        """(G, L, L): probability of label and decision by group."""
        first, last = np.array(self.shares)
        found = [_confused(first)] * (len(self.sizes) - 1) + [_confused(last)]
        return np.stack(found)

    def samples(self, epsilon: float, times: int, generator: np.random.Generator) -> Iterator[Sample]:
        """Noisy rates of each sample, the truth, and expected rows behind each rate."""
        groups, L, _ = self.cells.shape
        weights = (np.array(self.sizes)[:, None, None] / sum(self.sizes) * self.cells).ravel()
        for _ in range(times):
            drawn = generator.multinomial(sum(self.sizes), weights).reshape(groups, L * L)
            group, cell = (np.repeat(one.ravel(), drawn.ravel()) for one in np.indices(drawn.shape))
            truth, decided = np.divmod(cell, L)
            rates = class_metrics(range(L), truth, decided)[CLASS_NOTIONS[self.notion]]
            query = MeasurementQuery.from_rows({self.notion: rates}, truth, decided, None, None, classes=L)
            noisy, _, _ = query.read(
                answer(query.values(), group, groups, epsilon, generator), noise_scale(epsilon) ** 2
            )
            member, value = np.array([(one.member, one.value) for one in query.rates]).transpose(1, 0, 2)
            cells = self.cells.reshape(groups, -1)
            events = cells @ member.T
            yield Sample(noisy, cells @ value.T / events, np.array(self.sizes)[:, None] * events)


def _confused(shares: Array) -> Array:
    """(L, L): labels of these shares; a decision is right, or any class by these shares."""
    found: Array = shares[:, None] * (RIGHT * np.eye(len(shares)) + (1 - RIGHT) * shares)
    return found


@dataclass(frozen=True)
class Numbers:
    """Groups with their expected sizes, and predictions and errors of known distributions."""

    sizes: tuple[int, ...]
    kind: str
    notion: str

    def predictions(self, group: int, uniform: Array) -> Array:
        """Values of a group at these probabilities: its quantile function."""
        last = group == len(self.sizes) - 1
        if self.kind == "skewed":  # the last group is more skewed
            values: Array = gamma.ppf(uniform, 0.5 if last else 1.0, scale=1.0)
        elif self.kind == "tied":
            values = np.searchsorted([0.02, 0.3, 0.35, 0.8, 0.9] if last else [0.05, 0.3, 0.4, 0.7, 0.95], uniform) / 5
        else:
            far, wide = (0.4, 1.5) if last and self.kind == "normal, unequal" else (0.0, 1.0)
            values = far + wide * norm.ppf(uniform)
        return values

    def error_size(self, group: int) -> float:
        """Standard deviation of normal errors."""
        return 1.0 if self.kind != "normal, unequal" or group < len(self.sizes) - 1 else 1.5

    def truth(self, group: int) -> float:
        """Mean that the notion compares."""
        if self.notion == "equal_error":
            return self.error_size(group) ** 2
        return float(self._grid[group].mean())

    @cached_property
    def _grid(self) -> list[Array]:
        """Of each group, values at evenly spaced probabilities, in order."""
        middle = (np.arange(200_000) + 0.5) / 200_000
        return [self.predictions(group, middle) for group in range(len(self.sizes))]

    def above(self, group: int, cuts: Array) -> Array:
        """Share of a group above these levels."""
        values = self._grid[group]
        return np.asarray(1 - np.searchsorted(values, cuts, side="right") / len(values))

    def samples(self, epsilon: float, times: int, generator: np.random.Generator) -> Iterator[Sample]:
        """Noisy means or shares above levels of each sample, the truth, and expected rows of each group."""
        groups, n = len(self.sizes), sum(self.sizes)
        means = np.array([self.truth(group) for group in range(groups)])
        for _ in range(times):
            group = generator.choice(groups, n, p=np.array(self.sizes) / n)
            uniform, errors = generator.random(n), generator.standard_normal(n)
            predicted, labels = np.empty(n), np.empty(n)
            for a in range(groups):
                here = group == a
                predicted[here] = self.predictions(a, uniform[here])
                labels[here] = predicted[here] + self.error_size(a) * errors[here]
            query = NumberQuery.from_rows(means_by_name([self.notion], []), labels, predicted, 20)
            noisy, distribution = query.read(
                answer(query.values(), group, groups, epsilon, generator), noise_scale(epsilon) ** 2
            )
            ((low, high),) = query.ranges
            sizes = np.array(self.sizes)[:, None]
            if distribution is None:
                yield Sample(noisy, (means[:, None] - low) / (high - low), sizes)
            else:
                truth = np.stack([self.above(a, query.cuts) for a in range(groups)])
                yield Sample(distribution.curve, truth, sizes + 0 * truth, distribution)


@dataclass(frozen=True)
class Sample:
    """What one release answers about a sample, and the truth about its population.

    Attributes
    ----------
    noisy : NoisyRates
    truth : array of shape (G, K)
    sizes : array of shape (G, K)
        Expected rows of each group in the event of each rate.
    distribution : NoisyDistribution, optional
        Then the violation is the largest Kolmogorov-Smirnov distance.
    """

    noisy: NoisyRates
    truth: Array
    sizes: Array
    distribution: NoisyDistribution | None = None


def held(samples: Sequence[Sample]) -> pd.DataFrame:
    """One line per sample: whether the bounds of violation, largest gap to the population and all rates hold."""
    by_shape: dict[tuple[int, ...], list[Sample]] = {}
    for one in samples:
        by_shape.setdefault(one.truth.shape, []).append(one)
    return pd.concat([_held_together(part) for part in by_shape.values()], ignore_index=True)


def _held_together(samples: Sequence[Sample]) -> pd.DataFrame:
    """The same for samples of one shape, (N, G, K) together."""
    noisy = _stacked([one.noisy for one in samples])
    truth, sizes = np.stack([one.truth for one in samples]), np.stack([one.sizes for one in samples])
    enough = noisy.enough
    distributions = [one.distribution for one in samples if one.distribution is not None]
    if distributions:
        bounds = np.array([one.largest_distance(CONFIDENCE) for one in distributions]).T
        at_most = np.array([one.largest_distance_at_most(CONFIDENCE) for one in distributions])
    else:
        bounds = np.array(noisy.largest_difference("between_groups", CONFIDENCE))
        at_most = noisy.largest_difference_at_most(CONFIDENCE)
    _, lower, upper = bounds
    apart = np.where(enough, truth, -np.inf).max(axis=1) - np.where(enough, truth, np.inf).min(axis=1)
    violation = np.where(enough.sum(axis=1) >= 2, apart, -1.0).max(axis=1)
    overall = (sizes * truth).sum(axis=1, keepdims=True) / sizes.sum(axis=1, keepdims=True)
    gap = np.where(enough, np.abs(truth - overall), -1.0).max(axis=(1, 2))
    _, gap_lower, gap_upper = noisy.largest_difference("to_overall", CONFIDENCE)
    low, high = noisy.interval(sidak_quantile(CONFIDENCE, truth[0].size))
    table = pd.DataFrame(
        {
            "violation": (lower <= violation + SLACK) & (violation <= upper + SLACK),
            "too_low": upper < violation - SLACK,
            "too_high": lower > violation + SLACK,
            "at_most": violation <= at_most + SLACK,
            "width": upper - lower,
            "largest_gap": (gap_lower <= gap + SLACK) & (gap <= gap_upper + SLACK),
            "rates": ((low <= truth + SLACK) & (truth <= high + SLACK)).all(axis=(1, 2)),
        }
    ).astype(float)
    known = violation >= 0
    table.loc[~known, ["violation", "too_low", "too_high", "at_most", "width"]] = math.nan
    table.loc[gap < 0, "largest_gap"] = math.nan
    return table.assign(known=known.astype(float))


def _stacked(noisy: Sequence[NoisyRates]) -> NoisyRates:
    """Answers of one shape as one, with a leading axis."""
    arrays: dict[str, Any] = {
        field.name: np.stack([getattr(one, field.name) for one in noisy])
        for field in fields(NoisyRates)
        if isinstance(getattr(noisy[0], field.name), np.ndarray)
    }
    seconds = [one.second for one in noisy if one.second is not None]
    second = None
    if seconds:
        second = SecondMoments(
            *(np.stack(parts) for parts in zip(*(vars(one).values() for one in seconds), strict=True))
        )
    return replace(noisy[0], **arrays, second=second)


def population(kind: str, sizes: str, notion: str) -> Classes | Numbers:
    """The population of a cell, by the names of the grid."""
    if kind in CLASSES:
        return Classes(SIZES[sizes], CLASSES[kind], notion)
    return Numbers(SIZES[sizes], kind, notion)


def coverage(people: Classes | Numbers, epsilon: float, times: int, seed: int) -> dict[str, float]:
    """How often the bounds hold the truth, over the samples in which it is known."""
    drawn = people.samples(epsilon, times, np.random.default_rng(seed))
    table = pd.concat([held(part) for part in iter(lambda: list(islice(drawn, TOGETHER)), [])])
    return {str(name): float(value) for name, value in table.mean().items()} | {"simulations": float(times)}


def grid(*, quick: bool) -> list[tuple[str, str, str, float]]:
    """Kind of population, sizes, notion and epsilon of each cell."""
    found = [
        (kind, sizes, notion, epsilon)
        for epsilon in EPSILONS
        for sizes in SIZES
        for notion, kinds in COMPARED
        for kind in kinds
        # Bounds of 36 rates of five groups take most of a second to compute.
        if not (notion == "equalized_odds" and sizes == "5 uneven" and kind != "3 classes, unequal")
    ]
    return [one for one in found if one[1] == "2 uneven" and one[3] == 1.0] if quick else found


def cells(*, quick: bool) -> list[Cell]:
    """The grid of simulations; quick: one list of sizes and one epsilon."""
    return [
        Cell(
            "target_bounds",
            SIMULATED,
            notion,
            kind,
            0,
            epsilon=epsilon,
            settings={"sizes": sizes},
            recipe=f"{SIMULATIONS} simulations of {SIZES[sizes]}, bounds 1",
        )
        for kind, sizes, notion, epsilon in grid(quick=quick)
    ]


def work(cell: Cell) -> dict[str, float]:
    """One cell of the grid."""
    people = population(cell.method, str(cell.settings["sizes"]), cell.notion)
    return coverage(people, cell.epsilon, int(cell.recipe.split()[0]), cell.noise_seed)


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """The grid as a table."""
    table = results.assign(sizes=setting(results, "sizes"), population=results["method"])
    columns = ["notion", "population", "sizes", "epsilon"]
    return table[[*columns, *MEASURES]].sort_values(columns).reset_index(drop=True)


def by_notion(results: pd.DataFrame) -> pd.DataFrame:
    """Lowest, median and highest coverage of the violation over cells that know it in nine of ten samples."""
    table = summarise(results)
    numbers = table["population"].isin(NUMBERS)
    lines = []
    for (number, notion), part in table.groupby([numbers, "notion"], sort=False):
        known = part[part["known"] > 0.9]
        values = known["violation"]
        task = "numbers" if number else "classes"
        spans = (values.min(), values.median(), values.max(), known["at_most"].min())
        lines.append((task, notion, len(values), *spans, part["largest_gap"].min(), part["rates"].min()))
    columns = ["task", "notion", "cells", "lowest", "median", "highest", "one-sided", "largest gap", "all rates"]
    return pd.DataFrame(lines, columns=columns)


def markdown(results: pd.DataFrame) -> str:
    """The summary as a table of the page on measurement."""
    table = by_notion(results).round(3)
    lines = ["| " + " | ".join(table.columns) + " |", "|---|---|" + "---:|" * (len(table.columns) - 2)]
    lines += ["| " + " | ".join(map(str, line)) + " |" for line in table.itertuples(index=False)]
    return "\n".join([*lines, "", f"Standard error of one coverage: {_standard_error(results):.4f}."])


def _standard_error(results: pd.DataFrame) -> float:
    return math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / results["simulations"].max())


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The numbers."""
    del folder
    tables = "\n\n".join(one(results).round(3).to_string(index=False) for one in (summarise, by_notion))
    return f"{tables}\nstandard error of one coverage: {_standard_error(results):.4f}"


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is promised of the bounds, compared with the simulations."""
    floor = CONFIDENCE - 3 * _standard_error(results)
    known = results[results["known"] > 0.9]
    found = []
    for name, words, part in (
        ("violation", "The violation", known),
        ("at_most", "One-sided upper bound of the violation", known),
        ("largest_gap", "The largest gap to the population", known),
        ("rates", "All rates or means by group at once", results),
    ):
        values = part[name].dropna()
        numbers = f"from {values.min():.3f} to {values.max():.3f}, median {values.median():.3f}, {len(values)} cells"
        sentence = f"{words}: coverage is at least 95%, less three standard errors ({floor:.3f})."
        found.append(Claim(sentence, bool((values >= floor).all()), numbers))
    return found


TARGET_BOUNDS = Experiment("target_bounds", cells, publish, (), claims, work=work, measures=MEASURES, table=markdown)
