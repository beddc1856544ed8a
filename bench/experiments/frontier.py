"""The default engine along its tolerance: one curve per fold on one budget, beside earlier engines and rivals."""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from bench.experiments.curves import (
    Points,
    advantages,
    by_chance,
    cell_name,
    counted,
    matched,
    rivals,
    since_before,
    summarise,
)
from bench.experiments.draw import STYLE, legend, name_of, panels, save, styles
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, MEASURES, prepared, with_recipes
from bench.experiments.memory import remembered
from bench.experiments.methods import applies, make
from bench.experiments.paper import DATASETS, NOTIONS
from bench.experiments.runner import Cell
from bench.experiments.summaries import lookup
from bench.rivals import FairGBMClassifier
from bench.rivals.posteriors import PosteriorClassifier
from justitia import LagrangianDualClassifier, tradeoff
from justitia.learners.base import Inputs
from justitia.metrics.exact import violation
from justitia.postprocessing.dual import clip_to_decision_side

METHOD, BEFORE = "PF-LD plug-in", "PF-LD moments"
NOT_PRIVATE, BOOSTED, LOCAL, LOCAL_OPTIMAL = "LinearPost", "FairGBM", "LDP", "LDP optimal"
#: Methods that a curve is made of, and their budgets. Curves of the moments engine stay as they were made, along its
#: own tolerances, which then bounded the distance of a group from the population.
CURVES = (
    *((METHOD, 1.0), (METHOD, math.inf), (NOT_PRIVATE, math.inf), (LOCAL, 1.0)),
    *((BOOSTED, math.inf), (LOCAL_OPTIMAL, 1.0)),
)
#: Points of a curve: the default first, the plain base last.
TOLERANCES = (
    *(None, 0.0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06),
    *(0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 1.0),
)
#: Points of FairGBM's curve, each of which is a fit of its own.
FEW_TOLERANCES = (None, 0.0, 0.02, 0.05, 0.1, 0.2, 1.0)
#: What the default point is to reach, at least this accuracy and at most this violation.
TARGETS = {
    ("income", "demographic_parity"): (0.842, 0.012),
    ("income", "equalized_odds"): (0.856, 0.042),
    ("income", "accuracy_parity"): (0.838, 0.020),
    ("bank", "demographic_parity"): (0.820, 0.045),
    ("bank", "accuracy_parity"): (0.840, 0.030),
}
#: Cells of 15 in which privacy is to cost little.
FREE = 13
#: Accuracy given up at the same violation: by the median cell, by nearly every cell, and beside LinearPost.
MEDIAN, LITTLE, NEAR = 0.002, 0.01, 0.004
#: Where the plain model violates less than this, the default may give up this much AUC.
NEARLY_FAIR, AUC_LOSS = 0.05, 0.01


def cells(*, quick: bool) -> list[Cell]:
    """Five folds of everything; quick: two folds of Bank at epsilon 1."""
    return with_recipes(
        [
            Cell("frontier", dataset, notion, method, fold, epsilon=epsilon)
            for dataset in (("bank",) if quick else DATASETS)
            for notion in NOTIONS
            for method, epsilon in (CURVES[:1] if quick else CURVES)
            if applies(method, dataset, notion)
            for fold in range(2 if quick else FOLDS)
        ]
    )


def measure_curve(cell: Cell) -> dict[str, Any]:
    """Accuracy, exact violation and AUC on the test fold of every point of the curve; the first is the default."""
    data, train, test = prepared(cell)
    model, start = make(cell, data.groups), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        models = along(cell, model, data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train])
    seconds = time.perf_counter() - start
    truth, groups = data.y.iloc[test].to_numpy(), data.sensitive.iloc[test].to_numpy()

    def measured(predicted: Any, sensitive: Any) -> float:
        return violation(truth, predicted, sensitive_features=sensitive, notion=cell.notion, groups=data.groups)

    scores = scores_along(models, data.X.iloc[test])
    decided = [models[0].classes_[(one > 0).astype(int)] for one in scores]
    points = [
        [tolerance, float(np.mean(one == truth)), measured(one, groups), float(roc_auc_score(truth, score))]
        for tolerance, one, score in zip(tolerances_of(model), decided, scores, strict=True)
    ]
    floor = by_chance(cell.notion, scores[0], truth, pd.factorize(groups)[0], seed=cell.fold)
    return {
        "accuracy": points[0][1],
        "violation": points[0][2],
        "epsilon_spent": models[0].certificate_.epsilon,
        "epsilon_claimed": math.nan,
        "seconds": round(seconds, 2),
        "floor": floor,
        "curve": json.dumps(points),
    }


