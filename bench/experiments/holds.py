"""What was asked, and what new people get: violations on test folds for three tolerances, and distances of scores.

Exact numbers on public test folds and on synthetic people, for research; they are not private.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, fitted, measures, prepared, with_recipes
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell
from bench.experiments.stress import fit
from bench.experiments.stress_cases import WIDE, Case
from bench.experiments.stress_data import TEST_ROWS
from bench.experiments.summaries import setting
from justitia.metrics.exact import violation
from justitia.postprocessing.run import all_releases_stddev

METHOD = "PF-LD plug-in"
TOLERANCES = (0.02, 0.05, 0.1)
NOTIONS = ("demographic_parity", "equalized_odds")
#: Folds of each dataset.
PLACES = {"bank": FOLDS, "m_bank3": FOLDS, "m_bank5": FOLDS, "compas": FOLDS, "income": 2}
#: Draws of wide synthetic people.
DRAWS = 10
MEASURES = ("accuracy", "auc", "violation", "distance", "pooled", "expected", "spread", "seconds")
NAMES = {SIMULATED: "Synthetic, 16,000 rows, 100 features"}
#: Mean of Kolmogorov's distribution: what two samples of one distribution show, times the root of their size.
KOLMOGOROV = np.sqrt(np.pi / 2) * np.log(2)
#: Its standard deviation.
DEVIATION = np.sqrt(np.pi**2 / 12 - KOLMOGOROV**2)
#: Simulated violations of a rule that is at its tolerance.
SIMULATIONS = 4_000
#: Standard errors of its mean within which a rule at its tolerance is found in 39 of 40 cells.
ERRORS = 2


def cells(*, quick: bool) -> list[Cell]:
    """Every tolerance everywhere, and scores where they are shown, all folds in one cell; quick: one fold of Bank."""
    places = {"bank": 1} if quick else PLACES
    real = [
        Cell("holds", name, notion, METHOD, fold, settings={"tolerance": tolerance})
        for name, folds in places.items()
        for notion in NOTIONS
        for tolerance in TOLERANCES
        for fold in range(folds)
    ]
    scores = [Cell("holds", name, NOTIONS[0], METHOD, 0, settings={"at": "scores"}) for name in ("bank", "income")]
    wide = [
        Cell("holds", SIMULATED, notion, METHOD, draw, settings={"tolerance": tolerance}, recipe="eighth edition")
        for notion in NOTIONS
        for tolerance in TOLERANCES
        for draw in range(DRAWS)
    ]
    return with_recipes(real) if quick else [*with_recipes([*real, *scores]), *wide]


def work(cell: Cell) -> dict[str, float]:
    """Fit one cell, and look at people who were not there."""
    if cell.settings.get("at") == "scores":
        return _scores(cell)
    if cell.dataset == SIMULATED:
        return _wide(cell)
    data, train, found = fitted(cell)
    _, _, test = prepared(cell)
    model = found["model"]
    truth, seen = ((data.y.iloc[rows] == model.classes_[1]).to_numpy().astype(int) for rows in (test, train))
    decided = (model.predict(data.X.iloc[test]) == model.classes_[1]).astype(int)
    groups = data.sensitive.iloc[test], data.sensitive.iloc[train]
    auc = roc_auc_score(truth, model.predict_proba(data.X.iloc[test])[:, 1])
    return measures(found) | {"auc": float(auc)} | _at_tolerance(cell, model, decided, (truth, seen), groups)


def _wide(cell: Cell) -> dict[str, float]:
    generator = np.random.default_rng(cell.fold)
    people, test = WIDE.draw(WIDE.rows, generator), WIDE.draw(TEST_ROWS, generator)
    case = Case("wide", WIDE, notion=cell.notion, options=dict(cell.settings))
    model = fit(case, people, people.groups, seed=cell.fold, noise_seed=cell.noise_seed)
    decided = model.predict(test.X)
    violated = violation(test.y, decided, sensitive_features=test.group, notion=cell.notion, groups=people.groups)
    return {
        "accuracy": float((decided == test.y).mean()),
        "violation": violated,
        "auc": float(roc_auc_score(test.y, model.predict_proba(test.X)[:, 1])),
    } | _at_tolerance(cell, model, decided, (test.y, people.y), (test.group, people.group))


def _scores(cell: Cell) -> dict[str, float]:
    """Distances between the groups' scores: mean over folds, and of all test people together."""
    means, parts = [], []
    for fold in range(PLACES[cell.dataset]):
        one = replace(cell, fold=fold)
        data, _, found = fitted(one)
        test = prepared(one)[2]
        p, group = found["model"].predict_proba(data.X.iloc[test])[:, 1], data.sensitive.iloc[test].to_numpy()
        positive = (data.y.iloc[test] == found["model"].classes_[1]).to_numpy()
        apart, by_chance = _apart(p, group)
        means.append(measures(found) | {"auc": roc_auc_score(positive, p), "distance": apart, "expected": by_chance})
        parts.append(pd.DataFrame({"p": p, "group": group}))
    told = pd.DataFrame(means).mean().to_dict()
    everybody = pd.concat(parts)
    return told | {"pooled": _apart(everybody["p"].to_numpy(), everybody["group"].to_numpy())[0]}


def _apart(p: Any, group: Any) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of two groups' scores, and what chance alone shows on so many people."""
    first, second = (p[group == name] for name in sorted(pd.unique(group)))
    together = len(first) * len(second) / (len(first) + len(second))
    return float(ks_2samp(first, second).statistic), float(KOLMOGOROV / np.sqrt(together))


