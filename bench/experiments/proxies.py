"""Proxies of the group: fits without one, with a simulated one, and with columns of pure noise, on the same folds.

A simulated proxy equals the group in a share of the training rows and is drawn at random in the others. All fits of a
fold share the predictions of one base model, and all candidates of a draw the seed of the noise. ``proxies_inner`` has
inner splits of training rows, on which settings were chosen; ``proxies`` has the test folds.

Violations are exact numbers on public test folds; they are not private.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, INNER_FOLDS, dataset, paper_features
from bench.experiments.memory import SharedBase
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.datasets import Dataset
from justitia.datasets.dataset import Index
from justitia.metrics.exact import violation
from justitia.postprocessing import features, proxies

PLACES = ("compas", "communities", "bank")
NOTIONS = ("demographic_parity", "equalized_odds")
EPSILONS = (1.0, 0.25)
NONE, NOISE = "none", "noise"
#: Shares of rows whose proxy is the group, beside no proxy and pure noise.
CANDIDATES: tuple[str | float, ...] = (NONE, NOISE, 0.75, 0.9)
WORDS = {NONE: "no proxy", NOISE: "pure noise"}
#: Where the strongest proxy is tried, too.
STRONG = ("bank", "equalized_odds")
NOISE_COLUMNS = 2
#: Shuffle that makes the inner folds.
SEED = 7
MEASURES = ("accuracy", "violation", "seconds")


@dataclass(frozen=True)
class Study:
    """The same fits on inner or on outer folds.

    Parameters
    ----------
    name : str
    split : "inner" or "test"
    draws : int
        Of proxies and noise, on every fold.
    """

    name: str
    split: str
    draws: int

    def cells(self, *, quick: bool) -> list[Cell]:
        """All candidates of a fold together, because they share its base; quick: one fold of Compas."""
        folds = INNER_FOLDS if self.split == "inner" else FOLDS
        seed = SEED if self.split == "inner" else 0
        recipe = f"{PostProcessingPlan()} {features.PROXY_LENGTH} {proxies.TREES} {proxies.PATIENCE} {proxies.SIZE}"
        return [
            Cell(self.name, place, notion, "proxies", fold, seed, epsilon, self.split, settings, recipe)
            for fold in range(1 if quick else folds)
            for place in (PLACES[:1] if quick else PLACES)
            for notion in (NOTIONS[:1] if quick else NOTIONS)
            for epsilon in (EPSILONS[1:] if quick else EPSILONS)
            for draw in range(1 if quick else self.draws)
            for proxy in (CANDIDATES if (place, notion) == STRONG else CANDIDATES[:-1])
            for settings in [{"proxy": proxy, "draw": draw}]
        ]

    def experiment(self) -> Experiment:
        """As a command."""
        return Experiment(self.name, self.cells, publish, claims=claims, work=work, measures=MEASURES, table=markdown)


def rows_of(name: str) -> Dataset:
    """A dataset; the number of Communities becomes a label, whether it is above the median."""
    data = dataset(name)
    return replace(data, y=(data.y > data.y.median()).astype(int)) if name == "communities" else data


def split_rows(cell: Cell, data: Dataset) -> tuple[Index, Index]:
    """Training and test rows; an inner split stays within the training rows of fold 0."""
    outer = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(data.y)), data.y))
    if cell.split != "inner":
        return outer[cell.fold]
    rows = outer[0][0]
    inner = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=cell.seed)
    train, test = list(inner.split(np.zeros(len(rows)), data.y.iloc[rows]))[cell.fold]
    return rows[train], rows[test]


def simulated(proxy: str | float, data: Dataset, train: Index, seed: int) -> NDArray[Any] | None:
    """The proxy of the training rows; with equal seeds, one of a larger share is right wherever another one is."""
    random = np.random.default_rng(seed)
    if proxy == NONE:
        return None
    if proxy == NOISE:
        return random.normal(size=(len(train), NOISE_COLUMNS))
    chance, other = random.random(len(train)), random.integers(0, len(data.groups), len(train))
    return np.where(chance < float(proxy), data.sensitive.iloc[train], np.array(data.groups)[other])


def work(cell: Cell) -> dict[str, float]:
    """Fit on training rows; accuracy and violation on the others."""
    data = rows_of(cell.dataset)
    train, test = split_rows(cell, data)
    data, draw = paper_features(data, train), int(cell.settings["draw"])
    model = LagrangianDualClassifier(
        cell.notion,
        epsilon=cell.epsilon,
        groups=data.groups,
        base=SharedBase((cell.dataset, cell.split, cell.seed, cell.fold)),
        random_state=0,
        noise_seed=replace(cell, settings={"draw": draw}).noise_seed,  # the same for all candidates
        progress=False,
    )
    proxy = simulated(cell.settings["proxy"], data, train, seed=1000 * draw + cell.fold)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(data.X.iloc[train], data.y.iloc[train], sensitive_features=data.sensitive.iloc[train], proxy=proxy)
    seconds = round(time.perf_counter() - start, 2)
    predicted, truth = model.predict(data.X.iloc[test]), data.y.iloc[test].to_numpy()
    groups = {"sensitive_features": data.sensitive.iloc[test], "notion": cell.notion, "groups": data.groups}
    measured = violation(truth, predicted, **groups)
    return {"accuracy": float(np.mean(predicted == truth)), "violation": measured, "seconds": seconds}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """A row per place, notion, epsilon and proxy, with paired differences to no proxy and their standard errors.

    ``better`` is the difference of accuracy less violation. Draws of a fold are averaged first; errors are over folds.
    """
    labelled = results.assign(proxy=setting(results, "proxy"), better=results["accuracy"] - results["violation"])
    by = ["dataset", "notion", "epsilon", "proxy"]
    folds = labelled.groupby([*by, "fold"], sort=False)[["accuracy", "violation", "better"]].mean()
    rows = []
    for key, part in folds.groupby(by, sort=False):
        facts: dict[str, Any] = dict(zip(by, key, strict=True))
        own = part.droplevel(by)
        more = own - folds.loc[(*key[:3], NONE)]
        facts |= {"folds": len(own), "accuracy": own["accuracy"].mean(), "violation": own["violation"].mean()}
        for name in ("accuracy", "violation", "better"):
            facts |= {f"{name}_more": more[name].mean(), f"{name}_error": more[name].std(ddof=1) / math.sqrt(len(more))}
        rows.append(facts)
    order = {name: k for k, name in enumerate(PLACES)}
    table = pd.DataFrame(rows)
    table["place"] = table["dataset"].map(order)
    return table.sort_values(["place", "notion", "epsilon"], ascending=[True, True, False], kind="stable").drop(
        columns="place"
    )


def markdown(results: pd.DataFrame) -> str:
    """A row per place, notion and epsilon, a column per proxy: accuracy / violation, and paired differences."""
    table = summarise(results)
    heads = [WORDS.get(str(one), f"equal in {100 * float(one):.0f}%" if one not in WORDS else "") for one in CANDIDATES]
    lines = [f"| accuracy / violation | {' | '.join(heads)} |", "|---|" + "---:|" * len(CANDIDATES)]
    for (place, notion, epsilon), part in table.groupby(["dataset", "notion", "epsilon"], sort=False):
        entries = [_entry(part[part["proxy"] == one]) for one in CANDIDATES]
        lines.append(f"| {name_of(place)}, {name_of(notion)}, ε = {epsilon:g} | {' | '.join(entries)} |")
    return "\n".join([*lines, "", "In brackets: differences to no proxy on the same folds, ± their standard error."])


def _entry(part: pd.DataFrame) -> str:
    if part.empty:
        return "-"
    row = part.iloc[0]
    means = f"{row['accuracy']:.3f} / {row['violation']:.3f}"
    if row["proxy"] == NONE:
        return means
    more = [f"{row[f'{name}_more']:+.3f} ± {row[f'{name}_error']:.3f}" for name in ("accuracy", "violation")]
    return f"{means} ({more[0]}; {more[1]})"


def claims(results: pd.DataFrame) -> list[Claim]:
    """Whether noise hurts anywhere, and where a proxy of 75% helps."""
    table = summarise(results)
    noise, useful = table[table["proxy"] == NOISE], table[table["proxy"] == 0.75]
    worse = noise[noise["better_more"] < -noise["better_error"]]
    helped = useful[useful["better_more"] > useful["better_error"]]
    hurt = useful[useful["better_more"] < -useful["better_error"]]
    mean = f"{noise['better_more'].mean():+.3f} on average"
    return [
        Claim(
            "A proxy of pure noise makes accuracy less violation worse by more than one standard error in no cell.",
            worse.empty,
            f"worse in {len(worse)} of {len(noise)}, {mean}",
        ),
        Claim(
            "A proxy of 75% makes it better by more than one standard error somewhere, and worse nowhere.",
            len(helped) > 0 and hurt.empty,
            f"better in {len(helped)} of {len(useful)}, worse in {len(hurt)}, "
            f"{useful['better_more'].mean():+.3f} on average",
        ),
    ]


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the table as Markdown; return the data for the terminal."""
    name = str(results["experiment"].iloc[0])
    (folder / f"{name}.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return summarise(results).round(4).to_string(index=False)


PROXIES_INNER = Study("proxies_inner", "inner", draws=1).experiment()
PROXIES = Study("proxies", "test", draws=2).experiment()
