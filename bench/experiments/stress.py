"""``make stress``: people on whom a fit may go wrong, and whether it goes right or says that it does not.

Violations are exact numbers on synthetic test people; they are not private.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell, read_results
from bench.experiments.stress_cases import CASES, WORDS, Case
from bench.experiments.stress_data import TEST_ROWS, Healthy, People
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier
from justitia.learners.base import Inputs
from justitia.metrics.exact import violation

#: How often each case is drawn, and how many healthy fits are watched for false alarms.
DRAWS, HEALTHY = 5, 100
#: Kinds of healthy people: none of them should cause a remark.
HEALTHY_KINDS = (
    Healthy(4_000),
    Healthy(5_000, shares=(0.7, 0.3), shift=0.5),
    Healthy(5_000, positives=0.25),
    Healthy(5_000, shares=(0.4, 0.3, 0.3)),
)
NOTIONS = ("demographic_parity", "accuracy_parity")
MEASURES = (
    *("accuracy", "auc", "violation", "distance", "plain accuracy", "plain violation", "plain distance"),
    *("over majority", "lost", "tolerance", "beyond", "shown accuracy", "shown off"),
    *("other seed", "other noise", "right", "remarks", "seconds"),
)
RIVALS = {"HistogramClassifier": "histogram", "FermiClassifier": "fermi"}
#: The same cases before this suite existed, where results are at hand.
BEFORE = "stress_before.csv"


#: Changed when cases or models change, so that no old row is taken for a new one.
RECIPE = "eighth edition"


def cells(*, quick: bool) -> list[Cell]:
    """Every case a few times, and healthy fits; quick: once, and a few."""
    cases = [
        Cell("stress", SIMULATED, case.notion, case.model, draw, settings={"case": name}, recipe=RECIPE)
        for name, case in CASES.items()
        for draw in range(1 if quick else DRAWS)
    ]
    healthy = [
        Cell("stress", SIMULATED, NOTIONS[draw % 2], "plugin", draw, settings={"case": "false alarms"}, recipe=RECIPE)
        for draw in range(4 if quick else HEALTHY)
    ]
    return [*cases, *healthy]


def fit(case: Case, people: People, groups: tuple[str, ...], *, seed: int, noise_seed: int) -> Any:
    """A fitted model of a case."""
    shared = {"epsilon": 1.0, "groups": groups, "random_state": seed, "noise_seed": noise_seed}
    if case.model in RIVALS:
        kind = getattr(import_module(f"bench.rivals.{RIVALS[case.model]}"), case.model)
        return kind(case.notion, **shared).fit(people.X, people.y, sensitive_features=people.group)
    known = inspect.signature(LagrangianDualClassifier).parameters
    options = {name: value for name, value in case.options.items() if name in known}  # results from before know fewer
    model = LagrangianDualClassifier(case.notion, engine=case.model, progress=False, **(shared | options))
    return model.fit(people.X, people.y, sensitive_features=people.group, sample_weight=people.weight)


def work(cell: Cell) -> dict[str, Any]:
    """Draw the people of a cell, fit, and measure on other people."""
    name = cell.settings["case"]
    if name == "false alarms":
        case = Case("healthy", HEALTHY_KINDS[cell.fold // 2 % len(HEALTHY_KINDS)], notion=cell.notion)
    else:
        case = CASES[name]
    generator = np.random.default_rng([cell.fold, len(name)])
    people = case.people.draw(case.people.rows, generator)
    groups = people.groups
    if name == "false alarms":
        return _alarms(case, people, cell)
    test = case.people.draw(TEST_ROWS, generator)
    people = case.hardship(people, generator)
    test = case.hardship(test, generator) if case.everybody else test
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fit(case, people, groups, seed=cell.fold, noise_seed=cell.noise_seed)
        seconds = time.perf_counter() - start
        found = measured(case, model, test, groups) | {"seconds": round(seconds, 2)}
        if "other seed" in case.good:
            found |= _changed(case, people, groups, test, cell)
    return found | {"right": case.right(found)}


def _changed(case: Case, people: People, groups: Any, test: People, cell: Cell) -> dict[str, float]:
    """Share of people whose decision changes with the noise, and with the public seed where there is no noise."""
    quiet = replace(case, options={**case.options, "epsilon": math.inf})
    pairs = {"other noise": (case, (0, 0), (0, 1)), "other seed": (quiet, (0, 0), (50, 0))}
    found = {}
    for what, (which, *seeds) in pairs.items():
        decided = [
            fit(which, people, groups, seed=cell.fold + seed, noise_seed=cell.noise_seed + noise).predict(test.X)
            for seed, noise in seeds
        ]
        found[what] = float((decided[0] != decided[1]).mean())
    return found


def _alarms(case: Case, people: People, cell: Cell) -> dict[str, Any]:
    """What is said of healthy people."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fit(case, people, people.groups, seed=cell.fold, noise_seed=cell.noise_seed)
    remarks = " | ".join(model.certificate_.remarks)
    return {"remarks": remarks, "right": not remarks, "seconds": round(time.perf_counter() - start, 2)}


