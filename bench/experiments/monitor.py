"""Six months of nightly monitoring with a drift in month four: when it alerts, how often falsely, and what it costs.

Each cell is one run of 180 nights with new people each. Decisions are about a public score whose mean differs between
two groups, so that the gap of selection rates is known. It is 0.04 for three months, grows by 0.006 a night in month
four, and stays at 0.22; the limit of 0.1 is passed in that month. "At the limit" has a gap of exactly 0.1 every night,
where false alarms are most likely. "In files" is a whole :class:`justitia.Monitor` with ledgers and drift of the score,
about new people or about the same; the other runs judge each night as it does, with its ledger in memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.experiment import Claim, Experiment
from bench.experiments.measure import SIMULATED
from bench.experiments.runner import Cell
from justitia import Monitor, measure
from justitia.monitor import MonitorSettings

NIGHTS, MONTH, PEOPLE = 180, 30, 3000
LIMIT, FALSE_ALARMS, EPSILON, WINDOW = 0.1, 0.05, 1.0, 30
REPEATS = 200
#: The lower bound of a night is about 0.067 below its estimate (a test has it above 0.06): a night whose estimate is
#: above the limit by less than this is no alert, and its bounds, which take most of the time, are not computed.
SCREEN = 0.05
DRIFT, AT_LIMIT = "drift in month four", "at the limit"
FILES = {"in files, new people": "new", "in files, same people": "same"}
MEASURES = ("first_alert", "first_drift_alert", "false_alarm", "nights", "epsilon_spent", "epsilon_planned")


def gap(night: int, method: str) -> float:
    """The true difference of selection rates on a night, which are counted from 1."""
    if method == AT_LIMIT:
        return LIMIT
    return 0.04 + 0.006 * min(MONTH, max(0, night - 3 * MONTH))


#: First night whose true gap is above the limit.
PASSED = next(night for night in range(1, NIGHTS + 1) if gap(night, DRIFT) > LIMIT + 1e-9)


def night_of(night: int, method: str, rng: np.random.Generator) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Groups and scores of a night; a score above 0 is a positive decision."""
    group = rng.choice(np.array(["a", "b"]), PEOPLE)
    normal, difference = NormalDist(), gap(night, method)
    means = {"a": normal.inv_cdf(0.5), "b": normal.inv_cdf(0.5 - difference)}
    return group, rng.normal(size=PEOPLE) + np.where(group == "a", means["a"], means["b"])


def settings(people: str) -> MonitorSettings:
    """Of the monitor that is simulated."""
    return MonitorSettings(
        *("model", LIMIT, "demographic_parity", ["a", "b"], NIGHTS, people),
        epsilon=EPSILON,
        delta=1e-5,
        window=WINDOW,
        false_alarms=FALSE_ALARMS,
    )


def repeated(cell: Cell) -> dict[str, float]:
    """One run up to its first alert; nights are judged as the monitor does it."""
    own, rng = settings("new"), np.random.default_rng([cell.seed, cell.method == AT_LIMIT])
    for night in range(1, NIGHTS + 1):
        group, score = night_of(night, cell.method, rng)
        found = measure(
            None,
            (score > 0).astype(int),
            sensitive_features=group,
            groups=["a", "b"],
            epsilon=own.epsilon_each,
            delta=own.delta,
            confidence=1 - own.level,
            threshold=LIMIT,
            noise_seed=int(rng.integers(2**31)),
        )
        rates = found.noisy.rates
        if abs(float(rates[0, 0] - rates[1, 0])) <= LIMIT + SCREEN:
            continue
        if found.test(LIMIT).answer == "above":
            wrong = gap(night, cell.method) <= LIMIT + 1e-9
            return _row(first_alert=night, false_alarm=float(wrong), nights=night)
    return _row(false_alarm=0.0, nights=NIGHTS)


def in_files(cell: Cell) -> dict[str, float]:
    """One run of a monitor in a folder."""
    rng = np.random.default_rng([cell.seed, 2])
    reference = night_of(1, DRIFT, rng)[1]
    with tempfile.TemporaryDirectory() as folder:
        monitor = Monitor.create(
            Path(folder) / "nights",
            limit=LIMIT,
            groups=["a", "b"],
            planned=NIGHTS,
            people=FILES[cell.method],
            epsilon=EPSILON,
            window=WINDOW,
            false_alarms=FALSE_ALARMS,
            reference_scores=reference,
        )
        for night in range(1, NIGHTS + 1):
            group, score = night_of(night, DRIFT, rng)
            monitor.add(
                (score > 0).astype(int),
                sensitive_features=group,
                scores=score,
                when=f"night {night}",
                noise_seed=int(rng.integers(2**31)),
            )
        alerts = [one.number for one in monitor.entries if "limit" in one.alerts]
        drifts = [one.number for one in monitor.entries if "drift of scores" in one.alerts]
        return _row(
            first_alert=alerts[0] if alerts else np.nan,
            first_drift_alert=drifts[0] if drifts else np.nan,
            false_alarm=float(bool(alerts) and alerts[0] < PASSED),
            nights=len(monitor.entries),
            epsilon_spent=monitor.spent(),
            epsilon_planned=monitor.settings.epsilon_total,
        )


