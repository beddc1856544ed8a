"""Beyond yes or no: classes, numbers, two notions at once, the four-fifths ratio, precision and quotas, beside rivals.

Default settings, epsilon 1, delta 1e-5, five folds stratified on the target. Exact numbers on public test folds.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, dataset, rows_of
from bench.experiments.runner import Cell
from bench.experiments.target_measures import (
    by_chance,
    counts_of,
    determination,
    difference_and_error,
    largest_difference,
    largest_distance,
    rates_of,
    ratio_lower_bound,
    smallest_ratio,
)
from bench.experiments.target_methods import (
    CASES,
    OURS,
    PLAIN,
    QUOTA,
    RATIO,
    TARGET_METHODS,
    Case,
    budget,
    case_of,
    estimated_seconds,
    make,
    recipe,
)
from justitia.datasets import Dataset

MEASURES = ("quality", "violation", "floor", "epsilon_spent", "seconds", "detail")
#: Standard errors within which two notions have to hold at once on new rows.
ERRORS = 2
NAMES = {"four_fifths": "four-fifths ratio", "predictive_parity": "predictive parity", "quota": f"quota {QUOTA:g}"}


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of ours, with and without privacy, and of every rival; quick: one fold of the two small datasets."""
    found = []
    for case in CASES:
        if quick and case.dataset not in {"compas_score", "communities"}:
            continue
        budgets = [(OURS, 1.0), (OURS, math.inf), *((name, budget(name)) for name in case.beside)]
        found += [
            Cell("targets", case.dataset, case.notion, method, fold, epsilon=epsilon)
            for fold in range(1 if quick else FOLDS)
            for method, epsilon in budgets
        ]
    complete = [replace(cell, recipe=recipe(cell)) for cell in found]
    return sorted(complete, key=estimated_seconds, reverse=True)


def work(cell: Cell) -> dict[str, Any]:
    """Fit one cell on its training rows and measure it on its test rows."""
    data, case = dataset(cell.dataset), case_of(cell)
    train, test = rows_of(cell, data)
    model = make(cell, data.groups)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(data.X.iloc[train], data.y.iloc[train], sensitive_features=data.sensitive.iloc[train])
    seconds = time.perf_counter() - start
    predicted = _predict(model, data, test)
    found = numbers(case, data, test, predicted) if case.task == "number" else classes(case, data, test, predicted)
    if case.notion == "quota":
        kept = _predict(model, data, train)
        found["detail"] |= {
            "beyond_quota_rows": float(np.sum(kept == 1) - QUOTA * len(train)),
            "drift": float(np.mean(predicted == 1) - QUOTA),
        }
    spent = model.certificate_.epsilon if hasattr(model, "certificate_") else 0.0
    detail = json.dumps(found.pop("detail"), sort_keys=True)
    return {**found, "epsilon_spent": spent, "seconds": round(seconds, 2), "detail": detail}


def _predict(model: Any, data: Dataset, rows: Any) -> Any:
    reads = getattr(model, "reads_attribute", False)
    attribute = {"sensitive_features": data.sensitive.iloc[rows]} if reads else {}
    return np.asarray(model.predict(data.X.iloc[rows], **attribute))


def _codes(data: Dataset, rows: Any) -> Any:
    return pd.Categorical(data.sensitive.iloc[rows], categories=list(data.groups)).codes.astype(np.int64)


def classes(case: Case, data: Dataset, rows: Any, decided: Any) -> dict[str, Any]:
    """Accuracy, violation, the violation by chance, and what several notions or a ratio need besides."""
    y, codes, labels = data.y.iloc[rows].to_numpy(), _codes(data, rows), np.unique(data.y)

    def differences(groups: Any) -> dict[str, float]:
        counts = counts_of(y, decided, groups, labels, len(data.groups))
        if case.notion == "four_fifths":
            return {"1 - ratio": 1 - smallest_ratio(counts)}
        return {notion: largest_difference(rates_of(notion, counts)) for notion in case.compared}

    counts = counts_of(y, decided, codes, labels, len(data.groups))
    found = differences(codes)
    # By group, class and decision, so that folds can be added up.
    detail = {"differences": found, "counts": counts.astype(int).tolist()}
    return {
        "quality": float(np.mean(y == decided)),
        "violation": max(found.values()),
        "floor": by_chance(lambda groups: max(differences(groups).values()), codes),
        "detail": detail,
    }


