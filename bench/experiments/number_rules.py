"""Evidence for the defaults of the regressor: each setting changed alone, on inner splits of training rows.

A candidate replaces a default only if its value is larger by more than one standard error, on average over all places.
The value of a fit is R squared, less a price times the violation beyond the tolerance. The price of a place is what the
default itself gains in R squared per unit of violation where the tolerance is twice as large, and at least 1: moving
along the curve of the default is then no gain.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.memory import SharedBase
from bench.experiments.number_places import INNER_FOLDS, PLACES, inner_split, rows_at
from bench.experiments.rules import Candidates, described
from bench.experiments.runner import Cell
from bench.experiments.target_measures import determination, largest_distance
from justitia import LagrangianDualRegressor
from justitia.postprocessing import number_notions, number_rows, target_distribution
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.tasks import NUMBER

PARITY, ERROR = "demographic_parity", "equal_error"
#: Of squared errors in units of the variance of the target.
TOLERANCE = 0.05
#: The default with twice the tolerance, which sets the price of a violation.
LOOSER: dict[str, Any] = {"tolerance": 2 * TOLERANCE}
#: Every component is kept if this is so large.
ALL = 1e9


@dataclass(frozen=True)
class Study:
    """The candidates of one notion and budget, and where they are tried."""

    notion: str
    epsilon: float
    places: tuple[str, ...]
    candidates: Candidates

    def of(self, results: pd.DataFrame) -> pd.DataFrame:
        """Its own fits."""
        return results[(results["notion"] == self.notion) & (results["epsilon"] == self.epsilon)]


EVERYWHERE = tuple(place.name for place in PLACES)
#: The first candidate is the default.
STUDIES = (
    Study(
        PARITY,
        1.0,
        EVERYWHERE,
        (
            {},
            LOOSER,
            *({"CONSTANT": value} for value in (0.25, 1.0)),
            *({"COLUMN": value} for value in (0.15, 1.0)),
            *({"KEPT": value} for value in (0.2, 0.8)),
            *({"OFF": value} for value in (0.125, 0.5, ALL)),
            {"LEAST": 8},
            *({"share_moments": value} for value in (0.3, 0.7)),
            *({"checks": value} for value in (2, 8)),
            *({"trust": value} for value in (0.05, 0.2)),
        ),
    ),
    # Which components are kept is a matter of the noise, and hardly of a budget of 1.
    Study(
        PARITY,
        0.25,
        EVERYWHERE,
        (
            {},
            LOOSER,
            *({"KEPT": value} for value in (0.2, 0.8)),
            *({"OFF": value} for value in (0.125, 0.5, ALL)),
            *({"LEAST": value} for value in (1, 8)),
        ),
    ),
    Study(
        ERROR,
        1.0,
        ("communities", "hours"),
        (
            {},
            LOOSER,
            *({"KEPT_ERRORS": value} for value in (0.9, 1.0)),
            *({"BINS": value} for value in (4, 16)),
            {"STRATA": 1},
            *({"COLUMN": value} for value in (0.15, 1.0)),
            *({"share_moments": value} for value in (0.3, 0.7)),
        ),
    ),
)
#: Constants by their names; other settings are of the plan.
CONSTANTS: dict[str, ModuleType] = {
    **dict.fromkeys(("CONSTANT", "COLUMN", "KEPT", "OFF", "LEAST"), number_rows),
    "KEPT_ERRORS": number_notions,
    **dict.fromkeys(("BINS", "STRATA"), target_distribution),
}
#: Each makes other inner folds and other noise.
SEEDS = (0, 1)
DELTA = 1e-5
MEASURES = ("r2", "violation", "seconds")
#: A price needs violations that differ by this much.
APART = 0.01


def cells(*, quick: bool) -> list[Cell]:
    """Every candidate everywhere; quick: the first three on one inner fold of two places."""
    return [
        replace(cell, recipe=recipe(cell))
        for seed in (SEEDS[:1] if quick else SEEDS)
        for study in STUDIES
        for name in (study.places[:2] if quick else study.places)
        for fold in range(1 if quick else INNER_FOLDS)
        for candidate in (study.candidates[:3] if quick else study.candidates)
        for cell in [
            Cell("number_rules", name, study.notion, "regressor", fold, seed, study.epsilon, "inner", candidate)
        ]
    ]


def recipe(cell: Cell) -> str:
    """Every constant and the plan, as they are in this cell."""
    with changed(cell.settings):
        constants = {name: getattr(module, name) for name, module in CONSTANTS.items()}
        return f"{PostProcessingPlan(**plan_settings(cell.settings))} {constants}"


def plan_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a candidate changes in the plan."""
    return {name: value for name, value in settings.items() if name not in CONSTANTS and name != "tolerance"}


@contextmanager
def changed(settings: Mapping[str, Any]) -> Iterator[None]:
    """The library with the constants of a candidate."""
    with ExitStack() as stack:
        for name in settings:
            if name in CONSTANTS:
                stack.enter_context(patch.object(CONSTANTS[name], name, settings[name]))
        yield


