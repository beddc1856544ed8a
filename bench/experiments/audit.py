"""Attribute-flip audits: what attacks on one person's attribute prove, next to the certificate.

The people are synthetic, so the exact results may be printed. Every audit is corrected for the number of audits, except
those that are repeated to count how often healthy code is accused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bench.experiments.draw import name_of
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell
from bench.experiments.summaries import setting
from justitia import LagrangianDualClassifier, MomentsPlan, PFLDPlan
from justitia.audit import AuditResult, audit
from justitia.audit.attacks import Randomness, mechanism_statistics
from justitia.audit.replay import record, worst_canary
from justitia.audit.statistics import Evidence, evidence
from justitia.datasets import Dataset, make_synthetic
from justitia.privacy.accounting import gaussian_mu

PEOPLE = 24
#: Of whom half are guessed, for the attack in one run.
CROWD = 400
DELTA = 1e-5
LEVEL = 0.05
#: Replays of each neighbour: the bound of a small epsilon needs many to differ from 0.
RUNS = {0.5: 24_000, 1.0: 8_000, 4.0: 2_000}
#: Replays that share one vault.
COPIES = 12
#: Whole fits of each neighbour.
FITS = {"trajectory": 200, "weights": 60, "predictions": 60}
FACTOR = 2.5
PLANS: dict[str, Any] = {
    "gradients": PFLDPlan(private_steps=1, public_steps=2, warmup_steps=5, batch_size=64, averaging=0.5),
    "moments": MomentsPlan(rounds=6, public_steps=2, warmup_steps=5, checks=2, batch_size=64, averaging=0.5),
}
#: Healthy audits that are repeated at 95%, with so many runs of each neighbour, and of numbers that are exactly normal.
REPEATED, REPEATED_RUNS = {"moments": 200, "normal numbers": 5_000}, 100
MEASURES = ("lower", "binomial", "gaussian", "certificate", "runs", "exceeded", "guesses", "right")
NAMES = ("a", "b", "c", "d", "e")


def cells(*, quick: bool) -> list[Cell]:
    """Replays for every engine, number of groups and epsilon; whole fits and one run at one; repeated audits."""
    runs: dict[float, int] = {4.0: 100} if quick else RUNS
    kinds: list[tuple[str, float, int]] = [("mechanism", epsilon, count) for epsilon, count in runs.items()]
    kinds += [(attack, 4.0, 8 if quick else count) for attack, count in FITS.items()] + [("one run", 4.0, 8)]
    all_kinds = [(engine, groups, *kind) for kind in kinds for engine in PLANS for groups in (2, 5)]
    found = [
        _cell(engine, epsilon, {"attack": attack, "groups": groups, "runs": count, "audits": len(all_kinds)})
        for engine, groups, attack, epsilon, count in all_kinds
    ]
    repeats = [
        _cell(engine, 1.0, {"attack": "repeated", "groups": 2, "runs": REPEATED_RUNS, "audits": 8 if quick else times})
        for engine, times in REPEATED.items()
    ]
    return found + repeats


def _cell(engine: str, epsilon: float, settings: dict[str, Any]) -> Cell:
    recipe = f"{_people(settings)} people, {COPIES} copies, {PLANS.get(engine)}"
    return Cell("audit", SIMULATED, "demographic_parity", engine, 0, epsilon=epsilon, settings=settings, recipe=recipe)


def _people(settings: Mapping[str, Any]) -> int:
    return CROWD if settings["attack"] == "one run" else PEOPLE


def work(cell: Cell) -> dict[str, float]:
    """One audit, or many that are counted."""
    options = dict(cell.settings)
    groups = options.pop("groups")
    if options["attack"] == "repeated":
        return repeated(cell, groups)
    data, model = subject(cell, groups)
    how: dict[str, Any] = {"seed": cell.noise_seed, "copies": COPIES, "progress": False}
    return numbers(audit(model, data.X, data.y, sensitive_features=data.sensitive, **options, **how))


def subject(cell: Cell, groups: int) -> tuple[Dataset, LagrangianDualClassifier]:
    """Synthetic people, and the settings that are audited on them."""
    data = make_synthetic(_people(cell.settings), groups=NAMES[:groups], n_features=3, random_state=1)
    model = LagrangianDualClassifier(
        cell.notion,
        epsilon=cell.epsilon,
        delta=DELTA,
        groups=data.groups,
        engine=cell.method,
        plan=PLANS[cell.method],
        module=(4,),
        random_state=0,
    )
    return data, model


def numbers(found: AuditResult) -> dict[str, float]:
    """What is kept of an audit."""
    facts = found.table.iloc[0]
    return {
        "lower": found.lower,
        "binomial": found.binomial,
        "gaussian": math.nan if found.gaussian is None else found.gaussian,
        "certificate": found.epsilon,
        "runs": found.runs,
        "exceeded": float(found.exceeded),
        "guesses": float(facts["guesses"]),
        "right": float(facts["right"]),
    }


def repeated(cell: Cell, groups: int) -> dict[str, float]:
    """The same healthy audit many times, each at 95% on its own: ``exceeded`` is how many are refuted."""
    times, runs = int(cell.settings["audits"]), int(cell.settings["runs"])
    draw = _normal_runs(cell) if cell.method not in PLANS else _replayed_runs(cell, groups)
    found = [evidence(*draw(runs, time), alpha=LEVEL, delta=DELTA, known=_ones) for time in range(times)]
    bounds = [_bounds(one) for one in found]
    return dict.fromkeys(MEASURES, math.nan) | {
        "lower": float(np.quantile(bounds, 1 - LEVEL)),
        "certificate": cell.epsilon,
        "runs": runs,
        "exceeded": float(sum(bound > cell.epsilon for bound in bounds)),
        "guesses": float(sum(2 * one.tested for one in found)),
        "right": float(sum(one.right for one in found)),
    }


_ones = np.ones(1)


def _bounds(found: Evidence) -> float:
    return max(found.binomial(DELTA), found.gaussian(DELTA))


Draw = Callable[[int, int], Any]


def _normal_runs(cell: Cell) -> Draw:
    """Scores of a Gaussian mechanism that costs exactly the certificate's epsilon."""
    generator, mu = np.random.default_rng(cell.noise_seed), gaussian_mu(cell.epsilon, DELTA)

    def draw(runs: int, time: int) -> Any:
        del time
        return generator.standard_normal((runs, 1)), mu + generator.standard_normal((runs, 1))

    return draw


