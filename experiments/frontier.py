"""The moments engine along its tolerance: one curve per fold on one budget, beside printed and rerun rivals."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from experiments.draw import STYLE, legend, name_of, panels, save, styles
from experiments.experiment import Claim, Experiment
from experiments.folds import FOLDS, MEASURES, prepared, with_recipes
from experiments.methods import make
from experiments.paper import DATASETS, NOTIONS, printed
from experiments.runner import Cell, read_results
from experiments.summaries import dominated, lookup, mean_and_sd
from experiments.table2 import summarise as summarise_table2
from justitia import tradeoff
from justitia.evaluation.exact import violation

#: Accuracy and violation of rivals by name.
Points = dict[str, tuple[float, float]]

METHOD = "PF-LD moments"
#: Points of a curve, the first of them the default; without privacy that is a tolerance of 0.
TOLERANCES = (
    *(None, 0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03),
    *(0.04, 0.05, 0.07, 0.09, 0.1, 0.11, 0.12, 0.15, 0.2, 0.3),
)
#: Tolerances at which points with and without privacy are held against each other.
SHARED = (0.02, 0.05)
#: What the default point is to reach, at least this accuracy and at most this violation.
TARGETS = {
    ("income", "demographic_parity"): (0.82, 0.015),
    ("income", "equalized_odds"): (0.835, 0.035),
    ("income", "accuracy_parity"): (0.81, 0.03),
    ("bank", "demographic_parity"): (0.80, 0.05),
}
#: Cells of 15 in which a rival is to be matched, where not in all; and in which privacy is to cost next to nothing.
MATCHED, FREE = {"A, rerun": 10}, 12
#: Accuracy given up at the same violation that is next to nothing.
LITTLE = 0.01
#: Permutations of the groups of a test fold: the violation a perfectly fair model would show by chance.
PERMUTATIONS = 200
TABLE2 = Path(__file__).parents[1] / "results" / "table2.csv"


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of everything at epsilon 1 and without privacy; quick: two folds of Bank at epsilon 1."""
    return with_recipes(
        [
            Cell("frontier", dataset, notion, METHOD, fold, epsilon=epsilon)
            for dataset in (("bank",) if quick else DATASETS)
            for notion in NOTIONS
            for epsilon in ((1.0,) if quick else (1.0, math.inf))
            for fold in range(2 if quick else FOLDS)
        ]
    )


