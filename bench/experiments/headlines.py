"""Short summaries for the documentation, made from the result files of several experiments.

A page has them where it says ``<!-- results: NAME -->``, like the tables of an experiment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from bench.experiments import reproduce_paper
from bench.experiments.curves import Advantage, advantages, behind, cell_name, rivals, summarise
from bench.experiments.draw import name_of
from bench.experiments.frontier import (
    BOOSTED,
    LOCAL,
    LOCAL_OPTIMAL,
    METHOD,
    NOT_PRIVATE,
    PRINTED,
    TOLERANCES,
    curves_of,
    default_of,
)
from bench.experiments.runner import read_results

ABSENT = "No results are committed yet."
HEADER = ("data, notion", "base model", "Justitia, ε = 1", "Justitia, no privacy", "PF-LD, the paper", "by chance")
#: Accuracy that a correction may cost before the page names the cell.
DEAR = 0.03
#: Standard errors within which a violation counts as chance.
ERRORS = 2.0


def _point(part: pd.DataFrame) -> str:
    found = [f"{row.accuracy_mean:.3f} / {row.violation_mean:.3f}" for row in part.itertuples()]
    return found[0] if found else "-"


def headline(results: Path) -> str:
    """Accuracy / violation on test folds: the base model, the default with and without privacy, the paper, chance."""
    rows = read_results(results / "frontier.csv")
    if curves_of(rows, METHOD, 1.0).empty:
        return ABSENT
    table = summarise(rows)
    default, base = default_of(table, METHOD, 1.0), table[table["tolerance"] == TOLERANCES[-1]]
    lines = [f"| {' | '.join(HEADER)} |", "|---|" + "---:|" * (len(HEADER) - 1)]
    for (dataset, notion), part in default.groupby(["dataset", "notion"], sort=False):
        here, plain = (one[(one["dataset"] == dataset) & (one["notion"] == notion)] for one in (table, base))
        paper = rivals(str(dataset), str(notion)).get(PRINTED["PF-LD, the paper, ε = 1"])
        entries = [
            f"{name_of(str(dataset))}, {name_of(str(notion))}",
            _point(plain[(plain["method"] == METHOD) & (plain["epsilon"] == 1.0)]),
            _point(part),
            _point(default_of(here, METHOD, math.inf)),
            "-" if paper is None else f"{paper[0]:.3f} / {paper[1]:.3f}",
            f"{part['floor_mean'].mean():.3f}",
        ]
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join([*lines, "", *(f"* {one}" for one in _in_words(rows, default, base))])


def _in_words(rows: pd.DataFrame, default: pd.DataFrame, base: pd.DataFrame) -> list[str]:
    """What the correction removes, what it costs, and what privacy adds to that."""
    where = ["dataset", "notion"]
    plain = base[(base["method"] == METHOD) & (base["epsilon"] == 1.0)]
    both = default.merge(plain, on=where, suffixes=("", "_plain"))
    cost = both["accuracy_mean_plain"] - both["accuracy_mean"]
    dearest = both.loc[cost.idxmax()]
    error = both["violation_sd"] / np.sqrt(both["fits"])
    fair = both["violation_mean"] <= both["floor_mean"] + ERRORS * error
    found = [
        f"**The correction** lowers the violation from {both['violation_mean_plain'].mean():.3f} to "
        f"{both['violation_mean'].mean():.3f} on average over {len(both)} rows of the table, and the accuracy from "
        f"{both['accuracy_mean_plain'].mean():.3f} to {both['accuracy_mean'].mean():.3f}. It costs most on "
        f"{cell_name(dearest['dataset'], dearest['notion'])} ({cost.max():.3f}).",
        f"**The default** is within two standard errors of chance in {int(fair.sum())} of {len(both)} rows: there the "
        "test fold cannot tell the remaining violation from that of a perfectly fair model.",
    ]
    lost = advantages(curves_of(rows, METHOD, math.inf), curves_of(rows, METHOD, 1.0))
    if lost:
        values = {name: by.value for name, by in lost.items()}
        worst = max(values, key=lambda name: values[name])
        found.append(
            "**Privacy** (ε = 1 compared with none, at the same violation) costs "
            f"{np.median(list(values.values())):.4f} of accuracy in the median row, most on {worst} ({lost[worst]})."
        )
    return found


def losses(results: Path) -> str:
    """Rows in which another method is ahead of the default engine, and rows in which the correction is expensive."""
    rows = read_results(results / "frontier.csv")
    private = curves_of(rows, METHOD, 1.0)
    if private.empty:
        return ABSENT
    lines = ["| compared with Justitia at ε = 1 | reads the attribute | ahead in |", "|---|---|---|"]
    for name, epsilon, reads in (
        (NOT_PRIVATE, math.inf, "exactly"),
        (BOOSTED, math.inf, "exactly"),
        (LOCAL, 1.0, "randomised"),
        (LOCAL_OPTIMAL, 1.0, "randomised"),
        ("PF-LD moments", 1.0, "noisy sums"),
    ):
        gained = advantages(curves_of(rows, name, epsilon), private)
        if gained:
            lines.append(f"| {name_of(name)}, whole curve | {reads} | {_ahead(gained)} |")
    table = summarise(private)
    exact = {"A, rerun": "exactly", "PF-LD printed, rerun": "exactly"}
    for label, missing in behind(table, rivals).items():
        if label.endswith("rerun"):
            far = [f"{name} ({by:.1f} SE)" for name, by in missing.items() if by > 0]
            count = f"{len(far)} of {len(missing)}"
            reads = exact.get(label, "randomised" if label.startswith("M,") else "noisy sums")
            lines.append(f"| {name_of(label)}, one point | {reads} | {count}{': ' + '; '.join(far) if far else ''} |")
    default, base = (table[table["tolerance"].isna()], table[table["tolerance"] == TOLERANCES[-1]])
    both = default.merge(base, on=["dataset", "notion"], suffixes=("", "_plain"))
    cost = both["accuracy_mean_plain"] - both["accuracy_mean"]
    dear = [f"{cell_name(both.dataset[i], both.notion[i])} {cost[i]:.3f}" for i in both.index if cost[i] > DEAR]
    expensive = f"The default correction costs more than {DEAR} of accuracy in {len(dear)} of {len(both)} rows"
    return "\n".join([*lines, "", expensive + (f": {'; '.join(dear)}." if dear else ".")])


def _ahead(gained: dict[str, Advantage]) -> str:
    """Rows in which a curve is more accurate at the same violation by more than one standard error."""
    won = [f"{name} ({by})" for name, by in gained.items() if by.value > by.error]
    return f"{len(won)} of {len(gained)}" + (f": {'; '.join(won)}" if won else "")


def evaluations(results: Path) -> str:
    """When fits that are measured on test rows were made, as recorded beside each result file."""
    found: dict[tuple[str, str], list[int]] = {}
    for path in sorted(results.glob("*.json")):
        rows = read_results(path.with_suffix(".csv"))
        content = json.loads(path.read_text(encoding="utf-8"))
        if "runs" not in content or "split" not in rows or not (rows["split"] == "test").any():
            continue
        if not set(rows["dataset"]) & DATA or not {"accuracy", "quality"} & set(rows):
            continue
        for one in content["runs"]:
            entry = found.setdefault((one["date"], path.stem), [0, 0])
            entry[0] += 1
            entry[1] += int(one["cells_fitted"])
    if not found:
        return ABSENT
    lines = ["| date | result file | runs | fits |", "|---|---|---:|---:|"]
    lines += [f"| {date} | `{name}.csv` | {runs} | {fits:,} |" for (date, name), (runs, fits) in sorted(found.items())]
    return "\n".join(lines)


#: Public datasets with test folds; simulated populations have none.
DATA = frozenset(
    (
        *("bank", "income", "compas", "m_bank3", "m_bank5", "census", "census_race"),
        *("occupation", "compas_score", "communities", "hours"),
    )
)


def published(results: Path) -> str:
    """Table 2's rows of CLF, F-LD and PF-LD beside the rerun."""
    return reproduce_paper.markdown(read_results(results / "table2.csv"))