def tolerances_of(model: Any) -> tuple[float | None, ...]:
    """The points of a method's curve."""
    return FEW_TOLERANCES if isinstance(model, FairGBMClassifier) else TOLERANCES


def along(cell: Cell, model: Any, X: pd.DataFrame, y: pd.Series, sensitive: pd.Series) -> tuple[Any, ...]:
    """One fitted model per tolerance, from one reading of the attribute where it is paid for."""
    if isinstance(model, LagrangianDualClassifier):
        return tradeoff(model, X, y, sensitive_features=sensitive, tolerances=TOLERANCES).models

    if isinstance(model, FairGBMClassifier):
        bounds = (model.tolerance if one is None else one for one in FEW_TOLERANCES)
        return tuple(clone(model).set_params(tolerance=one).fit(X, y, sensitive_features=sensitive) for one in bounds)

    def learned() -> Any:
        return model.learn(X, y, sensitive_features=sensitive)

    # without noise the posteriors of a fold are the same for every notion
    rows = (cell.method, cell.dataset, cell.seed, cell.fold)
    family = remembered(rows, learned) if math.isinf(cell.epsilon) else learned()
    return tuple(family.at(model.tolerance if one is None else one, cell.notion) for one in TOLERANCES)


def scores_along(models: tuple[Any, ...], X: pd.DataFrame) -> list[Any]:
    """What each model of a curve decides by; what they share is computed once."""
    if isinstance(models[0], PosteriorClassifier):
        said = models[0].posteriors(X)
        return [model.margin(*said) for model in models]
    if isinstance(models[0], FairGBMClassifier):
        return [model.decision_function(X) for model in models]
    first = models[0].rule_
    inputs = Inputs(X, models[0]._features(X, reset=False))
    eta = first.calibration(first.base.predict(inputs))
    rules = [model.rule_ for model in models]
    gains = [2 * (eta - rule.threshold) for rule in rules]
    moved = [rule.correction(inputs.numbers, eta) for rule in rules]
    return [clip_to_decision_side(gain, gain - t) for gain, t in zip(gains, moved, strict=True)]


# ------------------------------------------------------------------ table and picture


def default_of(table: pd.DataFrame, method: str, epsilon: float) -> pd.DataFrame:
    """Default points of one method at one budget."""
    return table[(table["method"] == method) & (table["epsilon"] == epsilon) & table["tolerance"].isna()]


COLUMNS = (
    ("Justitia, ε = 1", METHOD, 1.0),
    ("Justitia, no privacy", METHOD, math.inf),
    ("LinearPost, no privacy", NOT_PRIVATE, math.inf),
    ("FairGBM, no privacy", BOOSTED, math.inf),
    ("LDP, ε = 1", LOCAL, 1.0),
    ("LDP optimal, ε = 1", LOCAL_OPTIMAL, 1.0),
)
PRINTED = {
    "PF-LD, the paper, ε = 1": "PF-LD, printed",
    "PF-LD, rerun, ε = 1 claimed": "PF-LD printed, rerun",
    "M, rerun, ε = 1": "M, rerun",
    "A, rerun, no privacy": "A, rerun",
}


def markdown(results: pd.DataFrame) -> str:
    """The default point of every cell beside its rivals: accuracy / violation, means over the folds."""
    if results.empty:
        return "No results are committed."
    table = summarise(results)
    columns = [one for one in COLUMNS if len(default_of(table, *one[1:]))]
    names = ["data, notion", *(name for name, *_ in columns), *PRINTED, "chance"]
    lines = [f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]
    for (one, notion), part in default_of(table, METHOD, 1.0).groupby(["dataset", "notion"], sort=False):
        here, others = table[(table["dataset"] == one) & (table["notion"] == notion)], rivals(str(one), str(notion))
        ours = [spread(default_of(here, method, epsilon)) for _, method, epsilon in columns]
        theirs = [_point(others, name) for name in PRINTED.values()]
        entries = [f"{name_of(str(one))}, {name_of(str(notion))}", *ours, *theirs, f"{part['floor_mean'].mean():.3f}"]
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join(lines)


