"""Fills the result sections of the documentation from committed results: no number there is typed by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench.experiments.experiment import Experiment
from bench.experiments.records import provenance
from bench.experiments.runner import read_results

SECTION = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def fill(page: str, experiments: Mapping[str, Experiment], results: Path, *, link: str) -> str:
    """The page with every marked section replaced by what the results say.

    Parameters
    ----------
    link : str
        Path from the page to the folder ``results``.
    """

    def section(found: re.Match[str]) -> str:
        return f"{found[1]}{describe(experiments[found[2]], results, link=link)}\n{found[3]}"

    def summary(found: re.Match[str]) -> str:
        experiment = experiments[found[2]]
        rows = read_results(results / f"{experiment.name}.csv")
        shown = f"No results are committed; `make reproduce-{experiment.name}` makes them."
        return f"{found[1]}{shown if rows.empty else experiment.summary(rows)}\n{found[3]}"

    return SUMMARY.sub(summary, SECTION.sub(section, page))


#: A small table of an experiment on a page that is about something else.
SUMMARY = re.compile(r"(<!-- summary: (\w+) -->\n).*?(<!-- end of summary -->)", re.DOTALL)


def describe(experiment: Experiment, results: Path, *, link: str) -> str:
    """Where the numbers come from, the table or pictures, and the paper's claims held against them."""
    path = results / f"{experiment.name}.csv"
    rows = read_results(path)
    if rows.empty:
        return f"No results are committed; `make reproduce-{experiment.name}` makes them."
    made = provenance(path)
    parts = [f"Data: [`results/{path.name}`]({link}/{path.name}). {f'Made by {made}' if made else ''}".rstrip()]
    absent = [method for method in experiment.methods if method not in set(rows["method"])]
    if absent:
        parts.append(f"Not fitted yet: {', '.join(absent)}; `make reproduce-{experiment.name}` adds them.")
    parts.append(experiment.table(rows))
    parts += [f"![{name}]({link}/figures/{name}.svg)" for name in experiment.figures if _exists(results, f"{name}.svg")]
    parts.append("\n".join(f"* {claim}" for claim in experiment.claims(rows)))
    return "\n\n".join(part for part in parts if part)


def _exists(results: Path, name: str) -> bool:
    return (results / "figures" / name).exists()