def measure_curve(cell: Cell) -> dict[str, Any]:
    """Accuracy and exact violation on the test fold of every point of the curve; the first is the default model."""
    data, train, test = prepared(cell)
    model, start = make(cell, data.groups), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        curve = tradeoff(
            model,
            data.X.iloc[train],
            data.y.iloc[train],
            sensitive_features=data.sensitive.iloc[train],
            tolerances=TOLERANCES,
        )
    seconds = time.perf_counter() - start
    truth, groups = data.y.iloc[test].to_numpy(), data.sensitive.iloc[test].to_numpy()

    def measured(predicted: Any, sensitive: Any) -> float:
        return violation(truth, predicted, sensitive_features=sensitive, notion=cell.notion, groups=data.groups)

    decided = [one.predict(data.X.iloc[test]) for one in curve.models]
    points = [
        [tolerance, float(np.mean(one == truth)), measured(one, groups)]
        for tolerance, one in zip(TOLERANCES, decided, strict=True)
    ]
    shuffled = np.random.default_rng(cell.fold)
    floor = np.mean([measured(decided[0], shuffled.permutation(groups)) for _ in range(PERMUTATIONS)])
    return {
        "accuracy": points[0][1],
        "violation": points[0][2],
        "epsilon_spent": curve.certificate.epsilon,
        "epsilon_claimed": math.nan,
        "seconds": round(seconds, 2),
        "floor": float(floor),
        "curve": json.dumps(points),
    }


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row per dataset, notion, epsilon and tolerance: means and standard deviations over the folds."""
    rows = [
        {"dataset": row["dataset"], "notion": row["notion"], "epsilon": row["epsilon"], "floor": row["floor"]}
        | dict(zip(("tolerance", "accuracy", "violation"), point, strict=True))
        for _, row in results.iterrows()
        for point in json.loads(row["curve"])
    ]
    by = ["dataset", "notion", "epsilon", "tolerance"]
    table = mean_and_sd(pd.DataFrame(rows), by, ["accuracy", "violation", "floor"])
    table["tolerance"] = table["tolerance"].astype(float)  # NaN is the default
    order = [table["dataset"].map(DATASETS.index), table["notion"].map(NOTIONS.index), -table["epsilon"]]
    return table.iloc[np.lexsort([table["tolerance"].fillna(-1), *reversed(order)])].reset_index(drop=True)


def printed_points(dataset: str, notion: str) -> Points:
    """Accuracy and violation of rivals as printed in the paper."""
    found = {column: printed(dataset, notion, column) for column in ("PF-LD", "M", "A")}
    return {f"{name}, printed": (one.accuracy, one.violation) for name, one in found.items() if one is not None}


def rerun_points(means: pd.DataFrame, dataset: str, notion: str, methods: Sequence[str]) -> Points:
    """Accuracy and violation of rivals from means over the same folds."""
    found = {}
    for method in methods:
        where = {"dataset": dataset, "notion": notion, "method": method}
        accuracy, violated = (lookup(means, f"{name}_mean", **where) for name in ("accuracy", "violation"))
        if accuracy is not None and violated is not None:
            found[f"{method}, rerun"] = (accuracy, violated)
    return found


def rivals(dataset: str, notion: str) -> Points:
    """Printed points, and our reruns on the same folds where their results are at hand."""
    found = printed_points(dataset, notion)
    if TABLE2.exists():
        means = summarise_table2(read_results(TABLE2))
        found |= rerun_points(means, dataset, notion, ("PF-LD printed", "M", "A", "DP-FERMI", "RaCO-DP"))
    return found


def shortfall(curve: pd.DataFrame, accuracy: float, violated: float) -> float:
    """How many of its standard errors the nearest point of the curve is behind a rival, in accuracy or violation.

    It is 0 where a point is no less accurate and violates no more; at the floor of chance counts as none.
    """
    allowed = np.maximum(violated, curve["floor_mean"])
    lacking = np.maximum(0.0, [accuracy - curve["accuracy_mean"], curve["violation_mean"] - allowed])
    errors = [curve[f"{name}_sd"] / np.sqrt(curve["fits"]) for name in ("accuracy", "violation")]
    ratio = np.divide(lacking, errors, out=np.full_like(lacking, math.inf), where=np.asarray(errors) > 0)
    return float(np.where(lacking > 0, ratio, 0.0).max(0).min())


def markdown(results: pd.DataFrame) -> str:
    """The default point of every cell beside its rivals: accuracy / violation, means over the folds."""
    if results.empty:
        return "No results are committed."
    columns = ("PF-LD, printed", "PF-LD printed, rerun", "M, rerun", "A, rerun")
    lines = [
        "| data, notion | Justitia, ε = 1 | Justitia, no privacy | PF-LD as printed, ε = 1 | "
        "PF-LD rerun, ε = 1 claimed | M rerun, ε = 1 | A rerun, no privacy | chance |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    table = summarise(results)
    default = table[table["tolerance"].isna()]
    for (one, notion), part in default.groupby(["dataset", "notion"], sort=False):
        others = rivals(str(one), str(notion))
        ours = [spread(part[part["epsilon"] == epsilon]) for epsilon in (1.0, math.inf)]
        theirs = [f"{others[name][0]:.3f} / {others[name][1]:.3f}" if name in others else "-" for name in columns]
        entries = [f"{name_of(str(one))}, {name_of(str(notion))}", *ours, *theirs, f"{part['floor_mean'].mean():.3f}"]
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join(lines)


def spread(row: pd.DataFrame) -> str:
    """Accuracy / violation of the only row, each with its standard deviation; a dash if there is none."""
    found = [
        f"{one.accuracy_mean:.3f} ({one.accuracy_sd:.3f}) / {one.violation_mean:.3f} ({one.violation_sd:.3f})"
        for one in row.itertuples()
    ]
    return found[0] if found else "-"


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw every curve beside its rivals; return the data."""
    table = summarise(results)
    datasets = [one for one in DATASETS if one in set(table["dataset"])]
    notions = [one for one in NOTIONS if one in set(table["notion"])]
    figure, axes = panels(len(notions), len(datasets))
    look = styles([*(name for name in ("epsilon 1", "no privacy")), *rivals(DATASETS[0], NOTIONS[0])])
    with mpl.rc_context(STYLE):
        for i, notion in enumerate(notions):
            for j, one in enumerate(datasets):
                ax = axes[i, j]
                for epsilon, label in ((1.0, "epsilon 1"), (math.inf, "no privacy")):
                    part = table[
                        (table["dataset"] == one) & (table["notion"] == notion) & (table["epsilon"] == epsilon)
                    ]
                    part = part.sort_values("violation_mean")
                    ax.errorbar(
                        part["violation_mean"],
                        part["accuracy_mean"],
                        part["accuracy_sd"],
                        part["violation_sd"],
                        elinewidth=0.4,
                        label=label,
                        **look[label],
                    )
                for label, (accuracy, violated) in rivals(one, notion).items():
                    ax.plot([violated], [accuracy], label=label, **(look[label] | {"linestyle": "none"}))
                if i == 0:
                    ax.set_title(name_of(one))
                if j == 0:
                    ax.set_ylabel(f"{name_of(notion)}\naccuracy")
                if i == len(notions) - 1:
                    ax.set_xlabel("violation")
        legend(figure, axes[0, 0], title="curves: the moments engine over its tolerance")
    save(figure, table, folder / "figures", "frontier")
    return table.round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """In how many cells the curves have a point that is at least as good as each rival; the price of privacy."""
    table = summarise(results)
    private, without = table[table["epsilon"] == 1.0], table[np.isinf(table["epsilon"])]
    return [
        *matched(private, rivals),
        *_default_points(private),
        *_price(table),
        *_along(private, without),
        *matched(without, rivals, whose="curve without privacy"),
    ]