def measured(case: Case, model: Any, test: People, groups: tuple[str, ...]) -> dict[str, Any]:
    """What the model does to other people."""
    p = model.predict_proba(test.X)[:, 1]
    decided = (model.decision_function(test.X) > 0).astype(int)
    found: dict[str, Any] = dict.fromkeys(MEASURES, math.nan)
    found |= {
        "accuracy": float((decided == test.y).mean()),
        "auc": float(roc_auc_score(test.y, p)),
        "violation": violation(test.y, decided, sensitive_features=test.group, notion=case.notion, groups=groups),
        "distance": distance(p, test.group),
    }
    found |= _plain(case, model, test, groups)
    rate = float(test.y.mean())
    found["over majority"] = found["accuracy"] - max(rate, 1 - rate)
    found["lost"] = found["plain accuracy"] - found["accuracy"]
    found["tolerance"] = float(getattr(model, "tolerance_", 0.0))
    found["beyond"] = found["violation"] - found["tolerance"]
    found["shown accuracy"] = float(model.history_["accuracy"].iloc[-1])
    found["shown off"] = abs(found["shown accuracy"] - found["accuracy"])
    return found | {"remarks": " | ".join(model.certificate_.remarks)}


def _plain(case: Case, model: Any, test: People, groups: tuple[str, ...]) -> dict[str, float]:
    """The base of a rule by itself; for networks the plain model is the one that knows the truth of the draw."""
    if hasattr(model, "rule_"):
        rule = model.rule_
        p = rule.calibration(rule.base.predict(Inputs(test.X, model._features(test.X, reset=False))))
    else:
        p = test.X["x0"] + test.X["x1"] + 0.5 * test.X["x2"]
        p = (p > np.quantile(p, 1 - test.y.mean())).to_numpy().astype(float)
    decided = (p > 0.5).astype(int)
    return {
        "plain accuracy": float((decided == test.y).mean()),
        "plain violation": violation(test.y, decided, sensitive_features=test.group, notion=case.notion, groups=groups),
        "plain distance": distance(p, test.group),
    }


def distance(scores: Any, group: pd.Series) -> float:
    """Largest Kolmogorov-Smirnov distance of the scores of two groups."""
    parts = [np.asarray(scores)[(group == name).to_numpy()] for name in sorted(group.dropna().unique())]
    pairs = [(a, b) for j, a in enumerate(parts) for b in parts[:j]]
    return max(float(ks_2samp(a, b).statistic) for a, b in pairs)


