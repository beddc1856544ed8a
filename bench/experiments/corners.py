"""Coverage in corner cases: rates of exactly 0 and 1, AUC of scores that a bin hides, several rows per person.

Three kinds of populations, each simulated at an epsilon of 0.5, 1 and infinity:

* "rates": groups of 15 to 3,000 people, of which some have a rate of 0 or 1. The threshold of the verdict is the true
  violation, where a wrong verdict is most likely.
* "auc": a small group whose scores lie in one public bin, or are separated by label, beside a large ordinary group.
* "persons": ten rows per person, which are all alike or independent.

The noisy answers are drawn directly, many at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments import coverage, measure
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import CONFIDENCE, SIMULATED
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia.metrics.bounds import NoisyRates, Repeats
from justitia.metrics.impact import FOUR_FIFTHS, smallest_ratio_bounds

Array = NDArray[np.float64]

#: Of two or ten groups; five groups, whose upper bound is found by drawing errors, get a quarter.
SIMULATIONS = 4000
EPSILONS = (0.5, 1.0, math.inf)
ROWS_EACH = 10
#: Shares are over all simulations: "not enough evidence" is an answer that holds, and never a wrong verdict.
MEASURES = ("answered", "coverage", "largest_gap", "wrong_below", "wrong_above", "wrong_four_fifths", "exact_auc")
SMALL_TO_LARGE = (15, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000)


@dataclass(frozen=True)
class Rates:
    """Groups by their numbers of people (of persons, where these have several rows) and their true rates."""

    sizes: tuple[int, ...]
    rates: tuple[float, ...]


RATES: dict[str, Rates] = {
    "100 at 1, 3,000 at 0.9": Rates((100, 3000), (1.0, 0.9)),
    "50 at 1, 3,000 at 0.9": Rates((50, 3000), (1.0, 0.9)),
    "15 at 1, 3,000 at 0.9": Rates((15, 3000), (1.0, 0.9)),
    "100 at 0.9, 3,000 at 1": Rates((100, 3000), (0.9, 1.0)),
    "300 at 1, 300 at 0.9": Rates((300, 300), (1.0, 0.9)),
    "15 at 1, 15 at 0.9": Rates((15, 15), (1.0, 0.9)),
    "3,000 at 1, 3,000 at 0.98": Rates((3000, 3000), (1.0, 0.98)),
    "100 at 0, 3,000 at 0.02": Rates((100, 3000), (0.0, 0.02)),
    "15 at 0, 3,000 at 0.1": Rates((15, 3000), (0.0, 0.1)),
    "100 at 0, 3,000 at 1": Rates((100, 3000), (0.0, 1.0)),
    "100 at 1, 3,000 at 0.8": Rates((100, 3000), (1.0, 0.8)),
    "50 at 0.8, 3,000 at 1": Rates((50, 3000), (0.8, 1.0)),
    "five of 100, one at 1, others at 0.9": Rates((100,) * 5, (1.0, 0.9, 0.9, 0.9, 0.9)),
    "five of 300, one at 0.03, others at 0": Rates((300,) * 5, (0.0, 0.0, 0.0, 0.0, 0.03)),
    "15 to 3,000 in ten, 3,000 at 0.9, others at 1": Rates(SMALL_TO_LARGE, (1.0,) * 9 + (0.9,)),
    "15 to 3,000 in ten, 15 at 1, others at 0.9": Rates(SMALL_TO_LARGE, (1.0,) + (0.9,) * 9),
    "ten of 100, five at 1, five at 0.8": Rates((100,) * 10, (1.0,) * 5 + (0.8,) * 5),
}
#: Where the four-fifths verdict is at its hardest, too.
AT_FOUR_FIFTHS = {name for name, case in RATES.items() if math.isclose(min(case.rates) / max(case.rates), FOUR_FIFTHS)}
PERSONS: dict[str, Rates] = {
    "300 persons at 0.3, 300 at 0.5": Rates((300, 300), (0.3, 0.5)),
    "100 persons at 0.3, 3,000 at 0.4": Rates((100, 3000), (0.3, 0.4)),
    "1,000 persons at 1, 1,000 at 0.9": Rates((1000, 1000), (1.0, 0.9)),
}


@dataclass(frozen=True)
class Ranked:
    """A small group beside 58,500 people whose scores are spread evenly over the bins.

    Attributes
    ----------
    size : int
    negative, positive : pairs of ints
        First and last bin of either label in the small group, which are spread evenly over these.
    within : float
        How often the positive one of two in one bin has the higher score: 0, 1, or one half.
    """

    size: int
    negative: tuple[int, int]
    positive: tuple[int, int]
    within: float


AUC: dict[str, Ranked] = {
    "1,500 in the top bin, ranked wrongly": Ranked(1500, (9, 9), (9, 9), 0.0),
    "1,500 in the top bin, ranked rightly": Ranked(1500, (9, 9), (9, 9), 1.0),
    "150 in the top bin, ranked wrongly": Ranked(150, (9, 9), (9, 9), 0.0),
    "1,500 in the two top bins, ranked wrongly in each": Ranked(1500, (8, 9), (8, 9), 0.0),
    "300 with labels in other bins, AUC 1": Ranked(300, (0, 4), (5, 9), 0.5),
    "300 with labels in other bins, AUC 0": Ranked(300, (5, 9), (0, 4), 0.5),
    "60 with labels in other bins, AUC 1": Ranked(60, (0, 4), (5, 9), 0.5),
    "300 with labels everywhere, AUC 0.5": Ranked(300, (0, 9), (0, 9), 0.5),
}


class Scored(coverage.Population):
    """The population of one case of ``AUC``: bins are given, not made of selection rates."""

    def __init__(self, case: Ranked) -> None:
        large = 58_500
        super().__init__(np.array([case.size, large]), np.array([0.3, 0.3]))
        spread = [np.zeros(coverage.BINS), np.zeros(coverage.BINS)]
        for one, (first, last) in zip(spread, (case.negative, case.positive), strict=True):
            one[first : last + 1] = 0.5 / (last + 1 - first)
        slope = coverage.POSITIVE / coverage.BINS
        object.__setattr__(self, "_cells", np.array([np.concatenate(spread), np.r_[0.1 - slope, slope]]))
        object.__setattr__(self, "_within", case.within)

    @property
    def cells(self) -> Array:
        """(G, 2 B): share in each bin of label 0, then of label 1."""
        found: Array = self._cells  # type: ignore[attr-defined]
        return found

    @property
    def exact_aucs(self) -> Array:
        """True AUC of each group; people of the large one are ranked by chance within a bin."""
        negative, positive = self.cells[:, : coverage.BINS], self.cells[:, coverage.BINS :]
        tied = (negative * positive).sum(axis=1) / negative.sum(axis=1) / positive.sum(axis=1)
        within = np.array([self._within, 0.5])  # type: ignore[attr-defined]
        return np.asarray(self.aucs + (within - 0.5) * tied)


def of_rates(case: Rates, epsilon: float, times: int, seed: int) -> dict[str, float]:
    """Violation, largest gap and verdicts."""
    generator = np.random.default_rng(seed)
    population = measure.Population(np.array(case.sizes), np.array(case.rates))
    exact = population.draw(times, generator)
    return _shares([_held(noisy, population) for _, noisy in measure.answers(exact, epsilon, generator)])


def of_persons(case: Rates, epsilon: float, times: int, seed: int, *, alike: bool) -> dict[str, float]:
    """The same with ten rows of each person; without ``alike`` each row has a decision of its own."""
    generator = np.random.default_rng(seed)
    population = measure.Population(np.array(case.sizes), np.array(case.rates))
    if alike:
        exact = ROWS_EACH * population.draw(times, generator)
    else:
        persons = ROWS_EACH * population.draw(times, generator).sum(axis=2).astype(int)
        positive = generator.binomial(persons, population.rates)
        exact = np.stack([persons - positive, positive, 0 * persons, 0 * persons], axis=-1).astype(float)
    rows = float(ROWS_EACH * sum(case.sizes))
    repeats = (Repeats(np.array([0.0, rows]), np.array([0.0, ROWS_EACH * rows])),)
    parts = [
        _held(replace(noisy, repeats=repeats, rest_repeats=repeats), population)
        for _, noisy in measure.answers(exact, epsilon, generator, ROWS_EACH)
    ]
    return _shares(parts)


def of_auc(case: Ranked, epsilon: float, times: int, seed: int) -> dict[str, float]:
    """Binned AUC, and bounds of the exact one, of both groups at once."""
    generator = np.random.default_rng(seed)
    population = Scored(case)
    parts = []
    for _, scores, _ in coverage.answers(population, epsilon, times, generator):
        value, lower, upper = scores.binned_auc(CONFIDENCE)
        least, most = scores.auc_bounds(CONFIDENCE)
        parts.append(
            {
                "answered": ~np.isnan(value).any(axis=-1),
                "coverage": _inside(lower, population.aucs, upper).all(axis=-1),
                "exact_auc": _inside(least, population.exact_aucs, most).all(axis=-1),
            }
        )
    return _shares(parts)


def _shares(parts: list[dict[str, Any]]) -> dict[str, float]:
    found = {name: float(np.concatenate([part[name] for part in parts]).mean()) for name in parts[0]}
    fifths = [found.pop(f"four_fifths_{answer}", math.nan) for answer in ("below", "above")]
    return dict.fromkeys(MEASURES, math.nan) | found | {"wrong_four_fifths": max(fifths)}


def _inside(lower: Any, truth: Any, upper: Any) -> Any:
    slack = 1e-9  # bounds of 0 and 1 are rounded
    return (lower <= truth + slack) & (truth <= upper + slack)


def _held(noisy: NoisyRates, population: measure.Population) -> dict[str, NDArray[np.bool_]]:
    """Whether bounds hold and verdicts are wrong, by sample; the threshold is the true violation."""
    rates, enough = population.rates, noisy.enough[..., 0]
    known, some = enough.sum(axis=1) >= 2, enough.any(axis=1)
    true = float(rates.max() - rates.min())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # samples in which no group is known
        of_known = np.where(enough, rates, np.nan)
        violation = np.nanmax(of_known, axis=1) - np.nanmin(of_known, axis=1)
        gap = np.nanmax(np.abs(of_known - population.overall), axis=1)
        _, lower, upper = noisy.largest_difference("between_groups", CONFIDENCE)
        _, gap_lower, gap_upper = noisy.largest_difference("to_overall", CONFIDENCE)
        at_most = noisy.largest_difference_at_most(CONFIDENCE)
        found = {
            "answered": known,
            "coverage": _inside(lower, violation, upper) | ~known,
            "largest_gap": _inside(gap_lower, gap, gap_upper) | ~some,
            "wrong_below": (at_most < true - 1e-9) & enough.all(axis=1),
            "wrong_above": lower > true + 1e-9,
        }
        if math.isclose(rates.min() / rates.max(), FOUR_FIFTHS):
            least, most = smallest_ratio_bounds(noisy, None, CONFIDENCE)
            # Each of the two mistakes is promised to be rare by itself; at a ratio of 0.8 both are possible.
            found["four_fifths_above"] = least > FOUR_FIFTHS + 1e-9
            found["four_fifths_below"] = most < FOUR_FIFTHS - 1e-9
    return found


def _cases() -> Iterator[tuple[str, str]]:
    yield from (("rates", name) for name in RATES)
    yield from (("auc", name) for name in AUC)
    yield from ((f"persons, rows {kind}", name) for name in PERSONS for kind in ("alike", "independent"))


def cells(*, quick: bool) -> list[Cell]:
    """All cases; quick: every second one at one epsilon."""
    cases = list(_cases())[:: 2 if quick else 1]
    return [
        Cell(
            "corners",
            SIMULATED,
            "demographic_parity",
            part,
            0,
            epsilon=epsilon,
            settings={"case": name},
            recipe=f"{SIMULATIONS} simulations, {2 if name in AT_FOUR_FIFTHS else 1}",
        )
        for part, name in cases
        for epsilon in ((1.0,) if quick else EPSILONS)
    ]


def work(cell: Cell) -> dict[str, float]:
    """One case at one epsilon."""
    name, times = str(cell.settings["case"]), SIMULATIONS
    if cell.method == "rates":
        case = RATES[name]
        return of_rates(case, cell.epsilon, times // 4 if len(case.sizes) == 5 else times, cell.noise_seed)
    if cell.method == "auc":
        return of_auc(AUC[name], cell.epsilon, times, cell.noise_seed)
    return of_persons(PERSONS[name], cell.epsilon, times, cell.noise_seed, alike=cell.method.endswith("alike"))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One line per case, with each number at all epsilons."""
    table = results.assign(case=setting(results, "case"), part=results["method"])
    order = {pair: place for place, pair in enumerate(_cases())}
    place = [order[pair] for pair in zip(table["part"], table["case"], strict=True)]
    return table.assign(place=place).sort_values(["place", "epsilon"])[["part", "case", "epsilon", *MEASURES]]