#: Data sets of the README's table, its notion, and two rivals that were fitted for the table of the paper.
SUMMARISED, SUMMARY_NOTION = ("bank", "income", "compas"), "demographic_parity"
REDUCTION, PF_LD = "A, rerun", "PF-LD printed, rerun"


def summary(results: pd.DataFrame) -> str:
    """Four columns for the README, one row per data set, and a sentence on each about where Justitia loses."""
    table, lines, sentences = summarise(results), [], []
    table = table[table["notion"] == SUMMARY_NOTION]
    for one in SUMMARISED:
        here, others = table[table["dataset"] == one], rivals(one, SUMMARY_NOTION)
        plain, ours = _mean(_base_of(here)), _mean(default_of(here, METHOD, 1.0))
        peer = _mean(default_of(here, NOT_PRIVATE, math.inf))
        found = {} if peer is None else {NOT_PRIVATE: peer}
        found |= {"fairlearn's reduction": others[REDUCTION]} if REDUCTION in others else {}
        if plain is None or ours is None or not found:
            continue
        best = max(found, key=lambda name: found[name])  # the most accurate
        entries = [_pair(plain), _pair(ours), f"{_pair(found[best])} ({best})", _point(others, PF_LD)]
        lines.append(f"| {name_of(one)} | {' | '.join(entries)} |")
        sentences.append(_losses(name_of(one), plain, ours, best, found[best]))
    heading = (
        "| data | uncorrected trees | Justitia, ε = 1 | most accurate peer, not private | PF-LD rerun, ε = 1 claimed |"
    )
    return "\n".join([heading, "|---|---:|---:|---:|---:|", *lines, "", "Where it loses:", "", *sentences])


def _base_of(table: pd.DataFrame) -> pd.DataFrame:
    """Points of the default engine without a constraint: the base as it is."""
    without = table[(table["method"] == METHOD) & (table["epsilon"] == 1.0)]
    return without[without["tolerance"] == TOLERANCES[-1]]


def _mean(row: pd.DataFrame) -> tuple[float, float] | None:
    """Accuracy and violation of the only row, if there is one."""
    return (float(row["accuracy_mean"].iloc[0]), float(row["violation_mean"].iloc[0])) if len(row) else None


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:.3f} / {point[1]:.3f}"


def _losses(
    data: str, plain: tuple[float, float], ours: tuple[float, float], name: str, peer: tuple[float, float]
) -> str:
    """What the correction costs, and what the peer does better, in points."""
    cost, accuracy = round(100 * (plain[0] - ours[0]), 1), round(100 * (peer[0] - ours[0]), 1)
    violated = round(100 * (peer[1] - ours[1]), 1)
    than = (
        f"a violation {abs(violated):.1f} points {'larger' if violated > 0 else 'smaller'}"
        if violated
        else "the same violation"
    )
    if accuracy > 0:
        beside = f"{name} is {accuracy:.1f} points more accurate, at {than}"
    elif violated < 0:
        beside = f"{name} has {than}"
    else:
        beside = f"{name} is not better"
    return f"* {data}: {cost:.1f} points of accuracy less than uncorrected trees; {beside}."


def _point(points: Points, name: str) -> str:
    return f"{points[name][0]:.3f} / {points[name][1]:.3f}" if name in points else "-"


def spread(row: pd.DataFrame) -> str:
    """Accuracy / violation of the only row, each with its standard deviation; a dash if there is none."""
    found = [
        f"{one.accuracy_mean:.3f} ({one.accuracy_sd:.3f}) / {one.violation_mean:.3f} ({one.violation_sd:.3f})"
        for one in row.itertuples()
    ]
    return found[0] if found else "-"


