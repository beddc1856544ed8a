"""Coverage and width of the private measurement's bounds: 2 and 5 groups, 30 to 30,000 people in each.

Each cell draws samples from a known population, notes what one release would answer, and counts how often the bounds
hold the truth. The noisy answers are drawn directly, many at once; a test holds them against ``justitia.measure``.
Folds of Income show the widths on real data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.draw import STYLE, legend, log_axis, panels, save, styles
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, dataset, paper_features
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from bench.rivals import PlainClassifier
from justitia.metrics.bounds import NoisyRates
from justitia.metrics.measure import measure
from justitia.metrics.quantiles import sidak_quantile
from justitia.metrics.rates import METRICS, make_rows
from justitia.privacy.accounting import gaussian_mu

SIMULATIONS = 2000
#: The dataset of cells that need none.
SIMULATED = "simulated"
CONFIDENCE = 0.95
DELTA = 1e-5
EPSILONS = (0.1, 0.5, 1.0, 5.0)
SIZES: dict[str, dict[int, tuple[int, ...]]] = {
    **{f"{size}": {G: (size,) * G for G in (2, 5)} for size in (30, 300, 3000, 30000)},
    "mixed": {2: (30, 30000), 5: (30, 300, 3000, 30000, 3000)},
}
RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "equal": {2: (0.3, 0.3), 5: (0.3,) * 5},
    "unequal": {2: (0.3, 0.5), 5: (0.2, 0.25, 0.3, 0.35, 0.45)},
    "rare": {2: (0.02, 0.02), 5: (0.02,) * 5},
}
#: Shares are over the simulations with two groups known; "always" counts "not enough evidence" as an answer that holds.
MEASURES = (
    *("known", "violation", "violation_always", "too_low", "too_high", "width"),
    *("differences", "largest_gap", "rates", "simulations"),
)


@dataclass(frozen=True)
class Population:
    """Groups with their expected numbers of people and their true rates."""

    sizes: NDArray[np.int64]
    rates: NDArray[np.float64]

    @property
    def overall(self) -> float:
        """The rate of everybody."""
        return float(self.sizes @ self.rates / self.sizes.sum())

    def draw(self, times: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """People by sample, group and cell of (label 0, decision), (times, G, 4)."""
        total = int(self.sizes.sum())
        people = generator.multinomial(total, self.sizes / total, size=times)
        positive = generator.binomial(people, self.rates)
        nobody = np.zeros_like(people)
        return np.stack([people - positive, positive, nobody, nobody], axis=-1).astype(float)


def noise_scale(epsilon: float) -> float:
    """Standard deviation of the noise of one entry of the answer."""
    return 0.0 if math.isinf(epsilon) else math.sqrt(2) / gaussian_mu(epsilon, DELTA)


def answers(
    exact: NDArray[np.float64], epsilon: float, generator: np.random.Generator, rows_each: int = 1
) -> Iterator[tuple[NDArray[np.int64], NoisyRates]]:
    """What a release about selection rates answers for many samples, those with the same cells occupied together.

    ``rows_each``: rows of one person, all of which are protected at once.
    """
    totals = exact.sum(axis=1)
    patterns, kind = np.unique(totals > 0, axis=0, return_inverse=True)
    for place in range(len(patterns)):
        which = np.flatnonzero(kind.ravel() == place)
        rows = make_rows([METRICS["selection_rate"]], totals[which])
        cells = exact[which] @ (rows.cell[:, None] == np.arange(len(rows.vectors[0]))).astype(float)
        blocks = np.concatenate([cells, np.zeros_like(cells[:, :1])], axis=1) @ rows.vectors  # nobody is "not given"
        scale = rows_each * noise_scale(epsilon)
        noisy = blocks + scale * generator.standard_normal(blocks.shape)
        noisy += (blocks.sum(axis=1, keepdims=True) - noisy.sum(axis=1, keepdims=True)) / blocks.shape[1]
        yield which, rows.read(noisy[:, :-1], scale**2)


def coverage(population: Population, epsilon: float, times: int, seed: int) -> dict[str, float]:
    """How often the bounds hold the truth."""
    generator = np.random.default_rng(seed)
    exact = population.draw(times, generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # samples in which no group is known have no truth to hold
        parts = [_held(noisy, population) for _, noisy in answers(exact, epsilon, generator)]
    table = pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    known = table[table["known"]]
    shares = {name: float(known[name].mean()) for name in ("violation", "too_low", "too_high", "width", "differences")}
    some = table[table["some"]]
    return {
        **shares,
        "known": float(table["known"].mean()),
        "violation_always": float((table["violation"] | ~table["known"]).mean()),
        "largest_gap": float(some["largest_gap"].mean()),
        "rates": float(table["rates"].mean()),
        "simulations": len(table),
    }


def _held(noisy: NoisyRates, population: Population) -> dict[str, NDArray[Any]]:
    enough, truth = noisy.enough[..., 0], population.rates
    of_known = np.where(enough, truth, np.nan)
    violation = np.nanmax(of_known, axis=1) - np.nanmin(of_known, axis=1)
    estimate, lower, upper = noisy.largest_difference("between_groups", CONFIDENCE)
    gap = np.nanmax(np.abs(of_known - population.overall), axis=1)
    _, gap_lower, gap_upper = noisy.largest_difference("to_overall", CONFIDENCE)
    low, high = (bound[..., 0] for bound in noisy.interval(sidak_quantile(CONFIDENCE, len(truth))))
    first, second = np.triu_indices(len(truth), 1)
    _, pair_low, pair_high = noisy.differences(noisy.simultaneous_quantile("between_groups", CONFIDENCE))
    true_pair = (truth[first] - truth[second])[:, None]
    slack = 1e-12  # equal rates differ by 0, and bounds of 0 are rounded
    return {
        "known": ~np.isnan(estimate),
        "some": enough.any(axis=1),
        "violation": (lower <= violation + slack) & (violation <= upper + slack),
        "too_low": upper < violation - slack,
        "too_high": lower > violation + slack,
        "width": upper - lower,
        "differences": ~((pair_low > true_pair + slack) | (pair_high < true_pair - slack)).any(axis=(1, 2)),
        "largest_gap": (gap_lower <= gap + slack) & (gap <= gap_upper + slack),
        "rates": ((low <= truth) & (truth <= high)).all(axis=1),
    }


def cells(*, quick: bool) -> list[Cell]:
    """The grid of simulations, and five folds of Income; quick: one epsilon, one fold."""
    simulated = [
        Cell(
            "measure",
            SIMULATED,
            "demographic_parity",
            f"{rates} rates",
            0,
            epsilon=epsilon,
            settings={"groups": groups, "sizes": sizes},
            recipe=f"{SIMULATIONS} simulations of {SIZES[sizes][groups]} at {RATES[rates][groups]}, rows and bounds 3",
        )
        for groups in (2, 5)
        for sizes in SIZES
        for rates in RATES
        for epsilon in ((0.5,) if quick else EPSILONS)
    ]
    folds = [
        Cell("measure", "income", notion, "plain network", fold, epsilon=epsilon, recipe="rows and bounds 3")
        for notion in ("demographic_parity", "equalized_odds")
        for fold in range(1 if quick else FOLDS)
        for epsilon in ((0.5,) if quick else EPSILONS)
    ]
    return folds + simulated


def work(cell: Cell) -> dict[str, float]:
    """One cell of the grid, or one fold."""
    if cell.dataset == "income":
        return fold_width(cell)
    groups, sizes = int(cell.settings["groups"]), str(cell.settings["sizes"])
    population = Population(np.array(SIZES[sizes][groups]), np.array(RATES[cell.method.removesuffix(" rates")][groups]))
    return coverage(population, cell.epsilon, int(cell.recipe.split()[0]), cell.noise_seed)


_DECISIONS: dict[int, tuple[Any, Any, Any]] = {}


def decisions(fold: int) -> tuple[Any, Any, Any]:
    """Labels, decisions of a plain network and attributes of a test fold of Income."""
    if fold not in _DECISIONS:
        train, test = list(dataset("income").folds(FOLDS))[fold]
        data = paper_features(dataset("income"), train)
        model = PlainClassifier(epochs=5, random_state=fold).fit(data.X.iloc[train], data.y.iloc[train])
        _DECISIONS[fold] = data.y.iloc[test], model.predict(data.X.iloc[test]), data.sensitive.iloc[test]
    return _DECISIONS[fold]


def fold_width(cell: Cell) -> dict[str, float]:
    """Width of the violation's bounds on a fold; it has no known truth, so there is no coverage."""
    truth, decided, sensitive = decisions(cell.fold)
    found = measure(
        truth,
        decided,
        sensitive_features=sensitive,
        groups=dataset("income").groups,
        notion=cell.notion,
        epsilon=cell.epsilon,
        delta=DELTA,
        confidence=CONFIDENCE,
        noise_seed=cell.noise_seed,
    )
    nothing = dict.fromkeys(MEASURES, math.nan)
    return nothing | {"known": 1.0, "width": found.violation.width, "simulations": 1}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """The grid as a table."""
    part = results[results["dataset"] == SIMULATED]
    labelled = part.assign(
        groups=setting(part, "groups").astype(int), sizes=setting(part, "sizes"), rate=part["method"]
    )
    order = {name: place for place, name in enumerate(SIZES)}
    columns = ["groups", "sizes", "rate", "epsilon"]
    table = labelled[[*columns, *(name for name in MEASURES if name != "rates"), "rates"]]
    return table.sort_values(columns, key=lambda c: c.map(order) if c.name == "sizes" else c).reset_index(drop=True)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw coverage and width over epsilon; return the numbers."""
    table = summarise(results)
    style = styles(SIZES)
    rates = list(dict.fromkeys(table["rate"]))
    figure, axes = panels(4, len(rates), width=2.6, height=1.8)
    with mpl.rc_context(STYLE):
        for (i, groups), (j, rate) in product(enumerate((2, 5)), enumerate(rates)):
            part = table[(table["groups"] == groups) & (table["rate"] == rate)]
            coverage, width = axes[2 * i, j], axes[2 * i + 1, j]
            for ax, name in ((coverage, "violation_always"), (width, "width")):
                for sizes, look in style.items():
                    line = part[part["sizes"] == sizes]
                    ax.plot(line["epsilon"], line[name], label=f"{sizes} rows", **look)
                log_axis(ax, part["epsilon"].tolist())
            coverage.set_ylim(0.9, 1.005)
            coverage.axhline(CONFIDENCE, color="#888888", linewidth=0.8)
            coverage.set_title(f"{groups} groups, {rate}")
            coverage.set_ylabel("coverage" if j == 0 else "")
            width.set_yscale("log")
            width.set_ylim(table["width"].min() / 1.2, table["width"].max() * 1.2)
            width.set_ylabel("width" if j == 0 else "")
        for ax in axes[-1]:
            ax.set_xlabel("privacy budget ε")
        legend(figure, axes[1, -1])
    save(figure, table, folder / "figures", "measure")
    income = results[results["dataset"] == "income"].groupby(["notion", "epsilon"])["width"].agg(["mean", "max"])
    return f"{table.round(3).to_string(index=False)}\n\nIncome, width of the bounds\n{income.round(4).to_string()}"


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is promised of the bounds, held against the simulations."""
    table = summarise(results)
    # Three standard errors of a share of 0.95 among as many simulations.
    floor = CONFIDENCE - 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / table["simulations"].max())
    found = []
    for name, words in (
        ("violation_always", "The violation"),
        ("largest_gap", "The largest gap to the population"),
        ("rates", "All rates by group at once"),
    ):
        values = table[name].dropna()
        numbers = f"from {values.min():.3f} to {values.max():.3f}, median {values.median():.3f}, {len(values)} cells"
        sentence = f"{words}: no cell's coverage is below 95% by more than three standard errors ({floor:.3f})."
        found.append(Claim(sentence, bool((values >= floor).all()), numbers))
    known = table[(table["known"] > 0.9) & (table["rate"] != "rare rates")]
    inside = known["violation"].between(0.94, 0.99)
    numbers = f"{int(inside.sum())} of {len(known)} cells; from {known['violation'].min():.3f} to "
    numbers += f"{known['violation'].max():.3f}"
    sentence = "Where groups are known and rates are not rare, the violation's coverage is between 94% and 99%."
    found.append(Claim(sentence, bool(inside.all()), numbers))
    income = results[(results["dataset"] == "income") & (results["epsilon"] == 0.5)]
    widths = income[income["notion"] == "demographic_parity"]["width"]
    sentence = "Income test folds at epsilon 0.5: bounds of the demographic-parity violation are narrower than 0.05."
    found.append(Claim(sentence, bool((widths < 0.05).all()), f"widest {widths.max():.4f}"))
    return found


MEASURE = Experiment("measure", cells, publish, ("measure",), claims, work=work, measures=MEASURES)