def _row(**found: float) -> dict[str, float]:
    return {name: float(found.get(name, np.nan)) for name in MEASURES}


def work(cell: Cell) -> dict[str, float]:
    """One run."""
    return in_files(cell) if cell.method in FILES else repeated(cell)


def cells(*, quick: bool) -> list[Cell]:
    """200 runs of each kind, and one of each in files; quick: five runs."""
    kinds = [(method, 1) for method in FILES if not quick]
    kinds += [(method, 5 if quick else REPEATS) for method in (AT_LIMIT, DRIFT)]
    recipe = f"{NIGHTS} nights of {PEOPLE}, limit {LIMIT}, false alarms {FALSE_ALARMS}, window {WINDOW}"
    return [
        Cell("monitor", SIMULATED, "demographic_parity", method, 0, seed, EPSILON, recipe=recipe)
        for method, repeats in kinds
        for seed in range(repeats)
    ]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One line per kind of run."""
    lines: list[dict[str, Any]] = []
    for method, rows in results.groupby("method"):
        first = rows["first_alert"]
        late = first[first >= PASSED] - PASSED if method != AT_LIMIT else first[:0]
        lines.append(
            {
                "runs": method,
                "number": len(rows),
                "false alarms": f"{int(rows['false_alarm'].sum())} ({100 * rows['false_alarm'].mean():.1f}%)",
                "alert by the end of month four": "" if method == AT_LIMIT else f"{int((first <= 4 * MONTH).sum())}",
                "nights from passing the limit to the alert, median (5% to 95%)": ""
                if late.empty
                else f"{late.median():.0f} ({late.quantile(0.05):.0f} to {late.quantile(0.95):.0f})",
                "epsilon spent (planned)": ""
                if rows["epsilon_spent"].isna().all()
                else f"{rows['epsilon_spent'].max():.3f} ({rows['epsilon_planned'].max():.3f})",
            }
        )
    return pd.DataFrame(lines)


def table(results: pd.DataFrame) -> str:
    """The summary for the page."""
    found = summarise(results)
    found = found.replace({name: name.replace("people", "rows") for name in FILES})
    lines = [list(found.columns), ["---"] * len(found.columns), *found.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Return the summary; there is nothing to draw."""
    del folder
    return summarise(results).to_string(index=False)


def claims(results: pd.DataFrame) -> list[Claim]:
    """What was planned, held against the runs."""
    found = []
    planned = f"A run of {NIGHTS} nights {{}} has a false alarm with probability at most {100 * FALSE_ALARMS:g}%."
    for method, words in ((AT_LIMIT, "exactly at the limit"), (DRIFT, "whose drift passes the limit in month four")):
        rows = results[results["method"] == method]
        if len(rows):
            share = float(rows["false_alarm"].mean())
            error = (share * (1 - share) / len(rows)) ** 0.5
            numbers = f"{100 * share:.1f}% of {len(rows)} runs (standard error {100 * error:.1f})"
            found.append(Claim(planned.format(words), share <= FALSE_ALARMS, numbers))
    rows = results[results["method"] == DRIFT]
    if len(rows):
        share = float((rows["first_alert"] <= 4 * MONTH).mean())
        numbers = f"{100 * share:.1f}% of {len(rows)} runs"
        found.append(
            Claim("A drift that passes the limit in month four is an alert in that month.", share > 0.99, numbers)
        )
    rows = results[results["method"].isin(list(FILES))]
    if len(rows):
        same = bool(np.allclose(rows["epsilon_spent"], rows["epsilon_planned"], rtol=1e-9))
        spent = ", ".join(f"{spent:.3f}" for spent in rows["epsilon_spent"])
        found.append(Claim("After all nights the ledgers hold the planned budget.", same, f"epsilon {spent}"))
    return found


MONITOR = Experiment("monitor", cells, publish, claims=claims, work=work, table=table, measures=MEASURES)