LINES = {
    "Justitia, ε = 1": (METHOD, 1.0),
    "Justitia, no privacy": (METHOD, math.inf),
    "LinearPost, no privacy": (NOT_PRIVATE, math.inf),
    "FairGBM, no privacy": (BOOSTED, math.inf),
    "LDP, ε = 1": (LOCAL, 1.0),
    "LDP optimal, ε = 1": (LOCAL_OPTIMAL, 1.0),
    "moments engine, ε = 1": (BEFORE, 1.0),
}


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw every curve beside its rivals, a row per dataset; return the data."""
    table = summarise(results)
    datasets = [one for one in DATASETS if one in set(table["dataset"])]
    notions = [one for one in NOTIONS if one in set(table["notion"])]
    figure, axes = panels(len(datasets), len(notions), width=2.6)
    look = styles([*LINES, *("PF-LD, printed", "M, rerun", "A, rerun")])
    with mpl.rc_context(STYLE):
        for i, one in enumerate(datasets):
            for j, notion in enumerate(notions):
                _draw(axes[i, j], table[(table["dataset"] == one) & (table["notion"] == notion)], look)
                for label, (accuracy, violated) in rivals(one, notion).items():
                    if label in look:
                        axes[i, j].plot(
                            [violated], [accuracy], label=name_of(label), **(look[label] | {"linestyle": "none"})
                        )
                axes[i, j].set_title(name_of(notion) if i == 0 else "")
                axes[i, j].set_ylabel(f"{name_of(one)}\naccuracy" if j == 0 else "")
                axes[i, j].set_xlabel("violation" if i == len(datasets) - 1 else "")
        legend(figure, axes[0, 0], title="curves: means over the tolerance; large: the default, with standard errors")
    save(figure, table, folder / "figures", "frontier")
    return table.round(3).to_string(index=False)


def _draw(ax: Any, table: pd.DataFrame, look: dict[Any, dict[str, Any]]) -> None:
    """Means along the tolerance, in its order; the default point is large, with one standard error of our means."""
    for label, (method, epsilon) in LINES.items():
        part = table[(table["method"] == method) & (table["epsilon"] == epsilon)].sort_values("tolerance")
        curve, default = part[part["tolerance"].notna()], part[part["tolerance"].isna()]
        style = look[label] | {"markersize": 2.0, "linewidth": 0.9, "alpha": 1.0 if method == METHOD else 0.75}
        ax.plot(curve["violation_mean"], curve["accuracy_mean"], label=label, **style)
        if method == METHOD:
            errors = {
                f"{axis}err": default[f"{name}_sd"] / np.sqrt(default["fits"])
                for axis, name in (("x", "violation"), ("y", "accuracy"))
            }
            means, big = (default["violation_mean"], default["accuracy_mean"]), {"markersize": 7, "zorder": 5}
            ax.errorbar(*means, **errors, elinewidth=1.0, **(look[label] | big | {"markeredgecolor": "white"}))


# ------------------------------------------------------------------ claims


def claims(results: pd.DataFrame) -> list[Claim]:
    """Default points, whole curves before and after, the price of privacy, AUC, and rivals that are points."""
    table = summarise(results)
    private, without = (curves_of(table, METHOD, epsilon) for epsilon in (1.0, math.inf))
    return [
        *_default_points(private),
        *since_before(curves_of(results, METHOD, 1.0), curves_of(results, BEFORE, 1.0)),
        *_price(curves_of(results, METHOD, math.inf), curves_of(results, METHOD, 1.0)),
        *_beside_linear_post(curves_of(results, NOT_PRIVATE, math.inf), curves_of(results, METHOD, 1.0)),
        *_beside(curves_of(results, METHOD, 1.0), curves_of(results, BOOSTED, math.inf), BOOSTED),
        *_beside(curves_of(results, METHOD, 1.0), curves_of(results, LOCAL, 1.0), LOCAL),
        *_beside(curves_of(results, METHOD, 1.0), curves_of(results, LOCAL_OPTIMAL, 1.0), LOCAL_OPTIMAL),
        *_auc(private),
        *matched(private, rivals),
        *matched(without, rivals, whose="curve without privacy"),
    ]


def curves_of(results: pd.DataFrame, method: str, epsilon: float) -> pd.DataFrame:
    """Rows of one method at one budget."""
    return results[(results["method"] == method) & (results["epsilon"] == epsilon)]


def _default_points(private: pd.DataFrame) -> list[Claim]:
    """The default model beside what it was to reach; a miss below one standard error of the mean counts as met."""
    found = []
    default = private[private["tolerance"].isna()]
    for (one, notion), (accuracy, violated) in TARGETS.items():
        part = default[(default["dataset"] == one) & (default["notion"] == notion)]
        if part.empty:
            continue
        row = part.iloc[0]
        errors = [row[f"{name}_sd"] / math.sqrt(row["fits"]) for name in ("accuracy", "violation")]
        missed = [accuracy - row["accuracy_mean"], row["violation_mean"] - violated]
        met = all(by <= max(error, 0.0) for by, error in zip(missed, errors, strict=True))
        numbers = f"{row['accuracy_mean']:.4f} ± {errors[0]:.4f} and {row['violation_mean']:.4f} ± {errors[1]:.4f}"
        numbers += " (missed by less than one standard error)" if met and max(missed) > 0 else ""
        bounds = f"accuracy at least {accuracy:g} and violation at most {violated:g}"
        found.append(Claim(f"Default on {name_of(one)}, {name_of(notion)}: {bounds}.", met, numbers))
    return found


def _price(without: pd.DataFrame, private: pd.DataFrame) -> list[Claim]:
    """What privacy costs at the same violation, over whole curves."""
    lost = advantages(without, private)
    if not lost:
        return []
    dear = [f"{name} {by}" for name, by in lost.items() if by.value > LITTLE]
    values = sorted(by.value for by in lost.values())
    median = float(np.median(values))
    return [
        Claim(
            f"At the same violation the private curve is at most {MEDIAN} less accurate in the median cell.",
            median <= MEDIAN,
            f"median {median:.4f}, from {values[0]:.4f} to {values[-1]:.4f}",
        ),
        Claim(
            f"It is at most {LITTLE} less accurate in at least {FREE} cells.",
            len(lost) - len(dear) >= FREE,
            counted(len(lost), dear),
        ),
    ]


def _beside_linear_post(theirs: pd.DataFrame, private: pd.DataFrame) -> list[Claim]:
    """LinearPost, which reads the attribute, in the two cells that the target names; the others beside them."""
    lost = advantages(theirs, private)
    named = [cell_name(one, "demographic_parity") for one in ("income", "bank")]
    held = {name: lost[name] for name in named if name in lost}
    if not held:
        return []
    sentence = f"At the same violation the private curve is at most {NEAR} less accurate than LinearPost's on Income "
    sentence += "and Bank, demographic parity."
    numbers = "; ".join(f"{name} {by}" for name, by in held.items())
    others = "; ".join(f"{name} {by}" for name, by in lost.items() if name not in held)
    numbers += f"; elsewhere {others}" if others else ""
    return [Claim(sentence, all(by.value <= NEAR for by in held.values()), numbers)]


def _beside(private: pd.DataFrame, theirs: pd.DataFrame, name: str) -> list[Claim]:
    """A rival's curve: the same rule from randomised answers at the same epsilon, or trees that read the attribute."""
    gained = advantages(private, theirs)
    ahead = [name for name, by in gained.items() if by.value > by.error]
    behind = [f"{name} {by}" for name, by in gained.items() if by.value < -by.error]
    sentence = f"At the same violation the private curve is more accurate than {name}'s beyond one standard error in "
    sentence += "more cells than fewer."
    numbers = f"ahead in {len(ahead)} of {len(gained)} cells, behind in {len(behind)}"
    numbers += f" ({'; '.join(behind)})" if behind else ""
    return [Claim(sentence, len(ahead) > len(behind), numbers)] if gained else []


def _auc(private: pd.DataFrame) -> list[Claim]:
    """AUC of the default beside that of the plain base, where that is nearly fair."""
    lost = {}
    for (one, notion), part in private.groupby(["dataset", "notion"], sort=False):
        plain = {name: lookup(part, f"{name}_mean", tolerance=TOLERANCES[-1]) for name in ("auc", "violation")}
        default = part[part["tolerance"].isna()]
        if plain["auc"] is not None and (plain["violation"] or 0.0) < NEARLY_FAIR and len(default):
            lost[cell_name(one, notion)] = plain["auc"] - float(default["auc_mean"].iloc[0])
    if not lost:
        return []
    sentence = f"Where the base model violates less than {NEARLY_FAIR}, the default gives up at most {AUC_LOSS} of AUC."
    numbers = "; ".join(f"{name} {by:.4f}" for name, by in lost.items())
    return [Claim(sentence, max(lost.values()) <= AUC_LOSS, numbers)]


FRONTIER = Experiment(
    "frontier",
    cells,
    publish,
    ("frontier",),
    claims,
    work=measure_curve,
    table=markdown,
    summary=summary,
    measures=(*MEASURES, "floor", "curve"),
)
