"""Fills the result sections of the documentation from committed results: no number there is typed by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.headlines import SUMMARIES
from bench.experiments.records import provenance
from bench.experiments.runner import read_results

SECTION = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
#: What a picture shows, for those who do not see it.
FIGURES = {
    "tradeoffs": "Accuracy and violation against epsilon for PF-LD and M, one panel per dataset",
    "c_p_repaired": "Accuracy and violation against epsilon for several C_p, repaired PF-LD",
    "clipped_repaired": "Accuracy, violation and share of clipped gradients by group against C_p, repaired PF-LD",
    "c_p_printed": "Accuracy and violation for several C_p, PF-LD as published",
    "clipped_printed": "Accuracy, violation and share of clipped gradients by group against C_p, PF-LD as published",
    "c_d": "Accuracy and violation against epsilon for several C_d on Bank, PF-LD as published",
    "missing": "Accuracy and violation against epsilon with 0 to 60 per cent of the attributes missing",
    "theorems": "Measured error and bound of Theorems 6 and 7 against the clipping bounds",
    "pareto": "Accuracy against violation of every method on Bank, Income and Compas",
    "frontier": "Accuracy against violation along the tolerance, one panel per dataset and notion",
    "price": "Accuracy and violation against epsilon from 0.05 to no privacy, on Bank and Income",
    "measure": "Coverage and width of the bounds of private measurement against epsilon",
    "inside": "Estimated and exact gaps after the first release, and the violation during training",
}


def fill(page: str, experiments: Mapping[str, Experiment], results: Path, *, link: str) -> str:
    """The page with every marked section replaced by the table, pictures and claims of its results.

    Parameters
    ----------
    link : str
        Path from the page to the folder ``results``.
    """

    def section(found: re.Match[str]) -> str:
        if found[2] not in experiments and found[2] not in SUMMARIES:  # a section of another command
            return found[0]
        if found[2] in SUMMARIES:
            return f"{found[1]}{SUMMARIES[found[2]](results)}\n{found[3]}"
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
    """Where the numbers come from, the table or pictures, and the claims checked against them."""
    path = results / f"{experiment.name}.csv"
    rows = read_results(path)
    if rows.empty:
        return f"No results are committed; `make reproduce-{experiment.name}` makes them."
    made = provenance(path)
    parts = [f"Data: [`results/{path.name}`]({link}/{path.name}). {f'Made by {made}' if made else ''}".rstrip()]
    absent = [name_of(method) for method in experiment.methods if method not in set(rows["method"])]
    if absent:
        parts.append(f"Not fitted yet: {', '.join(absent)}; `make reproduce-{experiment.name}` adds them.")
    parts.append(experiment.table(rows))
    drawn = [name for name in experiment.figures if _exists(results, f"{name}.svg")]
    parts += [f"![{FIGURES.get(name, name)}]({link}/figures/{name}.svg)" for name in drawn]
    parts.append("\n".join(f"* {claim}" for claim in experiment.claims(rows)))
    return "\n\n".join(part for part in parts if part)


def pages(root: Path) -> tuple[Path, ...]:
    """README and every page of the documentation that has a result section."""
    found = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    marked = re.compile(r"<!-- (?:results|summary): ")
    return tuple(page for page in found if page.exists() and marked.search(page.read_text(encoding="utf-8")))


def _exists(results: Path, name: str) -> bool:
    return (results / "figures" / name).exists()