def work(cell: Cell) -> dict[str, float]:
    """Fit on inner training rows; R squared and violation on the other inner rows."""
    data = rows_at(cell.dataset)
    train, test = inner_split(data, cell.fold, cell.seed)
    y = data.y.to_numpy()
    unit = float(np.var(y[train])) if cell.notion == ERROR else 1.0
    model = LagrangianDualRegressor(
        cell.notion,
        epsilon=cell.epsilon,
        delta=DELTA,
        tolerance=unit * float(cell.settings.get("tolerance", TOLERANCE)),
        groups=data.groups,
        base=SharedBase((cell.dataset, cell.seed, cell.fold), NUMBER),
        plan=PostProcessingPlan(**plan_settings(cell.settings)),
        random_state=cell.seed,
        noise_seed=replace(cell, settings={}).noise_seed,  # the same for all candidates
        progress=False,
    )
    start = time.perf_counter()
    with warnings.catch_warnings(), changed(cell.settings):
        warnings.simplefilter("ignore", UserWarning)
        model.fit(data.X.iloc[train], y[train], sensitive_features=data.sensitive.iloc[train])
    seconds = round(time.perf_counter() - start, 2)
    predicted = model.predict(data.X.iloc[test])
    codes = pd.Categorical(data.sensitive.iloc[test], categories=list(data.groups)).codes.astype(np.int64)
    if cell.notion == ERROR:
        errors = [np.mean((y[test] - predicted)[codes == a] ** 2) for a in range(len(data.groups))]
        violation = float(max(errors) - min(errors)) / unit
    else:
        violation = largest_distance(predicted, codes, len(data.groups))
    return {"r2": determination(y[test], predicted), "violation": violation, "seconds": seconds}


def prices(results: pd.DataFrame) -> dict[str, float]:
    """R squared that the default gains per unit of violation with twice the tolerance, at least 1, by place."""
    found = {}
    for name, part in results.groupby("dataset", sort=False):
        means = part.groupby("settings")[["r2", "violation"]].mean()
        found[str(name)] = 1.0
        if json.dumps(LOOSER) in means.index:
            more = means.loc[json.dumps(LOOSER)] - means.loc["{}"]
            if more["violation"] > APART:
                found[str(name)] = max(1.0, float(more["r2"] / more["violation"]))
    return found


def with_values(results: pd.DataFrame) -> pd.DataFrame:
    """The fits of one study with their values, and how much larger each is than the default's on the same rows."""
    beyond = (results["violation"] - TOLERANCE).clip(lower=0.0)
    found = results.assign(value=results["r2"] - results["dataset"].map(prices(results)) * beyond)
    same = ["dataset", "seed", "fold"]
    default = found.loc[found["settings"] == "{}"].set_index(same)["value"].rename("default_value")
    found = found.join(default, on=same)
    return found.assign(more=found["value"] - found["default_value"])


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """A row per study and candidate: R squared and violation at each place, and the mean gain with its error.

    The standard error is the larger of two: that over places, which a default has to serve all, and that of the fits
    within them, since few places may agree by chance.
    """
    rows = []
    for study in STUDIES:
        fits = study.of(results)
        fits = fits if fits.empty else with_values(fits)
        for candidate in study.candidates:
            part = fits[fits["settings"] == json.dumps(candidate, sort_keys=True)]
            if part.empty:
                continue
            each = part.groupby("dataset", sort=False)[["r2", "violation", "more"]].mean()
            facts: dict[str, Any] = {"notion": study.notion, "epsilon": study.epsilon}
            facts |= {"settings": part["settings"].iloc[0], "fits": len(part)}
            facts |= {"r2": each["r2"].mean(), "violation": each["violation"].mean(), "more": each["more"].mean()}
            facts["error"] = _error(part)
            facts["places"] = {name: (row["r2"], row["violation"]) for name, row in each.iterrows()}
            rows.append(facts)
    return pd.DataFrame(rows)


def _error(part: pd.DataFrame) -> float:
    groups = part.groupby("dataset")["more"]
    means, n = groups.mean(), groups.ngroups
    among = float(means.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    within = math.sqrt(float((groups.var(ddof=1) / groups.size()).fillna(0.0).sum())) / n
    return max(among, within)


def markdown(results: pd.DataFrame) -> str:
    """For each study a row per candidate and a column per place: R squared / violation."""
    table, titles, parts = summarise(results), {place.name: place.title for place in PLACES}, []
    for study in STUDIES:
        rows, places = study.of(table), study.places
        if rows.empty:
            continue
        heads = [titles[name] for name in places]
        first = f"{name_of(study.notion)}, ε = {study.epsilon:g}"
        lines = [f"| {first} | {' | '.join(heads)} | mean | value, beside the default's |"]
        lines.append("|---|" + "---:|" * (len(places) + 2))
        for row in rows.to_dict("records"):
            pairs = [row["places"].get(name) for name in places] + [(row["r2"], row["violation"])]
            entries = ["-" if pair is None else f"{pair[0]:.3f} / {pair[1]:.3f}" for pair in pairs]
            gain = "" if row["settings"] == "{}" else f"{row['more']:+.4f} ± {row['error']:.4f}"
            lines.append(f"| {_described(row['settings'])} | {' | '.join(entries)} | {gain} |")
        found = prices(study.of(results))
        paid = "; ".join(f"{titles[name]} {found[name]:.1f}" for name in places if name in found)
        parts += ["\n".join(lines), f"Price of a violation: {paid}."]
    return "\n\n".join(parts)


def _described(settings: str) -> str:
    return "all components" if json.loads(settings) == {"OFF": ALL} else described(settings)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write ``number_rules.md``; return the means for the terminal."""
    (folder / "number_rules.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return summarise(results).drop(columns="places").round(4).to_string(index=False)


NUMBER_RULES = Experiment("number_rules", cells, publish, work=work, table=markdown, measures=MEASURES)