def behind(curves: pd.DataFrame, rivals_of: Callable[[str, str], Points]) -> dict[str, dict[str, float]]:
    """For each rival and cell, how far the curve is behind: 0 where it has a point that is at least as good."""
    found: dict[str, dict[str, float]] = {}
    for (one, notion), curve in curves.groupby(["dataset", "notion"], sort=False):
        for label, rival in rivals_of(str(one), str(notion)).items():
            found.setdefault(label, {})[f"{name_of(str(one))} {name_of(str(notion))}"] = shortfall(curve, *rival)
    return found


def matched(curves: pd.DataFrame, rivals_of: Callable[[str, str], Points], whose: str = "private curve") -> list[Claim]:
    """For each rival, in how many cells a point of the curve is at least as good, and how far it is in the others."""
    found = []
    for label, missing in behind(curves, rivals_of).items():
        losses = [f"{name} by {by:.1f} SE" if by < math.inf else name for name, by in missing.items() if by > 0]
        asked = min(MATCHED.get(label, len(missing)), len(missing))
        where = "" if asked == len(missing) else f", in at least {asked} cells"
        sentence = f"A point of the {whose} is at least as good as {label}{where}."
        found.append(Claim(sentence, len(missing) - len(losses) >= asked, _counted(len(missing), losses)))
    return found


def _default_points(private: pd.DataFrame) -> list[Claim]:
    """The default model beside what it was to reach."""
    found = []
    default = private[private["tolerance"].isna()]
    for (one, notion), (accuracy, violated) in TARGETS.items():
        where = {"dataset": one, "notion": notion}
        values = [lookup(default, f"{name}_mean", **where) for name in ("accuracy", "violation")]
        if values[0] is not None and values[1] is not None:
            met = values[0] >= accuracy and values[1] <= violated
            bounds = f"accuracy at least {accuracy:g} and violation at most {violated:g}"
            sentence = f"Default on {name_of(one)}, {name_of(notion)}: {bounds}."
            found.append(Claim(sentence, met, f"{values[0]:.3f} and {values[1]:.3f}"))
    return found