def markdown(results: pd.DataFrame) -> str:
    """Three tables of the page on measurement; numbers at the three epsilons side by side."""
    table = summarise(results)
    parts = (
        (
            "Rates of 0 and 1",
            "rates",
            ("coverage", "largest_gap", "wrong_below", "wrong_above", "wrong_four_fifths", "answered"),
        ),
        ("AUC by group, beside 58,500 rows", "auc", ("coverage", "exact_auc", "answered")),
        (
            "Ten rows per person",
            "persons",
            ("coverage", "largest_gap", "wrong_below", "wrong_above", "answered"),
        ),
    )
    names = {
        "coverage": "violation holds",
        "largest_gap": "largest gap holds",
        "wrong_below": 'wrong "below"',
        "wrong_above": 'wrong "above"',
        "wrong_four_fifths": "wrong four fifths, the more frequent mistake",
        "exact_auc": "bounds of the exact AUC hold",
        "answered": "answered",
    }
    lines = [f"In each cell: ε = {', '.join(_epsilon(one) for one in sorted(set(table['epsilon'])))}."]
    for title, part, columns in parts:
        heads = [("binned AUC holds" if (part, one) == ("auc", "coverage") else names[one]) for one in columns]
        lines += ["", f"| {title} | {' | '.join(heads)} |", "|---|" + "---|" * len(columns)]
        here = table[table["part"].str.startswith(part)]
        for (kind, case), rows in here.groupby(["part", "case"], sort=False):
            told = [" ".join("-" if math.isnan(x) else f"{x:.3f}" for x in rows[one]) for one in columns]
            shown = [one if set(one.split()) != {"-"} else "" for one in told]
            lines.append(f"| {case}{kind.removeprefix(part)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The numbers."""
    del folder
    return str(summarise(results).round(3).to_string(index=False))


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is promised of bounds and verdicts, held against the simulations."""
    found = []
    times = pd.Series(SIMULATIONS, index=results.index, dtype=float)
    times[setting(results, "case").astype(str).str.startswith("five of")] /= 4
    error = (CONFIDENCE * (1 - CONFIDENCE) / times) ** 0.5
    for name, words in (
        ("coverage", "Bounds of the violation and of the binned AUC"),
        ("largest_gap", "Bounds of the largest gap to the population"),
        ("exact_auc", "Bounds of the AUC of exact scores"),
    ):
        values = results[name].dropna()
        sentence = f"{words}: coverage is at least 95%, less three standard errors of the simulation."
        numbers = f"from {values.min():.3f} to {values.max():.3f}, median {values.median():.3f}, {len(values)} cells"
        found.append(Claim(sentence, bool((values >= CONFIDENCE - 3 * error[values.index]).all()), numbers))
    verdicts = ["wrong_below", "wrong_above", "wrong_four_fifths"]
    wrong = results[verdicts].max()
    # NaN, where there is no verdict, is not above anything.
    over = results[verdicts].gt(1 - CONFIDENCE + 3 * error, axis=0)
    sentence = (
        "Verdicts at the true value: each mistake in at most 5%, but for three standard errors of the simulation."
    )
    numbers = ", ".join(f"{name.replace('_', ' ')} at most {value:.3f}" for name, value in wrong.items())
    found.append(Claim(sentence, not over.to_numpy().any(), numbers))
    return found


CORNERS = Experiment("corners", cells, publish, (), claims, work=work, measures=MEASURES, table=markdown)