def _replayed_runs(cell: Cell, groups: int) -> Draw:
    data, model = subject(cell, groups)
    recording = record(model, data.X, data.y, data.sensitive, seed=cell.noise_seed)
    canary = worst_canary(recording.queries, groups)

    def draw(runs: int, time: int) -> Any:
        random = Randomness(None, cell.noise_seed + 1 + time)
        both = mechanism_statistics(recording, canary, runs, random, jobs=1, progress=False, copies=COPIES)
        return [one.sum(1, keepdims=True) for one in both]

    return draw


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One line per audit."""
    labelled = results.assign(
        attack=setting(results, "attack"),
        groups=setting(results, "groups").astype(int),
        audits=setting(results, "audits").astype(int),
    )
    columns = ["attack", "method", "groups", "epsilon"]
    order = {name: place for place, name in enumerate(("mechanism", *FITS, "one run", "repeated"))}
    table = labelled[[*columns, *MEASURES, "audits"]]
    return table.sort_values(columns, key=lambda c: c.map(order) if c.name == "attack" else c).reset_index(drop=True)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """The table."""
    del folder
    return summarise(results).round(3).to_string(index=False)


def rounded_down(bound: float, digits: int) -> str:
    """A lower bound in decimal digits that is still one."""
    return f"{math.floor(bound * 10**digits) / 10**digits:.{digits}f}" if math.isfinite(bound) else "-"


def table(results: pd.DataFrame) -> str:
    """The audits as a table for the page, without those that were repeated."""
    if results.empty:
        return "No results are committed; `make audit` makes them."
    lines = ["| attack | engine | groups | runs | certificate | bound, Gaussian | bound, binomial | right guesses |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for _, row in summarise(results).query("attack != 'repeated'").iterrows():
        gaussian, binomial = (rounded_down(row[name], 3) for name in ("gaussian", "binomial"))
        parts = [
            row["attack"],
            name_of(row["method"]),
            row["groups"],
            f"{int(row['runs']):,}",
            f"{row['certificate']:.2f}",
        ]
        parts += [gaussian, binomial, f"{int(row['right']):,} of {int(row['guesses']):,}"]
        lines.append(f"| {' | '.join(map(str, parts))} |")
    return "\n".join(lines)


def claims(results: pd.DataFrame) -> list[Claim]:
    """No certificate is refuted, the attack on the mechanism has teeth, healthy code is accused as rarely as said."""
    summary = summarise(results)
    single, many = summary[summary["attack"] != "repeated"], summary[summary["attack"] == "repeated"]
    refuted = int(single["exceeded"].sum())
    found = [Claim("No lower bound exceeds its certificate.", refuted == 0, f"{refuted} of {len(single)} refuted")]
    strong = single[single["attack"] == "mechanism"]
    ratio = strong["certificate"] / strong["lower"]
    sentence = f"Every attack on the mechanism is within a factor of {FACTOR} of its certificate."
    found.append(Claim(sentence, bool((ratio <= FACTOR).all()), f"factors {ratio.min():.2f} to {ratio.max():.2f}"))
    for _, row in many.iterrows():
        sentence = f"A single audit at 95% of correct code ({row['method']}) refutes it in at most 5 of 100 cases."
        allowed = stats.binom(int(row["audits"]), LEVEL).ppf(0.999)
        share = f"{int(row['exceeded'])} of {int(row['audits'])} refuted"
        found.append(Claim(sentence, bool(row["exceeded"] <= allowed), share))
    return found


AUDIT = Experiment("audit", cells, publish, claims=claims, work=work, measures=MEASURES, table=table)