def _price(table: pd.DataFrame) -> list[Claim]:
    """Points with and without privacy, in standard deviations over the folds: either way, and for the worse.

    Default points first, whose tolerances differ (a dead zone from known noise, and 0); then points of one tolerance.
    """
    found = []
    for tolerance in (math.nan, *SHARED):
        at = table["tolerance"].isna() if math.isnan(tolerance) else table["tolerance"] == tolerance
        where = "by default" if math.isnan(tolerance) else f"at tolerance {tolerance:g}"
        found += _apart(table[at], where)
    return found


def _apart(points: pd.DataFrame, where: str) -> list[Claim]:
    apart: dict[str, tuple[float, float]] = {}
    for (one, notion), part in points.groupby(["dataset", "notion"], sort=False):
        both = part.set_index("epsilon")
        if {1.0, math.inf} <= set(both.index):
            less, more = (
                (both[f"{name}_mean"][1.0] - both[f"{name}_mean"][math.inf])
                / max(both[f"{name}_sd"][1.0], both[f"{name}_sd"][math.inf])
                for name in ("accuracy", "violation")
            )
            apart[f"{name_of(str(one))} {name_of(str(notion))}"] = (-less, more)
    if not apart:
        return []
    either = [name for name, worse in apart.items() if max(map(abs, worse)) > 1]
    worse = [name for name, worse in apart.items() if max(worse) > 1]
    sentence = (
        "Accuracy and violation at epsilon 1, {}, are {} one standard deviation {} those without privacy, "
        f"in at least {FREE} cells."
    )
    return [
        Claim(sentence.format(where, how, of), len(apart) - len(far) >= FREE, _counted(len(apart), far))
        for how, of, far in (("within", "of", either), ("no more than", "worse than", worse))
    ]


def _along(private: pd.DataFrame, without: pd.DataFrame) -> list[Claim]:
    """Whole curves: what of the one without privacy the private one reaches, and what it gives up where both go."""
    far, lost = [], {}
    theirs = {where: pareto(curve) for where, curve in without.groupby(["dataset", "notion"], sort=False)}
    for where, curve in private.groupby(["dataset", "notion"], sort=False):
        if where not in theirs:
            continue
        one, name = theirs[where], " ".join(name_of(str(part)) for part in where)
        if not all(_nearly(curve, point) for _, point in one.iterrows()):
            far.append(name)
        ours = pareto(curve)
        both = one[one["violation_mean"] >= ours["violation_mean"].min()]
        reached = np.interp(both["violation_mean"], ours["violation_mean"], ours["accuracy_mean"])
        lost[name] = float((both["accuracy_mean"] - reached).mean())
    if not lost:
        return []
    reach = (
        "Each point of the curve without privacy that no other one beats has a private point no more than one "
        f"standard deviation worse in accuracy and violation, in at least {FREE} cells."
    )
    price = f"At the same violation, where both curves go, the private one is at most {LITTLE} less accurate (mean)."
    dear = [f"{name} ({value:.3f})" for name, value in lost.items() if value > LITTLE]
    values = sorted(lost.values())
    numbers = f"from {values[0]:.3f} to {values[-1]:.3f}, median {np.median(values):.3f}; {_counted(len(lost), dear)}"
    return [Claim(reach, len(lost) - len(far) >= FREE, _counted(len(lost), far)), Claim(price, not dear, numbers)]


def pareto(curve: pd.DataFrame) -> pd.DataFrame:
    """Points that no other point of the curve beats, in the order of their violations and of their accuracies."""
    beaten = dominated(curve["accuracy_mean"].tolist(), curve["violation_mean"].tolist())
    return curve[~np.asarray(beaten)].sort_values("violation_mean")


def _nearly(curve: pd.DataFrame, point: pd.Series) -> bool:
    less, more = (
        (curve[f"{name}_mean"] - point[f"{name}_mean"]) / np.maximum(curve[f"{name}_sd"], point[f"{name}_sd"])
        for name in ("accuracy", "violation")
    )
    return bool(((less >= -1) & (more <= 1)).any())


def _counted(total: int, far: list[str]) -> str:
    return f"{total - len(far)} of {total} cells" + (f", not {'; '.join(far)}" if far else "")


FRONTIER = Experiment(
    "frontier",
    cells,
    publish,
    ("frontier",),
    claims,
    work=measure_curve,
    table=markdown,
    measures=(*MEASURES, "floor", "curve"),
)