def _ratios(name: str, keep: Callable[[str], bool] = lambda _: True) -> Callable[[Path], str]:
    """A table of the ratios that ``make bench`` has measured."""

    def table(results: Path) -> str:
        path = results / f"{name}.json"
        if not path.exists():
            return ABSENT
        ratios = [one for one in json.loads(path.read_text(encoding="utf-8"))["ratios"] if keep(one["name"])]
        lines = ["| ratio | measured | target | met |", "|---|---:|---:|---|"]
        words = {"<=": "at most", ">=": "at least"}
        for one in ratios:
            met = "yes" if one["passed"] else "**no**"
            target = f"{words[one['relation']]} {one['target']:g}"
            lines.append(f"| {one['name']} | {one['value']:.2f} | {target} | {met} |")
        return "\n".join(lines)

    return table


def _of_default(name: str) -> bool:
    return any(word in name for word in ("default fit", "curve of", "distillation", "one row"))


SUMMARIES: dict[str, Callable[[Path], str]] = {
    "headline": headline,
    "losses": losses,
    "evaluations": evaluations,
    "published": published,
    "speed_default": _ratios("bench", _of_default),
    "speed_networks": _ratios("bench", lambda name: not _of_default(name)),
    "speed_moments": _ratios("moments"),
    "speed_start": _ratios("start"),
}
