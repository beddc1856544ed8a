"""Why some sentences of the paper are not confirmed: small experiments on inner splits of training rows.

* Accuracy against epsilon: PF-LD as printed with everybody's attribute given to somebody else. There is no violation to
  pay for, so what accuracy does then is what the noise does to it.
* Violation against epsilon: where the multipliers of PF-LD as printed end.
* What is left over: batches of one size against a last one of 41 rows, whose Delta_p exceeds all others together.
* The number of groups: Mozannar's method with equalized odds on two shuffles of inner folds.
* The reading of h: the repaired engine with the probability, the score, and half of each.
* C_p: how large the noise of a primal step is beside its clipping bound, from public numbers alone.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import INNER_FOLDS, MEASURES, with_recipes
from bench.experiments.readings import READ_AS
from bench.experiments.runner import Cell
from bench.experiments.steps import work
from bench.experiments.summaries import clearly_less, listed, lookup, mean_and_sd, setting
from justitia import PFLDAsPublishedPlan

PRINTED, REPAIRED = "PF-LD printed", "PF-LD repaired"
EPSILONS = (0.25, 1.0, 4.0)
GROUPS = ("bank", "m_bank3", "m_bank5")
#: Where readings of h are compared, and on how many inner folds.
PLACES = (
    ("bank", "demographic_parity", 2),
    ("bank", "equalized_odds", 2),
    ("compas", "demographic_parity", 1),
    ("income", "demographic_parity", 1),
)
#: Where multipliers are compared over epsilon, and on how many inner folds.
PULLED = {"bank": 2, "compas": INNER_FOLDS, "income": 1}
SHUFFLE = 7
#: A C_d far beyond every score.
LARGE = 1000.0
#: Training rows of one fold, and the share of the smallest group.
ROWS = {"bank": (8929, 0.08), "compas": (4920, 0.20), "income": (36177, 0.32)}


def cells(*, quick: bool) -> list[Cell]:
    """Noise alone, Mozannar's groups, readings of h; quick: noise alone on one inner fold."""
    parity = "demographic_parity"
    noise = [
        Cell("reasons", "bank", parity, PRINTED, fold, SHUFFLE, epsilon, "inner", {"shuffled": True})
        for epsilon in EPSILONS
        for fold in range(1 if quick else INNER_FOLDS)
    ]
    pull = [
        Cell("reasons", dataset, parity, PRINTED, fold, SHUFFLE, epsilon, "inner")
        for dataset, folds in PULLED.items()
        for epsilon in EPSILONS
        for fold in range(folds)
    ]
    large = [
        Cell("reasons", "bank", parity, PRINTED, fold, SHUFFLE, 1.0, "inner", {"C_d": LARGE})
        for fold in range(PULLED["bank"])
    ]
    remainder = [
        Cell("reasons", "bank", parity, PRINTED, fold, SHUFFLE, 1.0, "inner", {"batches": kind})
        for kind in ("alike", "remainder")
        for fold in range(INNER_FOLDS)
    ]
    groups = [
        Cell("reasons", dataset, "equalized_odds", "M", fold, SHUFFLE + shuffle, 1.0, "inner", MOZANNAR)
        for dataset in GROUPS
        for shuffle in range(2)
        for fold in range(INNER_FOLDS)
    ]
    readings = [
        Cell("reasons", dataset, notion, REPAIRED, fold, SHUFFLE, 1.0, "inner", {"h": reading})
        for dataset, notion, folds in PLACES
        for reading in READ_AS
        for fold in range(folds)
    ]
    return with_recipes(noise if quick else [*noise, *pull, *large, *remainder, *groups, *readings])


#: Inner splits start from the library's defaults; these are the settings of Table 2.
MOZANNAR = {"difference_bound": 0.01, "halves": False, "noise_slack": 0.0, "not_given": False}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Means by question."""
    kinds = {name: setting(results, name).fillna("") for name in ("h", "batches", "shuffled", "C_d")}
    labelled = results.assign(**kinds)
    return mean_and_sd(
        labelled, ["method", "dataset", "notion", *kinds, "epsilon"], ["accuracy", "violation", "multiplier"]
    )


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The means."""
    del folder
    return summarise(results).round(3).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """One sentence per reason."""
    table = summarise(results)
    return [
        *_noise_alone(results),
        *_pull(table),
        *_large(table),
        *_remainder(table),
        *_groups(table),
        *_readings(table),
        noise_beside_bound(),
    ]


def _noise_alone(results: pd.DataFrame) -> list[Claim]:
    """Fold by fold, since folds differ more than budgets do."""
    part = results[(results["method"] == PRINTED) & setting(results, "shuffled").astype(bool)]
    by_fold = part.pivot_table(index="fold", columns="epsilon", values="accuracy")
    if not set(EPSILONS) <= set(by_fold):
        return []
    gained = by_fold[EPSILONS[-1]] - by_fold[EPSILONS[0]]
    error = float(gained.std(ddof=0)) / math.sqrt(len(gained))
    values = listed(by_fold[list(EPSILONS)].mean().tolist())
    numbers = f"accuracy on Bank with shuffled attributes at epsilon 0.25, 1, 4: {values}; the last minus the first is "
    numbers += f"{gained.mean():.4f}, standard error {error:.4f}"
    sentence = "Noise alone costs accuracy, less with a larger epsilon."
    return [Claim(sentence, bool(gained.mean() > error), numbers)]