def markdown(results: pd.DataFrame, before: pd.DataFrame) -> str:
    """A row per case: before and now, what is right, and whether it was."""
    rows, old = (_named(one) for one in (results, before))
    head = ("case", "model", "expected", "earlier version", "now", "as expected")
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---:|"]
    for name, case in CASES.items():
        found, past = rows[rows["case"] == name], old[old["case"] == name]
        if found.empty:
            continue
        right = f"{sum(map(_right, found.to_dict('records')))} of {len(found)}"
        said = "; with a remark" if case.says and _said(found, case) else ""
        entries = (
            case.what,
            name_of(case.model),
            case.wanted(),
            _numbers(past, case),
            _numbers(found, case) + said,
            right,
        )
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join(lines)


def _named(results: pd.DataFrame) -> pd.DataFrame:
    return results.assign(case=setting(results, "case")) if len(results) else results.assign(case=[])


def _right(row: dict[Any, Any]) -> bool:
    """By the numbers and remarks of the row, so that what is right can be said better later."""
    return CASES[row["case"]].right(row | {"remarks": str(row["remarks"] or "")})


def _said(found: pd.DataFrame, case: Case) -> bool:
    return bool(found["remarks"].fillna("").str.contains(case.says, regex=True).all())


def _numbers(found: pd.DataFrame, case: Case) -> str:
    """Means over the draws, and standard errors of what is expected."""
    if found.empty:
        return "-"
    shown = {"accuracy": "accuracy", "violation": "violation"} | {name: name for name in case.good}
    text = [f"{WORDS.get(name, name)} {found[name].astype(float).mean():.3f}" for name in shown]
    if len(found) > 1:
        text = [
            f"{one} ({_error(found, name):.3f})" if name in case.good else one
            for one, name in zip(text, shown, strict=True)
        ]
    if case.options.get("at") == "scores":
        text.append(f"AUC {found['auc'].astype(float).mean():.3f}")
    return ", ".join(text)


def _error(found: pd.DataFrame, name: str) -> float:
    """Standard error of a mean over the draws."""
    return float(found[name].astype(float).std(ddof=1) / math.sqrt(len(found)))


def _met(found: pd.DataFrame, case: Case) -> bool:
    """Whether every draw is as expected or has its remark, or the mean is, to one standard error."""
    if all(map(_right, found.to_dict("records"))):
        return True
    mean = {name: found[name].astype(float).mean() for name in case.good}
    error = {name: _error(found, name) if len(found) > 1 else 0.0 for name in case.good}
    bounds = case.good.items()
    return bool(bounds) and all(low - error[name] <= mean[name] <= high + error[name] for name, (low, high) in bounds)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Write the table as Markdown; return it for the terminal."""
    text = markdown(results, read_results(folder / BEFORE))
    (folder / "stress.md").write_text(text + "\n", encoding="utf-8")
    return text


def table(results: pd.DataFrame) -> str:
    """The table of the page."""
    return markdown(results, read_results(Path(__file__).parents[2] / "results" / BEFORE))


def claims(results: pd.DataFrame) -> list[Claim]:
    """What this suite is for."""
    rows = _named(results)
    cases = rows[rows["case"] != "false alarms"]
    right = pd.Series([_right(row) for row in cases.to_dict("records")], index=cases.index, dtype=bool)
    healthy = rows[rows["case"] == "false alarms"]
    alarms = int((healthy["remarks"].fillna("") != "").sum())
    wrong = [name for name, found in cases.groupby("case") if not _met(found, CASES[str(name)])]
    number = cases["case"].nunique()
    return [
        Claim(
            "In every case the mean of the draws is within the expected bounds, to one standard error, or remarks say "
            "that it is not.",
            not wrong,
            f"{number - len(wrong)} of {number} cases, {int(right.sum())} of {len(cases)} fits"
            + (f"; not {', '.join(map(str, wrong))}" if wrong else ""),
        ),
        Claim(
            "Fits without a problem cause at most 2 remarks in 100 fits.",
            alarms <= 0.02 * len(healthy),
            f"{alarms} of {len(healthy)} fits",
        ),
    ]


STRESS = Experiment("stress", cells, publish, claims=claims, work=work, table=table, measures=MEASURES)