def numbers(case: Case, data: Dataset, rows: Any, predicted: Any) -> dict[str, Any]:
    """R squared, Kolmogorov-Smirnov distance, the distance by chance, and differences of means and errors."""
    del case
    y, codes, size = data.y.iloc[rows].to_numpy(), _codes(data, rows), len(data.groups)
    means, errors = (
        [float(values[codes == a].mean()) for a in range(size)] for values in (predicted, np.square(y - predicted))
    )
    return {
        "quality": determination(y, predicted),
        "violation": largest_distance(predicted, codes, size),
        "floor": by_chance(lambda groups: largest_distance(predicted, groups, size), codes),
        "detail": {"mean_difference": max(means) - min(means), "error_difference": max(errors) - min(errors)},
    }


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row per case and method, in the order of the cases: means and standard errors over folds."""
    rows = []
    for case in CASES:
        for method, epsilon in [(OURS, 1.0), (OURS, math.inf), *((name, budget(name)) for name in case.beside)]:
            part = results[
                (results["dataset"] == case.dataset)
                & (results["notion"] == case.notion)
                & (results["method"] == method)
                & (results["epsilon"] == epsilon)
            ]
            if part.empty:
                continue
            one = TARGET_METHODS[method]
            facts: dict[str, Any] = {"dataset": case.dataset, "notion": case.notion, "tolerance": case.tolerance}
            facts |= {"method": _method(method, epsilon), "private": one.private and _budgeted(method, epsilon)}
            facts |= {"reads": one.reads_attribute, "fits": len(part)}
            for name in ("quality", "violation"):
                facts |= {name: part[name].mean(), f"{name}_error": part[name].std(ddof=1) / math.sqrt(len(part))}
            facts |= {"floor": part["floor"].mean(), "seconds": part["seconds"].mean(), "more": _more(case, part)}
            rows.append(facts)
    return pd.DataFrame(rows)


def _method(method: str, epsilon: float) -> str:
    return f"{OURS}, {'no privacy' if epsilon == math.inf else f'ε = {epsilon:g}'}" if method == OURS else method


def _budgeted(method: str, epsilon: float) -> bool:
    """Ours without a budget is not private; trees ask nothing."""
    return method != OURS or epsilon < math.inf


def _more(case: Case, part: pd.DataFrame) -> str:
    """What a case is about besides accuracy and violation."""
    details = [json.loads(text) for text in part["detail"]]
    if case.notion == "four_fifths":
        counts = _together(part)
        least = ratio_lower_bound(counts[:, :, 1].sum(axis=1), counts.sum(axis=(1, 2)))
        return f"all folds: ratio {smallest_ratio(counts):.3f}, at least {least:.3f} (95%)"
    if case.notion == "quota":
        beyond, drift = ([one[name] for one in details] for name in ("beyond_quota_rows", "drift"))
        worst = max(beyond, key=abs)
        return f"training {worst:+.1f} rows at most; new rows {np.mean(drift):+.4f} ± {_error(drift):.4f}"
    if len(case.compared) > 1:
        each = {name: difference_and_error(name, _together(part)) for name in case.compared}
        return "all folds: " + ", ".join(f"{name_of(name)} {v:.3f} ± {error:.3f}" for name, (v, error) in each.items())
    if case.task == "number":
        return f"means differ by {np.mean([one['mean_difference'] for one in details]):.3f}"
    return ""


def _together(part: pd.DataFrame) -> Any:
    """(G, L, L): counts of all folds' test rows, each of which is in one fold."""
    return np.sum([json.loads(text)["counts"] for text in part["detail"]], axis=0, dtype=float)


def _error(values: Any) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def markdown(results: pd.DataFrame) -> str:
    """A row per case and method."""
    lines = [
        "| data, notion, tolerance | method | training protects A | prediction reads A | accuracy or R² | violation "
        "| by chance | |",
        "|---|---|---|---|---:|---:|---:|---|",
    ]
    before = ""
    for row in summarise(results).itertuples():
        notion = NAMES.get(str(row.notion)) or name_of(str(row.notion))
        allowed = f"ratio {RATIO:g}" if row.notion == "four_fifths" else f"{row.tolerance:g}"
        where = f"{name_of(str(row.dataset))}, {notion}, {allowed}"
        entries = [
            "" if where == before else where,
            row.method,
            "not read" if row.method == PLAIN else "yes" if row.private else "no",
            "**yes**" if row.reads else "no",
            f"{row.quality:.3f} ± {row.quality_error:.3f}",
            f"{row.violation:.3f} ± {row.violation_error:.3f}",
            f"{row.floor:.3f}",
            row.more,
        ]
        lines.append(f"| {' | '.join(map(str, entries))} |")
        before = where
    return "\n".join(lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write ``targets.md``; return the table for the terminal."""
    (folder / "targets.md").write_text(markdown(results) + "\n", encoding="utf-8")
    return summarise(results).round(4).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """What is asked of ours at epsilon 1."""
    ours = results[(results["method"] == OURS) & (results["epsilon"] == 1.0)]
    found = []
    for case in CASES:
        part = ours[(ours["dataset"] == case.dataset) & (ours["notion"] == case.notion)]
        if len(part):
            found += _claims_of(case, part)
    return found


def _claims_of(case: Case, part: pd.DataFrame) -> list[Claim]:
    """A miss below one standard error counts as met; two notions have to hold within two."""
    row = summarise(part).iloc[0]
    name = f"{name_of(case.dataset)}, {NAMES.get(case.notion) or name_of(case.notion)}"
    measured = (
        f"{row['quality']:.3f} ± {row['quality_error']:.3f} / {row['violation']:.3f} ± {row['violation_error']:.3f}"
    )
    measured += f"; {row['more']}" if row["more"] else ""
    if case.notion == "two notions":
        each = [difference_and_error(notion, _together(part)) for notion in case.compared]
        met = all(apart <= case.tolerance + ERRORS * error for apart, error in each)
        return [Claim(f"{name}: both within {case.tolerance:g} on new rows.", met, measured)]
    if case.at_least is None or case.at_most is None:
        return []
    met = bool(
        row["quality"] >= case.at_least - row["quality_error"]
        and row["violation"] <= case.at_most + row["violation_error"]
    )
    return [Claim(f"{name}: at least {case.at_least:g} at violation at most {case.at_most:g}.", met, measured)]


TARGETS = Experiment("targets", cells, publish, claims=claims, work=work, table=markdown, measures=MEASURES)
