"""What was asked, and what new people get: violations on test folds for three tolerances, and distances of scores.

Exact numbers on public test folds and on synthetic people, for research; they are not private.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from experiments.draw import name_of
from experiments.experiment import Claim, Experiment
from experiments.folds import FOLDS, fitted, measures, prepared, with_recipes
from experiments.measure import SIMULATED
from experiments.runner import Cell
from experiments.stress import fit
from experiments.stress_cases import WIDE, Case
from experiments.stress_data import TEST_ROWS
from experiments.summaries import setting
from justitia.evaluation.exact import violation

METHOD = "PF-LD plug-in"
TOLERANCES = (0.02, 0.05, 0.1)
NOTIONS = ("demographic_parity", "equalized_odds")
#: Folds of each dataset.
PLACES = {"bank": FOLDS, "m_bank3": FOLDS, "m_bank5": FOLDS, "compas": FOLDS, "income": 2}
#: Draws of wide synthetic people.
DRAWS = 3
MEASURES = ("accuracy", "auc", "violation", "distance", "chance", "seconds")
NAMES = {SIMULATED: "16,000 synthetic people, 100 features"}


def cells(*, quick: bool) -> list[Cell]:
    """Every tolerance everywhere, and scores where they are shown; quick: one fold of Bank."""
    places = {"bank": 1} if quick else PLACES
    real = [
        Cell("holds", name, notion, METHOD, fold, settings={"tolerance": tolerance})
        for name, folds in places.items()
        for notion in NOTIONS
        for tolerance in TOLERANCES
        for fold in range(folds)
    ]
    scores = [
        Cell("holds", name, NOTIONS[0], METHOD, fold, settings={"at": "scores"})
        for name, folds in places.items()
        if name in ("bank", "income")
        for fold in range(folds)
    ]
    wide = [
        Cell("holds", SIMULATED, notion, METHOD, draw, settings={"tolerance": tolerance}, recipe="first edition")
        for notion in NOTIONS
        for tolerance in TOLERANCES
        for draw in range(0 if quick else DRAWS)
    ]
    return [*with_recipes([*real, *scores]), *wide]


def work(cell: Cell) -> dict[str, float]:
    """Fit one cell, and look at people who were not there."""
    if cell.dataset == SIMULATED:
        return _wide(cell)
    data, _, found = fitted(cell)
    _, _, test = prepared(cell)
    p = found["model"].predict_proba(data.X.iloc[test])[:, 1]
    group, y = data.sensitive.iloc[test], (data.y.iloc[test] == found["model"].classes_[1]).to_numpy().astype(int)
    decided = found["model"].predict(data.X.iloc[test]) == found["model"].classes_[1]
    return measures(found) | _told(cell.notion, p, decided.astype(int), y, group)


def _wide(cell: Cell) -> dict[str, float]:
    generator = np.random.default_rng(cell.fold)
    people, test = WIDE.draw(WIDE.rows, generator), WIDE.draw(TEST_ROWS, generator)
    case = Case("wide", WIDE, notion=cell.notion, options=dict(cell.settings))
    model = fit(case, people, people.groups, seed=cell.fold, noise_seed=cell.noise_seed)
    p, decided = model.predict_proba(test.X)[:, 1], model.predict(test.X)
    found = {
        "accuracy": float((decided == test.y).mean()),
        "violation": violation(
            test.y, decided, sensitive_features=test.group, notion=cell.notion, groups=people.groups
        ),
    }
    return found | _told(cell.notion, p, decided, test.y, test.group)


def _told(notion: str, p: Any, decided: Any, y: Any, group: pd.Series) -> dict[str, float]:
    """AUC, distance of the groups' scores, and what chance alone does to a violation on so many test people."""
    parts = [p[(group == name).to_numpy()] for name in sorted(group.dropna().unique())]
    pairs = [(a, b) for j, a in enumerate(parts) for b in parts[:j]]
    return {
        "auc": float(roc_auc_score(y, p)),
        "distance": max(float(ks_2samp(a, b).statistic) for a, b in pairs),
        "chance": _chance(notion, decided, y, group),
    }


def _chance(notion: str, decided: Any, y: Any, group: pd.Series) -> float:
    """Standard error of the difference between the two groups whose test rates are least known."""
    events = [np.ones(len(y), dtype=bool)] if notion == "demographic_parity" else [y == 0, y == 1]
    worst = 0.0
    for event in events:
        rate = decided[event].mean()
        sizes = sorted(((group == name).to_numpy() & event).sum() for name in group.dropna().unique())
        worst = max(worst, rate * (1 - rate) * sum(1 / max(size, 1) for size in sizes[:2]))
    return float(np.sqrt(worst))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Means over folds or draws, and whether what was asked holds up to chance."""
    named = results.assign(tolerance=setting(results, "tolerance"), at=setting(results, "at"))
    held = named[named["at"].isna()].assign(tolerance=lambda rows: rows["tolerance"].astype(float))
    groups = held.groupby(["dataset", "notion", "tolerance"], sort=False)
    table = groups[["accuracy", "violation", "chance"]].mean().reset_index()
    table["fits"] = groups.size().to_numpy()
    return table.assign(held=table["violation"] <= table["tolerance"] + table["chance"])


def markdown(results: pd.DataFrame) -> str:
    """A row per dataset and notion, a column per tolerance; then the distances of scores."""
    table = summarise(results)
    heads = " | ".join(f"asked {one:g}" for one in TOLERANCES)
    lines = [f"| dataset | notion | {heads} | chance |", "|---|---|" + "---:|" * (len(TOLERANCES) + 1)]
    for (name, notion), part in table.groupby(["dataset", "notion"], sort=False):
        at = {row.tolerance: row for row in part.itertuples()}
        entries = [f"{at[one].accuracy:.3f} / {at[one].violation:.3f}" if one in at else "-" for one in TOLERANCES]
        shown = NAMES.get(str(name)) or name_of(str(name))
        lines.append(f"| {shown} | {name_of(str(notion))} | {' | '.join(entries)} | {part['chance'].mean():.3f} |")
    scores = results[setting(results, "at") == "scores"]
    if len(scores):
        lines += ["", "| scores held alike | accuracy | AUC | distance | violation |", "|---|---:|---:|---:|---:|"]
        for name, part in scores.groupby("dataset", sort=False):
            means = part[["accuracy", "auc", "distance", "violation"]].mean()
            lines.append(f"| {name_of(str(name))} | {' | '.join(f'{value:.3f}' for value in means)} |")
    return "\n".join(lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the table as Markdown; return it."""
    (folder / "holds.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return markdown(results)


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is promised of people to come."""
    table = summarise(results)
    found = [
        Claim(
            "New people: mean violation at most the tolerance and one standard error of chance, in 9 of 10 cells.",
            float(table["held"].mean()) >= 0.9,
            f"{int(table['held'].sum())} of {len(table)} cells",
        )
    ]
    scores = results[setting(results, "at") == "scores"]
    if len(scores):
        worst = scores.groupby("dataset")["distance"].mean().max()
        found.append(Claim("Scores held alike differ by at most 0.06.", worst <= 0.06, f"largest mean {worst:.3f}"))
    return found


HOLDS = Experiment("holds", cells, publish, claims=claims, work=work, table=markdown, measures=MEASURES)