def _at_tolerance(
    cell: Cell, model: Any, decided: Any, labels: tuple[Any, Any], groups: tuple[Any, Any]
) -> dict[str, float]:
    """What a rule at its tolerance shows on test people by sampling (both sets) and known noise: mean and spread."""
    tolerance, names = float(cell.settings["tolerance"]), sorted(groups[0].dropna().unique())
    shift = np.linspace(-tolerance / 2, tolerance / 2, len(names))
    plan, generator = model.plan_, np.random.default_rng(0)
    noise = all_releases_stddev(plan.noise_moments, plan.noise_checks, plan.checks, (1.0, 1.0), len(names))
    shown = np.zeros(SIMULATIONS)
    for label in (None,) if cell.notion == NOTIONS[0] else (0, 1):
        test, train = (np.ones(len(y), dtype=bool) if label is None else y == label for y in labels)
        rate = decided[test].mean()
        sizes = np.array([[(group == name).to_numpy()[event].sum() for name in names]
                          for group, event in zip(groups, (test, train), strict=True)]).clip(1)  # fmt: skip
        spread = np.sqrt(rate * (1 - rate) * (1 / sizes).sum(0) + (noise / sizes[1]) ** 2)
        rates = shift + spread * generator.standard_normal((SIMULATIONS, len(names)))
        shown = np.maximum(shown, np.ptp(rates, axis=1))
    return {"expected": float(shown.mean()), "spread": float(shown.std())}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Means over folds or draws, and whether what was asked holds up to chance."""
    named = results.assign(tolerance=setting(results, "tolerance"), at=setting(results, "at"))
    held = named[named["at"].isna()].assign(tolerance=lambda rows: rows["tolerance"].astype(float))
    groups = held.groupby(["dataset", "notion", "tolerance"], sort=False)
    table = groups[["accuracy", "violation", "expected"]].mean().reset_index()
    table["fits"] = groups.size().to_numpy()
    table["error"] = np.sqrt((groups["spread"].apply(lambda one: (one**2).mean()) / groups.size()).to_numpy())
    beyond = (table["violation"] - table["expected"]) / table["error"]
    return table.assign(beyond=beyond, held=beyond <= ERRORS)


def markdown(results: pd.DataFrame) -> str:
    """A row per dataset and notion, a column per tolerance; then the distances of scores."""
    table = summarise(results)
    heads = " | ".join(f"tolerance {one:g}" for one in TOLERANCES)
    lines = [f"| dataset | notion | {heads} |", "|---|---|" + "---:|" * len(TOLERANCES)]
    for (name, notion), part in table.groupby(["dataset", "notion"], sort=False):
        at = {row.tolerance: row for row in part.itertuples()}
        entries = [_entry(at[one]) if one in at else "-" for one in TOLERANCES]
        shown = NAMES.get(str(name)) or name_of(str(name))
        lines.append(f"| {shown} | {name_of(str(notion))} | {' | '.join(entries)} |")
    scores = results[setting(results, "at") == "scores"]
    if len(scores):
        columns = ["accuracy", "auc", "violation", "distance", "expected", "pooled"]
        heads = "accuracy | AUC | violation | distance | distance by chance | distance, all folds pooled"
        lines += ["", f'| `at="scores"` | {heads} |', "|---|" + "---:|" * len(columns)]
        for name, part in scores.groupby("dataset", sort=False):
            means = part[columns].mean()
            lines.append(f"| {name_of(str(name))} | {' | '.join(f'{value:.3f}' for value in means)} |")
    return "\n".join(lines)


def _entry(row: Any) -> str:
    """Accuracy, violation and, in brackets, what a rule at its tolerance shows, with its error."""
    return f"{row.accuracy:.3f} / {row.violation:.3f} ({row.expected:.3f} ± {row.error:.3f}){'' if row.held else ' *'}"


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the table as Markdown; return it."""
    (folder / "holds.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return markdown(results)


def claims(results: pd.DataFrame) -> list[Claim]:
    """Claims about new rows."""
    table = summarise(results)
    missed = [
        f"{name_of(row.dataset)} {name_of(row.notion)} at {row.tolerance:g}"
        for row in table[~table["held"]].itertuples()
    ]
    found = [
        Claim(
            "New rows: mean violation within two standard errors of a rule at its tolerance in 9 of 10 cells.",
            float(table["held"].mean()) >= 0.9,
            f"{int(table['held'].sum())} of {len(table)} cells (within one: {int((table['beyond'] <= 1).sum())})"
            + (f", not {'; '.join(missed)}" if missed else ""),
        )
    ]
    scores = results[setting(results, "at") == "scores"]
    for name, part in scores.groupby("dataset", sort=False):
        apart, chance, pooled = (float(part[column].mean()) for column in ("distance", "expected", "pooled"))
        error = DEVIATION / KOLMOGOROV * chance / np.sqrt(PLACES[str(name)])  # of as many people as all folds have
        found.append(
            Claim(
                f'With `at="scores"` the distance is at most 0.06, all test folds pooled ({name_of(str(name))}).',
                pooled <= 0.06 + error,
                f"{pooled:.3f} ± {error:.3f}; one fold {apart:.3f}, of which chance alone shows {chance:.3f}",
            )
        )
    return found


HOLDS = Experiment("holds", cells, publish, claims=claims, work=work, table=markdown, measures=MEASURES)