def _pull(table: pd.DataFrame) -> list[Claim]:
    found = []
    plain = table[(table["method"] == PRINTED) & (table[["shuffled", "batches", "C_d"]] == "").all(axis=1)]
    for dataset in PULLED:
        part = plain[plain["dataset"] == dataset].sort_values("epsilon")
        if len(part) == len(EPSILONS):
            pulls, violations = part["multiplier_mean"].tolist(), part["violation_mean"].tolist()
            numbers = f"at epsilon 0.25, 1, 4: multipliers {listed(pulls)}, violation {listed(violations)}"
            sentence = (
                f"Noise in (13), cut off at 0, drives multipliers up, most at a small epsilon ({name_of(dataset)})."
            )
            found.append(Claim(sentence, pulls[0] > pulls[1] > pulls[2], numbers))
    return found


def _large(table: pd.DataFrame) -> list[Claim]:
    part = table[(table["method"] == PRINTED) & (table["dataset"] == "bank") & (table["epsilon"] == 1.0)]
    part = part[(part[["shuffled", "batches"]] == "").all(axis=1)]
    values = [lookup(part, "multiplier_mean", C_d=bound) for bound in ("", LARGE)]
    if values[0] is None or values[1] is None:
        return []
    numbers = f"largest multiplier on Bank at C_d 5 and 1000: {values[0]:.2f} and {values[1]:.2f}"
    return [
        Claim(
            "The noise of a large C_d drives the multipliers up, whatever the violation.",
            values[1] > values[0],
            numbers,
        )
    ]


def _remainder(table: pd.DataFrame) -> list[Claim]:
    part = table[table["batches"] != ""]
    if len(part) < 2:
        return []
    values = [lookup(part, "violation_mean", batches=kind) or 0.0 for kind in ("remainder", "alike")]
    numbers = f"violation on Bank, 6697 rows in batches of 512 and one of 41, or in batches of 479: {listed(values)}"
    worse = clearly_less(part, "violation", {"batches": "alike"}, {"batches": "remainder"})
    return [Claim("A small last batch undoes the constraint of PF-LD as published.", worse, numbers)]


def _groups(table: pd.DataFrame) -> list[Claim]:
    part = table[table["method"] == "M"]
    if len(part) < len(GROUPS):
        return []
    values = {
        name: [lookup(part, f"{name}_mean", dataset=dataset) or math.nan for dataset in GROUPS]
        for name in ("accuracy", "violation")
    }
    spread = [lookup(part, "violation_sd", dataset=dataset) or math.nan for dataset in GROUPS]
    rising = all(a < b for a, b in pairwise(values["violation"]))
    rising = rising and clearly_less(part, "violation", {"dataset": GROUPS[0]}, {"dataset": GROUPS[-1]})
    numbers = f"with 2, 3, 5 groups: violation {listed(values['violation'])} (standard deviation {listed(spread)}), "
    numbers += f"accuracy {listed(values['accuracy'])}, {int(part['fits'].min())} fits each"
    return [Claim("M's violation grows with the number of groups (equalized odds, inner splits).", rising, numbers)]


def _readings(table: pd.DataFrame) -> list[Claim]:
    part = table[table["method"] == REPAIRED]
    part = part.assign(value=part["accuracy_mean"] - part["violation_mean"])
    texts, values = [], dict.fromkeys(READ_AS, 0.0)
    for dataset, notion, _ in PLACES:
        here = part[(part["dataset"] == dataset) & (part["notion"] == notion)].set_index("h")
        if set(READ_AS) <= set(here.index):
            means = here[["accuracy_mean", "violation_mean", "value"]].to_dict("index")
            each = [f"{one} {means[one]['accuracy_mean']:.3f} / {means[one]['violation_mean']:.3f}" for one in READ_AS]
            texts.append(f"{name_of(dataset)} {name_of(notion)}: {', '.join(each)}")
            values = {one: values[one] + means[one]["value"] / len(PLACES) for one in READ_AS}
    if len(texts) < len(PLACES):
        return []
    sentence = "The probability is the repaired engine's best reading of h by mean accuracy minus violation."
    numbers = ", ".join(f"{one} {value:.3f}" for one, value in values.items())
    best = max(values, key=lambda one: values[one]) == "probability"
    return [Claim(sentence, best, f"{numbers}; accuracy / violation: {'; '.join(texts)}")]


def noise_beside_bound() -> Claim:
    """Standard deviation of an entry of the noise for C_p = 1 and both multipliers 1, in a batch of average groups."""
    scales = {}
    for name, (n, share) in ROWS.items():
        plan = PFLDAsPublishedPlan(C_p=1.0).calibrate(1.0, 1e-5, n=n)
        small, large = (part * plan.batch_rows(n) - 1 for part in (share, 1 - share))
        scales[name] = (plan.sigma_p or 0.0) * (1 / small + 1 / large)
    numbers = "; ".join(f"{name_of(name)} {value:.3f}" for name, value in scales.items())
    sentence = "The noise of a primal step at epsilon 1 is smaller on Income than on Bank, for the same C_p."
    return Claim(sentence, scales["income"] < scales["bank"], f"per unit of C_p and multiplier: {numbers}")


REASONS = Experiment("reasons", cells, publish, (), claims, work=work, measures=(*MEASURES, "multiplier", "first_gap"))
